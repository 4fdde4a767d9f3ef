//! Starts ringway's own threads. They take no signals: signals are for the program's own threads.
//! They have the working directory, the umask and the file-system user of the process, whichever
//! thread starts them.

use std::ffi::CStr;
use std::io;

/// The stack size of a thread that only makes system calls.
pub(crate) const SYSTEM_CALL_STACK: usize = 256 << 10;

/// The stack size of a thread that runs the program's code: that of a thread of the standard
/// library.
pub(crate) const PROGRAM_STACK: usize = 2 << 20;

/// The largest stack that a thread gets because the program's thread-local variables do not fit
/// into a smaller one.
#[cfg(ringway_linux)]
const LARGEST_STACK: usize = 64 << 20;

/// Starts a thread that runs `body` with all signals blocked, and that nobody joins.
///
/// `name` appears in `/proc/<pid>/task/<tid>/comm`; at most 15 bytes of it. `stack_size` is in
/// bytes; the stack is larger if the program's thread-local variables need that.
///
/// On Linux it is not a thread of the standard library, which takes a lock whenever one of its
/// threads starts or ends: in a process that was forked at such a moment the lock is held for ever,
/// and no further thread of the standard library can start. A thread made here takes none, so a
/// forked child can use ringway whatever the threads of its parent were doing. It differs in two
/// ways: [`std::thread::Thread::name`] is `None`, and an overflow of its stack ends the process
/// without a message.
///
/// On Linux a thread may have a working directory and a umask of its own (`unshare(2)` with
/// `CLONE_FS`), and a user for file access (`setfsuid(2)`). A thread started here has those of the
/// process instead, so that it can work for other threads too: those of the process's first thread
/// at that moment, and its effective user and group. Other things that a thread may have of its own
/// (namespaces, credentials, seccomp filters) it inherits.
///
/// Does not block. A panic of `body` prints its message and ends the thread.
///
/// # Errors
///
/// Those of `pthread_create(3)`: EAGAIN if the process may have no more threads (RLIMIT_NPROC,
/// `pids.max` of the cgroup) or memory is short; EINVAL after `unshare(2)` with `CLONE_NEWPID`.
/// `body` is dropped then.
///
/// ```
/// let (sender, receiver) = std::sync::mpsc::channel();
/// ringway_core::start_thread(c"example", 64 << 10, move || sender.send(1).unwrap())?;
/// assert_eq!(receiver.recv(), Ok(1));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn start_thread(
    name: &'static CStr,
    stack_size: usize,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    #[cfg(unix)]
    let _restore = block_signals();
    #[cfg(ringway_linux)]
    return start(name, stack_size, Box::new(body));
    #[cfg(not(ringway_linux))]
    {
        let name = name.to_string_lossy().into_owned();
        std::thread::Builder::new().name(name).stack_size(stack_size).spawn(body).map(drop)
    }
}

/// Blocks all signals until the result is dropped: a thread inherits the signal mask of the thread
/// that starts it.
#[cfg(unix)]
fn block_signals() -> impl Drop {
    use std::{mem, ptr};

    /// Restores the mask, even after a panic.
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the call below filled the set in.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
        }
    }
    // SAFETY: a signal set is plain bits; both are filled in before they are used.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    // SAFETY: both sets live on this stack during the calls.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    Restore(before)
}

/// What a new thread gets.
#[cfg(ringway_linux)]
struct Start {
    name: &'static CStr,
    body: Box<dyn FnOnce() + Send>,
}

#[cfg(ringway_linux)]
fn start(name: &'static CStr, stack_size: usize, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    use std::mem::MaybeUninit;
    use std::ptr;

    let check = |errno: i32| match errno {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    };
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the call initializes the attributes.
    check(unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) })?;
    let detached = libc::PTHREAD_CREATE_DETACHED;
    // SAFETY: initialized above.
    unsafe { libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), detached) };
    let start = Box::into_raw(Box::new(Start { name, body }));
    let mut size = stack_size.max(4096) + min_stack(&attributes);
    let created = loop {
        let mut thread: libc::pthread_t = 0;
        // SAFETY: initialized above. A size that the system does not take leaves its default.
        unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), size) };
        // SAFETY: `run` has the signature that the call asks for, and takes over the box that its
        // argument points at.
        let created = unsafe {
            libc::pthread_create(&raw mut thread, attributes.as_ptr(), run, start.cast())
        };
        // EINVAL if the thread-local variables leave no room, where `min_stack` does not tell.
        if created != libc::EINVAL || size >= LARGEST_STACK {
            break check(created);
        }
        size *= 2;
    };
    // SAFETY: initialized above, and not used any more.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    if created.is_err() {
        // SAFETY: no thread was made, so the box still belongs to this function.
        drop(unsafe { Box::from_raw(start) });
    }
    return created;

    /// What the C library needs on the stack of each thread: in glibc, the thread-local variables
    /// of the whole program.
    fn min_stack(attributes: &MaybeUninit<libc::pthread_attr_t>) -> usize {
        type MinStack = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr()) };
        if found.is_null() {
            return 0;
        }
        // SAFETY: glibc's function of this name has this type (the standard library relies on it
        // too), and the caller has initialized the attributes.
        unsafe { std::mem::transmute::<*mut libc::c_void, MinStack>(found)(attributes.as_ptr()) }
    }

    extern "C" fn run(start: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the box made above, which belongs to this thread alone.
        let Start { name, body } = *unsafe { Box::from_raw(start.cast::<Start>()) };
        // SAFETY: `name` is a C string that lives forever. The kernel takes its first 15 bytes.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        join_process();
        // (A panic has printed its message. It must not unwind into the C library.)
        drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)));
        ptr::null_mut()
    }
}

/// Gives the calling thread, a new one, the process's working directory and umask, and its own
/// effective user and group for file access.
#[cfg(ringway_linux)]
fn join_process() {
    // SAFETY: these calls take and return numbers, and concern this thread only.
    unsafe {
        libc::setfsuid(libc::geteuid());
        libc::setfsgid(libc::getegid());
    }
    // (What a thread shares with others it cannot share again once it is separate. So this is a
    // copy.)
    // SAFETY: as above; from then on the thread has a working directory of its own.
    if shares_directory() || unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
        return;
    }
    // SAFETY: the path is a C string. `self` is the process's first thread. If that has ended, the
    // call fails.
    unsafe { libc::chdir(c"/proc/self/cwd".as_ptr()) };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    if let Some(umask) = umask.and_then(|umask| u32::from_str_radix(umask.trim(), 8).ok()) {
        // SAFETY: the call takes a number.
        unsafe { libc::umask(umask) };
    }
}

/// Whether the calling thread shares its working directory and umask with the process's first one.
/// Where the kernel may not be asked (`kcmp(2)`, in containers), the directories are compared.
#[cfg(ringway_linux)]
fn shares_directory() -> bool {
    const KCMP_FS: libc::c_int = 3;
    // SAFETY: the call takes numbers only.
    match unsafe { libc::syscall(libc::SYS_kcmp, libc::getpid(), libc::gettid(), KCMP_FS, 0, 0) } {
        0 => true,
        ..0 => {
            let [process, thread] = ["self", "thread-self"]
                .map(|which| std::fs::read_link(format!("/proc/{which}/cwd")).ok());
            process == thread
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_has_its_name_and_takes_no_signals() {
        let (sender, receiver) = mpsc::channel();
        let body = move || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
            sender.send(status).unwrap();
        };
        start_thread(c"ringway-a-long-name", 256 << 10, body).unwrap();
        let status = receiver.recv().unwrap();
        let field = |name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        assert_eq!(field("Name:"), "ringway-a-long-");
        let blocked = u64::from_str_radix(&field("SigBlk:"), 16).unwrap();
        for signal in [libc::SIGHUP, libc::SIGALRM, libc::SIGTERM, libc::SIGRTMAX()] {
            assert_ne!(blocked & 1 << (signal - 1), 0, "{signal}: {blocked:x}");
        }
    }

    #[test]
    fn a_panic_ends_the_thread_only() {
        let (sender, receiver) = mpsc::channel::<()>();
        start_thread(c"panics", 256 << 10, move || {
            let _sender = sender;
            panic!("a test of a panic");
        })
        .unwrap();
        assert!(receiver.recv().is_err());
    }

    #[cfg(all(ringway_linux, target_pointer_width = "64"))]
    #[test]
    fn a_thread_that_cannot_start_drops_its_body() {
        let held = std::sync::Arc::new(());
        let body = held.clone();
        let larger_than_the_address_space = 1 << 60;
        let error = start_thread(c"large", larger_than_the_address_space, move || drop(body));
        assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::EAGAIN));
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }
}
