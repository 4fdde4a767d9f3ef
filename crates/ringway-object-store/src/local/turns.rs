//! Changes of names, one after the other for each path. A future that was dropped changes nothing
//! later: neither after another change of the same path has begun, nor beside it.

use super::write_error::{Result, WriteError};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The paths of a store whose names are being changed.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    busy: Mutex<HashSet<PathBuf>>,
    freed: Condvar,
}

/// Kept by a future. Dropping it abandons the change.
#[derive(Debug)]
pub(crate) struct Interest(Arc<AtomicBool>);

/// Given to the work of that future, on another thread.
#[derive(Debug)]
pub(crate) struct Ticket {
    turns: Arc<Turns>,
    is_abandoned: Arc<AtomicBool>,
}

/// While it exists, nobody else changes the names of its paths.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    paths: Vec<PathBuf>,
}

impl Turns {
    pub(crate) fn ticket(self: &Arc<Self>) -> (Interest, Ticket) {
        let is_abandoned = Arc::new(AtomicBool::new(false));
        (Interest(is_abandoned.clone()), Ticket { turns: self.clone(), is_abandoned })
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Ticket {
    /// Waits until nobody else changes these names. Blocks, for as long as others need for a system
    /// call.
    ///
    /// The check comes after the wait: a change that was abandoned before a later one began either
    /// has its turn already, so that the later one waits, or finds here that it was abandoned.
    ///
    /// # Errors
    ///
    /// Aborted if the future was dropped.
    pub(crate) fn turn(&self, paths: &[&Path]) -> Result<Turn<'_>> {
        let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
        let busy = self.turns.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let is_busy = |busy: &mut HashSet<PathBuf>| paths.iter().any(|path| busy.contains(path));
        let waited = self.turns.freed.wait_while(busy, is_busy);
        let mut busy = waited.unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        busy.extend(paths.iter().cloned());
        Ok(Turn { turns: &self.turns, paths })
    }

    /// # Errors
    ///
    /// Aborted if the future was dropped.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_abandoned.load(Ordering::Acquire) { Err(WriteError::Aborted) } else { Ok(()) }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut busy = self.turns.busy.lock().unwrap_or_else(PoisonError::into_inner);
        for path in &self.paths {
            busy.remove(path);
        }
        drop(busy);
        self.turns.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn one_at_a_time_for_each_path() {
        let turns = Arc::new(Turns::default());
        let (a, b, c) = (Path::new("a"), Path::new("b"), Path::new("c"));
        let (_first, ticket) = turns.ticket();
        let turn = ticket.turn(&[a, b]).unwrap();
        let (_other, other) = turns.ticket();
        drop(other.turn(&[c]).unwrap());
        let (sender, receiver) = channel();
        let waits = thread::spawn(move || {
            let turn = other.turn(&[b]).map(drop);
            sender.send(turn.is_ok()).unwrap();
        });
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err(), "b is busy");
        drop(turn);
        assert!(receiver.recv_timeout(Duration::from_secs(60)).unwrap());
        waits.join().unwrap();
        assert!(turns.busy.lock().unwrap().is_empty());
    }

    #[test]
    fn who_was_abandoned_has_no_turn() {
        let turns = Arc::new(Turns::default());
        let (interest, ticket) = turns.ticket();
        ticket.check().unwrap();
        drop(interest);
        assert!(matches!(ticket.turn(&[Path::new("a")]), Err(WriteError::Aborted)));
        assert!(turns.busy.lock().unwrap().is_empty());
    }
}
