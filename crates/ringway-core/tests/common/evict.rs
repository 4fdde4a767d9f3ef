//! Removing a file from the page cache.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// The numbers of the file's pages that are in the page cache. None is read by that.
pub fn cached_pages(file: &File) -> Vec<usize> {
    const PAGE: usize = 4096;
    let len = file.metadata().unwrap().len() as usize;
    let mut pages = vec![0u8; len.div_ceil(PAGE)];
    // SAFETY: the kernel chooses the place of the mapping, which nothing refers to; `pages` has a
    // byte for each page.
    unsafe {
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        let mapped = libc::mmap(std::ptr::null_mut(), len, read, shared, file.as_raw_fd(), 0);
        assert_ne!(mapped, libc::MAP_FAILED);
        assert_eq!(libc::mincore(mapped, len, pages.as_mut_ptr()), 0);
        assert_eq!(libc::munmap(mapped, len), 0);
    }
    (0..pages.len()).filter(|page| pages[*page] & 1 == 1).collect()
}

/// Removes all pages of a file on a disk. The kernel keeps those that it looks at itself in that
/// moment, so this may need several tries.
pub fn evict(file: &File) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        file.sync_all().unwrap();
        // SAFETY: the call takes numbers only.
        let advised =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(advised, 0);
        let left = cached_pages(file);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "the pages {left:?} stay in the page cache");
        std::thread::sleep(Duration::from_millis(1));
    }
}
