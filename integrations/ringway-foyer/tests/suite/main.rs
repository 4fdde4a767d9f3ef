//! The engine as foyer uses it, on the usual backend and on threads alone, as where io_uring is
//! refused.

mod cache;
mod operations;
mod support;
