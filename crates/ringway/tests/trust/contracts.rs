//! Guarantees 1 to 10 through the Rust API: one list of cases, run on each backend with each
//! executor. The number in the name of a case is that of its guarantee.

use crate::executor::{Executor, Work};
use crate::guarded::{PAGE, Pages};
use crate::watchdog::Watchdog;
use crate::world::{
    MS, World, direct, fifo, give_way, has_reader, is_cloexec, is_granted, pattern, put, until,
};
use futures::future::{join, join_all, maybe_done, poll_immediate};
use ringway::fs::{File, OpenOptions};
use ringway::{AlignedBuffer, BackendKind, Coalesce, EngineBuilder, FaultPlan, Position, Reaping};
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;

struct Case {
    name: &'static str,
    run: fn(World) -> Work,
    engine: fn(EngineBuilder) -> EngineBuilder,
}

macro_rules! cases {
    ($($name:ident $(on $engine:expr)?,)*) => {
        &[$(Case {
            name: stringify!($name),
            run: |world| Box::pin($name(world)),
            engine: cases!(@ $($engine)?),
        },)*]
    };
    (@) => { |builder| builder };
    (@ $engine:expr) => { $engine };
}

const CASES: &[Case] = cases! {
    one_dropped_transfers_keep_their_memory,
    one_a_dropped_pooled_read_leaves_others_memory_alone,
    one_a_dropped_pooled_read_comes_back_late on |builder| builder.fixed_buffers(4 * PAGE, 4).faults(FaultPlan::new(8).delay(500, 3).reorder(300)),
    one_dropped_files_stay_open_for_the_kernel,
    three_a_dropped_read_takes_nothing,
    three_a_dropped_open_leaves_nothing_open,
    three_dropping_at_any_poll,
    four_every_push_is_answered_once,
    four_a_late_answer_finds_nobody,
    five_results_are_the_kernels,
    five_errors_are_the_kernels,
    five_paths_are_the_kernels,
    six_short_transfers_are_continued on |builder| builder.faults(FaultPlan::new(6).short(500).retryable(200).delay(200, 3).reorder(300)),
    six_a_trickling_pipe_fills_a_buffer,
    seven_no_wake_up_is_lost,
    seven_tasks_wake_each_other,
    seven_a_future_may_move_to_another_task,
    seven_a_backend_that_fails_at_once on |builder| builder.faults(FaultPlan::new(0).enters(0)),
    seven_a_backend_that_fails_later on |builder| builder.shards(1).faults(FaultPlan::new(0).enters(5)),
    eight_room_comes_back_at_the_completion on |builder| builder.shards(1).in_flight(4).in_flight_pipes(2),
    eight_more_than_there_is_room_for on |builder| builder.in_flight(4),
    nine_the_engine_explains_itself,
    ten_descriptors_are_closed_on_exec,
};

fn run(kind: BackendKind, executor: Executor) {
    if !is_granted(kind) {
        return;
    }
    let wanted = std::env::var("RINGWAY_CASE").unwrap_or_default();
    let mut failed = Vec::new();
    for case in CASES.iter().filter(|case| case.name.contains(&wanted)) {
        let name = format!("{kind} {executor:?} {}", case.name);
        let _watch = Watchdog::new(&name);
        let passes = || World::new(kind, executor, case.engine).run(case.run);
        if catch_unwind(AssertUnwindSafe(passes)).is_err() {
            println!("FAILED {name}");
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

macro_rules! pairs {
    ($($module:ident $kind:ident { $($name:ident $executor:ident,)* })*) => {
        $(mod $module {
            $(#[test]
            fn $name() {
                super::run(ringway::BackendKind::$kind, crate::executor::Executor::$executor);
            })*
        })*
    };
    ($($module:ident $kind:ident,)*) => {
        pairs! {
            $($module $kind {
                tokio_threads TokioThreads,
                tokio_current TokioCurrent,
                tokio_local TokioLocal,
                smol Smol,
                block_on BlockOn,
                own_loop OwnLoop,
            })*
        }
    };
}

pairs! {
    uring Uring,
    kaio Kaio,
    threads Threads,
}

/// Polls a future once, and drops it unless it is ready.
async fn poll_and_drop<T>(future: impl Future<Output = T>) -> Option<T> {
    poll_immediate(pin!(future)).await
}

/// A buffer for direct I/O.
fn room(len: usize) -> AlignedBuffer {
    AlignedBuffer::new(len, PAGE)
}

fn filled(content: &[u8]) -> AlignedBuffer {
    let mut buffer = room(content.len());
    buffer.copy_from_slice(content);
    buffer
}

fn errno<T>(result: io::Result<T>) -> i32 {
    result.map(drop).expect_err("an error").raw_os_error().unwrap_or(0)
}

async fn seven_a_backend_that_fails_at_once(world: World) {
    everyone_is_answered(&world).await;
}

async fn seven_a_backend_that_fails_later(world: World) {
    everyone_is_answered(&world).await;
}

/// Tasks on an engine whose backend fails in the middle: operations in flight are answered, even
/// those that wait forever, and later ones too.
async fn everyone_is_answered(world: &World) {
    let answers =
        |errno: Option<i32>| matches!(errno, None | Some(libc::ECANCELED | libc::ESHUTDOWN));
    let file = direct(&world.engine, world.dir.path(), 16);
    let tasks: Vec<_> = (0..40u64)
        .map(|number| {
            let (file, (pipe, writer)) = (file.clone(), world.pipe());
            world.spawn(async move {
                // One read after the other: more than the backend completes before it fails.
                let reads = async {
                    let mut read = (Ok(0), room(PAGE));
                    for _ in 0..10 {
                        read = file.read_at(read.1, number % 16 * PAGE as u64).await;
                    }
                    read
                };
                let (read, waits) =
                    join(reads, pipe.read_at(vec![0u8; 64], Position::Current)).await;
                let closure = file.metadata().await;
                drop(writer);
                let errnos = [errno_of(&read.0), errno_of(&waits.0), errno_of(&closure)];
                (errnos, read.1.len(), waits.1.len())
            })
        })
        .collect();
    for (errnos, aligned, plain) in join_all(tasks).await {
        assert!(errnos.into_iter().all(answers) && errnos[1].is_some(), "{errnos:?}");
        assert_eq!((aligned, plain), (PAGE, 64), "the buffers come back");
    }
    // A read that no shard can submit any more.
    let (read, buffer) = file.read_at(room(PAGE), 0).await;
    assert!(answers(errno_of(&read)) && buffer.len() == PAGE);
    let text = world.engine.explain().to_string();
    assert!(text.contains("failed during use"), "{text}");
    assert!(world.engine.stats().failures > 0);
}

fn errno_of<T>(result: &io::Result<T>) -> Option<i32> {
    result.as_ref().err().map(|error| error.raw_os_error().unwrap_or(0))
}

async fn one_dropped_transfers_keep_their_memory(world: World) {
    let pages = Pages::default();
    let file = world.file("memory", &vec![0x5a; 256 * PAGE], true).await;
    for round in 0..40u64 {
        let reads =
            (0..8).map(|read| file.read_at(pages.lend(), (round * 8 + read) % 256 * PAGE as u64));
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
        give_way().await;
        drop(reads);
        pages.inspect(100 * MS);
    }
    world.quiet().await;
    std::thread::sleep(100 * MS);
    pages.inspect(100 * MS);
    let (out, inspected) = pages.tally();
    assert_eq!((out, inspected), (0, 320), "every buffer was freed, in the end");
}

/// The device cannot cancel a direct read: it writes to the buffer after the future was dropped.
/// The pool must not reuse that memory for others before then.
async fn one_a_dropped_pooled_read_leaves_others_memory_alone(world: World) {
    let late = drop_pooled_reads(&world).await;
    assert!(late > 0, "no read was on its way when its future went");
}

/// The same with delayed completions and an arena with few buffers: each buffer is returned exactly
/// once.
async fn one_a_dropped_pooled_read_comes_back_late(world: World) {
    drop_pooled_reads(&world).await;
}

/// Drops reads in flight, takes memory of the same size for cached data, and checks that data when
/// the device is done. Returns how often reads were in flight when the memory was taken.
async fn drop_pooled_reads(world: &World) -> usize {
    const LEN: u64 = 4 * PAGE as u64;
    let device = world.file("device", &vec![0x3c; 256 * PAGE], true).await;
    let cached = world.file("cached", &vec![0x5a; 16 * PAGE], false).await;
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
        late += usize::from(world.counts().in_flight > 0);
        world.quiet().await;
        for other in others {
            let other = other.unwrap();
            assert!(
                other.len() as u64 == LEN && other.iter().all(|byte| *byte == 0x5a),
                "memory in use was overwritten"
            );
        }
        let again = device.read(0..LEN).await.unwrap();
        assert!(again.iter().all(|byte| *byte == 0x3c), "memory that came back was overwritten");
        if late == 30 {
            break;
        }
    }
    late
}

async fn one_dropped_files_stay_open_for_the_kernel(world: World) {
    let innocent = world.file("innocent", &pattern(0, PAGE), true).await;
    for round in 0..30 {
        let name = format!("file-{round}");
        let file = world.file(&name, &[], true).await;
        let written = poll_and_drop(file.write_at(filled(&[7; PAGE]), 0)).await;
        drop(file);
        // These take the number of the descriptor if it is free.
        let others: Vec<_> = (0..4)
            .map(|_| std::fs::File::options().write(true).open(world.path("innocent")).unwrap())
            .collect();
        world.quiet().await;
        drop(others);
        let content = std::fs::read(world.path(&name)).unwrap();
        assert!(content == [7; PAGE] || (content.is_empty() && written.is_none()));
    }
    assert_eq!(&innocent.read(0..PAGE as u64).await.unwrap()[..], pattern(0, PAGE));
}

async fn three_a_dropped_read_takes_nothing(world: World) {
    let (reader, writer) = world.pipe();
    let before = world.counts();
    for _ in 0..20 {
        assert!(poll_and_drop(reader.read_at(vec![0; 100], Position::Current)).await.is_none());
        let parts = vec![vec![0; 10], vec![0; 10]];
        assert!(poll_and_drop(reader.read_vectored_at(parts, Position::Current)).await.is_none());
    }
    world.quiet().await;
    let after = world.counts();
    assert_eq!((after.pushed - before.pushed, after.orphaned - before.orphaned), (40, 40));
    put(&writer, b"text");
    let (read, buffer) = reader.read_at(vec![0; 100], Position::Current).await;
    assert_eq!(
        (read.unwrap(), &buffer[..4]),
        (4, &b"text"[..]),
        "none of the dropped ones took it"
    );
    // A future that was never polled has submitted nothing.
    drop(reader.read_at(vec![0; 100], Position::Current));
    assert_eq!(world.counts().pushed, after.pushed + 1);
}

async fn three_a_dropped_open_leaves_nothing_open(world: World) {
    let path = world.path("fifo");
    fifo(&path);
    let options = OpenOptions::new().read(true).engine(&world.engine).clone();
    // The open waits for a writer and is dropped. A thread in open(2) cannot be cancelled, so there
    // a writer must come. On io_uring the open succeeds at once, without a writer; see
    // `an_open_of_a_fifo_waits_for_its_other_end`.
    let opened = poll_and_drop(options.open(&path)).await;
    assert!(
        opened.is_none() || world.kind == BackendKind::Uring,
        "nobody writes to it yet: {opened:?}"
    );
    drop(opened);
    until("the open to be over", || {
        has_reader(&path);
        world.engine.reap();
        world.counts().in_flight == 0
    })
    .await;
    until("what an open that nobody waited for has opened to be closed", || !has_reader(&path))
        .await;
    // A dropped open closes its descriptor, sooner or later: no writer finds a reader then.
    let nonblocking = options.clone().custom_flags(libc::O_NONBLOCK).clone();
    for _ in 0..50 {
        drop(poll_and_drop(nonblocking.open(&path)).await);
    }
    world.quiet().await;
    until("the reader to be closed", || !has_reader(&path)).await;
}

/// Futures of several steps, dropped after each possible number of polls.
async fn three_dropping_at_any_poll(world: World) {
    let file = world.file("any", &pattern(0, 64 * PAGE), true).await;
    let (reader, _writer) = world.pipe();
    for polls in 0..12 {
        let work = async {
            let other = world.engine.open(world.path("any")).await?;
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
                panic!("a read of an empty pipe has ended: {result:?}");
            }
            give_way().await;
        }
    }
    world.quiet().await;
}

/// Polls an operation once. Returns how many operations were submitted (none if the task had to
/// yield first) and whether it was ready.
async fn polled_once<F: Future + Unpin>(world: &World, operation: &mut F) -> (u64, u64) {
    let before = world.counts().pushed;
    let was_ready = u64::from(poll_immediate(operation).await.is_some());
    let pushed = world.counts().pushed - before;
    assert!(was_ready <= pushed && pushed <= 1, "pushed {pushed}, ready {was_ready}");
    (pushed, was_ready)
}

async fn four_every_push_is_answered_once(world: World) {
    let file = world.file("once", &pattern(0, 64 * PAGE), true).await;
    let (reader, _writer) = world.pipe();
    let before = world.counts();
    let (mut awaited, mut pushed) = (0, 0);
    for round in 0..30u64 {
        let mut kept = Vec::new();
        for number in 0..10 {
            let at = (round * 7 + number) % 64 * PAGE as u64;
            let mut read = Box::pin(file.read_at(room(PAGE), at));
            match number % 3 {
                0 => kept.push((at, read)),
                1 => {
                    let (count, was_ready) = polled_once(&world, &mut read).await;
                    pushed += count;
                    awaited += was_ready;
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
        let (count, was_ready) =
            polled_once(&world, &mut Box::pin(reader.read_at(vec![0; 1], Position::Current))).await;
        pushed += count;
        assert_eq!(was_ready, 0, "an empty pipe was read");
    }
    world.quiet().await;
    let after = world.counts();
    assert_eq!(after.pushed - before.pushed, pushed);
    assert_eq!(after.delivered - before.delivered, awaited);
    assert_eq!(after.orphaned - before.orphaned, pushed - awaited);
}

/// A dropped read frees its slot for another operation, which must not get the late completion.
async fn four_a_late_answer_finds_nobody(world: World) {
    let file = world.file("late", &pattern(0, 256 * PAGE), true).await;
    for round in 0..60u64 {
        for number in 0..4 {
            _ = poll_and_drop(file.read_at(room(PAGE), (round * 5 + number) % 256 * PAGE as u64))
                .await;
        }
        let places: Vec<u64> =
            (0..4).map(|number| (round * 11 + number * 3) % 250 * PAGE as u64).collect();
        let reads = places.iter().map(|at| file.read_at(room(2 * PAGE), *at));
        for (at, (read, buffer)) in places.iter().zip(join_all(reads).await) {
            assert_eq!((read.unwrap(), &buffer[..]), (2 * PAGE, &pattern(*at, 2 * PAGE)[..]));
        }
    }
}

async fn five_results_are_the_kernels(world: World) {
    for direct in [false, true] {
        let content = pattern(0, 100_000);
        let file = world.file("results", &content, direct).await;
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
        let (read, parts) =
            file.read_all_vectored_at(vec![room(PAGE), room(2 * PAGE)], 2 * PAGE as u64).await;
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
        assert_eq!(std::fs::read(world.path("results")).unwrap()[2 * PAGE..3 * PAGE], [9; PAGE]);
    }
}

async fn five_errors_are_the_kernels(world: World) {
    let open = OpenOptions::new().read(true).engine(&world.engine).clone();
    assert_eq!(errno(open.open(world.path("none")).await), libc::ENOENT);
    assert_eq!(errno(open.clone().write(true).open(world.dir.path()).await), libc::EISDIR);
    assert_eq!(open.open("a\0b").await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let folder = open.open(world.dir.path()).await.unwrap();
    assert_eq!(errno(folder.read(0..10).await), libc::EISDIR);
    let path = world.path("file");
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
    let (reader, writer) = world.pipe();
    drop(reader);
    let writer = File::from_fd(writer.into(), &world.engine);
    assert_eq!(errno(writer.write_at(vec![1], Position::Current).await.0), libc::EPIPE);
    let direct = world.file("direct", &pattern(0, 2 * PAGE), true).await;
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

/// Functions on paths use the global engine, on any executor.
async fn five_paths_are_the_kernels(world: World) {
    use ringway::fs;
    let (one, two) = (world.path("one"), world.path("two"));
    fs::write(&one, pattern(0, 10_000)).await.unwrap();
    assert_eq!(fs::read(&one).await.unwrap(), pattern(0, 10_000));
    fs::write_atomic(&one, b"new".to_vec()).await.unwrap();
    assert_eq!(fs::copy(&one, &two).await.unwrap(), 3);
    assert_eq!(fs::read_to_string(&two).await.unwrap(), "new");
    fs::rename(&two, world.path("three")).await.unwrap();
    assert!(
        !fs::try_exists(&two).await.unwrap() && fs::try_exists(world.path("three")).await.unwrap()
    );
    fs::create_dir_all(world.path("a/b/c")).await.unwrap();
    assert_eq!(errno(fs::remove_dir(world.path("a")).await), libc::ENOTEMPTY);
    assert_eq!(errno(fs::remove_file(&two).await), libc::ENOENT);
    fs::symlink("one", world.path("link")).await.unwrap();
    assert_eq!(fs::metadata(world.path("link")).await.unwrap().len(), 3);
    assert_eq!(fs::symlink_metadata(world.path("link")).await.unwrap().len(), "one".len() as u64);
}

/// Operations are cut short, interrupted and reordered: the `all` and `exact` functions still
/// transfer everything.
async fn six_short_transfers_are_continued(world: World) {
    let content = pattern(0, 400_000);
    for direct in [false, true] {
        let file = world.file("short", &[], direct).await;
        let len = content.len() / PAGE * PAGE;
        let chunk = 12 * PAGE;
        let writes = (0..len / chunk).map(|at| at * chunk);
        let writes =
            writes.map(|at| file.write_all_at(filled(&content[at..at + chunk]), at as u64));
        for (written, _) in join_all(writes).await {
            written.unwrap();
        }
        let len = len / chunk * chunk;
        assert!(std::fs::read(world.path("short")).unwrap() == content[..len]);
        let places = (0..len / chunk).map(|at| at * chunk);
        let reads = places.clone().map(|at| file.read_exact_at(room(chunk), at as u64));
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
    let stats = world.engine.stats();
    assert!(stats.retries > 0 && stats.continued > 0, "nothing was injected: {stats:?}");
}

async fn six_a_trickling_pipe_fills_a_buffer(world: World) {
    let (reader, writer) = world.pipe();
    let feeder = std::thread::spawn(move || {
        for at in 0..100u64 {
            put(&writer, &pattern(at * 10, 10));
            std::thread::sleep(MS / 4);
        }
    });
    let (read, buffer) = reader.read_exact_at(vec![0; 950], Position::Current).await;
    read.unwrap();
    assert_eq!(buffer, pattern(0, 950));
    feeder.join().unwrap();
    let (read, buffer) = reader.read_exact_at(vec![0; 100], Position::Current).await;
    assert_eq!(
        (read.unwrap_err().kind(), &buffer[..50]),
        (ErrorKind::UnexpectedEof, &pattern(950, 50)[..])
    );
}

/// First one read at a time, where each depends on its wakeup; then many at a time.
async fn seven_no_wake_up_is_lost(world: World) {
    let file = world.file("wake", &pattern(0, 64 * PAGE), true).await;
    for number in 0..200u64 {
        let (read, _) = file.read_at(room(PAGE), number % 64 * PAGE as u64).await;
        assert_eq!(read.unwrap(), PAGE);
        if number % 20 == 0 {
            file.sync_data().await.unwrap();
        }
    }
    let tasks = (0..20u64).map(|task| {
        let file = file.clone();
        world.spawn(async move {
            for number in 0..50 {
                let at = (task * 7 + number) % 64 * PAGE as u64;
                let (read, buffer) = file.read_at(room(PAGE), at).await;
                assert_eq!((read.unwrap(), &buffer[..]), (PAGE, &pattern(at, PAGE)[..]));
            }
        })
    });
    join_all(tasks.collect::<Vec<_>>()).await;
}

/// Tasks pass a byte around through pipes: each waits for the completion of another.
async fn seven_tasks_wake_each_other(world: World) {
    const ROUND: usize = 8;
    let (readers, mut writers): (Vec<_>, Vec<_>) = (0..ROUND).map(|_| world.pipe()).unzip();
    writers.rotate_left(1);
    let tasks: Vec<_> = readers
        .into_iter()
        .zip(writers)
        .enumerate()
        .map(|(number, (reader, writer))| {
            let writer = File::from_fd(writer.into(), &world.engine);
            world.spawn(async move {
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
    assert!(rounds >= 25 * (ROUND as u32 - 1), "{rounds}");
}

/// When two tasks poll a future one after the other, the second one is woken.
async fn seven_a_future_may_move_to_another_task(world: World) {
    for _ in 0..20 {
        let (reader, writer) = world.pipe();
        let mut read = Box::pin(async move { reader.read_at(vec![0; 4], Position::Current).await });
        assert!(poll_immediate(&mut read).await.is_none());
        let other = world.spawn(read);
        let third = world.spawn(async move {
            give_way().await;
            put(&writer, b"text");
        });
        third.await;
        let (read, buffer) = other.await;
        assert_eq!((read.unwrap(), &buffer[..]), (4, &b"text"[..]));
    }
}

async fn eight_room_comes_back_at_the_completion(world: World) {
    let (reader, writer) = world.pipe();
    // Two pipe reads fit in flight. These two do, and the third waits.
    let mut waiting: Vec<_> =
        (0..3).map(|_| Box::pin(reader.read_at(vec![0; 1], Position::Current))).collect();
    for read in &mut waiting {
        assert!(poll_immediate(read).await.is_none());
    }
    // Another thread may be combining for the shard and submit them a moment later.
    until("two of them to have room", || world.engine.stats().queued == 1).await;
    // A dropped read keeps its slot until the kernel has answered. Then the third read gets it.
    drop(waiting.remove(0));
    until("the third to have the room", || {
        world.engine.reap();
        world.counts();
        world.engine.stats().queued == 0
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
        assert!(poll_immediate(read).await.is_none());
    }
    waiting.pop();
    until("the others to have room", || world.engine.stats().queued == 0).await;
    assert_eq!(world.counts().in_flight, 2);
    drop(waiting);
    world.quiet().await;
}

async fn eight_more_than_there_is_room_for(world: World) {
    let file = world.file("more", &pattern(0, 256 * PAGE), true).await;
    let tasks = (0..10u64).map(|task| {
        let file = file.clone();
        world.spawn(async move {
            let places = (0..40).map(|number| (task * 40 + number) % 256 * PAGE as u64);
            let reads = places.clone().map(|at| file.read_at(room(PAGE), at));
            for (at, (read, buffer)) in places.zip(join_all(reads).await) {
                assert_eq!((read.unwrap(), &buffer[..]), (PAGE, &pattern(at, PAGE)[..]));
            }
        })
    });
    join_all(tasks.collect::<Vec<_>>()).await;
}

async fn nine_the_engine_explains_itself(world: World) {
    let explanation = world.engine.explain();
    assert_eq!((world.engine.backend(), explanation.backend), (world.kind, world.kind));
    assert!(explanation.to_string().contains(world.kind.name()), "{explanation}");
    for refusal in &explanation.refusals {
        assert!(!refusal.meaning.is_empty(), "{refusal}");
    }
    assert!(world.engine.stats().refusals >= explanation.refusals.len());
}

async fn ten_descriptors_are_closed_on_exec(world: World) {
    let file = world.file("exec", b"x", false).await;
    assert!(is_cloexec(&file));
    match world.executor.reaping() {
        Reaping::Manual => assert!(is_cloexec(world.engine.readable().unwrap())),
        _ => assert_eq!(errno(world.engine.readable()), libc::EOPNOTSUPP),
    }
}

/// Guarantee 5, where the kernel itself differs: io_uring first tries an open as if with
/// `O_NONBLOCK`. So an open for reading succeeds at once on io_uring, which is documented; an open
/// for writing waits as elsewhere.
#[test]
fn an_open_of_a_fifo_waits_for_its_other_end() {
    for kind in crate::world::granted() {
        let world = World::new(kind, Executor::BlockOn, |builder| builder);
        world.run(|world| async move {
            for write in [false, true] {
                if !write && world.kind == BackendKind::Uring {
                    continue;
                }
                let path = world.path(if write { "write" } else { "read" });
                fifo(&path);
                let options =
                    OpenOptions::new().read(!write).write(write).engine(&world.engine).clone();
                let mut open = Box::pin(options.open(&path));
                for _ in 0..20 {
                    let early = poll_immediate(&mut open).await;
                    assert!(early.is_none(), "{}, write: {write}: {early:?}", world.kind);
                    std::thread::sleep(MS);
                }
                let _other = std::fs::File::options().read(true).write(true).open(&path).unwrap();
                open.await.unwrap();
            }
        });
    }
}
