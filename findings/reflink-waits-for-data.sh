#!/usr/bin/env bash
# Expected: copy_file_range(2) on a file system with reflinks (XFS, btrfs) shares extents, changes
# metadata only and takes no time, whatever the file's size; without reflinks (ext4) it is slow.
#
# Found (Linux 6.18.44): if the source was written just before, the call first writes all of it to
# the device and waits: 64 MiB written by one call on XFS and on btrfs, none on ext4, which copies
# in memory and returns. A second copy, of the now clean source, writes nothing. So a copy of fresh
# data blocks for as long as the disk needs, exactly where it was thought to be free.
#
# Why: extents can only be shared once they exist, so both file systems write back and wait for the
# range first. (Sources: generic_remap_file_range_prep() in fs/remap_range.c, which XFS uses;
# btrfs_remap_file_range_prep() in fs/btrfs/reflink.c. No man page mentions it.)
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
cat >copy.py <<'COPY'
import os, sys
SIZE = 64 << 20
def written():
    with open(f"/sys/block/{sys.argv[1]}/stat") as statistics:
        return int(statistics.read().split()[6]) * 512
def copied(to):
    target = os.open(to, os.O_RDWR | os.O_CREAT)
    before, at = written(), 0
    while at < SIZE:
        at += os.copy_file_range(source, target, SIZE - at, at, at)
    return (written() - before) >> 20
source = os.open("mount/source", os.O_RDWR | os.O_CREAT)
os.write(source, os.urandom(SIZE))
fresh = copied("mount/first")
os.fsync(source)
print(fresh, copied("mount/second"))
COPY
echo "Linux $(uname -r): MiB that the device was given during copy_file_range of 64 MiB:"
failed=0
for fs in ext4 xfs btrfs; do
    truncate -s 1G image
    mkfs.$fs image >mkfs.log 2>&1
    mount -o loop image mount
    read -r fresh clean <<<"$(python3 copy.py "$(basename "$(findmnt -no SOURCE mount)")")"
    umount mount
    rm image
    echo "  $fs: $fresh of a source just written, $clean of a clean one"
    [ "$clean" -lt 8 ] || failed=1
    if [ $fs = ext4 ]; then [ "$fresh" -lt 8 ] || failed=1; else [ "$fresh" -ge 64 ] || failed=1; fi
done
[ "$failed" -eq 0 ] || { echo "not as found" >&2; exit 1; }
