//! object_store's integration suite in processes that lack something, and with faults.

use super::integration::{all, on_engine};
use super::object_store::integration::*;
use super::{RELEASE, RingwayFileSystem};
use crate::common::{build_or_skip, runtime, scratch};
use crate::process::{KAIO, URING, become_ordinary, in_child, refuse};
use ringway::{BackendKind, Engine, FaultPlan};

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
        &format!("{RELEASE}::environments::{test}"),
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
        &format!("{RELEASE}::environments::an_ordinary_user"),
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
