//! What makes the descriptor of the faulty backend readable on systems without epoll: the inner
//! backend, whose descriptor it shares.

use crate::backend::Backend;
use crate::sys::RawFd;
use std::io;

/// Whether the descriptor was asked for.
#[derive(Debug)]
pub(super) struct Signal {
    is_polled: bool,
}

impl Signal {
    pub fn new() -> io::Result<Self> {
        Ok(Self { is_polled: false })
    }

    pub fn is_polled(&self) -> bool {
        self.is_polled
    }

    /// The descriptor to poll. Errors: those of the inner backend.
    pub fn poll_fd(&mut self, inner: &mut dyn Backend) -> io::Result<RawFd> {
        let fd = inner.poll_fd()?;
        self.is_polled = true;
        Ok(fd)
    }

    /// Makes it readable until the inner backend is entered.
    pub fn raise(&self, inner: &mut dyn Backend) {
        inner.wake();
    }

    /// Nothing to do: entering the inner backend does it.
    pub fn clear(&self) {}

    /// None of its own.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        std::iter::empty()
    }
}
