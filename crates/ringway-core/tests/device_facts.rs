//! Device facts are queried once for all files open on a device.

// Other systems report no such facts.
#![cfg(ringway_linux)]

use ringway_core::{AlignedBuffer, File, OpenOptions, Options, op};
use std::fs;
use std::path::Path;

/// Calls of read(2) and its variants by this thread, including those of sysfs files.
fn reads() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("syscr:"))?.trim().parse().ok()
}

#[test]
fn many_files_of_a_device_query_it_once() {
    const LEN: usize = 128 << 10;
    let dir = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let path = dir.path().join("file");
    fs::write(&path, vec![1; LEN]).unwrap();
    let open = || OpenOptions::new().read(true).direct(true).open(&path);
    let files: Vec<File> = match (0..500).map(|_| open()).collect() {
        Ok(files) => files,
        Err(error) => {
            return println!("skipped: no direct I/O in {}: {error}", dir.path().display());
        }
    };
    if files[0].largest_request().is_none() {
        return println!("skipped: no device below {}", dir.path().display());
    }
    let mut queue = Options::new().in_flight(500).build().unwrap();
    let Some(before) = reads() else {
        return println!("skipped: this kernel counts no reads in /proc/thread-self/io");
    };
    for file in &files {
        queue.push(op::read(file, AlignedBuffer::for_direct(file.direct_io(), LEN), 0)).unwrap();
    }
    let made = reads().unwrap() - before;
    // Those of the counter itself, and of the mounts.
    assert!(made < files.len() as u64 / 2, "{made} reads");
    let mut left = files.len();
    while left > 0 {
        for done in queue.reap(1).unwrap() {
            assert_eq!(done.result, Ok(LEN as u64));
            left -= 1;
        }
    }
}
