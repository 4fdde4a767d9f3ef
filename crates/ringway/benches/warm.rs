//! A program that reads places of a mapped file: with page faults alone, after `madvise(2)`, and
//! after `File::warm`, in turn; from the device, and from the page cache. Prints the medians of the
//! rounds: the time until all places were read, and its ratio to that of the faults alone.
//!
//! `cargo bench -p ringway --bench warm -- [places] [bytes] [rounds] [backend]`

use ringway::fs::File;
use ringway::{BackendKind, Engine};
use std::hint::black_box;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The size of the file.
const SIZE: usize = 1 << 30;
/// How often each way is measured in a round, at other places each time.
const TRIES: usize = 20;

/// What the program does before it reads.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Faults,
    RandomFaults,
    WillNeed,
    Populate,
    Warm,
    WarmRandom,
}

const WAYS: [(Way, &str); 6] = [
    (Way::Faults, "faults"),
    (Way::RandomFaults, "faults, MADV_RANDOM"),
    (Way::WillNeed, "MADV_WILLNEED"),
    (Way::Populate, "MADV_POPULATE_READ"),
    (Way::Warm, "warm"),
    (Way::WarmRandom, "warm, MADV_RANDOM"),
];

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let number =
        |at: usize, default: usize| arguments.get(at).map_or(default, |word| word.parse().unwrap());
    let (places, len, rounds) = (number(0, 64), number(1, 4096), number(2, 5));
    let mut builder = Engine::builder();
    if let Some(kind) = arguments.get(3) {
        builder = builder.backend(kind.parse::<BackendKind>().unwrap());
    }
    let engine = builder.build().unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    make(&path);
    let file = File::from_fd(std::fs::File::open(&path).unwrap().into(), &engine);
    let mut seed = fastrand::Rng::with_seed(1);
    println!("{places} places of {len} bytes, {}; medians of {rounds}", engine.backend());
    for is_cold in [true, false] {
        if !is_cold {
            cache(&path);
        }
        let mut times = [const { Vec::new() }; WAYS.len()];
        for _ in 0..rounds {
            for ((way, _), times) in WAYS.iter().zip(&mut times) {
                let tries = (0..TRIES).map(|_| {
                    let ranges = ranges(&mut seed, places, len);
                    if is_cold {
                        drop_pages(&path);
                    }
                    run(&runtime, &file, *way, &ranges)
                });
                times.push(median(tries.collect()));
            }
        }
        let medians = times.map(median);
        println!("{}", if is_cold { "cold:" } else { "cached:" });
        for ((way, name), time) in WAYS.iter().zip(medians) {
            let alone = medians[usize::from(matches!(way, Way::RandomFaults | Way::WarmRandom))];
            let ratio = time.as_secs_f64() / alone.as_secs_f64();
            println!("  {name:20} {:9.1} us  {ratio:6.3}", time.as_secs_f64() * 1e6);
        }
    }
}

fn make(path: &Path) {
    let file = std::fs::File::create(path).unwrap();
    let block = vec![7; 1 << 20];
    for at in 0..SIZE >> 20 {
        file.write_all_at(&block, (at as u64) << 20).unwrap();
    }
    file.sync_all().unwrap();
}

fn ranges(seed: &mut fastrand::Rng, places: usize, len: usize) -> Vec<Range<u64>> {
    let blocks = (SIZE / len) as u64;
    let place = |_| {
        let start = seed.u64(0..blocks) * len as u64;
        start..start + len as u64
    };
    (0..places).map(place).collect()
}

fn drop_pages(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

fn cache(path: &Path) {
    let (file, mut block) = (std::fs::File::open(path).unwrap(), vec![0; 1 << 20]);
    for at in (0..SIZE).step_by(block.len()) {
        file.read_exact_at(&mut block, at as u64).unwrap();
    }
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

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
