//! Aborts the process when a test hangs, and names the test.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// Longer than any case takes, even on a busy machine and under a sanitizer.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Limits the time of a named piece of work: unless this is dropped within [`TEST_TIMEOUT`] (or the
/// given time), the process aborts.
pub struct Watchdog(u64);

/// The work in progress: its name and deadline, by number.
type Running = BTreeMap<u64, (String, Instant)>;

static RUNNING: Mutex<Running> = Mutex::new(BTreeMap::new());

impl Watchdog {
    pub fn new(name: &str) -> Self {
        Self::with_timeout(name, TEST_TIMEOUT)
    }

    pub fn with_timeout(name: &str, timeout: Duration) -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            _ = std::thread::Builder::new().name("watchdog".into()).spawn(watch).unwrap()
        });
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let number = running.last_key_value().map_or(0, |(last, _)| last + 1);
        running.insert(number, (name.to_owned(), Instant::now() + timeout));
        Self(number)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

fn watch() {
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((name, _)) = running.values().find(|(_, end)| *end < Instant::now()) {
            // Unlike the output of the macros, this is not captured, and so not lost by the abort.
            let _ = writeln!(std::io::stderr(), "{name} hangs");
            std::process::abort();
        }
    }
}
