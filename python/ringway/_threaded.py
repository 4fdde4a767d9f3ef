"""Synchronous file objects as asynchronous ones: the standard streams, and files that are already
open. Their methods run in threads."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

_AWAITED = frozenset(
    "close flush isatty peek read read1 readall readinto readline readlines seek seekable tell "
    "truncate writable write writelines".split()
)


class ThreadedFile:
    """A synchronous file object whose methods are awaited; other attributes are its own."""

    def __init__(self, get: Callable[[], Any]) -> None:
        """`get` returns the object, which may be another at each call, as `sys.stdout` may."""
        self._get = get

    @property
    def _file(self) -> Any:
        return self._get()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._get(), name)
        if name not in _AWAITED:
            return attribute

        async def call(*arguments: Any, **named: Any) -> Any:
            return await asyncio.to_thread(attribute, *arguments, **named)

        return call

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        line = await self.readline()
        if not line:
            raise StopAsyncIteration
        return line

    def __repr__(self) -> str:
        return f"<ringway.ThreadedFile of {self._get()!r}>"


def wrap(file: Any, *, loop: object = None, executor: object = None) -> ThreadedFile:
    """Return an asynchronous file for an open file of the standard library. TypeError for other
    objects. `loop` and `executor` are ignored; to open a file, `open` is better: it needs no
    thread."""
    if not isinstance(file, io.IOBase):
        raise TypeError(f"Unsupported io type: {file}.")
    return ThreadedFile(lambda: file)


stdin = ThreadedFile(lambda: sys.stdin)
stdout = ThreadedFile(lambda: sys.stdout)
stderr = ThreadedFile(lambda: sys.stderr)
stdin_bytes = ThreadedFile(lambda: sys.stdin.buffer)
stdout_bytes = ThreadedFile(lambda: sys.stdout.buffer)
stderr_bytes = ThreadedFile(lambda: sys.stderr.buffer)
