"""Reads of many files without asyncio."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
    reader, writer = os.pipe()

    def interrupt() -> None:
        time.sleep(0.2)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    buffer = bytearray(1)
    with pytest.raises(KeyboardInterrupt):
        ringway.readinto_many([(reader, 0)], [buffer])
    # Nobody writes to it any more.
    buffer.append(0)
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
