//! Finds direct transfers that io_uring cannot start asynchronously, and decides how they are
//! submitted instead. It submits nothing itself.
//!
//! io_uring passes ("punts") a transfer that would wait to an io-wq worker, which costs several
//! times as much as the transfer. So direct reads are submitted with `RWF_NOWAIT`: the kernel then
//! fails them with EAGAIN instead of punting them, and they are submitted again without the flag.
//! If a file's reads are punted again and again, they and those that follow go to KAIO, or do
//! without the flag. After a run of them one read has the flag again, as a check. If it is not
//! punted, all reads have the flag again; otherwise the next run is twice as long.
//!
//! Kernels before 5.13 punt every direct read of pages that are in the page cache, and KAIO does
//! not wait for those: where the ring is known to be that old, the first punt decides. (5.10.162
//! has a later io_uring.) Elsewhere a punt now and then has causes that KAIO would wait for in the
//! calling thread: pages that are dirty in the page cache, a full device queue.
//!
//! Writes are never routed, since KAIO waits for those that allocate space too. One of them is
//! checked now and then, so that punted writes show in the statistics. Appends are not checked: the
//! rest of one that was cut short would not follow it if others append meanwhile.

use crate::file::{File, FileKind, Traits};
use crate::op::{CURRENT_POSITION, Operation, Raw};
use crate::refusal::{Feature, Refusal};
use crate::sys::{RawFd, libc};

/// Transfers from one check of a file to the next.
const SHORTEST_RUN: u16 = 64;
const LONGEST_RUN: u16 = 1024;

/// Files that are remembered. Two whose descriptors are equal modulo this number take turns.
const FILES: usize = 64;

/// The punts that decide, if they are half of the reads submitted lately.
const PATIENCE: u8 = 8;

/// Reads that are "lately". After as many, both counts are halved.
const LATELY: u8 = 64;

/// What is remembered of a descriptor is looked up again after this many transfers, since it may be
/// another file's by then.
const LOOK_UP_AFTER: u16 = 64;

/// How a transfer is submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Route {
    /// Not decided yet.
    #[default]
    Undecided,
    /// To the main backend, which may punt it.
    Plain,
    /// To the main backend, which fails it with EAGAIN instead of punting it.
    Nowait,
    /// As `Nowait`; the result decides how the next transfers of the file are submitted.
    Check,
    /// To KAIO.
    Kaio,
}

/// How the transfers of a file in one direction are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Each with `RWF_NOWAIT`: so many were submitted lately, and so many of them punted.
    Nowait { asked: u8, punted: u8 },
    /// To KAIO, or without the flag: so many until the next check.
    Away(u16),
    /// As `Away`, while a check is in flight. (If that never has a result, another check follows.)
    Checking(u16),
}

impl Phase {
    const NOWAIT: Self = Self::Nowait { asked: 0, punted: 0 };
}

/// One direction of a file.
#[derive(Clone, Copy, Debug)]
struct Direction {
    phase: Phase,
    /// The length of the current or last run.
    run: u16,
    /// The file system supports `RWF_NOWAIT`. Otherwise io_uring punts all transfers.
    is_supported: bool,
}

impl Direction {
    const fn new(phase: Phase) -> Self {
        Self { phase, run: SHORTEST_RUN, is_supported: true }
    }

    /// How the next transfer is submitted, if those of a run take `away`.
    #[inline]
    fn next(&mut self, away: Route) -> Route {
        match &mut self.phase {
            Phase::Nowait { asked, punted } => {
                if *asked == LATELY {
                    (*asked, *punted) = (*asked / 2, *punted / 2);
                }
                *asked += 1;
                Route::Nowait
            }
            Phase::Away(0) | Phase::Checking(0) => {
                self.phase = Phase::Checking(self.run);
                Route::Check
            }
            Phase::Away(left) | Phase::Checking(left) => {
                *left -= 1;
                away
            }
        }
    }

    /// Starts a run of this length.
    fn start_run(&mut self, len: u16) {
        self.run = len.min(LONGEST_RUN);
        self.phase = Phase::Away(self.run);
    }
}

/// A file, as far as its descriptor identifies it. A descriptor may be reused for another file:
/// then some transfers take a way that is not the best, with the same results.
#[derive(Clone, Copy, Debug)]
struct KnownFile {
    fd: RawFd,
    is_direct: bool,
    /// Transfers until `is_direct` is looked up again.
    valid_for: u16,
    reads: Direction,
    writes: Direction,
}

impl KnownFile {
    const fn new(fd: RawFd) -> Self {
        Self {
            fd,
            is_direct: false,
            valid_for: 0,
            reads: Direction::new(Phase::NOWAIT),
            writes: Direction::new(Phase::Away(0)),
        }
    }

    fn direction(&mut self, is_write: bool) -> &mut Direction {
        if is_write { &mut self.writes } else { &mut self.reads }
    }
}

/// The files of a queue and how their transfers are submitted.
#[derive(Debug, Default)]
pub(super) struct Routing {
    /// The main backend knows `RWF_NOWAIT`.
    is_on: bool,
    /// Punted reads go to KAIO.
    to_kaio: bool,
    /// The punts that decide.
    patience: u8,
    /// Empty until the first transfer.
    files: Vec<KnownFile>,
    punted_reads: u64,
    punted_writes: u64,
    /// Those of them on files without `RWF_NOWAIT`.
    unsupported_reads: u64,
    unsupported_writes: u64,
    routed: u64,
}

impl Routing {
    /// `punts_cached`: the kernel punts every direct read of pages in the page cache.
    pub fn new(is_on: bool, to_kaio: bool, punts_cached: bool) -> Self {
        let patience = if punts_cached { 1 } else { PATIENCE };
        Self { is_on, to_kaio, patience, ..Self::default() }
    }

    /// False if every transfer takes [`Route::Plain`].
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// True if KAIO takes punted reads.
    pub fn goes_to_kaio(&self) -> bool {
        self.to_kaio
    }

    /// KAIO is refused: from now on, punted reads are submitted without the flag.
    pub fn without_kaio(&mut self) {
        self.to_kaio = false;
    }

    /// Transfers that were found to be punted.
    pub fn punted(&self) -> u64 {
        self.punted_reads + self.punted_writes
    }

    /// Transfers that KAIO took.
    pub fn routed(&self) -> u64 {
        self.routed
    }

    pub fn count_routed(&mut self) {
        self.routed += 1;
    }

    /// How the next transfer is submitted.
    #[inline]
    pub fn route(&mut self, operation: &Operation) -> Route {
        let raw = &operation.raw;
        let is_write = match raw {
            Raw::Read(_) | Raw::Readv(_) => false,
            Raw::Write(_) | Raw::Writev(_) => true,
            _ => return Route::Plain,
        };
        // KAIO keeps no time limits.
        if raw.offset() == Some(CURRENT_POSITION) || operation.timeout.is_some() {
            return Route::Plain;
        }
        let to_kaio = self.to_kaio && !is_write;
        let Some(file) = raw.fd().and_then(|fd| self.file(fd, operation.file.as_ref())) else {
            return Route::Plain;
        };
        let direction = file.direction(is_write);
        let is_supported = direction.is_supported;
        let away = if to_kaio && is_supported { Route::Kaio } else { Route::Plain };
        match direction.next(away) {
            Route::Plain => {
                // Whether a write waits depends on its place; a read's file decides it.
                if !is_write || !is_supported {
                    self.count_punted(is_write, !is_supported);
                }
                Route::Plain
            }
            // What is remembered of the descriptor may be another file's, on which KAIO would block
            // the caller: a pipe, for example.
            Route::Kaio if !is_direct(operation) => self.forget(raw),
            Route::Check if is_write && appends(operation) => Route::Plain,
            route => route,
        }
    }

    /// What is known of a file that is open for direct I/O; `None` for another file.
    #[inline]
    fn file(&mut self, fd: RawFd, file: Option<&File>) -> Option<&mut KnownFile> {
        if self.files.is_empty() {
            self.files = vec![KnownFile::new(-1); FILES];
        }
        let known = &mut self.files[usize::try_from(fd).ok()? % FILES];
        if known.fd != fd {
            *known = KnownFile::new(fd);
        }
        match file.and_then(File::known_traits) {
            Some(traits) => known.is_direct = is_direct_storage(traits),
            None if known.valid_for == 0 => {
                let traits = file.map_or_else(|| Traits::of(fd), File::traits);
                known.is_direct = is_direct_storage(traits);
                known.valid_for = LOOK_UP_AFTER;
            }
            None => known.valid_for -= 1,
        }
        known.is_direct.then_some(known)
    }

    /// The descriptor is another file's by now.
    fn forget(&mut self, raw: &Raw) -> Route {
        if let Some(at) = raw.fd().and_then(|fd| usize::try_from(fd).ok()) {
            self.files[at % FILES] = KnownFile::new(-1);
        }
        Route::Plain
    }

    /// The direction of a transfer, if its file is still remembered.
    fn direction(&mut self, raw: &Raw) -> Option<&mut Direction> {
        let fd = raw.fd()?;
        let known = self.files.get_mut(usize::try_from(fd).ok()? % FILES)?;
        (known.fd == fd).then(|| known.direction(raw.is_write()))
    }

    /// A transfer that took `route` was refused with EAGAIN or, if not `is_supported`, with
    /// EOPNOTSUPP. Returns how it is submitted again.
    pub fn note_punted(
        &mut self,
        operation: &Operation,
        route: Route,
        is_supported: bool,
    ) -> Route {
        let raw = &operation.raw;
        let is_write = raw.is_write();
        if !is_direct(operation) {
            return self.forget(raw); // A buffered transfer that waits is no punt.
        }
        self.count_punted(is_write, !is_supported);
        let by_kaio = self.to_kaio && !is_write && is_supported;
        let patience = self.patience;
        let Some(direction) = self.direction(raw) else { return Route::Plain };
        direction.is_supported = is_supported;
        match (&mut direction.phase, route) {
            _ if !is_supported => direction.start_run(LONGEST_RUN),
            (Phase::Checking(_), Route::Check) => direction.start_run(direction.run * 2),
            (Phase::Nowait { asked, punted }, _) => {
                *punted = punted.saturating_add(1);
                if *punted < patience || patience > 1 && *punted < *asked / 2 {
                    return Route::Plain;
                }
                direction.start_run(SHORTEST_RUN);
            }
            _ => {}
        }
        if by_kaio { Route::Kaio } else { Route::Plain }
    }

    /// A check was not punted.
    pub fn note_not_punted(&mut self, raw: &Raw) {
        let is_write = raw.is_write();
        if let Some(direction) = self.direction(raw)
            && let Phase::Checking(_) = direction.phase
        {
            direction.is_supported = true;
            match is_write {
                true => direction.start_run(direction.run * 2),
                false => *direction = Direction::new(Phase::NOWAIT),
            }
        }
    }

    /// A check has failed for another reason, which says nothing about punts: the next transfer is
    /// the check.
    pub fn note_check_failed(&mut self, raw: &Raw) {
        if let Some(direction) = self.direction(raw)
            && let Phase::Checking(_) = direction.phase
        {
            direction.phase = Phase::Away(0);
        }
    }

    fn count_punted(&mut self, is_write: bool, is_unsupported: bool) {
        let (punted, unsupported) = match is_write {
            false => (&mut self.punted_reads, &mut self.unsupported_reads),
            true => (&mut self.punted_writes, &mut self.unsupported_writes),
        };
        *punted += 1;
        *unsupported += u64::from(is_unsupported);
    }

    /// What was not asynchronous, why, and what makes it so; `None` if nothing was found.
    pub fn refusal(&self) -> Option<Refusal> {
        let supported_reads = self.punted_reads.saturating_sub(self.unsupported_reads);
        let supported_writes = self.punted_writes.saturating_sub(self.unsupported_writes);
        let unsupported = self.unsupported_reads + self.unsupported_writes;
        let mut found = Vec::new();
        let mut fixes = Vec::new();
        if supported_reads > 0 {
            found.push(format!(
                "{supported_reads} direct reads would have waited: pages of the file are in the \
                 page cache (kernels before 5.13) or dirty there, the device's queue is full, or \
                 the device always waits (some device-mapper targets)"
            ));
            fixes.push("do not access the file through the page cache too, or drop its pages");
        }
        if supported_writes > 0 {
            found.push(format!(
                "of the direct writes checked, {supported_writes} would have waited: they \
                 allocate space or extend the file, its pages are dirty or (before 5.13) in the \
                 page cache, the device's queue is full, or the device always waits"
            ));
            fixes.push("allocate the file before writing it (fallocate, or one write of zeroes)");
        }
        if unsupported > 0 {
            found.push(format!(
                "{unsupported} direct transfers were on a file system or device that does not \
                 support RWF_NOWAIT"
            ));
            fixes.push("use another file system, or the backend kaio or threads");
        }
        if found.is_empty() {
            return None;
        }
        let then = match self.routed {
            0 => "io-wq workers did them".to_owned(),
            routed => format!("kaio did {routed} reads, and io-wq workers the rest"),
        };
        Some(Refusal {
            feature: Feature::AsyncDirect,
            errno: if unsupported > 0 { libc::EOPNOTSUPP } else { libc::EAGAIN },
            meaning: format!("{}; {then}", found.join("; ")),
            fix: fixes.join("; "),
        })
    }
}

fn is_direct_storage(traits: Traits) -> bool {
    traits.direct && traits.kind == FileKind::Storage
}

/// Whether an operation's file, not what is remembered of its descriptor, is open for direct I/O.
pub(super) fn is_direct(operation: &Operation) -> bool {
    traits(operation).is_some_and(is_direct_storage)
}

/// Whether an operation's file is one on storage that is not open for direct I/O.
pub(super) fn is_buffered(operation: &Operation) -> bool {
    traits(operation).is_some_and(|traits| !traits.direct && traits.kind == FileKind::Storage)
}

fn traits(operation: &Operation) -> Option<Traits> {
    match &operation.file {
        Some(file) => Some(file.traits()),
        None => operation.raw.fd().map(Traits::of),
    }
}

/// Whether a write appends, which takes a system call.
fn appends(operation: &Operation) -> bool {
    let bare = || {
        // SAFETY: an operation without a file is from `from_raw`. Its maker promised that the
        // descriptor stays what it is until the completion, and this value is dropped here.
        operation.raw.fd().and_then(|fd| unsafe { File::borrow_raw(fd) })
    };
    operation.file.clone().or_else(bare).is_some_and(|file| file.appends().unwrap_or(true))
}

#[cfg(all(test, ringway_linux))]
mod tests {
    use super::*;
    use crate::op;

    /// A file that counts as one for direct I/O, so that no file system need support it.
    fn file(append: bool) -> File {
        let file = tempfile::tempfile().unwrap();
        if append {
            use std::os::fd::AsRawFd;
            // SAFETY: `fcntl` with F_SETFL takes numbers only.
            assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) }, 0);
        }
        let file = File::from(file);
        file.set_traits(Traits { kind: FileKind::Storage, direct: true });
        file
    }

    fn read(file: &File) -> Operation {
        op::read(file, vec![0; 512], 0)
    }

    fn write(file: &File) -> Operation {
        op::write(file, vec![0; 512], 0)
    }

    /// The next transfers, until one takes another route than `route`; how many, and that route.
    fn run(routing: &mut Routing, operation: &Operation, route: Route) -> (usize, Route) {
        for count in 0..10_000 {
            match routing.route(operation) {
                next if next == route => {}
                next => return (count, next),
            }
        }
        (10_000, route)
    }

    #[test]
    fn runs_get_longer_until_a_check_succeeds() {
        let file = file(false);
        let mut routing = Routing::new(true, true, true);
        assert_eq!(routing.route(&read(&file)), Route::Nowait);
        assert_eq!(routing.note_punted(&read(&file), Route::Nowait, true), Route::Kaio);
        for len in [64, 128, 256, 512, 1024, 1024] {
            assert_eq!(run(&mut routing, &read(&file), Route::Kaio), (len, Route::Check));
            assert_eq!(routing.note_punted(&read(&file), Route::Check, true), Route::Kaio);
        }
        assert_eq!(run(&mut routing, &read(&file), Route::Kaio), (1024, Route::Check));
        routing.note_not_punted(&read(&file).raw);
        assert_eq!(run(&mut routing, &read(&file), Route::Nowait), (10_000, Route::Nowait));
        assert_eq!(routing.punted(), 7);
    }

    /// On kernels that do not punt reads only since pages are cached.
    #[test]
    fn only_a_file_that_is_mostly_punted_is_routed() {
        let file = file(false);
        let mut routing = Routing::new(true, true, false);
        for number in 0..10_000 {
            assert_eq!(routing.route(&read(&file)), Route::Nowait);
            if number % 3 == 0 {
                assert_eq!(routing.note_punted(&read(&file), Route::Nowait, true), Route::Plain);
            }
        }
        let mut routing = Routing::new(true, true, false);
        for _ in 1..PATIENCE {
            assert_eq!(routing.route(&read(&file)), Route::Nowait);
            assert_eq!(routing.note_punted(&read(&file), Route::Nowait, true), Route::Plain);
        }
        assert_eq!(routing.route(&read(&file)), Route::Nowait);
        assert_eq!(routing.note_punted(&read(&file), Route::Nowait, true), Route::Kaio);
        assert_eq!(run(&mut routing, &read(&file), Route::Kaio), (64, Route::Check));
    }

    /// The reads of a burst are submitted before the first result is known.
    #[test]
    fn a_burst_counts_with_the_reads_before_it() {
        let file = file(false);
        let mut routing = Routing::new(true, true, false);
        for _ in 0..LATELY - 2 + 16 {
            assert_eq!(routing.route(&read(&file)), Route::Nowait);
        }
        for _ in 0..PATIENCE {
            assert_eq!(routing.note_punted(&read(&file), Route::Nowait, true), Route::Plain);
        }
    }

    /// A check that was cancelled before it was submitted, for example.
    #[test]
    fn a_check_without_a_result_is_repeated() {
        let file = file(false);
        let mut routing = Routing::new(true, true, true);
        routing.route(&read(&file));
        routing.note_punted(&read(&file), Route::Nowait, true);
        for _ in 0..3 {
            assert_eq!(run(&mut routing, &read(&file), Route::Kaio), (64, Route::Check));
        }
    }

    #[test]
    fn a_check_that_fails_is_repeated_and_changes_nothing() {
        let file = file(false);
        let mut routing = Routing::new(true, true, true);
        routing.route(&read(&file));
        routing.note_punted(&read(&file), Route::Nowait, true);
        assert_eq!(run(&mut routing, &read(&file), Route::Kaio), (64, Route::Check));
        routing.note_check_failed(&read(&file).raw);
        assert_eq!(run(&mut routing, &read(&file), Route::Kaio), (0, Route::Check));
        routing.note_punted(&read(&file), Route::Check, true);
        assert_eq!(run(&mut routing, &read(&file), Route::Kaio), (128, Route::Check));
        routing.note_not_punted(&read(&file).raw);
        routing.note_check_failed(&read(&file).raw); // Of an older check: too late.
        assert_eq!(routing.route(&read(&file)), Route::Nowait);
    }

    #[test]
    fn without_kaio_the_reads_of_a_run_have_no_flag_and_count() {
        let file = file(false);
        let mut routing = Routing::new(true, false, true);
        routing.route(&read(&file));
        assert_eq!(routing.note_punted(&read(&file), Route::Nowait, true), Route::Plain);
        assert_eq!(run(&mut routing, &read(&file), Route::Plain), (64, Route::Check));
        assert_eq!(routing.punted(), 65);
    }

    /// The descriptor may be that of a file on another file system by now.
    #[test]
    fn a_file_without_nowait_is_checked_again() {
        let file = file(false);
        let mut routing = Routing::new(true, true, true);
        routing.route(&read(&file));
        assert_eq!(routing.note_punted(&read(&file), Route::Nowait, false), Route::Plain);
        assert_eq!(run(&mut routing, &read(&file), Route::Plain), (1024, Route::Check));
        assert_eq!(routing.punted(), 1025);
        routing.note_not_punted(&read(&file).raw);
        assert_eq!(routing.route(&read(&file)), Route::Nowait);
    }

    #[test]
    fn some_writes_are_checked_and_no_appends() {
        let (plain, append) = (file(false), file(true));
        let mut routing = Routing::new(true, true, true);
        assert_eq!(run(&mut routing, &write(&plain), Route::Plain), (0, Route::Check));
        routing.note_not_punted(&write(&plain).raw);
        assert_eq!(run(&mut routing, &write(&plain), Route::Plain), (128, Route::Check));
        assert_eq!(run(&mut routing, &write(&append), Route::Plain), (10_000, Route::Plain));
        assert_eq!(routing.punted(), 0);
    }
}
