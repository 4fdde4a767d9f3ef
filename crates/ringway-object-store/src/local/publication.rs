//! Publishing: a file that is completely written gets the name of its object.

use super::dir_lock::DirLock;
use super::staged_file::{Disk, call};
use super::staging::StagedName;
use super::turns::Ticket;
use super::write_error::{Action, Result, WriteError};
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The pauses of an update between two attempts to lock the directory: the first one, and the
/// longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// When an object is published.
#[derive(Debug)]
pub(crate) enum Condition {
    /// Always.
    None,
    /// Unless it exists.
    Create,
    /// If the ETag of the present object is this one.
    Update { e_tag: String, of: fn(&Metadata) -> String },
}

/// Gives the file that `finish` returns the name of its object, if the condition holds. Returns the
/// file's metadata.
///
/// `finish` and the first attempt are one call on a thread of the engine. An update that finds the
/// directory locked tries again after a pause; no thread waits for the lock, and nothing holds it
/// between two calls. If the future is dropped, the file is removed, unless it is being given its
/// name at that moment: then no later change of that name overtakes it.
pub(crate) async fn publish(
    disk: &Disk,
    dest: &Path,
    finish: impl FnOnce() -> Result<(StagedName, Metadata)> + Send + 'static,
    condition: Condition,
) -> Result<Metadata> {
    let engine = &disk.engine;
    let path = dest.to_owned();
    let (_interest, ticket) = disk.turns.ticket();
    let first = move || {
        let (name, metadata) = finish()?;
        Finished { name, metadata, dest: path, condition, ticket }.publish()
    };
    let mut attempt = call(engine, Action::Rename, dest, first).await?;
    let (mut pause, longest) = PAUSES;
    loop {
        let finished = match attempt {
            Attempt::Published(metadata) => return Ok(metadata),
            Attempt::Busy(finished) => finished,
        };
        engine.sleep(pause).await.map_err(Action::Lock.failed(dest))?;
        pause = (pause * 2).min(longest);
        attempt = call(engine, Action::Rename, dest, move || finished.publish()).await?;
    }
}

/// A file that is completely written and closed.
struct Finished {
    name: StagedName,
    metadata: Metadata,
    dest: PathBuf,
    condition: Condition,
    ticket: Ticket,
}

#[allow(clippy::large_enum_variant)] // (Where metadata is large.) It is returned once and matched.
enum Attempt {
    Published(Metadata),
    /// Somebody else has the directory locked.
    Busy(Box<Finished>),
}

impl Finished {
    /// Blocks, but not for the lock of the directory.
    fn publish(self) -> Result<Attempt> {
        let turn = self.ticket.turn(&[&self.dest]);
        let (name, turn) = self.name.keep_if(turn)?;
        match &self.condition {
            Condition::None => name.rename(&self.dest)?,
            Condition::Create => name.link(&self.dest)?,
            Condition::Update { e_tag, of } => {
                let dir = self.dest.parent().unwrap_or(&self.dest);
                let lock = match DirLock::try_take(dir) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        drop(turn);
                        return Ok(Attempt::Busy(Box::new(Self { name, ..self })));
                    }
                    lock => lock.map_err(Action::Lock.failed(dir)),
                };
                let checked =
                    lock.and_then(|lock| check_e_tag(&self.dest, e_tag, *of).map(|()| lock));
                // Held until the new name is there.
                let (name, _lock) = name.keep_if(checked)?;
                name.rename(&self.dest)?;
            }
        }
        drop(turn);
        Ok(Attempt::Published(self.metadata))
    }
}

/// Checks that the object exists and has this ETag. Blocks.
fn check_e_tag(path: &Path, expected: &str, of: fn(&Metadata) -> String) -> Result<()> {
    let refused = |reason: String| Err(WriteError::Precondition { path: path.to_owned(), reason });
    match std::fs::metadata(path) {
        Ok(present) => match of(&present) {
            e_tag if e_tag == expected => Ok(()),
            e_tag => refused(format!("{e_tag} does not match {expected}")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => refused(error.to_string()),
        Err(error) => Err(Action::Metadata.failed(path)(error)),
    }
}
