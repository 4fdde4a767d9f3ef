//! Fuzzes sequences of operations, cancels and faults on a queue. Files and completions must equal
//! those of the model in ringway-torture.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_core::BackendKind;
use ringway_torture::{Conditions, Faults, Script, run, watchdog::Watchdog};

/// Bytes before the script: they select the backend and the faults.
const HEAD: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    let Some((head, script)) = bytes.split_at_checked(HEAD) else { return };
    let backends = [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads, BackendKind::Null];
    let rate = |byte: u8| u16::from(byte);
    let faults = Faults {
        seed: u64::from(head[2]),
        short: rate(head[3]),
        errors: rate(head[4]),
        retryable: rate(head[5]),
        delay: rate(head[6]),
        reorder: rate(head[7]),
        // The bits that the backend and `direct` do not use. A new byte would change what the
        // existing corpus means.
        starve: rate(head[0] >> 2),
        sync_errors: rate(head[1] >> 2),
    };
    let conditions = Conditions {
        backend: backends[usize::from(head[0] % 4)],
        direct: head[1] & 1 != 0,
        faults: (head[1] & 2 != 0).then_some(faults),
    };
    let dir = tempfile::tempdir().expect("create a temporary directory");
    let script = Script::decode(script);
    let _watched = Watchdog::new(&format!("{conditions:?} {script:?}"));
    if let Err(failure) = run(&script, &conditions, dir.path())
        && !failure.refused
    {
        panic!("{conditions:?}\n{script:#?}\n{failure}");
    }
});
