"""Tensors of safetensors files, read with direct I/O at depth into their own memory.

    tensors = ringway.safetensors.load_file("model.safetensors")                  # numpy
    tensors = ringway.safetensors.load_file("model.safetensors", device="cuda:0") # torch

Files that the package `safetensors` accepts are accepted, others refused with its errors. There
is no mmap: the file is read once, into page-aligned memory that the tensors then use. A file that
is replaced meanwhile is read as it was. Small tensors that follow each other share up to 1 MiB. The
functions block, and release the interpreter's lock; they need numpy or torch, and not the package
`safetensors`.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, Union

from ._bulk import buffer
from ._many import reader
from ._ringway import tensor_header

try:
    import fcntl
except ImportError:  # Windows, which has no direct I/O here.
    fcntl = None  # type: ignore[assignment]

try:
    from safetensors import SafetensorError  # pyright: ignore[reportAssignmentType]
except ImportError:

    class SafetensorError(Exception):  # type: ignore[no-redef]
        """A file that is no valid safetensors file."""


__all__ = ["SafetensorError", "iter_tensors", "load_file", "read_metadata"]

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_PAGE = 4096
_PIECE = 1 << 20
_DEPTH = 32
# Tensors that share memory, and the memory that the iterator reads at once.
_GROUP = 1 << 20
_WINDOW = 64 << 20
_LARGEST_HEADER = 100_000_000

_NUMPY = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
    # Only if a package such as ml_dtypes has registered it.
    "BF16": "bfloat16",
}
_TORCH = {
    **_NUMPY,
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}


class _Tensor(NamedTuple):
    name: str
    dtype: str
    shape: list[int]
    start: int
    end: int


class _File(NamedTuple):
    path: Any
    # The path may be that of another file by the next read.
    fd: int
    metadata: dict[str, str] | None
    # Their offsets are those in the file.
    tensors: list[_Tensor]


def read_metadata(path: Path) -> dict[str, str]:
    """Return the free-form `__metadata__` of a file. OSError; SafetensorError."""
    with _open(path) as file:
        return file.metadata or {}


def load_file(path: Path, device: Any = None) -> dict[str, Any]:
    """Return all tensors of a file by name: numpy arrays, or with a `device` (such as "cpu") torch
    tensors on it.

    Arrays are writable. Memory peaks at the size of the file. OSError with the filename;
    SafetensorError for an invalid file; TypeError for a type that numpy (without ml_dtypes: BF16)
    or torch does not have.
    """
    with _open(path) as file:
        make = _maker(device, file.tensors)
        return dict(_read(file, _groups(file.tensors), make))


def iter_tensors(path: Path, device: Any = None) -> Iterator[tuple[str, Any]]:
    """Yield (name, tensor) in the order of the file. A thread reads up to 64 MiB ahead (or one
    larger tensor) meanwhile; memory of tensors that are dropped is freed.

    The errors are those of `load_file`.
    """
    with _open(path) as file, ThreadPoolExecutor(1, "ringway-tensors") as pool:
        make = _maker(device, file.tensors)
        pending: Any = None
        for window in [*_windows(_groups(file.tensors)), None]:
            ready = pending
            pending = window and pool.submit(_read, file, window, make)
            if ready is not None:
                yield from ready.result()


@contextmanager
def _open(path: Path) -> Iterator[_File]:
    """Open a file, read and check the header."""
    name = os.fsdecode(os.fspath(path))
    fd = os.open(name, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        file = _header(name, fd)
        _set_direct(fd, True)
        yield file
    finally:
        os.close(fd)


def _header(name: str, fd: int) -> _File:
    [[first]] = _reads(name, fd, [(0, 8)])
    size = os.fstat(fd).st_size
    length = min(int.from_bytes(first, "little"), _LARGEST_HEADER, size) if len(first) == 8 else 0
    [[beginning]] = _reads(name, fd, [(0, 8 + length)])
    try:
        metadata, tensors = tensor_header(beginning, size)
    except ValueError as error:
        raise SafetensorError(str(error)) from None
    start = len(beginning)
    return _File(
        name,
        fd,
        metadata,
        [
            _Tensor(tensor, dtype, shape, start + first, start + end)
            for tensor, dtype, shape, first, end in tensors
        ],
    )


def _reads(name: str, fd: int, ranges: Any, pieces: Any = None) -> Any:
    try:
        return reader().read([(fd, ranges, pieces)], False, _DEPTH)
    except OSError as error:
        error.filename = name
        raise


def _set_direct(fd: int, direct: bool) -> None:
    """Let reads bypass the page cache, or not, where the file system can do that."""
    if fcntl is None:
        return
    try:
        if hasattr(fcntl, "F_NOCACHE"):  # macOS, which has no flag of open.
            fcntl.fcntl(fd, fcntl.F_NOCACHE, direct)
        elif hasattr(os, "O_DIRECT"):
            flags = fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_DIRECT
            fcntl.fcntl(fd, fcntl.F_SETFL, flags | (os.O_DIRECT if direct else 0))
    except OSError:
        pass  # One without direct I/O.


def _groups(tensors: list[_Tensor]) -> list[list[_Tensor]]:
    """Tensors that share memory, in the order of the file."""
    groups: list[list[_Tensor]] = []
    for tensor in tensors:
        if groups and tensor.end - groups[-1][0].start <= _GROUP:
            groups[-1].append(tensor)
        else:
            groups.append([tensor])
    return groups


def _windows(groups: list[list[_Tensor]]) -> list[list[list[_Tensor]]]:
    """Groups that the iterator reads at once."""
    windows: list[list[list[_Tensor]]] = []
    for group in groups:
        if windows and group[-1].end - windows[-1][0][0].start <= _WINDOW:
            windows[-1].append(group)
        else:
            windows.append([group])
    return windows


def _read(file: _File, groups: list[list[_Tensor]], make: Any) -> list[tuple[str, Any]]:
    """Read groups of tensors: whole pages, so that direct I/O needs no copy."""
    memories, ranges, pieces = [], [], []
    for group in groups:
        start = group[0].start // _PAGE * _PAGE
        size = -(start - group[-1].end) // _PAGE * _PAGE + _PAGE
        memory = _memory(size)
        memories.append((start, memory))
        for at in range(0, size, _PIECE):
            ranges.append((start + at, None))
            pieces.append(memory[at : at + _PIECE])
    _fill(file, ranges, pieces)
    found = []
    for group, (start, memory) in zip(groups, memories, strict=True):
        for tensor in group:
            found.append((tensor.name, make(tensor, memory, tensor.start - start)))
    return found


def _memory(size: int) -> memoryview:
    memory = buffer(size)
    if size >= 4 << 20 and hasattr(mmap, "MADV_HUGEPAGE"):
        mapping: Any = memory.obj
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _fill(file: _File, ranges: list[tuple[int, None]], pieces: list[memoryview]) -> None:
    try:
        [counts] = _reads(file.path, file.fd, ranges, pieces)
    except OSError as error:
        # A file system without direct I/O, although it has the flag.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
        _set_direct(file.fd, False)
        [counts] = _reads(file.path, file.fd, ranges, pieces)
    # The last byte of the tensors, if the file was not cut meanwhile.
    end = max((tensor.end for tensor in file.tensors), default=0)
    for (offset, _), piece, count in zip(ranges, pieces, counts, strict=True):
        if offset + count < min(offset + len(piece), end):
            raise OSError(errno.EIO, "The file has become shorter meanwhile", file.path)


def _maker(device: Any, tensors: list[_Tensor]) -> Any:
    """The function that makes a tensor of its memory; all types are checked before any read."""
    if device is None:
        return _numpy_maker(tensors)
    return _torch_maker(device, tensors)


def _numpy_maker(tensors: list[_Tensor]) -> Any:
    import numpy as np

    types: dict[str, Any] = {}
    for tensor in tensors:
        if tensor.dtype not in types:
            try:
                types[tensor.dtype] = np.dtype(_NUMPY[tensor.dtype])
            except (KeyError, TypeError):
                raise TypeError(
                    f"{tensor.name}: numpy has no {tensor.dtype}; load it with device='cpu', as "
                    f"a tensor of torch"
                ) from None

    def make(tensor: _Tensor, memory: memoryview, at: int) -> Any:
        dtype = types[tensor.dtype]
        count = (tensor.end - tensor.start) // dtype.itemsize
        if at % dtype.itemsize:
            # A header of odd length.
            raw = np.frombuffer(memory, np.uint8, count * dtype.itemsize, at)
            return raw.copy().view(dtype).reshape(tensor.shape)
        return np.frombuffer(memory, dtype, count, at).reshape(tensor.shape)

    return make


def _torch_maker(device: Any, tensors: list[_Tensor]) -> Any:
    import torch

    types: dict[str, Any] = {}
    for tensor in tensors:
        dtype = getattr(torch, _TORCH.get(tensor.dtype, ""), None)
        if dtype is None:
            raise TypeError(f"{tensor.name}: this torch has no {tensor.dtype}")
        types[tensor.dtype] = dtype

    def make(tensor: _Tensor, memory: memoryview, at: int) -> Any:
        dtype, size = types[tensor.dtype], tensor.end - tensor.start
        if not size:
            return torch.empty(tensor.shape, dtype=dtype, device=device)
        raw = torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=at)
        if at % dtype.itemsize:
            raw = raw.clone()
        return raw.view(dtype).reshape(tensor.shape).to(device)

    return make
