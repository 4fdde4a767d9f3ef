//! Knowing that this process is a fork of the one that made a queue.
//!
//! A ring's memory and a context's requests stay the parent's; a child that used them would corrupt
//! both. `getpid` for each push would cost a system call, so a page that the kernel wipes in the child tells
//! (`MADV_WIPEONFORK`, 4.14); without it, `getpid` does.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The process in which it was made: what belongs to a process can tell that it is in a fork of it.
///
/// ```
/// use ringway_core::Home;
/// let home = Home::here();
/// assert!(home.is_here()); // In a child of fork(2) it would not be.
/// ```
#[derive(Debug)]
pub struct Home {
    mark: u32,
}

impl Home {
    /// This process.
    pub fn here() -> Self {
        Self { mark: mark() }
    }

    /// True in the process that made it. Mostly one load, no system call.
    #[inline]
    pub fn is_here(&self) -> bool {
        mark() == self.mark
    }
}

/// A number of this process that a fork of it does not share.
#[inline]
fn mark() -> u32 {
    match PAGE.get_or_init(wiped_page) {
        Some(page) => match page.load(Ordering::Relaxed) {
            0 => {
                let pid = std::process::id();
                page.store(pid, Ordering::Relaxed);
                pid
            }
            pid => pid,
        },
        None => std::process::id(),
    }
}

static PAGE: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();

/// A page that is zero in every new process. It is never given back.
fn wiped_page() -> Option<&'static AtomicU32> {
    const LEN: usize = 4096;
    // SAFETY: a new private mapping, wherever the kernel likes.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            LEN,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping was made above, with this length.
    if unsafe { libc::madvise(page, LEN, libc::MADV_WIPEONFORK) } != 0 {
        return None;
    }
    // SAFETY: the page is aligned, zeroed, never unmapped, and used as this atomic alone.
    Some(unsafe { &*page.cast::<AtomicU32>() })
}
