"""Sending files to sockets, transports and streams, without stopping the event loop."""

from __future__ import annotations

import asyncio
import operator
import socket
from collections import deque
from typing import Any

from ._binary import AsyncFile, Steps
from ._engine import drop, run
from ._ringway import Operation

_CHUNK = 256 << 10
_AHEAD = 4


async def sendfile(
    target: asyncio.WriteTransport | asyncio.StreamWriter | socket.socket,
    file: Any,
    offset: int = 0,
    count: int | None = None,
) -> int:
    """Send `count` bytes of a file from an offset on, or all up to its end. Return the number sent:
    fewer only if the file ends.

    The file is one of `ringway.open` or `ringway.tempfile`. The target is a transport (plain, TLS,
    or of a pipe; of asyncio or uvloop), an `asyncio.StreamWriter`, or a non-blocking socket that no
    transport uses. Up to 1 MiB is read ahead while earlier pieces are being sent; the loop never
    waits for the disk. A transport's own protocol receives nothing meanwhile, as with
    `loop.sendfile`. The position of the file is neither used nor moved.

    If it is cancelled, what was sent is unknown. ConnectionError if the connection is lost;
    OSError; ValueError for a blocking socket or a closed file; TypeError for other targets.
    """
    # That of a NamedTemporaryFile.
    file = getattr(file, "_opened", file)
    if not isinstance(file, AsyncFile):
        raise TypeError(f"sendfile: a file opened in a binary mode is needed, not {file!r}")
    offset, count = operator.index(offset), None if count is None else operator.index(count)
    if offset < 0 or (count is not None and count < 0):
        raise ValueError("sendfile: offset and count must not be negative")
    file._check_readable()
    if not file._seekable:
        raise ValueError("sendfile: the file has no offsets (it is a pipe or a terminal)")
    if isinstance(target, socket.socket):
        if target.gettimeout() != 0:
            raise ValueError("sendfile: the socket must be non-blocking: setblocking(False)")
        loop = asyncio.get_running_loop()
        return await _send(file, offset, count, lambda data: loop.sock_sendall(target, data))
    if isinstance(target, asyncio.StreamWriter):
        writer = target

        async def write(data: bytes) -> None:
            if writer.is_closing():
                # The connection's error; uvloop's transport would have one of its own.
                await writer.drain()
                raise ConnectionResetError("sendfile: the connection was lost")
            writer.write(data)
            await writer.drain()

        return await _send(file, offset, count, write)
    if not hasattr(target, "set_protocol") or not hasattr(target, "write"):
        raise TypeError(f"sendfile: a transport, StreamWriter or socket is needed, not {target!r}")
    if target.is_closing():
        raise ConnectionError("sendfile: the transport is closing")
    flow = _Flow(target)
    try:
        flow.begin()
        return await _send(file, offset, count, flow.write)
    finally:
        flow.restore()


async def _send(file: AsyncFile, offset: int, count: int | None, write: Any) -> int:
    """Read ahead, and write each piece."""
    sent, at = 0, offset
    end = None if count is None else offset + count
    reads: deque[tuple[int, Any]] = deque()
    with Steps(file._turn):
        try:
            while True:
                while len(reads) < _AHEAD and (end is None or at < end):
                    size = _CHUNK if end is None else min(_CHUNK, end - at)
                    reads.append((size, file._file.read_at(size, at, size)))
                    at += size
                if not reads:
                    return sent
                size, started = reads[0]
                data = await run(started)
                reads.popleft()
                if data:
                    await write(data)
                sent += len(data)
                if len(data) < size:
                    return sent
        finally:
            for _, started in reads:
                if type(started) is Operation:
                    drop(started)


class _Flow(asyncio.Protocol):
    """The protocol of a transport meanwhile: it waits when the transport's buffer is full."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._protocol = transport.get_protocol()
        self._reads = False
        self._lost = False
        self._was_paused = False
        self._resumed: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Take the protocol's place, until `restore`."""
        transport = self._transport
        try:
            if transport.is_reading():
                transport.pause_reading()
                self._reads = True
        except (AttributeError, NotImplementedError):
            pass  # One that only writes.
        except RuntimeError as error:
            # A TLS transport before CPython 3.11 does not say that it has lost its connection.
            raise ConnectionError("sendfile: the connection was lost") from error
        transport.set_protocol(self)
        # Nobody can ask a transport whether its protocol is paused: it may be until the buffer is
        # almost empty. With a limit of 0 it is paused if there is anything (of a TLS transport of
        # asyncio also if there is nothing), and this is told if it was not before.
        low, high = transport.get_write_buffer_limits()
        try:
            transport.set_write_buffer_limits(high=0)
            self._was_paused = self._resumed is None and transport.get_write_buffer_size() > 0
            if self._was_paused:
                self.pause_writing()
        finally:
            transport.set_write_buffer_limits(high=high, low=low)

    async def write(self, data: bytes) -> None:
        await self._drained()
        if self._lost or self._transport.is_closing():
            raise ConnectionError("sendfile: the connection was lost")
        self._transport.write(data)
        await self._drained()

    async def _drained(self) -> None:
        if self._resumed is not None:
            await self._resumed

    def pause_writing(self) -> None:
        if self._resumed is None:
            self._resumed = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        resumed, self._resumed = self._resumed, None
        if resumed is not None and not resumed.done():
            resumed.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        resumed, self._resumed = self._resumed, None
        if resumed is not None and not resumed.done():
            resumed.set_exception(exc or ConnectionError("sendfile: the connection was lost"))
            # Nobody may be waiting for it, and asyncio would log that.
            resumed.exception()
        self._protocol.connection_lost(exc)

    def restore(self) -> None:
        """Give the transport its protocol back."""
        if self._lost:
            return
        self._transport.set_protocol(self._protocol)
        if self._reads and not self._transport.is_closing():
            self._transport.resume_reading()
        # The protocol must know whether it may write.
        is_paused = self._resumed is not None
        if self._was_paused and not is_paused:
            self._protocol.resume_writing()
        elif is_paused and not self._was_paused:
            self._protocol.pause_writing()
