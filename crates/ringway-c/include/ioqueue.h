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
 * docs/ioqueue.md lists the differences from the original.
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

/*
 * Creates the queue, for at most `depth` outstanding reads and writes.
 *
 * Returns 0, or -1 with errno set:
 *   EINVAL  `depth` is 0 or more than INT_MAX; there is a queue already; RINGWAY_BACKEND is invalid
 *   ENOMEM  `depth` is more than 16777215; out of memory
 *   others  the backend that RINGWAY_BACKEND chooses was refused (EPERM, ENOSYS, EAGAIN ...)
 */
int ioqueue_init(unsigned depth);

/*
 * Returns an eventfd(2) that is readable (POLLIN) when operations may have completed: then call
 * ioqueue_reap(0). It is non-blocking and close-on-exec, and belongs to the queue:
 * ioqueue_destroy() closes it.
 *
 * There are no lost wakeups; spurious ones are possible. Each reap resets the eventfd, so you need
 * not read it. You may read it before the reap; the number read has no exact meaning. Operations
 * begin with a reap: call ioqueue_reap(0) before you poll.
 *
 * Returns -1 with errno set:
 *   EINVAL  there is no queue
 *   ENOTSUP this is libioqueuemt
 *   EMFILE, ENFILE, ENOMEM  no descriptor or no memory is left
 *   ECHILD  called in a forked child
 */
int ioqueue_eventfd(void);

/*
 * Queue a read of `len` bytes at `offset` into `buf`, or a write of `len` bytes from `buf`. They do
 * not block and do not begin the operation: the next reap does. `cb` is then called exactly once,
 * with `cb_arg`, which may be NULL.
 *
 * Return 0; or, with nothing queued and no callback, -1 with errno set:
 *   EINVAL    `buf` or `cb` is NULL; `len` is 0 or more than SSIZE_MAX; there is no queue
 *   EAGAIN    the queue is full: reap, then try again
 *   ESHUTDOWN called from a callback in ioqueue_destroy()
 *   ECHILD    called in a forked child
 * All other errors (bad descriptor, offset or alignment) are passed to the callback.
 */
int ioqueue_pread(int fd, void *buf, size_t len, off_t offset, ioqueue_cb cb, void *cb_arg);
int ioqueue_pwrite(int fd, void *buf, size_t len, off_t offset, ioqueue_cb cb, void *cb_arg);

/*
 * Begins all queued operations, waits until at least `min` operations have completed (0: does not
 * wait), and calls the callbacks of all that have. A signal does not interrupt the wait. Failed
 * operations count. Operations that callbacks queue begin with the next reap.
 *
 * Returns the number of callbacks called; or, with no callback called and nothing lost, -1 with
 * errno set:
 *   EINVAL  `min` is more than the number of outstanding operations; that number is 0; there is no
 *           queue
 *   EDEADLK called from a callback
 *   ECHILD  called in a forked child
 */
int ioqueue_reap(unsigned min);

/*
 * Destroys the queue: begins all queued operations, waits for them, calls their callbacks, and
 * closes the eventfd. Does nothing if there is no queue. ioqueue_init() can be called again.
 *
 * Waits as long as operations complete. If none has for five seconds (a read of a pipe that nobody
 * writes to), it cancels the rest, whose callbacks get -1 and ECANCELED. Operations that cannot be
 * cancelled, because a device does not respond, are given up 25 seconds later. They get no
 * callback, and their buffers must be left alone for the life of the process.
 *
 * From a callback it only sets errno to EDEADLK.
 */
void ioqueue_destroy(void);

/* Returns the backend of the queue, "uring", "kaio" or "threads"; NULL if there is no queue. The
   original does not have this function. */
const char *ioqueue_backend(void);

#ifdef __cplusplus
}
#endif

#endif /* IOQUEUE_H */
