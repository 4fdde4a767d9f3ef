//! Generators of the data that is measured. All are deterministic: the same options write the same
//! files.

pub mod parquet_file;
pub mod ranges;
pub mod small;
pub mod tpch;
pub mod wide;

use anyhow::{Context, bail, ensure};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Makes the folder `out` with what `make` writes to the folder it is given. That one has another
/// name until all is written, so `out` is never incomplete.
///
/// # Errors
///
/// A folder that exists; those of `make` and of renaming.
pub fn new_folder(
    out: &Path,
    make: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let about = || out.display().to_string();
    ensure!(!out.try_exists().with_context(about)?, "{}: exists already", out.display());
    let mut name = out.file_name().with_context(about)?.to_owned();
    name.push(".partial");
    let partial = out.with_file_name(name);
    // Left by a run that was interrupted.
    if partial.try_exists().with_context(about)? {
        fs::remove_dir_all(&partial).with_context(|| partial.display().to_string())?;
    }
    fs::create_dir_all(&partial).with_context(|| partial.display().to_string())?;
    make(&partial)?;
    fs::rename(&partial, out).with_context(about)
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
    fn a_folder_is_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/out");
        let write = |folder: &Path, name| Ok(fs::write(folder.join(name), "x")?);
        let error = new_folder(&out, |folder| {
            write(folder, "first")?;
            bail!("interrupted")
        });
        assert_eq!(error.unwrap_err().to_string(), "interrupted");
        assert!(!out.exists());
        new_folder(&out, |folder| write(folder, "second")).unwrap();
        assert!(out.join("second").exists() && !out.join("first").exists());
        let error = new_folder(&out, |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("exists already"), "{error}");
    }
}
