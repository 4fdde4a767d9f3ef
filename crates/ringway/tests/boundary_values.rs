//! Numbers at the ends of their ranges, in every setter and every call that takes an offset or a
//! length: each gives a result or an error like that of the system call, and never a panic, an
//! overflow or unbounded memory.

// On Linux only: the helpers in `common` use its interfaces (direct I/O, `/proc`, fork, seccomp).
// `portable.rs` has the tests for every system.
#![cfg(target_os = "linux")]

mod common;

use common::process::wait_for_memory;
use common::{BACKENDS, build_or_skip, pattern, skip, write_synced};
use futures::executor::block_on;
use ringway::fs::{Advice, File, OpenOptions};
use ringway::{Coalesce, Engine, EngineBuilder, Position, SqPoll};
use std::io;
use std::ops::{Bound, Range};
use std::time::Duration;

const LEN: usize = 300_000;
const LAST: u64 = i64::MAX as u64;
/// Offsets and lengths near every limit.
const FAR: [u64; 10] = [
    LAST - 4096,
    LAST - 1,
    LAST,
    LAST + 1,
    LAST + 4096,
    u64::MAX - 4096,
    u64::MAX - 1,
    u64::MAX,
    1 << 62,
    1 << 44,
];

fn content() -> Vec<u8> {
    pattern(0, LEN)
}

fn engines() -> Vec<Engine> {
    let mut engines = Vec::new();
    for kind in BACKENDS {
        for try_cached in [true, false] {
            let builder = Engine::builder().shards(1).try_cached(try_cached);
            engines.extend(build_or_skip(kind, builder));
        }
    }
    engines
}

/// Runs `case` with the file, buffered and direct, on every engine.
fn on_every_file(case: impl AsyncFn(File, &str)) {
    let dir = tempfile::tempdir_in(".").unwrap();
    let path = dir.path().join("file");
    for engine in engines() {
        for direct in [false, true] {
            write_synced(&path, &content());
            let what = format!("{:?}, direct: {direct}", engine.backend());
            block_on(async {
                let mut options = OpenOptions::new();
                match options
                    .read(true)
                    .write(true)
                    .direct(direct)
                    .engine(&engine)
                    .open(&path)
                    .await
                {
                    Ok(file) => case(file, &what).await,
                    Err(error) => println!("skipped: {what}: {error}"),
                }
            });
        }
    }
}

#[test]
fn extreme_chunks_and_depths() {
    let content = content();
    on_every_file(async |file, what| {
        for chunk in [0, 1 << 20, LAST as usize, LAST as usize + 1, usize::MAX - 4095, usize::MAX] {
            for depth in [0, 1, usize::MAX] {
                // One byte at a time takes long.
                let range = if chunk == 0 { 0..5 } else { 0..LAST };
                let mut reader = file.reader().chunk(chunk).read_ahead(depth).range(range.clone());
                let mut read = Vec::new();
                while let Some(block) = reader.next_block().await.unwrap() {
                    read.extend_from_slice(&block);
                }
                assert!(
                    read == content[..LEN.min(range.end as usize)],
                    "{what}: chunk {chunk}, depth {depth}"
                );
                let len = if chunk == 0 { 5 } else { LEN };
                let mut writer = file.writer().chunk(chunk).write_behind(depth);
                writer.write_all(&content[..len]).await.unwrap();
                if file.is_direct() && len < LEN {
                    writer.abandon(); // A flush would have to truncate the file.
                } else {
                    writer.flush().await.unwrap();
                }
                assert!(
                    file.read(0..LEN as u64).await.unwrap() == content,
                    "{what}: chunk {chunk}, depth {depth}"
                );
            }
        }
    });
}

#[test]
fn streams_at_extreme_offsets() {
    on_every_file(async |file, what| {
        for at in FAR {
            for chunk in [4096, usize::MAX] {
                // Nothing is there; or the last block of a direct read would end beyond the last
                // offset.
                let nothing = |read: io::Result<Option<ringway::Block>>| match read {
                    Ok(block) => assert!(block.is_none(), "{what}: {at}"),
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{what}: {at}")
                    }
                };
                let mut reader = file.reader().chunk(chunk);
                reader.seek_to(at);
                assert_eq!(reader.position(), at);
                nothing(reader.next_block().await);
                reader.seek_to(0);
                assert!(reader.next_block().await.unwrap().is_some());
                nothing(file.reader().chunk(chunk).range(at..).next_block().await);
                nothing(file.reader().chunk(chunk).range(at..=u64::MAX).next_block().await);
                nothing(
                    file.reader().range((Bound::Excluded(at), Bound::Unbounded)).next_block().await,
                );
                let backwards = Range { start: at, end: 5 };
                nothing(file.reader().chunk(chunk).range(backwards).next_block().await);
                let mut reader = file.reader();
                assert_eq!(
                    reader.seek(io::SeekFrom::Start(at)).await.is_ok(),
                    at <= LAST,
                    "{what}: {at}"
                );
                for distance in [i64::MIN, i64::MAX] {
                    let _ = reader.seek(io::SeekFrom::Current(distance)).await;
                    let _ = reader.seek(io::SeekFrom::End(distance)).await;
                }
                let mut writer = file.writer().chunk(chunk).at(at);
                let written = match writer.write_all(&[1; 4096]).await {
                    Ok(()) => writer.flush().await,
                    refused => refused,
                };
                if at > 1 << 44 {
                    written.unwrap_err();
                } else if written.is_ok() {
                    file.set_len(LEN as u64).await.unwrap();
                }
                writer.abandon();
            }
        }
    });
}

#[test]
fn extreme_offsets_and_lengths() {
    on_every_file(async |file, what| {
        let direct = file.is_direct();
        for at in FAR {
            let none = |read: io::Result<usize>| {
                assert!(read.is_err() || matches!(read, Ok(0)), "{what}: {at}")
            };
            none(file.read_at(vec![0; 4096], at).await.0);
            none(file.read_vectored_at(vec![vec![0; 4096]; 2], at).await.0);
            assert!(file.read_exact_at(vec![0; 4096], at).await.0.is_err(), "{what}: {at}");
            if at > 1 << 44 {
                assert!(file.write_at(vec![0; 4096], at).await.0.is_err(), "{what}: {at}");
                assert!(
                    file.write_all_vectored_at(vec![vec![0; 4096]; 2], at).await.0.is_err(),
                    "{what}: {at}"
                );
                assert!(file.set_len(at).await.is_err(), "{what}: {at}");
                assert!(file.allocate(at, 1).await.is_err(), "{what}: {at}");
                assert!(file.allocate(1, at).await.is_err(), "{what}: {at}");
                assert!(file.allocate_written(at, 1).await.is_err(), "{what}: {at}");
            }
            let ranges = [
                at..at,
                at..at.saturating_add(1),
                at - 1..at,
                Range { start: at, end: 0 },
                at..u64::MAX,
            ];
            for range in ranges {
                match file.read(range.clone()).await {
                    Ok(block) => assert!(block.is_empty(), "{what}: {range:?}"),
                    Err(error) => {
                        let kind = error.kind();
                        let known = [
                            io::ErrorKind::InvalidInput,
                            io::ErrorKind::OutOfMemory,
                            io::ErrorKind::FileTooLarge,
                        ];
                        assert!(known.contains(&kind), "{what}: {range:?}: {error}");
                    }
                }
                let widest = Coalesce::default()
                    .max_gap(u64::MAX)
                    .max_read(u64::MAX)
                    .max_amplification(f64::INFINITY);
                let both = [0..10, range.clone()];
                if let Ok(parts) = file.read_ranges_each(&both, Coalesce::never()).await {
                    assert_eq!(parts[0].as_ref().unwrap().len(), 10, "{what}: {range:?}");
                }
                // One read of both ranges may exceed memory, or the largest possible range.
                if let Ok(parts) = file.read_ranges_each(&both, widest).await
                    && let Ok(part) = &parts[0]
                {
                    assert_eq!(part.len(), 10, "{what}: {range:?}");
                }
            }
            // A read of more memory than exists is an error too.
            assert!(direct || file.read(0..LAST).await.is_err(), "{what}");
            let _ = file.advise(at, at, Advice::DontNeed).await;
            for range in [at..at, at..u64::MAX, 0..at] {
                let warmed = file.warm(std::slice::from_ref(&range)).await;
                assert_eq!(warmed.is_err(), direct, "{what}: {range:?}");
            }
            let _ = file.sync_range(at, at).await;
        }
        assert!(file.read(0..LEN as u64).await.unwrap() == content(), "{what}");
    });
}

#[test]
fn extreme_engine_settings() {
    type Setting = (&'static str, fn(EngineBuilder, usize) -> EngineBuilder);
    let settings: [Setting; 13] = [
        ("shards", |builder, number| builder.shards(number)),
        ("entries", |builder, number| builder.entries(number as u32)),
        ("in_flight", |builder, number| builder.in_flight(number as u32)),
        ("in_flight_pipes", |builder, number| builder.in_flight_pipes(number as u32)),
        ("threads", |builder, number| builder.threads(number as u32)),
        ("sync_threads", |builder, number| builder.sync_threads(number as u32)),
        ("io_wq_workers", |builder, number| builder.io_wq_workers(number as u32, number as u32)),
        ("pool_bytes", |builder, number| builder.pool_bytes(number)),
        ("fixed_buffers", |builder, number| builder.fixed_buffers(number, 1)),
        ("fixed_buffers, count", |builder, number| builder.fixed_buffers(1, number)),
        ("fixed_buffers, both", |builder, number| builder.fixed_buffers(number, number)),
        ("close_wait", |builder, number| builder.close_wait(Duration::from_secs(number as u64))),
        ("sqpoll", |builder, number| {
            builder.sqpoll(SqPoll::new(Duration::from_secs(number as u64)).cpu(Some(number as u32)))
        }),
    ];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, content()).unwrap();
    for kind in BACKENDS {
        for (name, set) in settings {
            for number in [0, 1, 1 << 12, 1 << 16, u32::MAX as usize, usize::MAX] {
                if (name, number) == ("fixed_buffers, both", 1 << 16) && !wait_for_memory(8 << 30) {
                    skip("too little memory for 4 GiB of fixed buffers");
                    continue;
                }
                match set(Engine::builder().backend(kind).shards(1), number).build() {
                    Ok(engine) => {
                        let file =
                            File::from_fd(std::fs::File::open(&path).unwrap().into(), &engine);
                        let read = block_on(file.read(0..10)).unwrap();
                        assert_eq!(read, content()[..10], "{kind}: {name} {number}");
                    }
                    Err(error) => println!("{kind}: {name} {number}: {error}"),
                }
            }
        }
    }
}

/// `Vec::with_capacity(n)` has no byte to read into. A read of nothing would look like the end of
/// the file, so each function refuses it, and says what to do. A buffer without memory reads
/// nothing, as with the standard library.
#[test]
fn an_empty_vector_with_capacity_is_refused() {
    fn is_refused<T: std::fmt::Debug>(result: io::Result<T>, what: &str) {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{what}: {error}");
        assert!(error.to_string().contains("vec![0; n]"), "{what}: {error}");
        assert!(error.to_string().contains("read_buf_at"), "{what}: {error}");
    }
    on_every_file(async |file, what| {
        for at in [Position::Offset(0), Position::Offset(7), Position::Current] {
            let (result, buffer) = file.read_at(Vec::with_capacity(4096), at).await;
            is_refused(result, what);
            assert!(buffer.is_empty() && buffer.capacity() >= 4096, "{what}");
            is_refused(file.read_exact_at(Vec::with_capacity(1), at).await.0, what);
            let buffers = || vec![vec![0; 4096], Vec::with_capacity(4096)];
            is_refused(file.read_vectored_at(buffers(), at).await.0, what);
            is_refused(file.read_all_vectored_at(buffers(), at).await.0, what);
            #[cfg(feature = "bytes")]
            is_refused(file.read_at(bytes::BytesMut::with_capacity(4096), at).await.0, what);
            assert_eq!(file.read_at(Vec::new(), at).await.0.unwrap(), 0, "{what}");
            file.read_exact_at(Vec::new(), at).await.0.unwrap();
            let part = ringway::Buffer::from(vec![0; 4096]).slice(4096..);
            assert_eq!(file.read_at(part, at).await.0.unwrap(), 0, "{what}");
            assert_eq!(file.read_vectored_at(vec![Vec::new()], at).await.0.unwrap(), 0, "{what}");
        }
        // Nothing is lost by writing nothing.
        if !file.is_direct() {
            assert_eq!(file.write_at(Vec::with_capacity(4096), 0).await.0.unwrap(), 0, "{what}");
        }
        let (read, buffer) = file.read_buf_at(Vec::with_capacity(4096), 0).await;
        assert_eq!((read.unwrap(), &buffer[..]), (4096, &content()[..4096]), "{what}");
    });
}
