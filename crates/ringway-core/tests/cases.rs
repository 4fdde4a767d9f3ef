//! Guarantee 5 through the Rust API: the cases of `conformance/` on each backend. The conformance
//! suite runs the same cases under restrictions. `RINGWAY_CASE=part-of-a-name` selects cases.

#[path = "common/cases.rs"]
#[allow(dead_code, reason = "the conformance suite uses the rest")]
mod cases;

use cases::Stop;
use ringway_core::{BackendKind, Options};
use ringway_torture::watchdog::Watchdog;
use std::env;

const KINDS: &[BackendKind] = if cfg!(ringway_linux) {
    &[BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads]
} else {
    &[BackendKind::Threads]
};

fn skip(why: &str) {
    println!("skipped: {why}");
    assert!(env::var_os("CI").is_none(), "skipped with CI set: {why}");
}

/// One test, because cases change the working directory and the limits of the process.
#[test]
fn all_cases() {
    let cases = cases::load();
    let only = env::var("RINGWAY_CASE").unwrap_or_default();
    cases::prepare_process();
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Cases that run as an ordinary user work in directories below it.
    cases::open_to_all(scratch.path());
    let (mut failed, mut count, mut raw) = (Vec::new(), 0, 0);
    for &kind in KINDS {
        if let Err(error) = Options::new().backend(kind).build() {
            skip(&format!("{kind}: {error}"));
            continue;
        }
        for case in cases.iter().filter(|case| case.name.contains(&only)) {
            let _watched = Watchdog::new(&format!("{} on {kind}", case.name));
            count += 1;
            match cases::run(case, Options::new(), kind, &scratch.path().join("case")) {
                Ok(made) => raw += made,
                Err(Stop::Skipped(why)) => skip(&why),
                Err(Stop::Failed(why)) => failed.push(format!("{kind}: {why}")),
            }
        }
    }
    assert!(count > 0 || only.is_empty(), "no case is named {only}");
    println!("{count} cases on all backends, {raw} operations made from addresses");
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}
