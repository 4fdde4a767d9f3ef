//! What `tracing` is told of operations: a span for each, from the first poll to the result.
//! Nothing without that feature.

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

    /// Entered until what is returned is dropped: while the future is being polled.
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

/// Nothing is entered.
#[cfg(not(feature = "tracing"))]
pub(crate) struct Entered;
