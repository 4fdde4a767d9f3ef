//! Writing an object, at once or in pieces.

use crate::append::Append;
use crate::config::Durability;
use crate::disk::Disk;
use crate::error::failed;
use crate::publication::{Publication, Target};
use crate::staged::StagedFile;
use bytes::Bytes;
use opendal_core::raw::{OpWrite, oio};
use opendal_core::{Buffer, Error, ErrorKind, Executor, Metadata, MetadataBuilder, Result};
use ringway::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// An object up to this length that comes in one piece is written by one call on one thread: that
/// costs less than a wakeup for each step.
const ONE_CALL: usize = 256 << 10;
/// The most buffers of one system call (`IOV_MAX`).
const MAX_BUFFERS: usize = 1024;

/// The writer of an object. Each of its operations may be repeated after a temporary error, and
/// after its future was dropped, except that of an append.
pub(crate) struct FsWriter {
    target: Target,
    executor: Executor,
    concurrent: usize,
    state: State,
}

enum State {
    /// Nothing is on disk; this is what has been accepted.
    Pending(Option<Buffer>),
    Staged(oio::PositionWriter<StagedWrite>, SharedFile),
    Closing(Publication),
    Appending(Append),
    Closed,
    Aborted,
}

impl FsWriter {
    pub(crate) fn new(disk: Arc<Disk>, path: PathBuf, executor: Executor, op: &OpWrite) -> Self {
        let user = op.user_metadata().into_iter().flatten();
        let user = user.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let state = match op.append() {
            true => State::Appending(Append::new()),
            false => State::Pending(None),
        };
        let target = Target { disk, path, exclusive: op.if_not_exists(), user };
        Self { target, executor, concurrent: op.concurrent(), state }
    }
}

impl oio::Write for FsWriter {
    async fn write(&mut self, content: Buffer) -> Result<()> {
        loop {
            match &mut self.state {
                State::Pending(first @ None) if content.len() <= ONE_CALL => {
                    *first = Some(content);
                    return Ok(());
                }
                State::Pending(first) => {
                    let begin = first.clone().unwrap_or_default();
                    let offset = begin.len() as u64;
                    let file = SharedFile::new(self.target.begin(begin).await?);
                    let staged = StagedWrite { offset, file: file.clone() };
                    let executor = self.executor.clone();
                    let writer = oio::PositionWriter::new(executor, staged, self.concurrent);
                    self.state = State::Staged(writer, file);
                }
                State::Staged(writer, _) => return writer.write(content).await,
                State::Appending(append) => return append.write(&self.target, content).await,
                State::Closing(_) | State::Closed | State::Aborted => return Err(ended()),
            }
        }
    }

    async fn close(&mut self) -> Result<Metadata> {
        let metadata = loop {
            let target = self.target.clone();
            let publication = match &mut self.state {
                State::Pending(content) => {
                    let content = content.clone().unwrap_or_default();
                    if target.disk.durability == Durability::None {
                        Publication::of_content(target, content)
                    } else {
                        let staged = target.begin(content).await?;
                        Publication::of_file(target, staged)
                    }
                }
                State::Staged(writer, file) => {
                    // Ends the writes.
                    writer.close().await?;
                    Publication::of_file(target, file.take().ok_or_else(ended)?)
                }
                State::Closing(publication) => break publication.finish().await?,
                State::Appending(append) => break append.close(&target).await?,
                State::Closed | State::Aborted => return Err(ended()),
            };
            self.state = State::Closing(publication);
        };
        self.state = State::Closed;
        Ok(metadata)
    }

    async fn abort(&mut self) -> Result<()> {
        match &mut self.state {
            State::Staged(writer, file) => {
                writer.abort().await?;
                if let Some(StagedFile { file, name }) = file.take() {
                    name.discard(file, &self.target.disk).await?;
                }
            }
            State::Closing(publication) => publication.abort().await?,
            State::Appending(append) => append.abort()?,
            State::Pending(_) | State::Aborted => {}
            State::Closed => return Err(ended()),
        }
        self.state = State::Aborted;
        Ok(())
    }
}

/// A file whose pieces are written; `None` once that has ended.
#[derive(Clone)]
struct SharedFile(Arc<Mutex<Option<StagedFile>>>);

impl SharedFile {
    fn new(staged: StagedFile) -> Self {
        Self(Arc::new(Mutex::new(Some(staged))))
    }

    fn get(&self) -> Result<File> {
        let staged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        staged.as_ref().map(|staged| File::clone(&staged.file)).ok_or_else(ended)
    }

    fn take(&self) -> Option<StagedFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Writes the pieces of a staged file, several at the same time. What comes after is the writer's.
struct StagedWrite {
    /// Where the pieces begin.
    offset: u64,
    file: SharedFile,
}

impl oio::PositionWrite for StagedWrite {
    async fn write_all_at(&self, offset: u64, content: Buffer) -> Result<()> {
        let file = self.file.get()?;
        write_all(&file, content, self.offset + offset).await.map_err(failed("write"))
    }

    async fn close(&self, size: u64) -> Result<Metadata> {
        Ok(MetadataBuilder::file(self.offset + size).build())
    }

    async fn abort(&self) -> Result<()> {
        Ok(())
    }
}

/// Writes these bytes at an offset.
pub(crate) async fn write_all(file: &File, content: Buffer, mut offset: u64) -> io::Result<()> {
    let mut pieces = content.filter(|piece| !piece.is_empty());
    loop {
        let next: Vec<Bytes> = pieces.by_ref().take(MAX_BUFFERS).collect();
        let len: usize = next.iter().map(Bytes::len).sum();
        match <[Bytes; 1]>::try_from(next) {
            Ok([single]) => file.write_all_at(single, offset).await.0?,
            Err(none) if none.is_empty() => return Ok(()),
            Err(several) => file.write_all_vectored_at(several, offset).await.0?,
        }
        offset += len as u64;
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Unexpected, "the writer has been closed or aborted").set_permanent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::{Descriptors, alone, disk, dropped_after, faulty_disk};
    use opendal_core::Capability;
    use opendal_core::options::WriteOptions;
    use opendal_core::raw::oio::Write;
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
    use rustix::io::Errno;
    use std::path::Path;
    use std::time::Duration;

    const ALL: [Durability; 3] = [Durability::None, Durability::Content, Durability::Full];

    fn writer(disk: &Arc<Disk>, key: &str, options: WriteOptions) -> FsWriter {
        let (op, _) = OpWrite::from_options(&Capability::default(), options).unwrap();
        let path = disk.path(key).unwrap();
        FsWriter::new(disk.clone(), path, Executor::default(), &op)
    }

    fn exclusive() -> WriteOptions {
        WriteOptions { if_not_exists: true, ..Default::default() }
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Begins an operation, drops its future and repeats it, each time with one poll more.
    macro_rules! repeated {
        ($operation:expr) => {
            'ended: {
                for polls in 1..100 {
                    if let Some(result) = dropped_after(polls, $operation).await {
                        break 'ended result;
                    }
                    // What has begun ends.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                $operation.await
            }
        };
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_was_dropped_may_be_repeated() {
        for durability in ALL {
            let root = tempfile::tempdir().unwrap();
            let disk = disk(root.path(), durability);
            for (number, (pieces, len, concurrent)) in
                [(1, 10, 1), (3, 10, 1), (4, 300_000, 1), (4, 300_000, 3)].into_iter().enumerate()
            {
                let key = format!("dir-{number}/object");
                let options = WriteOptions { concurrent, ..exclusive() };
                let mut writer = writer(&disk, &key, options);
                let mut expected = Vec::new();
                for piece in 0..pieces {
                    let piece = vec![piece; len];
                    expected.extend_from_slice(&piece);
                    repeated!(writer.write(piece.clone().into())).unwrap();
                }
                let closed = repeated!(writer.close()).unwrap();
                assert_eq!(closed.content_length(), expected.len() as u64);
                assert!(std::fs::read(root.path().join(&key)).unwrap() == expected, "{key}");
            }
        }
    }

    #[test]
    fn a_close_goes_on_when_there_are_descriptors_again() {
        alone("write::tests::a_close_goes_on_when_there_are_descriptors_again", async {
            let root = tempfile::tempdir().unwrap();
            let mut errors = 0;
            for durability in ALL {
                let disk = disk(root.path(), durability);
                for pieces in [1, 3] {
                    let key = format!("{durability:?}-{pieces}");
                    let mut writer = writer(&disk, &key, exclusive());
                    for _ in 0..pieces {
                        writer.write(vec![1; 1000].into()).await.unwrap();
                    }
                    let all = Descriptors::exhaust();
                    let closed = writer.close().await;
                    drop(all);
                    let closed = match closed {
                        Ok(closed) => closed,
                        Err(error) => {
                            assert!(error.is_temporary(), "{error:?}");
                            errors += 1;
                            writer.close().await.unwrap()
                        }
                    };
                    assert_eq!(closed.content_length(), pieces * 1000);
                    let found = std::fs::read(root.path().join(&key)).unwrap();
                    assert_eq!(found.len() as u64, pieces * 1000);
                }
            }
            assert!(errors > 0);
        });
    }

    /// The kernel reports what is lost once, so a second sync would succeed.
    #[tokio::test]
    async fn a_failed_sync_is_final() {
        let root = tempfile::tempdir().unwrap();
        let object = root.path().join("object");
        for durability in [Durability::Content, Durability::Full] {
            for (append, pieces) in [(false, 1), (false, 3), (true, 1)] {
                std::fs::write(&object, "old").unwrap();
                let disk = faulty_disk(root.path(), durability, 0, Errno::IO);
                let options = WriteOptions { append, ..Default::default() };
                let mut writer = writer(&disk, "object", options);
                for _ in 0..pieces {
                    writer.write(vec![1; 1000].into()).await.unwrap();
                }
                for _ in 0..2 {
                    let error = writer.close().await.unwrap_err();
                    let is_permanent = !error.is_temporary();
                    assert!(error.kind() == ErrorKind::Unexpected && is_permanent, "{error}");
                }
                if !append {
                    writer.abort().await.unwrap();
                    assert_eq!(std::fs::read(&object).unwrap(), b"old");
                    assert_eq!(names(root.path()), ["object"]);
                }
            }
        }
    }

    /// The object has its name, which is not durable yet.
    #[tokio::test]
    async fn a_repeated_close_syncs_the_directory() {
        for pieces in [1, 3] {
            let root = tempfile::tempdir().unwrap();
            let disk = faulty_disk(root.path(), Durability::Full, 1, Errno::BUSY);
            let mut writer = writer(&disk, "object", exclusive());
            for _ in 0..pieces {
                writer.write(vec![1; 1000].into()).await.unwrap();
            }
            assert!(writer.close().await.unwrap_err().is_temporary());
            assert_eq!(names(root.path()), ["object"]);
            assert_eq!(writer.close().await.unwrap().content_length(), pieces * 1000);
        }
    }

    /// The kernel reports an error of a directory once, too.
    #[tokio::test]
    async fn a_failed_sync_of_the_directory_is_final() {
        for (append, pieces) in [(false, 1), (false, 3), (true, 1)] {
            let root = tempfile::tempdir().unwrap();
            let disk = faulty_disk(root.path(), Durability::Full, 1, Errno::IO);
            let options = WriteOptions { append, ..Default::default() };
            let mut writer = writer(&disk, "object", options);
            for _ in 0..pieces {
                writer.write(vec![1; 1000].into()).await.unwrap();
            }
            for _ in 0..2 {
                assert!(!writer.close().await.unwrap_err().is_temporary());
            }
            assert!(writer.abort().await.is_err(), "the object has been written");
            assert_eq!(names(root.path()), ["object"]);
        }
    }

    /// As on a file system without files that have no name: what is written has one, and nobody
    /// waits for another thread to remove it.
    #[tokio::test]
    async fn failed_and_aborted_writers_leave_no_names() {
        for durability in ALL {
            let root = tempfile::tempdir().unwrap();
            let mut disk = disk(root.path(), durability);
            Arc::get_mut(&mut disk).unwrap().has_proc = false;
            std::fs::write(root.path().join("object"), "old").unwrap();
            for pieces in [1, 3] {
                let mut writer = writer(&disk, "object", exclusive());
                for _ in 0..pieces {
                    writer.write(vec![1; 1000].into()).await.unwrap();
                }
                let refused = writer.close().await.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::ConditionNotMatch);
                assert_eq!(names(root.path()), ["object"]);
                // There is nothing left to close or to abort.
                assert!(!writer.close().await.unwrap_err().is_temporary());
                writer.abort().await.unwrap();
                writer.abort().await.unwrap();
                assert!(!writer.close().await.unwrap_err().is_temporary());
            }
            let mut writer = writer(&disk, "object", WriteOptions::default());
            for _ in 0..3 {
                writer.write(vec![1; 1000].into()).await.unwrap();
            }
            assert_eq!(names(root.path()).len(), 2);
            writer.abort().await.unwrap();
            assert_eq!(names(root.path()), ["object"]);
            assert_eq!(std::fs::read(root.path().join("object")).unwrap(), b"old");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn an_exclusive_append_creates_once() {
        let root = tempfile::tempdir().unwrap();
        let disk = disk(root.path(), Durability::Content);
        let options = || WriteOptions { append: true, ..exclusive() };
        for number in 0..10 {
            let key = format!("log-{number}");
            let mut writer = writer(&disk, &key, options());
            // That creates the object.
            repeated!(writer.close()).unwrap();
            let mut writer = self::writer(&disk, &key, options());
            let refused = writer.write("x".into()).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConditionNotMatch);
        }
    }

    /// The object is a FIFO, so that a write of more than fits waits.
    #[tokio::test]
    async fn a_dropped_append_is_an_error_of_what_follows() {
        let root = tempfile::tempdir().unwrap();
        let fifo = root.path().join("fifo");
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let _reader = rustix::fs::open(&fifo, flags, Mode::empty()).unwrap();
        let disk = disk(root.path(), Durability::None);
        let options = WriteOptions { append: true, ..Default::default() };
        let mut writer = writer(&disk, "fifo", options);
        writer.write("first".into()).await.unwrap();
        let second = vec![1; 4 << 20];
        assert!(dropped_after(3, writer.write(second.clone().into())).await.is_none());
        for _ in 0..2 {
            for error in [
                writer.write(second.clone().into()).await.unwrap_err(),
                writer.close().await.unwrap_err(),
            ] {
                assert!(error.kind() == ErrorKind::Unexpected && !error.is_temporary(), "{error}");
                assert!(error.to_string().contains("not known"), "{error}");
            }
        }
        assert_eq!(writer.abort().await.unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
