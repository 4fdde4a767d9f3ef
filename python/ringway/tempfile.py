"""The functions of aiofiles.tempfile: temporary files and directories.

Parameters are those of `tempfile`; `loop` and `executor` are accepted for programs that were
written for aiofiles, and ignored. Each function returns what is awaited, or used with `async with`.
Names are made, and directories removed, in threads; files are those of `ringway.open`.
"""

from __future__ import annotations

import asyncio
import os as _os
import tempfile as _tempfile
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from stat import S_IFREG
from types import TracebackType
from typing import Any

from . import _ringway
from ._engine import engine
from ._open import Opening, check_mode, in_thread, start_in_thread, wrap
from .os import unlink

__all__ = ["NamedTemporaryFile", "SpooledTemporaryFile", "TemporaryDirectory", "TemporaryFile"]


def TemporaryFile(
    mode: str = "w+b",
    buffering: int = -1,
    encoding: str | None = None,
    newline: str | None = None,
    suffix: Any = None,
    prefix: Any = None,
    dir: Any = None,
    loop: object = None,
    executor: object = None,
) -> Opening[Any]:
    """`tempfile.TemporaryFile`: a file without a name. OSError; ValueError for a wrong mode."""
    text = check_mode(mode, buffering, encoding, None, newline, False)

    def make() -> int:
        with _tempfile.TemporaryFile("w+b", 0, suffix=suffix, prefix=prefix, dir=dir) as made:
            return _os.dup(made.fileno())

    async def opened() -> Any:
        fd = await in_thread(make, _os.close)
        return await _file(fd, fd, mode, buffering, text, encoding, newline)

    return Opening(opened())


def NamedTemporaryFile(
    mode: str = "w+b",
    buffering: int = -1,
    encoding: str | None = None,
    newline: str | None = None,
    suffix: Any = None,
    prefix: Any = None,
    dir: Any = None,
    delete: bool = True,
    delete_on_close: bool = True,
    loop: object = None,
    executor: object = None,
) -> Opening[Any]:
    """`tempfile.NamedTemporaryFile`: a file whose `name` is its path. With `delete` it is removed
    when it is closed, or with `delete_on_close=False` at the end of the `async with` block; when it
    is forgotten in any case. OSError; ValueError for a wrong mode."""
    text = check_mode(mode, buffering, encoding, None, newline, False)

    def make() -> tuple[int, Any]:
        return _tempfile.mkstemp(suffix, prefix, dir)

    def undo(made: tuple[int, Any]) -> None:
        _os.close(made[0])
        _os.unlink(made[1])

    async def opened() -> Any:
        fd, name = await in_thread(make, undo)
        try:
            file = await _file(fd, name, mode, buffering, text, encoding, newline)
        except BaseException:
            _os.unlink(name)
            raise
        return _NamedFile(file, delete, delete_on_close)

    return Opening(opened())


async def _file(
    fd: int,
    name: Any,
    mode: str,
    buffering: int,
    text: bool,
    encoding: str | None,
    newline: str | None,
) -> Any:
    try:
        raw = _ringway.open_fd(engine(), fd, True, False, name)
    except BaseException:
        _os.close(fd)
        raise
    return await wrap(raw, S_IFREG, 0, name, mode, buffering, text, encoding, None, newline)


def _forget(name: Any) -> None:
    with suppress(OSError):
        _os.unlink(name)


class _NamedFile:
    """A file of `ringway.open` that is removed at its end."""

    def __init__(self, file: Any, delete: bool, delete_on_close: bool) -> None:
        self._opened = file
        self.delete = delete
        self._delete_on_close = delete_on_close
        self._forgotten = weakref.finalize(self, _forget, file.name)
        if not delete:
            self._forgotten.detach()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    async def close(self) -> None:
        """Close the file, and remove it unless it was opened with `delete_on_close=False`."""
        try:
            await self._opened.close()
        finally:
            if self._delete_on_close:
                await self._remove()

    async def _remove(self) -> None:
        if not self._forgotten.alive:
            return
        try:
            with suppress(FileNotFoundError):
                await unlink(self.name)
            self._forgotten.detach()
        finally:
            # If that has failed or was cancelled.
            self._forgotten()

    def __aiter__(self) -> AsyncIterator[Any]:
        iterator: AsyncIterator[Any] = self._opened.__aiter__()
        return iterator

    async def __aenter__(self) -> _NamedFile:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        finally:
            await self._remove()

    def __repr__(self) -> str:
        return f"<ringway.tempfile.NamedTemporaryFile of {self._opened!r}>"


def SpooledTemporaryFile(
    max_size: int = 0,
    mode: str = "w+b",
    buffering: int = -1,
    encoding: str | None = None,
    newline: str | None = None,
    suffix: Any = None,
    prefix: Any = None,
    dir: Any = None,
    loop: object = None,
    executor: object = None,
) -> Opening[Any]:
    """`tempfile.SpooledTemporaryFile`: in memory up to `max_size` bytes, or until `fileno` or
    `rollover`. Once it is a file, its methods run in threads, one call at a time."""
    text = check_mode(mode, buffering, encoding, None, newline, False)
    named: dict[str, Any] = {"encoding": encoding, "newline": newline} if text else {}

    async def opened() -> _SpooledFile:
        # It makes no file yet.
        made: Any = _tempfile.SpooledTemporaryFile(
            max_size, mode, buffering, suffix=suffix, prefix=prefix, dir=dir, **named
        )
        return _SpooledFile(made, max_size)

    return Opening(opened())


class _SpooledFile:
    """A spooled file whose methods are awaited. In memory they are called at once."""

    _AWAITED = frozenset(
        "flush isatty read readinto readline readlines seek tell truncate write writelines".split()
    )

    def __init__(self, file: Any, max_size: int) -> None:
        self._spooled = file
        self._max_size = max_size
        self._turn = asyncio.Lock()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._spooled, name)
        if name not in self._AWAITED:
            return attribute

        async def call(*arguments: Any) -> Any:
            await self._turn.acquire()
            if self._spooled._rolled or self._is_beyond(name, arguments):
                return await self._in_thread(lambda: attribute(*arguments))
            try:
                # The file in memory, so that only this class makes one on disk.
                result = getattr(self._spooled._file, name)(*arguments)
                is_full = (
                    name in ("write", "writelines")
                    and 0 < self._max_size < self._spooled._file.tell()
                )
            except BaseException:
                self._turn.release()
                raise
            if is_full:
                await self._in_thread(self._spooled.rollover)
            else:
                self._turn.release()
            return result

        return call

    def _is_beyond(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """Whether the call makes the file longer than what is kept in memory."""
        size = arguments[0] if name == "truncate" and len(arguments) == 1 else None
        return isinstance(size, int) and size > self._max_size

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        """Call a function in a thread. The turn, which the caller has, ends with it: if the waiter
        is cancelled, the function goes on."""
        try:
            called = start_in_thread(call)
        except BaseException:
            self._turn.release()
            raise

        def end(called: asyncio.Future[Any]) -> None:
            self._turn.release()
            if not called.cancelled():
                called.exception()

        called.add_done_callback(end)
        return await asyncio.shield(called)

    async def fileno(self) -> int:
        """Return the descriptor of the file, which is made if there is none."""
        await self._turn.acquire()
        number: int = await self._in_thread(self._spooled.fileno)
        return number

    async def rollover(self) -> None:
        """Put what is in memory into a file."""
        await self._turn.acquire()
        await self._in_thread(self._spooled.rollover)

    async def close(self) -> None:
        """Close and remove it."""
        await self._turn.acquire()
        await self._in_thread(self._spooled.close)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        line = await self.readline()
        if not line:
            raise StopAsyncIteration
        return line

    async def __aenter__(self) -> _SpooledFile:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def TemporaryDirectory(
    suffix: Any = None,
    prefix: Any = None,
    dir: Any = None,
    loop: object = None,
    executor: object = None,
) -> _Directories:
    """`tempfile.TemporaryDirectory`: `async with` gives its path, and removes it with all that is
    in it at the end; an awaited one has `name` and `cleanup`."""

    async def opened() -> _Directory:
        made = await in_thread(
            lambda: _tempfile.TemporaryDirectory(suffix, prefix, dir), lambda made: made.cleanup()
        )
        return _Directory(made)

    return _Directories(opened())


class _Directory:
    def __init__(self, made: _tempfile.TemporaryDirectory[Any]) -> None:
        self._made = made

    @property
    def name(self) -> Any:
        """The path."""
        return self._made.name

    async def cleanup(self) -> None:
        """Remove it with all that is in it. It goes on if it is cancelled. OSError."""
        await in_thread(self._made.cleanup, lambda _: None)

    async def close(self) -> None:
        """Do `cleanup`."""
        await self.cleanup()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.cleanup()


class _Directories(Opening[Any]):
    """`async with` gives the path, as that of the standard library does."""

    __slots__ = ()

    async def __aenter__(self) -> Any:
        return (await self).name
