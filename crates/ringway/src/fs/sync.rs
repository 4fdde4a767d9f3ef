//! Syncs of an open file, which concurrent callers share.
//!
//! One sync is in flight, and one is queued for everybody who came after it had begun: a sync that
//! began before a write does not cover it. There is no background task: the first of the queued
//! callers that is polled after the sync in flight has ended starts the next one. Each caller
//! yields once before that, so that all that are ready to run share the sync, and its error.

use super::File;
use super::pooled::clone_error;
use crate::engine::op_result::{failure, forked, nothing};
use crate::engine::{
    Lane, OpFuture, OpResult, Outcome, Schedule, Since, SyncLedger, Ticket, TicketWait,
    poll_proceed, wake_all, without_yielding,
};
use ringway_core::op;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

/// The syncs of an open file. All clones of a file have them, and so do duplicates of its
/// descriptor, since the kernel reports an error once to all of these.
pub(super) struct Syncs {
    pub(super) ledger: Arc<SyncLedger>,
    rounds: Mutex<Rounds>,
}

#[derive(Default)]
struct Rounds {
    /// The sync in flight. It may have ended, and nobody has seen it yet.
    running: Option<Arc<Round>>,
    /// The sync that begins after it.
    queued: Option<Arc<Round>>,
}

/// One sync, and all who wait for it.
#[derive(Default)]
struct Round {
    /// With metadata: at least one caller needs it. Set before the start.
    all: AtomicBool,
    /// Set at the start.
    ticket: OnceLock<Arc<Ticket>>,
    /// The engine refused the operation.
    refused: OnceLock<io::Error>,
    state: Mutex<RoundState>,
}

#[derive(Default)]
struct RoundState {
    callers: usize,
    /// The operation in flight. Dropping it cancels it; the ticket learns its result.
    operation: Option<SyncOperation>,
}

type SyncOperation = Pin<Box<dyn Future<Output = OpResult> + Send>>;

/// What is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncKind {
    /// `fdatasync(2)`.
    Data,
    /// `fsync(2)`.
    All,
}

/// Which errors of other operations on the file a sync returns.
#[derive(Clone, Copy, Debug)]
pub(super) enum SyncErrors {
    /// All that are news to the caller, who reports them.
    Unreported(Unreported),
    /// Those that have occurred since then. The sync is part of a durable write, which does not
    /// report errors of earlier writes.
    Since(Since),
}

/// The errors that no sync had returned when a sync was asked for, and later ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unreported {
    since: Since,
    /// The same for writes of dropped handles.
    dropped: u64,
}

impl Syncs {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { ledger: SyncLedger::new(), rounds: Mutex::default() })
    }

    /// The sync that covers everything written so far.
    fn join(&self, kind: SyncKind) -> Arc<Round> {
        let mut rounds = self.lock();
        let round = Arc::clone(rounds.queued.get_or_insert_default());
        round.all.fetch_or(kind == SyncKind::All, Ordering::Relaxed);
        round.state().callers += 1;
        round
    }

    /// Makes this sync the one in flight, if it has not started and nothing else is in flight.
    /// Otherwise returns the ticket that it waits for.
    fn begin(&self, round: &Arc<Round>) -> Turn {
        let mut rounds = self.lock();
        if let Some(ticket) = round.ticket.get() {
            return Turn::After(Arc::clone(ticket));
        }
        if let Some(ticket) = rounds.running.as_ref().and_then(|running| running.ticket.get())
            && ticket.outcome().is_none()
        {
            return Turn::After(Arc::clone(ticket));
        }
        rounds.running = rounds.queued.take_if(|queued| Arc::ptr_eq(queued, round));
        Turn::Begun(Arc::clone(round.ticket.get_or_init(|| self.ledger.begin())))
    }

    /// A caller of this sync has its result or was dropped. Without callers it is cancelled.
    fn leave(&self, round: &Arc<Round>) {
        let mut rounds = self.lock();
        let mut state = round.state();
        state.callers -= 1;
        let is_over = round.ticket.get().is_some_and(|ticket| ticket.outcome().is_some());
        let is_last = state.callers == 0;
        let operation = state.operation.take_if(|_| is_over || is_last);
        if is_last {
            let Rounds { running, queued } = &mut *rounds;
            for place in [running, queued] {
                let _ = place.take_if(|other| Arc::ptr_eq(other, round));
            }
        }
        drop((state, rounds));
        // Without the locks, since dropping it may drop the engine.
        if let Some(mut operation) = operation
            && is_over
        {
            // Takes the completion, whose result the ticket has.
            let _ = poll_unwoken(&mut operation);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Syncs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Syncs").finish_non_exhaustive()
    }
}

/// Whether a sync may start.
enum Turn {
    /// It is in flight now: the caller pushes its operation.
    Begun(Arc<Ticket>),
    /// The operation of this ticket comes first, or has already started for this sync.
    After(Arc<Ticket>),
}

impl Round {
    fn state(&self) -> MutexGuard<'_, RoundState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcome(&self) -> Option<Outcome> {
        self.ticket.get()?.outcome()
    }

    /// Pushes its operation.
    fn start(&self, file: &File, ticket: &Arc<Ticket>) {
        let operation = if self.all.load(Ordering::Relaxed) {
            op::fsync(file.core())
        } else {
            op::fdatasync(file.core())
        };
        let (engine, observer) = (file.engine().clone(), Arc::clone(ticket));
        let mut operation: SyncOperation = Box::pin(async move {
            let schedule = Schedule::Immediate(Lane::Sync);
            OpFuture::new(&engine.inner, schedule, operation).observed(observer).await
        });
        // The ticket wakes those who wait for the result.
        match poll_unwoken(&mut operation) {
            Poll::Ready(result) => {
                if let Err(error) = nothing(result) {
                    let _ = self.refused.set(error);
                }
                // Without effect, unless the engine refused the operation.
                wake_all(&mut ticket.end(Ok(())));
            }
            Poll::Pending => self.state().operation = Some(operation),
        }
    }
}

/// Polls an operation that wakes nobody.
fn poll_unwoken(operation: &mut SyncOperation) -> Poll<OpResult> {
    let mut cx = Context::from_waker(Waker::noop());
    without_yielding(|| operation.as_mut().poll(&mut cx))
}

/// A caller that waits for a sync.
struct SyncWait<'a> {
    file: &'a File,
    round: Arc<Round>,
    wait: TicketWait,
    errors: SyncErrors,
    has_yielded: bool,
}

impl SyncWait<'_> {
    fn result(&self, outcome: Outcome) -> io::Result<()> {
        let reports = matches!(self.errors, SyncErrors::Unreported(_));
        let since = match self.errors {
            SyncErrors::Unreported(unreported) => unreported.since,
            SyncErrors::Since(since) => since,
        };
        if let Some(error) = self.file.syncs().ledger.error(since, reports) {
            return Err(failure(error));
        }
        match self.round.refused.get() {
            Some(error) => Err(clone_error(error)),
            None => outcome.result.map_err(failure),
        }
    }
}

impl Future for SyncWait<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // In a forked child, the locks may be held forever.
        if !this.file.engine().inner.is_current() {
            return Poll::Ready(Err(forked()));
        }
        loop {
            if let Some(outcome) = this.round.outcome() {
                // Another operation in flight may have taken the kernel's report.
                std::task::ready!(this.wait.poll(outcome.before, cx));
                return Poll::Ready(this.result(outcome));
            }
            if !std::mem::replace(&mut this.has_yielded, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match this.file.syncs().begin(&this.round) {
                Turn::Begun(ticket) => this.round.start(this.file, &ticket),
                Turn::After(ticket) => std::task::ready!(this.wait.poll(ticket.next(), cx)),
            }
        }
    }
}

impl Drop for SyncWait<'_> {
    fn drop(&mut self) {
        if self.file.engine().inner.is_current() {
            self.file.syncs().leave(&self.round);
        }
    }
}

impl File {
    /// The errors that a sync returns which is asked for now. To be called before anything that
    /// takes time: another sync may return them meanwhile, and then they are this one's, too, since
    /// the lost writes may be those that it waits for. Errors: ECHILD in a forked child.
    pub(crate) fn unreported_errors(&self) -> io::Result<Unreported> {
        if !self.engine().inner.is_current() {
            return Err(forked());
        }
        let since = self.syncs().ledger.since_reported();
        Ok(Unreported { since, dropped: self.dropped_reported() })
    }

    /// Waits until what handles of the file have accepted is written, and syncs it.
    pub(crate) async fn sync_written(&self, kind: SyncKind, errors: Unreported) -> io::Result<()> {
        self.finish_all_since(errors.dropped).await?;
        self.sync(kind, SyncErrors::Unreported(errors)).await
    }

    /// Syncs the file, together with others who wait for that.
    pub(super) async fn sync(&self, kind: SyncKind, errors: SyncErrors) -> io::Result<()> {
        if !self.engine().inner.is_current() {
            return Err(forked());
        }
        // A sync may complete at once (on a file system in memory), so the task must yield
        // sometimes.
        poll_fn(|cx| poll_proceed(cx, 0)).await;
        if !self.engine().inner.is_current() {
            return Err(forked());
        }
        let syncs = self.syncs();
        let (round, wait) = (syncs.join(kind), TicketWait::new(&syncs.ledger));
        SyncWait { file: self, round, wait, errors, has_yielded: false }.await
    }

    /// For an operation with this ticket that has succeeded: waits for those that were in flight
    /// with it and may have taken the kernel's report. Errors: theirs since then.
    pub(super) async fn settle(&self, ticket: &Ticket, since: Since) -> io::Result<()> {
        let Some(outcome) = ticket.outcome() else { return Ok(()) };
        let ledger = &self.syncs().ledger;
        let mut wait = TicketWait::new(ledger);
        poll_fn(|cx| wait.poll(outcome.before, cx)).await;
        ledger.error(since, false).map_or(Ok(()), |error| Err(failure(error)))
    }
}
