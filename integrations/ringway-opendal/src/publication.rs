//! How a written file becomes the object, in steps, of which none is made twice.

use crate::config::Durability;
use crate::disk::Disk;
use crate::error::{failed, failed_unless, is_temporary};
use crate::exclusive::Exclusive;
use crate::flush::flush;
use crate::metadata::of_file;
use crate::staged::{Access, StagedFile, StagedName};
use futures::future::BoxFuture;
use opendal_core::{Buffer, Error, ErrorKind, Metadata, Result};
use ringway::fs::File;
use ringway_core::run_in_background;
use std::io;
use std::mem::replace;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The object that a write makes.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) disk: Arc<Disk>,
    pub(crate) path: PathBuf,
    /// Only if there is no such object.
    pub(crate) exclusive: bool,
    pub(crate) user: Arc<[(String, String)]>,
}

impl Target {
    /// Creates the file with the beginning of its content.
    pub(crate) async fn begin(&self, content: Buffer) -> Result<(File, StagedName)> {
        let target = self.clone();
        let create = move || target.create(content, Access::Usual);
        let StagedFile { file, name } = self.disk.call("create the file", create).await?;
        Ok((file, name))
    }

    /// Blocks.
    pub(crate) fn create(&self, content: Buffer, access: Access) -> io::Result<StagedFile> {
        StagedFile::create(&self.disk, &self.path, self.exclusive, &self.user, content, access)
    }
}

/// A file on its way to its name. It goes on where a dropped future or an error has stopped it.
pub(crate) struct Publication {
    target: Target,
    step: Step,
}

enum Step {
    /// The content is to be synced.
    Sync(File, StagedName),
    /// Writes whose futures were dropped are to end.
    Drain(Exclusive<BoxFuture<'static, io::Result<std::fs::File>>>, StagedName),
    /// The file is to get its name.
    Name(Arc<Mutex<Naming>>),
    /// The name is to be made durable.
    Directories(Named),
    /// The object has its name. A sync has failed, so whether that is durable is not known.
    Unsynced,
    /// The file is gone.
    Failed,
}

/// What the call that names the file is about: if its future is dropped, it still ends.
enum Naming {
    /// The file is to be created as well.
    Content(Buffer),
    File(StagedFile),
    Named(Named),
    Failed,
}

#[derive(Clone)]
struct Named {
    metadata: Metadata,
    dir: PathBuf,
}

impl Publication {
    /// Of a file that is completely written. No other clone of it may exist.
    pub(crate) fn of_file(target: Target, file: File, name: StagedName) -> Self {
        let step = match target.disk.durability {
            Durability::None => drain(file, name),
            Durability::Content | Durability::Full => Step::Sync(file, name),
        };
        Self { target, step }
    }

    /// Of an object that is to be written by one call and is not synced.
    pub(crate) fn of_content(target: Target, content: Buffer) -> Self {
        Self { target, step: Step::Name(Arc::new(Mutex::new(Naming::Content(content)))) }
    }

    /// Goes on to the end.
    pub(crate) async fn finish(&mut self) -> Result<Metadata> {
        loop {
            let failure = match &mut self.step {
                Step::Sync(file, _) => match file.sync_all().await {
                    Ok(()) => {
                        if let Step::Sync(file, name) = replace(&mut self.step, Step::Failed) {
                            self.step = drain(file, name);
                        }
                        continue;
                    }
                    // What the next sync does not report may be lost all the same.
                    Err(error) => failed("sync the file")(error).set_permanent(),
                },
                Step::Drain(file, _) => match file.get_mut().await {
                    Ok(file) => {
                        if let Step::Drain(_, name) = replace(&mut self.step, Step::Failed) {
                            let file = File::from_fd(file.into(), &self.target.disk.engine);
                            let staged = StagedFile { file, name };
                            self.step = Step::Name(Arc::new(Mutex::new(Naming::File(staged))));
                        }
                        continue;
                    }
                    Err(error) => failed("write")(error).set_permanent(),
                },
                Step::Name(naming) => {
                    let (target, naming) = (self.target.clone(), naming.clone());
                    let named = self.target.disk.engine.call(move || name(&target, &naming)).await;
                    let named =
                        named.map_err(failed_unless(self.target.exclusive, "name the file"))?;
                    let lost = |error| failed("close the file")(error).set_permanent();
                    self.step = Step::Directories(named.map_err(lost)?);
                    continue;
                }
                Step::Directories(named) => {
                    let synced = self.target.disk.sync_names(Some(&named.dir)).await;
                    let synced = synced.map(|()| named.metadata.clone());
                    if synced.as_ref().is_err_and(|error| !error.is_temporary()) {
                        // What the next sync does not report may be lost all the same.
                        self.step = Step::Unsynced;
                    }
                    return synced;
                }
                Step::Unsynced => return Err(unsynced()),
                Step::Failed => return Err(gone()),
            };
            // The failure is what there is to report.
            let _ = self.remove().await;
            return Err(failure);
        }
    }

    /// Removes the file, unless it has its name.
    pub(crate) async fn abort(&mut self) -> Result<()> {
        match &self.step {
            Step::Sync(..) | Step::Drain(..) => self.remove().await,
            Step::Name(naming) => {
                let naming = naming.clone();
                let abort = move || match &mut *lock(&naming) {
                    Naming::Named(_) => Ok(false),
                    unnamed => {
                        fail(unnamed);
                        Ok(true)
                    }
                };
                match self.target.disk.call("remove the file", abort).await? {
                    true => Ok(()),
                    false => Err(published()),
                }
            }
            Step::Directories(_) | Step::Unsynced => Err(published()),
            Step::Failed => Ok(()),
        }
    }

    async fn remove(&mut self) -> Result<()> {
        match replace(&mut self.step, Step::Failed) {
            Step::Sync(file, name) => name.discard(file, &self.target.disk).await,
            Step::Drain(file, name) => name.discard(file, &self.target.disk).await,
            Step::Name(_) | Step::Directories(_) | Step::Unsynced | Step::Failed => Ok(()),
        }
    }
}

/// The last close of a file without a name frees all that was written, which takes long.
impl Drop for Publication {
    fn drop(&mut self) {
        match replace(&mut self.step, Step::Failed) {
            Step::Directories(_) | Step::Unsynced | Step::Failed => {}
            step => run_in_background(move || drop(step)),
        }
    }
}

fn drain(file: File, name: StagedName) -> Step {
    Step::Drain(Exclusive::new(Box::pin(file.into_std())), name)
}

/// Gives the file its name, if it has not got it yet. Blocks. An inner error is that of a close.
fn name(target: &Target, naming: &Mutex<Naming>) -> io::Result<io::Result<Named>> {
    let mut naming = lock(naming);
    let result = take_name(target, &mut naming);
    match &result {
        Ok(Ok(named)) => {
            if let Naming::File(staged) = replace(&mut *naming, Naming::Named(named.clone())) {
                // Closed here, where that may wait.
                drop(std::fs::File::try_from(staged.file));
            }
        }
        Err(error) if is_temporary(error) => {}
        Ok(Err(_)) | Err(_) => fail(&mut naming),
    }
    result
}

fn take_name(target: &Target, naming: &mut Naming) -> io::Result<io::Result<Named>> {
    if let Naming::Content(content) = naming {
        *naming = Naming::File(target.create(content.clone(), Access::Usual)?);
    }
    match naming {
        Naming::File(staged) => {
            let metadata = match flush(&staged.file)? {
                Ok(metadata) => of_file(&metadata),
                Err(lost) => return Ok(Err(lost)),
            };
            staged.publish(&target.disk, target.exclusive)?;
            Ok(Ok(Named { metadata, dir: staged.name.object_dir().to_owned() }))
        }
        Naming::Named(named) => Ok(Ok(named.clone())),
        Naming::Content(_) | Naming::Failed => Err(io::Error::other("the file has been removed")),
    }
}

/// Removes the file. Blocks.
fn fail(naming: &mut Naming) {
    if let Naming::File(staged) = replace(naming, Naming::Failed) {
        staged.name.remove();
    }
}

fn lock(naming: &Mutex<Naming>) -> MutexGuard<'_, Naming> {
    naming.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gone() -> Error {
    Error::new(ErrorKind::Unexpected, "an error has ended the write").set_permanent()
}

fn unsynced() -> Error {
    let message = "whether the object's name is durable is not known: a sync has failed";
    Error::new(ErrorKind::Unexpected, message).set_permanent()
}

fn published() -> Error {
    Error::new(ErrorKind::Unexpected, "the object has been written").set_permanent()
}
