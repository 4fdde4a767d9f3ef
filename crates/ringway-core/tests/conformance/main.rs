//! Guarantee 5: the same result on every backend. One list of cases runs on io_uring, on Linux AIO
//! and on threads, and through the fault-injecting backend with a plan without faults. Bytes,
//! results and errnos must be the same. The cases of `conformance/` run here too.
//!
//! Without restrictions each case is a test, so `cargo test abandoned_opens_are_closed` runs it.
//! Each other test is a leg: the list under one set of restrictions (an ordinary user, a seccomp
//! filter, little lockable memory ...). All run in child processes, some side by side, in which
//! the right backend must be chosen and the refusals of the others explained.
//!
//! A leg runs a share of the data, or with `RINGWAY_LONG=1` all of it.
//! `RINGWAY_CASE=part-of-a-name` selects cases of the legs, and `RINGWAY_CASE=uring` a backend. A
//! test that cannot run here prints `skipped: reason`. If `CI` is set, an unexpected skip fails.

#![cfg_attr(
    not(ringway_linux),
    allow(dead_code, unused_imports, reason = "most legs are left out")
)]

// It is full of Linux's interfaces; the build with `ringway_portable` runs it too, for the code of
// the other systems.
#[cfg(target_os = "linux")]
#[path = "suite.rs"]
mod suite;

fn main() {
    #[cfg(target_os = "linux")]
    suite::main();
}
