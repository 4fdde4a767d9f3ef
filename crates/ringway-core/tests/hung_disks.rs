//! A disk that hangs does not stop buffered reads of files on other disks, however many of its own
//! wait, nor a thread that reads what is cached.

#![cfg(ringway_linux)]

#[path = "common/evict.rs"]
mod evict;
#[path = "common/places.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod places;
#[path = "common/skip.rs"]
mod skip;

use evict::evict;
use places::Overlay;
use ringway_core::{BackendKind, File, Options, Queue, op};
use ringway_hostile::HostileDisk;
use skip::skip;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Long enough on any machine; what takes longer hangs.
const SOON: Duration = Duration::from_secs(20);
const LEN: usize = 64 << 10;
const HANGING: usize = 40;

/// `None` where there is none.
fn hanging_disk() -> Option<HostileDisk> {
    HostileDisk::new(64 << 20, true).inspect_err(|why| skip(why)).ok()
}

/// A file on the disk none of whose pages is cached.
fn uncached_file(disk: &HostileDisk) -> PathBuf {
    let path = disk.path().join("file");
    std::fs::write(&path, vec![1; HANGING * LEN]).unwrap();
    evict(&std::fs::File::open(&path).unwrap());
    path
}

fn read_all(queue: &mut Queue, path: &Path, count: usize, first: u64) {
    let file = File::open(path).unwrap();
    for (number, at) in (first..).zip(0..count) {
        let read = op::read(&file, vec![0; LEN], (at * LEN) as u64).user_data(number);
        queue.push(read).unwrap();
    }
    queue.submit().unwrap();
}

#[test]
fn long_reads_of_a_hanging_disk_do_not_stop_others() {
    for backend in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
        // As few workers as an engine has, and fewer.
        for workers in [24, 4] {
            let options = Options::new().backend(backend).io_wq_workers(workers, workers);
            let Ok(mut queue) = options.threads(workers).build() else {
                println!("skipped: no {backend}");
                continue;
            };
            let Some(disk) = hanging_disk() else { return };
            let other = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let other = other.path().join("other");
            std::fs::write(&other, vec![2; LEN]).unwrap();
            let path = uncached_file(&disk);
            disk.hostile().set("image read freeze").unwrap();
            read_all(&mut queue, &path, HANGING, 0);
            let until = Instant::now() + SOON;
            read_all(&mut queue, &other, 1, 1000);
            let mut done = Vec::new();
            while !done.contains(&1000) {
                assert!(Instant::now() < until, "{backend}, {workers} workers: the read hangs");
                let reaped = queue.reap_until(1, until).unwrap();
                done.extend(reaped.map(|one| one.user_data));
            }
            assert!(done.len() < HANGING, "the disk did not hang");
            disk.hostile().set("image read thaw").unwrap();
            while done.len() <= HANGING {
                done.extend(queue.reap(1).unwrap().map(|one| one.user_data));
            }
        }
    }
}

/// A try to read what is not cached on an overlay does not even begin to read it.
#[test]
fn tries_on_an_overlay_do_not_wait_for_a_hanging_disk() {
    let Some(disk) = hanging_disk() else { return };
    let elsewhere = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let Ok(overlay) = Overlay::mount(Some(disk.path()), elsewhere, "") else {
        return skip("no overlay");
    };
    uncached_file(&disk);
    let file = File::open(overlay.path().join("file")).unwrap();
    let mut queue = Options::new().build().unwrap();
    let mut read = |at: u64| {
        queue.push(op::read(&file, vec![0; 4096], at)).unwrap();
        assert_eq!(queue.reap(1).unwrap().next().unwrap().result, Ok(4096));
    };
    read(0);
    if file.read_now(&mut [0; 4096], 0).is_none() {
        return skip("an older kernel");
    }
    disk.hostile().set("image read freeze").unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn({
        let file = file.clone();
        move || {
            let far = |number: u64| LEN as u64 * number + (1 << 20);
            let missed = (0..20).all(|number| file.read_now(&mut [0; 4096], far(number)).is_none());
            let _ = sender.send(missed && file.read_now(&mut [0; 4096], 0).is_some());
        }
    });
    assert_eq!(receiver.recv_timeout(SOON), Ok(true), "a try waits for the disk");
    disk.hostile().set("image read thaw").unwrap();
    read(2 << 20);
    assert!(file.read_now(&mut [0; 4096], 2 << 20).is_some());
}
