//! The null backend completes every job at once, as if it had succeeded, so that only the cost of
//! the queue remains.

use super::idle::Idle;
use super::{Backend, BackendFull, EventKind, Job, JobEvent, LimitKeeper, Wait};
use crate::op::{Raw, Transfer};
use crate::slots::Token;
use crate::sys::RawFd;
use std::io;
use std::time::Instant;

#[derive(Default)]
pub(crate) struct Null {
    events: Vec<JobEvent>,
    /// Waits when there are no events, and has the descriptor to poll, which only the queue makes
    /// readable: `enter` returns all events.
    idle: Idle,
}

/// The result of a job that succeeds in full.
fn result(raw: &Raw) -> i64 {
    match raw {
        // Opens and closes are real: closing a made-up descriptor could close another file.
        Raw::Open(_) | Raw::Close(_) => raw.call(),
        Raw::Poll(poll) => i64::from(poll.events),
        _ => match raw.transfer() {
            Transfer::None => 0,
            Transfer::Bytes(len) | Transfer::Stream(len) | Transfer::Vector(len) => {
                i64::try_from(len).unwrap_or(i64::MAX)
            }
        },
    }
}

impl Backend for Null {
    #[inline]
    unsafe fn push(&mut self, job: &Job) -> Result<(), BackendFull> {
        self.events.push(JobEvent { token: job.token, kind: EventKind::Result(result(&job.raw)) });
        Ok(())
    }

    fn enter(
        &mut self,
        want: usize,
        until: Option<Instant>,
        events: &mut Vec<JobEvent>,
    ) -> io::Result<Wait> {
        let missing = want.saturating_sub(self.events.len());
        events.append(&mut self.events);
        self.idle.enter(missing, until, events)
    }

    /// All jobs have completed already.
    fn cancel(&mut self, _: Token) {}

    fn poll_fd(&mut self) -> io::Result<RawFd> {
        self.idle.poll_fd()
    }

    #[inline]
    fn wake(&mut self) {
        self.idle.wake();
    }

    fn watch(&mut self, eventfd: RawFd, active: bool) {
        self.idle.watch(eventfd, active);
    }

    /// All jobs complete before any deadline.
    fn set_timer(&mut self, _: Token, _: Instant) {}

    fn supports(&self, _: &Job) -> bool {
        true
    }

    fn chain_capacity(&self) -> usize {
        0
    }

    fn limit_keeper(&self) -> LimitKeeper {
        LimitKeeper::Nothing
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.idle.descriptors()
    }

    fn system_calls(&self) -> u64 {
        self.idle.system_calls()
    }
}

#[cfg(test)]
mod tests {
    use super::super::FileKind;
    use super::*;
    use crate::op::{self, Close, Fsync, Nop, Open, Poll, Read, Readv, RwFlags, Timeout, Write};
    use crate::sys::eventfd::wait_readable;
    use crate::sys::libc;
    use std::time::Duration;

    fn job(number: u64, raw: impl Into<Raw>) -> Job {
        Job::new(Token(number), raw.into(), FileKind::Unknown, false)
    }

    fn push(null: &mut Null, jobs: impl IntoIterator<Item = Raw>) -> Vec<i64> {
        let mut events = Vec::new();
        for (number, raw) in jobs.into_iter().enumerate() {
            // SAFETY: what the jobs point at outlives them.
            unsafe { null.push(&job(number as u64, raw)) }.unwrap();
        }
        null.enter(1, None, &mut events).unwrap();
        let results = events.iter().enumerate().map(|(number, event)| {
            assert_eq!(event.token, Token(number as u64));
            match event.kind {
                EventKind::Result(result) => result,
                other => panic!("{other:?}"),
            }
        });
        results.collect()
    }

    #[test]
    fn every_operation_succeeds_in_full() {
        let mut bytes = [0u8; 100];
        let buf = bytes.as_mut_ptr();
        let iov = [
            libc::iovec { iov_base: buf.cast(), iov_len: 30 },
            libc::iovec { iov_base: buf.cast(), iov_len: 12 },
        ];
        let jobs: [Raw; 7] = [
            Nop.into(),
            Read { fd: -1, buf, len: 100, offset: 7, flags: RwFlags::NONE }.into(),
            Write { fd: -1, buf, len: 64, offset: op::CURRENT_POSITION, flags: RwFlags::NONE }
                .into(),
            Readv { fd: -1, iov: iov.as_ptr(), count: 2, offset: 0, flags: RwFlags::NONE }.into(),
            Fsync { fd: -1, data_only: true }.into(),
            Poll { fd: -1, events: libc::POLLIN as u16 }.into(),
            Timeout { duration: Duration::from_secs(3600) }.into(),
        ];
        assert_eq!(
            push(&mut Null::default(), jobs),
            [0, 100, 64, 42, 0, i64::from(libc::POLLIN), 0]
        );
    }

    #[test]
    fn opened_descriptors_are_real() {
        let mut null = Null::default();
        let path = c"/dev/null".as_ptr();
        let open =
            Open { dir: libc::AT_FDCWD, path, flags: libc::O_CLOEXEC as u64, mode: 0, resolve: 0 };
        let [fd] = push(&mut null, [open.into()])[..] else { panic!() };
        assert!(fd > 2);
        assert_eq!(push(&mut null, [Close { fd: fd as RawFd }.into()]), [0]);
    }

    #[test]
    fn the_poll_descriptor_is_readable_after_a_wake() {
        let mut null = Null::default();
        let fd = null.poll_fd().unwrap();
        let readable = || wait_readable([fd], Some(Instant::now())).unwrap() == [true];
        assert!(!readable());
        null.wake();
        null.wake();
        assert!(readable());
        null.enter(0, None, &mut Vec::new()).unwrap();
        assert!(!readable());
        null.wake();
        assert!(readable());
        assert_eq!(null.poll_fd().unwrap(), fd);
    }
}
