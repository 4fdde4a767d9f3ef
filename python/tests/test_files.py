"""Binary files: what aiofiles documents, compared with the built-in open."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import io
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ringway
from conftest import drop_cache
from ringway._open import wrap

pytestmark = pytest.mark.usefixtures("descriptors")
MODES = ["rb", "rb+", "ab+"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("buffering", [-1, 0, 100])
async def test_reads_are_those_of_open(lines: Path, mode: str, buffering: int) -> None:
    async with ringway.open(lines, mode, buffering) as ours:
        with open(lines, "rb") as theirs:
            assert await ours.seek(0) == 0
            for size in (0, 1, 7, 4096, 20_000):
                assert await ours.read(size) == theirs.read(size)
                assert await ours.tell() == theirs.tell()
            assert await ours.readline() == theirs.readline()
            assert await ours.readline(3) == theirs.readline(3)
            assert await ours.tell() == theirs.tell()
            assert await ours.readlines(50) == theirs.readlines(50)
            ours_into, theirs_into = bytearray(5000), bytearray(5000)
            assert await ours.readinto(ours_into) == theirs.readinto(theirs_into)
            assert ours_into == theirs_into
            assert (await ours.peek())[:1] == theirs.peek()[:1]
            assert len(await ours.read1(10)) == 10 == len(theirs.read1(10))
            assert await ours.read() == theirs.read()
            assert await ours.read() == b"" == await ours.read(10) == await ours.readline()
            assert await ours.seek(-8, os.SEEK_END) == theirs.seek(-8, os.SEEK_END)
            assert await ours.seek(-8, os.SEEK_CUR) == theirs.seek(-8, os.SEEK_CUR)
            assert [line async for line in ours] == list(theirs)
    assert ours.closed


async def test_iteration_goes_on_after_readline(lines: Path) -> None:
    """As with aiofiles; aiofile begins at the start of the file again."""
    async with ringway.open(lines, "rb") as file:
        assert await file.readline() == b"line 0\n"
        async for line in file:
            assert line == b"line 1\n"
            break
        assert await file.read(7) == b"line 2\n"


@pytest.mark.parametrize("buffering", [-1, 0])
async def test_what_is_written_is_visible_after_flush(tmp_path: Path, buffering: int) -> None:
    path = tmp_path / "new"
    async with ringway.open(path, "wb", buffering) as file:
        assert await file.write(b"0") == 1
        assert path.read_bytes() == (b"" if buffering else b"0")
        await file.flush()
        assert path.read_bytes() == b"0"
        await file.writelines([b"1", bytearray(b"2"), memoryview(b"3")])
        assert await file.tell() == 4
    assert path.read_bytes() == b"0123"


async def test_large_writes_and_small_ones_keep_their_order(tmp_path: Path) -> None:
    path, expected = tmp_path / "new", b""
    async with ringway.open(path, "wb") as file:
        for size in (10, 100_000, 5, 65_536, 1, 65_535, 3, 200_000):
            data = bytes([size % 251]) * size
            expected += data
            assert await file.write(data) == size
    assert path.read_bytes() == expected


async def test_reading_and_writing_share_the_position(tmp_path: Path) -> None:
    path = tmp_path / "both"
    path.write_bytes(b"0123456789")
    async with ringway.open(path, "rb+") as file:
        assert await file.read(2) == b"01"
        await file.write(b"xx")
        assert await file.read(2) == b"45"
        assert await file.readline() == b"6789"
        await file.seek(1)
        await file.write(b"y")
        assert await file.tell() == 2
        await file.seek(0)
        assert await file.read() == b"0yxx456789"
        await file.truncate(4)
        assert await file.tell() == 10
    assert path.read_bytes() == b"0yxx"


async def test_appends_go_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"abc")
    async with ringway.open(path, "ab+") as file:
        assert await file.tell() == 3
        await file.seek(0)
        await file.write(b"d")
        await file.flush()
        assert await file.tell() == 4
        with open(path, "ab") as other:
            other.write(b"e")
        await file.write(b"f")
        await file.seek(0)
        assert await file.read() == b"abcdef"


async def test_truncate_is_at_the_position(tmp_path: Path) -> None:
    path = tmp_path / "cut"
    path.write_bytes(b"0123456789")
    async with ringway.open(path, "rb+") as file:
        await file.read(3)
        assert await file.truncate() == 3
        assert await file.truncate(5) == 5
    assert path.read_bytes() == b"012\0\0"


async def test_exclusive_creation(tmp_path: Path) -> None:
    path = tmp_path / "new"
    async with ringway.open(path, "xb") as file:
        await file.write(b"x")
    with pytest.raises(FileExistsError) as raised:
        await ringway.open(path, "xb")
    assert raised.value.filename == str(path)


@pytest.mark.parametrize("path", ["missing", b"missing", Path("missing")])
async def test_errors_are_those_of_open(path: Any) -> None:
    with pytest.raises(FileNotFoundError) as expected:
        open(path)
    with pytest.raises(FileNotFoundError) as actual:
        await ringway.open(path)
    assert str(actual.value) == str(expected.value)
    assert actual.value.filename == os.fspath(path)


async def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        await ringway.open(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"mode": "rw"}, ValueError),
        ({"mode": "z"}, ValueError),
        ({"mode": "rbt"}, ValueError),
        ({"mode": "rr"}, ValueError),
        ({"mode": ""}, ValueError),
        ({"mode": 3}, TypeError),
        ({"mode": "rb", "encoding": "utf-8"}, ValueError),
        ({"mode": "rb", "errors": "ignore"}, ValueError),
        ({"mode": "rb", "newline": "\n"}, ValueError),
        ({"mode": "r", "buffering": 0}, ValueError),
        ({"mode": "r", "newline": "x"}, ValueError),
        ({"mode": "r", "encoding": "no-such-encoding"}, LookupError),
        ({"mode": "r", "closefd": False}, ValueError),
    ],
)
async def test_bad_arguments_are_refused_as_by_open(
    lines: Path, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        open(lines, **arguments)
    with pytest.raises(error):
        await ringway.open(lines, **arguments)


async def test_a_null_byte_in_a_path_is_refused() -> None:
    with pytest.raises(ValueError, match="null byte"):
        await ringway.open("a\0b")


async def test_what_a_mode_does_not_allow(lines: Path) -> None:
    async with ringway.open(lines, "rb") as file:
        assert file.readable() and not await file.writable() and await file.seekable()
        assert not await file.isatty() and file.name == lines.__fspath__() and file.mode == "rb"
        for call in (file.write(b""), file.truncate(), file.write_at(b"", 0)):
            with pytest.raises(io.UnsupportedOperation):
                await call
        with pytest.raises(OSError):
            await file.seek(-1)
    async with ringway.open(lines, "wb") as file:
        for call in (file.read(), file.readline(), file.read_at(1, 0), file.readinto(bytearray(1))):
            with pytest.raises(io.UnsupportedOperation):
                await call
        with pytest.raises(TypeError):
            await file.write("text")


async def test_a_closed_file_raises_value_error(lines: Path) -> None:
    file = await ringway.open(lines, "rb+")
    await file.write(b"L")
    await file.close()
    await file.close()
    assert file.closed
    calls = [file.read(), file.read(1), file.readline(), file.write(b""), file.seek(0), file.tell()]
    calls += [file.flush(), file.truncate(), file.read_at(1, 0), file.write_at(b"", 0)]
    calls += [file.readinto(bytearray(1)), file.sync(), file.stat(), file.seekable()]
    for call in calls:
        with pytest.raises(ValueError):
            await call
    with pytest.raises(ValueError):
        file.fileno()


async def test_leaving_the_block_after_close_does_nothing(lines: Path) -> None:
    async with ringway.open(lines, "rb") as file:
        await file.close()
    assert file.closed


async def test_close_does_not_wait_for_the_loops_executor(lines: Path) -> None:
    """aiofiles closes in the default executor, behind whatever fills that."""
    loop = asyncio.get_running_loop()
    import threading

    gate = threading.Event()
    jobs = [loop.run_in_executor(None, gate.wait) for _ in range(64)]
    try:
        async with ringway.open(lines, "rb+") as file:
            await file.write(b"L")
        assert file.closed and lines.read_bytes()[:1] == b"L"
    finally:
        gate.set()
    await asyncio.gather(*jobs)


async def test_detach(lines: Path) -> None:
    file = await ringway.open(lines, "rb")
    await file.read(5)
    raw = file.detach()
    with pytest.raises(ValueError):
        await file.read()
    with pytest.raises(ValueError):
        await file.close()
    assert raw.read(3) == b"0\nl"
    raw.close()


@pytest.mark.parametrize("closefd", [True, False])
async def test_descriptors(lines: Path, closefd: bool) -> None:
    fd = os.open(lines, os.O_RDONLY)
    os.lseek(fd, 5, os.SEEK_SET)
    async with ringway.open(fd, "rb", closefd=closefd) as file:
        assert file.name == fd and await file.read(2) == b"0\n"
    if closefd:
        with pytest.raises(OSError):
            os.fstat(fd)
    else:
        os.close(fd)
    with pytest.raises(OSError) as raised:
        await ringway.open(12345, "rb")
    assert raised.value.errno == 9


async def test_openers(lines: Path) -> None:
    seen = []

    def opener(path: str, flags: int) -> int:
        seen.append(flags & os.O_ACCMODE)
        return os.open(path, flags)

    async with ringway.open(lines, "rb", opener=opener) as file:
        assert await file.read(4) == b"line"
    assert seen == [os.O_RDONLY]


async def test_a_file_of_proc_has_no_size_and_is_read_whole() -> None:
    """aiofile reads 0 bytes of it."""
    async with ringway.open("/proc/self/maps", "rb") as file:
        content = await file.read()
    assert len(content) > 4096 and content.endswith(b"\n")
    async with ringway.open("/proc/self/status") as text:
        assert "Pid:" in await text.read()


async def test_a_file_that_grows_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "grows"
    path.write_bytes(b"a" * 10)
    async with ringway.open(path, "rb") as file:
        with open(path, "ab") as other:
            other.write(b"b" * 3_000_000)
        assert await file.read() == b"a" * 10 + b"b" * 3_000_000
        assert await file.read() == b""


async def test_a_sparse_file_of_3_gib_is_read_whole(tmp_path: Path) -> None:
    """aiofile makes one request, which the kernel ends at 2,147,479,552 bytes."""
    path, size = tmp_path / "sparse", (3 << 30) + 5
    with open(path, "wb") as file:
        file.truncate(size)
    # (SC_AVPHYS_PAGES leaves out what the page cache would give back.)
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(line for line in lines if line.startswith("MemAvailable:"))
    mib = int(available.split()[1]) >> 10
    if mib < 4096:
        pytest.skip(f"needs 4 GiB of free memory, has {mib} MiB")
    async with ringway.open(path, "rb") as ours:
        assert len(await ours.read()) == size


async def test_reads_that_wait_for_the_disk(lines: Path) -> None:
    expected = lines.read_bytes()
    drop_cache(lines)
    async with ringway.open(lines, "rb") as file:
        parts = await asyncio.gather(*(file.read(1000) for _ in range(60)))
        assert b"".join(parts) == expected
        drop_cache(lines)
        blocks = await asyncio.gather(*(file.read_at(1000, 1000 * at) for at in range(60)))
    assert b"".join(blocks) == expected


async def test_concurrent_writes_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "records"
    async with ringway.open(path, "wb", buffering=64) as file:
        records = [bytes([65 + index]) * (20 * index) for index in range(20)]
        await asyncio.gather(*(file.write(record) for record in records))
    assert path.read_bytes() == b"".join(records)


async def test_an_unclosed_file_is_flushed_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "forgotten"
    file = await ringway.open(path, "wb")
    await file.write(b"kept")
    with pytest.warns(ResourceWarning, match="forgotten"):
        del file
    assert path.read_bytes() == b"kept"


async def test_pipes(tmp_path: Path) -> None:
    reader_fd, writer_fd = os.pipe()
    async with ringway.open(reader_fd, "rb") as reader, ringway.open(writer_fd, "wb", 0) as writer:
        assert not await reader.seekable()
        with pytest.raises(io.UnsupportedOperation):
            await reader.seek(0)
        await writer.write(b"one\ntwo\nthree")
        assert await reader.readline() == b"one\n"
        waiting = asyncio.ensure_future(reader.read(11))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await writer.write(b"!x")
        assert await waiting == b"two\nthree!x"
        await writer.write(b" end")
        await writer.close()
        assert await reader.read() == b" end"
        assert await reader.read(1) == b""


async def test_explain_names_the_backend() -> None:
    assert (await ringway.explain()).startswith("backend ")


def test_explain_names_what_forces_the_backend() -> None:
    script = "import asyncio, ringway; print(asyncio.run(ringway.explain()))"
    for variable, start in [
        ({"RINGWAY_BACKEND": "threads"}, "backend threads (forced by RINGWAY_BACKEND)"),
        ({"RINGWAY_BACKEND": ""}, "backend "),
    ]:
        environment = {**os.environ, **variable}
        command = [sys.executable, "-c", script]
        text = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=True
        ).stdout
        assert text.startswith(start)
        assert ("forced" in text) == bool(variable["RINGWAY_BACKEND"])


async def test_the_descriptor_of_a_directory_stays_open(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    for arguments in ({}, {"closefd": False}):
        with pytest.raises(IsADirectoryError) as raised:
            await ringway.open(fd, **arguments)
        assert raised.value.filename == fd
    os.close(fd)


async def test_writes_to_a_terminal_leave_what_was_read_ahead() -> None:
    one, two = socket.socketpair()
    with two:
        async with ringway.open(one.detach(), "r+b") as file:
            two.sendall(b"a\nb\nc")
            assert await file.readline() == b"a\n"
            assert await file.write(b"12") == 2 == await file.write(b"34")
            await file.flush()
            assert await file.readline() == b"b\n"
            await file.write(b"5")
            assert await file.read(1) == b"c"
            assert two.recv(100) == b"12345"


async def test_a_detached_text_file_is_where_its_text_is(tmp_path: Path) -> None:
    path = tmp_path / "text"
    for encoding in ("utf-8", "utf-16", "latin-1"):
        path.write_text("one é\ntwo\nthree", encoding)
        text = await ringway.open(path, "rt", encoding=encoding)
        assert await text.readline() == "one é\n"
        with text.detach() as raw:
            left = raw.read().decode("utf-16-le" if encoding == "utf-16" else encoding)
            assert left == "two\nthree"
        with pytest.raises(ValueError, match="detached"):
            await text.read()


async def test_a_pipe_with_something_ahead_is_not_detached() -> None:
    for mode in ("rb", "r"):
        reader_fd, writer_fd = os.pipe()
        file = await ringway.open(reader_fd, mode)
        waiting = asyncio.ensure_future(file.readline())
        await asyncio.sleep(0.01)
        with pytest.raises(ValueError, match="detach: "):
            file.detach()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        with pytest.raises(ValueError, match="detach: "):
            file.detach()
        os.write(writer_fd, b"one\ntwo\n")
        assert await file.readline() in (b"one\n", "one\n")
        with pytest.raises(ValueError, match="detach: "):
            file.detach()
        assert await file.readline() in (b"two\n", "two\n")
        with file.detach() as raw:
            os.write(writer_fd, b"three")
            assert raw.read(10) == b"three"
        os.close(writer_fd)


async def test_an_unclosed_file_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "forgotten", os.pwrite
    file = await ringway.open(path, "wb")
    await file.write(b"all of it")
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:2], at))
    with pytest.warns(ResourceWarning, match="forgotten"):
        del file
    assert path.read_bytes() == b"all of it"


def test_an_unclosed_file_is_written_also_if_the_warning_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "forgotten"
    program = """
        import asyncio, ringway, sys

        async def main():
            file = await ringway.open(sys.argv[1], "wb")
            await file.write(b"kept")
            del file

        asyncio.run(main())
    """
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", textwrap.dedent(program)]
    result = subprocess.run([*command, path], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0 and "ResourceWarning: unclosed file" in result.stderr
    assert path.read_bytes() == b"kept"


@pytest.mark.parametrize("mode", ["rb", "wb", "r", "w"])
def test_what_a_file_is_needs_no_loop(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "file"
    path.touch()

    async def opened() -> Any:
        return await ringway.open(path, mode)

    def answer(coroutine: Any) -> Any:
        with pytest.raises(StopIteration) as stopped:
            coroutine.send(None)
        return stopped.value.value

    loop = asyncio.new_event_loop()
    file = loop.run_until_complete(opened())
    assert os.fstat(file.fileno()).st_ino == path.stat().st_ino
    assert file.readable() is ("r" in mode) and file.name == str(path)
    assert answer(file.writable()) is ("w" in mode)
    assert answer(file.seekable()) is True and answer(file.isatty()) is False
    assert not file.closed and "name=" in repr(file)
    loop.run_until_complete(file.close())
    loop.close()
    assert file.closed
    for call in (file.fileno, file.readable, lambda: file.seekable().send(None)):
        with pytest.raises(ValueError, match="closed file"):
            call()


async def test_looking_at_the_size_keeps_locks(lines: Path) -> None:
    """The close of any descriptor of a file releases the locks of the process on it."""
    program = """
        import fcntl, sys
        with open(sys.argv[1], "rb+") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("locked")
    """
    command = [sys.executable, "-c", textwrap.dedent(program), lines]

    def tried() -> str:
        return subprocess.run(command, capture_output=True, text=True, timeout=300).stdout

    async with ringway.open(lines, "rb+") as file:
        fcntl.lockf(file.fileno(), fcntl.LOCK_EX)
        assert tried() == "locked\n"
        size = await file.seek(0, os.SEEK_END)
        assert size == (await file.stat()).st_size == lines.stat().st_size
        assert tried() == "locked\n"
        assert await file.read_ranges([(0, 4)]) == [b"line"]
        await file.seek(0)
        assert len(await file.read(2 << 20)) == size
        assert tried() == "locked\n"
    fd = os.open(lines, os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    assert (await ringway.os.stat(fd)).st_size == size
    assert (await ringway.os.statvfs(fd)).f_bsize > 0
    assert await ringway.path.exists(fd)
    assert tried() == "locked\n"
    async with ringway.open(fd, "rb+") as file:
        assert file.fileno() == fd and await file.read(4) == b"line"
        assert tried() == "locked\n"
    assert tried() == ""


async def test_a_file_without_a_number_is_refused() -> None:
    """On Windows there may be none left; the file is not taken for a pipe then."""

    def fileno() -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    closed = []
    full: Any = SimpleNamespace(direct=False, fileno=fileno, close=lambda: closed.append(True))
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        await wrap(full, 0, 0, "name", "rb", -1, False, None, None, None)
    assert closed == [True]


def test_explain_tells_of_missing_descriptors() -> None:
    """Where the best backend needs more than there are, another one is used."""

    def explained(free: int) -> str:
        command = [sys.executable, "-c", textwrap.dedent(FEW_DESCRIPTORS), str(free)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr
        return result.stdout

    best = explained(50)
    assert best.startswith("backend ") and "ulimit -n" not in best
    for free in range(10):
        text = explained(free)
        assert text == best or "ulimit -n" in text


FEW_DESCRIPTORS = """
    import asyncio, os, resource, ringway, sys

    async def main():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        for _ in range(int(sys.argv[1])):
            os.close(taken.pop())
        try:
            print(await ringway.explain())
        except OSError as error:
            print(error)

    asyncio.run(main())
"""


async def test_the_end_of_a_device_is_not_its_size(
    lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fstat` has 0 for the size of a block device."""

    async def of_a_device(_: object) -> Any:
        return SimpleNamespace(st_mode=0o060660, st_size=0)

    monkeypatch.setattr("ringway.os.stat_of", of_a_device)
    expected = lines.read_bytes()
    async with ringway.open(lines, "rb") as file:
        assert await file.seek(-5, 2) == len(expected) - 5
        assert await file.read(10) == expected[-5:]
        assert await file.seek(0) == 0
        assert await file.read(5) == expected[:5]


async def test_opening_asks_no_server_of_a_file(
    lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the loop's thread, as SEEK_END and isatty do on FUSE."""
    calls, isatty = [], os.isatty

    def lseek(fd: int, offset: int, whence: int, real: Any = os.lseek) -> int:
        calls.append(whence)
        position: int = real(fd, offset, whence)
        return position

    monkeypatch.setattr(os, "lseek", lseek)
    monkeypatch.setattr(os, "isatty", lambda fd: calls.append("isatty") or isatty(fd))
    size = lines.stat().st_size
    for mode in ("ab", "ab+", "a", "r"):
        async with ringway.open(lines, mode) as file:
            assert await file.tell() == (0 if mode == "r" else size)
            assert not await file.isatty()
    async with ringway.open(lines, "ab") as file:
        await file.write(b"more")
        await file.flush()
        assert await file.tell() == size + 4
    for closefd in (True, False):
        fd = os.open(lines, os.O_WRONLY)
        async with ringway.open(fd, "ab", closefd=closefd) as file:
            assert await file.tell() == size + 4
            # The descriptor itself does not append.
            assert await file.write(b"tail") == 4
        lines.write_bytes(lines.read_bytes().removesuffix(b"tail"))
        if not closefd:
            os.close(fd)
    async with ringway.open(lines, "a", opener=os.open) as text:
        await text.write("end")
    assert lines.read_bytes().endswith(b"moreend")
    assert set(calls) == {os.SEEK_CUR, os.SEEK_SET}


async def test_data_and_holes_are_asked_for_in_a_thread(
    lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of FUSE or NFS is asked for them."""
    threads = {}

    def lseek(fd: int, offset: int, whence: int, real: Any = os.lseek) -> int:
        threads[whence] = threading.get_ident()
        position: int = real(fd, offset, whence)
        return position

    size = lines.stat().st_size
    async with ringway.open(lines, "rb") as file:
        monkeypatch.setattr(os, "lseek", lseek)
        assert await file.seek(5, os.SEEK_DATA) == 5 == await file.tell()
        assert await file.read(3) == lines.read_bytes()[5:8]
        assert await file.seek(0, os.SEEK_HOLE) == size == await file.tell()
        with pytest.raises(OSError) as raised:
            await file.seek(size, os.SEEK_DATA)
        assert raised.value.errno == errno.ENXIO
        assert await file.tell() == size
    assert set(threads) == {os.SEEK_DATA, os.SEEK_HOLE}
    assert threading.get_ident() not in threads.values()


@pytest.mark.parametrize("mode", ["rb", "r"])
@pytest.mark.parametrize("call", ["readline", "readline(10)", "iteration"])
async def test_a_line_ends_where_a_terminal_does(mode: str, call: str) -> None:
    """What is typed after that is not of this line."""
    keyboard, terminal = os.openpty()
    try:
        async with ringway.open(terminal, mode) as file:
            calls = {
                "readline": file.readline,
                "readline(10)": lambda: file.readline(10),
                "iteration": file.__anext__,
            }
            # The first end is that of the input so far, the second one that of the file.
            os.write(keyboard, b"abc\x04\x04")
            found: Any = await asyncio.wait_for(calls[call](), 60)
            assert found == (b"abc" if mode == "rb" else "abc")
            os.write(keyboard, b"def\n")
            found = await asyncio.wait_for(calls[call](), 60)
            assert found == (b"def\n" if mode == "rb" else "def\n")
    finally:
        os.close(keyboard)


@pytest.mark.parametrize("has_positions", [False, True])
async def test_a_terminal_is_one(has_positions: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it has positions, as on some systems. Text is then written line by line."""
    keyboard, terminal = os.openpty()
    if has_positions:
        monkeypatch.setattr(os, "lseek", lambda *_: 0)
    try:
        async with ringway.open(os.dup(terminal), "rb") as file:
            assert await file.isatty() and await file.seekable() == has_positions
        async with ringway.open(terminal, "w") as text:
            assert await text.isatty() and text.line_buffering
        async with ringway.open("/dev/null", "rb") as null:
            assert not await null.isatty()
    finally:
        os.close(keyboard)


def filled_pipe(content: bytes) -> int:
    """The reading end of a pipe that a thread writes to."""
    reader, writer = os.pipe()

    def write() -> None:
        with open(writer, "wb", 0) as file, memoryview(content) as left:
            at = 0
            while at < len(left):
                at += file.write(left[at:])

    threading.Thread(target=write).start()
    return reader


LONG = 24 << 20


@pytest.mark.parametrize(
    ("kind", "mode", "call", "arguments"),
    [
        ("pipe", "rb", "read", ()),
        ("pipe", "rb", "read", (LONG,)),
        ("pipe", "rb", "readinto", ()),
        ("pipe", "rb", "readline", ()),
        ("pipe", "r", "read", (LONG,)),
        ("pipe", "r", "readline", ()),
        ("file", "r", "read", (LONG,)),
        ("file", "r", "readline", ()),
        ("lines", "rb", "readlines", ()),
        ("lines", "rb", "readlines", (LONG,)),
        ("lines", "r", "readlines", (LONG,)),
    ],
)
async def test_the_time_of_long_reads_is_in_proportion_to_their_length(
    tmp_path: Path, kind: str, mode: str, call: str, arguments: tuple[Any, ...]
) -> None:
    path, content = tmp_path / "long", b"a" * LONG
    if kind == "lines":
        content = b"a line of 25 characters.\n" * (LONG // 25)
    path.write_bytes(content)

    def source() -> Any:
        return filled_pipe(content) if kind == "pipe" else path

    def given() -> tuple[Any, ...]:
        return (bytearray(LONG),) if call == "readinto" else arguments

    async with ringway.open(source(), mode) as ours:
        values = given()
        begun = time.thread_time()
        found = await getattr(ours, call)(*values)
        spent = time.thread_time() - begun
    with open(source(), mode) as theirs:
        expected_values = given()
        begun = time.thread_time()
        expected = getattr(theirs, call)(*expected_values)
        least = time.thread_time() - begun
    assert found == expected and values == expected_values
    assert spent < 12 * least + 0.1, (spent, least)


@pytest.mark.parametrize("name", ["encoding", "errors", "newline"])
async def test_an_argument_of_a_wrong_type_truncates_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"content")
    arguments: Any = {name: 5}
    with pytest.raises(TypeError) as expected:
        open(path, "w", **arguments)
    with pytest.raises(TypeError) as raised:
        await ringway.open(path, "w", **arguments)
    assert str(raised.value) == str(expected.value)
    assert path.read_bytes() == b"content"


async def test_a_negative_descriptor_is_refused_as_open_does() -> None:
    with pytest.raises(ValueError, match="negative file descriptor"):
        await ringway.open(-1)


@pytest.mark.parametrize("mode", ["r", "rb"])
async def test_a_hint_is_an_integer(tmp_path: Path, mode: str) -> None:
    (tmp_path / "f").write_bytes(b"a\nb\n")
    hint: Any = 1.5
    async with ringway.open(tmp_path / "f", mode) as file:
        with pytest.raises(TypeError):
            await file.readlines(hint)
        assert len(await file.readlines(None)) == 2
