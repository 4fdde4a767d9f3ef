//! What a program relies on, on every system: files, paths, streams, logs, atomic replacement, the
//! pool, executors, dropped futures and injected faults. Nothing here uses an interface of one
//! system. What only some systems have is checked to be Unsupported on the others.

use futures::executor::block_on;
use futures::future::join_all;
use ringway::fs::{self, AtomicFile, File, FileTimes, OpenOptions, TryLockError};
use ringway::{BackendKind, Engine, FaultPlan, LogWriter, Position};
use std::io::{self, ErrorKind, SeekFrom};
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes that differ at all offsets that a mistake is likely to confuse.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    result.map(drop).expect_err("an error").kind()
}

async fn open_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path).await
}

/// Waits until nothing is in flight. The counts add up at any moment.
fn settle(engine: &Engine) {
    let begun = Instant::now();
    loop {
        let counts = engine.stats().counts;
        assert_eq!(counts.pushed, counts.delivered + counts.orphaned + counts.in_flight);
        if counts.in_flight == 0 {
            return;
        }
        assert!(begun.elapsed() < TEST_TIMEOUT, "operations are still in flight: {counts:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_what_was_written() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    let content = pattern(300_000);
    let file = open_new(&path).await?;
    let (written, back) = file.write_all_at(content.clone(), 0).await;
    written?;
    assert_eq!(back, content);
    file.sync_data().await?;
    file.sync_all().await?;
    assert_eq!(&file.read(99_990..200_000).await?[..], &content[99_990..200_000]);
    assert!(file.read(300_000..300_001).await?.is_empty());
    let (read, buffer) = file.read_at(vec![0; 1000], 299_500).await;
    assert_eq!((read?, &buffer[..500]), (500, &content[299_500..]));
    assert_eq!(kind(file.read_exact_at(vec![0; 2], 299_999).await.0), ErrorKind::UnexpectedEof);
    let parts = file.read_ranges(&[10..20, 250_000..250_001, 0..5, 5..5]).await?;
    let wanted = [&content[10..20], &content[250_000..250_001], &content[0..5], &[]];
    assert!(parts.iter().zip(wanted).all(|(part, wanted)| part[..] == *wanted));
    file.write_durable_at(b"durable".to_vec(), 299_993).await.0?;
    assert_eq!(&file.read(299_993..300_000).await?[..], b"durable");
    file.set_len(1000).await?;
    assert_eq!(file.metadata().await?.len(), 1000);
    file.close().await?;
    assert_eq!(fs::read(&path).await?, &content[..1000]);
    Ok(())
}

#[tokio::test]
async fn the_current_position_moves_with_transfers_there() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    fs::write(&path, b"0123456789".to_vec()).await?;
    let file = File::open(&path).await?;
    for wanted in [b"0123", b"4567"] {
        let (read, buffer) = file.read_at(vec![0; 4], Position::Current).await;
        assert_eq!((read?, &buffer[..]), (4, &wanted[..]));
    }
    Ok(())
}

#[tokio::test]
async fn options_and_errors_are_those_of_std() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let (path, missing) = (dir.path().join("file"), dir.path().join("missing"));
    open_new(&path).await?.write_all_at(b"old".to_vec(), 0).await.0?;
    assert_eq!(kind(open_new(&path).await), ErrorKind::AlreadyExists);
    assert_eq!(kind(File::open(&missing).await), ErrorKind::NotFound);
    assert_eq!(kind(OpenOptions::new().open(&path).await), ErrorKind::InvalidInput);
    let appends = OpenOptions::new().append(true).open(&path).await?;
    appends.write_all_at(b" and new".to_vec(), 0).await.0?;
    assert_eq!(fs::read_to_string(&path).await?, "old and new");
    assert!(File::open(&path).await?.write_all_at(b"x".to_vec(), 0).await.0.is_err());
    File::create(&path).await?.close().await?;
    assert_eq!(fs::metadata(&path).await?.len(), 0);
    let file = File::open(&path).await?;
    let clone = file.clone();
    assert_eq!(kind(file.close().await), ErrorKind::InvalidInput);
    let copy = clone.try_clone().await?;
    clone.close().await?;
    assert_eq!(copy.into_std().await?.metadata()?.len(), 0);
    Ok(())
}

#[tokio::test]
async fn times_permissions_and_locks() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    let file = File::create(&path).await?;
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.set_times(FileTimes::new().set_modified(then)).await?;
    assert_eq!(fs::metadata(&path).await?.modified()?, then);
    let usual = std::fs::metadata(&path)?.permissions();
    let mut changed = usual.clone();
    changed.set_readonly(true);
    fs::set_permissions(&path, changed).await?;
    assert!(std::fs::metadata(&path)?.permissions().readonly());
    file.set_permissions(usual).await?;
    assert!(!std::fs::metadata(&path)?.permissions().readonly());
    let other = File::open(&path).await?;
    let taken = |result| matches!(result, Err(TryLockError::WouldBlock));
    assert!(file.try_lock().await.is_ok());
    assert!(taken(other.try_lock().await) && taken(other.try_lock_shared().await));
    file.unlock().await?;
    file.unlock().await?;
    assert!(file.try_lock_shared().await.is_ok() && other.try_lock_shared().await.is_ok());
    Ok(())
}

#[tokio::test]
async fn paths() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let at = |name: &str| dir.path().join(name);
    fs::write(at("one"), b"1".to_vec()).await?;
    fs::write(at("two"), b"2".to_vec()).await?;
    fs::rename(at("one"), at("two")).await?;
    assert_eq!(fs::read(at("two")).await?, b"1");
    assert!(!fs::exists(at("one")).await? && fs::try_exists(at("two")).await?);
    fs::hard_link(at("two"), at("link")).await?;
    assert_eq!(kind(fs::copy(at("two"), at("link")).await), ErrorKind::InvalidInput);
    assert_eq!(kind(fs::copy(at("two"), at("two")).await), ErrorKind::InvalidInput);
    assert_eq!(fs::read(at("link")).await?, b"1", "nothing was truncated");
    fs::write(at("large"), pattern(5_000_001)).await?;
    assert_eq!(fs::copy(at("large"), at("link")).await?, 5_000_001);
    assert!(fs::read(at("two")).await? == pattern(5_000_001));
    fs::remove_file(at("link")).await?;
    assert_eq!(kind(fs::remove_file(at("link")).await), ErrorKind::NotFound);
    fs::create_dir(at("dir")).await?;
    assert_eq!(kind(fs::create_dir(at("dir")).await), ErrorKind::AlreadyExists);
    assert!(fs::metadata(at("dir")).await?.is_dir());
    fs::remove_dir(at("dir")).await?;
    assert_eq!(fs::canonicalize(at("two")).await?, std::fs::canonicalize(at("two"))?);
    fs::sync_dir(dir.path()).await
}

#[tokio::test]
async fn directories() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let deep = dir.path().join("tree/a/b/c");
    fs::create_dir_all(&deep).await?;
    fs::create_dir_all(&deep).await?;
    // More than one batch.
    for number in 0..1200 {
        std::fs::write(deep.join(format!("{number}")), [7; 3])?;
    }
    let mut entries = fs::read_dir(&deep).await?;
    let mut numbers = Vec::new();
    while let Some(entry) = entries.next_entry().await? {
        assert!(entry.file_type().await?.is_file());
        if numbers.len() % 100 == 0 {
            assert_eq!(entry.metadata().await?.len(), 3);
            assert_eq!(entry.path(), deep.join(entry.file_name()));
        }
        numbers.push(entry.file_name().into_string().unwrap().parse::<u32>().unwrap());
    }
    numbers.sort();
    assert!(numbers.into_iter().eq(0..1200));
    drop(entries);
    fs::remove_dir_all(dir.path().join("tree")).await?;
    assert_eq!(std::fs::read_dir(dir.path())?.count(), 0);
    assert_eq!(kind(fs::read_dir(dir.path().join("tree")).await), ErrorKind::NotFound);
    Ok(())
}

/// As with the standard library. (The superuser may do anything: this fails only for others.)
#[cfg(unix)]
#[tokio::test]
async fn to_list_a_directory_takes_the_permission_to_read_it() -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("file"), b"")?;
    let allow = |mode| std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(mode));
    allow(0o400)?;
    let listed = async {
        let first = fs::read_dir(dir.path()).await?.next_entry().await?;
        io::Result::Ok(first.map(|entry| entry.file_name()))
    };
    let listed = listed.await;
    allow(0o700)?;
    assert_eq!(listed?, Some("file".into()));
    Ok(())
}

/// A reader sees the old content or the new, and nothing else is left.
#[tokio::test(flavor = "multi_thread")]
async fn atomic_replacement() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("settings");
    fs::write_atomic(&path, vec![0; 100_000]).await?;
    for round in 1..20u8 {
        fs::write_atomic(&path, vec![round; 100_000]).await?;
        assert!(fs::read(&path).await? == vec![round; 100_000]);
    }
    let mut dropped = AtomicFile::create(&path).await?;
    dropped.write_all(b"never").await?;
    dropped.flush().await?;
    drop(dropped);
    let mut new = AtomicFile::create(&path).await?;
    new.write_all(b"0123456789").await?;
    new.seek(SeekFrom::Start(2)).await?;
    new.write_all(b"xx").await?;
    assert_eq!(fs::metadata(&path).await?.len(), 100_000);
    new.commit().await?;
    assert_eq!(fs::read(&path).await?, b"01xx456789");
    fs::write_atomic(dir.path().join("other"), b"new".to_vec()).await?;
    settle(Engine::global()?);
    assert_eq!(std::fs::read_dir(dir.path())?.count(), 2);
    for wrong in [dir.path().join("settings/"), dir.path().join(".")] {
        assert!(fs::write_atomic(&wrong, b"x".to_vec()).await.is_err(), "{wrong:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn streams() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("stream");
    let content = pattern(3_000_001);
    let mut writer = File::create(&path).await?.writer().chunk(64 << 10);
    for part in content.chunks(10_007) {
        AsyncWriteExt::write_all(&mut writer, part).await?;
    }
    writer.shutdown().await?;
    assert!(fs::read(&path).await? == content);
    let mut reader = File::open(&path).await?.reader().chunk(64 << 10);
    let mut back = Vec::new();
    reader.read_to_end(&mut back).await?;
    assert!(back == content);
    AsyncSeekExt::seek(&mut reader, SeekFrom::Start(2_000_000)).await?;
    let mut part = [0; 1000];
    AsyncReadExt::read_exact(&mut reader, &mut part).await?;
    assert_eq!(part, content[2_000_000..2_001_000]);
    Ok(())
}

/// What returns no buffer takes borrowed bytes and text, and buffers.
#[tokio::test]
async fn content_may_be_borrowed() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    let has = |expected: &str| assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    fs::write(&path, b"array").await?;
    has("array");
    fs::write(&path, "text").await?;
    has("text");
    fs::write(&path, &String::from("a string")[2..]).await?;
    has("string");
    fs::write(&path, String::from("its own")).await?;
    has("its own");
    fs::write(&path, [b'x'; 3]).await?;
    has("xxx");
    fs::write(&path, &vec![b'y'; 3]).await?;
    has("yyy");
    fs::write(&path, std::borrow::Cow::from("cow")).await?;
    has("cow");
    fs::write_atomic(&path, "atomic").await?;
    has("atomic");
    let log = LogWriter::new(OpenOptions::new().write(true).open(&path).await?, 6)?;
    assert_eq!(log.append(" record").await?, 6);
    has("atomic record");
    Ok(())
}

/// A file at its cursor, through tokio's traits.
#[tokio::test(flavor = "multi_thread")]
async fn one_cursor_reads_and_writes() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    let mut file = open_new(&path).await?;
    let content = pattern(300_000);
    file.write_all(&content).await?;
    assert_eq!(file.seek(SeekFrom::Current(-1000)).await?, 299_000);
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).await?;
    assert!(rest == content[299_000..]);
    file.rewind().await?;
    file.write_all(b"new").await?;
    let mut next = [0; 10];
    file.read_exact(&mut next).await?;
    assert_eq!(next, content[3..13]);
    let mut std = File::from(file.into_std().await?).into_std().await?;
    assert_eq!(std::io::Seek::stream_position(&mut std)?, 13);
    assert!(std::fs::read(&path)?.starts_with(b"new"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_has_all_records_in_order() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("log");
    let log = LogWriter::new(File::create(&path).await?, 0)?;
    let offsets = join_all((0..200u8).map(|record| log.append(vec![record; 10]))).await;
    let content = fs::read(&path).await?;
    assert_eq!(content.len(), 2000);
    for (record, offset) in offsets.into_iter().enumerate() {
        assert_eq!(content[offset? as usize..][..10], [record as u8; 10]);
    }
    let appends = OpenOptions::new().append(true).open(&path).await?;
    assert_eq!(kind(LogWriter::new(appends, 0).map(drop)), ErrorKind::InvalidInput);
    Ok(())
}

/// A file that one executor has opened is read on others, and after a runtime has ended.
#[test]
fn any_executor_and_several_runtimes() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    std::fs::write(&path, pattern(100_000))?;
    // Without the page cache each read is an operation.
    let engine = Engine::builder().try_cached(false).build()?;
    let file = block_on(engine.open(&path))?;
    let reads = |file: File| async move {
        let one = |at: u64| {
            let file = file.clone();
            async move { file.read(at * 100..at * 100 + 100).await }
        };
        for (at, block) in join_all((0..200).map(one)).await.into_iter().enumerate() {
            assert_eq!(block.unwrap()[..], pattern(100_000)[at * 100..][..100]);
        }
    };
    block_on(reads(file.clone()));
    smol::block_on(reads(file.clone()));
    for workers in [1, 2] {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build()?;
        let tasks: Vec<_> = (0..4).map(|_| runtime.spawn(reads(file.clone()))).collect();
        for end in runtime.block_on(join_all(tasks)) {
            end.unwrap();
        }
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(reads(file));
    settle(&engine);
    Ok(())
}

#[test]
fn dropped_futures_are_counted_and_leave_no_file_open() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    std::fs::write(&path, pattern(1 << 20))?;
    let engine = Engine::builder().try_cached(false).in_flight(8).build()?;
    let file = block_on(engine.open(&path))?;
    for polls in 0..20_000 {
        // On a busy machine all of them may be dropped before they are submitted.
        let is_late = polls >= 300;
        if is_late && engine.stats().counts.orphaned > 0 {
            break;
        }
        let mut opened = pin!(engine.open(&path));
        let mut read = pin!(file.read_at(vec![0; 100_000], polls));
        let mut slept = pin!(engine.sleep(Duration::from_secs(1000)));
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..polls % 4 {
            if opened.as_mut().poll(&mut cx).is_ready()
                || read.as_mut().poll(&mut cx).is_ready()
                || slept.as_mut().poll(&mut cx).is_ready()
            {
                break;
            }
        }
        if is_late {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    settle(&engine);
    assert!(engine.stats().counts.orphaned > 0);
    let file = block_on(file.into_std())?;
    assert_eq!(file.metadata()?.len(), 1 << 20);
    drop(file);
    // A dropped call of the pool's threads is not made, or is made to its end.
    let calls: Vec<_> = (0..100).map(|_| engine.call(|| Ok(1))).collect();
    drop(calls);
    assert_eq!(block_on(engine.call(|| Ok(2)))?, 2);
    settle(&engine);
    drop(engine);
    std::fs::remove_file(&path)
}

#[test]
fn the_pool_is_reused_and_bounded() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    std::fs::write(&path, pattern(1 << 20))?;
    let engine = Engine::builder().pool_bytes(1 << 20).build()?;
    let file = block_on(engine.open(&path))?;
    for at in 0..200 {
        let block = block_on(file.read(at..at + 60_000))?;
        assert_eq!(block[..], pattern(1 << 20)[at as usize..][..60_000]);
    }
    let stats = engine.stats().pool;
    assert!(stats.free > 0 && stats.free <= 1 << 20 && stats.in_use == 0, "{stats:?}");
    Ok(())
}

/// Faults of the backend: short transfers are continued, retries are not shown, errors are.
#[test]
fn injected_faults() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    let content = pattern(200_000);
    let plan = FaultPlan::new(7).short(300).retryable(200).delay(200, 3).reorder(200);
    let engine =
        Engine::builder().backend(BackendKind::Threads).try_cached(false).faults(plan).build()?;
    block_on(async {
        engine.fs().write(&path, content.clone()).await?;
        for _ in 0..20 {
            assert!(engine.fs().read(&path).await? == content);
            engine.fs().write_atomic(&path, content.clone()).await?;
        }
        io::Result::Ok(())
    })?;
    let plan = FaultPlan::new(7).errors(300);
    let engine =
        Engine::builder().backend(BackendKind::Threads).try_cached(false).faults(plan).build()?;
    let failed = (0..200).filter(|_| block_on(engine.fs().read(&path)).is_err()).count();
    assert!((1..200).contains(&failed), "{failed} of 200 failed");
    settle(&engine);
    assert_eq!(std::fs::read_dir(dir.path())?.count(), 1);
    Ok(())
}

/// The engine says why it uses threads, and a backend that a system does not have is refused.
#[test]
fn the_explanation_names_the_system() -> io::Result<()> {
    let engine = Engine::builder().build()?;
    assert!(!engine.explain().to_string().is_empty());
    if cfg!(any(not(target_os = "linux"), ringway_portable)) {
        let text = engine.explain().to_string();
        assert_eq!(engine.backend(), BackendKind::Threads);
        for backend in ["io_uring", "Linux AIO"] {
            assert!(text.contains(&format!("{backend} exists on Linux only")), "{text}");
        }
        assert!(Engine::builder().backend(BackendKind::Uring).build().is_err());
        // Nothing else is requested, so nothing else is refused.
        let threads = Engine::builder().backend(BackendKind::Threads);
        assert!(threads.strict(true).build().is_ok());
    }
    Ok(())
}

#[cfg(any(not(target_os = "linux"), ringway_portable))]
#[tokio::test]
async fn what_the_system_does_not_have_is_unsupported() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    let file = open_new(&path).await?;
    let is_unsupported = |error: io::Error, name: &str| {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(name), "{error}");
    };
    is_unsupported(file.sync_range(0, 1).await.unwrap_err(), "sync_range");
    let mut options = OpenOptions::new();
    options.read(true).resolve(fs::Resolve::BENEATH);
    is_unsupported(options.open(&path).await.unwrap_err(), "resolve");
    if cfg!(windows) {
        is_unsupported(file.allocate(0, 1).await.unwrap_err(), "fallocate");
        let advice = file.advise(0, 0, fs::Advice::Random).await;
        is_unsupported(advice.unwrap_err(), "fadvise");
        let direct = OpenOptions::new().read(true).direct(true).open(&path).await;
        is_unsupported(direct.unwrap_err(), "open");
    }
    if cfg!(not(target_os = "linux")) {
        let manual = Engine::builder().reaping(ringway::Reaping::Manual).build();
        is_unsupported(manual.map(drop).unwrap_err(), "Reaping::Manual");
    }
    Ok(())
}
