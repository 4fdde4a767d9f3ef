//! Overload: more operations than fit in flight, operations that never complete, and futures that
//! are never polled again.

use crate::common::executor::Executor;
use crate::common::setup::Setup;
use crate::common::{
    MS, PAGE, direct, drop_cached_pages, fifo, has_reader, on_each_backend, pattern, put,
    reap_until_idle, until, wait_for,
};
use futures::future::{join_all, maybe_done, poll_immediate};
use ringway::fs::{File, OpenOptions};
use ringway::{AlignedBuffer, EngineBuilder, FaultPlan, Position};
use ringway_core::op::Opcode;
use ringway_core::{FaultStep, Late};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

fn page_buffer() -> AlignedBuffer {
    AlignedBuffer::new(PAGE, PAGE)
}

fn on_each_setup(
    name: &str,
    executor: Executor,
    engine: impl Fn(EngineBuilder) -> EngineBuilder,
    test: impl Fn(Setup),
) {
    on_each_backend(name, |kind| test(Setup::new(kind, executor, &engine)));
}

struct CompletionOrder {
    number: usize,
    order: Arc<Mutex<Vec<usize>>>,
}

impl Wake for CompletionOrder {
    fn wake(self: Arc<Self>) {
        self.order.lock().unwrap().push(self.number);
    }
}

/// A thousand reads with four in flight start in the order of their first polls. So when one has
/// completed, all before it have started, and at most three of those can still be in flight.
#[test]
fn waiting_for_a_free_slot_is_fair() {
    on_each_setup(
        "waiting_for_a_free_slot_is_fair",
        Executor::OwnLoop,
        |builder| builder.shards(1).in_flight(4),
        |setup| {
            let file = direct(&setup.engine, setup.dir.path(), 256);
            // Direct reads of cached pages may complete when they are submitted.
            drop_cached_pages(&setup.dir.path().join("direct"));
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut reads: Vec<_> = (0..1000)
                .map(|number| {
                    Box::pin(file.read_at(page_buffer(), number as u64 * 7 % 256 * PAGE as u64))
                })
                .collect();
            // A task that submits does not wake the others whose reads it finds complete. So a read
            // that completes in its own poll may come before their wakeups, but not before they
            // have started.
            let mut done = vec![false; 1000];
            for (number, read) in reads.iter_mut().enumerate() {
                let waker = Waker::from(Arc::new(CompletionOrder { number, order: order.clone() }));
                if read.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                    let queued = setup.engine.stats().queued;
                    assert_eq!(queued, 0, "{number} completed before {queued} reads had started");
                    done[number] = true;
                }
            }
            let woken = done.iter().filter(|done| !**done).count();
            wait_for("all reads", || {
                setup.engine.reap();
                order.lock().unwrap().len() == woken
            });
            let order = order.lock().unwrap();
            let mut first_missing = 0;
            for (rank, number) in order.iter().enumerate() {
                let before = (first_missing..*number).filter(|before| !done[*before]).count();
                assert!(
                    before <= 3,
                    "{number} was number {rank} to complete, with {before} earlier ones in flight"
                );
                assert!(!std::mem::replace(&mut done[*number], true), "{number} was woken twice");
                while first_missing < 1000 && done[first_missing] {
                    first_missing += 1;
                }
            }
            drop(reads);
            reap_until_idle(&setup.engine);
        },
    );
}

/// What never completes, as many as a large program may have.
#[derive(Clone, Copy, PartialEq)]
enum Endless {
    /// Reads of an empty pipe.
    PipeReads(usize),
    /// Opens of FIFOs whose other end is closed, of this many.
    Opens(usize, usize),
    Timers(usize),
    /// Syncs of a hung disk.
    Syncs(usize),
}

type Begun<'a> = Pin<Box<dyn Future<Output = Result<usize, i32>> + Send + 'a>>;

impl Endless {
    fn begin<'a>(self, setup: &'a Setup, pipe: &'a File, file: &'a File) -> Vec<Begun<'a>> {
        let errno = |error: std::io::Error| error.raw_os_error().unwrap();
        let one = move |number: usize| -> Begun<'a> {
            match self {
                Self::PipeReads(_) => Box::pin(async move {
                    pipe.read_at(vec![0; 1], Position::Current).await.0.map_err(errno)
                }),
                Self::Opens(_, fifos) => Box::pin(async move {
                    let mut options = OpenOptions::new();
                    let path = setup.path(&format!("fifo-{}", number % fifos));
                    let open = options.write(true).engine(&setup.engine).open(path);
                    open.await.map(|_| 0).map_err(errno)
                }),
                Self::Timers(_) => Box::pin(async move {
                    setup.engine.sleep(3_600_000 * MS).await.map(|()| 0).map_err(errno)
                }),
                Self::Syncs(_) => {
                    Box::pin(async move { file.sync_data().await.map(|()| 0).map_err(errno) })
                }
            }
        };
        let (Self::PipeReads(count) | Self::Timers(count) | Self::Syncs(count)) = self else {
            let Self::Opens(count, fifos) = self else { unreachable!() };
            (0..fifos).for_each(|number| fifo(&setup.path(&format!("fifo-{number}"))));
            return (0..count).map(one).collect();
        };
        (0..count).map(one).collect()
    }

    /// Begins all, uses another file, and drops them.
    async fn delays_nothing(self, setup: Setup) {
        let (pipe, writer) = setup.pipe();
        let file = setup.file("file", &pattern(0, 64 * PAGE), true).await;
        let mut begun = self.begin(&setup, &pipe, &file);
        for one in &mut begun {
            match poll_immediate(&mut *one).await {
                None => {}
                Some(Err(libc::EAGAIN)) if matches!(self, Self::Opens(..)) => {}
                Some(early) => panic!("it was not endless: {early:?}"),
            }
        }
        let other = setup.file("other", &pattern(0, 64 * PAGE), true).await;
        let reads = (0..200).map(|number| other.read_at(page_buffer(), number % 64 * PAGE as u64));
        assert!(join_all(reads).await.into_iter().all(|(read, _)| read.unwrap() == PAGE));
        if !matches!(self, Self::Syncs(_)) {
            other.sync_all().await.unwrap();
            other.sync_data().await.unwrap();
        }
        assert_eq!(other.metadata().await.unwrap().len(), 64 * PAGE as u64);
        setup.engine.fs().create_dir(setup.path("new")).await.unwrap();
        other.set_len(PAGE as u64).await.unwrap();
        other.close().await.unwrap();
        setup.engine.sleep(MS).await.unwrap();
        if let Self::PipeReads(count) = self {
            assert!(setup.counts().in_flight >= count as u64);
            // They still complete when there is data.
            put(&writer, &vec![7; count]);
            for read in join_all(begun).await {
                assert_eq!(read, Ok(1));
            }
            return;
        }
        drop(begun);
        until("all to be over", || {
            if let Self::Opens(_, fifos) = self {
                for number in 0..fifos {
                    _ = has_reader(&setup.path(&format!("fifo-{number}")));
                }
            }
            setup.counts().in_flight == 0
        })
        .await;
    }
}

/// Any number of operations that never complete delay no operation on other files, with each way to
/// reap: neither with few in flight nor with the default limits. Opens of FIFOs may be more than a
/// shard can have in flight (the queue limits those), or fewer than the engine has threads.
#[test]
fn endless_operations_delay_no_others() {
    use Executor::{OwnLoop, TokioCurrent, TokioThreads};
    for (executor, endless, in_flight) in [
        (TokioThreads, Endless::PipeReads(400), Some(4)),
        (OwnLoop, Endless::PipeReads(1024), None),
        (TokioCurrent, Endless::PipeReads(5000), None),
        (TokioThreads, Endless::Opens(1500, 1), None),
        (TokioThreads, Endless::Opens(12, 12), None),
        (TokioThreads, Endless::Timers(5000), None),
        (OwnLoop, Endless::Timers(5000), None),
        (TokioThreads, Endless::Syncs(2000), None),
        (OwnLoop, Endless::Syncs(2000), None),
    ] {
        let hangs = |plan: FaultPlan, sync| {
            plan.late(FaultStep::Opcode(Opcode::Fsync, sync), Late::Forever)
        };
        let engine = |builder: EngineBuilder| {
            let builder = builder.shards(1).close_wait(MS);
            match (in_flight, endless) {
                (Some(most), _) => builder.in_flight(most),
                (None, Endless::Syncs(_)) => {
                    builder.faults((0..3000).fold(FaultPlan::new(0), hangs))
                }
                _ => builder,
            }
        };
        on_each_setup("endless_operations_delay_no_others", executor, engine, |setup| {
            setup.run(move |setup| endless.delays_nothing(setup));
        });
    }
}

/// An operation frees its slot when it completes, whether or not anything polls its future.
#[test]
fn unpolled_futures_do_not_delay_others() {
    for executor in [Executor::TokioCurrent, Executor::Smol, Executor::OwnLoop] {
        on_each_setup(
            "unpolled_futures_do_not_delay_others",
            executor,
            |builder| builder.shards(1).in_flight(4).in_flight_pipes(4),
            |setup| {
                setup.run(|setup| async move {
                    let file = setup.file("file", &pattern(0, 64 * PAGE), true).await;
                    let mut forgotten: Vec<_> = (0..100)
                        .map(|_| Box::pin(maybe_done(file.read_at(page_buffer(), 0))))
                        .collect();
                    let mut synced: Vec<_> =
                        (0..20).map(|_| Box::pin(maybe_done(file.sync_data()))).collect();
                    for read in &mut forgotten {
                        _ = poll_immediate(read).await;
                    }
                    for sync in &mut synced {
                        _ = poll_immediate(sync).await;
                    }
                    let reads = (0..50u64)
                        .map(|number| file.read_at(page_buffer(), number % 64 * PAGE as u64));
                    assert!(
                        join_all(reads).await.into_iter().all(|(read, _)| read.unwrap() == PAGE)
                    );
                    file.metadata().await.unwrap();
                    // The forgotten futures have their results too.
                    for mut read in forgotten {
                        read.as_mut().await;
                        assert_eq!(read.as_mut().take_output().unwrap().0.unwrap(), PAGE);
                    }
                });
            },
        );
    }
}

/// One future has more reads than fit in flight, next to other futures.
#[test]
fn more_ranges_than_fit_in_flight() {
    on_each_setup(
        "more_ranges_than_fit_in_flight",
        Executor::TokioCurrent,
        |builder| builder.shards(1).in_flight(4),
        |setup| {
            setup.run(|setup| async move {
                let file = setup.file("file", &pattern(0, 256 * PAGE), true).await;
                let ranges: Vec<_> =
                    (0..256).map(|page| page * PAGE as u64 + 9..page * PAGE as u64 + 99).collect();
                let never = ringway::Coalesce::never();
                let all = join_all((0..4).map(|_| file.read_ranges_each(&ranges, never))).await;
                for parts in all {
                    for (part, range) in parts.unwrap().into_iter().zip(&ranges) {
                        assert_eq!(part.unwrap()[..], pattern(range.start, 90));
                    }
                }
                // Dropped in the middle.
                _ = poll_immediate(Box::pin(file.read_ranges_each(&ranges, never))).await;
                setup.until_idle().await;
            });
        },
    );
}
