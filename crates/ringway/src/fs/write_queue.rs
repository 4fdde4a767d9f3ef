//! Writes at the cursor: bytes that were accepted, and are written in the background.

use super::File;
use super::cursor::{Cursor, CursorKind};
use super::dropped::{DroppedWrite, DroppedWrites};
use super::pooled::clone_error;
use crate::engine::{run_in_background, wake_all};
use ringway_core::Buffer;
use ringway_core::op::Position;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Bytes that writes may add to those that wait, while others are being written.
const GATHERED: usize = 256 << 10;

/// What a file handle has accepted and not yet written. One write is in flight. What is accepted
/// meanwhile waits for it and is then one write, too, if the file has offsets: each write to a pipe
/// or a device stays one, since its length may matter there.
///
/// The writes go on by themselves: nobody need poll, and the handle may be dropped.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    state: Mutex<QueueState>,
    /// A write is in flight. Changes with the lock; a forked child looks without it, since nobody
    /// there would unlock it.
    is_running: AtomicBool,
}

#[derive(Debug, Default)]
struct QueueState {
    /// To be written after the write in flight.
    next: Option<Segment>,
    /// Of a write that has failed, until a caller is told.
    error: Option<io::Error>,
    /// The handle was dropped.
    dropped: Option<DroppedWrite>,
    waiters: Vec<Waker>,
    /// Memory for the next segment, while writes are in flight.
    spare: Vec<u8>,
}

/// Bytes that follow each other.
#[derive(Debug)]
struct Segment {
    /// Where they go, unless the file appends or has no offsets.
    start: u64,
    bytes: Vec<u8>,
}

/// How a handle accepts bytes.
#[derive(Clone, Copy)]
pub(super) struct WriteLimits {
    /// The most bytes to accept at once.
    pub most: usize,
    /// Bytes may be added to those that wait.
    pub gathers: bool,
}

impl WriteQueue {
    /// Accepts the bytes, up to the limit, moves the cursor behind them, and starts to write them
    /// unless a write is in flight. Returns their number.
    ///
    /// Errors: that of a write that has failed before; nothing is accepted then.
    pub(super) fn poll_accept(
        self: &Arc<Self>,
        file: &File,
        parts: &[IoSlice<'_>],
        limits: WriteLimits,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        if let Some(error) = state.error.take() {
            return Poll::Ready(Err(error));
        }
        let wanted = parts.iter().map(|part| part.len()).sum::<usize>().min(limits.most);
        if wanted == 0 {
            return Poll::Ready(Ok(0));
        }
        let cursor = file.cursor();
        let mut position = cursor.lock();
        let is_running = self.is_running();
        if is_running && !state.has_room(cursor.kind(), *position, wanted, limits) {
            state.wait(cx);
            return Poll::Pending;
        }
        state.append(parts, *position, wanted);
        *position += wanted as u64;
        drop(position);
        self.is_running.store(true, Ordering::Release);
        drop(state);
        if !is_running {
            run_in_background(write_all(Arc::clone(self), file.clone()));
        }
        Poll::Ready(Ok(wanted))
    }

    /// Waits until all accepted bytes are written, or a write has failed.
    pub(super) fn poll_idle(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if self.is_running() {
            state.wait(cx);
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Whether a write is in flight.
    pub(super) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Acquire)
    }

    /// The error of a write that has failed, which the next write or flush returns as well.
    pub(super) fn error(&self) -> Option<io::Error> {
        self.lock().error.as_ref().map(clone_error)
    }

    /// The error of a write that has failed, once.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        self.lock().error.take()
    }

    /// The handle is dropped. Its writes go on, and their error is told to who waits for them.
    pub(super) fn detach(&self, dropped: &Arc<DroppedWrites>) {
        if !dropped.is_current() {
            return;
        }
        let mut state = self.lock();
        if self.is_running() {
            state.dropped = Some(dropped.begin());
        }
        let error = state.error.take();
        drop(state);
        if let Some(error) = error {
            dropped.note(error);
        }
        dropped.drive();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes to write next. Wakes all who wait, since there may be room now. At the end it
    /// releases the file first, so that whoever waits for that can have it.
    fn take_next(&self, file: &mut Option<File>) -> Option<Segment> {
        let mut state = self.lock();
        let next = state.next.take();
        let mut dropped = None;
        if next.is_none() {
            *file = None;
            self.is_running.store(false, Ordering::Release);
            state.spare = Vec::new();
            dropped = state.dropped.take();
        }
        let mut waiters = std::mem::take(&mut state.waiters);
        drop(state);
        drop(dropped);
        wake_all(&mut waiters);
        next
    }

    /// Notes that a write has failed. What was accepted after it is dropped if it would leave a
    /// gap, and the cursor goes back to where the file ends now.
    fn fail(&self, cursor: &Cursor, written: u64, end: u64, error: io::Error) {
        let mut state = self.lock();
        match &state.dropped {
            Some(dropped) => dropped.note(error),
            None => drop(state.error.get_or_insert(error)),
        }
        let leaves_gap = |next: &mut Segment| match cursor.kind() {
            CursorKind::Offset => next.start == end,
            CursorKind::Append => false,
            CursorKind::Stream => true,
        };
        let end = state.next.take_if(leaves_gap).map_or(end, |next| next.end());
        let mut position = cursor.lock();
        if cursor.kind() == CursorKind::Offset && *position == end {
            *position = written;
        }
    }
}

impl QueueState {
    /// Whether a write in flight leaves room for more.
    fn has_room(
        &self,
        kind: CursorKind,
        position: u64,
        wanted: usize,
        limits: WriteLimits,
    ) -> bool {
        match &self.next {
            _ if !limits.gathers => false,
            None => true,
            Some(next) => {
                let follows = kind == CursorKind::Append || next.end() == position;
                follows && next.bytes.len() + wanted <= GATHERED.min(limits.most)
            }
        }
    }

    fn append(&mut self, parts: &[IoSlice<'_>], start: u64, mut wanted: usize) {
        let spare = &mut self.spare;
        let next = self.next.get_or_insert_with(|| Segment { start, bytes: std::mem::take(spare) });
        next.bytes.reserve(wanted);
        for part in parts {
            let part = &part[..part.len().min(wanted)];
            next.bytes.extend_from_slice(part);
            wanted -= part.len();
        }
    }

    fn wait(&mut self, cx: &Context<'_>) {
        if !self.waiters.iter().any(|waiter| waiter.will_wake(cx.waker())) {
            self.waiters.push(cx.waker().clone());
        }
    }
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// Writes what the queue has, until it is empty.
async fn write_all(queue: Arc<WriteQueue>, file: File) {
    let cursor = Arc::clone(file.cursor());
    let mut file = Some(file);
    // Where the last append has moved the cursor: not where it was when the next was accepted.
    let mut followed = None;
    while let Some(segment) = queue.take_next(&mut file) {
        let Some(file) = &file else { return };
        let (start, end) = (segment.start, segment.end());
        let (result, written, memory) = write_segment(file, cursor.kind(), segment).await;
        match (cursor.kind(), written) {
            (CursorKind::Append, 0) => cursor.set(*followed.get_or_insert(start)),
            (CursorKind::Append, _) => followed = Some(cursor.follow(file.core())),
            _ => {}
        }
        match result {
            Ok(()) => queue.lock().spare = memory,
            Err(error) => queue.fail(&cursor, start + written, end, error),
        }
    }
}

/// Writes all bytes. Returns how many were written, and the memory.
async fn write_segment(
    file: &File,
    kind: CursorKind,
    segment: Segment,
) -> (io::Result<()>, u64, Vec<u8>) {
    let Segment { start, bytes } = segment;
    let len = bytes.len();
    let mut buffer = match aligned(file, bytes) {
        Ok(buffer) => buffer,
        Err(error) => return (Err(error), 0, Vec::new()),
    };
    let mut written = 0;
    loop {
        let at = match kind {
            CursorKind::Offset => Position::Offset(start + written as u64),
            CursorKind::Append | CursorKind::Stream => Position::Current,
        };
        // A direct write cannot go on within a block, so the operation itself continues it.
        let (result, back) = file.write_buffer(buffer, at, file.is_direct()).await;
        let more = result.and_then(|more| match more {
            0 => Err(io::ErrorKind::WriteZero.into()),
            more => Ok(more),
        });
        written += more.as_ref().copied().unwrap_or(0);
        match more {
            Ok(more) if written < len => buffer = back.slice(more..),
            ended => return (ended.map(drop), written as u64, memory_of(file, back)),
        }
    }
}

/// The memory of a buffer that is not needed, if it is a vector. Other memory is the pool's.
fn memory_of(file: &File, buffer: Buffer) -> Vec<u8> {
    match Vec::try_from(buffer) {
        Ok(mut memory) => {
            memory.clear();
            memory
        }
        Err(other) => {
            file.engine().inner.pool.put(other);
            Vec::new()
        }
    }
}

/// The bytes in memory that the file can be written from.
fn aligned(file: &File, bytes: Vec<u8>) -> io::Result<Buffer> {
    if !file.is_direct() {
        return Ok(bytes.into());
    }
    let mut buffer = file.engine().inner.pool.get(bytes.len(), true)?;
    if let Some(memory) = buffer.as_mut_slice() {
        memory.copy_from_slice(&bytes);
    }
    Ok(buffer)
}
