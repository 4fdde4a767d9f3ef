/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Implements ioqueue.h on ringway.h: one queue for the process, results as -1 and errno, and a slot
 * for each outstanding operation. Compiled twice: without a macro for libioqueue, and with
 * IOQUEUE_THREADS for libioqueuemt, which uses threads and has no eventfd.
 */
#define _POSIX_C_SOURCE 200809L

#include "ioqueue.h"
#include "ringway.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The limit of struct ringway_options.in_flight. */
#define DEPTH_MAX 16777215u

/* ioqueue_destroy() cancels the rest after QUIET_NS without a completion, and then waits CANCEL_MS
   for operations that cannot be cancelled. */
#define QUIET_NS (5 * INT64_C(1000000000))
#define CANCEL_MS 25000u

/* A read or write between its push and its callback. */
struct request {
	ioqueue_cb cb;
	void *arg;
	void *buf;
};

static struct {
	unsigned depth;           /* 0: there is no queue */
	unsigned outstanding;     /* operations pushed and not called back */
	struct ringway_queue *ringway;
	struct request *requests; /* `depth` slots */
	unsigned *free;           /* a stack of the depth - outstanding free slots */
	int polled;               /* ioqueue_eventfd() has been called */
	int busy;                 /* callbacks are running */
	int ending;               /* in ioqueue_destroy() */
} queue;

static int fail(int error)
{
	errno = error;
	return -1;
}

/* As fail(), but with ECHILD in a forked child, whatever else is wrong. (No operation has the id
   0.) */
static int refuse(int error)
{
	return fail(queue.depth && ringway_cancel(queue.ringway, 0) == -ECHILD ? ECHILD : error);
}

/* Frees everything but the queue of ringway. */
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
		return refuse(EINVAL);
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
	/* As few as are useful, since entries cost locked memory. The kernel holds four times as
	   many completions, which on kaio limits the operations that it has at a time. */
	options.entries = depth <= 64     ? depth
	                  : depth <= 256  ? 64
	                  : depth <= 4096 ? (depth + 3) / 4
	                                  : 1024;
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
	return refuse(ENOTSUP);
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
	struct request *slot = completion->user_data;
	struct request request = *slot;
	int64_t result = completion->result;

	(void)ringway;
	queue.outstanding--;
	queue.free[queue.depth - queue.outstanding - 1] = (unsigned)(slot - queue.requests);
	/* push() replaces an operation with a negative offset by a nop. */
	if (completion->opcode == RINGWAY_OP_NOP && result == 0)
		result = -EINVAL;
	if (result < 0) {
		errno = (int)-result;
		result = -1;
	}
	request.cb(request.arg, (ssize_t)result, request.buf);
}

/* Inlined to avoid a copy of the operation. */
static inline int push(struct ringway_operation *operation, void *buf, size_t len, off_t offset,
                       ioqueue_cb cb, void *cb_arg)
{
	struct request *request;
	int64_t id;

	if (!queue.depth || !buf || !cb || len == 0 || len > SSIZE_MAX)
		return refuse(EINVAL);
	if (queue.ending)
		return refuse(ESHUTDOWN);
	if (queue.outstanding == queue.depth)
		return refuse(EAGAIN);

	request = &queue.requests[queue.free[queue.depth - queue.outstanding - 1]];
	request->cb = cb;
	request->arg = cb_arg;
	request->buf = buf;
	operation->user_data = request;
	/* ringway.h has no negative offsets: -1 is RINGWAY_CURRENT_POSITION. The callback gets
	 * EINVAL. */
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
	struct ringway_operation read =
		ringway_prep_read(fd, buf, len, (uint64_t)offset, done, NULL);

	return push(&read, buf, len, offset, cb, cb_arg);
}

int ioqueue_pwrite(int fd, void *buf, size_t len, off_t offset, ioqueue_cb cb, void *cb_arg)
{
	struct ringway_operation write =
		ringway_prep_write(fd, buf, len, (uint64_t)offset, done, NULL);

	return push(&write, buf, len, offset, cb, cb_arg);
}

int ioqueue_reap(unsigned min)
{
	int count;

	if (queue.busy)
		return refuse(EDEADLK);
	/* The kernel may have signalled the eventfd for completions reaped since. Reset it, or it
	   stays readable in a program that never reads it. */
	if (queue.outstanding == 0 && queue.polled)
		(void)ringway_reap(queue.ringway, 0, 0);
	if (queue.outstanding == 0 || min > queue.outstanding)
		return refuse(EINVAL);
	queue.busy = 1;
	count = ringway_reap(queue.ringway, min, min ? RINGWAY_FOREVER : 0);
	queue.busy = 0;
	return count < 0 ? fail(-count) : count;
}

void ioqueue_destroy(void)
{
	/* A copy, so that queue.ringway stays set in the last callbacks. */
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
