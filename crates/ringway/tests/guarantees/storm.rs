//! The cancel storm: a thousand tasks drop their reads and writes at random moments.
//!
//! The storm comes in waves. In a wave each task runs one operation after the other: direct and
//! buffered reads and writes of a file on disk, and reads of a pipe. Each operation is awaited,
//! dropped after a random time or number of polls, or aborted with its task. After a wave nothing
//! may be in flight, and the file must be consistent: a block whose write was reported has the new
//! content; a block whose write was dropped has, in each sector, the new content or the old. No
//! buffer is written to after it was freed. At any moment pushed = delivered + orphaned + in
//! flight.
//!
//! `RINGWAY_STORM=60 cargo test -p ringway --test guarantees storm` lasts a minute on each backend.
//! `RINGWAY_SEED` repeats the decisions of a run, but not its timing.

use crate::common::watchdog::{self, Watchdog};
use crate::common::{
    MS, PAGE, available, counts, current_thread, is_available, multi_thread, open, pattern, pipe,
    places, reap_until_idle, scratch, skip, write_synced,
};
use fastrand::Rng;
use futures::future::{Either, poll_immediate, select};
use ringway::fs::File;
use ringway::{BackendKind, Engine, Position};
use ringway_torture::pages::Pages;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TASKS: usize = 1000;
/// Blocks of the file per task.
const BLOCKS: usize = 8;
const SECTOR: usize = 512;
const WAVE: Duration = Duration::from_millis(500);

/// The known state of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Block {
    /// The number of the last write that was reported or, after a wave, found in the file.
    written: u64,
    /// A write that was dropped in this wave.
    attempted: Option<u64>,
}

struct Storm {
    engine: Engine,
    /// The file that all tasks write to, direct and buffered.
    files: [File; 2],
    /// A file that is only read, direct and buffered.
    read_only: [File; 2],
    pattern: Vec<u8>,
    pipe: File,
    pages: Pages,
    /// By task and block. Each task changes only its own.
    blocks: Vec<Mutex<[Block; BLOCKS]>>,
    writes: AtomicU64,
    dropped: AtomicU64,
    over: AtomicBool,
}

/// The content of a block after a write: the number of the write and the place of the block, in
/// every eight bytes.
fn content(place: usize, write: u64) -> Vec<u8> {
    let word = if write == 0 { 0 } else { write << 24 | place as u64 };
    word.to_le_bytes().repeat(PAGE / 8)
}

/// How an operation ends.
#[derive(Clone, Copy)]
enum Ending {
    Awaited,
    /// Dropped after this number of polls.
    Polls(u32),
    /// Dropped after this time.
    Time(Duration),
}

fn ending(rng: &mut Rng) -> Ending {
    match rng.u32(..4) {
        0 | 1 => Ending::Awaited,
        2 => Ending::Polls(rng.u32(0..4)),
        _ => Ending::Time(Duration::from_micros(rng.u64(0..3000))),
    }
}

/// The operation's result, or `None` if it was dropped.
async fn run_until<T>(operation: impl Future<Output = T>, ending: Ending) -> Option<T> {
    let mut operation = pin!(operation);
    match ending {
        Ending::Awaited => Some(operation.await),
        Ending::Polls(polls) => {
            for _ in 0..polls {
                if let Some(result) = poll_immediate(&mut operation).await {
                    return Some(result);
                }
                tokio::task::yield_now().await;
            }
            None
        }
        Ending::Time(time) => match select(operation, pin!(tokio::time::sleep(time))).await {
            Either::Left((result, _)) => Some(result),
            Either::Right(_) => None,
        },
    }
}

impl Storm {
    fn new(kind: BackendKind, dir: &tempfile::TempDir) -> Self {
        let engine = Engine::builder().backend(kind).shards(2).in_flight(64).build().unwrap();
        let files = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            write_synced(&path, content);
            [true, false].map(|direct| open(&engine, &path, direct))
        };
        let (pipe, writer) = pipe(&engine);
        let pattern = pattern(0, 256 * PAGE);
        // The other end of the pipe stays open until the process ends.
        std::mem::forget(writer);
        Self {
            files: files("storm", &vec![0; TASKS * BLOCKS * PAGE]),
            read_only: files("read_only", &pattern),
            pattern,
            pipe,
            pages: Pages::default(),
            blocks: (0..TASKS).map(|_| Mutex::default()).collect(),
            writes: AtomicU64::new(1),
            dropped: AtomicU64::new(0),
            over: AtomicBool::new(false),
            engine,
        }
    }

    /// A task: one operation after the other, until the wave is over.
    async fn task(self: Arc<Self>, task: usize, mut rng: Rng) {
        while !self.over.load(Ordering::Relaxed) {
            let ending = ending(&mut rng);
            let dropped = match rng.u32(..8) {
                0 => {
                    // Nothing is ever written to the pipe, so this read is always dropped.
                    let ending =
                        if let Ending::Awaited = ending { Ending::Time(MS) } else { ending };
                    let read =
                        run_until(self.pipe.read_at(self.pages.take(), Position::Current), ending)
                            .await;
                    assert!(
                        read.is_none(),
                        "an empty pipe was read: {:?}",
                        read.map(|(read, _)| read)
                    );
                    true
                }
                1 => {
                    run_until(self.files[0].sync_data(), ending).await.map(Result::unwrap).is_none()
                }
                2..=4 => self.read(&mut rng, ending).await,
                _ => self.write(task, &mut rng, ending).await,
            };
            self.dropped.fetch_add(u64::from(dropped), Ordering::Relaxed);
        }
    }

    async fn read(&self, rng: &mut Rng, ending: Ending) -> bool {
        let at = rng.u64(..256) * PAGE as u64;
        match rng.u32(..3) {
            0 => {
                let ranges: Vec<_> = (0..rng.u64(1..6))
                    .map(|page| page * 40_000 + at % 997..page * 40_000 + 2000)
                    .collect();
                let parts = run_until(self.read_only[0].read_ranges(&ranges), ending).await;
                let Some(parts) = parts else { return true };
                for (part, range) in parts.unwrap().iter().zip(&ranges) {
                    assert!(
                        part[..] == self.pattern[range.start as usize..range.end as usize],
                        "a read returned other bytes"
                    );
                }
            }
            file => {
                // (Exactly, since a file system may give less.)
                let file = &self.read_only[file as usize - 1];
                let read = run_until(file.read_exact_at(self.pages.take(), at), ending).await;
                let Some((read, buffer)) = read else { return true };
                read.unwrap();
                assert!(
                    buffer.as_slice() == &self.pattern[at as usize..][..PAGE],
                    "a read returned other bytes"
                );
            }
        }
        false
    }

    async fn write(&self, task: usize, rng: &mut Rng, ending: Ending) -> bool {
        let block = rng.usize(..BLOCKS);
        if self.blocks[task].lock().unwrap()[block].attempted.is_some() {
            // A dropped write may take effect late, so this block is not written again in this
            // wave.
            return false;
        }
        let write = self.writes.fetch_add(1, Ordering::Relaxed);
        let place = task * BLOCKS + block;
        let mut buffer = self.pages.take();
        buffer.as_mut_slice().unwrap().copy_from_slice(&content(place, write));
        // Recorded before the write begins, because the task may be aborted at any moment.
        self.blocks[task].lock().unwrap()[block].attempted = Some(write);
        // Half of the tasks write directly and half through the page cache; no block is written
        // both ways.
        let file = &self.files[task % 2];
        let Some((written, back)) =
            run_until(file.write_all_at(buffer, (place * PAGE) as u64), ending).await
        else {
            return true;
        };
        written.unwrap();
        assert!(back.as_slice() == content(place, write), "another buffer was returned");
        self.blocks[task].lock().unwrap()[block] = Block { written: write, attempted: None };
        false
    }

    /// Runs one wave on its own runtimes. One of them is dropped while operations are in flight.
    fn wave(self: &Arc<Self>, rng: &mut Rng) {
        self.over.store(false, Ordering::Relaxed);
        let threads = multi_thread(2);
        let single = current_thread();
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let runtime = if task % 10 == 0 { single.handle() } else { threads.handle() };
                runtime.spawn(self.clone().task(task, rng.fork()))
            })
            .collect();
        let until = Instant::now() + WAVE;
        let mut aborts = rng.fork();
        std::thread::scope(|scope| {
            scope.spawn(|| single.block_on(async { tokio::time::sleep(WAVE).await }));
            while Instant::now() < until {
                std::thread::sleep(MS);
                counts(&self.engine);
                // Aborts a task in the middle of an operation.
                let task = aborts.usize(..tasks.len());
                tasks[task].abort();
            }
        });
        // Drops this runtime with everything in flight.
        drop(single);
        self.over.store(true, Ordering::Relaxed);
        for task in tasks {
            match threads.block_on(task) {
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                _ => {}
            }
        }
        drop(threads);
        reap_until_idle(&self.engine);
        self.check();
    }

    /// Checks the buffers and the file, while nothing is in flight.
    fn check(&self) {
        self.pages.inspect(Duration::ZERO);
        assert_eq!(self.pages.counts().0, 0, "buffers were not freed");
        let file =
            rustix::io::fcntl_dupfd_cloexec(&self.files[1], 0).map(std::fs::File::from).unwrap();
        let mut found = vec![0; BLOCKS * PAGE];
        for (task, blocks) in self.blocks.iter().enumerate() {
            file.read_exact_at(&mut found, (task * BLOCKS * PAGE) as u64).unwrap();
            for (number, block) in blocks.lock().unwrap().iter_mut().enumerate() {
                let place = task * BLOCKS + number;
                let found = &found[number * PAGE..][..PAGE];
                let is = |write: u64| found == content(place, write);
                match block.attempted {
                    None => assert!(
                        is(block.written),
                        "block {place} lacks a reported write: {block:?}"
                    ),
                    Some(attempted) if is(attempted) => block.written = attempted,
                    Some(_) if is(block.written) => {}
                    Some(attempted) => {
                        // A torn block: each sector has one of the two contents. It is rewritten,
                        // so that the block has one content again.
                        for (at, sector) in found.chunks(SECTOR).enumerate() {
                            let of = |write: u64| {
                                content(place, write)[at * SECTOR..][..SECTOR] == *sector
                            };
                            assert!(
                                of(block.written) || of(attempted),
                                "block {place} has unknown content: {block:?}"
                            );
                        }
                        file.write_all_at(&content(place, attempted), (place * PAGE) as u64)
                            .unwrap();
                        block.written = attempted;
                    }
                }
                block.attempted = None;
            }
        }
    }
}

fn storm(kind: BackendKind) {
    if is_available(kind) {
        storm_in(kind, scratch());
    }
}

/// The storm in a directory.
fn storm_in(kind: BackendKind, dir: tempfile::TempDir) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("RINGWAY_SEED").unwrap_or_else(|| fastrand::u64(..));
    let lasts = number("RINGWAY_STORM").map_or(WAVE, Duration::from_secs);
    println!("{kind}: RINGWAY_SEED={seed}");
    let _watch = Watchdog::with_timeout(
        &format!("{kind} storm, RINGWAY_SEED={seed}"),
        lasts + 2 * watchdog::LIMIT,
    );
    let storm = Arc::new(Storm::new(kind, &dir));
    let mut rng = Rng::with_seed(seed);
    let begin = Instant::now();
    let mut waves = 0;
    // On a busy machine one wave may cancel too little.
    let (counts, dropped) = loop {
        storm.wave(&mut rng);
        waves += 1;
        let (counts, dropped) = (counts(&storm.engine), storm.dropped.load(Ordering::Relaxed));
        let is_storm = counts.orphaned > 100 && counts.delivered > 1000 && dropped > 100;
        if is_storm && begin.elapsed() >= lasts {
            break (counts, dropped);
        }
    };
    println!(
        "{kind}: {waves} waves, {counts:?}, {dropped} dropped, buffers {:?}",
        storm.pages.counts()
    );
}

/// Where the storm comes too, unless `RINGWAY_FILE_SYSTEMS=all`.
const FEW: &[&str] = &["FUSE, slow", "overlayfs on disk"];

#[test]
fn on_other_file_systems() {
    places::each(FEW, skip, |place| {
        // (Where transfers are short, a torn write need not end with a sector.)
        for kind in available().into_iter().filter(|_| !place.is_short) {
            println!("{}:", place.name);
            storm_in(kind, tempfile::tempdir_in(place.path()).unwrap());
        }
    });
}

#[test]
fn uring() {
    storm(BackendKind::Uring);
}

#[test]
fn kaio() {
    storm(BackendKind::Kaio);
}

#[test]
fn threads() {
    storm(BackendKind::Threads);
}
