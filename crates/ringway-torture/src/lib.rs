//! Random sequences of operations on a [`ringway_core::Queue`], each answer compared with a model
//! of plain files.
//!
//! A [`Script`] is what any bytes decode to, so that property tests, a fuzzer and a soak command
//! can share it; [`run()`] carries it out under some [`Conditions`] and says what it saw, or what
//! was wrong.
//!
//! What is held true throughout:
//! - pushed = delivered + orphaned + in flight, after every step; every completion comes once, with
//!   the user data, the id, the kind and the buffer of its own push;
//! - an errno is one that this operation may have here and now: an ECANCELED was asked for or
//!   follows from a chain that broke, an ETIMEDOUT from a limit, an EIO from an injected fault,
//!   anything else from the model;
//! - bytes that were read are the last ones written before, or those of a write whose order to the
//!   read nothing determines; what stands behind a break in its chain has left no trace;
//! - nothing is lost: everything that can end does end, and a descriptor to poll tells of it;
//! - at the end the real files, names and pipes are as the model says, with both possibilities
//!   where a write was cancelled or failed.

mod alone;
mod content;
mod names;
mod order;
mod run;
mod script;
mod shared;
pub mod watchdog;

pub use run::{Conditions, Failure, Faults, Report, run};
pub use script::{Push, Script, Setup, Step, What};

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

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count.div_ceil(8)).flat_map(|_| self.number().to_le_bytes()).take(count).collect()
    }
}
