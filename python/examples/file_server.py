"""Serves the files of a directory, with ranges.

usage: FILES=DIRECTORY uvicorn file_server:app

Each response reads in pieces that are
sent while the next is read; no piece switches threads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

import ringway

PIECE = 256 << 10


def find(name: str) -> Path:
    """The path of a file below the directory."""
    root = Path(os.environ.get("FILES", ".")).resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise HTTPException(404)
    return path


def parse(header: str | None, size: int) -> tuple[int, int]:
    """The first byte, and the one behind the last: of `bytes=A-B`, `bytes=A-` and `bytes=-N`."""
    if header is None or not header.startswith("bytes=") or "," in header:
        return 0, size
    first, _, last = header[6:].partition("-")
    try:
        if not first:
            return max(size - int(last), 0), size
        start, end = int(first), int(last) + 1 if last else size
    except ValueError:
        return 0, size
    if not start < size or end <= start:
        raise HTTPException(416, headers={"Content-Range": f"bytes */{size}"})
    return start, min(end, size)


async def pieces(file: ringway.AsyncFile, start: int, end: int) -> AsyncIterator[bytes]:
    try:
        for at in range(start, end, PIECE):
            yield await file.read_at(min(PIECE, end - at), at)
    finally:
        await file.close()


async def serve(request: Request) -> StreamingResponse:
    try:
        file = await ringway.open(find(request.path_params["name"]), "rb")
    except (FileNotFoundError, IsADirectoryError):
        raise HTTPException(404) from None
    size = (await file.stat()).st_size
    try:
        start, end = parse(request.headers.get("range"), size)
    except BaseException:
        await file.close()
        raise
    headers = {"Content-Length": str(end - start), "Accept-Ranges": "bytes"}
    status = 200
    if (start, end) != (0, size):
        status, headers["Content-Range"] = 206, f"bytes {start}-{end - 1}/{size}"
    return StreamingResponse(
        pieces(file, start, end), status, headers, media_type="application/octet-stream"
    )


app = Starlette(routes=[Route("/{name:path}", serve)])

if __name__ == "__main__":
    sys.exit("usage: FILES=DIRECTORY uvicorn file_server:app")
