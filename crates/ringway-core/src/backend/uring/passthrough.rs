//! The entries of a ring with NVMe passthrough: reads, writes and syncs of namespaces become
//! commands, for which the kernel reports a status where it reports a length for other transfers.

use super::Uring;
use super::entries::Entries;
use crate::backend::{EventKind, Job};
use crate::file::FileKind;
use crate::op::{NvmeCommand, NvmeStatus, SqeContext};
use crate::slots::Token;
use crate::sys::libc;
use io_uring::squeue::{Entry, Entry128, Flags};
use io_uring::{cqueue, opcode};
use std::num::NonZeroU16;

/// The pieces of one operation that can be in flight have numbers that differ modulo this.
const PIECES: usize = 32;

/// A status has 15 bits.
const MAX_STATUS: u16 = 0x7fff;

/// A command in flight.
#[derive(Clone, Copy)]
struct CommandInFlight {
    /// Bytes that it transfers; 0 for a flush.
    bytes: u32,
    /// It uses a registered buffer.
    is_fixed: bool,
}

/// Entries of 128 bytes, completions of 32 (kernel 5.19), and the commands in flight.
#[derive(Default)]
pub(crate) struct CommandEntries {
    /// By slot and piece, as far as any slot has had a command.
    in_flight: Vec<Option<CommandInFlight>>,
    /// The kernel does not take registered buffers for commands (before 6.1).
    refuses_fixed: bool,
}

impl Entries for CommandEntries {
    type Sqe = Entry128;
    type Cqe = cqueue::Entry32;

    fn begin(
        &mut self,
        job: &Job,
        context: &SqeContext,
        is_supported: impl Fn(&Entry) -> bool,
    ) -> Option<Entry128> {
        let command = match job.file {
            FileKind::Namespace { id, block_shift } => NvmeCommand::new(&job.raw, id, block_shift),
            _ => None,
        };
        let Some((command, fd)) = command.zip(job.raw.fd()) else {
            return job.raw.sqe(context).filter(is_supported).map(Into::into);
        };
        let fixed_buffer = context.fixed_buffer.filter(|_| !self.refuses_fixed);
        let (entry, is_fixed) = command.sqe(fd, context.fixed_file, fixed_buffer);
        self.begin_command(job.token, command.bytes, is_fixed);
        Some(entry)
    }

    fn end(&mut self, token: Token, result: i32) -> EventKind {
        let command = self.in_flight.get_mut(Self::index(token)).and_then(Option::take);
        let errno = |errno: i32| EventKind::Result(-i64::from(errno));
        match (command, result) {
            (None, _) => EventKind::Result(i64::from(result)),
            (Some(command), 0) => EventKind::Result(i64::from(command.bytes)),
            // The queue tries again, and then without the registered buffer. If that was not the
            // cause, it fails again.
            (Some(command), _) if result == -libc::EINVAL && command.is_fixed => {
                self.refuses_fixed = true;
                errno(libc::EAGAIN)
            }
            // The kernel has given the command up, because the device did not complete it in time.
            // A transfer may be repeated. A flush may not: what it was to make durable may be lost.
            (Some(command), _) if result == -libc::EINTR && command.bytes == 0 => errno(libc::EIO),
            (Some(_), ..0) => EventKind::Result(i64::from(result)),
            (Some(_), _) => match NonZeroU16::new(result as u16 & MAX_STATUS) {
                Some(status) => EventKind::NvmeStatus(NvmeStatus(status)),
                None => errno(libc::EIO),
            },
        }
    }

    fn with_flags(entry: Entry128, flags: Flags) -> Entry128 {
        entry.flags(flags)
    }
}

impl CommandEntries {
    fn index(token: Token) -> usize {
        token.index() as usize * PIECES + usize::from(token.piece()) % PIECES
    }

    /// Records a command of `bytes` bytes.
    fn begin_command(&mut self, token: Token, bytes: u32, is_fixed: bool) {
        let index = Self::index(token);
        if self.in_flight.len() <= index {
            self.in_flight.resize(index / PIECES * PIECES + PIECES, None);
        }
        self.in_flight[index] = Some(CommandInFlight { bytes, is_fixed });
    }
}

impl Uring<CommandEntries> {
    /// Whether the kernel has commands.
    pub fn has_commands(&self) -> bool {
        self.opcodes.get(usize::from(opcode::UringCmd80::CODE)).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::backend::uring::tests::{ring, token as ring_token};
    use crate::op::{Fsync, Poll, Raw, Read, RwFlags};
    use crate::slots::Key;
    use std::num::NonZeroU32;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;

    fn token(index: u32, piece: u8) -> Token {
        Token::new(Key { index, generation: NonZeroU32::MIN }, piece)
    }

    const fn errno(errno: i32) -> EventKind {
        EventKind::Result(-(errno as i64))
    }

    #[test]
    fn a_status_becomes_a_length_or_an_error() {
        let mut commands = CommandEntries::default();
        // Pieces of two slots, of which the numbers wrap around.
        for (index, piece) in [(3, 254), (3, 255), (3, 0), (0, 7), (3, 1)] {
            commands.begin_command(token(index, piece), 512 + u32::from(piece), false);
        }
        assert_eq!(commands.end(token(3, 255), 0), EventKind::Result(512 + 255));
        assert_eq!(commands.end(token(3, 0), 0), EventKind::Result(512));
        assert_eq!(commands.end(token(3, 254), -libc::ENOMEM), errno(libc::ENOMEM));
        assert_eq!(commands.end(token(0, 7), -libc::EINTR), errno(libc::EINTR));
        let status = NvmeStatus(NonZeroU16::new(0x4281).unwrap());
        assert_eq!(commands.end(token(3, 1), 0x4281), EventKind::NvmeStatus(status));
        // Results of other jobs stay what they are.
        assert_eq!(commands.end(token(3, 1), 100), EventKind::Result(100));
        assert_eq!(commands.end(token(900, 1), 0), EventKind::Result(0));
    }

    /// No kernel answer panics.
    #[test]
    fn every_result_has_an_event() {
        let mut commands = CommandEntries::default();
        for result in [i32::MIN, -1, 1, 0x7fff, 0xffff, 0x1_0000, i32::MAX] {
            commands.begin_command(token(0, 0), 512, false);
            assert_ne!(commands.end(token(0, 0), result), EventKind::Result(512));
        }
    }

    #[test]
    fn an_aborted_flush_is_not_repeated() {
        let mut commands = CommandEntries::default();
        commands.begin_command(token(0, 0), 0, false);
        assert_eq!(commands.end(token(0, 0), -libc::EINTR), errno(libc::EIO));
        commands.begin_command(token(0, 0), 0, false);
        assert_eq!(commands.end(token(0, 0), 0), EventKind::Result(0));
    }

    #[test]
    fn a_kernel_without_registered_buffers_is_asked_once() {
        let mut commands = CommandEntries::default();
        commands.begin_command(token(0, 0), 512, true);
        assert!(!commands.refuses_fixed);
        assert_eq!(commands.end(token(0, 0), -libc::EINVAL), errno(libc::EAGAIN));
        assert!(commands.refuses_fixed);
        commands.begin_command(token(0, 0), 512, false);
        assert_eq!(commands.end(token(0, 0), -libc::EINVAL), errno(libc::EINVAL));
    }

    /// A ring with big entries that polls for completions.
    fn polling_ring() -> Option<Uring<CommandEntries>> {
        ring(true)
    }

    /// The kernel fails everything else on such a ring with EINVAL, or crashes on a flush (6.1).
    #[test]
    fn a_ring_that_polls_takes_only_transfers_of_a_namespace() {
        let Some(ring) = polling_ring() else { return };
        let kind = FileKind::Namespace { id: 1, block_shift: 9 };
        let supports = |raw: Raw| ring.supports(&Job::new(ring_token(), raw, kind, true));
        let buf = std::ptr::null_mut();
        assert!(supports(Read { fd: 3, buf, len: 512, offset: 0, flags: RwFlags::NONE }.into()));
        assert!(!supports(Fsync { fd: 3, data_only: false }.into()));
        assert!(!supports(Poll { fd: 3, events: libc::POLLIN as u16 }.into()));
    }

    /// Also on a ring for NVMe commands.
    #[test]
    fn a_file_that_cannot_be_polled_is_left_to_the_threads() {
        let Some(mut ring) = polling_ring() else { return };
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT | libc::O_TMPFILE)
            .open("/dev/shm");
        let Ok(file) = file else {
            println!("skipped: it needs direct I/O on tmpfs (6.6)");
            return;
        };
        file.set_len(4096).unwrap();
        let mut buffer = crate::AlignedBuffer::new(4096, 4096);
        let read = Read {
            fd: file.as_raw_fd(),
            buf: buffer.as_mut_ptr(),
            len: 4096,
            offset: 0,
            flags: RwFlags::NONE,
        };
        // SAFETY: the buffer and the file are kept until the event.
        unsafe { ring.push(&Job::new(ring_token(), read.into(), FileKind::Storage, true)) }
            .unwrap();
        let mut events = Vec::new();
        while events.is_empty() {
            ring.enter(1, None, &mut events).unwrap();
        }
        assert_eq!(events[0].kind, EventKind::Unsupported);
    }
}
