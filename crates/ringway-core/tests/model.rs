//! Random sequences of operations, cancels, closes and drops, checked against a model of plain
//! files: on each backend, buffered and direct, with and without faults. The documentation of
//! `ringway_torture` lists the invariants.
//!
//! `RINGWAY_MODEL_CASES` sets the number of sequences per test; `RINGWAY_LONG=1` takes more.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ringway_core::{BackendKind, BuildError, Options};
use ringway_torture::{Conditions, Faults, Script, is_long, run, watchdog::Watchdog};

fn cases() -> u32 {
    let usual = if is_long() { 200 } else { 20 };
    std::env::var("RINGWAY_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

/// Prints why a test is skipped. If `CI` is set, every backend must be available.
fn skip(error: &BuildError) {
    println!("skipped: {error}");
    assert!(std::env::var_os("CI").is_none(), "{error}");
}

fn faults() -> impl Strategy<Value = Faults> {
    let rate = || prop_oneof![Just(0), 1u16..400];
    // A completion that starves while an endless operation is in flight takes 50 ms.
    let starve = prop_oneof![Just(0), 1u16..100];
    (any::<u64>(), rate(), rate(), rate(), rate(), rate(), starve, rate()).prop_map(
        |(seed, short, errors, retryable, delay, reorder, starve, sync_errors)| Faults {
            seed,
            short,
            errors,
            retryable,
            delay,
            reorder,
            starve,
            sync_errors,
        },
    )
}

/// Scripts of up to about a hundred steps, most of them shorter.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 5..600)
}

fn check(backend: BackendKind, faults: impl Strategy<Value = Option<Faults>>) {
    if let Err(error) = Options::new().backend(backend).build() {
        if cfg!(not(ringway_linux)) {
            return println!("not on this system: {error}");
        }
        return skip(&error);
    }
    // On disk, because direct I/O on tmpfs differs from that on a device.
    let place = env!("CARGO_TARGET_TMPDIR");
    let mut runner =
        TestRunner::new(Config { cases: cases(), failure_persistence: None, ..Config::default() });
    let ran = runner.run(&(bytes(), any::<bool>(), faults), |(bytes, direct, faults)| {
        let script = Script::decode(&bytes);
        let conditions = Conditions { backend, direct, faults };
        let dir = tempfile::tempdir_in(place)?;
        let _watched = Watchdog::new(&format!("{conditions:?} {script:?}"));
        run(&script, &conditions, dir.path())
            .map_err(|failure| TestCaseError::fail(format!("{failure}\n{script:#?}")))?;
        Ok(())
    });
    if let Err(error) = ran {
        panic!("{backend}: {error}");
    }
}

#[test]
fn uring() {
    check(BackendKind::Uring, Just(None));
}

#[test]
fn kaio() {
    check(BackendKind::Kaio, Just(None));
}

#[test]
fn threads() {
    check(BackendKind::Threads, Just(None));
}

#[test]
fn uring_with_faults() {
    check(BackendKind::Uring, faults().prop_map(Some));
}

#[test]
fn kaio_with_faults() {
    check(BackendKind::Kaio, faults().prop_map(Some));
}

#[test]
fn threads_with_faults() {
    check(BackendKind::Threads, faults().prop_map(Some));
}

/// The null backend does no I/O, so only counters and completions are checked.
#[test]
fn null() {
    check(BackendKind::Null, Just(None));
}
