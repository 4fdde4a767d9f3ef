//! Every public function that does I/O in every bad situation: each call returns, with the result
//! that the situation requires.
//!
//! `cargo test -p ringway --test matrix -- --nocapture` prints the results. The unit tests in
//! `src/faults.rs` run the same calls with failures of single steps, because only they can replace
//! the global engine.

#[path = "../../../ringway-core/tests/common/mod.rs"]
#[allow(dead_code, reason = "the other suites use the rest")]
mod common;
#[path = "../trust/executor.rs"]
#[allow(dead_code, reason = "the other suites use the rest")]
mod executor;
#[path = "../trust/guarded.rs"]
#[allow(dead_code, reason = "the other suites use the rest")]
mod guarded;
mod rows;
mod situations;
#[path = "../trust/watchdog.rs"]
mod watchdog;
mod whole;
#[path = "../trust/world.rs"]
#[allow(dead_code, reason = "the other suites use the rest")]
mod world;

/// Every call.
fn all() -> impl Iterator<Item = rows::Row> {
    rows::paths().into_iter().chain(rows::files())
}
