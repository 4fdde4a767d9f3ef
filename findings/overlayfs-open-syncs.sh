#!/usr/bin/env bash
# Expected: opening a file of a lower layer for writing on overlayfs copies it up, which is known;
# the copy is an ordinary one, in memory until it is written back. A chmod copies as well.
#
# Found (Linux 6.18.44, upper layer on ext4): open(2) with O_RDWR writes the whole file to the
# device and flushes it, before it returns and before a byte is written; chmod(2) does the same.
# With 32 MiB: 32 MiB written, 2 flushes each. In a container the first open of a file of the image
# lasts as long as an fsync of all of it; io_uring's OPENAT holds a kernel worker for that time.
#
# Why: ovl_copy_up_file() ends with vfs_fsync() of the copy, unless the mount is "volatile", so that
# a crash cannot leave a short file over a whole one. (Source: fs/overlayfs/copy_up.c.)
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
truncate -s 512M image
mkfs.ext4 -q image
mount -o loop image ext4
mkdir ext4/lower ext4/upper ext4/work
head -c $((32 << 20)) /dev/urandom >ext4/lower/opened
cp ext4/lower/opened ext4/lower/changed
sync -f ext4
mount -t overlay -o lowerdir=ext4/lower,upperdir=ext4/upper,workdir=ext4/work none overlay
cat >touch.py <<'TOUCH'
import os, sys
def device():
    with open(f"/sys/block/{sys.argv[1]}/stat") as statistics:
        fields = statistics.read().split()
    return int(fields[6]) * 512, int(fields[15])
def given(call):
    before = device()
    call()
    after = device()
    return after[0] - before[0] >> 20, after[1] - before[1]
found = [given(lambda: os.open("overlay/opened", os.O_RDONLY)),
         given(lambda: os.open("overlay/opened", os.O_RDWR)),
         given(lambda: os.chmod("overlay/changed", 0o600))]
for name, (written, flushes) in zip(("open to read", "open to write", "chmod"), found):
    print(f"  {name}: {written} MiB written, {flushes} flushes")
sys.exit(found[0] != (0, 0) or not all(w >= 32 and f >= 1 for w, f in found[1:]))
TOUCH
echo "Linux $(uname -r), a file of 32 MiB in the lower layer:"
python3 touch.py "$(basename "$(findmnt -no SOURCE ext4)")" || { echo "not as found" >&2; exit 1; }
