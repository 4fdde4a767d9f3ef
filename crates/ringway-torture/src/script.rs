//! Scripts, which any sequence of bytes decodes to. Running them is in `run.rs`.

use std::time::Duration;

/// The options of a queue, and the steps done with it.
#[derive(Clone, Debug)]
pub struct Script {
    pub(crate) setup: Setup,
    pub(crate) steps: Vec<Step>,
}

/// How the queue is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub entries: u32,
    pub in_flight: u32,
    /// The completion queue is as short as the submission queue, so that it overflows.
    pub tight: bool,
    pub eventfd: bool,
    pub single_issuer: bool,
    /// Files and buffers are registered.
    pub fixed: bool,
    pub sqpoll: bool,
    /// One file is so long that transfers are split.
    pub large: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Push(Push),
    Chain(Vec<Push>),
    Cancel(u8),
    Abandon(u8),
    CancelAll,
    Submit,
    /// Reap at least this many.
    Reap(u8),
    /// Take at most this many of the ready completions.
    Take(u8),
    /// Reap at least this many, or until this time has passed.
    ReapFor(u8, Duration),
    /// Wait with poll(2) until this many are reaped.
    Poll(u8),
    /// Write a byte into a pipe.
    Feed(u8),
    /// Close the queue, waiting at most this long.
    Close(Duration),
    /// Drop the queue with operations in flight.
    Drop,
    /// Continue on another thread.
    Move,
}

/// An operation with its settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Push {
    pub action: Action,
    pub exact: bool,
    pub drain: bool,
    pub continue_on_error: bool,
    /// A transfer leaves no pages in the page cache.
    pub dont_cache: bool,
    pub limit: Option<Duration>,
}

/// A range of a file. A run scales the numbers to the file; the maximum length is the whole file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub file: u8,
    pub at: u16,
    pub len: u8,
}

/// An operation. A run scales the numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Nop,
    Timeout(Duration),
    /// Poll the pipe that is never read.
    Poll,
    /// Read from the other pipe.
    ReadPipe(u8),
    /// On a file of fixed length with concurrent operations.
    Shared(Shared, Span),
    /// On a file that one operation uses at a time.
    Exclusive(Exclusive, Span),
    /// On paths that nothing changes.
    Path(u8),
    /// Call a closure.
    Blocking,
    /// Create a file with so many bytes.
    WriteFile(u16),
    /// Close a file from an open, or one with another owner.
    Close {
        held: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Shared {
    Read,
    /// read into spare capacity
    ReadSpare,
    /// read whose bytes nobody gets
    ReadDiscard,
    Write,
    WriteDsync,
    /// write that is whole or not made, where the file has such writes
    WriteUntorn,
    Readv,
    Writev,
    Fsync,
    Fdatasync,
    SyncRange,
    Fadvise,
    /// fallocate that punches a hole
    Punch,
    /// fallocate within the file
    Reserve,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Exclusive {
    Read,
    Write,
    /// read at the current position
    ReadOn,
    /// write at the current position
    WriteOn,
    Truncate,
    /// fallocate that extends
    Extend,
    Sync,
}

struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn two(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn micros(&mut self, longest: u64) -> Duration {
        Duration::from_micros(u64::from(self.two()) * longest / u64::from(u16::MAX))
    }

    fn setup(&mut self) -> Setup {
        let flags = self.byte();
        let rare = self.byte();
        Setup {
            entries: 1 << (self.byte() % 7),
            in_flight: 1 + u32::from(self.byte() % 64),
            tight: flags & 1 != 0,
            eventfd: flags & 2 != 0,
            single_issuer: flags & 4 != 0,
            fixed: flags & 8 != 0,
            sqpoll: rare % 16 == 1,
            large: rare / 16 == 1,
        }
    }

    fn step(&mut self) -> Step {
        match self.byte() {
            0..120 => Step::Push(self.push()),
            120..155 => {
                let count = 1 + self.byte() % 5;
                let mut chain: Vec<Push> = (0..count).map(|_| self.push()).collect();
                // A barrier within a chain is one before it. Which members later operations wait
                // for is unspecified.
                for push in chain.iter_mut().skip(1) {
                    push.drain = false;
                }
                Step::Chain(chain)
            }
            155..168 => Step::Cancel(self.byte()),
            168..175 => Step::Abandon(self.byte()),
            175..177 => Step::CancelAll,
            177..192 => Step::Submit,
            192..215 => Step::Reap(self.byte() % 40),
            215..221 => Step::Take(self.byte() % 4),
            221..233 => Step::ReapFor(self.byte() % 40, self.micros(2000)),
            233..243 => Step::Poll(self.byte() % 8),
            243..250 => Step::Feed(self.byte()),
            250..252 => Step::Move,
            252 => Step::Close(self.micros(20_000)),
            253 => Step::Drop,
            254..=255 => Step::CancelAll,
        }
    }

    fn push(&mut self) -> Push {
        let flags = self.byte();
        let limit = match flags >> 4 {
            1 => Some(Duration::from_nanos(1)),
            2 => Some(self.micros(3000)),
            3 => Some(LONG),
            _ => None,
        };
        let action = self.action();
        Push {
            action,
            exact: flags & 1 != 0,
            drain: flags & 14 == 14,
            continue_on_error: flags & 10 == 10,
            dont_cache: flags & 64 == 64,
            limit,
        }
    }

    fn action(&mut self) -> Action {
        use {Exclusive as A, Shared as S};
        match self.byte() {
            0..8 => Action::Nop,
            8..10 => Action::Blocking,
            10..12 => Action::WriteFile(self.two()),
            12..22 => Action::Timeout(self.micros(2000)),
            22..30 => Action::Poll,
            30..40 => Action::ReadPipe(1 + self.byte() % 8),
            40..160 => {
                let action =
                    [S::Read, S::Read, S::Read, S::Write, S::Write, S::Write, S::Readv, S::Writev];
                let rare = [
                    S::Fsync,
                    S::Fdatasync,
                    S::SyncRange,
                    S::Fadvise,
                    S::Punch,
                    S::Reserve,
                    S::Readv,
                    S::Writev,
                ];
                let special = [S::ReadSpare, S::ReadDiscard, S::WriteDsync, S::WriteUntorn];
                let choice = self.byte();
                let action = match choice {
                    0..200 => action[usize::from(choice % 8)],
                    200..224 => rare[usize::from(choice % 8)],
                    _ => special[usize::from(choice % 4)],
                };
                Action::Shared(action, self.span())
            }
            160..205 => {
                let action = [
                    A::Read,
                    A::Write,
                    A::Write,
                    A::ReadOn,
                    A::WriteOn,
                    A::Truncate,
                    A::Extend,
                    A::Sync,
                ];
                Action::Exclusive(action[usize::from(self.byte() % 8)], self.span())
            }
            205..240 => Action::Path(self.byte()),
            240..=255 => Action::Close { held: self.byte() < 32 },
        }
    }

    fn span(&mut self) -> Span {
        Span { file: self.byte(), at: self.two(), len: self.byte() }
    }
}

/// A timeout that never expires.
pub(crate) const LONG: Duration = Duration::from_secs(600);

impl Script {
    /// The rest of longer scripts is ignored.
    pub const MOST_STEPS: usize = 300;

    /// Decodes a script; any bytes are valid.
    pub fn decode(bytes: &[u8]) -> Self {
        let mut bytes = Bytes(bytes.iter());
        let setup = bytes.setup();
        let mut steps = Vec::new();
        while bytes.0.len() > 0 && steps.len() < Self::MOST_STEPS {
            steps.push(bytes.step());
        }
        Self { setup, steps }
    }
}
