#!/usr/bin/env bash
# Expected: reading a hole of a sparse file costs no memory: no block belongs to it, and the kernel
# has one page of zeros for all. A scan of a sparse file of 1 TiB leaves the page cache alone.
#
# Found (Linux 6.18.44): on ext4, XFS and btrfs every page of a hole that is read takes a page of
# the cache: 16384 pages after 64 MiB, as for data, which push out pages of other files. Only tmpfs
# adds none. RWF_NOWAIT of a hole that was never read succeeds, since its pages are made at once.
#
# Why: the page cache caches pages of files, not blocks; a read fills new pages with zeros
# (fs/iomap/buffered-io.c, fs/ext4/readpage.c, fs/btrfs/extent_io.c). tmpfs copies from the page of
# zeros instead (shmem_file_read_iter() in mm/shmem.c).
#
# Needs root, to mount; e2fsprogs, xfsprogs, btrfs-progs and Python 3.
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
cat >scan.py <<'SCAN'
import ctypes, os
SIZE, CACHESTAT = 64 << 20, 451
libc = ctypes.CDLL(None, use_errno=True)
def cached(file):
    whole, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    if libc.syscall(CACHESTAT, file, whole, found, 0):
        raise OSError(ctypes.get_errno(), "cachestat")
    return found[0]
file = os.open("mount/hole", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, SIZE)
try:
    first = os.preadv(file, [bytearray(4096)], 32 << 20, os.RWF_NOWAIT)
except OSError as error:
    first = error.strerror.replace(" ", "_")
while os.read(file, 1 << 20):
    pass
print(cached(file), os.fstat(file).st_blocks, first)
SCAN
echo "Linux $(uname -r), a file of 64 MiB without data, after reading it:"
failed=0
for fs in ext4 xfs btrfs tmpfs; do
    if [ $fs = tmpfs ]; then
        mount -t tmpfs none mount
    else
        truncate -s 512M image
        mkfs.$fs image >mkfs.log 2>&1
        mount -o loop image mount
    fi
    read -r pages blocks first <<<"$(python3 scan.py)"
    umount mount
    rm -f image
    echo "  $fs: $pages pages cached, $blocks blocks; RWF_NOWAIT before: $first"
    if [ $fs = tmpfs ]; then [ "$pages" -eq 0 ] || failed=1; else
        [ "$pages" -eq 16384 ] && [ "$first" -eq 4096 ] || failed=1
    fi
done
[ "$failed" -eq 0 ] || { echo "not as found" >&2; exit 1; }
