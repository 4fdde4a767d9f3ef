//! Every public function that does I/O in every bad situation: each call returns, with the result
//! that the situation requires.
//!
//! `cargo test -p ringway --test matrix -- --nocapture` prints the results. The unit tests in
//! `src/faults.rs` run the same calls with failures of single steps, because only they can replace
//! the global engine.

// On Linux only: the helpers in `common` use its interfaces (direct I/O, `/proc`, fork, seccomp).
// `portable.rs` has the tests for every system.
#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
mod common;
mod completeness;
mod rows;
mod situations;

/// Every call.
fn all() -> impl Iterator<Item = rows::Row> {
    rows::paths().into_iter().chain(rows::files())
}
