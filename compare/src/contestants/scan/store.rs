//! `ObjectStore::get_ranges` of object_store's own store of local files and of ringway's.

use super::{Contestant, Input, on_tokio};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Location;
use ringway_object_store::RingwayFileSystem;
use std::sync::Arc;

/// Ranges in a call: as many as a scan of four columns requests for a row group.
const RANGES: usize = 4;

pub const LOCAL: Contestant = Contestant::scan(
    "local-store",
    "object_store's LocalFileSystem::get_ranges, 4 ranges in each call; it reads them one after \
     the other, so as many calls are in flight as the concurrency",
    |input| run(Arc::new(LocalFileSystem::new()), input, input.concurrency),
);
pub const RINGWAY: Contestant = Contestant::scan(
    "ringway-store",
    "RingwayFileSystem::get_ranges, 4 ranges in each call; the ranges of all calls in flight are \
     as many as the concurrency",
    |input| run(Arc::new(RingwayFileSystem::new()), input, input.concurrency.div_ceil(RANGES)),
);

fn run(store: Arc<dyn ObjectStore>, input: &Input<'_>, calls: usize) -> anyhow::Result<()> {
    let (location, work) = (Location::from_absolute_path(input.file)?, input.work);
    on_tokio(calls, || {
        let (store, location) = (store.clone(), location.clone());
        async move {
            while let Some(ranges) = work.take(RANGES) {
                match store.get_ranges(&location, ranges).await {
                    Ok(read) => work.read_all(ranges, read),
                    Err(error) => work.fail(error),
                }
            }
        }
    })
}
