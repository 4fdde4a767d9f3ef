//! Knowing that this process is a fork of the one that made a queue.
//!
//! A ring's memory and a context's requests stay the parent's; a child that used them would corrupt
//! both. A process id does not tell the two apart: in PID namespaces of their own both may be 1. So
//! the mark belongs to the address space: a page that the kernel wipes in a child
//! (`MADV_WIPEONFORK`, 4.14), from which reading it is one load. Threads, and children that share
//! the memory (`vfork(2)`, `CLONE_VM`), share the mark.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

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

    /// True in the process that made it. One load, no system call.
    #[inline]
    pub fn is_here(&self) -> bool {
        mark() == self.mark
    }
}

/// A number of this process that none of its ancestors has.
#[inline]
fn mark() -> u32 {
    // SAFETY: null, or a page that `make_page` made: aligned, never unmapped, and used as this
    // atomic alone.
    match unsafe { PAGE.load(Ordering::Acquire).as_ref() } {
        Some(page) => match page.load(Ordering::Relaxed) {
            0 => set(page),
            mark => mark,
        },
        None => set(make_page()),
    }
}

/// Where the mark is; null before it is first asked for.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// The marks that this process and its ancestors have given out: a child goes on counting.
static GIVEN_OUT: AtomicU32 = AtomicU32::new(0);

/// Stands in for the page where the kernel wipes none (gVisor). Emptied by `fork(3)`; a child of
/// the bare system call is not noticed there.
static UNWIPED: AtomicU32 = AtomicU32::new(0);

extern "C" fn empty() {
    UNWIPED.store(0, Ordering::Relaxed);
}

/// Marks this process, unless another of its threads has done so meanwhile.
#[cold]
fn set(page: &AtomicU32) -> u32 {
    let mark = GIVEN_OUT.fetch_add(1, Ordering::Relaxed) + 1;
    page.compare_exchange(0, mark, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(mark)
}

/// The page; one page at most is lost when threads do this at the same time. (Without a lock: a
/// child may be forked meanwhile, in which nobody would open it.)
#[cold]
fn make_page() -> &'static AtomicU32 {
    let made = ptr::from_ref(wiped_page().unwrap_or_else(|| {
        // SAFETY: the handler stores a number, which any process may do at any time.
        unsafe { libc::pthread_atfork(None, None, Some(empty)) };
        &UNWIPED
    }));
    let other = PAGE.compare_exchange(
        ptr::null_mut(),
        made.cast_mut(),
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    let page = other.err().unwrap_or(made.cast_mut());
    // SAFETY: it was made above, by this thread or another, and lives for ever.
    unsafe { &*page }
}

/// A page that is zero in every new process. It is never given back.
fn wiped_page() -> Option<&'static AtomicU32> {
    const LEN: usize = 4096;
    // SAFETY: a new private mapping, wherever the kernel likes.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
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
        // SAFETY: as above, and nobody has seen it.
        unsafe { libc::munmap(page, LEN) };
        return None;
    }
    // SAFETY: the page is aligned, zeroed, never unmapped, and used as this atomic alone.
    Some(unsafe { &*page.cast::<AtomicU32>() })
}
