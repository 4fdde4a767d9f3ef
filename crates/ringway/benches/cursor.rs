//! Programs that read and write in order, with `tokio::fs::File` and with `ringway::fs::File` in
//! turn: the same code, which takes `impl AsyncRead`. Prints the medians of the rounds: operations
//! per second, and CPU time (user and system, all threads) per operation, which is a MiB.
//!
//! `cargo bench -p ringway --bench cursor -- [cached|cold] [MiB] [rounds]`

use futures::FutureExt;
use futures::future::BoxFuture;
use ringway_measure::arguments::Arguments;
use ringway_measure::rounds::{Row, Turn, costs};
use ringway_measure::scratch::drop_page_cache;
use std::path::PathBuf;
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
const TOKIO: &str = "tokio";
const LINE: &[u8] = b"a line of a log, with about as many characters as such a line has, or more\n";

fn main() {
    let arguments = Arguments::of_process();
    let is_cold = arguments.word(0) == Some("cold");
    let (size, rounds) = (arguments.number(1, 256), arguments.number(2, 5));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, LINE.repeat((size << 20) / LINE.len())).unwrap();
    for (name, work) in WORKS {
        let title = format!("{name}, {}", if is_cold { "cold" } else { "cached" });
        let contestants = vec![(TOKIO, tokios as Program), ("ringway", ours)];
        let row = Row::measure(title, rounds, contestants, None, |program| {
            std::fs::write(&to, b"")?;
            if is_cold {
                drop_page_cache(&std::fs::File::open(&from)?)?;
            }
            let program = program(work, from.clone(), to.clone());
            Ok(Turn::measure(size as u64, || {
                runtime.block_on(async { tokio::spawn(program).await.unwrap() });
            }))
        });
        println!("{}", row.markdown(&costs(TOKIO), &row.notes()));
    }
}

type Program = fn(Work, PathBuf, PathBuf) -> BoxFuture<'static, ()>;

fn tokios(work: Work, from: PathBuf, to: PathBuf) -> BoxFuture<'static, ()> {
    let program = async move {
        let from = tokio::fs::File::open(from).await.unwrap();
        run(work, from, tokio::fs::File::create(to).await.unwrap()).await;
    };
    program.boxed()
}

fn ours(work: Work, from: PathBuf, to: PathBuf) -> BoxFuture<'static, ()> {
    let program = async move {
        let from = ringway::fs::File::open(from).await.unwrap();
        run(work, from, ringway::fs::File::create(to).await.unwrap()).await;
    };
    program.boxed()
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
