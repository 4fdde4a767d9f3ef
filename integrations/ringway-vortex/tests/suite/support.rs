//! Engines, files and sessions for the tests.

use allocator_api2::alloc::{AllocError, Allocator, Global};
use ringway::fs::{File, OpenOptions};
use ringway::{BackendKind, Engine};
use ringway_vortex::RingwayReadAt;
use std::alloc::Layout;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use vortex::array::memory::BufferAllocatorRef;
use vortex::buffer::ByteBuffer;
use vortex::error::VortexError;

/// The engines that each case runs on.
pub fn engines() -> Vec<Engine> {
    let forced = [BackendKind::Kaio, BackendKind::Threads];
    let forced = forced.map(|backend| Engine::builder().backend(backend).build());
    let usual = Engine::builder().build().unwrap();
    std::iter::once(usual).chain(forced.into_iter().flatten()).collect()
}

/// Readers on each engine, of each of its [`files`], with memory of the engine's pool and of an
/// allocator.
pub async fn readers(path: &Path) -> Vec<RingwayReadAt> {
    let mut readers = Vec::new();
    for engine in engines() {
        for file in files(path, &engine).await {
            let reader = RingwayReadAt::new(file, path.to_string_lossy());
            readers.push(reader.clone());
            readers.push(reader.with_allocator(BufferAllocatorRef::new(Global)));
        }
    }
    readers
}

/// The file, with the page cache, and with direct I/O where the file system has it.
pub async fn files(path: &Path, engine: &Engine) -> Vec<File> {
    let direct = OpenOptions::new().read(true).direct(true).engine(engine).open(path).await.ok();
    std::iter::once(engine.open(path).await.unwrap()).chain(direct).collect()
}

/// An allocator that counts bytes.
#[derive(Debug)]
pub struct Counting {
    /// Those in use.
    live: Arc<AtomicUsize>,
    /// Those that were allocated so far.
    allocated: Arc<AtomicUsize>,
}

impl Counting {
    pub fn new(live: Arc<AtomicUsize>, allocated: Arc<AtomicUsize>) -> Self {
        Self { live, allocated }
    }
}

// SAFETY: the memory is that of Global.
unsafe impl Allocator for Counting {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.live.fetch_add(layout.size(), Ordering::Relaxed);
        self.allocated.fetch_add(layout.size(), Ordering::Relaxed);
        Global.allocate(layout)
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        self.live.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { Global.deallocate(memory, layout) }
    }
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
