//! What differs on systems other than Linux: the operations that do not exist there, the
//! explanation of the choice of a backend, and on Windows what its files do in another way. What is
//! the same is tested by `cases.rs` and `model.rs`.

#![cfg(not(ringway_linux))]

use ringway_core::c as libc;
use ringway_core::refusal::Feature;
use ringway_core::{BackendKind, BuildError, Completion, File, OpenOptions, Options, Queue, op};
use std::io::ErrorKind;

fn queue() -> Queue {
    Options::new().build().unwrap()
}

fn one(queue: &mut Queue, operation: op::Operation) -> Completion {
    queue.push(operation).unwrap();
    queue.reap(1).unwrap().next().unwrap()
}

fn scratch(dir: &tempfile::TempDir, name: &str, content: &str) -> File {
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    OpenOptions::new().read(true).write(true).open(&path).unwrap()
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The list in the documentation of `op`.
#[test]
fn absent_operations_are_unsupported_and_named() {
    const KEEP_SIZE: i32 = 1;
    let dir = dir();
    let file = scratch(&dir, "file", "text");
    let mut absent = vec![
        ("sync_range", op::sync_range(&file, 0, 4, 2)),
        ("fallocate", op::fallocate(&file, KEEP_SIZE, 0, 4)),
        (
            "open",
            op::open(dir.path(), OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE)),
        ),
        ("open", op::open(dir.path(), OpenOptions::new().custom_flags(libc::O_PATH))),
        ("open", op::open(dir.path(), OpenOptions::new().read(true).resolve(8))),
    ];
    if cfg!(any(windows, target_vendor = "apple")) {
        absent.push(("fallocate", op::fallocate(&file, 0, 0, 4)));
        absent.push(("fadvise", op::fadvise(&file, 0, 4, op::Advice::WillNeed)));
    }
    if cfg!(windows) {
        absent.push(("poll", op::poll(&file, op::Readiness::READABLE)));
        absent.push(("open", op::open(dir.path(), OpenOptions::new().read(true).direct(true))));
    }
    let mut queue = queue();
    for (name, operation) in absent {
        let error = one(&mut queue, operation).result.unwrap_err();
        assert_eq!(error.errno(), libc::ENOSYS, "{error}");
        assert_eq!(std::io::Error::from(error).kind(), ErrorKind::Unsupported);
        assert!(error.to_string().starts_with(name), "{error}");
    }
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"text");
}

#[test]
fn the_only_backend_is_explained() {
    let queue = queue();
    assert_eq!(queue.backend(), BackendKind::Threads);
    let explanation = queue.explain().to_string();
    for feature in [Feature::Uring, Feature::Kaio] {
        let refusal = queue.explain().refusals.into_iter().find(|one| one.feature == feature);
        let refusal = refusal.unwrap_or_else(|| panic!("{explanation}"));
        assert_eq!(refusal.errno, libc::ENOSYS);
        assert!(explanation.contains(&refusal.to_string()), "{explanation}");
    }
    for kind in [BackendKind::Uring, BackendKind::Kaio] {
        let Err(BuildError::Refused(refusal)) = Options::new().backend(kind).build() else {
            panic!("{kind} was built");
        };
        assert!(refusal.meaning.contains("exists on Linux only"), "{refusal}");
    }
}

#[cfg(windows)]
mod windows {
    use super::*;
    use std::io::{Read, Seek};

    /// Also while other threads transfer at offsets: Windows moves the position with each of them.
    #[test]
    fn transfers_at_offsets_leave_the_position() {
        let dir = dir();
        let file = scratch(&dir, "file", &"0123456789".repeat(100));
        let mut queue = queue();
        for round in 0..20u64 {
            for number in 0..20 {
                let at = 500 + number * 3;
                queue.push(op::read(&file, vec![0; 3], at).user_data(1)).unwrap();
                queue.push(op::write(&file, b"x".to_vec(), 900 + number).user_data(2)).unwrap();
            }
            queue.push(op::read(&file, vec![0; 7], op::Position::Current).user_data(3)).unwrap();
            while queue.in_flight() > 0 {
                for done in queue.reap(1).unwrap() {
                    let at_position = done.user_data == 3;
                    assert_eq!(done.result, Ok([0, 3, 1, 7][done.user_data as usize]));
                    let buffer = done.into_buffer().unwrap();
                    let first = b'0' + (round * 7 % 10) as u8;
                    assert!(!at_position || buffer.as_slice()[0] == first, "{round}");
                }
            }
            let position = file.with_std(|mut file| file.stream_position()).unwrap();
            assert_eq!(position, (round + 1) * 7);
        }
    }

    /// As on Linux, no other transfer comes between the buffers of one.
    #[test]
    fn a_vectored_transfer_is_in_one_piece() {
        const BUFFERS: usize = 16;
        const LEN: usize = 8 * BUFFERS;
        let vectored = |byte| op::Vectored::new((0..BUFFERS).map(|_| vec![byte; 8]));
        let dir = dir();
        let path = dir.path().join("log");
        let append = OpenOptions::new().append(true).create(true).clone();
        let logs = [append.open(&path).unwrap(), append.open(&path).unwrap()];
        let mut queue = queue();
        for round in 0..5 {
            for number in 0..40 {
                let buffers = vectored(round * 40 + number);
                let log = &logs[usize::from(number) % 2];
                queue.push(op::writev(log, buffers, op::Position::Current)).unwrap();
            }
            while queue.in_flight() > 0 {
                for done in queue.reap(1).unwrap() {
                    assert_eq!(done.result, Ok(LEN as u64));
                }
            }
        }
        let written = std::fs::read(&path).unwrap();
        assert_eq!(written.len(), 200 * LEN);
        assert!(written.chunks(LEN).all(|record| record.iter().all(|byte| *byte == record[0])));

        let file = File::open(&path).unwrap();
        for _ in 0..5 {
            for _ in 0..40 {
                queue.push(op::readv(&file, vectored(0), op::Position::Current)).unwrap();
            }
            while queue.in_flight() > 0 {
                for done in queue.reap(1).unwrap() {
                    assert_eq!(done.result, Ok(LEN as u64));
                    let record = done.into_vectored().unwrap().into_buffers();
                    let first = record[0].as_slice()[0];
                    assert!(record.iter().all(|buffer| buffer.as_slice() == [first; 8]));
                }
            }
        }
    }

    /// As on Linux: what is there is returned, and a pipe cannot be synced. (Windows would wait
    /// until a pipe is read.)
    #[test]
    fn a_pipe_is_not_waited_for_in_vain() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, b"text").unwrap();
        let [reader, writer] = [ringway_core::OwnedFd::from(reader), writer.into()].map(File::from);
        assert!(!reader.is_storage() && !writer.is_storage());
        let mut queue = queue();
        let error = one(&mut queue, op::fsync(&writer)).result.unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL, "{error}");
        let buffers = op::Vectored::new([vec![], vec![0; 4], vec![0; 4]]);
        let done = one(&mut queue, op::readv(&reader, buffers, op::Position::Current));
        assert_eq!(done.result, Ok(4));
        let buffers = op::Vectored::new([b"more".to_vec(), b" text".to_vec()]);
        let done = one(&mut queue, op::writev(&writer, buffers, op::Position::Current));
        assert_eq!(done.result, Ok(9));
    }

    #[test]
    fn names_may_be_long_and_of_any_letters() {
        let dir = dir();
        let mut queue = queue();
        let mut path = dir.path().join("Žluťoučký 名前 🎉");
        assert_eq!(one(&mut queue, op::mkdir(&path, 0o755)).result, Ok(0));
        // Longer than the 260 characters of old programs.
        while path.as_os_str().len() < 600 {
            path.push("n".repeat(100));
            assert_eq!(one(&mut queue, op::mkdir(&path, 0o755)).result, Ok(0));
        }
        path.push("file");
        let options = OpenOptions::new().write(true).create_new(true).clone();
        let file = one(&mut queue, op::open(&path, &options)).into_file().unwrap();
        assert_eq!(one(&mut queue, op::write(&file, b"text".to_vec(), 0)).result, Ok(4));
        drop(file);
        let metadata = one(&mut queue, op::statx(&path)).into_metadata().unwrap();
        assert_eq!(metadata.len(), 4);
        let other = path.with_file_name("další");
        assert_eq!(one(&mut queue, op::rename(&path, &other)).result, Ok(0));
        assert_eq!(std::fs::read(&other).unwrap(), b"text");
        assert_eq!(one(&mut queue, op::unlink(&other)).result, Ok(0));
        assert_eq!(one(&mut queue, op::statx(&other)).result.unwrap_err().errno(), libc::ENOENT);
    }

    /// As with the standard library: others may read, write, rename and remove it.
    #[test]
    fn an_open_file_is_shared() {
        let dir = dir();
        let file = scratch(&dir, "file", "text");
        let (path, other) = (dir.path().join("file"), dir.path().join("other"));
        let mut queue = queue();
        let again = OpenOptions::new().read(true).write(true).clone();
        let second = one(&mut queue, op::open(&path, &again)).into_file().unwrap();
        assert_eq!(one(&mut queue, op::write(&second, b"best".to_vec(), 0)).result, Ok(4));
        std::fs::write(&other, "old").unwrap();
        assert_eq!(one(&mut queue, op::rename(&path, &other)).result, Ok(0));
        assert_eq!(one(&mut queue, op::unlink(&other)).result, Ok(0));
        let mut text = String::new();
        file.with_std(|mut file| file.read_to_string(&mut text)).unwrap();
        assert_eq!(text, "best");
    }

    /// The numbers are those of Windows with the kinds that the standard library gives them.
    #[test]
    fn errors_have_the_kinds_of_the_standard_library() {
        let dir = dir();
        let path = dir.path().join("file");
        drop(scratch(&dir, "file", "text"));
        let mut queue = queue();
        let read = OpenOptions::new().read(true).clone();
        let new = OpenOptions::new().write(true).create_new(true).clone();
        let write = OpenOptions::new().write(true).clone();
        for (operation, number, kind) in [
            (op::open(dir.path().join("no"), &read), libc::ENOENT, ErrorKind::NotFound),
            (op::open(dir.path().join("no/no"), &read), libc::ENOENT, ErrorKind::NotFound),
            (op::open(&path, &new), libc::EEXIST, ErrorKind::AlreadyExists),
            (op::open(path.join("no"), &read), libc::ENOTDIR, ErrorKind::NotADirectory),
            (op::open(dir.path(), &write), libc::EISDIR, ErrorKind::IsADirectory),
            (op::unlink(dir.path()), libc::EISDIR, ErrorKind::IsADirectory),
            (op::rmdir(&path), libc::ENOTDIR, ErrorKind::NotADirectory),
            (op::rmdir(dir.path()), libc::ENOTEMPTY, ErrorKind::DirectoryNotEmpty),
            (op::mkdir(&path, 0o755), libc::EEXIST, ErrorKind::AlreadyExists),
        ] {
            let error = one(&mut queue, operation).result.unwrap_err();
            assert_eq!(error.errno(), number, "{error}");
            assert_eq!(std::io::Error::from(error).kind(), kind, "{error}");
        }
    }

    /// A dropped queue cancels what has not begun, and keeps what Windows may still write to.
    #[test]
    fn a_read_that_never_ends_outlives_its_queue() {
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = File::from(ringway_core::OwnedFd::from(reader));
        let mut queue = Options::new().close_wait(std::time::Duration::ZERO).build().unwrap();
        queue.push(op::read(&reader, vec![0; 4096], op::Position::Current)).unwrap();
        queue.submit().unwrap();
        drop((queue, reader));
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::io::Write::write_all(&mut &writer, b"late").unwrap();
    }
}
