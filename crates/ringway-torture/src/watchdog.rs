//! Tells of a call that does not return: a thread that is blocked cannot do so itself.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// No script takes so long, on the slowest of disks.
const PATIENCE: Duration = Duration::from_secs(60);

static WATCHED: Mutex<BTreeMap<u64, (Instant, String)>> = Mutex::new(BTreeMap::new());
static STARTED: Once = Once::new();

/// Something that is to end soon; when it does, drop this.
#[derive(Debug)]
pub struct Watched(u64);

/// From now on until the value is dropped: if that takes a minute, prints the text and ends the
/// process.
pub fn watch(text: String) -> Watched {
    STARTED.call_once(|| {
        std::thread::spawn(look);
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

fn look() {
    loop {
        std::thread::sleep(Duration::from_secs(5));
        let watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = watched.values().find(|(since, _)| since.elapsed() > PATIENCE) {
            // Past the capture of output in tests, which an abort would lose.
            let _ = writeln!(std::io::stderr(), "does not end: {text}");
            std::process::abort();
        }
    }
}
