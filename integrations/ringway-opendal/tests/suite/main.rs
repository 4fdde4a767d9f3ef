//! The service as programs use it, through OpenDAL's operator. Each case runs on the engine's
//! usual backend and on its threads alone, as where io_uring is refused.

mod conditions;
mod dropped;
mod list;
mod parity;
mod read;
mod relocate;
mod server;
mod support;
mod write;
