//! The Linux AIO backend: direct transfers, syncs and polls, where io_uring is refused but
//! `io_submit` is not. Other operations run on the fallback pool.
//!
//! Jobs are collected and submitted with as few `io_submit` calls as possible; completions are
//! reaped from the mapped ring without a system call. Once the program polls, or the backend also
//! waits for the fallback pool, every iocb names the backend's eventfd, so that one descriptor
//! signals all completions. Before that transfers do not: the signal would cost 5 % of their time.
//!
//! When `io_submit` refuses an iocb, that is always the first one passed, and says nothing about
//! the others. The refused job runs on the fallback pool, whose system call fails with the usual
//! errno, or succeeds if the kernel only had no memory for the request; the rest is submitted
//! again.
//!
//! `io_submit` may block for a while: when the device's request queue is full, and when a write
//! allocates blocks or extends the file.

use super::{Backend, BackendFull, EventKind, FileKind, Job, JobEvent, LimitKeeper, Wait};
use crate::op::{Cancel, Raw};
use crate::refusal::errno_of;
use crate::slots::Token;
use crate::sys::eventfd::{self, EventFd, left, wait_readable};
use crate::sys::kaio::{Context, IoEvent, Iocb};
use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A context with fewer requests is not worth having.
const MIN_REQUESTS: u32 = 32;

/// The default of the machine-wide `fs.aio-max-nr`: no context asks for more.
const MAX_REQUESTS: u32 = 65536;

/// How long to wait for completions without an eventfd before checking the watched one.
const ALTERNATE_WAIT: Duration = Duration::from_millis(1);

/// How often an interrupted submission is repeated at once.
const MAX_INTERRUPTED: u32 = 8;

/// Completions that one io_getevents returns at most.
const EVENT_BATCH: usize = 64;

pub(crate) struct Kaio {
    context: Context,
    slab: Slab,
    /// Not submitted yet, in the order in which they were pushed.
    queued: Vec<*mut Iocb>,
    /// Events that do not come from the kernel.
    ready_events: Vec<JobEvent>,
    /// Signalled at every completion, except of iocbs without an eventfd.
    eventfd: Arc<EventFd>,
    /// `poll_fd` was called.
    polled: bool,
    /// Also waited for, in addition to completions.
    watched: Option<RawFd>,
    system_calls: u64,
}

// SAFETY: the addresses are those of `slab`'s own iocbs, to which no outside reference exists and
// which do not move with it; a context belongs to the process, not to a thread.
unsafe impl Send for Kaio {}

/// iocbs at fixed addresses, by which the kernel identifies them.
struct Slab {
    /// Never grows.
    iocbs: Vec<UnsafeCell<Iocb>>,
    free: Vec<*mut Iocb>,
    in_kernel: usize,
    /// iocbs in use that signal no eventfd.
    without_eventfd: usize,
    /// Polls, which may never complete.
    polls: usize,
}

impl Slab {
    fn new(len: usize) -> Self {
        let iocbs: Vec<_> = (0..len).map(|_| UnsafeCell::new(Iocb::default())).collect();
        let free = iocbs.iter().rev().map(UnsafeCell::get).collect();
        Self { iocbs, free, in_kernel: 0, without_eventfd: 0, polls: 0 }
    }

    fn take(&mut self, iocb: Iocb) -> Option<*mut Iocb> {
        let slot = self.free.pop()?;
        self.without_eventfd += usize::from(iocb.lacks_eventfd());
        self.polls += usize::from(iocb.is_poll());
        // SAFETY: `free` holds addresses of `iocbs` that are not in use.
        unsafe { slot.write(iocb) };
        Some(slot)
    }

    /// Frees an iocb and returns its content.
    fn release(&mut self, slot: *mut Iocb) -> Iocb {
        self.free.push(slot);
        // SAFETY: `slot` came from `take`, and the kernel has finished with it. The default iocb
        // has the token 0, which no job has, so `find` skips it.
        let iocb = unsafe { slot.replace(Iocb::default()) };
        self.without_eventfd -= usize::from(iocb.lacks_eventfd());
        self.polls -= usize::from(iocb.is_poll());
        iocb
    }

    /// The event for a completion of the kernel.
    fn completed(&mut self, event: IoEvent) -> JobEvent {
        let mut result = event.res;
        let slot = event.obj as usize;
        let offset = slot.wrapping_sub(self.iocbs.as_ptr().addr());
        if let Some(iocb) = self.iocbs.get(offset / size_of::<Iocb>()) {
            self.in_kernel -= 1;
            result = self.release(iocb.get()).result(result);
        }
        JobEvent { token: Token(event.data), kind: EventKind::Result(result) }
    }

    /// Each iocb is free, queued or submitted.
    fn check(&self, queued: usize) {
        let places = [self.free.len(), queued, self.in_kernel];
        assert_eq!(
            places.iter().sum::<usize>(),
            self.iocbs.len(),
            "free, queued, with the kernel: {places:?}"
        );
        assert!(self.without_eventfd.max(self.polls) <= queued + self.in_kernel);
    }

    fn find(&self, token: Token) -> Option<&Iocb> {
        // SAFETY: only shared references exist here; the kernel writes to iocbs only during
        // `io_submit`.
        self.iocbs
            .iter()
            .map(|iocb| unsafe { &*iocb.get() })
            .find(|iocb| iocb.user_data() == token.0)
    }
}

/// Sets up for as many requests as possible, halving their number after EAGAIN; returns the errno
/// if even the minimum is refused.
fn with_fewer_requests<T>(
    mut requests: u32,
    setup: impl Fn(u32) -> Result<T, i32>,
) -> Result<(T, u32), i32> {
    loop {
        match setup(requests) {
            Ok(context) => return Ok((context, requests)),
            Err(libc::EAGAIN) if requests > MIN_REQUESTS => {
                requests = (requests / 2).max(MIN_REQUESTS)
            }
            Err(errno) => return Err(errno),
        }
    }
}

impl Kaio {
    /// Takes at most `requests` jobs at a time, or fewer if `fs.aio-max-nr` leaves no more.
    ///
    /// Errors: the errno of `io_setup(2)` (EAGAIN: `fs.aio-max-nr` is used up) or of `eventfd(2)`.
    pub fn new(requests: u32) -> Result<Self, i32> {
        let (context, requests) =
            with_fewer_requests(requests.clamp(1, MAX_REQUESTS), Context::new)?;
        Self::with_context(context, requests)
    }

    fn with_context(context: Context, requests: u32) -> Result<Self, i32> {
        let eventfd = EventFd::new().map_err(|error| errno_of(&error))?;
        Ok(Self {
            context,
            slab: Slab::new(requests as usize),
            queued: Vec::with_capacity(requests as usize),
            ready_events: Vec::new(),
            eventfd: Arc::new(eventfd),
            polled: false,
            watched: None,
            system_calls: 0,
        })
    }

    /// True if completions are reaped without a system call.
    pub fn has_user_ring(&self) -> bool {
        self.context.has_user_ring()
    }

    /// Submits the queued iocbs. What the kernel does not take goes to the fallback pool: then this
    /// returns true.
    fn submit_queued(&mut self, events: &mut Vec<JobEvent>) -> bool {
        let (mut from, mut interrupted, mut refused) = (0, 0, false);
        while from < self.queued.len() {
            self.system_calls += 1;
            // SAFETY: the queued addresses are those of iocbs in the slab without references; the
            // caller of `push` keeps what they point at valid until they complete.
            match unsafe { self.context.submit(&self.queued[from..]) } {
                Ok(taken) if taken > 0 => {
                    from += taken;
                    self.slab.in_kernel += taken;
                }
                Err(libc::EINTR) if interrupted < MAX_INTERRUPTED => interrupted += 1,
                // Also after EAGAIN: the context has room for the whole slab, so the kernel has no
                // memory, and what is in flight may never complete.
                _ => {
                    let head = self.slab.release(self.queued[from]);
                    events.push(JobEvent {
                        token: Token(head.user_data()),
                        kind: EventKind::Unsupported,
                    });
                    refused = true;
                    from += 1;
                }
            }
        }
        self.queued.drain(..from);
        refused
    }

    /// Reaps completions without waiting.
    fn reap(&mut self, events: &mut Vec<JobEvent>) -> io::Result<()> {
        if self.context.has_user_ring() {
            self.context.reap(|event| events.push(self.slab.completed(event)));
            return Ok(());
        }
        while self.slab.in_kernel > 0
            && self.get_events(0, Some(Duration::ZERO), events)? == EVENT_BATCH
        {}
        Ok(())
    }

    /// `io_getevents`: returns the number of completions. A signal ends the wait early.
    fn get_events(
        &mut self,
        min: usize,
        timeout: Option<Duration>,
        events: &mut Vec<JobEvent>,
    ) -> io::Result<usize> {
        self.system_calls += 1;
        let mut buffer = [MaybeUninit::uninit(); EVENT_BATCH];
        match self.context.get_events(min, &mut buffer, timeout) {
            Ok(completed) => {
                events.extend(completed.iter().map(|event| self.slab.completed(*event)));
                Ok(completed.len())
            }
            Err(libc::EINTR) => Ok(0),
            // Sandboxes that emulate the call may be short of something.
            Err(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                std::thread::sleep(ALTERNATE_WAIT);
                Ok(0)
            }
            Err(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Waits for `missing` completions or another event. Returns how the wait ended if `enter`
    /// should return with the events that are there; `None` if it should continue.
    fn wait(
        &mut self,
        missing: usize,
        until: Option<Instant>,
        events: &mut Vec<JobEvent>,
    ) -> io::Result<Option<Wait>> {
        if self.watched.is_some() && self.slab.without_eventfd > 0 {
            // They were submitted before the eventfd was watched, and signal nothing: wait for them
            // and for the eventfd alternately until they are done.
            let soon = Instant::now() + ALTERNATE_WAIT;
            let until = Some(until.map_or(soon, |until| until.min(soon)));
            return Ok(Some(match self.get_events(1, left(until), events)? {
                0 => Wait::cut_short(until),
                _ => Wait::Ended,
            }));
        }
        if let Some(watched) = self.watched {
            return Ok(match self.wait_and_drain(watched, until)? {
                [true, false] => None,
                [_, true] => Some(Wait::Ended),
                [false, false] => Some(Wait::cut_short(until)),
            });
        }
        if self.slab.in_kernel == 0 && until.is_none() {
            return Ok(Some(Wait::Ended)); // Nothing would end the wait.
        }
        let min = missing.min(self.slab.in_kernel).clamp(1, EVENT_BATCH);
        let got = self.get_events(min, left(until), events)?;
        Ok((got < min).then(|| Wait::cut_short(until)))
    }

    /// Waits for the backend's eventfd and the watched one, drains those that are readable, and
    /// returns which ones were.
    fn wait_and_drain(&mut self, watched: RawFd, until: Option<Instant>) -> io::Result<[bool; 2]> {
        let both = [self.eventfd.as_raw_fd(), watched];
        self.system_calls += 1;
        let readable = wait_readable(both, until)?;
        for (fd, _) in both.into_iter().zip(readable).filter(|(_, readable)| *readable) {
            self.system_calls += 1;
            eventfd::drain(fd);
        }
        Ok(readable)
    }
}

impl Backend for Kaio {
    unsafe fn push(&mut self, job: &Job) -> Result<(), BackendFull> {
        let Some(iocb) = job.raw.iocb() else {
            self.ready_events.push(JobEvent { token: job.token, kind: EventKind::Unsupported });
            return Ok(());
        };
        let mut iocb = iocb.data(job.token.0);
        // Polls always signal: waiting for them alternately could go on forever.
        if self.polled || self.watched.is_some() || !job.raw.is_transfer() {
            iocb = iocb.resfd(self.eventfd.as_raw_fd());
        }
        self.queued.push(self.slab.take(iocb).ok_or(BackendFull)?);
        Ok(())
    }

    fn enter(
        &mut self,
        want: usize,
        until: Option<Instant>,
        events: &mut Vec<JobEvent>,
    ) -> io::Result<Wait> {
        let enough = events.len() + want;
        let mut ended = None;
        if self.polled {
            // Drain before reaping, so that later completions make the descriptor readable again.
            match self.watched {
                // The watched eventfd was readable: return, so that the caller handles it.
                Some(watched) => {
                    let [_, theirs] = self.wait_and_drain(watched, Some(Instant::now()))?;
                    ended = theirs.then_some(Wait::Ended);
                }
                None => {
                    self.system_calls += 1;
                    self.eventfd.drain();
                }
            }
            if self.slab.without_eventfd > 0 {
                self.wake(); // The program polls in a loop until they are done.
            }
        }
        let is_unsupported = |event: &JobEvent| event.kind == EventKind::Unsupported;
        let mut has_unsupported = self.ready_events.iter().any(is_unsupported);
        events.append(&mut self.ready_events);
        loop {
            has_unsupported |= self.submit_queued(events);
            self.reap(events)?;
            if cfg!(debug_assertions) {
                self.slab.check(self.queued.len());
            }
            // (What would be waited for may depend on a job that is to begin elsewhere.)
            if events.len() >= enough || has_unsupported {
                return Ok(Wait::Ended);
            }
            if let Some(ended) = ended {
                return Ok(ended);
            }
            ended = self.wait(enough - events.len(), until, events)?;
        }
    }

    fn cancel(&mut self, token: Token) {
        // SAFETY: queued iocbs are in the slab, and the kernel does not have them.
        let matches = |slot: &*mut Iocb| unsafe { (**slot).user_data() } == token.0;
        if let Some(index) = self.queued.iter().position(matches) {
            self.slab.release(self.queued.remove(index));
            self.ready_events
                .push(JobEvent { token, kind: EventKind::Result(-i64::from(libc::ECANCELED)) });
            if self.polled {
                self.wake();
            }
        } else if let Some(iocb) = self.slab.find(token) {
            self.system_calls += 1;
            Cancel::io_cancel(&self.context, iocb);
        }
    }

    fn poll_fd(&mut self) -> io::Result<RawFd> {
        if !std::mem::replace(&mut self.polled, true) && self.slab.without_eventfd > 0 {
            self.wake();
        }
        Ok(self.eventfd.as_raw_fd())
    }

    fn poll_eventfd(&self) -> Option<Arc<EventFd>> {
        Some(self.eventfd.clone())
    }

    fn wake(&mut self) {
        self.system_calls += 1;
        self.eventfd.signal();
    }

    fn watch(&mut self, eventfd: RawFd, active: bool) {
        self.watched = active.then_some(eventfd);
    }

    /// Linux AIO has no timers: the fallback pool keeps them.
    fn set_timer(&mut self, _: Token, _: Instant) {
        debug_assert!(false, "Linux AIO has no timers");
    }

    /// Only what `io_submit` does not execute synchronously: direct transfers on storage (a
    /// buffered one would run to its end inside the call, and one on a pipe might block forever),
    /// syncs, and polls in up to half of the slots, so that the rest is free for operations that
    /// end.
    fn supports(&self, job: &Job) -> bool {
        match job.raw {
            Raw::Poll(_) => self.slab.polls < (self.slab.iocbs.len() / 2).max(1),
            Raw::Fsync(_) => !job.for_threads,
            _ => {
                let is_direct = job.direct && job.file == FileKind::Storage;
                is_direct && !job.for_threads && !job.may_wait && job.raw.iocb().is_some()
            }
        }
    }

    fn chain_capacity(&self) -> usize {
        0
    }

    fn limit_keeper(&self) -> LimitKeeper {
        LimitKeeper::Fallback
    }

    /// A child does not inherit the context.
    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.eventfd.as_raw_fd()]
    }

    fn system_calls(&self) -> u64 {
        self.system_calls
    }
}

impl Drop for Kaio {
    /// Does not wait: with jobs in flight the context stays until the process ends, as their memory
    /// must.
    fn drop(&mut self) {
        // Uses the system call: a forked child gets EINVAL from it, and must not touch its parent's
        // ring.
        while self.slab.in_kernel > 0
            && self.get_events(0, Some(Duration::ZERO), &mut Vec::new()).is_ok_and(|got| got > 0)
        {
        }
        if self.slab.in_kernel > 0 {
            self.context.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{self, Fsync, Nop, Poll, Read, RwFlags, Write};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::fs::{File, OpenOptions};
    use std::io::{PipeReader, Write as _};
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    const PAGE: usize = 4096;

    /// Memory that is aligned for direct I/O.
    #[repr(align(4096))]
    #[derive(Clone, Copy)]
    struct Page([u8; PAGE]);

    /// A file of `pages` pages, each filled with its number, opened for direct I/O.
    fn direct_file(pages: u8) -> Option<File> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for number in 0..pages {
            file.write_all(&[number; PAGE]).unwrap();
        }
        file.flush().unwrap();
        let direct = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(file.path());
        if let Err(error) = &direct {
            println!("skipped: {} has no direct I/O: {error}", std::env::temp_dir().display());
        }
        direct.ok()
    }

    fn job(number: u64, raw: impl Into<Raw>) -> Job {
        Job::new(token(number), raw.into(), FileKind::Storage, true)
    }

    fn token(number: u64) -> Token {
        Token(1 << 32 | number)
    }

    fn read(file: &File, page: &mut Page, offset: u64) -> Read {
        Read {
            fd: file.as_raw_fd(),
            buf: page.0.as_mut_ptr(),
            len: PAGE,
            offset,
            flags: RwFlags::NONE,
        }
    }

    fn poll(pipe: &PipeReader) -> Poll {
        Poll { fd: pipe.as_raw_fd(), events: libc::POLLIN as u16 }
    }

    fn push(kaio: &mut Kaio, number: u64, raw: impl Into<Raw>) {
        // SAFETY: each test keeps the memory until the jobs have completed.
        unsafe { kaio.push(&job(number, raw)) }.unwrap();
    }

    /// Enters until `count` jobs have completed; returns their results by number.
    fn results(kaio: &mut Kaio, count: usize) -> BTreeMap<u64, EventKind> {
        let mut results = BTreeMap::new();
        let mut events = Vec::new();
        while results.len() < count {
            kaio.enter(
                count - results.len(),
                Some(Instant::now() + Duration::from_secs(20)),
                &mut events,
            )
            .unwrap();
            assert!(!events.is_empty(), "{} of {count} results", results.len());
            for event in events.drain(..) {
                let before = results.insert(event.token.0 & 0xffff_ffff, event.kind);
                assert_eq!(before, None, "{event:?} completed twice");
            }
        }
        kaio.enter(0, None, &mut events).unwrap();
        assert_eq!(events, [], "more events than jobs");
        assert_eq!((kaio.slab.in_kernel, kaio.slab.free.len()), (0, kaio.slab.iocbs.len()));
        results
    }

    fn readable(fd: RawFd) -> bool {
        wait_readable([fd], Some(Instant::now())).unwrap() == [true]
    }

    /// Runs a test with and without the ring in user space.
    fn both_ways(requests: u32, test: impl Fn(Kaio)) {
        let kaio = Kaio::new(requests).unwrap();
        if !kaio.has_user_ring() {
            println!("the completion ring's header is not known here");
        }
        test(kaio);
        test(Kaio::with_context(Context::without_user_ring(requests).unwrap(), requests).unwrap());
    }

    #[test]
    #[should_panic = "free, queued, with the kernel: [3, 0, 0]"]
    fn a_lost_iocb_is_detected() {
        let mut slab = Slab::new(4);
        let slot = slab.take(Iocb::default().data(1)).unwrap();
        slab.check(1);
        slab.release(slot);
        slab.check(0);
        slab.take(Iocb::default().data(1));
        slab.check(0);
    }

    #[test]
    fn writes_reads_and_syncs_work() {
        let Some(file) = direct_file(0) else { return };
        both_ways(8, |mut kaio| {
            let pages: [Page; 4] = std::array::from_fn(|number| Page([number as u8 + 1; PAGE]));
            for (number, page) in (0u64..).zip(&pages) {
                let offset = number * PAGE as u64;
                push(
                    &mut kaio,
                    number,
                    Write {
                        fd: file.as_raw_fd(),
                        buf: page.0.as_ptr(),
                        len: PAGE,
                        offset,
                        flags: RwFlags::NONE,
                    },
                );
            }
            assert!(
                results(&mut kaio, 4).values().all(|kind| *kind == EventKind::Result(PAGE as i64))
            );
            for data_only in [false, true] {
                push(&mut kaio, 9, Fsync { fd: file.as_raw_fd(), data_only });
                assert_eq!(results(&mut kaio, 1)[&9], EventKind::Result(0));
            }
            let mut back = [Page([0; PAGE]); 5];
            for (number, page) in (0u64..).zip(&mut back) {
                push(&mut kaio, number, read(&file, page, number * PAGE as u64));
            }
            let results = results(&mut kaio, 5);
            assert_eq!(results[&3], EventKind::Result(PAGE as i64));
            assert_eq!(results[&4], EventKind::Result(0), "at the end of the file");
            assert!((0..4).all(|number| back[number].0 == pages[number].0));
        });
    }

    #[test]
    fn vectored_transfers_work() {
        let Some(file) = direct_file(3) else { return };
        both_ways(8, |mut kaio| {
            let mut pages = [Page([9; PAGE]); 2];
            let iov = pages
                .each_mut()
                .map(|page| libc::iovec { iov_base: page.0.as_mut_ptr().cast(), iov_len: PAGE });
            push(
                &mut kaio,
                0,
                op::Readv {
                    fd: file.as_raw_fd(),
                    iov: iov.as_ptr(),
                    count: 2,
                    offset: PAGE as u64,
                    flags: op::RwFlags::NONE,
                },
            );
            assert_eq!(results(&mut kaio, 1)[&0], EventKind::Result(2 * PAGE as i64));
            assert_eq!((pages[0].0, pages[1].0), ([1; PAGE], [2; PAGE]));
            push(
                &mut kaio,
                1,
                op::Writev {
                    fd: file.as_raw_fd(),
                    iov: iov.as_ptr(),
                    count: 2,
                    offset: PAGE as u64,
                    flags: op::RwFlags::NONE,
                },
            );
            assert_eq!(results(&mut kaio, 1)[&1], EventKind::Result(2 * PAGE as i64));
        });
    }

    /// What the kernel refuses is to begin on a thread, before the others are waited for.
    #[test]
    fn a_refused_job_ends_the_wait() {
        both_ways(8, |mut kaio| {
            let (reader, mut writer) = std::io::pipe().unwrap();
            let (fd, mut page) = (-1, Page([0; PAGE]));
            push(&mut kaio, 0, poll(&reader));
            let read =
                Read { fd, buf: page.0.as_mut_ptr(), len: PAGE, offset: 0, flags: RwFlags::NONE };
            push(&mut kaio, 1, read);
            let (mut events, until) = (Vec::new(), Instant::now() + Duration::from_secs(60));
            kaio.enter(2, Some(until), &mut events).unwrap();
            assert_eq!(events, [JobEvent { token: token(1), kind: EventKind::Unsupported }]);
            assert!(Instant::now() < until, "the wait went on");
            writer.write_all(b"x").unwrap();
            let ready = EventKind::Result(i64::from(libc::POLLIN));
            assert_eq!(results(&mut kaio, 1), BTreeMap::from([(0, ready)]));
        });
    }

    #[test]
    fn only_asynchronous_operations_are_supported() {
        let kaio = Kaio::new(1).unwrap();
        let mut page = Page([0; PAGE]);
        let read =
            Read { fd: 0, buf: page.0.as_mut_ptr(), len: PAGE, offset: 0, flags: RwFlags::NONE };
        assert!(kaio.supports(&job(0, read)));
        assert!(!kaio.supports(&Job { direct: false, ..job(0, read) }));
        assert!(!kaio.supports(&Job { file: FileKind::Stream, ..job(0, read) }));
        assert!(!kaio.supports(&job(0, Read { offset: op::CURRENT_POSITION, ..read })));
        assert!(!kaio.supports(&job(0, Nop)));
        assert!(kaio.supports(&Job { direct: false, ..job(0, Fsync { fd: 0, data_only: false }) }));
        assert!(kaio.supports(&Job {
            file: FileKind::Stream,
            direct: false,
            ..job(0, Poll { fd: 0, events: 1 })
        }));
    }

    /// Jobs for the batch below.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum JobCase {
        Good,
        BadDescriptor,
        BadOffset,
        BadLength,
        BadPoll,
        NoIocb,
    }

    const JOB_CASES: [JobCase; 6] = [
        JobCase::Good,
        JobCase::BadDescriptor,
        JobCase::BadOffset,
        JobCase::BadLength,
        JobCase::BadPoll,
        JobCase::NoIocb,
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Refused jobs anywhere in a batch: each completes once, and the others are submitted.
        #[test]
        fn a_refusal_affects_only_its_own_job(
            cases in proptest::collection::vec(prop::sample::select(&JOB_CASES[..]), 1..24),
        ) {
            let Some(file) = direct_file(4) else { return Ok(()) };
            both_ways(24, |mut kaio| {
                let mut pages = [Page([9; PAGE]); 24];
                for (number, (case, page)) in (0u64..).zip(cases.iter().zip(&mut pages)) {
                    let good = read(&file, page, number % 4 * PAGE as u64);
                    match case {
                        JobCase::Good => push(&mut kaio, number, good),
                        JobCase::BadDescriptor => push(&mut kaio, number, Read { fd: -1, ..good }),
                        JobCase::BadOffset => {
                            push(&mut kaio, number, Read { offset: u64::MAX - 5000, ..good });
                        }
                        JobCase::BadLength => push(&mut kaio, number, Read { len: 100, ..good }),
                        // A regular file has no poll, so a poll for no events never ends and is
                        // refused.
                        JobCase::BadPoll => {
                            push(&mut kaio, number, Poll { fd: file.as_raw_fd(), events: 0 });
                        }
                        JobCase::NoIocb => push(&mut kaio, number, Nop),
                    }
                }
                for (number, result) in results(&mut kaio, cases.len()) {
                    let case = cases[number as usize];
                    match result {
                        EventKind::Result(result) if case == JobCase::Good => {
                            assert_eq!(result, PAGE as i64);
                            assert_eq!(pages[number as usize].0, [number as u8 % 4; PAGE]);
                        }
                        // File systems check this themselves, some of them during the submission;
                        // some accept any length.
                        EventKind::Result(result) if case == JobCase::BadLength => {
                            assert!(result == -i64::from(libc::EINVAL) || result == 100);
                        }
                        EventKind::Unsupported => assert_ne!(case, JobCase::Good),
                        other => panic!("{case:?}: {other:?}"),
                    }
                }
            });
        }
    }

    #[test]
    fn a_full_backend_takes_no_job() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut kaio = Kaio::new(3).unwrap();
        for number in 0..3 {
            push(&mut kaio, number, poll(&reader));
        }
        // SAFETY: a poll points at nothing.
        assert_eq!(unsafe { kaio.push(&job(3, poll(&reader))) }, Err(BackendFull));
        writer.write_all(b"x").unwrap();
        assert_eq!(results(&mut kaio, 3).len(), 3);
        push(&mut kaio, 3, poll(&reader));
        assert_eq!(results(&mut kaio, 1).len(), 1);
    }

    /// What the kernel does not take (here it is full before the slab is) does not wait for what it
    /// has: that may never complete.
    #[test]
    fn the_kernels_eagain_sends_jobs_to_the_threads() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        const JOBS: usize = 2000;
        let mut kaio = Kaio::with_context(Context::new(1).unwrap(), JOBS as u32).unwrap();
        for number in 0..JOBS as u64 {
            push(&mut kaio, number, poll(&reader));
        }
        let mut events = Vec::new();
        kaio.enter(0, None, &mut events).unwrap();
        assert!(events.iter().all(|event| event.kind == EventKind::Unsupported));
        assert!(!events.is_empty() && events.len() < JOBS, "{}", events.len());
        writer.write_all(b"x").unwrap();
        let ready = EventKind::Result(i64::from(libc::POLLIN));
        let left = results(&mut kaio, JOBS - events.len());
        assert!(left.values().all(|kind| *kind == ready));
    }

    #[test]
    fn the_number_of_requests_is_halved_until_it_fits() {
        let available = |available: u32| {
            move |wanted: u32| if wanted <= available { Ok(()) } else { Err(libc::EAGAIN) }
        };
        assert_eq!(with_fewer_requests(1000, available(5000)), Ok(((), 1000)));
        assert_eq!(with_fewer_requests(1000, available(999)), Ok(((), 500)));
        assert_eq!(with_fewer_requests(1000, available(40)), Ok(((), 32)));
        assert_eq!(with_fewer_requests(33, available(32)), Ok(((), 32)));
        assert_eq!(with_fewer_requests(1000, available(31)), Err(libc::EAGAIN));
        assert_eq!(with_fewer_requests(8, available(7)), Err(libc::EAGAIN));
        assert_eq!(with_fewer_requests::<()>(1000, |_| Err(libc::ENOSYS)), Err(libc::ENOSYS));
    }

    /// As above, with the real limit. The whole machine is without Linux AIO meanwhile, so this
    /// test runs on demand.
    #[test]
    #[ignore = "uses up fs.aio-max-nr"]
    fn a_machine_without_free_requests_is_refused() {
        let read = |path| -> u32 { std::fs::read_to_string(path).unwrap().trim().parse().unwrap() };
        let free = read("/proc/sys/fs/aio-max-nr") - read("/proc/sys/fs/aio-nr");
        let most = Context::new(free - 100).unwrap();
        let less = Kaio::new(1000).unwrap();
        assert_eq!(less.slab.iocbs.len(), 62);
        let least = Kaio::new(1000).unwrap();
        assert_eq!(least.slab.iocbs.len(), 32);
        assert_eq!(Kaio::new(1000).err(), Some(libc::EAGAIN));
        drop((most, less, least));
        assert_eq!(Kaio::new(1000).unwrap().slab.iocbs.len(), 1000);
    }

    #[test]
    fn a_poll_ends_when_it_is_ready_or_cancelled() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        both_ways(4, |mut kaio| {
            let mut events = Vec::new();
            push(&mut kaio, 0, poll(&reader));
            kaio.enter(1, Some(Instant::now() + Duration::from_millis(10)), &mut events).unwrap();
            assert_eq!(events, []);
            kaio.cancel(token(0));
            assert_eq!(results(&mut kaio, 1)[&0], EventKind::Result(-i64::from(libc::ECANCELED)));
            // Not submitted.
            push(&mut kaio, 1, poll(&reader));
            push(&mut kaio, 2, poll(&reader));
            kaio.cancel(token(1));
            kaio.cancel(token(7));
            (&writer).write_all(b"x").unwrap();
            let results = results(&mut kaio, 2);
            assert_eq!(results[&1], EventKind::Result(-i64::from(libc::ECANCELED)));
            assert_eq!(results[&2], EventKind::Result(i64::from(libc::POLLIN)));
            std::io::Read::read_exact(&mut &reader, &mut [0]).unwrap();
        });
        writer.flush().unwrap();
    }

    /// What 5.4 returns when a pipe's other end is written to or closed.
    #[test]
    fn the_bits_of_a_wakeup_are_not_the_result() {
        let (reader, writer) = std::io::pipe().unwrap();
        let events = libc::POLLIN as u64;
        let iocb = |fd: RawFd| Iocb::new(crate::sys::kaio::IOCB_CMD_POLL, fd, events, 0, 0);
        let readable = i64::from(libc::POLLIN | libc::POLLRDNORM);
        let all = readable | i64::from(libc::POLLERR | libc::POLLHUP);
        let (reading, writing) = (iocb(reader.as_raw_fd()), iocb(writer.as_raw_fd()));
        assert_eq!(writing.result(readable), -i64::from(libc::EAGAIN));
        assert_eq!(reading.result(all), -i64::from(libc::EAGAIN));
        drop(writer);
        assert_eq!(reading.result(all), i64::from(libc::POLLHUP));
        // Without bits that were not requested, these are the events, which may be over by now.
        assert_eq!(reading.result(i64::from(libc::POLLIN)), i64::from(libc::POLLIN));
        // A descriptor that was closed meanwhile.
        let known = i64::from(libc::POLLIN | libc::POLLERR | libc::POLLHUP);
        assert_eq!(iocb(RawFd::MAX).result(all), known);
    }

    #[test]
    fn a_hangup_is_reported_in_the_bits_of_poll() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut kaio = Kaio::new(1).unwrap();
        push(&mut kaio, 0, poll(&reader));
        kaio.enter(0, None, &mut Vec::new()).unwrap();
        drop(writer);
        assert_eq!(results(&mut kaio, 1)[&0], EventKind::Result(i64::from(libc::POLLHUP)));
    }

    #[test]
    fn the_poll_descriptor_signals_every_event() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut kaio = Kaio::new(4).unwrap();
        let mut events = Vec::new();
        // Submitted before `poll_fd`.
        push(&mut kaio, 0, poll(&reader));
        kaio.enter(0, None, &mut events).unwrap();
        let fd = kaio.poll_fd().unwrap();
        assert_eq!(kaio.poll_fd().unwrap(), fd);
        assert!(!readable(fd));
        writer.write_all(b"x").unwrap();
        assert_eq!(
            wait_readable([fd], Some(Instant::now() + Duration::from_secs(20))).unwrap(),
            [true]
        );
        kaio.enter(0, None, &mut events).unwrap();
        assert_eq!(events.len(), 1);
        assert!(!readable(fd));
        kaio.wake();
        assert!(readable(fd));
        kaio.enter(0, None, &mut events).unwrap();
        assert!(!readable(fd));
        // An event that does not come from the kernel.
        push(&mut kaio, 1, poll(&reader));
        kaio.cancel(token(1));
        assert!(readable(fd));
        kaio.enter(0, None, &mut events).unwrap();
        assert_eq!(events.len(), 2);
        assert!(!readable(fd));
        // The fallback pool.
        kaio.poll_eventfd().unwrap().signal();
        assert!(readable(fd));
        kaio.enter(0, None, &mut events).unwrap();
        assert!(!readable(fd));
    }

    #[test]
    fn a_transfer_submitted_before_polling_is_signalled() {
        let Some(file) = direct_file(1) else { return };
        let mut page = Page([0xff; PAGE]);
        let mut kaio = Kaio::new(4).unwrap();
        let mut events = Vec::new();
        push(&mut kaio, 0, read(&file, &mut page, 0));
        kaio.submit_queued(&mut events);
        let fd = kaio.poll_fd().unwrap();
        while events.is_empty() {
            assert!(readable(fd));
            kaio.enter(0, None, &mut events).unwrap();
        }
        kaio.enter(0, None, &mut events).unwrap();
        assert!(!readable(fd), "nothing is in flight any more");
        assert_eq!(kaio.slab.without_eventfd, 0);
        // One submitted before the eventfd was watched ends the wait too.
        let mut kaio = Kaio::new(4).unwrap();
        push(&mut kaio, 1, read(&file, &mut page, 0));
        kaio.submit_queued(&mut events);
        let watched = EventFd::new().unwrap();
        kaio.watch(watched.as_raw_fd(), true);
        events.clear();
        while events.is_empty() {
            kaio.enter(1, None, &mut events).unwrap();
        }
        assert_eq!(kaio.slab.without_eventfd, 0);
    }

    #[test]
    fn a_watched_eventfd_ends_the_wait_and_so_does_a_completion() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let watched = EventFd::new().unwrap();
        let later = || Some(Instant::now() + Duration::from_secs(20));
        both_ways(4, |mut kaio| {
            let mut events = Vec::new();
            // Nothing is in flight.
            kaio.watch(watched.as_raw_fd(), true);
            watched.signal();
            kaio.enter(1, None, &mut events).unwrap();
            push(&mut kaio, 0, poll(&reader));
            push(&mut kaio, 1, poll(&reader));
            let begin = Instant::now();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(10));
                    watched.signal();
                });
                kaio.enter(2, later(), &mut events).unwrap();
            });
            assert_eq!(events, []);
            assert!(!readable(watched.as_raw_fd()));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(10));
                    (&writer).write_all(b"x").unwrap();
                });
                assert_eq!(results(&mut kaio, 2).len(), 2);
            });
            assert!(begin.elapsed() < Duration::from_secs(10));
            // Not watched any more.
            kaio.watch(watched.as_raw_fd(), false);
            watched.signal();
            let until = Instant::now() + Duration::from_millis(10);
            kaio.enter(1, Some(until), &mut events).unwrap();
            assert!(Instant::now() >= until);
            watched.drain();
            std::io::Read::read_exact(&mut &reader, &mut [0]).unwrap();
        });
        writer.flush().unwrap();
    }

    #[test]
    fn waiting_without_jobs_returns() {
        let mut kaio = Kaio::new(1).unwrap();
        kaio.enter(1, None, &mut Vec::new()).unwrap();
    }

    extern "C" fn no_handler(_: libc::c_int) {}

    #[test]
    fn a_signal_ends_the_wait_and_loses_nothing() {
        // SAFETY: the handler does nothing, for a signal that nothing else in this test uses;
        // without SA_RESTART.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = no_handler as extern "C" fn(libc::c_int) as libc::sighandler_t;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        let watched = EventFd::new().unwrap();
        for watching in [false, true] {
            both_ways(4, |mut kaio| {
                kaio.watch(watched.as_raw_fd(), watching);
                push(&mut kaio, 0, poll(&reader));
                let returned = AtomicBool::new(false);
                // SAFETY: the call takes no arguments and cannot fail.
                let waiting = unsafe { libc::pthread_self() };
                let until = Instant::now() + Duration::from_secs(20);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        while !returned.load(Ordering::SeqCst) {
                            std::thread::sleep(Duration::from_millis(5));
                            // SAFETY: the thread waits for this one to end, so it exists.
                            unsafe { libc::pthread_kill(waiting, libc::SIGUSR2) };
                        }
                    });
                    let mut events = Vec::new();
                    kaio.enter(1, Some(until), &mut events).unwrap();
                    returned.store(true, Ordering::SeqCst);
                    assert_eq!(events, []);
                });
                assert!(Instant::now() < until);
                kaio.cancel(token(0));
                assert_eq!(results(&mut kaio, 1).len(), 1);
            });
        }
        writer.flush().unwrap();
    }

    #[test]
    fn dropping_does_not_wait_for_jobs_in_flight() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut kaio = Kaio::new(1).unwrap();
        push(&mut kaio, 0, poll(&reader));
        kaio.enter(0, None, &mut Vec::new()).unwrap();
        drop(kaio);
        writer.write_all(b"x").unwrap();
        // Completed, but not reaped.
        let mut kaio = Kaio::new(1).unwrap();
        push(&mut kaio, 0, poll(&reader));
        kaio.submit_queued(&mut Vec::new());
        drop(kaio);
    }

    /// Once polled, a signal of the watched eventfd was taken for one of the backend's own, and the
    /// wait went on.
    #[test]
    fn a_watched_eventfd_that_is_readable_already_ends_the_wait() {
        let (reader, _writer) = std::io::pipe().unwrap();
        both_ways(8, |mut kaio| {
            kaio.poll_fd().unwrap();
            let watched = EventFd::new().unwrap();
            kaio.watch(watched.as_raw_fd(), true);
            push(&mut kaio, 0, poll(&reader));
            watched.signal();
            let before = Instant::now();
            kaio.enter(1, Some(before + Duration::from_secs(20)), &mut Vec::new()).unwrap();
            assert!(before.elapsed() < Duration::from_secs(10));
        });
    }
}
