"""Whole files, replaced files, logs, and memory for direct I/O."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Union

from . import _ringway
from ._binary import AsyncFile, Buffer, pages
from ._engine import engine, run
from ._open import open

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


async def read_file(path: Path) -> bytes:
    """Return the content of a file: open, read and close in one step. OSError."""
    name = os.fspath(path)
    return await run(_ringway.read_file(engine(), os.fsdecode(name), name))


async def write_atomic(path: Path, data: Buffer, *, follow_symlinks: bool = True) -> None:
    """Replace the content of a file, or create it, atomically and durably.

    At any moment, and after a power failure, the file has the old content or the new one. When this
    returns, content and name are on the device. The mode is that of the old file, or what `open`
    would give (0o666 less the umask). A symbolic link is followed, also to a file that does not
    exist yet; with `follow_symlinks=False` the link itself is replaced. Owner, other hard links and
    set-user-ID bits are not kept.

    OSError; the old content is then kept, unless only the sync of the directory failed.
    """
    name = os.fspath(path)
    target: str = os.fsdecode(name)
    if follow_symlinks:
        target = await run(_ringway.resolve(engine(), target, name))
    await run(_ringway.write_atomic(engine(), target, data, name))


async def sync_dir(path: Path) -> None:
    """Make names durable that were created, renamed or removed in a directory. OSError."""
    name = os.fspath(path)
    await run(_ringway.sync_dir(engine(), os.fsdecode(name), name))


def buffer(size: int) -> memoryview:
    """Return `size` bytes of zeroes at the start of a page, as direct I/O needs them.

    `numpy.frombuffer` and `torch.frombuffer` take it. ValueError for a size below 1.
    """
    if size < 1:
        raise ValueError(f"a buffer of {size} bytes")
    return memoryview(pages(size))


class LogWriter:
    """A log that many tasks append to; records that wait together share one write and one sync.

        async with await ringway.LogWriter.open("journal") as log:
            offset = await log.append(b"record")     # durable when this returns

    After a crash or an error it is unknown which of the records that waited are in the file, whole
    or in part, even an intact one after a torn one. So each record needs a length and a checksum.
    Before the log is opened again, truncate the file at the first bad record: what is appended
    behind one is never found. (`examples/journal.py` does so.)
    """

    def __init__(self, file: AsyncFile, end: int) -> None:
        """Append to a file from the offset `end` on, which is its length. OSError EINVAL for a file
        opened with `direct` or for appending, and for one that cannot be synced."""
        self._file = file
        self._log: _ringway.Log | None = _ringway.Log(file._file, end)

    @classmethod
    async def open(cls, path: Path) -> LogWriter:
        """Open a log, or create it, and append at its end, which must be that of a whole record.
        Its name and what it has are durable when this returns, whoever has created and written it.
        OSError."""
        name = os.fspath(path)
        try:
            file = await open(name, "xb+")
        except FileExistsError:
            file = await open(name, "rb+")
        try:
            await sync_dir(os.path.dirname(os.path.abspath(name)))
            await file.sync()
            return cls(file, (await file.stat()).st_size)
        except BaseException:
            await file.close()
            raise

    async def append(self, record: Buffer) -> int:
        """Append a record; return its offset when it and all before it are durable.

        If the task is cancelled before the record is being written, it is left out; after that it
        keeps its place. OSError; ValueError if the log is closed.
        """
        if self._log is None:
            raise ValueError("I/O operation on closed log")
        self._file._check()
        data = record if type(record) is bytes else bytes(memoryview(record))
        return await run(self._log.append(data))

    async def close(self) -> None:
        """Close the file. Appends must have ended."""
        self._log = None
        await self._file.close()

    async def __aenter__(self) -> LogWriter:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
