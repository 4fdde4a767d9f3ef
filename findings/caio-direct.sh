#!/usr/bin/env bash
# Expected: an asynchronous file library that allocates the read's buffer itself, and wraps Linux
# AIO, of which little else than O_DIRECT is asynchronous, reads whole aligned blocks of a file
# opened with O_DIRECT.
#
# Found (caio 0.12.10, Python 3.11, Linux 6.18.44, ext4): it raises SystemError ("Invalid argument")
# for reads of 4096 bytes and more, on all three of its native engines; so do writes of bytes. The
# error is no OSError, so `except OSError` misses it. With the same sizes, os.preadv into mmap'ed
# memory works.
#
# Why: reads go into memory of PyMem_Calloc or of a new bytes object, aligned to 16 bytes, and the
# caller cannot pass any other. (Source: caio/linux_aio.c, linux_uring.c and thread_aio.c.)
#
# Needs Python 3 with venv. Set TMPDIR to a directory on ext4 or XFS.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check caio==0.12.10
head -c 1048576 /dev/urandom >file
cat >direct.py <<'DIRECT'
import asyncio, mmap, os, sys
from caio.linux_aio_asyncio import AsyncioContext as LinuxAio
from caio.linux_uring_asyncio import AsyncioContext as Uring
from caio.thread_aio_asyncio import AsyncioContext as Threads
SIZES = (4096, 65536, 1 << 20)
file = os.open("file", os.O_RDWR | os.O_DIRECT)
async def attempts(engine):
    found = []
    async with engine() as context:
        for size in SIZES:
            for call in (lambda: context.read(size, file, 0),
                         lambda: context.write(b"x" * size, file, 0)):
                try:
                    await call()
                    found.append("works")
                except Exception as error:
                    found.append(f"{type(error).__name__}: {error}")
    return found
for size in SIZES:
    assert os.preadv(file, [mmap.mmap(-1, size)], 0) == size
failed = False
for name, engine in (("threads", Threads), ("io_uring", Uring), ("Linux AIO", LinuxAio)):
    found = asyncio.run(attempts(engine))
    print(f"  {name}: {sorted(set(found))} for {len(found)} reads and writes")
    failed |= set(found) != {"SystemError: Invalid argument"}
sys.exit(failed)
DIRECT
echo "caio 0.12.10, a file opened with O_DIRECT; preadv into mmap'ed memory works:"
venv/bin/python direct.py || { echo "not as found" >&2; exit 1; }
