#!/usr/bin/env bash
# Expected: a direct read into memory that is less aligned than statx(2)'s stx_dio_mem_align fails
# with EINVAL, always; so a test with one small read shows whether a program aligns its memory.
#
# Found (Linux 6.18.44, ext4 and XFS; stx_dio_mem_align 512): a read or write of 512 to 3584 bytes
# works with memory at any address, odd ones too, as long as the memory lies within one page, and
# the bytes are right. If it touches a second page, the same call is EINVAL. So memory of malloc
# works or fails from one call to the next, and always fails from 4096 bytes on.
#
# Why: the device's alignment is checked while a request is split, and a request of one segment
# within a page is never split. (Sources: bio_may_need_split() in block/blk.h, bio_split_io_at() in
# block/blk-merge.c.)
#
# Needs root, to mount; e2fsprogs, xfsprogs and Python 3.
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
cat >align.py <<'ALIGN'
import mmap, os, sys
data = os.urandom(1 << 16)
file = os.open("mount/file", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
memory = memoryview(mmap.mmap(-1, 1 << 16))
memory[:] = data
os.pwritev(file, [memory], 0)
def works(size, offset):
    part = memory[offset:offset + size]
    try:
        for call in (os.preadv, os.pwritev):
            if call(file, [part], 4096) != size or part != data[4096:4096 + size]:
                sys.exit("wrong data")
        return True
    except OSError as error:
        return error.strerror
within = [works(size, offset) for size in (512, 1024, 2048, 3584) for offset in (1, 4, 16, 256)]
across = [works(size, offset) for size, offset in ((512, 4095), (1024, 3585), (2048, 3000))]
whole = [works(4096, offset) for offset in (1, 4, 16, 256)]
for name, found in (("within a page", within), ("across two", across), ("4096 bytes", whole)):
    print(f"    {name}: {sorted(set(map(str, found)))}")
refused = {"Invalid argument"}
sys.exit((set(within), set(across), set(whole)) != ({True}, refused, refused))
ALIGN
echo "Linux $(uname -r), direct transfers with memory that is not aligned, work:"
failed=0
for fs in ext4 xfs; do
    truncate -s 512M image
    mkfs.$fs image >mkfs.log 2>&1
    mount -o loop image mount
    echo "  $fs"
    python3 align.py || failed=1
    umount mount
    rm image
done
[ "$failed" -eq 0 ] || { echo "not as found" >&2; exit 1; }
