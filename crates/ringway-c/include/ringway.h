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
 *           errno means nothing after a call. ringway_last_error() describes the failure in words,
 *           with a fix where one is known. An operation's own result arrives in its completion, in
 *           the same form, and is the same on every backend.
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
 *           ringway_reap_into() and ringway_destroy(), which return -EDEADLK. In ringway_reap() at
 *           least one push succeeds in it: a completion frees its slot before it is delivered, and
 *           no other callback takes the last one; in ringway_destroy() pushes return -ESHUTDOWN. A
 *           callback uses the queue that it is passed: the caller's pointer is NULL while
 *           ringway_destroy() runs. It must return: longjmp() out of one leaks memory and leaves
 *           the queue unable to reap; a C++ exception terminates the program.
 *
 * FORK      A queue belongs to the process that created it. In a forked child, functions that can
 *           fail return -ECHILD. ringway_destroy() frees the child's copy and closes the
 *           descriptors that the child inherited with it. It does not wait or affect the parent,
 *           whose operations go on. Descriptors of the program stay open. A child that has closed
 *           descriptors of the queue itself, as closefrom(3) does, must not destroy it: their
 *           numbers may be those of other files. Functions that only read return the state as of
 *           the fork; system_calls of ringway_get_stats() is 0. All descriptors are close-on-exec.
 *
 * SIGNALS   A signal does not interrupt any function here, unless the queue was created with
 *           RINGWAY_INTERRUPTIBLE: then it ends the waits of ringway_reap() and
 *           ringway_reap_into(). That is for runtimes that run their own signal handlers only when
 *           C returns. The kernel may end them without a signal, too: wait again. As with
 *           select(2), a signal that arrives just before the wait begins does not end it: let the
 *           handler make a polled descriptor readable, or wait with a timeout.
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
 * Linux 4.18 or newer (io_uring needs 5.6), on 64-bit machines; tested on x86-64. ringway(7) is an
 * overview. Each function has a manual page, which has its contract, all options and the errors:
 * man 3 ringway_push.
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

/* Describes the last call on this thread that returned an error, for people to read; never NULL.
   The text is valid until the next failing call on this thread. */
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

/* Flags of struct ringway_options: see ringway_create(3). */
enum {
	RINGWAY_SINGLE_ISSUER = 1u << 0, /* only the creating thread uses the queue */
	RINGWAY_EVENTFD = 1u << 1,       /* ringway_fd() is an eventfd on every backend */
	RINGWAY_STRICT = 1u << 2,        /* anything that is refused is an error */
	RINGWAY_SQPOLL = 1u << 3,        /* a kernel thread picks up submissions (io_uring) */
	RINGWAY_IOPOLL = 1u << 4,        /* completions are polled for (io_uring) */
	RINGWAY_SQPOLL_CPU = 1u << 5,    /* binds that thread to the processor sqpoll_cpu */
	RINGWAY_NO_CLOSE_WAIT = 1u << 6, /* ringway_destroy() does not wait */
	RINGWAY_INTERRUPTIBLE = 1u << 7  /* signals end waits: see SIGNALS */
};

/*
 * Options of a queue. ringway_options_init() sets `size` and everything else to 0, which means the
 * default for each field.
 */
struct ringway_options {
	uint32_t size;               /* sizeof(struct ringway_options) */
	uint32_t flags;              /* RINGWAY_SINGLE_ISSUER | ... */
	uint32_t backend;            /* enum ringway_backend; any but BEST must not be refused */
	uint32_t entries;            /* operations in one system call, 1 to 32768; 64 */
	uint32_t completion_entries; /* completions in the kernel; 4 * entries */
	uint32_t in_flight;          /* the most operations in flight, up to 16777215; 1024 */
	uint32_t threads;            /* the most threads, started as needed; 64 */
	uint32_t sync_threads;       /* the most threads for syncs; 4 */
	uint32_t sqpoll_idle_ms;     /* how long the thread of SQPOLL polls without work; 1000 */
	uint32_t sqpoll_cpu;         /* with RINGWAY_SQPOLL_CPU: a processor number; 0 */
	uint32_t io_wq_bounded;      /* the most io_uring workers for files; the kernel's default */
	uint32_t io_wq_unbounded;    /* and for everything else; 24 */
	uint32_t close_wait_ms;      /* the longest wait of ringway_destroy(); 5000 */
	int32_t iopoll_fd;           /* with RINGWAY_IOPOLL: a file for its trial read */
	struct ringway_queue *attach; /* shares the kernel threads of this queue; NULL: of none */
	const char *faults;          /* for tests: faults to inject; NULL: none */
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
 * Creates a queue and stores it in *queue, which is NULL on errors. `options` may be NULL for the
 * defaults. Blocks for a few system calls, including a trial read.
 */
int ringway_create(const struct ringway_options *options, struct ringway_queue **queue);

/*
 * Destroys a queue. Sets *queue to NULL, cancels what is in flight, waits at most close_wait_ms,
 * and then calls the callbacks, which use the queue that they are passed. Returns the number of
 * operations that did not end, usually 0: the kernel still uses their buffers and descriptors, for
 * the life of the process.
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
	RINGWAY_SOCKET = 1u << 3,
	/* A READ, WRITE, READV or WRITEV leaves no pages of its own in the page cache
	   (RWF_DONTCACHE: kernel 6.14, ext4 and XFS). Where that is refused it is made without:
	   see ringway_explain_dont_cache(). Direct I/O is not changed. */
	RINGWAY_DONT_CACHE = 1u << 4,
	/* A WRITE is untorn (RWF_ATOMIC: kernel 6.11): a crash leaves all of it or nothing. The
	   push fails, with a reason, unless the file has such writes and the offset, the length
	   and the buffer suit: see ringway_get_direct_io(). It is never made as a plain write or
	   in parts. The result -EIO may mean that the kernel made a part: read it back. */
	RINGWAY_UNTORN = 1u << 5
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
	uint64_t timeout_ns; /* cancelled with -ETIMEDOUT so long after its submission; 0: never */
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

/* Adds an operation to the queue, without submitting it. Returns its id, which is more than 0. */
int64_t ringway_push(struct ringway_queue *queue, const struct ringway_operation *operation);

/*
 * Adds a chain of `count` operations, each of which begins after the one before it has succeeded.
 * Returns the id of the first one, and stores those of all in `ids` unless that is NULL.
 */
int64_t ringway_push_chain(struct ringway_queue *queue, const struct ringway_operation *operations,
                           size_t count, int64_t *ids);

/* Submits all pushed operations. Returns how many completions are ready; does not wait. */
int ringway_submit(struct ringway_queue *queue);

/* A timeout_ns of ringway_reap(): no timeout. */
#define RINGWAY_FOREVER INT64_C(-1)

/*
 * Submits all pushed operations, waits until `min` completions are ready or `timeout_ns` has passed
 * (0: does not wait), and calls the callbacks of all that are ready. Returns their number.
 */
int ringway_reap(struct ringway_queue *queue, unsigned min, int64_t timeout_ns);

/* Like ringway_reap(), but stores at most `capacity` completions instead of calling callbacks. */
int ringway_reap_into(struct ringway_queue *queue, struct ringway_completion *completions,
                      size_t capacity, unsigned min, int64_t timeout_ns);

/*
 * Requests that an operation be cancelled, with the next submit or reap. Its completion still
 * arrives: with -ECANCELED, or with its result if it could not be stopped.
 */
int ringway_cancel(struct ringway_queue *queue, int64_t id);

/* Requests it for all operations in flight, and returns for how many. */
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
 * Completions of other operations stay for the next reap. Returns the number of ranges that failed.
 */
int ringway_multi_read(struct ringway_queue *queue, struct ringway_range *ranges, size_t count);

/*
 * Brings all ranges into the page cache and waits until they are there: a program that reads them
 * through a mapping then does not wait for the device. What is missing is read, with many reads in
 * flight; mappings are not touched. `buf` is not used. `result` is the number of bytes that are
 * there, less than `length` only at the end that the file had when the call began; or -errno.
 * Completions of other operations stay for the next reap. Returns the number of ranges that failed.
 */
int ringway_warm(struct ringway_queue *queue, struct ringway_range *ranges, size_t count);


/* ---- Reading what is cached ----------------------------------------------------------------- */

/* What is known of an open file, for ringway_read_now(). */
struct ringway_file;

/*
 * Makes one. Do not use it after you have closed the descriptor. It makes no system call, and its
 * functions may be called on any thread, with or without a queue.
 */
int ringway_file_create(int fd, struct ringway_file **file);

/* Frees it, and does not close the descriptor. Does nothing if it is NULL. */
void ringway_file_destroy(struct ringway_file *file);

/*
 * Reads from the page cache only, without waiting for a device or a file system's journal. Returns
 * the number of bytes, which may be less than is cached; 0 only at the end of the file, or if
 * `length` is 0; or -EAGAIN: push a read, since nothing is cached, or the file cannot be read this
 * way or at all. At RINGWAY_CURRENT_POSITION it waits while another thread or process that has the
 * same open file reads or writes there: try that only if nobody else has it.
 */
int64_t ringway_read_now(const struct ringway_file *file, void *buf, size_t length,
                         uint64_t offset);

/*
 * Call it after each write of the file. The next read may then have to change the access time,
 * which can wait for the file system's journal, and ringway_read_now() returns -EAGAIN.
 */
void ringway_note_written(const struct ringway_file *file);


/* ---- Event loops ---------------------------------------------------------------------------- */

/*
 * Returns a descriptor that is readable when completions may be ready: then call
 * ringway_reap(queue, 0, 0) until it returns 0. It belongs to the queue: do not read or close it.
 */
int ringway_fd(struct ringway_queue *queue);


/* ---- Registered memory and files ------------------------------------------------------------ */

/*
 * Registers memory with the ring, for transfers within one element of `iov`. It must stay mapped
 * until the queue is destroyed.
 */
int ringway_register_buffers(struct ringway_queue *queue, const struct iovec *iov, size_t count);

/* Registers a descriptor with the ring. Unregister it before you close it. */
int ringway_register_file(struct ringway_queue *queue, int fd);

/* Ends the registration of a descriptor on which nothing is in flight. */
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
	uint64_t to_threads;   /* operations run on threads: the backend does not support them, or
	                          submitting them would have waited */
	uint64_t late;         /* stale completions, of operations that had ended */
};

/* Fills `size` bytes of *stats: pass sizeof(struct ringway_stats). */
void ringway_get_stats(const struct ringway_queue *queue, struct ringway_stats *stats, size_t size);

/*
 * Describes the queue: its backend and what forced it, if it is not the best available one; what
 * is available; and what was refused, with reason and fix.
 * Writes at most `size` bytes and returns the length of the whole text, as snprintf(3) does.
 */
size_t ringway_explain(const struct ringway_queue *queue, char *text, size_t size);

/*
 * Explains why transfers of an open file are made without RINGWAY_DONT_CACHE, with reason and fix,
 * as ringway_explain() does. Returns the length of the text; 0 if the kernel has not refused it so
 * far. A queue remembers that of a descriptor while it is registered (ringway_register_file()) or
 * an operation on it is in flight, and then tries again.
 */
size_t ringway_explain_dont_cache(const struct ringway_queue *queue, int fd, char *text,
                                  size_t size);

/* Returns the backend of a queue. */
enum ringway_backend ringway_get_backend(const struct ringway_queue *queue);

/* Returns the name of a backend, "uring", "kaio", "threads" or "null"; "?" if there is none. */
const char *ringway_backend_name(unsigned backend);

/* Returns the name of an opcode, such as "read"; "?" if there is none. */
const char *ringway_opcode_name(unsigned opcode);

/* Returns the number of operations pushed whose completion has not been delivered. */
size_t ringway_in_flight(const struct ringway_queue *queue);

/* Returns how many more operations can be pushed now. In a callback, one slot is kept for each
   callback of the same ringway_reap() that follows. */
size_t ringway_free_slots(const struct ringway_queue *queue);

/*
 * The alignment that direct I/O on a file requires, and the sizes of its untorn writes, in bytes.
 * With RINGWAY_UNTORN a length is a power of two from untorn_min to untorn_max, and an offset a
 * multiple of the length.
 */
struct ringway_direct_io {
	uint32_t mem_align;           /* of buffer addresses */
	uint32_t offset_align;        /* of offsets and lengths */
	uint32_t max_request;         /* the device's largest: longer ones are split; 0: unknown */
	uint32_t untorn_min;          /* the shortest untorn write; 0: there are none */
	uint32_t untorn_max;          /* the longest one; 0: there are none */
	uint32_t untorn_max_opt;      /* the longest one that the device makes itself; 0: unknown */
	uint32_t untorn_max_segments; /* the most buffers of one; 0: there are none */
};

/* Fills `size` bytes of *direct for an open file: pass sizeof(struct ringway_direct_io). */
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

/* preadv(2), as ringway_prep_read(), into at most 1024 buffers. Result: bytes in total. */
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

/* pwritev(2), as ringway_prep_write(), of at most 1024 buffers. Result: bytes in total. */
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

/* fsync(2). Does not cover writes in flight. An error concerns every sync in flight. Result: 0. */
static inline struct ringway_operation
ringway_prep_fsync(int fd, ringway_callback callback, void *user_data)
{
	return ringway_prep(RINGWAY_OP_FSYNC, fd, callback, user_data);
}

/* fdatasync(2), as ringway_prep_fsync(). Result: 0. */
static inline struct ringway_operation
ringway_prep_fdatasync(int fd, ringway_callback callback, void *user_data)
{
	struct ringway_operation operation =
		ringway_prep(RINGWAY_OP_FSYNC, fd, callback, user_data);

	operation.op_flags = RINGWAY_FSYNC_DATASYNC;
	return operation;
}

/* sync_file_range(2) with SYNC_FILE_RANGE_*. Does not make data durable. Result: 0. */
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
 * openat2(2) of `path`, relative to `dir_fd`, with O_* flags and O_CLOEXEC. Set operation.resolve
 * for RESOLVE_*. Result: a descriptor, which you close.
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

/* close(2). Nothing else on it may be in flight, except earlier in the same chain. Result: 0. */
static inline struct ringway_operation
ringway_prep_close(int fd, ringway_callback callback, void *user_data)
{
	return ringway_prep(RINGWAY_OP_CLOSE, fd, callback, user_data);
}

struct statx; /* <sys/stat.h>, with _GNU_SOURCE */

/* statx(2), with AT_* flags and a STATX_* mask, into *statx_buf. Result: 0. */
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
