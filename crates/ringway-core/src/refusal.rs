//! Why a feature was refused, in words an operator can act on: the errno, what it means here, and
//! the fix.
//!
//! A refusal is one number, and the same number has many causes: EPERM from `io_uring_setup` may
//! come from a sysctl, a seccomp filter or a security module. [`Refusal::new`] examines the machine
//! while the cause still exists and stores the explanation, so that a program can show later why it
//! fell back.
//!
//! ```
//! use ringway_core::Refusal;
//! use ringway_core::refusal::Feature;
//!
//! let refusal = Refusal::new(Feature::SingleIssuer, 17); // EEXIST
//! println!("{}: {}; fix: {}", refusal.feature, refusal.meaning, refusal.fix);
//! ```

mod errno;
pub mod limits;

use crate::sys::libc;
#[cfg(feature = "testing")]
pub(crate) use errno::errno_from_name;
pub use errno::errno_name;
pub(crate) use errno::errno_of;
use limits::{Capability, Limits};
use std::fmt;

/// A feature that a kernel, a container or a limit may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// The io_uring backend: a ring, and a read through it.
    Uring,
    /// The Linux AIO backend: a context, and a read through it.
    Kaio,
    /// The threads backend: a thread of the pool.
    Threads,
    /// `IORING_SETUP_CQSIZE`: sets the size of the completion queue.
    CqSize,
    /// `IORING_SETUP_CLAMP`: lowers sizes above the kernel's limit instead of refusing them.
    Clamp,
    /// `IORING_SETUP_R_DISABLED`: one thread makes the ring, and the one that uses it enables it.
    RDisabled,
    /// `IORING_SETUP_SUBMIT_ALL`: one bad entry does not stop the batch.
    SubmitAll,
    /// `IORING_SETUP_COOP_TASKRUN`: completions do not interrupt the submitter.
    CoopTaskrun,
    /// `IORING_SETUP_TASKRUN_FLAG`: the ring shows when completions need an enter.
    TaskrunFlag,
    /// `IORING_SETUP_SINGLE_ISSUER`: only one thread submits.
    SingleIssuer,
    /// `IORING_SETUP_DEFER_TASKRUN`: completions are made when the owner enters.
    DeferTaskrun,
    /// `IORING_SETUP_NO_SQARRAY`: no index array for the submission entries.
    NoSqArray,
    /// `IORING_SETUP_SQPOLL`: a kernel thread submits.
    SqPoll,
    /// `IORING_SETUP_ATTACH_WQ`: rings share their kernel threads.
    AttachWq,
    /// `IORING_SETUP_IOPOLL`: polls the device for completions.
    IoPoll,
    /// `IORING_OP_URING_CMD` with `IORING_SETUP_SQE128` and `IORING_SETUP_CQE32`: reads and writes
    /// of an NVMe generic device as commands, without the block layer.
    Passthrough,
    /// `IORING_FEAT_EXT_ARG`: a timeout in `io_uring_enter`.
    ExtArg,
    /// `IORING_REGISTER_BUFFERS`.
    FixedBuffers,
    /// `IORING_REGISTER_FILES`.
    FixedFiles,
    /// `IORING_REGISTER_EVENTFD`.
    EventFd,
    /// `IORING_REGISTER_IOWQ_MAX_WORKERS`.
    IoWqWorkers,
    /// `IORING_REGISTER_RING_FDS`.
    RingFd,
    /// `IORING_REGISTER_PROBE`: the table of opcodes.
    OpcodeTable,
    /// Reaping Linux AIO completions from the mapped ring, without a system call.
    KaioUserRing,
    /// `IOCB_FLAG_RESFD`: Linux AIO completions signal an eventfd.
    KaioResFd,
    /// `IOCB_CMD_FSYNC` and `IOCB_CMD_FDSYNC`.
    KaioFsync,
    /// Opening a file with `O_DIRECT`.
    DirectIo,
}

impl Feature {
    /// Its name in the kernel's documentation, and the first kernel that has it.
    const fn entry(self) -> (&'static str, Option<(u32, u32)>) {
        match self {
            Self::Uring => ("io_uring", Some((5, 1))),
            Self::Kaio => ("Linux AIO", None),
            Self::Threads => ("threads", None),
            Self::CqSize => ("CQSIZE", Some((5, 5))),
            Self::Clamp => ("CLAMP", Some((5, 6))),
            Self::RDisabled => ("R_DISABLED", Some((5, 10))),
            Self::SubmitAll => ("SUBMIT_ALL", Some((5, 18))),
            Self::CoopTaskrun => ("COOP_TASKRUN", Some((5, 19))),
            Self::TaskrunFlag => ("TASKRUN_FLAG", Some((5, 19))),
            Self::SingleIssuer => ("SINGLE_ISSUER", Some((6, 0))),
            Self::DeferTaskrun => ("DEFER_TASKRUN", Some((6, 1))),
            Self::NoSqArray => ("NO_SQARRAY", Some((6, 6))),
            Self::SqPoll => ("SQPOLL", Some((5, 1))),
            Self::AttachWq => ("ATTACH_WQ", Some((5, 6))),
            Self::IoPoll => ("IOPOLL", Some((5, 1))),
            Self::Passthrough => ("NVMe passthrough", Some((5, 19))),
            Self::ExtArg => ("EXT_ARG", Some((5, 11))),
            Self::FixedBuffers => ("fixed buffers", Some((5, 1))),
            Self::FixedFiles => ("fixed files", Some((5, 1))),
            Self::EventFd => ("eventfd", Some((5, 2))),
            Self::IoWqWorkers => ("limit on io-wq workers", Some((5, 15))),
            Self::RingFd => ("registered ring descriptor", Some((5, 18))),
            Self::OpcodeTable => ("opcode table", Some((5, 6))),
            Self::KaioUserRing => ("Linux AIO completion ring in user space", None),
            Self::KaioResFd => ("Linux AIO eventfd", Some((2, 6))),
            Self::KaioFsync => ("Linux AIO fsync", Some((4, 18))),
            Self::DirectIo => ("direct I/O", None),
        }
    }

    /// The usual name: `io_uring`, `SQPOLL`, `fixed buffers`.
    pub const fn name(self) -> &'static str {
        self.entry().0
    }

    /// The first kernel (major, minor) that has it; `None` if that does not matter.
    pub const fn since(self) -> Option<(u32, u32)> {
        self.entry().1
    }

    fn is_kaio(self) -> bool {
        matches!(self, Self::Kaio | Self::KaioUserRing | Self::KaioResFd | Self::KaioFsync)
    }

    /// True for parts of io_uring, which are refused together with it.
    fn is_uring(self) -> bool {
        !self.is_kaio() && !matches!(self, Self::Threads | Self::DirectIo)
    }

    /// True for bits of `io_uring_params.flags`.
    fn is_setup_flag(self) -> bool {
        matches!(
            self,
            Self::CqSize
                | Self::Clamp
                | Self::RDisabled
                | Self::SubmitAll
                | Self::CoopTaskrun
                | Self::TaskrunFlag
                | Self::SingleIssuer
                | Self::DeferTaskrun
                | Self::NoSqArray
                | Self::SqPoll
                | Self::AttachWq
                | Self::IoPoll
        )
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A feature that is not available: the errno, what it means on this machine, and the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(any(doc, not(feature = "testing")), non_exhaustive)]
pub struct Refusal {
    /// The requested feature.
    pub feature: Feature,
    /// The kernel's errno.
    pub errno: i32,
    /// What the errno means for this feature on this machine.
    pub meaning: String,
    /// What an operator can do about it; empty if nothing.
    pub fix: String,
}

impl Refusal {
    /// Explains `errno` as the result of requesting `feature`, with the current limits and sysctls
    /// of this process and machine.
    ///
    /// Reads a few files below `/proc`. Files that cannot be read (no free descriptor, no `/proc`)
    /// make the explanation less exact, but cause no error. Takes tens of microseconds: meant for
    /// refusals during setup, not for failed operations.
    pub fn new(feature: Feature, errno: i32) -> Self {
        Self::with_limits(feature, errno, &Limits::of_this_process())
    }

    /// As [`Refusal::new`], with limits that were read before.
    pub(crate) fn with_limits(feature: Feature, errno: i32, limits: &Limits) -> Self {
        let (meaning, fix) = if cfg!(ringway_linux) {
            explain(feature, errno, limits)
        } else {
            explain_elsewhere(feature)
        };
        Self { feature, errno, meaning, fix }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { feature, errno, meaning, fix } = self;
        write!(f, "{feature} refused: {}: {meaning}", errno_text(*errno))?;
        if !fix.is_empty() {
            write!(f, "; fix: {fix}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

/// `EPERM (Operation not permitted)`; `errno 999` for a number without a name.
pub fn errno_text(errno: i32) -> String {
    match errno_name(errno) {
        Some(name) => {
            let text = std::io::Error::from_raw_os_error(errno).to_string();
            // The standard library appends "(os error 1)", which repeats the name.
            let text = text.split(" (os error").next().unwrap_or(&text);
            format!("{name} ({text})")
        }
        None => format!("errno {errno}"),
    }
}

/// `8 MiB`, `64 KiB`, `1000 bytes`: the largest unit that is exact.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (size, unit) in UNITS {
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{} {unit}", bytes / size);
        }
    }
    format!("{bytes} bytes")
}

/// The meaning of a refusal on a system other than Linux.
fn explain_elsewhere(feature: Feature) -> (String, String) {
    let meaning = match feature {
        Feature::Threads => "the system refuses another thread".to_owned(),
        _ if cfg!(ringway_portable) => {
            format!("{feature} exists on Linux only, whose interfaces this build does not use")
        }
        _ => format!("{feature} exists on Linux only, and this is {}", std::env::consts::OS),
    };
    let fix = match feature {
        Feature::Threads => "",
        _ => "none is needed, the threads backend does the same",
    };
    (meaning, fix.to_owned())
}

const RAISE_MEMLOCK: &str =
    "raise the limit (ulimit -l; LimitMEMLOCK= in systemd; docker run --ulimit memlock=-1)";

/// The meaning of `errno` as the result of requesting `feature`, and the fix. Pure: `limits` holds
/// all facts about the machine.
fn explain(feature: Feature, errno: i32, limits: &Limits) -> (String, String) {
    use Feature::*;
    let text = |meaning: &str, fix: &str| (meaning.to_owned(), fix.to_owned());
    if errno == libc::EPERM
        && feature.is_uring()
        && let Some(sysctl) = explain_sysctl(limits)
    {
        return sysctl;
    }
    match (errno, feature) {
        (libc::EPERM, SqPoll) if limits.seccomp != Some(2) => text(
            "before kernel 5.13 a polling thread needs CAP_SYS_NICE, before 5.11 CAP_SYS_ADMIN",
            "run without SQPOLL, give the process CAP_SYS_NICE, or use kernel 5.13 or newer",
        ),
        (libc::EBADF, SqPoll) => text(
            "before kernel 5.11 a polling thread reads registered files only",
            "run without SQPOLL, or use kernel 5.11 or newer",
        ),
        (libc::EPERM, AttachWq) => text(
            "the polling thread belongs to another process, or to the parent of this one",
            "make the first ring in the process that attaches to it",
        ),
        (libc::EPERM | libc::EACCES, Passthrough) if limits.seccomp != Some(2) => text(
            "the process may not send commands to the device: before kernel 6.2 that needs \
             CAP_SYS_ADMIN, and from then on a device that is open for reading or writing",
            "give the process CAP_SYS_ADMIN, use kernel 6.2 or newer, or open the block device \
             (/dev/nvme0n1) for direct I/O",
        ),
        (libc::EPERM, DirectIo) => text(
            "O_DIRECT is not permitted for the file, or the container does not have the device",
            "check the file's attributes (lsattr), or pass the device to the container (docker \
             run --device)",
        ),
        (libc::EACCES, DirectIo) => text(
            "the file's mode or a security module refuses it",
            "check the mode of the file and of the directories above it",
        ),
        (libc::EPERM | libc::EACCES, _) => explain_denied(feature, limits),

        (libc::ENOSYS, Threads) => {
            text("a sandbox refuses new threads", "allow clone and clone3 in the sandbox")
        }
        // The ring exists, so only this part of it is missing.
        (libc::ENOSYS, _)
            if limits.seccomp != Some(2)
                && feature != Uring
                && feature.is_uring()
                && !feature.is_setup_flag() =>
        {
            explain_unknown(feature)
        }
        (libc::ENOSYS, _) => explain_missing(feature, limits),

        (libc::EINVAL | libc::EOPNOTSUPP, Uring) => text(
            "the kernel rejected the parameters or a read: io_uring is too old or incomplete here",
            "use Linux 5.6 or newer outside a sandboxed kernel (gVisor), or another backend",
        ),
        (libc::EINVAL, DeferTaskrun) => text(
            "this kernel does not support DEFER_TASKRUN, or it was requested without \
             SINGLE_ISSUER or with SQPOLL",
            "none needed: rings work without it; kernel 6.1 or newer supports it",
        ),
        (libc::EINVAL, AttachWq) => text(
            "the descriptor to attach to is not a ring, or this kernel does not support ATTACH_WQ",
            "attach to an open ring; kernel 5.6 or newer supports it",
        ),
        (libc::EINVAL, IoPoll) => text(
            "the file was not opened with O_DIRECT, or the operation is not a read or a write",
            "open files with O_DIRECT and use this ring for reads and writes only",
        ),
        (libc::EINVAL, Passthrough) => text(
            "this kernel does not pass NVMe commands through io_uring",
            "use kernel 5.19 or newer, or open the block device (/dev/nvme0n1) for direct I/O",
        ),
        #[cfg(ringway_linux)]
        (libc::ENOTTY, Passthrough) => text(
            "the file is not an NVMe generic device",
            "open the character device of the namespace (/dev/ng0n1), which kernels from 5.13 on \
             have",
        ),
        (libc::EOPNOTSUPP, Passthrough) => text(
            "only io_uring passes NVMe commands, and only to devices whose driver supports that",
            "use io_uring, or open the block device (/dev/nvme0n1) for direct I/O",
        ),
        (libc::EINVAL, Kaio) => text(
            "the context's size is 0 or too large, or Linux AIO does not support the request",
            "use fewer requests in flight",
        ),
        (libc::EINVAL, DirectIo) => text(
            "this file system does not support direct I/O",
            "move the file to a file system with it (ext4, xfs, btrfs), or use buffered reads",
        ),
        (libc::EINVAL, FixedBuffers) => text(
            "a registered buffer is empty or larger than 1 GiB, or there are more than the kernel \
             takes at once (16384; before kernel 5.13, 1024)",
            "register fewer or smaller buffers",
        ),
        (libc::EINVAL, _) if feature.since().is_some() => explain_unknown(feature),

        (libc::ENOMEM, FixedBuffers) => {
            let (meaning, fix) =
                explain_no_memory("registered memory counts", "register fewer buffers", limits);
            let meaning =
                format!("{meaning}; a buffer in a huge page counts as the whole page (2 MiB)");
            (meaning, fix)
        }
        (libc::ENOMEM, _) if feature.is_kaio() => text(
            "not enough kernel memory or address space for the completion ring",
            "check the container's memory limit (memory.max), ulimit -v and vm.max_map_count",
        ),
        (libc::ENOMEM, Threads) => text(
            "no memory for a thread's stack",
            "check the memory limit of the container (memory.max) and ulimit -v",
        ),
        (libc::ENOMEM, _) => {
            let (meaning, fix) =
                explain_no_memory("ring memory counts", "create fewer or smaller rings", limits);
            // (A queue has waited for that.)
            let has_limit = limits.memlock.soft.is_some_and(|soft| soft > 0);
            let note = if has_limit && !limits.may_lock_all_memory() {
                "; that of a closed ring counts for some milliseconds"
            } else {
                ""
            };
            (meaning + note, fix)
        }

        (libc::EMFILE, FixedFiles) => (
            format!("the table is larger than RLIMIT_NOFILE ({})", limits.nofile),
            "register fewer files or raise the limit (ulimit -n; LimitNOFILE= in systemd)"
                .to_owned(),
        ),
        (libc::EMFILE, _) => (
            format!("this process is out of descriptors; RLIMIT_NOFILE is {}", limits.nofile),
            "close descriptors or raise the limit (ulimit -n; LimitNOFILE= in systemd; docker run \
             --ulimit nofile=)"
                .to_owned(),
        ),
        (libc::ENFILE, _) => text(
            "the machine is out of descriptors",
            "raise fs.file-max, or find the process that leaks descriptors (lsof)",
        ),

        (libc::EBADF, IoPoll | Passthrough) => {
            text("the file is not open for reading", "open it for reading too")
        }
        (libc::EOPNOTSUPP, IoPoll) => text(
            "only io_uring polls for completions, and the file's device must support it",
            "use io_uring and a device whose queue/io_poll is 1 (NVMe booted with \
             nvme.poll_queues=N), opened with O_DIRECT",
        ),
        (libc::EOPNOTSUPP, SqPoll | AttachWq) => text(
            "only io_uring has it, and the queue uses another backend",
            "none needed: operations work without it",
        ),
        (libc::EOPNOTSUPP, KaioUserRing) => text(
            "the completion ring's header is not one that is known to be readable from user space",
            "none needed: completions are fetched with io_getevents",
        ),
        (libc::EOPNOTSUPP, DirectIo) => text(
            "this file system does not support direct I/O",
            "move the file to a file system with it (ext4, xfs, btrfs), or use buffered reads",
        ),
        (libc::EOPNOTSUPP, _) => text(
            "this kernel, file system or device does not support it",
            "none needed: operations work without it",
        ),

        (libc::ECHILD, _) => {
            text("the queue belongs to the parent process", "make a new queue in this process")
        }
        (libc::EAGAIN, _) if feature.is_kaio() => explain_aio_full(limits),
        (libc::EAGAIN, Threads) => text(
            "no more threads are allowed",
            "raise ulimit -u or the container's pids.max (docker run --pids-limit)",
        ),
        (libc::EAGAIN, _) => text(
            "the kernel is temporarily short of a resource",
            "try again with fewer requests in flight",
        ),

        (libc::EEXIST, _) => text(
            "the ring belongs to the thread that made it, and another thread entered it",
            "make the queue on the thread that uses it",
        ),

        (libc::EBUSY, FixedBuffers | FixedFiles) => text(
            "this kernel (before 5.19) registers them only while no operation is in flight",
            "register before the first operation, or when all have completed",
        ),
        (libc::EBUSY, EventFd) => {
            text("the ring already has an eventfd registered", "unregister the earlier one first")
        }
        (libc::ENOSPC, FixedBuffers | FixedFiles) => text(
            "a queue registers at most 64",
            "register fewer and larger buffers, or the most used files only",
        ),
        (libc::EBUSY, RingFd) => text(
            "a thread can register at most 16 ring descriptors",
            "none needed: rings work without it; use fewer rings on one thread",
        ),
        (libc::EBUSY, Uring) => text(
            "completions overflowed and must be reaped first",
            "reap completions, or make the completion queue larger",
        ),
        (libc::EBUSY, _) => text("it is in use", "try again later"),

        (libc::ETIMEDOUT, Uring | Kaio) => text(
            "a read through it did not complete",
            "check whether a sandbox emulates it incompletely (gVisor)",
        ),
        (libc::EIO, Uring | Kaio) => text(
            "a read through it returned wrong bytes",
            "check whether a sandbox emulates it incompletely (gVisor)",
        ),
        _ => text("the kernel returned an unexpected error", ""),
    }
}

/// EPERM from `io_uring_setup` because of a sysctl (kernel 6.6 and newer).
fn explain_sysctl(limits: &Limits) -> Option<(String, String)> {
    match limits.io_uring_disabled? {
        // With 1, members of one group and CAP_SYS_ADMIN may use io_uring; a process with the
        // capability was refused for another reason.
        1 if limits.has(Capability::SysAdmin) == Some(true) => None,
        1 => Some(match limits.io_uring_group {
            Some(group) if group >= 0 => (
                format!(
                    "kernel.io_uring_disabled is 1, and this process is not in group {group} \
                     (kernel.io_uring_group)"
                ),
                format!("run it in group {group}, or sysctl -w kernel.io_uring_disabled=0"),
            ),
            _ => (
                "kernel.io_uring_disabled is 1, which restricts io_uring to CAP_SYS_ADMIN"
                    .to_owned(),
                "set kernel.io_uring_group to a group of this process, or sysctl -w \
                 kernel.io_uring_disabled=0"
                    .to_owned(),
            ),
        }),
        2 => Some((
            "kernel.io_uring_disabled is 2".to_owned(),
            "sysctl -w kernel.io_uring_disabled=0".to_owned(),
        )),
        _ => None,
    }
}

/// A feature that this kernel is too old for.
fn explain_unknown(feature: Feature) -> (String, String) {
    let fix = match feature.since() {
        Some((major, minor)) => {
            format!(
                "none needed: operations work without it; kernel {major}.{minor} or newer \
                 supports it"
            )
        }
        None => String::new(),
    };
    (format!("this kernel does not support {feature}"), fix)
}

/// The system calls that a seccomp profile must allow for a feature.
fn system_calls(feature: Feature) -> &'static str {
    if feature.is_kaio() {
        "io_setup, io_submit, io_getevents and io_destroy"
    } else if feature == Feature::Threads {
        "clone and clone3"
    } else {
        "io_uring_setup, io_uring_enter and io_uring_register"
    }
}

/// EPERM or EACCES that no sysctl explains.
fn explain_denied(feature: Feature, limits: &Limits) -> (String, String) {
    if limits.seccomp == Some(2) {
        (
            "a seccomp filter of the container or service refuses it".to_owned(),
            allow_in_seccomp(feature),
        )
    } else {
        (
            "a security module or a sandbox refuses it".to_owned(),
            "look for denials of SELinux or AppArmor (ausearch -m avc, dmesg)".to_owned(),
        )
    }
}

/// ENOSYS: the system call does not exist, or a seccomp filter pretends so.
fn explain_missing(feature: Feature, limits: &Limits) -> (String, String) {
    let (built, option) = if feature.is_kaio() {
        ("Linux AIO", "CONFIG_AIO=y")
    } else {
        ("io_uring", "CONFIG_IO_URING=y, version 5.6 or newer")
    };
    if limits.seccomp == Some(2) {
        (
            format!("a seccomp filter hides it, or the kernel was built without {built}"),
            allow_in_seccomp(feature),
        )
    } else {
        (
            format!("the kernel was built without {built}, is too old, or is a sandbox's (gVisor)"),
            format!("use a kernel with {option}"),
        )
    }
}

fn allow_in_seccomp(feature: Feature) -> String {
    format!(
        "allow {} in the seccomp profile (docker run --security-opt seccomp=PROFILE; \
         SystemCallFilter=@aio in systemd)",
        system_calls(feature)
    )
}

/// ENOMEM for memory that counts against `RLIMIT_MEMLOCK`.
fn explain_no_memory(charged: &str, smaller: &str, limits: &Limits) -> (String, String) {
    match limits.memlock.soft {
        Some(soft) if !limits.may_lock_all_memory() => (
            format!(
                "{charged} against RLIMIT_MEMLOCK, which is {} for all processes of this user \
                 together{}",
                bytes_text(soft),
                match limits.has(Capability::IpcLock) {
                    Some(true) => {
                        " (CAP_IPC_LOCK does not lift it in a user namespace, such as a rootless \
                         container's)"
                    }
                    _ => "",
                }
            ),
            format!("{smaller}, or {RAISE_MEMLOCK}"),
        ),
        _ => (
            "the kernel has no memory for it; RLIMIT_MEMLOCK does not apply to this process"
                .to_owned(),
            format!("{smaller}; check the container's memory limit (memory.max)"),
        ),
    }
}

/// EAGAIN from `io_setup`: the machine-wide limit of Linux AIO requests is reached.
fn explain_aio_full(limits: &Limits) -> (String, String) {
    match limits.aio_max_nr {
        Some(max) => {
            let taken = match limits.aio_nr {
                Some(taken) => format!(", and {taken} are in use"),
                None => String::new(),
            };
            (
                format!("fs.aio-max-nr is {max} for the whole machine{taken}"),
                format!(
                    "sysctl -w fs.aio-max-nr={}, or use fewer requests in flight",
                    max.saturating_mul(4).max(1 << 20)
                ),
            )
        }
        None => (
            "the machine's limit of Linux AIO requests (fs.aio-max-nr) is reached".to_owned(),
            "sysctl -w fs.aio-max-nr=1048576, or use fewer requests in flight".to_owned(),
        ),
    }
}

#[cfg(all(test, not(ringway_linux)))]
mod tests {
    use super::*;

    #[test]
    fn what_only_linux_has_is_explained() {
        for feature in [Feature::Uring, Feature::Kaio] {
            let refusal = Refusal::new(feature, libc::ENOSYS);
            assert!(refusal.meaning.contains("exists on Linux only"), "{refusal}");
            assert!(refusal.fix.contains("threads backend"), "{refusal}");
        }
        assert!(!Refusal::new(Feature::Threads, libc::EAGAIN).meaning.contains("Linux"));
    }
}

#[cfg(all(test, ringway_linux))]
mod tests {
    use super::limits::Limit;
    use super::*;

    /// An ordinary user of a machine without restrictions.
    fn ordinary() -> Limits {
        Limits {
            memlock: Limit { soft: Some(8 << 20), hard: Some(8 << 20) },
            nofile: Limit { soft: Some(1024), hard: Some(4096) },
            io_uring_disabled: Some(0),
            io_uring_group: Some(-1),
            aio_max_nr: Some(65536),
            aio_nr: Some(65000),
            capabilities: Some(0),
            initial_user_namespace: Some(true),
            seccomp: Some(0),
            seccomp_filters: Some(0),
            no_new_privs: Some(false),
        }
    }

    fn line(feature: Feature, errno: i32, limits: &Limits) -> String {
        Refusal::with_limits(feature, errno, limits).to_string()
    }

    /// Rings of 5.1 to 5.5, and none at all.
    #[test]
    fn an_old_kernel_is_told_which_is_new_enough() {
        for errno in [libc::EINVAL, libc::EOPNOTSUPP, libc::ENOSYS] {
            let line = line(Feature::Uring, errno, &ordinary());
            assert!(line.contains("5.6 or newer"), "{line}");
        }
    }

    /// The kernel is not to blame for what the backend lacks.
    #[test]
    fn options_of_rings_are_refused_by_other_backends() {
        use Feature::{AttachWq, IoPoll, Passthrough, SqPoll};
        for feature in [AttachWq, IoPoll, Passthrough, SqPoll] {
            let line = line(feature, libc::EOPNOTSUPP, &ordinary());
            assert!(line.contains("only io_uring"), "{line}");
            assert!(!line.contains("this kernel"), "{line}");
        }
    }

    #[test]
    fn a_sysctl_is_named_with_the_command_that_resets_it() {
        let limits = Limits { io_uring_disabled: Some(2), seccomp: Some(2), ..ordinary() };
        assert_eq!(
            line(Feature::Uring, libc::EPERM, &limits),
            "io_uring refused: EPERM (Operation not permitted): kernel.io_uring_disabled is 2; \
             fix: sysctl -w kernel.io_uring_disabled=0"
        );
    }

    #[test]
    fn the_fix_names_the_sysctls_group_if_there_is_one() {
        let limits = Limits { io_uring_disabled: Some(1), io_uring_group: Some(27), ..ordinary() };
        assert!(line(Feature::Uring, libc::EPERM, &limits).contains("run it in group 27"));
        let limits = Limits { io_uring_group: Some(-1), ..limits };
        assert!(line(Feature::Uring, libc::EPERM, &limits).contains("set kernel.io_uring_group"));
        // CAP_SYS_ADMIN overrides the sysctl, so there is another cause.
        let limits = Limits { capabilities: Some(Capability::SysAdmin.bit()), ..limits };
        assert!(line(Feature::Uring, libc::EPERM, &limits).contains("security module"));
    }

    #[test]
    fn seccomp_is_blamed_only_where_a_filter_is_installed() {
        let filtered = Limits { seccomp: Some(2), ..ordinary() };
        for errno in [libc::EPERM, libc::ENOSYS] {
            assert!(line(Feature::Uring, errno, &filtered).contains("allow io_uring_setup"));
            assert!(line(Feature::Kaio, errno, &filtered).contains("allow io_setup"));
            assert!(!line(Feature::Uring, errno, &ordinary()).contains("seccomp"));
        }
    }

    #[test]
    fn memlock_is_blamed_only_where_it_applies() {
        let user = line(Feature::Uring, libc::ENOMEM, &ordinary());
        assert!(user.contains("RLIMIT_MEMLOCK, which is 8 MiB"), "{user}");
        assert!(user.contains("ulimit -l") && user.contains("a closed ring"), "{user}");
        let root = Limits { capabilities: Some(Capability::IpcLock.bit()), ..ordinary() };
        assert!(line(Feature::Uring, libc::ENOMEM, &root.clone()).contains("does not apply"));
        let rootless = Limits { initial_user_namespace: Some(false), ..root };
        let rootless = line(Feature::Uring, libc::ENOMEM, &rootless);
        assert!(rootless.contains("RLIMIT_MEMLOCK, which is 8 MiB"), "{rootless}");
        assert!(rootless.contains("CAP_IPC_LOCK does not lift it"), "{rootless}");
        let buffers = line(Feature::FixedBuffers, libc::ENOMEM, &ordinary());
        assert!(buffers.contains("huge page"), "{buffers}");
        let unlimited = Limits { memlock: Limit::UNLIMITED, ..ordinary() };
        assert!(line(Feature::FixedBuffers, libc::ENOMEM, &unlimited).contains("does not apply"));
    }

    #[test]
    fn the_kaio_limit_is_reported_with_its_use() {
        let full = line(Feature::Kaio, libc::EAGAIN, &ordinary());
        assert!(full.contains("fs.aio-max-nr is 65536"), "{full}");
        assert!(full.contains("65000 are in use"), "{full}");
        assert!(full.contains("sysctl -w fs.aio-max-nr=1048576"), "{full}");
    }

    #[test]
    fn an_unknown_flag_names_the_kernel_that_has_it() {
        let old = line(Feature::NoSqArray, libc::EINVAL, &ordinary());
        assert!(old.contains("does not support NO_SQARRAY"), "{old}");
        assert!(old.contains("kernel 6.6 or newer"), "{old}");
    }

    #[test]
    fn a_missing_feature_does_not_mean_that_io_uring_is_missing() {
        assert!(
            line(Feature::ExtArg, libc::ENOSYS, &ordinary()).contains("does not support EXT_ARG")
        );
        assert!(
            line(Feature::IoPoll, libc::ENOSYS, &ordinary()).contains("built without io_uring")
        );
        assert!(line(Feature::Uring, libc::ENOSYS, &ordinary()).contains("built without io_uring"));
    }

    #[test]
    fn descriptors_are_counted_against_their_limit() {
        assert!(line(Feature::Uring, libc::EMFILE, &ordinary()).contains("RLIMIT_NOFILE is 1024"));
    }

    #[test]
    fn an_unknown_errno_is_still_explained() {
        assert_eq!(
            line(Feature::Uring, 9999, &ordinary()),
            "io_uring refused: errno 9999: the kernel returned an unexpected error"
        );
    }

    #[test]
    fn a_failed_trial_is_explained() {
        for (errno, meaning) in [(libc::ETIMEDOUT, "did not complete"), (libc::EIO, "wrong bytes")]
        {
            for feature in [Feature::Uring, Feature::Kaio] {
                let text = line(feature, errno, &ordinary());
                assert!(text.contains(meaning) && text.contains("gVisor"), "{text}");
            }
        }
    }

    #[test]
    fn sizes_are_exact() {
        assert_eq!(bytes_text(8 << 20), "8 MiB");
        assert_eq!(bytes_text(64 << 10), "64 KiB");
        assert_eq!(bytes_text((1 << 20) + 1), "1048577 bytes");
        assert_eq!(bytes_text(0), "0 bytes");
    }

    #[test]
    fn a_refusal_reads_the_limits_of_the_machine() {
        let refusal = Refusal::new(Feature::SingleIssuer, libc::EEXIST);
        assert!(refusal.fix.contains("on the thread that uses it"));
    }
}
