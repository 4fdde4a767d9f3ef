//! Writes that fail half-way: the error has the path, the old object is kept, and no staged file is
//! left.

use super::object_store::local::LocalFileSystem;
use super::object_store::path::Path;
use super::object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion, WriteMultipart,
};
use super::{RELEASE, RingwayFileSystem};
use crate::common::{
    BACKENDS, build_or_skip, engines, mount_tmpfs, names, runtime, scratch, until_idle,
    until_unstaged,
};
use crate::process::{become_ordinary, in_child};
use futures::StreamExt;
use ringway::{BackendKind, Engine, EngineBuilder};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path as FilePath;
use std::time::Duration;
use tokio::time::timeout;

/// Longer than any write takes.
const LONG: Duration = Duration::from_secs(60);
/// Content for which the file systems of these tests have no space.
const LARGE: usize = 8 << 20;

fn store(dir: &FilePath, engine: &Engine) -> RingwayFileSystem {
    RingwayFileSystem::new_with_prefix(dir).unwrap().with_engine(engine)
}

/// Writes of every kind and of this many bytes fail with this error and change nothing. The
/// directory has `object`.
async fn all_fail(engine: &Engine, dir: &FilePath, len: usize, errno: i32) {
    let large = || vec![7; len];
    let store = store(dir, engine);
    let path = Path::from("object");
    let check = |error: Error| {
        let text = error.to_string();
        assert!(text.contains(&format!("os error {errno}")), "{text}");
        assert!(text.contains(dir.join("object").to_str().unwrap()), "{text}");
    };
    let e_tag = store.head(&path).await.unwrap().e_tag;
    let update = PutMode::Update(UpdateVersion { e_tag, version: None });
    for mode in [PutMode::Overwrite, PutMode::Create, update] {
        check(store.put_opts(&path, large().into(), mode.into()).await.unwrap_err());
    }
    let mut upload = store.put_multipart(&path).await.unwrap();
    upload.put_part("small".into()).await.unwrap();
    check(upload.put_part(large().into()).await.unwrap_err());
    upload.complete().await.unwrap_err();
    upload.abort().await.unwrap();
    assert_eq!(names(dir), ["object"], "a staged file is left after an error");
    let mut writer = WriteMultipart::new(store.put_multipart(&path).await.unwrap());
    writer.write(&large());
    check(writer.finish().await.unwrap_err());
    until_idle(engine).await;
    until_unstaged(dir).await;
    assert_eq!(std::fs::read(dir.join("object")).unwrap(), b"old");
}

#[test]
fn a_file_that_may_not_grow() {
    in_child(
        &format!("{RELEASE}::failures::a_file_that_may_not_grow"),
        |_| {},
        || {
            // Also for objects that are written by one call.
            for (limit, len) in [(1 << 20, LARGE), (1000, 4096)] {
                let limit = libc::rlimit { rlim_cur: limit, rlim_max: 1 << 20 };
                // SAFETY: the limit is a live value that is only read; ignoring a signal is safe.
                unsafe {
                    libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                    assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
                }
                for engine in engines() {
                    let dir = scratch();
                    std::fs::write(dir.path().join("object"), b"old").unwrap();
                    runtime().block_on(all_fail(&engine, dir.path(), len, libc::EFBIG));
                }
            }
        },
    );
}

#[test]
fn a_full_disk() {
    in_child(
        &format!("{RELEASE}::failures::a_full_disk"),
        |_| {},
        || {
            let dir = scratch();
            if let Err(error) = mount_tmpfs(dir.path(), Some(c"size=4m")) {
                return println!("skipped: no mounts: {error}");
            }
            std::fs::write(dir.path().join("object"), b"old").unwrap();
            for engine in engines() {
                runtime().block_on(all_fail(&engine, dir.path(), LARGE, libc::ENOSPC));
            }
        },
    );
}

/// Errors that need special devices, injected into the write.
#[test]
fn injected_errors_of_writes() {
    // Faults do not reach buffered writes of Linux AIO, which go to the fallback pool.
    for kind in [BackendKind::Uring, BackendKind::Threads] {
        for (name, errno) in [("EIO", libc::EIO), ("EDQUOT", libc::EDQUOT)] {
            let plan = format!("fail=write.0/{name}").parse().unwrap();
            let builder: EngineBuilder = Engine::builder().shards(1).faults(plan);
            let Some(engine) = build_or_skip(kind, builder) else { continue };
            let dir = scratch();
            std::fs::write(dir.path().join("object"), b"old").unwrap();
            runtime().block_on(async {
                let store = store(dir.path(), &engine);
                // Short objects are not written by an operation of the engine.
                let put = store.put(&"object".into(), vec![7; 100_000].into()).await;
                let text = put.unwrap_err().to_string();
                assert!(text.contains(&format!("os error {errno}")), "{kind}: {text}");
                assert!(text.contains(dir.path().join("object").to_str().unwrap()), "{text}");
                until_unstaged(dir.path()).await;
                assert_eq!(std::fs::read(dir.path().join("object")).unwrap(), b"old");
                store.put(&"object".into(), "new".into()).await.unwrap();
                assert_eq!(std::fs::read(dir.path().join("object")).unwrap(), b"new");
            });
        }
    }
}

/// Closing the engine fails all later writes; nothing is left of those in flight.
#[test]
fn a_backend_that_fails() {
    const LONG: usize = 100_000;
    for kind in BACKENDS {
        for enters in [0, 1, 2, 3, 5, 8] {
            let plan = format!("enters={enters}").parse().unwrap();
            let builder = Engine::builder().shards(1).faults(plan);
            let Some(engine) = build_or_skip(kind, builder) else { continue };
            let dir = scratch();
            runtime().block_on(async {
                let store = store(dir.path(), &engine);
                for len in [5, LONG].repeat(5) {
                    let _ = store.put(&"object".into(), vec![7; len].into()).await;
                }
                until_unstaged(dir.path()).await;
                if let Ok(object) = std::fs::read(dir.path().join("object")) {
                    assert!(object == [7; 5] || object == [7; LONG], "{} bytes", object.len());
                }
            });
        }
    }
}

#[test]
fn directories_without_permissions() {
    in_child(
        &format!("{RELEASE}::failures::directories_without_permissions"),
        |_| {},
        || {
            become_ordinary();
            let dir = tempfile::tempdir().unwrap();
            let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap();
            let mode = |mode| {
                std::fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
            };
            runtime().block_on(async {
                let path = Path::from("object");
                let put = store.put(&path, "old".into()).await.unwrap();
                let update = PutMode::Update(put.into());
                mode(0o555);
                for mode in [PutMode::Overwrite, PutMode::Create, update.clone()] {
                    let error = store.put_opts(&path, "new".into(), mode.into()).await;
                    let text = error.unwrap_err().to_string();
                    assert!(text.contains("object#1: Permission denied"), "{text}");
                }
                // The directory cannot be opened, neither to lock nor to sync it.
                mode(0o300);
                let error = store.put_opts(&path, "new".into(), update.into()).await.unwrap_err();
                let text = error.to_string();
                let dir = dir.path().to_str().unwrap();
                assert!(text.contains(&format!("lock directory {dir}: Permission")), "{text}");
                store.put(&path, "two".into()).await.unwrap();
                let synced = store.clone().with_fsync(true);
                let text = synced.put(&path, "three".into()).await.unwrap_err().to_string();
                assert!(text.contains(&format!("sync data to disk for {dir}: Perm")), "{text}");
                store.copy(&path, &"copy".into()).await.unwrap();
                store.rename(&path, &"moved".into()).await.unwrap();
                store.delete(&"copy".into()).await.unwrap();
            });
            mode(0o700);
            assert_eq!(names(dir.path()), ["moved"]);
            assert_eq!(std::fs::read(dir.path().join("moved")).unwrap(), b"three");
        },
    );
}

/// Paths below a FIFO, and in a file system without new files: errors as in `LocalFileSystem`.
#[test]
fn odd_paths_are_errors() {
    let Some(engine) = build_or_skip(BackendKind::Threads, Engine::builder()) else { return };
    let dir = scratch();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    std::fs::write(dir.path().join("a"), b"a").unwrap();
    let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap().with_engine(&engine);
    let local = LocalFileSystem::new_with_prefix(dir.path()).unwrap();
    runtime().block_on(async {
        let [a, below] = ["a", "fifo/below"].map(Path::from);
        let outcomes = async |store: &dyn ObjectStore| {
            let errors = [
                store.put(&below, "new".into()).await.unwrap_err(),
                store.copy(&a, &below).await.unwrap_err(),
                store.rename(&a, &below).await.unwrap_err(),
                store.delete(&below).await.unwrap_err(),
            ];
            errors.map(|error| error.to_string().replace("RingwayFileSystem", "LocalFileSystem"))
        };
        let ours = timeout(LONG, outcomes(&store)).await.expect("it must not wait for a writer");
        assert_eq!(ours, outcomes(&local).await);
        // `LocalFileSystem` tries this for ever.
        let everywhere = RingwayFileSystem::new().with_engine(&engine);
        let path = Path::from("proc/object");
        let put = timeout(LONG, everywhere.put(&path, "new".into()));
        let text = put.await.expect("it must end").unwrap_err().to_string();
        assert!(text.contains("/proc/object#1: No such file"), "{text}");
    });
}

/// In tokio, `LocalFileSystem` ends a listing with the first error.
#[test]
fn a_listing_goes_on_after_an_error() {
    in_child(
        &format!("{RELEASE}::failures::a_listing_goes_on_after_an_error"),
        |_| {},
        || {
            become_ordinary();
            let dir = scratch();
            std::fs::write(dir.path().join("object"), b"content").unwrap();
            let closed = ["closed", "other"].map(|name| dir.path().join(name));
            for closed in &closed {
                std::fs::create_dir(closed).unwrap();
                std::fs::set_permissions(closed, Permissions::from_mode(0o000)).unwrap();
            }
            let local = LocalFileSystem::new_with_prefix(dir.path()).unwrap();
            for engine in engines() {
                let (ours, theirs) = runtime().block_on(async {
                    let ours = store(dir.path(), &engine).list(None).collect::<Vec<_>>().await;
                    (ours, local.list(None).collect::<Vec<_>>().await)
                });
                assert_eq!(ours.iter().filter(|listed| listed.is_err()).count(), 2);
                assert_eq!(ours.len(), 3);
                assert_eq!(theirs.iter().filter(|listed| listed.is_err()).count(), 1);
            }
            for closed in &closed {
                std::fs::set_permissions(closed, Permissions::from_mode(0o700)).unwrap();
            }
        },
    );
}
