"""Cancelled operations: positions, buffers, descriptors, and what asyncio promises of them."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
import select
import socket
import sys
import threading
import time
import warnings
import weakref
from pathlib import Path
from typing import Any

import other_system
import pytest

import ringway
from conftest import drop_cache

pytestmark = pytest.mark.usefixtures("descriptors")


async def close_of_reader(writer_fd: int) -> None:
    """Wait until a pipe has no reading end any more, and close the writing one."""
    for _ in range(3000):
        try:
            os.write(writer_fd, b"x")
        except BrokenPipeError:
            break
        await asyncio.sleep(0.01)
    else:
        raise AssertionError("the reading end is still open")
    os.close(writer_fd)


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_read_does_not_move_the_position(lines: Path) -> None:
    """aiofiles' goes on in its thread, and the next read skips a block."""
    expected = lines.read_bytes()
    async with ringway.open(lines, "rb") as file:
        ended = 0
        for round in range(100):
            await file.seek(0)
            drop_cache(lines)
            first = file.readinto(bytearray(4096)) if round % 2 else file.read(4096)
            tasks = [asyncio.ensure_future(first), asyncio.ensure_future(file.read(4096))]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            delivered = [one for one in results if not isinstance(one, asyncio.CancelledError)]
            ended += len(results) - len(delivered)
            at = 4096 * len(delivered)
            assert await file.tell() == at
            assert await file.read(100) == expected[at : at + 100]
        assert ended > 0


async def test_a_time_limit_ends_the_wait() -> None:
    """Those of anyio and trio wait for the read in the thread."""
    reader_fd, writer_fd = os.pipe()
    async with ringway.open(reader_fd, "rb", 0) as reader:
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(reader.read(10), 0.01)
        os.write(writer_fd, b"late")
        assert await asyncio.wait_for(reader.read(10), 10) == b"late"
        os.close(writer_fd)


async def test_nothing_of_a_pipe_is_lost_with_a_cancelled_read() -> None:
    reader_fd, writer_fd = os.pipe()
    sent, received = bytes(range(256)) * 40, b""
    async with ringway.open(reader_fd, "rb") as reader:

        async def write() -> None:
            for at in range(0, len(sent), 64):
                os.write(writer_fd, sent[at : at + 64])
                await asyncio.sleep(0.0005)
            os.close(writer_fd)

        writer = asyncio.ensure_future(write())
        while True:
            try:
                data = await asyncio.wait_for(reader.read(100), random.uniform(0, 0.002))
            except asyncio.TimeoutError:
                continue
            if not data:
                break
            received += data
        await writer
    assert received == sent


async def test_closing_a_pipe_ends_a_cancelled_read_of_it() -> None:
    reader_fd, writer_fd = os.pipe()
    reader = await ringway.open(reader_fd, "rb")
    task = asyncio.ensure_future(reader.read(10))
    await asyncio.sleep(0.01)
    await cancelled(task)
    await reader.close()
    await close_of_reader(writer_fd)


async def test_a_buffer_is_pinned_while_a_read_is_in_flight() -> None:
    reader_fd, writer_fd = os.pipe()
    buffer = bytearray(100)
    async with ringway.open(reader_fd, "rb") as pipe:
        task = asyncio.ensure_future(pipe.readinto_at(buffer, 0))
        await asyncio.sleep(0.01)
        with pytest.raises(BufferError):
            buffer.extend(b"x")
        await cancelled(task)
        for _ in range(3000):
            try:
                buffer.extend(b"x")
                break
            except BufferError:
                await asyncio.sleep(0.01)
        os.write(writer_fd, b"late")
        await asyncio.sleep(0.01)
        assert buffer == bytes(100) + b"x"
        assert await pipe.read(4) == b"late"
    os.close(writer_fd)


async def test_a_cancelled_readinto_keeps_its_buffer(lines: Path) -> None:
    expected = lines.read_bytes()[:4096]
    for _ in range(50):
        drop_cache(lines)
        async with ringway.open(lines, "rb") as file:
            buffer = bytearray(4096)
            task = asyncio.ensure_future(file.readinto_at(buffer, 0))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        # It can be resized once the kernel has released it, and has all bytes or none.
        for _ in range(3000):
            try:
                buffer.extend(b"x")
                break
            except BufferError:
                await asyncio.sleep(0.01)
        assert len(buffer) == 4097 and bytes(buffer[:4096]) in (expected, bytes(4096))


async def test_a_cancelled_write_goes_on_and_keeps_its_order(tmp_path: Path) -> None:
    path, expected = tmp_path / "out", b""
    async with ringway.open(path, "wb", buffering=0) as file:
        for index in range(60):
            data = bytes([index]) * 5000
            task = asyncio.ensure_future(file.write(data))
            waiting = asyncio.ensure_future(file.write(b"never"))
            await asyncio.sleep(0)
            if task.done():
                assert await waiting == 5
                expected += data + b"never"
                continue
            # One that had not begun does not move the position.
            await cancelled(waiting)
            if index % 3 == 0:
                assert await task == 5000
                expected += data
            elif await file.tell() == len(expected) + 5000:
                await cancelled(task)
                expected += data
            else:
                # An earlier one goes on.
                await cancelled(task)
            assert await file.tell() == len(expected)
    assert path.read_bytes() == expected


async def test_a_cancelled_write_to_a_full_pipe_goes_on() -> None:
    reader_fd, writer_fd = os.pipe()
    first, second = b"1" * 200_000, b"2" * 100_000
    file = await ringway.open(writer_fd, "wb", buffering=0)
    writing = asyncio.ensure_future(file.write(first))
    waiting = asyncio.ensure_future(file.write(b"never"))
    await asyncio.sleep(0.01)
    await cancelled(waiting)
    await cancelled(writing)
    writing = asyncio.ensure_future(file.write(second))
    await asyncio.sleep(0.01)
    assert not writing.done()
    received = b""
    while len(received) < 300_000:
        received += await asyncio.to_thread(os.read, reader_fd, 1 << 20)
    assert await writing == 100_000
    assert received == first + second
    await file.close()
    os.close(reader_fd)


async def test_a_cancelled_open_leaves_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    task = asyncio.ensure_future(ringway.open(path, "wb").__aenter__())
    await asyncio.sleep(0.01)
    await cancelled(task)
    # The open in flight ends with the next reader.
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    engine = ringway._engine()
    for _ in range(3000):
        if engine.in_flight() == 0:
            break
        await asyncio.sleep(0.01)
    assert engine.in_flight() == 0
    await asyncio.sleep(0.05)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout is new in 3.11")
async def test_timeout_and_task_groups(lines: Path) -> None:
    reader_fd, writer_fd = os.pipe()
    async with ringway.open(reader_fd, "rb") as pipe, ringway.open(lines, "rb") as file:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await pipe.read(1)
        with pytest.raises(BaseExceptionGroup) as raised:  # noqa: F821
            async with asyncio.TaskGroup() as group:
                group.create_task(pipe.read(1))
                group.create_task(file.read_at(1, -1))
        assert isinstance(raised.value.exceptions[0], OverflowError)
        assert len(raised.value.exceptions) == 1
    os.close(writer_fd)


async def test_the_storm(lines: Path, tmp_path: Path) -> None:
    """Tasks that are cancelled at random moments: what is delivered is right; nothing is left."""
    expected, rng = lines.read_bytes(), random.Random(5)
    engine = ringway._engine()
    async with ringway.open(lines, "rb") as file, ringway.open(tmp_path / "w", "wb+") as out:

        async def one(index: int) -> None:
            at, size = rng.randrange(len(expected)), rng.randrange(1, 9000)
            kind = index % 4
            if kind == 0:
                assert await file.read_at(size, at) == expected[at : at + size]
            elif kind == 1:
                buffer = bytearray(size)
                count = await file.readinto_at(buffer, at)
                assert buffer[:count] == expected[at : at + size]
            elif kind == 2:
                assert await out.write_at(expected[at : at + size], at) == len(
                    expected[at : at + size]
                )
            else:
                parts = await file.read_ranges([(at, size), (0, 10)])
                assert parts == [expected[at : at + size], expected[:10]]

        for _ in range(40):
            drop_cache(lines)
            tasks = [asyncio.ensure_future(one(index)) for index in range(32)]
            await asyncio.sleep(rng.choice([0, 0, 0.0002]))
            for task in rng.sample(tasks, 16):
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                assert result is None or isinstance(result, asyncio.CancelledError), result
    for _ in range(3000):
        if engine.in_flight() == 0:
            break
        await asyncio.sleep(0.01)
    assert engine.in_flight() == 0


def test_a_forgotten_loop_frees_its_engine(lines: Path) -> None:
    """Also with operations in flight, whose tasks nobody ends."""
    reader_fd, writer_fd = os.pipe()

    def run() -> None:
        loop = asyncio.new_event_loop()

        async def main() -> None:
            file = await ringway.open(reader_fd, "rb", closefd=False)
            loop.create_task(file.read(1)).set_name("left")
            await asyncio.sleep(0.01)

        loop.run_until_complete(main())
        loop.close()

    before = len(os.listdir("/proc/self/fd"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(5):
            run()
            gc.collect()
        gc.collect()
    # A thread closes engines with operations in flight.
    for _ in range(3000):
        if len(os.listdir("/proc/self/fd")) <= before + 1:
            break
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    os.close(reader_fd)
    os.close(writer_fd)


def test_an_interrupt_during_a_delivery_loses_no_result() -> None:
    """A handler of a signal may raise in any Python function, such as a method of a future."""
    interrupts: list[BaseException] = []

    class Future(asyncio.Future):  # type: ignore[type-arg]
        def set_result(self, value: object) -> None:
            if interrupts:
                raise interrupts.pop()
            super().set_result(value)

    class Loop(asyncio.SelectorEventLoop):
        def create_future(self) -> Future:
            return Future(loop=self)

    pipes = [os.pipe() for _ in range(3)]

    async def main() -> list[bytes]:
        files = [await ringway.open(reader, "rb", 0) for reader, _ in pipes]
        reads = [asyncio.ensure_future(file.read(1)) for file in files]
        await asyncio.sleep(0.01)
        interrupts.append(KeyboardInterrupt())
        for _, writer in pipes:
            os.write(writer, b"x")
            os.close(writer)
        results = await asyncio.gather(*reads)
        for file in files:
            await file.close()
        return results

    loop = Loop()
    task = loop.create_task(main())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    assert loop.run_until_complete(asyncio.wait_for(task, 10)) == [b"x"] * 3
    loop.close()


def test_a_wakeup_that_failed_is_tried_again() -> None:
    """On a loop that a thread of the engine wakes."""
    errors: list[BaseException] = []

    class Loop(asyncio.SelectorEventLoop):
        def add_reader(self, *_: object) -> None:  # type: ignore[override]
            raise NotImplementedError

        def _add_reader(self, *arguments: Any) -> Any:
            return super()._add_reader(*arguments)  # type: ignore[misc]

        def call_soon_threadsafe(self, *arguments: Any, **named: Any) -> Any:
            if errors:
                raise errors.pop()
            return super().call_soon_threadsafe(*arguments, **named)

    async def main() -> None:
        for _ in range(2):
            reader, writer = os.pipe()
            async with ringway.open(reader, "rb", 0) as file:
                reading = asyncio.ensure_future(file.read(1))
                await asyncio.sleep(0.01)
                errors.append(MemoryError())
                os.write(writer, b"x")
                while errors:
                    await asyncio.sleep(0.01)
                # Another completion wakes the loop for both.
                await ringway.read_file("/proc/version")
                assert await asyncio.wait_for(reading, 10) == b"x"
            os.close(writer)

    loop = Loop()
    loop.run_until_complete(asyncio.wait_for(main(), 20))
    loop.close()


def test_a_loop_that_can_watch_no_more_descriptors_is_woken_by_a_thread() -> None:
    """As epoll refuses a descriptor to a user whose watches are used up."""

    class Loop(asyncio.SelectorEventLoop):
        def add_reader(self, *_: object) -> None:  # type: ignore[override]
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def main() -> bytes:
        return await asyncio.wait_for(ringway.read_file("/proc/version"), 10)

    loop = Loop()
    assert loop.run_until_complete(main()).startswith(b"Linux")
    loop.close()


def test_a_write_that_goes_on_does_not_keep_a_closed_loop() -> None:
    reader_fd, writer_fd = os.pipe()
    engines = []

    async def main() -> None:
        file = await ringway.open(writer_fd, "wb", 0, closefd=False)
        writing = asyncio.ensure_future(file.write(bytes(1 << 20)))
        await asyncio.sleep(0.01)
        await cancelled(writing)
        engines.append(weakref.ref(ringway._engine()))

    def run() -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run()
        gc.collect()
    assert engines[0]() is None
    os.close(writer_fd)
    left = 0
    while data := os.read(reader_fd, 1 << 20):
        # It ends when nobody has the writing end any more.
        left += len(data)
    assert left == 1 << 20
    os.close(reader_fd)


@pytest.mark.parametrize("ends", ["before the loop", "after the loop"])
def test_a_cancelled_close_goes_on_after_a_loop_that_is_kept(ends: str) -> None:
    """On a loop that a thread of the engine wakes: a closed one takes no callbacks, and drops those
    that it has not called."""
    reader_fd, writer_fd = os.pipe()

    def received(count: int) -> int:
        left = count
        while left and select.select([reader_fd], [], [], 10)[0]:
            data = os.read(reader_fd, left)
            if not data:
                break
            left -= len(data)
        return count - left

    async def main() -> None:
        file = await ringway.open(writer_fd, "wb", 2 << 20)
        await file.write(bytes(1 << 20))
        closing = asyncio.ensure_future(file.close())
        await asyncio.sleep(0.01)
        await cancelled(closing)

    loop = other_system.Loop()
    loop.run_until_complete(main())
    total = 0
    if ends == "before the loop":
        total = received(1 << 20)
        # The engine's thread may now have called the loop.
        time.sleep(0.05)
    loop.close()
    total += received((1 << 20) - total)
    assert total == 1 << 20
    assert select.select([reader_fd], [], [], 10)[0] and os.read(reader_fd, 1) == b""
    os.close(reader_fd)
    freed = weakref.ref(loop)
    del loop
    gc.collect()
    assert freed() is None


async def test_a_cancelled_close_closes(tmp_path: Path) -> None:
    reader_fd, writer_fd = os.pipe()
    reader = await ringway.open(reader_fd, "rb")
    reading = asyncio.ensure_future(reader.read(1))
    await asyncio.sleep(0.01)
    closing = asyncio.ensure_future(reader.close())
    await asyncio.sleep(0)
    await cancelled(closing)
    assert reader.closed
    os.write(writer_fd, b"x")
    assert await reading == b"x"
    await close_of_reader(writer_fd)


async def test_a_cancelled_close_writes_what_was_collected(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = await ringway.open(path, "wb")
    await file.write(b"kept")
    async with file._turn:
        closing = asyncio.ensure_future(file.close())
        late = asyncio.ensure_future(file.write(b"late"))
        await asyncio.sleep(0)
        await cancelled(closing)
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        await late
    for _ in range(3000):
        if path.read_bytes() == b"kept":
            break
        await asyncio.sleep(0.01)
    assert path.read_bytes() == b"kept"


async def test_a_write_succeeds_although_a_cancelled_close_has_closed_the_file(
    tmp_path: Path,
) -> None:
    path, size = tmp_path / "file", 4 << 20
    for number in range(1, 11):
        file = await ringway.open(path, "ab", 0)
        writing = asyncio.ensure_future(file.write(bytes(size)))
        closing = asyncio.ensure_future(file.close())
        await asyncio.sleep(0)
        if closing.done():
            await closing
        else:
            await cancelled(closing)
        assert file.closed
        assert await writing == size
        assert path.stat().st_size == number * size


async def test_the_descriptor_of_a_cancelled_opener_is_closed(lines: Path) -> None:
    opened: list[int] = []
    go = threading.Event()

    def opener(path: str, flags: int) -> int:
        go.wait(10)
        opened.append(os.open(path, flags))
        return opened[0]

    task = asyncio.ensure_future(ringway.open(lines, "rb", opener=opener).__aenter__())
    await asyncio.sleep(0.01)
    await cancelled(task)
    go.set()
    for _ in range(3000):
        if opened and not os.path.exists(f"/proc/self/fd/{opened[0]}"):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the descriptor is still open")


async def test_a_cancelled_first_write_takes_no_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "text"
    async with ringway.open(path, "w", encoding="utf-16") as file:
        async with file.buffer._turn:
            first = asyncio.ensure_future(file.write("lost"))
            second = asyncio.ensure_future(file.write("kept"))
            await asyncio.sleep(0)
            await cancelled(first)
        assert await second == 4
    assert path.read_text("utf-16") == "kept"


async def test_a_cancelled_close_closes_although_its_write_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await ringway.open(tmp_path / "file", "wb")
    await file.write(b"x")

    def fail(*_: object) -> None:
        raise MemoryError

    async with file._turn:
        closing = asyncio.ensure_future(file.close())
        await asyncio.sleep(0)
        monkeypatch.setattr(ringway.AsyncFile, "_start_write", fail)
        await cancelled(closing)
        assert file.closed
    # Nobody has the error.
    assert file._file.closed


@pytest.mark.parametrize("following", ["flush", "sync", "write", "close"])
async def test_the_next_operation_raises_the_error_of_a_write_that_went_on(following: str) -> None:
    """It raises it once; nobody else has it."""
    reader, writer = os.pipe()
    file = await ringway.open(writer, "wb", 0)
    task = asyncio.ensure_future(file.write(bytes(1 << 20)))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    os.close(reader)
    call = getattr(file, following)
    with pytest.raises(BrokenPipeError):
        await (call(b"x") if following == "write" else call())
    if following != "close":
        await file.flush()
        await file.close()
    assert file.closed


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("call", ["read", "readlines"])
async def test_a_cancelled_close_leaves_operations_of_several_steps(text: bool, call: str) -> None:
    reader_fd, writer_fd = os.pipe()
    reader: Any = await ringway.open(reader_fd, "r" if text else "rb")
    reading = asyncio.ensure_future(reader.read(6) if call == "read" else reader.readlines(3))
    queued = asyncio.ensure_future(reader.readline())
    await asyncio.sleep(0.01)
    os.write(writer_fd, b"a\n")
    await asyncio.sleep(0.01)
    closing = asyncio.ensure_future(reader.close())
    await asyncio.sleep(0)
    late = asyncio.ensure_future(reader.readline())
    await asyncio.sleep(0)
    await cancelled(closing)
    assert reader.closed
    with pytest.raises(ValueError, match="closed"):
        await reader.read(1)
    os.write(writer_fd, b"b\nc\nline\n")
    lines = [b"a\n", b"b\n", b"c\n", b"line\n"]
    expected = b"".join(lines[:3]) if call == "read" else lines[:2]
    following = lines[3] if call == "read" else lines[2]
    if text:
        expected = [line.decode() for line in lines[:2]] if call != "read" else "a\nb\nc\n"
        following = following.decode()  # type: ignore[assignment]
    assert await reading == expected
    assert await queued == following
    with pytest.raises(ValueError, match="closed"):
        await late
    await close_of_reader(writer_fd)


async def test_a_cancelled_close_leaves_operations_at_offsets(lines: Path) -> None:
    file = await ringway.open(lines, "rb")
    ranges = file.iter_ranges([(0, 5), (5, 5), (10, 5)], depth=1)
    found = [await ranges.__anext__()]
    async with file._turn:
        closing = asyncio.ensure_future(file.close())
        await asyncio.sleep(0)
        await cancelled(closing)
    assert file.closed and not file._file.closed
    with pytest.raises(ValueError, match="closed"):
        await file.read_at(1, 0)
    async for pair in ranges:
        found.append(pair)
    content = lines.read_bytes()
    assert found == [(at, content[5 * at : 5 * at + 5]) for at in range(3)]
    assert file._file.closed


async def test_an_iterator_goes_on_after_a_close_that_was_cancelled_in_its_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    file = await ringway.open(path, "r+b")
    ranges = file.iter_ranges([(0, 5), (5, 5)], depth=1)
    assert await ranges.__anext__() == (0, b"01234")
    await file.write(b"x")

    async def flush() -> None:
        await asyncio.sleep(10)

    monkeypatch.setattr(file, "_flush", flush)
    closing = asyncio.ensure_future(file.close())
    await asyncio.sleep(0)
    await cancelled(closing)
    assert file.closed and not file._file.closed
    assert [pair async for pair in ranges] == [(1, b"56789")]
    assert file._file.closed
    for _ in range(3000):
        if path.read_bytes() == b"x123456789":
            return
        await asyncio.sleep(0.01)
    raise AssertionError("what was collected is not written")


async def test_closes_of_several_tasks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = await ringway.open(path, "wb")
    async with file._turn:
        writing = asyncio.ensure_future(file.write(b"kept"))
        closing = [asyncio.ensure_future(file.close()) for _ in range(3)]
        await asyncio.sleep(0)
        await cancelled(closing[1])
    assert await writing == 4
    await asyncio.gather(closing[0], closing[2])
    await file.close()
    assert path.read_bytes() == b"kept"


class FailsToClose:
    """A file of the extension module whose close(2) fails, as of NFS."""

    def __init__(self, file: Any) -> None:
        self._closed = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._closed, name)

    def close(self) -> None:
        if not self._closed.closed:
            self._closed.close()
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


@pytest.mark.parametrize("call", ["flush", "write", "sync", "truncate", "close", "read_ranges"])
async def test_calls_after_a_close_take_no_error_from_it(tmp_path: Path, call: str) -> None:
    """They are refused, or a second close; the descriptor is not left to them."""
    (tmp_path / "file").touch()
    file: Any = await ringway.open(tmp_path / "file", "r+b")
    file._file = FailsToClose(file._file)
    await file.write(b"x")
    async with file._turn:
        closing = asyncio.ensure_future(file.close())
        await asyncio.sleep(0)
        arguments = {"write": [b"late"], "read_ranges": [[(0, 1)]]}.get(call, [])
        late = asyncio.ensure_future(getattr(file, call)(*arguments))
        await asyncio.sleep(0)
    with pytest.raises(OSError, match=os.strerror(errno.EDQUOT)):
        await closing
    assert file._file.closed
    if call == "close":
        await late
    else:
        with pytest.raises(ValueError, match="closed"):
            await late


async def test_a_close_of_a_pipe_waits_for_no_later_read() -> None:
    reader_fd, writer_fd = os.pipe()
    file = await ringway.open(reader_fd, "rb")
    reading = asyncio.ensure_future(file.read(1))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(file.close())
    await asyncio.sleep(0)
    late = [asyncio.ensure_future(file.read(1)) for _ in range(10)]
    await asyncio.sleep(0)
    os.write(writer_fd, b"x")
    await closing
    assert file._file.closed
    assert await reading == b"x"
    for one in late:
        with pytest.raises(ValueError, match="closed"):
            await one
    await close_of_reader(writer_fd)


async def test_a_cancelled_question_for_data_keeps_the_descriptor(
    lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that asks must not find another file there."""
    begun, go = threading.Event(), threading.Event()

    def lseek(fd: int, offset: int, whence: int, real: Any = os.lseek) -> int:
        begun.set()
        go.wait(10)
        position: int = real(fd, offset, whence)
        return position

    file = await ringway.open(lines, "rb")
    monkeypatch.setattr(os, "lseek", lseek)
    seeking = asyncio.ensure_future(file.seek(10, os.SEEK_DATA))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    await cancelled(seeking)
    assert await file.tell() == 0 and await file.read(4) == b"line"
    await file.close()
    assert file.closed and not file._file.closed
    go.set()
    for _ in range(3000):
        if file._file.closed:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the descriptor is still open")


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("hint", [-1, 1000])
@pytest.mark.parametrize("kind", ["file", "pipe"])
async def test_a_cancelled_readlines_loses_no_lines(
    lines: Path, text: bool, hint: int, kind: str
) -> None:
    reader_fd, writer_fd = os.pipe()
    content = b"first\nsecond\n\nlast of these\n"
    path: Any = reader_fd
    if kind == "file":
        path = lines
        content = lines.read_bytes()[:200]
        content = content[: content.rindex(b"\n") + 1]
        drop_cache(lines)
    else:
        os.write(writer_fd, content)
    expected: list[Any] = content.splitlines(keepends=True)
    if text:
        expected = [line.decode() for line in expected]
    async with ringway.open(path, "r" if text else "rb") as reader:
        assert await reader.readline() == expected[0]
        reading = asyncio.ensure_future(reader.readlines(hint))
        # (A file may have been read by then, wherever the cancel comes.)
        await asyncio.sleep(0.01 if kind == "pipe" else 0)
        if not reading.done():
            await cancelled(reading)
            if kind == "file":
                assert await reader.tell() == len(expected[0])
            for line in expected[1:]:
                assert await reader.readline() == line
        else:
            assert kind == "file"
    os.close(writer_fd)
    if kind == "file":
        os.close(reader_fd)


@pytest.mark.parametrize("call", ["sendfile", "iter_ranges", "read_at"])
async def test_a_close_leaves_operations_at_offsets(
    lines: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Also those of several steps; what is called later is refused."""
    content = lines.read_bytes() * 40
    lines.write_bytes(content)
    file = await ringway.open(lines, "rb")
    wait, stat, begun, go = asyncio.wait, file._stat, asyncio.Event(), asyncio.Event()
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)

        async def late_wait(*arguments: Any, **named: Any) -> Any:
            begun.set()
            await go.wait()
            return await wait(*arguments, **named)

        async def late_stat() -> os.stat_result:
            begun.set()
            await go.wait()
            return await stat()

        async def steps() -> bytes:
            if call == "sendfile":
                begun.set()
                await ringway.sendfile(near, file)
                near.close()
                return b""
            if call == "read_at":
                return await file.read_at(2 << 20, 0)
            size = 64 << 10
            ranges = [(at, size) for at in range(0, len(content), size)]
            parts = [b""] * len(ranges)
            async for index, part in file.iter_ranges(ranges, depth=2):
                parts[index] = part
            return b"".join(parts)

        monkeypatch.setattr(file, "_stat", late_stat)
        monkeypatch.setattr(asyncio, "wait", late_wait)
        drop_cache(lines)
        running = asyncio.ensure_future(steps())
        await begun.wait()
        await asyncio.sleep(0.01)
        await file.close()
        assert file.closed
        with pytest.raises(ValueError, match="closed"):
            await file.read_at(1, 0)
        go.set()
        if call == "sendfile":
            received = asyncio.to_thread(lambda: far.makefile("rb").read())
            _, found = await asyncio.gather(running, received)
        else:
            found = await running
        is_whole = found == content
        assert is_whole
    assert file._file.closed


async def test_an_iterator_that_waits_for_its_caller_does_not_keep_the_file_open(
    lines: Path,
) -> None:
    file = await ringway.open(lines, "rb")
    ranges = file.iter_ranges([(0, 5), (5, 5)], depth=1)
    await ranges.__anext__()
    await file.close()
    assert file._file.closed
    with pytest.raises(ValueError, match="closed"):
        await ranges.__anext__()


async def test_an_iterator_that_waits_keeps_no_file_open_that_another_operation_needs(
    lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of the other operations closes it; the iterator is not the last, also if it goes on
    meanwhile."""
    for goes_on in (False, True):
        file = await ringway.open(lines, "rb")
        ranges = file.iter_ranges([(0, 5), (5, 5)], depth=1)
        await ranges.__anext__()
        stat, go = file._stat, asyncio.Event()

        async def late_stat(stat: Any = stat, go: asyncio.Event = go) -> os.stat_result:
            await go.wait()
            result: os.stat_result = await stat()
            return result

        monkeypatch.setattr(file, "_stat", late_stat)
        reading = asyncio.ensure_future(file.read_at(2 << 20, 0))
        await asyncio.sleep(0)
        await file.close()
        assert file.closed and not file._file.closed
        if goes_on:
            with pytest.raises(ValueError, match="closed"):
                await ranges.__anext__()
        go.set()
        assert await reading == lines.read_bytes()
        assert file._file.closed
        if not goes_on:
            with pytest.raises(ValueError, match="closed"):
                await ranges.__anext__()


@pytest.mark.parametrize("call", ["iter_ranges", "sendfile"])
async def test_errors_of_reads_that_nobody_awaits_are_not_logged(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    near, far = socket.socketpair()
    near.setblocking(False)
    # Its first pages are not mapped: each read of them fails (EIO).
    with near, far:
        async with ringway.open("/proc/self/mem", "rb") as file:
            with pytest.raises(OSError) as raised:
                if call == "sendfile":
                    await ringway.sendfile(near, file, 0, 1 << 20)
                else:
                    async for pair in file.iter_ranges([(0, 10)] * 20, depth=10):
                        raise AssertionError(pair)
            assert raised.value.errno == errno.EIO
    del raised
    gc.collect()
    await asyncio.sleep(0.01)
    assert not logged


@pytest.mark.parametrize("cancels", [False, True])
async def test_a_question_for_data_moves_no_appends(
    lines: Path, monkeypatch: pytest.MonkeyPatch, cancels: bool
) -> None:
    """A descriptor without O_APPEND appends at its own position, which a thread asks with."""
    begun, go = threading.Event(), threading.Event()

    def lseek(fd: int, offset: int, whence: int, real: Any = os.lseek) -> int:
        position: int = real(fd, offset, whence)
        if whence == os.SEEK_DATA:
            begun.set()
            go.wait(0.2 if cancels else 0)
        return position

    before = lines.read_bytes()
    fd = os.open(lines, os.O_RDWR)
    async with ringway.open(fd, "ab+") as file:
        monkeypatch.setattr(os, "lseek", lseek)
        seeking = asyncio.ensure_future(file.seek(10, os.SEEK_DATA))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        if cancels:
            await cancelled(seeking)
        else:
            assert await seeking == 10
        await file.write(b"appended")
    assert lines.read_bytes() == before + b"appended"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_an_interrupted_close_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    file = await ringway.open(tmp_path / "f", "wb")
    await file.write(b"collected")

    async def interrupted() -> None:
        raise kind

    monkeypatch.setattr(file, "_flush", interrupted)
    with pytest.raises(kind):
        await file.close()
    assert file.closed and file._file.closed
    for _ in range(3000):
        if (tmp_path / "f").read_bytes() == b"collected":
            return
        await asyncio.sleep(0.01)
    raise AssertionError("what was collected is not written")


async def test_nothing_of_a_pipe_is_lost_with_a_coroutine_that_is_closed() -> None:
    reader_fd, writer_fd = os.pipe()
    file = await ringway.open(reader_fd, "rb")
    reading = file.read(3)
    future = reading.send(None)
    os.write(writer_fd, b"abc")
    while not future.done():
        await asyncio.sleep(0.001)
    reading.close()
    os.write(writer_fd, b"def")
    assert await asyncio.wait_for(file.read(6), 10) == b"abcdef"
    await file.close()
    os.close(writer_fd)


async def test_the_result_for_a_coroutine_that_is_closed_is_undone(lines: Path) -> None:
    """It may have come already."""
    opened: list[int] = []

    def opener(path: str, flags: int) -> int:
        opened.append(os.open(path, flags))
        return opened[0]

    opening = ringway.open(lines, opener=opener).__await__()
    future = next(opening)
    while not future.done():
        await asyncio.sleep(0.001)
    opening.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])
