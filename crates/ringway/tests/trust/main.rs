//! What a program may trust in, whatever its executor, its backend and its luck: the contracts of
//! the design through the Rust door, several runtimes at once, cancels at random moments, panics,
//! shutdowns, forks, refusals, and too much of everything.
//!
//! `RINGWAY_CASE=part-of-a-name` runs those of the contracts' cases alone. `RINGWAY_STORM=60` has
//! the cancel storm last that many seconds. What cannot be tested here prints `skipped: why`; where
//! `CI` is set, a skip that is not expected fails.

mod busy;
#[path = "../../../ringway-core/tests/common/mod.rs"]
mod common;
mod compile;
mod contracts;
mod durable;
mod examples;
mod executor;
mod global;
mod guarded;
mod idle;
mod life;
mod log;
mod panics;
mod pressure;
mod process;
mod runtimes;
mod shutdown;

mod storm;
mod watchdog;
mod world;
