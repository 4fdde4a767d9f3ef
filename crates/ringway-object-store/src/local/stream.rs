//! Reads one range of a file as a stream of `Bytes`.

use super::error::Error;
use super::open::metadata;
use super::read_ahead::ReadAhead;
use bytes::Bytes;
use futures_core::stream::BoxStream;
use futures_util::stream::{self, StreamExt};
use ringway::Reader;
use ringway::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The bytes of a range of the file, which must not end before it begins. Nothing is read before
/// the stream is polled. A file that ends within the range is an error, as are all others the last
/// item. Dropping the stream cancels its reads.
pub(crate) fn chunks<E: From<Error> + Send + 'static>(
    file: File,
    path: PathBuf,
    range: Range<u64>,
    read_ahead: ReadAhead,
) -> BoxStream<'static, Result<Bytes, E>> {
    if range.is_empty() {
        return stream::empty().boxed();
    }
    if range.end - range.start <= read_ahead.one_chunk {
        return stream::once(async move { Ok(whole(&file, &path, range).await?) }).boxed();
    }
    let reader = file.reader().chunk(read_ahead.chunk).read_ahead(read_ahead.depth);
    let reader = reader.range(range.clone());
    stream::try_unfold((reader, path, range), |(mut reader, path, range)| async move {
        let next = next(&mut reader, &path, &range).await?;
        Ok(next.map(|bytes| (bytes, (reader, path, range))))
    })
    .boxed()
}

/// All bytes of a range that is not empty.
async fn whole(file: &File, path: &Path, range: Range<u64>) -> Result<Bytes, Error> {
    let block = file.read(range.clone()).await.map_err(|error| Error::read(path, error))?;
    let read = block.len() as u64;
    if read < range.end - range.start {
        return Err(shortened(file, path, range, read).await);
    }
    Ok(block.into())
}

/// The next chunk; `None` at the end of the range.
async fn next(
    reader: &mut Reader,
    path: &Path,
    range: &Range<u64>,
) -> Result<Option<Bytes>, Error> {
    let block = reader.next_block().await.map_err(|error| Error::read(path, error))?;
    match block {
        Some(block) => Ok(Some(block.into())),
        None if reader.position() == range.end => Ok(None),
        None => {
            let read = reader.position() - range.start;
            Err(shortened(reader.file(), path, range.clone(), read).await)
        }
    }
}

/// The error for a range that is not empty and of which only `read` bytes exist.
pub(crate) async fn shortened(file: &File, path: &Path, range: Range<u64>, read: u64) -> Error {
    match metadata(file, path).await {
        Err(error) => error,
        Ok(found) if range.start >= found.len() => Error::start_too_large(range.start, found.len()),
        Ok(found) => Error::OutOfRange {
            path: path.to_owned(),
            expected: range.end.min(found.len()) - range.start,
            actual: read,
        },
    }
}
