//! Cancel an operation in flight.
//!
//! It is asked for with [`Queue::cancel`](crate::Queue::cancel) and has no completion of its own:
//! the answer is the cancelled operation's. So it is no member of [`Raw`](super::Raw), and its
//! forms take what names the operation on each backend. On the threads, a queued job is taken out
//! of its lane (`backend/threads.rs`); a blocking call that has begun is left to end.

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

    /// `io_cancel(2)`: only `IOCB_CMD_POLL` can be cancelled; everything else is refused and runs
    /// on.
    pub fn io_cancel(context: &Context, iocb: &Iocb) {
        context.cancel(iocb);
    }
}
