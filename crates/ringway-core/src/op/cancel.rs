//! The requests that cancel an operation in flight.
//!
//! [`Queue::cancel`](crate::Queue::cancel) makes them. They have no completion of their own: the
//! cancelled operation completes. So `Cancel` is not a variant of [`Raw`](super::Raw), and its
//! submission forms take what identifies the operation on each backend. On the threads, a queued
//! job is removed from its lane (`backend/threads.rs`); a blocking call that has started runs to
//! its end.

use crate::sys::kaio::{Context, Iocb};
use io_uring::{opcode, squeue};

/// The operation, or piece of one, with this user data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cancel {
    pub user_data: u64,
}

impl Cancel {
    /// `IORING_OP_ASYNC_CANCEL`.
    pub fn sqe(&self) -> squeue::Entry {
        opcode::AsyncCancel::new(self.user_data).build()
    }

    /// `io_cancel(2)`: works for `IOCB_CMD_POLL` only; other requests are refused and continue.
    pub fn io_cancel(context: &Context, iocb: &Iocb) {
        context.cancel(iocb);
    }
}
