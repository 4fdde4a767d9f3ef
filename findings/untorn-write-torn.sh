#!/usr/bin/env bash
# Expected: a write with RWF_ATOMIC is made as a whole or not at all, with a length that is a power
# of two at a multiple of it; anything else is EINVAL. So pwritev2(2) has it: all or none of the
# data is stored, never a mix of old and new data.
#
# Found (Linux 6.18.44, XFS on a loop device): where RLIMIT_FSIZE cuts the write, the kernel makes
# the part below the limit, with the flag, and returns its length: 8192 of 16384 bytes, and with
# another limit 10240, which is no length of an atomic write. With O_APPEND the length has to suit
# the offset in the call, which is then not used: 8192 bytes are written at 4096, where the same
# write without O_APPEND is EINVAL. A program that takes a short count for an ordinary one, and
# continues, has torn its page itself.
#
# Why: the file system checks length and offset first (generic_atomic_write_valid()), and then cuts
# the write to the limit and moves it to the end of the file (generic_write_checks()), after which
# nobody checks again. (Sources: xfs_file_write_iter() in fs/xfs/xfs_file.c, fs/read_write.c.)
#
# Needs root, to mount, kernel 6.16 or newer; xfsprogs and a C compiler.
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
truncate -s 512M image
mkfs.xfs -q -m reflink=1 image
mount -o loop image mount

cat >untorn.c <<'UNTORN'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>
static void *bytes;
// What pwritev2(2) with RWF_ATOMIC returns.
static long untorn(int file, size_t length, long offset) {
    struct iovec all = {bytes, length};
    long written = pwritev2(file, &all, 1, offset, 0x40);
    return written < 0 ? -errno : written;
}
static void limit(rlim_t most) {
    struct rlimit limit = {most, RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &limit)) exit(2);
}
int main(void) {
    const char *path = "mount/file";
    int file = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
    int appending = open(path, O_WRONLY | O_DIRECT | O_APPEND);
    char seen[16384];
    // Otherwise the limit sends a signal that ends the process.
    signal(SIGXFSZ, SIG_IGN);
    if (file < 0 || appending < 0 || posix_memalign(&bytes, 4096, 16384)) return 2;
    memset(bytes, 0, 16384);
    printf("whole %ld\n", untorn(file, 16384, 0));
    memset(bytes, 1, 16384);
    limit(8192);
    printf("limit-8192 %ld", untorn(file, 16384, 0));
    int again = open(path, O_RDONLY);
    if (pread(again, seen, sizeof seen, 0) != sizeof seen) return 2;
    printf(" then %d %d\n", seen[8191], seen[8192]);
    limit(10240);
    printf("limit-10240 %ld\n", untorn(file, 16384, 0));
    limit(RLIM_INFINITY);
    if (ftruncate(file, 4096)) return 2;
    printf("at-4096 %ld\n", untorn(file, 8192, 4096));
    printf("append %ld", untorn(appending, 8192, 0));
    printf(" size %ld\n", (long)lseek(file, 0, SEEK_END));
    return 0;
}
UNTORN
cc -O1 -o untorn untorn.c
echo "Linux $(uname -r), XFS: writes with RWF_ATOMIC, and what they return"
seen=$(./untorn)
echo "$seen"
expected='whole 16384
limit-8192 8192 then 1 0
limit-10240 10240
at-4096 -22
append 8192 size 12288'
[ "$seen" = "$expected" ] || { echo "not as found" >&2; exit 1; }
