/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * ioqueue.h: asynchronous reads and writes of files with callbacks. A replacement for the ioqueue
 * library: programs are recompiled, not changed. New programs should prefer ringway.h, which has
 * any number of queues and more operations.
 *
 *	ioqueue_init(32);                                  // a queue for 32 operations at a time
 *	ioqueue_pread(fd, buf, 4096, offset, done, arg);   // queues a read; does not begin it
 *	ioqueue_reap(1);                                   // begins it, waits, calls done()
 *	ioqueue_destroy();                                 // waits for the rest and calls back
 *
 * Two libraries implement these functions:
 *
 *	-lioqueue     uses io_uring; if that is refused, Linux AIO; if that is refused, threads.
 *	              RINGWAY_BACKEND=uring|kaio|threads in the environment chooses one.
 *	-lioqueuemt   uses threads and has no descriptor to poll.
 *
 * ERRORS    Functions that fail return -1 and set errno. A callback receives its result in the same
 *           form: the number of bytes transferred, or -1 with errno set while it runs.
 *
 * MEMORY    Keep buffers valid and descriptors open until the callback.
 *
 * FILES     All files that pread(2) and pwrite(2) accept. Direct I/O (O_DIRECT, with the alignment
 *           that it requires) is the fast case.
 *
 * THREADS   A process has one queue. Any thread may use it, but only one at a time. Callbacks run
 *           on the thread that called ioqueue_reap() or ioqueue_destroy().
 *
 * CALLBACKS A callback may queue more operations: its own slot is free before it runs. It may not
 *           reap or destroy. It must return: no longjmp(), no C++ exception.
 *
 * FORK      The queue belongs to the process that created it. In a forked child all functions fail
 *           with ECHILD, except ioqueue_destroy(), which frees the child's copy and closes its
 *           descriptors without affecting the parent or calling back. Then ioqueue_init() can be
 *           called again. A child that has called closefrom(3) must not destroy.
 *
 * ioqueue(3) has the errors of each function. docs/ioqueue.md lists the differences from the
 * original.
 */
#ifndef IOQUEUE_H
#define IOQUEUE_H

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Called when a read or write has completed, with the `cb_arg` and `buf` that it was queued with.
 * `res` is the result as of pread(2) or pwrite(2): the number of bytes, which may be fewer than
 * requested and is 0 at the end of the file; or -1 with errno set.
 */
typedef void (*ioqueue_cb)(void *arg, ssize_t res, void *buf);

/* Creates the queue, for at most `depth` outstanding reads and writes. Returns 0 or -1. */
int ioqueue_init(unsigned depth);

/*
 * Returns an eventfd(2) that is readable when operations may have completed: then call
 * ioqueue_reap(0). It belongs to the queue. Operations begin with a reap, so reap before you poll.
 */
int ioqueue_eventfd(void);

/*
 * Queue a read of `len` bytes at `offset` into `buf`, or a write of `len` bytes from `buf`. The
 * next reap begins it; `cb` is then called exactly once, with `cb_arg`. Return 0 or -1.
 */
int ioqueue_pread(int fd, void *buf, size_t len, off_t offset, ioqueue_cb cb, void *cb_arg);
int ioqueue_pwrite(int fd, void *buf, size_t len, off_t offset, ioqueue_cb cb, void *cb_arg);

/*
 * Begins all queued operations, waits until at least `min` have completed (0: does not wait), and
 * calls the callbacks of all that have. Returns their number or -1.
 */
int ioqueue_reap(unsigned min);

/*
 * Destroys the queue: waits for all operations, calls their callbacks, and closes the eventfd.
 * Cancels what has not ended after five seconds without a completion.
 */
void ioqueue_destroy(void);

/* Returns the backend of the queue, "uring", "kaio" or "threads"; NULL if there is no queue. The
   original does not have this function. */
const char *ioqueue_backend(void);

#ifdef __cplusplus
}
#endif

#endif /* IOQUEUE_H */
