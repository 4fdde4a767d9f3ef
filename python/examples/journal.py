"""A journal that many tasks append to; each record is durable when append returns.

usage: journal.py FILE

A record is its length (4 bytes), the CRC-32 of that and the content (4 bytes), and the content, so
that a record that was cut by a crash is found, and zeros are none. The file is truncated there
before more is appended: what follows a damaged record is never read.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import zlib

import ringway

HEADER = struct.Struct("<II")


def checksum(content: bytes) -> int:
    return zlib.crc32(len(content).to_bytes(4, "little") + content)


async def append(log: ringway.LogWriter, content: bytes) -> None:
    await log.append(HEADER.pack(len(content), checksum(content)) + content)


async def records(path: str) -> tuple[list[bytes], int]:
    """The records up to the end, or up to the first that is damaged; and where they end."""
    data, at, found = await ringway.read_file(path), 0, []
    while at + HEADER.size <= len(data):
        length, expected = HEADER.unpack_from(data, at)
        content = data[at + HEADER.size : at + HEADER.size + length]
        if len(content) < length or checksum(content) != expected:
            break
        found.append(content)
        at += HEADER.size + length
    return found, at


async def repair(path: str) -> None:
    """Truncate the journal at the first damaged record."""
    try:
        async with ringway.open(path, "rb+") as file:
            _, end = await records(path)
            await file.truncate(end)
    except FileNotFoundError:
        pass


async def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: journal.py FILE")
    path = sys.argv[1]
    await repair(path)
    # This makes what is there durable, and the truncation.
    async with await ringway.LogWriter.open(path) as log:
        # All that wait at a time share one write and one sync.
        await asyncio.gather(*(append(log, b"event %d" % number) for number in range(1000)))
    print(f"{len((await records(path))[0])} records")


if __name__ == "__main__":
    asyncio.run(main())
