#!/usr/bin/env bash
# Expected: a thread that has submitted to a ring of io_uring and then waits with epoll for the
# ring's descriptor sleeps until a completion is there, as with poll(2) or select(2). EINTR means
# that a signal handler has run.
#
# Found (Linux 6.18.44; io_uring through liburing 2.3): epoll_wait fails with EINTR at each
# completion of a request that its own thread has submitted, although the process gets no signal;
# the next call returns the event. poll and select of the same thread return the event at once, and
# so does epoll_wait of a thread that has submitted nothing. An event loop pays two calls and two
# rounds for each completion that it waits for, and one that takes EINTR for an error ends.
#
# Why, as far as we see: a completion is work for the task that submitted the request, and the
# kernel interrupts its sleep as for a signal. poll and select are restarted when there was no
# handler to run; epoll_wait is among the calls that are not. (Sources: signal(7) "never restarted",
# which speaks of handlers; io_uring/io_uring.c in Linux 6.18, io_req_normal_work_add.) A ring with
# DEFER_TASKRUN has no such work.
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

cat >wait.c <<'PROGRAM'
#define _GNU_SOURCE
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>

static struct io_uring ring;

static int by_epoll(void) {
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0);
    if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, ring.ring_fd, &event) != 0) exit(2);
    int result = epoll_wait(set, &event, 1, 5000);
    return result < 0 ? -errno : result;
}

static int by_poll(void) {
    struct pollfd one = {.fd = ring.ring_fd, .events = POLLIN};
    int result = poll(&one, 1, 5000);
    return result < 0 ? -errno : result;
}

static int by_select(void) {
    struct timeval limit = {.tv_sec = 5};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ring.ring_fd, &set);
    int result = select(ring.ring_fd + 1, &set, NULL, NULL, &limit);
    return result < 0 ? -errno : result;
}

static void *in_thread(void *result) {
    *(int *)result = by_epoll();
    return NULL;
}

static int by_other(void) {
    int result = 0;
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, &result) != 0) exit(2);
    pthread_join(thread, NULL);
    return result;
}

static void show(const char *name, int (*wait)(void)) {
    struct __kernel_timespec later = {.tv_nsec = 100 * 1000 * 1000};
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
    struct io_uring_cqe *done;
    io_uring_prep_timeout(entry, &later, 0, 0);
    if (io_uring_submit(&ring) != 1) exit(2);
    int result = wait();
    printf("%s: %s\n", name, result < 0 ? strerror(-result) : result == 1 ? "an event" : "none");
    if (io_uring_wait_cqe(&ring, &done) == 0) io_uring_cqe_seen(&ring, done);
}

int main(void) {
    if (io_uring_queue_init(8, &ring, 0) != 0) return 2;
    show("epoll_wait of the submitter", by_epoll);
    show("poll of the submitter", by_poll);
    show("select of the submitter", by_select);
    show("epoll_wait of another thread", by_other);
    return 0;
}
PROGRAM
cc -Wall -Wextra -O2 -Iroot/usr/include wait.c "$libraries/liburing.a" -lpthread -o wait
./wait | tee seen
diff - seen <<'SEEN'
epoll_wait of the submitter: Interrupted system call
poll of the submitter: an event
select of the submitter: an event
epoll_wait of another thread: an event
SEEN
