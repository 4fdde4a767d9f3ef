//! NVMe passthrough: the commands that reads, writes and syncs of a namespace become
//! (`IORING_OP_URING_CMD`, kernel 5.19), where the namespace ends, and what the device's status
//! codes mean. Which namespace a file is, is in `device::nvme`.
//!
//! References: the NVM Command Set Specification (Read, Write, Flush), the NVM Express Base
//! Specification ("Status Field"), `linux/nvme_ioctl.h`.

use crate::sys::libc;
#[cfg(ringway_linux)]
pub(crate) use command::{Command, Plan, plan};
use std::fmt;
use std::num::NonZeroU16;

/// Why a device failed a command: the status field of its completion, without the phase bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Status(pub NonZeroU16);

impl Status {
    /// Type and code, without the bits that say whether a retry may help.
    const fn code(self) -> u16 {
        self.0.get() & 0x7ff
    }

    /// The errno with which a transfer on the block device fails for the same reason.
    #[cfg(ringway_linux)]
    pub const fn errno(self) -> i32 {
        match self.code() {
            0x001 | 0x002 | 0x00b | 0x180 => libc::EOPNOTSUPP,
            0x021 | 0x080 | 0x082 => libc::EREMOTEIO,
            0x081 => libc::ENOSPC,
            0x083 => libc::EBADE,
            0x181 | 0x282..=0x284 => libc::EILSEQ,
            0x182 | 0x280 | 0x281 | 0x285..=0x287 => libc::ENODATA,
            0x370 => libc::ENOLINK,
            _ => libc::EIO,
        }
    }

    /// No other system reports a status.
    #[cfg(not(ringway_linux))]
    pub const fn errno(self) -> i32 {
        libc::EIO
    }

    /// The specification's name of the code, where that says more than the errno.
    const fn text(self) -> &'static str {
        match self.code() {
            0x001 => "invalid command opcode",
            0x002 => "invalid field in command",
            0x004 => "data transfer error",
            0x006 => "internal error",
            0x007 => "command abort requested",
            0x00b => "invalid namespace or format",
            0x021 => "command interrupted",
            0x080 => "LBA out of range",
            0x081 => "capacity exceeded",
            0x082 => "namespace not ready",
            0x083 => "reservation conflict",
            0x180 => "conflicting attributes",
            0x182 => "attempted write to read only range",
            0x280 => "write fault",
            0x281 => "unrecovered read error",
            0x286 => "access denied",
            0x287 => "deallocated or unwritten block",
            0x370 => "host pathing error",
            _ => "see the NVMe specification",
        }
    }
}

/// `NVMe status 0x281 (unrecovered read error)`
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NVMe status {:#x} ({})", self.code(), self.text())
    }
}

#[cfg(ringway_linux)]
mod command {
    use crate::device::{FLUSH, Namespace};
    use crate::op::operation::iovecs;
    use crate::op::{
        CURRENT_POSITION, Fsync, Raw, Read, Readv, RwFlags, Write, WriteDsync, Writev,
    };
    use crate::sys::{RawFd, libc};
    use io_uring::{opcode, squeue, types};

    /// What becomes of an operation on a namespace.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Plan {
        /// It is one command.
        Whole,
        /// This beginning of it is one command.
        Part(Raw),
        /// It has this result, without a command: a number of bytes or minus errno.
        Done(i64),
    }

    /// Plans an operation as a block device with the namespace's size would do it: a read at the
    /// end returns 0, one that crosses the end is short, and a write at the end fails with ENOSPC.
    ///
    /// Results without a command: EBADF if the file is not open for it; EINVAL for an offset, a
    /// length or a buffer of several that is not a whole number of blocks, and for the current
    /// position, which namespaces do not have.
    pub(crate) fn plan(namespace: &Namespace, raw: &Raw) -> Plan {
        let Some(offset) = raw.offset() else { return Plan::Whole };
        let is_write = raw.is_write();
        if !(if is_write { namespace.writable } else { namespace.readable }) {
            return Plan::Done(-i64::from(libc::EBADF));
        }
        // (The command itself would be a plain write.)
        if raw.rw_flags().has(RwFlags::ATOMIC) {
            return Plan::Done(-i64::from(libc::EOPNOTSUPP));
        }
        let len = raw.bytes();
        if len == 0 {
            return Plan::Done(0);
        }
        // (The kernel takes such a command for one without data: see `Flush`.)
        if has_no_memory(raw) {
            return Plan::Done(-i64::from(libc::EFAULT));
        }
        let block = 1u64 << namespace.block_shift;
        let aligned = |number: u64| number.is_multiple_of(block);
        if offset == CURRENT_POSITION || !aligned(offset) || !aligned(len) {
            return Plan::Done(-i64::from(libc::EINVAL));
        }
        let left = namespace.len.saturating_sub(offset);
        if left == 0 {
            return Plan::Done(if is_write { -i64::from(libc::ENOSPC) } else { 0 });
        }
        let most = left.min(u64::from(namespace.largest));
        let buffers = match raw {
            Raw::Readv(Readv { iov, count, .. }) | Raw::Writev(Writev { iov, count, .. }) => {
                iovecs(*iov, *count)
            }
            _ if len <= most => return Plan::Whole,
            _ => return Plan::Part(raw.piece(0, most)),
        };
        if !buffers.iter().all(|one| aligned(one.iov_len as u64)) {
            return Plan::Done(-i64::from(libc::EINVAL));
        }
        plan_buffers(namespace, raw, buffers, most)
    }

    /// True for an address that only an operation made from addresses can have.
    fn has_no_memory(raw: &Raw) -> bool {
        match raw {
            Raw::Read(read) => read.buf.is_null(),
            Raw::Write(write) | Raw::WriteDsync(WriteDsync(write)) => write.buf.is_null(),
            _ => false,
        }
    }

    /// As many of the buffers as one command takes; of a first one that is too long, a part.
    ///
    /// Between two buffers of a command no page is left partly used: on kernel 7.2 such commands
    /// transferred other memory now and then.
    fn plan_buffers(namespace: &Namespace, raw: &Raw, buffers: &[libc::iovec], most: u64) -> Plan {
        let page = u64::from(namespace.page_size);
        let (mut bytes, mut pages, mut count, mut end) = (0, 0, 0, 0);
        for one in buffers {
            let (start, len) = (one.iov_base.addr() as u64, one.iov_len as u64);
            bytes += len;
            pages += if len == 0 { 0 } else { (start % page + len).div_ceil(page) };
            let leaves_gap = bytes > len && len > 0 && (end % page != 0 || start % page != 0);
            if bytes > most || pages > u64::from(namespace.pages) || leaves_gap {
                break;
            }
            count += 1;
            end = if len > 0 { start + len } else { end };
        }
        if count == buffers.len() {
            return Plan::Whole;
        }
        let taken: u64 = buffers[..count].iter().map(|one| one.iov_len as u64).sum();
        let rest = buffers[count..].first();
        Plan::Part(match (raw, rest) {
            (Raw::Readv(read), _) if taken > 0 => Raw::Readv(Readv { count, ..*read }),
            (Raw::Writev(write), _) if taken > 0 => Raw::Writev(Writev { count, ..*write }),
            (Raw::Readv(Readv { fd, offset, flags, .. }), Some(one)) => Raw::Read(Read {
                fd: *fd,
                buf: one.iov_base.cast(),
                len: one.iov_len.min(most as usize),
                offset: *offset,
                flags: *flags,
            }),
            (Raw::Writev(Writev { fd, offset, flags, .. }), Some(one)) => Raw::Write(Write {
                fd: *fd,
                buf: one.iov_base.cast_const().cast(),
                len: one.iov_len.min(most as usize),
                offset: *offset,
                flags: *flags,
            }),
            _ => *raw,
        })
    }

    /// `_IOWR('N', 0x80, struct nvme_uring_cmd)`: a command with one buffer.
    const NVME_URING_CMD_IO: u32 = 0xc048_4e80;
    /// The same with an array of buffers.
    const NVME_URING_CMD_IO_VEC: u32 = 0xc048_4e81;

    const WRITE: u8 = 1;
    const READ: u8 = 2;
    /// In CDW12: the write is durable when it completes ("force unit access").
    const FORCE_UNIT_ACCESS: u32 = 1 << 30;

    /// A command, as the fields of `struct nvme_uring_cmd` that are not 0.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Command {
        opcode: u8,
        nsid: u32,
        addr: u64,
        /// Bytes, or the number of buffers.
        data_len: u32,
        /// The first block.
        first: u64,
        /// CDW12: the number of blocks, less one, and flags.
        control: u32,
        is_vectored: bool,
        /// Bytes that it transfers.
        pub bytes: u32,
    }

    impl Command {
        /// The command for an operation that was [planned](plan); `None` for one that is no
        /// transfer and no sync.
        pub fn new(raw: &Raw, nsid: u32, block_shift: u8) -> Option<Self> {
            let (opcode, addr, data_len, is_vectored) = match raw {
                Raw::Read(Read { buf, len, .. }) => (READ, buf.addr(), *len, false),
                Raw::Write(Write { buf, len, .. })
                | Raw::WriteDsync(WriteDsync(Write { buf, len, .. })) => {
                    (WRITE, buf.addr(), *len, false)
                }
                Raw::Readv(Readv { iov, count, .. }) => (READ, iov.addr(), *count, true),
                Raw::Writev(Writev { iov, count, .. }) => (WRITE, iov.addr(), *count, true),
                Raw::Fsync(Fsync { .. }) => (FLUSH, 0, 0, false),
                _ => return None,
            };
            let bytes = u32::try_from(raw.bytes()).ok()?;
            let blocks = bytes >> block_shift;
            let flags = if matches!(raw, Raw::WriteDsync(_)) { FORCE_UNIT_ACCESS } else { 0 };
            Some(Self {
                opcode,
                nsid,
                addr: addr as u64,
                data_len: u32::try_from(data_len).ok()?,
                first: raw.offset().unwrap_or(0) >> block_shift,
                control: blocks.saturating_sub(1) & 0xffff | flags,
                is_vectored,
                bytes,
            })
        }

        /// `struct nvme_uring_cmd`, and the 8 bytes after it that an entry has room for.
        fn encode(&self) -> [u8; 80] {
            let mut bytes = [0; 80];
            let mut put =
                |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
            put(0, &[self.opcode]);
            put(4, &self.nsid.to_ne_bytes());
            put(24, &self.addr.to_ne_bytes());
            put(36, &self.data_len.to_ne_bytes());
            put(40, &(self.first as u32).to_ne_bytes());
            put(44, &((self.first >> 32) as u32).to_ne_bytes());
            put(48, &self.control.to_ne_bytes());
            bytes
        }

        /// The entry for a descriptor or a registered file, and whether it uses the registered
        /// buffer.
        pub fn sqe(
            &self,
            fd: RawFd,
            fixed_file: Option<u32>,
            fixed_buffer: Option<u16>,
        ) -> (squeue::Entry128, bool) {
            let code = if self.is_vectored { NVME_URING_CMD_IO_VEC } else { NVME_URING_CMD_IO };
            let buffer = fixed_buffer.filter(|_| !self.is_vectored && self.bytes > 0);
            let build =
                |command: opcode::UringCmd80| command.cmd(self.encode()).buf_index(buffer).build();
            let entry = match fixed_file {
                Some(index) => build(opcode::UringCmd80::new(types::Fixed(index), code)),
                None => build(opcode::UringCmd80::new(types::Fd(fd), code)),
            };
            (entry, buffer.is_some())
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::split::SplitProgress;
        use proptest::prelude::*;

        fn namespace(len: u64, largest: u32) -> Namespace {
            Namespace {
                id: 7,
                block_shift: 9,
                len,
                largest,
                pages: 128,
                page_size: 4096,
                readable: true,
                writable: true,
                polls: false,
            }
        }

        fn read(offset: u64, len: usize) -> Raw {
            Raw::Read(Read {
                fd: 3,
                buf: std::ptr::without_provenance_mut(4096),
                len,
                offset,
                flags: RwFlags::NONE,
            })
        }

        fn write(offset: u64, len: usize) -> Raw {
            Raw::Write(Write {
                fd: 3,
                buf: std::ptr::without_provenance(4096),
                len,
                offset,
                flags: RwFlags::NONE,
            })
        }

        /// The bytes of a plan, or its result without a command.
        fn outcome(plan: Plan, raw: &Raw) -> Result<u64, i64> {
            match plan {
                Plan::Whole => Ok(raw.bytes()),
                Plan::Part(part) => Ok(part.bytes()),
                Plan::Done(result) => Err(result),
            }
        }

        #[test]
        fn a_namespace_ends_as_a_block_device_does() {
            let namespace = namespace(1 << 20, 128 << 10);
            let end = 1 << 20;
            let of = |raw: Raw| outcome(plan(&namespace, &raw), &raw);
            assert_eq!(of(read(end - 512, 512)), Ok(512));
            assert_eq!(of(read(end - 512, 4096)), Ok(512));
            assert_eq!(of(read(end, 512)), Err(0));
            assert_eq!(of(read(i64::MAX as u64 / 512 * 512, 512)), Err(0));
            assert_eq!(of(write(end - 1024, 4096)), Ok(1024));
            assert_eq!(of(write(end, 512)), Err(-i64::from(libc::ENOSPC)));
            assert_eq!(of(write(end, 0)), Err(0));
            for raw in [read(1, 512), read(0, 100), write(512, 513), read(CURRENT_POSITION, 512)] {
                assert_eq!(of(raw), Err(-i64::from(libc::EINVAL)), "{raw:?}");
            }
            // A command is not untorn.
            for len in [0, 512, 4096] {
                let Raw::Write(write) = write(0, len) else { unreachable!() };
                let untorn = Write { flags: RwFlags::ATOMIC, ..write };
                for raw in [Raw::Write(untorn), Raw::WriteDsync(WriteDsync(untorn))] {
                    assert_eq!(of(raw), Err(-i64::from(libc::EOPNOTSUPP)));
                }
            }
            let fsync = Raw::Fsync(Fsync { fd: 3, data_only: true });
            assert!(matches!(plan(&namespace, &fsync), Plan::Whole));
        }

        #[test]
        fn a_command_needs_a_file_that_is_open_for_it() {
            let read_only = Namespace { writable: false, ..namespace(1 << 20, 1 << 17) };
            let write_only = Namespace { readable: false, ..namespace(1 << 20, 1 << 17) };
            let refused = Err(-i64::from(libc::EBADF));
            assert_eq!(outcome(plan(&read_only, &write(0, 512)), &write(0, 512)), refused);
            assert_eq!(outcome(plan(&write_only, &read(0, 512)), &read(0, 512)), refused);
            assert_eq!(outcome(plan(&read_only, &read(0, 512)), &read(0, 512)), Ok(512));
        }

        /// `struct nvme_uring_cmd`, field by field.
        #[test]
        fn the_encoding_of_commands() {
            let field = |bytes: &[u8; 80], at: usize| {
                u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]))
            };
            let offset = (5u64 << 32 | 9) << 9;
            let command = Command::new(&read(offset, 4096), 7, 9).unwrap();
            let bytes = command.encode();
            assert_eq!((bytes[0], field(&bytes, 4)), (READ, 7));
            assert_eq!((field(&bytes, 24), field(&bytes, 28)), (4096, 0), "the address");
            assert_eq!(field(&bytes, 36), 4096, "the length");
            assert_eq!((field(&bytes, 40), field(&bytes, 44)), (9, 5), "the first block");
            assert_eq!(field(&bytes, 48), 7, "blocks less one");
            assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 7);

            let Raw::Write(inner) = write(0, 512) else { unreachable!() };
            let durable = Command::new(&Raw::WriteDsync(WriteDsync(inner)), 7, 9).unwrap();
            assert_eq!((durable.opcode, durable.control), (WRITE, 1 << 30));
            let flush = Command::new(&Raw::Fsync(Fsync { fd: 3, data_only: false }), 7, 9).unwrap();
            assert_eq!(flush.encode().iter().filter(|byte| **byte != 0).count(), 1);
            assert!(Command::new(&Raw::Nop(crate::op::Nop), 7, 9).is_none());
            assert_eq!(NVME_URING_CMD_IO >> 16 & 0x3fff, 72, "bytes of the structure");
        }

        /// Transfers a whole operation part by part, and returns the parts.
        fn parts(namespace: &Namespace, raw: Raw) -> Vec<(u64, u64)> {
            let mut parts = Vec::new();
            let mut done = 0;
            while done < raw.bytes() {
                let rest = raw.piece(done, raw.bytes() - done);
                let len = match outcome(plan(namespace, &rest), &rest) {
                    Ok(len) => len,
                    Err(_) => break,
                };
                assert!(len > 0 && len <= u64::from(namespace.largest));
                assert_eq!(rest.offset(), Some(raw.offset().unwrap() + done));
                parts.push((done, len));
                done += len;
            }
            parts
        }

        #[test]
        fn a_command_has_no_page_that_is_partly_used_between_buffers() {
            let namespace = namespace(1 << 30, 1 << 20);
            let plan_of = |buffers: [(usize, usize); 2]| {
                let iov = buffers.map(|(start, iov_len)| libc::iovec {
                    iov_base: std::ptr::without_provenance_mut(start),
                    iov_len,
                });
                let raw = Raw::Readv(Readv {
                    fd: 3,
                    iov: iov.as_ptr(),
                    count: 2,
                    offset: 0,
                    flags: RwFlags::NONE,
                });
                matches!(plan(&namespace, &raw), Plan::Whole)
            };
            assert!(plan_of([(0x1_0000, 4096), (0x8_0000, 512)]));
            assert!(plan_of([(0x1_0200, 4096 - 512), (0x8_0000, 512)]));
            assert!(!plan_of([(0x1_0000, 512), (0x8_0000, 512)]));
            assert!(!plan_of([(0x1_0000, 4096), (0x8_0200, 512)]));
        }

        proptest! {
            /// However the buffers are cut, the commands follow one another without a gap, up to
            /// the end of the transfer or of the namespace, and each fits the device.
            #[test]
            fn buffers_are_split_into_commands_without_a_gap(
                lens in proptest::collection::vec(0u64..700, 0..40),
                skew in 0u64..8,
                offset in 0u64..5000,
                largest in 128u32..600,
            ) {
                let namespace = namespace(4096 << 9, largest << 9);
                let iov: Vec<libc::iovec> = lens.iter().map(|blocks| libc::iovec {
                    iov_base: std::ptr::without_provenance_mut((1 << 30) + (skew as usize) * 512),
                    iov_len: (blocks << 9) as usize,
                }).collect();
                let raw = Raw::Readv(Readv {
                    fd: 3, iov: iov.as_ptr(), count: iov.len(), offset: offset << 9,
                    flags: RwFlags::NONE,
                });
                let total: u64 = lens.iter().sum::<u64>() << 9;
                let parts = parts(&namespace, raw);
                let mut at = 0;
                for (start, len) in &parts {
                    prop_assert_eq!(*start, at);
                    at += len;
                }
                prop_assert_eq!(at, total.min(namespace.len.saturating_sub(offset << 9)));
            }

            /// The pieces of a long transfer are whole commands.
            #[test]
            fn pieces_of_a_transfer_are_whole_commands(
                blocks in 1u64..5000,
                largest in 128u64..600,
                offset in 0u64..5000,
            ) {
                let namespace = namespace(1 << 40, (largest << 9) as u32);
                let raw = write(offset << 9, (blocks << 9) as usize);
                let mut progress = SplitProgress::new(blocks << 9, largest << 9).in_order();
                let mut done = 0;
                while let Some(piece) = progress.next_piece() {
                    let part = raw.piece(piece.start, piece.len);
                    prop_assert!(matches!(plan(&namespace, &part), Plan::Whole));
                    let command = Command::new(&part, 7, 9).unwrap();
                    prop_assert_eq!(u64::from(command.bytes), piece.len);
                    prop_assert_eq!(command.first, offset + (done >> 9));
                    done += piece.len;
                    progress.complete(piece.number, piece.len as i64);
                }
                prop_assert_eq!(done, blocks << 9);
            }
        }
    }
}

#[cfg(all(test, ringway_linux))]
mod tests {
    use super::*;

    fn status(code: u16) -> Status {
        Status(NonZeroU16::new(code).unwrap())
    }

    #[test]
    fn a_status_is_the_errno_that_the_block_layer_makes_of_it() {
        assert_eq!(status(0x81).errno(), libc::ENOSPC);
        assert_eq!(status(0x281).errno(), libc::ENODATA);
        assert_eq!(status(0x283).errno(), libc::EILSEQ);
        assert_eq!(status(0x02).errno(), libc::EOPNOTSUPP);
        assert_eq!(status(0x06).errno(), libc::EIO);
        // The bits "more" and "do not retry" change nothing.
        assert_eq!(status(0x6281).errno(), libc::ENODATA);
        for code in 1..=0x7fff {
            assert!(status(code).errno() > 0);
        }
        assert_eq!(status(0x4281).to_string(), "NVMe status 0x281 (unrecovered read error)");
    }
}
