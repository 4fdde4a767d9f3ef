"""Asynchronous file I/O for asyncio, over io_uring, Linux AIO or threads.

    import ringway

    async with ringway.open("data.bin", "rb") as f:
        header = await f.read(64)
        block = await f.read_at(4096, 1 << 20)

`open`, `os` and `path` have the functions of aiofiles with the same parameters. Files have
methods for offsets and many ranges at once; `read_many` works without asyncio; `safetensors`
loads tensors. docs/python.md in the source has the whole story.
"""

from . import os, path
from ._binary import AsyncFile
from ._engine import engine as _engine
from ._open import open
from ._text import AsyncTextFile

__all__ = ["AsyncFile", "AsyncTextFile", "explain", "open", "os", "path"]


async def explain() -> str:
    """Return which backend the running loop uses, what the system refused, why, and the fix."""
    return _engine().explain()
