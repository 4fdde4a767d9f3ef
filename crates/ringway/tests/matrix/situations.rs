//! Situations that affect a whole process: limits, signals, forks, drops, full disks. Each runs in
//! a process of its own per backend. There each call runs with a buffered file and, where that
//! differs, with a direct file.

use crate::common::process::{in_child, is_root};
use crate::common::watchdog::Watchdog;
use crate::common::{
    BACKENDS, in_fork, is_available, places, poll_once, put, reap_until_idle, skip,
};
use crate::rows::{self, Effects, Fixture, Row};
use futures::executor::block_on;
use ringway::{BackendKind, BuildError, Engine, fs};
use ringway_torture::is_long;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

/// A permitted result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Success,
    Errno(i32),
    /// This signal ends the process.
    Killed(i32),
}

/// How a child of [`result_in_fork`] ended.
#[derive(Debug)]
struct Status(i32);

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if libc::WIFSIGNALED(self.0) {
            write!(f, "killed by signal {}", libc::WTERMSIG(self.0))
        } else {
            write!(f, "ended with status {:#x}", self.0)
        }
    }
}

impl std::error::Error for Status {}

/// The process of one situation on one backend, and the results in it.
struct Table {
    situation: &'static str,
    kind: BackendKind,
    results: usize,
    unexpected: Vec<String>,
}

use Share::{All, Third};

/// The calls of a backend: all, or one of three shares unless tests take their time.
#[derive(Clone, Copy, PartialEq)]
enum Share {
    All,
    Third,
}

impl Table {
    /// Runs `body` in a process of its own for each backend, which is also that of the global
    /// engine.
    fn each(situation: &'static str, body: impl Fn(&mut Table)) {
        Self::each_in(situation, |_| {}, body);
    }

    /// As [`each`](Self::each). `prepare` changes the command of the process.
    fn each_in(situation: &'static str, prepare: impl Fn(&mut Command), body: impl Fn(&mut Table)) {
        for kind in BACKENDS {
            if std::env::var("RINGWAY_BACKEND").is_ok_and(|chosen| chosen != kind.to_string())
                || !is_available(kind)
            {
                continue;
            }
            let prepare = |command: &mut Command| {
                prepare(command);
                command.env("RINGWAY_BACKEND", kind.to_string());
            };
            in_child(&format!("situations::{situation}"), prepare, || {
                let mut table = Table { situation, kind, results: 0, unexpected: Vec::new() };
                body(&mut table);
                println!("{situation}, {kind}: {} results", table.results);
                assert!(
                    table.unexpected.is_empty(),
                    "{situation}, {kind}:\n{}",
                    table.unexpected.join("\n")
                );
            });
        }
    }

    /// An engine for the calls. It makes sure that the global engine exists before the situation
    /// begins.
    fn engine(&self) -> Engine {
        Engine::global().unwrap();
        Engine::builder().backend(self.kind).shards(1).try_cached(false).build().unwrap()
    }

    /// Whether the call with a number is in the backend's share.
    fn is_in(&self, share: Share) -> impl Fn(usize) -> bool + use<> {
        let turn = BACKENDS.iter().position(|kind| *kind == self.kind);
        move |number| share == All || is_long() || Some(number % BACKENDS.len()) == turn
    }

    /// Runs each call in a fresh directory in `parent`, with each kind of file.
    fn rows(&mut self, share: Share, parent: &Path, mut run: impl FnMut(&mut Self, Row, Fixture)) {
        let (engine, is_mine) = (self.engine(), self.is_in(share));
        warm_up(&engine, self.kind, parent);
        for direct in [false, true] {
            if direct && !has_direct_io(parent) {
                skip("direct I/O on tmpfs: Linux 6.6");
                continue;
            }
            let rows = if direct { rows::files() } else { crate::all().collect() };
            for (_, row) in rows.into_iter().enumerate().filter(|(number, _)| is_mine(*number)) {
                let _watch =
                    Watchdog::new(&format!("{}, {}: {}", self.situation, self.kind, row.name));
                let dir = tempfile::tempdir_in(parent).unwrap();
                let before = descriptors();
                let fixture = Fixture::new(&engine, self.kind, dir.path(), direct);
                block_on(list(&fixture)).unwrap();
                wait_for_both(&engine);
                run(self, row, fixture);
                wait_for_both(&engine);
                wait_until_closed(&before);
            }
        }
    }

    /// Records a result, and whether it is one of the permitted ones.
    fn record(&mut self, row: &Row, result: &io::Result<()>, expected: &[Expected]) {
        let is_expected = match result {
            Ok(()) => expected.contains(&Expected::Success),
            Err(error) => {
                let inner = error.get_ref();
                let refused = inner.and_then(|inner| inner.downcast_ref::<BuildError>());
                let errno = error.raw_os_error().or(refused.map(BuildError::errno));
                match (errno, inner.and_then(|inner| inner.downcast_ref())) {
                    (Some(errno), _) => expected.contains(&Expected::Errno(errno)),
                    (None, Some(Status(status))) => {
                        expected.contains(&Expected::Killed(libc::WTERMSIG(*status)))
                    }
                    (None, None) => false,
                }
            }
        };
        let text = result.as_ref().map_or_else(ToString::to_string, |()| "Ok".to_owned());
        let line =
            format!("{:46} {:28} {:8} {text}", row.name, self.situation, self.kind.to_string());
        println!("{line}");
        self.results += 1;
        if !is_expected {
            self.unexpected.push(format!("{line}: expected {expected:?}"));
        }
    }
}

/// Whether the file system of a directory has direct I/O.
fn has_direct_io(dir: &Path) -> bool {
    // (Not every file system has unnamed files.)
    let named = tempfile::NamedTempFile::new_in(dir).unwrap();
    let file = std::fs::File::options().write(true).custom_flags(libc::O_DIRECT).open(named.path());
    match file {
        Ok(_) => true,
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => false,
        Err(error) => panic!("{}: {error}", dir.display()),
    }
}

/// Makes the engines open the descriptors that they open on first use. (A pipe may be ready at once
/// and a short timer over; this one is not.)
fn warm_up(engine: &Engine, kind: BackendKind, parent: &Path) {
    block_on(engine.sleep(Duration::from_millis(20))).unwrap();
    for row in rows::files()
        .iter()
        .filter(|row| row.name.ends_with("pipe") || row.name == "File::set_permissions")
    {
        let dir = tempfile::tempdir_in(parent).unwrap();
        let fixture = Fixture::new(engine, kind, dir.path(), false);
        block_on(list(&fixture)).unwrap();
        block_on((row.call)(fixture)).unwrap();
        wait_for_both(engine);
    }
}

/// Begins to list the directories, for calls that continue a listing.
async fn list(fixture: &Fixture) -> io::Result<()> {
    let mut other = fs::read_dir(fixture.at("full/of")).await?;
    let entry = other.next_entry().await?;
    let entries = fs::read_dir(fixture.at("full")).await?;
    let mut once = fixture.once.lock().unwrap();
    once.entry = entry;
    once.entries = Some(entries);
    Ok(())
}

/// The open descriptors of this process.
fn descriptors() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    // The descriptor of this listing is closed by now, and skipped.
    let mut open: Vec<_> =
        entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok()).collect();
    open.sort();
    open
}

/// Waits until no more descriptors are open than before.
fn wait_until_closed(before: &[PathBuf]) {
    let mut now = Vec::new();
    for _ in 0..10_000 {
        now = descriptors();
        if now.len() <= before.len() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("left open: {now:?}; before: {before:?}");
}

/// Waits until nothing is in flight on either engine.
fn wait_for_both(engine: &Engine) {
    reap_until_idle(engine);
    reap_until_idle(Engine::global().unwrap());
}

fn scratch_parent() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// The directory of a child of [`other_file_systems`].
const PLACE: &str = "RINGWAY_TEST_PLACE";

/// Where the calls run, unless `RINGWAY_FILE_SYSTEMS=all`.
const FEW: &[&str] = &["FUSE with short transfers", "overlayfs on disk"];

#[test]
fn other_file_systems() {
    let run = |dir: &Path| {
        let prepare = |command: &mut Command| _ = command.env(PLACE, dir);
        Table::each_in("other_file_systems", prepare, |table| {
            table.rows(Third, dir, |table, row, fixture| {
                table.record(&row, &block_on((row.call)(fixture)), &[Expected::Success]);
            });
        });
    };
    match std::env::var_os(PLACE) {
        Some(dir) => run(Path::new(&dir)),
        None => places::each(FEW, skip, |place| {
            println!("{}", place.name);
            run(&place.path());
        }),
    }
}

#[test]
fn normal() {
    Table::each("normal", |table| {
        table.rows(All, &scratch_parent(), |table, row, fixture| {
            table.record(&row, &block_on((row.call)(fixture)), &[Expected::Success]);
        });
    });
}

/// The engine handle and all other handles of the file are dropped while a call is in progress: the
/// call succeeds, and the engine closes afterwards.
#[test]
fn engine_dropped() {
    Table::each("engine_dropped", |table| {
        warm_up(Engine::global().unwrap(), table.kind, &scratch_parent());
        let is_mine = table.is_in(Third);
        for (_, row) in crate::all().enumerate().filter(|(number, _)| is_mine(*number)) {
            let _watch = Watchdog::new(row.name);
            let dir = tempfile::tempdir_in(scratch_parent()).unwrap();
            let before = descriptors();
            let fixture = Fixture::new(&table.engine(), table.kind, dir.path(), false);
            let mut call = (row.call)(fixture);
            let first = poll_once(call.as_mut());
            let result = match first {
                Poll::Ready(result) => result,
                Poll::Pending => block_on(call),
            };
            table.record(&row, &result, &[Expected::Success]);
            reap_until_idle(Engine::global().unwrap());
            wait_until_closed(&before);
        }
    });
}

/// The future is dropped after some polls. It leaves nothing behind, and the next call works.
#[test]
fn cancelled() {
    Table::each("cancelled", |table| {
        for polls in 1..4 {
            table.rows(Third, &scratch_parent(), |table, row, fixture| {
                let (dir, engine) = (fixture.dir.clone(), fixture.engine.clone());
                let mut call = (row.call)(fixture);
                let mut result = None;
                for poll in 0..polls {
                    if let Poll::Ready(done) = poll_once(call.as_mut()) {
                        result = Some(done);
                        break;
                    }
                    if poll + 1 < polls {
                        std::thread::sleep(Duration::from_micros(300));
                    }
                }
                drop(call);
                wait_for_both(&engine);
                let leftover = std::fs::read_dir(&*dir).unwrap().find_map(|entry| {
                    let name = entry.unwrap().file_name().into_string().unwrap();
                    name.ends_with(".tmp").then_some(name)
                });
                let result = match leftover {
                    Some(name) => Err(io::Error::other(format!("{name} was left behind"))),
                    None => result.unwrap_or(Ok(())),
                };
                table.record(&row, &result, &[Expected::Success]);
            });
        }
    });
}

#[test]
fn descriptor_limit() {
    // poll(2) accepts at most as many descriptors as the limit allows.
    const LIMIT: u64 = 4;
    Table::each("descriptor_limit", |table| {
        // Takes the descriptors below the limit before anything else opens. A loop is needed
        // because the engine may be closing a descriptor of the previous row.
        let mut taken: Vec<std::fs::File> = Vec::new();
        for _ in 0..1000 {
            let file = std::fs::File::open("/dev/null").unwrap();
            match (file.as_raw_fd() as u64) < LIMIT {
                true => taken.push(file),
                false if taken.len() as u64 >= LIMIT - 3 => break,
                false => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        table.rows(All, &scratch_parent(), |table, row, fixture| {
            let before = set_limit(libc::RLIMIT_NOFILE, LIMIT);
            let result = block_on((row.call)(fixture));
            set_limit(libc::RLIMIT_NOFILE, before);
            let opens = row.effects.has(Effects::OPEN) || row.effects.has(Effects::BUILD);
            let expected = if opens { Expected::Errno(libc::EMFILE) } else { Expected::Success };
            table.record(&row, &result, &[expected]);
        });
    });
}

/// Sets the soft limit and returns the old one.
fn set_limit(which: libc::__rlimit_resource_t, to: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live value, valid for writes during the call.
    assert_eq!(unsafe { libc::getrlimit(which, &raw mut limit) }, 0);
    let before = std::mem::replace(&mut limit.rlim_cur, to);
    // SAFETY: `limit` is a live value that the call only reads.
    assert_eq!(unsafe { libc::setrlimit(which, &raw const limit) }, 0);
    before
}

#[test]
fn disk_full() {
    if !is_root() {
        return skip("a full disk: mount(2) needs root");
    }
    Table::each("disk_full", |table| {
        // A new thread, because io-wq workers of this one would not see the mount.
        std::thread::scope(|scope| scope.spawn(|| full_disk(table)).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn full_disk(table: &mut Table) {
    let at = tempfile::tempdir_in(scratch_parent()).unwrap();
    let path = std::ffi::CString::new(at.path().to_str().unwrap()).unwrap();
    // SAFETY: the strings live through the calls. The mount is visible in this process only and
    // disappears with it.
    unsafe {
        assert_eq!(
            libc::unshare(libc::CLONE_FS | libc::CLONE_NEWNS),
            0,
            "{}",
            io::Error::last_os_error()
        );
        let none = std::ptr::null();
        let private = libc::MS_REC | libc::MS_PRIVATE;
        assert_eq!(libc::mount(none, c"/".as_ptr(), none, private, std::ptr::null()), 0);
        let size = c"size=512k".as_ptr().cast();
        assert_eq!(libc::mount(c"none".as_ptr(), path.as_ptr(), c"tmpfs".as_ptr(), 0, size), 0);
    }
    table.rows(All, at.path(), |table, row, fixture| {
        let filling = at.path().join("filling");
        let full =
            std::fs::write(&filling, vec![0; 1 << 20]).expect_err("the file system has 512 KiB");
        assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
        let result = block_on((row.call)(fixture));
        std::fs::remove_file(&filling).unwrap();
        let grows = row.effects.has(Effects::GROW);
        let expected = if grows { Expected::Errno(libc::ENOSPC) } else { Expected::Success };
        table.record(&row, &result, &[expected]);
    });
}

/// With the default SIGXFSZ action, such a write kills the process, as with the standard library;
/// if another thread than the caller's writes, it may return EFBIG.
#[test]
fn file_size_limit_with_default_signal() {
    Table::each("file_size_limit_with_default_signal", |table| {
        for (index, row) in
            crate::all().enumerate().filter(|(_, row)| row.effects.has(Effects::GROW))
        {
            let dir = tempfile::tempdir_in(scratch_parent()).unwrap();
            // Built in the child, because an engine belongs to the process that built it.
            let kind = table.kind;
            let result = result_in_fork(|| {
                let engine = Engine::builder().backend(kind).shards(1).build()?;
                let fixture = Fixture::new(&engine, kind, dir.path(), false);
                set_limit(libc::RLIMIT_FSIZE, 0);
                let row = crate::all().nth(index).ok_or(io::ErrorKind::NotFound)?;
                block_on((row.call)(fixture))
            });
            table.record(
                &row,
                &result,
                &[Expected::Errno(libc::EFBIG), Expected::Killed(libc::SIGXFSZ)],
            );
        }
    });
}

/// With SIGXFSZ ignored, a write beyond the limit returns EFBIG, as with the standard library.
#[test]
fn file_size_limit_with_ignored_signal() {
    Table::each("file_size_limit_with_ignored_signal", |table| {
        // SAFETY: SIG_IGN is a valid disposition and installs no handler.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        table.rows(All, &scratch_parent(), |table, row, fixture| {
            let before = set_limit(libc::RLIMIT_FSIZE, 0);
            let result = block_on((row.call)(fixture));
            set_limit(libc::RLIMIT_FSIZE, before);
            let grows = row.effects.has(Effects::GROW) || row.name == "File::set_len, longer";
            let expected = if grows { Expected::Errno(libc::EFBIG) } else { Expected::Success };
            table.record(&row, &result, &[expected]);
        });
    });
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Signals arrive constantly, and their handler restarts no system call.
#[test]
fn interrupted() {
    Table::each("interrupted", |table| {
        // SAFETY: an all-zero `sigaction` is valid, and the handler only increments an atomic,
        // which is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = count as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
        }
        // SAFETY: `pthread_self` takes nothing and cannot fail.
        let caller = unsafe { libc::pthread_self() };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // One signal for the process, which threads of the engines may receive, and one for
                // the calling thread.
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: the calls take numbers, and the thread outlives the scope.
                    unsafe {
                        libc::kill(libc::getpid(), libc::SIGUSR1);
                        libc::pthread_kill(caller, libc::SIGUSR1);
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
            let calls = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                table.rows(All, &scratch_parent(), |table, row, fixture| {
                    table.record(&row, &block_on((row.call)(fixture)), &[Expected::Success]);
                });
            }));
            over.store(true, Ordering::Relaxed);
            calls.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        println!("{} signals", SIGNALS.load(Ordering::Relaxed));
        assert!(SIGNALS.load(Ordering::Relaxed) > 100);
    });
}

/// Each call in a forked child: it returns at once with an error, and the parent's files and
/// engines are unaffected.
#[test]
fn forked_child() {
    Table::each("forked_child", |table| {
        table.rows(Third, &scratch_parent(), |table, row, fixture| {
            let before = fixture.engine.stats().counts;
            let result = result_in_fork(|| result_at_once((row.call)(fixture.clone()).as_mut()));
            let operation = row.effects.has(Effects::OPERATION);
            let expected =
                if operation { Expected::Errno(libc::ECHILD) } else { Expected::Success };
            table.record(&row, &result, &[expected]);
            assert_eq!(fixture.engine.stats().counts, before);
        });
    });
}

/// The process forks while each call is in progress: the call fails in the child and succeeds in
/// the parent. Where all operations have completed by the time of the fork, the child has their
/// results, and its call may succeed too.
#[test]
fn forked_during_a_call() {
    Table::each("forked_during_a_call", |table| {
        table.rows(Third, &scratch_parent(), |table, row, fixture| {
            let engines = [fixture.engine.clone(), Engine::global().unwrap().clone()];
            let mut call = (row.call)(fixture);
            if let Poll::Ready(result) = poll_once(call.as_mut()) {
                return table.record(&row, &result, &[Expected::Success]);
            }
            let result = result_in_fork(|| {
                let is_complete = engines.iter().all(|it| it.stats().counts.in_flight == 0);
                match result_at_once(call.as_mut()) {
                    Ok(()) if is_complete => Err(io::Error::from_raw_os_error(libc::ECHILD)),
                    result => result,
                }
            });
            table.record(&row, &result, &[Expected::Errno(libc::ECHILD)]);
            table.record(&row, &block_on(call), &[Expected::Success]);
        });
    });
}

/// The result of a call that does not wait.
fn result_at_once(call: Pin<&mut (dyn Future<Output = io::Result<()>> + Send)>) -> io::Result<()> {
    match poll_once(call) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::Error::other("the child waits for the parent's engine")),
    }
}

/// Runs `work` in a forked child and returns its result. A new thread forks: the child has its
/// thread-locals, so calls that the parent has made do not make a call of the child yield.
fn result_in_fork(work: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
    std::thread::scope(|scope| scope.spawn(|| result_in_fork_here(work)).join().unwrap())
}

fn result_in_fork_here(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let (mut reader, writer) = io::pipe()?;
    let status = in_fork(|| {
        let text = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
            Ok(Ok(())) => "0 ".to_owned(),
            Ok(Err(error)) => format!("{} {error}", error.raw_os_error().unwrap_or(-1)),
            Err(_) => "-1 it panics".to_owned(),
        };
        put(&writer, text.as_bytes());
    });
    drop(writer);
    let text = io::read_to_string(&mut reader)?;
    let Some((errno, text)) = text.split_once(' ') else {
        return Err(io::Error::other(Status(status)));
    };
    match errno.parse().map_err(io::Error::other)? {
        0 => Ok(()),
        -1 => Err(io::Error::other(text.to_owned())),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
