"""Reads and writes at offsets, many ranges, direct I/O, replaced files and logs."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import mmap
import os
import re
import stat
import tracemalloc
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringway
from conftest import drop_cache
from ringway._binary import octets

pytestmark = pytest.mark.usefixtures("descriptors")


async def test_reads_at_offsets_leave_the_position(lines: Path) -> None:
    expected = lines.read_bytes()
    async with ringway.open(lines, "rb") as file:
        await file.seek(7)
        for offset, size in ((0, 10), (5000, 100), (len(expected) - 5, 10), (1 << 40, 3), (3, 0)):
            assert await file.read_at(size, offset) == expected[offset : offset + size]
        assert await file.read_at(1 << 40, 0) == expected
        assert await file.tell() == 7


@pytest.mark.parametrize("kind", ["bytearray", "memoryview", "mmap", "numpy", "page"])
@pytest.mark.parametrize("cached", [True, False])
async def test_reads_into_buffers(lines: Path, kind: str, cached: bool) -> None:
    expected = lines.read_bytes()
    made: dict[str, Any] = {
        "bytearray": bytearray(5000),
        "memoryview": memoryview(bytearray(6000))[500:5500],
        "mmap": mmap.mmap(-1, 5000),
        "numpy": np.zeros((50, 25), dtype=np.int32),
        "page": ringway.buffer(5000),
    }
    if not cached:
        drop_cache(lines)
    async with ringway.open(lines, "rb") as file:
        assert await file.readinto_at(made[kind], 300) == 5000
        assert bytes(memoryview(made[kind])) == expected[300:5300]
        assert await file.readinto_at(made[kind], len(expected) - 3) == 3
        assert await file.readinto_at(bytearray(), 0) == 0


@pytest.mark.parametrize(
    ("buffer", "error"),
    [(b"read-only", BufferError), (np.zeros((4, 4))[:, 1], ValueError), ("text", TypeError)],
)
async def test_buffers_that_cannot_be_filled(
    lines: Path, buffer: Any, error: type[Exception]
) -> None:
    async with ringway.open(lines, "rb") as file:
        with pytest.raises((error, BufferError)):
            await file.readinto_at(buffer, 0)


async def test_bad_numbers(lines: Path) -> None:
    async with ringway.open(lines, "rb+") as file:
        for call in (
            file.read_at(1, -1),
            file.read_at(-1, 0),
            file.write_at(b"x", -1),
            file.readinto_at(bytearray(1), -1),
            file.read_ranges([(0, -1)]),
        ):
            with pytest.raises(OverflowError):
                await call
        with pytest.raises(OverflowError, match="a range of -1 bytes from 7 on"):
            await file.read_ranges([(0, 1), (7, -1)])
        content = await file.read_at(10, 0)
        with pytest.raises(TypeError):
            await file.write_at(b"x", None)  # type: ignore[arg-type]
        assert await file.read_at(10, 0) == content
        with pytest.raises(OSError) as raised:
            await file.read_at(1, (1 << 63) + 1)
        assert raised.value.errno == errno.EINVAL


async def test_writes_at_offsets(tmp_path: Path) -> None:
    path = tmp_path / "new"
    async with ringway.open(path, "wb+") as file:
        array = np.arange(100, dtype=np.uint8)
        assert await file.write_at(array, 50) == 100
        assert await file.write_at(b"durable", 0, durable=True) == 7
        assert await file.write_at(bytearray(b"x"), 20) == 1
        assert await file.tell() == 0
        await file.sync()
        await file.sync(data_only=True)
    content = path.read_bytes()
    assert content[:7] == b"durable" and content[20:21] == b"x" and content[50:] == bytes(array)


RANGES = [(0, 10), (40_000, 4096), (4096, 100), (48_880, 1000), (1 << 30, 5), (7, 0)]


@pytest.mark.parametrize("cached", [True, False])
async def test_many_ranges_at_once(lines: Path, cached: bool) -> None:
    expected = [lines.read_bytes()[offset : offset + size] for offset, size in RANGES]
    if not cached:
        drop_cache(lines)
    async with ringway.open(lines, "rb") as file:
        assert await file.read_ranges(RANGES) == expected
        assert await file.read_ranges([]) == []
        whole = np.zeros(sum(size for _, size in RANGES), dtype=np.uint8)
        counts = await file.read_ranges(RANGES, out=whole)
        assert counts == [len(part) for part in expected]
        assert bytes(whole[:4206]) == b"".join(expected[:3])
        buffers = [bytearray(size) for _, size in RANGES]
        assert await file.read_ranges(RANGES, out=buffers) == counts
        assert [bytes(one[:n]) for one, n in zip(buffers, counts, strict=True)] == expected
        for out in (bytearray(10), [bytearray(1)]):
            with pytest.raises(ValueError, match="out: "):
                await file.read_ranges(RANGES, out=out)
        found = [pair async for pair in file.iter_ranges(RANGES, depth=2)]
        assert sorted(found) == list(enumerate(expected))


async def test_an_iteration_that_stops_cancels_the_rest() -> None:
    """Reads of a pipe, which would never end."""
    reader_fd, writer_fd = os.pipe()
    async with ringway.open(reader_fd, "rb") as file:
        ranges = file.iter_ranges(((at * 1000, 100) for at in range(50)), depth=10)
        first = asyncio.ensure_future(anext(ranges))
        await asyncio.sleep(0.01)
        os.write(writer_fd, b"x" * 100)
        assert (await first)[1] == b"x" * 100
        engine = ringway._engine()
        assert engine.in_flight() > 0
        await ranges.aclose()  # type: ignore[attr-defined]
        for _ in range(3000):
            if engine.in_flight() == 0:
                break
            await asyncio.sleep(0.01)
        assert engine.in_flight() == 0
        os.close(writer_fd)
        with pytest.raises(ValueError):
            async for _ in file.iter_ranges([], depth=0):
                pass


async def test_a_whole_read_needs_the_memory_of_its_result(tmp_path: Path) -> None:
    """aiofile's peak is 2.4 times that."""
    path, size = tmp_path / "large", 32 << 20
    path.write_bytes(os.urandom(1 << 20) * 32)
    async with ringway.open(path, "rb") as file:
        tracemalloc.start()
        try:
            data = await file.read()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert len(data) == size and peak < 1.05 * size


async def test_nothing_leaks(lines: Path) -> None:
    async def work() -> None:
        async with ringway.open(lines, "rb") as file:
            for _ in range(50):
                await file.read_at(5000, 10)
                await file.readinto_at(bytearray(100), 5)
                await file.read_ranges([(0, 10)] * 5)
            drop_cache(lines)
            await asyncio.gather(*(file.read_at(100, 1000 * at) for at in range(50)))
            async for _ in file:
                pass

    await work()
    tracemalloc.start()
    try:
        await work()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(5):
            await work()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 50_000


async def test_direct(tmp_path: Path) -> None:
    path = tmp_path / "direct"
    content = os.urandom(10_000)
    path.write_bytes(content)
    async with ringway.open(path, "rb+", direct=True) as file:
        assert file.direct
        step, memory = file.alignment()
        assert step >= 512 and memory >= 1
        # Reads need no alignment, and the tail none either.
        assert await file.read() == content
        for offset, size in ((0, 4096), (1, 100), (9_000, 4096), (9_999, 1), (10_000, 1)):
            assert await file.read_at(size, offset) == content[offset : offset + size]
        page = ringway.buffer(8192)
        assert await file.readinto_at(page, 4096) == 10_000 - 4096
        assert bytes(page[: 10_000 - 4096]) == content[4096:]
        page[:4096] = bytes(range(256)) * 16
        assert await file.write_at(page[:4096], 0) == 4096
        with pytest.raises(OSError) as raised:
            await file.write_at(page[:100], 0)
        assert raised.value.errno == errno.EINVAL
        assert f"multiple of {step}" in str(raised.value)
    assert path.read_bytes()[:4096] == bytes(range(256)) * 16
    async with ringway.open(path, "rb") as file:
        assert not file.direct
    with pytest.raises(ValueError, match="binary"):
        await ringway.open(path, direct=True)


async def test_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"", b"x", os.urandom(100_000)):
        path.write_bytes(content)
        assert await ringway.read_file(path) == content
        drop_cache(path) if content else None
        assert await ringway.read_file(str(path)) == content
    assert len(await ringway.read_file("/proc/self/maps")) > 4096
    with pytest.raises(FileNotFoundError) as raised:
        await ringway.read_file(tmp_path / "none")
    assert raised.value.filename == str(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        await ringway.read_file(tmp_path)


async def test_replaced_files_keep_mode_and_link(tmp_path: Path) -> None:
    """safetensors and others leave mode 0600, and replace the link."""
    path, link = tmp_path / "file", tmp_path / "link"
    old = os.umask(0o027)
    try:
        await ringway.write_atomic(path, b"one")
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    link.symlink_to("file")
    await ringway.write_atomic(link, bytearray(b"two"))
    assert link.is_symlink() and path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    await ringway.write_atomic(link, np.frombuffer(b"three", dtype=np.uint8), follow_symlinks=False)
    assert not link.is_symlink() and link.read_bytes() == b"three" and path.read_bytes() == b"two"
    dangling = tmp_path / "dangling"
    dangling.symlink_to("sub")
    await ringway.write_atomic(dangling, b"made")
    assert (tmp_path / "sub").read_bytes() == b"made" and dangling.is_symlink()
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(OSError) as raised:
        await ringway.write_atomic(loop, b"")
    assert (raised.value.errno, raised.value.filename) == (errno.ELOOP, str(loop))
    assert sorted(os.listdir(tmp_path)) == ["dangling", "file", "link", "loop", "sub"]


async def test_a_log_of_many_tasks(tmp_path: Path) -> None:
    path = tmp_path / "log"
    records = [b"%d;" % number * 10 for number in range(200)]
    async with await ringway.LogWriter.open(path) as log:
        offsets = await asyncio.gather(*(log.append(record) for record in records))
    content = path.read_bytes()
    assert len(content) == sum(map(len, records))
    for offset, record in zip(offsets, records, strict=True):
        assert content[offset : offset + len(record)] == record
    async with await ringway.LogWriter.open(path) as log:
        assert await log.append(bytearray(b"last")) == len(content)
    with pytest.raises(ValueError, match="closed"):
        await log.append(b"")
    async with ringway.open(path, "ab") as file:
        with pytest.raises(OSError, match="O_APPEND"):
            ringway.LogWriter(file, 0)


async def test_errors_name_the_file(tmp_path: Path) -> None:
    async with ringway.open("/dev/full", "wb", 0) as full:
        for call in (full.write, lambda data: full.write_at(data, 0)):
            with pytest.raises(OSError) as raised:
                await call(b"x")
            assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, "/dev/full")
    async with ringway.open("/dev/full", "wb") as full:
        await full.write(b"buffered")
        with pytest.raises(OSError) as raised:
            await full.flush()
        assert raised.value.filename == "/dev/full"
    with pytest.raises(OSError) as raised:
        async with ringway.open("/dev/full", "wb") as full:
            await full.write(b"buffered")
    assert raised.value.filename == "/dev/full" and full.closed
    path = tmp_path / "file"
    path.write_bytes(b"content")
    async with ringway.open(path, "rb+") as file:
        for failing in (
            file.read_at(1, (1 << 63) + 1),
            file.readinto_at(bytearray(1), (1 << 63) + 1),
            file.read_ranges([((1 << 63) + 1, 1)]),
            file.read_ranges([((1 << 63) + 1, 1)], out=bytearray(1)),
            file.write_at(b"x", (1 << 63) + 1),
            file.truncate((1 << 63) + 1),
            file.seek(-1),
        ):
            with pytest.raises(OSError) as raised:
                await failing
            assert (raised.value.errno, raised.value.filename) == (errno.EINVAL, str(path))
    async with ringway.open(os.open("/dev/full", os.O_WRONLY), "wb", 0) as full:
        with pytest.raises(OSError) as raised:
            await full.write(b"x")
        # As with os.write, a number is no name.
        assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, None)
    for rename in (ringway.os.rename, ringway.os.link):
        with pytest.raises(FileNotFoundError) as raised:
            await rename(tmp_path / "none", tmp_path / "other")
        names = (raised.value.filename, raised.value.filename2)
        assert names == (str(tmp_path / "none"), str(tmp_path / "other"))
    async with ringway.open(path, "ab") as file:
        with pytest.raises(OSError, match="O_APPEND") as raised:
            ringway.LogWriter(file, 0)
        assert raised.value.filename == str(path)


async def test_an_error_behind_a_part_is_no_end(tmp_path: Path) -> None:
    """Memory of a file that has become shorter: the kernel reads a part of it, then fails."""
    page = mmap.PAGESIZE
    path = tmp_path / "mapped"
    path.write_bytes(b"x" * 2 * page)
    with path.open("rb+") as mapped, mmap.mmap(mapped.fileno(), 2 * page) as memory:
        first = ctypes.c_char.from_buffer(memory)
        address = ctypes.addressof(first)
        mapped.truncate(page)
        async with ringway.open("/proc/self/mem", "rb") as file:
            assert await file.read_at(page, address) == b"x" * page
            into = bytearray(2 * page)
            for read in (
                lambda: file.read_at(2 * page, address),
                lambda: file.readinto_at(into, address),
                lambda: file.read_ranges([(address, 2 * page)]),
            ):
                with pytest.raises(OSError) as caught:
                    await read()
                assert caught.value.errno == errno.EIO
        with pytest.raises(OSError):
            ringway.read_many([("/proc/self/mem", address, 2 * page)])
        del first


async def test_more_than_a_large_file_has(tmp_path: Path) -> None:
    """No memory is reserved for it: a terabyte would not be there."""
    path, expected = tmp_path / "large", os.urandom(3 << 20)
    path.write_bytes(expected)
    for more in (len(expected) + 1, 1 << 40):
        async with ringway.open(path, "rb") as file:
            assert await file.read(more) == expected
            assert await file.read_at(more, 5) == expected[5:]
        assert ringway.read_many([(path, 0, more), (path, 9, more)]) == [expected, expected[9:]]


async def test_a_device_has_more_than_its_size() -> None:
    size = 4 << 20
    async with ringway.open("/dev/zero", "rb") as file:
        assert len(await file.read(size)) == size
        assert len(await file.read_at(size, 5)) == size
    assert [len(one) for one in ringway.read_many([("/dev/zero", 0, size)])] == [size]


async def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"line\n")
    with path.open("rb") as plain, pytest.raises(ValueError, match="direct"):
        await ringway.open(plain.fileno(), "rb", closefd=False, direct=True)
    async with ringway.open(path, "rb") as file:
        with pytest.raises(OverflowError, match="-5 bytes"):
            await file.read_ranges([(0, -5)], out=bytearray(10))
        assert await file.readline(0) == b"" and await file.readline() == b"line\n"
    async with await ringway.LogWriter.open(tmp_path / "log") as log:
        with pytest.raises(TypeError):
            await log.append(5)  # type: ignore[arg-type]
    reader, writer = os.pipe()
    os.close(writer)
    async with ringway.open(reader, "rb") as pipe:
        with pytest.raises(ValueError, match="pipe"):
            await ringway.sendfile(None, pipe)  # type: ignore[arg-type]


async def test_nothing_is_read_into_memory_after_an_error(lines: Path) -> None:
    expected = lines.read_bytes()
    async with ringway.open(lines, "rb") as file:
        for _ in range(10):
            drop_cache(lines)
            buffers = [bytearray(4096) for _ in range(10)]
            ranges = [(4096 * at, 4096) for at in range(10)]
            with pytest.raises(OSError, match="offset"):
                await file.read_ranges([((1 << 63) + 1, 1), *ranges], out=[bytearray(1), *buffers])
            for at, buffer in enumerate(buffers):
                # One that the kernel still has cannot be resized.
                buffer.append(0)
                assert buffer[:4096] == expected[4096 * at :][:4096]


async def test_direct_writes_at_the_position(tmp_path: Path) -> None:
    """Those that the kernel would refuse are refused before anything of them is collected."""
    path = tmp_path / "direct"
    async with ringway.open(path, "wb", direct=True) as file:
        for data in (b"a" * 4096, bytearray(b"b" * 8192), b"c" * (1 << 20), b"d" * 4096):
            assert await file.write(data) == len(data)
        with pytest.raises(OSError, match="multiples of") as raised:
            await file.write(b"x" * 100)
        assert (raised.value.errno, raised.value.filename) == (errno.EINVAL, str(path))
        assert await file.tell() == 4096 * 4 + (1 << 20)
        await file.seek(5)
        with pytest.raises(OSError, match="position 5"):
            await file.write(b"x" * 4096)
        await file.seek(4096)
        await file.write(b"e" * 4096)
    parts = [b"a" * 4096, b"e" * 4096, b"b" * 4096, b"c" * (1 << 20), b"d" * 4096]
    assert path.read_bytes() == b"".join(parts)


async def test_ranges_behind_the_end_need_no_memory(tmp_path: Path) -> None:
    """A terabyte would not be there."""
    path, content = tmp_path / "short", os.urandom(3 << 20)
    path.write_bytes(content)
    ranges = [(0, 1 << 40), (5, 1 << 40), (1 << 30, 1 << 40), (0, 10)]
    async with ringway.open(path, "rb") as file:
        expected = [content, content[5:], b"", content[:10]]
        assert await file.read_ranges(ranges) == expected
        with path.open("ab") as other:
            other.write(content)
        assert await file.read_ranges([(0, 1 << 40), (3 << 20, 9)]) == [2 * content, content[:9]]
    async with ringway.open("/proc/self/maps", "rb") as file:
        [whole] = await file.read_ranges([(0, 1 << 40)])
        assert len(whole) > 4096


async def test_a_log_that_exists_is_durable_when_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that created it may have ended before it has synced the file or the name."""
    synced: list[str] = []

    async def sync_dir(path: str) -> None:
        synced.append(path)

    async def sync(file: ringway.AsyncFile) -> None:
        synced.append(file.name)

    monkeypatch.setattr("ringway._bulk.sync_dir", sync_dir)
    monkeypatch.setattr(ringway.AsyncFile, "sync", sync)
    path = tmp_path / "log"
    path.write_bytes(b"old")
    async with await ringway.LogWriter.open(path) as log:
        assert synced == [str(tmp_path), str(path)]
        assert await log.append(b"new") == 3


@pytest.mark.parametrize("append", [False, True])
async def test_a_direct_write_is_checked_in_its_turn(tmp_path: Path, append: bool) -> None:
    """The position of its call is not the one it is written at."""
    path = tmp_path / "direct"
    file = await ringway.open(path, "ab" if append else "wb+", 0, direct=True)
    async with file._turn:
        pending = asyncio.ensure_future(file.write(b"x" * 4096))
        await asyncio.sleep(0)
        file._pos = 5
    with pytest.raises(OSError, match="position 5"):
        await pending
    async with file._turn:
        pending = asyncio.ensure_future(file.write(b"x" * 4096))
        await asyncio.sleep(0)
        file._pos = 0
    assert await pending == 4096
    await file.close()
    assert path.read_bytes() == b"x" * 4096


async def test_an_unclosed_direct_file_is_written(tmp_path: Path) -> None:
    for mode in ("wb", "rb+", "ab"):
        path = tmp_path / "direct"
        file = await ringway.open(path, mode, direct=True)
        await file.write(mode[:1].encode() * 8192)
        with pytest.warns(ResourceWarning, match="unclosed"):
            del file
            gc.collect()
    assert path.read_bytes() == b"r" * 8192 + b"a" * 8192


async def test_a_pipe_of_packets_is_not_direct() -> None:
    """Its O_DIRECT means something else."""
    reader, writer = os.pipe2(os.O_DIRECT)
    async with ringway.open(reader, "rb", 0) as packets:
        async with ringway.open(writer, "wb", 0) as file:
            assert not file.direct and not packets.direct
            assert await file.write(b"one") == 3 and await file.write(b"and two") == 7
        assert await packets.read(100) == b"one"
        assert await packets.read(100) == b"and two"


async def test_pairs_of_any_kind(lines: Path) -> None:
    expected = lines.read_bytes()
    kinds: Any = (
        [[0, 2]],
        iter([(0, 2)]),
        np.array([[0, 2]]),
        [np.array([0, 2])],
        [range(0, 4, 2)],
    )
    async with ringway.open(lines, "rb") as file:
        for ranges in kinds:
            assert await file.read_ranges(ranges) == [expected[:2]]
        lists: Any = [[5, 3]]
        buffer = bytearray(3)
        assert await file.read_ranges(lists, out=buffer) == [3] and buffer == expected[5:8]
        assert [got async for got in file.iter_ranges(lists)] == [(0, expected[5:8])]
        for wrong in ([5], [(1, 2, 3)], ["abc"], [(1,)]):
            bad: Any = wrong
            with pytest.raises(TypeError, match=r"a pair \(offset, length\) is needed"):
                await file.read_ranges(bad)
            with pytest.raises(TypeError, match=r"a pair \(offset, length\) is needed"):
                async for _ in file.iter_ranges(bad):
                    pass


async def test_errors_speak_of_python(tmp_path: Path) -> None:
    """The crate's names for types, functions and limits mean nothing to its users."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4096)
    texts = []

    async def fails(call: Any) -> None:
        with pytest.raises((OSError, OverflowError, TypeError, ValueError)) as raised:
            await call
        texts.append(str(raised.value))

    async def log(*arguments: Any, **named: Any) -> None:
        async with ringway.open(path, *arguments, **named) as file:
            ringway.LogWriter(file, (1 << 63) + 1 if file.mode == "rb+" else 0)

    async with ringway.open(path, "rb+") as file:
        too_far = (1 << 63) + 1
        for call in (
            file.read_at(1, too_far),
            file.read_at(1, 1 << 64),
            file.read_at(-1, 0),
            file.read_at("1", 0),  # type: ignore[arg-type]
            file.readinto_at(bytearray(1), too_far),
            file.write_at(b"x", too_far),
            file.write_at(b"x", too_far, durable=True),
            file.write_at(None, 0),
            file.read_ranges([(too_far, 1)]),
            file.read_ranges([(0, -1)]),
            file.read_ranges([(None, 1)]),  # type: ignore[list-item]
            file.truncate(too_far),
            file.truncate(1 << 64),
            file.seek(1 << 64),
        ):
            await fails(call)
    reader, writer = os.pipe()
    async with ringway.open(reader, "rb"), ringway.open(writer, "wb") as sink:
        await fails(sink.write_at(b"x", 0, durable=True))
        await fails(sink.sync())
    for arguments in (("rb+", 0), ("ab", 0)):
        await fails(log(*arguments))
    await fails(log("wb+", direct=True))
    await fails(ringway.open(tmp_path / "none", "rb"))
    await fails(ringway.open(path, "rb", closefd=None))  # type: ignore[call-overload]
    await fails(ringway.write_atomic("/dev/null", b"x"))
    await fails(ringway.write_atomic("", b"x"))
    with pytest.raises(TypeError) as raised:
        ringway.read_many([(path, "0", 1)])  # type: ignore[list-item]
    texts.append(str(raised.value))
    for text in texts:
        assert not re.search(
            r"::|\b[iu](8|16|32|64|size)\b|Option|Vec<|Some\(|None\)|Rust", text
        ), text


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int64])
async def test_numbers_of_numpy_do_not_wrap(tmp_path: Path, kind: Any) -> None:
    path, content = tmp_path / "file", bytes(range(256)) * 300
    path.write_bytes(content)
    most = int(min(np.iinfo(kind).max, 65_000))
    at, size = kind(most), kind(200)
    async with ringway.open(path, "rb") as file:
        assert type(await file.seek(at)) is int
        for step in range(3):
            start = most + 200 * step
            assert await file.read(size) == content[start : start + 200]
        assert await file.seek(size, 1) == most + 800 and await file.seek(kind(0), 2) == 76_800
        await file.seek(100)
        assert await file.peek() == content[100 : 100 + 8192]
        assert await file.read1(size) == content[100:300]
        assert await file.readline(size) == content[300:500].split(b"\n")[0]
        assert await file.read_ranges([(at, size)]) == [content[most : most + 200]]
        out = bytearray(400)
        assert await file.read_ranges([(0, size), (at, size)], out=out) == [200, 200]
        assert out == content[:200] + content[most : most + 200]
        pieces = [piece async for piece in file.iter_ranges([(at, size)])]
        assert pieces == [(0, content[most : most + 200])]
        with pytest.raises(TypeError):
            await file.seek(1.0)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await file.read_ranges([(0.5, 1)])  # type: ignore[list-item]
        for offset, whence in ((1 << 63, 0), ((1 << 63) - 1, 1), ((1 << 63) - 1, 2)):
            with pytest.raises(OverflowError):
                await file.seek(offset, whence)
        await file.seek((1 << 63) - 1)
    async with ringway.open(path, "rb+") as file:
        assert type(await file.truncate(size)) is int
    assert path.read_bytes() == content[:200]
    large = tmp_path / "large"
    large.write_bytes(content * 60)
    async with ringway.open(large, "rb") as file:
        size = np.uint32(3 << 20)
        assert await file.read_at(size, at) == (content * 60)[most : most + (3 << 20)]
    many = ringway.read_many([(large, at, kind(200)), (large, 0, kind(200))])
    assert many == [content[most : most + 200], content[:200]]
    buffer = bytearray(200)
    assert ringway.readinto_many([(large, at)], [buffer]) == [200]
    assert buffer == content[most : most + 200]
    (tmp_path / "text").write_text("a" * 70_000 + "end")
    async with ringway.open(tmp_path / "text") as text:
        assert type(await text.seek(at)) is int
        assert [len(await text.read(size)) for size in (kind(100), kind(120), kind(100))] == [
            100,
            120,
            100,
        ]
        assert await text.tell() == most + 320
        with pytest.raises(TypeError):
            await text.seek(1.0)  # type: ignore[arg-type]


async def test_a_write_at_an_offset_is_read_by_what_reads_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old\n" * 100)
    async with ringway.open(path, "rb+") as file:
        assert await file.readline() == b"old\n"
        await file.write_at(b"xxx", 1000)
        assert file._ahead
        await file.write_at(b"NEW", 0)
        await file.seek(0)
        assert await file.readline() == b"NEW\n"
        assert await file.readline() == b"old\n"
        await file.write_at(b"new", 8)
        assert await file.read(4) == b"new\n"

    # A write that ends while a chunk is being read, or begins then.
    async with ringway.open(path, "rb+") as file:
        inner = ringway._binary.run
        writes = [b"1st", b"2nd"]

        async def late(started: Any) -> Any:
            result = await inner(started)
            if writes:
                await file.write_at(writes.pop(0), 12)
            return result

        monkeypatch.setattr("ringway._binary.run", late)
        assert await file.readline() == b"NEW\n"
        assert not writes
        monkeypatch.undo()
        await file.seek(12)
        assert await file.readline() == b"2nd\n"
        assert await file.readline() == b"old\n"


@pytest.mark.parametrize(
    "array",
    [
        np.empty((0, 3), "u1"),
        np.empty((2, 0, 3), "f4"),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.array([(1, 2.5)], dtype=[("a", "u1"), ("b", "f8")]),
        np.float64(3.5),
    ],
)
async def test_buffers_of_any_shape_and_format(tmp_path: Path, array: Any) -> None:
    path, content = tmp_path / "file", array.tobytes()
    async with ringway.open(path, "wb+") as file:
        assert await file.write(array) == len(content)
        await file.write_at(array, len(content))
        await file.seek(0)
        assert await file.read() == 2 * content
        await file.seek(0)
        copy = np.zeros_like(array)
        assert await file.readinto(copy) == len(content)
        assert copy.tobytes() == content
        ranges = [(0, len(content))]
        assert await file.read_ranges(ranges, out=np.zeros_like(array)) == [len(content)]
        with pytest.raises(TypeError):
            await file.write(np.arange(6).reshape(2, 3).T)


def test_views_are_those_of_the_object() -> None:
    """Not views of a view, on which CPython's garbage collector crashes if a cycle holds both."""
    for whole in (
        bytearray(16),
        array("d", [1.0, 2.0]),
        np.zeros((2, 3)),
        np.zeros(2, ">f8"),
        b"bytes",
    ):
        for data in (whole, memoryview(whole)):
            view = octets(data)
            assert (view.format, view.nbytes) == ("B", memoryview(whole).nbytes)
            assert view.obj is whole
    pairs = np.zeros(2, [("a", "i4"), ("b", "f8")])
    assert octets(pairs).obj is pairs
    for empty in (bytearray(), b"", np.zeros((0, 3)), memoryview(np.zeros((0, 3)))):
        view = octets(empty)
        assert not isinstance(view.obj, memoryview)
        assert (view.nbytes, view.readonly) == (0, memoryview(empty).readonly)
