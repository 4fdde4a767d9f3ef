#!/usr/bin/env bash
# Expected: RocksDB's ReadOptions::async_io makes a scan read ahead by io_uring, beside the reader;
# where RocksDB was built without io_uring, setting it is an error, or noted somewhere.
#
# Found (rocksdict 0.3.29, which contains RocksDB, on Linux 6.18.44): the option is accepted and
# does nothing. A cold scan makes the same 15,000 reads of 4 KiB with and without it, one after the
# other, and the process has no ring. readahead_size alone makes 61 reads of them.
#
# Why: the code is compiled only if the build finds liburing, and even then it runs only in programs
# that define the function RocksDbIOUringEnable. Elsewhere ReadAsync is NotSupported, which the
# iterator takes for "read synchronously". (Source: RocksDB's env/fs_posix.cc and env/io_posix.cc.)
#
# Needs Python 3 with venv. Set TMPDIR to a directory on a disk.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check rocksdict==0.3.29
cat >scan.py <<'SCAN'
import os, sys
from rocksdict import DBCompressionType, Options, Rdict, ReadOptions
KEYS = 30000
options = Options(raw_mode=True)
options.set_compression_type(DBCompressionType.none())
database = Rdict("database", options)
for key in range(KEYS):
    database[b"%08d" % key] = os.urandom(2000)
database.flush()
database.close()
def reads():
    with open("/proc/self/io") as lines:
        return int(dict(line.split(": ") for line in lines)["syscr"])
def scan(is_async, readahead=0):
    for entry in os.scandir("database"):
        with open(entry.path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    database = Rdict("database", Options(raw_mode=True))
    reading = ReadOptions()
    reading.set_async_io(is_async)
    reading.set_readahead_size(readahead)
    before = reads()
    assert sum(1 for _ in database.keys(read_opt=reading)) == KEYS
    after = reads()
    open_files = [os.path.realpath(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")]
    database.close()
    return after - before, any("io_uring" in each for each in open_files)
plain, asynchronous, ahead = scan(False), scan(True), scan(False, 1 << 20)
for name, found in (("as it is", plain), ("async_io", asynchronous), ("readahead_size", ahead)):
    print(f"  {name}: {found[0]} reads, a ring: {found[1]}")
close = abs(plain[0] - asynchronous[0]) < plain[0] // 50
sys.exit(not close or asynchronous[1] or ahead[0] > plain[0] // 20)
SCAN
echo "rocksdict 0.3.29, a cold scan of 60 MB:"
venv/bin/python scan.py || { echo "not as found" >&2; exit 1; }
