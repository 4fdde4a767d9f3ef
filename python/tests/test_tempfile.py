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


@MODULES
@pytest.mark.parametrize("max_size", [0, 10])
async def test_a_spooled_file_rolls_over_as_the_standard_library_does(
    module: Any, tmp_path: Path, max_size: int
) -> None:
    """A file that `truncate` makes longer than `max_size` does; `seek` and reads do not."""

    async def steps(file: Any) -> list[bool]:
        inner = file if isinstance(file, tempfile.SpooledTemporaryFile) else None
        inner = inner or (file._spooled if module is ours else file._file)
        rolled = []
        for name, argument in (("seek", 20), ("read", -1), ("truncate", 0), ("truncate", 10),
                               ("truncate", 11)):  # fmt: skip
            result = getattr(file, name)(argument)
            if inner is not file:
                await result
            rolled.append(inner._rolled)
        return rolled

    with tempfile.SpooledTemporaryFile(max_size, dir=tmp_path) as standard:
        expected = await steps(standard)
    async with module.SpooledTemporaryFile(max_size, dir=tmp_path) as file:
        assert await steps(file) == expected
        assert os.fstat(await file.fileno()).st_size == 11


@pytest.mark.parametrize("call", ["rollover", "write", "fileno", "read", "close"])
async def test_a_cancelled_call_of_a_spooled_file_keeps_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It goes on in its thread; the next one must not run beside it."""
    go, begun, running = threading.Event(), threading.Event(), []
    file = await ours.SpooledTemporaryFile(4, dir=tmp_path)
    await file.write(b"abc")
    if call == "read":
        await file.rollover()
        await file.seek(0)
    spooled = file._spooled
    inner = "rollover" if call == "write" else call
    real: Any = getattr(spooled, inner)

    def slow(*arguments: Any) -> Any:
        running.append("begun")
        begun.set()
        go.wait(10)
        result = real(*arguments)
        running.append("ended")
        return result

    monkeypatch.setattr(spooled, inner, slow)
    task = asyncio.ensure_future(getattr(file, call)(*([b"de"] if call == "write" else [])))
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    monkeypatch.undo()
    following = asyncio.ensure_future(file.tell())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not following.done() and running == ["begun"]
    go.set()
    if call == "close":
        with pytest.raises(ValueError):
            await following
    else:
        assert await following == (5 if call == "write" else 3)
    assert running == ["begun", "ended"]
    await file.close()
