"""The examples, and the programs in the pages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT.parent / "docs" / "python.md"]


def run(*command: Path) -> str:
    arguments = [sys.executable, "-W", "error", *map(os.fspath, command)]
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_programs_in_pages(page: Path, tmp_path: Path) -> None:
    programs = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    assert programs
    for program in programs:
        path = tmp_path / "program.py"
        path.write_text(program)
        assert "root" in run(path)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_usage(path: Path) -> None:
    """Each says how it is called, also if it is called wrongly."""
    arguments = [] if path.name == "file_server.py" else ["one", "two"]
    for given in ([], arguments):
        result = subprocess.run([sys.executable, path, *given], capture_output=True, text=True)
        assert result.returncode == 1 and result.stderr.startswith("usage: ")
        assert result.stderr.strip() in path.read_text().split('"""')[1]


def test_checkpoint(tmp_path: Path) -> None:
    output = run(ROOT / "examples" / "checkpoint.py", tmp_path / "model")
    assert output.splitlines() == [f"layer.{n}: float32, (256, 256)" for n in range(4)]


def test_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for expected in (1000, 2000):
        assert run(ROOT / "examples" / "journal.py", path) == f"{expected} records\n"
    with open(path, "ab") as file:
        file.write(b"half a reco")
    assert run(ROOT / "examples" / "journal.py", path) == "3000 records\n"
    with open(path, "rb+") as file:
        file.truncate(path.stat().st_size - 3)
        file.truncate(path.stat().st_size + 64)  # Zeros, as some file systems leave.
    assert run(ROOT / "examples" / "journal.py", path) == "3999 records\n"


@pytest.mark.parametrize(
    ("header", "status", "part"),
    [
        (None, 200, slice(None)),
        ("bytes=5-9", 206, slice(5, 10)),
        ("bytes=600000-", 206, slice(600_000, None)),
        ("bytes=-7", 206, slice(-7, None)),
        ("bytes=0-99999999", 200, slice(None)),
        ("lines=1", 200, slice(None)),
    ],
)
def test_file_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str | None, status: int, part: slice
) -> None:
    httpx = pytest.importorskip("httpx")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setenv("FILES", str(tmp_path))
    import asyncio

    import file_server

    content = os.urandom(700_000)
    (tmp_path / "file").write_bytes(content)

    async def main() -> None:
        transport = httpx.ASGITransport(file_server.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            response = await client.get("/file", headers={"Range": header} if header else {})
            assert (response.status_code, response.content) == (status, content[part])
            assert (await client.get("/none")).status_code == 404
            assert (await client.get("/%2e%2e/none")).status_code == 404
            too_far = await client.get("/file", headers={"Range": "bytes=700000-"})
            assert too_far.status_code == 416

    asyncio.run(main())
