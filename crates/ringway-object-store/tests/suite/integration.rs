//! object_store's own integration suite on this store, and on `LocalFileSystem` for comparison.

use super::object_store::DynObjectStore;
use super::object_store::integration::*;
use super::object_store::local::LocalFileSystem;
use super::{RELEASE, RingwayFileSystem};
use crate::common::{build_or_skip, engines, runtime, scratch};
use crate::process::{KAIO, URING, become_ordinary, in_child, refuse};
use ringway::{BackendKind, Engine, FaultPlan};

/// Every function of the suite that applies to a store of files.
async fn all(store: &DynObjectStore, supports_update: bool) {
    put_get_delete_list(store).await;
    list_with_offset_exclusivity(store).await;
    get_opts(store).await;
    list_uses_directories_correctly(store).await;
    list_with_delimiter(store).await;
    rename_and_copy(store).await;
    copy_if_not_exists(store).await;
    copy_rename_nonexistent_object(store).await;
    stream_get(store).await;
    put_opts(store, supports_update).await;
    multipart_race_condition(store, true).await;
    multipart_out_of_order(store).await;
    get_nonexistent_object(store, None).await.unwrap_err();
}

/// The suite on this engine, with and without syncs, and direct I/O.
fn on_engine(engine: &Engine, fsync: bool, direct: bool) {
    println!("{}: fsync {fsync}, direct {direct}", engine.backend());
    let dir = scratch();
    let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap();
    let store = store.with_engine(engine).with_fsync(fsync).with_direct(direct);
    runtime().block_on(all(&store, true));
}

#[test]
fn local_file_system() {
    let dir = scratch();
    let store = LocalFileSystem::new_with_prefix(dir.path()).unwrap();
    runtime().block_on(all(&store, false));
}

#[test]
fn each_backend() {
    for engine in engines() {
        on_engine(&engine, false, false);
        on_engine(&engine, true, true);
    }
}

/// Short transfers, retries and completions out of order are not visible.
#[test]
fn faults_that_the_engine_handles() {
    let plan = FaultPlan::new(15).short(300).retryable(200).delay(300, 4).reorder(300);
    for kind in crate::common::BACKENDS {
        let builder = Engine::builder().faults(plan.clone()).try_cached(false);
        if let Some(engine) = build_or_skip(kind, builder) {
            on_engine(&engine, false, true);
        }
    }
}

/// On the global engine, in a process that may not use these system calls.
fn refused(test: &str, calls: &[libc::c_long], expected: BackendKind) {
    in_child(
        &format!("{RELEASE}::integration::{test}"),
        |_| {},
        || {
            refuse(calls, libc::EPERM);
            let engine = Engine::global().unwrap();
            assert_eq!(engine.backend(), expected);
            on_engine(engine, false, false);
        },
    );
}

#[test]
fn io_uring_refused() {
    refused("io_uring_refused", &URING, BackendKind::Kaio);
}

#[test]
fn io_uring_and_aio_refused() {
    let calls = [&URING[..], &KAIO[..]].concat();
    refused("io_uring_and_aio_refused", &calls, BackendKind::Threads);
}

#[test]
fn an_ordinary_user() {
    in_child(
        &format!("{RELEASE}::integration::an_ordinary_user"),
        |_| {},
        || {
            become_ordinary();
            let dir = tempfile::tempdir().unwrap();
            let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap();
            runtime().block_on(all(&store, true));
        },
    );
}

/// Without a runtime, `LocalFileSystem` blocks, and this store uses the engine's threads. The rest
/// of the suite itself needs tokio.
#[test]
fn without_tokio() {
    let dir = scratch();
    let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap();
    futures::executor::block_on(async {
        list_with_offset_exclusivity(&store).await;
        get_opts(&store).await;
        list_with_delimiter(&store).await;
        rename_and_copy(&store).await;
        copy_if_not_exists(&store).await;
        copy_rename_nonexistent_object(&store).await;
        put_opts(&store, true).await;
        multipart_race_condition(&store, true).await;
        multipart_out_of_order(&store).await;
    });
}
