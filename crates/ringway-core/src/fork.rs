//! Detects that this process is a fork of the process that made a queue. Handling forks is left to
//! the queue: it refuses to work.
//!
//! A ring's memory and a context's requests belong to the parent; a child that used them would
//! corrupt both. Process ids cannot tell the two apart: in separate PID namespaces both may be 1.
//! So each address space has a mark, in a page that the kernel zeroes in a child
//! (`MADV_WIPEONFORK`, 4.14). Reading it is one load. Threads and children that share the memory
//! (`vfork(2)`, `CLONE_VM`) share the mark.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Remembers the process that made it, to detect use in a forked child.
///
/// ```
/// use ringway_core::OwnerProcess;
/// let owner = OwnerProcess::current();
/// assert!(owner.is_current()); // In a child of fork(2) it would not be.
/// ```
#[derive(Debug)]
pub struct OwnerProcess {
    mark: u32,
}

impl OwnerProcess {
    /// Remembers this process.
    pub fn current() -> Self {
        Self { mark: mark() }
    }

    /// The number of the process. It is not 0, and no ancestor has it.
    pub(crate) fn mark(&self) -> u32 {
        self.mark
    }

    /// True in the process that made the value. One load, no system call.
    #[inline]
    pub fn is_current(&self) -> bool {
        mark() == self.mark
    }
}

/// A number that this process has and none of its ancestors had.
#[inline]
fn mark() -> u32 {
    // SAFETY: the pointer is null or a page from `make_page`: aligned, never unmapped, and accessed
    // only as this atomic.
    match unsafe { PAGE.load(Ordering::Acquire).as_ref() } {
        Some(page) => match page.load(Ordering::Relaxed) {
            0 => set(page),
            mark => mark,
        },
        None => set(make_page()),
    }
}

/// The page with the mark; null before the first use.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// The last mark that this process or an ancestor used; a child counts on from there.
static LAST_MARK: AtomicU32 = AtomicU32::new(0);

/// Replaces the page where the kernel cannot wipe one (gVisor, other systems). `fork(3)` clears it;
/// a child made by the bare system call goes undetected there.
static UNWIPED: AtomicU32 = AtomicU32::new(0);

#[cfg(unix)]
extern "C" fn clear_unwiped() {
    UNWIPED.store(0, Ordering::Relaxed);
}

/// Marks this process, unless another thread has just done so.
#[cold]
fn set(page: &AtomicU32) -> u32 {
    let mark = LAST_MARK.fetch_add(1, Ordering::Relaxed) + 1;
    page.compare_exchange(0, mark, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(mark)
}

/// Makes the page. Threads that race lose at most one page each. No lock is used: a child forked
/// while it is held could never take it.
#[cold]
fn make_page() -> &'static AtomicU32 {
    let new_page = ptr::from_ref(match wiped_page() {
        Some(page) => page,
        None => {
            // SAFETY: the handler only stores to an atomic, which is safe in a forked child.
            #[cfg(unix)]
            unsafe {
                libc::pthread_atfork(None, None, Some(clear_unwiped))
            };
            &UNWIPED
        }
    });
    let other = PAGE.compare_exchange(
        ptr::null_mut(),
        new_page.cast_mut(),
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    let page = other.err().unwrap_or(new_page.cast_mut());
    // SAFETY: `new_page` or the page that another thread stored first; both live forever.
    unsafe { &*page }
}

/// Other systems have no such page.
#[cfg(not(ringway_linux))]
fn wiped_page() -> Option<&'static AtomicU32> {
    None
}

/// A page that is zero in each new process. It is never unmapped.
#[cfg(ringway_linux)]
fn wiped_page() -> Option<&'static AtomicU32> {
    const LEN: usize = 4096;
    // SAFETY: a new private mapping at an address that the kernel chooses touches no memory in use.
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
    // SAFETY: `page` is the mapping made above, of this length.
    if unsafe { libc::madvise(page, LEN, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: as above; no reference to the page exists.
        unsafe { libc::munmap(page, LEN) };
        return None;
    }
    // SAFETY: the page is aligned, zeroed, never unmapped, and accessed only as this atomic.
    Some(unsafe { &*page.cast::<AtomicU32>() })
}
