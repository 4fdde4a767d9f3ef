//! Reports a call that does not return, which its own thread cannot do.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// Longer than any test takes, on the slowest disk. `RINGWAY_WATCHDOG` sets other seconds, for
/// emulated processors.
const LIMIT: Duration = Duration::from_secs(60);

static WATCHED: Mutex<BTreeMap<u64, (Instant, String)>> = Mutex::new(BTreeMap::new());
static STARTED: Once = Once::new();

/// A watched test. Drop it when the test ends.
#[derive(Debug)]
pub struct Watched(u64);

/// Watches until the value is dropped. After a minute, or `RINGWAY_WATCHDOG` seconds, prints
/// the text and aborts the process.
pub fn watch(text: String) -> Watched {
    STARTED.call_once(|| {
        std::thread::spawn(check_all);
    });
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let number = watched.last_key_value().map_or(0, |(number, _)| number + 1);
    watched.insert(number, (Instant::now(), text));
    Watched(number)
}

impl Drop for Watched {
    fn drop(&mut self) {
        WATCHED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

fn check_all() {
    let limit = std::env::var("RINGWAY_WATCHDOG").ok().and_then(|seconds| seconds.parse().ok());
    let limit = limit.map_or(LIMIT, Duration::from_secs);
    loop {
        std::thread::sleep(Duration::from_secs(5));
        let watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = watched.values().find(|(since, _)| since.elapsed() > limit) {
            // Directly to stderr, because an abort loses captured output.
            let _ = writeln!(std::io::stderr(), "hangs: {text}");
            std::process::abort();
        }
    }
}
