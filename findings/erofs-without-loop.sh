#!/usr/bin/env bash
# Expected: an erofs image that is mounted as a file, without a loop device (Linux 6.12 and newer),
# behaves as one on a loop device, and saves what the loop device costs: its data are in the page
# cache once, and O_DIRECT works if it works on the loop device.
#
# Found (Linux 6.18.44; image by erofs-utils 1.5, not compressed): reading a file of 64 MiB leaves
# 64 MiB of the file and 64 MiB of the image in the page cache, unless the mount option "directio"
# is given, which then also needs an image on a file system with direct I/O. O_DIRECT fails with
# EINVAL at open(2) with either; on a loop device it works.
#
# Why: the file's pages are filled by reads of the backing file, which are buffered by default
# (fs/erofs/fileio.c). The address_space_operations of such mounts, in the same file, have no
# direct_IO, without which open(2) refuses O_DIRECT.
#
# Needs root, to mount; Debian's package tools and Python 3. Set TMPDIR to a directory on ext4, XFS
# or btrfs.
set -euo pipefail
[ "$(id -u)" -eq 0 ] || { echo "needs root, to mount" >&2; exit 2; }
dir=$(mktemp -d)
cleanup() {
    umount -l "$dir/mount" 2>/dev/null || true
    losetup -j "$dir/image" 2>/dev/null | cut -d: -f1 | xargs -r losetup -d
    rm -rf "$dir"
}
trap cleanup EXIT
chmod 755 "$dir"
cd "$dir"
apt-get -qq -o APT::Sandbox::User=root download erofs-utils=1.5-1 liblz4-1=1.9.4-1
for package in *.deb; do dpkg -x "$package" root; done
mkdir mount source
head -c $((64 << 20)) /dev/urandom >source/file
LD_LIBRARY_PATH=$(dirname "$(find root -name 'liblz4.so.1')") \
    root/usr/bin/mkfs.erofs image source >mkfs.log 2>&1
sync image
cat >look.py <<'LOOK'
import ctypes, mmap, os, sys
SIZE, CACHESTAT, READ_ONLY = 64 << 20, 451, 1
libc = ctypes.CDLL(None, use_errno=True)
def cached(file):
    whole, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    if libc.syscall(CACHESTAT, file, whole, found, 0):
        raise OSError(ctypes.get_errno(), "cachestat")
    return found[0] * 4096 >> 20
def direct():
    try:
        file = os.open("mount/file", os.O_RDONLY | os.O_DIRECT)
        return os.preadv(file, [mmap.mmap(-1, 1 << 20)], 0) == 1 << 20
    except OSError as error:
        return error.strerror
how, device = sys.argv[1], sys.argv[2]
options = b"directio" if how == "directio" else b""
if libc.mount(device.encode(), b"mount", b"erofs", READ_ONLY, options):
    raise OSError(ctypes.get_errno(), "mount")
image, file = os.open("image", os.O_RDONLY), os.open("mount/file", os.O_RDONLY)
for each in (image, file):
    os.posix_fadvise(each, 0, 0, os.POSIX_FADV_DONTNEED)
while os.read(file, 1 << 20):
    pass
print(f"  {how}: {cached(file)} MiB of the file, {cached(image)} MiB of the image; "
      f"O_DIRECT: {direct()}")
os.close(file)
libc.umount2(b"mount", 0)
LOOK
echo "Linux $(uname -r), in the page cache after reading 64 MiB from an erofs image:"
{
    python3 look.py file image
    python3 look.py directio image
    python3 look.py "loop device" "$(losetup --read-only --find --show image)"
} | tee seen
grep -q "  file: 64 MiB of the file, 64 MiB of the image; O_DIRECT: Invalid argument" seen &&
    grep -q "  directio: 64 MiB of the file, 0 MiB of the image; O_DIRECT: Invalid" seen &&
    grep -q "  loop device: .* O_DIRECT: True" seen || { echo "not as found" >&2; exit 1; }
