//! Warming: afterwards the page cache has the ranges, whatever it had before, and the mappings of
//! the program are as they were.

// On Linux only: elsewhere the system does not tell what is cached (`portable.rs`).
#![cfg(target_os = "linux")]
#![allow(clippy::single_range_in_vec_init, reason = "lists of one range are meant")]

mod common;

use common::{
    build_or_skip, drop_cached_pages, in_fork, on_each_backend, open, pattern, places, poll_once,
    reap_until_idle, scratch, skip, wait_for, write_synced,
};
use futures::executor::block_on;
use ringway::fs::{File, Warmed};
use ringway::{BackendKind, Engine, FaultPlan};
use ringway_core::FaultStep;
use ringway_core::op::Opcode;
use ringway_hostile::Hostile;
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

const PAGE: u64 = 4096;
/// Not a multiple of the page size.
const LEN: u64 = 600 * PAGE + 100;

/// The file, mapped.
struct Mapping {
    start: *mut libc::c_void,
    len: usize,
}

impl Mapping {
    fn new(file: impl AsFd) -> Self {
        let fd = file.as_fd().as_raw_fd();
        let len = rustix::fs::fstat(file).unwrap().st_size as usize;
        let (access, kind) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: the call takes a descriptor that is open and numbers.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, fd, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Self { start, len }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing else knows this mapping.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

/// Which pages of a file the page cache has, without ringway and without reading any. The file
/// belongs to this user: of another one's, `mincore(2)` says nothing.
fn cached_pages(file: impl AsFd) -> Vec<bool> {
    let mapping = Mapping::new(file);
    let mut pages = vec![0u8; mapping.len.div_ceil(PAGE as usize)];
    // SAFETY: the array has a byte for each page of the mapping.
    assert_eq!(unsafe { libc::mincore(mapping.start, mapping.len, pages.as_mut_ptr()) }, 0);
    pages.into_iter().map(|page| page & 1 == 1).collect()
}

fn has(file: impl AsFd, offset: u64) -> bool {
    cached_pages(file)[(offset / PAGE) as usize]
}

fn has_all(file: impl AsFd, range: Range<u64>) -> bool {
    let pages = (range.start / PAGE) as usize..range.end.div_ceil(PAGE) as usize;
    cached_pages(file)[pages].iter().all(|page| *page)
}

/// As [`has_all`], for a file of any user. A page that is missing may come by that.
fn answers_at_once(file: impl AsFd, range: Range<u64>) -> bool {
    let mut byte = [0];
    range.step_by(PAGE as usize).all(|offset| {
        let buffers = &mut [IoSliceMut::new(&mut byte)];
        preadv2(&file, buffers, offset, ReadWriteFlags::NOWAIT).is_ok_and(|read| read == 1)
    })
}

/// Runs a test on each backend with a file that the page cache does not have.
fn on_each(name: &str, test: impl Fn(&Engine, &File, &Path)) {
    on_each_backend(name, |kind| {
        let dir = scratch();
        let path = dir.path().join("file");
        write_synced(&path, &pattern(0, LEN as usize));
        let Some(engine) = build_or_skip(kind, Engine::builder().shards(1)) else { return };
        let file = open(&engine, &path, false);
        evict(&file, &path);
        test(&engine, &file, &path);
        reap_until_idle(&engine);
    });
}

fn counts(warmed: &Warmed) -> (u64, u64) {
    assert!(warmed.failed.is_empty(), "{warmed:?}");
    (warmed.cached, warmed.read)
}

/// The bytes of the pages that were asked for. How many of them were read is the device's matter: a
/// look that misses makes the kernel read ahead, and a fast device answers before the look ends.
fn total(warmed: &Warmed) -> u64 {
    let (cached, read) = counts(warmed);
    cached + read
}

fn evict(file: impl AsFd, path: &Path) {
    // The kernel keeps a page that it looks at itself in that moment.
    wait_for("the file to be evicted", || {
        drop_cached_pages(path);
        !cached_pages(&file).contains(&true)
    });
}

#[test]
fn what_is_missing_is_read_and_nothing_else() {
    on_each("missing", |engine, file, _| {
        let last = LEN / PAGE * PAGE;
        let ranges = [40 * PAGE + 5..40 * PAGE + 6, 7 * PAGE..9 * PAGE, last..u64::MAX];
        let warmed = block_on(file.warm(&ranges)).unwrap();
        assert_eq!(total(&warmed), 3 * PAGE + 100);
        assert!([7, 8, 40, LEN / PAGE].iter().all(|page| has(file, page * PAGE)));
        assert!(!has(file, 300 * PAGE), "nobody has asked for it");

        let operations = engine.stats().counts.pushed;
        let warmed = block_on(file.warm(&ranges)).unwrap();
        assert_eq!(counts(&warmed), (3 * PAGE + 100, 0));
        assert_eq!(engine.stats().counts.pushed, operations, "nothing was missing");
    });
}

#[test]
fn a_whole_file_is_warmed() {
    on_each("whole", |_, file, path| {
        assert_eq!(total(&block_on(file.warm(&[0..u64::MAX])).unwrap()), LEN);
        assert!(has_all(file, 0..LEN));
        assert_eq!(counts(&block_on(file.warm(&[0..LEN])).unwrap()), (LEN, 0));
        // Holes in the page cache.
        drop_cached_pages(path);
        let mut byte = [0];
        let std = fs::File::open(path).unwrap();
        rustix::fs::fadvise(&std, 0, None, rustix::fs::Advice::Random).unwrap();
        for page in (0..600).step_by(50) {
            std.read_exact_at(&mut byte, page * PAGE).unwrap();
        }
        let warmed = block_on(file.warm(&[0..LEN])).unwrap();
        assert!(warmed.cached >= PAGE && total(&warmed) == LEN, "{warmed:?}");
        assert!(has_all(file, 0..LEN));
    });
}

#[test]
fn ranges_may_be_of_any_kind() {
    on_each("any ranges", |_, file, path| {
        let ranges = [
            2 * PAGE..4 * PAGE,
            0..PAGE,
            3 * PAGE - 1..3 * PAGE + 1,
            5..5,
            LEN..LEN + 1,
            u64::MAX..u64::MAX,
            u64::MAX - 1..u64::MAX,
            2 * PAGE..2 * PAGE + 1,
        ];
        assert_eq!(total(&block_on(file.warm(&ranges)).unwrap()), 3 * PAGE);
        // (At the start of a file the kernel reads ahead.)
        assert!(has_all(file, 0..4 * PAGE));
        assert_eq!(counts(&block_on(file.warm(&[])).unwrap()), (0, 0));
        assert_eq!(counts(&block_on(file.warm(&[9..9])).unwrap()), (0, 0));
        let backwards = Range { start: 9, end: 8 };
        let error = block_on(file.warm(&[0..1, backwards])).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("9..8"), "{error}");

        // A hundred thousand ranges, of all pages and in no order.
        evict(file, path);
        let start = |at: u64| at * 7919 % LEN;
        let many: Vec<_> = (0..100_000).map(|at| start(at)..start(at) + 1).collect();
        assert_eq!(total(&block_on(file.warm(&many)).unwrap()), LEN);
        assert!(has_all(file, 0..LEN));
    });
}

#[test]
fn holes_and_files_that_change() {
    on_each("changes", |_, file, path| {
        let std = fs::File::options().write(true).open(path).unwrap();
        std.set_len(LEN + 100 * PAGE).unwrap();
        let len = LEN + 100 * PAGE;
        let warmed = block_on(file.warm(&[LEN..u64::MAX, 0..PAGE])).unwrap();
        assert_eq!(total(&warmed), len - LEN / PAGE * PAGE + PAGE);
        assert!(has_all(file, LEN..len));
        // Between the polls of a call, the file becomes shorter, or longer.
        for changed in [PAGE, 2 * len] {
            std.set_len(len).unwrap();
            std.sync_all().unwrap();
            drop_cached_pages(path);
            let ranges = [0..u64::MAX];
            let mut warm = pin!(file.warm(&ranges));
            let first = poll_once(warm.as_mut());
            std.set_len(changed).unwrap();
            let warmed = match first {
                Poll::Ready(warmed) => warmed.unwrap(),
                Poll::Pending => block_on(warm).unwrap(),
            };
            assert!(total(&warmed) <= len, "{warmed:?}");
            assert!(has_all(file, 0..changed.min(len)));
        }
        std.set_len(0).unwrap();
        assert_eq!(counts(&block_on(file.warm(&[0..u64::MAX])).unwrap()), (0, 0));
    });
}

/// The bytes of a mapping that have a page table entry.
fn resident(start: usize) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines().skip_while(|line| !line.starts_with(&format!("{start:08x}-")));
    let line = lines.find(|line| line.starts_with("Rss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn mappings_are_not_touched() {
    on_each("mapping", |_, file, _| {
        let Mapping { start, len } = &Mapping::new(file);
        assert_eq!(total(&block_on(file.warm(&[0..LEN])).unwrap()), LEN);
        assert!(has_all(file, 0..LEN));
        assert_eq!(resident(start.addr()), 0);
        // SAFETY: it is mapped, and nobody writes to the file.
        let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), *len) };
        assert!(bytes == pattern(0, *len));
        assert!(resident(start.addr()) > 0);
    });
}

/// `mincore(2)` reports each page of such a file as cached, and `cachestat(2)` fails.
#[test]
fn a_file_of_another_user() {
    if !common::process::is_root() {
        return skip("only root can become another user");
    }
    let dir = scratch();
    let path = dir.path().join("file");
    write_synced(&path, &pattern(0, LEN as usize));
    let std = fs::File::open(&path).unwrap();
    on_each_backend("another user", |kind| {
        evict(&std, &path);
        let status = in_fork(|| {
            common::process::become_ordinary();
            let Some(engine) = build_or_skip(kind, Engine::builder().shards(1)) else { return };
            let file = File::from_fd(std.try_clone().unwrap().into(), &engine);
            assert!(!cached_pages(&std).contains(&false), "mincore tells the truth");
            assert_eq!(total(&block_on(file.warm(&[9..LEN])).unwrap()), LEN);
            assert!(answers_at_once(&std, 0..LEN));
            assert_eq!(counts(&block_on(file.warm(&[9..LEN])).unwrap()), (LEN, 0));
        });
        assert_eq!(status, 0);
        assert!(has_all(&std, 0..LEN));
    });
}

/// Where the file system does not tell what is cached, all of it is read.
#[test]
fn on_other_file_systems() {
    let few = ["FUSE", "overlayfs on disk", "overlayfs in memory"];
    places::each(&few, skip, |place| on_each_backend(place.name, |kind| in_place(place, kind)));
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    on_each_backend("tmpfs", |kind| warm_in(memory.path().join("file"), kind));
}

fn in_place(place: &places::Place, kind: BackendKind) {
    warm_in(place.path().join("file"), kind);
}

fn warm_in(path: PathBuf, kind: BackendKind) {
    fs::write(&path, pattern(0, LEN as usize)).unwrap();
    let Some(engine) = build_or_skip(kind, Engine::builder().shards(1)) else { return };
    let file = open(&engine, &path, false);
    let warmed = block_on(file.warm(&[0..9 * PAGE, 100 * PAGE..u64::MAX])).unwrap();
    assert_eq!(total(&warmed), LEN - 91 * PAGE, "{}", path.display());
}

#[test]
fn refusals() {
    on_each("refusals", |engine, _, path| {
        let refused = |file: &File| block_on(file.warm(&[0..1])).unwrap_err();
        let error = refused(&open(engine, path, true));
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("direct I/O"), "{error}");
        let (reader, _writer) = common::pipe(engine);
        let dir = fs::File::open(path.parent().unwrap()).unwrap();
        let null = fs::File::open("/dev/null").unwrap();
        let others = [dir, null].map(|file| File::from_fd(file.into(), engine));
        for file in others.iter().chain([&reader]) {
            let error = refused(file);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains("regular file"), "{error}");
        }
        // A file that is open for writing only.
        let file = fs::File::options().write(true).open(path).unwrap();
        let file = File::from_fd(file.into(), engine);
        let warmed = block_on(file.warm(&[0..PAGE])).unwrap();
        assert_eq!(warmed.failed[0].error.raw_os_error(), Some(libc::EBADF));
    });
}

/// An error concerns its range; the others are warmed.
#[test]
fn errors_have_their_ranges() {
    on_each_backend("EIO", |kind| {
        let dir = scratch();
        let path = dir.path().join("file");
        write_synced(&path, &pattern(0, LEN as usize));
        for failing in 0..6 {
            // The device may be so fast that a look already finds what was missing. But the first
            // read is made without one.
            let plan = FaultPlan::new(1).fail(FaultStep::Opcode(Opcode::Read, failing), libc::EIO);
            let builder = Engine::builder().shards(1).faults(plan);
            let Some(engine) = build_or_skip(kind, builder) else { return };
            let file = open(&engine, &path, false);
            drop_cached_pages(&path);
            let ranges: Vec<_> = (0..5).map(|at| at * 100 * PAGE..at * 100 * PAGE + PAGE).collect();
            let warmed = block_on(file.warm(&ranges)).unwrap();
            assert!(warmed.failed.len() <= 1, "{warmed:?}");
            for failed in &warmed.failed {
                assert_eq!(failed.error.raw_os_error(), Some(libc::EIO));
                assert!(ranges.contains(&failed.range), "{failed:?}");
            }
            // (Linux AIO leaves buffered reads to the threads, which get no faults.)
            let is_certain = failing == 0 && kind != BackendKind::Kaio;
            assert!(!is_certain || warmed.failed.len() == 1, "{warmed:?}");
            let failed = warmed.failed.len() as u64 * PAGE;
            assert_eq!(warmed.cached + warmed.read + failed, 5 * PAGE);
        }
        let Ok(hostile) = Hostile::mount(&[]).inspect_err(|error| skip(&error.to_string())) else {
            return;
        };
        fs::write(hostile.backing().join("file"), pattern(0, LEN as usize)).unwrap();
        hostile.set("file read fail 5").unwrap();
        let Some(engine) = build_or_skip(kind, Engine::builder().shards(1)) else { return };
        let file = open(&engine, &hostile.path().join("file"), false);
        let warmed = block_on(file.warm(&[PAGE..LEN])).unwrap();
        assert_eq!((warmed.cached, warmed.read, warmed.failed.len()), (0, 0, 1), "{warmed:?}");
        assert_eq!(warmed.failed[0].range, PAGE..LEN);
        assert_eq!(warmed.failed[0].error.raw_os_error(), Some(libc::EIO));
    });
}

/// What is in flight when the future is dropped ends by itself, and nothing more is submitted.
#[test]
fn a_dropped_future_submits_no_more() {
    on_each("dropped", |engine, file, path| {
        for polls in 1..5 {
            drop_cached_pages(path);
            let ranges = [0..LEN];
            let mut warm = Box::pin(file.warm(&ranges));
            let pushed = || engine.stats().counts.pushed;
            for _ in 0..polls {
                if poll_once(warm.as_mut()).is_ready() {
                    break;
                }
            }
            drop(warm);
            let submitted = pushed();
            reap_until_idle(engine);
            assert_eq!(pushed(), submitted);
        }
        assert_eq!(block_on(file.warm(&[0..LEN])).unwrap().failed.len(), 0);
        assert!(has_all(file, 0..LEN));
    });
}

/// Many calls at once share the buffer that their bytes go to.
#[test]
fn many_at_once() {
    on_each("many", |engine, file, path| {
        drop_cached_pages(path);
        let runtime = common::multi_thread(2);
        let file = Arc::new(file.clone());
        let tasks: Vec<_> = (0..16)
            .map(|at| {
                let file = Arc::clone(&file);
                runtime.spawn(async move { file.warm(&[at * 10 * PAGE..LEN]).await })
            })
            .collect();
        for task in tasks {
            let warmed = runtime.block_on(task).unwrap().unwrap();
            assert!(warmed.failed.is_empty(), "{warmed:?}");
        }
        assert!(has_all(&*file, 0..LEN));
        assert_eq!(common::counts(engine).in_flight, 0);
    });
}

#[test]
fn a_forked_child_is_refused() {
    on_each("fork", |_, file, _| {
        let status = in_fork(|| {
            let error = block_on(file.warm(&[0..PAGE])).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ECHILD));
        });
        assert_eq!(status, 0);
    });
}
