//! The names of Linux's error numbers, which users search for; `libc` has them only as constants.

use crate::sys::libc;

/// The name of an error number: `EPERM` for 1. `None` for a number that Linux does not define.
///
/// If two names share a number, the usual one: `EAGAIN` rather than `EWOULDBLOCK`, `EOPNOTSUPP`
/// rather than `ENOTSUP`. On other systems than Linux it names the errors that this crate makes.
#[cfg(ringway_linux)]
pub const fn errno_name(errno: i32) -> Option<&'static str> {
    Some(match errno {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::ESRCH => "ESRCH",
        libc::EINTR => "EINTR",
        libc::EIO => "EIO",
        libc::ENXIO => "ENXIO",
        libc::E2BIG => "E2BIG",
        libc::ENOEXEC => "ENOEXEC",
        libc::EBADF => "EBADF",
        libc::ECHILD => "ECHILD",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::ENOTBLK => "ENOTBLK",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::EXDEV => "EXDEV",
        libc::ENODEV => "ENODEV",
        libc::ENOTDIR => "ENOTDIR",
        libc::EISDIR => "EISDIR",
        libc::EINVAL => "EINVAL",
        libc::ENFILE => "ENFILE",
        libc::EMFILE => "EMFILE",
        libc::ENOTTY => "ENOTTY",
        libc::ETXTBSY => "ETXTBSY",
        libc::EFBIG => "EFBIG",
        libc::ENOSPC => "ENOSPC",
        libc::ESPIPE => "ESPIPE",
        libc::EROFS => "EROFS",
        libc::EMLINK => "EMLINK",
        libc::EPIPE => "EPIPE",
        libc::EDOM => "EDOM",
        libc::ERANGE => "ERANGE",
        libc::EDEADLK => "EDEADLK",
        libc::ENAMETOOLONG => "ENAMETOOLONG",
        libc::ENOLCK => "ENOLCK",
        libc::ENOSYS => "ENOSYS",
        libc::ENOTEMPTY => "ENOTEMPTY",
        libc::ELOOP => "ELOOP",
        libc::ENOMSG => "ENOMSG",
        libc::EIDRM => "EIDRM",
        libc::ECHRNG => "ECHRNG",
        libc::EL2NSYNC => "EL2NSYNC",
        libc::EL3HLT => "EL3HLT",
        libc::EL3RST => "EL3RST",
        libc::ELNRNG => "ELNRNG",
        libc::EUNATCH => "EUNATCH",
        libc::ENOCSI => "ENOCSI",
        libc::EL2HLT => "EL2HLT",
        libc::EBADE => "EBADE",
        libc::EBADR => "EBADR",
        libc::EXFULL => "EXFULL",
        libc::ENOANO => "ENOANO",
        libc::EBADRQC => "EBADRQC",
        libc::EBADSLT => "EBADSLT",
        libc::EBFONT => "EBFONT",
        libc::ENOSTR => "ENOSTR",
        libc::ENODATA => "ENODATA",
        libc::ETIME => "ETIME",
        libc::ENOSR => "ENOSR",
        libc::ENONET => "ENONET",
        libc::ENOPKG => "ENOPKG",
        libc::EREMOTE => "EREMOTE",
        libc::ENOLINK => "ENOLINK",
        libc::EADV => "EADV",
        libc::ESRMNT => "ESRMNT",
        libc::ECOMM => "ECOMM",
        libc::EPROTO => "EPROTO",
        libc::EMULTIHOP => "EMULTIHOP",
        libc::EDOTDOT => "EDOTDOT",
        libc::EBADMSG => "EBADMSG",
        libc::EOVERFLOW => "EOVERFLOW",
        libc::ENOTUNIQ => "ENOTUNIQ",
        libc::EBADFD => "EBADFD",
        libc::EREMCHG => "EREMCHG",
        libc::ELIBACC => "ELIBACC",
        libc::ELIBBAD => "ELIBBAD",
        libc::ELIBSCN => "ELIBSCN",
        libc::ELIBMAX => "ELIBMAX",
        libc::ELIBEXEC => "ELIBEXEC",
        libc::EILSEQ => "EILSEQ",
        libc::ERESTART => "ERESTART",
        libc::ESTRPIPE => "ESTRPIPE",
        libc::EUSERS => "EUSERS",
        libc::ENOTSOCK => "ENOTSOCK",
        libc::EDESTADDRREQ => "EDESTADDRREQ",
        libc::EMSGSIZE => "EMSGSIZE",
        libc::EPROTOTYPE => "EPROTOTYPE",
        libc::ENOPROTOOPT => "ENOPROTOOPT",
        libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
        libc::ESOCKTNOSUPPORT => "ESOCKTNOSUPPORT",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::EPFNOSUPPORT => "EPFNOSUPPORT",
        libc::EAFNOSUPPORT => "EAFNOSUPPORT",
        libc::EADDRINUSE => "EADDRINUSE",
        libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
        libc::ENETDOWN => "ENETDOWN",
        libc::ENETUNREACH => "ENETUNREACH",
        libc::ENETRESET => "ENETRESET",
        libc::ECONNABORTED => "ECONNABORTED",
        libc::ECONNRESET => "ECONNRESET",
        libc::ENOBUFS => "ENOBUFS",
        libc::EISCONN => "EISCONN",
        libc::ENOTCONN => "ENOTCONN",
        libc::ESHUTDOWN => "ESHUTDOWN",
        libc::ETOOMANYREFS => "ETOOMANYREFS",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::EHOSTDOWN => "EHOSTDOWN",
        libc::EHOSTUNREACH => "EHOSTUNREACH",
        libc::EALREADY => "EALREADY",
        libc::EINPROGRESS => "EINPROGRESS",
        libc::ESTALE => "ESTALE",
        libc::EUCLEAN => "EUCLEAN",
        libc::ENOTNAM => "ENOTNAM",
        libc::ENAVAIL => "ENAVAIL",
        libc::EISNAM => "EISNAM",
        libc::EREMOTEIO => "EREMOTEIO",
        libc::EDQUOT => "EDQUOT",
        libc::ENOMEDIUM => "ENOMEDIUM",
        libc::EMEDIUMTYPE => "EMEDIUMTYPE",
        libc::ECANCELED => "ECANCELED",
        libc::ENOKEY => "ENOKEY",
        libc::EKEYEXPIRED => "EKEYEXPIRED",
        libc::EKEYREVOKED => "EKEYREVOKED",
        libc::EKEYREJECTED => "EKEYREJECTED",
        libc::EOWNERDEAD => "EOWNERDEAD",
        libc::ENOTRECOVERABLE => "ENOTRECOVERABLE",
        libc::ERFKILL => "ERFKILL",
        libc::EHWPOISON => "EHWPOISON",
        _ => return None,
    })
}

#[cfg(not(ringway_linux))]
macro_rules! names {
    ($($name:ident)*) => {
        /// The name of an error number that this crate makes or documents.
        pub const fn errno_name(errno: i32) -> Option<&'static str> {
            Some(match errno {
                $(libc::$name => stringify!($name),)*
                _ => return None,
            })
        }

        /// The error number with this name; the inverse of [`errno_name`].
        #[cfg(feature = "testing")]
        pub(crate) fn errno_from_name(name: &str) -> Option<i32> {
            [$((stringify!($name), libc::$name)),*]
                .into_iter()
                .find_map(|(known, errno)| (known == name).then_some(errno))
        }
    };
}

#[cfg(not(ringway_linux))]
names! {
    EPERM ENOENT EINTR EIO ENXIO EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EXDEV ENOTDIR
    EISDIR EINVAL ENFILE EMFILE EFBIG ENOSPC ESPIPE EPIPE ENOSYS ENOTEMPTY ELOOP ENOTSOCK EOPNOTSUPP
    ESHUTDOWN ETIMEDOUT ECANCELED
}

/// The error number with this name; the inverse of [`errno_name`].
#[cfg(all(feature = "testing", ringway_linux))]
pub(crate) fn errno_from_name(name: &str) -> Option<i32> {
    (1..=libc::EHWPOISON).find(|errno| errno_name(*errno) == Some(name))
}

/// The error number; EIO for an error that does not come from the kernel.
pub(crate) fn errno_of(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(all(test, ringway_linux))]
mod tests {
    use super::*;

    #[test]
    fn every_errno_that_the_c_library_describes_has_a_name() {
        for errno in 1..=133 {
            let text = std::io::Error::from_raw_os_error(errno).to_string();
            assert_eq!(
                errno_name(errno).is_none(),
                text.starts_with("Unknown error"),
                "{errno}: {text}"
            );
        }
        assert_eq!(errno_name(libc::EWOULDBLOCK), Some("EAGAIN"));
        assert_eq!(errno_name(0), None);
        assert_eq!(errno_name(-1), None);
        assert_eq!(errno_name(512), None);
        assert_eq!(errno_from_name("EHWPOISON"), Some(libc::EHWPOISON));
        assert_eq!(errno_from_name("EWOULDBLOCK"), None);
    }
}
