#!/usr/bin/env bash
# Expected: statx(2) with STATX_DIOALIGN answers, on current kernels, "may I use O_DIRECT here, and
# with which alignment": non-zero numbers where direct I/O works, 0 where O_DIRECT is not supported.
#
# Found (Linux 6.18.44): on btrfs and tmpfs the bit is not set in stx_mask, although both accept
# O_DIRECT. On ext4 with data=journal, and for a file that lies in its inode (inline_data), both
# numbers are 0 although open(2) and reads with O_DIRECT work, through the page cache and with any
# alignment. So neither "not answered" nor 0 means that open will refuse, and a program that trusts
# the numbers treats four cases of two file systems alike.
#
# Why: each file system fills the numbers in. ext4_dio_alignment() in fs/ext4/inode.c says 0 where a
# direct request is done through the page cache; btrfs and tmpfs have no code for it. statx(2)
# defines 0 as "direct I/O is not supported on this file".
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
cat >ask.py <<'ASK'
import ctypes, mmap, os, struct, sys
DIOALIGN, AT_FDCWD = 0x2000, -100
libc = ctypes.CDLL(None, use_errno=True)
size = int(sys.argv[1])
with open("mount/file", "wb") as new:
    new.write(os.urandom(size))
    os.fsync(new.fileno())
answer = ctypes.create_string_buffer(256)
if libc.statx(AT_FDCWD, b"mount/file", 0, DIOALIGN, answer):
    raise OSError(ctypes.get_errno(), "statx")
mask, = struct.unpack_from("I", answer, 0)
alignment = struct.unpack_from("II", answer, 0x98)
file = os.open("mount/file", os.O_RDONLY | os.O_DIRECT)
works = os.preadv(file, [mmap.mmap(-1, 4096)], 0) == min(size, 4096)
print(("%d,%d" % alignment if mask & DIOALIGN else "none"), "works" if works else "short")
ASK
echo "Linux $(uname -r): stx_dio_mem_align, stx_dio_offset_align; open and read with O_DIRECT:"
failed=0
while read -r expected size options fs arguments; do
    if [ "$fs" = tmpfs ]; then
        mount -t tmpfs none mount
    else
        truncate -s 256M image
        [ "$fs" != xfs ] || truncate -s 512M image
        # shellcheck disable=SC2086 # several arguments
        mkfs.$fs $arguments image >mkfs.log 2>&1
        mount -o "loop,$options" image mount
    fi
    found=$(python3 ask.py "$size")
    umount mount
    rm -f image
    echo "  $fs ($options${arguments:+, }$arguments), $size bytes: $found"
    [ "$found" = "$expected works" ] || failed=1
done <<'CASES'
512,512 65536 defaults ext4
512,512 65536 defaults xfs
none 65536 defaults btrfs
none 65536 defaults tmpfs
0,0 65536 data=journal ext4
0,0 100 defaults ext4 -O inline_data
CASES
[ "$failed" -eq 0 ] || { echo "not as found" >&2; exit 1; }
