//! Writing objects in parts: `put_multipart_opts`.

use super::file_system::RingwayFileSystem;
use super::object_store::path::Path;
use super::object_store::{
    MultipartUpload, PutMultipartOptions, PutPayload, PutResult, Result, UploadPart,
};
use super::{e_tag, put_result};
use crate::local::publication::Condition;
use crate::local::staged_file::{StagedFile, write};
use crate::local::staging::Access;
use crate::local::write_error::{Action, WriteError};
use async_trait::async_trait;
use futures_util::FutureExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// An upload. Parts follow each other in the order of `put_part`, and may be written in any order
/// and at the same time.
///
/// `complete` publishes the object only if all parts are written: a part that failed, whose future
/// was dropped, or that is still being written is an error, after which `abort` can be called.
/// Dropping the upload aborts it.
#[derive(Debug)]
pub(super) struct Upload {
    state: State,
    parts: Arc<Parts>,
    /// Where the next part begins.
    offset: u64,
}

#[derive(Debug)]
enum State {
    Open(StagedFile),
    /// Completing failed, and nothing is left to abort.
    Failed,
    /// Completed or aborted, or the future that was doing it was dropped.
    Closed,
}

#[derive(Debug, Default)]
struct Parts {
    /// How many parts are not written.
    unwritten: AtomicUsize,
    is_aborted: AtomicBool,
}

impl RingwayFileSystem {
    pub(super) async fn start_upload(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Upload> {
        self.refuse_attributes("put_multipart_opts", &options.attributes)?;
        let path = self.path_to_filesystem(location)?;
        let staged = StagedFile::create(&self.disk()?, path, Access::Usual, |_| Ok(())).await?;
        Ok(Upload { state: State::Open(staged), parts: Arc::default(), offset: 0 })
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let State::Open(staged) = &self.state else {
            return async { Err(WriteError::Aborted.into()) }.boxed();
        };
        let (file, path) = (staged.file().clone(), staged.dest().to_owned());
        let offset = self.offset;
        self.offset += data.content_length() as u64;
        let parts = Arc::clone(&self.parts);
        parts.unwritten.fetch_add(1, Ordering::Relaxed);
        async move {
            if parts.is_aborted.load(Ordering::Relaxed) {
                return Err(WriteError::Aborted.into());
            }
            let written = write(&file, data.into_iter().collect(), offset).await;
            written.map_err(Action::CopyData.failed(&path))?;
            // Before the part counts as written, so that `complete` finds no clone of the file.
            drop(file);
            parts.unwritten.fetch_sub(1, Ordering::Release);
            Ok(())
        }
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if let State::Open(staged) = &self.state {
            let parts = self.parts.unwritten.load(Ordering::Acquire);
            if parts > 0 {
                let path = staged.dest().to_owned();
                return Err(WriteError::Unfinished { path, parts }.into());
            }
        }
        let State::Open(staged) = std::mem::replace(&mut self.state, State::Closed) else {
            return Err(WriteError::Aborted.into());
        };
        match staged.publish(Condition::None).await {
            Ok(metadata) => Ok(put_result(e_tag(&metadata))),
            Err(error) => {
                self.state = State::Failed;
                Err(error.into())
            }
        }
    }

    async fn abort(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Open(staged) => {
                // Parts that have not begun need not be written.
                self.parts.is_aborted.store(true, Ordering::Relaxed);
                Ok(staged.remove().await?)
            }
            // Callers abort after an error, and want to see that error.
            State::Failed => Ok(()),
            State::Closed => Err(WriteError::Aborted.into()),
        }
    }
}
