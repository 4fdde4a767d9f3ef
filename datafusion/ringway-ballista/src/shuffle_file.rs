//! Parts of shuffle files, read with ringway. How batches are encoded in them is not known here.

use ballista_core::execution_plans::sort_shuffle::get_index_path;
use bytes::Bytes;
use futures::stream::{self, Stream};
use ringway::Engine;
use ringway::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The bytes of one read. Compressed batches are rarely larger, and a message of Ballista's
/// protocol may have 16 MiB.
const CHUNK: usize = 1 << 20;

/// A range of an open shuffle file.
#[derive(Debug)]
pub(crate) struct Part {
    file: File,
    path: Arc<Path>,
    range: Range<u64>,
}

impl Part {
    /// A whole file.
    pub(crate) async fn whole(engine: &Engine, path: &Path) -> io::Result<Self> {
        let (file, len) = open(engine, path).await?;
        Ok(Self { file, path: path.into(), range: 0..len })
    }

    /// Ranges of a file, each an offset and a length. As in Ballista, a range is shortened at the
    /// end of the file, and one that begins after it is an error.
    pub(crate) async fn ranges(
        engine: &Engine,
        path: &Path,
        ranges: impl IntoIterator<Item = (u64, u64)>,
    ) -> io::Result<Vec<Self>> {
        let (file, len) = open(engine, path).await?;
        let path: Arc<Path> = path.into();
        let part = |(start, bytes): (u64, u64)| {
            if start >= len {
                let text = format!("{}: no byte at {start}, it has {len}", path.display());
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
            let range = start..start.saturating_add(bytes).min(len);
            Ok(Self { file: file.clone(), path: Arc::clone(&path), range })
        };
        ranges.into_iter().map(part).collect()
    }

    /// The header, which is a stream without batches, and one partition of a file with an index.
    pub(crate) async fn indexed(
        engine: &Engine,
        path: &Path,
        partition: usize,
    ) -> io::Result<(Self, Self)> {
        let index_path = get_index_path(path);
        let index = engine.fs().read(&index_path).await;
        let index = index.map_err(|error| about(&index_path, "read", error))?;
        let (header, range) = partition_of(&index, partition).ok_or_else(|| {
            let text = format!("{}: not an index of partition {partition}", index_path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        let (file, len) = open(engine, path).await?;
        // The range bounds what a damaged length of a message may allocate.
        if range.end > len {
            return Err(cut(path, len, range.end));
        }
        let path: Arc<Path> = path.into();
        let header = Self { file: file.clone(), path: Arc::clone(&path), range: header };
        Ok((header, Self { file, path, range }))
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The bytes in order, read ahead. A file that ends within the range is an error.
    pub(crate) fn blocks(self) -> impl Stream<Item = io::Result<Bytes>> + Send {
        let reader = self.file.reader().chunk(CHUNK).range(self.range.clone());
        stream::try_unfold((self, reader), |(part, mut reader)| async move {
            let block = reader.next_block().await;
            match block.map_err(|error| about(&part.path, "read", error))? {
                Some(block) => Ok(Some((Bytes::from(block), (part, reader)))),
                None if reader.position() < part.range.end => {
                    Err(cut(&part.path, reader.position(), part.range.end))
                }
                None => Ok(None),
            }
        })
    }
}

/// Whether the file is in the IPC file format instead of the stream format.
pub(crate) async fn is_ipc_file(engine: &Engine, path: &Path) -> io::Result<bool> {
    let (file, _) = open(engine, path).await?;
    let magic = file.read(0..6).await.map_err(|error| about(path, "read", error))?;
    Ok(magic[..] == *b"ARROW1")
}

async fn open(engine: &Engine, path: &Path) -> io::Result<(File, u64)> {
    let file = engine.open(path).await.map_err(|error| about(path, "open", error))?;
    let len = file.metadata().await.map_err(|error| about(path, "stat", error))?.len();
    Ok((file, len))
}

/// The error of a file that is shorter than expected.
fn cut(path: &Path, end: u64, expected: u64) -> io::Error {
    let text = format!("{}: ends at {end} instead of {expected}", path.display());
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

/// The header and the range of a partition. An index is offsets of 64 bits: where each partition
/// starts, and the length of the file. The header ends where the first partition starts.
fn partition_of(index: &[u8], partition: usize) -> Option<(Range<u64>, Range<u64>)> {
    let offset = |entry: usize| {
        let bytes = index.get(entry.checked_mul(8)?..)?.first_chunk::<8>()?;
        u64::try_from(i64::from_le_bytes(*bytes)).ok()
    };
    let (first, start, end) = (offset(0)?, offset(partition)?, offset(partition.checked_add(1)?)?);
    let is_in_order = first <= start && start <= end;
    (is_in_order && index.len().is_multiple_of(8)).then_some((0..first, start..end))
}

/// Adds the path and the operation to an error.
pub(crate) fn about(path: &Path, operation: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{operation} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::TryStreamExt;

    async fn content(part: Part) -> io::Result<Vec<u8>> {
        let blocks: Vec<Bytes> = part.blocks().try_collect().await?;
        Ok(blocks.concat())
    }

    fn index(offsets: &[i64]) -> Vec<u8> {
        offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect()
    }

    #[test]
    fn damaged_indexes_are_refused() {
        let good = index(&[4, 10, 10, 30]);
        assert_eq!(partition_of(&good, 0), Some((0..4, 4..10)));
        assert_eq!(partition_of(&good, 1), Some((0..4, 10..10)));
        assert_eq!(partition_of(&good, 2), Some((0..4, 10..30)));
        for partition in [3, 4, usize::MAX / 8, usize::MAX] {
            assert_eq!(partition_of(&good, partition), None, "{partition}");
        }
        assert_eq!(partition_of(&good[..31], 0), None);
        assert_eq!(partition_of(&index(&[4, 3]), 0), None);
        assert_eq!(partition_of(&index(&[20, 10, 30]), 1), None, "the header is longer");
        assert_eq!(partition_of(&index(&[-1, 3]), 0), None);
        assert_eq!(partition_of(&[], 0), None);
    }

    #[tokio::test]
    async fn parts_have_their_bytes_or_an_error_with_the_path() {
        let engine = Engine::global().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.arrow");
        let bytes: Vec<u8> = (0..3 << 20).map(|byte: u32| (byte % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let whole = Part::whole(engine, &path).await.unwrap();
        assert_eq!(content(whole).await.unwrap(), bytes);

        let middle = (1 << 20) + 5;
        let ranges = [(7, 2 << 20), (0, 0), (bytes.len() as u64 - 1, u64::MAX)];
        let parts = Part::ranges(engine, &path, ranges).await.unwrap();
        let mut read = Vec::new();
        for part in parts {
            read.push(content(part).await.unwrap());
        }
        assert_eq!(read, [&bytes[7..7 + (2 << 20)], &[][..], &bytes[bytes.len() - 1..]]);
        let error = Part::ranges(engine, &path, [(bytes.len() as u64, 1)]).await.unwrap_err();
        assert!(error.to_string().contains("data.arrow: no byte at"), "{error}");

        std::fs::write(get_index_path(&path), index(&[5, 5, middle, bytes.len() as i64])).unwrap();
        let (header, last) = Part::indexed(engine, &path, 2).await.unwrap();
        assert_eq!(content(header).await.unwrap(), bytes[..5]);
        assert_eq!(content(last).await.unwrap(), bytes[middle as usize..]);
        let error = Part::indexed(engine, &path, 3).await.unwrap_err();
        assert!(error.to_string().contains("data.arrow.index: not an index"), "{error}");

        // Both parts were opened before the file became shorter.
        let (_, first) = Part::indexed(engine, &path, 1).await.unwrap();
        let (_, last) = Part::indexed(engine, &path, 2).await.unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(middle as u64).unwrap();
        assert_eq!(content(first).await.unwrap(), bytes[5..middle as usize]);
        let error = content(last).await.unwrap_err();
        assert!(error.to_string().contains("data.arrow: ends at"), "{error}");

        for end in [middle + 1, i64::MAX] {
            std::fs::write(get_index_path(&path), index(&[5, 5, end])).unwrap();
            let error = Part::indexed(engine, &path, 1).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            let text = format!("data.arrow: ends at {middle} instead of {end}");
            assert!(error.to_string().ends_with(&text), "{error}");
        }

        std::fs::remove_file(get_index_path(&path)).unwrap();
        let error = Part::indexed(engine, &path, 0).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("data.arrow.index"), "{error}");
    }

    #[tokio::test]
    async fn the_file_format_is_recognized() {
        let engine = Engine::global().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        for (content, is_file) in [("ARROW1\0\0", true), ("ARROW", false), ("", false)] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(is_ipc_file(engine, &path).await.unwrap(), is_file, "{content:?}");
        }
    }
}
