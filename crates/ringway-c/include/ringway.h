/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * ringway.h: one queue for asynchronous file I/O over io_uring, Linux AIO or threads.
 *
 *	struct ringway_queue *queue;
 *	int error = ringway_create(NULL, &queue);              (the best backend that this kernel and container grant)
 *
 *	struct ringway_operation read = ringway_read(fd, buffer, 4096, 0, done, &job);
 *	ringway_push(queue, &read);                            (as many as there is room for; nothing blocks)
 *	ringway_reap(queue, 1, RINGWAY_FOREVER);               (submits them, waits for one, calls done(queue, completion))
 *
 *	ringway_destroy(&queue);
 *
 * RESULTS   Every function that can fail gives a number: 0 or more, or minus an errno. errno itself tells nothing.
 *           ringway_last_error() has the same in words, with the mend where there is one. An operation's own result comes with
 *           its completion, in the same way: 0 or more, or minus an errno, the same on every backend.
 *
 * MEMORY    What a kernel may still touch must stay. Yours to keep, from ringway_push() until the completion has been handed
 *           out: the bytes of buffers, the struct statx, and the descriptor, which must stay open. Copied by ringway_push(), so
 *           yours again when it returns: the operation itself, paths, and arrays of struct iovec.
 *           A cancel does not end this: only the completion does. See ringway_destroy() for the one case where none comes, and
 *           ringway_multi_read() for -EINPROGRESS.
 *
 * THREADS   A queue has no thread and no lock of its own. It may go from one thread to another, but is used by one at a time.
 *           Any number of queues may be used at once, each by its thread. Callbacks run in ringway_reap() and ringway_destroy(), on
 *           the thread that called them. (ringway_last_error() is per thread; what takes no queue may be called from anywhere.)
 *
 * CALLBACKS A callback may push, submit, cancel, ask, and do a ringway_multi_read() on its queue; there is room for at least one push
 *           in it, since a completion's place is free before it is handed out. It may not reap or destroy its queue: that is
 *           answered with -EDEADLK. It must return: a longjmp out of one leaks and leaves the queue refusing to reap; a C++
 *           exception ends the program.
 *
 * FORK      A queue belongs to the process that made it. In a child of fork() every function that can fail answers -ECHILD for it, except
 *           ringway_destroy(), which forgets it and touches nothing of the parent's; what only asks tells of the parent's queue as it was.
 *           All descriptors are close-on-exec.
 *
 * SIGNALS   Nothing here ends early for a signal. A write to a pipe or socket that nobody reads sends SIGPIPE, as write(2) does: ignore it,
 *           and the completion says -EPIPE.
 *
 * CANCEL    No function here is a cancellation point: a thread that pthread_cancel(3) wants to end while it is in one, or in a callback,
 *           ends at its first cancellation point after the function has returned. (Asynchronous cancellation is not supported.)
 *
 * ABI       Structures that you fill in carry their size, so that a program built against this header runs with a later library of the
 *           same soname (libringway.so.0). Fill them in with the functions below, which set it. (A size smaller than any library ever had is
 *           -EINVAL; one that is larger is accepted if what this library does not know of it is 0.) ringway_completion and
 *           ringway_range do not grow within a soname.
 *
 * Linux 4.18 or newer, of which io_uring needs 5.6; x86-64 and other 64-bit machines. Each function has a manual page: man 3 ringway_push.
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

/* The version of the library that is running, as "0.1.0". */
const char *ringway_version(void);

/*
 * What went wrong in this thread's last call that gave a negative number: one or more lines, with the mend where one is known. For
 * people to read. Valid until the next call of this library that fails on this thread; "" before the first. Never NULL.
 */
const char *ringway_last_error(void);


/* ---- The queue ---------------------------------------------------------------------------------------------------------- */

/* A queue: push operations, submit them, reap their completions. Made by ringway_create(), ended by ringway_destroy(). */
struct ringway_queue;

/* How operations reach the kernel. */
enum ringway_backend {
	RINGWAY_BACKEND_BEST = 0,    /* the first of these that passes a real read */
	RINGWAY_BACKEND_URING = 1,   /* io_uring */
	RINGWAY_BACKEND_KAIO = 2,    /* Linux AIO: direct I/O and syncs; the rest goes to threads */
	RINGWAY_BACKEND_THREADS = 3, /* threads that make blocking calls */
	RINGWAY_BACKEND_NULL = 4     /* nothing is done and all of it succeeds: what the queue itself costs. In a library built for
	                                tests only; see ringway_create(3) */
};

/* Bits of ringway_options.flags. */
enum {
	/* Only the thread that creates the queue will use it: the kernel may then do its part there (6.1). Others get -EEXIST, but may
	   destroy it. */
	RINGWAY_SINGLE_ISSUER = 1u << 0,
	/* ringway_fd() is an eventfd on every backend, rather than the ring itself on io_uring. */
	RINGWAY_EVENTFD = 1u << 1,
	/* Anything refused makes ringway_create() fail, instead of being done without. */
	RINGWAY_STRICT = 1u << 2,
	/* A kernel thread takes what is submitted, so that submitting needs no system call; it keeps a processor busy. io_uring only. */
	RINGWAY_SQPOLL = 1u << 3,
	/* Completions are polled for instead of waited for (IORING_SETUP_IOPOLL), if a real read of iopoll_fd shows that they can be.
	   Everything but direct transfers then goes to threads, waiting spins, and there is no descriptor to poll. */
	RINGWAY_IOPOLL = 1u << 4,
	/* With RINGWAY_SQPOLL: its kernel thread is bound to the processor sqpoll_cpu. */
	RINGWAY_SQPOLL_CPU = 1u << 5
};

/* What a queue is to be. Made by ringway_options(), which sets the defaults: all but `size` are 0. Change what you like. */
struct ringway_options {
	uint32_t size;                /* sizeof(struct ringway_options) */
	uint32_t flags;               /* RINGWAY_SINGLE_ISSUER | ... */
	uint32_t backend;             /* enum ringway_backend; any but BEST is that one or an error */
	uint32_t entries;             /* the most operations that one system call submits, 1 to 32768; 64. They cost locked memory
	                                 (RLIMIT_MEMLOCK), about 200 bytes each */
	uint32_t completion_entries;  /* completions that the kernel keeps without extra cost; 4 * entries */
	uint32_t in_flight;           /* the most operations in flight, up to 16777215; 1024 */
	uint32_t threads;             /* the most threads, started as they are needed, on every backend; 64 */
	uint32_t sync_threads;        /* the most threads for syncs, which have a lane of their own; 4 */
	uint32_t sqpoll_idle_ms;      /* with RINGWAY_SQPOLL: how long it polls without work before it sleeps; 1000 */
	uint32_t sqpoll_cpu;          /* with RINGWAY_SQPOLL_CPU: a processor, counted from 0 */
	uint32_t io_wq_files;         /* the most io_uring workers, kernel threads, for files (5.15); the kernel's own limit */
	uint32_t io_wq_rest;          /* ... and for everything else */
	uint32_t close_wait_ms;       /* the longest that ringway_destroy() waits for what cannot be cancelled; 5000 */
	int32_t iopoll_fd;            /* with RINGWAY_IOPOLL, which needs it: a file open for direct I/O on a device with poll queues;
	                                 0 (and less) is none */
	struct ringway_queue *attach; /* shares this queue's kernel threads, SQPOLL's and io_uring's workers; NULL: no other's */
	const char *faults;           /* for tests: what is to go wrong, such as "seed=7 short=500 errors=10"; NULL: nothing. In a
	                                 library built for tests only; see ringway_create(3). Not needed after it */
};

/* (Some functions have the name of a structure, as stat(2) has: in C++ say `struct ringway_options` for the type.) */

static inline struct ringway_options ringway_options(void)
{
	struct ringway_options options;

	options.size = (uint32_t)sizeof options;
	options.flags = 0;
	options.backend = RINGWAY_BACKEND_BEST;
	options.entries = 0;
	options.completion_entries = 0;
	options.in_flight = 0;
	options.threads = 0;
	options.sync_threads = 0;
	options.sqpoll_idle_ms = 0;
	options.sqpoll_cpu = 0;
	options.io_wq_files = 0;
	options.io_wq_rest = 0;
	options.close_wait_ms = 0;
	options.iopoll_fd = 0;
	options.attach = NULL;
	options.faults = NULL;
	return options;
}

/*
 * Makes a queue and puts it in *queue. `options` may be NULL. Blocks for some system calls, a real read among them.
 *
 * RINGWAY_BACKEND=uring|kaio|threads in the environment chooses the backend where the options do not. What was refused on the way
 * to the backend that it has, and why, and how to mend it, is in ringway_explain().
 *
 * 0, or, with *queue set to NULL:
 *   -EINVAL   options out of range, or a RINGWAY_BACKEND that is none
 *   -E2BIG    options of a later library, with something set that this one does not know
 *   -ECHILD   `attach` is a queue of the process that this one is a fork of
 *   -EOPNOTSUPP  `faults` or RINGWAY_BACKEND_NULL, and this library is not built for tests
 *   others    the errno with which a backend that was asked for by name was refused, or, with RINGWAY_STRICT, anything else
 */
int ringway_create(const struct ringway_options *options, struct ringway_queue **queue);

/*
 * Ends a queue and sets *queue to NULL; NULL, and a pointer to NULL, are fine. Any thread may do that when nobody uses the queue, also
 * where RINGWAY_SINGLE_ISSUER keeps others out.
 *
 * Cancels everything in flight, waits for it, at most for close_wait_ms, and calls the callbacks of all that has ended, as
 * ringway_reap() does, on the thread that calls this. A push, a ringway_multi_read() or the like from one of them is answered with
 * -ESHUTDOWN.
 *
 * When the ring cannot be asked any more, since it has failed or is another thread's by RINGWAY_SINGLE_ISSUER, it is closed
 * instead, which cancels what is in flight. An operation whose completion is lost with it has -ECANCELED for a result, whether or not it
 * took place: what was to be written must be taken for unknown.
 *
 * How many operations would not end: usually 0. The kernel still has those: they get no callback, and their buffers and
 * descriptors must be left alone for as long as the process lives. Nothing of theirs is freed here. What has had its callback is
 * yours again.
 *   -EDEADLK  called from one of its callbacks: nothing has been done
 */
int ringway_destroy(struct ringway_queue **queue);


/* ---- Operations --------------------------------------------------------------------------------------------------------- */

struct ringway_completion;

/* What is called with a completion. `done` is valid during the call. */
typedef void (*ringway_callback)(struct ringway_queue *queue, const struct ringway_completion *done);

/* Which operation. The numbers do not change. */
enum ringway_kind {
	RINGWAY_NOP = 0,
	RINGWAY_READ = 1,
	RINGWAY_WRITE = 2,
	RINGWAY_READV = 3,
	RINGWAY_WRITEV = 4,
	RINGWAY_FSYNC = 5,
	RINGWAY_SYNC_RANGE = 6,
	RINGWAY_OPEN = 7,
	RINGWAY_CLOSE = 8,
	RINGWAY_STATX = 9,
	RINGWAY_FALLOCATE = 10,
	RINGWAY_FTRUNCATE = 11,
	RINGWAY_FADVISE = 12,
	RINGWAY_RENAME = 13,
	RINGWAY_UNLINK = 14,
	RINGWAY_MKDIR = 15,
	RINGWAY_LINK = 16,
	RINGWAY_SYMLINK = 17,
	RINGWAY_POLL = 18,
	RINGWAY_TIMEOUT = 19
};

/* Bits of ringway_operation.flags. */
enum {
	/* A short read or write is continued until everything is transferred, the file ends, or an error comes, which is then the
	   result. */
	RINGWAY_EXACT = 1u << 0,
	/* A barrier: it begins when everything pushed before it has completed, and what is pushed after it, when it has. */
	RINGWAY_DRAIN = 1u << 1,
	/* In a chain: what follows begins whatever this one's result is. */
	RINGWAY_ALWAYS = 1u << 2
};

/* As an offset: the file's own position, which moves on. What has none (a pipe, a socket, a terminal) ignores the offset. */
#define RINGWAY_CURSOR UINT64_MAX

/*
 * One thing asked of the kernel. Made by the functions below, which leave flags and limit_ns 0: set those, then push it. It may be
 * pushed again as often as you like. (From another language: fill in all that its function does, and 0 elsewhere.)
 */
struct ringway_operation {
	uint32_t size;             /* sizeof(struct ringway_operation) */
	uint16_t kind;             /* enum ringway_kind */
	uint16_t flags;            /* RINGWAY_EXACT | ... */
	int32_t fd;                /* the file, or the directory that `path` is relative to (AT_FDCWD: the working directory) */
	int32_t fd2;               /* the directory of `path2` */
	uint64_t offset;           /* bytes from the beginning; RINGWAY_CURSOR */
	uint64_t length;           /* bytes; for READV and WRITEV the number of buffers; for TIMEOUT nanoseconds */
	const void *address;       /* the buffer, the iovec array, or the struct statx */
	const char *path;
	const char *path2;
	uint32_t argument;         /* O_*, AT_*, RENAME_*, FALLOC_FL_*, POSIX_FADV_*, POLL*, ...: see each function */
	uint32_t mode;             /* permissions of what is made; STATX_* */
	uint64_t resolve;          /* OPEN: RESOLVE_* of openat2(2) */
	uint64_t limit_ns;         /* cancelled when it has not completed so long after its submission, and then answers -ETIMEDOUT;
	                              0: no limit. What cannot be cancelled completes as it would have */
	ringway_callback callback; /* may be NULL */
	void *arg;                 /* your own: the completion carries it */
};

/* The answer to one operation. */
struct ringway_completion {
	int64_t id;                /* what ringway_push() gave */
	int64_t result;            /* bytes, a descriptor, readiness, or 0; or minus an errno */
	void *arg;                 /* the operation's own */
	ringway_callback callback; /* likewise */
	uint32_t kind;             /* enum ringway_kind */
	uint32_t reserved;         /* 0 */
};

/*
 * Takes an operation in. Nothing is submitted yet and nothing blocks.
 *
 * Its id, more than 0 and never that of another operation in flight; or, with nothing taken:
 *   -EAGAIN    as many are in flight as the options allow: reap, then push again
 *   -EINVAL    it cannot be meant as it is: an unknown kind or flag, no buffer for a length that is not 0, no path, a transfer at an
 *              offset beyond INT64_MAX or longer than SSIZE_MAX, more than 1024 buffers (IOV_MAX)
 *   -E2BIG     it has something set that this library does not know
 *   -EBUSY     a close of a descriptor that is registered
 *   -ESHUTDOWN the queue is being destroyed, or has failed: see ringway_multi_read()
 *   -ECHILD    this process is a fork of the one that made the queue
 * Whatever the kernel has to say, of the descriptor for instance, comes with the completion.
 */
int64_t ringway_push(struct ringway_queue *queue, const struct ringway_operation *operation);

/*
 * Takes in `count` operations of which each begins when the one before it has succeeded (write, then sync, then rename). When one
 * fails, or transfers less than it was to, what follows answers -ECANCELED; behind RINGWAY_ALWAYS it begins all the same.
 * Each has a completion of its own. The array is yours again.
 *
 * The first one's id; errors as for ringway_push(), for all of them together: none is taken. -EINVAL for a count of 0 and for one over
 * the options' in_flight, for which there never is room.
 */
int64_t ringway_push_chain(struct ringway_queue *queue, const struct ringway_operation *operations, size_t count);

/*
 * Submits what was pushed: one system call for any number of operations on io_uring and KAIO. Does not wait. How many completions are
 * there to be reaped; or:
 *   -EEXIST    another thread than the single issuer
 *   -ECHILD    a forked child
 *   others     io_uring_enter(2) or io_submit(2) failed: a failed ring, or (-ENOMEM) no memory now
 * Nothing is lost by an error. From a ring that has failed ringway_destroy() gets the buffers back.
 */
int ringway_submit(struct ringway_queue *queue);

/* As a time: as long as it takes. */
#define RINGWAY_FOREVER INT64_C(-1)

/*
 * Submits what was pushed, waits until at least `min` completions are there, or for `timeout_ns` nanoseconds (RINGWAY_FOREVER; 0: does
 * not wait), whichever is first, and calls the callbacks of all that are there. A completion without a callback is counted and
 * dropped; a descriptor that it brings is closed. Completions come in no particular order but that of chains and barriers. A signal does not end the wait.
 * It never waits for more than are in flight: with nothing in flight it gives 0 at once.
 *
 * How many completions there were; or:
 *   -EDEADLK   called from a callback of this queue
 *   others     as for ringway_submit()
 */
int ringway_reap(struct ringway_queue *queue, unsigned min, int64_t timeout_ns);

/*
 * As ringway_reap(), but calls no callback: writes up to `capacity` completions to the array `done` instead. What does not fit stays
 * for the next call. For languages that cannot be called back. Never waits for more than `capacity`; -EINVAL if that is 0.
 */
int ringway_reap_into(struct ringway_queue *queue, struct ringway_completion *done, size_t capacity, unsigned min,
                      int64_t timeout_ns);

/*
 * Asks that an operation be cancelled. 0, and then its completion comes all the same: with -ECANCELED, or, when it could not be
 * stopped any more, with its result. -ENOENT: no such operation, or its result is known already. Does not block; takes
 * effect with the next submit or reap.
 */
int ringway_cancel(struct ringway_queue *queue, int64_t id);

/* Asks that everything in flight be cancelled; how many operations that were. */
int ringway_cancel_all(struct ringway_queue *queue);


/* ---- Reading many ranges at once ---------------------------------------------------------------------------------------- */

/* Bits of ringway_range.flags: what is known of the descriptor. With neither, the kernel is asked. */
enum {
	RINGWAY_RANGE_DIRECT = 1u << 0,  /* open for direct I/O (O_DIRECT) */
	RINGWAY_RANGE_BUFFERED = 1u << 1 /* not: what the page cache has is copied without being queued */
};

/* One range of a file to be read. */
struct ringway_range {
	int32_t fd;
	uint32_t flags;  /* RINGWAY_RANGE_* */
	uint64_t offset; /* bytes from the beginning */
	uint64_t length; /* bytes */
	void *buffer;    /* of at least that length; for 0 bytes it may be NULL */
	int64_t result;  /* out: bytes, fewer than asked for only where the file ends; or minus an errno */
};

/*
 * Reads all ranges, as many at once as there is room for, and waits for all of them: one system call mostly, or one for each
 * `entries` of the options. Short reads are continued. Completions of other operations on this queue stay for the next reap; their
 * callbacks are not called, so this may be used inside one.
 *
 * How many ranges failed (0: none); each has its own result. Ranges of any number of files, in any order, may overlap. Or, with
 * nothing read and no result set:
 *   -EINVAL    a range without a buffer, longer than SSIZE_MAX, at an offset beyond INT64_MAX, or with unknown flags
 *   -EAGAIN    the queue is full of other operations
 *   -ESHUTDOWN the queue is being destroyed, or has failed
 *   -EEXIST, -ECHILD as for ringway_submit()
 * Or, with all results set:
 *   -EIO       the ring has failed, and the queue with it: it takes no more operations, those in flight have been cancelled, and only
 *              reaping and destroying it are left; the descriptor of ringway_fd() is closed. What has been read has its result; the rest -ECANCELED, or, after
 *              close_wait_ms, -EINPROGRESS: that range the kernel still has, and its buffer and descriptor must be left
 *              alone for as long as the process lives.
 */
int ringway_multi_read(struct ringway_queue *queue, struct ringway_range *ranges, size_t count);


/* ---- Other loops -------------------------------------------------------------------------------------------------------- */

/*
 * The descriptor that is readable (POLLIN) when there may be something to reap, for poll(2), epoll(7) and their like. It belongs to
 * the queue. From the first call on it is kept right: never is something there and the descriptor not readable. The contrary happens.
 * So: when it is readable, ringway_reap(queue, 0, 0) until that gives 0, then wait for it again; and ringway_submit() what was pushed
 * before you wait. With io_uring, poll(2) and epoll_wait(2) may answer EINTR without a signal: wait again.
 *
 *   -EOPNOTSUPP with RINGWAY_IOPOLL; -EMFILE and -ENFILE: no descriptor is left; -ECHILD
 */
int ringway_fd(struct ringway_queue *queue);


/* ---- Registered memory and files ---------------------------------------------------------------------------------------- */

/*
 * Registers memory as fixed buffers: reads into it and writes from it then spare the kernel the looking up of its pages, without being
 * asked to. Each must lie in one element of `memory`. It must stay mapped until the queue is destroyed, and for ever if
 * ringway_destroy() then gives more than 0.
 *
 * 0; or, with nothing registered, and everything working as before:
 *   -EOPNOTSUPP no ring; -ENOMEM more than RLIMIT_MEMLOCK allows; -ENOSPC more than 64 registrations
 *   -EINVAL     an element without memory or longer than 1 GiB; -ECHILD
 */
int ringway_register_buffers(struct ringway_queue *queue, const struct iovec *memory, size_t count);

/*
 * Registers a descriptor: operations on it then spare the kernel looking it up, without being asked to. It must be unregistered before it is
 * closed. 0, also if it is registered already; or -EOPNOTSUPP, -ENOSPC (64 at most), -EBADF, -ECHILD.
 */
int ringway_register_file(struct ringway_queue *queue, int fd);

/* Ends a registration. 0; -ENOENT: there is none; -EBUSY: operations on it are in flight; -ECHILD. */
int ringway_unregister_file(struct ringway_queue *queue, int fd);


/* ---- Asking ------------------------------------------------------------------------------------------------------------- */

/* What a queue has done so far. Operations: pushed = delivered + orphaned + in_flight, at every moment. */
struct ringway_stats {
	uint64_t pushed;
	uint64_t delivered;
	uint64_t orphaned;     /* given up by the library itself; 0 */
	uint64_t in_flight;
	uint64_t system_calls; /* made for I/O, by the threads too */
	uint64_t retries;      /* answers that were not shown but led to another try: EINTR, EAGAIN, an ECANCELED nobody asked for */
	uint64_t continued;    /* short transfers that were continued */
	uint64_t to_threads;   /* operations that went to threads because the backend could not carry them */
	uint64_t late;         /* answers for operations that were over */
};

/* Fills in `size` bytes of *stats: sizeof(struct ringway_stats), of which a library that knows less leaves the rest 0. */
void ringway_stats(const struct ringway_queue *queue, struct ringway_stats *stats, size_t size);

/*
 * Writes which backend the queue has, what that was granted, and what was refused, with the reason and the mend: lines of text,
 * NUL-terminated, cut off at `size` bytes. The length of all of it without the NUL, as snprintf(3) has it.
 */
size_t ringway_explain(const struct ringway_queue *queue, char *text, size_t size);

/* Its backend; and the name of one: "uring", "kaio", "threads", "null", or "?". */
enum ringway_backend ringway_backend(const struct ringway_queue *queue);
const char *ringway_backend_name(unsigned backend);

/* Operations pushed whose completions have not been handed out; and how many more there is room for. */
size_t ringway_in_flight(const struct ringway_queue *queue);
size_t ringway_room(const struct ringway_queue *queue);

/* The name of an operation, such as "read"; "?" for a number that is none. */
const char *ringway_kind_name(unsigned kind);

/* What direct I/O on a file must be aligned to; all in bytes. */
struct ringway_direct_io {
	uint32_t memory;          /* addresses: a multiple of this */
	uint32_t offset;          /* offsets and lengths: a multiple of this */
	uint32_t largest_request; /* what the device takes as one; longer ones are cut. 0: not known */
};

/*
 * Fills in `size` bytes of *direct for an open file: statx(2) where the kernel tells (6.1), else the device's block size. Blocks for a
 * system call or a few files of sysfs. 0; -EBADF.
 */
int ringway_direct_io(int fd, struct ringway_direct_io *direct, size_t size);


/* ---- Making operations -------------------------------------------------------------------------------------------------- */
/* Nothing happens before the push. Results and errors are those of the system call that is named. */

static inline struct ringway_operation ringway_make(enum ringway_kind kind, int fd, ringway_callback callback, void *arg)
{
	struct ringway_operation operation;

	operation.size = (uint32_t)sizeof operation;
	operation.kind = (uint16_t)kind;
	operation.flags = 0;
	operation.fd = fd;
	operation.fd2 = 0;
	operation.offset = 0;
	operation.length = 0;
	operation.address = NULL;
	operation.path = NULL;
	operation.path2 = NULL;
	operation.argument = 0;
	operation.mode = 0;
	operation.resolve = 0;
	operation.limit_ns = 0;
	operation.callback = callback;
	operation.arg = arg;
	return operation;
}

/* Does nothing. Result: 0. */
static inline struct ringway_operation ringway_nop(ringway_callback callback, void *arg)
{
	return ringway_make(RINGWAY_NOP, -1, callback, arg);
}

/* pread(2), read(2). Result: bytes, 0 at the end of the file. */
static inline struct ringway_operation ringway_read(int fd, void *buffer, size_t length, uint64_t offset, ringway_callback callback,
                                                    void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_READ, fd, callback, arg);

	operation.address = buffer;
	operation.length = length;
	operation.offset = offset;
	return operation;
}

/* pwrite(2), write(2). Result: bytes. */
static inline struct ringway_operation ringway_write(int fd, const void *buffer, size_t length, uint64_t offset,
                                                     ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_WRITE, fd, callback, arg);

	operation.address = buffer;
	operation.length = length;
	operation.offset = offset;
	return operation;
}

/* preadv(2). Result: bytes over all buffers. At most 1024 buffers (IOV_MAX). */
static inline struct ringway_operation ringway_readv(int fd, const struct iovec *buffers, size_t count, uint64_t offset,
                                                     ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_READV, fd, callback, arg);

	operation.address = buffers;
	operation.length = count;
	operation.offset = offset;
	return operation;
}

/* pwritev(2). Result: bytes over all buffers. At most 1024 buffers (IOV_MAX). */
static inline struct ringway_operation ringway_writev(int fd, const struct iovec *buffers, size_t count, uint64_t offset,
                                                      ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_WRITEV, fd, callback, arg);

	operation.address = buffers;
	operation.length = count;
	operation.offset = offset;
	return operation;
}

/* fsync(2). Result: 0. It does not wait for writes in flight: push it behind them in a chain, or with RINGWAY_DRAIN. */
static inline struct ringway_operation ringway_fsync(int fd, ringway_callback callback, void *arg)
{
	return ringway_make(RINGWAY_FSYNC, fd, callback, arg);
}

/* fdatasync(2). Result: 0. As ringway_fsync(). */
static inline struct ringway_operation ringway_fdatasync(int fd, ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_FSYNC, fd, callback, arg);

	operation.argument = 1;
	return operation;
}

/* sync_file_range(2) with its flags, SYNC_FILE_RANGE_*. Result: 0. Not for durability: see its NOTES. */
static inline struct ringway_operation ringway_sync_range(int fd, uint64_t offset, uint64_t length, unsigned flags,
                                                          ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_SYNC_RANGE, fd, callback, arg);

	operation.offset = offset;
	operation.length = length;
	operation.argument = flags;
	return operation;
}

/*
 * openat2(2): `path` relative to `dir`, with O_* flags (O_CLOEXEC is always added) and the permissions of a file that is made. Set
 * operation.resolve for RESOLVE_*. Result: a descriptor, yours to close.
 */
static inline struct ringway_operation ringway_open(int dir, const char *path, int flags, unsigned mode, ringway_callback callback,
                                                    void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_OPEN, dir, callback, arg);

	operation.path = path;
	operation.argument = (uint32_t)flags;
	operation.mode = mode;
	return operation;
}

/* close(2). Result: 0. Nothing else may be in flight on the descriptor, but what comes before it in its chain. */
static inline struct ringway_operation ringway_close(int fd, ringway_callback callback, void *arg)
{
	return ringway_make(RINGWAY_CLOSE, fd, callback, arg);
}

struct statx; /* <sys/stat.h>, with _GNU_SOURCE */

/* statx(2), with AT_* flags and a STATX_* mask. Result: 0, and *buffer filled in, which must stay until then. */
static inline struct ringway_operation ringway_statx(int dir, const char *path, int flags, unsigned mask, struct statx *buffer,
                                                     ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_STATX, dir, callback, arg);

	operation.path = path;
	operation.argument = (uint32_t)flags;
	operation.mode = mask;
	operation.address = buffer;
	return operation;
}

/* fallocate(2), with FALLOC_FL_* or 0. Result: 0. */
static inline struct ringway_operation ringway_fallocate(int fd, int mode, uint64_t offset, uint64_t length,
                                                         ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_FALLOCATE, fd, callback, arg);

	operation.offset = offset;
	operation.length = length;
	operation.argument = (uint32_t)mode;
	return operation;
}

/* ftruncate(2). Result: 0. */
static inline struct ringway_operation ringway_ftruncate(int fd, uint64_t length, ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_FTRUNCATE, fd, callback, arg);

	operation.length = length;
	return operation;
}

/* posix_fadvise(2), with POSIX_FADV_*. Result: 0. */
static inline struct ringway_operation ringway_fadvise(int fd, uint64_t offset, uint64_t length, int advice,
                                                       ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_FADVISE, fd, callback, arg);

	operation.offset = offset;
	operation.length = length;
	operation.argument = (uint32_t)advice;
	return operation;
}

/* renameat2(2), with RENAME_* or 0. Result: 0. */
static inline struct ringway_operation ringway_rename(int dir, const char *path, int new_dir, const char *new_path, unsigned flags,
                                                      ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_RENAME, dir, callback, arg);

	operation.path = path;
	operation.fd2 = new_dir;
	operation.path2 = new_path;
	operation.argument = flags;
	return operation;
}

/* unlinkat(2), with AT_REMOVEDIR or 0. Result: 0. */
static inline struct ringway_operation ringway_unlink(int dir, const char *path, int flags, ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_UNLINK, dir, callback, arg);

	operation.path = path;
	operation.argument = (uint32_t)flags;
	return operation;
}

/* mkdirat(2). Result: 0. */
static inline struct ringway_operation ringway_mkdir(int dir, const char *path, unsigned mode, ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_MKDIR, dir, callback, arg);

	operation.path = path;
	operation.mode = mode;
	return operation;
}

/* linkat(2), with AT_SYMLINK_FOLLOW or 0. Result: 0. */
static inline struct ringway_operation ringway_link(int dir, const char *path, int new_dir, const char *new_path, int flags,
                                                    ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_LINK, dir, callback, arg);

	operation.path = path;
	operation.fd2 = new_dir;
	operation.path2 = new_path;
	operation.argument = (uint32_t)flags;
	return operation;
}

/* symlinkat(2): `path`, relative to `dir`, becomes a link to `target`. Result: 0. */
static inline struct ringway_operation ringway_symlink(const char *target, int dir, const char *path, ringway_callback callback,
                                                       void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_SYMLINK, dir, callback, arg);

	operation.path = path;
	operation.path2 = target;
	return operation;
}

/* poll(2) for POLLIN, POLLOUT ...: waits until the descriptor is ready, once. Result: what it is ready for. */
static inline struct ringway_operation ringway_poll(int fd, unsigned events, ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_POLL, fd, callback, arg);

	operation.argument = events;
	return operation;
}

/* Completes so many nanoseconds after its submission. Result: 0. */
static inline struct ringway_operation ringway_timeout(uint64_t nanoseconds, ringway_callback callback, void *arg)
{
	struct ringway_operation operation = ringway_make(RINGWAY_TIMEOUT, -1, callback, arg);

	operation.length = nanoseconds;
	return operation;
}

#ifdef __cplusplus
}
#endif

#endif /* RINGWAY_H */
