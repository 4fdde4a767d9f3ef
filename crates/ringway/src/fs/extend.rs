//! Extends a file by blocks that are written.

use super::File;
use super::sync::SyncKind;
use crate::engine::op_result::invalid;
use ringway_core::device::DirectIo;
use ringway_core::{AlignedBuffer, errno};
use std::io;

/// Bytes of a write.
const ZEROES: u64 = 1 << 20;

impl File {
    /// Extends the file by a range of zeroes that are written to the device: for a log or a journal
    /// of a fixed length whose durable writes are to cost the device as little as possible. It
    /// returns when they are durable.
    ///
    /// A durable write to blocks that are only [allocated](Self::allocate) is a write of metadata,
    /// too. Direct writes of 4 KiB with `RWF_DSYNC` in random order, kernel 6.18: to blocks that
    /// were written before they take 1 flush of the device instead of 2 and half the CPU time on
    /// ext4 and XFS, and write 4 KiB instead of 20 and 9. btrfs gains a third in bytes and half
    /// the CPU time without copy-on-write (`chattr +C`), and with it nothing, since each write is
    /// made to new blocks.
    ///
    /// This writes as much as `len`. The file system reserves the range first, so ENOSPC comes
    /// early, except where it cannot (EOPNOTSUPP).
    ///
    /// The range must begin at or behind the end of the file, so that this overwrites no data.
    /// Nobody else may write to the range until this has returned: zeroes may replace what they
    /// have written. After an error, or if the future is dropped, the file may have any length up
    /// to the end of the range, has zeroes there, and is written to for a moment longer.
    ///
    /// Errors: InvalidInput for a range that begins before the end of the file or that direct I/O
    /// cannot write, for a file with `O_APPEND`, and for what is not a regular file; those of
    /// `fallocate(2)`, `write(2)` and `fdatasync(2)`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir()?;
    /// let path = dir.path().join("journal");
    /// let file = ringway::fs::File::create_new(&path).await?;
    /// file.allocate_written(0, 1 << 20).await?;
    /// ringway::fs::sync_dir(dir.path()).await?; // the name
    /// file.write_durable_at(vec![7; 4096], 8192).await.0?;
    /// # assert_eq!(std::fs::metadata(path)?.len(), 1 << 20);
    /// # Ok(()) }
    /// ```
    pub async fn allocate_written(&self, offset: u64, len: u64) -> io::Result<()> {
        let errors = self.unreported_errors()?;
        self.finish_all_writes().await?;
        let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
        // (Of a file that is not direct, the alignment may be found out by opening it once more.)
        let direct = if self.is_direct() { self.alignment() } else { DirectIo::new(1, 1) };
        let align = u64::from(direct.offset_align);
        let metadata = self.metadata().await?;
        let refused = match end {
            None => Some("allocate_written: the range ends above i64::MAX"),
            // (A block device says that its length is 0.)
            _ if !metadata.is_file() => Some("allocate_written: not a regular file"),
            _ if self.appends()? => {
                Some("allocate_written: open the file without O_APPEND, which ignores offsets")
            }
            _ if offset < metadata.len() => Some(
                "allocate_written: the range begins before the end of the file, where data could \
                 be lost: begin at the end",
            ),
            _ if !offset.is_multiple_of(align) || !len.is_multiple_of(align) => {
                Some("allocate_written: direct I/O writes whole blocks: see File::alignment")
            }
            Some(_) => None,
        };
        if let Some(text) = refused {
            return Err(invalid(text));
        }
        match self.allocate(offset, len).await {
            Err(error) if is_unsupported(&error) => {}
            allocated => allocated?,
        }
        let zeroed = |len: u64| AlignedBuffer::for_direct(direct, len as usize);
        let (rest, mut at) = (len % ZEROES, offset);
        let mut zeroes = zeroed(len.min(ZEROES));
        for _ in 0..len / ZEROES {
            let (written, buffer) = self.write_all_at(zeroes, at).await;
            written?;
            (zeroes, at) = (buffer, at + ZEROES);
        }
        if rest > 0 {
            self.write_all_at(zeroed(rest), at).await.0?;
        }
        self.sync_written(SyncKind::Data, errors).await
    }
}

/// Whether the file system or the system lacks the call.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(errno::EOPNOTSUPP | errno::ENOSYS))
        || error.kind() == io::ErrorKind::Unsupported
}
