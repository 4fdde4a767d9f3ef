#!/usr/bin/env bash
# Expected: one byte stored through a shared mapping makes one page dirty, and msync writes that
# page and some metadata: as much as pwrite of one byte and fsync. LMDB with MDB_WRITEMAP, which
# stores through its mapping, writes about as much as without.
#
# Found (Linux 6.18.44): on ext4 and XFS the byte makes 1 or 2 MiB go to the device, if the file was
# read or written sequentially; pwrite and fsync of a byte write 4 KiB and the journal. On btrfs,
# whose folios are single pages on this kernel, both write the same. In LMDB (Python's lmdb 3.0.0)
# 100 commits of one value each write 2 MB, with writemap too. With writemap they write 158 MB, once
# another program, such as a backup, has read the file of the database from start to end.
#
# Why: the first store into a page calls the file system's page_mkwrite, which marks the whole folio
# dirty with all of its blocks; a folio has up to 2 MiB. write(2) marks only the blocks that it
# touches. (Sources: iomap_folio_mkwrite_iter() in fs/iomap/buffered-io.c, block_page_mkwrite() in
# fs/buffer.c.)
#
# Needs root, to mount; e2fsprogs, xfsprogs, btrfs-progs and Python 3 with venv.
set -euo pipefail
[ "$(id -u)" -eq 0 ] || { echo "needs root, to mount" >&2; exit 2; }
dir=$(mktemp -d)
cleanup() {
    umount -l "$dir/mount" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir"
mkdir mount
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check lmdb==3.0.0
cat >store.py <<'STORE'
import mmap, os, sys
SIZE = 64 << 20
def written(change):
    os.sync()
    before = device()
    change()
    return (device() - before) >> 10
def device():
    with open(f"/sys/block/{sys.argv[1]}/stat") as statistics:
        return int(statistics.read().split()[6]) * 512
def store():
    mapped[SIZE // 2] = 65
    mapped.flush()
def write():
    os.pwrite(file, b"A", SIZE // 4)
    os.fsync(file)
file = os.open("mount/file", os.O_RDWR | os.O_CREAT)
for _ in range(SIZE >> 20):
    os.write(file, os.urandom(1 << 20))
os.fsync(file)
mapped = mmap.mmap(file, SIZE)
print(written(store), written(write))
STORE
cat >commits.py <<'COMMITS'
import os, sys
import lmdb
def device():
    with open(f"/sys/block/{sys.argv[1]}/stat") as statistics:
        return int(statistics.read().split()[6]) * 512
def commits(writemap, is_read):
    path = f"mount/{writemap}-{is_read}"
    with lmdb.open(path, map_size=256 << 20) as database, database.begin(write=True) as change:
        for key in range(15000):
            change.put(b"%08d" % key, os.urandom(2000))
    with open(path + "/data.mdb", "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while is_read and file.read(1 << 20):
            pass
    with lmdb.open(path, map_size=256 << 20, writemap=writemap) as database:
        os.sync()
        before = device()
        for key in range(0, 100 * 131, 131):
            with database.begin(write=True) as change:
                change.put(b"%08d" % key, os.urandom(2000))
        return (device() - before) // 1000000
print(commits(False, True), commits(True, False), commits(True, True))
COMMITS
echo "Linux $(uname -r), what the device is given:"
failed=0
for fs in ext4 xfs btrfs; do
    truncate -s 1G image
    mkfs.$fs image >mkfs.log 2>&1
    mount -o loop image mount
    device=$(basename "$(findmnt -no SOURCE mount)")
    read -r stored written <<<"$(python3 store.py "$device")"
    read -r plain map read_map <<<"$(venv/bin/python commits.py "$device")"
    umount mount
    rm image
    echo "  $fs: one byte: $stored KiB by a store and msync, $written KiB by pwrite and fsync"
    echo "    100 commits of LMDB: $plain MB; $map MB with writemap, $read_map MB if read before"
    [ "$written" -lt 300 ] || failed=1
    if [ $fs = btrfs ]; then [ "$stored" -lt 400 ] || failed=1; else
        [ "$stored" -ge 512 ] && [ "$read_map" -gt $((20 * plain)) ] || failed=1
    fi
done
[ "$failed" -eq 0 ] || { echo "not as found" >&2; exit 1; }
