//! The stores to compare: `LocalFileSystem`, and ringway's on each backend.

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use ringway::{BackendKind, Engine};
use ringway_object_store::RingwayFileSystem;
use std::path::Path;
use std::sync::Arc;

/// The name of the store that the others are compared with.
pub const LOCAL: &str = "LocalFileSystem";

/// Those that this machine supports, by name.
pub fn stores(dir: &Path, fsync: bool) -> Vec<(String, Arc<dyn ObjectStore>)> {
    let local = LocalFileSystem::new_with_prefix(dir).unwrap().with_fsync(fsync);
    let mut stores: Vec<(String, Arc<dyn ObjectStore>)> = vec![(LOCAL.into(), Arc::new(local))];
    for kind in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
        match Engine::builder().backend(kind).build() {
            Ok(engine) => {
                let store = RingwayFileSystem::new_with_prefix(dir).unwrap();
                let store = store.with_engine(&engine).with_fsync(fsync);
                stores.push((format!("ringway {kind}"), Arc::new(store)));
            }
            Err(error) => println!("skipped: {kind}: {error}"),
        }
    }
    stores
}
