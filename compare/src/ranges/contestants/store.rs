//! `ObjectStore::get_ranges` of object_store's own store of local files and of ringway's.

use super::{Contestant, on_tokio};
use crate::ranges::work::Work;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Location;
use ringway_object_store::RingwayFileSystem;
use std::path::Path;
use std::sync::Arc;

/// Ranges in a call: as many as a scan of four columns requests for a row group.
const RANGES: usize = 4;

pub struct Store {
    ringway: bool,
}

pub const LOCAL: Store = Store { ringway: false };
pub const RINGWAY: Store = Store { ringway: true };

impl Contestant for Store {
    fn name(&self) -> &'static str {
        if self.ringway { "ringway-store" } else { "local-store" }
    }

    fn about(&self) -> &'static str {
        if self.ringway {
            "RingwayFileSystem::get_ranges, 4 ranges in each call; the ranges of all calls in \
             flight are as many as the concurrency"
        } else {
            "object_store's LocalFileSystem::get_ranges, 4 ranges in each call; it reads them one \
             after the other, so as many calls are in flight as the concurrency"
        }
    }

    fn run(&self, file: &Path, work: &'static Work, concurrency: usize) -> anyhow::Result<()> {
        let location = Location::from_absolute_path(file)?;
        let (store, calls): (Arc<dyn ObjectStore>, usize) = match self.ringway {
            true => (Arc::new(RingwayFileSystem::new()), concurrency.div_ceil(RANGES)),
            false => (Arc::new(LocalFileSystem::new()), concurrency),
        };
        on_tokio(calls, || {
            let (store, location) = (store.clone(), location.clone());
            async move {
                while let Some(ranges) = work.take(RANGES) {
                    match store.get_ranges(&location, ranges).await {
                        Ok(read) => {
                            ranges
                                .iter()
                                .zip(read)
                                .for_each(|(range, bytes)| work.read(range, &bytes));
                        }
                        Err(error) => work.fail(error),
                    }
                }
            }
        })
    }
}
