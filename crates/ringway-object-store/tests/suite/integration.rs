//! object_store's own integration suite on this store, and on `LocalFileSystem` for comparison.

use super::RingwayFileSystem;
use super::object_store::DynObjectStore;
use super::object_store::integration::*;
use super::object_store::local::LocalFileSystem;
use crate::common::{engines, runtime, scratch, scratch_on_disk};
use ringway::Engine;

/// Every function of the suite that applies to a store of files.
pub async fn all(store: &DynObjectStore, supports_update: bool) {
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
pub fn on_engine(engine: &Engine, fsync: bool, direct: bool) {
    println!("{}: fsync {fsync}, direct {direct}", engine.backend());
    let dir = if fsync || direct { scratch_on_disk() } else { scratch() };
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
