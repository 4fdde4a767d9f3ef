#!/usr/bin/env bash
# Expected: a thread that sleeps in io_uring_enter(2) while it submits delays itself, and threads
# that enter the same ring meanwhile. A thread that makes no call on the ring notices nothing.
#
# Found (Linux 6.18.44; io_uring through liburing 2.3): any system call of a thread that has
# submitted to this ring before waits until the sleeping thread returns, here getppid(2) for 0.6 to
# 0.8 s. The same call of a thread that has submitted nothing takes microseconds. So several threads
# that share a ring share the longest wait of any of them, also in calls such as futex(2).
#
# Why, as far as we see: when a request ends, its completion is work for the task that submitted
# it, done when that task next leaves the kernel. That work takes the ring's lock, which the
# sleeping submitter holds. (Sources: io_uring/io_uring.c in Linux 6.18, io_req_normal_work_add and
# tctx_task_work; observed as stacks of threads in state D.)
#
# Here the submitter sleeps since it submits more direct reads of a FUSE file than its server takes
# at a time. Needs root, /dev/fuse, a C compiler and Debian's package tools.
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
(cd packages && apt-get -qq -o APT::Sandbox::User=root download liburing-dev=2.3-3 \
    libfuse3-dev=3.14.0-4 libfuse3-3=3.14.0-4)
for package in packages/*.deb; do dpkg -x "$package" root; done
libraries=$(dirname "$(find root/usr/lib -name liburing.a)")
for library in $(find root/lib -name 'libfuse3.so.3*' 2>/dev/null); do
    cp -a "$library" "$libraries"
done

cat >server.c <<'SERVER'
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fuse.h>
#include <string.h>
#include <unistd.h>
static int attributes(const char *path, struct stat *found, struct fuse_file_info *info) {
    (void)info;
    memset(found, 0, sizeof *found);
    found->st_nlink = 1;
    found->st_size = 1 << 20;
    found->st_mode = strcmp(path, "/") ? S_IFREG | 0644 : S_IFDIR | 0755;
    return strcmp(path, "/") && strcmp(path, "/file") ? -ENOENT : 0;
}
static int opened(const char *path, struct fuse_file_info *info) {
    (void)path;
    info->direct_io = 1;
    return 0;
}
static int answer(const char *path, char *to, size_t len, off_t at, struct fuse_file_info *info) {
    (void)path, (void)at, (void)info;
    usleep(200 * 1000);
    memset(to, 'x', len);
    return (int)len;
}
int main(int count, char **args) {
    static const struct fuse_operations operations = {
        .getattr = attributes, .open = opened, .read = answer};
    return fuse_main(count, args, &operations, 0);
}
SERVER

cat >ring.c <<'RING'
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static struct io_uring ring;
static int file;
static volatile int is_ready, ends;
static double longest;
static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}
static void submit(int reads) {
    while (reads--) {
        void *to = aligned_alloc(4096, 4096);
        if (!to) exit(2);
        io_uring_prep_read(io_uring_get_sqe(&ring), file, to, 4096, 0);
    }
    io_uring_submit(&ring);
}
static void *bystander(void *submits) {
    if (submits) submit(1);
    is_ready = 1;
    while (!ends) {
        double before = seconds();
        syscall(SYS_getppid);
        if (seconds() - before > longest) longest = seconds() - before;
    }
    return NULL;
}
int main(int count, char **args) {
    file = open(args[1], O_RDONLY | O_DIRECT);
    if (file < 0 || io_uring_queue_init(256, &ring, 0)) {
        perror("ring");
        return 2;
    }
    pthread_t thread;
    pthread_create(&thread, NULL, bystander, count > 2 ? &ring : NULL);
    while (!is_ready) usleep(100);
    submit(48);
    ends = 1;
    pthread_join(thread, NULL);
    printf("%.0f\n", longest * 1e3);
    fflush(stdout);
    _exit(0);
}
RING
cc -O1 -o ring ring.c -Iroot/usr/include "$libraries/liburing.a" -lpthread
cc -O1 -o server server.c -D_FILE_OFFSET_BITS=64 -Iroot/usr/include/fuse3 \
    -L"$libraries" -Wl,-rpath,"$PWD/$libraries" -lfuse3
./server mount
without=$(./ring mount/file)
with=$(./ring mount/file submits)
echo "Linux $(uname -r): longest getppid(2) of a bystander, while another thread submits:"
echo "  one that has submitted nothing to the ring: $without ms"
echo "  one that has submitted one read:            $with ms"
[ "$with" -gt 300 ] && [ "$without" -lt 200 ] || { echo "not as found" >&2; exit 1; }
