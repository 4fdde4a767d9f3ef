#!/usr/bin/env bash
# Expected: lseek(2) with SEEK_DATA and SEEK_HOLE describes what is in a file. Space that fallocate
# reserved and nobody wrote is a hole, before and after somebody reads it: reading changes nothing.
#
# Found (Linux 6.18.44): on ext4 and XFS, reading reserved space makes it data: SEEK_DATA, which
# said ENXIO, returns 0, until the pages leave the cache. The archive of a sparse file by GNU tar
# 1.34 with -S holds nothing of it before the read, and 16 MiB of zeros after it. On btrfs and tmpfs
# it stays a hole. So the size of a backup depends on what was read, or checked, before it.
#
# Why: an unwritten extent may have newer data in the page cache, so the cache is asked, and it
# takes each page that is up to date for data, also one that a read filled with zeros. (Sources:
# mapping_seek_hole_data() in mm/filemap.c, fs/iomap/seek.c.)
#
# Needs root, to mount; e2fsprogs, xfsprogs, btrfs-progs, GNU tar and Python 3.
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
cat >seek.py <<'SEEK'
import os, subprocess
SIZE = 16 << 20
def state():
    try:
        data = os.lseek(file, 0, os.SEEK_DATA)
    except OSError:
        data = "none"
    command = ["tar", "-cSf", "-", "mount/reserved"]
    archive = subprocess.run(command, capture_output=True, check=True)
    return f"{data},{len(archive.stdout) >> 20}"
file = os.open("mount/reserved", os.O_RDWR | os.O_CREAT)
os.posix_fallocate(file, 0, SIZE)
os.ftruncate(file, 4 * SIZE)
os.fsync(file)
found = [state()]
for at in range(0, SIZE, 1 << 20):
    os.pread(file, 1 << 20, at)
found.append(state())
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
found.append(state())
print(*found)
SEEK
echo "Linux $(uname -r), $(tar --version | sed 1q), a file of 64 MiB, 16 of them reserved:"
echo "  first data, MiB of an archive: at first; after a read; after POSIX_FADV_DONTNEED"
failed=0
for fs in ext4 xfs btrfs tmpfs; do
    if [ $fs = tmpfs ]; then
        mount -t tmpfs none mount
    else
        truncate -s 512M image
        mkfs.$fs image >mkfs.log 2>&1
        mount -o loop image mount
    fi
    found=$(python3 seek.py)
    umount mount
    rm -f image
    echo "  $fs: $found"
    case $fs in
    ext4 | xfs) [ "$found" = "none,0 0,16 none,0" ] || failed=1 ;;
    *) [ "$found" = "none,0 none,0 none,0" ] || failed=1 ;;
    esac
done
[ "$failed" -eq 0 ] || { echo "not as found" >&2; exit 1; }
