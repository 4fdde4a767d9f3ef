#!/usr/bin/env bash
# Expected: ftruncate(2) to the size that a file has changes nothing. Space that fallocate(2) with
# FALLOC_FL_KEEP_SIZE has reserved behind the end stays, so a log may call both in any order.
#
# Found (Linux 6.18.44, ext4, XFS and btrfs): ftruncate to the same size gives all of the reserved
# space back: 16 MiB before, 8 KiB after. On tmpfs too. Nothing but the number of blocks shows it;
# the next append may fail with ENOSPC or allocate in another place.
#
# Why: each file system's truncate removes what is behind the new size without a look at the old
# one. (Sources: ext4_setattr() in fs/ext4/inode.c, which does it on purpose; xfs_setattr_size();
# btrfs_setsize(); shmem_setattr(). Neither ftruncate(2) nor fallocate(2) mentions it.)
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
cat >truncate.py <<'TRUNCATE'
import ctypes, os
KEEP_SIZE = 1
libc = ctypes.CDLL(None, use_errno=True)
file = os.open("mount/log", os.O_RDWR | os.O_CREAT)
os.write(file, b"x" * 8192)
if libc.fallocate(file, KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(16 << 20)):
    raise OSError(ctypes.get_errno(), "fallocate")
os.fsync(file)
reserved = os.fstat(file).st_blocks // 2
os.ftruncate(file, os.fstat(file).st_size)
os.fsync(file)
print(reserved, os.fstat(file).st_blocks // 2)
TRUNCATE
echo "Linux $(uname -r): KiB of a file of 8 KiB with 16 MiB reserved:"
failed=0
for fs in ext4 xfs btrfs tmpfs; do
    if [ $fs = tmpfs ]; then
        mount -t tmpfs none mount
    else
        truncate -s 512M image
        mkfs.$fs image >mkfs.log 2>&1
        mount -o loop image mount
    fi
    read -r reserved left <<<"$(python3 truncate.py)"
    umount mount
    echo "  $fs: $reserved, after ftruncate to its own size $left"
    [ "$reserved" -ge 16384 ] && [ "$left" -lt 64 ] || failed=1
    rm -f image
done
[ "$failed" -eq 0 ] || { echo "not as found" >&2; exit 1; }
