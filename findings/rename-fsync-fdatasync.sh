#!/usr/bin/env bash
# Expected: a rename is durable once the directory is synced. A sync of the file, by fsync or by
# fdatasync, says nothing about its name; the two differ in the file's times only.
#
# Found (Linux 6.18.44; ext4, XFS, btrfs): after a rename and fsync of the file, without the
# directory, a crash leaves the new name, on all three. After a rename and fdatasync it leaves the
# new name on XFS and btrfs, and the old one on ext4: also if the file was overwritten in between,
# so the newest durable bytes are found under a name that the program gave up. The same holds for a
# second name by link(2). If fdatasync has a new size to write, ext4 too keeps the new name.
#
# Why: rename changes the file's ctime. On ext4 fsync commits the transaction of the last change of
# the inode and fdatasync that of the last change that the data need, and a transaction holds all
# metadata, names too; XFS and btrfs look at the inode's log items. (Sources: i_sync_tid and
# i_datasync_tid in fs/ext4/fsync.c; fsync(2) promises only that the directory must be synced.)
#
# The crash is a copy of the disk's image, which holds what the device was given so far. Needs root,
# to mount; e2fsprogs, xfsprogs, btrfs-progs and Python 3.
set -euo pipefail
[ "$(id -u)" -eq 0 ] || { echo "needs root, to mount" >&2; exit 2; }
dir=$(mktemp -d)
cleanup() {
    umount -l "$dir/disk" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir"
mkdir disk
cat >change.py <<'CHANGE'
import os, sys
change, how = sys.argv[1:]
file = os.open("disk/old", os.O_RDWR | os.O_CREAT)
os.write(file, b"x" * 4096)
os.fsync(file)
directory = os.open("disk", os.O_RDONLY)
os.fsync(directory)
if change == "link":
    os.link("disk/old", "disk/new")
else:
    os.rename("disk/old", "disk/new")
if change == "overwrite":
    os.pwrite(file, b"y", 0)
elif change == "append":
    os.pwrite(file, b"y", 4096)
if how != "nothing":
    {"fsync": os.fsync, "fdatasync": os.fdatasync}[how](file)
CHANGE
echo "Linux $(uname -r), names after the crash:"
failed=0
for fs in ext4 xfs btrfs; do
    truncate -s 320M empty
    mkfs.$fs empty >mkfs.log 2>&1
    # Expected names: ext4/others.
    while read -r change how expected; do
        cp --sparse=always empty image
        mount -o loop image disk
        python3 change.py "$change" "$how"
        cp --sparse=always image crashed
        umount disk
        mount -o loop crashed disk
        found=$(cd disk && find . -type f -printf '%f\n' | sort | paste -sd+)
        umount disk
        rm image crashed
        echo "  $fs: $change, $how: $found"
        if [ $fs = ext4 ]; then expected=${expected%/*}; else expected=${expected#*/}; fi
        [ "$found" = "$expected" ] || failed=1
    done <<'CASES'
rename nothing old/old
rename fsync new/new
rename fdatasync old/new
overwrite fdatasync old/new
append fdatasync new/new
link fdatasync old/new+old
CASES
    rm empty
done
[ "$failed" -eq 0 ] || { echo "not as found" >&2; exit 1; }
