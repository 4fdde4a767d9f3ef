//! Files for the tests of what is in the page cache.

use ringway::fs::{Advice, File};
use std::ops::Range;
use std::path::Path;
use tempfile::NamedTempFile;

/// An empty file next to the test program, which is rarely in memory, as `/tmp` may be.
pub(crate) fn on_disk() -> NamedTempFile {
    let program = std::env::current_exe().unwrap();
    NamedTempFile::new_in(program.parent().unwrap()).unwrap()
}

/// Drops a file that is synced from the page cache. Returns whether it did, and prints if not.
pub(crate) async fn drop_cached(path: &Path) -> bool {
    let file = File::open(path).await.unwrap();
    file.advise(0, 0, Advice::DontNeed).await.unwrap();
    let len = file.metadata().await.unwrap().len();
    // The kernel begins to read what a probe finds missing: here only the last page.
    let dropped = !is_cached(path, len - 1..len).await;
    if !dropped {
        println!("skipped: {} stays in memory", path.display());
        assert!(std::env::var_os("CI").is_none(), "skipped with CI set");
    }
    dropped
}

/// Asks through an open file without a history, by which it might not try.
pub(crate) async fn is_cached(path: &Path, range: Range<u64>) -> bool {
    File::open(path).await.unwrap().is_cached(&range)
}
