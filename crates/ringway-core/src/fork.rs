//! Detects that this process is a fork of the process that made a queue, or a fork of any process.
//! Handling forks is left to the queue, which refuses to work, and to the engine.
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

/// Whether this process was forked and has not executed a program since. It may then have inherited
/// a runtime whose epoll instance it shares with its parent: what it registers there, the parent's
/// runtime takes for its own.
///
/// On Linux the kernel knows (`PF_FORKNOEXEC`, in `/proc/self/stat`); true if `/proc` is not there.
/// False on other systems, where a child does not inherit what runtimes wait on (kqueue).
///
/// ```
/// assert!(!ringway_core::is_fork()); // A shell has executed this program.
/// ```
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn is_fork() -> bool {
    static KNOWN: KnownOfProcess = KnownOfProcess::new();
    let look_up = || {
        let stat = std::fs::read("/proc/self/stat").unwrap_or_default();
        Some(flags(&stat).is_none_or(|flags| flags & PF_FORKNOEXEC != 0))
    };
    KNOWN.get_or_look_up(look_up).unwrap_or(true)
}

/// Something that a process has found out about itself. A forked child finds it out anew.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Debug)]
pub(crate) struct KnownOfProcess(std::sync::atomic::AtomicU64);

#[cfg(any(target_os = "linux", target_os = "android"))]
impl KnownOfProcess {
    const YES: u64 = 1 << 32;

    pub const fn new() -> Self {
        Self(std::sync::atomic::AtomicU64::new(0))
    }

    /// The answer. `look_up` returns `None` if it cannot be found now; then the next call looks it
    /// up again.
    pub fn get_or_look_up(&self, look_up: impl FnOnce() -> Option<bool>) -> Option<bool> {
        let mark = u64::from(mark());
        let known = self.0.load(Ordering::Relaxed);
        if known & !Self::YES == mark {
            return Some(known & Self::YES != 0);
        }
        let found = look_up()?;
        self.0.store(mark | if found { Self::YES } else { 0 }, Ordering::Relaxed);
        Some(found)
    }
}

/// As on Linux: false.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn is_fork() -> bool {
    false
}

/// "Forked but didn't exec": a flag of the process's first thread (`include/linux/sched.h`).
#[cfg(any(target_os = "linux", target_os = "android"))]
const PF_FORKNOEXEC: u32 = 0x40;

/// The flags in `/proc/<pid>/stat` (`proc_pid_stat(5)`): the seventh field after the program's
/// name, which is in parentheses and may contain anything.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn flags(stat: &[u8]) -> Option<u32> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    fields.split_ascii_whitespace().nth(6)?.parse().ok()
}

/// A number that this process has and none of its ancestors had.
#[inline]
fn mark() -> u32 {
    // SAFETY: the pointer is null or a page from `make_page`: aligned, never unmapped, and accessed
    // only as this atomic.
    match unsafe { MARK_PAGE.load(Ordering::Acquire).as_ref() } {
        Some(page) => match page.load(Ordering::Relaxed) {
            0 => set(page),
            mark => mark,
        },
        None => set(make_page()),
    }
}

/// The page with the mark; null before the first use.
static MARK_PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

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
    let other = MARK_PAGE.compare_exchange(
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

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn flags_follow_the_name() {
        let stat = b"7 (a) b) S 1 7 7 0 -1 4194368 25 0 0 0\n";
        assert_eq!(flags(stat), Some(4194304 | PF_FORKNOEXEC));
        for cut in [&b""[..], b"7 (name", b"7 (name) S 1 7", b"7 (name) S 1 7 7 0 -1 x"] {
            assert_eq!(flags(cut), None);
        }
    }

    #[test]
    fn a_process_looks_once_and_its_forked_child_anew() {
        let known = KnownOfProcess::new();
        let looked = Cell::new(0);
        let look = |found| {
            let look_up = || {
                looked.set(looked.get() + 1);
                found
            };
            (known.get_or_look_up(look_up), looked.get())
        };
        assert_eq!(look(None), (None, 1));
        assert_eq!(look(Some(true)), (Some(true), 2), "nothing was known");
        assert_eq!(look(Some(false)), (Some(true), 2));
        // SAFETY: the child makes no calls but `_exit`, which runs nothing of this process.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_new = look(Some(false)).0 == Some(false);
            // SAFETY: as above.
            unsafe { libc::_exit(if is_new { 0 } else { 1 }) };
        }
        let mut status = 1;
        // SAFETY: the kernel writes one number.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
