//! What a completion is held against.

use super::{Checked, Run};
use crate::alone::Use;
use crate::names::{Node, Plan};
use crate::script::Name;
use ringway_core::op::Opcode;
use ringway_core::{BackendKind, Buffer, Completion, File, OpId};

/// An operation that was pushed.
#[derive(Debug)]
pub(super) struct Op {
    pub kind: Opcode,
    pub expect: Expect,
    /// The first of its chain; itself, without one.
    pub first: usize,
    /// Told by the push of the first of a chain, of the others by the completion.
    pub id: Option<OpId>,
    /// Somebody waits for its completion.
    pub live: bool,
    /// Its cancel was asked for, perhaps too late.
    pub cancelled: bool,
    pub exact: bool,
    pub always: bool,
    pub may_time_out: bool,
    /// Bytes of a transfer.
    pub total: Option<u64>,
    /// First byte of its first buffer.
    pub address: Option<usize>,
    pub outcome: Outcome,
    pub ended: Ended,
}

/// Whether a cancel has ended its chain with it: then nothing that follows begins, whatever the
/// settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    No,
    Perhaps,
    Yes,
}

/// What the owner knows of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Unknown,
    /// What follows in its chain may begin.
    Full,
    /// An error, or less than was to be transferred.
    Less,
}

/// What it is to answer.
#[derive(Debug)]
pub(super) enum Expect {
    Zero,
    ZeroOrUnsupported,
    /// That the pipe is readable, once it is.
    Poll,
    /// One byte or more, each of which comes once.
    PipeRead,
    /// EBUSY, as the file is held here.
    CloseHeld(#[allow(dead_code, reason = "it is held")] File),
    SharedRead {
        file: usize,
        at: u64,
    },
    /// A write, or a hole of so many bytes.
    SharedWrite {
        file: usize,
        hole: Option<u64>,
    },
    Alone {
        file: usize,
        usage: Use,
    },
    Name(Plan),
}

/// What the chain before an operation says of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chain {
    /// It begins.
    Whole,
    /// It never begins.
    Broken,
    /// Nobody knows.
    Unknown,
}

impl Run<'_> {
    pub(super) fn judge_all(&mut self, done: Vec<Completion>) -> Checked {
        for completion in done {
            let number = completion.user_data as usize;
            let told = format!("{:?}", completion.result);
            self.judge(completion).map_err(|text| {
                let first = self.ops.get(number).map_or(number, |op| op.first);
                let chain = self.ops.get(first..=number).unwrap_or_default();
                format!("operation {number} answered {told}: {text}{}", lines(chain))
            })?;
        }
        Ok(())
    }

    fn judge(&mut self, completion: Completion) -> Checked {
        let number = completion.user_data as usize;
        let Some(op) = self.ops.get_mut(number) else { return Err("it was never pushed".into()) };
        if !op.live {
            return Err("it was handed out before, or given up".into());
        }
        if op.id.is_some_and(|id| id != completion.id) {
            return Err(format!("under another id, {:?}", completion.id));
        }
        if completion.opcode != op.kind
            || completion.result.is_err_and(|error| error.opcode() != op.kind)
        {
            return Err(format!("as a {}", completion.opcode));
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
            return Err("though what comes before it in its chain has failed".into());
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
        op.outcome = match (result, op.total) {
            (Ok(done), Some(total)) if done < total => Outcome::Less,
            (Ok(_), _) => Outcome::Full,
            (Err(_), _) => Outcome::Less,
        };
        let excused = result.is_err_and(|errno| self.excuses(number, errno, chain));
        self.compare(number, result, completion, excused, chain == Chain::Broken)
    }

    /// Whether this errno needs no further reason.
    fn excuses(&self, number: usize, errno: i32, chain: Chain) -> bool {
        let op = &self.ops[number];
        let faulty = self.conditions.faults.is_some_and(|faults| faults.errors > 0)
            && !matches!(op.kind, Opcode::Nop | Opcode::Timeout | Opcode::Poll | Opcode::Close);
        let sync_fails = self.conditions.faults.is_some_and(|faults| faults.sync_errors > 0)
            && matches!(op.kind, Opcode::Fsync | Opcode::SyncRange);
        match errno {
            libc::ECANCELED => op.cancelled || chain != Chain::Whole,
            libc::ETIMEDOUT => op.may_time_out,
            libc::EIO => faulty || sync_fails,
            libc::ENOSPC => {
                sync_fails
                    || (faulty
                        && matches!(op.kind, Opcode::Write | Opcode::Writev | Opcode::Fallocate))
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
        match (before.ended, before.outcome) {
            _ if before.live && !op.cancelled => {
                Err("before what comes before it in its chain".into())
            }
            _ if before.live => Ok(Chain::Unknown),
            (Ended::Yes, _) => Ok(Chain::Broken),
            (Ended::Perhaps, _) | (_, Outcome::Unknown) => Ok(Chain::Unknown),
            _ if before.always => Ok(Chain::Whole),
            (_, Outcome::Full) => Ok(Chain::Whole),
            (_, Outcome::Less) => Ok(Chain::Broken),
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
        let wrong = || Err("which it cannot".to_owned());
        let op = &self.ops[number];
        if let (Ok(done), Some(total)) = (result, op.total)
            && done > total
        {
            return Err(format!("more than {total}"));
        }
        match &op.expect {
            Expect::Zero if result == Ok(0) || excused => Ok(()),
            Expect::ZeroOrUnsupported
                if result == Ok(0) || result == Err(libc::EOPNOTSUPP) || excused =>
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
            Expect::SharedWrite { file, hole } => {
                let (file, hole) = (*file, *hole);
                if hole.is_none() {
                    self.buffers(number, completion)?;
                }
                let full = self.ops[number].total == result.ok() || self.may_be_short(number);
                match (result, hole) {
                    (Ok(0), Some(len)) => self.shared[file].wrote(number, len),
                    (Err(libc::EOPNOTSUPP), Some(_)) => self.shared[file].never_wrote(number),
                    (Ok(done), None) if full => self.shared[file].wrote(number, done),
                    (Err(_), _) if never_began => self.shared[file].never_wrote(number),
                    (Err(_), _) if excused => {}
                    _ => return wrong(),
                }
                Ok(())
            }
            Expect::Alone { file, .. } => {
                let file = *file;
                let bytes = match op.total {
                    Some(_) => joined(&self.buffers(number, completion)?),
                    None => Vec::new(),
                };
                self.compare_alone(number, file, result, &bytes, excused, never_began)?;
                self.leave(file)
            }
            Expect::Name(plan) => {
                let plan = *plan;
                match (result, plan.answer) {
                    (Ok(0), Ok(())) => {
                        self.compare_name(&plan, completion)?;
                        self.names.done(&plan);
                        Ok(())
                    }
                    (Err(errno), Err(expected)) if errno == expected => {
                        self.names.done(&plan);
                        Ok(())
                    }
                    (Err(_), _) if never_began => {
                        self.names.never(&plan);
                        Ok(())
                    }
                    (Err(_), _) if excused => self.names.either(&plan),
                    _ => wrong(),
                }
            }
        }
    }

    fn compare_alone(
        &mut self,
        number: usize,
        file: usize,
        result: Result<u64, i32>,
        bytes: &[u8],
        excused: bool,
        never_began: bool,
    ) -> Checked {
        let short = self.may_be_short(number);
        let Expect::Alone { usage, .. } = &self.ops[number].expect else { return Ok(()) };
        let model = &mut self.alone[file];
        match (result, usage) {
            (Ok(done), Use::Read(at)) => {
                if model.is_certain() {
                    let expected = model.readable(*at, bytes.len());
                    let fits =
                        done == expected.len() as u64 || (short && done < expected.len() as u64);
                    if !fits || bytes[..done as usize] != expected[..done as usize] {
                        return Err(format!("not the {} bytes of the model", expected.len()));
                    }
                    self.report.compared += done;
                }
                model.succeeded(usage, done);
            }
            (Ok(done), Use::Write(_, data)) if done == data.len() as u64 || short => {
                model.succeeded(usage, done)
            }
            (Ok(0), Use::Truncate(_) | Use::Extend(_) | Use::Other) => model.succeeded(usage, 0),
            (Err(libc::EOPNOTSUPP), Use::Extend(_)) => {}
            (Err(_), _) if never_began => {}
            (Err(_), _) if excused => model.failed(usage),
            _ => return Err("which it cannot".into()),
        }
        Ok(())
    }

    fn compare_name(&mut self, plan: &Plan, completion: Completion) -> Checked {
        match plan.what {
            Name::Open | Name::Create | Name::CreateNew => {
                let file =
                    completion.into_file().map_err(|error| format!("without a file: {error}"))?;
                if self.opened.len() < 8 {
                    self.opened.push(file);
                }
            }
            Name::Statx => {
                let data = completion
                    .into_metadata()
                    .map_err(|error| format!("without metadata: {error}"))?;
                if data.is_dir() != (self.names.node(plan.first) == Node::Dir) {
                    return Err(format!("{data:?} of a {:?}", self.names.node(plan.first)));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a transfer may come to less than was asked for, without the file ending.
    fn may_be_short(&self, number: usize) -> bool {
        let op = &self.ops[number];
        let faulty =
            self.conditions.faults.is_some_and(|faults| faults.short > 0 || faults.errors > 0);
        !op.exact && (faulty || op.cancelled || op.may_time_out)
    }

    /// The buffers of a transfer: they come back whatever the result, and are those that were
    /// pushed.
    fn buffers(&self, number: usize, completion: Completion) -> Result<Vec<Buffer>, String> {
        let op = &self.ops[number];
        let buffers = match op.kind {
            Opcode::Readv | Opcode::Writev => {
                completion.into_vectored().map(|buffers| buffers.into_buffers())
            }
            _ => completion.into_buffer().map(|buffer| vec![buffer]),
        };
        let buffers = buffers.ok_or("without its buffer")?;
        let same = buffers.first().map(|buffer| buffer.as_slice().as_ptr().addr()) == op.address
            && Some(buffers.iter().map(|buffer| buffer.len() as u64).sum()) == op.total;
        if same { Ok(buffers) } else { Err("with another buffer".into()) }
    }

    /// An operation of which nobody will learn what came of it, from here on.
    pub(super) fn begin_doubt(&mut self, number: usize) {
        match &self.ops[number].expect {
            Expect::Alone { file, usage } => self.alone[*file].failed(usage),
            Expect::PipeRead => self.pipes.leaks = true,
            _ => {}
        }
    }

    /// It is over, whatever came of it.
    pub(super) fn end_doubt(&mut self, number: usize) -> Checked {
        self.order.over(number);
        if self.conditions.backend == BackendKind::Null {
            return Ok(());
        }
        match &self.ops[number].expect {
            Expect::Alone { file, .. } => {
                let file = *file;
                self.leave(file)
            }
            Expect::Name(plan) => self.names.either(&plan.clone()),
            _ => Ok(()),
        }
    }

    /// One less that uses the file.
    fn leave(&mut self, file: usize) -> Checked {
        let model = &mut self.alone[file];
        model.users -= 1;
        if model.users > 0 || model.is_certain() { Ok(()) } else { model.look() }
    }
}

/// Operations, one a line.
pub(super) fn lines<'a>(ops: impl IntoIterator<Item = &'a Op>) -> String {
    ops.into_iter().map(|op| format!("\n  {op:?}")).collect()
}

fn joined(buffers: &[Buffer]) -> Vec<u8> {
    buffers.iter().flat_map(|buffer| buffer.as_slice()).copied().collect()
}
