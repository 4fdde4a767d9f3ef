//! Signals that end a bench. While it measures, the first Ctrl-C ends the runs, and the finished
//! ones are reported; a second one ends the command at once, as Ctrl-C does before and after the
//! runs. While a file that the bench has created is filled, a signal removes the file and ends the
//! command.

use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_: libc::c_int) {
    IS_INTERRUPTED.store(true, Ordering::Relaxed);
    set(libc::SIGINT, libc::SIG_DFL);
}

/// Whether a SIGINT was caught.
pub fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::Relaxed)
}

/// Catches one SIGINT, until it is dropped.
pub struct Catch {
    before: libc::sighandler_t,
}

impl Catch {
    /// Starts to catch. A command that was started with SIGINT ignored keeps ignoring it.
    pub fn new() -> Self {
        let before = set(libc::SIGINT, interrupt as *const () as usize);
        if before == libc::SIG_IGN {
            set(libc::SIGINT, before);
        }
        Self { before }
    }
}

impl Drop for Catch {
    fn drop(&mut self) {
        set(libc::SIGINT, self.before);
    }
}

/// Ctrl-C, and what ends a command when its terminal closes or the machine shuts down.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The name of the file that is being filled, or null.
static PARTIAL: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
/// Its descriptor.
static PARTIAL_FD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn remove_partial(signal: libc::c_int) {
    let name = PARTIAL.load(Ordering::Acquire);
    if !name.is_null() {
        // SAFETY: the name is never freed.
        let name = unsafe { CStr::from_ptr(name) };
        remove_if_same(PARTIAL_FD.load(Ordering::Relaxed), name);
    }
    set(signal, libc::SIG_DFL);
    // SAFETY: the call takes a number. The signal is delivered when this handler returns.
    unsafe { libc::raise(signal) };
}

/// Removes a name, unless it belongs to another file than the open one. A signal handler may call
/// it.
fn remove_if_same(fd: libc::c_int, name: &CStr) {
    let (mut open, mut named) = (MaybeUninit::<libc::stat>::uninit(), MaybeUninit::uninit());
    // SAFETY: each call writes to one live `stat`, which is read only if the call has succeeded.
    unsafe {
        if libc::fstat(fd, open.as_mut_ptr()) == 0
            && libc::lstat(name.as_ptr(), named.as_mut_ptr()) == 0
        {
            let (open, named) = (open.assume_init(), named.assume_init());
            if (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino) {
                libc::unlink(name.as_ptr());
            }
        }
    }
}

/// Removes a file that this bench has created if a signal ends the command, until it is dropped.
pub struct RemovePartial<'a> {
    before: [libc::sighandler_t; ENDING.len()],
    /// The descriptor stays open.
    _file: &'a File,
}

impl<'a> RemovePartial<'a> {
    /// Starts to catch the signals that are not ignored.
    pub fn new(file: &'a File, path: &Path) -> Self {
        // A path that has been opened has no NUL.
        let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        PARTIAL_FD.store(file.as_raw_fd(), Ordering::Relaxed);
        // Never freed: a handler in another thread may still read it after the drop.
        PARTIAL.store(name.into_raw(), Ordering::Release);
        let before = ENDING.map(|signal| {
            let before = set(signal, remove_partial as *const () as usize);
            if before == libc::SIG_IGN {
                set(signal, before);
            }
            before
        });
        Self { before, _file: file }
    }
}

impl Drop for RemovePartial<'_> {
    fn drop(&mut self) {
        for (signal, before) in ENDING.into_iter().zip(self.before) {
            set(signal, before);
        }
        PARTIAL.store(ptr::null_mut(), Ordering::Release);
    }
}

/// Sets the action of a signal and returns the one before. System calls that a handler interrupts
/// are restarted.
fn set(signal: libc::c_int, action: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: the handlers make async-signal-safe calls only.
    unsafe { libc::signal(signal, action) }
}
