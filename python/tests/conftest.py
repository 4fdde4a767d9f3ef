"""Runs tests that are coroutines, each on asyncio's loop and on uvloop. With `--other-system` the
package is as on systems other than Linux, and the loop is one like that of Windows.

A test that cannot run is skipped with the reason. Where CI is set, only those below may be: another
one fails the run."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import mmap
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import other_system
import pytest
import uvloop

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
TIME_LIMIT = 300

# Beginnings of the reasons for which a test may be skipped in CI: what this runner has no words
# for, what another Python has, and what is too large to install or for the machine's memory.
MAY_BE_SKIPPED = (
    "cannot express ",
    "asyncio.timeout is new in 3.11",
    "needs _xxsubinterpreters of 3.12",
    "no such methods; collects at allocations",
    "torch is not installed",
    "needs 4 GiB of free memory",
    "the functions of os take numbers",
)
unexpected: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "the package as it is on systems other than Linux"
    parser.addoption("--other-system", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--other-system"):
        other_system.load()
        LOOPS.clear()
        LOOPS["no descriptors"] = other_system.Loop


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and "CI" in os.environ and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith(MAY_BE_SKIPPED):
            unexpected.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if unexpected and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for skip in unexpected:
        terminalreporter.write_line(f"unexpected skip in CI: {skip}", red=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if inspect.iscoroutinefunction(metafunc.function):
        metafunc.fixturenames.append("loop_name")
        metafunc.parametrize("loop_name", list(LOOPS))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}

    async def limited() -> None:
        await asyncio.wait_for(pyfuncitem.obj(**arguments), TIME_LIMIT)

    loop = LOOPS[pyfuncitem.callspec.params["loop_name"]]()
    try:
        loop.run_until_complete(limited())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    return True


@pytest.fixture
def descriptors(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves descriptors of files open."""

    def files() -> list[str]:
        names = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                names.append(os.readlink(f"/proc/self/fd/{fd}"))
            except FileNotFoundError:
                pass
        return [name for name in names if name.startswith("/") and "/dev/" not in name]

    def left() -> list[str]:
        names = files()
        for name in before:
            if name in names:
                names.remove(name)
        return [name for name in names if not name.startswith(("/proc/", "/sys/"))]

    before = files()
    yield
    if request.config.getoption("--other-system"):
        # A thread of the engine may be about to release the last operation of a file.
        for _ in range(3000):
            if not left():
                break
            time.sleep(0.01)
    assert not left()


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A file of 5,000 lines."""
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(5000)))
    return path


def cached_pages(fd: int) -> int:
    """How many pages of a file that is not empty the page cache has; none is read by that."""
    size = os.fstat(fd).st_size
    with mmap.mmap(fd, size, access=mmap.ACCESS_COPY) as mapping:
        found = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        # (Only while something uses its memory does a mapping have an address.)
        memory = ctypes.c_char.from_buffer(mapping)
        result = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(ctypes.addressof(memory)), ctypes.c_size_t(size), found
        )
        del memory
    assert result == 0, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in found)


def drop_cache(path: Path) -> None:
    """Remove a file from the page cache, so that reads of it wait for the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        # The kernel keeps pages that a processor has just used.
        for _ in range(1000):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if cached_pages(fd) == 0:
                return
            time.sleep(0.001)
        raise AssertionError(f"{path} stays in the page cache")
    finally:
        os.close(fd)
