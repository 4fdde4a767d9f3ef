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
pub struct Does(u8);

impl Does {
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
    pub does: Does,
    pub call: fn(World) -> BoxFuture<'static, io::Result<()>>,
}

/// The engine and the files for a call. Clones share them.
#[derive(Clone)]
pub struct World {
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
    to_test: Option<(File, io::PipeReader)>,
    pipe: Option<(File, io::PipeWriter)>,
    /// A listing that has begun, for calls that continue one. Without it they begin their own.
    pub entries: Option<ReadDir>,
    pub entry: Option<DirEntry>,
}

impl World {
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
            to_test: Some((File::from_fd(our_writer.into(), engine), our_reader)),
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

fn same(found: &[u8], expected: &[u8]) -> io::Result<()> {
    check(found == expected, "other bytes than expected")
}

fn buffer(bytes: &[u8]) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new(bytes.len(), PAGE);
    buffer.copy_from_slice(bytes);
    buffer
}

fn room() -> AlignedBuffer {
    AlignedBuffer::new(LEN, PAGE)
}

/// Checks that the whole buffer is returned, except in a forked child.
fn back<T>(result: io::Result<T>, len: usize) -> io::Result<T> {
    let forked = result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ECHILD));
    check(forked || len == LEN, "the buffer is not the one that was given")?;
    result
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
    ($($name:literal $does:expr, |$world:ident| $body:block)*) => {
        vec![$(Row {
            name: $name,
            does: $does,
            call: |$world| Box::pin(async move {
                let _ = &$world;
                $body
            }),
        }),*]
    };
}

/// Calls on files: those that differ for direct I/O.
pub fn files() -> Vec<Row> {
    use Does as D;
    let o = D::OPERATION;
    let grow = o.and(D::GROW);
    let mut rows = transfers();
    rows.extend(streams());
    rows.extend(rows! {
        "File::from_fd" D::NOTHING, |w| {
            let descriptor = w.take(|once| &mut once.descriptor).unwrap();
            check(File::from_fd(descriptor, &w.engine).engine().backend() == w.kind, "another backend")
        }
        "File::from_std" o, |w| {
            let descriptor = w.take(|once| &mut once.descriptor).unwrap();
            let file = File::from_std(descriptor.into())?;
            same(&file.read(5..50).await?, &pattern(5, 45))
        }
        "File::engine" D::NOTHING, |w| { check(w.file.engine().backend() == w.kind, "another backend") }
        "File::is_direct" D::NOTHING, |w| {
            let flags = rustix::fs::fcntl_getfl(&w.file)?;
            check(w.file.is_direct() == flags.contains(rustix::fs::OFlags::DIRECT), "not as it was opened")
        }
        "File::alignment" D::NOTHING, |w| { check(w.file.alignment().offset_align <= PAGE as u32, "more than a page") }
        "File::sync_all" o, |w| { w.file.sync_all().await }
        "File::sync_data" o, |w| { w.file.sync_data().await }
        "File::sync_range" o, |w| { w.file.sync_range(0, 0).await }
        "File::set_len" o, |w| {
            w.file.set_len(PAGE as u64).await?;
            check(w.std.metadata()?.len() == PAGE as u64, "another length")
        }
        "File::set_len, longer" o, |w| {
            w.file.set_len(FAR).await?;
            check(w.std.metadata()?.len() == FAR, "another length")
        }
        "File::allocate" grow, |w| {
            w.file.allocate(FAR, LEN as u64).await?;
            check(w.std.metadata()?.len() == FAR + LEN as u64, "another length")
        }
        "File::advise" o, |w| { w.file.advise(0, 0, Advice::WillNeed).await }
        "File::metadata" o, |w| { check(w.file.metadata().await?.len() == (PAGES * PAGE) as u64, "another length") }
        "File::set_permissions" o, |w| {
            w.file.set_permissions(PermissionsExt::from_mode(0o604)).await?;
            check(w.std.metadata()?.permissions().mode() & 0o777 == 0o604, "other permissions")
        }
        "File::set_times" o, |w| {
            w.file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).await?;
            check(w.std.metadata()?.modified()? == SystemTime::UNIX_EPOCH, "another time")
        }
        "File::set_modified" o, |w| {
            w.file.set_modified(SystemTime::UNIX_EPOCH).await?;
            check(w.std.metadata()?.modified()? == SystemTime::UNIX_EPOCH, "another time")
        }
        "File::try_clone" D::OPEN, |w| { w.file.try_clone().map(drop) }
        "File::try_lock" o, |w| { locked(w.file.try_lock().await) }
        "File::try_lock_shared" o, |w| { locked(w.file.try_lock_shared().await) }
        "File::unlock" o, |w| { w.file.unlock().await }
        "File::try_into_std" D::NOTHING, |w| {
            let file = w.file.clone().try_into_std().expect_err("there are clones");
            check(file.engine().backend() == w.kind, "another file")?;
            let file = w.take(|once| &mut once.single).unwrap();
            let file = file.try_into_std().map_err(|_| wrong("nobody holds it"))?;
            check(file.metadata()?.len() == (PAGES * PAGE) as u64, "another length")
        }
        "File::into_std" D::NOTHING, |w| {
            let refused = w.file.clone().into_std().await;
            check(refused.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput), "taken from a clone")?;
            let file = w.take(|once| &mut once.single).unwrap().into_std().await?;
            check(file.metadata()?.len() == (PAGES * PAGE) as u64, "another length")
        }
        "File::close" o, |w| { w.take(|once| &mut once.single).unwrap().close().await }
        "File::close, with clones" D::NOTHING, |w| {
            let refused = w.file.clone().close().await;
            check(refused.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput), "closed under a clone")
        }
    });
    rows
}

fn transfers() -> Vec<Row> {
    let o = Does::OPERATION;
    let grow = o.and(Does::GROW);
    rows! {
        "File::read" o, |w| { same(&w.file.read(5..5000).await?, &pattern(5, 4995)) }
        "File::read_ranges" o, |w| {
            let blocks = w.file.read_ranges(&[5..50, 4090..5000, 20_000..20_001, 9..9]).await?;
            let expected = [pattern(5, 45), pattern(4090, 910), pattern(20_000, 1), Vec::new()];
            check(blocks.len() == 4, "not a block for each")?;
            blocks.iter().zip(&expected).try_for_each(|(block, expected)| same(block, expected))
        }
        "File::read_ranges_each" o, |w| {
            let blocks = w.file.read_ranges_each(&[5..50, 20_000..20_001], Coalesce::never()).await?;
            let expected = [pattern(5, 45), pattern(20_000, 1)];
            check(blocks.len() == 2, "not a result for each")?;
            blocks.into_iter().zip(&expected).try_for_each(|(block, expected)| same(&block?, expected))
        }
        "File::read_exact" o, |w| {
            same(&w.file.read_exact(5..5000).await?, &pattern(5, 4995))
        }
        "File::read_ranges_stream" Does::NOTHING, |w| {
            let range = 0..9;
            drop(w.file.read_ranges_stream([range]));
            Ok(())
        }
        "RangeStream::next" o, |w| {
            let ranges = [5..50, 4090..5000, 20_000..20_001, 9..9, 6..60];
            let mut stream = w.file.read_ranges_stream(ranges.clone()).depth(2).coalesce(Coalesce::never());
            let mut seen = [false; 5];
            while let Some(read) = stream.next().await {
                check(read.range == ranges[read.index], "another range")?;
                check(!std::mem::replace(&mut seen[read.index], true), "a range twice")?;
                same(&read.result?, &pattern(read.range.start, read.range.count()))?;
            }
            check(seen == [true; 5], "a range is missing")
        }
        "File::read_at" o, |w| {
            let (read, buffer) = w.file.read_at(room(), PAGE as u64).await;
            let read = back(read, buffer.len())?;
            check(read > 0, "the end of the file")?;
            same(&buffer[..read], &pattern(PAGE as u64, read))
        }
        "File::read_at, at the cursor" o, |w| {
            let (read, buffer) = w.file.read_at(room(), Position::Current).await;
            let read = back(read, buffer.len())?;
            check(read > 0, "the end of the file")?;
            same(&buffer[..read], &pattern(0, read))
        }
        "File::read_at, of a pipe" o, |w| {
            let (reader, mut writer) = w.take(|once| &mut once.pipe).unwrap();
            io::Write::write_all(&mut writer, b"text")?;
            let (read, buffer) = reader.read_at(room(), Position::Current).await;
            let read = back(read, buffer.len())?;
            same(&buffer[..read], b"text")
        }
        "File::read_at, of an empty pipe" o, |w| {
            let (reader, mut writer) = w.take(|once| &mut once.pipe).unwrap();
            let late = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(2));
                io::Write::write_all(&mut writer, b"late")
            });
            let (read, buffer) = reader.read_at(room(), Position::Current).await;
            let read = back(read, buffer.len())?;
            late.join().unwrap()?;
            same(&buffer[..read], b"late")
        }
        "File::write_at, of a pipe" o, |w| {
            let (writer, mut reader) = w.take(|once| &mut once.to_test).unwrap();
            let (written, buffer) = writer.write_at(room(), Position::Current).await;
            drop(writer);
            let written = back(written, buffer.len())?;
            let mut found = Vec::new();
            io::Read::read_to_end(&mut reader, &mut found)?;
            check(found.len() == written, "another count")
        }
        "File::read_at, unaligned" o, |w| {
            let (read, buffer) = w.file.read_at(vec![0; LEN], 77).await;
            let read = back(read, buffer.len())?;
            check(read > 0, "the end of the file")?;
            same(&buffer[..read], &pattern(77, read))
        }
        "File::read_exact_at" o, |w| {
            let (read, buffer) = w.file.read_exact_at(room(), PAGE as u64).await;
            back(read, buffer.len())?;
            same(&buffer, &pattern(PAGE as u64, LEN))
        }
        "File::read_buf_at" o, |w| {
            let (read, buffer) = w.file.read_buf_at(Vec::with_capacity(LEN), PAGE as u64).await;
            let read = read?;
            check(read > 0 && read == buffer.len(), "another length")?;
            same(&buffer, &pattern(PAGE as u64, read))
        }
        "File::read_buf_exact_at" o, |w| {
            let mut buffer = Vec::with_capacity(LEN);
            buffer.extend_from_slice(b"head");
            let len = buffer.capacity() - buffer.len();
            let (read, buffer) = w.file.read_buf_exact_at(buffer, 77).await;
            read?;
            same(&buffer, &[b"head", &pattern(77, len)[..]].concat())
        }
        "File::write_at" grow, |w| {
            let (written, buffer) = w.file.write_at(buffer(&new_bytes()), FAR).await;
            let written = back(written, buffer.len())?;
            check(written > 0, "nothing was written")?;
            w.has(FAR, &buffer[..written])
        }
        "File::write_at, at the cursor" grow, |w| {
            rustix::fs::seek(&w.file, rustix::fs::SeekFrom::Start(FAR))?;
            let (written, buffer) = w.file.write_at(buffer(&new_bytes()), Position::Current).await;
            let written = back(written, buffer.len())?;
            check(written > 0, "nothing was written")?;
            w.has(FAR, &buffer[..written])
        }
        "File::write_all_at" grow, |w| {
            let (written, buffer) = w.file.write_all_at(buffer(&new_bytes()), FAR).await;
            back(written, buffer.len())?;
            w.has(FAR, &buffer)
        }
        "File::write_durable_at" grow, |w| {
            let (written, buffer) = w.file.write_durable_at(buffer(&new_bytes()), FAR).await;
            back(written, buffer.len())?;
            w.has(FAR, &buffer)
        }
        "File::write_durable_at, more than one request" grow, |w| {
            let bytes = pattern(3, 32 * PAGE);
            let (written, buffer) = w.file.write_durable_at(buffer(&bytes), FAR).await;
            written?;
            check(buffer.len() == bytes.len(), "the buffer is not the one that was given")?;
            w.has(FAR, &bytes)
        }
        "File::read_vectored_at" o, |w| {
            let (read, buffers) = w.file.read_vectored_at(vec![room(), room()], 0).await;
            let read = back(read, sizes(&buffers) / 2)?;
            check(read > 0, "the end of the file")?;
            same(&[&buffers[0][..], &buffers[1][..]].concat()[..read], &pattern(0, read))
        }
        "File::read_all_vectored_at" o, |w| {
            let (read, buffers) = w.file.read_all_vectored_at(vec![room(), room()], 0).await;
            let read = back(read, sizes(&buffers) / 2)?;
            check(read == 2 * LEN, "less than all")?;
            same(&[&buffers[0][..], &buffers[1][..]].concat(), &pattern(0, read))
        }
        "File::write_vectored_at" grow, |w| {
            let both = vec![buffer(&new_bytes()), buffer(&new_bytes())];
            let (written, buffers) = w.file.write_vectored_at(both, FAR).await;
            let written = back(written, sizes(&buffers) / 2)?;
            check(written > 0, "nothing was written")?;
            w.has(FAR, &[new_bytes(), new_bytes()].concat()[..written])
        }
        "File::write_all_vectored_at" grow, |w| {
            let both = vec![buffer(&new_bytes()), buffer(&new_bytes())];
            let (written, buffers) = w.file.write_all_vectored_at(both, FAR).await;
            back(written, sizes(&buffers) / 2)?;
            w.has(FAR, &[new_bytes(), new_bytes()].concat())
        }
    }
}

fn streams() -> Vec<Row> {
    let o = Does::OPERATION;
    let grow = o.and(Does::GROW);
    rows! {
        "LogWriter::new" Does::NOTHING, |w| {
            LogWriter::new(w.take(|once| &mut once.log).unwrap(), FAR).map(drop)
        }
        "LogWriter::file" Does::NOTHING, |w| {
            let log = LogWriter::new(w.take(|once| &mut once.log).unwrap(), FAR)?;
            check(log.file().engine().backend() == w.kind, "another file")
        }
        "LogWriter::append" grow, |w| {
            let log = LogWriter::new(w.take(|once| &mut once.log).unwrap(), FAR)?;
            check(log.append(new_bytes()).await? == FAR, "another offset")?;
            w.has(FAR, &new_bytes())
        }
        "LogWriter::append, several" grow, |w| {
            let log = LogWriter::new(w.take(|once| &mut once.log).unwrap(), FAR)?;
            let appends = (0..3).map(|at| log.append(pattern(at, 1000)));
            let offsets = futures::future::join_all(appends).await.into_iter().collect::<io::Result<Vec<_>>>()?;
            check(offsets == [FAR, FAR + 1000, FAR + 2000], "other offsets")?;
            w.has(FAR, &[0, 1, 2].map(|at| pattern(at, 1000)).concat())
        }
        "File::reader" Does::NOTHING, |w| { check(w.file.reader().position() == 0, "not at the beginning") }
        "Reader::read" o, |w| {
            let mut reader = w.file.reader().chunk(PAGE).read_ahead(3);
            let (mut all, mut bytes) = (Vec::new(), [0; 1000]);
            loop {
                match reader.read(&mut bytes).await? {
                    0 => return same(&all, &pattern(0, PAGES * PAGE)),
                    read => all.extend_from_slice(&bytes[..read]),
                }
            }
        }
        "Reader::next_block" o, |w| {
            let mut reader = w.file.reader().chunk(PAGE).read_ahead(2).range(7..20_000);
            let mut all = Vec::new();
            while let Some(block) = reader.next_block().await? {
                all.extend_from_slice(&block);
            }
            check(reader.position() == 20_000, "another position")?;
            same(&all, &pattern(7, 20_000 - 7))
        }
        "Reader::seek" o, |w| {
            let mut reader = w.file.reader().chunk(PAGE);
            check(reader.seek(SeekFrom::End(-9)).await? == (PAGES * PAGE - 9) as u64, "another position")?;
            same(&reader.next_block().await?.unwrap_or_default(), &pattern((PAGES * PAGE - 9) as u64, 9))
        }
        "Reader::seek_to" Does::NOTHING, |w| {
            let mut reader = w.file.reader();
            reader.seek_to(7);
            check(reader.position() == 7, "another position")
        }
        "Reader::position" Does::NOTHING, |w| { check(w.file.reader().range(5..).position() == 5, "another position") }
        "Reader::file" Does::NOTHING, |w| { check(w.file.reader().file().engine().backend() == w.kind, "another file") }
        "Reader::blocks" o, |w| {
            let blocks = w.file.reader().chunk(PAGE).range(7..20_000).blocks();
            let blocks: Vec<_> = blocks.map_ok(|block| block.to_vec()).try_collect().await?;
            same(&blocks.concat(), &pattern(7, 20_000 - 7))
        }
        "Blocks::into_reader" o, |w| {
            let mut blocks = w.file.reader().chunk(PAGE).read_ahead(0).blocks();
            same(&blocks.try_next().await?.unwrap_or_default(), &pattern(0, PAGE))?;
            same(&blocks.into_reader().next_block().await?.unwrap_or_default(), &pattern(PAGE as u64, PAGE))
        }
        "File::writer" Does::NOTHING, |w| { check(w.file.writer().position() == 0, "not at the beginning") }
        "Writer::write_all" grow, |w| {
            let mut writer = w.file.writer().chunk(PAGE).write_behind(2).at(FAR);
            writer.write_all(&pattern(1, 5 * PAGE + 5)).await?;
            writer.flush().await?;
            check(writer.written() == 5 * PAGE as u64 + 5, "another count")?;
            w.has(FAR, &pattern(1, 5 * PAGE + 5))
        }
        "Writer::flush" grow, |w| {
            let mut writer = w.file.writer().at(FAR);
            writer.write_all(b"few").await?;
            writer.flush().await?;
            w.has(FAR, b"few")
        }
        "Writer::sync_data" grow, |w| {
            let mut writer = w.file.writer().at(FAR);
            writer.write_all(b"few").await?;
            writer.sync_data().await?;
            w.has(FAR, b"few")
        }
        "Writer::sync_all" grow, |w| {
            let mut writer = w.file.writer().at(FAR);
            writer.write_all(b"few").await?;
            writer.sync_all().await?;
            w.has(FAR, b"few")
        }
        "Writer::write_vectored" grow, |w| {
            let mut writer = w.file.writer().at(FAR);
            check(writer.write_vectored(&[IoSlice::new(b"one"), IoSlice::new(b"two")]).await? == 6, "another count")?;
            writer.flush().await?;
            w.has(FAR, b"onetwo")
        }
        "Writer::seek" grow, |w| {
            let mut writer = w.file.writer();
            check(writer.seek(SeekFrom::End(0)).await? == (PAGES * PAGE) as u64, "another position")?;
            writer.write_all(&pattern(1, PAGE)).await?;
            check(writer.seek(SeekFrom::Start(FAR)).await? == FAR, "another position")?;
            w.has((PAGES * PAGE) as u64, &pattern(1, PAGE))?;
            writer.write_all(b"few").await?;
            writer.flush().await?;
            w.has(FAR, b"few")
        }
        "Writer::abandon" Does::NOTHING, |w| {
            w.file.writer().abandon();
            Ok(())
        }
        "Writer::position" Does::NOTHING, |w| { check(w.file.writer().at(FAR).position() == FAR, "another position") }
        "Writer::written" Does::NOTHING, |w| { check(w.file.writer().at(FAR).written() == 0, "another count") }
        "Writer::file" Does::NOTHING, |w| { check(w.file.writer().file().engine().backend() == w.kind, "another file") }
    }
}

/// Calls on paths, engines and directories.
pub fn paths() -> Vec<Row> {
    use Does as D;
    let o = D::OPERATION;
    let open = o.and(D::OPEN);
    rows! {
        "EngineBuilder::build" D::BUILD, |w| {
            check(Engine::builder().backend(w.kind).shards(1).build()?.backend() == w.kind, "another backend")
        }
        "Engine::builder" D::NOTHING, |w| {
            drop(Engine::builder());
            Ok(())
        }
        "EngineBuilder::install_global" o, |w| {
            // Every situation has a global engine.
            match Engine::builder().backend(w.kind).install_global() {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                Err(error) => Err(error),
                Ok(_) => Err(wrong("a second global engine")),
            }
        }
        "Engine::global" o, |w| { check(Engine::global()?.backend() == w.kind, "another backend") }
        "Engine::open" open, |w| { same(&w.engine.open(w.at("text")).await?.read(0..9).await?, b"text") }
        "Engine::fs" o, |w| { check(w.engine.fs().exists(w.at("text")).await?, "it is there") }
        "Engine::backend" D::NOTHING, |w| { check(w.engine.backend() == w.kind, "another backend") }
        "Engine::explain" D::NOTHING, |w| { check(!w.engine.explain().to_string().is_empty(), "no explanation") }
        "Engine::stats" D::NOTHING, |w| {
            let counts = w.engine.stats().counts;
            check(counts.pushed == counts.delivered + counts.orphaned + counts.in_flight, "an operation is lost")
        }
        "Engine::readable" D::NOTHING, |w| {
            let error = w.engine.readable().map(drop).expect_err("it reaps by itself");
            check(error.raw_os_error() == Some(libc::EOPNOTSUPP), "another error")
        }
        "Engine::reap" D::NOTHING, |w| {
            w.engine.reap();
            Ok(())
        }
        "File::open" open, |w| { File::open(w.at("text")).await.map(drop) }
        "File::create" open, |w| {
            drop(File::create(w.at("text")).await?);
            check(std::fs::symlink_metadata(w.at("text"))?.len() == 0, "not empty")
        }
        "File::create_new" open, |w| {
            drop(File::create_new(w.at("new")).await?);
            std::fs::symlink_metadata(w.at("new")).map(drop)
        }
        "File::options" D::NOTHING, |w| {
            drop(File::options());
            Ok(())
        }
        "OpenOptions::open" open, |w| {
            let file = OpenOptions::new().read(true).engine(&w.engine).open(w.at("link")).await?;
            check(rustix::io::fcntl_getfd(file.as_fd())?.contains(rustix::io::FdFlags::CLOEXEC), "not CLOEXEC")
        }
        "OpenOptions::open, in a directory" open, |w| {
            let dir = w.engine.open(&*w.dir).await?;
            let file = OpenOptions::new().read(true).in_dir(&dir).resolve(Resolve::BENEATH).open("full/of").await?;
            check(file.metadata().await?.is_dir(), "another file")
        }
        "fs::read" open, |w| { same(&fs::read(w.at("file")).await?, &pattern(0, PAGES * PAGE)) }
        "fs::read, without a length" open, |w| {
            check(!fs::read("/proc/self/status").await?.is_empty(), "nothing")
        }
        "fs::read_to_string" open, |w| { check(fs::read_to_string(w.at("link")).await? == "text", "another text") }
        "fs::write" open.and(D::GROW), |w| {
            fs::write(w.at("new"), new_bytes()).await?;
            w.unopened("new", LEN)
        }
        "fs::write_atomic" open.and(D::GROW), |w| {
            fs::write_atomic(w.at("new"), new_bytes()).await?;
            w.unopened("new", LEN)
        }
        "fs::write_atomic, in the place of another" open.and(D::GROW), |w| {
            fs::write_atomic(w.at("text"), new_bytes()).await?;
            w.unopened("text", LEN)
        }
        "AtomicFile::create" open, |w| {
            drop(AtomicFile::create(w.at("new")).await?);
            w.gone("new")
        }
        "Fs::create_atomic" open, |w| {
            drop(w.engine.fs().create_atomic(w.at("new")).await?);
            w.gone("new")
        }
        "AtomicFile::write_all" open.and(D::GROW), |w| {
            let mut file = w.engine.fs().create_atomic(w.at("text")).await?.chunk(PAGE).write_behind(2);
            file.write_all(&pattern(1, 5 * PAGE + 5)).await?;
            file.commit().await?;
            w.unopened("text", 5 * PAGE + 5)
        }
        "AtomicFile::write_vectored" open.and(D::GROW), |w| {
            let mut file = w.engine.fs().create_atomic(w.at("text")).await?;
            check(file.write_vectored(&[IoSlice::new(b"one"), IoSlice::new(b"two")]).await? == 6, "another count")?;
            file.commit().await?;
            w.unopened("text", 6)
        }
        "AtomicFile::seek" open.and(D::GROW), |w| {
            let mut file = w.engine.fs().create_atomic(w.at("text")).await?;
            file.write_all(&new_bytes()).await?;
            check(file.seek(SeekFrom::End(-1)).await? == LEN as u64 - 1, "another position")?;
            file.write_all(b"end").await?;
            file.commit().await?;
            w.unopened("text", LEN + 2)
        }
        "AtomicFile::flush" open.and(D::GROW), |w| {
            let mut file = w.engine.fs().create_atomic(w.at("text")).await?;
            file.write_all(&new_bytes()).await?;
            file.flush().await?;
            check(std::fs::metadata(w.at("text"))?.len() == 4, "seen before it is committed")?;
            check(rustix::fs::fstat(file.file())?.st_size == LEN as i64, "not written")
        }
        "AtomicFile::commit" open.and(D::GROW), |w| {
            let mut file = AtomicFile::create(w.at("new")).await?;
            file.write_all(&new_bytes()).await?;
            file.commit().await?;
            w.unopened("new", LEN)
        }
        "AtomicFile::position" open, |w| {
            let mut file = AtomicFile::create(w.at("new")).await?;
            file.write_all(b"few").await?;
            check(file.position() == 3, "another position")
        }
        "AtomicFile::file" open, |w| {
            check(w.engine.fs().create_atomic(w.at("new")).await?.file().engine().backend() == w.kind, "another file")
        }
        "fs::copy" open.and(D::GROW), |w| {
            check(fs::copy(w.at("file"), w.at("new")).await? == (PAGES * PAGE) as u64, "another count")?;
            w.unopened("new", PAGES * PAGE)
        }
        "fs::rename" o, |w| {
            fs::rename(w.at("text"), w.at("new")).await?;
            w.unopened("new", 4)
        }
        "fs::remove_file" o, |w| {
            fs::remove_file(w.at("text")).await?;
            w.gone("text")
        }
        "fs::remove_dir" o, |w| {
            fs::remove_dir(w.at("empty")).await?;
            w.gone("empty")
        }
        "fs::remove_dir_all" open, |w| {
            fs::remove_dir_all(w.at("full")).await?;
            w.gone("full")
        }
        "fs::hard_link" o, |w| {
            fs::hard_link(w.at("text"), w.at("new")).await?;
            w.unopened("new", 4)
        }
        "fs::symlink" o, |w| {
            fs::symlink("text", w.at("new")).await?;
            check(std::fs::read_link(w.at("new"))? == Path::new("text"), "another link")
        }
        "fs::metadata" o, |w| { check(fs::metadata(w.at("link")).await?.len() == 4, "another length") }
        "fs::symlink_metadata" o, |w| {
            check(!fs::symlink_metadata(w.at("link")).await?.is_file(), "the link was followed")
        }
        "fs::exists" o, |w| { check(fs::exists(w.at("text")).await?, "it is there") }
        "fs::exists, of nothing" o, |w| { check(!fs::exists(w.at("nothing")).await?, "it is not there") }
        "fs::try_exists" o, |w| { check(fs::try_exists(w.at("text")).await?, "it is there") }
        "fs::read_link" o, |w| { check(fs::read_link(w.at("link")).await? == Path::new("text"), "another link") }
        "fs::canonicalize" o, |w| {
            let expected = std::fs::canonicalize(w.at("text"))?;
            check(fs::canonicalize(w.at("full/../link")).await? == expected, "another path")
        }
        "fs::set_permissions" o, |w| {
            fs::set_permissions(w.at("text"), PermissionsExt::from_mode(0o604)).await?;
            check(std::fs::metadata(w.at("text"))?.permissions().mode() & 0o777 == 0o604, "other permissions")
        }
        "fs::create_dir" o, |w| {
            fs::create_dir(w.at("new")).await?;
            check(std::fs::metadata(w.at("new"))?.is_dir(), "no directory")
        }
        "fs::create_dir_all" o, |w| {
            fs::create_dir_all(w.at("new/and/deep")).await?;
            check(std::fs::metadata(w.at("new/and/deep"))?.is_dir(), "no directory")
        }
        "fs::sync_dir" open, |w| { fs::sync_dir(&w.dir).await }
        "DirBuilder::create" o, |w| {
            DirBuilder::new().mode(0o700).create(w.at("new")).await?;
            check(std::fs::metadata(w.at("new"))?.permissions().mode() & 0o777 == 0o700, "other permissions")
        }
        "fs::read_dir" open, |w| { fs::read_dir(w.at("full")).await.map(drop) }
        "ReadDir::next_entry" o, |w| {
            let mut entries = w.entries().await?;
            let mut names = Vec::new();
            while let Some(entry) = entries.next_entry().await? {
                names.push(entry.file_name());
            }
            check(names == ["of"], "other names")
        }
        "DirEntry::metadata" o, |w| { check(w.entry().await?.metadata().await?.len() == 5, "another length") }
        "DirEntry::file_type" D::NOTHING, |w| {
            check(w.entry().await?.file_type().await?.is_file(), "another type")
        }
        "DirEntry::path" D::NOTHING, |w| { check(w.entry().await?.path() == w.at("full/of/things"), "another path") }
        "DirEntry::file_name" D::NOTHING, |w| { check(w.entry().await?.file_name() == "things", "another name") }
        "DirEntry::ino" D::NOTHING, |w| { check(w.entry().await?.ino() > 0, "no number") }
    }
}
