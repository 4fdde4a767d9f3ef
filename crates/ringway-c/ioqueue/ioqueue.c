/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * ioqueue.h on ringway.h: one queue for the process, results as -1 and errno, and a place for each callback. Compiled twice: as it is
 * for libioqueue, and with IOQUEUE_THREADS for libioqueuemt, whose backend is threads and which has no eventfd.
 */
#define _POSIX_C_SOURCE 200809L

#include "ioqueue.h"
#include "ringway.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* No queue of ringway's holds more operations. */
#define DEPTH_MAX 16777215u

/* How long ioqueue_destroy() waits for a completion before it cancels the rest, and then for what cannot be cancelled. */
#define QUIET_NS (5 * INT64_C(1000000000))
#define CANCEL_MS 25000u

/* One read or write, from its push to its callback. */
struct request {
	ioqueue_cb cb;
	void *arg;
	void *buf;
};

static struct {
	unsigned depth;                /* 0: there is no queue */
	unsigned outstanding;          /* pushed and not called back */
	struct ringway_queue *ringway;
	struct request *requests;      /* `depth` of them */
	unsigned *free;                /* a stack of the depth - outstanding that are free */
	int polled;                    /* the eventfd has been asked for */
	int busy;                      /* callbacks are being called */
	int ending;                    /* by ioqueue_destroy() */
} queue;

static int fail(int error)
{
	errno = error;
	return -1;
}

/* There is no queue any more. */
static void forget(void)
{
	free(queue.requests);
	free(queue.free);
	memset(&queue, 0, sizeof queue);
}

int ioqueue_init(unsigned depth)
{
	struct ringway_options options;
	unsigned i;
	int error;

	if (queue.depth || depth == 0 || depth > INT_MAX)
		return fail(EINVAL);
	if (depth > DEPTH_MAX)
		return fail(ENOMEM);
	ringway_options_init(&options);

	queue.requests = malloc(depth * sizeof *queue.requests);
	queue.free = malloc(depth * sizeof *queue.free);
	if (!queue.requests || !queue.free) {
		forget();
		return fail(ENOMEM);
	}
	for (i = 0; i < depth; i++)
		queue.free[i] = depth - 1 - i;

	options.in_flight = depth;
	/* No more than are of use. The kernel holds four times as many completions, and on kaio that is the most it is given at a time. */
	options.entries = depth <= 64 ? depth : depth <= 256 ? 64 : depth <= 4096 ? (depth + 3) / 4 : 1024;
	options.close_wait_ms = CANCEL_MS;
#ifdef IOQUEUE_THREADS
	options.backend = RINGWAY_BACKEND_THREADS;
#else
	options.flags = RINGWAY_EVENTFD;
#endif
	error = ringway_create(&options, &queue.ringway);
	if (error < 0) {
		forget();
		return fail(-error);
	}
	queue.depth = depth;
	return 0;
}

int ioqueue_eventfd(void)
{
#ifdef IOQUEUE_THREADS
	return fail(ENOTSUP);
#else
	int fd = queue.depth ? ringway_fd(queue.ringway) : -EINVAL;

	if (fd < 0)
		return fail(-fd);
	queue.polled = 1;
	return fd;
#endif
}

static void done(struct ringway_queue *ringway, const struct ringway_completion *completion)
{
	struct request *place = completion->user_data;
	struct request request = *place;
	int64_t result = completion->result;

	(void)ringway;
	queue.outstanding--;
	queue.free[queue.depth - queue.outstanding - 1] = (unsigned)(place - queue.requests);
	/* A nop stands for what the kernel would refuse: see push(). */
	if (completion->opcode == RINGWAY_OP_NOP && result == 0)
		result = -EINVAL;
	if (result < 0) {
		errno = (int)-result;
		result = -1;
	}
	request.cb(request.arg, (ssize_t)result, request.buf);
}

/* Inlined, so that the operation is made once and where it is pushed from. */
static inline int push(struct ringway_operation *operation, void *buf, size_t len, off_t offset, ioqueue_cb cb, void *cb_arg)
{
	struct request *request;
	int64_t id;

	if (!queue.depth || !buf || !cb || len == 0 || len > SSIZE_MAX)
		return fail(EINVAL);
	if (queue.ending)
		return fail(ESHUTDOWN);
	if (queue.outstanding == queue.depth)
		return fail(EAGAIN);

	request = &queue.requests[queue.free[queue.depth - queue.outstanding - 1]];
	request->cb = cb;
	request->arg = cb_arg;
	request->buf = buf;
	operation->user_data = request;
	/* An offset below 0 cannot be said to ringway, for which -1 is the file's own position. */
	if (offset < 0)
		*operation = ringway_prep_nop(done, request);
	id = ringway_push(queue.ringway, operation);
	if (id < 0)
		return fail((int)-id);
	queue.outstanding++;
	return 0;
}

int ioqueue_pread(int fd, void *buf, size_t len, off_t offset, ioqueue_cb cb, void *cb_arg)
{
	struct ringway_operation read = ringway_prep_read(fd, buf, len, (uint64_t)offset, done, NULL);

	return push(&read, buf, len, offset, cb, cb_arg);
}

int ioqueue_pwrite(int fd, void *buf, size_t len, off_t offset, ioqueue_cb cb, void *cb_arg)
{
	struct ringway_operation write = ringway_prep_write(fd, buf, len, (uint64_t)offset, done, NULL);

	return push(&write, buf, len, offset, cb, cb_arg);
}

int ioqueue_reap(unsigned min)
{
	int count;

	if (queue.busy)
		return fail(EDEADLK);
	/* The kernel may ring for what has been reaped since: it is not to ring for ever in a program that never reads the eventfd. */
	if (queue.outstanding == 0 && queue.polled)
		(void)ringway_reap(queue.ringway, 0, 0);
	if (queue.outstanding == 0 || min > queue.outstanding)
		return fail(EINVAL);
	queue.busy = 1;
	count = ringway_reap(queue.ringway, min, min ? RINGWAY_FOREVER : 0);
	queue.busy = 0;
	return count < 0 ? fail(-count) : count;
}

void ioqueue_destroy(void)
{
	/* A copy: in the last callbacks there still is a queue. */
	struct ringway_queue *ringway = queue.ringway;

	if (queue.busy) {
		errno = EDEADLK;
		return;
	}
	queue.busy = 1;
	queue.ending = 1;
	while (queue.outstanding && ringway_reap(ringway, queue.outstanding, QUIET_NS) > 0)
		;
	ringway_destroy(&ringway);
	forget();
}

const char *ioqueue_backend(void)
{
	return queue.depth ? ringway_backend_name(ringway_get_backend(queue.ringway)) : NULL;
}
