//! The limits of this process: resource limits, capabilities, and the sysctls that disable
//! asynchronous I/O.
//!
//! Reading them changes nothing, and a value that cannot be read is `None`: in a sandbox without
//! `/proc`, or without a free descriptor, the others are still reported.

use std::fmt;
use std::fs;

// C libraries differ in the type of a resource.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
type Resource = libc::__rlimit_resource_t;
#[cfg(all(unix, not(all(target_os = "linux", target_env = "gnu"))))]
type Resource = libc::c_int;

/// A resource limit; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The current limit.
    pub soft: Option<u64>,
    /// The limit that the process may raise it to without privileges.
    pub hard: Option<u64>,
}

impl Limit {
    /// No limit.
    pub const UNLIMITED: Self = Self { soft: None, hard: None };

    /// `RLIMIT_FSIZE`: a write beyond it raises SIGXFSZ.
    #[cfg(ringway_linux)]
    pub(crate) fn of_file_size() -> Self {
        Self::of_this_process(libc::RLIMIT_FSIZE)
    }

    /// Only what is of Linux asks for it.
    #[cfg(not(ringway_linux))]
    pub(crate) fn of_file_size() -> Self {
        Self::UNLIMITED
    }

    #[cfg(unix)]
    fn of_this_process(resource: Resource) -> Self {
        let mut limit =
            libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: getrlimit writes to `limit`, which nothing else uses. It fails only for an
        // unknown resource, and then leaves the value unchanged.
        unsafe { libc::getrlimit(resource, &mut limit) };
        #[allow(clippy::unnecessary_cast, reason = "the type of a limit differs between systems")]
        let finite = |value: libc::rlim_t| (value != libc::RLIM_INFINITY).then_some(value as u64);
        Self { soft: finite(limit.rlim_cur), hard: finite(limit.rlim_max) }
    }
}

/// The soft limit as a number, or `unlimited`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.soft {
            Some(soft) => write!(f, "{soft}"),
            None => f.write_str("unlimited"),
        }
    }
}

/// Capabilities that affect what is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capability {
    /// `CAP_IPC_LOCK`: memory does not count against `RLIMIT_MEMLOCK`, in the initial user
    /// namespace only ([`Limits::may_lock_all_memory`]).
    IpcLock,
    /// `CAP_SYS_ADMIN`: overrides `kernel.io_uring_disabled=1`; allows SQPOLL before kernel 5.11.
    SysAdmin,
    /// `CAP_SYS_NICE`: allows SQPOLL on kernels 5.11 and 5.12.
    SysNice,
}

impl Capability {
    /// Its bit in `CapEff`.
    pub const fn bit(self) -> u64 {
        match self {
            Self::IpcLock => 1 << 14,
            Self::SysAdmin => 1 << 21,
            Self::SysNice => 1 << 23,
        }
    }
}

/// The limits of this process and the sysctls of this machine. A field is `None` if it could not be
/// read or this kernel does not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(any(doc, not(feature = "testing")), non_exhaustive)]
pub struct Limits {
    /// `RLIMIT_MEMLOCK`, bytes: rings and registered buffers count against it.
    pub memlock: Limit,
    /// `RLIMIT_NOFILE`: one more than the highest descriptor.
    pub nofile: Limit,
    /// `kernel.io_uring_disabled` (kernel 6.6): 0 allows all processes, 1 `io_uring_group` and
    /// CAP_SYS_ADMIN, 2 none.
    pub io_uring_disabled: Option<u32>,
    /// `kernel.io_uring_group`: a group id, -1 for none.
    pub io_uring_group: Option<i64>,
    /// `fs.aio-max-nr`: the most Linux AIO requests of all contexts on the machine.
    pub aio_max_nr: Option<u64>,
    /// `fs.aio-nr`: the Linux AIO requests that contexts have reserved.
    pub aio_nr: Option<u64>,
    /// The effective capabilities, as the bits of `CapEff`.
    pub capabilities: Option<u64>,
    /// Whether the process is in the initial user namespace. In another one, as in a rootless
    /// container, root's capabilities do not count for the machine's resources.
    pub initial_user_namespace: Option<bool>,
    /// Seccomp: 0 off, 1 strict, 2 a filter.
    pub seccomp: Option<u32>,
    /// The number of stacked seccomp filters (kernel 5.9).
    pub seccomp_filters: Option<u32>,
    /// `no_new_privs`: set-user-id programs and file capabilities have no effect.
    pub no_new_privs: Option<bool>,
}

impl Limits {
    /// Reads the limits of this process. Opens files below `/proc`, one at a time; does not block
    /// on devices.
    pub fn of_this_process() -> Self {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let field = |name| status_field(&status, name);
        Self {
            #[cfg(unix)]
            memlock: Limit::of_this_process(libc::RLIMIT_MEMLOCK),
            #[cfg(windows)]
            memlock: Limit::UNLIMITED,
            #[cfg(unix)]
            nofile: Limit::of_this_process(libc::RLIMIT_NOFILE),
            #[cfg(windows)]
            nofile: Limit::UNLIMITED,
            io_uring_disabled: sysctl("kernel/io_uring_disabled"),
            io_uring_group: sysctl("kernel/io_uring_group"),
            aio_max_nr: sysctl("fs/aio-max-nr"),
            aio_nr: sysctl("fs/aio-nr"),
            capabilities: field("CapEff").and_then(|bits| u64::from_str_radix(bits, 16).ok()),
            initial_user_namespace: fs::read_link("/proc/self/ns/user")
                .ok()
                .map(|link| link.as_os_str() == INITIAL_USER_NAMESPACE),
            seccomp: field("Seccomp").and_then(|mode| mode.parse().ok()),
            seccomp_filters: field("Seccomp_filters").and_then(|count| count.parse().ok()),
            no_new_privs: field("NoNewPrivs").map(|flag| flag == "1"),
        }
    }

    /// Whether the process has a capability in effect; `None` if unknown.
    pub fn has(&self, capability: Capability) -> Option<bool> {
        self.capabilities.map(|bits| bits & capability.bit() != 0)
    }

    /// Whether `RLIMIT_MEMLOCK` does not apply: with CAP_IPC_LOCK in the initial user namespace.
    pub fn may_lock_all_memory(&self) -> bool {
        self.has(Capability::IpcLock) == Some(true) && self.initial_user_namespace != Some(false)
    }
}

/// The number is that of `PROC_USER_INIT_INO`, part of the kernel's interface.
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

/// A number below `/proc/sys`.
fn sysctl<N: std::str::FromStr>(name: &str) -> Option<N> {
    let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    text.trim().parse().ok()
}

/// The value of one field of `/proc/PID/status`.
fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| {
        let (field, value) = line.split_once(':')?;
        (field == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_field_is_found_by_its_full_name() {
        let status = "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\nCapEff:\t0000000000004000\n";
        assert_eq!(status_field(status, "Seccomp"), Some("2"));
        assert_eq!(status_field(status, "Seccomp_filters"), Some("1"));
        assert_eq!(status_field(status, "Sec"), None);
        assert_eq!(status_field("", "Seccomp"), None);
    }

    #[test]
    fn this_process_has_limits() {
        let limits = Limits::of_this_process();
        assert!(limits.capabilities.is_some());
        assert!(limits.seccomp.is_some());
        assert_ne!(limits.nofile.soft, Some(0));
    }

    /// As root of a rootless container.
    #[test]
    fn a_capability_of_another_user_namespace_locks_no_memory() {
        let root = |initial_user_namespace| Limits {
            capabilities: Some(Capability::IpcLock.bit()),
            initial_user_namespace,
            ..Limits::of_this_process()
        };
        assert!(root(Some(true)).may_lock_all_memory() && root(None).may_lock_all_memory());
        assert!(!root(Some(false)).may_lock_all_memory());
    }

    #[test]
    fn without_the_capability_mask_has_returns_none() {
        let limits = Limits { capabilities: None, ..Limits::of_this_process() };
        assert_eq!(limits.has(Capability::IpcLock), None);
    }
}
