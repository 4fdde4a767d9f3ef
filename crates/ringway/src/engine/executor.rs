//! The executors that poll futures: they decide which reactor reaps a completion.

/// Identifies a tokio runtime whose I/O driver reaps completions.
#[cfg(all(feature = "tokio", unix))]
pub(crate) use tokio::runtime::Id as RuntimeId;

/// A runtime whose I/O driver reaps completions: there is none.
#[cfg(not(all(feature = "tokio", unix)))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeId {}

/// The executor that polls a future.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Executor {
    /// A tokio runtime.
    Runtime(RuntimeId),
    /// Any other executor.
    #[default]
    Other,
    /// Any executor, in an engine with [`Reaping::Manual`](crate::Reaping::Manual).
    Manual,
}
