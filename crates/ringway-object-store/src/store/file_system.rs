//! [`RingwayFileSystem`]: its constructors and options, and the trait `ObjectStore`, whose methods
//! are in the files next to this one.

use super::error::renamed;
use super::object_store::local::LocalFileSystem;
use super::object_store::path::Path;
use super::object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use crate::local::durable_dirs::DurableDirs;
use crate::local::read_ahead::ReadAhead;
use crate::local::turns::Turns;
use async_trait::async_trait;
use bytes::Bytes;
use futures_core::stream::BoxStream;
use ringway::{Coalesce, Engine};
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// An `ObjectStore` of local files: a drop-in for `LocalFileSystem` whose I/O goes through ringway.
///
/// Paths, errors and the files on disk are those of `LocalFileSystem`, so a program can change to
/// it and back. The [crate's documentation](crate#differences) lists what differs. Clones share the
/// engine; a store belongs to no runtime and needs none.
///
/// Nothing blocks, in tokio or outside, and nothing is read before a stream is polled. Dropping a
/// future or a stream cancels its reads; no descriptor is left open.
///
/// **Memory.** The `Bytes` of a read are the buffer that the kernel filled, and return to the
/// engine's pool with their last clone. `get_ranges` gives slices of the reads that it makes, so a
/// slice that is kept for long keeps its whole read: at most [`Coalesce::max_read`] bytes (1 MiB),
/// or its own range if that is longer, or four times the longest of ranges that overlap, and an
/// eighth more. A program that keeps small parts of what it reads together uses
/// [`Coalesce::never`], or copies them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("events"), vec![0; 4096])?;
/// use object_store::{ObjectStore, ObjectStoreExt};
/// use ringway_object_store::{ReadAhead, RingwayFileSystem};
/// let store = RingwayFileSystem::new_with_prefix(dir.path())?
///     .with_read_ahead(ReadAhead::default().chunk(1 << 20));
/// let parts = store.get_ranges(&"events".into(), &[0..16, 4000..4096]).await?;
/// assert_eq!(parts[1].len(), 96);
/// # Ok(()) }
/// ```
///
/// # Writes
///
/// An object is written to a staged file next to it, `PATH#N`, which then takes its name. Readers
/// see the old object or the new one, never a part. After an error, or if the future is dropped,
/// the staged file is removed and the old object is kept; a future that is dropped at the end of a
/// write may still have replaced it, but replaces nothing that a call on this store, or on a clone
/// of it, writes later. Another thread removes what was dropped. After a crash, or if a program
/// exits right after a drop outside tokio, staged files may be left: listings hide them, and
/// nothing removes them, as with `LocalFileSystem`.
///
/// A multipart upload is completed only if all its parts are written. If a part failed, or its
/// future was dropped, `complete` is an error; `LocalFileSystem` would publish a file with a hole.
///
/// `PutMode::Update`, which `LocalFileSystem` does not have, replaces an object if its ETag is the
/// expected one. Updates are atomic against other updates through a `RingwayFileSystem`, in this
/// process and in others of this machine. Plain puts, uploads, copies, renames and deletes of the
/// same object at the same moment are not covered, since they do not look at what they replace; nor
/// are other programs, and other machines that share a network file system. So objects that are
/// updated are written by updates only, once they are created.
///
/// For this an update holds an exclusive `flock(2)` of the object's directory while it compares and
/// renames. If somebody else holds it, the update tries again after a pause of 1 to 50 ms, for as
/// long as its future is polled; no thread waits. An update whose future is dropped meanwhile does
/// not happen. It fails if the directory cannot be read or locked. Other writes take no lock.
///
/// Every put and upload of this store sets the modification time from a precise clock. So two
/// versions of an object have different ETags, unless the clock is set back, or the file system
/// stores coarser times or does not let the file's owner set them.
#[derive(Clone, Debug)]
pub struct RingwayFileSystem {
    /// Resolves paths, and does what is not I/O of files: it lists, renames and deletes.
    pub(super) local: LocalFileSystem,
    pub(super) engine: Option<Engine>,
    pub(super) direct: bool,
    pub(super) dont_cache: bool,
    pub(super) coalesce: Coalesce,
    pub(super) read_ahead: ReadAhead,
    pub(super) file_payload: bool,
    pub(super) fsync: bool,
    pub(super) turns: Arc<Turns>,
    pub(super) durable_dirs: Arc<DurableDirs>,
}

impl RingwayFileSystem {
    /// Creates a store of the whole file system: the path `etc/passwd` is the file `/etc/passwd`.
    pub fn new() -> Self {
        Self::around(LocalFileSystem::new(), PathBuf::from("/"))
    }

    /// Creates a store of the files below this directory. Blocks for some system calls.
    ///
    /// Errors: Generic if the directory does not exist.
    pub fn new_with_prefix(prefix: impl AsRef<std::path::Path>) -> Result<Self> {
        let local = LocalFileSystem::new_with_prefix(&prefix).map_err(renamed)?;
        // As `LocalFileSystem` does, whose paths then begin with it.
        let root = prefix.as_ref().canonicalize();
        Ok(Self::around(local, root.unwrap_or_else(|_| prefix.as_ref().to_owned())))
    }

    fn around(local: LocalFileSystem, root: PathBuf) -> Self {
        Self {
            local,
            engine: None,
            direct: false,
            dont_cache: false,
            coalesce: Coalesce::default(),
            read_ahead: ReadAhead::default(),
            file_payload: false,
            fsync: false,
            turns: Arc::default(),
            durable_dirs: Arc::new(DurableDirs::new(root)),
        }
    }

    /// Deletes directories that become empty when a file is deleted. Default: false.
    pub fn with_automatic_cleanup(mut self, automatic_cleanup: bool) -> Self {
        self.local = self.local.with_automatic_cleanup(automatic_cleanup);
        self
    }

    /// Makes what is written durable before a write returns: the contents of an object, its name,
    /// and the names of the directories above it, up to the store's own, whoever made them. (Each
    /// directory is synced once, then remembered.) This covers `put`, multipart uploads (when they
    /// are completed), `copy` and `rename`, but not `delete`. Default: false.
    ///
    /// Directories that the store did not make need not be durable for this: where the one that
    /// such a directory is in cannot be opened (EACCES, EPERM), or cannot be synced because of its
    /// file system (EINVAL, EROFS), the write goes on. Nothing above a mount point is synced.
    ///
    /// If a sync of the contents fails, the write fails and the object is not changed. If the sync
    /// of a directory fails afterwards, the write fails although the object is visible; whether it
    /// survives a power failure is then unknown.
    pub fn with_fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }

    /// Uses this engine instead of the global one, which is built when it is first used.
    pub fn with_engine(mut self, engine: &Engine) -> Self {
        self.engine = Some(engine.clone());
        self
    }

    /// Reads with direct I/O, past the page cache. Ranges need no alignment. Files on a file system
    /// without direct I/O are read as usual. Default: false.
    pub fn with_direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// Reads and writes without leaving pages of its own in the page cache, where the kernel and
    /// the file system have that (`RWF_DONTCACHE`: kernel 6.14, ext4 and XFS): for a compaction, a
    /// backup or a bulk load beside queries whose data should stay cached. A store with it and one
    /// without can be used at the same time: clone one. What was cached before stays, and reads
    /// find it there. Default: false.
    ///
    /// It covers all reads, `put`, multipart uploads and `copy`, which then reads and writes the
    /// data instead of sharing it. It does not cover what a caller reads from a file that
    /// [`with_file_payload`](Self::with_file_payload) returns. Where it is refused, pages stay, as
    /// without it; [`open`](Self::open) gives a file whose
    /// [`caching`](ringway::fs::File::caching) has the reason, after a read.
    pub fn with_dont_cache(mut self, dont_cache: bool) -> Self {
        self.dont_cache = dont_cache;
        self
    }

    /// Sets when `get_ranges` reads nearby ranges together. Default: [`Coalesce::default`].
    pub fn with_coalesce(mut self, coalesce: Coalesce) -> Self {
        self.coalesce = coalesce;
        self
    }

    /// Sets how the streams of `get` are read. Default: [`ReadAhead::default`].
    pub fn with_read_ahead(mut self, read_ahead: ReadAhead) -> Self {
        self.read_ahead = read_ahead;
        self
    }

    /// Whether a `get` of a whole object returns its file (`GetResultPayload::File`), as
    /// `LocalFileSystem` does, instead of a stream, if the object is longer than
    /// [`ReadAhead::one_chunk`], or its name ends in `.arrow`, `.bz2`, `.xz` or `.zst`. Default
    /// false.
    ///
    /// Some programs collect a stream in memory, but read from a file only what they need:
    /// DataFusion does, where it infers the schema of JSON. And DataFusion reads files with these
    /// names rightly from a file only: it decompresses the first of several compressed members of
    /// a stream, and infers no schema from the stream of an Arrow file that it wrote itself. What
    /// is read from the file goes through neither the engine nor direct I/O.
    pub fn with_file_payload(mut self, file_payload: bool) -> Self {
        self.file_payload = file_payload;
        self
    }

    /// The engine of this store; `None` for the global one.
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// When `get_ranges` reads nearby ranges together.
    pub fn coalesce(&self) -> Coalesce {
        self.coalesce
    }

    /// The path of the file for this location.
    ///
    /// Errors: Generic for a location whose last part ends in `#` and digits, as staged files do.
    pub fn path_to_filesystem(&self, location: &Path) -> Result<PathBuf> {
        self.local.path_to_filesystem(location).map_err(renamed)
    }
}

impl Default for RingwayFileSystem {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for RingwayFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = self.local.to_string();
        write!(f, "Ringway{}", local.strip_prefix("Local").unwrap_or(&local))
    }
}

#[async_trait]
impl ObjectStore for RingwayFileSystem {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.put_object(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(self.start_upload(location, opts).await?))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.get_object(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.get_object_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.delete_objects(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_objects(prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_objects(prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.list_one_level(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.copy_object(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.rename_object(from, to, options).await
    }
}
