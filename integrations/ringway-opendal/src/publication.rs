//! How a written file becomes the object, in steps, of which none is made twice.

use crate::config::Durability;
use crate::disk::Disk;
use crate::error::{failed, failed_unless, is_temporary};
use crate::exclusive::Exclusive;
use crate::flush::flush;
use crate::in_background::InBackground;
use crate::metadata::of_file;
use crate::staged::{Access, StagedFile, StagedName};
use futures::future::BoxFuture;
use opendal_core::{Buffer, Error, ErrorKind, Metadata, Result};
use ringway::fs::File;
use std::io;
use std::mem::replace;
use std::path::{Path, PathBuf};
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
    pub(crate) async fn begin(&self, content: Buffer) -> Result<StagedFile> {
        let target = self.clone();
        let create = move || target.create(content, Access::Usual);
        self.disk.call("create the file", create).await
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
    Sync(StagedFile),
    /// Writes whose futures were dropped are to end.
    Drain(InBackground<Drain>, StagedName),
    /// The file is to get its name.
    Name(Arc<Mutex<Naming>>),
    /// The name is to be made durable. A sync whose future was dropped goes on here, since the
    /// kernel reports its error once.
    Directories(Named, Option<Exclusive<BoxFuture<'static, Result<()>>>>),
    /// The object has its name. A sync has failed, so whether that is durable is not known.
    Unsynced,
    /// The file is gone.
    Failed,
}

/// Ends when no write is in flight any more.
type Drain = Exclusive<BoxFuture<'static, io::Result<std::fs::File>>>;

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
    pub(crate) fn of_file(target: Target, staged: StagedFile) -> Self {
        let step = match target.disk.durability {
            Durability::None => drain(staged),
            Durability::Content | Durability::Full => Step::Sync(staged),
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
                Step::Sync(staged) => match staged.file.sync_all().await {
                    Ok(()) => {
                        if let Step::Sync(staged) = replace(&mut self.step, Step::Failed) {
                            self.step = drain(staged);
                        }
                        continue;
                    }
                    // What the next sync does not report may be lost all the same.
                    Err(error) => failed("sync the file")(error).set_permanent(),
                },
                Step::Drain(file, _) => match file.get_mut().await {
                    Ok(file) => {
                        if let Step::Drain(ended, name) = replace(&mut self.step, Step::Failed) {
                            drop(ended.into_inner());
                            let file = File::from_fd(file.into(), &self.target.disk.engine);
                            let staged = StagedFile::new(file, name);
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
                    self.step = Step::Directories(named.map_err(lost)?, None);
                    continue;
                }
                Step::Directories(named, sync) => {
                    let (disk, dir) = (&self.target.disk, &named.dir);
                    let synced = sync.get_or_insert_with(|| begin_sync(disk, dir)).get_mut().await;
                    *sync = None;
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
            Step::Directories(..) | Step::Unsynced => Err(published()),
            Step::Failed => Ok(()),
        }
    }

    async fn remove(&mut self) -> Result<()> {
        match replace(&mut self.step, Step::Failed) {
            Step::Sync(staged) => staged.name.discard(staged.file, &self.target.disk).await,
            Step::Drain(file, name) => name.discard(file, &self.target.disk).await,
            Step::Name(_) | Step::Directories(..) | Step::Unsynced | Step::Failed => Ok(()),
        }
    }
}

fn drain(staged: StagedFile) -> Step {
    let file = staged.file.into_inner();
    let drain = Exclusive::new(Box::pin(file.into_std()) as BoxFuture<_>);
    Step::Drain(InBackground::new(drain), staged.name)
}

fn begin_sync(disk: &Arc<Disk>, dir: &Path) -> Exclusive<BoxFuture<'static, Result<()>>> {
    let (disk, dir) = (disk.clone(), dir.to_owned());
    Exclusive::new(Box::pin(async move { disk.sync_names(Some(&dir)).await }))
}

/// Gives the file its name, if it has not got it yet. Blocks. An inner error is that of a close.
fn name(target: &Target, naming: &Mutex<Naming>) -> io::Result<io::Result<Named>> {
    let mut naming = lock(naming);
    let result = take_name(target, &mut naming);
    match &result {
        Ok(Ok(named)) => {
            if let Naming::File(staged) = replace(&mut *naming, Naming::Named(named.clone())) {
                // Closed here, where that may wait.
                drop(std::fs::File::try_from(staged.file.into_inner()));
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
        staged.remove();
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
