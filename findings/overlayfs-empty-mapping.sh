#!/usr/bin/env bash
# Expected: on overlayfs, cachestat(2) counts the cached pages of a file and sync_file_range(2)
# starts its writeback, as both do on the file system below. Databases call sync_file_range to write
# a log out bit by bit before fdatasync; containers have overlayfs as root.
#
# Found (Linux 6.18.44, overlayfs above ext4): cachestat says 0 of 2048 pages although all are
# cached and dirty, while mincore(2) of a mapping says 2048. sync_file_range with all three flags
# returns 0 and writes nothing; on the same file below it writes 8 MiB. posix_fadvise(DONTNEED)
# works in both places.
#
# Why: both calls use file->f_mapping. For overlayfs that is the mapping of its own inode, which
# stays empty: reads, writes and mmap go to the file below. (Sources: mm/filemap.c, fs/sync.c,
# fs/overlayfs/file.c, which implements fadvise but has no hook for the two.)
#
# Needs root, to mount; e2fsprogs and Python 3.
set -euo pipefail
[ "$(id -u)" -eq 0 ] || { echo "needs root, to mount" >&2; exit 2; }
dir=$(mktemp -d)
cleanup() {
    umount -l "$dir/overlay" 2>/dev/null || true
    umount -l "$dir/ext4" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir"
mkdir overlay ext4
truncate -s 256M image
mkfs.ext4 -q image
mount -o loop image ext4
mkdir ext4/lower ext4/upper ext4/work
mount -t overlay -o lowerdir=ext4/lower,upperdir=ext4/upper,workdir=ext4/work none overlay
cat >look.py <<'LOOK'
import ctypes, mmap, os, sys
SIZE, CACHESTAT, ALL_THREE = 8 << 20, 451, 7
libc = ctypes.CDLL(None, use_errno=True)
def cached(file):
    whole, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    if libc.syscall(CACHESTAT, file, whole, found, 0):
        raise OSError(ctypes.get_errno(), "cachestat")
    return found[0]
def resident(file):
    mapped = mmap.mmap(file, SIZE)
    pages = (ctypes.c_ubyte * (SIZE // mmap.PAGESIZE))()
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    if libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(SIZE), pages):
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(page & 1 for page in pages)
def written():
    with open(f"/sys/block/{sys.argv[1]}/stat") as statistics:
        return int(statistics.read().split()[6]) * 512
def synced(file):
    before = written()
    zero = ctypes.c_int64(0)
    if libc.sync_file_range(file, zero, zero, ALL_THREE):
        raise OSError(ctypes.get_errno(), "sync_file_range")
    return (written() - before) >> 20
above = os.open("overlay/file", os.O_RDWR | os.O_CREAT)
os.write(above, os.urandom(SIZE))
below = os.open("ext4/upper/file", os.O_RDWR)
found = [(cached(f), resident(f), synced(f)) for f in (above, below)]
for name, row in zip(("overlayfs", "ext4 below"), found):
    print("  %s: cachestat %d, mincore %d pages; sync_file_range wrote %d MiB" % (name, *row))
sys.exit(found != [(0, 2048, 0), (2048, 2048, 8)])
LOOK
echo "Linux $(uname -r), a file of 2048 dirty pages:"
python3 look.py "$(basename "$(findmnt -no SOURCE ext4)")" || { echo "not as found" >&2; exit 1; }
