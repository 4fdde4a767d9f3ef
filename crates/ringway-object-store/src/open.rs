//! Opens a file for reading and returns its metadata.

use crate::error::Error;
use ringway::Engine;
use ringway::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a file, without its metadata, which may also be a directory.
pub(crate) async fn open(
    engine: Option<&Engine>,
    path: &Path,
    direct: bool,
) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    let engine = match engine {
        Some(engine) => engine,
        None => Engine::global().map_err(|source| Error::Engine { source })?,
    };
    options.read(true).engine(engine).direct(direct);
    let opened = match options.open(path).await {
        // The file system does not support direct I/O.
        Err(error) if direct && error.kind() == io::ErrorKind::InvalidInput => {
            options.direct(false).open(path).await
        }
        opened => opened,
    };
    opened.map_err(|error| Error::open(path, error))
}

/// The metadata of an open file that is not a directory.
pub(crate) async fn metadata(file: &File, path: &Path) -> Result<Metadata, Error> {
    let metadata = file.metadata().await.map_err(|error| Error::open(path, error))?;
    if metadata.is_dir() { Err(Error::is_directory(path)) } else { Ok(metadata) }
}
