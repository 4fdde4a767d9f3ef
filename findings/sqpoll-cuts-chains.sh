#!/usr/bin/env bash
# Expected: requests of io_uring that are linked (IOSQE_IO_LINK) and submitted together are one
# chain, whoever takes them from the submission queue: if one fails, those behind it are cancelled.
#
# Found (Linux 6.18.44; liburing 2.3): not if the kernel's thread (SQPOLL) serves two rings that
# share it (IORING_SETUP_ATTACH_WQ). It takes 8 entries of a ring at a time, wherever they end. A
# chain that goes on behind the eighth is cut there: its first part ends as a chain of its own, and
# the rest runs although a request before it has failed. Of 30 chains of three in which the second
# fails, the third of some is run. With a ring that has the thread for itself all are cancelled. So
# a write and a sync, or a write and a rename, are safe as a chain until another ring is attached.
#
# Why: the thread bounds its turn for each ring when it has several, and the end of a turn ends a
# chain, as the end of a submission does. (Sources: io_uring/sqpoll.c,
# IORING_SQPOLL_CAP_ENTRIES_VALUE, and io_uring/io_uring.c, io_submit_state_end, in Linux 6.18;
# io_uring_enter(2) says only that the tail of a submission ends a chain.)
#
# Needs a C compiler and Debian's package tools.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir packages
(cd packages && apt-get -qq -o APT::Sandbox::User=root download liburing-dev=2.3-3)
dpkg -x packages/*.deb root
libraries=$(dirname "$(find root/usr/lib -name liburing.a)")

cat >chains.c <<'PROGRAM'
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHAINS = 30, LENGTH = 3 };

static struct io_uring ring(int share) {
    struct io_uring one;
    struct io_uring_params how = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 1000};
    if (share >= 0) {
        how.flags |= IORING_SETUP_ATTACH_WQ;
        how.wq_fd = (unsigned)share;
    }
    if (io_uring_queue_init_params(128, &one, &how) != 0) exit(2);
    return one;
}

/* How many last members were run although the one before them failed. */
static int run(struct io_uring *own) {
    int number, at, ran = 0, failed = 0, cannot_write = open("/dev/null", O_RDONLY);
    for (number = 0; number < CHAINS; number++)
        for (at = 0; at < LENGTH; at++) {
            struct io_uring_sqe *entry = io_uring_get_sqe(own);
            if (at == 1) io_uring_prep_write(entry, cannot_write, "x", 1, 0);
            else io_uring_prep_nop(entry);
            io_uring_sqe_set_data64(entry, at);
            if (at < LENGTH - 1) entry->flags |= IOSQE_IO_LINK;
        }
    if (io_uring_submit(own) < 0) exit(2);
    for (number = 0; number < CHAINS * LENGTH; number++) {
        struct io_uring_cqe *done;
        if (io_uring_wait_cqe(own, &done) != 0) exit(2);
        failed += done->user_data == 1 && done->res == -EBADF;
        ran += done->user_data == LENGTH - 1 && done->res == 0;
        io_uring_cqe_seen(own, done);
    }
    if (failed == 0) exit(2);
    return ran;
}

int main(void) {
    struct io_uring alone = ring(-1), first = ring(-1), second = ring(first.ring_fd);
    printf("a ring with its own thread: %s\n", run(&alone) ? "some run" : "all cancelled");
    printf("a ring that shares it: %s\n", run(&second) ? "some run" : "all cancelled");
    return 0;
}
PROGRAM
cc -Wall -Wextra -O2 -Iroot/usr/include chains.c "$libraries/liburing.a" -o chains
./chains | tee seen
diff - seen <<'SEEN'
a ring with its own thread: all cancelled
a ring that shares it: some run
SEEN
