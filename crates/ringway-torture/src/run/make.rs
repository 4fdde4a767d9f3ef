//! Makes operations from the numbers of a script, scaled to the files as they are, and pushes them.

use super::verify::{Ended, Expect, KnownResult, Op, SPARE_PREFIX};
use super::{BLOCK, Checked, Run};
use crate::LACKS_CALLS;
use crate::content::fill;
use crate::exclusive::Use;
use crate::script::{Action, Exclusive, LONG, Push, Shared, Span};
use ringway_core::c as libc;
use ringway_core::{AlignedBuffer, Buffer, OpenOptions, Operation, Reason, op};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

// Constants of Linux, which systems without the operations do not define.
const SYNC_FILE_RANGE_WRITE: u32 = 2;
const FALLOC_FL_KEEP_SIZE: i32 = 1;
const FALLOC_FL_PUNCH_HOLE: i32 = 2;

/// The largest block of a device.
const UNIT: u64 = 4096;

/// An operation and what is needed to check it.
struct Made {
    operation: Operation,
    expect: Expect,
    /// Bytes of a transfer.
    total: Option<u64>,
    /// First byte of its first buffer.
    address: Option<usize>,
    exact: bool,
    untorn: bool,
}

impl Made {
    fn plain(operation: Operation, expect: Expect) -> Self {
        Self { operation, expect, total: None, address: None, exact: false, untorn: false }
    }
}

impl Run<'_> {
    /// Pushes one operation, or several as a chain.
    pub(super) fn push(&mut self, pushes: &[Push], chain: bool) -> Checked {
        let free = self.queue()?.free_slots();
        if self.closed || free < pushes.len() {
            return self.push_refused(pushes, chain);
        }
        let first = self.order.next();
        let mut operations = Vec::new();
        for push in pushes {
            let number = self.order.next();
            let made = self.make(push, first, number);
            let mut operation = made.operation.user_data(number as u64);
            operation = if made.exact { operation.exact() } else { operation };
            let is_transfer = made.total.is_some() && !matches!(made.expect, Expect::File { .. });
            operation =
                if push.dont_cache && is_transfer { operation.dont_cache() } else { operation };
            operation = if push.drain { operation.drain() } else { operation };
            operation =
                if push.continue_on_error { operation.continue_on_error() } else { operation };
            operation = match push.limit {
                Some(limit) => operation.timeout(limit),
                None => operation,
            };
            self.order.push(first, push.drain);
            self.ops.push(Op {
                opcode: operation.opcode(),
                expect: made.expect,
                first,
                id: None,
                live: true,
                cancelled: false,
                exact: made.exact,
                untorn: made.untorn,
                continue_on_error: push.continue_on_error,
                may_time_out: push.limit.is_some_and(|limit| limit < LONG),
                total: made.total,
                address: made.address,
                known: KnownResult::Unknown,
                ended: Ended::No,
            });
            self.live += 1;
            operations.push(operation);
        }
        let pushed = match (chain, operations.len()) {
            (false, 1) => self.queue()?.push(operations.remove(0)),
            _ => self.queue()?.push_chain(operations),
        };
        let id = pushed.map_err(|error| {
            format!("with {free} free slots, {} were refused: {error}", pushes.len())
        })?;
        if self.number_of(id).is_some() {
            return Err(format!("{id:?} is in flight already"));
        }
        self.ops[first].id = Some(id);
        Ok(())
    }

    /// Pushes to a queue that is full or closed, or shorter than the chain.
    fn push_refused(&mut self, pushes: &[Push], chain: bool) -> Checked {
        let operations: Vec<Operation> = pushes.iter().map(|_| op::nop()).collect();
        let queue = self.queue()?;
        let pushed = if chain { queue.push_chain(operations) } else { queue.push(op::nop()) };
        let too_long =
            pushes.len() > usize::try_from(self.script.setup.in_flight).unwrap_or(usize::MAX);
        let (expected, is_expected): (_, fn(Reason) -> bool) = match (self.closed, too_long) {
            (true, _) => ("closed", |reason| reason == Reason::Closed),
            (false, true) => ("invalid", |reason| matches!(reason, Reason::Invalid(_))),
            (false, false) => ("full", |reason| reason == Reason::Full),
        };
        match pushed {
            Err(error)
                if is_expected(error.reason()) && error.is_full() == (expected == "full") =>
            {
                match error.into_operations().len() {
                    count if count == pushes.len() => Ok(()),
                    count => Err(format!("{count} of {} operations were returned", pushes.len())),
                }
            }
            other => Err(format!("a push to be refused as {expected} returned {other:?}")),
        }
    }

    fn make(&mut self, push: &Push, first: usize, number: usize) -> Made {
        match push.action {
            Action::Nop => Made::plain(op::nop(), Expect::Zero),
            Action::Timeout(time) => Made::plain(op::timeout(time), Expect::Zero),
            // Handles cannot be polled, and a read of a pipe cannot be cancelled.
            Action::Poll | Action::ReadPipe(_) if cfg!(windows) => {
                Made::plain(op::nop(), Expect::Zero)
            }
            Action::Poll => {
                Made::plain(op::poll(&self.pipes.polled, op::Readiness::READABLE), Expect::Poll)
            }
            Action::ReadPipe(len) => {
                let buffer = self.buffer(usize::from(len), false, number);
                let address = Some(buffer.as_slice().as_ptr().addr());
                let operation = op::read(&self.pipes.read, buffer, op::Position::Current);
                Made {
                    operation,
                    expect: Expect::PipeRead,
                    total: Some(u64::from(len)),
                    address,
                    exact: false,
                    untorn: false,
                }
            }
            Action::Blocking => {
                let calls = Arc::new(AtomicU32::new(0));
                let count = calls.clone();
                let work = move || _ = count.fetch_add(1, Ordering::Relaxed);
                Made::plain(op::blocking(work), Expect::Call(calls))
            }
            Action::WriteFile(len) => self.make_write_file(usize::from(len), number),
            Action::Shared(action, span) => self.make_shared(action, span, number, push.exact),
            Action::Exclusive(action, span) => {
                self.make_exclusive(action, span, [first, number], push.exact)
            }
            Action::Path(choice) => self.make_path(choice),
            Action::Close { held } => self.make_close(held),
        }
    }

    fn make_write_file(&self, len: usize, number: usize) -> Made {
        let path = self.written.join(number.to_string());
        let buffer = self.filled(len, false, number, number as u32 + 1, 0);
        let content = buffer.as_slice().to_vec();
        Made {
            address: Some(buffer.as_slice().as_ptr().addr()),
            operation: op::write_file(&path, buffer),
            expect: Expect::File { path, content },
            total: Some(len as u64),
            exact: true,
            untorn: false,
        }
    }

    fn make_close(&mut self, held: bool) -> Made {
        match self.opened.pop() {
            None => Made::plain(op::nop(), Expect::Zero),
            Some(file) if held => Made::plain(op::close(file.clone()), Expect::CloseHeld(file)),
            Some(file) => Made::plain(op::close(file), Expect::Zero),
        }
    }

    fn make_shared(&mut self, action: Shared, span: Span, number: usize, exact: bool) -> Made {
        let index = usize::from(span.file % 2);
        let (direct, all) = (self.shared[index].direct, self.shared[index].len);
        let (at, len) = if span.len == u8::MAX {
            (0, all)
        } else if direct {
            let at = u64::from(span.at) % (all / UNIT);
            (at * UNIT, (1 + u64::from(span.len % 4)).min(all / UNIT - at) * UNIT)
        } else {
            let at = u64::from(span.at) * 3 % all;
            (at, (1 + u64::from(span.len) * 16).min(all - at))
        };
        let file = self.shared[index].file.clone();
        let (action, at, len) = match action {
            // A shared buffer is as long as the longest read, and need not be aligned.
            Shared::ReadDiscard | Shared::ReadSpare if direct => (Shared::Read, at, len),
            Shared::ReadDiscard => (action, at, len.min(op::MAX_DISCARD as u64)),
            Shared::WriteUntorn => {
                match file.atomic_write_unit().filter(|unit| direct && unit.min <= UNIT as u32) {
                    Some(unit) => {
                        let len = UNIT.min(unit.max.into());
                        (action, at / len * len, len)
                    }
                    None => (Shared::Write, at, len),
                }
            }
            _ => (action, at, len),
        };
        let untorn = matches!(action, Shared::WriteUntorn);
        match action {
            Shared::ReadSpare => {
                let mut bytes = SPARE_PREFIX.to_vec();
                bytes.reserve_exact(len as usize);
                let address = Some(bytes.as_ptr().addr());
                let spare = ringway_core::SpareCapacity::from(bytes).limit(len as usize);
                Made {
                    operation: op::read_spare(&file, spare, at),
                    expect: Expect::SpareRead { file: index, at },
                    total: Some(len),
                    address,
                    exact,
                    untorn,
                }
            }
            Shared::ReadDiscard => Made {
                operation: op::read_discard(&file, at, len as usize),
                expect: Expect::Discard,
                total: Some(len),
                address: None,
                exact,
                untorn,
            },
            Shared::Fsync => Made::plain(op::fsync(&file), Expect::Zero),
            Shared::Fdatasync => Made::plain(op::fdatasync(&file), Expect::Zero),
            Shared::SyncRange => Made::plain(
                op::sync_range(&file, at, len, SYNC_FILE_RANGE_WRITE),
                if LACKS_CALLS { Expect::ZeroOrUnsupported } else { Expect::Zero },
            ),
            Shared::Fadvise => {
                let expect = if LACKS_CALLS { Expect::ZeroOrUnsupported } else { Expect::Zero };
                Made::plain(op::fadvise(&file, at, len, op::Advice::WillNeed), expect)
            }
            Shared::Reserve => Made::plain(
                op::fallocate(&file, FALLOC_FL_KEEP_SIZE, at, len),
                Expect::ZeroOrUnsupported,
            ),
            Shared::Punch => {
                self.shared[index].begin_write(number, at..at + len, true);
                let mode = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE;
                Made::plain(
                    op::fallocate(&file, mode, at, len),
                    Expect::SharedWrite { file: index, hole: Some(len) },
                )
            }
            Shared::Read => {
                let buffer = self.buffer(len as usize, direct, number);
                let address = Some(buffer.as_slice().as_ptr().addr());
                let expect = Expect::SharedRead { file: index, at };
                Made {
                    operation: op::read(&file, buffer, at),
                    expect,
                    total: Some(len),
                    address,
                    exact,
                    untorn,
                }
            }
            Shared::Write | Shared::WriteDsync | Shared::WriteUntorn => {
                let mark = self.shared[index].begin_write(number, at..at + len, false);
                let buffer = self.filled(len as usize, direct, number, mark, at);
                let address = Some(buffer.as_slice().as_ptr().addr());
                let expect = Expect::SharedWrite { file: index, hole: None };
                let operation = match action {
                    Shared::WriteDsync => op::write_dsync(&file, buffer, at),
                    Shared::WriteUntorn => op::write(&file, buffer, at).untorn(),
                    _ => op::write(&file, buffer, at),
                };
                let exact = exact || untorn;
                Made { operation, expect, total: Some(len), address, exact, untorn }
            }
            Shared::Readv | Shared::Writev => {
                let parts = parts(len, direct, number);
                let writes = matches!(action, Shared::Writev);
                let mark =
                    writes.then(|| self.shared[index].begin_write(number, at..at + len, false));
                let mut start = at;
                let mut buffers = Vec::new();
                for part in parts {
                    buffers.push(match mark {
                        Some(mark) => self.filled(part as usize, direct, number, mark, start),
                        None => self.buffer(part as usize, direct, number),
                    });
                    start += part;
                }
                let buffers = op::Vectored::new(buffers);
                let address =
                    buffers.buffers().first().map(|buffer| buffer.as_slice().as_ptr().addr());
                let (operation, expect) = if writes {
                    (
                        op::writev(&file, buffers, at),
                        Expect::SharedWrite { file: index, hole: None },
                    )
                } else {
                    (op::readv(&file, buffers, at), Expect::SharedRead { file: index, at })
                };
                Made { operation, expect, total: Some(len), address, exact, untorn }
            }
        }
    }

    fn make_exclusive(
        &mut self,
        action: Exclusive,
        span: Span,
        [first, number]: [usize; 2],
        exact: bool,
    ) -> Made {
        let index = usize::from(span.file % 2);
        // Members of one chain run one after the other.
        let uses = |op: &Op| matches!(op.expect, Expect::Exclusive { file, .. } if file == index);
        let in_use = self.ops.iter().any(|op| op.live && op.first != first && uses(op))
            || self.abandoned.iter().any(|number| uses(&self.ops[*number]));
        if in_use {
            return Made::plain(op::nop(), Expect::Zero);
        }
        let direct = self.exclusive[index].direct;
        let (at, len) = if direct {
            (u64::from(span.at % 8) * UNIT, u64::from(1 + span.len % 4) * UNIT)
        } else {
            (u64::from(span.at % 20_000), 1 + u64::from(span.len) * 8)
        };
        self.exclusive[index].users += 1;
        let file = self.exclusive[index].file.clone();
        let made = |operation, usage, total, address| Made {
            operation,
            expect: Expect::Exclusive { file: index, usage },
            total,
            address,
            exact,
            untorn: false,
        };
        let place = match action {
            Exclusive::ReadOn | Exclusive::WriteOn if !direct => op::Position::Current,
            _ => op::Position::Offset(at),
        };
        let offset = if place == op::Position::Current { None } else { Some(at) };
        match action {
            Exclusive::Sync => made(op::fdatasync(&file), Use::Other, None, None),
            Exclusive::Truncate => made(
                op::ftruncate(&file, u64::from(span.at)),
                Use::Truncate(u64::from(span.at)),
                None,
                None,
            ),
            Exclusive::Extend => {
                made(op::fallocate(&file, 0, at, len), Use::Extend(at + len), None, None)
            }
            Exclusive::Read | Exclusive::ReadOn => {
                let buffer = self.buffer(len as usize, direct, number);
                let address = Some(buffer.as_slice().as_ptr().addr());
                made(op::read(&file, buffer, place), Use::Read(offset), Some(len), address)
            }
            Exclusive::Write | Exclusive::WriteOn => {
                let buffer = self.filled(len as usize, direct, number, number as u32 + 1, 0);
                let address = Some(buffer.as_slice().as_ptr().addr());
                let usage = Use::Write(offset, buffer.as_slice().to_vec());
                made(op::write(&file, buffer, place), usage, Some(len), address)
            }
        }
    }

    /// An operation on paths that nothing changes, so its result is known whatever else runs.
    fn make_path(&self, choice: u8) -> Made {
        let [file, dir, missing] = ["file", "dir", "missing"].map(|name| self.names.join(name));
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let (operation, expected) = match choice % 10 {
            0 => (op::mkdir(dir, 0o755), Err(libc::EEXIST)),
            1 => (op::rmdir(&self.names), Err(libc::ENOTEMPTY)),
            2 => (op::unlink(missing), Err(libc::ENOENT)),
            3 => (op::rename(missing, dir), Err(libc::ENOENT)),
            4 => (op::link(&file, &file), Err(libc::EEXIST)),
            // Windows permits symbolic links to administrators only.
            5 if !cfg!(windows) => (op::symlink("nowhere", file), Err(libc::EEXIST)),
            6 => (op::statx(file), Ok(())),
            7 => (op::open(file, &options), Ok(())),
            8 => (op::open(file, options.create(true)), Ok(())),
            _ => (op::open(file, options.create_new(true)), Err(libc::EEXIST)),
        };
        Made::plain(operation, Expect::Path(expected))
    }

    /// A buffer of one of the buffer types.
    fn buffer(&self, len: usize, direct: bool, number: usize) -> Buffer {
        let block =
            self.arena.as_ref().filter(|_| len <= BLOCK).and_then(ringway_core::Arena::take);
        match (block, number % 3) {
            (Some(block), 0 | 1) => Buffer::from(block).slice(..len),
            _ if direct => AlignedBuffer::new(len, BLOCK).into(),
            (_, 0) => vec![0; len + 3].into(),
            (_, 1) => vec![0; len].into_boxed_slice().into(),
            _ => vec![0; len].into(),
        }
        .slice(..len)
    }

    fn filled(&self, len: usize, direct: bool, number: usize, mark: u32, start: u64) -> Buffer {
        let block =
            self.arena.as_ref().filter(|_| len <= BLOCK).and_then(ringway_core::Arena::take);
        match block {
            Some(mut block) if !number.is_multiple_of(3) => {
                fill(mark, start, &mut block[..len]);
                Buffer::from(block).slice(..len)
            }
            _ if direct => {
                let mut buffer = AlignedBuffer::new(len, BLOCK);
                fill(mark, start, &mut buffer);
                buffer.into()
            }
            _ => {
                let mut buffer = vec![0; len];
                fill(mark, start, &mut buffer);
                buffer.into()
            }
        }
    }
}

/// The lengths of the buffers of a vectored transfer.
fn parts(len: u64, direct: bool, number: usize) -> Vec<u64> {
    let unit = if direct { UNIT } else { 1 };
    let each = (len / unit).div_ceil(1 + number as u64 % 5).max(1) * unit;
    (0..len).step_by(each as usize).map(|start| each.min(len - start)).collect()
}

impl Op {
    /// Whether it may never complete by itself.
    pub(super) fn may_stall(&self, fed: bool) -> bool {
        let endless = match self.expect {
            Expect::Poll => !fed,
            Expect::PipeRead => true,
            _ => false,
        };
        endless && !self.cancelled && !self.may_time_out
    }
}
