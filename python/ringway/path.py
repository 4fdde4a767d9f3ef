"""The functions of aiofiles.ospath: those of `os.path` that ask the file system.

Parameters, results and errors are those of `os.path`.
"""

from __future__ import annotations

import asyncio as _asyncio
import os as _os
import stat as _stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .os import Path

__all__ = [
    "abspath",
    "exists",
    "getatime",
    "getctime",
    "getmtime",
    "getsize",
    "isdir",
    "isfile",
    "islink",
    "ismount",
    "samefile",
    "sameopenfile",
]


async def _look(path: Path | int, follow: bool = True) -> _os.stat_result:
    from .os import stat

    return await stat(path, follow_symlinks=follow)


async def _mode(path: Path | int, follow: bool = True) -> int:
    """The mode, or 0 if there is no such file."""
    try:
        return (await _look(path, follow)).st_mode
    except (OSError, ValueError):
        return 0


async def abspath(path: Path) -> str | bytes:
    """`os.path.abspath`, which does not block."""
    return _os.path.abspath(path)


async def exists(path: Path | int) -> bool:
    """`os.path.exists`."""
    return await _mode(path) != 0


async def isfile(path: Path | int) -> bool:
    """`os.path.isfile`."""
    return _stat.S_ISREG(await _mode(path))


async def isdir(path: Path | int) -> bool:
    """`os.path.isdir`."""
    return _stat.S_ISDIR(await _mode(path))


async def islink(path: Path) -> bool:
    """`os.path.islink`."""
    return _stat.S_ISLNK(await _mode(_os.fspath(path), False))


async def ismount(path: Path) -> bool:
    """`os.path.ismount`."""
    name = _os.fspath(path)
    up: str | bytes = b".." if isinstance(name, bytes) else ".."
    try:
        here = await _look(name, False)
        if _stat.S_ISLNK(here.st_mode):
            return False
        parent = _os.path.join(name, up)  # type: ignore[arg-type]
        # It asks the file system for each part of the path.
        above = await _look(await _asyncio.to_thread(_os.path.realpath, parent), False)
    except (OSError, ValueError):
        return False
    return here.st_dev != above.st_dev or here.st_ino == above.st_ino


async def getsize(path: Path | int) -> int:
    """`os.path.getsize`."""
    return (await _look(path)).st_size


async def getatime(path: Path | int) -> float:
    """`os.path.getatime`."""
    return (await _look(path)).st_atime


async def getmtime(path: Path | int) -> float:
    """`os.path.getmtime`."""
    return (await _look(path)).st_mtime


async def getctime(path: Path | int) -> float:
    """`os.path.getctime`."""
    return (await _look(path)).st_ctime


async def samefile(f1: Path | int, f2: Path | int) -> bool:
    """`os.path.samefile`."""
    return _os.path.samestat(await _look(f1), await _look(f2))


async def sameopenfile(fp1: int, fp2: int) -> bool:
    """`os.path.sameopenfile`."""
    return _os.path.samestat(await _look(fp1), await _look(fp2))
