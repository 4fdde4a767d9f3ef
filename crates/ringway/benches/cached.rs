//! Cached reads of 4 KiB at random places of a file in each directory, by tasks of one runtime,
//! with `ringway::fs` and with `tokio::fs` in turn. Prints the medians of the rounds: CPU time
//! (user and system, all threads) and elapsed time of a read.
//!
//! `cargo bench -p ringway --bench cached -- TASKS ROUNDS DIRECTORY...`

use ringway::fs::File;
use std::io::SeekFrom;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::task::JoinSet;

const PAGE: u64 = 4096;
const PAGES: u64 = 4096;
/// How long one measurement lasts.
const LASTS: Duration = Duration::from_millis(200);
const WAYS: [&str; 2] = ["ringway", "tokio::fs"];

/// Microseconds of a read: CPU time and elapsed time.
type Figures = (f64, f64);

fn main() -> io::Result<()> {
    // (Cargo adds `--bench`.)
    let mut words = env::args().skip(1).filter(|word| !word.starts_with('-'));
    let mut number = || words.next().and_then(|word| word.parse().ok());
    let (tasks, rounds) = number().zip(number()).expect("TASKS ROUNDS DIRECTORY...");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut places = Vec::new();
    for dir in words {
        let dir = tempfile::tempdir_in(dir)?;
        fs::write(dir.path().join("file"), vec![7; (PAGES * PAGE) as usize])?;
        fs::File::open(dir.path().join("file"))?.sync_all()?;
        places.push((dir, WAYS.map(|_| Vec::new())));
    }
    // The files are older than their opens.
    thread::sleep(Duration::from_millis(50));
    // In turn, so that what else the machine does slows all of them down alike.
    for _ in 0..rounds {
        for (dir, figures) in &mut places {
            for (way, figures) in WAYS.iter().zip(figures) {
                figures.push(runtime.block_on(measure(way, &dir.path().join("file"), tasks))?);
            }
        }
    }
    for (dir, figures) in &places {
        for (way, figures) in WAYS.iter().zip(figures) {
            let of = |one: fn(&Figures) -> f64| median(figures.iter().map(one).collect());
            let (cpu, elapsed) = (of(|figures| figures.0), of(|figures| figures.1));
            println!("{:30} {way:10} CPU {cpu:6.2} us   {elapsed:6.2} us", dir.path().display());
        }
    }
    Ok(())
}

/// Each task opens the file, and reads until the time is over.
async fn measure(way: &str, path: &Path, tasks: u64) -> io::Result<Figures> {
    let (begun, cpu) = (Instant::now(), self::cpu());
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (path, ringway) = (path.to_owned(), way == WAYS[0]);
        running.spawn(async move {
            if ringway { read(&path, task, begun).await } else { tokio(&path, task, begun).await }
        });
    }
    let mut reads = 0;
    while let Some(ended) = running.join_next().await {
        reads += ended.expect("no task panics")?;
    }
    let (elapsed, reads) = (begun.elapsed().as_secs_f64(), reads as f64);
    Ok(((self::cpu() - cpu) * 1e6 / reads, elapsed * 1e6 / reads))
}

/// Pages in no order, each task's another one.
fn offsets(task: u64) -> impl Iterator<Item = u64> {
    let mut random = fastrand::Rng::with_seed(task);
    std::iter::repeat_with(move || random.u64(..PAGES) * PAGE)
}

async fn read(path: &Path, task: u64, begun: Instant) -> io::Result<u64> {
    let file = File::open(path).await?;
    let (mut reads, mut buffer) = (0, vec![0; PAGE as usize]);
    for at in offsets(task) {
        let (read, back) = file.read_exact_at(buffer, at).await;
        read?;
        (reads, buffer) = (reads + 1, back);
        if begun.elapsed() >= LASTS {
            break;
        }
    }
    Ok(reads)
}

async fn tokio(path: &Path, task: u64, begun: Instant) -> io::Result<u64> {
    let mut file = tokio::fs::File::open(path).await?;
    let (mut reads, mut buffer) = (0, vec![0; PAGE as usize]);
    for at in offsets(task) {
        file.seek(SeekFrom::Start(at)).await?;
        file.read_exact(&mut buffer).await?;
        reads += 1;
        if begun.elapsed() >= LASTS {
            break;
        }
    }
    Ok(reads)
}

fn cpu() -> f64 {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    clock.tv_sec as f64 + clock.tv_nsec as f64 / 1e9
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
