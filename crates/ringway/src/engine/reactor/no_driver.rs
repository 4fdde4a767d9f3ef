//! In place of `tokio.rs`: no runtime reaps completions, so the engine's thread always does.
//! This is so without the feature `tokio`, and on Windows, where tokio's I/O driver cannot wait for
//! an event object.

use crate::engine::executor::RuntimeId;
use crate::engine::shard::Shard;
use std::sync::Arc;

/// No runtime is known.
#[inline]
pub(crate) fn runtime() -> Option<RuntimeId> {
    None
}

pub(crate) fn is_in(id: RuntimeId) -> bool {
    match id {}
}

pub(crate) fn start(_: &Arc<[Shard]>, _: usize, id: RuntimeId, _: bool) {
    match id {}
}
