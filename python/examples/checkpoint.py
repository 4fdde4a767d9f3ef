"""Saves a checkpoint atomically, and loads it tensor by tensor.

usage: checkpoint.py FILE
"""

from __future__ import annotations

import asyncio
import sys

import numpy as np
from safetensors.numpy import save

import ringway


async def save_checkpoint(path: str, tensors: dict[str, np.ndarray]) -> None:
    """After a crash at any moment the file is the old checkpoint or the new one."""
    await ringway.write_atomic(path, save(tensors))


def load_checkpoint(path: str) -> dict[str, np.ndarray]:
    """A thread reads ahead while the tensors are being used."""
    loaded = {}
    for name, tensor in ringway.safetensors.iter_tensors(path):
        print(f"{name}: {tensor.dtype}, {tensor.shape}")
        loaded[name] = tensor
    return loaded


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: checkpoint.py FILE")
    path = sys.argv[1]
    tensors = {f"layer.{n}": np.full((256, 256), n, np.float32) for n in range(4)}
    asyncio.run(save_checkpoint(path, tensors))
    loaded = load_checkpoint(path)
    assert all(np.array_equal(loaded[name], tensor) for name, tensor in tensors.items())


if __name__ == "__main__":
    main()
