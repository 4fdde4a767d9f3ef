//! Errors of system calls: a seccomp filter of the calling thread hands the chosen calls to a
//! thread without the filter, which decides for each of them whether it fails.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// Which of the calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// So many succeed first.
    pub after: u64,
    /// So many fail then.
    pub count: u64,
    /// With this error.
    pub errno: i32,
}

#[derive(Default)]
struct State {
    plan: Mutex<Option<Plan>>,
    failed: AtomicU64,
    action: Mutex<Option<Action>>,
}

type Action = Box<dyn FnOnce() + Send>;

/// Decides about the calls of the thread that made it, and of all threads that this one starts.
#[derive(Clone)]
pub struct Injector(Arc<State>);

impl Injector {
    /// Hands over these calls; `None` where the kernel does not let it (before 5.5, or in a sandbox
    /// that does the same).
    pub fn install(calls: &[libc::c_long]) -> Option<Self> {
        let state = Arc::new(State::default());
        let (sender, receiver) = mpsc::channel::<OwnedFd>();
        let for_thread = state.clone();
        // Started before the filter is there, which is that of one thread and its descendants.
        std::thread::spawn(move || {
            if let Ok(listener) = receiver.recv() {
                answer(&listener, &for_thread);
            }
        });
        sender.send(listener(calls)?).ok()?;
        Some(Self(state))
    }

    pub fn set(&self, plan: Option<Plan>) {
        *self.0.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
    }

    /// Runs this when the next of the calls has begun, before it is decided.
    #[allow(dead_code, reason = "some tests use it")]
    pub fn on_next(&self, action: impl FnOnce() + Send + 'static) {
        *self.0.action.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(action));
    }

    /// How many calls have failed.
    pub fn failed(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }
}

impl State {
    fn decide(&self) -> Option<i32> {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = plan.as_mut()?;
        if plan.after > 0 {
            plan.after -= 1;
            return None;
        }
        plan.count = plan.count.checked_sub(1)?;
        self.failed.fetch_add(1, Ordering::Relaxed);
        Some(plan.errno)
    }
}

/// Answers until no thread has the filter any more.
fn answer(listener: &OwnedFd, state: &State) {
    const RECEIVE: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl;
    const SEND: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl;
    loop {
        let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live entry.
        unsafe { libc::poll(&raw mut poll, 1, -1) };
        if poll.revents & libc::POLLHUP != 0 {
            return;
        }
        // SAFETY: the structure is plain numbers, and must be zero for the call.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one such structure.
        if unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut call) } < 0 {
            continue; // The thread has been interrupted.
        }
        let mut response =
            libc::seccomp_notif_resp { id: call.id, val: 0, error: 0, flags: CONTINUE };
        let action = state.action.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(action) = action {
            action();
        }
        if let Some(errno) = state.decide() {
            (response.error, response.flags) = (-errno, 0);
        }
        // SAFETY: the kernel reads one such structure.
        unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw mut response) };
    }
}

const CONTINUE: u32 = 1;

/// Installs the filter on this thread and returns its listener.
fn listener(calls: &[libc::c_long]) -> Option<OwnedFd> {
    const NEW_LISTENER: libc::c_ulong = 1 << 3;
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for &call in calls {
        filter.push(statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32));
        filter.push(statement(libc::BPF_RET | libc::BPF_K, 0, 0, 0x7fc0_0000));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its statements live through the call, which copies them.
    let fd = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER as libc::c_ulong,
            NEW_LISTENER,
            &raw const program,
        )
    };
    if fd < 0 {
        println!("skipped: no listener of a filter: {}", io::Error::last_os_error());
        return None;
    }
    // SAFETY: the kernel has just given us this descriptor.
    Some(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
