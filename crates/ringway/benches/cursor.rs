//! Programs that read and write in order, with `tokio::fs::File` and with `ringway::fs::File` in
//! turn: the same code, which takes `impl AsyncRead`. Prints the medians of the rounds: MiB per
//! second, and CPU time (user and system, all threads) per MiB.
//!
//! `cargo bench -p ringway --bench cursor -- [cached|cold] [MiB] [rounds]`

use std::path::{Path, PathBuf};
use std::time::Instant;
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, copy, sink,
};

/// What a program does with a file.
#[derive(Clone, Copy)]
enum Work {
    /// Copies it to another file.
    CopyFile,
    /// Copies it to nowhere.
    Copy,
    /// Reads its lines.
    Lines,
    /// Reads it in pieces of 64 KiB.
    Pieces,
}

const WORKS: [(&str, Work); 4] = [
    ("copy to a file", Work::CopyFile),
    ("copy to nowhere", Work::Copy),
    ("lines", Work::Lines),
    ("pieces of 64 KiB", Work::Pieces),
];
const LINE: &[u8] = b"a line of a log, with about as many characters as such a line has, or more\n";

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let number =
        |at: usize, default: usize| arguments.get(at).map_or(default, |word| word.parse().unwrap());
    let is_cold = arguments.first().is_some_and(|mode| mode == "cold");
    let (size, rounds) = (number(1, 256), number(2, 5));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, LINE.repeat((size << 20) / LINE.len())).unwrap();
    std::fs::File::open(&from).unwrap().sync_all().unwrap();
    println!("{size} MiB, {}, medians of {rounds}", if is_cold { "cold" } else { "cached" });
    for (name, work) in WORKS {
        let mut figures = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (which, figures) in figures.iter_mut().enumerate() {
                std::fs::write(&to, b"").unwrap();
                if is_cold {
                    drop_cached(&from);
                }
                let (from, to) = (from.clone(), to.clone());
                let (begun, cpu) = (Instant::now(), cpu());
                let task = async move {
                    if which == 0 {
                        tokios(work, from, to).await
                    } else {
                        ours(work, from, to).await
                    }
                };
                runtime.block_on(async { tokio::spawn(task).await.unwrap() });
                let seconds = begun.elapsed().as_secs_f64();
                figures.push((size as f64 / seconds, (self::cpu() - cpu) * 1e6 / size as f64));
            }
        }
        let [tokio, ringway] =
            figures.map(|all| [median(&all, |row| row.0), median(&all, |row| row.1)]);
        println!(
            "{name:17} tokio {:6.0} MiB/s {:6.0} us CPU/MiB   ringway {:6.0} {:6.0}   \
             speed {:5.2} CPU {:5.2}",
            tokio[0],
            tokio[1],
            ringway[0],
            ringway[1],
            ringway[0] / tokio[0],
            ringway[1] / tokio[1]
        );
    }
}

fn median(figures: &[(f64, f64)], of: fn(&(f64, f64)) -> f64) -> f64 {
    let mut all: Vec<_> = figures.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn drop_cached(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Seconds of processor time of this process.
fn cpu() -> f64 {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    clock.tv_sec as f64 + clock.tv_nsec as f64 / 1e9
}

async fn tokios(work: Work, from: PathBuf, to: PathBuf) {
    let from = tokio::fs::File::open(from).await.unwrap();
    run(work, from, tokio::fs::File::create(to).await.unwrap()).await;
}

async fn ours(work: Work, from: PathBuf, to: PathBuf) {
    let from = ringway::fs::File::open(from).await.unwrap();
    run(work, from, ringway::fs::File::create(to).await.unwrap()).await;
}

async fn run(work: Work, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    match work {
        Work::CopyFile => {
            copy(&mut from, &mut to).await.unwrap();
            to.flush().await.unwrap();
        }
        Work::Copy => _ = copy(&mut from, &mut sink()).await.unwrap(),
        Work::Lines => {
            let mut lines = BufReader::new(from).lines();
            while lines.next_line().await.unwrap().is_some() {}
        }
        Work::Pieces => {
            let mut piece = vec![0; 64 << 10];
            while from.read(&mut piece).await.unwrap() > 0 {}
        }
    }
}
