//! The names of Linux's error numbers, which users search for; `libc` has them only as constants.

use crate::sys::libc;

macro_rules! names {
    ($($name:ident)*) => {
        /// The name of an error number: `EPERM` for 1. `None` for a number that Linux does not
        /// define.
        ///
        /// If two names share a number, the usual one: `EAGAIN` rather than `EWOULDBLOCK`,
        /// `EOPNOTSUPP` rather than `ENOTSUP`. On other systems than Linux it names the errors that
        /// this crate makes.
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

#[cfg(ringway_linux)]
names! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
    ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
    ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP
    ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH ENOCSI EL2HLT EBADE EBADR EXFULL
    ENOANO EBADRQC EBADSLT EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG EREMOTE ENOLINK EADV
    ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG ELIBACC ELIBBAD
    ELIBSCN ELIBMAX ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE
    EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT
    EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN
    ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY
    EINPROGRESS ESTALE EUCLEAN ENOTNAM ENAVAIL EISNAM EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE
    ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE ERFKILL
    EHWPOISON
}

#[cfg(not(ringway_linux))]
names! {
    EPERM ENOENT EINTR EIO ENXIO EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EXDEV ENOTDIR
    EISDIR EINVAL ENFILE EMFILE EFBIG ENOSPC ESPIPE EPIPE ENOSYS ENOTEMPTY ELOOP ENOTSOCK EOPNOTSUPP
    ESHUTDOWN ETIMEDOUT ECANCELED
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
