//! How long DataFusion uses a list of a table's files: a time to live, and an early end for a list
//! that a scan finds to be out of date.

use datafusion::execution::cache::cache_manager::ListFilesCache;
use datafusion::execution::runtime_env::RuntimeEnv;
use object_store::ObjectMeta;
use std::time::Duration;

/// How long a list of a table's files is used where the program has not chosen: one second.
pub const LISTING_TTL: Duration = Duration::from_secs(1);

/// Makes a runtime list the files of a table again after [`LISTING_TTL`], unless the program has
/// set a time to live.
///
/// Since version 52, DataFusion lists the files of a folder once, and uses that list in all later
/// queries, without end by default: they see no new file, and answer `count(*)`, `min` and `max`
/// from the statistics of files that were replaced. [`register`](crate::register) and
/// [`OneVersion::new`](crate::OneVersion::new) call this. A program that has neither calls it
/// itself, or builds the runtime with `RuntimeEnvBuilder::with_object_list_cache_ttl`.
///
/// DataFusion has one time to live for the lists of all stores in a runtime, so that this applies
/// to tables on `s3://` too. To choose another one, set it in the builder of the runtime, or at any
/// time with `SET datafusion.runtime.list_files_cache_ttl = '5m'`. The `SET` counts for lists that
/// are made from then on. A runtime without a cache of lists (`list_files_cache_limit` is 0) lists
/// the files for each query. If it gets one later, that has no time to live, and [`OneVersion`]
/// drops no list from it: call [`register`](crate::register) again, or set the rule anew.
///
/// [`OneVersion`]: crate::OneVersion
pub fn expire_listings(runtime: &RuntimeEnv) {
    let Some(listings) = runtime.cache_manager.get_list_files_cache() else { return };
    if listings.cache_ttl().is_none() {
        listings.update_cache_ttl(Some(LISTING_TTL));
        // Those that were made before would never expire.
        listings.clear();
    }
}

/// Drops the lists that have this version of a file.
pub(crate) fn forget(listings: &ListFilesCache, file: &ObjectMeta) {
    for (table, listing) in listings.list_entries() {
        if listing.value.files.contains(file) {
            listings.remove(&table);
        }
    }
}
