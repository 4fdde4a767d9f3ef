"""Tensors: the same results and errors as the package safetensors."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy as theirs
from hypothesis import given, settings
from hypothesis import strategies as st

from ringway import safetensors as ours

pytestmark = pytest.mark.usefixtures("descriptors")


def put(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)
    return path


def tensor(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def outcome(load: Any, path: Path) -> Any:
    """What comes of a file, so that it can be compared."""
    try:
        loaded = load(path)
    except Exception as error:
        return (type(error), str(error))
    return {
        name: (array.dtype, array.shape, array.tobytes(), array.flags.writeable)
        for name, array in loaded.items()
    }


ONE = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
HEADERS: dict[str, tuple[Any, bytes, int | None]] = {
    "no tensors": ({}, b"", None),
    "too large": (b"{}", b"", 200_000_000),
    "longer than the file": (b"{}", b"", 100),
    "longer than any file": (b"{}", b"", 2**64 - 1),
    "no text": (b'{"\xff":1}', b"", None),
    "cut": (b'{"a":', b"", None),
    "a list": (b"[]", b"", None),
    "nothing": (b"", b"", None),
    "blanks": (b"  " + ONE + b"} \n ", b"1234", None),
    "garbage behind": (ONE + b"}x", b"1234", None),
    "zeroes behind": (ONE + b"}\0", b"1234", None),
    "unknown type": ({"a": tensor("F33")}, b"1234", None),
    "no offsets": ({"a": {"dtype": "F32", "shape": [1]}}, b"1234", None),
    "more fields": ({"a": {**tensor(), "x": 1}}, b"1234", None),
    "negative": ({"a": tensor(shape=[-1])}, b"1234", None),
    "a fraction": ({"a": tensor(shape=[1.0])}, b"1234", None),
    "three offsets": ({"a": tensor(offsets=[0, 4, 5])}, b"1234", None),
    "a gap": ({"a": tensor(), "b": tensor(offsets=[8, 12])}, b"1" * 12, None),
    "shared bytes": ({"a": tensor(), "b": tensor(offsets=[2, 6])}, b"123456", None),
    "reversed": ({"a": tensor(offsets=[4, 0])}, b"1234", None),
    "wrong size": ({"a": tensor(shape=[2])}, b"1234", None),
    "more bytes": ({"a": tensor()}, b"12345", None),
    "fewer bytes": ({"a": tensor()}, b"123", None),
    "overflow": ({"a": tensor(shape=[2**62, 2**62])}, b"1234", None),
    "overflow of bits": ({"a": tensor(shape=[2**62])}, b"1234", None),
    "metadata": ({"__metadata__": {"a": "b"}, "a": tensor()}, b"1234", None),
    "metadata of numbers": ({"__metadata__": {"a": 1}, "a": tensor()}, b"1234", None),
    "twice": (ONE + b"," + ONE[1:] + b"}", b"1234", None),
    "a field twice": (ONE.replace(b'"shape"', b'"dtype":"F32","shape"') + b"}", b"1234", None),
    "a scalar": ({"a": tensor(shape=[])}, b"1234", None),
    "empty tensors": (
        {"a": tensor(shape=[0], offsets=[0, 0]), "b": tensor(), "c": tensor("F64", [3, 0], [4, 4])},
        b"1234",
        None,
    ),
    "half a byte": ({"a": tensor("F4", [1], [0, 0])}, b"", None),
}


@pytest.mark.parametrize("name", list(HEADERS))
def test_headers(tmp_path: Path, name: str) -> None:
    path = put(tmp_path / "file", *HEADERS[name])
    assert outcome(ours.load_file, path) == outcome(theirs.load_file, path)
    assert outcome(lambda path: dict(ours.iter_tensors(path)), path) == outcome(
        theirs.load_file, path
    )


@pytest.mark.parametrize("content", [b"", b"1234", b"12345678"])
def test_files_that_are_too_short(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert outcome(ours.load_file, path) == outcome(theirs.load_file, path)


TYPES = "bool uint8 int8 uint16 int16 float16 uint32 int32 float32 uint64 int64 float64 complex64"


@given(
    st.dictionaries(
        st.text(max_size=5).filter(lambda name: name != "__metadata__"),
        st.tuples(
            st.sampled_from(TYPES.split()),
            st.lists(st.integers(0, 40), max_size=3),
            st.integers(0, 255),
        ),
        max_size=12,
    ),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
)
@settings(max_examples=60, deadline=None)
def test_all_types_and_shapes(
    tmp_path_factory: pytest.TempPathFactory, spec: Any, metadata: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("tensors") / "file"
    arrays = {}
    for name, (dtype, shape, seed) in spec.items():
        count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        raw = (np.arange(count) * 7 + seed).astype(np.uint8)
        arrays[name] = (raw & 1 if dtype == "bool" else raw).view(dtype).reshape(shape)
    # With no tensors and empty metadata safetensors 0.8.0 writes a header that nobody reads.
    theirs.save_file(arrays, path, metadata or None)
    assert outcome(ours.load_file, path) == outcome(theirs.load_file, path)
    assert ours.read_metadata(path) == metadata


@pytest.mark.parametrize("padding", range(9))
def test_data_at_odd_offsets(tmp_path: Path, padding: int) -> None:
    header = json.dumps({"a": tensor("F64", [3], [0, 24]), "b": tensor("U8", [1], [24, 25])})
    path = put(tmp_path / "file", header.encode() + b" " * padding, bytes(range(25)))
    assert outcome(ours.load_file, path) == outcome(theirs.load_file, path)


def test_large_and_small_tensors_mixed(tmp_path: Path) -> None:
    path, rng = tmp_path / "file", np.random.default_rng(3)
    arrays = {
        f"{index}": rng.integers(0, 255, size, dtype=np.uint8)
        for index, size in enumerate([5, 3 << 20, 100, 1 << 20, 70 << 20, 9, 4097, 2_500_000] * 2)
    }
    theirs.save_file(arrays, path)
    for loaded in (ours.load_file(path), dict(ours.iter_tensors(path))):
        assert loaded.keys() == arrays.keys()
        for name, array in arrays.items():
            assert np.array_equal(loaded[name], array)
    loaded["0"][:] = 1


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F6_E2M3"])
def test_types_that_numpy_lacks(tmp_path: Path, dtype: str) -> None:
    size = {"BF16": 8, "F8_E4M3": 4, "F6_E2M3": 3}[dtype]
    path = put(tmp_path / "file", {"a": tensor(dtype, [4], [0, size])}, bytes(size))
    with pytest.raises(TypeError, match=f"numpy has no {dtype}"):
        ours.load_file(path)


def test_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: it is too large here")
    import safetensors.torch

    path = tmp_path / "file"
    tensors = {
        str(dtype): (torch.arange(60) % 2).to(dtype).reshape(3, 20)
        for dtype in (torch.bool, torch.uint8, torch.bfloat16, torch.float16, torch.float64)
    }
    safetensors.torch.save_file(tensors, path)
    loaded = ours.load_file(path, device="cpu")
    for name, one in safetensors.torch.load_file(path).items():
        assert loaded[name].dtype == one.dtype and torch.equal(loaded[name], one)


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        ours.load_file(tmp_path / "none")
    assert raised.value.filename == str(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        ours.load_file(tmp_path)


def test_memory_peaks_at_the_size_of_the_file(tmp_path: Path) -> None:
    """safetensors' default for numpy needs twice that."""
    path, size = tmp_path / "file", 256 << 20
    theirs.save_file({str(at): np.ones(size // 8, np.uint8) for at in range(8)}, path)
    program = """
import sys
import numpy
from ringway import safetensors
def status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if name in line)
before = status("VmRSS")
tensors = safetensors.load_file(sys.argv[1])
assert all(int(tensor[-1]) == 1 for tensor in tensors.values())
print((status("VmHWM") - before) * 1024)
"""
    command = [sys.executable, "-c", program, os.fspath(path)]
    peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert size <= peak <= 1.05 * size


@pytest.mark.parametrize("call", ["iter_tensors", "load_file"])
def test_a_file_that_is_replaced_meanwhile_is_read_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A save that replaces it atomically may come between any two steps."""
    path, size = tmp_path / "file", 33 << 20

    def save(value: int, name: str) -> Path:
        arrays = {f"{at}": np.full(size, value, np.uint8) for at in range(4)}
        theirs.save_file(arrays, tmp_path / name, {"value": str(value)})
        return tmp_path / name

    save(1, "file")
    if call == "iter_tensors":
        # One of these tensors is read ahead.
        tensors = ours.iter_tensors(path)
        arrays = [next(tensors)[1]]
        save(2, "new").replace(path)
        arrays += [array for _, array in tensors]
        assert [(int(array.min()), int(array.max())) for array in arrays] == [(1, 1)] * 4
        return
    inner = ours._maker

    def replaced(*arguments: Any) -> Any:
        save(2, "new").replace(path)
        return inner(*arguments)

    monkeypatch.setattr(ours, "_maker", replaced)
    arrays = list(ours.load_file(path).values())
    assert [(int(array.min()), int(array.max())) for array in arrays] == [(1, 1)] * 4
    assert ours.read_metadata(path) == {"value": "2"}


def test_an_iteration_that_is_left_closes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    theirs.save_file({str(at): np.ones(100, np.uint8) for at in range(4)}, path)
    tensors = ours.iter_tensors(path)
    assert next(tensors)[0] == "0"
    del tensors
    with pytest.raises(TypeError, match="numpy has no F8_E4M3"):
        ours.load_file(put(path, {"a": tensor("F8_E4M3", (4,))}, b"1234"))
