#!/usr/bin/env bash
# Expected: inotify(7) reports every change of a file by a system call of a local process, however
# it is submitted: write(2), io_uring or Linux AIO. Only changes through mmap(2) and by other
# machines are missed, as the man page says.
#
# Found (Linux 6.18.44, ext4; caio 0.12.10 with inotify_simple 2.0.1): writes and reads by Linux AIO
# (io_submit) give no IN_MODIFY and no IN_ACCESS. The same calls by caio's threads or io_uring do.
# So followers of a file and tools that reload or synchronise never hear of a program that writes
# with libaio, until it closes the file.
#
# Why: vfs_write() and io_uring (io_req_io_end) call fsnotify_modify(); aio_write() and
# aio_complete_rw() in fs/aio.c do not.
#
# Needs Python 3 with venv.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check caio==0.12.10 inotify_simple==2.0.1
cat >watch.py <<'WATCH'
import asyncio, os, sys
from caio.linux_aio_asyncio import AsyncioContext as LinuxAio
from caio.linux_uring_asyncio import AsyncioContext as Uring
from caio.thread_aio_asyncio import AsyncioContext as Threads
from inotify_simple import INotify, flags
async def events(engine):
    with open("file", "wb") as new:
        new.write(bytes(1 << 16))
    file = os.open("file", os.O_RDWR)
    watcher = INotify()
    watcher.add_watch("file", flags.MODIFY | flags.ACCESS)
    async with engine() as context:
        for at in range(0, 1 << 16, 4096):
            await context.write(b"x" * 4096, file, at)
        modified = [event.mask for event in watcher.read(timeout=500)]
        await context.read(4096, file, 0)
        accessed = [event.mask for event in watcher.read(timeout=500)]
    os.close(file)
    with open("file", "rb") as changed:
        assert changed.read() == b"x" * (1 << 16)
    return flags.MODIFY in modified, flags.ACCESS in accessed
failed = False
for name, engine, seen in (("threads", Threads, True), ("io_uring", Uring, True),
                           ("Linux AIO", LinuxAio, False)):
    found = asyncio.run(events(engine))
    print(f"  {name}: IN_MODIFY {found[0]}, IN_ACCESS {found[1]}")
    failed |= found != (seen, seen)
sys.exit(failed)
WATCH
echo "Linux $(uname -r), does inotify report 16 writes and a read:"
venv/bin/python watch.py || { echo "not as found" >&2; exit 1; }
