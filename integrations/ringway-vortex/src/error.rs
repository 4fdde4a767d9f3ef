//! Errors of system calls as Vortex's.

use std::{fmt, io};
use vortex_error::VortexError;

/// The error of a step, such as `open /data/file`, with the system's error as its source.
pub(crate) fn failed(step: fmt::Arguments<'_>, error: io::Error) -> VortexError {
    VortexError::from(error).with_context(format!("ringway: {step}"))
}
