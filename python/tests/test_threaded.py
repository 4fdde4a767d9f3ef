"""The standard streams, and files of the standard library as asynchronous ones."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ringway
from ringway import threadpool


async def test_standard_streams(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert await ringway.stdout.write("text ") == 5
    await ringway.stdout.flush()
    await ringway.stdout_bytes.write(b"bytes")
    await ringway.stderr.write("error")
    assert capsysbinary.readouterr() == (b"text bytes", b"error")


async def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\nthree")))
    assert await ringway.stdin.readline() == "one\n"
    assert [line async for line in ringway.stdin] == ["two\n", "three"]
    assert await ringway.stdin_bytes.read() == b""


async def test_open_files(lines: Path) -> None:
    with open(lines, "rb") as file:
        wrapped = threadpool.wrap(file)
        assert wrapped.name == file.name and wrapped.fileno() == file.fileno()
        assert await wrapped.read(4) == b"line" and await wrapped.tell() == 4
        await wrapped.close()
        assert wrapped.closed and file.closed
        with pytest.raises(ValueError):
            await wrapped.read()


@pytest.mark.parametrize("other", [int, [1], "text", io.FileIO])
def test_other_objects_are_refused(other: Any) -> None:
    with pytest.raises(TypeError, match="Unsupported"):
        threadpool.wrap(other)


def test_modules_that_the_package_imports() -> None:
    """What is there after `import aiofiles`, and a little more."""
    names = "os path safetensors tempfile threadpool"
    command = f"import ringway; print(all(hasattr(ringway, name) for name in {names.split()}))"
    result = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert result.stdout == "True\n", result.stderr
