//! Engines, files and sessions for the tests.

use ringway::fs::{File, OpenOptions};
use ringway::{BackendKind, Engine};
use ringway_vortex::RingwayReadAt;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use vortex::buffer::ByteBuffer;
use vortex::error::VortexError;

/// The engines that each case runs on.
pub fn engines() -> Vec<Engine> {
    let forced = [BackendKind::Kaio, BackendKind::Threads];
    let forced = forced.map(|backend| Engine::builder().backend(backend).build());
    let usual = Engine::builder().build().unwrap();
    std::iter::once(usual).chain(forced.into_iter().flatten()).collect()
}

/// A reader on each engine, with the page cache and with direct I/O where the file system has it.
pub async fn readers(path: &Path) -> Vec<RingwayReadAt> {
    let mut readers = Vec::new();
    for engine in engines() {
        let opened =
            [engine.open(path).await.unwrap()].into_iter().chain(direct(path, &engine).await);
        readers.extend(opened.map(|file| RingwayReadAt::new(file, path.to_string_lossy())));
    }
    readers
}

async fn direct(path: &Path, engine: &Engine) -> Option<File> {
    OpenOptions::new().read(true).direct(true).engine(engine).open(path).await.ok()
}

/// A directory with a file of these bytes.
pub struct Sample {
    _dir: TempDir,
    pub path: PathBuf,
}

impl Sample {
    pub fn of(content: &[u8]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sample");
        std::fs::write(&path, content).unwrap();
        Self { _dir: dir, path }
    }
}

/// Bytes that differ from each other.
pub fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

pub async fn host(handle: vortex::array::buffer::BufferHandle) -> ByteBuffer {
    handle.try_into_host().unwrap().await.unwrap()
}

/// The [`io::Error`] that a Vortex error comes from.
pub fn io_error(error: &VortexError) -> &io::Error {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref() {
            return error;
        }
        source = error.source();
    }
    panic!("{error} comes from no io::Error")
}
