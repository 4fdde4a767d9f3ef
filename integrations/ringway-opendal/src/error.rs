//! Errors of system calls as OpenDAL's errors.

use opendal_core::{Error, ErrorKind};
use rustix::io::Errno;
use std::io;

/// Converts the error of a step. The kind follows the error number. It is temporary if the system
/// was busy, or short of something that others may release.
pub(crate) fn failed(step: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| convert(step, kind(&source), source)
}

/// As [`failed`], for a step that looks an object up: below a file there is none.
pub(crate) fn not_found(step: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| {
        let kind = match kind(&source) {
            ErrorKind::NotADirectory => ErrorKind::NotFound,
            kind => kind,
        };
        convert(step, kind, source)
    }
}

/// As [`failed`], for a step with the condition that nothing has the name yet.
pub(crate) fn failed_unless(exclusive: bool, step: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| {
        let kind = match kind(&source) {
            ErrorKind::AlreadyExists if exclusive => ErrorKind::ConditionNotMatch,
            kind => kind,
        };
        convert(step, kind, source)
    }
}

fn convert(step: &'static str, kind: ErrorKind, source: io::Error) -> Error {
    let temporary = is_temporary(&source);
    let mut error = Error::new(kind, source.to_string()).with_context("step", step);
    if let Some(errno) = source.raw_os_error() {
        error = error.with_context("errno", errno);
    }
    error.with_temporary(temporary).set_source(source)
}

fn kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
        io::ErrorKind::IsADirectory => ErrorKind::IsADirectory,
        io::ErrorKind::NotADirectory => ErrorKind::NotADirectory,
        io::ErrorKind::DirectoryNotEmpty => ErrorKind::Conflict,
        io::ErrorKind::Unsupported => ErrorKind::Unsupported,
        _ => ErrorKind::Unexpected,
    }
}

/// Whether a repetition may succeed.
pub(crate) fn is_temporary(error: &io::Error) -> bool {
    let is_limit = [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
    is_limit
        || matches!(
            error.kind(),
            io::ErrorKind::Interrupted
                | io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::ResourceBusy
                | io::ErrorKind::OutOfMemory
                | io::ErrorKind::StaleNetworkFileHandle
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_have_kinds() {
        let rows = [
            (Errno::NOENT, ErrorKind::NotFound, false),
            (Errno::ACCESS, ErrorKind::PermissionDenied, false),
            (Errno::PERM, ErrorKind::PermissionDenied, false),
            (Errno::EXIST, ErrorKind::AlreadyExists, false),
            (Errno::ISDIR, ErrorKind::IsADirectory, false),
            (Errno::NOTDIR, ErrorKind::NotADirectory, false),
            (Errno::NOTEMPTY, ErrorKind::Conflict, false),
            (Errno::OPNOTSUPP, ErrorKind::Unsupported, false),
            (Errno::IO, ErrorKind::Unexpected, false),
            (Errno::NOSPC, ErrorKind::Unexpected, false),
            (Errno::BUSY, ErrorKind::Unexpected, true),
            (Errno::MFILE, ErrorKind::Unexpected, true),
        ];
        for (errno, kind, temporary) in rows {
            let error = failed("test")(errno.into());
            assert_eq!((error.kind(), error.is_temporary()), (kind, temporary), "{errno}");
            assert!(error.to_string().contains(&format!("errno: {}", errno.raw_os_error())));
        }
        assert_eq!(not_found("test")(Errno::NOTDIR.into()).kind(), ErrorKind::NotFound);
        let exists = |exclusive| failed_unless(exclusive, "test")(Errno::EXIST.into()).kind();
        assert_eq!(exists(true), ErrorKind::ConditionNotMatch);
        assert_eq!(exists(false), ErrorKind::AlreadyExists);
    }
}
