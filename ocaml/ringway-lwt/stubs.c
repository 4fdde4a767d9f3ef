/* The stubs of Clock, Dispatcher, Descriptor and Handle. */
#define _GNU_SOURCE
#define CAML_NAME_SPACE
#include <caml/mlvalues.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

intnat ringway_lwt_now(value unit)
{
	struct timespec now;

	(void)unit;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (intnat)now.tv_sec * 1000000000 + now.tv_nsec;
}

value ringway_lwt_now_byte(value unit)
{
	return Val_long(ringway_lwt_now(unit));
}

/* Counts the forks between the process that loaded the library and this one. */
static atomic_long generation;

static void count_fork(void)
{
	atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

/* Counts them also in the parent. */
static atomic_long forks;

static void count_before_fork(void)
{
	atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(count_before_fork, NULL, count_fork);
}

intnat ringway_lwt_forks(value unit)
{
	(void)unit;
	return (intnat)atomic_load_explicit(&forks, memory_order_relaxed);
}

value ringway_lwt_forks_byte(value unit)
{
	return Val_long(ringway_lwt_forks(unit));
}

intnat ringway_lwt_fork_generation(value unit)
{
	(void)unit;
	return (intnat)atomic_load_explicit(&generation, memory_order_relaxed);
}

value ringway_lwt_fork_generation_byte(value unit)
{
	return Val_long(ringway_lwt_fork_generation(unit));
}

/* Numbers threads from 1. Unlike that of pthread_self(), a number is not used again. */
intnat ringway_lwt_this_thread(value unit)
{
	static atomic_long threads;
	static _Thread_local long number;

	(void)unit;
	if (number == 0)
		number = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
	return (intnat)number;
}

value ringway_lwt_this_thread_byte(value unit)
{
	return Val_long(ringway_lwt_this_thread(unit));
}

/* What file systems of this machine report that they know of a file. Those that ask a server, or a
   program, report none of it. */
#define LOCAL (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND | STATX_ATTR_NODUMP)

/* The mode of an open file, -1 for an error; and whether it is on a file system of this machine. */
static int mode_of(int fd, int *local)
{
	struct statx known;
	struct stat all;

	*local = 0;
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &known) == 0) {
		*local = (known.stx_attributes_mask & LOCAL) == LOCAL;
		return known.stx_mode;
	}
	/* A filter of system calls refuses statx(2). */
	return fstat(fd, &all) == 0 ? (int)all.st_mode : -1;
}

/*
 * What a descriptor is: 2 for a regular file, a directory, a block device or a symbolic link, 1 for
 * one on a file system that may have to ask a server for the size of a file before it reads from
 * the page cache, 0 for anything else, -1 for an error.
 *
 * All that is known without asking a server, so this does not wait.
 */
value ringway_lwt_kind(value fd)
{
	int local;
	int mode = mode_of(Int_val(fd), &local);

	if (mode < 0)
		return Val_int(-1);
	if (S_ISREG(mode) || S_ISDIR(mode) || S_ISBLK(mode) || S_ISLNK(mode))
		return Val_int(1 + local);
	return Val_int(0);
}

/* Is the file open for direct I/O? */
value ringway_lwt_is_direct(value fd)
{
	int flags = fcntl(Int_val(fd), F_GETFL);

	return Val_bool(flags >= 0 && (flags & O_DIRECT) != 0);
}

/*
 * Does an open file have a position?
 *
 * A regular file, a directory or a block device is asked with a read of nothing at an offset.
 * Unlike lseek(2), it does not wait for whoever reads or writes at the position, or discards blocks
 * of the device: it ends before, with EBADF if the descriptor is open for writing only, or for
 * nothing.
 *
 * Some character devices without a position, such as /dev/kmsg, accept that read. The kernel has no
 * lock for the position of anything else than regular files and directories, so lseek(2) does not
 * wait there.
 */
value ringway_lwt_has_position(value fd)
{
	int flags, local;
	int mode = mode_of(Int_val(fd), &local);

	if (!S_ISREG(mode) && !S_ISDIR(mode) && !S_ISBLK(mode))
		return Val_bool(lseek(Int_val(fd), 0, SEEK_CUR) >= 0 || errno == EOVERFLOW);
	if (preadv(Int_val(fd), NULL, 0, 0) >= 0)
		return Val_true;
	if (errno != EBADF)
		return Val_bool(errno != ESPIPE);
	flags = fcntl(Int_val(fd), F_GETFL);
	return Val_bool(flags >= 0 && (flags & O_PATH) == 0);
}
