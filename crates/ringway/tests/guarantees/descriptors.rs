//! A process with few descriptors left: what the standard library can do, the engine can do, down
//! to the descriptors that it needs for itself.

use crate::common::current_thread;
use crate::common::process::in_child;
use crate::common::watchdog::Watchdog;
use futures::executor::block_on;
use ringway::fs::{self, File};
use ringway::{BuildError, Engine};
use std::io;
use std::os::fd::AsRawFd;

/// What the engine itself needs: an event that wakes its thread, and one that the pool signals.
const OWN: usize = 2;
const MOST: usize = 8;

/// How the first read of the process comes about.
#[derive(Clone, Copy, Debug)]
enum First {
    /// Of a file that the standard library has opened, so no descriptor is needed for it.
    OpenFile,
    /// By path.
    Path,
    /// The engine opens a file, then reads it.
    Opened,
}

async fn read(first: First, path: &std::path::Path) -> io::Result<Vec<u8>> {
    let read = async |file: File| {
        let (read, mut bytes) = file.read_at(vec![0; 100], 0).await;
        bytes.truncate(read?);
        Ok(bytes)
    };
    match first {
        First::OpenFile => {
            let file = std::fs::File::open(path)?;
            read(File::from_std(file)?).await
        }
        First::Path => fs::read(path).await,
        First::Opened => read(File::open(path).await?).await,
    }
}

/// Leaves `free` descriptors. Returns those that it takes.
fn leave(free: usize) -> Vec<std::fs::File> {
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let limit = libc::rlimit { rlim_cur: next + 32, rlim_max: next + 32 };
    // SAFETY: the limit is a live value that is only read.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    taken.truncate(taken.len() - free);
    taken
}

fn first_read(first: First, in_tokio: bool, free: usize) {
    let case = format!("{first:?}, {} tokio, {free} free", if in_tokio { "in" } else { "without" });
    let _watch = Watchdog::new(&case);
    let dir = crate::common::scratch();
    let path = dir.path().join("file");
    std::fs::write(&path, b"content").unwrap();
    let runtime = in_tokio.then(current_thread);
    // The file of this case is not among the descriptors that are free.
    let taken = leave(free + usize::from(matches!(first, First::OpenFile)));
    let result = match &runtime {
        Some(runtime) => runtime.block_on(read(first, &path)),
        None => block_on(read(first, &path)),
    };
    drop(taken);
    println!("{case}: {result:?}");
    // tokio's reactor has a duplicate of an event, and may take it before a file is opened.
    let enough = OWN + usize::from(!matches!(first, First::OpenFile)) * (1 + usize::from(in_tokio));
    match result {
        Ok(bytes) => assert_eq!(bytes, b"content", "{case}"),
        Err(error) => {
            assert!(free < enough, "{case}: {error:?}");
            let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<BuildError>());
            let errno = error.raw_os_error().or(refused.map(BuildError::errno));
            assert_eq!(errno, Some(libc::EMFILE), "{case}: {error}");
            // Without those that it needs for itself, the engine says how many a process may have.
            assert!(free >= OWN || error.to_string().contains("RLIMIT_NOFILE is "), "{error}");
        }
    }
    // With descriptors again, it works.
    let again = block_on(fs::read(&path)).unwrap();
    assert_eq!(again, b"content", "{case}");
    assert!(Engine::global().is_ok());
}

/// Each in a process of its own, because the global engine is built once.
#[test]
fn the_first_read() {
    const TEST: &str = "descriptors::the_first_read";
    const CASE: &str = "RINGWAY_TEST_DESCRIPTORS";
    let cases: Vec<_> = [First::OpenFile, First::Path, First::Opened]
        .into_iter()
        .flat_map(|first| [false, true].map(|in_tokio| (first, in_tokio)))
        .flat_map(|(first, in_tokio)| (0..=MOST).map(move |free| (first, in_tokio, free)))
        .collect();
    if let Some(number) = std::env::var(CASE).ok().and_then(|text| text.parse::<usize>().ok()) {
        let (first, in_tokio, free) = cases[number];
        return in_child(TEST, |_| {}, || first_read(first, in_tokio, free));
    }
    let number_of = |number: usize| {
        move |command: &mut std::process::Command| {
            command.env(CASE, number.to_string()).env_remove("RINGWAY_BACKEND");
        }
    };
    for number in 0..cases.len() {
        in_child(TEST, number_of(number), || unreachable!("the case is in the environment"));
    }
    println!("{} cases", cases.len());
}
