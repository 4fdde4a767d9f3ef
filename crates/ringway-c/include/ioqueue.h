/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * ioqueue.h: reads and writes of files, many at a time, answered by callbacks. A replacement for the ioqueue library, for
 * which programs are recompiled and not changed.
 *
 *	ioqueue_init(32);                                    (room for 32 at a time)
 *	ioqueue_pread(fd, buf, 4096, offset, done, arg);     (as many as there is room for; nothing begins yet)
 *	ioqueue_reap(1);                                     (begins them, waits for one, calls done(arg, 4096, buf))
 *	ioqueue_destroy();                                   (waits for the rest, and calls done() for them too)
 *
 * Two libraries have these functions:
 *
 *	-lioqueue     io_uring, or where that is refused Linux AIO, or where that is refused too, threads.
 *	              RINGWAY_BACKEND=uring|kaio|threads in the environment chooses.
 *	-lioqueuemt   threads, and no descriptor to poll.
 *
 * ERRORS    What fails gives -1 and sets errno. A callback is handed the result of its read or write likewise: the bytes that were
 *           transferred, or -1, and errno says why while it runs.
 *
 * MEMORY    Buffers, and descriptors with the files behind them, are yours and must stay until the callback.
 *
 * FILES     Any that pread(2) and pwrite(2) take. Those opened with O_DIRECT, with the alignment that it asks for, are what this is
 *           fast for; others work as well.
 *
 * THREADS   There is one queue in a process. It may go from thread to thread, but is used by one at a time. Callbacks run on the
 *           thread that called ioqueue_reap() or ioqueue_destroy().
 *
 * CALLBACKS A callback may queue more: its own place is free before it runs. It may not reap or destroy. It must return: no longjmp,
 *           no C++ exception out of it.
 *
 * FORK      The queue belongs to the process that made it. In a child of fork() the functions fail with ECHILD, but for
 *           ioqueue_destroy(), which forgets the queue without touching the parent's or calling back; ioqueue_init() may follow.
 *
 * docs/ioqueue.md has what differs from the original, and why.
 */
#ifndef IOQUEUE_H
#define IOQUEUE_H

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What is called when a read or write has completed: with the `cb_arg` and the `buf` that it was queued with, and its result, as of
 * pread(2) and pwrite(2): `res` bytes, which may be fewer than asked for, 0 at the end of the file; or -1, and errno is set.
 */
typedef void (*ioqueue_cb)(void *arg, ssize_t res, void *buf);

/*
 * Makes the queue, with room for `depth` reads and writes at a time. 0, or -1 and errno:
 *   EINVAL  `depth` is 0 or more than INT_MAX; there is a queue already; a RINGWAY_BACKEND that is none
 *   ENOMEM  `depth` is more than 16777215, or there is no memory
 *   others  the backend that RINGWAY_BACKEND asks for was refused (EPERM, ENOSYS, EAGAIN ...)
 */
int ioqueue_init(unsigned depth);

/*
 * The eventfd(2) of the queue: readable (POLLIN) when something may have completed. Then call ioqueue_reap(0). It is non-blocking
 * and close-on-exec, and belongs to the queue: ioqueue_destroy() closes it.
 *
 * Each reap sets it back before it looks for completions, so it need not be read. It may be, before the reap: the number that
 * comes says nothing exact, and is then for you to remember. It may be readable for nothing, but never is there something to reap and
 * it is not readable. What is queued begins with a reap: before you poll, ioqueue_reap(0).
 *
 * -1 and errno:
 *   EINVAL  there is no queue
 *   ENOTSUP this is libioqueuemt
 *   EMFILE, ENFILE, ENOMEM  there is no descriptor left, or no memory
 *   ECHILD  a forked child
 */
int ioqueue_eventfd(void);

/*
 * Queues a read of `len` bytes at `offset` into `buf`, or a write of them from `buf`. Neither blocks nor begins: the next reap begins
 * it. `cb` is then called once, whatever happens, with `cb_arg`, which may be NULL.
 *
 * 0, or -1 and errno, with nothing queued and no callback to come:
 *   EINVAL    `buf` or `cb` is NULL; `len` is 0 or more than SSIZE_MAX; there is no queue
 *   EAGAIN    the queue is full: reap, then try again
 *   ESHUTDOWN called from a callback in ioqueue_destroy()
 *   ECHILD    a forked child
 * Everything else that is wrong, of the descriptor, the offset or the alignment, is told to the callback.
 */
int ioqueue_pread(int fd, void *buf, size_t len, off_t offset, ioqueue_cb cb, void *cb_arg);
int ioqueue_pwrite(int fd, void *buf, size_t len, off_t offset, ioqueue_cb cb, void *cb_arg);

/*
 * Begins what was queued, waits until at least `min` have completed (0: does not wait), and calls the callbacks of all that have.
 * A signal does not end the wait. Reads and writes that failed count like others. What callbacks queue is for the next reap.
 *
 * How many callbacks were called; or -1 and errno, and no callback was called and nothing is lost:
 *   EINVAL  `min` is more than the number queued and not yet called back; or there are none; or there is no queue
 *   EDEADLK called from a callback
 *   ECHILD  a forked child
 */
int ioqueue_reap(unsigned min);

/*
 * Ends the queue: begins what was queued, waits for everything, calls the callbacks, and closes the eventfd. ioqueue_init() may follow.
 * Without a queue it does nothing.
 *
 * It waits as long as things complete. When nothing has for five seconds (a read of a pipe that nobody writes to), it cancels the rest,
 * whose callbacks get -1 and ECANCELED. What cannot be cancelled either, since a device does not answer, is given up
 * 25 seconds later: it gets no callback, and its buffer must be left alone for as long as the process lives.
 *
 * From a callback: does nothing but set errno to EDEADLK.
 */
void ioqueue_destroy(void);

/* Not in the original: the backend of the queue, "uring", "kaio" or "threads"; NULL without a queue. */
const char *ioqueue_backend(void);

#ifdef __cplusplus
}
#endif

#endif /* IOQUEUE_H */
