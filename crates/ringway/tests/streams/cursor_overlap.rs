//! Calls at the cursor of a file that meet others in flight: what is superseded, dropped or fails
//! meanwhile.

use crate::common::{PAGE, available, direct, errno, open, pattern, pipe, put, until, wait_for};
use crate::files::{engines, sample};
use ringway::fs::File;
use ringway::{BackendKind, Engine, FaultPlan, Reaping};
use std::fs;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWrite, AsyncWriteExt};

/// Fails if a future waits for ever.
async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it was woken")
}

#[tokio::test]
async fn a_write_wakes_the_read_that_it_supersedes() {
    for engine in engines() {
        let (_dir, path) = sample(&pattern(0, 1 << 20));
        let (mut reader, mut writer) = tokio::io::split(open(engine, &path, true));
        let (mut bytes, data) = (vec![0; PAGE], vec![9; PAGE]);
        let both = async { tokio::join!(reader.read(&mut bytes), writer.write(&data)) };
        let (read, written) = in_time(both).await;
        assert_eq!((read.unwrap(), written.unwrap()), (PAGE, PAGE));
    }
}

/// A pipe has no length, and what a read has taken out of it stays.
#[tokio::test]
async fn set_len_leaves_the_reads_of_a_pipe() {
    // Without those that shorten reads.
    for engine in engines().iter().step_by(3) {
        let (reader, writer) = pipe(engine);
        let reader = Arc::new(reader);
        let shared = Arc::clone(&reader);
        let read = tokio::spawn(async move {
            let mut bytes = [0; 8];
            shared.read(&mut bytes[..]).await.map(|read| bytes[..read].to_vec())
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(errno(reader.set_len(1).await), libc::EINVAL);
        put(&writer, b"hello");
        assert_eq!(in_time(read).await.unwrap().unwrap(), b"hello");
        // An abandoned read has taken more than the next one does.
        {
            let mut bytes = [0; 8];
            let mut read = pin!(reader.read(&mut bytes[..]));
            assert!(futures::poll!(&mut read).is_pending());
        }
        put(&writer, b"hello");
        let mut bytes = [0; 2];
        assert_eq!(in_time(reader.read(&mut bytes[..])).await.unwrap(), 2);
        assert_eq!(errno(reader.set_len(1).await), libc::EINVAL);
        let mut rest = [0; 8];
        assert_eq!(in_time(reader.read(&mut rest[..])).await.unwrap(), 3);
        assert_eq!((&bytes, &rest[..3]), (b"he", b"llo".as_slice()));
    }
}

#[tokio::test]
async fn set_len_wakes_the_read_that_it_supersedes() {
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        let file = Arc::new(direct(engine, dir.path(), 4));
        let shared = Arc::clone(&file);
        let read = tokio::spawn(async move {
            let mut bytes = [0; 100];
            shared.read(&mut bytes[..]).await
        });
        tokio::task::yield_now().await;
        file.set_len(50).await.unwrap();
        let read = in_time(read).await.unwrap().unwrap();
        assert!([50, 100].contains(&read), "{read}");
    }
}

/// Nothing is kept beyond what a read has returned.
#[tokio::test]
async fn a_read_finds_what_was_written_since_the_last() {
    for engine in engines() {
        let (_dir, path) = sample(&pattern(0, 2 << 20));
        let file = open(engine, &path, true);
        let mut bytes = vec![0; 1 << 20];
        let read = file.read(&mut bytes[..]).await.unwrap();
        let other = fs::File::options().write(true).open(&path).unwrap();
        other.write_all_at(&[9; PAGE], read as u64).unwrap();
        let again = file.read(&mut bytes[..]).await.unwrap();
        let len = again.min(PAGE);
        assert!(bytes[..len] == vec![9; len], "{read} {again}");
    }
}

/// Offers bytes without waiting for them. Returns how many the file has accepted.
fn accept(file: &mut File, bytes: &[u8]) -> io::Result<usize> {
    match Pin::new(file).poll_write(&mut Context::from_waker(Waker::noop()), bytes) {
        Poll::Ready(written) => written,
        Poll::Pending => Ok(0),
    }
}

/// Nobody reaps any more once a program has dropped its files and the engine.
#[test]
fn an_engine_without_a_reaper_writes_what_was_accepted() {
    for kind in available() {
        for _ in 0..5 {
            let engine = Engine::builder().backend(kind).reaping(Reaping::Manual).build().unwrap();
            let (_dir, path) = sample(b"");
            let mut file = open(&engine, &path, false);
            let accepted: usize = (0..6).map(|_| accept(&mut file, &[7; 100_000]).unwrap()).sum();
            assert!(accepted > 100_000, "a second segment");
            let (_dir, other) = sample(b"");
            let mut writer = open(&engine, &other, false).writer();
            let cx = &mut Context::from_waker(Waker::noop());
            while Pin::new(&mut writer).poll_write(cx, &[8; 100]).is_pending() {
                engine.reap();
            }
            drop((file, writer, engine));
            let len = |path: &Path| fs::metadata(path).unwrap().len();
            wait_for("the content", || len(&path) == accepted as u64 && len(&other) == 100);
        }
    }
}

/// What a dropped handle has accepted belongs to the file.
#[tokio::test]
async fn closing_and_syncing_wait_for_dropped_handles() {
    for engine in engines() {
        for round in 0..40 {
            let (_dir, path) = sample(b"");
            let file = open(engine, &path, false);
            let mut len = 100_000;
            if round % 2 == 0 {
                let mut clone = file.clone();
                clone.write_all(&vec![1; len]).await.unwrap();
            } else {
                len = 1_000_000;
                let mut writer = file.writer();
                writer.write_all(&vec![1; len]).await.unwrap();
            }
            match round % 8 / 2 {
                0 => drop(file.into_std().await.unwrap()),
                1 => file.close().await.unwrap(),
                2 => file.sync_all().await.unwrap(),
                _ => file.sync_data().await.unwrap(),
            }
            assert_eq!(fs::metadata(&path).unwrap().len(), len as u64, "{round}");
        }
    }
}

#[tokio::test]
async fn a_sync_reports_what_a_dropped_handle_has_lost() {
    let (_dir, path) = sample(b"0123456789");
    for engine in engines() {
        // Every write fails, since the file is open for reading only.
        let file = File::from_fd(fs::File::open(&path).unwrap().into(), engine);
        let mut clone = file.clone();
        clone.write_all(b"accepted").await.unwrap();
        drop(clone);
        assert_eq!(errno(file.sync_all().await), libc::EBADF);
        file.sync_all().await.unwrap();
        // It has failed when the handle is dropped.
        let mut clone = file.clone();
        clone.write_all(b"accepted").await.unwrap();
        assert_eq!(errno(clone.sync_all().await), libc::EBADF);
        drop(clone);
        assert_eq!(errno(file.sync_data().await), libc::EBADF);
        file.sync_data().await.unwrap();
    }
}

/// A write that fails behind another or before it. Only bytes that would leave a gap are dropped.
#[tokio::test]
async fn a_failed_write_among_others() {
    for append in [false, true] {
        let plan = FaultPlan::new(7).errors(400);
        let builder = Engine::builder().backend(BackendKind::Threads).shards(1).faults(plan);
        let engine = builder.try_cached(false).build().unwrap();
        let (mut first_only, mut second_only) = (0, 0);
        for _ in 0..200 {
            let (_dir, path) = sample(&[0; 1000]);
            let file = fs::File::options().read(true).write(!append).append(append).open(&path);
            let mut file = File::from_fd(file.unwrap().into(), &engine);
            let first = accept(&mut file, &[1; 300]).unwrap();
            let second = accept(&mut file, &[2; 300]);
            let accepted = first + second.as_ref().copied().unwrap_or(0);
            let failed = file.flush().await.is_err() || second.is_err();
            let written = fs::read(&path).unwrap();
            let position = file.stream_position().await.unwrap();
            let ones = written.iter().filter(|byte| **byte == 1).count();
            let twos = written.iter().filter(|byte| **byte == 2).count();
            let is_whole = ones + twos == accepted;
            assert_eq!(failed, !is_whole);
            let end = match (append, ones + twos) {
                (_, 0) => 0,
                (true, _) => written.len() as u64,
                (false, bytes) => bytes as u64,
            };
            assert_eq!(position, end, "append {append}: {ones} and {twos} written");
            first_only += usize::from(twos == 0 && ones > 0 && accepted == 600);
            // (The task may have had to yield before the first.)
            second_only += usize::from(first > 0 && ones == 0 && twos > 0);
        }
        assert!(first_only > 0);
        assert!(append || second_only == 0, "{second_only} were written behind a gap");
    }
}

#[tokio::test]
async fn a_direct_file_appends_wherever_it_was_read() {
    for engine in engines() {
        let (_dir, path) = sample(&pattern(0, 2 * PAGE));
        let mut options = fs::File::options();
        let file = options.read(true).append(true).custom_flags(libc::O_DIRECT).open(&path);
        let mut file = File::from_fd(file.unwrap().into(), engine);
        file.read_exact(&mut [0; 10]).await.unwrap();
        file.write_all(&[5; PAGE]).await.unwrap();
        file.flush().await.unwrap();
        assert!(fs::read(&path).unwrap()[2 * PAGE..] == [5; PAGE]);
    }
}

/// A cursor may be where the file system allows no descriptor's position.
#[tokio::test]
async fn a_position_that_a_descriptor_cannot_have_is_an_error() {
    let (_dir, path) = sample(b"abc");
    let far = i64::MAX as u64;
    let refuses = fs::File::open(&path).unwrap().seek(SeekFrom::Start(far)).is_err();
    for engine in engines() {
        let mut file = open(engine, &path, false);
        file.seek(SeekFrom::Start(far)).await.unwrap();
        let file = match file.try_into_std() {
            Ok(mut std) => {
                assert!(!refuses);
                assert_eq!(std.stream_position().unwrap(), far);
                continue;
            }
            Err(file) => file,
        };
        assert!(refuses);
        assert_eq!(errno(file.into_std().await), libc::EINVAL);
    }
}

/// A seek whose future was dropped has asked for the length before the file grew.
#[tokio::test]
async fn a_seek_to_the_end_finds_the_end() {
    for engine in engines() {
        let (_dir, path) = sample(b"abc");
        let mut file = open(engine, &path, false);
        let cx = &mut Context::from_waker(Waker::noop());
        let seek = |file: &mut File, cx: &mut Context<'_>| {
            futures::io::AsyncSeek::poll_seek(Pin::new(file), cx, SeekFrom::End(0))
        };
        let _abandoned = seek(&mut file, cx);
        fs::File::options().append(true).open(&path).unwrap().write_all(b"def").unwrap();
        until("the seek", || match seek(&mut file, cx) {
            Poll::Ready(end) => {
                assert_eq!(end.unwrap(), 6);
                true
            }
            Poll::Pending => false,
        })
        .await;
    }
}
