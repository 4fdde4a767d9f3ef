//! Appending to an object, in place.

use crate::config::Durability;
use crate::error::{failed, failed_unless};
use crate::exclusive::Exclusive;
use crate::flush::flush;
use crate::metadata::{of_file, write_user};
use crate::publication::Target;
use crate::write::write_all;
use futures::future::BoxFuture;
use opendal_core::{Buffer, Error, ErrorKind, Metadata, Result};
use ringway::fs::{File, OpenOptions};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Appends to an object.
pub(crate) struct Append {
    file: Option<File>,
    /// The file that an exclusive append has created. A call whose future was dropped leaves it
    /// here.
    created: Arc<Mutex<Option<File>>>,
    /// A close whose future was dropped goes on here, since each of its errors is reported once.
    closing: Option<Exclusive<BoxFuture<'static, Result<Metadata>>>>,
    has_written: bool,
    /// How much of the last piece is in the object, or whether that is durable, is not known: a
    /// future was dropped, or failed.
    is_uncertain: bool,
}

impl Append {
    pub(crate) fn new() -> Self {
        Self {
            file: None,
            created: Arc::default(),
            closing: None,
            has_written: false,
            is_uncertain: false,
        }
    }

    pub(crate) async fn write(&mut self, target: &Target, content: Buffer) -> Result<()> {
        if self.closing.is_some() {
            let message = "the writer is being closed";
            return Err(Error::new(ErrorKind::Unexpected, message).set_permanent());
        }
        let file = self.file(target).await?;
        (self.has_written, self.is_uncertain) = (true, true);
        // A repetition would append a part twice.
        let written = write_all(&file, content, 0).await;
        written.map_err(|error| failed("append")(error).set_permanent())?;
        self.is_uncertain = false;
        Ok(())
    }

    pub(crate) async fn close(&mut self, target: &Target) -> Result<Metadata> {
        let file = self.file(target).await?;
        let begin = || Exclusive::new(Box::pin(close(file, target.clone())) as BoxFuture<_>);
        let closed = self.closing.get_or_insert_with(begin).get_mut().await;
        self.closing = None;
        // What a repetition does not report may be lost all the same.
        self.is_uncertain = closed.as_ref().is_err_and(|error| !error.is_temporary());
        closed
    }

    pub(crate) fn abort(&mut self) -> Result<()> {
        if self.has_written {
            let message = "what has been appended is in the object: an append has no abort";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(())
    }

    /// The file that is appended to, opened once.
    async fn file(&mut self, target: &Target) -> Result<File> {
        if self.is_uncertain {
            let message = "whether what was written has been appended is not known: a future was \
                           dropped, or failed";
            return Err(Error::new(ErrorKind::Unexpected, message).set_permanent());
        }
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = match target.exclusive {
            true => self.create(target).await?,
            false => open(target).await?,
        };
        if !target.user.is_empty() {
            let (file, user) = (file.clone(), target.user.clone());
            let write = move || write_user(&file, &user);
            target.disk.call("write the metadata", write).await?;
        }
        Ok(self.file.insert(file).clone())
    }

    async fn create(&self, target: &Target) -> Result<File> {
        let (created, on) = (self.created.clone(), target.clone());
        let create = move || {
            let mut created = created.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(file) = &*created {
                return Ok(file.clone());
            }
            let create =
                || std::fs::OpenOptions::new().append(true).create_new(true).open(&on.path);
            let file = match create() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    on.path.parent().map_or(Ok(()), |parent| on.disk.dirs.create(parent))?;
                    create()?
                }
                file => file?,
            };
            Ok(created.insert(File::from_fd(file.into(), &on.disk.engine)).clone())
        };
        target.disk.engine.call(create).await.map_err(failed_unless(true, "open"))
    }
}

/// Makes what was appended durable, as far as that is wanted. Errors: temporary ones say nothing of
/// the data.
async fn close(file: File, target: Target) -> Result<Metadata> {
    let disk = &target.disk;
    if disk.durability != Durability::None {
        let synced = file.sync_all().await;
        synced.map_err(|error| failed("sync the file")(error).set_permanent())?;
    }
    let closed = disk.call("close the file", move || flush(&file)).await?;
    let found = closed.map_err(|error| failed("close the file")(error).set_permanent())?;
    disk.sync_names(target.path.parent()).await?;
    Ok(of_file(&found))
}

async fn open(target: &Target) -> Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).engine(&target.disk.engine);
    let opened = match options.open(&target.path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (disk, path) = (target.disk.clone(), target.path.clone());
            let create = move || path.parent().map_or(Ok(()), |parent| disk.dirs.create(parent));
            target.disk.call("create the directory", create).await?;
            options.open(&target.path).await
        }
        opened => opened,
    };
    opened.map_err(failed("open"))
}
