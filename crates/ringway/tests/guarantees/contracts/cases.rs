//! The cases of the contracts. The number in the name of a case is that of its guarantee.

use crate::common::executor::Executor;
use crate::common::setup::Setup;
use crate::common::{
    MS, PAGE, available, direct, errno, fifo, has_reader, pattern, put, until, yield_once,
};
use futures::future::{join, join_all, maybe_done, poll_immediate};
use ringway::fs::{File, OpenOptions};
use ringway::{AlignedBuffer, BackendKind, Coalesce, Position};
use ringway_torture::pages::Pages;
use std::io::{self, ErrorKind};
use std::pin::pin;

/// Polls a future once, and drops it unless it is ready.
pub async fn poll_and_drop<T>(future: impl Future<Output = T>) -> Option<T> {
    poll_immediate(pin!(future)).await
}

/// A buffer for direct I/O.
fn aligned(len: usize) -> AlignedBuffer {
    AlignedBuffer::new(len, PAGE)
}

fn filled(content: &[u8]) -> AlignedBuffer {
    let mut buffer = aligned(content.len());
    buffer.copy_from_slice(content);
    buffer
}

pub async fn seven_a_backend_that_fails_at_once(setup: Setup) {
    all_operations_are_answered(&setup).await;
}

pub async fn seven_a_backend_that_fails_later(setup: Setup) {
    all_operations_are_answered(&setup).await;
}

/// Tasks on an engine whose backend fails in the middle: operations in flight are answered, even
/// those that wait forever, and later ones too.
pub async fn all_operations_are_answered(setup: &Setup) {
    let is_permitted =
        |errno: Option<i32>| matches!(errno, None | Some(libc::ECANCELED | libc::ESHUTDOWN));
    let file = direct(&setup.engine, setup.dir.path(), 16);
    let tasks: Vec<_> = (0..40u64)
        .map(|number| {
            let (file, (pipe, writer)) = (file.clone(), setup.pipe());
            setup.spawn(async move {
                // One read after the other: more than the backend completes before it fails.
                let reads = async {
                    let mut read = (Ok(0), aligned(PAGE));
                    for _ in 0..10 {
                        read = file.read_at(read.1, number % 16 * PAGE as u64).await;
                    }
                    read
                };
                let (read, waits) =
                    join(reads, pipe.read_at(vec![0u8; 64], Position::Current)).await;
                let metadata = file.metadata().await;
                drop(writer);
                let errnos = [errno_of(&read.0), errno_of(&waits.0), errno_of(&metadata)];
                (errnos, read.1.len(), waits.1.len())
            })
        })
        .collect();
    for (errnos, aligned, plain) in join_all(tasks).await {
        assert!(errnos.into_iter().all(is_permitted) && errnos[1].is_some(), "{errnos:?}");
        assert_eq!((aligned, plain), (PAGE, 64), "a buffer was not returned");
    }
    // A read that no shard can submit any more.
    let (read, buffer) = file.read_at(aligned(PAGE), 0).await;
    assert!(is_permitted(errno_of(&read)) && buffer.len() == PAGE);
    let text = setup.engine.explain().to_string();
    assert!(text.contains("failed during use"), "{text}");
    assert!(setup.engine.stats().failures > 0);
}

fn errno_of<T>(result: &io::Result<T>) -> Option<i32> {
    result.as_ref().err().map(|error| error.raw_os_error().unwrap_or(0))
}

pub async fn one_dropped_transfers_keep_their_memory(setup: Setup) {
    let pages = Pages::default();
    let file = setup.file("memory", &vec![0x5a; 256 * PAGE], true).await;
    for round in 0..40u64 {
        let reads =
            (0..8).map(|read| file.read_at(pages.take(), (round * 8 + read) % 256 * PAGE as u64));
        let mut reads: Vec<_> = reads.map(|read| Box::pin(maybe_done(read))).collect();
        for read in &mut reads {
            _ = poll_immediate(read).await;
        }
        // Some reads are dropped at once, some are awaited, and some are dropped after others have
        // run.
        reads.truncate(round as usize % 8);
        for mut read in reads.split_off(round as usize % 8 / 2) {
            read.as_mut().await;
            let (read, buffer) = read.as_mut().take_output().unwrap();
            assert!(read.unwrap() == PAGE && buffer.as_slice().iter().all(|byte| *byte == 0x5a));
        }
        yield_once().await;
        drop(reads);
        pages.inspect(100 * MS);
    }
    setup.until_idle().await;
    until("all buffers to be freed, and inspected a while later", || {
        pages.inspect(100 * MS);
        pages.counts() == (0, 320)
    })
    .await;
}

/// The device cannot cancel a direct read: it writes to the buffer after the future was dropped.
/// The pool must not reuse that memory for others before then.
pub async fn one_a_dropped_pooled_read_touches_no_other_memory(setup: Setup) {
    let late = drop_pooled_reads(&setup).await;
    assert!(late > 0, "no read was in flight when its future was dropped");
}

/// The same with delayed completions and an arena with few buffers: each buffer is returned exactly
/// once.
pub async fn one_late_pooled_buffers_return_once(setup: Setup) {
    drop_pooled_reads(&setup).await;
}

/// Drops reads in flight, takes memory of the same size for cached data, and checks that data when
/// the device is done. Returns how often reads were in flight when the memory was taken.
pub async fn drop_pooled_reads(setup: &Setup) -> usize {
    const LEN: u64 = 4 * PAGE as u64;
    let device = setup.file("device", &vec![0x3c; 256 * PAGE], true).await;
    let cached = setup.file("cached", &vec![0x5a; 16 * PAGE], false).await;
    let mut late = 0;
    for number in 0..1000 {
        let reads = (0..2).map(|read| {
            Box::pin(device.read((number + read) % 64 * LEN..((number + read) % 64 + 1) * LEN))
        });
        let mut reads: Vec<_> = reads.collect();
        for read in &mut reads {
            _ = poll_immediate(read).await;
        }
        drop(reads);
        let others = join_all((0..4).map(|at| cached.read(at * LEN..(at + 1) * LEN))).await;
        late += usize::from(setup.counts().in_flight > 0);
        setup.until_idle().await;
        for other in others {
            let other = other.unwrap();
            assert!(
                other.len() as u64 == LEN && other.iter().all(|byte| *byte == 0x5a),
                "memory in use was overwritten"
            );
        }
        let again = device.read(0..LEN).await.unwrap();
        assert!(again.iter().all(|byte| *byte == 0x3c), "returned memory was overwritten");
        if late == 30 {
            break;
        }
    }
    late
}

pub async fn one_dropped_files_stay_open_for_the_kernel(setup: Setup) {
    let other = setup.file("other", &pattern(0, PAGE), true).await;
    for round in 0..30 {
        let name = format!("file-{round}");
        let file = setup.file(&name, &[], true).await;
        let written = poll_and_drop(file.write_at(filled(&[7; PAGE]), 0)).await;
        drop(file);
        // These take the number of the descriptor if it is free.
        let others: Vec<_> = (0..4)
            .map(|_| std::fs::File::options().write(true).open(setup.path("other")).unwrap())
            .collect();
        setup.until_idle().await;
        drop(others);
        let content = std::fs::read(setup.path(&name)).unwrap();
        assert!(content == [7; PAGE] || (content.is_empty() && written.is_none()));
    }
    assert_eq!(&other.read(0..PAGE as u64).await.unwrap()[..], pattern(0, PAGE));
}

pub async fn three_a_dropped_read_consumes_nothing(setup: Setup) {
    let (reader, writer) = setup.pipe();
    let before = setup.counts();
    for _ in 0..20 {
        let mut read = Box::pin(reader.read_at(vec![0; 100], Position::Current));
        assert_eq!(setup.submit(&mut read).await, 0);
        let parts = vec![vec![0; 10], vec![0; 10]];
        let mut read = Box::pin(reader.read_vectored_at(parts, Position::Current));
        assert_eq!(setup.submit(&mut read).await, 0);
    }
    setup.until_idle().await;
    let after = setup.counts();
    assert_eq!((after.pushed - before.pushed, after.orphaned - before.orphaned), (40, 40));
    put(&writer, b"text");
    let (read, buffer) = reader.read_at(vec![0; 100], Position::Current).await;
    assert_eq!((read.unwrap(), &buffer[..4]), (4, &b"text"[..]), "a dropped read took bytes");
    // A future that was never polled has submitted nothing.
    drop(reader.read_at(vec![0; 100], Position::Current));
    assert_eq!(setup.counts().pushed, after.pushed + 1);
}

pub async fn three_a_dropped_open_leaves_nothing_open(setup: Setup) {
    let path = setup.path("fifo");
    fifo(&path);
    let options = OpenOptions::new().read(true).engine(&setup.engine).clone();
    // The open waits for a writer and is dropped. A thread in open(2) cannot be cancelled, so there
    // a writer must come. On io_uring the open succeeds at once, without a writer; see
    // `an_open_of_a_fifo_waits_for_its_other_end`.
    let opened = poll_and_drop(options.open(&path)).await;
    assert!(
        opened.is_none() || setup.kind == BackendKind::Uring,
        "the FIFO has no writer yet: {opened:?}"
    );
    drop(opened);
    until("the open to complete", || {
        has_reader(&path);
        setup.engine.reap();
        setup.counts().in_flight == 0
    })
    .await;
    until("a dropped open to be closed", || !has_reader(&path)).await;
    // A dropped open closes its descriptor, sooner or later: no writer finds a reader then.
    let nonblocking = options.clone().custom_flags(libc::O_NONBLOCK).clone();
    for _ in 0..50 {
        drop(poll_and_drop(nonblocking.open(&path)).await);
    }
    setup.until_idle().await;
    until("the reader to be closed", || !has_reader(&path)).await;
}

/// Futures of several steps, dropped after each possible number of polls.
pub async fn three_dropping_at_any_poll(setup: Setup) {
    let file = setup.file("any", &pattern(0, 64 * PAGE), true).await;
    let (reader, _writer) = setup.pipe();
    for polls in 0..12 {
        let work = async {
            // To write, so that the open is an operation.
            let mut options = OpenOptions::new();
            options.read(true).write(true).engine(&setup.engine);
            let other = options.open(setup.path("any")).await?;
            let ranges: Vec<_> = (0..20).map(|at| at * 9000..at * 9000 + 100).collect();
            let parts = file.read_ranges_each(&ranges, Coalesce::never()).await?;
            for (part, range) in parts.into_iter().zip(&ranges) {
                assert_eq!(part?[..], pattern(range.start, 100));
            }
            let (read, buffer) = file.read_exact_at(vec![0; 5000], 3).await;
            read?;
            assert_eq!(buffer, pattern(3, 5000));
            other.sync_all().await?;
            other.close().await?;
            reader.read_at(vec![0; 1], Position::Current).await.0
        };
        let mut work = pin!(work);
        for _ in 0..polls {
            if let Some(result) = poll_immediate(&mut work).await {
                panic!("a read of an empty pipe completed: {result:?}");
            }
            yield_once().await;
        }
    }
    setup.until_idle().await;
}

pub async fn four_every_submission_is_answered_once(setup: Setup) {
    let file = setup.file("once", &pattern(0, 64 * PAGE), true).await;
    let (reader, _writer) = setup.pipe();
    let before = setup.counts();
    let (mut awaited, mut pushed) = (0, 0);
    for round in 0..30u64 {
        let mut kept = Vec::new();
        for number in 0..10 {
            let at = (round * 7 + number) % 64 * PAGE as u64;
            let mut read = Box::pin(file.read_at(aligned(PAGE), at));
            match number % 3 {
                0 => kept.push((at, read)),
                1 => {
                    pushed += 1;
                    awaited += setup.submit(&mut read).await;
                }
                _ => drop(read),
            }
        }
        pushed += kept.len() as u64;
        awaited += kept.len() as u64;
        let (places, reads): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
        for (at, (read, buffer)) in places.into_iter().zip(join_all(reads).await) {
            assert_eq!((read.unwrap(), &buffer[..]), (PAGE, &pattern(at, PAGE)[..]));
        }
        pushed += 1;
        let mut read = Box::pin(reader.read_at(vec![0; 1], Position::Current));
        assert_eq!(setup.submit(&mut read).await, 0, "an empty pipe was read");
    }
    setup.until_idle().await;
    let after = setup.counts();
    assert_eq!(after.pushed - before.pushed, pushed);
    assert_eq!(after.delivered - before.delivered, awaited);
    assert_eq!(after.orphaned - before.orphaned, pushed - awaited);
}

/// A dropped read frees its slot for another operation, which must not get the late completion.
pub async fn four_a_late_completion_reaches_no_other_operation(setup: Setup) {
    let file = setup.file("late", &pattern(0, 256 * PAGE), true).await;
    for round in 0..60u64 {
        for number in 0..4 {
            _ = poll_and_drop(
                file.read_at(aligned(PAGE), (round * 5 + number) % 256 * PAGE as u64),
            )
            .await;
        }
        let places: Vec<u64> =
            (0..4).map(|number| (round * 11 + number * 3) % 250 * PAGE as u64).collect();
        let reads = places.iter().map(|at| file.read_at(aligned(2 * PAGE), *at));
        for (at, (read, buffer)) in places.iter().zip(join_all(reads).await) {
            assert_eq!((read.unwrap(), &buffer[..]), (2 * PAGE, &pattern(*at, 2 * PAGE)[..]));
        }
    }
}

pub async fn five_results_match_the_kernel(setup: Setup) {
    for direct in [false, true] {
        let content = pattern(0, 100_000);
        let file = setup.file("results", &content, direct).await;
        for range in
            [0..10, 10..10, 4090..4100, 99_999..100_001, 100_000..100_010, 1 << 40..(1 << 40) + 5]
        {
            let there = &content
                [content.len().min(range.start as usize)..content.len().min(range.end as usize)];
            assert_eq!(&file.read(range.clone()).await.unwrap()[..], there, "{range:?}");
            let (read, buffer) =
                file.read_at(vec![0; (range.end - range.start) as usize], range.start).await;
            assert_eq!(&buffer[..read.unwrap()], there, "{range:?}");
        }
        let ranges = [70_000..70_100, 5..9, 99_990..200_000, 5..5];
        for (part, range) in file.read_ranges(&ranges).await.unwrap().iter().zip(&ranges) {
            assert_eq!(
                &part[..],
                &content[range.start as usize..content.len().min(range.end as usize)]
            );
        }
        let (written, back) = file.write_at(filled(&[9; PAGE]), 2 * PAGE as u64).await;
        assert_eq!((written.unwrap(), &back[..]), (PAGE, &[9; PAGE][..]));
        let (written, _) = file
            .write_all_vectored_at(vec![filled(&[1; PAGE]), filled(&[2; PAGE])], 3 * PAGE as u64)
            .await;
        written.unwrap();
        let (read, parts) = file
            .read_all_vectored_at(vec![aligned(PAGE), aligned(2 * PAGE)], 2 * PAGE as u64)
            .await;
        assert_eq!(read.unwrap(), 3 * PAGE);
        assert!(
            parts[0].iter().all(|byte| *byte == 9)
                && parts[1][..PAGE].iter().all(|byte| *byte == 1)
        );
        file.sync_data().await.unwrap();
        file.set_len(50_000).await.unwrap();
        file.allocate(0, 60_000).await.unwrap();
        assert_eq!(file.metadata().await.unwrap().len(), 60_000);
        file.close().await.unwrap();
        assert_eq!(std::fs::read(setup.path("results")).unwrap()[2 * PAGE..3 * PAGE], [9; PAGE]);
    }
}

pub async fn five_errors_match_the_kernel(setup: Setup) {
    let open = OpenOptions::new().read(true).engine(&setup.engine).clone();
    assert_eq!(errno(open.open(setup.path("none")).await), libc::ENOENT);
    assert_eq!(errno(open.clone().write(true).open(setup.dir.path()).await), libc::EISDIR);
    assert_eq!(open.open("a\0b").await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let directory = open.open(setup.dir.path()).await.unwrap();
    assert_eq!(errno(directory.read(0..10).await), libc::EISDIR);
    let path = setup.path("file");
    std::fs::write(&path, pattern(0, 100)).unwrap();
    let file = open.open(&path).await.unwrap();
    let (written, buffer) = file.write_at(b"x".to_vec(), 0).await;
    assert_eq!((errno(written), &buffer[..]), (libc::EBADF, &b"x"[..]));
    assert_eq!(errno(file.set_len(1).await), libc::EINVAL);
    let (read, buffer) = file.read_exact_at(vec![0; 200], 50).await;
    assert_eq!(
        (read.unwrap_err().kind(), &buffer[..50]),
        (ErrorKind::UnexpectedEof, &pattern(50, 50)[..])
    );
    let backwards = std::ops::Range { start: 9, end: 3 };
    assert_eq!(file.read(backwards).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    for offset in [u64::MAX, u64::MAX - 1, 1 << 63] {
        assert_eq!(
            file.read_at(vec![0; 1], offset).await.0.unwrap_err().kind(),
            ErrorKind::InvalidInput,
            "{offset}"
        );
    }
    let (reader, writer) = setup.pipe();
    drop(reader);
    let writer = File::from_fd(writer.into(), &setup.engine);
    assert_eq!(errno(writer.write_at(vec![1], Position::Current).await.0), libc::EPIPE);
    let direct = setup.file("direct", &pattern(0, 2 * PAGE), true).await;
    let misaligned = direct.write_at(filled(&[0; PAGE]), 1).await.0.unwrap_err();
    assert_eq!(misaligned.kind(), ErrorKind::InvalidInput);
    assert!(
        misaligned.to_string().contains("512") || misaligned.to_string().contains("4096"),
        "{misaligned}"
    );
    let clone = direct.clone();
    assert_eq!(direct.close().await.unwrap_err().kind(), ErrorKind::InvalidInput);
    clone.close().await.unwrap();
}

/// Operations are cut short, interrupted and reordered: the `all` and `exact` functions still
/// transfer everything.
pub async fn six_short_transfers_are_continued(setup: Setup) {
    let content = pattern(0, 400_000);
    for direct in [false, true] {
        let file = setup.file("short", &[], direct).await;
        let len = content.len() / PAGE * PAGE;
        let chunk = 12 * PAGE;
        let writes = (0..len / chunk).map(|at| at * chunk);
        let writes =
            writes.map(|at| file.write_all_at(filled(&content[at..at + chunk]), at as u64));
        for (written, _) in join_all(writes).await {
            written.unwrap();
        }
        let len = len / chunk * chunk;
        assert!(std::fs::read(setup.path("short")).unwrap() == content[..len]);
        let places = (0..len / chunk).map(|at| at * chunk);
        let reads = places.clone().map(|at| file.read_exact_at(aligned(chunk), at as u64));
        for (at, (read, buffer)) in places.zip(join_all(reads).await) {
            read.unwrap();
            assert!(buffer[..] == content[at..at + chunk]);
        }
        assert_eq!(file.read(0..len as u64).await.unwrap()[..], content[..len]);
        let parts =
            file.read_ranges_each(&[7..50_000, 60_000..200_001], Coalesce::never()).await.unwrap();
        assert!(parts[0].as_ref().unwrap()[..] == content[7..50_000]);
        assert!(parts[1].as_ref().unwrap()[..] == content[60_000..200_001]);
    }
    let stats = setup.engine.stats();
    assert!(stats.retries > 0 && stats.continued > 0, "no fault was injected: {stats:?}");
}

/// First one read at a time, where each depends on its wakeup; then many at a time.
pub async fn seven_no_wakeup_is_lost(setup: Setup) {
    let file = setup.file("wake", &pattern(0, 64 * PAGE), true).await;
    for number in 0..200u64 {
        let (read, _) = file.read_at(aligned(PAGE), number % 64 * PAGE as u64).await;
        assert_eq!(read.unwrap(), PAGE);
        if number % 20 == 0 {
            file.sync_data().await.unwrap();
        }
    }
    let tasks = (0..20u64).map(|task| {
        let file = file.clone();
        setup.spawn(async move {
            for number in 0..50 {
                let at = (task * 7 + number) % 64 * PAGE as u64;
                let (read, buffer) = file.read_at(aligned(PAGE), at).await;
                assert_eq!((read.unwrap(), &buffer[..]), (PAGE, &pattern(at, PAGE)[..]));
            }
        })
    });
    join_all(tasks.collect::<Vec<_>>()).await;
}

/// Tasks pass a byte around through pipes: each waits for the completion of another.
pub async fn seven_tasks_wake_each_other(setup: Setup) {
    const TASKS: usize = 8;
    let (readers, mut writers): (Vec<_>, Vec<_>) = (0..TASKS).map(|_| setup.pipe()).unzip();
    writers.rotate_left(1);
    let tasks: Vec<_> = readers
        .into_iter()
        .zip(writers)
        .enumerate()
        .map(|(number, (reader, writer))| {
            let writer = File::from_fd(writer.into(), &setup.engine);
            setup.spawn(async move {
                if number == 0 {
                    writer.write_all_at(vec![0], Position::Current).await.0.unwrap();
                }
                for _ in 0..25 {
                    let (read, buffer) = reader.read_exact_at(vec![0; 1], Position::Current).await;
                    // The last task finds that the others have ended.
                    if read.is_err()
                        || writer
                            .write_all_at(vec![buffer[0] + 1], Position::Current)
                            .await
                            .0
                            .is_err()
                    {
                        return 0;
                    }
                }
                25
            })
        })
        .collect();
    let rounds: u32 = join_all(tasks).await.into_iter().sum();
    assert!(rounds >= 25 * (TASKS as u32 - 1), "{rounds}");
}

/// When two tasks poll a future one after the other, the second one is woken.
pub async fn seven_a_future_may_move_to_another_task(setup: Setup) {
    for _ in 0..20 {
        let (reader, writer) = setup.pipe();
        let mut read = Box::pin(async move { reader.read_at(vec![0; 4], Position::Current).await });
        assert!(poll_immediate(&mut read).await.is_none());
        let other = setup.spawn(read);
        let third = setup.spawn(async move {
            yield_once().await;
            put(&writer, b"text");
        });
        third.await;
        let (read, buffer) = other.await;
        assert_eq!((read.unwrap(), &buffer[..]), (4, &b"text"[..]));
    }
}

pub async fn eight_a_completion_frees_its_slot(setup: Setup) {
    let (reader, writer) = setup.pipe();
    // Two pipe reads fit in flight. These two do, and the third waits.
    let mut waiting: Vec<_> =
        (0..3).map(|_| Box::pin(reader.read_at(vec![0; 1], Position::Current))).collect();
    for read in &mut waiting {
        assert_eq!(setup.submit(read).await, 0);
    }
    // Another thread may be combining for the shard and submit them a moment later.
    until("two of the reads to be submitted", || setup.engine.stats().queued == 1).await;
    // A dropped read keeps its slot until the kernel has answered. Then the third read gets it.
    drop(waiting.remove(0));
    until("the third read to be submitted", || {
        setup.engine.reap();
        setup.counts();
        setup.engine.stats().queued == 0
    })
    .await;
    put(&writer, b"ab");
    let mut bytes: Vec<u8> = join_all(waiting)
        .await
        .into_iter()
        .map(|(read, buffer)| buffer[read.unwrap() - 1])
        .collect();
    bytes.sort();
    assert_eq!(bytes, b"ab");
    // A read that is dropped before it was submitted frees no slot, because it has none.
    let mut waiting: Vec<_> =
        (0..3).map(|_| Box::pin(reader.read_at(vec![0; 1], Position::Current))).collect();
    for read in &mut waiting {
        assert_eq!(setup.submit(read).await, 0);
    }
    waiting.pop();
    until("the others to be submitted", || setup.engine.stats().queued == 0).await;
    assert_eq!(setup.counts().in_flight, 2);
    drop(waiting);
    setup.until_idle().await;
}

pub async fn nine_the_engine_explains_itself(setup: Setup) {
    let explanation = setup.engine.explain();
    assert_eq!((setup.engine.backend(), explanation.backend), (setup.kind, setup.kind));
    assert!(explanation.to_string().contains(setup.kind.name()), "{explanation}");
    for refusal in &explanation.refusals {
        assert!(!refusal.meaning.is_empty(), "{refusal}");
    }
    assert!(setup.engine.stats().refusals >= explanation.refusals.len());
}

/// Guarantee 5, where the kernel itself differs: io_uring first tries an open as if with
/// `O_NONBLOCK`. So an open for reading succeeds at once on io_uring, which is documented; an open
/// for writing waits as elsewhere.
#[test]
fn an_open_of_a_fifo_waits_for_its_other_end() {
    for kind in available() {
        let setup = Setup::new(kind, Executor::BlockOn, |builder| builder);
        setup.run(|setup| async move {
            for write in [false, true] {
                if !write && setup.kind == BackendKind::Uring {
                    continue;
                }
                let path = setup.path(if write { "write" } else { "read" });
                fifo(&path);
                let options =
                    OpenOptions::new().read(!write).write(write).engine(&setup.engine).clone();
                let mut open = Box::pin(options.open(&path));
                for _ in 0..20 {
                    let early = poll_immediate(&mut open).await;
                    assert!(early.is_none(), "{}, write: {write}: {early:?}", setup.kind);
                    std::thread::sleep(MS);
                }
                let _other = std::fs::File::options().read(true).write(true).open(&path).unwrap();
                open.await.unwrap();
            }
        });
    }
}
