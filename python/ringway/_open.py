"""`open`: like aiofiles.open, and the built-in open."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from stat import S_ISDIR
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union, overload

from . import _ringway
from ._binary import AsyncFile
from ._engine import engine, run
from ._text import AsyncTextFile, encoding_of

if TYPE_CHECKING:
    # Those of the built-in open, in every order of the letters.
    from _typeshed import OpenBinaryMode, OpenTextMode

FileOrPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]", int]
Opener = Callable[[Any, int], int]
_T = TypeVar("_T")
_F = TypeVar("_F", bound=AsyncFile | AsyncTextFile, covariant=True)

_FLAGS = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}

# Flags that an opener gets as well: those of the built-in open. (The last two are of Windows.)
_OPENERS = ("O_CLOEXEC", "O_NOINHERIT", "O_BINARY")
_NOT_INHERITED = sum(getattr(os, name, 0) for name in _OPENERS)


class Opening(Awaitable[_F], AbstractAsyncContextManager[_F], Generic[_F]):
    """What `open` returns: await it, or use it with `async with`."""

    __slots__ = ("_coro", "_obj")

    def __init__(self, coro: Any) -> None:
        self._coro = coro
        self._obj: Any = None

    def __await__(self) -> Generator[Any, None, _F]:
        if self._obj is None:
            self._obj = yield from self._coro.__await__()
        return self._obj

    async def __aenter__(self) -> _F:
        return await self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._obj.__aexit__(kind, error, traceback)
        finally:
            self._obj = None


@overload
def open(
    file: FileOrPath,
    mode: OpenTextMode = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Opener | None = None,
    *,
    loop: object = None,
    executor: object = None,
    direct: bool = False,
    dont_cache: bool = False,
) -> Opening[AsyncTextFile]: ...


@overload
def open(
    file: FileOrPath,
    mode: OpenBinaryMode,
    buffering: int = -1,
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    closefd: bool = True,
    opener: Opener | None = None,
    *,
    loop: object = None,
    executor: object = None,
    direct: bool = False,
    dont_cache: bool = False,
) -> Opening[AsyncFile]: ...


@overload
def open(
    file: FileOrPath,
    mode: str,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Opener | None = None,
    *,
    loop: object = None,
    executor: object = None,
    direct: bool = False,
    dont_cache: bool = False,
) -> Opening[AsyncFile | AsyncTextFile]: ...


def open(
    file: FileOrPath,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Opener | None = None,
    *,
    loop: object = None,
    executor: object = None,
    direct: bool = False,
    dont_cache: bool = False,
) -> Any:
    """Open a file: `async with ringway.open(path) as f`, or `f = await ringway.open(path)`.

    The parameters are those of the built-in `open`. `loop` and `executor` are accepted for
    programs that were written for aiofiles, and ignored. With `direct=True` (binary modes only)
    reads and writes bypass the page cache; OSError EINVAL if the file system cannot do that. With
    `dont_cache=True` they use it, but leave no pages of their own there (`RWF_DONTCACHE`: Linux
    6.14, ext4 and XFS). Elsewhere they leave them: `dont_cache_refusal()` of the file, or of a text
    file's `buffer`, says why.

    OSError as of `open`; ValueError and TypeError for arguments that contradict each other.
    """
    caching = (direct, dont_cache)
    return Opening(
        _open(file, mode, buffering, encoding, errors, newline, closefd, opener, caching)
    )


async def _open(
    file: FileOrPath,
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
    closefd: bool,
    opener: Opener | None,
    caching: tuple[bool, bool],
) -> AsyncFile | AsyncTextFile:
    if not isinstance(file, int):
        file = os.fspath(file)
    if not isinstance(mode, str):
        raise TypeError(f"invalid mode: {mode!r}")
    if not isinstance(buffering, int):
        raise TypeError(f"invalid buffering: {buffering!r}")
    # Before the file is opened, and perhaps truncated.
    for name, value in (("encoding", encoding), ("errors", errors), ("newline", newline)):
        if not isinstance(value, str | None):
            kind = type(value).__name__
            raise TypeError(f"open() argument {name!r} must be str or None, not {kind}")
    text = check_mode(mode, buffering, encoding, errors, newline, caching[0])
    kind = next(letter for letter in "rwxa" if letter in mode)
    flags = _FLAGS[kind]
    if "+" in mode:
        flags = flags & ~os.O_WRONLY | os.O_RDWR
    raw, stat = await _open_raw(file, flags, closefd, opener, caching)
    status, size = stat[0], stat[6]
    return await wrap(raw, status, size, file, mode, buffering, text, encoding, errors, newline)


async def wrap(
    raw: _ringway.File,
    kind: int,
    size: int,
    file: Any,
    mode: str,
    buffering: int,
    text: bool,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> AsyncFile | AsyncTextFile:
    """Return the file for one that is open; `kind` and `size` are the mode and the size of its
    `fstat`."""
    try:
        binary = AsyncFile(raw, file, mode, buffering, kind, size)
    except BaseException:
        await run(raw.close())
        raise
    if not text:
        return binary
    try:
        # As of the built-in open.
        by_line = buffering == 1 or (buffering < 0 and await binary.isatty())
        return AsyncTextFile(binary, encoding_of(encoding), errors or "strict", newline, by_line)
    except BaseException:
        await binary.close()
        raise


async def _open_raw(
    file: Any, flags: int, closefd: bool, opener: Opener | None, caching: tuple[bool, bool]
) -> tuple[_ringway.File, tuple[int, ...]]:
    direct, dont_cache = caching
    if direct and (isinstance(file, int) or opener is not None):
        raise ValueError("direct=True needs a path: a descriptor is direct if it was opened so")
    if isinstance(file, int):
        if file < 0:
            raise ValueError("negative file descriptor")
        stat = await _stat(file, file)
        return _ringway.open_fd(engine(), file, closefd, dont_cache, file), stat
    if not closefd:
        raise ValueError("Cannot use closefd=False with file name")
    if opener is not None:
        fd = await in_thread(lambda: _opened(opener, file, flags | _NOT_INHERITED), os.close)
        try:
            stat = await _stat(fd, file)
            return _ringway.open_fd(engine(), fd, True, dont_cache, file), stat
        except BaseException:
            os.close(fd)
            raise
    path = os.fsdecode(file)
    return await run(_ringway.open(engine(), path, flags, 0o666, direct, dont_cache, file))


async def _stat(fd: int, name: Any) -> tuple[int, ...]:
    """The numbers of `fstat`. The descriptor stays that of the caller, whatever happens."""
    numbers: tuple[int, ...] = await run(_ringway.stat_fd(engine(), fd, name))
    if S_ISDIR(numbers[0]):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    return numbers


def _opened(opener: Opener, file: Any, flags: int) -> int:
    fd = opener(file, flags)
    if not isinstance(fd, int):
        raise TypeError("expected integer from opener")
    if fd < 0:
        raise ValueError(f"opener returned {fd}")
    return fd


def start_in_thread(call: Callable[[], _T]) -> asyncio.Future[_T]:
    """Call a function in a thread, with the variables of the calling task's context."""
    # No task, which the end of `asyncio.run` would cancel.
    context = contextvars.copy_context()
    return asyncio.get_running_loop().run_in_executor(None, lambda: context.run(call))


async def in_thread(call: Callable[[], _T], undo: Callable[[_T], object]) -> _T:
    """Call a function in a thread. If the waiter is cancelled or closed, its result is undone."""
    called = start_in_thread(call)

    def forget(called: asyncio.Future[_T]) -> None:
        if not called.cancelled() and called.exception() is None:
            undo(called.result())

    try:
        return await asyncio.shield(called)
    except (asyncio.CancelledError, GeneratorExit):
        # (The latter of a coroutine that is closed.)
        if called.done():
            forget(called)
        else:
            called.add_done_callback(forget)
        raise


def check_mode(
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
    direct: bool,
) -> bool:
    """Return whether the mode is one of text. The errors are those of the built-in open."""
    letters = set(mode)
    if letters - set("rwxabt+") or len(mode) > len(letters):
        raise ValueError(f"invalid mode: {mode!r}")
    if "t" in letters and "b" in letters:
        raise ValueError("can't have text and binary mode at once")
    if len(letters & set("rwxa")) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    text = "b" not in letters
    if not text:
        for name, value in (("encoding", encoding), ("errors", errors), ("newline", newline)):
            if value is not None:
                article = "a" if name == "newline" else "an"
                raise ValueError(f"binary mode doesn't take {article} {name} argument")
    if text and buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    if text and direct:
        raise ValueError("direct=True needs a binary mode, such as 'rb'")
    return text
