"""A journal that many tasks append to; each record is durable when append returns.

usage: journal.py FILE

A record is its length (4 bytes), its CRC-32 (4 bytes) and its content, so that a record that was
cut by a crash is found.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import zlib

import ringway

HEADER = struct.Struct("<II")


async def append(log: ringway.LogWriter, content: bytes) -> None:
    await log.append(HEADER.pack(len(content), zlib.crc32(content)) + content)


async def records(path: str) -> list[bytes]:
    """The records up to the end, or up to the first that is damaged."""
    data, at, found = await ringway.read_file(path), 0, []
    while at + HEADER.size <= len(data):
        length, checksum = HEADER.unpack_from(data, at)
        content = data[at + HEADER.size : at + HEADER.size + length]
        if len(content) < length or zlib.crc32(content) != checksum:
            break
        found.append(content)
        at += HEADER.size + length
    return found


async def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: journal.py FILE")
    path = sys.argv[1]
    async with await ringway.LogWriter.open(path) as log:
        # All that wait at a time share one write and one sync.
        await asyncio.gather(*(append(log, b"event %d" % number) for number in range(1000)))
    print(f"{len(await records(path))} records")


if __name__ == "__main__":
    asyncio.run(main())
