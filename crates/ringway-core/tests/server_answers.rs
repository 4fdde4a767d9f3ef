//! Errors that a FUSE server answers and that elsewhere have another meaning: they are the result,
//! and the operation is not made in another way.

#![cfg(ringway_linux)]

#[path = "common/skip.rs"]
mod skip;

use ringway_core::{BackendKind, File, OpenOptions, Operation, Options, Queue, op};
use ringway_hostile::Hostile;
use skip::skip;

const LEN: usize = 8192;

/// A file of `LEN` bytes 7, and a queue of each kind.
fn each_queue(test: impl Fn(&Hostile, BackendKind, &mut Queue)) {
    let Some(hostile) = Hostile::mount_or_skip(skip) else { return };
    for kind in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
        match Options::new().backend(kind).build() {
            Ok(mut queue) => {
                hostile.set("clear").unwrap();
                std::fs::write(hostile.backing().join("file"), [7; LEN]).unwrap();
                test(&hostile, kind, &mut queue);
            }
            Err(error) => println!("skipped: {kind}: {error}"),
        }
    }
}

fn result(queue: &mut Queue, operation: Operation) -> Result<u64, i32> {
    queue.push(operation).unwrap();
    queue.reap(1).unwrap().next().unwrap().result.map_err(|error| error.errno())
}

/// A server may take only what comes in order. At the file's position the bytes would be in the
/// wrong place.
#[test]
fn espipe_is_no_reason_to_transfer_at_the_current_position() {
    each_queue(|hostile, kind, queue| {
        let options = OpenOptions::new();
        let file = { options }.read(true).write(true).open(hostile.path().join("file")).unwrap();
        let block = || vec![1; 4096];
        let writes: [fn(&File, Vec<u8>) -> Operation; 3] = [
            |file, block| op::write(file, block, 4096),
            |file, block| op::writev(file, op::Vectored::new([block]), 4096),
            |file, block| op::write_dsync(file, block, 4096),
        ];
        for write in writes {
            hostile.set("file write fail 29 1").unwrap();
            assert_eq!(result(queue, write(&file, block())), Err(libc::ESPIPE), "{kind}");
            assert_eq!(std::fs::read(hostile.backing().join("file")).unwrap(), [7; LEN], "{kind}");
        }
        hostile.set("file direct on").unwrap();
        let file = File::open(hostile.path().join("file")).unwrap();
        let reads: [fn(&File, Vec<u8>) -> Operation; 2] = [
            |file, block| op::read(file, block, 4096),
            |file, block| op::readv(file, op::Vectored::new([block]), 4096),
        ];
        for read in reads {
            hostile.set("file read fail 29 1").unwrap();
            assert_eq!(result(queue, read(&file, block())), Err(libc::ESPIPE), "{kind}");
            assert_eq!(result(queue, read(&file, block())), Ok(4096), "{kind}");
        }
    });
}

/// The server has the bytes when it refuses the sync, and tells of that once.
#[test]
fn a_sync_that_is_refused_repeats_no_durable_write() {
    each_queue(|hostile, kind, queue| {
        let mut options = OpenOptions::new();
        let file = options.append(true).open(hostile.path().join("file")).unwrap();
        for (number, errno) in [(1, libc::EPERM), (2, libc::EOPNOTSUPP)] {
            hostile.set(&format!("file fsync fail {errno} 1")).unwrap();
            let write = op::write_dsync(&file, b"once".to_vec(), op::Position::Current);
            assert_eq!(result(queue, write), Err(errno), "{kind}");
            let len = std::fs::metadata(hostile.backing().join("file")).unwrap().len();
            assert_eq!(len, LEN as u64 + 4 * number, "{kind}");
        }
    });
}
