//! Operations that never complete do not delay futures of other files, on any backend.

// On Linux only: the helpers in `common` use its interfaces (direct I/O, `/proc`, fork, seccomp).
// `portable.rs` has the tests for every system.
#![cfg(target_os = "linux")]

mod common;

use common::{BACKENDS, build_or_skip, multi_thread, poll_once, scratch, wait_readable};
use ringway::fs::{File, OpenOptions};
use ringway::{AlignedBuffer, BackendKind, Engine, FaultPlan, Position, Reaping};
use ringway_core::op::Opcode;
use ringway_core::{FaultStep, Late};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Long enough for any machine. Anything slower hangs.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Transfers that never complete, more than fit in flight: other files work meanwhile, and soon
/// without any delay.
#[test]
fn hung_transfers_do_not_delay_other_operations() {
    const HUNG: u64 = 300;
    let plan = (0..HUNG).fold(FaultPlan::new(0), |plan, number| {
        plan.late(FaultStep::Opcode(Opcode::Read, number), Late::Forever)
    });
    for kind in BACKENDS {
        let builder = Engine::builder().shards(1).faults(plan.clone());
        let Some(engine) = build_or_skip(kind, builder) else { continue };
        let dir = scratch();
        let path = dir.path().join("file");
        std::fs::write(&path, [7; 4096]).unwrap();
        let runtime = multi_thread(2);
        runtime.block_on(async {
            let mut direct = OpenOptions::new();
            direct.read(true).write(true).direct(true).engine(&engine);
            let file = direct.open(&path).await.unwrap();
            let hung: Vec<_> = (0..HUNG)
                .map(|_| {
                    let file = file.clone();
                    tokio::spawn(async move { file.read(0..4096).await.map(drop) })
                })
                .collect();
            while engine.stats().counts.pushed < HUNG {
                tokio::task::yield_now().await;
            }
            for _ in 0..20 {
                use_another_file(kind, &direct, &path).await;
            }
            // After a while the engine knows that all of them are hung, and reads no longer wait
            // to be submitted as a group.
            let mut at_once = 0;
            let until = Instant::now() + TIME_LIMIT;
            while at_once < 20 {
                assert!(Instant::now() < until, "{kind}: reads are delayed");
                let mut read = std::pin::pin!(file.read(0..4096));
                let mut cx = Context::from_waker(Waker::noop());
                if read.as_mut().poll(&mut cx).is_pending() {
                    at_once = if engine.stats().queued > 0 { 0 } else { at_once + 1 };
                    read.await.unwrap();
                } else {
                    at_once += 1;
                }
            }
            // Those beyond the device's queue were submitted by threads, which obey no plan.
            let (done, hung): (Vec<_>, Vec<_>) =
                hung.into_iter().partition(tokio::task::JoinHandle::is_finished);
            assert_eq!(engine.stats().counts.in_flight, hung.len() as u64);
            assert!(hung.len() > 100, "{kind}: {} are hung", hung.len());
            for read in done {
                read.await.unwrap().unwrap();
            }
            for read in &hung {
                read.abort();
            }
            for read in hung {
                assert!(read.await.unwrap_err().is_cancelled());
            }
        });
    }
}

/// The same in a program that reaps manually, whenever the engine's descriptor is readable.
#[test]
fn hung_transfers_do_not_delay_reads_with_manual_reaping() {
    const HUNG: u64 = 300;
    let plan = (0..HUNG).fold(FaultPlan::new(0), |plan, number| {
        plan.late(FaultStep::Opcode(Opcode::Read, number), Late::Forever)
    });
    let built = Engine::builder()
        .shards(1)
        .faults(plan)
        .reaping(Reaping::Manual)
        .close_wait(Duration::ZERO)
        .build();
    let engine = built.unwrap();
    let dir = scratch();
    let path = dir.path().join("file");
    std::fs::write(&path, [7; 4096]).unwrap();
    let direct =
        std::fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let file = ringway::fs::File::from_fd(direct.into(), &engine);
    let mut cx = Context::from_waker(Waker::noop());
    let mut hung: Vec<_> = (0..HUNG).map(|_| Box::pin(file.read(0..4096))).collect();
    assert!(hung.iter_mut().all(|read| read.as_mut().poll(&mut cx).is_pending()));
    let mut read = std::pin::pin!(file.read(0..4096));
    let block = loop {
        if let Poll::Ready(block) = read.as_mut().poll(&mut cx) {
            break block;
        }
        assert!(
            wait_readable(engine.readable().unwrap(), TIME_LIMIT),
            "a read is delayed: {:?}",
            engine.stats()
        );
        engine.reap();
    };
    assert_eq!(block.unwrap()[..], [7; 4096]);
}

/// An open, writes, reads and a sync of another file.
async fn use_another_file(kind: BackendKind, direct: &OpenOptions, path: &Path) {
    let all = async {
        let file = direct.open(path).await.unwrap();
        file.write_durable_at(aligned(), 0).await.0.unwrap();
        assert_eq!(&file.read(0..4096).await.unwrap()[..], [8; 4096]);
        assert_eq!(file.read(0..1).await.unwrap()[..], [8]);
        file.write_all_at(aligned(), 0).await.0.unwrap();
        file.sync_data().await.unwrap();
        assert_eq!(file.metadata().await.unwrap().len(), 4096);
    };
    assert!(tokio::time::timeout(TIME_LIMIT, all).await.is_ok(), "{kind}: other files are delayed");
}

fn aligned() -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new(4096, 4096);
    buffer.fill(8);
    buffer
}

/// A slow close of a file that only an operation still held delays nothing else.
#[test]
fn a_slow_close_does_not_delay_other_operations() {
    for kind in BACKENDS {
        // What the other thread does are operations.
        let builder = Engine::builder().shards(1).reaping(Reaping::Manual).try_cached(false);
        let Some(engine) = build_or_skip(kind, builder) else { continue };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        // The peer reads nothing, so closing the socket waits for the unsent data.
        ours.set_nonblocking(true).unwrap();
        while ours.write(&[0; 1 << 16]).is_ok() {}
        ours.set_nonblocking(false).unwrap();
        let linger = libc::linger { l_onoff: 1, l_linger: 2 * TIME_LIMIT.as_secs() as i32 };
        let len = size_of_val(&linger) as libc::socklen_t;
        // SAFETY: the option is a `linger` of that length.
        let set = unsafe {
            let option = (&raw const linger).cast();
            libc::setsockopt(ours.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, option, len)
        };
        assert_eq!(set, 0);
        let file = File::from_fd(ours.into(), &engine);
        let mut read = Box::pin(async move { file.read_at(vec![0; 1], Position::Current).await });
        assert!(poll_once(read.as_mut()).is_pending());
        assert_eq!(engine.stats().counts.in_flight, 1);
        // This thread closes the socket and waits.
        let closes = {
            let engine = engine.clone();
            std::thread::spawn(move || {
                drop(read);
                while engine.stats().counts.orphaned == 0 {
                    engine.reap();
                }
            })
        };
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            while engine.stats().counts.orphaned == 0 {
                std::thread::yield_now();
            }
            let mut read = pin!(async { engine.open("/etc/passwd").await?.read(0..1).await });
            let read = loop {
                match poll_once(read.as_mut()) {
                    Poll::Ready(read) => break read,
                    Poll::Pending => _ = engine.reap(),
                }
            };
            let _ = done.send(read.map(|read| read.len()));
        });
        let others = is_done.recv_timeout(TIME_LIMIT);
        drop(peer);
        assert_eq!(
            others.unwrap_or_else(|_| panic!("{kind}: the close delays others")).unwrap(),
            1
        );
        closes.join().unwrap();
    }
}
