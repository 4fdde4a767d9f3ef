//! Generators of the data that is measured. All are deterministic: the same options write the same
//! files.

pub mod parquet_file;
pub mod ranges;
pub mod small;
pub mod tpch;
pub mod wide;

use anyhow::{Context, bail};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Creates the folder, which must be empty if it exists: files that are left from other options
/// would become rows of the tables.
fn create_empty_folder(folder: &Path) -> anyhow::Result<()> {
    let about = || folder.display().to_string();
    fs::create_dir_all(folder).with_context(about)?;
    if fs::read_dir(folder).with_context(about)?.next().is_some() {
        bail!("{}: not empty", folder.display());
    }
    Ok(())
}

/// Makes each of `count` items on as many threads as there are processors. After an error no
/// further item is started, and the first error is returned.
fn in_parallel(
    count: usize,
    make: impl Fn(usize) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= count {
                return Ok(());
            }
            make(item).inspect_err(|_| next.store(count, Ordering::Relaxed))?;
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(count);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(done) => done,
            Err(_) => bail!("a thread that generates data has panicked"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn each_item_is_made_once_and_an_error_ends_the_work() {
        let made = Mutex::new(Vec::new());
        let make = |item| {
            made.lock().unwrap().push(item);
            Ok(())
        };
        in_parallel(100, make).unwrap();
        let mut made = made.into_inner().unwrap();
        made.sort_unstable();
        assert_eq!(made, (0..100).collect::<Vec<_>>());
        assert!(in_parallel(100, |_| bail!("no")).unwrap_err().to_string().contains("no"));
    }

    #[test]
    fn a_folder_with_files_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        create_empty_folder(&folder.path().join("a/b")).unwrap();
        let error = create_empty_folder(&folder.path().join("a")).unwrap_err();
        assert!(error.to_string().contains("not empty"), "{error}");
    }
}
