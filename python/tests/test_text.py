"""Text files, compared with the built-in open."""

from __future__ import annotations

import asyncio
import io
import os
import random
import socket
from pathlib import Path
from typing import Any

import aiofiles
import pytest

import ringway

pytestmark = pytest.mark.usefixtures("descriptors")

TEXTS = {
    "ascii": "".join(f"line {number}\n" for number in range(4000)),
    "ends": "one\r\ntwo\rthree\n\r\r\nfour" * 1500,
    "wide": "größe π ☃ 𝄞\n" * 3000,
    "no end": "x" * 20_000,
    "empty": "",
}
ENCODINGS = ["utf-8", "utf-16", "utf-8-sig", "utf-32-le"]


@pytest.fixture(params=list(TEXTS))
def text(request: pytest.FixtureRequest) -> str:
    return TEXTS[request.param]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("newline", [None, "", "\n", "\r", "\r\n"])
async def test_lines_and_pieces_are_those_of_open(
    tmp_path: Path, text: str, encoding: str, newline: str | None
) -> None:
    path = tmp_path / "text"
    path.write_bytes(text.encode(encoding))
    async with ringway.open(path, encoding=encoding, newline=newline) as ours:
        with open(path, encoding=encoding, newline=newline) as theirs:
            for size in (0, 1, 5, 3000):
                assert await ours.read(size) == theirs.read(size)
            assert await ours.readline() == theirs.readline()
            assert await ours.readline(2) == theirs.readline(2)
            assert await ours.readlines(30) == theirs.readlines(30)
            here = await ours.tell()
            rest = theirs.read()
            assert await ours.read() == rest
            assert await ours.seek(here) == here
            assert "".join([line async for line in ours]) == rest
            assert await ours.read() == "" == await ours.readline()
            await ours.seek(0)
            theirs.seek(0)
            assert [line async for line in ours] == list(theirs)
            assert ours.newlines == theirs.newlines


@pytest.mark.parametrize("encoding", [*ENCODINGS, "shift_jis", "utf-7", "gb18030"])
async def test_positions_lead_back(tmp_path: Path, encoding: str) -> None:
    text = "ab\r\ncd\nとても長い\r行\n" * 700
    path = tmp_path / "text"
    path.write_bytes(text.encode(encoding))
    async with ringway.open(path, encoding=encoding, newline="") as file:
        places, read = [], 0
        for size in (1, 2, 3, 1, 8, 4000, 1, 1, 1, 2999):
            places.append((await file.tell(), read))
            read += len(await file.read(size))
        await file.readline()
        for place, characters in reversed(places):
            assert await file.seek(place) == place
            assert await file.read(100) == text[characters : characters + 100]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("newline", [None, "", "\r\n", "\r"])
@pytest.mark.parametrize("mode", ["w", "a", "x", "w+"])
async def test_what_is_written_is_what_open_writes(
    tmp_path: Path, text: str, encoding: str, newline: str | None, mode: str
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    pieces = [text[at : at + 700] for at in range(0, len(text), 700)]
    async with ringway.open(ours, mode, encoding=encoding, newline=newline) as file:
        for piece in pieces:
            assert await file.write(piece) == len(piece)
        await file.writelines(["a", "b\n"])
    with open(theirs, mode, encoding=encoding, newline=newline) as other:
        other.writelines([*pieces, "a", "b\n"])
    assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_appending_writes_no_second_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for part in ("one\n", "two\n"):
        async with ringway.open(ours, "a", encoding=encoding) as file:
            await file.write(part)
        with open(theirs, "a", encoding=encoding) as other:
            other.write(part)
    assert ours.read_bytes() == theirs.read_bytes()


async def test_writing_where_reading_stopped(tmp_path: Path) -> None:
    path = tmp_path / "both"
    path.write_text("0123456789\n" * 2000)
    async with ringway.open(path, "r+") as file:
        assert await file.read(3) == "012"
        await file.write("xy")
        assert await file.read(3) == "567"
        assert await file.tell() == 8
        await file.seek(0)
        assert await file.readline() == "012xy56789\n"
        await file.truncate(await file.tell())
    assert path.read_text() == "012xy56789\n"


async def test_seeking_as_text_files_do(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("0123456789")
    async with ringway.open(path) as file:
        assert await file.seek(0, os.SEEK_END) == 10
        assert await file.read() == ""
        await file.seek(4)
        assert await file.seek(0, os.SEEK_CUR) == 4
        assert await file.read(1) == "4"
        for offset, whence in ((1, os.SEEK_CUR), (1, os.SEEK_END)):
            with pytest.raises(io.UnsupportedOperation):
                await file.seek(offset, whence)
        for offset, whence in ((-1, os.SEEK_SET), (0, 9)):
            with pytest.raises(ValueError):
                await file.seek(offset, whence)


async def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes(b"gr\xf6\xdfe")
    async with ringway.open(path, encoding="utf-8") as file:
        with pytest.raises(UnicodeDecodeError):
            await file.read()
    async with ringway.open(path, encoding="utf-8", errors="replace") as file:
        assert await file.read() == "gr\ufffd\ufffde"
    async with ringway.open(path, "w", encoding="ascii") as file:
        with pytest.raises(UnicodeEncodeError):
            await file.write("größe")
        with pytest.raises(TypeError):
            await file.write(b"bytes")  # type: ignore[arg-type]


async def test_line_buffering_writes_each_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with ringway.open(path, "w", buffering=1) as file:
        assert file.line_buffering
        await file.write("half")
        assert path.read_text() == ""
        await file.write(" whole\n")
        assert path.read_text() == "half whole\n"


async def test_attributes(tmp_path: Path) -> None:
    path = tmp_path / "text"
    async with ringway.open(path, "w", encoding="latin-1", errors="ignore") as file:
        assert (file.encoding, file.errors, file.mode) == ("latin-1", "ignore", "w")
        assert file.name == str(path) and file.buffer.name == str(path)
        assert not file.readable() and await file.writable() and await file.seekable()
        assert not await file.isatty() and file.fileno() == file.buffer.fileno()
        with pytest.raises(io.UnsupportedOperation):
            await file.read()
    assert file.closed and file.buffer.closed


async def test_detach(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("0123456789")
    file = await ringway.open(path)
    with file.detach() as raw:
        assert raw.read(10) == b"0123456789"
    with pytest.raises(ValueError):
        await file.read()


async def test_reads_of_several_tasks_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("".join(f"{number:07}\n" for number in range(3000)))
    async with ringway.open(path) as file:
        lines = await asyncio.gather(*(file.readline() for _ in range(3000)))
    assert lines == [f"{number:07}\n" for number in range(3000)]


@pytest.mark.parametrize("module", [ringway, aiofiles], ids=["ours", "theirs"])
@pytest.mark.parametrize("lines", [1, 2000])
async def test_truncate_is_behind_what_was_decoded(module: Any, tmp_path: Path, lines: int) -> None:
    """Also if less was read: this is what text files of the standard library do."""
    path, content = tmp_path / "text", "0123456789\n" * lines
    path.write_text(content)
    with open(path, "r+") as other:
        other.read(3)
        kept = other.truncate()
    path.write_text(content)
    async with module.open(path, "r+") as file:
        assert await file.read(3) == "012"
        assert await file.truncate() == kept == min(len(content), 8192)
    assert path.read_text() == content[:kept]


@pytest.mark.parametrize("module", [ringway, aiofiles], ids=["ours", "theirs"])
@pytest.mark.parametrize("mode", ["a", "a+"])
async def test_positions_of_appended_text(module: Any, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "text"
    path.write_text("abcdef")
    async with module.open(path, mode) as file:
        await file.seek(2)
        await file.write("xy")
        with open(path, "a") as other:
            other.write("12345")
        places = [await file.tell()]
        await file.write("z")
        places.append(await file.tell())
        assert await file.seek(0, os.SEEK_CUR) == places[1]
    assert places == [13, 14] and path.read_text() == "abcdef12345xyz"


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-32", "utf-16-be", "utf-8-sig", "utf-8", "utf-7"]
)
@pytest.mark.parametrize("newline", [None, ""])
async def test_positions_lead_there_in_a_file_that_is_opened_again(
    tmp_path: Path, encoding: str, newline: str | None
) -> None:
    """A decoder looks for a byte order mark at the beginning, and nowhere else."""
    text = "größe\r\nπ ☃\n𝄞 end\n" * 600
    path = tmp_path / "text"
    path.write_bytes(text.encode(encoding))
    async with ringway.open(path, encoding=encoding, newline=newline) as file:
        places, rests = [], []
        with open(path, encoding=encoding, newline=newline) as other:
            whole = other.read()
        read = 0
        for size in (0, 1, 7, 4000, 3, 2000):
            read += len(await file.read(size))
            places.append(await file.tell())
            rests.append(whole[read:])
    for place, rest in zip(places, rests, strict=True):
        async with ringway.open(path, encoding=encoding, newline=newline) as file:
            await file.seek(place)
            assert await file.read(50) == rest[:50]
            assert await file.read() == rest[50:]
        if place < 1 << 128:
            # Numbers for places between characters are those of the standard library.
            with open(path, encoding=encoding, newline=newline) as other:
                other.seek(place)
                assert other.read() == rest
    async with ringway.open(path, encoding=encoding, newline=newline) as file:
        await file.seek(0)
        assert await file.read() == whole


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "big-endian utf-16", "utf-32", "iso2022_jp"],
)
@pytest.mark.parametrize("newline", [None, "", "\n", "\r", "\r\n"])
async def test_positions_are_those_of_open(
    tmp_path: Path, encoding: str, newline: str | None
) -> None:
    """Also one that is asked for where `seek` has moved to, before anything is decoded."""
    chance = random.Random(f"{encoding} {newline}")
    pieces = ["a", "bc", "\r", "\n", "\r\n", "日本", "語", "."]
    path = tmp_path / "text"
    # Of the other byte order, only the decoder knows further on.
    is_big = encoding == "big-endian utf-16"
    encoding = encoding.removeprefix("big-endian ")
    for length in (12, 60, 60, 12_000):
        text = "".join(chance.choices(pieces, k=length))
        data = ("\ufeff" + text).encode("utf-16-be") if is_big else text.encode(encoding)
        path.write_bytes(data)
        other = open(path, encoding=encoding, newline=newline)
        file = await ringway.open(path, encoding=encoding, newline=newline)
        places = [(0, 0)]
        for _ in range(60):
            match chance.choice(["read", "readline", "tell", "seek", "stay", "reopen"]):
                case "read":
                    size = chance.choice([0, 1, 2, 3, 5, length // 2])
                    assert await file.read(size) == other.read(size)
                case "readline":
                    assert await file.readline() == other.readline()
                case "tell":
                    places.append((await file.tell(), other.tell()))
                case "seek":
                    ours, theirs = chance.choice(places)
                    assert await file.seek(ours) == ours
                    other.seek(theirs)
                case "stay":
                    await file.seek(0, os.SEEK_CUR)
                    other.seek(0, os.SEEK_CUR)
                case "reopen":
                    ours, theirs = await file.tell(), other.tell()
                    await file.close()
                    other.close()
                    other = open(path, encoding=encoding, newline=newline)
                    file = await ringway.open(path, encoding=encoding, newline=newline)
                    await file.seek(ours)
                    other.seek(theirs)
        await file.seek(await file.tell())
        await file.seek(await file.tell())
        assert await file.read() == other.read()
        await file.close()
        other.close()


async def test_a_position_where_seek_has_moved_to_has_the_decoders_state(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("\ufeffabcdef".encode("utf-16-be"))
    async with ringway.open(path, encoding="utf-16") as file:
        assert await file.read(3) == "abc"
        place = await file.tell()
        await file.seek(place)
        assert await file.tell() == place
        await file.seek(place)
        assert await file.seek(0, os.SEEK_CUR) == place
        assert await file.read() == "def"


async def test_a_position_behind_what_was_written_has_no_state_of_a_decoder(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("\ufeffabcdef".encode("utf-16-be"))
    async with ringway.open(path, "r+", encoding="utf-16") as file:
        assert await file.read(3) == "abc"
        await file.seek(await file.tell())
        assert await file.write("x") == 1
        assert await file.tell() == 10


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "shift_jis"])
async def test_a_position_is_found_without_decoding_all_again(
    tmp_path: Path, encoding: str
) -> None:
    """Each `tell` begins where the last one was, and guesses."""
    path = tmp_path / "text"
    path.write_bytes("とても長い行 0123456789\n".encode(encoding) * 20_000)
    async with ringway.open(path, encoding=encoding) as file:
        await file.readline()
        decoded = 0
        new_decoder = file._new_decoder

        class Counting:
            def __init__(self, decoder: Any) -> None:
                self._decoder = decoder

            def __getattr__(self, name: str) -> Any:
                return getattr(self._decoder, name)

            def decode(self, data: bytes, final: bool = False) -> Any:
                nonlocal decoded
                decoded += len(data)
                return self._decoder.decode(data, final)

        await file.seek(0)
        file._decoder = Counting(new_decoder())
        places = []
        while await file.readline():
            places.append(await file.tell())
        assert len(places) == 20_000 and places == sorted(places)
        assert decoded < 4 * path.stat().st_size
        await file.seek(places[9_999])
        assert len(await file.readlines()) == 10_000


@pytest.mark.parametrize("other", ["close", "read", "write"])
async def test_text_that_is_written_after_a_read_takes_one_turn(tmp_path: Path, other: str) -> None:
    """Another task's operation does not come between the step back and the write."""
    path = tmp_path / "text"
    path.write_text("one\ntwo\nthree\n")
    file = await ringway.open(path, "r+")
    assert await file.readline() == "one\n"
    async with file.buffer._turn:
        first = asyncio.ensure_future(file.write("TWO\n"))
        call = {"close": file.close, "read": file.readline, "write": lambda: file.write("THREE")}
        second: Any = asyncio.ensure_future(call[other]())
        await asyncio.sleep(0)
    assert await first == 4
    assert await second == {"close": None, "read": "three\n", "write": 5}[other]
    await file.close()
    third = "THREE" if other == "write" else "three"
    assert path.read_text() == f"one\nTWO\n{third}\n"


async def test_text_that_is_written_after_a_close_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("one\ntwo\n")
    file = await ringway.open(path, "r+")
    assert await file.readline() == "one\n"
    async with file.buffer._turn:
        closing = asyncio.ensure_future(file.close())
        await asyncio.sleep(0)
        late = asyncio.ensure_future(file.write("TWO\n"))
        await asyncio.sleep(0)
    await closing
    with pytest.raises(ValueError, match="closed"):
        await late
    assert path.read_text() == "one\ntwo\n"


async def test_a_seek_in_text_takes_one_turn(tmp_path: Path) -> None:
    """One to a place that only the decoder knows reads again."""
    path, text = tmp_path / "text", "".join(map(chr, range(0x2600, 0x2660)))
    path.write_text(text, "utf-7")
    async with ringway.open(path, encoding="utf-7") as file:
        await file.read(5)
        place = await file.tell()
        assert place >> 128
        async with file.buffer._turn:
            seeking = asyncio.ensure_future(file.seek(place))
            reading = asyncio.ensure_future(file.read(3))
            await asyncio.sleep(0)
        assert await seeking == place
        assert await reading == text[5:8]


async def test_text_to_a_terminal_leaves_what_was_read_ahead() -> None:
    one, two = socket.socketpair()
    with two:
        async with ringway.open(one.detach(), "r+", encoding="utf-8") as file:
            two.sendall(b"a\nb\nc\n")
            assert await file.readline() == "a\n"
            assert await file.write("12") == 2 == await file.write("34")
            await file.flush()
            assert await file.readline() == "b\n"
            await file.write("5")
            two.sendall(b"d\n")
            assert await file.readline() == "c\n"
            assert await file.readline() == "d\n"
            assert two.recv(100) == b"12345"


async def test_sync_and_stat_of_text(tmp_path: Path) -> None:
    path = tmp_path / "text"
    async with ringway.open(path, "w") as file:
        await file.write("text")
        await file.sync(data_only=True)
        assert path.read_text() == "text"
        await file.write("more")
        await file.sync()
        assert (await file.stat()).st_size == 8 == path.stat().st_size
    with pytest.raises(ValueError, match="closed"):
        await file.stat()
    with pytest.raises(ValueError, match="closed"):
        await file.sync()


@pytest.mark.parametrize("encoding", ["hex", "rot13", "base64", "none"])
async def test_what_is_no_encoding_of_text_is_refused(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "text"
    path.write_text("text")
    with pytest.raises(LookupError) as theirs:
        open(path, encoding=encoding)
    with pytest.raises(LookupError) as ours:
        await ringway.open(path, encoding=encoding)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("buffering", [-1, 1, 4096])
async def test_text_to_a_terminal_is_written_line_by_line(buffering: int) -> None:
    """Unless the buffer has a size, as with the built-in open."""
    parent, child = os.openpty()
    async with ringway.open(os.ttyname(child), "w", buffering) as ours:
        with open(child, "w", buffering, closefd=False) as theirs:
            assert ours.line_buffering == theirs.line_buffering == (buffering < 4096)
        await ours.write("shown\nnot yet")
        os.set_blocking(parent, False)
        if buffering < 4096:
            assert os.read(parent, 100) == b"shown\r\nnot yet"
        else:
            with pytest.raises(BlockingIOError):
                os.read(parent, 100)
    os.close(child)
    os.close(parent)


@pytest.mark.parametrize("encoding", ["idna", "utf-7"])
async def test_lines_that_the_decoder_gives_at_the_end_only(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"+AGEACgBiAAo" if encoding == "utf-7" else b"a\nb\n")
    named: Any = {"encoding": encoding, "errors": "ignore" if encoding == "utf-7" else "strict"}
    with open(path, **named) as other:
        expected = list(other)
    async with ringway.open(path, **named) as file:
        assert [line async for line in file] == expected
        await file.seek(0)
        assert await file.readlines(1) == expected[:1]
        assert await file.readline() == "".join(expected[1:2])
