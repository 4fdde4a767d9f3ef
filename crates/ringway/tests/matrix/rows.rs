//! Every public function and method of the crate that does I/O, as a call that succeeds: the rows
//! of the matrix. Each call checks its result, so that `Ok` means that the work was done. The
//! situations in which the calls run are elsewhere.

use futures::TryStreamExt;
use futures::future::BoxFuture;
use ringway::fs::{
    self, Advice, AtomicFile, DirBuilder, DirEntry, File, FileTimes, OpenOptions, ReadDir, Resolve,
    TryLockError,
};
use ringway::{AlignedBuffer, BackendKind, Coalesce, Engine, LogWriter, Position};
use std::future::poll_fn;
use std::io::{self, IoSlice, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

pub const PAGE: usize = 4096;
/// Pages of the file that the calls use.
const PAGES: usize = 8;
/// The offset of writes that make the file longer.
const FAR: u64 = 1 << 20;
/// Bytes that most calls transfer.
const LEN: usize = 2 * PAGE;

/// What a call needs or does. Its result in a situation depends on this.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Effects(u8);

impl Effects {
    pub const NOTHING: Self = Self(0);
    /// Uses an engine.
    pub const OPERATION: Self = Self(1);
    /// Opens a descriptor.
    pub const OPEN: Self = Self(2);
    /// Allocates space on the disk.
    pub const GROW: Self = Self(4);
    /// Builds an engine.
    pub const BUILD: Self = Self(8);

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A call. Its name is that of the function; a variant follows after a comma.
pub struct Row {
    pub name: &'static str,
    pub effects: Effects,
    pub call: fn(Fixture) -> BoxFuture<'static, io::Result<()>>,
}

/// The engine and the files for a call. Clones share them.
#[derive(Clone)]
pub struct Fixture {
    /// The engine of `file`. Functions on paths use the global engine.
    pub engine: Engine,
    pub kind: BackendKind,
    pub file: File,
    pub dir: Arc<Path>,
    /// The same file as a file of the standard library.
    std: Arc<std::fs::File>,
    /// Values that only one call can use.
    pub once: Arc<Mutex<Once>>,
}

#[derive(Default)]
pub struct Once {
    /// A file without clones.
    single: Option<File>,
    /// The file, opened for buffered I/O.
    log: Option<File>,
    descriptor: Option<OwnedFd>,
    to_pipe: Option<(File, io::PipeReader)>,
    pipe: Option<(File, io::PipeWriter)>,
    /// A listing that has begun, for calls that continue one. Without it they begin their own.
    pub entries: Option<ReadDir>,
    pub entry: Option<DirEntry>,
}

impl Fixture {
    /// Makes the files in an empty directory, without using an engine.
    pub fn new(engine: &Engine, kind: BackendKind, dir: &Path, direct: bool) -> Self {
        let at = |name: &str| dir.join(name);
        std::fs::write(at("file"), pattern(0, PAGES * PAGE)).unwrap();
        std::fs::write(at("text"), b"text").unwrap();
        std::fs::create_dir(at("empty")).unwrap();
        std::fs::create_dir_all(at("full/of")).unwrap();
        std::fs::write(at("full/of/things"), b"thing").unwrap();
        std::os::unix::fs::symlink("text", at("link")).unwrap();
        let flags = if direct { libc::O_DIRECT } else { 0 };
        let open = |flags| {
            std::fs::File::options()
                .read(true)
                .write(true)
                .custom_flags(flags)
                .open(at("file"))
                .unwrap()
        };
        let on_engine = || File::from_fd(open(flags).into(), engine);
        let (reader, writer) = io::pipe().unwrap();
        let (our_reader, our_writer) = io::pipe().unwrap();
        let once = Once {
            to_pipe: Some((File::from_fd(our_writer.into(), engine), our_reader)),
            single: Some(on_engine()),
            log: Some(File::from_fd(open(0).into(), engine)),
            descriptor: Some(open(flags).into()),
            pipe: Some((File::from_fd(reader.into(), engine), writer)),
            ..Once::default()
        };
        Self {
            engine: engine.clone(),
            kind,
            file: on_engine(),
            dir: dir.into(),
            std: Arc::new(open(0)),
            once: Arc::new(Mutex::new(once)),
        }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn take<T>(&self, which: impl FnOnce(&mut Once) -> &mut Option<T>) -> Option<T> {
        which(&mut self.once.lock().unwrap()).take()
    }

    async fn entries(&self) -> io::Result<ReadDir> {
        match self.take(|once| &mut once.entries) {
            Some(entries) => Ok(entries),
            None => fs::read_dir(self.at("full")).await,
        }
    }

    async fn entry(&self) -> io::Result<DirEntry> {
        if let Some(entry) = self.take(|once| &mut once.entry) {
            return Ok(entry);
        }
        let entry = fs::read_dir(self.at("full/of")).await?.next_entry().await?;
        entry.ok_or_else(|| wrong("no entry"))
    }

    /// Checks the length of a file. It does not open the file, because no descriptor may be free.
    fn unopened(&self, name: &str, len: usize) -> io::Result<()> {
        check(std::fs::symlink_metadata(self.at(name))?.len() == len as u64, "another length")
    }

    /// Checks that nothing has this name.
    fn gone(&self, name: &str) -> io::Result<()> {
        let found = std::fs::symlink_metadata(self.at(name));
        check(found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound), "still there")
    }

    /// Checks that the file has these bytes at this offset.
    fn has(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut found = vec![0; bytes.len()];
        self.std.read_exact_at(&mut found, at)?;
        same(&found, bytes)
    }
}

/// Bytes that differ by their offset.
fn pattern(at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

/// The bytes that calls write.
fn new_bytes() -> Vec<u8> {
    pattern(77, LEN)
}

fn wrong(what: &str) -> io::Error {
    io::Error::other(format!("WRONG: {what}"))
}

fn check(right: bool, what: &str) -> io::Result<()> {
    if right { Ok(()) } else { Err(wrong(what)) }
}

/// An error that names the condition, unless it is true.
macro_rules! check {
    ($right:expr) => {
        check($right, concat!("not: ", stringify!($right)))
    };
}

fn same(found: &[u8], expected: &[u8]) -> io::Result<()> {
    check(found == expected, "other bytes")
}

fn buffer(bytes: &[u8]) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new(bytes.len(), PAGE);
    buffer.copy_from_slice(bytes);
    buffer
}

fn empty_buffer() -> AlignedBuffer {
    AlignedBuffer::new(LEN, PAGE)
}

/// Checks that the whole buffer is returned, except in a forked child.
fn back<T>(result: io::Result<T>, len: usize) -> io::Result<T> {
    let forked = result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ECHILD));
    check(forked || len == LEN, "another buffer was returned")?;
    result
}

/// Checks an untorn write. Where the file has none, nothing was written, and a plain write is made
/// instead, so that the row has the effects of a write.
async fn untorn(f: Fixture, written: io::Result<()>, buffer: AlignedBuffer) -> io::Result<()> {
    let is_refused = |error: &io::Error| {
        error.kind() == io::ErrorKind::Unsupported
            && error.get_ref().is_some_and(|inner| inner.is::<ringway::Refusal>())
    };
    match back(written, buffer.len()) {
        Err(error) if is_refused(&error) => {
            check(f.std.metadata()?.len() <= FAR, "a refused write was made")?;
            let (written, buffer) = f.file.write_all_at(buffer, FAR).await;
            back(written, buffer.len())?;
            f.has(FAR, &buffer)
        }
        written => {
            written?;
            f.has(FAR, &buffer)
        }
    }
}

fn sizes(buffers: &[AlignedBuffer]) -> usize {
    buffers.iter().map(|buffer| buffer.len()).sum()
}

fn locked(result: Result<(), TryLockError>) -> io::Result<()> {
    result.map_err(|error| match error {
        TryLockError::WouldBlock => wrong("locked"),
        TryLockError::Error(error) => error,
    })
}

macro_rules! rows {
    ($($name:literal $effects:expr, |$fixture:ident| $body:block)*) => {
        vec![$(Row {
            name: $name,
            effects: $effects,
            call: |$fixture| Box::pin(async move {
                let _ = &$fixture;
                $body
            }),
        }),*]
    };
}

/// Calls on files: those that differ for direct I/O.
pub fn files() -> Vec<Row> {
    use Effects as E;
    let o = E::OPERATION;
    let grow = o.and(E::GROW);
    let mut rows = transfers();
    rows.extend(streams());
    rows.extend(rows! {
        "File::from_fd" E::NOTHING, |f| {
            let descriptor = f.take(|once| &mut once.descriptor).unwrap();
            check!(File::from_fd(descriptor, &f.engine).engine().backend() == f.kind)
        }
        "File::from_std" o, |f| {
            let descriptor = f.take(|once| &mut once.descriptor).unwrap();
            let file = File::from_std(descriptor.into())?;
            same(&file.read(5..50).await?, &pattern(5, 45))
        }
        "File::is_cached" E::NOTHING, |f| {
            check!(f.file.is_cached(&(7..7)))?;
            check!(!f.file.is_cached(&(0..9)))
        }
        "File::sync_all" o, |f| { f.file.sync_all().await }
        "File::sync_data" o, |f| { f.file.sync_data().await }
        "File::sync_range" o, |f| { f.file.sync_range(0, 0).await }
        "File::set_len" o, |f| {
            f.file.set_len(PAGE as u64).await?;
            check!(f.std.metadata()?.len() == PAGE as u64)
        }
        "File::set_len, longer" o, |f| {
            f.file.set_len(FAR).await?;
            check!(f.std.metadata()?.len() == FAR)
        }
        "File::allocate" grow, |f| {
            f.file.allocate(FAR, LEN as u64).await?;
            check!(f.std.metadata()?.len() == FAR + LEN as u64)
        }
        "File::allocate_written" grow, |f| {
            f.file.allocate_written(FAR, LEN as u64).await?;
            f.has(FAR, &[0; LEN])
        }
        "File::advise" o, |f| { f.file.advise(0, 0, Advice::WillNeed).await }
        "File::warm" o, |f| {
            // Otherwise nothing is to be read.
            let _ = f.std.sync_all();
            rustix::fs::fadvise(&*f.std, 0, None, rustix::fs::Advice::DontNeed)?;
            let file = f.take(|once| &mut once.log).unwrap();
            let warmed = file.warm(&[0..9, 20_000..u64::MAX]).await?;
            warmed.failed.into_iter().try_for_each(|failed| Err(failed.error))?;
            check!(warmed.cached + warmed.read == 5 * PAGE as u64)
        }
        "File::metadata" o, |f| { check!(f.file.metadata().await?.len() == (PAGES * PAGE) as u64) }
        "File::set_permissions" o, |f| {
            f.file.set_permissions(PermissionsExt::from_mode(0o604)).await?;
            check!(f.std.metadata()?.permissions().mode() & 0o777 == 0o604)
        }
        "File::set_times" o, |f| {
            f.file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).await?;
            check!(f.std.metadata()?.modified()? == SystemTime::UNIX_EPOCH)
        }
        "File::set_modified" o, |f| {
            f.file.set_modified(SystemTime::UNIX_EPOCH).await?;
            check!(f.std.metadata()?.modified()? == SystemTime::UNIX_EPOCH)
        }
        "File::try_clone" E::OPEN, |f| { f.file.try_clone().await.map(drop) }
        "File::try_lock" o, |f| { locked(f.file.try_lock().await) }
        "File::try_lock_shared" o, |f| { locked(f.file.try_lock_shared().await) }
        "File::unlock" o, |f| { f.file.unlock().await }
        "File::try_into_std" E::NOTHING, |f| {
            let file = f.file.clone().try_into_std().expect_err("there are clones");
            check!(file.engine().backend() == f.kind)?;
            let file = f.take(|once| &mut once.single).unwrap();
            let file = file.try_into_std().map_err(|_| wrong("still held"))?;
            check!(file.metadata()?.len() == (PAGES * PAGE) as u64)
        }
        "File::into_std" E::NOTHING, |f| {
            let refused = f.file.clone().into_std().await;
            check!(refused.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput))?;
            let file = f.take(|once| &mut once.single).unwrap().into_std().await?;
            check!(file.metadata()?.len() == (PAGES * PAGE) as u64)
        }
        "File::close" o, |f| { f.take(|once| &mut once.single).unwrap().close().await }
        "File::close, with clones" E::NOTHING, |f| {
            let refused = f.file.clone().close().await;
            check!(refused.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput))
        }
    });
    rows
}

fn transfers() -> Vec<Row> {
    let o = Effects::OPERATION;
    let grow = o.and(Effects::GROW);
    rows! {
        "File::read" o, |f| { same(&f.file.read(5..5000).await?, &pattern(5, 4995)) }
        "File::read, at the cursor" o, |f| {
            let mut bytes = [0; LEN];
            f.file.read_exact(&mut bytes).await?;
            same(&bytes, &pattern(0, LEN))
        }
        "File::read_ranges" o, |f| {
            let blocks = f.file.read_ranges(&[5..50, 4090..5000, 20_000..20_001, 9..9]).await?;
            let expected = [pattern(5, 45), pattern(4090, 910), pattern(20_000, 1), Vec::new()];
            check!(blocks.len() == 4)?;
            blocks.iter().zip(&expected).try_for_each(|(block, expected)| same(block, expected))
        }
        "File::read_ranges_each" o, |f| {
            let blocks =
                f.file.read_ranges_each(&[5..50, 20_000..20_001], Coalesce::never()).await?;
            let expected = [pattern(5, 45), pattern(20_000, 1)];
            check!(blocks.len() == 2)?;
            blocks
                .into_iter()
                .zip(&expected)
                .try_for_each(|(block, expected)| same(&block?, expected))
        }
        "File::read_exact" o, |f| { same(&f.file.read_exact(5..5000).await?, &pattern(5, 4995)) }
        "RangeStream::next" o, |f| {
            let ranges = [5..50, 4090..5000, 20_000..20_001, 9..9, 6..60];
            let mut stream =
                f.file.read_ranges_stream(ranges.clone()).depth(2).coalesce(Coalesce::never());
            let mut seen = [false; 5];
            while let Some(read) = stream.next().await {
                check!(read.range == ranges[read.index])?;
                check!(!std::mem::replace(&mut seen[read.index], true))?;
                same(&read.result?, &pattern(read.range.start, read.range.count()))?;
            }
            check!(seen == [true; 5])
        }
        "File::read_at" o, |f| {
            let (read, buffer) = f.file.read_at(empty_buffer(), PAGE as u64).await;
            let read = back(read, buffer.len())?;
            check!(read > 0)?;
            same(&buffer[..read], &pattern(PAGE as u64, read))
        }
        "File::read_at, at the current position" o, |f| {
            let (read, buffer) = f.file.read_at(empty_buffer(), Position::Current).await;
            let read = back(read, buffer.len())?;
            check!(read > 0)?;
            same(&buffer[..read], &pattern(0, read))
        }
        "File::read_at, of a pipe" o, |f| {
            let (reader, mut writer) = f.take(|once| &mut once.pipe).unwrap();
            io::Write::write_all(&mut writer, b"text")?;
            let (read, buffer) = reader.read_at(empty_buffer(), Position::Current).await;
            let read = back(read, buffer.len())?;
            same(&buffer[..read], b"text")
        }
        "File::read_at, of an empty pipe" o, |f| {
            let (reader, mut writer) = f.take(|once| &mut once.pipe).unwrap();
            let late = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(2));
                io::Write::write_all(&mut writer, b"late")
            });
            let (read, buffer) = reader.read_at(empty_buffer(), Position::Current).await;
            let read = back(read, buffer.len())?;
            late.join().unwrap()?;
            same(&buffer[..read], b"late")
        }
        "File::write_at, of a pipe" o, |f| {
            let (writer, mut reader) = f.take(|once| &mut once.to_pipe).unwrap();
            let (written, buffer) = writer.write_at(empty_buffer(), Position::Current).await;
            drop(writer);
            let written = back(written, buffer.len())?;
            let mut found = Vec::new();
            io::Read::read_to_end(&mut reader, &mut found)?;
            check!(found.len() == written)
        }
        "File::read_at, unaligned" o, |f| {
            let (read, buffer) = f.file.read_at(vec![0; LEN], 77).await;
            let read = back(read, buffer.len())?;
            check!(read > 0)?;
            same(&buffer[..read], &pattern(77, read))
        }
        "File::read_exact_at" o, |f| {
            let (read, buffer) = f.file.read_exact_at(empty_buffer(), PAGE as u64).await;
            back(read, buffer.len())?;
            same(&buffer, &pattern(PAGE as u64, LEN))
        }
        "File::read_buf_at" o, |f| {
            let (read, buffer) = f.file.read_buf_at(Vec::with_capacity(LEN), PAGE as u64).await;
            let read = read?;
            check!(read > 0 && read == buffer.len())?;
            same(&buffer, &pattern(PAGE as u64, read))
        }
        "File::read_buf_exact_at" o, |f| {
            let mut buffer = Vec::with_capacity(LEN);
            buffer.extend_from_slice(b"head");
            let len = buffer.capacity() - buffer.len();
            let (read, buffer) = f.file.read_buf_exact_at(buffer, 77).await;
            read?;
            same(&buffer, &[b"head", &pattern(77, len)[..]].concat())
        }
        "File::write_at" grow, |f| {
            let (written, buffer) = f.file.write_at(buffer(&new_bytes()), FAR).await;
            let written = back(written, buffer.len())?;
            check!(written > 0)?;
            f.has(FAR, &buffer[..written])
        }
        "File::write_at, at the current position" grow, |f| {
            rustix::fs::seek(&f.file, rustix::fs::SeekFrom::Start(FAR))?;
            let (written, buffer) = f.file.write_at(buffer(&new_bytes()), Position::Current).await;
            let written = back(written, buffer.len())?;
            check!(written > 0)?;
            f.has(FAR, &buffer[..written])
        }
        "File::write_all_at" grow, |f| {
            let (written, buffer) = f.file.write_all_at(buffer(&new_bytes()), FAR).await;
            back(written, buffer.len())?;
            f.has(FAR, &buffer)
        }
        "File::write_durable_at" grow, |f| {
            let (written, buffer) = f.file.write_durable_at(buffer(&new_bytes()), FAR).await;
            back(written, buffer.len())?;
            f.has(FAR, &buffer)
        }
        "File::write_durable_at, more than one request" grow, |f| {
            let bytes = pattern(3, 32 * PAGE);
            let (written, buffer) = f.file.write_durable_at(buffer(&bytes), FAR).await;
            written?;
            check!(buffer.len() == bytes.len())?;
            f.has(FAR, &bytes)
        }
        "File::atomic_write_unit" o, |f| {
            f.file.atomic_write_unit().await.map(drop)
        }
        "File::write_untorn_at" grow, |f| {
            let (written, buffer) = f.file.write_untorn_at(buffer(&new_bytes()), FAR).await;
            untorn(f, written, buffer).await
        }
        "File::write_untorn_durable_at" grow, |f| {
            let (written, buffer) = f.file.write_untorn_durable_at(buffer(&new_bytes()), FAR).await;
            untorn(f, written, buffer).await
        }
        "File::read_vectored_at" o, |f| {
            let (read, buffers) =
                f.file.read_vectored_at(vec![empty_buffer(), empty_buffer()], 0).await;
            let read = back(read, sizes(&buffers) / 2)?;
            check!(read > 0)?;
            same(&[&buffers[0][..], &buffers[1][..]].concat()[..read], &pattern(0, read))
        }
        "File::read_all_vectored_at" o, |f| {
            let (read, buffers) =
                f.file.read_all_vectored_at(vec![empty_buffer(), empty_buffer()], 0).await;
            let read = back(read, sizes(&buffers) / 2)?;
            check!(read == 2 * LEN)?;
            same(&[&buffers[0][..], &buffers[1][..]].concat(), &pattern(0, read))
        }
        "File::write_vectored_at" grow, |f| {
            let both = vec![buffer(&new_bytes()), buffer(&new_bytes())];
            let (written, buffers) = f.file.write_vectored_at(both, FAR).await;
            let written = back(written, sizes(&buffers) / 2)?;
            check!(written > 0)?;
            f.has(FAR, &[new_bytes(), new_bytes()].concat()[..written])
        }
        "File::write_all_vectored_at" grow, |f| {
            let both = vec![buffer(&new_bytes()), buffer(&new_bytes())];
            let (written, buffers) = f.file.write_all_vectored_at(both, FAR).await;
            back(written, sizes(&buffers) / 2)?;
            f.has(FAR, &[new_bytes(), new_bytes()].concat())
        }
    }
}

fn streams() -> Vec<Row> {
    let o = Effects::OPERATION;
    let grow = o.and(Effects::GROW);
    rows! {
        "LogWriter::new" Effects::NOTHING, |f| {
            LogWriter::new(f.take(|once| &mut once.log).unwrap(), FAR).map(drop)
        }
        "LogWriter::append" grow, |f| {
            let log = LogWriter::new(f.take(|once| &mut once.log).unwrap(), FAR)?;
            check!(log.append(new_bytes()).await? == FAR)?;
            f.has(FAR, &new_bytes())
        }
        "LogWriter::append, several" grow, |f| {
            let log = LogWriter::new(f.take(|once| &mut once.log).unwrap(), FAR)?;
            let appends = (0..3).map(|at| log.append(pattern(at, 1000)));
            let offsets = futures::future::join_all(appends)
                .await
                .into_iter()
                .collect::<io::Result<Vec<_>>>()?;
            check!(offsets == [FAR, FAR + 1000, FAR + 2000])?;
            f.has(FAR, &[0, 1, 2].map(|at| pattern(at, 1000)).concat())
        }
        "Reader::read" o, |f| {
            let mut reader = f.file.reader().chunk(PAGE).read_ahead(3);
            let (mut all, mut bytes) = (Vec::new(), [0; 1000]);
            loop {
                match reader.read(&mut bytes).await? {
                    0 => return same(&all, &pattern(0, PAGES * PAGE)),
                    read => all.extend_from_slice(&bytes[..read]),
                }
            }
        }
        "Reader::next_block" o, |f| {
            let mut reader = f.file.reader().chunk(PAGE).read_ahead(2).range(7..20_000);
            let mut all = Vec::new();
            while let Some(block) = reader.next_block().await? {
                all.extend_from_slice(&block);
            }
            check!(reader.position() == 20_000)?;
            same(&all, &pattern(7, 20_000 - 7))
        }
        "Reader::seek" o, |f| {
            let mut reader = f.file.reader().chunk(PAGE);
            check!(reader.seek(SeekFrom::End(-9)).await? == (PAGES * PAGE - 9) as u64)?;
            let last = reader.next_block().await?.unwrap_or_default();
            same(&last, &pattern((PAGES * PAGE - 9) as u64, 9))
        }
        "Reader::blocks" o, |f| {
            let blocks = f.file.reader().chunk(PAGE).range(7..20_000).blocks();
            let blocks: Vec<_> = blocks.map_ok(|block| block.to_vec()).try_collect().await?;
            same(&blocks.concat(), &pattern(7, 20_000 - 7))
        }
        "Blocks::into_reader" o, |f| {
            let mut blocks = f.file.reader().chunk(PAGE).read_ahead(0).blocks();
            same(&blocks.try_next().await?.unwrap_or_default(), &pattern(0, PAGE))?;
            let next = blocks.into_reader().next_block().await?.unwrap_or_default();
            same(&next, &pattern(PAGE as u64, PAGE))
        }
        "Writer::write_all" grow, |f| {
            let mut writer = f.file.writer().chunk(PAGE).write_behind(2).at(FAR);
            writer.write_all(&pattern(1, 5 * PAGE + 5)).await?;
            writer.flush().await?;
            check!(writer.written() == 5 * PAGE as u64 + 5)?;
            f.has(FAR, &pattern(1, 5 * PAGE + 5))
        }
        "Writer::flush" grow, |f| {
            let mut writer = f.file.writer().at(FAR);
            writer.write_all(b"few").await?;
            writer.flush().await?;
            f.has(FAR, b"few")
        }
        "Writer::sync_data" grow, |f| {
            let mut writer = f.file.writer().at(FAR);
            writer.write_all(b"few").await?;
            writer.sync_data().await?;
            f.has(FAR, b"few")
        }
        "Writer::sync_all" grow, |f| {
            let mut writer = f.file.writer().at(FAR);
            writer.write_all(b"few").await?;
            writer.sync_all().await?;
            f.has(FAR, b"few")
        }
        "Writer::write_vectored" grow, |f| {
            let mut writer = f.file.writer().at(FAR);
            let both = [IoSlice::new(b"one"), IoSlice::new(b"two")];
            let written = writer.write_vectored(&both).await?;
            // (The task's allowance may end after the first one.)
            check!(matches!(written, 3 | 6))?;
            writer.write_all(&b"onetwo"[written..]).await?;
            writer.flush().await?;
            f.has(FAR, b"onetwo")
        }
        "Writer::seek" grow, |f| {
            let mut writer = f.file.writer();
            check!(writer.seek(SeekFrom::End(0)).await? == (PAGES * PAGE) as u64)?;
            writer.write_all(&pattern(1, PAGE)).await?;
            check!(writer.seek(SeekFrom::Start(FAR)).await? == FAR)?;
            f.has((PAGES * PAGE) as u64, &pattern(1, PAGE))?;
            writer.write_all(b"few").await?;
            writer.flush().await?;
            f.has(FAR, b"few")
        }
    }
}

/// Calls on paths, engines and directories.
pub fn paths() -> Vec<Row> {
    use Effects as E;
    let o = E::OPERATION;
    let open = o.and(E::OPEN);
    rows! {
        "EngineBuilder::build" E::BUILD, |f| {
            check!(Engine::builder().backend(f.kind).shards(1).build()?.backend() == f.kind)
        }
        "EngineBuilder::install_global" o, |f| {
            // Every situation has a global engine.
            match Engine::builder().backend(f.kind).install_global() {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                Err(error) => Err(error),
                Ok(_) => Err(wrong("a second global engine")),
            }
        }
        "Engine::global" o, |f| { check!(Engine::global()?.backend() == f.kind) }
        "Engine::open" open, |f| {
            same(&f.engine.open(f.at("text")).await?.read(0..9).await?, b"text")
        }
        "Engine::fs" o, |f| { check!(f.engine.fs().exists(f.at("text")).await?) }
        "Engine::call" o, |f| { check!(f.engine.call(|| Ok(7)).await? == 7) }
        "Engine::sleep" o, |f| { f.engine.sleep(std::time::Duration::from_micros(1)).await }
        "File::open" open, |f| { File::open(f.at("text")).await.map(drop) }
        "File::create" open, |f| {
            drop(File::create(f.at("text")).await?);
            check!(std::fs::symlink_metadata(f.at("text"))?.len() == 0)
        }
        "File::create_new" open, |f| {
            drop(File::create_new(f.at("new")).await?);
            std::fs::symlink_metadata(f.at("new")).map(drop)
        }
        "OpenOptions::open" open, |f| {
            let file = OpenOptions::new().read(true).engine(&f.engine).open(f.at("link")).await?;
            check!(rustix::io::fcntl_getfd(file.as_fd())?.contains(rustix::io::FdFlags::CLOEXEC))
        }
        "OpenOptions::open, in a directory" open, |f| {
            let dir = f.engine.open(&*f.dir).await?;
            let file = OpenOptions::new()
                .read(true)
                .in_dir(&dir)
                .resolve(Resolve::BENEATH)
                .open("full/of")
                .await?;
            check!(file.metadata().await?.is_dir())
        }
        "OpenOptions::open_with_metadata" open, |f| {
            let mut options = OpenOptions::new();
            let (file, found) =
                options.read(true).engine(&f.engine).open_with_metadata(f.at("text")).await?;
            check!(found.len() == 4)?;
            same(&file.read(0..9).await?, b"text")
        }
        "OpenOptions::open_with_metadata, of a link" open, |f| {
            let mut options = OpenOptions::new();
            let (_, found) =
                options.read(true).engine(&f.engine).open_with_metadata(f.at("link")).await?;
            check!(found.is_file() && found.len() == 4)
        }
        "fs::read" open, |f| { same(&fs::read(f.at("file")).await?, &pattern(0, PAGES * PAGE)) }
        "fs::read, without a length" open, |f| {
            check!(!fs::read("/proc/self/status").await?.is_empty())
        }
        "fs::read_to_string" open, |f| { check!(fs::read_to_string(f.at("link")).await? == "text") }
        "fs::write" open.and(E::GROW), |f| {
            fs::write(f.at("new"), new_bytes()).await?;
            f.unopened("new", LEN)
        }
        "fs::write_atomic" open.and(E::GROW), |f| {
            fs::write_atomic(f.at("new"), new_bytes()).await?;
            f.unopened("new", LEN)
        }
        "fs::write_atomic, replacing a file" open.and(E::GROW), |f| {
            fs::write_atomic(f.at("text"), new_bytes()).await?;
            f.unopened("text", LEN)
        }
        "AtomicFile::create" open, |f| {
            drop(AtomicFile::create(f.at("new")).await?);
            f.gone("new")
        }
        "Fs::create_atomic" open, |f| {
            drop(f.engine.fs().create_atomic(f.at("new")).await?);
            f.gone("new")
        }
        "AtomicFile::write_all" open.and(E::GROW), |f| {
            let mut file =
                f.engine.fs().create_atomic(f.at("text")).await?.chunk(PAGE).write_behind(2);
            file.write_all(&pattern(1, 5 * PAGE + 5)).await?;
            file.commit().await?;
            f.unopened("text", 5 * PAGE + 5)
        }
        "AtomicFile::write_vectored" open.and(E::GROW), |f| {
            let mut file = f.engine.fs().create_atomic(f.at("text")).await?;
            let both = [IoSlice::new(b"one"), IoSlice::new(b"two")];
            let written = file.write_vectored(&both).await?;
            // (The task's allowance may end after the first one.)
            check!(matches!(written, 3 | 6))?;
            file.write_all(&b"onetwo"[written..]).await?;
            file.commit().await?;
            f.unopened("text", 6)
        }
        "AtomicFile::seek" open.and(E::GROW), |f| {
            let mut file = f.engine.fs().create_atomic(f.at("text")).await?;
            file.write_all(&new_bytes()).await?;
            check!(file.seek(SeekFrom::End(-1)).await? == LEN as u64 - 1)?;
            file.write_all(b"end").await?;
            file.commit().await?;
            f.unopened("text", LEN + 2)
        }
        "AtomicFile::flush" open.and(E::GROW), |f| {
            let mut file = f.engine.fs().create_atomic(f.at("text")).await?;
            file.write_all(&new_bytes()).await?;
            file.flush().await?;
            check!(std::fs::metadata(f.at("text"))?.len() == 4)?;
            check!(rustix::fs::fstat(file.file())?.st_size == LEN as i64)
        }
        "AtomicFile::commit" open.and(E::GROW), |f| {
            let mut file = AtomicFile::create(f.at("new")).await?;
            file.write_all(&new_bytes()).await?;
            file.commit().await?;
            f.unopened("new", LEN)
        }
        "fs::copy" open.and(E::GROW), |f| {
            check!(fs::copy(f.at("file"), f.at("new")).await? == (PAGES * PAGE) as u64)?;
            f.unopened("new", PAGES * PAGE)
        }
        "fs::copy_dont_cache" open.and(E::GROW), |f| {
            let copied = fs::copy_dont_cache(f.at("file"), f.at("new")).await?;
            check!(copied == (PAGES * PAGE) as u64)?;
            f.unopened("new", PAGES * PAGE)
        }
        "fs::rename" o, |f| {
            fs::rename(f.at("text"), f.at("new")).await?;
            f.unopened("new", 4)
        }
        "fs::remove_file" o, |f| {
            fs::remove_file(f.at("text")).await?;
            f.gone("text")
        }
        "fs::remove_dir" o, |f| {
            fs::remove_dir(f.at("empty")).await?;
            f.gone("empty")
        }
        "fs::remove_dir_all" open, |f| {
            fs::remove_dir_all(f.at("full")).await?;
            f.gone("full")
        }
        "fs::hard_link" o, |f| {
            fs::hard_link(f.at("text"), f.at("new")).await?;
            f.unopened("new", 4)
        }
        "fs::symlink" o, |f| {
            fs::symlink("text", f.at("new")).await?;
            check!(std::fs::read_link(f.at("new"))? == Path::new("text"))
        }
        "fs::metadata" o, |f| { check!(fs::metadata(f.at("link")).await?.len() == 4) }
        "fs::symlink_metadata" o, |f| {
            check!(!fs::symlink_metadata(f.at("link")).await?.is_file())
        }
        "fs::exists" o, |f| { check!(fs::exists(f.at("text")).await?) }
        "fs::exists, of nothing" o, |f| { check!(!fs::exists(f.at("nothing")).await?) }
        "fs::try_exists" o, |f| { check!(fs::try_exists(f.at("text")).await?) }
        "fs::read_link" o, |f| { check!(fs::read_link(f.at("link")).await? == Path::new("text")) }
        "fs::canonicalize" o, |f| {
            let expected = std::fs::canonicalize(f.at("text"))?;
            check!(fs::canonicalize(f.at("full/../link")).await? == expected)
        }
        "fs::set_permissions" o, |f| {
            fs::set_permissions(f.at("text"), PermissionsExt::from_mode(0o604)).await?;
            check!(std::fs::metadata(f.at("text"))?.permissions().mode() & 0o777 == 0o604)
        }
        "fs::create_dir" o, |f| {
            fs::create_dir(f.at("new")).await?;
            check!(std::fs::metadata(f.at("new"))?.is_dir())
        }
        "fs::create_dir_all" o, |f| {
            fs::create_dir_all(f.at("new/and/deep")).await?;
            check!(std::fs::metadata(f.at("new/and/deep"))?.is_dir())
        }
        "fs::sync_dir" open, |f| { fs::sync_dir(&f.dir).await }
        "DirBuilder::create" o, |f| {
            DirBuilder::new().mode(0o700).create(f.at("new")).await?;
            check!(std::fs::metadata(f.at("new"))?.permissions().mode() & 0o777 == 0o700)
        }
        "fs::read_dir" open, |f| { fs::read_dir(f.at("full")).await.map(drop) }
        "ReadDir::next_entry" o, |f| {
            let mut entries = f.entries().await?;
            let mut names = Vec::new();
            while let Some(entry) = entries.next_entry().await? {
                names.push(entry.file_name());
            }
            check!(names == ["of"])
        }
        "ReadDir::poll_next_entry" o, |f| {
            let mut entries = f.entries().await?;
            let mut next = async || poll_fn(|context| entries.poll_next_entry(context)).await;
            check!(next().await?.is_some() && next().await?.is_none())
        }
        "DirEntry::metadata" o, |f| { check!(f.entry().await?.metadata().await?.len() == 5) }
        "DirEntry::file_type" E::NOTHING, |f| {
            check!(f.entry().await?.file_type().await?.is_file())
        }
    }
}
