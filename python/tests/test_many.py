"""Reads of many files without asyncio."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringway
from conftest import drop_cache
from ringway import _many

pytestmark = pytest.mark.usefixtures("descriptors")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = []
    for number in range(200):
        path = tmp_path / f"{number:03}"
        path.write_bytes(os.urandom(number * 97))
        paths.append(path)
    return paths


def test_whole_files_and_ranges(files: list[Path]) -> None:
    contents = [path.read_bytes() for path in files]
    assert ringway.read_many(files) == contents
    for path in files[1:]:
        drop_cache(path)
    assert ringway.read_many(map(str, files), depth=3) == contents
    assert ringway.read_many([]) == []
    requests = [(files[150], 10 * at, 100 + at) for at in range(200)]
    assert ringway.read_many([*requests, files[3], (files[4], 1 << 40, 5)]) == [
        *(contents[150][at : at + size] for _, at, size in requests),
        contents[3],
        b"",
    ]
    assert ringway.read_many([(files[199], 5, 1 << 40)], direct=True) == [contents[199][5:]]
    with open(files[9], "rb") as file:
        assert ringway.read_many([file.fileno(), (file.fileno(), 3, 4)]) == [
            contents[9],
            contents[9][3:7],
        ]
    assert len(ringway.read_many(["/proc/self/maps"])[0]) > 4096


def test_into_given_memory(files: list[Path]) -> None:
    contents = [path.read_bytes() for path in files]
    array = np.zeros((200, 20_000), dtype=np.uint8)
    counts = ringway.readinto_many([(path, 0) for path in files], list(array))
    assert counts == [len(content) for content in contents]
    for row, content in zip(array, contents, strict=True):
        assert bytes(row[: len(content)]) == content
    part = bytearray(10)
    assert ringway.readinto_many([(files[199], 100)], [part], direct=True) == [10]
    assert part == contents[199][100:110]


def test_ranges_of_any_kind(files: list[Path]) -> None:
    content = files[100].read_bytes()
    lists: Any = [[files[100], 5, 10], (str(files[100]), np.int64(7), np.uint8(3))]
    assert ringway.read_many(lists) == [content[5:15], content[7:10]]
    buffer = bytearray(10)
    pairs: Any = [[files[100], 5]]
    assert ringway.readinto_many(pairs, [buffer]) == [10] and buffer == content[5:15]


def test_bad_requests(files: list[Path], tmp_path: Path) -> None:
    for call in (
        lambda: ringway.read_many([(files[0], -1, 5)]),
        lambda: ringway.read_many([(files[0], 0, -5)]),
        lambda: ringway.read_many(files, depth=0),
        lambda: ringway.readinto_many([(files[0], 0)], []),
        lambda: ringway.readinto_many([(files[0], -1)], [bytearray(1)]),
    ):
        with pytest.raises(ValueError):
            call()
    path: Any = str(files[0])
    for single in (path, path.encode(), files[0], 3):
        with pytest.raises(TypeError, match=r"pass a list of requests, such as \["):
            ringway.read_many(single)
        with pytest.raises(TypeError, match="pass a list of requests"):
            ringway.readinto_many(single, [bytearray(1)])
    with pytest.raises(TypeError, match="pass a list of buffers"):
        ringway.readinto_many([(path, 0)], bytearray(1))
    for call in (
        lambda: ringway.read_many([(path, 0)]),  # type: ignore[list-item]
        lambda: ringway.readinto_many([path], [bytearray(1)]),
        lambda: ringway.readinto_many([(path, 0, 5)], [bytearray(1)]),  # type: ignore[list-item]
    ):
        with pytest.raises(TypeError, match=r"\(file, offset"):
            call()
    with pytest.raises(FileNotFoundError) as raised:
        ringway.read_many([files[0], tmp_path / "none", files[1]])
    assert raised.value.filename == str(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        ringway.read_many([tmp_path])
    with pytest.raises((BufferError, TypeError)):
        ringway.readinto_many([(files[0], 0)], [b"read-only"])


def test_threads_at_once(files: list[Path]) -> None:
    contents = [path.read_bytes() for path in files]
    wrong: list[object] = []

    def work() -> None:
        for _ in range(5):
            if ringway.read_many(files) != contents:
                wrong.append(threading.current_thread())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_signal_ends_the_wait() -> None:
    # In the background of a shell script it is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupt_a_read()
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt_a_read() -> None:
    reader, writer = os.pipe()

    def interrupt() -> None:
        time.sleep(0.2)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    buffer = bytearray(1)
    try:
        with pytest.raises(KeyboardInterrupt):
            ringway.readinto_many([(reader, 0)], [buffer])
        # Nobody writes to it any more.
        buffer.append(0)
    finally:
        # A signal that comes after the handler was put back would end the tests.
        thread.join()
        os.close(reader)
        os.close(writer)


def test_nothing_is_read_into_memory_after_an_error(tmp_path: Path) -> None:
    """A read that would never end does not delay the error, and does not outlive it."""
    reader, writer = os.pipe()
    for _ in range(20):
        buffer = bytearray(10)
        requests = [(reader, 0), (tmp_path / "none", 0)]
        with pytest.raises(FileNotFoundError) as raised:
            ringway.readinto_many(requests, [buffer, bytearray(1)])
        assert raised.value.filename == str(tmp_path / "none")
        # While a read has it, it cannot be resized.
        buffer.append(0)
    os.write(writer, b"late")
    assert os.read(reader, 10) == b"late"
    os.close(reader)
    os.close(writer)


def test_the_engine_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[object] = []

    class Slow:
        def __init__(self) -> None:
            time.sleep(0.05)
            built.append(self)

    monkeypatch.setattr(_many, "_readers", [])
    monkeypatch.setattr(_many, "Reader", Slow)
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda _: _many.reader(), range(8)))
    assert len(built) == 1 and all(one is built[0] for one in got)


def test_an_exception_of_a_signal_is_not_hidden_by_an_error(tmp_path: Path) -> None:
    """It may come while the error of one read waits for the others to end."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"RINGWAY_BACKEND": "threads"},
    )
    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stderr


INTERRUPTED = """
    import os, random, ringway, signal

    class Interrupt(Exception):
        pass

    def handler(*_):
        global came
        came = True
        raise Interrupt

    signal.signal(signal.SIGALRM, handler)
    requests = [(os.pipe()[0], 0), ("/nonexistent", 0)]
    for _ in range(60):
        came, raised = False, None
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.02))
        try:
            try:
                ringway.readinto_many(requests, [bytearray(9), bytearray(1)])
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Exception as error:
            raised = error
        assert came == isinstance(raised, Interrupt), repr(raised)
    print("ok")
"""


def test_direct_reads_of_a_descriptor_need_a_direct_one(files: list[Path]) -> None:
    content = files[0].read_bytes()
    fd = os.open(files[0], os.O_RDONLY)
    try:
        for call in (
            lambda: ringway.read_many([fd], direct=True),
            lambda: ringway.read_many([(fd, 0, 1)], direct=True),
            lambda: ringway.readinto_many([(fd, 0)], [bytearray(1)], direct=True),
        ):
            with pytest.raises(ValueError, match="a descriptor is direct if it was opened so"):
                call()
        assert ringway.read_many([fd]) == [content]
    finally:
        os.close(fd)
    with pytest.raises(OSError) as raised:
        ringway.read_many([fd], direct=True)
    assert raised.value.errno == errno.EBADF
    fd = os.open(files[0], os.O_RDONLY | os.O_DIRECT)
    try:
        assert ringway.read_many([fd, files[1]], direct=True) == [content, files[1].read_bytes()]
    finally:
        os.close(fd)
