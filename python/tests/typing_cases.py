"""What a type checker infers for a program; checked by mypy, never run."""

from __future__ import annotations

from typing_extensions import assert_type

import ringway


async def main() -> None:
    async with ringway.open("a") as text:
        assert_type(text, ringway.AsyncTextFile)
        assert_type(await text.read(), str)
        async for line in text:
            assert_type(line, str)
    async with ringway.open("a", "rb") as binary:
        assert_type(binary, ringway.AsyncFile)
        assert_type(await binary.read(10), bytes)
        assert_type(await binary.readinto_at(bytearray(1), 0), int)
    assert_type(await ringway.open("a", "wb"), ringway.AsyncFile)
    assert_type(await ringway.open("a", "+br"), ringway.AsyncFile)
    assert_type(await ringway.open("a", "wt+"), ringway.AsyncTextFile)
    assert_type(await ringway.path.exists("a"), bool)
    assert_type(await ringway.os.readlink(b"a"), bytes)
    assert_type(ringway.read_many(["a"]), list[bytes])
    async with ringway.open("a", "rb") as file:
        await file.read_ranges([(0, 1)])
        await file.read_ranges([[0, 1], (1, 2)])
