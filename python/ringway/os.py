"""The functions of aiofiles.os: those of `os` on paths, without blocking the event loop.

Parameters, results and errors are those of `os`. Where the kernel has an asynchronous operation,
that is used; the rest runs on the engine's threads. A cancelled call may still take effect. On
systems other than Linux, they are the functions of `os` itself, in threads of the loop's executor,
and those that `os` lacks there are missing here.
"""

from __future__ import annotations

import asyncio as _asyncio
import errno as _errno
import functools as _functools
import os as _os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, Union

from . import _ringway
from . import path as path
from ._engine import engine, run

Path = Union[str, bytes, "_os.PathLike[str]", "_os.PathLike[bytes]"]
_S = TypeVar("_S", str, bytes)
_T = TypeVar("_T")

__all__ = [
    "access",
    "getcwd",
    "link",
    "listdir",
    "makedirs",
    "mkdir",
    "path",
    "readlink",
    "remove",
    "removedirs",
    "rename",
    "renames",
    "replace",
    "rmdir",
    "scandir",
    "sendfile",
    "stat",
    "statvfs",
    "symlink",
    "unlink",
    "wrap",
]


def wrap(function: Callable[..., _T]) -> Callable[..., Awaitable[_T]]:
    """Make an asynchronous function that calls `function` in a thread, for functions that this
    module lacks. It takes `executor` as well; `loop` is ignored."""

    @_functools.wraps(function)
    async def call(*arguments: Any, loop: object = None, executor: Any = None, **named: Any) -> _T:
        running = _asyncio.get_running_loop()
        bound = _functools.partial(function, *arguments, **named)
        return await running.run_in_executor(executor, bound)

    return call


def stat_result(numbers: tuple[int, ...]) -> _os.stat_result:
    """Make an `os.stat_result` of the extension module's numbers."""
    *basic, atime, mtime, ctime, block_size, blocks, device = numbers
    times = (atime, mtime, ctime)
    named = {
        "st_blksize": block_size,
        "st_blocks": blocks,
        "st_rdev": device,
    }
    for name, time in zip(("st_atime", "st_mtime", "st_ctime"), times, strict=True):
        seconds, rest = divmod(time, 10**9)
        named[name] = seconds + 1e-9 * rest  # type: ignore[assignment]
        named[f"{name}_ns"] = time
    return _os.stat_result((*basic, *(time // 10**9 for time in times)), named)


async def stat_of(file: _ringway.File) -> _os.stat_result:
    """`os.fstat` of an open file."""
    return stat_result(await run(file.stat()))


async def stat(
    path: Path | int, *, dir_fd: int | None = None, follow_symlinks: bool = True
) -> _os.stat_result:
    """`os.stat`."""
    if isinstance(path, int):
        if dir_fd is not None:
            raise ValueError("stat: can't specify dir_fd without matching path")
        if not follow_symlinks:
            raise ValueError("stat: cannot use fd and follow_symlinks together")
        return stat_result(await run(_ringway.stat_fd(engine(), path, path)))
    name = _os.fspath(path)
    return stat_result(await run(_ringway.stat(engine(), _fs(name), follow_symlinks, dir_fd, name)))


def _fs(name: str | bytes) -> str:
    """The path as the extension module takes it."""
    return _os.fsdecode(name)


async def access(
    path: Path,
    mode: int,
    *,
    dir_fd: int | None = None,
    effective_ids: bool = False,
    follow_symlinks: bool = True,
) -> bool:
    """`os.access`."""
    name = _os.fspath(path)
    flags = (0x200 if effective_ids else 0) | (0 if follow_symlinks else 0x100)
    return await run(_ringway.access(engine(), _fs(name), mode, dir_fd, flags, name))


async def getcwd() -> str:
    """`os.getcwd`, which does not block."""
    return _os.getcwd()


async def rename(
    src: Path, dst: Path, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
) -> None:
    """`os.rename`: on POSIX it replaces an existing file."""
    names = (_os.fspath(src), _os.fspath(dst))
    await run(
        _ringway.rename(engine(), _fs(names[0]), _fs(names[1]), src_dir_fd, dst_dir_fd, names)
    )


async def replace(
    src: Path, dst: Path, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
) -> None:
    """`os.replace`."""
    await rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)


async def renames(old: Path, new: Path) -> None:
    """`os.renames`: also creates and removes directories."""
    head, tail = _os.path.split(_os.fspath(new))
    if head and tail and not await path.exists(head):
        await makedirs(head)
    await rename(old, new)
    head, tail = _os.path.split(_os.fspath(old))
    if head and tail:
        try:
            await removedirs(head)
        except OSError:
            pass


async def remove(path: Path, *, dir_fd: int | None = None) -> None:
    """`os.remove`."""
    name = _os.fspath(path)
    await run(_ringway.remove(engine(), _fs(name), False, dir_fd, name))


async def unlink(path: Path, *, dir_fd: int | None = None) -> None:
    """`os.unlink`."""
    await remove(path, dir_fd=dir_fd)


async def mkdir(path: Path, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    """`os.mkdir`."""
    name = _os.fspath(path)
    await run(_ringway.mkdir(engine(), _fs(name), mode, dir_fd, name))


async def makedirs(name: Path, mode: int = 0o777, exist_ok: bool = False) -> None:
    """`os.makedirs`: parents have the default mode."""
    name = _os.fspath(name)
    head, tail = _os.path.split(name)
    if not tail:
        head, tail = _os.path.split(head)
    if head and tail and not await path.exists(head):
        try:
            await makedirs(head, exist_ok=exist_ok)
        except FileExistsError:
            pass  # Somebody else has created it meanwhile.
        if tail in (".", b"."):
            return
    try:
        await mkdir(name, mode)
    except OSError:
        if not exist_ok or not await path.isdir(name):
            raise


async def rmdir(path: Path, *, dir_fd: int | None = None) -> None:
    """`os.rmdir`."""
    name = _os.fspath(path)
    await run(_ringway.remove(engine(), _fs(name), True, dir_fd, name))


async def removedirs(name: Path) -> None:
    """`os.removedirs`: the directory, then its parents as far as they are empty."""
    await rmdir(name)
    head, tail = _os.path.split(_os.fspath(name))
    if not tail:
        head, tail = _os.path.split(head)
    while head and tail:
        try:
            await rmdir(head)
        except OSError:
            break
        head, tail = _os.path.split(head)


async def symlink(
    src: Path, dst: Path, target_is_directory: bool = False, *, dir_fd: int | None = None
) -> None:
    """`os.symlink`."""
    names = (_os.fspath(src), _os.fspath(dst))
    await run(_ringway.symlink(engine(), _fs(names[0]), _fs(names[1]), dir_fd, names))


async def link(
    src: Path,
    dst: Path,
    *,
    src_dir_fd: int | None = None,
    dst_dir_fd: int | None = None,
    follow_symlinks: bool = True,
) -> None:
    """`os.link`. As there, Linux does not follow a link at `src` unless a directory is given."""
    names = (_os.fspath(src), _os.fspath(dst))
    follow = follow_symlinks and not (src_dir_fd is None and dst_dir_fd is None)
    await run(
        _ringway.link(engine(), _fs(names[0]), _fs(names[1]), src_dir_fd, dst_dir_fd, follow, names)
    )


async def readlink(path: _S | _os.PathLike[_S], *, dir_fd: int | None = None) -> _S:
    """`os.readlink`."""
    name = _os.fspath(path)
    target = await run(_ringway.readlink(engine(), _fs(name), dir_fd, name))
    if isinstance(name, bytes):
        return _os.fsencode(target)  # pyright: ignore[reportReturnType]
    return target


async def _entries(path: Path | int | None) -> list[tuple[str, str | None, int]]:
    if isinstance(path, int):
        # Of what is no descriptor there is no such path either: this raises EBADF.
        await run(_ringway.stat_fd(engine(), path, path))
        return await run(_ringway.entries(engine(), f"/proc/self/fd/{int(path)}", path))
    name = "." if path is None else _os.fspath(path)
    return await run(_ringway.entries(engine(), _fs(name), name))


async def listdir(path: Path | int | None = None) -> list[Any]:
    """`os.listdir`: names in no order; bytes for a path of bytes."""
    names: list[Any] = [name for name, _, _ in await _entries(path)]
    if path is not None and not isinstance(path, int) and isinstance(_os.fspath(path), bytes):
        return [_os.fsencode(name) for name in names]
    return names


async def scandir(path: Path | int | None = None) -> Scan[Any]:
    """`os.scandir`: the entries of a directory. They are read before it returns; `stat` of an entry
    and types that need one are synchronous, as with `os.scandir`."""
    start = "." if path is None else path if isinstance(path, int) else _os.fspath(path)
    made: list[DirEntry[Any]] = []
    for name, kind, inode in await _entries(path):
        if isinstance(start, bytes):
            encoded = _os.fsencode(name)
            made.append(DirEntry(encoded, _os.path.join(start, encoded), kind, inode))
        elif isinstance(start, int):
            made.append(DirEntry(name, name, kind, inode, start))
        else:
            made.append(DirEntry(name, _os.path.join(start, name), kind, inode))
    return Scan(made)


class DirEntry(Generic[_S]):
    """An entry of a directory, as `os.DirEntry`."""

    __slots__ = ("_dir_fd", "_inode", "_kind", "name", "path")
    name: _S
    path: _S

    def __init__(
        self, name: _S, path: _S, kind: str | None, inode: int, dir_fd: int | None = None
    ) -> None:
        self.name = name
        self.path = path
        self._kind = kind
        self._inode = inode
        self._dir_fd = dir_fd

    def inode(self) -> int:
        """Return the inode number."""
        return self._inode

    def is_symlink(self) -> bool:
        """Return whether it is a symbolic link."""
        return self._kind == "l"

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a directory, or a symbolic link to one."""
        return self._is("d", 0o040000, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a regular file, or a symbolic link to one."""
        return self._is("f", 0o100000, follow_symlinks)

    def _is(self, kind: str, mode: int, follow: bool) -> bool:
        if self._kind == "l" and follow:
            try:
                return self.stat().st_mode & 0o170000 == mode
            except FileNotFoundError:
                return False
        return self._kind == kind

    def stat(self, *, follow_symlinks: bool = True) -> _os.stat_result:
        """Return its `os.stat_result`. This is a system call."""
        return _os.stat(self.path, dir_fd=self._dir_fd, follow_symlinks=follow_symlinks)

    def __fspath__(self) -> _S:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class Scan(Iterator[DirEntry[_S]]):
    """The iterator of `scandir`; `with` closes it, which is not necessary."""

    def __init__(self, entries: list[DirEntry[_S]]) -> None:
        self._entries: Iterator[DirEntry[_S]] = iter(entries)

    def __next__(self) -> DirEntry[_S]:
        return next(self._entries)

    def close(self) -> None:
        """End the iteration."""
        self._entries = iter(())

    def __enter__(self) -> Scan[_S]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def statvfs(path: Path | int) -> _os.statvfs_result:
    """`os.statvfs`."""
    name = "" if isinstance(path, int) else _os.fspath(path)
    fd = path if isinstance(path, int) else None
    shown = path if isinstance(path, int) else name
    numbers = await run(_ringway.statvfs(engine(), _fs(name), fd, shown))
    return _os.statvfs_result(numbers)


async def sendfile(out_fd: int, in_fd: int, offset: int | None, count: int) -> int:
    """`os.sendfile`: one call, on a thread of the engine. `ringway.sendfile` sends to a transport,
    all of it."""
    return await run(_ringway.sendfile(engine(), out_fd, in_fd, offset, count))


# ---- Other systems than Linux --------------------------------------------------------------------


def _stat_of(file: _ringway.File) -> _os.stat_result:
    # The engine lacks most of its numbers on Windows. On POSIX this would release the program's
    # locks of the file (fcntl), as the close of any of its descriptors does.
    number = file.duplicate()
    try:
        return _os.fstat(number)
    finally:
        _os.close(number)


def _scandir(path: Path | int | None = None) -> Scan[Any]:
    with _os.scandir("." if path is None else path) as entries:
        found: list[Any] = list(entries)
    return Scan(found)


_DIRECTORIES = ("dir_fd", "src_dir_fd", "dst_dir_fd")


class _Duplicate:
    """A duplicate of a directory's descriptor, which is closed when this is freed."""

    number = -1
    """That of no descriptor, as the caller's is."""

    def __init__(self, number: int) -> None:
        try:
            self.number = _os.dup(number)
        except OSError as error:
            if error.errno != _errno.EBADF:
                raise

    def __del__(self) -> None:
        if self.number >= 0:
            _os.close(self.number)


def _with_directories(function: Callable[..., _T]) -> Callable[..., Awaitable[_T]]:
    """Make a function for `wrap` keep the directories that it is given: a call that is cancelled
    may begin when the program has closed a descriptor, and its number is that of another one."""

    def in_thread(own: dict[str, _Duplicate], *arguments: Any, **named: Any) -> _T:
        return function(*arguments, **named, **{name: one.number for name, one in own.items()})

    waits = wrap(in_thread)

    @_functools.wraps(function)
    async def call(*arguments: Any, **named: Any) -> _T:
        given = [name for name in _DIRECTORIES if isinstance(named.get(name), int)]
        own = {name: _Duplicate(named.pop(name)) for name in given}
        return await waits(own, *arguments, **named)

    return call


def substitutes(names: Iterable[str], system: Any) -> dict[str, Any]:
    """Return the functions of these names that `system` (which is `os`) has, each called in a
    thread, and None for those that it lacks."""
    own: dict[str, Any] = {"stat_of": _stat_of, "scandir": _scandir}
    functions = {name: own.get(name, getattr(system, name, None)) for name in names}
    return {
        name: function and _named(name, _with_directories(function))
        for name, function in functions.items()
    }


def _named(name: str, function: Any) -> Any:
    """Give a function the name that it is found by, as pickle finds it."""
    function.__module__ = __name__
    function.__name__ = function.__qualname__ = name
    return function


def _replace() -> None:
    """Replace all functions that wait with those of `os`."""
    at_once = {"getcwd", "path", "wrap"}
    names = [name for name in __all__ if name not in at_once]
    if _os.name == "nt":
        names.append("stat_of")
    for name, function in substitutes(names, _os).items():
        if function is None:
            del globals()[name]
            __all__.remove(name)
        else:
            globals()[name] = function


if not hasattr(_ringway, "rename"):
    _replace()
