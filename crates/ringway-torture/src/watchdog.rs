//! Aborts the process when a test hangs, which its own thread cannot do, and names the test.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// Longer than any test takes, on the slowest disk and beside other work. `RINGWAY_WATCHDOG` sets
/// other seconds, for emulated processors.
pub const LIMIT: Duration = Duration::from_secs(300);

/// The work in progress: its deadline and name, by number.
static WATCHED: Mutex<BTreeMap<u64, (Instant, String)>> = Mutex::new(BTreeMap::new());

/// A watched piece of work. Drop it when the work ends.
#[derive(Debug)]
pub struct Watchdog(u64);

impl Watchdog {
    /// Aborts the process unless it is dropped within [`LIMIT`], or `RINGWAY_WATCHDOG` seconds.
    pub fn new(name: &str) -> Self {
        let limit = std::env::var("RINGWAY_WATCHDOG").ok().and_then(|text| text.parse().ok());
        Self::with_timeout(name, limit.map_or(LIMIT, Duration::from_secs))
    }

    /// Aborts the process unless it is dropped within `timeout`.
    pub fn with_timeout(name: &str, timeout: Duration) -> Self {
        static STARTED: Once = Once::new();
        STARTED.call_once(|| {
            // Without the thread, a test that hangs is not named.
            let _ = std::thread::Builder::new().name("watchdog".into()).spawn(check_all);
        });
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        let number = watched.last_key_value().map_or(0, |(number, _)| number + 1);
        watched.insert(number, (Instant::now() + timeout, name.to_owned()));
        Self(number)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        WATCHED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

fn check_all() {
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, name)) = watched.values().find(|(end, _)| *end < Instant::now()) {
            // Directly to stderr, because an abort loses captured output.
            let _ = writeln!(std::io::stderr(), "hangs: {name}");
            std::process::abort();
        }
    }
}
