//! The file that is read: made once and kept, and its pages in the page cache.

use super::work::{answer, digest};
use anyhow::{Context, ensure};
use ringway_core::refusal::bytes_text;
use ringway_measure::scratch;
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// One of this many pages of the file may stay in the page cache before a cold turn.
const LEFT: u64 = 1000;
/// How long it may take to drop the others.
const DROP_LIMIT: Duration = Duration::from_secs(10);

/// `cachestat(2)`: the same number on all architectures but alpha.
const CACHESTAT: libc::c_long = 451;

/// Opens the file. One that does not exist is made, with `size` bytes, and kept.
pub fn open(path: &Path, size: u64) -> anyhow::Result<File> {
    let named = || path.display().to_string();
    if !path.exists() {
        eprintln!("writing {} of {}", path.display(), bytes_text(size));
        let part = path.with_extension("part");
        let file = File::create(&part).with_context(named)?;
        scratch::fill(&file, 0, size, 1, &mut |_| ()).with_context(named)?;
        fs::rename(&part, path).with_context(named)?;
    }
    File::open(path).with_context(named)
}

/// Drops the file from the page cache, and checks that it is gone. Pages that a process which has
/// ended was still reading ahead are dropped once they have been read.
pub fn drop_cached(file: &File) -> anyhow::Result<()> {
    let most = file.metadata()?.len().div_ceil(4096) / LEFT;
    let started = Instant::now();
    loop {
        scratch::drop_page_cache(file)?;
        let left = cached_pages(file)?;
        if left <= most {
            return Ok(());
        }
        ensure!(
            started.elapsed() < DROP_LIMIT,
            "{left} pages stay in the page cache: another program uses the file"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// Loads the file into the page cache, and checks that it fits.
pub fn load_cached(file: &File) -> anyhow::Result<()> {
    let len = file.metadata()?.len();
    let pages = len.div_ceil(4096);
    if cached_pages(file)? < pages {
        scratch::load_page_cache(file, len)?;
        let cached = cached_pages(file)?;
        ensure!(cached == pages, "only {cached} of {pages} pages fit into the page cache");
    }
    Ok(())
}

/// Pages of the file in the page cache: `cachestat(2)`, since Linux 6.5.
fn cached_pages(file: &File) -> anyhow::Result<u64> {
    // `struct cachestat_range` and `struct cachestat`.
    let (range, mut found) = ([0_u64; 2], [0_u64; 5]);
    // SAFETY: the kernel reads two and writes five numbers of 64 bits, which live until it returns.
    let done = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), found.as_mut_ptr(), 0)
    };
    ensure!(done == 0, "cachestat: {}", std::io::Error::last_os_error());
    Ok(found[0])
}

/// The answer that every contestant must find.
pub fn expected(file: &File, ranges: &[Range<u64>], whole: bool) -> anyhow::Result<String> {
    let mut sum = 0_u64;
    let mut bytes = Vec::new();
    for range in ranges {
        bytes.resize((range.end - range.start) as usize, 0);
        file.read_exact_at(&mut bytes, range.start)
            .with_context(|| format!("{range:?} of the file"))?;
        sum = sum.wrapping_add(digest(range, &bytes, whole));
    }
    Ok(answer(sum))
}
