#!/usr/bin/env bash
# Expected: rchar and wchar of /proc/PID/io count the bytes that a process reads and writes, and
# syscr and syscw its requests, for asynchronous I/O as for read(2). Tools show them per process.
#
# Found (Linux 6.18.44, ext4; caio 0.12.10): 256 KiB written and read by caio's threads count as
# 256 KiB and 64 requests each. The same by io_uring or Linux AIO counts nothing in rchar, wchar and
# syscw; syscr counts only the reads of the eventfd. Cached asynchronous reads are in no figure at
# all, since read_bytes counts the device.
#
# Why: add_rchar(), add_wchar(), inc_syscr() and inc_syscw() are called in fs/read_write.c (vfs_read
# and the like) only; io_uring/rw.c and fs/aio.c call the file's read_iter and write_iter
# themselves. The documentation (filesystems/proc.rst) speaks of read() and pread().
#
# Needs Python 3 with venv.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check caio==0.12.10
cat >count.py <<'COUNT'
import asyncio, os, sys
from caio.linux_aio_asyncio import AsyncioContext as LinuxAio
from caio.linux_uring_asyncio import AsyncioContext as Uring
from caio.thread_aio_asyncio import AsyncioContext as Threads
SIZE = 256 << 10
def counters():
    with open("/proc/self/io") as lines:
        return {name: int(value) for name, value in (line.split(": ") for line in lines)}
async def counted(engine):
    file = os.open("file", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    async with engine() as context:
        before = counters()
        for at in range(0, SIZE, 4096):
            await context.write(b"x" * 4096, file, at)
        for at in range(0, SIZE, 4096):
            assert len(await context.read(4096, file, at)) == 4096
        after = counters()
    os.close(file)
    return {name: after[name] - before[name] for name in ("rchar", "wchar", "syscw")}
failed = False
for name, engine in (("threads", Threads), ("io_uring", Uring), ("Linux AIO", LinuxAio)):
    found = asyncio.run(counted(engine))
    print(f"  {name}: {found}")
    if engine is Threads:
        failed |= found["wchar"] < SIZE or found["rchar"] < SIZE or found["syscw"] < 64
    else:
        failed |= found["wchar"] > 8192 or found["rchar"] > 8192 or found["syscw"] > 8
sys.exit(failed)
COUNT
echo "Linux $(uname -r), /proc/self/io after $((256 << 10)) bytes written and read:"
venv/bin/python count.py || { echo "not as found" >&2; exit 1; }
