//! Reads, writes and seeks at the cursor of a file, through tokio's traits: what `tokio::fs::File`
//! does, on every backend.

use crate::common::{
    PAGE, available, current_thread, errno, in_fork, multi_thread, open, pattern, pipe, put, until,
    wait_for, wait_until_idle,
};
use crate::files::{engines, failing, sample};
use fastrand::Rng;
use ringway::Engine;
use ringway::fs::File;
use std::fs;
use std::io::{self, IoSlice, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, AsyncWrite, AsyncWriteExt,
    BufReader, ReadBuf,
};

/// What a program may hold instead of `tokio::fs::File`.
trait AnyFile: AsyncRead + AsyncWrite + AsyncSeek + Unpin + Send {}

impl<F: AsyncRead + AsyncWrite + AsyncSeek + Unpin + Send> AnyFile for F {}

/// A file of the standard library, whose position and content are those that a file must have.
struct Model(fs::File);

impl Model {
    fn next(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        (&mut self.0).take(len as u64).read_to_end(&mut bytes).unwrap();
        bytes
    }
}

/// Makes the same random calls on a file and on the model.
async fn script(
    name: &str,
    file: &mut dyn AnyFile,
    mut model: Model,
    path: [&std::path::Path; 2],
    seed: u64,
) {
    let mut random = Rng::with_seed(seed);
    for step in 0..120 {
        let len = random.usize(0..9000);
        match random.u8(0..10) {
            0..3 => {
                let mut bytes = vec![0; len];
                let mut read = 0;
                // One read may return less than there is.
                while let more @ 1.. = file.read(&mut bytes[read..]).await.unwrap() {
                    read += more;
                }
                assert!(bytes[..read] == model.next(len), "{name}: step {step} of seed {seed}");
            }
            // A seek that fails makes tokio's file forget what an abandoned read has brought.
            3 if name == "tokio" => {}
            3 => {
                // The read is abandoned, and the next one must not miss what it has read.
                let mut bytes = vec![0; len];
                let mut buf = ReadBuf::new(&mut bytes);
                let cx = &mut Context::from_waker(Waker::noop());
                if Pin::new(&mut *file).poll_read(cx, &mut buf).is_ready() {
                    assert!(buf.filled() == model.next(buf.filled().len()));
                }
            }
            4..7 => {
                let bytes = pattern(random.u64(..), len);
                file.write_all(&bytes).await.unwrap();
                io::Write::write_all(&mut model.0, &bytes).unwrap();
            }
            7 => {
                let parts = [pattern(1, len), Vec::new(), pattern(2, 10)];
                let slices = parts.each_ref().map(|part| IoSlice::new(part));
                let written = file.write_vectored(&slices).await.unwrap();
                io::Write::write_all(&mut model.0, &parts.concat()[..written]).unwrap();
            }
            8 => {
                let to = match random.u8(0..3) {
                    0 => SeekFrom::Start(random.u64(0..60_000)),
                    1 => SeekFrom::Current(random.i64(-20_000..20_000)),
                    _ => SeekFrom::End(random.i64(-60_000..5_000)),
                };
                let (ours, theirs) = (file.seek(to).await, model.0.seek(to));
                let kind = |error: io::Error| error.kind();
                assert_eq!(
                    ours.map_err(kind),
                    theirs.map_err(kind),
                    "{name}: step {step} of seed {seed}"
                );
            }
            _ => {
                file.flush().await.unwrap();
                assert!(
                    fs::read(path[0]).unwrap() == fs::read(path[1]).unwrap(),
                    "{name}: seed {seed}"
                );
            }
        }
    }
    file.flush().await.unwrap();
    assert!(fs::read(path[0]).unwrap() == fs::read(path[1]).unwrap(), "{name}: seed {seed}");
    assert_eq!(file.stream_position().await.unwrap(), model.0.stream_position().unwrap());
}

/// Opens the same content twice.
fn twice(
    content: &[u8],
    append: bool,
) -> ([(tempfile::TempDir, std::path::PathBuf); 2], Model, fs::File) {
    let samples = [sample(content), sample(content)];
    let mut options = fs::File::options();
    options.read(true).write(!append).append(append);
    let [file, model] = samples.each_ref().map(|(_, path)| options.open(path).unwrap());
    (samples, Model(model), file)
}

/// The model is right about tokio, and ringway does the same.
#[test]
fn a_file_does_what_tokios_does() {
    current_thread().block_on(async {
        for seed in 0..12 {
            for append in [false, true] {
                let content = pattern(seed, 30_000);
                let (samples, model, file) = twice(&content, append);
                let paths = samples.each_ref().map(|(_, path)| path.as_path());
                script("tokio", &mut tokio::fs::File::from_std(file), model, paths, seed).await;
                for engine in engines() {
                    let (samples, model, file) = twice(&content, append);
                    let paths = samples.each_ref().map(|(_, path)| path.as_path());
                    let name = format!("{} {append}", engine.backend());
                    let mut file = File::from_fd(file.into(), engine);
                    script(&name, &mut file, model, paths, seed).await;
                }
            }
        }
    });
}

/// The futures of a file with a cursor may be sent to another thread, and the file shared.
#[test]
fn a_file_is_send_and_sync() {
    fn check<T: Send + Sync + Unpin + Clone>() {}
    check::<File>();
}

#[tokio::test]
async fn crates_that_take_a_reader_or_a_writer_take_a_file() {
    let lines: Vec<_> = (0..5000).map(|number| format!("line {number}")).collect();
    let (_dir, from) = sample(lines.join("\n").as_bytes());
    for engine in engines() {
        let (_dir, to) = sample(b"");
        let mut copy = open(engine, &to, false);
        let copied = tokio::io::copy(&mut open(engine, &from, false), &mut copy).await.unwrap();
        copy.shutdown().await.unwrap();
        assert_eq!(copied, fs::metadata(&from).unwrap().len());
        copy.rewind().await.unwrap();
        let mut found = BufReader::new(copy).lines();
        for line in &lines {
            assert_eq!(found.next_line().await.unwrap().as_ref(), Some(line));
        }
        assert_eq!(found.next_line().await.unwrap(), None);
    }
}

#[test]
fn the_traits_of_futures_io() {
    use futures::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
    let (_dir, path) = sample(b"0123456789");
    for engine in engines() {
        futures::executor::block_on(async {
            let mut file = open(engine, &path, false);
            assert_eq!(AsyncSeekExt::seek(&mut file, SeekFrom::End(-4)).await.unwrap(), 6);
            let mut rest = String::new();
            AsyncReadExt::read_to_string(&mut file, &mut rest).await.unwrap();
            assert_eq!(rest, "6789");
            AsyncSeekExt::seek(&mut file, SeekFrom::Start(6)).await.unwrap();
            AsyncWriteExt::write_all(&mut file, b"6789").await.unwrap();
            AsyncWriteExt::close(&mut file).await.unwrap();
        });
    }
    assert_eq!(fs::read(&path).unwrap(), b"0123456789");
}

#[tokio::test]
async fn a_failed_write_is_reported_by_the_next_call() {
    let (_dir, path) = sample(b"0123456789");
    for engine in engines() {
        // Every write fails, since the file is open for reading only.
        let mut file = File::from_fd(fs::File::open(&path).unwrap().into(), engine);
        file.seek(SeekFrom::Start(2)).await.unwrap();
        file.write_all(b"accepted").await.unwrap();
        // All who wait for it learn of it, and the next write or flush.
        assert_eq!(errno(file.sync_all().await), libc::EBADF);
        assert_eq!(errno(file.sync_data().await), libc::EBADF);
        let mut bytes = [0; 3];
        file.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"234", "a read meets no error of a write, and nothing was written");
        assert_eq!(errno(file.write(b"more").await), libc::EBADF);
        file.flush().await.unwrap();
        assert_eq!(file.stream_position().await.unwrap(), 5);
        file.write_all(b"again").await.unwrap();
        assert_eq!(errno(file.flush().await), libc::EBADF);
        file.flush().await.unwrap();
        file.write_all(b"again").await.unwrap();
        assert_eq!(errno(file.close().await), libc::EBADF);
        // Open for appending, and for reading only.
        let append = fs::File::options().read(true).custom_flags(libc::O_APPEND).open(&path);
        let mut append = File::from_fd(append.unwrap().into(), engine);
        append.read_exact(&mut bytes).await.unwrap();
        append.write_all(b"bytes").await.unwrap();
        assert_eq!(errno(append.flush().await), libc::EBADF);
        assert_eq!(append.stream_position().await.unwrap(), 3);
        // A device, which has no offsets.
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut full = File::from_fd(full.into(), engine);
        full.write_all(b"bytes").await.unwrap();
        assert_eq!(errno(full.flush().await), libc::ENOSPC);
    }
    assert_eq!(fs::read(&path).unwrap(), b"0123456789");
}

#[tokio::test]
async fn a_failed_read_is_reported_and_tried_again() {
    let (_dir, path) = sample(&pattern(0, 1000));
    let mut file = open(&failing(1000), &path, false);
    for _ in 0..3 {
        assert_eq!(errno(file.read(&mut [0; 10]).await), libc::EIO);
        assert_eq!(file.stream_position().await.unwrap(), 0);
    }
}

/// What a dropped file has accepted is written, and the file is closed after that.
#[test]
fn a_dropped_file_is_written() {
    let content = pattern(0, 3 << 20);
    for engine in engines() {
        let (_dir, path) = sample(b"");
        current_thread().block_on(async {
            let mut file = open(engine, &path, false);
            file.write_all(&content).await.unwrap();
        });
        // The runtime has ended, too.
        wait_for("the content", || fs::metadata(&path).unwrap().len() == content.len() as u64);
        wait_until_idle(engine);
        assert!(fs::read(&path).unwrap() == content);
    }
}

/// An engine lives until what was accepted on it is written.
#[tokio::test]
async fn a_dropped_engine_writes_what_was_accepted() {
    for kind in available() {
        let (_dir, path) = sample(b"");
        let engine = Engine::builder().backend(kind).build().unwrap();
        let mut file = open(&engine, &path, false);
        for _ in 0..100 {
            file.write_all(&[7; 4096]).await.unwrap();
        }
        drop((file, engine));
        until("the content", || fs::metadata(&path).unwrap().len() == 409_600).await;
    }
}

#[tokio::test]
async fn clones_share_the_cursor() {
    let content = pattern(0, 60_000);
    for engine in engines() {
        let (_dir, path) = sample(&content);
        let mut file = open(engine, &path, false);
        let (mut clone, mut duplicate) = (file.clone(), file.try_clone().await.unwrap());
        let mut bytes = [0; 100];
        for start in [0, 300, 600] {
            for (at, file) in [&mut file, &mut clone, &mut duplicate].into_iter().enumerate() {
                let start = start + at * 100;
                file.read_exact(&mut bytes).await.unwrap();
                assert!(bytes == content[start..start + 100]);
            }
        }
        clone.write_all(b"at 900").await.unwrap();
        clone.flush().await.unwrap();
        assert_eq!(duplicate.stream_position().await.unwrap(), 906);
        assert!(fs::read(&path).unwrap()[900..].starts_with(b"at 900"));
        drop((file, clone));
        // The descriptor gets the position, and a file takes that of its descriptor.
        let mut std = duplicate.into_std().await.unwrap();
        assert_eq!(std.stream_position().unwrap(), 906);
        std.seek(SeekFrom::Start(5)).unwrap();
        let mut file = File::from_fd(std.into(), engine);
        assert_eq!(file.stream_position().await.unwrap(), 5);
        file.read_exact(&mut bytes).await.unwrap();
        assert!(bytes == content[5..105]);
        let mut std = file.try_into_std().unwrap();
        assert_eq!(std.stream_position().unwrap(), 105);
    }
}

/// Tasks that read with clones at the same time: each byte goes to one of them. Tasks that write:
/// no byte is overwritten.
#[test]
fn concurrent_clones_share_the_bytes() {
    let content = pattern(0, 400_000);
    for engine in engines() {
        let (_dir, path) = sample(&content);
        multi_thread(4).block_on(async {
            let file = open(engine, &path, false);
            let readers = (0..4).map(|_| {
                let file = file.clone();
                tokio::spawn(async move {
                    let (mut bytes, mut total) = (vec![0; 1000], 0);
                    while let read @ 1.. = file.read(&mut bytes).await.unwrap() {
                        total += read;
                    }
                    total
                })
            });
            let totals = futures::future::join_all(readers).await;
            assert_eq!(totals.into_iter().map(Result::unwrap).sum::<usize>(), content.len());
            let writers = (1..5).map(|number| {
                let mut file = file.clone();
                tokio::spawn(async move {
                    for _ in 0..100 {
                        file.write_all(&[number; 100]).await.unwrap();
                    }
                    file.flush().await.unwrap();
                })
            });
            for writer in futures::future::join_all(writers).await {
                writer.unwrap();
            }
        });
        let written = fs::read(&path).unwrap();
        assert_eq!(written.len(), 440_000);
        let of = |number| written[400_000..].iter().filter(|byte| **byte == number).count();
        assert_eq!([1, 2, 3, 4].map(of), [10_000; 4]);
    }
}

#[tokio::test]
async fn a_seek_discards_what_was_read() {
    let (_dir, path) = sample(b"old content");
    for engine in engines() {
        let mut file = open(engine, &path, false);
        let mut other = open(engine, &path, false);
        let mut bytes = [0; 11];
        file.rewind().await.unwrap();
        file.read_exact(&mut bytes).await.unwrap();
        other.rewind().await.unwrap();
        other.write_all(b"new").await.unwrap();
        other.flush().await.unwrap();
        file.rewind().await.unwrap();
        file.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"new content");
        // As does a stream that reads ahead, when it steps back.
        let mut reader = other.reader();
        tokio::io::AsyncReadExt::read_exact(&mut reader, &mut bytes).await.unwrap();
        other.rewind().await.unwrap();
        other.write_all(b"old").await.unwrap();
        other.flush().await.unwrap();
        reader.rewind().await.unwrap();
        tokio::io::AsyncReadExt::read_exact(&mut reader, &mut bytes).await.unwrap();
        assert_eq!(&bytes, b"old content");
        // Before the beginning.
        let before = file.seek(SeekFrom::Current(-12)).await.unwrap_err();
        assert_eq!(before.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(file.stream_position().await.unwrap(), 11);
    }
}

#[tokio::test]
async fn nothing_is_read_or_written_without_bytes() {
    let (_dir, path) = sample(b"abc");
    for engine in engines() {
        let mut file = open(engine, &path, false);
        assert_eq!(file.read(&mut []).await.unwrap(), 0);
        assert_eq!(file.write(b"").await.unwrap(), 0);
        assert_eq!(file.write_vectored(&[]).await.unwrap(), 0);
        let mut bytes = [0; 8];
        assert_eq!(AsyncReadExt::read(&mut file, &mut bytes).await.unwrap(), 3);
        for _ in 0..2 {
            assert_eq!(file.read(&mut bytes).await.unwrap(), 0, "the end");
        }
        let error = file.read_exact(&mut bytes).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        // The file grows, and reading goes on.
        io::Write::write_all(&mut fs::File::options().append(true).open(&path).unwrap(), b"def")
            .unwrap();
        assert_eq!(file.read(&mut bytes).await.unwrap(), 3);
        file.set_len(3).await.unwrap();
        assert_eq!(file.stream_position().await.unwrap(), 6);
        // Far beyond the end.
        assert_eq!(file.seek(SeekFrom::Start(i64::MAX as u64)).await.unwrap(), i64::MAX as u64);
        assert_eq!(file.read(&mut bytes).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn the_largest_transfer_can_be_set() {
    let (_dir, path) = sample(b"abc");
    for engine in engines() {
        let mut file = open(engine, &path, false);
        assert_eq!(file.max_buf_size(), 2 << 20);
        file.set_max_buf_size(2);
        assert_eq!(file.try_clone().await.unwrap().max_buf_size(), 2);
        assert_eq!(file.read(&mut [0; 8]).await.unwrap(), 2);
        file.rewind().await.unwrap();
        assert_eq!(file.write(b"abc").await.unwrap(), 2);
        let parts = [IoSlice::new(b"c"), IoSlice::new(b"de")];
        assert_eq!(file.write_vectored(&parts).await.unwrap(), 2);
        file.flush().await.unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abcd");
        file.set_len(3).await.unwrap();
    }
}

#[tokio::test]
async fn direct_files_read_any_length_and_write_whole_blocks() {
    let content = pattern(0, 3 * PAGE + 100);
    for engine in engines() {
        let (_dir, path) = sample(&content);
        let mut file = open(engine, &path, true);
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(77)).await.unwrap();
        file.read_to_end(&mut bytes).await.unwrap();
        assert!(bytes == content[77..]);
        file.seek(SeekFrom::Start(PAGE as u64)).await.unwrap();
        for len in [1, 511, PAGE + 1] {
            let error = file.write(&bytes[..len]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
        file.write_all(&[1; 2 * PAGE]).await.unwrap();
        file.flush().await.unwrap();
        let written = fs::read(&path).unwrap();
        assert!(
            written[PAGE..3 * PAGE] == [1; 2 * PAGE] && written[3 * PAGE..] == content[3 * PAGE..]
        );
        file.seek(SeekFrom::Start(1)).await.unwrap();
        assert!(file.write(&[1; PAGE]).await.is_err());
    }
}

/// A pipe keeps what a read that was dropped has taken out of it, and the end is the end.
#[tokio::test]
async fn pipes_and_devices() {
    for engine in engines() {
        let (mut reader, writer) = pipe(engine);
        {
            let mut bytes = [0; 3];
            let mut read = pin!(AsyncReadExt::read(&mut reader, &mut bytes));
            assert!(futures::poll!(&mut read).is_pending());
        }
        put(&writer, b"hello");
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
        assert_eq!(errno(reader.seek(SeekFrom::Start(0)).await), libc::ESPIPE);
        let (mut reader, writer) = io::pipe().unwrap();
        let mut writer = File::from_fd(writer.into(), engine);
        for part in ["one ", "two ", "three"] {
            writer.write_all(part.as_bytes()).await.unwrap();
        }
        writer.flush().await.unwrap();
        drop(writer);
        wait_until_idle(engine);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one two three");
        let mut null = fs::File::options().read(true).write(true).open("/dev/null").unwrap();
        assert_eq!(null.stream_position().unwrap(), 0);
        let mut null = File::from_fd(null.into(), engine);
        assert_eq!(null.read(&mut [0; 9]).await.unwrap(), 0);
        null.write_all(b"bytes").await.unwrap();
        assert_eq!(null.rewind().await.map_err(|error| error.kind()), Ok(0));
        null.flush().await.unwrap();
    }
}

/// A second waiting read of one handle would take the first one's wakeup.
#[tokio::test]
async fn one_read_waits_on_a_handle() {
    for engine in engines() {
        let (reader, writer) = pipe(engine);
        let (mut first, mut second) = ([0; 4], [0; 4]);
        {
            let mut read = pin!(reader.read(&mut first));
            assert!(futures::poll!(&mut read).is_pending());
            let error = reader.read(&mut second).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        }
        put(&writer, b"text");
        reader.read_exact(&mut second).await.unwrap();
        assert_eq!(&second, b"text");
    }
}

/// A task that finds everything in the page cache lets others run, also if it only seeks.
#[test]
fn a_loop_over_a_cached_file_yields() {
    let (_dir, path) = sample(&pattern(0, 1 << 20));
    for engine in engines().iter().step_by(3) {
        let yields = |write: bool| {
            let mut file = open(engine, &path, false);
            let mut endless = pin!(async move {
                let mut bytes = [0; 1024];
                loop {
                    if write {
                        file.write_all(&bytes).await.unwrap();
                    } else {
                        file.read(&mut bytes).await.unwrap();
                    }
                    file.rewind().await.unwrap();
                }
            });
            let runtime = current_thread();
            let _entered = runtime.enter();
            // A poll that never ended would meet the harness's watchdog.
            for _ in 0..5 {
                let cx = &mut Context::from_waker(Waker::noop());
                let polled: Poll<()> = endless.as_mut().poll(cx);
                assert!(polled.is_pending());
            }
        };
        yields(false);
        yields(true);
        wait_until_idle(engine);
    }
}

#[test]
fn a_forked_child_writes_nothing() {
    let (_dir, path) = sample(b"content");
    for kind in available() {
        // Of its own: the child gets the locks of other tests' engines as they are.
        let engine = Engine::builder().backend(kind).build().unwrap();
        let mut file = open(&engine, &path, false);
        futures::executor::block_on(async {
            file.write_all(b"CONTENT").await.unwrap();
            file.flush().await.unwrap();
        });
        let status = in_fork(|| {
            futures::executor::block_on(async {
                assert_eq!(errno(file.write(b"x").await), libc::ECHILD);
                assert!(matches!(errno(file.sync_all().await), libc::ECHILD));
                file.rewind().await.unwrap();
                let mut bytes = [0; 7];
                // What is cached can be read.
                if AsyncReadExt::read_exact(&mut file, &mut bytes).await.is_ok() {
                    assert_eq!(&bytes, b"CONTENT");
                }
            });
        });
        assert_eq!(status, 0);
        futures::executor::block_on(async {
            file.rewind().await.unwrap();
            file.write_all(b"content").await.unwrap();
            file.flush().await.unwrap();
        });
    }
}
