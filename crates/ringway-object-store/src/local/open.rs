//! Opens a file for reading and returns its metadata.

use super::error::Error;
use ringway::Engine;
use ringway::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a file that is not a directory. A file on a file system without direct I/O is opened
/// without. Opening a FIFO does not wait for its other end.
pub(crate) async fn open(
    engine: Option<&Engine>,
    path: &Path,
    direct: bool,
) -> Result<(File, Metadata), Error> {
    let (file, found) = open_any(engine, path, direct).await?;
    if found.is_dir() { Err(Error::is_directory(path)) } else { Ok((file, found)) }
}

/// Opens a file, which may also be a directory.
pub(crate) async fn open_any(
    engine: Option<&Engine>,
    path: &Path,
    direct: bool,
) -> Result<(File, Metadata), Error> {
    let engine = match engine {
        Some(engine) => engine,
        None => Engine::global().map_err(|source| Error::Engine { source })?,
    };
    let opened = match open_as(engine, path, direct).await {
        Err(error) if direct && error.kind() == io::ErrorKind::InvalidInput => {
            open_as(engine, path, false).await
        }
        opened => opened,
    };
    opened.map_err(|error| Error::open(path, error))
}

async fn open_as(engine: &Engine, path: &Path, direct: bool) -> io::Result<(File, Metadata)> {
    let options = |flags: i32| {
        let mut options = OpenOptions::new();
        options.read(true).engine(engine).direct(direct).custom_flags(flags);
        options
    };
    // With O_NONBLOCK the open of a FIFO does not wait for a writer.
    let opened = options(flags::NONBLOCK).open_with_metadata(path).await;
    match opened {
        // Another program has a lease on the file, and is to give it up.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            options(0).open_with_metadata(path).await
        }
        opened => {
            let (file, found) = opened?;
            // Reads are to wait for the data on every file system.
            flags::wait_for_data(&file, direct)?;
            Ok((file, found))
        }
    }
}

/// Opens a file for blocking reads. Does not wait for the end of a FIFO; waits for another program
/// to give up its lease on a file.
pub(crate) fn open_std(path: &Path) -> io::Result<std::fs::File> {
    match flags::std_options(flags::NONBLOCK).open(path) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => flags::std_options(0).open(path),
        opened => {
            let file = opened?;
            flags::wait_for_data(&file, false)?;
            Ok(file)
        }
    }
}

/// Makes a file of the standard library, for blocking reads without alignment.
pub(crate) async fn into_std(file: File, path: &Path) -> Result<std::fs::File, Error> {
    let file = file.into_std().await.map_err(|error| Error::open(path, error))?;
    // Without O_DIRECT, whose reads need alignment.
    flags::wait_for_data(&file, false).map_err(|error| Error::open(path, error))?;
    Ok(file)
}

/// The metadata of an open file that is not a directory.
pub(crate) async fn metadata(file: &File, path: &Path) -> Result<Metadata, Error> {
    let found = file.metadata().await.map_err(|error| Error::open(path, error))?;
    if found.is_dir() { Err(Error::is_directory(path)) } else { Ok(found) }
}

/// Flags of open files.
#[cfg(unix)]
mod flags {
    use rustix::fs::{OFlags, fcntl_setfl};
    use std::fs::OpenOptions;
    use std::io;
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;

    /// For reading. An open with `O_NONBLOCK` does not wait for a lease or the end of a FIFO.
    pub(super) fn std_options(flags: i32) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags);
        options
    }

    pub(super) const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;

    /// Lets reads wait for their data, with direct I/O or without.
    pub(super) fn wait_for_data(file: &impl AsFd, direct: bool) -> io::Result<()> {
        // macOS keeps direct I/O apart from these flags.
        #[cfg(not(target_vendor = "apple"))]
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        #[cfg(target_vendor = "apple")]
        let (flags, _) = (OFlags::empty(), direct);
        Ok(fcntl_setfl(file, flags)?)
    }
}

/// Windows has none: every read of a file waits for its data.
#[cfg(windows)]
mod flags {
    use std::fs::OpenOptions;
    use std::io;

    pub(super) const NONBLOCK: i32 = 0;

    pub(super) fn std_options(_: i32) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true);
        options
    }

    pub(super) fn wait_for_data<F>(_: &F, _: bool) -> io::Result<()> {
        Ok(())
    }
}
