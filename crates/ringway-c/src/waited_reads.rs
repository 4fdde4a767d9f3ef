//! Reads that a function makes on the caller's queue and waits for. Completions of the caller's own
//! operations stay for the next reap.

use crate::error::{Failure, to_result};
use crate::queue_handle::QueueHandle;
use ringway_core::Operation;
use std::fmt;
use std::io;
use std::thread;
use std::time::Duration;

/// Marks the user data of these reads, which otherwise is the number that the function gave them.
/// Numbers of records never have this bit.
const WAITED: u64 = 1 << 63;

/// How often a wait that fails with an error that passes is retried, a millisecond apart.
const RETRIES: u32 = 100;

/// Whether the kernel has no memory, or takes nothing, at the moment.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM))
}

/// Whether a completion with this user data is that of such a read. After the queue was closed it
/// may arrive when nobody waits any more.
pub fn is_waited(user_data: u64) -> bool {
    user_data & WAITED != 0
}

/// The reads of one call.
#[derive(Debug, Default)]
pub struct WaitedReads {
    in_flight: usize,
}

/// Receives a read's number and its result: bytes, or minus an errno.
pub type Done<'a> = &'a mut dyn FnMut(usize, i64);

impl WaitedReads {
    /// Errors: minus the errno.
    pub fn push(
        &mut self,
        handle: &mut QueueHandle,
        operation: Operation,
        number: usize,
    ) -> Result<(), i64> {
        match handle.queue.push(operation.exact().user_data(WAITED | number as u64)) {
            Ok(_) => {
                self.in_flight += 1;
                Ok(())
            }
            Err(error) => Err(-i64::from(error.reason().errno())),
        }
    }

    /// Waits for `some` of the reads in flight. Errors: the backend has failed.
    pub fn wait(
        &mut self,
        handle: &mut QueueHandle,
        some: usize,
        done: Done<'_>,
    ) -> io::Result<()> {
        let before = self.in_flight;
        let mut retries = RETRIES;
        while before - self.in_flight < some {
            let missing = some - (before - self.in_flight);
            match self.take(handle, missing, done) {
                Err(error) if is_transient(&error) && retries > 0 => {
                    retries -= 1;
                    thread::sleep(Duration::from_millis(1));
                }
                reaped => reaped?,
            }
        }
        Ok(())
    }

    /// Waits for all reads in flight. Errors: the backend has failed.
    pub fn wait_all(&mut self, handle: &mut QueueHandle, done: Done<'_>) -> io::Result<()> {
        self.wait(handle, self.in_flight, done)
    }

    fn take(&mut self, handle: &mut QueueHandle, missing: usize, done: Done<'_>) -> io::Result<()> {
        handle.queue.reap_matching(missing, is_waited, |read| {
            self.in_flight = self.in_flight.saturating_sub(1);
            done((read.user_data & !WAITED) as usize, to_result(read.result));
        })
    }

    /// Closes the queue after the backend has failed, so that the kernel releases the buffers. It
    /// still uses those of reads that have no result after that.
    pub fn give_up(
        mut self,
        handle: &mut QueueHandle,
        function: impl fmt::Display,
        error: io::Error,
        done: Done<'_>,
    ) -> Failure {
        // If this fails, so does the reap below.
        let _ = handle.queue.close(handle.close_wait);
        let _ = self.take(handle, 0, done);
        Failure::new(
            libc::EIO,
            format_args!("{function}: the backend has failed and the queue is closed: {error}"),
        )
    }
}
