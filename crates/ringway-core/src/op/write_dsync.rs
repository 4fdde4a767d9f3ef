//! Writes durably from one buffer: `pwritev2(2)` with `RWF_DSYNC`.

use super::{
    Fsync, Operation, Position, Raw, Resources, RwFlags, SubmissionForms, Transfer, Write,
};
use crate::file::{FileKind, Traits};
use crate::sys::RawFd;
use crate::sys::libc;
use crate::{Buffer, File};

/// As [`write`](super::write()), but the bytes are on the device when it completes, as if the file
/// had been opened with `O_DSYNC`. It does not cover other writes: use
/// [`fdatasync`](super::fdatasync) for those.
///
/// It is one request, where a write and a sync are two, and a direct one needs no cache flush on a
/// device with "forced unit access". For a write over 1 GiB, and for each part that `exact`
/// continues with, each request is made durable separately; there a sync after the whole write
/// ([`Queue::push_chain`](crate::Queue::push_chain)) costs less.
///
/// On some file systems it costs more flushes than a write and a sync (btrfs):
/// [`File::has_dsync`](crate::File::has_dsync) shows where it is known to be the better way.
///
/// Errors: those of `pwritev2(2)`, that is those of a write and those of a sync (after EIO the data
/// may be lost, and a retry that succeeds proves nothing); EOPNOTSUPP if `RWF_DSYNC` is not
/// supported.
///
/// ```
/// # use ringway_core::{op, Options, OpenOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let log = OpenOptions::new().write(true).create(true).open(dir.path().join("log"))?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::write_dsync(&log, b"commit".to_vec(), 0).exact())?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(6));
/// # Ok(()) }
/// ```
pub fn write_dsync(
    file: &File,
    buffer: impl Into<Buffer>,
    position: impl Into<Position>,
) -> Operation {
    let buffer = buffer.into();
    let write = Write {
        fd: file.fd(),
        buf: std::ptr::null(),
        len: buffer.len(),
        offset: position.into().raw(),
        flags: RwFlags::NONE,
    };
    Operation::on_file(WriteDsync(write).into(), Resources::Buffer(buffer), file, None)
}

/// A write whose bytes are durable when it completes.
#[derive(Clone, Copy, Debug)]
pub struct WriteDsync(pub Write);

impl SubmissionForms for WriteDsync {
    fn fd(&self) -> Option<RawFd> {
        Some(self.0.fd)
    }

    fn offset(&self) -> Option<u64> {
        Some(self.0.offset)
    }

    fn rw_flags(&self) -> RwFlags {
        self.0.rw_flags()
    }

    fn rw_flags_mut(&mut self) -> Option<&mut RwFlags> {
        self.0.rw_flags_mut()
    }

    fn is_write(&self) -> bool {
        true
    }

    fn is_sync(&self) -> bool {
        true
    }

    fn transfer(&self) -> Transfer {
        self.0.transfer()
    }

    fn piece(&self, start: u64, len: u64) -> Raw {
        Self(self.0.part(start, len)).into()
    }

    fn call(&self) -> i64 {
        let result = self.0.call_with(libc::RWF_DSYNC | self.0.flags.bits());
        // A filter may refuse the call. (The C library then replaces ENOSYS by EOPNOTSUPP.) A
        // server may answer that too, to the sync after it has taken the bytes.
        let refused = [libc::ENOSYS, libc::EOPNOTSUPP, libc::EPERM];
        if !cfg!(ringway_linux) || !refused.map(|errno| -i64::from(errno)).contains(&result) {
            return result;
        }
        let is_device = Traits::of(self.0.fd).kind == FileKind::Device;
        match self.is_refused_without_bytes() {
            true if !is_device => self.write_and_sync(),
            false if !is_device || result == -i64::from(libc::EPERM) => result,
            // The driver of a device has no data that a sync could lose, and may know no sync.
            _ => self.0.call(),
        }
    }
}

impl WriteDsync {
    /// Whether the call fails where it does nothing: with bytes, the file system would be asked.
    fn is_refused_without_bytes(&self) -> bool {
        Write { len: 0, ..self.0 }.call_with(libc::RWF_DSYNC) < 0
    }

    /// The same in two calls.
    fn write_and_sync(&self) -> i64 {
        let written = self.0.call();
        if written <= 0 {
            return written;
        }
        durable(written, (Fsync { fd: self.0.fd, data_only: true }).call())
    }
}

/// The result of a write and its sync. After EINTR of the sync neither is repeated: the write may
/// append, and a second sync would succeed if that was the error of lost data.
fn durable(written: i64, synced: i64) -> i64 {
    match i32::try_from(-synced) {
        Ok(libc::EINTR) => -i64::from(libc::EIO),
        _ if synced < 0 => synced,
        _ => written,
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, SqeContext, on_file};
    use crate::sys::kaio::Iocb;
    use io_uring::{opcode, squeue};

    impl LinuxForms for WriteDsync {
        fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
            let Write { fd, buf, len, offset, flags } = self.0;
            let flags = libc::RWF_DSYNC | flags.bits();
            let len = u32::try_from(len).ok()?;
            Some(on_file!(context, fd, |file| {
                opcode::Write::new(file, buf, len).offset(offset).rw_flags(flags).build()
            }))
        }

        fn iocb(&self) -> Option<Iocb> {
            let flags = libc::RWF_DSYNC | self.0.flags.bits();
            Some(self.0.iocb()?.rw_flags(flags as u32))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The queue repeats what ends with EINTR, and a write that appends would be made twice.
    #[test]
    fn an_interrupted_sync_is_an_error_that_is_not_retried() {
        let error = |errno: i32| -i64::from(errno);
        assert_eq!(durable(7, 0), 7);
        assert_eq!(durable(7, error(libc::ENOSPC)), error(libc::ENOSPC));
        assert_eq!(durable(7, error(libc::EINTR)), error(libc::EIO));
    }
}
