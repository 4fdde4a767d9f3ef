//! Why a feature was refused, in words an operator can act on: the errno, what it means here, and
//! the fix.
//!
//! A refusal is one number, and the same number has many causes: EPERM from `io_uring_setup` may
//! come from a sysctl, a seccomp filter or a security module. [`Refusal::new`] examines the machine
//! while the cause still exists and stores the explanation, so that a program can show later why it
//! fell back. The texts are data: `refusal/refusals.txt`.
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
mod table;

#[cfg(feature = "testing")]
pub(crate) use errno::errno_from_name;
pub use errno::errno_name;
pub(crate) use errno::errno_of;
use limits::Limits;
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
    /// Transfers through the page cache by io-wq workers: not in a memory cgroup of version 1 that
    /// unwritten pages may fill, where the kernel kills a process instead of letting its workers
    /// wait for memory. Threads make them there.
    CachedByIoWq,
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
    /// `RWF_DONTCACHE`: a read or a write that leaves no pages in the page cache.
    DontCache,
    /// `RWF_ATOMIC`: a write that is untorn.
    AtomicWrite,
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
            Self::CachedByIoWq => ("cached transfers by io-wq", None),
            Self::RingFd => ("registered ring descriptor", Some((5, 18))),
            Self::OpcodeTable => ("opcode table", Some((5, 6))),
            Self::KaioUserRing => ("Linux AIO completion ring in user space", None),
            Self::KaioResFd => ("Linux AIO eventfd", Some((2, 6))),
            Self::KaioFsync => ("Linux AIO fsync", Some((4, 18))),
            Self::DirectIo => ("direct I/O", None),
            Self::DontCache => ("RWF_DONTCACHE", Some((6, 14))),
            Self::AtomicWrite => ("RWF_ATOMIC", Some((6, 11))),
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
            table::explain(feature, errno, limits)
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
        Feature::DirectIo => {
            "the file or its file system does not support direct I/O, if the file \
                              opens without O_DIRECT"
                .to_owned()
        }
        _ if cfg!(ringway_portable) => {
            format!("{feature} exists on Linux only, whose interfaces this build does not use")
        }
        _ => format!("{feature} exists on Linux only, and this is {}", std::env::consts::OS),
    };
    let fix = match feature {
        Feature::Threads | Feature::AtomicWrite => "",
        Feature::DontCache => "none is needed, the transfers are made without it",
        Feature::DirectIo => "open it without O_DIRECT",
        _ => "none is needed, the threads backend does the same",
    };
    (meaning, fix.to_owned())
}

#[cfg(all(test, not(ringway_linux)))]
mod tests {
    use super::*;
    use crate::sys::libc;

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
    use super::limits::{Capability, Limit};
    use super::*;
    use crate::sys::libc;

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
