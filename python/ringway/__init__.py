"""Asynchronous file I/O for asyncio, over io_uring, Linux AIO or threads.

    import ringway

    async with ringway.open("data.bin", "rb") as f:
        header = await f.read(64)
        block = await f.read_at(4096, 1 << 20)

`open`, `os`, `path` and `tempfile` have the functions of aiofiles with the same parameters. Files
have methods for offsets and many ranges at once; `read_many` works without asyncio; `safetensors`
loads tensors. docs/python.md in the source has the whole story.
"""

from . import os, path, safetensors, tempfile, threadpool
from ._binary import AsyncFile, AtomicWriteUnit, Warmed
from ._bulk import LogWriter, buffer, read_file, sync_dir, write_atomic
from ._engine import engine as _engine
from ._many import read_many, readinto_many
from ._open import open
from ._sendfile import sendfile
from ._text import AsyncTextFile
from ._threaded import stderr, stderr_bytes, stdin, stdin_bytes, stdout, stdout_bytes

__all__ = [
    "AsyncFile",
    "AsyncTextFile",
    "AtomicWriteUnit",
    "LogWriter",
    "Warmed",
    "buffer",
    "explain",
    "open",
    "os",
    "path",
    "read_file",
    "read_many",
    "readinto_many",
    "safetensors",
    "sendfile",
    "stderr",
    "stderr_bytes",
    "stdin",
    "stdin_bytes",
    "stdout",
    "stdout_bytes",
    "sync_dir",
    "tempfile",
    "threadpool",
    "write_atomic",
]


async def explain() -> str:
    """Return which backend the running loop uses, what forced it, what the system refused and why.

    The text has the fix of each refusal.
    """
    return _engine().explain()
