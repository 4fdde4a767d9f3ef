//! Kernel interfaces that operations, backends and the probe share: the binding to Linux AIO, and
//! eventfds with the calls that wait for them. io_uring's are in the `io-uring` crate.

pub(crate) mod eventfd;
pub(crate) mod kaio;
