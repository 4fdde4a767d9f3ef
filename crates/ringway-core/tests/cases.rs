//! Guarantee 5 through the Rust API: the cases of `conformance/` in one go. On Linux the
//! conformance suite runs the same cases on every backend, so these run on the best one only.
//! `RINGWAY_CASE=part-of-a-name` selects cases.

#[path = "common/cases.rs"]
#[allow(dead_code, reason = "the conformance suite uses the rest")]
mod cases;
#[path = "common/skip.rs"]
mod skip;

use cases::Stop;
use ringway_core::Options;
use ringway_torture::watchdog::Watchdog;
use skip::skip;
use std::env;

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
    let kind = Options::new().build().unwrap().backend();
    for case in cases.iter().filter(|case| case.name.contains(&only)) {
        let _watched = Watchdog::new(&format!("{} on {kind}", case.name));
        count += 1;
        match cases::run(case, Options::new(), kind, &scratch.path().join("case")) {
            Ok(made) => raw += made,
            Err(Stop::Skipped(why)) => skip(&why),
            Err(Stop::Failed(why)) => failed.push(why),
        }
    }
    assert!(count > 0 || only.is_empty(), "no case is named {only}");
    println!("{count} cases on {kind}, {raw} operations made from addresses");
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}
