//! A `tracing` span for each operation, from the first poll of its future to its result. Without
//! the feature `tracing` it does nothing.

use ringway_core::op::Opcode;

#[cfg(feature = "tracing")]
#[derive(Clone)]
pub(crate) struct Trace(tracing::Span);

#[cfg(feature = "tracing")]
impl Trace {
    pub(crate) fn new(opcode: Opcode, count: usize) -> Self {
        Self(tracing::trace_span!("operation", %opcode, count))
    }

    pub(crate) fn none() -> Self {
        Self(tracing::Span::none())
    }

    /// Enters the span until the guard is dropped, at the end of a poll.
    pub(crate) fn enter(&self) -> tracing::span::EnteredSpan {
        self.0.clone().entered()
    }
}

#[cfg(not(feature = "tracing"))]
#[derive(Clone, Copy)]
pub(crate) struct Trace;

#[cfg(not(feature = "tracing"))]
impl Trace {
    pub(crate) fn new(_: Opcode, _: usize) -> Self {
        Self
    }

    pub(crate) fn none() -> Self {
        Self
    }

    pub(crate) fn enter(self) -> Entered {
        Entered
    }
}

/// The guard without the feature `tracing`.
#[cfg(not(feature = "tracing"))]
pub(crate) struct Entered;
