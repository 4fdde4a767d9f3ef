"""Temporary files and directories: what those of `tempfile` do, and what a cancelled one leaves."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from aiofiles import tempfile as theirs

from ringway import tempfile as ours

pytestmark = pytest.mark.usefixtures("descriptors")
MODULES = pytest.mark.parametrize("module", [ours, theirs], ids=["ours", "aiofiles"])


@MODULES
@pytest.mark.parametrize("function", ["TemporaryFile", "NamedTemporaryFile"])
@pytest.mark.parametrize("buffering", [-1, 0])
async def test_binary_files(module: Any, function: str, buffering: int, tmp_path: Path) -> None:
    async with getattr(module, function)(buffering=buffering, dir=tmp_path) as file:
        assert await file.write(b"one\ntwo\n") == 8
        assert await file.seek(0) == 0
        assert await file.read(4) == b"one\n"
        assert [line async for line in file] == [b"two\n"]
        await file.seek(0)
        assert await file.readlines() == [b"one\n", b"two\n"]
        assert isinstance(file.fileno(), int) and not file.closed
        if function == "NamedTemporaryFile":
            await file.flush()
            assert Path(file.name).read_bytes() == b"one\ntwo\n"
            assert os.listdir(tmp_path) == [os.path.basename(file.name)]
            assert os.stat(file.name).st_mode & 0o777 == 0o600
        else:
            assert os.listdir(tmp_path) == []
    assert file.closed and os.listdir(tmp_path) == []


@MODULES
@pytest.mark.parametrize("function", ["TemporaryFile", "NamedTemporaryFile"])
async def test_text_files(module: Any, function: str, tmp_path: Path) -> None:
    make = getattr(module, function)
    async with make("w+", encoding="utf-16", newline="\r\n", dir=tmp_path) as file:
        assert await file.write("é\n") == 2
        await file.seek(0)
        assert await file.read() == "é\r\n"
    file = await make("wt", suffix=".end", prefix="begin", dir=tmp_path)
    await file.close()
    assert os.listdir(tmp_path) == []


@MODULES
async def test_names_and_removal(module: Any, tmp_path: Path) -> None:
    async with module.NamedTemporaryFile(
        "wb", suffix=".end", prefix="begin", dir=tmp_path, delete=False
    ) as file:
        assert os.path.basename(file.name).startswith("begin") and file.name.endswith(".end")
    assert os.path.exists(file.name)
    os.unlink(file.name)


async def test_when_a_named_file_is_removed(tmp_path: Path) -> None:
    async with ours.NamedTemporaryFile(dir=tmp_path, delete_on_close=False) as file:
        await file.write(b"kept")
        await file.close()
        assert Path(file.name).read_bytes() == b"kept"
    assert os.listdir(tmp_path) == []
    file = await ours.NamedTemporaryFile(dir=tmp_path)
    os.unlink(file.name)
    await file.close()
    await file.close()
    file = await ours.NamedTemporaryFile(dir=tmp_path)
    with pytest.warns(ResourceWarning, match="unclosed"):
        del file
        gc.collect()
    assert os.listdir(tmp_path) == []


@MODULES
@pytest.mark.parametrize("mode", ["w+b", "w+"])
async def test_spooled_files(module: Any, mode: str, tmp_path: Path) -> None:
    data = [b"12345\n", b"6789", b"abcdef"] if "b" in mode else ["12345\n", "6789", "abcdef"]
    async with module.SpooledTemporaryFile(10, mode, dir=tmp_path) as file:
        rolled = []
        for part in data:
            assert await file.write(part) == len(part)
            rolled.append(file._spooled._rolled if module is ours else file._file._rolled)
        assert rolled == [False, False, True]
        assert await file.tell() == 16
        assert await file.seek(0) == 0
        assert await file.readline() == data[0]
        assert await file.read() == data[1] + data[2]
        await file.seek(0)
        assert [line async for line in file] == [data[0], data[1] + data[2]]
        await file.truncate(3)
        await file.seek(0)
        assert await file.read() == data[0][:3]
        assert not await file.isatty() and not file.closed
    assert file.closed and os.listdir(tmp_path) == []


@MODULES
async def test_a_spooled_file_with_a_descriptor_is_on_disk(module: Any, tmp_path: Path) -> None:
    async with module.SpooledTemporaryFile(dir=tmp_path) as file:
        await file.writelines([b"a", b"b"])
        fd = await file.fileno()
        await file.flush()
        assert os.pread(fd, 10, 0) == b"ab"
    async with module.SpooledTemporaryFile(dir=tmp_path) as file:
        await file.rollover()
        assert await file.write(b"x") == 1


@MODULES
async def test_directories(module: Any, tmp_path: Path) -> None:
    async with module.TemporaryDirectory("end", "begin", tmp_path) as path:
        assert os.path.basename(path).startswith("begin") and path.endswith("end")
        Path(path, "file").write_bytes(b"x")
    assert not os.path.exists(path)
    directory = await module.TemporaryDirectory(dir=tmp_path)
    assert os.listdir(tmp_path) == [os.path.basename(directory.name)]
    await directory.cleanup()
    assert os.listdir(tmp_path) == []
    directory = await module.TemporaryDirectory(dir=tmp_path)
    await directory.close()
    assert os.listdir(tmp_path) == []


async def test_what_is_cancelled_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, call in (
        ("mkstemp", ours.NamedTemporaryFile),
        ("TemporaryFile", ours.TemporaryFile),
        ("TemporaryDirectory", ours.TemporaryDirectory),
    ):
        go, made, real = threading.Event(), threading.Event(), getattr(tempfile, name)

        def slow(*arguments: Any, real: Any = real, go: Any = go, made: Any = made, **named: Any):
            go.wait(10)
            result = real(*arguments, **named)
            made.set()
            return result

        monkeypatch.setattr(tempfile, name, slow)
        task = asyncio.ensure_future(call(dir=tmp_path).__aenter__())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        while not made.is_set() or os.listdir(tmp_path):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)


async def test_bad_modes() -> None:
    for function in (ours.TemporaryFile, ours.NamedTemporaryFile, ours.SpooledTemporaryFile):
        make: Any = function
        with pytest.raises(ValueError):
            make(mode="z")
        with pytest.raises(ValueError):
            make(mode="w+b", encoding="utf-8")
    with pytest.raises(FileNotFoundError):
        await ours.NamedTemporaryFile(dir="/nonexistent")
    with pytest.raises(FileNotFoundError):
        await ours.TemporaryDirectory(dir="/nonexistent")
