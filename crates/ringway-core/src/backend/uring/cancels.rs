//! The cancel requests of a ring: those that are due, those that wait for a pause, and those that
//! the kernel may have missed.

use super::tokens::{CANCEL, CANCEL_PAUSE};
use crate::backend::{CANCEL_PAUSES, EventKind, JobEvent};
use crate::op::Cancel;
use crate::slots::Token;
use crate::sys::libc;
use io_uring::{opcode, squeue, types};
use std::collections::{HashMap, VecDeque};

/// [`CANCEL_PAUSES`] for the kernel, which copies one when it takes the entry.
static PAUSE_LENGTHS: [types::Timespec; CANCEL_PAUSES.len()] = {
    let mut lengths = [types::Timespec::new(); CANCEL_PAUSES.len()];
    let mut at = 0;
    while at < lengths.len() {
        lengths[at] = types::Timespec::new().nsec(CANCEL_PAUSES[at].subsec_nanos());
        at += 1;
    }
    lengths
};

/// The cancels of a ring.
pub(super) struct Cancels {
    /// The kernel may miss a job, at the moment when a worker takes it (before 5.18).
    may_miss: bool,
    /// Jobs to cancel, for which there was no entry yet.
    due: Vec<Token>,
    /// The jobs of the requests in flight, if the kernel may miss them.
    requested: VecDeque<Token>,
    /// The jobs that are cancelled after a pause, under the lower halves of their tokens.
    paused: HashMap<u32, Token>,
    /// The pauses of these for which there was no entry yet.
    pauses: Vec<(u32, usize)>,
    /// A pause is over: `due` has its job.
    pause_over: bool,
    /// The submission queue has a request.
    unsubmitted: bool,
}

impl Cancels {
    pub fn new(may_miss: bool) -> Self {
        Self {
            may_miss,
            due: Vec::new(),
            requested: VecDeque::new(),
            paused: HashMap::new(),
            pauses: Vec::new(),
            pause_over: false,
            unsubmitted: false,
        }
    }

    /// Cancels a job.
    pub fn push(&mut self, job: Token) {
        self.due.push(job);
    }

    /// Cancels a job after the pause with this index.
    pub fn push_later(&mut self, job: Token, pause: usize) {
        if self.paused.insert(job.low(), job).is_none() {
            self.pauses.push((job.low(), pause));
        }
    }

    /// Whether a completion has left entries to add.
    pub fn must_add(&self) -> bool {
        self.pause_over
    }

    /// The next entry, with its token. Call [`Self::added`] if there is room for it.
    pub fn next_entry(&mut self) -> Option<(squeue::Entry, Token)> {
        self.pause_over = false;
        if let Some(job) = self.due.last() {
            return Some((Cancel { user_data: job.0 }.sqe(), CANCEL.with_number(job.low())));
        }
        let (low, pause) = *self.pauses.last()?;
        let entry = opcode::Timeout::new(&raw const PAUSE_LENGTHS[pause]).build();
        Some((entry, CANCEL_PAUSE.with_number(low)))
    }

    /// The entry from [`Self::next_entry`] is in the submission queue.
    pub fn added(&mut self) {
        let Some(job) = self.due.pop() else {
            self.pauses.pop();
            return;
        };
        if self.may_miss {
            self.requested.push_back(job);
        }
        self.unsubmitted = true;
    }

    /// The pause of the job with this lower half has ended.
    pub fn pause_ended(&mut self, low: u32) {
        self.due.extend(self.paused.remove(&low));
        self.pause_over = true;
    }

    /// A request has ended with this result. Returns an event if the kernel has missed the job.
    pub fn ended(&mut self, low: u32, result: i32) -> Option<JobEvent> {
        // (Nearly always the first: the kernel executes them in their order.)
        let at = self.requested.iter().position(|job| job.low() == low)?;
        let token = self.requested.remove(at)?;
        (result == -libc::ENOENT).then_some(JobEvent { token, kind: EventKind::CancelMissed })
    }

    /// Whether the submission queue has a request.
    pub fn has_unsubmitted(&self) -> bool {
        self.unsubmitted
    }

    /// The kernel has taken the submission queue, or all of it but a part.
    pub fn submitted(&mut self, all: bool) {
        self.unsubmitted &= !all;
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.due.is_empty() && self.paused.is_empty() && self.pauses.is_empty()
    }
}
