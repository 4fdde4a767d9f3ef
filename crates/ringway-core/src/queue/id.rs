//! The identity of an operation in flight.

use crate::slots::Key;
use std::num::NonZeroU32;

/// Identifies an operation in flight. No other operation has the same id while it is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(pub(super) Key);

impl OpId {
    /// The id as a number, greater than 0 and less than 2^56, for bindings to other languages.
    pub fn to_bits(self) -> u64 {
        u64::from(self.0.generation.get()) << 24 | u64::from(self.0.index)
    }

    /// The index of the operation's slot, less than
    /// [`Options::in_flight`](crate::Options::in_flight), for tables that a program keeps next to
    /// the queue. No other operation has it before this one's completion is delivered.
    pub fn slot(self) -> u32 {
        self.0.index
    }

    /// The id for a number from [`to_bits`](Self::to_bits); `None` for a number that cannot be one.
    pub fn from_bits(bits: u64) -> Option<Self> {
        let generation = NonZeroU32::new(u32::try_from(bits >> 24).ok()?)?;
        Some(Self(Key { index: (bits & 0xff_ffff) as u32, generation }))
    }
}
