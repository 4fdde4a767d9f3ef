"""Reserved space, warming, transfers that leave no pages in the page cache, and untorn writes."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

import pytest

import ringway
from conftest import cached_pages, drop_cache


def direct_io(path: Path) -> bool:
    """Whether files here can be open for direct I/O."""
    flag: int = getattr(os, "O_DIRECT", 0)
    try:
        os.close(os.open(path, os.O_RDONLY | flag))
    except OSError:
        return False
    return flag != 0


pytestmark = pytest.mark.usefixtures("descriptors")
PAGE = mmap.PAGESIZE


async def test_space_is_reserved_behind_the_end(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    async with ringway.open(path, "wb+") as file:
        await file.write(b"first")
        await file.allocate(0, 10_000)
        assert await file.tell() == 5
        assert await file.read() == bytes(9995)
    assert path.read_bytes() == b"first" + bytes(9995)
    assert path.stat().st_blocks * 512 >= 10_000


async def test_written_space_begins_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    async with ringway.open(path, "wb") as file:
        await file.write(b"head")
        await file.allocate(4, 100_000, written=True)
        with pytest.raises(OSError, match=r"^\[Errno 22\] allocate\(written=True\): ") as refused:
            await file.allocate(50, 100, written=True)
        assert refused.value.filename == str(path)
    assert path.read_bytes() == b"head" + bytes(100_000)
    if direct_io(path):
        async with ringway.open(path, "rb+", direct=True) as file:
            with pytest.raises(OSError, match=r"see alignment\(\)"):
                await file.allocate(100_004, 100, written=True)
    async with ringway.open(path, "ab") as file:
        with pytest.raises(OSError, match="mode 'a'"):
            await file.allocate(100_004, 100, written=True)
    assert path.stat().st_size == 100_004


async def test_no_space_is_reserved_for_readers(lines: Path) -> None:
    async with ringway.open(lines, "rb") as file:
        with pytest.raises(OSError, match="not writable"):
            await file.allocate(0, 10)
        with pytest.raises(OSError, match="not writable"):
            await file.write_untorn_at(bytes(PAGE), 0)
    async with ringway.open(lines, "rb+") as file:
        for numbers in ((-1, 10), (0, -10), (0, 1 << 64)):
            with pytest.raises(OverflowError):
                await file.allocate(*numbers)
        with pytest.raises(OSError, match="Invalid argument"):
            await file.allocate(0, 0)


async def test_ranges_are_warmed(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(os.urandom(64 * PAGE))
    drop_cache(path)
    async with ringway.open(path, "rb") as file:
        warmed = await file.warm([(0, 10), (5, 10), (60 * PAGE, 100 * PAGE), (100 * PAGE, 1)])
        assert warmed.cached + warmed.read == 5 * PAGE
        assert warmed.failed == []
        assert cached_pages(file.fileno()) >= 5
        assert await file.tell() == 0
        again = await file.warm([(0, 2 * PAGE)])
        assert again.cached + again.read == 2 * PAGE
        assert await file.warm([(5, 0), (1 << 63, 1 << 63), (1 << 70, 1)]) == (0, 0, [])
        for ranges in ([(-1, 10)], [(0, -1)], [(10, -5)]):
            with pytest.raises(OverflowError):
                await file.warm(ranges)
        with pytest.raises(TypeError):
            await file.warm([(0, 1.5)])  # type: ignore[list-item]


async def test_what_has_no_pages_is_not_warmed(tmp_path: Path) -> None:
    read, write = os.pipe()
    try:
        async with ringway.open(read, "rb") as file:
            with pytest.raises(OSError, match="warm: ") as refused:
                await file.warm([(0, 1)])
            assert refused.value.errno == errno.EINVAL
    finally:
        os.close(write)


@pytest.mark.parametrize("opened_by", ["path", "opener", "descriptor"])
async def test_transfers_leave_no_pages_or_say_why(tmp_path: Path, opened_by: str) -> None:
    path = tmp_path / "scanned"
    content = os.urandom(16 * PAGE)
    path.write_bytes(content)
    drop_cache(path)
    if opened_by == "descriptor":
        opening = ringway.open(os.open(path, os.O_RDONLY), "rb", dont_cache=True)
    elif opened_by == "opener":
        opening = ringway.open(path, "rb", opener=os.open, dont_cache=True)
    else:
        opening = ringway.open(path, "rb", dont_cache=True)
    async with opening as file:
        assert await file.read_at(len(content), 0) == content
        refusal = file.dont_cache_refusal()
        if refusal is None:
            assert cached_pages(file.fileno()) == 0
        else:
            assert "RWF_DONTCACHE" in refusal
    async with ringway.open(path, "r", encoding="latin-1", newline="", dont_cache=True) as text:
        assert (await text.read()).encode("latin-1") == content


async def test_pages_are_kept_without_a_word(lines: Path) -> None:
    async with ringway.open(lines, "rb") as file:
        assert await file.read()
        assert file.dont_cache_refusal() is None
        assert cached_pages(file.fileno()) == -(-lines.stat().st_size // PAGE)


async def test_a_write_is_untorn_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    path.write_bytes(bytes(4 * PAGE))
    page = ringway.buffer(PAGE)
    page[:] = b"\7" * PAGE
    async with ringway.open(path, "rb+") as file:
        unit = await file.atomic_write_unit()
        # Of a file that uses the page cache, never.
        with pytest.raises(OSError, match="untorn") as refused:
            await file.write_untorn_at(page, 0)
        assert refused.value.errno == errno.EOPNOTSUPP
        assert refused.value.filename == str(path)
    assert path.read_bytes() == bytes(4 * PAGE)
    if unit is None:
        return
    assert unit.min <= unit.max
    if not unit.min <= PAGE <= unit.max:
        return
    assert unit.max_segments >= 1
    async with ringway.open(path, "rb+", direct=True) as file:
        await file.write_untorn_at(page, PAGE, durable=True)
        with pytest.raises(OSError, match="power of two") as refused:
            await file.write_untorn_at(memoryview(page)[: PAGE // 2 + 512], 0)
        assert refused.value.errno == errno.EINVAL
    assert path.read_bytes() == bytes(PAGE) + bytes(page) + bytes(2 * PAGE)


async def test_closed_files_do_nothing(lines: Path) -> None:
    file = await ringway.open(lines, "rb+")
    await file.close()
    with pytest.raises(ValueError, match="closed file"):
        await file.allocate(0, 1)
    with pytest.raises(ValueError, match="closed file"):
        await file.warm([(0, 1)])
    with pytest.raises(ValueError, match="closed file"):
        await file.atomic_write_unit()
    with pytest.raises(ValueError, match="closed file"):
        await file.write_untorn_at(b"", 0)
    with pytest.raises(ValueError, match="closed file"):
        file.dont_cache_refusal()
