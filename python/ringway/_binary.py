"""Binary files: buffering, positions, and reads and writes at offsets."""

from __future__ import annotations

import asyncio
import errno
import io
import mmap
import operator
import os
import pickle
import stat
import sys
import warnings
from asyncio import get_running_loop
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

from ._engine import drop, run, wait
from ._ringway import File, Operation

Buffer: TypeAlias = bytes | bytearray | memoryview | Any
"""Any object with a contiguous buffer: bytes, bytearray, memoryview, mmap, a numpy array."""

Pair: TypeAlias = tuple[int, int] | Sequence[int]
"""An offset and a length, in bytes."""

WRITE_BUFFER = 64 << 10
"""Bytes that are collected before they are written, unless `buffering` says otherwise."""
_FIRST_CHUNK = 8 << 10
_LARGEST_CHUNK = 128 << 10
# Longer reads ask for no more than the file has.
_UNCHECKED = 1 << 20
_LARGEST_POSITION = (1 << 63) - 1


class Warmed(NamedTuple):
    """What `warm` has found and done. Bytes are those of whole pages."""

    cached: int
    """Bytes that were in the page cache already."""
    read: int
    """Bytes that were read."""
    failed: list[tuple[int, int, OSError]]
    """What could not be read: offset, length and the first error. The rest was warmed."""


class AtomicWriteUnit(NamedTuple):
    """The sizes of a file's untorn writes, in bytes."""

    min: int
    """The shortest one, a power of two."""
    max: int
    """The longest one, a power of two."""
    max_opt: int | None
    """The longest one that the device makes itself, if that is known. Longer ones take longer."""
    max_segments: int
    """The most buffers of one."""


class Turn:
    """The lock of a file's position: operations on it follow each other, in order. `Steps` counts
    operations that need no lock."""

    __slots__ = ("_called", "_ended", "_last", "_lock", "_then", "busy", "steps")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.busy = 0
        """The number of operations that have or want the lock, and of those of several steps."""
        self.steps: set[Steps] = set()
        """Operations of several steps, of which each needs the descriptor."""
        # Operations are numbered as they are called. Those after the last are refused.
        self._called = 0
        self._last = sys.maxsize
        # Whether operations that have or want the lock need the descriptor no more.
        self._ended = False
        self._then: Callable[[], object] | None = None

    async def __aenter__(self) -> None:
        self._called = number = self._called + 1
        await self.acquire()
        if number > self._last:
            self.release()
            raise ValueError("I/O operation on closed file")

    async def __aexit__(self, *_: object) -> None:
        self.release()

    async def acquire(self) -> None:
        """Wait for the lock, also after `end`."""
        self.busy += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self.leave()
            raise

    def release(self) -> None:
        """Leave the lock to the next."""
        self._lock.release()
        self.leave()

    def leave(self) -> None:
        """Count an operation no more."""
        self.busy -= 1
        self._check_left()

    def end(self) -> None:
        """Let operations that are called from now on raise ValueError, those that want the lock
        when it is their turn."""
        self._last = min(self._last, self._called)

    @property
    def ends(self) -> bool:
        """Whether operations of several steps that are called now raise ValueError."""
        return self._last < sys.maxsize

    def end_idle(self) -> bool:
        """Leave out iterators that wait for their caller. Return whether operations are left that
        need the descriptor. For a close that has the lock: operations that were called before and
        wanted it have ended, and later ones are refused."""
        self._ended = True
        self.steps = {one for one in self.steps if not one.idle}
        return bool(self.steps)

    def after_all(self, then: Callable[[], object]) -> None:
        """Call a function when no operation is left that needs the descriptor, now if there is
        none. Before `end_idle` each may need it."""
        self._then = then
        self._check_left()

    def _check_left(self) -> None:
        left = self.steps if self._ended else self.busy
        if self._then is not None and not left:
            then, self._then = self._then, None
            then()


class Steps:
    """An operation of several steps that needs the descriptor until it ends, but not the lock."""

    __slots__ = ("_turn", "idle")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.idle = False
        """Whether it is an iterator that waits for its caller, which may have forgotten it."""

    def __enter__(self) -> Steps:
        if self._turn.ends:
            raise ValueError("I/O operation on closed file")
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._turn.steps.discard(self)
        self._turn.leave()

    def begin(self) -> None:
        """Count it, also after `end`: for an operation that has the lock."""
        self._turn.steps.add(self)
        self._turn.busy += 1

    def check(self) -> None:
        """Raise ValueError if `end_idle` has left it out."""
        if self not in self._turn.steps:
            raise ValueError("I/O operation on closed file")


class AsyncFile:
    """A binary file with the methods of aiofiles' binary files, and those for offsets.

    `ringway.open` makes it. It belongs to the event loop that opened it; in another loop its
    methods raise RuntimeError. Methods that read or write at the position take turns; those at
    offsets (`read_at`, `write_at`, ...) run at once, any number of them, and do not see what
    `write` has buffered before `flush`.

    The position moves when a result is delivered. A cancelled read leaves it where it was. A
    write that has begun is not cancelled: the waiting ends, and the next operation waits for it.
    """

    def __init__(
        self,
        file: File,
        name: Any,
        mode: str,
        buffering: int,
        kind: int,
        size: int,
    ) -> None:
        """`kind` and `size` are the mode and the size of its `fstat`."""
        # On Windows this makes a number, and fails if the process has no more.
        number = file.fileno()
        self._file = file
        self._loop = get_running_loop()
        self._name = name
        self._mode = mode
        self._limit = WRITE_BUFFER if buffering < 0 or buffering == 1 else buffering
        self._buffering = buffering
        self._readable = "r" in mode or "+" in mode
        self._appends = "a" in mode
        self._writable = self._appends or "w" in mode or "x" in mode or "+" in mode
        self._detached = False
        # Closed but for its descriptor, which the last operation of the others closes.
        self._abandoned = False
        self._turn = Turn()
        # (Windows has no such kind. What it is asked there is local.)
        self._may_be_terminal = stat.S_ISCHR(kind) or sys.platform == "win32"
        # A hint, for reads of the rest.
        self._size: int = size
        self._pos: int = 0
        try:
            if not self._appends:
                self._pos = os.lseek(number, 0, os.SEEK_CUR)
            elif stat.S_ISREG(kind):
                # A descriptor without `O_APPEND` appends there. The server of a file that is asked
                # for its end might not answer.
                self._pos = os.lseek(number, size, os.SEEK_SET)
            else:
                self._pos = os.lseek(number, 0, os.SEEK_END)
            self._seekable = True
        except OSError:
            self._seekable = False
        # A pipe with O_DIRECT is one of packets.
        self._direct = file.direct and self._seekable
        # Bytes that were read ahead, of the offset `_ahead_at`.
        self._ahead = b""
        self._ahead_at = 0
        self._chunk = _FIRST_CHUNK
        # `write_at` may have changed what was read ahead meanwhile. Counts its beginnings and ends.
        self._stale = False
        self._changes = 0
        # Bytes that are not written yet, for the offset `_dirty_at`.
        self._dirty = bytearray()
        self._dirty_at = 0
        # A write whose waiter was cancelled, and a read of a pipe whose waiter was.
        self._writing: Operation | None = None
        self._reading: Operation | None = None
        # The last question for data or a hole, which may go on in its thread.
        self._asking: asyncio.Future[int] | None = None

    # ---- What it is ------------------------------------------------------------------------------

    @property
    def name(self) -> Any:
        """The path or descriptor it was opened with."""
        return self._name

    @property
    def mode(self) -> str:
        """The mode it was opened with."""
        return self._mode

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._abandoned or self._file.closed

    @property
    def direct(self) -> bool:
        """Whether reads and writes bypass the page cache."""
        return self._direct

    def alignment(self) -> tuple[int, int]:
        """Return the bytes that offsets and lengths, and addresses, of direct writes must be
        multiples of. Direct reads need no alignment, but copy without it."""
        return self._file.alignment()

    def fileno(self) -> int:
        """Return the descriptor. Its own position is not that of this file."""
        self._check_open()
        return self._file.fileno()

    def readable(self) -> bool:
        """Return whether it was opened for reading."""
        self._check_open()
        return self._readable

    async def writable(self) -> bool:
        """Return whether it was opened for writing."""
        self._check_open()
        return self._writable

    async def seekable(self) -> bool:
        """Return whether it has positions: a pipe or terminal has none."""
        self._check_open()
        return self._seekable

    async def isatty(self) -> bool:
        """Return whether it is a terminal."""
        self._check_open()
        # The server of a regular file might not answer. A terminal may have positions: on some
        # systems `lseek` succeeds.
        return self._may_be_terminal and os.isatty(self._file.fileno())

    async def stat(self) -> os.stat_result:
        """Return what `os.fstat` returns. What `write` has buffered does not count."""
        self._check()
        return await self._stat()

    async def _stat(self) -> os.stat_result:
        from .os import stat_of

        return await stat_of(self._file)

    def __repr__(self) -> str:
        return f"<ringway.{type(self).__name__} name={self._name!r} mode={self._mode!r}>"

    def _check(self) -> None:
        if self._loop is not get_running_loop():
            raise RuntimeError(
                f"{self._name!r} was opened in another event loop: open it in this one"
            )
        self._check_open()

    def _check_open(self) -> None:
        if self._detached:
            raise ValueError("raw stream has been detached")
        if self.closed:
            raise ValueError("I/O operation on closed file")

    # Calls that are often answered at once do the first line of this themselves: it costs a tenth
    # of a read from the page cache. The extension module refuses a closed file.
    def _check_readable(self) -> None:
        if self._loop is not get_running_loop() or not self._readable or self._file.closed:
            self._check()
            raise io.UnsupportedOperation("not readable")

    def _check_writable(self) -> None:
        self._check()
        if not self._writable:
            raise io.UnsupportedOperation("not writable")

    def _check_aligned(self, length: int) -> None:
        """A direct write at the position is refused before any of it is collected. For the task
        whose turn it is: the position is that of the write."""
        step = self._file.alignment()[0] or 1
        if self._pos % step or length % step:
            raise OSError(
                errno.EINVAL,
                f"direct write: position {self._pos} and length {length} must be multiples of "
                f"{step}; write the rest without direct=True",
                self._name,
            )

    # ---- Reading at the position -----------------------------------------------------------------

    async def read(self, size: int | None = -1, /) -> bytes:
        """Read `size` bytes, fewer only at the end of the file; without `size` all that is left.

        It asks the kernel for what is wanted, and nothing more. ValueError if it is closed;
        OSError.
        """
        if self._loop is not get_running_loop() or not self._readable:
            self._check_readable()
        if size is None or size < 0:
            return await self._read_rest()
        if (
            self._turn.busy
            or self._ahead
            or self._dirty
            or self._writing
            or not self._seekable
            or size > _UNCHECKED
        ):
            self._check_readable()
            async with self._turn:
                return await self._read(operator.index(size))
        out = self._file.read_at(size, self._pos, size)
        if type(out) is Operation:
            async with self._turn:
                out = await wait(out)
        self._pos += len(out)
        return out

    async def _read(self, size: int) -> bytes:
        await self._settle()
        ahead = self._take_ahead(size)
        if self._seekable and len(ahead) < size:
            at = self._pos + len(ahead)
            out = await self._read_there(size - len(ahead), at)
            self._pos = at + len(out)
            return ahead + out if ahead else out
        if not self._seekable:
            await self._fill_from_pipe(size)
            ahead = self._take_ahead(size)
        self._pos += len(ahead)
        return ahead

    async def _read_there(self, size: int, at: int) -> bytes:
        """Read at an offset. No memory is reserved for more than the file has.

        A device has more than its size says: what fills all that was asked for first goes on.
        """
        first = size
        if size > _UNCHECKED:
            first = min(size, max((await self._stat()).st_size - at, _UNCHECKED))
        out: bytes = await run(self._file.read_at(first, at, first))
        read = len(out)
        while read == first and len(out) < size:
            first = min(size - len(out), max(len(out), _UNCHECKED))
            more: bytes = await run(self._file.read_at(first, at + len(out), first))
            read = len(more)
            out = out + more if more else out
        return out

    async def _fill_from_pipe(self, size: int) -> None:
        """Have `size` bytes ahead; fewer at the end, or after one read if it is unbuffered."""
        if self._buffering:
            await self._gather(lambda count, _: size - count)
        elif size and not self._take_ahead(1):
            await self._fill(size)

    async def _gather(self, wanted: Callable[[int, bytes], int]) -> None:
        """Read a pipe ahead, until it ends or no more is wanted: `wanted` has the number of bytes
        that are ahead, and the last piece. The pieces are joined once, however many there are."""
        parts = [self._take_ahead(len(self._ahead))]
        count = len(parts[0])
        try:
            while (size := wanted(count, parts[-1])) > 0:
                more = await self._read_next(min(size, _LARGEST_CHUNK))
                if not more:
                    break
                parts.append(more)
                count += len(more)
        finally:
            # Nothing is lost with a waiter that is cancelled.
            self._ahead, self._ahead_at = b"".join(parts), self._pos

    async def _read_next(self, size: int) -> bytes:
        """Read from a pipe: what an earlier, cancelled call asked for, which may be more."""
        if self._reading is None:
            out = self._file.read_next(size)
            if type(out) is not Operation:
                return out
            self._reading = out
        # What a pipe has given must not be lost with a waiter that is cancelled.
        try:
            data: bytes = await asyncio.shield(self._reading.future)
        except Exception:
            self._reading = None
            raise
        self._reading = None
        return data

    def _take_ahead(self, size: int) -> bytes:
        """The next bytes of those that were read ahead, without moving the position."""
        skip = self._pos - self._ahead_at
        if not 0 <= skip < len(self._ahead):
            self._ahead = b""
            return b""
        return self._ahead[skip : skip + size]

    async def _read_rest(self) -> bytes:
        self._check_readable()
        async with self._turn:
            data = await self._rest()
            self._pos += len(data)
            return data

    async def _rest(self) -> bytes:
        """All that is left, without moving the position."""
        await self._settle()
        if not self._seekable:
            await self._gather(lambda *_: _LARGEST_CHUNK)
            return self._ahead
        ahead = self._take_ahead(len(self._ahead))
        at = self._pos + len(ahead)
        out: bytes | tuple[bytes, bytes] = await run(
            self._file.read_rest(max(self._size - at, 0), at)
        )
        if isinstance(out, bytes):
            return ahead + out if ahead else out
        # The file is longer than it was.
        parts = [ahead, *out]
        at += len(out[0]) + len(out[1])
        while more := await run(self._file.read_at(_UNCHECKED, at, _UNCHECKED)):
            parts.append(more)
            at += len(more)
        self._size = at
        return b"".join(parts)

    async def readall(self) -> bytes:
        """Read all that is left."""
        return await self.read()

    async def read1(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes with at most one read: what was read ahead, or what there is."""
        self._check_readable()
        async with self._turn:
            await self._settle()
            size = _FIRST_CHUNK if size < 0 else operator.index(size)
            if size and not self._take_ahead(1):
                await self._fill(size)
            data = self._take_ahead(size)
            self._pos += len(data)
            return data

    async def readinto(self, buffer: Buffer, /) -> int:
        """Fill a writable buffer, less only at the end of the file. Return the number of bytes.

        If it is cancelled, the buffer may still be written to, and is kept until that is over.
        """
        self._check_readable()
        async with self._turn:
            await self._settle()
            view = octets(buffer)
            if view.readonly:
                raise TypeError("readinto: the buffer must be writable, such as a bytearray")
            if not self._seekable:
                await self._fill_from_pipe(len(view))
            ahead = self._take_ahead(len(view))
            count = len(ahead)
            view[:count] = ahead
            if self._seekable and count < len(view):
                at = self._pos + count
                count += await run(self._file.readinto_at(view[count:], at))
            self._pos += count
            return count

    async def peek(self, size: int = 0, /) -> bytes:
        """Return the next bytes without moving the position: one read at most."""
        self._check_readable()
        async with self._turn:
            await self._settle()
            return self._take_ahead(len(self._ahead)) or await self._fill()

    async def _fill(self, size: int = 0) -> bytes:
        """Read `size` bytes, or a chunk, ahead, behind what is there. Return all that is ahead."""
        ahead = self._take_ahead(len(self._ahead))
        if not size:
            # Long lines are read in ever larger pieces.
            size = max(self._next_chunk(), len(ahead))
        changes = self._changes
        if self._seekable:
            more = await run(self._file.read_at(size, self._pos + len(ahead), 1))
        else:
            more = await self._read_next(size)
        self._ahead, self._ahead_at = ahead + more, self._pos
        # This operation may have the old content; the next ones must not.
        self._stale = self._stale or changes != self._changes
        return self._ahead

    def _next_chunk(self) -> int:
        """How much is read ahead: more each time."""
        chunk, self._chunk = self._chunk, min(2 * self._chunk, _LARGEST_CHUNK)
        return chunk

    async def readline(self, size: int | None = -1, /) -> bytes:
        """Read a line with its end, at most `size` bytes; b"" at the end of the file."""
        self._check_readable()
        limit = -1 if size is None or size < 0 else operator.index(size)
        if not self._turn.busy and limit < 0 and not self._dirty and not self._writing:
            line = self._line_ahead()
            if line:
                return line
        async with self._turn:
            await self._settle()
            return await self._readline(limit)

    def _line_ahead(self) -> bytes:
        """A whole line of what was read ahead."""
        skip = self._pos - self._ahead_at
        if 0 <= skip < len(self._ahead) and not self._stale:
            end = self._ahead.find(b"\n", skip) + 1
            if end:
                self._pos += end - skip
                return self._ahead[skip:end]
        return b""

    async def _readline(self, limit: int) -> bytes:
        if limit == 0:
            return b""
        ahead = self._take_ahead(len(self._ahead))
        end = ahead.find(b"\n") + 1
        while not end and not 0 <= limit <= len(ahead):
            searched = len(ahead)
            if self._seekable:
                ahead = await self._fill()
            else:
                await self._gather(lambda count, last: self._wanted_of_line(limit, count, last))
                ahead = self._ahead
            end = ahead.find(b"\n", searched) + 1
            # What a terminal, or the next writer of a FIFO, gives after an end is not of this line.
            if not self._seekable or len(ahead) == searched:
                break
        end = end or len(ahead)
        end = end if limit < 0 else min(end, limit)
        self._pos += end
        return ahead[:end]

    def _wanted_of_line(self, limit: int, count: int, last: bytes) -> int:
        """How much of a pipe to read ahead for a line, of which `count` bytes are there."""
        return 0 if b"\n" in last or 0 <= limit <= count else self._next_chunk()

    async def readlines(self, hint: int | None = -1, /) -> list[bytes]:
        """Read lines until the end, or until they have more than `hint` bytes."""
        self._check_readable()
        hint = -1 if hint is None else operator.index(hint)
        async with self._turn:
            if hint <= 0:
                data = await self._rest()
                self._pos += len(data)
                return io.BytesIO(data).readlines()
            await self._settle()
            start, lines, total = self._pos, [], 0
            try:
                while total <= hint and (line := self._line_ahead() or await self._readline(-1)):
                    lines.append(line)
                    total += len(line)
            except BaseException:
                # Nobody gets the lines. Those of a pipe cannot be read again.
                if not self._seekable:
                    self._ahead = b"".join([*lines, self._take_ahead(len(self._ahead))])
                    self._ahead_at = start
                self._pos = start
                raise
            return lines

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the lines from the position on."""
        self._check_readable()
        return self

    async def __anext__(self) -> bytes:
        line = await self.readline()
        if not line:
            raise StopAsyncIteration
        return line

    # ---- Writing at the position -----------------------------------------------------------------

    async def write(self, data: Buffer, /) -> int:
        """Write all of the data; return its length in bytes.

        It is collected and written in larger pieces, on `flush` and `close` at the latest, unless
        the file was opened with `buffering=0`. OSError, also for data that was buffered before.
        """
        self._check_writable()
        if type(data) is str:
            raise TypeError("a bytes-like object is required, not 'str'")
        view = data if type(data) is bytes else octets(data)
        length = len(view)
        if not length:
            return 0
        if not self._turn.busy and self._writing is None and self._has_room(length):
            if self._direct:
                self._check_aligned(length)
            self._collect(view)
            return length
        async with self._turn:
            await self._make_room(length)
            await self._take(view)
            return length

    def _has_room(self, length: int) -> bool:
        """Whether so many bytes can be collected at once, behind what was."""
        waiting = len(self._dirty)
        is_next = not waiting or not self._seekable or self._dirty_at + waiting == self._pos
        return is_next and waiting + length < self._limit

    async def _make_room(self, length: int) -> None:
        """Write what was collected, if it must be. If that is cancelled, nothing of the new data
        has been taken."""
        await self._settle_write()
        if self._dirty and not self._has_room(length):
            await self._flush()

    async def _take(self, view: bytes | memoryview) -> None:
        """Collect or write. From its start on, the data has been taken, whatever is cancelled."""
        length = len(view)
        if self._direct:
            self._check_aligned(length)
        if length < self._limit:
            self._collect(view)
            return
        self._drop_ahead()
        at = self._pos
        if self._seekable:
            self._pos += length
        # The program may change a buffer of its own after that; of a direct write there is a copy.
        await self._put(view if type(view) is bytes or self._direct else bytes(view), at)

    def _collect(self, view: bytes | memoryview) -> None:
        self._drop_ahead()
        if not self._dirty:
            self._dirty_at = self._pos
        self._dirty += view
        if self._seekable:
            self._pos += len(view)

    def _drop_ahead(self) -> None:
        """Forget what was read ahead, before a write. What a pipe or a terminal has given is no
        content that a write changes; their positions count what was read, and nothing else."""
        if self._ahead and self._seekable:
            self._ahead = b""

    async def writelines(self, lines: Iterable[Buffer], /) -> None:
        """Write each of the lines; nothing is put between them."""
        for line in lines:
            await self.write(line)

    async def flush(self) -> None:
        """Write what was collected. Other programs then see it; `sync` makes it durable."""
        self._check()
        if self._dirty or self._writing is not None or self._turn.busy:
            async with self._turn:
                await self._flush()

    async def _flush(self) -> None:
        await self._settle_write()
        if self._dirty:
            data, self._dirty = self._dirty, bytearray()
            await self._put(data, self._dirty_at)

    async def _put(self, data: bytes | bytearray | memoryview, at: int) -> None:
        """Write, and go on writing if the waiter is cancelled."""
        out = self._start_write(data, at)
        if type(out) is Operation:
            self._writing = out
            await self._settle_write()
        else:
            self._wrote()

    def _start_write(self, data: bytes | bytearray | memoryview, at: int) -> Any:
        offset = None if self._appends or not self._seekable else at
        if not self._direct:
            return self._file.write_at(data, offset, False)
        return self._file.write_at(_aligned(data), offset, False)

    def _wrote(self) -> None:
        # A close that was cancelled meanwhile has closed the file.
        if self._appends and self._seekable and not self._file.closed:
            self._pos = os.lseek(self._file.fileno(), 0, os.SEEK_CUR)

    async def _settle_write(self) -> None:
        """Wait for a write that goes on, and for a thread that moves where it is appended."""
        if self._appends and self._asking is not None and not self._asking.done():
            await asyncio.wait([self._asking])
        if self._writing is not None:
            try:
                await asyncio.shield(self._writing.future)
            except Exception:
                self._writing = None
                raise
            except BaseException:
                # Cancelled, interrupted by a signal, or of a task that is freed with its loop. Its
                # file may be forgotten.
                self._writing.go_on()
                raise
            self._writing = None
            self._wrote()

    async def _settle(self) -> None:
        """Write what was collected, before a read, and forget what is not to be read."""
        if self._stale:
            self._stale = False
            self._drop_ahead()
        if self._dirty or self._writing is not None:
            await self._flush()

    # ---- The position ----------------------------------------------------------------------------

    async def tell(self) -> int:
        """Return the position in bytes."""
        self._check()
        self._check_seekable()
        return self._pos

    async def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position: from the start, the position (1) or the end (2). Return it.

        OSError; OverflowError for a position that no file has.
        """
        self._check()
        self._check_seekable()
        async with self._turn:
            return await self._seek(operator.index(offset), whence)

    def _check_seekable(self) -> None:
        if not self._seekable:
            raise io.UnsupportedOperation("underlying stream is not seekable")

    async def _seek(self, offset: int, whence: int) -> int:
        await self._settle()
        if whence == os.SEEK_SET:
            new = offset
        elif whence == os.SEEK_CUR:
            new = self._pos + offset
        elif whence == os.SEEK_END:
            new = await self._end() + offset
        else:
            new = await self._lseek(offset, whence)
        if new < 0:
            raise OSError(22, "Invalid argument: a position before the start", self._name)
        if new > _LARGEST_POSITION:
            raise OverflowError(f"seek: position {new} is beyond 2**63 - 1")
        self._pos = new
        self._chunk = _FIRST_CHUNK
        return new

    async def _lseek(self, offset: int, whence: int) -> int:
        """Ask for data or a hole in a thread: the server of a file might not answer."""
        from ._open import start_in_thread

        # The thread may go on after its waiter was cancelled. The descriptor stays until then.
        file, steps = self._file, Steps(self._turn)
        steps.begin()
        try:
            asked = start_in_thread(lambda: _ask(file.fileno(), offset, whence, self._appends))
        except BaseException:
            steps.__exit__()
            raise
        asked.add_done_callback(steps.__exit__)
        self._asking = asked
        return await asyncio.shield(asked)

    async def _end(self) -> int:
        """The offset of the end: of a device its size, which `fstat` does not have."""
        status = await self._stat()
        if stat.S_ISREG(status.st_mode):
            return status.st_size
        return os.lseek(self._file.fileno(), 0, os.SEEK_END)

    async def truncate(self, size: int | None = None, /) -> int:
        """Cut or extend the file to `size` bytes, by default to the position, which stays."""
        self._check_writable()
        async with self._turn:
            await self._flush()
            size = self._pos if size is None else operator.index(size)
            if size < 0:
                raise OSError(22, "Invalid argument: a negative size", self._name)
            await run(self._file.truncate(size))
            self._drop_ahead()
            self._size = size
            return size

    # ---- At offsets ------------------------------------------------------------------------------

    async def read_at(self, size: int, offset: int) -> bytes:
        """Read `size` bytes at an offset, fewer only at the end of the file.

        The position is neither used nor moved. OSError; OverflowError for negative numbers.
        """
        if self._loop is not get_running_loop() or not self._readable:
            self._check_readable()
        if size > _UNCHECKED:
            with Steps(self._turn):
                return await self._read_there(operator.index(size), operator.index(offset))
        out = self._file.read_at(size, offset, size)
        return await wait(out) if type(out) is Operation else out

    async def readinto_at(self, buffer: Buffer, offset: int) -> int:
        """Fill a writable buffer from an offset on. Return the bytes: fewer only at the end.

        The buffer is pinned until the kernel no longer writes to it, also if the task is cancelled;
        a bytearray cannot be resized meanwhile. BufferError or TypeError for a buffer that is
        read-only or not contiguous; OSError.
        """
        if self._loop is not get_running_loop() or not self._readable:
            self._check_readable()
        out = self._file.readinto_at(buffer, offset)
        return await wait(out) if type(out) is Operation else out

    async def write_at(self, data: Buffer, offset: int, *, durable: bool = False) -> int:
        """Write all of the data at an offset; return its length. With `durable` it is on the device
        afterwards.

        If the task is cancelled, the data may be written in full, in part or not at all, and even
        after a later write. In mode 'a' it is appended, whatever the offset. OSError; with direct
        I/O EINVAL names the alignment.
        """
        self._check_writable()
        # Below, None is the position of the descriptor.
        offset = operator.index(offset)
        self._change(data, offset)
        try:
            return await run(self._file.write_at(data, offset, durable))
        finally:
            self._change(data, offset)

    def _change(self, data: Buffer, offset: int) -> None:
        """Before and after a write at an offset: what was read ahead of that range is not read
        again, nor what is being read ahead meanwhile."""
        self._changes += 1
        if self._ahead:
            first, end = operator.index(offset), operator.index(offset) + memoryview(data).nbytes
            if first < self._ahead_at + len(self._ahead) and self._ahead_at < end:
                self._drop_ahead()

    async def read_ranges(
        self, ranges: Iterable[Pair], out: Buffer | Sequence[Buffer] | None = None
    ) -> list[bytes] | list[int]:
        """Read many ranges, each a pair (offset, length), at once.

        Return bytes for each, in their order; they are shorter only at the end of the file. With
        `out`, a buffer that has room for all of them one after the other, or a buffer for each,
        return the number of bytes of each instead. ValueError if `out` does not fit; OverflowError
        for negative numbers; the first OSError.
        """
        self._check_readable()
        asked = list(pairs_of_numbers(ranges))
        if out is None:
            with Steps(self._turn):
                if any(offset + length > self._size for offset, length in asked):
                    self._size = (await self._stat()).st_size
                return await run(self._file.read_ranges(asked, self._size))
        buffers = split(out, [length for _, length in asked])
        offsets = [offset for offset, _ in asked]
        return await run(self._file.readinto_ranges(offsets, buffers))

    async def iter_ranges(
        self, ranges: Iterable[Pair], *, depth: int = 32
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Yield (index, bytes) of ranges as their reads complete, `depth` of them at a time.

        What is in flight when the iteration ends is cancelled. OSError of the first that fails.
        """
        self._check_readable()
        if depth < 1:
            raise ValueError("depth must be at least 1")
        pending: dict[asyncio.Future[Any], tuple[int, Operation]] = {}
        left = enumerate(pairs_of_numbers(ranges))
        with Steps(self._turn) as steps:
            try:
                while True:
                    ready: list[tuple[int, bytes]] = []
                    while not ready and len(pending) < depth:
                        if (following := next(left, None)) is None:
                            break
                        number, (offset, length) = following
                        steps.check()
                        started = self._file.read_at(length, offset, length)
                        if type(started) is Operation:
                            pending[started.future] = (number, started)
                        else:
                            ready.append((number, started))
                    if not ready:
                        if not pending:
                            return
                        ready = await _completed(pending)
                    steps.idle = True
                    try:
                        for pair in ready:
                            yield pair
                    finally:
                        steps.idle = False
            finally:
                for _, operation in pending.values():
                    drop(operation)

    async def sync(self, *, data_only: bool = False) -> None:
        """Write what was collected, and all that was written so far, to the device: `fsync(2)`, or
        `fdatasync(2)` with `data_only`.

        OSError: writes since the last sync may be lost then, although reads return them. It is
        not to be repeated; write the data again.
        """
        self._check()
        with Steps(self._turn):
            await self.flush()
            await run(self._file.sync(data_only))

    # ---- Space and the page cache ----------------------------------------------------------------

    async def allocate(self, offset: int, length: int, *, written: bool = False) -> None:
        """Reserve space for a range (`fallocate(2)`), and extend the file to its end. Content is
        kept.

        The blocks are not written, so the first durable write to each has more to do. With
        `written` they are, by zeroes, and are on the device afterwards: for a journal that is
        overwritten. The range must then begin at or behind the end of the file, and nobody else
        may write to it meanwhile.

        OSError: ENOSPC; EOPNOTSUPP if the file system cannot reserve space; with `written` EINVAL
        for a range that begins before the end, and in mode 'a'. If the task is cancelled, the file
        may have any length up to the end of the range, and zeroes may be written there for a moment
        longer.
        """
        self._check_writable()
        async with self._turn:
            await self._flush()
            await run(self._file.allocate(offset, length, written))
            self._drop_ahead()
            self._size = max(self._size, offset + length)

    async def warm(self, ranges: Iterable[Pair]) -> Warmed:
        """Bring ranges, each a pair (offset, length), into the page cache, and return when they are
        there: for a program that reads them through `mmap`, whose accesses then wait for no device.

        The ranges may overlap; what is beyond the end of the file is left out. OSError EINVAL for a
        file that is open for direct I/O, or that is not a regular file.
        """
        self._check_readable()
        asked = list(pairs_of_numbers(ranges))
        ends = [(offset, min(offset + length, _LARGEST_POSITION)) for offset, length in asked]
        with Steps(self._turn):
            cached, read, failed = await run(
                self._file.warm([pair for pair in ends if pair[0] < pair[1]])
            )
        return Warmed(cached, read, [(first, end - first, error) for first, end, error in failed])

    def dont_cache_refusal(self) -> str | None:
        """Return why reads and writes leave pages in the page cache although the file was opened
        with `dont_cache=True`, and the fix; None if they do not. A refusal is known after the
        first of them."""
        return self._file.dont_cache_refusal()

    async def atomic_write_unit(self) -> AtomicWriteUnit | None:
        """Return the sizes of `write_untorn_at`, or None if the file has no such writes. XFS has
        them since Linux 6.16; ext4 since 6.13 on devices with atomic writes. OSError."""
        self._check()
        unit = await run(self._file.atomic_write_unit())
        return unit and AtomicWriteUnit(*unit)

    async def write_untorn_at(self, data: Buffer, offset: int, *, durable: bool = False) -> None:
        """Write all of the data at an offset, or nothing, also if the system fails meanwhile
        (`RWF_ATOMIC`). With `durable` it is on the device afterwards.

        The file must be open with `direct=True`, the length one of `atomic_write_unit`, the offset
        a multiple of it, and the memory aligned, such as that of `ringway.buffer`. It is never
        written in parts or as a plain write instead: OSError says what is missing, EOPNOTSUPP if
        the file has no such writes. If the task is cancelled, all of it may be written or nothing.
        """
        self._check_writable()
        self._change(data, offset)
        try:
            await run(self._file.write_untorn_at(data, offset, durable))
        finally:
            self._change(data, offset)

    # ---- The end ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write what was collected, and close the file. It does not sync. Closing again does
        nothing. OSError of either step; the file is closed nevertheless, also if it is cancelled:
        what was collected is then written without anybody who waits. Operations that were called
        before end as usual. A `sync`, `sendfile`, `iter_ranges`, `read_ranges`, `warm` or `read_at`
        of more than 1 MiB may end after this; the last of them closes the descriptor, and nobody
        gets the error of that. An iterator that waits for its caller raises ValueError when it must
        read on, but not after a cancelled close."""
        if self._detached:
            raise ValueError("raw stream has been detached")
        if self.closed:
            return
        self._check()
        self._turn.end()
        try:
            await self._turn.acquire()
            try:
                try:
                    await self._flush()
                except Exception:
                    await self._close_or_leave()
                    raise
                await self._close_or_leave()
            finally:
                self._turn.release()
        except Exception:
            raise
        except BaseException:
            # Cancelled, interrupted by a signal, or of a task that is freed with its loop.
            self._leave()
            raise

    async def _close_or_leave(self) -> None:
        """Close the descriptor, or leave that to operations that need it."""
        if self._reading is not None:
            self._reading.cancel()
        if self._turn.end_idle():
            self._leave()
        else:
            # A write that goes on closes it at its end.
            await run(self._file.close())

    def _leave(self) -> None:
        """Leave the closing to the last of the operations that were called before."""
        self._abandoned = True
        self._readable = self._writable = False
        self._turn.after_all(self._abandon)

    def _abandon(self) -> None:
        """Close the file without waiting, when no operation is left."""
        # Nobody gets an error, as of all that goes on after a cancelled close.
        with suppress(Exception):
            if self._dirty and not self._file.closed:
                # Then no write is in flight: each of them begins with what was collected.
                data, self._dirty = self._dirty, bytearray()
                started = self._start_write(data, self._dirty_at)
                if type(started) is Operation:
                    started.go_on()
        with suppress(Exception):
            if self._reading is not None:
                self._reading.cancel()
            self._file.close()

    def detach(self) -> io.FileIO:
        """Return a synchronous file with the descriptor and the position; this one ends.

        ValueError if something is buffered or in flight: `flush` first. Of a pipe also if
        something was read ahead: `read` that first.

        `io.FileIO` asks for the file's metadata on the calling thread, and in mode 'a' for its end:
        on a network file system or FUSE both wait for the server.
        """
        self._check()
        if self._dirty or self._writing is not None:
            raise ValueError("detach: something is not written yet: await flush() first")
        if self._turn.busy:
            raise ValueError("detach: an operation is in progress: await it, or close its iterator")
        if not self._seekable and (self._reading or self._take_ahead(1)):
            raise ValueError("detach: something of the pipe was read ahead: await read() it first")
        made = io.FileIO(self._file.duplicate(), self._mode.replace("b", "").replace("t", ""))
        if self._seekable:
            made.seek(self._pos)
        self._detached = True
        self._readable = self._writable = False
        self._file.close()
        return made

    async def __aenter__(self) -> AsyncFile:
        self._check()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is None or file.closed or self._detached:
            return
        try:
            if not self._abandoned:
                warnings.warn(f"unclosed file {self!r}", ResourceWarning, source=self, stacklevel=2)
        finally:
            # As files of the standard library do, also if the warning is an error.
            self._write_dirty()

    def _write_dirty(self) -> None:
        """Write what was collected, on this thread."""
        if not self._dirty:
            return
        fd, at = self._file.fileno(), self._dirty_at
        left = memoryview(_aligned(self._dirty) if self._direct else self._dirty)
        while left:
            if self._appends or not self._seekable:
                count = os.write(fd, left)
            else:
                count = _pwrite(fd, left, at)
            left, at = left[count:], at + count


def _aligned(data: bytes | bytearray | memoryview) -> mmap.mmap:
    """A copy at the start of a page."""
    copy = pages(len(data))
    copy[:] = data
    return copy


def pages(size: int) -> mmap.mmap:
    """Memory of zeroes at the start of a page. A forked process has its own."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)  # Windows
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _ask(fd: int, offset: int, whence: int, appends: bool) -> int:
    """`lseek` for data or a hole. Where a descriptor without `O_APPEND` appends does not change."""
    if not appends:
        return os.lseek(fd, offset, whence)
    position = os.lseek(fd, 0, os.SEEK_CUR)
    try:
        return os.lseek(fd, offset, whence)
    finally:
        os.lseek(fd, position, os.SEEK_SET)


def _pwrite(fd: int, data: Buffer, at: int) -> int:
    if hasattr(os, "pwrite"):
        return os.pwrite(fd, data, at)
    os.lseek(fd, at, os.SEEK_SET)
    return os.write(fd, data)


def pairs(ranges: Iterable[Any], meaning: str) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of any kind as tuples. TypeError for what is no pair."""
    for pair in ranges:
        try:
            first, second = pair
        except (TypeError, ValueError):
            raise TypeError(f"a pair {meaning} is needed, not {pair!r}") from None
        yield first, second


def pairs_of_numbers(ranges: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """Yield ranges as pairs of `int`, which do not wrap as those of numpy do. TypeError for what is
    no pair of integers, OverflowError for negative ones."""
    for pair in pairs(ranges, "(offset, length)"):
        offset, length = map(operator.index, pair)
        if offset < 0 or length < 0:
            raise OverflowError(f"a range of {length} bytes from {offset} on")
        yield offset, length


def octets(data: Buffer) -> memoryview:
    """The bytes of a buffer of any format and shape. TypeError if it is not contiguous, or none."""
    view = memoryview(data)
    if not view.c_contiguous:
        raise TypeError("a contiguous buffer is needed, such as numpy.ascontiguousarray makes")
    if not view.nbytes:  # (Of several dimensions it cannot be cast.)
        return memoryview(b"" if view.readonly else bytearray())
    try:
        # It uses the object's buffer as `view` does. A view of a view would use that of `view`, and
        # CPython's garbage collector crashes on a cycle that holds both (seen in 3.11).
        return view.cast("B")
    except TypeError:
        # A format of several characters. (Such a memoryview of the program's becomes a view of it.)
        return pickle.PickleBuffer(data).raw()


async def _completed(
    pending: dict[asyncio.Future[Any], tuple[int, Operation]],
) -> list[tuple[int, bytes]]:
    """Wait until one is done; remove those that are, and return their results."""
    done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    return [(pending.pop(future)[0], future.result()) for future in done]


def split(out: Buffer | Sequence[Buffer], lengths: list[int]) -> list[Buffer]:
    """Return a buffer for each length: the given ones, or parts of one."""
    if isinstance(out, (list, tuple)):
        sizes = [memoryview(one).nbytes for one in out]
        if sizes != lengths:
            raise ValueError(f"out: buffers of {sizes} bytes for ranges of {lengths}")
        return list(out)
    whole: Any = out
    view = octets(whole)
    if view.nbytes < sum(lengths):
        raise ValueError(f"out: {view.nbytes} bytes for ranges of {sum(lengths)} in all")
    parts: list[Buffer] = []
    at = 0
    for length in lengths:
        parts.append(view[at : at + length])
        at += length
    return parts
