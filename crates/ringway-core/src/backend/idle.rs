//! A backend that takes no jobs and returns no events. It replaces one that has ended, and does the
//! waiting of the null backend.

use super::{Backend, BackendFull, Job, JobEvent, LimitKeeper, Wait};
use crate::slots::Token;
use crate::sys::eventfd::{self, EventFd, wait_readable};
use crate::sys::{Number, RawFd};
use std::io;
use std::time::Instant;

#[derive(Default)]
pub(crate) struct Idle {
    /// The descriptor of [`Backend::poll_fd`].
    eventfd: Option<EventFd>,
    /// Signalled and not drained.
    is_signalled: bool,
    watched: Option<RawFd>,
}

impl Backend for Idle {
    unsafe fn push(&mut self, _: &Job) -> Result<(), BackendFull> {
        Err(BackendFull)
    }

    /// Waits for the watched eventfd and until `until`. Without either it does not wait, since
    /// nothing would end the wait.
    fn enter(
        &mut self,
        want: usize,
        until: Option<Instant>,
        _: &mut Vec<JobEvent>,
    ) -> io::Result<Wait> {
        if std::mem::take(&mut self.is_signalled)
            && let Some(eventfd) = &self.eventfd
        {
            eventfd.drain();
        }
        match self.watched {
            _ if want == 0 => {}
            Some(watched) if wait_readable([watched], until)? == [true] => {
                _ = eventfd::drain(watched)
            }
            Some(_) => return Ok(Wait::cut_short(until)),
            None if until.is_some() => {
                wait_readable([], until)?;
                return Ok(Wait::cut_short(until));
            }
            None => {}
        }
        Ok(Wait::Ended)
    }

    fn cancel(&mut self, _: Token) {}

    fn poll_fd(&mut self) -> io::Result<RawFd> {
        let eventfd = match self.eventfd.take() {
            Some(eventfd) => eventfd,
            None => EventFd::new()?,
        };
        Ok(self.eventfd.insert(eventfd).number())
    }

    #[inline]
    fn wake(&mut self) {
        if !self.is_signalled
            && let Some(eventfd) = &self.eventfd
        {
            eventfd.signal();
            self.is_signalled = true;
        }
    }

    fn watch(&mut self, eventfd: RawFd, active: bool) {
        self.watched = active.then_some(eventfd);
    }

    fn set_timer(&mut self, _: Token, _: Instant) {}

    fn supports(&self, _: &Job) -> bool {
        false
    }

    fn chain_capacity(&self) -> usize {
        0
    }

    fn limit_keeper(&self) -> LimitKeeper {
        LimitKeeper::Nothing
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.eventfd
            .iter()
            .flat_map(|eventfd| eventfd.descriptors())
            .filter(|fd| *fd >= 0)
            .collect()
    }

    /// System calls for `poll_fd` do not count: they belong to no operation.
    fn system_calls(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn waiting_without_jobs_returns_and_a_watched_eventfd_ends_the_wait() {
        let (mut idle, mut events) = (Idle::default(), Vec::new());
        idle.enter(1, None, &mut events).unwrap();
        let start = Instant::now();
        idle.enter(1, Some(start + Duration::from_millis(5)), &mut events).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(5));
        let eventfd = EventFd::new().unwrap();
        idle.watch(eventfd.number(), true);
        eventfd.signal();
        idle.enter(1, None, &mut events).unwrap();
        assert!(!eventfd.drain(), "it has been drained");
        assert!(events.is_empty());
    }
}
