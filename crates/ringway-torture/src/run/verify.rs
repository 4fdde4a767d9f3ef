//! Checks completions against the model.

use super::{Checked, Run};
use crate::exclusive::Use;
use crate::is_unsupported;
use ringway_core::c as libc;
use ringway_core::op::Opcode;
use ringway_core::{BackendKind, Buffer, Completion, File, OpId};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a buffer has before its spare capacity.
pub(super) const SPARE_PREFIX: [u8; 3] = [7, 8, 9];

/// An operation that was pushed.
#[derive(Debug)]
pub(super) struct Op {
    pub opcode: Opcode,
    pub expect: Expect,
    /// The first member of its chain, or the operation itself.
    pub first: usize,
    /// The push returns the id of the first member of a chain; the completions have those of the
    /// others.
    pub id: Option<OpId>,
    /// Its completion is expected.
    pub live: bool,
    /// A cancel was requested, perhaps too late.
    pub cancelled: bool,
    pub exact: bool,
    pub untorn: bool,
    pub continue_on_error: bool,
    pub may_time_out: bool,
    /// Bytes of a transfer.
    pub total: Option<u64>,
    /// First byte of its first buffer.
    pub address: Option<usize>,
    pub known: KnownResult,
    pub ended: Ended,
}

/// Whether a cancel has ended its chain at this operation. If so, no later member begins, whatever
/// its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    No,
    Perhaps,
    Yes,
}

/// What is known of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownResult {
    Unknown,
    /// The next member of its chain may begin.
    Full,
    /// An error or a short transfer.
    Less,
}

/// The expected result.
#[derive(Debug)]
pub(super) enum Expect {
    Zero,
    ZeroOrUnsupported,
    /// POLLIN, once the pipe has data.
    Poll,
    /// One byte or more; each byte is read once.
    PipeRead,
    /// EBUSY, because this value owns the file.
    CloseHeld(#[allow(dead_code, reason = "owns the file")] File),
    SharedRead {
        file: usize,
        at: u64,
    },
    /// A read into spare capacity.
    SpareRead {
        file: usize,
        at: u64,
    },
    /// A read whose bytes nobody gets.
    Discard,
    /// A closure, and how often it was called: once for success, else never.
    Call(Arc<AtomicU32>),
    /// A file that nothing else writes.
    File {
        path: PathBuf,
        content: Vec<u8>,
    },
    /// A write, or a hole of this many bytes.
    SharedWrite {
        file: usize,
        hole: Option<u64>,
    },
    Exclusive {
        file: usize,
        usage: Use,
    },
    Path(Result<(), i32>),
}

/// What the earlier members of its chain imply for an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chain {
    /// It begins.
    Whole,
    /// It does not begin.
    Broken,
    /// Unknown.
    Unknown,
}

impl Run<'_> {
    pub(super) fn verify_all(&mut self, done: Vec<Completion>) -> Checked {
        for completion in done {
            let number = completion.user_data as usize;
            let result = format!("{:?}", completion.result);
            self.verify(completion).map_err(|text| {
                let first = self.ops.get(number).map_or(number, |op| op.first);
                let chain = self.ops.get(first..=number).unwrap_or_default();
                format!("operation {number} completed with {result}: {text}{}", lines(chain))
            })?;
        }
        Ok(())
    }

    fn verify(&mut self, completion: Completion) -> Checked {
        let number = completion.user_data as usize;
        let Some(op) = self.ops.get_mut(number) else { return Err("it was not pushed".into()) };
        if !op.live {
            return Err("it was delivered before, or abandoned".into());
        }
        if op.id.is_some_and(|id| id != completion.id) {
            return Err(format!("wrong id {:?}", completion.id));
        }
        if completion.opcode != op.opcode
            || completion.result.is_err_and(|error| error.opcode() != op.opcode)
        {
            return Err(format!("wrong opcode {}", completion.opcode));
        }
        op.id = Some(completion.id);
        op.live = false;
        self.live -= 1;
        self.delivered += 1;
        self.order.over(number);
        if self.conditions.backend == BackendKind::Null {
            return Ok(());
        }
        let result = completion.result.map_err(|error| error.errno());
        let chain = self.chain_before(number)?;
        if chain == Chain::Broken && result != Err(libc::ECANCELED) {
            return Err("an earlier member of its chain has failed".into());
        }
        let before =
            if number > self.ops[number].first { self.ops[number - 1].ended } else { Ended::No };
        let op = &mut self.ops[number];
        op.ended = match (result, before) {
            (Err(libc::ECANCELED), Ended::Yes) => Ended::Yes,
            (Err(libc::ECANCELED), _) if op.cancelled && chain == Chain::Whole => Ended::Yes,
            (Err(libc::ECANCELED), _) if op.cancelled || before == Ended::Perhaps => Ended::Perhaps,
            _ => Ended::No,
        };
        op.known = match (result, op.total) {
            (Ok(done), Some(total)) if done < total => KnownResult::Less,
            (Ok(_), _) => KnownResult::Full,
            (Err(_), _) => KnownResult::Less,
        };
        let excused = result.is_err_and(|errno| self.excuses(number, errno, chain));
        self.compare(number, result, completion, excused, chain == Chain::Broken)
    }

    /// Whether a cancel, a timeout, the chain or a fault explains this errno.
    fn excuses(&self, number: usize, errno: i32, chain: Chain) -> bool {
        let op = &self.ops[number];
        let faulty = self.conditions.faults.is_some_and(|faults| faults.errors > 0)
            && !matches!(op.opcode, Opcode::Nop | Opcode::Timeout | Opcode::Poll | Opcode::Close);
        let sync_fails = self.conditions.faults.is_some_and(|faults| faults.sync_errors > 0)
            && matches!(op.opcode, Opcode::Fsync | Opcode::SyncRange | Opcode::WriteDsync);
        let faults = self.conditions.faults.unwrap_or_default();
        match errno {
            libc::ECANCELED => op.cancelled || chain != Chain::Whole,
            libc::ETIMEDOUT => op.may_time_out,
            // An untorn write is not continued.
            libc::EIO => faulty || sync_fails || op.untorn && faults.short > 0,
            libc::EAGAIN => op.untorn && faults.retryable > 0,
            libc::ENOSPC => {
                sync_fails
                    || (faulty
                        && matches!(
                            op.opcode,
                            Opcode::Write | Opcode::Writev | Opcode::WriteFile | Opcode::Fallocate
                        ))
            }
            _ => false,
        }
    }

    fn chain_before(&self, number: usize) -> Result<Chain, String> {
        let op = &self.ops[number];
        if number == op.first {
            return Ok(Chain::Whole);
        }
        let before = &self.ops[number - 1];
        match (before.ended, before.known) {
            _ if before.live && !op.cancelled => {
                Err("completed before an earlier member of its chain".into())
            }
            _ if before.live => Ok(Chain::Unknown),
            (Ended::Yes, _) => Ok(Chain::Broken),
            (Ended::Perhaps, _) | (_, KnownResult::Unknown) => Ok(Chain::Unknown),
            _ if before.continue_on_error => Ok(Chain::Whole),
            (_, KnownResult::Full) => Ok(Chain::Whole),
            (_, KnownResult::Less) => Ok(Chain::Broken),
        }
    }

    fn compare(
        &mut self,
        number: usize,
        result: Result<u64, i32>,
        completion: Completion,
        excused: bool,
        never_began: bool,
    ) -> Checked {
        let wrong = || Err("unexpected result".to_owned());
        let op = &self.ops[number];
        if let (Ok(done), Some(total)) = (result, op.total)
            && done > total
        {
            return Err(format!("more than {total} bytes"));
        }
        match &op.expect {
            Expect::Zero if result == Ok(0) || excused => Ok(()),
            Expect::ZeroOrUnsupported
                if result == Ok(0) || result.is_err_and(is_unsupported) || excused =>
            {
                Ok(())
            }
            Expect::CloseHeld(_) if result == Err(libc::EBUSY) || excused => Ok(()),
            Expect::Zero | Expect::ZeroOrUnsupported | Expect::CloseHeld(_) => wrong(),
            Expect::Poll => match result {
                Ok(ready) if ready & libc::POLLIN as u64 != 0 && self.pipes.fed => Ok(()),
                Err(_) if excused => Ok(()),
                _ => wrong(),
            },
            Expect::PipeRead => match result {
                Ok(done @ 1..) => {
                    let bytes = joined(&self.buffers(number, completion)?);
                    self.pipes.received.extend(&bytes[..done as usize]);
                    Ok(())
                }
                Err(_) if excused => Ok(()),
                _ => wrong(),
            },
            Expect::SharedRead { file, at } => {
                let (file, at) = (*file, *at);
                let bytes = self.buffers(number, completion)?;
                match result {
                    Ok(done) if op.total == Some(done) || self.may_be_short(number) => {
                        self.report.compared += done;
                        self.shared[file].check(
                            &self.order,
                            Some(number),
                            at,
                            &joined(&bytes)[..done as usize],
                        )
                    }
                    Err(_) if excused => Ok(()),
                    _ => wrong(),
                }
            }
            Expect::SpareRead { file, at } => {
                let (file, at) = (*file, *at);
                let spare = completion.into_spare().ok_or("no buffer")?;
                let bytes = Vec::try_from(spare).map_err(|_| "another type of buffer")?;
                let Some(read) = bytes.strip_prefix(&SPARE_PREFIX) else {
                    return Err("what the buffer had is gone".into());
                };
                if Some(bytes.as_ptr().addr()) != op.address
                    || read.len() as u64 != result.unwrap_or(0)
                {
                    return Err("wrong buffer".into());
                }
                match result {
                    Ok(done) if op.total == Some(done) || self.may_be_short(number) => {
                        self.report.compared += done;
                        self.shared[file].check(&self.order, Some(number), at, read)
                    }
                    Err(_) if excused => Ok(()),
                    _ => wrong(),
                }
            }
            Expect::Discard => match result {
                Ok(done) if op.total == Some(done) || self.may_be_short(number) => Ok(()),
                Err(_) if excused => Ok(()),
                _ => wrong(),
            },
            Expect::Call(calls) => match (result, calls.load(Ordering::Relaxed)) {
                (Ok(0), 1) => Ok(()),
                (Err(_), 0) if excused => Ok(()),
                (_, calls) => Err(format!("{calls} calls")),
            },
            Expect::File { path, content } => match result {
                Ok(_) if op.total == result.ok() => {
                    let found = std::fs::read(path).map_err(|error| error.to_string())?;
                    if &found != content {
                        return Err(format!("{} has other content", path.display()));
                    }
                    self.buffers(number, completion).map(drop)
                }
                Err(_) if excused => self.buffers(number, completion).map(drop),
                _ => wrong(),
            },
            Expect::SharedWrite { file, hole } => {
                let (file, hole) = (*file, *hole);
                if hole.is_none() {
                    self.buffers(number, completion)?;
                }
                let full = self.ops[number].total == result.ok() || self.may_be_short(number);
                match (result, hole) {
                    (Ok(0), Some(len)) => self.shared[file].wrote(number, len),
                    (Err(errno), Some(_)) if is_unsupported(errno) => {
                        self.shared[file].never_wrote(number)
                    }
                    (Ok(done), None) if full => self.shared[file].wrote(number, done),
                    (Err(_), _) if never_began => self.shared[file].never_wrote(number),
                    (Err(_), _) if excused => {}
                    _ => return wrong(),
                }
                Ok(())
            }
            Expect::Exclusive { file, .. } => {
                let file = *file;
                let bytes = match op.total {
                    Some(_) => joined(&self.buffers(number, completion)?),
                    None => Vec::new(),
                };
                self.compare_exclusive(number, file, result, &bytes, excused, never_began)?;
                self.leave(file)
            }
            Expect::Path(expected) => match (result, *expected) {
                (Ok(0), Ok(())) => self.take_result(completion),
                (Err(errno), Err(expected)) if errno == expected => Ok(()),
                (Err(_), _) if excused => Ok(()),
                _ => wrong(),
            },
        }
    }

    fn compare_exclusive(
        &mut self,
        number: usize,
        file: usize,
        result: Result<u64, i32>,
        bytes: &[u8],
        excused: bool,
        never_began: bool,
    ) -> Checked {
        let short = self.may_be_short(number);
        let Expect::Exclusive { usage, .. } = &self.ops[number].expect else { return Ok(()) };
        let model = &mut self.exclusive[file];
        match (result, usage) {
            (Ok(done), Use::Read(at)) => {
                if model.is_certain() {
                    let expected = model.readable(*at, bytes.len());
                    let fits =
                        done == expected.len() as u64 || (short && done < expected.len() as u64);
                    if !fits || bytes[..done as usize] != expected[..done as usize] {
                        return Err(format!("expected the {} bytes of the model", expected.len()));
                    }
                    self.report.compared += done;
                }
                model.succeeded(usage, done);
            }
            (Ok(done), Use::Write(_, data)) if done == data.len() as u64 || short => {
                model.succeeded(usage, done)
            }
            (Ok(0), Use::Truncate(_) | Use::Extend(_) | Use::Other) => model.succeeded(usage, 0),
            (Err(errno), Use::Extend(_)) if is_unsupported(errno) => {}
            (Err(_), _) if never_began => {}
            (Err(_), _) if excused => model.failed(usage),
            _ => return Err("unexpected result".into()),
        }
        Ok(())
    }

    /// What an operation on a path that succeeded has: a file, or that of the file.
    fn take_result(&mut self, completion: Completion) -> Checked {
        if completion.opcode == Opcode::Open {
            let file = completion.into_file().map_err(|error| format!("no file: {error}"))?;
            if self.opened.len() < 8 {
                self.opened.push(file);
            }
            return Ok(());
        }
        let data = completion.into_metadata().map_err(|error| format!("no metadata: {error}"))?;
        if data.is_file() { Ok(()) } else { Err(format!("{data:?} of a file")) }
    }

    /// Whether a transfer may be short before the end of the file.
    fn may_be_short(&self, number: usize) -> bool {
        let op = &self.ops[number];
        let faulty =
            self.conditions.faults.is_some_and(|faults| faults.short > 0 || faults.errors > 0);
        !op.exact && (faulty || op.cancelled || op.may_time_out)
    }

    /// The buffers of a transfer: returned with any result, and those that were pushed.
    fn buffers(&self, number: usize, completion: Completion) -> Result<Vec<Buffer>, String> {
        let op = &self.ops[number];
        let buffers = match op.opcode {
            Opcode::Readv | Opcode::Writev => {
                completion.into_vectored().map(|buffers| buffers.into_buffers())
            }
            _ => completion.into_buffer().map(|buffer| vec![buffer]),
        };
        let buffers = buffers.ok_or("no buffer")?;
        let same = buffers.first().map(|buffer| buffer.as_slice().as_ptr().addr()) == op.address
            && Some(buffers.iter().map(|buffer| buffer.len() as u64).sum()) == op.total;
        if same { Ok(buffers) } else { Err("wrong buffer".into()) }
    }

    /// The effect of this operation is unknown from now on.
    pub(super) fn begin_uncertainty(&mut self, number: usize) {
        match &self.ops[number].expect {
            Expect::Exclusive { file, usage } => self.exclusive[*file].failed(usage),
            Expect::PipeRead => self.pipes.leaks = true,
            _ => {}
        }
    }

    /// The operation is over, with unknown effect.
    pub(super) fn end_uncertainty(&mut self, number: usize) -> Checked {
        self.order.over(number);
        if self.conditions.backend == BackendKind::Null {
            return Ok(());
        }
        match &self.ops[number].expect {
            Expect::Exclusive { file, .. } => {
                let file = *file;
                self.leave(file)
            }
            _ => Ok(()),
        }
    }

    /// One user less of the file.
    fn leave(&mut self, file: usize) -> Checked {
        let model = &mut self.exclusive[file];
        model.users -= 1;
        if model.users > 0 || model.is_certain() { Ok(()) } else { model.look() }
    }
}

/// The operations, one per line.
pub(super) fn lines<'a>(ops: impl IntoIterator<Item = &'a Op>) -> String {
    ops.into_iter().map(|op| format!("\n  {op:?}")).collect()
}

fn joined(buffers: &[Buffer]) -> Vec<u8> {
    buffers.iter().flat_map(|buffer| buffer.as_slice()).copied().collect()
}
