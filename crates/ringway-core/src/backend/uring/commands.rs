//! The NVMe commands that a ring has in flight, and what their completions mean: the kernel reports
//! a status where it reports a length for other transfers.

use crate::backend::EventKind;
use crate::op::NvmeStatus;
use crate::slots::Token;
use crate::sys::libc;
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

/// The commands of a ring.
#[derive(Default)]
pub(super) struct Commands {
    /// By slot and piece, as far as any slot has had a command.
    in_flight: Vec<Option<CommandInFlight>>,
    /// The kernel does not take registered buffers for commands (before 6.1).
    refuses_fixed: bool,
}

impl Commands {
    /// Whether commands may use registered buffers.
    pub fn take_fixed(&self) -> bool {
        !self.refuses_fixed
    }

    fn index(token: Token) -> usize {
        token.index() as usize * PIECES + usize::from(token.piece()) % PIECES
    }

    /// Records a command of `bytes` bytes.
    pub fn begin(&mut self, token: Token, bytes: u32, is_fixed: bool) {
        let index = Self::index(token);
        if self.in_flight.len() <= index {
            self.in_flight.resize(index / PIECES * PIECES + PIECES, None);
        }
        self.in_flight[index] = Some(CommandInFlight { bytes, is_fixed });
    }

    /// The event for the kernel's result of a job.
    pub fn end(&mut self, token: Token, result: i32) -> EventKind {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::Key;
    use std::num::NonZeroU32;

    fn token(index: u32, piece: u8) -> Token {
        Token::new(Key { index, generation: NonZeroU32::MIN }, piece)
    }

    const fn errno(errno: i32) -> EventKind {
        EventKind::Result(-(errno as i64))
    }

    #[test]
    fn a_status_becomes_a_length_or_an_error() {
        let mut commands = Commands::default();
        // Pieces of two slots, of which the numbers wrap around.
        for (index, piece) in [(3, 254), (3, 255), (3, 0), (0, 7), (3, 1)] {
            commands.begin(token(index, piece), 512 + u32::from(piece), false);
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
        let mut commands = Commands::default();
        for result in [i32::MIN, -1, 1, 0x7fff, 0xffff, 0x1_0000, i32::MAX] {
            commands.begin(token(0, 0), 512, false);
            assert_ne!(commands.end(token(0, 0), result), EventKind::Result(512));
        }
    }

    #[test]
    fn an_aborted_flush_is_not_repeated() {
        let mut commands = Commands::default();
        commands.begin(token(0, 0), 0, false);
        assert_eq!(commands.end(token(0, 0), -libc::EINTR), errno(libc::EIO));
        commands.begin(token(0, 0), 0, false);
        assert_eq!(commands.end(token(0, 0), 0), EventKind::Result(0));
    }

    #[test]
    fn a_kernel_without_registered_buffers_is_asked_once() {
        let mut commands = Commands::default();
        commands.begin(token(0, 0), 512, true);
        assert!(commands.take_fixed());
        assert_eq!(commands.end(token(0, 0), -libc::EINVAL), errno(libc::EAGAIN));
        assert!(!commands.take_fixed());
        commands.begin(token(0, 0), 512, false);
        assert_eq!(commands.end(token(0, 0), -libc::EINVAL), errno(libc::EINVAL));
    }
}
