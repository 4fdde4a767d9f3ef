//! A program that reads places of a mapped file: with page faults alone, after `madvise(2)`, and
//! after `File::warm`, in turn; from the device, and from the page cache. Prints the medians of the
//! rounds: the time until all places were read, and its ratios to that of the faults alone, without
//! and with `MADV_RANDOM`.
//!
//! `cargo bench -p ringway --bench warm -- [places] [bytes] [rounds] [backend]`

use ringway::fs::File;
use ringway::{BackendKind, Engine};
use ringway_measure::arguments::Arguments;
use ringway_measure::rounds::{Column, Row, Turn};
use ringway_measure::scratch;
use ringway_measure::stats::Spread;
use std::hint::black_box;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// The size of the file.
const SIZE: usize = 1 << 30;
/// How often each way is measured in a round, at other places each time.
const TRIES: usize = 20;

/// Until all places were read, the median of all tries.
const TIME: &str = "µs";
const FAULTS: &str = "faults";
const RANDOM_FAULTS: &str = "faults, MADV_RANDOM";

/// What the program does before it reads.
#[derive(Clone, Copy)]
enum Way {
    Faults,
    RandomFaults,
    WillNeed,
    Populate,
    Warm,
    WarmRandom,
}

const WAYS: [(&str, Way); 6] = [
    (FAULTS, Way::Faults),
    (RANDOM_FAULTS, Way::RandomFaults),
    ("MADV_WILLNEED", Way::WillNeed),
    ("MADV_POPULATE_READ", Way::Populate),
    ("warm", Way::Warm),
    ("warm, MADV_RANDOM", Way::WarmRandom),
];

fn main() {
    let arguments = Arguments::of_process();
    let (places, len) = (arguments.number(0, 64), arguments.number(1, 4096));
    let rounds = arguments.number(2, 5);
    let mut builder = Engine::builder();
    if let Some(kind) = arguments.word(3) {
        builder = builder.backend(kind.parse::<BackendKind>().unwrap());
    }
    let engine = builder.build().unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let std =
        scratch::create(env!("CARGO_TARGET_TMPDIR").as_ref(), SIZE as u64, 1, &mut |_| ()).unwrap();
    let file = std::fs::File::open(scratch::path(&std)).unwrap();
    let file = File::from_fd(file.into(), &engine);
    let mut seed = fastrand::Rng::with_seed(1);
    println!("{places} places of {len} bytes, {}\n", engine.backend());
    for is_cold in [true, false] {
        if !is_cold {
            scratch::load_page_cache(&std, SIZE as u64).unwrap();
        }
        let title = if is_cold { "cold" } else { "cached" };
        let row = Row::measure(title.into(), rounds, WAYS.into(), None, |way| {
            let mut times = Vec::new();
            for _ in 0..TRIES {
                let ranges = ranges(&mut seed, places, len);
                if is_cold {
                    scratch::drop_page_cache(&std)?;
                }
                times.push(run(&runtime, &file, *way, &ranges).as_secs_f64() * 1e6);
            }
            let mut turn = Turn::default();
            turn.set(TIME, Spread::of(times).map(|times| times.median));
            Ok(turn)
        });
        let ratio = |to| Column::ratio(&format!("to {to}"), TIME, to);
        let columns = [FAULTS, RANDOM_FAULTS].map(ratio);
        let columns: Vec<_> =
            [Column::figure(TIME), Column::range(TIME)].into_iter().chain(columns).collect();
        println!("{}", row.markdown(&columns, &row.notes()));
    }
}

fn ranges(seed: &mut fastrand::Rng, places: usize, len: usize) -> Vec<Range<u64>> {
    let blocks = (SIZE / len) as u64;
    let place = |_| {
        let start = seed.u64(0..blocks) * len as u64;
        start..start + len as u64
    };
    (0..places).map(place).collect()
}

/// Maps the file anew, and measures how long it takes to read the places.
fn run(
    runtime: &tokio::runtime::Runtime,
    file: &File,
    way: Way,
    ranges: &[Range<u64>],
) -> Duration {
    // SAFETY: a new mapping of the file, which is not shortened before the mapping ends.
    let start = unsafe {
        let fd = file.as_raw_fd();
        libc::mmap(std::ptr::null_mut(), SIZE, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
    };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: the ranges are within the mapping, and these kinds of advice change no content.
    let advise = |range: &Range<u64>, advice| unsafe {
        let (at, len) = (start.byte_add(range.start as usize), range.end - range.start);
        assert_eq!(libc::madvise(at, len as usize, advice), 0);
    };
    if matches!(way, Way::RandomFaults | Way::WarmRandom) {
        advise(&(0..SIZE as u64), libc::MADV_RANDOM);
    }
    // SAFETY: the mapping is there until the end of this function, and nobody writes to the file.
    let mapping = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), SIZE) };
    let task = async {
        let begun = Instant::now();
        let each = |advice| ranges.iter().for_each(|range| advise(range, advice));
        match way {
            Way::Faults | Way::RandomFaults => {}
            Way::WillNeed => each(libc::MADV_WILLNEED),
            Way::Populate => each(libc::MADV_POPULATE_READ),
            Way::Warm | Way::WarmRandom => {
                let warmed = file.warm(ranges).await.unwrap();
                assert!(warmed.failed.is_empty());
            }
        }
        for range in ranges {
            let bytes = &mapping[range.start as usize..range.end as usize];
            black_box(bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>());
        }
        begun.elapsed()
    };
    let time = runtime.block_on(task);
    // SAFETY: nothing refers to the mapping any more.
    assert_eq!(unsafe { libc::munmap(start, SIZE) }, 0);
    time
}
