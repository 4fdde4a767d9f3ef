//! The same work in surroundings that other programs make: after a fork inside each kind of
//! runtime, in a user namespace, in threads that end, beside a file system that hangs, and in a
//! memory cgroup that is full.

use crate::common::process::{in_child, is_root, limit_memlock};
use crate::common::watchdog::Watchdog;
use crate::common::{
    BACKENDS, MS, PAGE, available, current_thread, in_fork, multi_thread, on_each_backend, pattern,
    poll_once, reap_until_idle, scratch, skip,
};
use futures::executor::block_on;
use futures::future::join_all;
use ringway::fs::{File, OpenOptions};
use ringway::{AlignedBuffer, BackendKind, Engine};
use ringway_core::refusal::Feature;
use ringway_hostile::Hostile;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PAGES: usize = 64;

/// Writes, syncs and reads files in `dir`, directly and through the page cache.
async fn work(engine: &Engine, dir: &Path) {
    for direct in [true, false] {
        let path = dir.join(format!("file{direct}"));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).direct(direct).engine(engine);
        let file = options.open(&path).await.unwrap();
        let mut content = AlignedBuffer::new(PAGES * PAGE, PAGE);
        content.copy_from_slice(&pattern(0, PAGES * PAGE));
        file.write_all_at(content, 0).await.0.unwrap();
        file.sync_data().await.unwrap();
        let pages = (0..PAGES as u64).map(|page| page * PAGE as u64);
        let reads = pages.map(async |at| {
            let (read, bytes) = file.read_exact_at(AlignedBuffer::new(PAGE, PAGE), at).await;
            read.unwrap();
            assert!(bytes[..] == pattern(at, PAGE), "other bytes at {at}");
        });
        join_all(reads).await;
        assert!(engine.fs().read(&path).await.unwrap() == pattern(0, PAGES * PAGE));
    }
}

fn build(kind: BackendKind) -> Engine {
    Engine::builder().backend(kind).build().unwrap()
}

/// Who polls.
#[derive(Clone, Copy, Debug)]
enum Runtime {
    None,
    CurrentThread,
    MultiThread,
}

const RUNTIMES: [Runtime; 3] = [Runtime::None, Runtime::CurrentThread, Runtime::MultiThread];

impl Runtime {
    fn run<T>(self, work: impl Future<Output = T>) -> T {
        match self {
            Self::None => block_on(work),
            Self::CurrentThread => current_thread().block_on(work),
            Self::MultiThread => multi_thread(2).block_on(work),
        }
    }
}

/// The child runs inside its parent's runtime, and on a thread of its own in a runtime of its own.
#[test]
fn after_a_fork_inside_each_kind_of_runtime() {
    const TEST: &str = "surroundings::after_a_fork_inside_each_kind_of_runtime";
    let hostile = Hostile::mount_or_skip(skip);
    let disk = scratch();
    let mut places: Vec<PathBuf> = vec![disk.path().to_owned()];
    places.extend(hostile.iter().map(Hostile::path));
    if let Some(dirs) = std::env::var_os("RINGWAY_TEST_DIRS") {
        places = std::env::split_paths(&dirs).collect();
    }
    let dirs = std::env::join_paths(&places).unwrap();
    let prepare = |command: &mut Command| _ = command.env("RINGWAY_TEST_DIRS", dirs);
    in_child(TEST, prepare, || {
        let mut count = 0;
        for kind in available() {
            for (outer, used) in RUNTIMES.into_iter().flat_map(|one| [(one, false), (one, true)]) {
                let _watch = Watchdog::new(&format!("{kind}, {outer:?}, used: {used}"));
                outer.run(async {
                    let parents = used.then(|| build(kind));
                    if let Some(engine) = &parents {
                        work(engine, &places[0]).await;
                    }
                    for dir in &places {
                        let inner = RUNTIMES[count % RUNTIMES.len()];
                        let status = in_fork(|| {
                            // This thread is inside the parent's runtime.
                            smol::block_on(work(&build(kind), dir));
                            let own = || inner.run(work(&build(kind), dir));
                            std::thread::scope(|scope| scope.spawn(own).join().unwrap());
                        });
                        count += 1;
                        let case = format!("{kind}, {outer:?}, {inner:?}, used: {used}");
                        assert_eq!(status, 0, "{case}, {}", dir.display());
                    }
                    if let Some(engine) = &parents {
                        work(engine, &places[0]).await;
                    }
                });
            }
        }
        println!("{count} forks");
    });
}

/// Root of a user namespace has CAP_IPC_LOCK, which does not count: the limit applies.
#[test]
fn in_a_user_namespace() {
    const INSIDE: &str = "RINGWAY_TEST_NAMESPACE";
    if std::env::var_os(INSIDE).is_some() {
        let _watch = Watchdog::new("in a user namespace");
        for (memlock, kind) in [None, Some(64 << 10), Some(0)]
            .into_iter()
            .flat_map(|memlock| BACKENDS.map(move |kind| (memlock, kind)))
        {
            if let Some(bytes) = memlock {
                limit_memlock(bytes);
            }
            let engine = match Engine::builder().backend(kind).build() {
                Ok(engine) => engine,
                Err(error) => {
                    let text = error.to_string();
                    assert!(!text.contains("does not apply"), "{text}");
                    Engine::builder().build().unwrap()
                }
            };
            let explanation = engine.explain().to_string();
            assert!(!explanation.contains("does not apply"), "{explanation}");
            println!("{memlock:?}: {explanation}");
            block_on(work(&engine, scratch().path()));
        }
        return;
    }
    if is_in_chroot() {
        return skip("the kernel makes no user namespace in a chroot");
    }
    let mut command = Command::new("unshare");
    command.arg("--map-root-user").arg(std::env::current_exe().unwrap());
    command.args(["--exact", "surroundings::in_a_user_namespace", "--nocapture"]).env(INSIDE, "1");
    match command.output() {
        Ok(child) => {
            let text = String::from_utf8_lossy(&child.stdout);
            if !text.contains("running 1 test") {
                return skip(&String::from_utf8_lossy(&child.stderr));
            }
            println!("{text}");
            assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        }
        Err(error) => skip(&format!("unshare: {error}")),
    }
}

/// Whether the root directory is not the root of a file system. (Whether it is that of the first
/// process may often not be seen.)
fn is_in_chroot() -> bool {
    // ext4 2, XFS 64 or 128, btrfs 256, others 1.
    const LARGEST_ROOT: u64 = 256;
    std::fs::metadata("/").is_ok_and(|root| root.ino() > LARGEST_ROOT)
}

/// Reads, writes and opens of a file system that answers nothing delay none elsewhere, whatever
/// polls them, and end when it answers.
#[test]
fn beside_a_frozen_file_system() {
    const FROZEN: usize = 100;
    on_each_backend("a frozen file system", |kind| {
        let Some(hostile) = Hostile::mount_or_skip(skip) else { return };
        let engine = build(kind);
        let dir = scratch();
        let path = hostile.path().join("file");
        std::fs::write(hostile.backing().join("file"), pattern(0, PAGES * PAGE)).unwrap();
        let files: Vec<File> = [true, false]
            .map(|direct| {
                let mut options = OpenOptions::new();
                options.read(true).write(true).direct(direct).engine(&engine);
                block_on(options.open(&path)).unwrap()
            })
            .to_vec();
        hostile.set("* read freeze\n* open freeze\n* write freeze\n* getattr freeze").unwrap();
        let begun = (0..FROZEN).map(|number| {
            let (file, engine, path) = (files[number % 2].clone(), engine.clone(), path.clone());
            Box::pin(async move {
                let at = (number % PAGES * PAGE) as u64;
                match number % 10 {
                    0 => engine.fs().read(path).await.map(drop),
                    1 => engine.fs().metadata(path).await.map(drop),
                    2 => {
                        let mut page = AlignedBuffer::new(PAGE, PAGE);
                        page.copy_from_slice(&pattern(at, PAGE));
                        file.write_all_at(page, at).await.0
                    }
                    _ => file.read_exact_at(AlignedBuffer::new(PAGE, PAGE), at).await.0,
                }
            })
        });
        let mut begun: Vec<_> = begun.collect();
        for operation in &mut begun {
            assert!(poll_once(operation.as_mut()).is_pending());
        }
        for runtime in RUNTIMES {
            runtime.run(async {
                let begin = std::time::Instant::now();
                work(&engine, dir.path()).await;
                let took = begin.elapsed();
                println!("{kind}, {runtime:?}: {took:.1?} beside {FROZEN} frozen operations");
                assert!(took < Duration::from_secs(20), "{runtime:?}: {took:?}");
            });
        }
        hostile.set("clear").unwrap();
        for result in block_on(join_all(begun)) {
            result.unwrap();
        }
        drop(files);
        reap_until_idle(&engine);
    });
}

/// A memory cgroup of this process alone, removed when it is dropped.
struct Cgroup {
    dir: PathBuf,
    limit: &'static str,
    /// Mounted by the test, where a chroot has no cgroups.
    mount: Option<tempfile::TempDir>,
}

impl Cgroup {
    fn new() -> std::io::Result<Self> {
        let name = format!("ringway-test-{}", std::process::id());
        let unified = Path::new("/sys/fs/cgroup");
        let has_memory = std::fs::read_to_string(unified.join("cgroup.subtree_control"))
            .is_ok_and(|controllers| controllers.contains("memory"));
        let (root, limit) = if has_memory {
            (unified.to_owned(), "memory.max")
        } else {
            (unified.join("memory"), "memory.limit_in_bytes")
        };
        let mut cgroup = Self { dir: root.join(name), limit, mount: None };
        if !root.is_dir() {
            cgroup.mount()?;
        }
        std::fs::create_dir(&cgroup.dir)?;
        Ok(cgroup)
    }

    fn mount(&mut self) -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        for (kind, limit) in
            [(["cgroup", "-omemory"], "memory.limit_in_bytes"), (["cgroup2", "-orw"], "memory.max")]
        {
            let mount =
                Command::new("mount").arg("-t").args(kind).arg("none").arg(dir.path()).output()?;
            if mount.status.success() {
                let name = self.dir.file_name().unwrap();
                (self.dir, self.limit) = (dir.path().join(name), limit);
                self.mount = Some(dir);
                return Ok(());
            }
        }
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn join(&self, process: u32) -> std::io::Result<()> {
        std::fs::write(self.dir.join("cgroup.procs"), process.to_string())
    }

    fn is_version_1(&self) -> bool {
        self.limit == "memory.limit_in_bytes"
    }

    fn limit(&self, bytes: u64) -> std::io::Result<()> {
        std::fs::write(self.dir.join(self.limit), bytes.to_string())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.dir);
        if let Some(mount) = &self.mount {
            let _ = Command::new("umount").arg(mount.path()).output();
        }
    }
}

/// Reads and writes of more than a memory cgroup holds all end with their results: the page cache
/// is reclaimed meanwhile, and what the kernel refuses for lack of memory is submitted again.
#[test]
fn in_a_full_memory_cgroup() {
    const INSIDE: &str = "RINGWAY_TEST_CGROUP";
    const VERSION_1: &str = "RINGWAY_TEST_CGROUP_1";
    const LIMIT: u64 = 48 << 20;
    const LEN: usize = 96 << 20;
    const BLOCK: usize = 1 << 20;
    if let Some(kind) = std::env::var_os(INSIDE) {
        // The parent answers when this process is in the cgroup.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let kind = BACKENDS.into_iter().find(|one| kind == *one.to_string()).unwrap();
        let _watch = Watchdog::new(&format!("{kind} in a full memory cgroup"));
        let engine = build(kind);
        let dir = scratch();
        block_on(async {
            for direct in [false, true] {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).direct(direct).engine(&engine);
                let file = options.open(dir.path().join("file")).await.unwrap();
                for at in (0..LEN).step_by(8 * BLOCK) {
                    let blocks = (0..8).map(|block| at + block * BLOCK);
                    let blocks = blocks.map(async |at| {
                        let mut block = AlignedBuffer::new(BLOCK, PAGE);
                        block.fill((at / BLOCK) as u8);
                        let (written, block) = file.write_all_at(block, at as u64).await;
                        written.unwrap();
                        let (read, block) = file.read_exact_at(block, at as u64).await;
                        read.unwrap();
                        assert!(block.iter().all(|byte| *byte == (at / BLOCK) as u8));
                    });
                    join_all(blocks).await;
                }
            }
        });
        reap_until_idle(&engine);
        let counts = crate::common::counts(&engine);
        println!("{kind}: {counts:?}");
        // There the kernel's workers would not wait for memory: it may kill the process.
        let by_threads = kind == BackendKind::Uring && std::env::var_os(VERSION_1).is_some();
        let refusals = engine.explain().refusals;
        let refused = refusals.iter().any(|one| one.feature == Feature::CachedByIoWq);
        assert_eq!(refused, by_threads, "{refusals:?}");
        return;
    }
    if !is_root() {
        return skip("only root makes cgroups");
    }
    for kind in available() {
        let cgroup = match Cgroup::new() {
            Ok(cgroup) => cgroup,
            Err(error) => return skip(&format!("no memory cgroup: {error}")),
        };
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "surroundings::in_a_full_memory_cgroup", "--nocapture"])
            .env(INSIDE, kind.to_string())
            .stdin(std::process::Stdio::piped());
        if cgroup.is_version_1() {
            child.env(VERSION_1, "1");
        }
        let mut child = child.spawn().unwrap();
        let joined = cgroup.join(child.id()).and_then(|()| cgroup.limit(LIMIT));
        if let Err(error) = joined {
            let _ = child.kill();
            let _ = child.wait();
            return skip(&format!("the memory cgroup takes no limit: {error}"));
        }
        drop(child.stdin.take());
        let status = child.wait().unwrap();
        // The kernel counts a process's end for a moment.
        std::thread::sleep(20 * MS);
        assert!(status.success(), "{kind}: {status}");
    }
}
