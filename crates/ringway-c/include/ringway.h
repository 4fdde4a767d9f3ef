/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * ringway.h: a queue for asynchronous file I/O over io_uring, Linux AIO or threads.
 *
 * This header declares the whole C API. ioqueue.h, the replacement for the ioqueue library, is
 * separate.
 *
 *	static void done(struct ringway_queue *queue, const struct ringway_completion *completion)
 *	{
 *		// completion->result: bytes read, or minus an errno
 *	}
 *
 *	struct ringway_queue *queue;
 *	int error = ringway_create(NULL, &queue);            // the best backend available
 *
 *	struct ringway_operation read = ringway_prep_read(fd, buf, 4096, 0, done, &job);
 *	ringway_push(queue, &read);                          // queues it; does not block
 *	ringway_reap(queue, 1, RINGWAY_FOREVER);             // submits, waits for one, calls done()
 *
 *	ringway_destroy(&queue);
 *
 * RESULTS   Functions that can fail return 0 or more on success and minus an errno on failure.
 *           They do not set errno. ringway_last_error() describes the failure in words, with a fix
 *           where one is known. An operation's own result arrives in its completion, in the same
 *           form, and is the same on every backend.
 *
 * MEMORY    From ringway_push() until the completion is delivered, keep valid: the bytes of
 *           buffers, the struct statx, and the open descriptor. ringway_push() copies the
 *           operation itself, paths, and arrays of struct iovec. Cancelling an operation does not
 *           release its memory; only its completion does. Exceptions, in which no completion
 *           arrives: see ringway_destroy(), and -EINPROGRESS of ringway_multi_read().
 *
 * THREADS   A queue has no lock. Any thread may use it, but only one at a time. Different queues
 *           may be used concurrently. Callbacks run inside ringway_reap() and ringway_destroy(), on
 *           the calling thread. ringway_last_error() is per thread. Functions that take no queue
 *           may be called from any thread.
 *
 * CALLBACKS A callback may call every function on its queue except ringway_reap(),
 *           ringway_reap_into() and ringway_destroy(), which return -EDEADLK. At least one push
 *           succeeds in it, because a completion frees its slot before it is delivered. A callback
 *           must return: longjmp() out of one leaks memory and leaves the queue unable to reap; a
 *           C++ exception terminates the program.
 *
 * FORK      A queue belongs to the process that created it. In a forked child, functions that can
 *           fail return -ECHILD. ringway_destroy() frees the child's copy and closes the
 *           descriptors that the child inherited with it. It does not wait or affect the parent,
 *           whose operations go on. Descriptors of the program stay open. A child that has closed
 *           descriptors of the queue itself, as closefrom(3) does, must not destroy it: their
 *           numbers may be those of other files. Functions that only read return the state as of
 *           the fork. All descriptors are close-on-exec.
 *
 * SIGNALS   A signal does not interrupt any function here, unless the queue was created with
 *           RINGWAY_INTERRUPTIBLE: then it ends the waits of ringway_reap() and
 *           ringway_reap_into(). That is for runtimes that run their own signal handlers only when
 *           C returns. As with select(2), a signal that arrives just before the wait begins does
 *           not end it: let the handler make a polled descriptor readable, or wait with a timeout.
 *           As with write(2), writing to a pipe or socket without a reader raises SIGPIPE; if that
 *           is ignored, the result is -EPIPE.
 *
 * CANCEL    No function here is a cancellation point for pthread_cancel(3). A thread that is
 *           cancelled inside one, or inside a callback, ends at its first cancellation point after
 *           the function has returned. Asynchronous cancellation is not supported.
 *
 * ABI       ringway_options and ringway_operation begin with their size, so a program built
 *           against this header runs with any later library of the same soname
 *           (libringway.so.0). ringway_options_init() and the ringway_prep_...() functions set it.
 *           A size smaller than that of the first version is -EINVAL. A larger one is accepted if
 *           the bytes unknown to this library are 0, and is otherwise -E2BIG. ringway_completion
 *           and ringway_range do not grow within a soname.
 *
 * Linux 4.18 or newer (io_uring needs 5.6), on 64-bit machines; tested on x86-64. Each function has
 * a manual page: man 3 ringway_push. ringway(7) is an overview.
 */
#ifndef RINGWAY_H
#define RINGWAY_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RINGWAY_VERSION_MAJOR 0
#define RINGWAY_VERSION_MINOR 1
#define RINGWAY_VERSION_PATCH 0

/* Returns the version of the library that is running, such as "0.1.0". */
const char *ringway_version(void);

/*
 * Describes the last call on this thread that returned an error: one or more lines for people to
 * read, with a fix where one is known.
 *
 * Returns "" if no call has failed; never NULL. The string is valid until the next failing call on
 * this thread.
 */
const char *ringway_last_error(void);


/* ---- Creating a queue ----------------------------------------------------------------------- */

/* A queue: push operations, submit them, reap their completions. */
struct ringway_queue;

/* How operations reach the kernel. */
enum ringway_backend {
	RINGWAY_BACKEND_BEST = 0,    /* the first of uring, kaio, threads that passes a real read */
	RINGWAY_BACKEND_URING = 1,   /* io_uring */
	RINGWAY_BACKEND_KAIO = 2,    /* Linux AIO; buffered I/O and metadata on threads */
	RINGWAY_BACKEND_THREADS = 3, /* threads that make blocking calls */
	/* Completes every operation successfully without performing it: measures the cost of the
	   queue itself. Only in a library built for tests; see ringway_create(3). */
	RINGWAY_BACKEND_NULL = 4
};

/* Flags of struct ringway_options. */
enum {
	/* Only the creating thread will use the queue. The kernel can then do its part of the work
	   on that thread (Linux 6.1). Other threads get -EEXIST, but may destroy the queue. */
	RINGWAY_SINGLE_ISSUER = 1u << 0,
	/* ringway_fd() returns an eventfd on every backend. Without this flag it returns the ring's
	   descriptor on io_uring. */
	RINGWAY_EVENTFD = 1u << 1,
	/* ringway_create() fails if anything requested is refused, instead of falling back. */
	RINGWAY_STRICT = 1u << 2,
	/* A kernel thread picks up submissions, so submitting needs no system call. It keeps one
	   processor busy. io_uring only. */
	RINGWAY_SQPOLL = 1u << 3,
	/* Completions are polled for (IORING_SETUP_IOPOLL), if the device of iopoll_fd polls and a
	   real read works. Operations other than direct transfers then run on threads, waiting
	   keeps a processor busy, time limits of direct transfers have no effect, and ringway_fd()
	   fails. */
	RINGWAY_IOPOLL = 1u << 4,
	/* With RINGWAY_SQPOLL: binds its kernel thread to the processor sqpoll_cpu. */
	RINGWAY_SQPOLL_CPU = 1u << 5,
	/* ringway_destroy() cancels operations and does not wait for them. close_wait_ms must be 0,
	   which would otherwise mean the default. */
	RINGWAY_NO_CLOSE_WAIT = 1u << 6,
	/* A signal handler that runs on the thread that waits ends the wait: ringway_reap() and
	   ringway_reap_into() return the completions that are ready, possibly 0. See SIGNALS. */
	RINGWAY_INTERRUPTIBLE = 1u << 7
};

/*
 * Options of a queue. ringway_options_init() sets `size` and everything else to 0, which means the
 * default for each field.
 */
struct ringway_options {
	uint32_t size;    /* sizeof(struct ringway_options) */
	uint32_t flags;   /* RINGWAY_SINGLE_ISSUER | ... */
	uint32_t backend; /* enum ringway_backend; if refused, any but BEST is an error */
	/* The most operations that one system call submits, 1 to 32768. Each costs about 200 bytes
	   of locked memory (RLIMIT_MEMLOCK). Default: 64. */
	uint32_t entries;
	/* Completions that the kernel holds without extra cost. Default: 4 * entries. */
	uint32_t completion_entries;
	/* The most operations in flight, up to 16777215. Default: 1024. */
	uint32_t in_flight;
	/* The most threads, started as needed, on every backend. Default: 64. */
	uint32_t threads;
	/* The most threads for syncs, which do not share threads with other operations.
	   Default: 4. */
	uint32_t sync_threads;
	/* With RINGWAY_SQPOLL: how long its thread polls without work before it sleeps.
	   Default: 1000. */
	uint32_t sqpoll_idle_ms;
	/* With RINGWAY_SQPOLL_CPU: a processor number. Default: 0, the first processor. */
	uint32_t sqpoll_cpu;
	/* The most io_uring workers (kernel threads) for what the kernel hands over itself on
	   regular files and block devices, as io_uring_register_iowq_max_workers(3) counts them
	   (Linux 5.15). Default: the kernel's. */
	uint32_t io_wq_bounded;
	/* ... and for everything else, which includes what ringway hands over on purpose. Default:
	   24; if only io_wq_bounded is set, the same. Each thread that submits has its own workers,
	   for all of its queues. */
	uint32_t io_wq_unbounded;
	/* The longest that ringway_destroy() waits for operations that cannot be cancelled.
	   Default: 5000. See RINGWAY_NO_CLOSE_WAIT for no wait at all. */
	uint32_t close_wait_ms;
	/* With RINGWAY_IOPOLL, which requires it: a file open for direct I/O on a device with poll
	   queues, for a trial read. Default: none, so descriptor 0 must be duplicated first. */
	int32_t iopoll_fd;
	/* Shares the kernel threads of this queue: those of SQPOLL and the io_uring workers.
	   Default: shares none. */
	struct ringway_queue *attach;
	/* For tests: faults to inject, such as "seed=7 short=500 errors=10". ringway_create()
	   copies it. Only in a library built for tests; see ringway_create(3). Default: none. */
	const char *faults;
};

/* Sets *options to the defaults. */
static inline void ringway_options_init(struct ringway_options *options)
{
	options->size = (uint32_t)sizeof *options;
	options->flags = 0;
	options->backend = RINGWAY_BACKEND_BEST;
	options->entries = 0;
	options->completion_entries = 0;
	options->in_flight = 0;
	options->threads = 0;
	options->sync_threads = 0;
	options->sqpoll_idle_ms = 0;
	options->sqpoll_cpu = 0;
	options->io_wq_bounded = 0;
	options->io_wq_unbounded = 0;
	options->close_wait_ms = 0;
	options->iopoll_fd = 0;
	options->attach = NULL;
	options->faults = NULL;
}

/*
 * Creates a queue and stores it in *queue. `options` may be NULL for the defaults. Blocks for a few
 * system calls, including a trial read.
 *
 * If `options` names no backend, the environment variable RINGWAY_BACKEND=uring|kaio|threads
 * chooses it. ringway_explain() lists what was refused, why, and how to fix it.
 *
 * Returns 0, or sets *queue to NULL and returns:
 *   -EINVAL      options out of range, or an invalid RINGWAY_BACKEND
 *   -E2BIG       options of a later version with a field set that this library does not know
 *   -ECHILD      `attach` was created before this process was forked
 *   -EOPNOTSUPP  `faults` or RINGWAY_BACKEND_NULL in a library that is not built for tests
 *   others       the errno with which the chosen backend or, with RINGWAY_STRICT, anything else
 *                was refused
 */
int ringway_create(const struct ringway_options *options, struct ringway_queue **queue);

/*
 * Destroys a queue and sets *queue to NULL. Does nothing if `queue` or *queue is NULL. Any thread
 * may destroy a queue that no other thread is using, even with RINGWAY_SINGLE_ISSUER.
 *
 * Cancels all operations in flight, waits at most close_wait_ms for them, and calls the callbacks
 * of those that completed, on the calling thread. In those callbacks, functions that would start
 * work return -ESHUTDOWN.
 *
 * If the ring cannot be entered, because it has failed or belongs to another thread by
 * RINGWAY_SINGLE_ISSUER, it is closed, which cancels its operations. Those whose completions are
 * lost with it complete with -ECANCELED, whether or not they took effect. The contents of a file
 * that such an operation wrote to are unknown.
 *
 * Returns the number of operations that did not end, usually 0. The kernel still uses their buffers
 * and descriptors: leave those alone for the life of the process. These operations get no callback,
 * and nothing of theirs is freed. Memory of operations whose callback has run is yours again.
 * Or returns:
 *   -EDEADLK  called from one of the queue's callbacks; nothing was done
 */
int ringway_destroy(struct ringway_queue **queue);


/* ---- Operations ----------------------------------------------------------------------------- */

struct ringway_completion;

/* Called with each completion. `completion` is valid only during the call. */
typedef void (*ringway_callback)(struct ringway_queue *queue,
                                 const struct ringway_completion *completion);

/* What an operation does. The numbers do not change. */
enum ringway_opcode {
	RINGWAY_OP_NOP = 0,
	RINGWAY_OP_READ = 1,
	RINGWAY_OP_WRITE = 2,
	RINGWAY_OP_READV = 3,
	RINGWAY_OP_WRITEV = 4,
	RINGWAY_OP_FSYNC = 5,
	RINGWAY_OP_SYNC_RANGE = 6,
	RINGWAY_OP_OPEN = 7,
	RINGWAY_OP_CLOSE = 8,
	RINGWAY_OP_STATX = 9,
	RINGWAY_OP_FALLOCATE = 10,
	RINGWAY_OP_FTRUNCATE = 11,
	RINGWAY_OP_FADVISE = 12,
	RINGWAY_OP_RENAME = 13,
	RINGWAY_OP_UNLINK = 14,
	RINGWAY_OP_MKDIR = 15,
	RINGWAY_OP_LINK = 16,
	RINGWAY_OP_SYMLINK = 17,
	RINGWAY_OP_POLL = 18,
	RINGWAY_OP_TIMEOUT = 19
};

/* Flags of struct ringway_operation. */
enum {
	/* Continues a short read or write until all bytes are transferred, the file ends, or an
	   error occurs. An error is then the result. */
	RINGWAY_EXACT = 1u << 0,
	/* A barrier: begins after all operations pushed before it have completed; operations pushed
	   after it begin after it has completed. */
	RINGWAY_DRAIN = 1u << 1,
	/* In a chain: the next operation begins whatever the result of this one is. */
	RINGWAY_CONTINUE_ON_ERROR = 1u << 2,
	/* A READ or WRITE at RINGWAY_CURRENT_POSITION whose file is a socket, with which io_uring
	   then receives or sends without looking up the kind of the file. See
	   ringway_prep_read(). */
	RINGWAY_SOCKET = 1u << 3
};

/* An offset: the current position of the file, which the transfer advances. Files without one
   (pipes, sockets, terminals) ignore the offset. */
#define RINGWAY_CURRENT_POSITION UINT64_MAX

/* op_flags of RINGWAY_OP_FSYNC: fdatasync(2) rather than fsync(2). */
#define RINGWAY_FSYNC_DATASYNC 1u

/*
 * One operation. Prepare it with a ringway_prep_...() function, set flags and timeout_ns if needed,
 * and push it, as often as you like. (A binding for another language sets the fields that the
 * prepare function sets and leaves the rest 0.)
 */
struct ringway_operation {
	uint32_t size;     /* sizeof(struct ringway_operation) */
	uint16_t opcode;   /* enum ringway_opcode */
	uint16_t flags;    /* RINGWAY_EXACT | ... */
	int32_t fd;        /* the file, or the directory of `path` (AT_FDCWD: the current one) */
	int32_t fd2;       /* the directory of `path2` */
	uint64_t offset;   /* in bytes, or RINGWAY_CURRENT_POSITION */
	uint64_t length;   /* bytes; READV, WRITEV: number of buffers; TIMEOUT: nanoseconds */
	const void *buf;   /* the buffer, the array of struct iovec, or the struct statx */
	const char *path;
	const char *path2;
	uint32_t op_flags; /* flags of the system call: O_*, AT_*, RENAME_*, FALLOC_FL_*, POLL* */
	uint32_t mode;     /* permissions of a new file; STATX: the STATX_* mask */
	uint64_t resolve;  /* OPEN: RESOLVE_* of openat2(2) */
	/* If it has not completed this long after its submission, the operation is cancelled and
	   its result is -ETIMEDOUT. An operation that cannot be cancelled completes as if it had no
	   timeout. 0: no timeout. */
	uint64_t timeout_ns;
	ringway_callback callback; /* may be NULL */
	void *user_data;           /* copied to the completion */
};

/* The completion of one operation. */
struct ringway_completion {
	int64_t id;                /* as ringway_push() returned it */
	int64_t result;            /* bytes, a descriptor, poll events or 0; or minus an errno */
	void *user_data;           /* of the operation */
	ringway_callback callback; /* of the operation */
	uint32_t opcode;           /* enum ringway_opcode */
	uint32_t reserved;         /* 0 */
};

/*
 * Adds an operation to the queue. Does not submit it and does not block. *operation and its paths
 * and iovec arrays may be reused when it returns.
 *
 * Returns the operation's id, which is more than 0 and differs from that of every other operation
 * in flight. Or queues nothing and returns:
 *   -EAGAIN    the queue is full: reap, then push again
 *   -EINVAL    an unknown opcode or flag, a NULL buffer with a length other than 0, a NULL path, an
 *              offset beyond INT64_MAX, a length beyond SSIZE_MAX, more than 1024 (IOV_MAX)
 *              buffers, or RINGWAY_SOCKET with another operation or offset
 *   -E2BIG     an operation of a later version with a field set that this library does not know
 *   -EBUSY     closes a registered descriptor: unregister it first
 *   -ESHUTDOWN the queue is being destroyed, or has failed: see ringway_multi_read()
 *   -ECHILD    the queue was created before this process was forked
 * Errors of the system call, such as -EBADF, are in the completion.
 */
int64_t ringway_push(struct ringway_queue *queue, const struct ringway_operation *operation);

/*
 * Adds a chain of `count` operations, each of which begins after the one before it has succeeded:
 * write, then sync, then rename. After one that fails or transfers less than requested, the rest
 * complete with -ECANCELED, unless it has RINGWAY_CONTINUE_ON_ERROR. Each operation has its own
 * completion.
 *
 * If `ids` is not NULL, stores the ids of all operations there, in order; it has room for `count`.
 *
 * Returns the id of the first operation. On errors, which are those of ringway_push(), none of the
 * operations is queued and `ids` is not written. -EINVAL also for a `count` of 0 or above the
 * options' in_flight.
 */
int64_t ringway_push_chain(struct ringway_queue *queue, const struct ringway_operation *operations,
                           size_t count, int64_t *ids);

/*
 * Submits all pushed operations, with one system call for any number of them on io_uring and Linux
 * AIO. Does not wait.
 *
 * Returns the number of completions ready to be reaped, or:
 *   -EEXIST    called on another thread than that of RINGWAY_SINGLE_ISSUER
 *   -ECHILD    the queue was created before this process was forked
 *   others     io_uring_enter(2) or io_submit(2) failed: -ENOMEM is temporary, others mean that the
 *              ring has failed
 * No operation is lost by an error. After the ring has failed, destroy the queue to get the buffers
 * back.
 */
int ringway_submit(struct ringway_queue *queue);

/* A timeout_ns of ringway_reap(): no timeout. */
#define RINGWAY_FOREVER INT64_C(-1)

/*
 * Submits all pushed operations, waits until at least `min` completions are ready or `timeout_ns`
 * nanoseconds have passed (0: does not wait; RINGWAY_FOREVER: no timeout), and calls the callbacks
 * of all completions that are ready. It never waits for more operations than are in flight. With
 * RINGWAY_INTERRUPTIBLE, a signal ends the wait.
 *
 * A completion without a callback is counted and dropped; if it holds a newly opened descriptor,
 * that is closed. Completions arrive in no particular order, except those of chains and barriers.
 *
 * Returns the number of completions, or:
 *   -EDEADLK   called from a callback of this queue
 *   others     as ringway_submit()
 */
int ringway_reap(struct ringway_queue *queue, unsigned min, int64_t timeout_ns);

/*
 * Like ringway_reap(), but stores up to `capacity` completions in the array `completions` instead
 * of calling callbacks. Further completions stay for the next call. Meant for bindings of languages
 * in which C cannot call back.
 *
 * Never waits for more than `capacity` completions. -EINVAL if `capacity` is 0 or `completions` is
 * NULL; other errors as ringway_reap().
 */
int ringway_reap_into(struct ringway_queue *queue, struct ringway_completion *completions,
                      size_t capacity, unsigned min, int64_t timeout_ns);

/*
 * Requests that an operation be cancelled. Does not block. The request reaches the kernel with the
 * next submit or reap. The operation's completion still arrives: with -ECANCELED, or with its
 * result if it could not be stopped.
 *
 * An operation in flight keeps its file open: until then, close(2) of its descriptor closes no
 * connection and frees no port. For a cancelled poll on io_uring (without RINGWAY_SQPOLL),
 * ringway_reap(queue, 0, 0) on the thread that submitted it is enough: it delivers the completion
 * and releases the file. On other backends, wait for the completion.
 *
 * Returns 0, or:
 *   -ENOENT    there is no such operation, or its result is already known
 *   -EEXIST, -ECHILD as ringway_submit()
 */
int ringway_cancel(struct ringway_queue *queue, int64_t id);

/*
 * Requests that all operations in flight be cancelled, as ringway_cancel() does for one.
 *
 * Returns the number of operations for which it did; -EEXIST, -ECHILD as ringway_submit().
 */
int ringway_cancel_all(struct ringway_queue *queue);


/* ---- Reading many ranges at once ------------------------------------------------------------ */

/* Flags of struct ringway_range: how the descriptor is open. With neither flag it is looked up. */
enum {
	RINGWAY_RANGE_DIRECT = 1u << 0,  /* for direct I/O (O_DIRECT) */
	RINGWAY_RANGE_BUFFERED = 1u << 1 /* without: cached data is copied, not queued */
};

/* One range of a file to read. */
struct ringway_range {
	int32_t fd;
	uint32_t flags;  /* RINGWAY_RANGE_* */
	uint64_t offset; /* in bytes */
	uint64_t length; /* in bytes */
	void *buf;       /* `length` bytes; may be NULL if that is 0 */
	int64_t result;  /* out: bytes, less than `length` only at the end of the file; or -errno */
};

/*
 * Reads all ranges, as many concurrently as the queue has free slots, and waits for all of them.
 * Usually that takes one system call, or one for each `entries` of the options. Ranges may be of
 * any files, in any order, and may overlap. Short reads are continued.
 *
 * Completions of other operations stay for the next reap, and their callbacks are not called, so a
 * callback may call this.
 *
 * Returns the number of ranges that failed (0: none); each range has its own result. Or reads
 * nothing, sets no result, and returns:
 *   -EINVAL    a range with a NULL buffer, an unknown flag, a length beyond SSIZE_MAX or an offset
 *              beyond INT64_MAX
 *   -EAGAIN    other operations fill the queue
 *   -ESHUTDOWN the queue is being destroyed, or has failed
 *   -EEXIST, -ECHILD as ringway_submit()
 * Or sets all results and returns:
 *   -EIO       The ring has failed, and the queue with it: operations in flight are cancelled,
 *              pushes fail, and the descriptor of ringway_fd() is closed. Reap what is left, then
 *              destroy the queue. Ranges that were read have their results; the others
 *              -ECANCELED. A range that has -EINPROGRESS (after close_wait_ms) is still used by
 *              the kernel: leave its buffer and descriptor alone for the life of the process.
 */
int ringway_multi_read(struct ringway_queue *queue, struct ringway_range *ranges, size_t count);


/* ---- Event loops ---------------------------------------------------------------------------- */

/*
 * Returns a descriptor that is readable (POLLIN) when completions may be ready, for poll(2),
 * epoll(7) and the like. It belongs to the queue: do not read or close it.
 *
 * From the first call on there are no lost wakeups; spurious ones are possible. When it is
 * readable, call ringway_reap(queue, 0, 0) until it returns 0, then wait again. Call
 * ringway_submit() before waiting if operations were pushed. With io_uring, poll(2) and
 * epoll_wait(2) may fail with EINTR although no signal arrived: wait again.
 *
 * Errors:
 *   -EOPNOTSUPP      a queue with RINGWAY_IOPOLL
 *   -EMFILE, -ENFILE no descriptor is left
 *   -EEXIST, -ECHILD as ringway_submit()
 */
int ringway_fd(struct ringway_queue *queue);


/* ---- Registered memory and files ------------------------------------------------------------ */

/*
 * Registers memory as fixed buffers of the ring. The kernel then looks up its pages once, rather
 * than for each read or write. Transfers use it without being told to, if their buffer lies within
 * one element of `iov`. The memory must stay mapped until the queue is destroyed, and for the life
 * of the process if ringway_destroy() returns more than 0.
 *
 * Returns 0, or registers nothing and returns:
 *   -EOPNOTSUPP  the queue has no ring
 *   -ENOMEM      more than RLIMIT_MEMLOCK allows
 *   -ENOSPC      more than 64 registrations
 *   -EINVAL      no elements, or an element without memory or longer than 1 GiB
 *   -EBUSY       operations are in flight, and the kernel is older than 5.19
 *   -EEXIST, -ECHILD as ringway_submit()
 * The queue works without a registration, too.
 */
int ringway_register_buffers(struct ringway_queue *queue, const struct iovec *iov, size_t count);

/*
 * Registers a descriptor with the ring. The kernel then looks it up once, rather than for each
 * operation. Operations use the registration without being told to. Unregister the descriptor
 * before you close it.
 *
 * Returns 0, also if it is registered already; or -EOPNOTSUPP (no ring), -ENOSPC (more than 64),
 * -EBADF; -EEXIST, -ECHILD as ringway_submit().
 */
int ringway_register_file(struct ringway_queue *queue, int fd);

/*
 * Ends the registration of a descriptor.
 *
 * Returns 0; or -ENOENT (not registered), -EBUSY (operations on it are in flight); -EEXIST, -ECHILD
 * as ringway_submit().
 */
int ringway_unregister_file(struct ringway_queue *queue, int fd);


/* ---- Information ---------------------------------------------------------------------------- */

/* Counters of a queue. At any moment pushed = delivered + orphaned + in_flight. */
struct ringway_stats {
	uint64_t pushed;       /* operations */
	uint64_t delivered;    /* operations whose completion was delivered */
	uint64_t orphaned;     /* operations that the library gave up itself: 0 */
	uint64_t in_flight;    /* operations pushed and not delivered */
	uint64_t system_calls; /* system calls made for I/O, also by threads */
	uint64_t retries;      /* results retried: EINTR, EAGAIN, unrequested ECANCELED */
	uint64_t continued;    /* short transfers that were continued */
	uint64_t to_threads;   /* operations that the backend does not support, run on threads */
	uint64_t late;         /* stale completions, of operations that had ended */
};

/* Fills `size` bytes of *stats, for which pass sizeof(struct ringway_stats). Fields that this
   library does not know are set to 0. */
void ringway_get_stats(const struct ringway_queue *queue, struct ringway_stats *stats, size_t size);

/*
 * Describes the queue in lines of text: its backend, what is available, and what was refused, with
 * reason and fix. Writes at most `size` bytes including the terminating NUL, as snprintf(3) does.
 *
 * Returns the length of the whole text without the NUL.
 */
size_t ringway_explain(const struct ringway_queue *queue, char *text, size_t size);

/* Returns the backend of a queue. */
enum ringway_backend ringway_get_backend(const struct ringway_queue *queue);

/* Returns the name of a backend, "uring", "kaio", "threads" or "null"; "?" if there is none. */
const char *ringway_backend_name(unsigned backend);

/* Returns the name of an opcode, such as "read"; "?" if there is none. */
const char *ringway_opcode_name(unsigned opcode);

/* Returns the number of operations pushed whose completion has not been delivered. */
size_t ringway_in_flight(const struct ringway_queue *queue);

/* Returns how many more operations can be pushed now. */
size_t ringway_free_slots(const struct ringway_queue *queue);

/* The alignment that direct I/O on a file requires, in bytes. */
struct ringway_direct_io {
	uint32_t mem_align;    /* of buffer addresses */
	uint32_t offset_align; /* of offsets and lengths */
	uint32_t max_request;  /* the device's largest request: longer ones are split; 0: unknown */
};

/*
 * Fills `size` bytes of *direct, for which pass sizeof(struct ringway_direct_io), for an open file:
 * from statx(2) where the kernel supports that (Linux 6.1), otherwise from the device's block size.
 * Blocks for a system call or for reading a few files of sysfs.
 *
 * Returns 0 or -EBADF.
 */
int ringway_get_direct_io(int fd, struct ringway_direct_io *direct, size_t size);


/* ---- Preparing operations ------------------------------------------------------------------- */
/*
 * These functions only fill in a structure: nothing happens before the push. Results and errors are
 * those of the system call named.
 */

/* Fills in the parts that all operations have, for bindings and for the functions below. */
static inline struct ringway_operation
ringway_prep(enum ringway_opcode opcode, int fd, ringway_callback callback, void *user_data)
{
	struct ringway_operation operation;

	operation.size = (uint32_t)sizeof operation;
	operation.opcode = (uint16_t)opcode;
	operation.flags = 0;
	operation.fd = fd;
	operation.fd2 = 0;
	operation.offset = 0;
	operation.length = 0;
	operation.buf = NULL;
	operation.path = NULL;
	operation.path2 = NULL;
	operation.op_flags = 0;
	operation.mode = 0;
	operation.resolve = 0;
	operation.timeout_ns = 0;
	operation.callback = callback;
	operation.user_data = user_data;
	return operation;
}

/* Does nothing. Result: 0. */
static inline struct ringway_operation
ringway_prep_nop(ringway_callback callback, void *user_data)
{
	return ringway_prep(RINGWAY_OP_NOP, -1, callback, user_data);
}

/* pread(2), or read(2) at RINGWAY_CURRENT_POSITION. Result: bytes, 0 at the end of the file. */
static inline struct ringway_operation
ringway_prep_read(int fd, void *buf, size_t length, uint64_t offset, ringway_callback callback,
                  void *user_data)
{
	struct ringway_operation operation = ringway_prep(RINGWAY_OP_READ, fd, callback, user_data);

	operation.buf = buf;
	operation.length = length;
	operation.offset = offset;
	return operation;
}

/* pwrite(2), or write(2) at RINGWAY_CURRENT_POSITION. Result: bytes. */
static inline struct ringway_operation
ringway_prep_write(int fd, const void *buf, size_t length, uint64_t offset,
                   ringway_callback callback, void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_WRITE, fd, callback, user_data);

	operation.buf = buf;
	operation.length = length;
	operation.offset = offset;
	return operation;
}

/*
 * preadv(2), or readv(2) at RINGWAY_CURRENT_POSITION. At most 1024 buffers (IOV_MAX). Result: bytes
 * in total.
 */
static inline struct ringway_operation
ringway_prep_readv(int fd, const struct iovec *iov, size_t count, uint64_t offset,
                   ringway_callback callback, void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_READV, fd, callback, user_data);

	operation.buf = iov;
	operation.length = count;
	operation.offset = offset;
	return operation;
}

/*
 * pwritev(2), or writev(2) at RINGWAY_CURRENT_POSITION. At most 1024 buffers (IOV_MAX). Result:
 * bytes in total.
 */
static inline struct ringway_operation
ringway_prep_writev(int fd, const struct iovec *iov, size_t count, uint64_t offset,
                    ringway_callback callback, void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_WRITEV, fd, callback, user_data);

	operation.buf = iov;
	operation.length = count;
	operation.offset = offset;
	return operation;
}

/*
 * fsync(2). Does not cover writes in flight: push it after them in a chain, or with RINGWAY_DRAIN.
 * Result: 0.
 *
 * Linux reports a lost write once for each open file (dup(2) shares it), to the first operation
 * that asks: of several syncs in flight one fails, and RINGWAY_OP_SYNC_RANGE and a write with
 * O_DSYNC take the report as well. Treat an error of one of them as an error of all that were in
 * flight with it, and of the next sync. After it, the data must be written again: a buffered read
 * may return what the device does not have, and another sync may succeed.
 */
static inline struct ringway_operation
ringway_prep_fsync(int fd, ringway_callback callback, void *user_data)
{
	return ringway_prep(RINGWAY_OP_FSYNC, fd, callback, user_data);
}

/* fdatasync(2). See ringway_prep_fsync(). Result: 0. */
static inline struct ringway_operation
ringway_prep_fdatasync(int fd, ringway_callback callback, void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_FSYNC, fd, callback, user_data);

	operation.op_flags = RINGWAY_FSYNC_DATASYNC;
	return operation;
}

/*
 * sync_file_range(2) with SYNC_FILE_RANGE_* flags. Does not make data durable: see its NOTES.
 * Result: 0.
 */
static inline struct ringway_operation
ringway_prep_sync_range(int fd, uint64_t offset, uint64_t length, unsigned flags,
                        ringway_callback callback, void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_SYNC_RANGE, fd, callback, user_data);

	operation.offset = offset;
	operation.length = length;
	operation.op_flags = flags;
	return operation;
}

/*
 * openat2(2): opens `path`, relative to `dir_fd`, with O_* flags; O_CLOEXEC is always added. `mode`
 * is the permissions of a new file. Set operation.resolve for RESOLVE_*. Result: a descriptor,
 * which you close.
 */
static inline struct ringway_operation
ringway_prep_open(int dir_fd, const char *path, int flags, unsigned mode, ringway_callback callback,
                  void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_OPEN, dir_fd, callback, user_data);

	operation.path = path;
	operation.op_flags = (uint32_t)flags;
	operation.mode = mode;
	return operation;
}

/*
 * close(2). No other operation on the descriptor may be in flight, except earlier ones of the same
 * chain. Result: 0.
 */
static inline struct ringway_operation
ringway_prep_close(int fd, ringway_callback callback, void *user_data)
{
	return ringway_prep(RINGWAY_OP_CLOSE, fd, callback, user_data);
}

struct statx; /* <sys/stat.h>, with _GNU_SOURCE */

/*
 * statx(2), with AT_* flags and a STATX_* mask. Fills in *statx_buf, which must stay valid until
 * the completion. Result: 0.
 */
static inline struct ringway_operation
ringway_prep_statx(int dir_fd, const char *path, int flags, unsigned mask, struct statx *statx_buf,
                   ringway_callback callback, void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_STATX, dir_fd, callback, user_data);

	operation.path = path;
	operation.op_flags = (uint32_t)flags;
	operation.mode = mask;
	operation.buf = statx_buf;
	return operation;
}

/* fallocate(2), with FALLOC_FL_* or 0. Result: 0. */
static inline struct ringway_operation
ringway_prep_fallocate(int fd, int mode, uint64_t offset, uint64_t length,
                       ringway_callback callback, void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_FALLOCATE, fd, callback, user_data);

	operation.offset = offset;
	operation.length = length;
	operation.op_flags = (uint32_t)mode;
	return operation;
}

/* ftruncate(2). Result: 0. */
static inline struct ringway_operation
ringway_prep_ftruncate(int fd, uint64_t length, ringway_callback callback, void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_FTRUNCATE, fd, callback, user_data);

	operation.length = length;
	return operation;
}

/* posix_fadvise(2), with POSIX_FADV_*. Result: 0. */
static inline struct ringway_operation
ringway_prep_fadvise(int fd, uint64_t offset, uint64_t length, int advice,
                     ringway_callback callback, void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_FADVISE, fd, callback, user_data);

	operation.offset = offset;
	operation.length = length;
	operation.op_flags = (uint32_t)advice;
	return operation;
}

/* renameat2(2), with RENAME_* or 0. Result: 0. */
static inline struct ringway_operation
ringway_prep_rename(int old_dir_fd, const char *old_path, int new_dir_fd, const char *new_path,
                    unsigned flags, ringway_callback callback, void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_RENAME, old_dir_fd, callback, user_data);

	operation.path = old_path;
	operation.fd2 = new_dir_fd;
	operation.path2 = new_path;
	operation.op_flags = flags;
	return operation;
}

/* unlinkat(2), with AT_REMOVEDIR or 0. Result: 0. */
static inline struct ringway_operation
ringway_prep_unlink(int dir_fd, const char *path, int flags, ringway_callback callback,
                    void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_UNLINK, dir_fd, callback, user_data);

	operation.path = path;
	operation.op_flags = (uint32_t)flags;
	return operation;
}

/* mkdirat(2). Result: 0. */
static inline struct ringway_operation
ringway_prep_mkdir(int dir_fd, const char *path, unsigned mode, ringway_callback callback,
                   void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_MKDIR, dir_fd, callback, user_data);

	operation.path = path;
	operation.mode = mode;
	return operation;
}

/* linkat(2), with AT_SYMLINK_FOLLOW or 0. Result: 0. */
static inline struct ringway_operation
ringway_prep_link(int old_dir_fd, const char *old_path, int new_dir_fd, const char *new_path,
                  int flags, ringway_callback callback, void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_LINK, old_dir_fd, callback, user_data);

	operation.path = old_path;
	operation.fd2 = new_dir_fd;
	operation.path2 = new_path;
	operation.op_flags = (uint32_t)flags;
	return operation;
}

/* symlinkat(2): creates `path`, relative to `dir_fd`, as a symbolic link to `target`. Result: 0. */
static inline struct ringway_operation
ringway_prep_symlink(const char *target, int dir_fd, const char *path, ringway_callback callback,
                     void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_SYMLINK, dir_fd, callback, user_data);

	operation.path = path;
	operation.path2 = target;
	return operation;
}

/* poll(2), once, for POLLIN, POLLOUT ... Result: the events that are ready. */
static inline struct ringway_operation
ringway_prep_poll(int fd, unsigned events, ringway_callback callback, void *user_data)
{
	struct ringway_operation operation = ringway_prep(RINGWAY_OP_POLL, fd, callback, user_data);

	operation.op_flags = events;
	return operation;
}

/* Completes this many nanoseconds after its submission. Result: 0. */
static inline struct ringway_operation
ringway_prep_timeout(uint64_t nanoseconds, ringway_callback callback, void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_TIMEOUT, -1, callback, user_data);

	operation.length = nanoseconds;
	return operation;
}

#ifdef __cplusplus
}
#endif

#endif /* RINGWAY_H */
