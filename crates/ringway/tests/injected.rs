//! Errors of the system calls that an engine makes, a few times each: nobody but the engine notices
//! them, and no future hangs.

// Other systems have no such filters.
#![cfg(target_os = "linux")]

#[path = "../../ringway-core/tests/common/inject.rs"]
mod inject;

use inject::{Injector, Plan};
use ringway::fs::OpenOptions;
use ringway::{BackendKind, Engine};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// So long nothing may take, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(40);
const LEN: usize = 200_000;

#[derive(Clone, Copy, Debug)]
enum Executor {
    Tokio,
    /// Without an I/O driver: the engine's thread collects.
    Plain,
}

/// On a thread of its own, for which the filter is.
fn run(
    backend: BackendKind,
    executor: Executor,
    call: libc::c_long,
    plan: Plan,
    path: PathBuf,
) -> Result<u64, String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let Some(injector) = Injector::install(&[call]) else { return sender.send(Ok(0)) };
        let Ok(engine) = Engine::builder().backend(backend).shards(1).build() else {
            println!("skipped: no {backend}");
            return sender.send(Ok(0));
        };
        let mut result = Ok(());
        for _ in 0..3 {
            injector.set(Some(plan));
            let work = work(&engine, &path);
            let done = match executor {
                Executor::Tokio => tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .and_then(|runtime| runtime.block_on(work)),
                Executor::Plain => futures::executor::block_on(work),
            };
            injector.set(None);
            result = result.and(done.map_err(|error| error.to_string()));
        }
        sender.send(result.map(|()| injector.failed()))
    });
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| Err("it hangs".to_owned()))
}

async fn work(engine: &Engine, path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).engine(engine).open(path).await?;
    let reads = (0..16).map(|at| file.read(at * 1000..at * 1000 + 4096));
    for block in futures::future::try_join_all(reads).await? {
        assert_eq!((block.len(), block[0]), (4096, 7));
    }
    let content = file.read(0..LEN as u64).await?;
    assert!(content.len() == LEN && content.iter().all(|byte| *byte == 7));
    file.write_all_at(vec![7; 4096], 8192).await.0?;
    file.sync_data().await?;
    assert_eq!(engine.fs().metadata(path).await?.len(), LEN as u64);
    engine.sleep(Duration::from_millis(1)).await
}

/// How many calls succeed first, and how many fail then.
const SOME: &[(u64, u64)] = &[(0, 1), (0, 7), (1, 1), (2, 30), (5, 3)];
/// As under a filter.
const ALL: &[(u64, u64)] = &[(0, u64::MAX)];

fn matrix(name: &str, call: libc::c_long, errnos: &[i32], plans: &[(u64, u64)]) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; LEN]).unwrap();
    let (mut cases, mut failures, mut wrong) = (0, 0, Vec::new());
    for backend in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
        for executor in [Executor::Tokio, Executor::Plain] {
            for &errno in errnos {
                for &(after, count) in plans {
                    cases += 1;
                    let plan = Plan { after, count, errno };
                    match run(backend, executor, call, plan, path.clone()) {
                        Ok(failed) => failures += failed,
                        Err(error) => {
                            wrong.push(format!("{backend} {executor:?} {plan:?}: {error}"))
                        }
                    }
                }
            }
        }
    }
    println!("{name}: {cases} cases, {failures} errors injected, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

macro_rules! calls {
    ($($name:ident: $call:ident, $errnos:expr, $plans:expr;)*) => {$(
        #[test]
        fn $name() {
            matrix(stringify!($name), libc::$call, $errnos, $plans);
        }
    )*};
}

calls! {
    io_uring_enter: SYS_io_uring_enter,
        &[libc::EAGAIN, libc::EBUSY, libc::ENOMEM, libc::EINTR], SOME;
    io_submit: SYS_io_submit, &[libc::EAGAIN, libc::ENOMEM, libc::EPERM], SOME;
    io_uring_register: SYS_io_uring_register, &[libc::EAGAIN, libc::EPERM], SOME;
    preadv2: SYS_preadv2, &[libc::EPERM, libc::ENOSYS, libc::EINTR], SOME;
    pwritev2: SYS_pwritev2, &[libc::EPERM, libc::ENOSYS, libc::EINTR], SOME;
    statx: SYS_statx, &[libc::EPERM, libc::ENOSYS], SOME;
    openat2: SYS_openat2, &[libc::EPERM, libc::ENOSYS], ALL;
    threads: SYS_clone3, &[libc::EAGAIN], SOME;
    polls: SYS_ppoll, &[libc::EINTR], SOME;
}

/// What an engine needs beyond the descriptors of threads is missing: it uses threads.
#[test]
fn an_engine_that_cannot_be_polled_uses_threads() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; LEN]).unwrap();
    let work = move || {
        let Some(injector) = Injector::install(&[libc::SYS_eventfd2]) else { return };
        // The first is that of the engine's thread.
        injector.set(Some(Plan { after: 1, count: 1, errno: libc::EMFILE }));
        let engine = Engine::builder().shards(1).build().unwrap();
        assert_eq!(engine.explain().backend, BackendKind::Threads, "{}", engine.explain());
        futures::executor::block_on(work(&engine, &path)).unwrap();
        assert_eq!(injector.failed(), 1);
    };
    std::thread::spawn(work).join().unwrap();
}

/// Where no thread may be started, the error says so.
#[test]
fn an_engine_without_a_thread_is_explained() {
    let work = || {
        let Some(injector) = Injector::install(&[libc::SYS_clone3, libc::SYS_clone]) else {
            return;
        };
        injector.set(Some(Plan { after: 0, count: u64::MAX, errno: libc::EAGAIN }));
        let error = Engine::builder().shards(1).build().unwrap_err();
        assert_eq!(error.raw_os_error().or(build_errno(&error)), Some(libc::EAGAIN));
        assert!(error.to_string().contains("ulimit -u"), "{error}");
        injector.set(None);
    };
    std::thread::spawn(work).join().unwrap();
}

fn build_errno(error: &io::Error) -> Option<i32> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ringway::BuildError>());
    inner.map(ringway::BuildError::errno)
}
