"""Reads of many files and ranges without asyncio, for threads and data loaders."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Union

from ._binary import Buffer, pairs
from ._ringway import Reader

try:
    import fcntl
except ImportError:  # Windows, which has no direct I/O here.
    fcntl = None  # type: ignore[assignment]

Source = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]", int]
"""A path, or a descriptor of a file that is open for reading."""
Request = Union[Source, "tuple[Source, int, int]"]
"""A whole file, or a range: (file, offset, length)."""

_readers: list[Reader] = []
_building = threading.Lock()


def _after_fork() -> None:
    """The reader is the parent's, and so may be the thread that holds the lock."""
    global _building
    _readers.clear()
    _building = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def reader() -> Reader:
    """Return the process's engine for threads, built on first use."""
    if not _readers:
        with _building:
            if not _readers:
                _readers.append(Reader())
    return _readers[0]


def _name(source: Source) -> Any:
    return source if isinstance(source, int) else os.fsdecode(source)


def _check_direct(source: Source) -> None:
    """ValueError for a descriptor whose reads do not bypass the page cache."""
    if not isinstance(source, int):
        return
    try:
        flags = fcntl.fcntl(source, fcntl.F_GETFL) if fcntl is not None else 0
    except OSError:
        return  # The read fails with this error.
    if not flags & getattr(os, "O_DIRECT", 0):
        raise ValueError("direct=True needs a path: a descriptor is direct if it was opened so")


def _listed(requests: Iterable[Any], depth: int) -> list[Any]:
    """The requests as a list. TypeError for a single one, ValueError for a wrong depth."""
    if depth < 1:
        raise ValueError("depth must be at least 1")
    if isinstance(requests, (str, bytes, os.PathLike, int)):
        raise TypeError(f"pass a list of requests, such as [{requests!r}], not {requests!r}")
    return list(requests)


def read_many(requests: Iterable[Request], *, direct: bool = False, depth: int = 64) -> list[bytes]:
    """Read many files or ranges at once; return bytes for each, in their order.

    A request is a path or descriptor, for the whole file, or a tuple (file, offset, length in
    bytes). Bytes are shorter than their range only at the end of the file. Up to `depth` files are
    open at a time, with up to `depth` reads each; a file with several ranges is opened once. With
    `direct` they bypass the page cache: ValueError for a descriptor that was not opened so.

    It needs no event loop, blocks the calling thread and releases the interpreter's lock; any
    number of threads may call it. OSError of the first that fails, with its filename.
    """
    asked = _listed(requests, depth)
    files: dict[Any, list[int]] = {}
    ranges: list[tuple[int, int | None]] = []
    for index, request in enumerate(asked):
        source, offset, length = request, 0, None
        if isinstance(request, (tuple, list)):
            if len(request) != 3:
                raise TypeError(f"a range is (file, offset, length), not {request!r}")
            source, offset = request[0], operator.index(request[1])
            length = None if request[2] is None else operator.index(request[2])
        if direct:
            _check_direct(source)
        if offset < 0 or (length is not None and length < 0):
            raise ValueError(f"a range of {length} bytes from {offset} on")
        files.setdefault(_name(source), []).append(index)
        ranges.append((offset, length))
    jobs = [(name, [ranges[index] for index in indices], None) for name, indices in files.items()]
    results: list[Any] = [b""] * len(asked)
    for indices, got in zip(files.values(), reader().read(jobs, direct, depth), strict=True):
        for index, one in zip(indices, got, strict=True):
            results[index] = one
    return results


def readinto_many(
    requests: Iterable[tuple[Source, int]],
    buffers: Sequence[Buffer],
    *,
    direct: bool = False,
    depth: int = 64,
) -> list[int]:
    """Fill many buffers at once, each from (file, offset) on; return the numbers of bytes.

    The buffers are writable and contiguous (bytearray, numpy array, mmap, ...) and must not
    overlap. A number is less than its buffer's length only at the end of the file. The rest is as
    for `read_many`. ValueError if there are more requests than buffers or fewer.
    """
    listed = pairs(_listed(requests, depth), "(file, offset)")
    asked = [(source, operator.index(offset)) for source, offset in listed]
    if isinstance(buffers, (bytes, bytearray, memoryview)):
        raise TypeError("pass a list of buffers, one for each request")
    if len(asked) != len(buffers):
        raise ValueError(f"{len(asked)} requests for {len(buffers)} buffers")
    files: dict[Any, list[int]] = {}
    for index, (source, offset) in enumerate(asked):
        if offset < 0:
            raise ValueError(f"a negative offset: {offset}")
        if direct:
            _check_direct(source)
        files.setdefault(_name(source), []).append(index)
    jobs = []
    for name, indices in files.items():
        ranges = [(asked[index][1], None) for index in indices]
        jobs.append((name, ranges, [buffers[index] for index in indices]))
    results = [0] * len(asked)
    for indices, got in zip(files.values(), reader().read(jobs, direct, depth), strict=True):
        for index, one in zip(indices, got, strict=True):
            results[index] = one
    return results
