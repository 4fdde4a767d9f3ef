"""Text files: decoding and encoding, lines, and positions in text."""

from __future__ import annotations

import codecs
import io
import locale
import operator
import os
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any

from ._binary import AsyncFile


def encoding_of(encoding: str | None) -> str:
    """Return the encoding that `open` would use."""
    encoding = io.text_encoding(encoding, 3)
    return locale.getpreferredencoding(False) if encoding == "locale" else encoding


class AsyncTextFile:
    """A text file with the methods of aiofiles' text files. `ringway.open` makes it.

    `buffer` is the binary file below it. What that class says about event loops, turns and
    cancelled calls holds here too.
    """

    def __init__(
        self,
        buffer: AsyncFile,
        encoding: str,
        errors: str,
        newline: str | None,
        line_buffering: bool,
    ) -> None:
        if newline not in (None, "", "\n", "\r", "\r\n"):
            raise ValueError(f"illegal newline value: {newline!r}")
        self.buffer = buffer
        self.encoding = encoding
        self.errors = errors
        self.line_buffering = line_buffering
        self._newline = newline
        self._write_newline = {None: os.linesep, "": "\n"}.get(newline, newline) or "\n"
        self._codec = codecs.lookup(encoding)
        if not getattr(self._codec, "_is_text_encoding", True):
            io.TextIOWrapper(io.BytesIO(), encoding=encoding)  # It refuses that, in its own words.
        self._decoder: Any = None
        self._encoder: Any = None
        # Decoded text, of which `_used` characters were read.
        self._chars = ""
        self._used = 0
        # Of each piece that was decoded: its index in the text, its offset in the file, the
        # decoder's state before it, and its bytes.
        self._marks: list[tuple[int, int, tuple[bytes, int], bytes]] = []
        codecs.lookup_error(errors)

    # ---- What it is ------------------------------------------------------------------------------

    @property
    def name(self) -> Any:
        """The path or descriptor it was opened with."""
        return self.buffer.name

    @property
    def mode(self) -> str:
        """The mode it was opened with."""
        return self.buffer.mode

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self.buffer.closed

    @property
    def newlines(self) -> str | tuple[str, ...] | None:
        """The ends of lines met so far, with `newline=None` or `newline=""`."""
        return getattr(self._decoder, "newlines", None)

    @property
    def _file(self) -> Any:
        return self.buffer._file

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.buffer.fileno()

    def readable(self) -> bool:
        """Return whether it was opened for reading."""
        return self.buffer.readable()

    async def writable(self) -> bool:
        """Return whether it was opened for writing."""
        return await self.buffer.writable()

    async def seekable(self) -> bool:
        """Return whether it has positions."""
        return await self.buffer.seekable()

    async def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return await self.buffer.isatty()

    async def stat(self) -> os.stat_result:
        """Return what `os.fstat` returns. What `write` has collected does not count."""
        return await self.buffer.stat()

    def __repr__(self) -> str:
        return (
            f"<ringway.AsyncTextFile name={self.name!r} mode={self.mode!r} "
            f"encoding={self.encoding!r}>"
        )

    # ---- Reading ---------------------------------------------------------------------------------

    def _new_decoder(self) -> Any:
        decoder: Any = self._codec.incrementaldecoder(self.errors)
        if self._newline in (None, ""):
            decoder = io.IncrementalNewlineDecoder(decoder, translate=self._newline is None)
        self._decoder = decoder
        return decoder

    async def _more(self) -> bool:
        """Decode a chunk. Return False if there is no more, at the end of the file."""
        binary = self.buffer
        await binary._settle()
        decoder = self._decoder or self._new_decoder()
        data = binary._take_ahead(len(binary._ahead)) or await binary._fill()
        # From here on nothing waits, so that a cancelled read changes nothing.
        at, state = binary._pos, decoder.getstate()
        chars = decoder.decode(data, final=not data)
        self._forget()
        self._marks.append((len(self._chars), at, state, data))
        # CPython appends in place to a string that nothing else has, and copies it otherwise.
        all_chars, self._chars = self._chars, ""
        all_chars += chars
        self._chars = all_chars
        binary._pos += len(data)
        # At the end a decoder gives what it has held back, perhaps lines.
        return bool(data or chars)

    def _forget(self) -> None:
        """Forget the pieces of text that were read whole."""
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= self._used:
            del marks[0]
        if self._used == len(self._chars):
            marks.clear()
        cut = marks[0][0] if marks else len(self._chars)
        if cut:
            self._marks = [(index - cut, *rest) for index, *rest in marks]  # type: ignore[misc]
            self._chars, self._used = self._chars[cut:], self._used - cut

    async def read(self, size: int | None = -1, /) -> str:
        """Read `size` characters, fewer only at the end; without `size` all that is left.

        UnicodeDecodeError; ValueError if it is closed; OSError.
        """
        self.buffer._check_readable()
        async with self.buffer._turn:
            if size is None or size < 0:
                return await self._read_rest()
            while len(self._chars) - self._used < size and await self._more():
                pass
            return self._take(operator.index(size))

    async def _read_rest(self) -> str:
        binary = self.buffer
        data = await binary._rest()
        decoder = self._decoder or self._new_decoder()
        state = decoder.getstate()
        try:
            text: str = self._chars[self._used :] + decoder.decode(data, final=True)
        except BaseException:
            decoder.setstate(state)
            raise
        binary._pos += len(data)
        self._chars, self._used, self._marks = "", 0, []
        return text

    def _take(self, size: int) -> str:
        text = self._chars[self._used : self._used + size]
        self._used += len(text)
        return text

    async def readline(self, size: int | None = -1, /) -> str:
        """Read a line with its end, at most `size` characters; "" at the end of the file."""
        self.buffer._check_readable()
        limit = -1 if size is None or size < 0 else operator.index(size)
        if limit < 0 and not self.buffer._turn.busy:
            end = self._line_end(self._used)
            if end:
                return self._take(end - self._used)
        async with self.buffer._turn:
            return await self._readline(limit)

    async def _readline(self, limit: int) -> str:
        return self._take(await self._find_line(0, limit))

    async def _find_line(self, skip: int, limit: int) -> int:
        """Decode until a line is there, `skip` characters behind the position, or `limit`
        characters of it. Return the length of it."""
        searched = skip
        while True:
            end = self._line_end(self._used + searched)
            left = len(self._chars) - self._used
            if end:
                length = end - self._used - skip
                break
            if 0 <= limit <= left - skip:
                return limit
            # A line may end with two characters.
            searched = max(left - 1, skip)
            if not await self._more():
                length = len(self._chars) - self._used - skip
                break
        return length if limit < 0 else min(length, limit)

    def _line_end(self, start: int) -> int:
        """The end of the line that goes on there, or 0 if the text so far does not have it."""
        chars, newline = self._chars, self._newline
        if newline != "":
            newline = newline or "\n"
            end = chars.find(newline, start)
            return end + len(newline) if end >= 0 else 0
        # Any end of a line, not translated. The decoder never separates \r from \n.
        ends = [at for at in (chars.find("\n", start), chars.find("\r", start)) if at >= 0]
        if not ends:
            return 0
        end = min(ends)
        return end + (2 if chars.startswith("\r\n", end) else 1)

    async def readlines(self, hint: int | None = -1, /) -> list[str]:
        """Read lines until the end, or until they have more than `hint` characters."""
        self.buffer._check_readable()
        hint = -1 if hint is None else operator.index(hint)
        async with self.buffer._turn:
            if hint <= 0:
                return self._split(await self._read_rest())
            # The position moves when all of them are there.
            lengths, total = [], 0
            while total <= hint and (length := await self._find_line(total, -1)):
                lengths.append(length)
                total += length
            return [self._take(length) for length in lengths]

    def _split(self, text: str) -> list[str]:
        """The lines of text that was read."""
        if self._newline == "":
            return io.StringIO(text, newline="").readlines()
        end = self._newline or "\n"
        *lines, last = text.split(end)
        lines = [line + end for line in lines]
        return [*lines, last] if last else lines

    def __aiter__(self) -> AsyncIterator[str]:
        """Iterate over the lines from the position on."""
        self.buffer._check_readable()
        return self

    async def __anext__(self) -> str:
        line = await self.readline()
        if not line:
            raise StopAsyncIteration
        return line

    # ---- Writing ---------------------------------------------------------------------------------

    async def write(self, text: str, /) -> int:
        """Write the text; return its length in characters. As `AsyncFile.write`, it collects."""
        binary = self.buffer
        binary._check_writable()
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        has_end = "\n" in text
        data = text
        if has_end and self._write_newline != "\n":
            data = text.replace("\n", self._write_newline)
        ends_line = self.line_buffering and (has_end or "\r" in text)
        if self._collect(data):
            if ends_line:
                await binary.flush()
            return len(text)
        async with binary._turn:
            if self._is_ahead():
                # The position is that of the text that was read, not of what was decoded.
                if binary._appends:
                    await binary._flush()
                await self._seek(self._tell(binary._pos), os.SEEK_SET)
            self._forget_text()
            await self._write(data)
            if ends_line:
                await binary._flush()
        return len(text)

    def _is_ahead(self) -> bool:
        """Whether the position may be another than that of the text that was read. What a pipe or a
        terminal has given stays, whatever is written to it."""
        return bool(self._chars) and self.buffer._seekable

    def _forget_text(self) -> None:
        """Behind what is written, nothing is decoded, and no decoder has a state."""
        if self.buffer._seekable:
            self._chars, self._used, self._marks = "", 0, []

    def _collect(self, data: str) -> bool:
        """Collect the text, if nothing must be waited for."""
        binary = self.buffer
        if binary._turn.busy or binary._writing is not None or self._is_ahead():
            return False
        self._forget_text()
        encoder = self._encoder or self._new_encoder()
        state = encoder.getstate()
        encoded = encoder.encode(data)
        if not binary._has_room(len(encoded)):
            encoder.setstate(state)
            return False
        if encoded:
            binary._collect(encoded)
        return True

    async def _write(self, data: str) -> None:
        """Write in turn. Only data that was taken has changed the encoder, and has the byte order
        mark."""
        encoder = self._encoder or self._new_encoder()
        state = encoder.getstate()
        encoded = encoder.encode(data)
        try:
            await self.buffer._make_room(len(encoded))
        except BaseException:
            encoder.setstate(state)
            raise
        if encoded:
            await self.buffer._take(encoded)

    def _new_encoder(self) -> Any:
        encoder = self._encoder = self._codec.incrementalencoder(self.errors)
        if self.buffer._pos:
            # Only a file's beginning has a byte order mark.
            encoder.setstate(0)
        return encoder

    async def writelines(self, lines: Iterable[str], /) -> None:
        """Write each of the lines; nothing is put between them."""
        for line in lines:
            await self.write(line)

    async def flush(self) -> None:
        """Write what was collected."""
        await self.buffer.flush()

    async def sync(self, *, data_only: bool = False) -> None:
        """Write what was collected, and all that was written so far, to the device; as
        `AsyncFile.sync`."""
        await self.buffer.sync(data_only=data_only)

    # ---- Positions -------------------------------------------------------------------------------

    async def tell(self) -> int:
        """Return the position: an opaque number for `seek`. In append mode it writes what was
        collected first, whose place is known then."""
        binary = self.buffer
        if binary._appends and (binary._dirty or binary._writing is not None):
            await binary.flush()
        return self._tell(await binary.tell())

    def _tell(self, at: int) -> int:
        """The position, if the binary file is at `at`."""
        if not self._marks:
            return at
        if self._used == len(self._chars):
            # Everything decoded was read, but a decoder may hold bytes back.
            held, flags = self._decoder.getstate()
            return _cookie(at - len(held), flags, 0)
        marks, end = self._marks, len(self._chars)
        number = len(marks) - 1
        while marks[number][0] > self._used:
            end = marks[number][0]
            number -= 1
        index, start, state, data = marks[number]
        used = self._used - index
        offset, flags, last = self._locate(used, end - index, start, state, data)
        if offset > start:
            # The next call begins here, not at the beginning of the piece.
            marks[number] = (index + last, offset, (b"", flags), data[offset - start :])
        return _cookie(offset, flags, used - last)

    def _locate(
        self, used: int, characters: int, start: int, state: tuple[bytes, int], data: bytes
    ) -> tuple[int, int, int]:
        """Where the decoder holds nothing back, last before the character `used` of those of a
        piece: the offset, the decoder's flags, and the characters before it. As TextIOWrapper does,
        it guesses, and decodes what is left byte by byte."""
        decoder, saved = self._decoder, self._decoder.getstate()
        held, flags = state
        found = (start - len(held), flags, 0)
        try:
            size, back = used * len(data) // max(characters, 1), 1
            while size > 0:
                decoder.setstate(state)
                count = len(decoder.decode(data[:size]))
                held, flags = decoder.getstate()
                if count <= used and not held:
                    found = (start + size, flags, count)
                    break
                if count <= used:
                    size, back = size - len(held), 1
                else:
                    size, back = size - back, 2 * back
            else:
                size = count = 0
                decoder.setstate(state)
            for end in range(size + 1, len(data) + 1):
                if count >= used and not decoder.getstate()[0]:
                    break
                count += len(decoder.decode(data[end - 1 : end]))
                held, flags = decoder.getstate()
                if count > used:
                    break
                if not held:
                    found = (start + end, flags, count)
            return found
        finally:
            decoder.setstate(saved)

    async def seek(self, cookie: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position of `tell`, to the start (0) or to the end (`seek(0, 2)`)."""
        binary, cookie = self.buffer, operator.index(cookie)
        binary._check()
        if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        if whence != os.SEEK_SET and cookie != 0:
            kind = "cur" if whence == os.SEEK_CUR else "end"
            raise io.UnsupportedOperation(f"can't do nonzero {kind}-relative seeks")
        if cookie < 0:
            raise ValueError(f"negative seek position {cookie!r}")
        binary._check_seekable()
        async with binary._turn:
            if whence == os.SEEK_CUR:
                if binary._appends:
                    await binary._flush()
                cookie, whence = self._tell(binary._pos), os.SEEK_SET
            return await self._seek(cookie, whence)

    async def _seek(self, cookie: int, whence: int) -> int:
        """Move to a position of `_tell`, or to the end."""
        binary = self.buffer
        if whence == os.SEEK_END:
            cookie, flags, skip = await binary._seek(0, whence), 0, 0
        else:
            position, flags, skip = _parts(cookie)
            await binary._seek(position, whence)
        self._chars, self._used, self._marks, self._encoder = "", 0, [], None
        # A decoder must not look for a byte order mark behind the beginning.
        if self._decoder is not None or (cookie and binary._readable):
            decoder = self._decoder or self._new_decoder()
            if cookie and whence == os.SEEK_SET:
                decoder.setstate((b"", flags))
                # `tell` has the decoder's state of what was decoded; here that is nothing yet.
                self._marks = [(0, position, (b"", flags), b"")]
            else:
                decoder.reset()
        if skip:
            while len(self._chars) < skip and await self._more():
                pass
            if len(self._chars) < skip:
                raise OSError("can't restore logical file position")
            self._used = skip
        return cookie

    async def truncate(self, size: int | None = None, /) -> int:
        """Cut or extend the file to `size` bytes, by default to the end of what was decoded ahead,
        as text files of the standard library do. `truncate(await f.tell())` cuts it at the
        position."""
        return await self.buffer.truncate(size)

    # ---- The end ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write what was collected, and close the file; as `AsyncFile.close`."""
        await self.buffer.close()

    def detach(self) -> io.FileIO:
        """Return a synchronous binary file, at the position in the text; as `AsyncFile.detach`.

        ValueError also for a position inside of a sequence of bytes that only its decoder knows.
        """
        binary = self.buffer
        binary._check()
        position, _, skip = _parts(self._tell(binary._pos))
        if skip or (position != binary._pos and not binary._seekable):
            raise ValueError("detach: something was decoded ahead: await read() it first")
        end, binary._pos = binary._pos, position
        try:
            return binary.detach()
        except BaseException:
            binary._pos = end
            raise

    async def __aenter__(self) -> AsyncTextFile:
        self.buffer._check()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def _cookie(position: int, flags: int, skip: int) -> int:
    """One number for a position: the offset, and what a decoder needs beside it."""
    return position | flags << 64 | skip << 128


def _parts(cookie: int) -> tuple[int, int, int]:
    mask = (1 << 64) - 1
    return cookie & mask, cookie >> 64 & mask, cookie >> 128
