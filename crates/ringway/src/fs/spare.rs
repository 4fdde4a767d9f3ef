//! Reads into the spare capacity of a buffer, without initialising it first.

use super::File;
use crate::align::check_memory;
use crate::buffer::SpareBuffer;
use crate::engine::op_result::{invalid, spare_transfer};
use crate::engine::{COPY_STEP, poll_proceed, poll_proceed_in_memory};
use ringway_core::SpareCapacity;
use ringway_core::op::{self, Position};
use std::future::poll_fn;
use std::io;

impl File {
    /// Reads at an offset (or at the file's current position, [`Position::Current`]) into the spare
    /// capacity of `buffer`. Returns the number of bytes read, and the buffer, whose length has
    /// grown by that number. The number is less than the spare capacity at the end of the file, and
    /// 0 beyond it (or if there is no spare capacity). Capacity that was not read into is neither
    /// zeroed nor exposed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let file = ringway::fs::File::open("/etc/passwd").await?;
    /// let (read, text) = file.read_buf_at(Vec::with_capacity(4096), 0).await;
    /// assert_eq!(text.len(), read?);
    /// # Ok(()) }
    /// ```
    ///
    /// With direct I/O, neither the offset nor the memory need be aligned, as for
    /// [`read_at`](Self::read_at).
    ///
    /// Errors: as for [`read_at`](Self::read_at); the buffer then keeps its length. If the future
    /// is dropped, the read is cancelled, and the buffer is freed once the kernel no longer uses
    /// it.
    pub async fn read_buf_at<B: SpareBuffer>(
        &self,
        buffer: B,
        at: impl Into<Position>,
    ) -> (io::Result<usize>, B) {
        let (result, spare) = self.read_spare(buffer.into(), at.into(), false).await;
        (result, B::returned(spare))
    }

    /// As [`read_buf_at`](Self::read_buf_at), but fills the whole spare capacity.
    ///
    /// Errors: UnexpectedEof if the file ends before that; the buffer has grown by the bytes up to
    /// the end.
    pub async fn read_buf_exact_at<B: SpareBuffer>(
        &self,
        buffer: B,
        at: impl Into<Position>,
    ) -> (io::Result<()>, B) {
        let spare = buffer.into();
        let len = spare.len();
        let (result, spare) = self.read_spare(spare, at.into(), true).await;
        let result = result.and_then(|read| {
            if read == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        });
        (result, B::returned(spare))
    }

    pub(super) async fn read_spare(
        &self,
        mut spare: SpareCapacity,
        at: Position,
        exact: bool,
    ) -> (io::Result<usize>, SpareCapacity) {
        if let Position::Offset(offset) = at {
            let (len, address) = (spare.len() as u64, spare.as_ptr().addr() as u64);
            if self.is_direct() && check_memory(&self.alignment(), offset, len, address).is_err() {
                // Boxed, so that it does not enlarge the future of every read.
                return Box::pin(self.read_spare_around(spare, offset)).await;
            }
            if let Some(read) = self.read_spare_cached(&mut spare, offset).await {
                return (Ok(read), spare);
            }
        }
        let len = spare.len();
        let read = op::read_spare(self.core(), spare, at);
        spare_transfer(self.submit(if exact { read.exact() } else { read }, len).await)
    }

    /// Reads from the page cache, up to the end of the file. Returns `None`, and leaves the buffer
    /// unchanged, if some of the data is not cached.
    async fn read_spare_cached(&self, spare: &mut SpareCapacity, offset: u64) -> Option<usize> {
        if spare.is_empty() || !self.tries_cache() {
            return None;
        }
        let mut read = 0;
        while !spare.is_empty() {
            let step = spare.len().min(COPY_STEP);
            // Yield before the read, so that a task that yields does not hold what it has read.
            poll_fn(|cx| poll_proceed(cx, step)).await;
            let Some(more) = self.core().read_spare_now(
                spare,
                step,
                offset.saturating_add(read as u64),
                self.rw_flags(),
            ) else {
                spare.truncate_by(read);
                self.cache().miss();
                return None;
            };
            read += more;
            if more < step {
                break;
            }
        }
        self.count_hit();
        Some(read)
    }

    /// A direct read that is not aligned: reads the enclosing range into a pooled buffer and
    /// copies.
    async fn read_spare_around(
        &self,
        mut spare: SpareCapacity,
        offset: u64,
    ) -> (io::Result<usize>, SpareCapacity) {
        let result = match offset.checked_add(spare.len() as u64) {
            Some(end) => self.read(offset..end).await,
            None => Err(invalid("offset above i64::MAX")),
        };
        let Ok(block) = result else { return (result.map(|block| block.len()), spare) };
        for step in block.chunks(COPY_STEP) {
            poll_fn(|cx| poll_proceed_in_memory(cx, step.len())).await;
            spare.append(step);
        }
        (Ok(block.len()), spare)
    }
}
