//! Writing whole objects: `put_opts`.

use super::file_system::RingwayFileSystem;
use super::object_store::path::Path;
use super::object_store::{
    Attributes, Error, PutMode, PutOptions, PutPayload, PutResult, Result, UpdateVersion,
};
use super::{e_tag, put_result};
use crate::local::error::Error as ReadError;
use crate::local::publication::Condition;
use crate::local::staged_file::{Disk, put};
use crate::local::write_error::WriteError;
use ringway::Engine;
use std::path::Path as FilePath;

impl RingwayFileSystem {
    /// The payload goes to a staged file next to the object, from the caller's memory; then the
    /// staged file becomes the object.
    pub(super) async fn put_object(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.refuse_attributes("put_opts", &options.attributes)?;
        let path = self.path_to_filesystem(location)?;
        let condition = match options.mode {
            PutMode::Overwrite => Condition::None,
            PutMode::Create => Condition::Create,
            PutMode::Update(version) => update(&path, version)?,
        };
        let content = payload.into_iter().collect();
        let metadata = put(&self.disk()?, path, content, condition).await?;
        Ok(put_result(e_tag(&metadata)))
    }

    /// The engine that this store uses. The first call of a program that uses the global engine
    /// builds it.
    pub(super) fn used_engine(&self) -> Result<&Engine> {
        match &self.engine {
            Some(engine) => Ok(engine),
            None => Ok(Engine::global().map_err(|source| ReadError::Engine { source })?),
        }
    }

    /// How this store writes.
    pub(super) fn disk(&self) -> Result<Disk> {
        Ok(Disk {
            engine: self.used_engine()?.clone(),
            turns: self.turns.clone(),
            durable: self.fsync.then(|| self.durable_dirs.clone()),
            dont_cache: self.dont_cache,
        })
    }

    /// As `LocalFileSystem`: files have no place for attributes.
    pub(super) fn refuse_attributes(&self, call: &str, attributes: &Attributes) -> Result<()> {
        if attributes.is_empty() {
            return Ok(());
        }
        Err(Error::NotImplemented {
            operation: format!("`{call}` with `opts.attributes` specified"),
            implementer: self.to_string(),
        })
    }
}

fn update(path: &FilePath, expected: UpdateVersion) -> Result<Condition, WriteError> {
    if let Some(version) = expected.version {
        let reason = format!("a file has no version, and so not {version}");
        return Err(WriteError::Precondition { path: path.to_owned(), reason });
    }
    let expected = expected.e_tag.ok_or(WriteError::MissingETag)?;
    Ok(Condition::Update { e_tag: expected, of: e_tag })
}
