#!/usr/bin/env bash
# Expected: mkfs.btrfs looks at the file or device that it is given, and at mounted devices only to
# see that this one is not among them. What is mounted elsewhere does not matter to it.
#
# Found (btrfs-progs 6.2, bindfs 1.14.7, Linux 6.18.44): while a loop device is mounted whose image
# is on a FUSE file system without a server, mkfs.btrfs makes no file system in any new image,
# wherever that is: "cannot check mount status of IMAGE: Transport endpoint is not connected".
# mkfs.ext4 works beside it, and mkfs.btrfs again once that device is unmounted. An image that holds
# a btrfs already can be formatted with --force: then it is compared with mounted btrfs only.
#
# Why: for each mount that names a device, the check resolves a loop device to its image and asks
# for that file's type; any error but ENOENT ends the check and with it the program. (Source:
# check_mounted_where() and is_same_loop_file() in common/device-utils.c and its neighbours.)
#
# A test that is killed together with its FUSE server leaves such a mount, and afterwards tests that
# have nothing to do with it fail.
#
# Needs root, to mount; btrfs-progs, e2fsprogs and bindfs.
set -euo pipefail
[ "$(id -u)" -eq 0 ] || { echo "needs root, to mount" >&2; exit 2; }
dir=$(mktemp -d)
server=
loop=
cleanup() {
    umount -l "$dir/inner" 2>/dev/null || true
    [ -z "$loop" ] || losetup -d "$loop" 2>/dev/null || true
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
    umount -l "$dir/fuse" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir"
mkdir backing fuse inner
truncate -s 64M backing/image
mkfs.ext4 -q backing/image
bindfs -f backing fuse &
server=$!
for _ in $(seq 100); do
    mountpoint -q fuse && break
    sleep 0.1
done
loop=$(losetup --find --show fuse/image)
mount "$loop" inner
echo "Linux $(uname -r), $(mkfs.btrfs --version), $(bindfs --version | head -n 1):"

# Whether a command makes a file system in a new image, or what it says.
make_in_new_image() {
    rm -f new
    truncate -s 512M new
    if "$@" new >said 2>&1; then echo "made"; else grep -i error said || tail -n 1 said; fi
}
served=$(make_in_new_image mkfs.btrfs -q)
kill -9 "$server"
wait "$server" 2>/dev/null || true
sleep 2 # Until the kernel no longer keeps what the server has said of its files.
alone=$(make_in_new_image mkfs.btrfs -q)
ext4=$(make_in_new_image mkfs.ext4 -q -F)
umount -l inner
losetup -d "$loop"
after=$(make_in_new_image mkfs.btrfs -q)
echo "  mkfs.btrfs, with the server of the other device's image: $served"
echo "  without the server: $alone"
echo "  mkfs.ext4: $ext4"
echo "  mkfs.btrfs, with that device unmounted: $after"
case "$served|$alone|$ext4|$after" in
"made|"*"Transport endpoint is not connected"*"|made|made") ;;
*) echo "not as found" >&2; exit 1 ;;
esac
