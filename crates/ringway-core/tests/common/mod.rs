//! Helpers for tests that need a child process, because limits, users and filters are irrevocable.

use std::env;
use std::io;
use std::process::Command;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

const CHILD: &str = "RINGWAY_TEST_CHILD";

/// True in a child process made by [`in_child`].
fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Child processes that neither change nor count what the whole machine has share this lock.
static CHILDREN: RwLock<()> = RwLock::new(());

/// Runs `body` in a child process, and no other meanwhile. Prints which tests that process skipped
/// and, if it fails, all of its output. `prepare` changes the command of the process.
pub fn in_child(test: &str, prepare: impl FnOnce(&mut Command), body: impl FnOnce()) {
    if runs_here(test, body) {
        return;
    }
    let _alone = CHILDREN.write().unwrap_or_else(PoisonError::into_inner);
    run_child(test, prepare);
}

/// As [`in_child`], but next to other such processes if this one is root: other users share the
/// lockable memory of all their processes.
#[allow(dead_code, reason = "most tests have few child processes")]
pub fn in_child_beside_others(test: &str, prepare: impl FnOnce(&mut Command), body: impl FnOnce()) {
    if !is_root() {
        return in_child(test, prepare, body);
    }
    if runs_here(test, body) {
        return;
    }
    let _others = CHILDREN.read().unwrap_or_else(PoisonError::into_inner);
    run_child(test, prepare);
}

fn begin(test: &str) -> String {
    format!("{CHILD}: {test}")
}

/// Runs `body` if this is the child process.
fn runs_here(test: &str, body: impl FnOnce()) -> bool {
    let is_child = is_child();
    if is_child {
        println!("{}", begin(test));
        body();
    }
    is_child
}

fn run_child(test: &str, prepare: impl FnOnce(&mut Command)) {
    let mut command = Command::new(env::current_exe().unwrap());
    // Otherwise the harness might start another thread after the body has limited them.
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, "1");
    prepare(&mut command);
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    for line in printed.lines().filter(|line| line.starts_with("skipped")) {
        println!("{line}");
    }
    if !output.status.success() {
        println!("{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(output.status.success(), "{test}: {}", output.status);
    // A name that is no test's would run nothing, and succeed.
    assert!(printed.contains(&begin(test)), "{test} did not run in the child");
}

pub fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Gives up root and its capabilities irrevocably, if the process has them. Each process becomes
/// another user, since lockable memory is charged per user.
pub fn become_ordinary() {
    if is_root() {
        let user = 20_000 + std::process::id() % 40_000;
        // SAFETY: these calls take numbers, or an empty list.
        unsafe {
            assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
            assert_eq!(libc::setgid(user), 0);
            assert_eq!(libc::setuid(user), 0);
            // Without this, a process that changed its user cannot read its own directory in /proc.
            libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
        }
    }
    assert!(!is_root());
}

/// From now on this thread, and what it starts, has mounts that nobody else sees. Needs root.
pub fn leave_mounts() -> io::Result<()> {
    let none = std::ptr::null();
    // SAFETY: the calls take numbers, C strings and null pointers where they may be null.
    let has_left = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                none,
                c"/".as_ptr(),
                none,
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
    };
    if has_left { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub fn limit_memlock(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the limit is a live value that is only read.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) }, 0);
}

/// Waits until so many bytes of memory are available: other programs may need them for a while.
/// Returns whether they are.
#[allow(dead_code, reason = "few tests need much memory")]
pub fn wait_for_memory(bytes: u64) -> bool {
    let has = |name: &str| {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024 >= bytes
    };
    let until = Instant::now() + Duration::from_secs(30);
    while has("MemTotal") && Instant::now() < until {
        if has("MemAvailable") {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

/// Makes `calls` fail with `errno` on this thread and all that it starts from now on.
pub fn refuse(calls: &[libc::c_long], errno: i32) {
    filter(calls, libc::SECCOMP_RET_ERRNO | errno as u32);
}

/// Ends the process at calls that lists of what is allowed lack, since they are newer than the list
/// or nobody has thought of them: `cachestat(2)`, `statmount(2)`, `listmount(2)` and `mincore(2)`.
pub fn kill_at_unlisted() {
    filter(&[451, 457, 458, libc::SYS_mincore], libc::SECCOMP_RET_KILL_PROCESS);
}

fn filter(calls: &[libc::c_long], answer: u32) {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    // The first word of the data is the number of the system call.
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for &call in calls {
        filter.push(statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32));
        filter.push(statement(libc::BPF_RET | libc::BPF_K, 0, 0, answer));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    install(&mut filter);
}

fn install(filter: &mut [libc::sock_filter]) {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its statements live through the call, which copies them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program),
            0,
            "{}",
            io::Error::last_os_error()
        );
    }
}

/// Makes `io_uring_register(2)` with this opcode fail with EINVAL, as on a kernel that does not
/// know it, on this thread and all that it starts from now on.
pub fn refuse_registration(opcode: u32) {
    refuse_argument(libc::SYS_io_uring_register, 1, libc::BPF_JEQ, opcode, libc::EINVAL);
}

/// Makes `io_setup(2)` for more requests than these fail with EAGAIN, as if other programs had
/// taken the rest of `fs.aio-max-nr`, on this thread and all that it starts from now on.
pub fn limit_kaio_requests(most: u32) {
    refuse_argument(libc::SYS_io_setup, 0, libc::BPF_JGT, most, libc::EAGAIN);
}

/// Makes a call fail if the comparison of the lower half of its argument with `number` is true.
fn refuse_argument(call: libc::c_long, index: usize, comparison: u32, number: u32, errno: i32) {
    let load = |at: usize| {
        let code = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: at as u32 }
    };
    let unless = |skip: u8, comparison: u32, k: u32| {
        let code = libc::BPF_JMP | comparison | libc::BPF_K;
        libc::sock_filter { code: code as u16, jt: 0, jf: skip, k }
    };
    let end =
        |k: u32| libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k };
    let argument = std::mem::offset_of!(libc::seccomp_data, args)
        + index * size_of::<u64>()
        + if cfg!(target_endian = "big") { 4 } else { 0 };
    install(&mut [
        load(std::mem::offset_of!(libc::seccomp_data, nr)),
        unless(3, libc::BPF_JEQ, call as u32),
        load(argument),
        unless(1, comparison, number),
        end(libc::SECCOMP_RET_ERRNO | errno as u32),
        end(libc::SECCOMP_RET_ALLOW),
    ]);
}

/// `IORING_REGISTER_BUFFERS2`, which a sparse table of buffers needs.
pub const REGISTER_BUFFERS2: u32 = 15;

pub const URING: [libc::c_long; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

pub const KAIO: [libc::c_long; 4] =
    [libc::SYS_io_setup, libc::SYS_io_submit, libc::SYS_io_getevents, libc::SYS_io_destroy];
