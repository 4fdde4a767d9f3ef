//! The reader through Vortex's traits, and whole Vortex files with it and with Vortex's own reader.
//! Each case runs on the engine's usual backend, on Linux AIO where it is available, and on threads
//! alone, as where io_uring is refused.

mod dropped;
mod file_system;
mod invalid;
mod reads;
mod round_trip;
mod support;
