#!/usr/bin/env bash
# Expected: POSIX AIO of glibc (aio_read, lio_listio; fio's engine posixaio) is a pool of up to 20
# threads, so 8 requests for one file proceed at the same time. Slow, but parallel.
#
# Found (glibc 2.36): requests for one descriptor are done one after the other. 8 reads of a file
# that needs 0.2 s for each take 1.6 s on one descriptor and 0.2 s on 8 descriptors of that file.
# The queue depth that a program asks for counts descriptors, not requests.
#
# Why: requests with the same descriptor are linked into one list, and a thread takes the next of
# that list only when the one before has ended; aio_init's aio_threads does not change it. (Source:
# sysdeps/pthread/aio_misc.c, __aio_enqueue_request and handle_fildes_io.)
#
# The slow file is a FUSE server's. Needs root, /dev/fuse, a C compiler, Debian's package tools.
set -euo pipefail
[ "$(id -u)" -eq 0 ] || { echo "needs root, to mount" >&2; exit 2; }
dir=$(mktemp -d)
cleanup() {
    umount -l "$dir/mount" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir"
mkdir mount packages
chmod 755 . packages
(cd packages && apt-get -qq -o APT::Sandbox::User=root download libfuse3-dev=3.14.0-4 \
    libfuse3-3=3.14.0-4)
for package in packages/*.deb; do dpkg -x "$package" root; done
libraries=$(dirname "$(find root/usr/lib -name libfuse3.so)")
for library in $(find root/lib -name 'libfuse3.so.3*' 2>/dev/null); do
    cp -a "$library" "$libraries"
done

cat >server.c <<'SERVER'
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fuse.h>
#include <string.h>
#include <unistd.h>
static int get_attributes(const char *path, struct stat *found, struct fuse_file_info *info) {
    (void)info;
    int is_root = strcmp(path, "/") == 0;
    memset(found, 0, sizeof *found);
    found->st_mode = is_root ? S_IFDIR | 0755 : S_IFREG | 0644;
    found->st_nlink = 1;
    found->st_size = 1 << 20;
    return is_root || strcmp(path, "/slow") == 0 ? 0 : -ENOENT;
}
static int open_direct(const char *path, struct fuse_file_info *info) {
    (void)path;
    info->direct_io = 1;
    return 0;
}
static int read_slowly(const char *path, char *to, size_t len, off_t at,
                       struct fuse_file_info *info) {
    (void)path, (void)at, (void)info;
    usleep(200000);
    memset(to, 0, len);
    return (int)len;
}
int main(int count, char **args) {
    struct fuse_operations operations = {
        .getattr = get_attributes, .open = open_direct, .read = read_slowly};
    return fuse_main(count, args, &operations, NULL);
}
SERVER

cat >reads.c <<'READS'
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
enum { READS = 8, LEN = 4096 };
static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}
static double read_all(const char *path, int descriptors) {
    static char buffers[READS][LEN];
    struct aiocb reads[READS] = {0};
    int files[READS];
    for (int i = 0; i < descriptors; i++) files[i] = open(path, O_RDONLY);
    double before = seconds();
    for (int i = 0; i < READS; i++) {
        reads[i].aio_fildes = files[i % descriptors];
        reads[i].aio_buf = buffers[i];
        reads[i].aio_nbytes = LEN;
        reads[i].aio_offset = i * LEN;
        if (aio_read(&reads[i])) perror("aio_read");
    }
    for (int i = 0; i < READS; i++) {
        const struct aiocb *one[] = {&reads[i]};
        while (aio_error(&reads[i]) == EINPROGRESS) aio_suspend(one, 1, NULL);
        if (aio_return(&reads[i]) != LEN) puts("short read");
    }
    double after = seconds();
    for (int i = 0; i < descriptors; i++) close(files[i]);
    return after - before;
}
int main(int count, char **args) {
    (void)count;
    double one = read_all(args[1], 1), many = read_all(args[1], READS);
    printf("glibc %s: %d aio_reads of 0.2 s each\n", gnu_get_libc_version(), READS);
    printf("  on one descriptor: %.1f s\n  on %d descriptors: %.1f s\n", one, READS, many);
    return !(one > 1.4 && many < 1);
}
READS
cc -O1 -o reads reads.c
cc -O1 -o server server.c -D_FILE_OFFSET_BITS=64 -Iroot/usr/include/fuse3 \
    -L"$libraries" -Wl,-rpath,"$PWD/$libraries" -lfuse3
./server mount
./reads mount/slow || { echo "not as found" >&2; exit 1; }
