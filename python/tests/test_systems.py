"""Systems other than Linux, as far as they can be imitated on it."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from ringway.os import substitutes

TESTS = Path(__file__).parent
CORE = ["bulk", "cancel", "files", "many", "os", "sendfile", "space", "tempfile", "text"]

# What Windows lacks: of `os`, of `mmap`, and modules.
ABSENT = """
    O_CLOEXEC O_DIRECT O_NONBLOCK O_PATH O_SYNC POSIX_FADV_DONTNEED RWF_NOWAIT fchmod fork getuid
    memfd_create mkfifo posix_fadvise pread preadv pwrite pwritev register_at_fork sendfile statvfs
    statvfs_result
"""
ABSENT_OF_MMAP = "MADV_HUGEPAGE MAP_ANONYMOUS MAP_PRIVATE MAP_SHARED PROT_READ PROT_WRITE"
ABSENT_MODULES = "fcntl grp pwd resource termios"


def run(*arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, *arguments], cwd=TESTS, capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_package_without_what_only_linux_has() -> None:
    """The tests of files and paths, on threads that wake a loop which waits for no descriptors."""
    names = [f"test_{name}.py" for name in CORE]
    # The deselected one reads 3 GiB.
    assert " passed" in run("-m", "pytest", "-q", "--other-system", "-k", "not gib", *names)


def test_the_package_without_what_windows_lacks(tmp_path: Path) -> None:
    script = f"""
        import asyncio, concurrent.futures.thread, gc, mmap, os, sys, tempfile, warnings
        import other_system

        for name in {ABSENT.split()}:
            if hasattr(os, name):
                delattr(os, name)
        for name in {ABSENT_OF_MMAP.split()}:
            delattr(mmap, name)
        for name in {ABSENT_MODULES.split()}:
            sys.modules[name] = None
        other_system.load()
        # Modules of the standard library have looked at it already.
        os.name = "nt"
        import ringway
        os.name = "posix"

        def opener(path, flags):
            return os.open(path, flags)

        async def main():
            async with ringway.open("binary", "wb+") as file:
                await file.write(b"0123456789")
                await file.flush()
                assert await file.read_at(3, 4) == b"456"
                assert (await file.stat()).st_size == 10
                assert await file.read_ranges([(0, 2), (8, 4)]) == [b"01", b"89"]
            async with ringway.open("binary", "rb", opener=opener) as file:
                assert await file.read() == b"0123456789"
            async with ringway.open("text", "w", encoding="utf-8") as text:
                await text.write("a line\\n")
            async with ringway.open("text", encoding="utf-8") as text:
                assert [line async for line in text] == ["a line\\n"]
            await ringway.write_atomic("binary", b"replaced")
            assert await ringway.read_file("binary") == b"replaced"
            async with await ringway.LogWriter.open("log") as log:
                assert await log.append(b"record") == 0
            file = await ringway.open("forgotten", "wb")
            await file.write(b"collected")
            with warnings.catch_warnings(record=True):
                del file
                gc.collect()
            assert await ringway.read_file("forgotten") == b"collected"
            async with ringway.tempfile.NamedTemporaryFile() as named:
                await named.write(b"x")
            async with ringway.tempfile.TemporaryFile("w+") as unnamed:
                await unnamed.write("x")
            async with ringway.tempfile.TemporaryDirectory() as directory:
                assert await ringway.path.isdir(directory)
            memory = ringway.buffer(4096)
            assert ringway.readinto_many([("binary", 0)], [memory]) == [8]
            assert ringway.read_many(["binary"]) == [b"replaced"]
            names = sorted(await ringway.os.listdir("."))
            assert names == ["binary", "forgotten", "log", "text"], names
            assert not hasattr(ringway.os, "statvfs") and not hasattr(ringway.os, "sendfile")
            assert "sendfile" not in ringway.os.__all__
            assert ringway.os.stat_of.__wrapped__
            assert "backend threads" in await ringway.explain()

        os.chdir({str(tmp_path)!r})
        asyncio.run(asyncio.wait_for(main(), 30))
    """
    run("-c", textwrap.dedent(script))


def test_functions_of_os_replace_those_of_linux() -> None:
    found = substitutes(["rename", "statvfs"], SimpleNamespace(rename=os.rename))
    assert found["rename"].__wrapped__ is os.rename and found["statvfs"] is None


def leads_to(fd: str) -> str:
    """What a descriptor of this process is open for; empty if it was closed."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def test_a_directory_stays_although_its_descriptor_is_closed(tmp_path: Path) -> None:
    """Of a call that was cancelled, and begins when its number is that of another directory."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    mkdir = substitutes(["mkdir"], os)["mkdir"]
    go = threading.Event()

    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            executor.submit(go.wait, 10)
            number = os.open(one, os.O_RDONLY)
            made = asyncio.ensure_future(mkdir("made", dir_fd=number, executor=executor))
            await asyncio.sleep(0)
            other = os.open(two, os.O_RDONLY)
            os.dup2(other, number)
            os.close(other)
            go.set()
            await made
            os.close(number)
            with pytest.raises(OSError) as raised:
                await mkdir("none", dir_fd=number, executor=executor)
            assert (raised.value.errno, raised.value.filename) == (errno.EBADF, "none")
            await mkdir(two / "absolute", dir_fd=number, executor=executor)

    asyncio.run(main())
    # (Of all that are open, others of the process may be closed meanwhile.)
    both = {os.path.realpath(one), os.path.realpath(two)}
    assert not [fd for fd in os.listdir("/proc/self/fd") if leads_to(fd) in both]
    assert [path.name for path in one.iterdir()] == ["made"]
    assert [path.name for path in two.iterdir()] == ["absolute"]
