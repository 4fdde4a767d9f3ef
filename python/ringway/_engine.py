"""The engine of each event loop, and how its operations are awaited."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import warnings
import weakref
from typing import Any

from ._ringway import Engine, Operation, finish_writes, forget_writes

# How long the interpreter's exit waits for writes that go on: somebody may never read a pipe.
_exit_seconds = 60.0

_engines: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Engine] = weakref.WeakKeyDictionary()

if hasattr(os, "register_at_fork"):
    # The parent's engines go on without the child, which builds its own.
    os.register_at_fork(after_in_child=_engines.clear)
    os.register_at_fork(after_in_child=forget_writes)


def _all() -> list[tuple[asyncio.AbstractEventLoop, Engine]]:
    """The loops and their engines. Other threads may build some meanwhile, which would break an
    iteration."""
    loops = [reference() for reference in _engines.keyrefs()]
    pairs = [(loop, _engines.get(loop)) for loop in loops if loop is not None]
    return [(loop, made) for loop, made in pairs if made is not None]


def _finish() -> None:
    """Let writes that go on end, also those of loops that were never closed."""
    for _, made in _all():
        made.end()
    _wait()


def _finish_idle() -> None:
    """The same while threads still run: a loop that runs in one of them ends its own writes."""
    for loop, made in _all():
        if not loop.is_running():
            made.end()
    _wait()


def _wait() -> None:
    global _exit_seconds
    if not finish_writes(_exit_seconds) and _exit_seconds:
        warnings.warn("ringway: writes were cut off by the exit", RuntimeWarning, stacklevel=1)
        _exit_seconds = 0.0


# Before threads are joined, also in children of multiprocessing, which end without atexit; and
# again for loops that ran until then, run in daemon threads, or are closed by functions of atexit.
getattr(threading, "_register_atexit", atexit.register)(_finish_idle)
atexit.register(_finish)


def engine() -> Engine:
    """Return the engine of the running loop, and build it on first use.

    RuntimeError without a running loop; OSError if the system refuses every backend.
    """
    loop = asyncio.get_running_loop()
    found = _engines.get(loop)
    return found if found is not None else _build(loop)


def _build(loop: asyncio.AbstractEventLoop) -> Engine:
    """Build an engine that the loop learns of completions from: by its descriptor, or, if only
    Linux's engines have one or the loop waits for none (as that of Windows), from its thread."""
    try:
        made = Engine(loop, True)
    except NotImplementedError:
        made = Engine(loop, False)
    else:
        try:
            loop.add_reader(made.fileno(), made.reaper())
        except (NotImplementedError, OSError):  # (ENOSPC: the user's epoll watches are used up.)
            made = Engine(loop, False)
    _engines[loop] = made
    return made


async def wait(operation: Operation) -> Any:
    """Await an operation, and cancel it if the awaiting task is cancelled."""
    try:
        return await operation.future
    except BaseException:
        operation.cancel()
        raise


def drop(operation: Operation) -> None:
    """Cancel an operation that nobody awaits. If it has failed, asyncio does not log its error."""
    operation.cancel()
    future = operation.future
    if future.done() and not future.cancelled():
        future.exception()


async def run(started: Any) -> Any:
    """Return the result of a call of the extension module, which may be an operation."""
    return await wait(started) if type(started) is Operation else started
