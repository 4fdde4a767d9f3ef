//! An open file: transfers at offsets and at the position, syncs, closing. Buffering, text and
//! positions are in Python (`ringway/_binary.py`).

use crate::answer::Answer;
use crate::engine::Shared;
use crate::errors::{closed, os_error};
use crate::raw::Memory;
use crate::system::{self, Number};
use futures_util::stream::{FuturesUnordered, StreamExt};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use ringway::Position;
use ringway::fs::{Caching, File as Inner};
use std::ffi::c_int;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// An open file of the crate. Every operation returns its result, or an `Operation` that will have
/// it.
#[pyclass(frozen, module = "ringway._ringway")]
pub struct File {
    /// `None` once it is closed.
    file: Mutex<Option<Inner>>,
    number: Number,
    shared: Arc<Shared>,
    /// The path in errors.
    name: Option<Py<PyAny>>,
}

impl File {
    pub fn new(file: Inner, number: Number, shared: Arc<Shared>, name: Option<Py<PyAny>>) -> Self {
        Self { file: Mutex::new(Some(file)), number, shared, name }
    }

    /// The memory that a read fills. The read may be cancelled, and have it for some time still.
    fn pin(&self, buffer: &Bound<'_, PyAny>) -> PyResult<Memory> {
        Ok(Memory::pin(buffer, true)?.released_by(&self.shared))
    }

    pub fn name(&self) -> Option<&Py<PyAny>> {
        self.name.as_ref()
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Errors: ValueError if it is closed.
    pub fn inner(&self) -> PyResult<Inner> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.clone().ok_or_else(closed)
    }

    fn take(&self) -> Option<Inner> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn start(
        &self,
        py: Python<'_>,
        work: impl Future<Output = io::Result<Answer>> + Send + 'static,
    ) -> PyResult<Py<PyAny>> {
        self.shared.start(py, self.name(), work)
    }
}

/// An offset, or the file's own position.
fn position(offset: Option<u64>) -> Position {
    offset.map_or(Position::Current, Position::Offset)
}

/// Reads until `enough` bytes are there or the file ends. A file in /proc and the like gives less
/// than a read asks for, long before its end.
async fn fill(
    file: &Inner,
    memory: Memory,
    offset: u64,
    enough: usize,
) -> (io::Result<usize>, Option<Memory>) {
    let mut filled = 0;
    let mut buffer = memory.into_buffer();
    loop {
        let len = buffer.len();
        let (result, back) = file.read_at(buffer, offset.saturating_add(filled as u64)).await;
        let read = match result {
            Ok(read) => read,
            // Also after a part: fewer bytes would look like the end of the file.
            Err(error) => return (Err(error), Memory::from_buffer(back)),
        };
        filled += read;
        if read == 0 || read == len || filled >= enough {
            return (Ok(filled), Memory::from_buffer(back));
        }
        buffer = back.slice(read..);
    }
}

/// Memory that did not come back: it belongs to the parent of a forked child.
fn not_returned() -> io::Error {
    io::Error::from_raw_os_error(system::ECHILD)
}

/// Fills `bytes`.
pub async fn read_bytes(
    file: &Inner,
    memory: Memory,
    offset: u64,
    enough: usize,
) -> io::Result<(Memory, usize)> {
    let (result, memory) = fill(file, memory, offset, enough).await;
    let read = result?;
    Ok((memory.ok_or_else(not_returned)?, read))
}

/// Bytes of a read behind the expected end of a file.
const BEHIND_END: usize = 4096;

/// Fills `bytes`, and reads on behind them.
pub async fn read_rest(file: &Inner, memory: Memory, offset: u64) -> io::Result<Answer> {
    let expected = memory.len();
    let (memory, read) = read_bytes(file, memory, offset, expected).await?;
    if read < expected {
        return Ok(Answer::Bytes(memory, read));
    }
    let (more, mut behind) = file.read_at(vec![0; BEHIND_END], offset + expected as u64).await;
    behind.truncate(more?);
    let is_over = behind.is_empty();
    Ok(if is_over { Answer::Bytes(memory, read) } else { Answer::More(memory, behind) })
}

/// Shorter reads are not compared with the size of the file.
pub const UNCHECKED: usize = 1 << 20;

/// Reads at most `most` bytes of a file, which is expected to have `len`.
pub async fn read_most(file: &Inner, offset: u64, len: u64, most: usize) -> io::Result<Answer> {
    if len >= most as u64 {
        let (memory, read) = read_bytes(file, new_bytes(most)?, offset, most).await?;
        return Ok(Answer::Bytes(memory, read));
    }
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let (memory, behind) = match read_rest(file, new_bytes(len)?, offset).await? {
        Answer::More(memory, behind) => (memory, behind),
        whole => return Ok(whole),
    };
    // The file has no size (in /proc), or it has grown.
    let mut all = memory.as_slice().to_vec();
    all.extend(behind);
    while all.len() < most {
        let (result, more) = file.read_at(vec![0; UNCHECKED], offset + all.len() as u64).await;
        match result? {
            0 => break,
            read => all.extend_from_slice(&more[..read]),
        }
    }
    all.truncate(most);
    let mut bytes = new_bytes(all.len())?;
    bytes.copy_from(&all);
    let read = all.len();
    Ok(Answer::Bytes(bytes, read))
}

/// Reads the rest of a file, which is expected to have `len` bytes.
pub async fn read_all(file: &Inner, offset: u64, len: u64) -> io::Result<Answer> {
    read_most(file, offset, len, usize::MAX).await
}

/// A `bytes` object, made where the interpreter's lock is not held.
pub fn new_bytes(len: usize) -> io::Result<Memory> {
    let made = Python::try_attach(|py| Memory::new_bytes(py, len).ok()).flatten();
    made.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Fills a buffer of the program. Returns the number of bytes.
pub async fn read_into(file: &Inner, memory: Memory, offset: u64) -> io::Result<u64> {
    let enough = memory.len();
    fill(file, memory, offset, enough).await.0.map(|read| read as u64)
}

#[pymethods]
impl File {
    #[getter]
    fn closed(&self) -> bool {
        self.inner().is_err()
    }

    fn fileno(&self, py: Python<'_>) -> PyResult<c_int> {
        let number = self.number.of(py, &self.inner()?);
        number.map_err(|error| os_error(py, &error, self.name()))
    }

    #[getter]
    fn direct(&self) -> PyResult<bool> {
        Ok(self.inner()?.is_direct())
    }

    /// The alignment that direct I/O needs: of offsets and lengths, and of memory.
    fn alignment(&self) -> PyResult<(u32, u32)> {
        let alignment = self.inner()?.alignment();
        Ok((alignment.offset_align, alignment.memory_align))
    }

    /// Reads up to `length` bytes: until the end of the file, or until `enough` are there.
    fn read_at(
        &self,
        py: Python<'_>,
        length: usize,
        offset: u64,
        enough: usize,
    ) -> PyResult<Py<PyAny>> {
        let (file, memory) = (self.inner()?, Memory::new_bytes(py, length)?);
        self.start(py, async move {
            let (memory, read) = read_bytes(&file, memory, offset, enough).await?;
            Ok(Answer::Bytes(memory, read))
        })
    }

    /// Reads from an offset to the end of the file, which is expected after `length` bytes. The
    /// result is `bytes`, or a tuple with more bytes if the file is longer.
    fn read_rest(&self, py: Python<'_>, length: usize, offset: u64) -> PyResult<Py<PyAny>> {
        let (file, memory) = (self.inner()?, Memory::new_bytes(py, length)?);
        self.start(py, async move { read_rest(&file, memory, offset).await })
    }

    /// Makes one read at the file's own position: of a pipe or a terminal.
    fn read_next(&self, py: Python<'_>, length: usize) -> PyResult<Py<PyAny>> {
        let (file, memory) = (self.inner()?, Memory::new_bytes(py, length)?);
        self.start(py, async move {
            let (result, buffer) = file.read_at(memory.into_buffer(), Position::Current).await;
            let read = result?;
            Ok(Answer::Bytes(Memory::from_buffer(buffer).ok_or_else(not_returned)?, read))
        })
    }

    /// Fills a buffer, or reads to the end of the file.
    fn readinto_at(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: u64,
    ) -> PyResult<Py<PyAny>> {
        let (file, memory) = (self.inner()?, self.pin(buffer)?);
        self.start(py, async move { Ok(Answer::Count(read_into(&file, memory, offset).await?)) })
    }

    /// Writes all of the data; without an offset at the file's own position. With `durable` it is
    /// on the device afterwards.
    fn write_at(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        offset: Option<u64>,
        durable: bool,
    ) -> PyResult<Py<PyAny>> {
        let (file, memory) = (self.inner()?, Memory::pin(data, false)?);
        self.start(py, async move {
            let len = memory.len() as u64;
            let (buffer, at) = (memory.into_buffer(), position(offset));
            if durable {
                file.write_durable_at(buffer, at).await.0?;
            } else {
                file.write_all_at(buffer, at).await.0?;
            }
            Ok(Answer::Count(len))
        })
    }

    /// Reads ranges (offset and length) at once, each into `bytes` of its own. The file is expected
    /// to have `size` bytes, or an unknown number if that is 0.
    fn read_ranges(
        &self,
        py: Python<'_>,
        ranges: Vec<(u64, usize)>,
        size: u64,
    ) -> PyResult<Py<PyAny>> {
        let file = self.inner()?;
        self.start(py, async move {
            let reads = ranges.into_iter().enumerate().map(|(index, (offset, length))| {
                // No memory is reserved for more than the file has.
                let unknown = if size == 0 { UNCHECKED as u64 } else { 0 };
                let left = size.saturating_sub(offset).max(unknown);
                let file = &file;
                async move { (index, read_most(file, offset, left, length).await) }
            });
            let answers = in_order(reads.collect()).await?;
            Ok(Answer::All(answers))
        })
    }

    /// Reads ranges, given by their offsets, at once into these buffers.
    fn readinto_ranges(
        &self,
        py: Python<'_>,
        offsets: Vec<u64>,
        buffers: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let file = self.inner()?;
        let memories =
            buffers.iter().map(|buffer| self.pin(buffer)).collect::<PyResult<Vec<_>>>()?;
        self.start(py, async move {
            let reads: FuturesUnordered<_> = std::iter::zip(offsets, memories)
                .enumerate()
                .map(|(index, (offset, memory))| {
                    let file = &file;
                    async move { (index, read_into(file, memory, offset).await) }
                })
                .collect();
            Ok(Answer::Counts(in_order(reads).await?))
        })
    }

    /// `fsync(2)`, or `fdatasync(2)` with `data_only`.
    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<Py<PyAny>> {
        let file = self.inner()?;
        self.start(py, async move {
            if data_only {
                file.sync_data().await?;
            } else {
                file.sync_all().await?;
            }
            Ok(Answer::Nothing)
        })
    }

    fn truncate(&self, py: Python<'_>, length: u64) -> PyResult<Py<PyAny>> {
        let file = self.inner()?;
        self.start(py, async move {
            file.set_len(length).await?;
            Ok(Answer::Nothing)
        })
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let file = self.inner()?;
        self.start(py, async move { Ok(Answer::Metadata(file.metadata().await?)) })
    }

    /// Reserves space for a range; with `written` by zeroes, which are on the device afterwards.
    fn allocate(
        &self,
        py: Python<'_>,
        offset: u64,
        length: u64,
        written: bool,
    ) -> PyResult<Py<PyAny>> {
        let file = self.inner()?;
        self.start(py, async move {
            if written {
                file.allocate_written(offset, length).await?;
            } else {
                file.allocate(offset, length).await?;
            }
            Ok(Answer::Nothing)
        })
    }

    /// Why transfers leave pages in the page cache although the file was opened with `dont_cache`.
    fn dont_cache_refusal(&self) -> PyResult<Option<String>> {
        Ok(match self.inner()?.caching() {
            Caching::Refused(why) => Some(why.to_string()),
            _ => None,
        })
    }

    /// Brings ranges (offset and end) into the page cache. Returns the bytes that were there, those
    /// that were read, and the ranges that could not be read with their errors.
    fn warm(&self, py: Python<'_>, ranges: Vec<(u64, u64)>) -> PyResult<Py<PyAny>> {
        let (file, name) = (self.inner()?, self.name().map(|name| name.clone_ref(py)));
        self.start(py, async move {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, end)| start..end).collect();
            let warmed = file.warm(&ranges).await?;
            Ok(Answer::Other(Box::new(move |py| {
                let failed = warmed.failed.iter().map(|unread| {
                    let error = os_error(py, &unread.error, name.as_ref());
                    (unread.range.start, unread.range.end, error.into_value(py))
                });
                let failed: Vec<_> = failed.collect();
                (warmed.cached, warmed.read, failed).into_py_any(py)
            })))
        })
    }

    /// The sizes of untorn writes: the shortest, the longest, the longest that the device makes
    /// itself, and the most buffers of one.
    fn atomic_write_unit(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let file = self.inner()?;
        self.start(py, async move {
            let unit = file.atomic_write_unit().await?;
            Ok(Answer::of(unit.map(|unit| (unit.min, unit.max, unit.max_opt, unit.max_segments))))
        })
    }

    /// Writes all of the data or nothing, also if the system fails meanwhile. With `durable` it is
    /// on the device afterwards.
    fn write_untorn_at(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        offset: u64,
        durable: bool,
    ) -> PyResult<Py<PyAny>> {
        let (file, buffer) = (self.inner()?, Memory::pin(data, false)?.into_buffer());
        self.start(py, async move {
            if durable {
                file.write_untorn_durable_at(buffer, offset).await.0?;
            } else {
                file.write_untorn_at(buffer, offset).await.0?;
            }
            Ok(Answer::Nothing)
        })
    }

    /// Closes the file once its operations have ended, and reports the errors of that. Closing it
    /// again has no effect.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Some(file) = self.take() else { return Ok(py.None()) };
        self.number.close();
        self.start(py, async move {
            match file.close().await {
                // Operations that were cancelled still hold it; the last of them closes it.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(Answer::Nothing),
                result => result.map(|()| Answer::Nothing),
            }
        })
    }

    /// A duplicate of the descriptor, for a synchronous file object.
    fn duplicate(&self, py: Python<'_>) -> PyResult<c_int> {
        let number = system::new_number(py, &self.inner()?);
        number.map_err(|error| os_error(py, &error, self.name()))
    }
}

/// The results of all reads, in their order. All have ended before it returns, because some of them
/// may write to memory of the program. Errors: that of the read that failed first.
async fn in_order<T>(
    mut reads: FuturesUnordered<impl Future<Output = (usize, io::Result<T>)>>,
) -> io::Result<Vec<T>> {
    let mut results: Vec<Option<T>> = Vec::new();
    results.resize_with(reads.len(), || None);
    let mut failed = None;
    while let Some((index, result)) = reads.next().await {
        match result {
            Ok(result) => results[index] = Some(result),
            Err(error) => _ = failed.get_or_insert(error),
        }
    }
    failed.map_or_else(|| Ok(results.into_iter().flatten().collect()), Err)
}
