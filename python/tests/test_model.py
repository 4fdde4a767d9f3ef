"""Random sequences of operations on a file, compared with the same on a built-in file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringway

SIZE = st.sampled_from([0, 1, 2, 7, 100, 4096, 8192, 8193, 70_000])
BINARY = st.one_of(
    st.tuples(st.just("read"), SIZE),
    st.tuples(st.just("read")),
    st.tuples(st.just("readline")),
    st.tuples(st.just("readline"), SIZE),
    st.tuples(st.just("readlines"), SIZE),
    st.tuples(st.just("readinto"), SIZE),
    st.tuples(st.just("write"), SIZE),
    st.tuples(st.just("seek"), st.integers(0, 80_000)),
    st.tuples(st.just("seek"), st.integers(-100, 100), st.just(os.SEEK_CUR)),
    st.tuples(st.just("seek"), st.integers(-100, 100), st.just(os.SEEK_END)),
    st.tuples(st.just("tell")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("truncate")),
    st.tuples(st.just("truncate"), st.integers(0, 80_000)),
)
TEXT = st.one_of(
    st.tuples(st.just("read"), SIZE),
    st.tuples(st.just("read")),
    st.tuples(st.just("readline")),
    # With a hint, the built-in file cannot tell its position any more.
    st.tuples(st.just("readlines")),
    st.tuples(st.just("write"), st.text(max_size=20)),
    st.tuples(st.just("again"), st.integers(0, 5)),
    st.tuples(st.just("flush")),
)


def theirs(file: Any, name: str, arguments: tuple[Any, ...]) -> Any:
    try:
        if name == "readinto":
            buffer = bytearray(arguments[0])
            return file.readinto(buffer), bytes(buffer)
        return getattr(file, name)(*arguments)
    except (OSError, ValueError) as error:
        return OSError if isinstance(error, OSError) else type(error)


async def ours(file: Any, name: str, arguments: tuple[Any, ...]) -> Any:
    try:
        if name == "readinto":
            buffer = bytearray(arguments[0])
            return await file.readinto(buffer), bytes(buffer)
        return await getattr(file, name)(*arguments)
    except (OSError, ValueError) as error:
        return OSError if isinstance(error, OSError) else type(error)


def compare(
    directory: Path, mode: str, buffering: int, calls: list[Any], wrap: Any = lambda file: file
) -> None:
    """Does the same with a file of ours, which `wrap` may change, and a built-in one."""
    paths = [directory / "ours", directory / "theirs"]
    for path in paths:
        path.write_bytes(b"".join(b"line %d\n" % number for number in range(1000)))

    async def main() -> None:
        # A file without buffer may give less than a read asks for; ours does not.
        with open(paths[1], mode, buffering or -1) as other:
            async with ringway.open(paths[0], mode, buffering) as opened:
                file = wrap(opened)
                for index, (name, *rest) in enumerate(calls):
                    arguments = tuple(rest)
                    if name == "write":
                        arguments = (bytes([65 + index]) * rest[0],)
                    expected = theirs(other, name, arguments)
                    assert await ours(file, name, arguments) == expected, (name, arguments)
                    if name == "write" and (buffering == 0 or "a" in mode):
                        # Before that, nobody knows where the end of the file is.
                        other.flush()
                        await file.flush()
                    assert await file.tell() == other.tell(), name

    asyncio.run(main())
    assert paths[0].read_bytes() == paths[1].read_bytes()


@given(
    st.sampled_from(["rb", "rb+", "wb+", "ab+"]),
    st.sampled_from([-1, 0, 50]),
    st.lists(BINARY, max_size=25),
)
@settings(max_examples=150, deadline=None)
def test_binary_files(
    tmp_path_factory: pytest.TempPathFactory, mode: str, buffering: int, calls: list[Any]
) -> None:
    compare(tmp_path_factory.mktemp("model"), mode, buffering, calls)


@given(
    st.sampled_from(["utf-8", "utf-16-le", "latin-1"]),
    st.sampled_from([None, "", "\n", "\r", "\r\n"]),
    st.text(alphabet="ab\r\néß", max_size=200),
    st.lists(TEXT, max_size=25),
)
@settings(max_examples=150, deadline=None)
def test_text_files(
    tmp_path_factory: pytest.TempPathFactory,
    encoding: str,
    newline: str | None,
    content: str,
    calls: list[Any],
) -> None:
    directory = tmp_path_factory.mktemp("model")
    paths = [directory / "ours", directory / "theirs"]
    for path in paths:
        path.write_bytes(content.encode(encoding))

    async def main() -> None:
        named: Any = {"encoding": encoding, "newline": newline, "errors": "replace"}
        with open(paths[1], "r+", **named) as other:
            async with ringway.open(paths[0], "r+", **named) as file:
                places: list[tuple[int, int]] = []
                for name, *rest in calls:
                    places.append((await file.tell(), other.tell()))
                    if name == "again":
                        place = places[rest[0] % len(places)]
                        await file.seek(place[0])
                        other.seek(place[1])
                        continue
                    if name == "write":
                        # Text files of the standard library overwrite at what they have decoded.
                        await file.seek(0, os.SEEK_END)
                        other.seek(0, os.SEEK_END)
                    expected = theirs(other, name, tuple(rest))
                    assert await ours(file, name, tuple(rest)) == expected, (name, rest)
                    if name == "write":
                        await file.flush()
                        other.flush()

    asyncio.run(main())
    assert paths[0].read_bytes() == paths[1].read_bytes()


class Wrong:
    """A file with one method that is wrong."""

    def __init__(self, file: ringway.AsyncFile, name: str) -> None:
        self.file = file
        self.name = name

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.file, name)
        if name != self.name:
            return method

        async def wrong(*arguments: Any) -> Any:
            result = await method(*arguments)
            if name == "write":
                # It has written, and says so, but one byte is another one.
                await self.file.write_at(b"!", await self.file.tell() - 1)
            elif name == "read":
                await self.file.seek(1, os.SEEK_CUR)
            elif name == "truncate":
                await self.file.seek(0)
            return result

        return wrong


@pytest.mark.parametrize("name", ["read", "write", "truncate"])
def test_the_model_would_notice(tmp_path: Path, name: str) -> None:
    """A file that differs in one method, in its result, its position or its content, fails."""
    calls = [("seek", 10), ("read", 7), ("write", 100), ("truncate", 80_000), ("tell",)]
    compare(tmp_path, "rb+", 0, calls)
    with pytest.raises(AssertionError):
        compare(tmp_path, "rb+", 0, calls, lambda file: Wrong(file, name))
