//! Random sequences of operations on a [`ringway_core::Queue`], with each result checked against a
//! model of plain files.
//!
//! A [`Script`] is decoded from any bytes, so property tests, a fuzzer and the `soak` command share
//! it. [`run()`] runs a script under some [`Conditions`] and returns a [`Report`] or the first
//! [`Failure`].
//!
//! Invariants:
//! - pushed = delivered + orphaned + in flight, after every step. Every completion comes once, with
//!   the user data, id, opcode and buffer of its push.
//! - An errno is one that this operation may have at this point: ECANCELED follows a cancel or a
//!   broken chain, ETIMEDOUT a timeout, EIO an injected fault; the model has all others.
//! - Bytes that were read are those of the last write before, or of a write whose order to the read
//!   is undefined. An operation after a failure in its chain has no effect.
//! - Nothing is lost: every operation that can end ends, and the descriptor becomes readable.
//! - At the end the real files and pipes equal the model. Where a write was cancelled or
//!   failed, the model has both possibilities.

use ringway_core::c as libc;

mod content;
mod exclusive;
mod order;
pub mod pages;
mod run;
mod script;
mod shared;
pub mod watchdog;

pub use run::{Conditions, Failure, Faults, Report, run};
pub use script::Script;

/// The system lacks some of Linux's operations, which fail with ENOSYS.
pub(crate) const LACKS_CALLS: bool = cfg!(any(not(target_os = "linux"), ringway_portable));

/// Whether an operation that not every file system or system supports may fail with this errno.
pub(crate) fn is_unsupported(errno: i32) -> bool {
    errno == libc::EOPNOTSUPP || (LACKS_CALLS && errno == libc::ENOSYS)
}

/// Whether tests take their time: `RINGWAY_LONG=1`. Otherwise those that take long run a fixed
/// share of their cases.
pub fn is_long() -> bool {
    std::env::var_os("RINGWAY_LONG").is_some_and(|value| value == "1")
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): bytes for
/// a script from a seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(content::GOLDEN);
        content::mix(self.0)
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count.div_ceil(8)).flat_map(|_| self.number().to_le_bytes()).take(count).collect()
    }
}
