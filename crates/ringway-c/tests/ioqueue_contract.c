/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Tests that every function of ioqueue.h does what the header documents, in every situation, on
 * each backend and for both libraries. ioqueue_bugs.c tests the bugs of the original.
 */
#include "ioqueue_check.h"

static void depths(void)
{
	unsigned depth;

	for (depth = 1; depth <= 4096; depth *= 2) {
		begin(depth);
		ioqueue_destroy();
	}
}

static void depths_out_of_range(void)
{
	struct file file = make_file();
	void *buf = check_aligned(BLOCK);

	CHECK_FAILS(EINVAL, ioqueue_init(0));
	CHECK_FAILS(EINVAL, ioqueue_init(UINT_MAX));
	CHECK_FAILS(EINVAL, ioqueue_init((unsigned)INT_MAX + 1));
	CHECK_FAILS(ENOMEM, ioqueue_init(INT_MAX));
	CHECK_FAILS(ENOMEM, ioqueue_init(16777216));
	ioqueue_destroy();

	/* A second queue is refused, and the first one still works. */
	begin(1);
	CHECK_FAILS(EINVAL, ioqueue_init(1));
	CHECK_FAILS(EINVAL, ioqueue_init(32));
	NEED(once(0, file.fd, buf, BLOCK, 0).res == BLOCK);
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

/* All functions fail without a queue, before the first one and after it has been destroyed. */
static void without_a_queue(void)
{
	char buf[8];
	int round;

	for (round = 0; round < 2; round++) {
		ioqueue_destroy();
		NEED(ioqueue_backend() == NULL);
		CHECK_FAILS(EINVAL, ioqueue_reap(0));
		CHECK_FAILS(EINVAL, ioqueue_reap(1));
		CHECK_FAILS(EINVAL, ioqueue_pread(0, buf, sizeof buf, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, ioqueue_pwrite(0, buf, sizeof buf, 0, job_done, NULL));
#ifdef IOQUEUE_THREADS
		CHECK_FAILS(ENOTSUP, ioqueue_eventfd());
#else
		CHECK_FAILS(EINVAL, ioqueue_eventfd());
#endif
		CHECK_FAILS(EINVAL, ioqueue_init(0));
		CHECK_FAILS(EINVAL, ioqueue_init((unsigned)INT_MAX + 1));
		CHECK_FAILS(ENOMEM, ioqueue_init(16777216));
		begin(2);
		CHECK_FAILS(EINVAL, ioqueue_init(2));
	}
	ioqueue_destroy();
}

static void an_invalid_backend(void)
{
	int fds = check_descriptors();

	setenv("RINGWAY_BACKEND", "unknown", 1);
#ifdef IOQUEUE_THREADS
	NEED(ioqueue_init(8) == 0); /* RINGWAY_BACKEND is ignored. */
	ioqueue_destroy();
#else
	CHECK_FAILS(EINVAL, ioqueue_init(8));
	NEED(ioqueue_backend() == NULL);
	ioqueue_destroy();
#endif
	NEED(check_descriptors() == fds);
}

static void reads(void)
{
	struct file file = make_file();
	size_t len = (size_t)file.align;
	char *buf = check_aligned(2 * BLOCK);
	struct job first = { 0, 0, 0, NULL, 0 }, second = first;

	begin(32);
	NEED(ioqueue_pread(file.fd, buf, len, 0, job_done, &first) == 0);
	NEED(ioqueue_pread(file.fd, buf + BLOCK, len, file.align, job_done, &second) == 0);
	NEED(ioqueue_reap(2) == 2);
	NEED(first.calls == 1 && first.res == file.align && first.buf == buf &&
	     check_filled(buf, 0, len));
	NEED(second.calls == 1 && second.res == file.align && second.buf == buf + BLOCK &&
	     check_filled(buf + BLOCK, len, len));
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

static void writes(void)
{
	struct file file = make_file();
	uint64_t *buf = check_aligned(BLOCK), *back = check_aligned(BLOCK);

	begin(32);
	check_fill(buf, 1 << 30, BLOCK);
	NEED(once(1, file.fd, buf, BLOCK, 3 * BLOCK).res == BLOCK);
	NEED(pread(file.fd, back, BLOCK, 3 * BLOCK) == BLOCK && check_filled(back, 1 << 30, BLOCK));
	NEED(pread(file.fd, back, BLOCK, 4 * BLOCK) == BLOCK &&
	     check_filled(back, 4 * BLOCK, BLOCK));
	ioqueue_destroy();
	free(buf);
	free(back);
	close(file.fd);
}

/* Results and errnos are those of pread(2) and pwrite(2). */
static void results_of_the_system_calls(void)
{
	struct file file = make_file();
	int buffered, reader, writer, folder, i;
	char *buf = check_aligned(2 * BLOCK);

	NEED((folder = open("/", O_RDONLY | O_DIRECTORY)) >= 0);
	NEED((buffered = open("/proc/self/exe", O_RDONLY)) >= 0);
	NEED((reader = open("/dev/null", O_RDONLY)) >= 0);
	NEED((writer = open("/dev/null", O_WRONLY)) >= 0);
	{
		const struct {
			int fd;
			size_t shift, len;
			off_t offset;
		} cases[] = {
			{ file.fd, 0, BLOCK, FILE_SIZE },            /* at the end */
			{ file.fd, 0, BLOCK, FILE_SIZE + BLOCK },    /* beyond it */
			{ file.fd, 0, 2 * BLOCK, FILE_SIZE - BLOCK }, /* across it */
			{ file.fd, 0, 10, 0 },
			{ file.fd, 1, BLOCK, 0 },
			{ file.fd, 0, BLOCK, 7 },
			{ file.fd, 0, BLOCK, -1 },
			{ file.fd, 0, BLOCK, -BLOCK },
			{ file.fd, 0, BLOCK, INT64_MIN },
			{ file.fd, 0, BLOCK, INT64_MAX },
			{ file.fd, 0, BLOCK, INT64_MAX - BLOCK + 1 },
			{ buffered, 1, 13, 7 },
			{ -1, 0, BLOCK, 0 },
			{ -1, 0, BLOCK, -1 },
			{ INT_MIN, 0, BLOCK, 0 },
			{ INT_MAX, 0, BLOCK, 0 },
			{ 1000, 0, BLOCK, 0 },
			{ folder, 0, BLOCK, 0 },
			{ writer, 0, BLOCK, 0 },
			{ reader, 0, BLOCK, 0 },
		};

		begin(4);
		for (i = 0; i < (int)(2 * (sizeof cases / sizeof *cases)); i++) {
			int writes = i % 2;
			int fd = cases[i / 2].fd;
			char *at = buf + cases[i / 2].shift;
			size_t len = cases[i / 2].len;
			off_t offset = cases[i / 2].offset;
			struct job job;
			ssize_t res;
			int error;

			if (writes && offset > 0 && fd == file.fd && offset <= FILE_SIZE + BLOCK)
				continue; /* The file is not changed. */
			res = writes ? pwrite(fd, at, len, offset) : pread(fd, at, len, offset);
			error = res == -1 ? errno : 0;
			job = once(writes, fd, at, len, offset);
			if (job.res != res || job.error != error)
				printf("case %d: %zd, %s instead of %zd, %s\n", i / 2, job.res,
				       strerror(job.error), res, strerror(error));
			NEED(job.res == res && job.error == error);
		}
		ioqueue_destroy();
	}
	free(buf);
	close(folder);
	close(buffered);
	close(reader);
	close(writer);
	close(file.fd);
}

/* Pipes have no positions and ignore the offset. */
static void pipes(void)
{
	int ends[2];
	char buf[8];

	NEED(pipe(ends) == 0);
	begin(4);
	NEED(once(1, ends[1], (char[]){ "12345678" }, 8, 100).res == 8);
	NEED(once(0, ends[0], buf, sizeof buf, 7).res == 8 && memcmp(buf, "12345678", 8) == 0);
	close(ends[1]);
	NEED(once(0, ends[0], buf, sizeof buf, 0).res == 0);
	ioqueue_destroy();
	close(ends[0]);
}

/* Destroy cancels a read that never completes, after the others have completed. */
static void destroy_is_bounded(void)
{
	struct file file = make_file();
	struct job never = { 0, 0, 0, NULL, 0 }, read = never;
	char *buf = check_aligned(BLOCK), byte;
	const struct timespec pause = { 0, 1000000 };
	int ends[2], fds = check_descriptors() + 2;

	NEED(pipe(ends) == 0);
	begin(4);
	NEED(ioqueue_pread(ends[0], &byte, 1, 0, job_done, &never) == 0);
	NEED(ioqueue_reap(0) == 0);
	NEED(ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, &read) == 0);
	ioqueue_destroy();
	NEED(never.calls == 1 && never.res == -1 && never.error == ECANCELED);
	NEED(read.calls == 1 && read.res == BLOCK);
	/* Threads end asynchronously, and the last one closes their descriptors. */
	while (check_descriptors() != fds)
		nanosleep(&pause, NULL);
	close(ends[0]);
	close(ends[1]);
	free(buf);
	close(file.fd);
}

static void invalid_arguments(void)
{
	struct file file = make_file();
	char *buf = check_aligned(BLOCK);
	int writes;

	begin(1);
	for (writes = 0; writes < 2; writes++) {
		int (*push)(int, void *, size_t, off_t, ioqueue_cb, void *) =
			writes ? ioqueue_pwrite : ioqueue_pread;

		CHECK_FAILS(EINVAL, push(file.fd, NULL, BLOCK, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, push(file.fd, buf, 0, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, push(file.fd, buf, SIZE_MAX, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, push(file.fd, buf, (size_t)SSIZE_MAX + 1, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, push(file.fd, buf, BLOCK, 0, NULL, NULL));
		/* None of them occupies a slot. */
		CHECK_FAILS(EINVAL, ioqueue_reap(0));
		NEED(once(0, file.fd, buf, BLOCK, 0).res == BLOCK);
	}
	/* Errors of the kernel are passed to the callback. */
	NEED(once(0, -1, buf, BLOCK, 0).error == EBADF);
	NEED(once(1, file.fd, buf, BLOCK, -5).error == EINVAL);
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

static int unnamed_calls;

static void count_call(void *arg, ssize_t res, void *buf)
{
	NEED(arg == NULL && buf != NULL && res == BLOCK);
	unnamed_calls++;
}

static void a_full_queue(void)
{
	struct file file = make_file();
	char *buf = check_aligned(BLOCK);
	int round, i;

	begin(32);
	for (round = 0; round < 20; round++) {
		unnamed_calls = 0;
		/* All reads use one buffer, because they read the same data. */
		for (i = 0; i < 32; i++)
			NEED(ioqueue_pread(file.fd, buf, BLOCK, BLOCK, count_call, NULL) == 0);
		CHECK_FAILS(EAGAIN, ioqueue_pread(file.fd, buf, BLOCK, BLOCK, count_call, NULL));
		CHECK_FAILS(EAGAIN, ioqueue_pread(-1, buf, BLOCK, BLOCK, count_call, NULL));
		CHECK_FAILS(EAGAIN, ioqueue_pwrite(file.fd, buf, BLOCK, BLOCK, count_call, NULL));
		CHECK_FAILS(EINVAL, ioqueue_reap(33));
		NEED(unnamed_calls == 0);
		NEED(ioqueue_reap(32) == 32 && unnamed_calls == 32);
		NEED(check_filled(buf, BLOCK, BLOCK));
		CHECK_FAILS(EINVAL, ioqueue_reap(0));
	}
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

/* Any number of reaps calls back every operation, and reap(0) does not wait. */
static void partial_reaps(void)
{
	struct file file = make_file();
	char *buf = check_aligned(FILE_SIZE);
	struct job jobs[64];
	int round, i;

	memset(jobs, 0, sizeof jobs);
	begin(64);
	for (round = 1; round <= 50; round++) {
		unsigned min = (unsigned)round % 5;
		int left = 64;

		for (i = 0; i < 64; i++)
			NEED(ioqueue_pread(file.fd, buf + i * BLOCK, BLOCK, i * BLOCK, job_done,
			                   &jobs[i]) == 0);
		while (left > 0) {
			unsigned wanted = min < (unsigned)left ? min : (unsigned)left;
			int count = ioqueue_reap(wanted);

			NEED(count >= (int)wanted && count <= left);
			left -= count;
		}
		for (i = 0; i < 64; i++)
			NEED(jobs[i].calls == round && jobs[i].res == BLOCK &&
			     check_filled(buf + i * BLOCK, (uint64_t)i * BLOCK, BLOCK));
		memset(buf, 0, FILE_SIZE);
	}
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

/* A queued write does not begin before a reap. */
static void nothing_begins_before_a_reap(void)
{
	struct file file = make_file();
	uint64_t *buf = check_aligned(BLOCK), *seen = check_aligned(BLOCK);
	int direct = file.fd, i;
	struct job job = { 0, 0, 0, NULL, 0 };
	const struct timespec pause = { 0, 100000 };

	begin(8);
	check_fill(buf, 1 << 30, BLOCK);
	NEED(ioqueue_pwrite(direct, buf, BLOCK, 0, job_done, &job) == 0);
	for (i = 0; i < 200; i++) {
		nanosleep(&pause, NULL);
		NEED(pread(direct, seen, BLOCK, 0) == BLOCK && check_filled(seen, 0, BLOCK));
	}
	NEED(job.calls == 0);
	NEED(ioqueue_reap(1) == 1 && job.calls == 1);
	NEED(pread(direct, seen, BLOCK, 0) == BLOCK && check_filled(seen, 1 << 30, BLOCK));
	ioqueue_destroy();
	free(buf);
	free(seen);
	close(file.fd);
}

/* An operation that reap(0) began completes without further calls. */
static void begun_operations_complete_without_calls(void)
{
	struct file file = make_file();
	uint64_t *buf = check_aligned(BLOCK), *seen = check_aligned(BLOCK);
	struct job job = { 0, 0, 0, NULL, 0 };
	const struct timespec pause = { 0, 1000000 };

	begin(8);
	check_fill(buf, 1 << 30, BLOCK);
	NEED(ioqueue_pwrite(file.fd, buf, BLOCK, 0, job_done, &job) == 0);
	NEED(ioqueue_reap(0) == job.calls);
	do {
		nanosleep(&pause,
		          NULL); /* The time limit of the test ends this if it never completes. */
		NEED(pread(file.fd, seen, BLOCK, 0) == BLOCK);
	} while (!check_filled(seen, 1 << 30, BLOCK));
	while (job.calls == 0)
		NEED(ioqueue_reap(0) == job.calls);
	ioqueue_destroy();
	free(buf);
	free(seen);
	close(file.fd);
}

/* Destroy delivers real results for submitted and for queued operations. */
static void destroy_reaps(void)
{
	struct file file = make_file();
	char *buf = check_aligned(FILE_SIZE);
	struct job jobs[64];
	int submitted, i;

	for (submitted = 0; submitted <= 64; submitted += 16) {
		memset(jobs, 0, sizeof jobs);
		memset(buf, 0, FILE_SIZE);
		begin(64);
		for (i = 0; i < 64; i++) {
			NEED(ioqueue_pread(file.fd, buf + i * BLOCK, BLOCK, i * BLOCK, job_done,
			                   &jobs[i]) == 0);
			if (i + 1 == submitted)
				NEED(ioqueue_reap(0) >= 0);
		}
		ioqueue_destroy();
		for (i = 0; i < 64; i++)
			NEED(jobs[i].calls == 1 && jobs[i].res == BLOCK &&
			     check_filled(buf + i * BLOCK, (uint64_t)i * BLOCK, BLOCK));
	}
	free(buf);
	close(file.fd);
}

static int destroying, called;
static struct job jobs[2];

/* What a callback may call and what it may not, also in destroy. */
static void calls_everything(void *arg, ssize_t res, void *buf)
{
	struct file *file = arg;

	NEED(res == BLOCK);
	CHECK_FAILS(EDEADLK, ioqueue_reap(0));
	if (destroying) {
		CHECK_FAILS(ESHUTDOWN, ioqueue_pread(file->fd, buf, BLOCK, 0, job_done, NULL));
		CHECK_FAILS(ESHUTDOWN, ioqueue_pwrite(file->fd, buf, BLOCK, 0, job_done, NULL));
	} else {
		NEED(ioqueue_pread(file->fd, buf, BLOCK, 0, job_done, &jobs[0]) == 0);
		NEED(ioqueue_pwrite(file->fd, buf, BLOCK, 0, job_done, &jobs[1]) == 0);
	}
	CHECK_FAILS(EINVAL, ioqueue_init(8));
#ifndef IOQUEUE_THREADS
	NEED(ioqueue_eventfd() >= 0);
#endif
	errno = 0;
	ioqueue_destroy();
	NEED(errno == EDEADLK && ioqueue_backend() != NULL);
	called++;
}

static void calls_in_callbacks(void)
{
	struct file file = make_file();
	char *buf = check_aligned(BLOCK);
	int i;

	begin(8);
	NEED(ioqueue_pread(file.fd, buf, BLOCK, 0, calls_everything, &file) == 0);
	NEED(ioqueue_reap(1) == 1);
	NEED(ioqueue_reap(2) == 2);
	NEED(jobs[0].res == BLOCK && jobs[1].res == BLOCK && called == 1);
	destroying = 1;
	for (i = 0; i < 8; i++)
		NEED(ioqueue_pread(file.fd, buf, BLOCK, 0, calls_everything, &file) == 0);
	ioqueue_destroy();
	NEED(called == 9);
	free(buf);
	close(file.fd);
}

/* 4096 good and bad operations: each is called back once, with its own result. */
static void thousands_of_operations(void)
{
	struct file file = make_file();
	struct job *jobs = calloc(4096, sizeof *jobs);
	char *buf = check_aligned(BLOCK);
	int round, i;

	NEED(jobs != NULL);
	begin(4096);
	for (round = 1; round <= 3; round++) {
		for (i = 0; i < 4096; i++)
			NEED(ioqueue_pread(i % 5 == round ? -1 : file.fd, buf, BLOCK,
			                   i % 7 == 3 ? -5 : 0, job_done, &jobs[i]) == 0);
		CHECK_FAILS(EAGAIN, ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, jobs));
		NEED(ioqueue_reap(4096) == 4096);
		for (i = 0; i < 4096; i++) {
			int error = i % 7 == 3 ? EINVAL : i % 5 == round ? EBADF : 0;

			NEED(jobs[i].calls == round && jobs[i].error == error &&
			     jobs[i].res == (error ? -1 : BLOCK));
		}
	}
	NEED(check_threads() < 100);
	ioqueue_destroy();
	free(jobs);
	free(buf);
	close(file.fd);
}

/* Compares random pushes, good and bad, and random reaps with a model that counts. */
static void random_operations(void)
{
	enum { DEPTH = 24 };
	struct file file = make_file();
	char *buf = check_aligned(DEPTH * BLOCK);
	struct job jobs[DEPTH];
	int expected[DEPTH], outstanding = 0, i, step;
	unsigned seed = 7;

	memset(jobs, 0, sizeof jobs);
	memset(expected, -1, sizeof expected);
	begin(DEPTH);
	for (step = 0; step < 20000; step++) {
		unsigned roll = (unsigned)rand_r(&seed);

		for (i = 0; i < DEPTH && expected[i] >= 0; i++)
			;
		if (roll % 3 && i < DEPTH) {
			int how = (int)(roll / 3 % 8);
			uint64_t offset = roll / 32 % 256 * BLOCK;

			memset(&jobs[i], 0, sizeof jobs[i]);
			jobs[i].offset = offset;
			NEED(ioqueue_pread(how == 0 ? -1 : file.fd, buf + i * BLOCK, BLOCK,
			                   how == 1   ? -1
			                   : how == 2 ? FILE_SIZE
			                              : (off_t)offset,
			                   job_done, &jobs[i]) == 0);
			expected[i] = how == 0 ? EBADF : how == 1 ? EINVAL : how == 2 ? 1 << 20 : 0;
			outstanding++;
		} else {
			unsigned min = roll / 3 % (unsigned)(outstanding + 3);
			int count, called = 0;

			if (outstanding == 0 || (int)min > outstanding) {
				CHECK_FAILS(EINVAL, ioqueue_reap(min));
				continue;
			}
			count = ioqueue_reap(min);
			NEED(count >= (int)min && count <= outstanding);
			for (i = 0; i < DEPTH; i++) {
				if (expected[i] < 0 || !jobs[i].calls)
					continue;
				NEED(jobs[i].calls == 1 && jobs[i].buf == buf + i * BLOCK);
				if (expected[i] == 0)
					NEED(jobs[i].res == BLOCK &&
					     check_filled(jobs[i].buf, jobs[i].offset, BLOCK));
				else if (expected[i] == 1 << 20)
					NEED(jobs[i].res == 0);
				else
					NEED(jobs[i].res == -1 && jobs[i].error == expected[i]);
				expected[i] = -1;
				called++;
			}
			NEED(called == count);
			outstanding -= count;
		}
	}
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

static void a_forked_child_has_no_queue(void)
{
	struct file file = make_file();
	char *buf = check_aligned(2 * BLOCK);
	struct job before = { 0, 0, 0, NULL, 0 }, waiting = before;
	char text[4];
	pid_t child;
	int status, ends[2];

	begin(8);
#ifndef IOQUEUE_THREADS
	NEED(ioqueue_eventfd() >= 0);
#endif
	/* A read that still waits after the child has ended. */
	NEED(pipe(ends) == 0);
	NEED(ioqueue_pread(ends[0], text, 4, 0, job_done, &waiting) == 0);
	NEED(ioqueue_pread(file.fd, buf, BLOCK, BLOCK, job_done, &before) == 0);
	NEED(ioqueue_reap(0) == before.calls);
	if (before.calls)
		NEED(ioqueue_pread(file.fd, buf, BLOCK, BLOCK, job_done, &before) == 0);
	before.calls = 0;
	/* A thread that starts may hold a lock of a sanitizer during fork, which would then stay
	   locked in the child. */
	usleep(200000);
	NEED((child = fork()) >= 0);
	if (child == 0) {
		CHECK_FAILS(ECHILD,
		            ioqueue_pread(file.fd, buf + BLOCK, BLOCK, 0, job_done, &before));
		CHECK_FAILS(ECHILD,
		            ioqueue_pwrite(file.fd, buf + BLOCK, BLOCK, 0, job_done, &before));
		CHECK_FAILS(ECHILD, ioqueue_reap(0));
		CHECK_FAILS(ECHILD, ioqueue_reap(1));
		CHECK_FAILS(ECHILD, ioqueue_eventfd());
		/* Also where something else is wrong. */
		CHECK_FAILS(ECHILD, ioqueue_init(8));
		CHECK_FAILS(ECHILD, ioqueue_reap(100));
		CHECK_FAILS(ECHILD, ioqueue_pread(file.fd, NULL, 0, 0, NULL, NULL));
		ioqueue_destroy();
		NEED(before.calls == 0 && ioqueue_backend() == NULL);
		begin(8);
		NEED(once(0, file.fd, buf + BLOCK, BLOCK, 2 * BLOCK).res == BLOCK &&
		     check_filled(buf + BLOCK, 2 * BLOCK, BLOCK));
		ioqueue_destroy();
		/* The child's copy of buffers in flight is not freed: exec avoids a leak check. */
		execlp("true", "true", (char *)NULL);
		_exit(1);
	}
	NEED(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	while (before.calls == 0)
		NEED(ioqueue_reap(1) == 1);
	NEED(before.calls == 1 && before.res == BLOCK && check_filled(buf, BLOCK, BLOCK));
	NEED(waiting.calls == 0 && write(ends[1], "text", 4) == 4);
	NEED(ioqueue_reap(1) == 1 && waiting.calls == 1 && waiting.res == 4);
	close(ends[0]);
	close(ends[1]);
	NEED(once(0, file.fd, buf, BLOCK, 5 * BLOCK).res == BLOCK &&
	     check_filled(buf, 5 * BLOCK, BLOCK));
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

#ifdef IOQUEUE_THREADS
static void no_eventfd(void)
{
	CHECK_FAILS(ENOTSUP, ioqueue_eventfd());
	begin(4);
	CHECK_FAILS(ENOTSUP, ioqueue_eventfd());
	ioqueue_destroy();
}
#else
static int readable(int fd, int timeout)
{
	struct pollfd poller = { fd, POLLIN, 0 };
	int count = poll(&poller, 1, timeout);

	NEED(count >= 0);
	return count > 0;
}

static void eventfd_is_an_eventfd(void)
{
	char link[64], path[64];
	uint64_t count;
	ssize_t len;
	int fd;

	CHECK_FAILS(EINVAL, ioqueue_eventfd());
	begin(4);
	NEED((fd = ioqueue_eventfd()) > 2);
	NEED(ioqueue_eventfd() == fd);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	NEED((len = readlink(path, link, sizeof link - 1)) > 0);
	link[len] = 0;
	NEED(strcmp(link, "anon_inode:[eventfd]") == 0);
	NEED(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	NEED(fcntl(fd, F_GETFL) & O_NONBLOCK);
	if (readable(fd, 0))
		NEED(read(fd, &count, sizeof count) == sizeof count);
	CHECK_FAILS(EAGAIN, read(fd, &count, sizeof count));
	ioqueue_destroy();
	NEED(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
}

/* The loop of a server. `reads` is the number of bytes of the counter that it reads before it
   reaps. `late`: creates the eventfd late. `cached`: half of the reads are buffered, which run on
   threads on Linux AIO. */
static void poll_loop(size_t reads, int late, int cached)
{
	struct file file = make_file();
	char path[64];
	char *buf = check_aligned(64 * BLOCK);
	struct job jobs[64];
	int pushed = 0, called = 0, fd = -1, few, i;
	uint64_t count;

	snprintf(path, sizeof path, "/proc/self/fd/%d", file.fd);
	NEED((cached = cached ? open(path, O_RDONLY | O_CLOEXEC) : dup(file.fd)) >= 0);
	memset(jobs, 0, sizeof jobs);
	begin(64);
	if (!late)
		NEED((fd = ioqueue_eventfd()) >= 0);
	while (called < 5000) {
		/* Few or many. */
		for (few = pushed % 3; pushed < 5000 && pushed - called < (few ? few : 64);
		     pushed++) {
			for (i = 0; jobs[i].offset; i++)
				;
			jobs[i].offset = 1;
			NEED(ioqueue_pread(pushed % 2 ? cached : file.fd, buf + i * BLOCK, BLOCK,
			                   pushed % 256 * BLOCK, job_done, &jobs[i]) == 0);
		}
		if (pushed > called) {
			int got = ioqueue_reap(0);

			NEED(got >= 0);
			called += got;
		}
		if (pushed > called) {
			if (late && fd < 0)
				NEED((fd = ioqueue_eventfd()) >= 0);
			/* Waits forever if a wakeup is lost; the time limit of the test ends
			   that. */
			NEED(readable(fd, -1));
			if (reads)
				NEED(read(fd, &count, reads) == sizeof count && count > 0);
			i = ioqueue_reap(0);
			NEED(i >= 0);
			called += i;
		}
		for (i = 0; i < 64; i++)
			if (jobs[i].calls) {
				NEED(jobs[i].calls == 1 && jobs[i].res == BLOCK);
				memset(&jobs[i], 0, sizeof jobs[i]);
			}
	}
	ioqueue_destroy();
	free(buf);
	close(cached);
	close(file.fd);
}

static void eventfd_polled_and_reaped(void)
{
	poll_loop(0, 0, 0);
	poll_loop(0, 0, 1);
}

static void eventfd_read_and_reaped(void)
{
	poll_loop(8, 0, 0);
	poll_loop(8, 0, 1);
}

static void eventfd_created_late(void)
{
	poll_loop(0, 1, 0);
	poll_loop(8, 1, 1);
}

/* Failures signal the eventfd, too: a bad descriptor, and an error that does not reach the
   kernel. */
static void eventfd_signals_failures(void)
{
	struct job job = { 0, 0, 0, NULL, 0 };
	char buf[8];
	int fd, i;

	begin(4);
	NEED((fd = ioqueue_eventfd()) >= 0);
	for (i = 0; i < 200; i++) {
		memset(&job, 0, sizeof job);
		NEED(ioqueue_pread(i % 2 ? -1 : 0, buf, sizeof buf, i % 2 ? 0 : -1, job_done,
		                   &job) == 0);
		if (ioqueue_reap(0) == 0) {
			NEED(job.calls == 0);
			while (job.calls == 0) {
				NEED(readable(fd, -1));
				NEED(ioqueue_reap(0) == job.calls);
			}
		}
		NEED(job.calls == 1 && job.res == -1 && job.error == (i % 2 ? EBADF : EINVAL));
	}
	ioqueue_destroy();
}

/* An idle loop sleeps, even if it never reads the eventfd: after a reap there may be a spurious
   wakeup, but no endless ones. */
static void eventfd_stays_quiet_when_idle(void)
{
	struct file file = make_file();
	char *buf = check_aligned(BLOCK);
	int fd, i, rings;

	begin(4);
	NEED((fd = ioqueue_eventfd()) >= 0);
	for (i = 0; i < 100; i++) {
		struct job job = { 0, 0, 0, NULL, 0 };

		NEED(ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, &job) == 0);
		while (job.calls == 0)
			NEED(ioqueue_reap(0) >= 0 && (job.calls || readable(fd, -1)));
		for (rings = 0; readable(fd, 1); rings++) {
			NEED(rings < 3);
			CHECK_FAILS(EINVAL, ioqueue_reap(0));
		}
	}
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}
#endif

/* Without free descriptors the queue works, and its own can be reused for another. */
static void without_descriptors(void)
{
	struct file file = make_file();
	char *buf = check_aligned(BLOCK);
	struct rlimit limit, none;

	begin(4);
	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	none = limit;
	NEED((none.rlim_cur = (rlim_t)dup(0)) != (rlim_t)-1 && close((int)none.rlim_cur) == 0);
	NEED(setrlimit(RLIMIT_NOFILE, &none) == 0);
	NEED(once(0, file.fd, buf, BLOCK, 0).res == BLOCK);
	NEED(once(1, file.fd, buf, BLOCK, 0).res == BLOCK);
#ifndef IOQUEUE_THREADS
	NEED(ioqueue_eventfd() >= 0 || errno == EMFILE);
#endif
	ioqueue_destroy();
	NEED(ioqueue_init(1) == 0 || errno == EMFILE);
	ioqueue_destroy();
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	free(buf);
	close(file.fd);
}

static void ignore_signal(int number)
{
	(void)number;
}

static void frequent_signals(void)
{
	struct file file = make_file();
	char *buf = check_aligned(2 * BLOCK);
	struct job read, write;
	struct sigaction action;
	struct itimerval timer = { { 0, 300 }, { 0, 300 } };
	int i;

	memset(&action, 0, sizeof action);
	action.sa_handler = ignore_signal; /* without SA_RESTART */
	begin(4);
	NEED(sigaction(SIGALRM, &action, NULL) == 0);
	NEED(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	for (i = 0; i < 50; i++) {
		NEED(ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, &read) == 0);
		NEED(ioqueue_pwrite(file.fd, buf + BLOCK, BLOCK, BLOCK, job_done, &write) == 0);
		NEED(ioqueue_reap(2) == 2);
		NEED(read.res == BLOCK && write.res == BLOCK);
	}
	ioqueue_destroy();
	memset(&timer, 0, sizeof timer);
	NEED(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	free(buf);
	close(file.fd);
}

#ifndef IOQUEUE_THREADS
/* After the ring has failed, destroy calls back what is outstanding, and a new queue works. */
static void a_failed_ring(void)
{
	struct file file = make_file();
	char *buf = check_aligned(2 * BLOCK);
	char path[64], name[64];
	int fd, null, ends[2], found = 0;

	begin(4);
	memset(jobs, 0, sizeof jobs);
	NEED(pipe(ends) == 0);
	NEED(ioqueue_pread(ends[0], buf, 4, 0, job_done, &jobs[0]) == 0);
	NEED(ioqueue_reap(0) == 0);
	NEED((null = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0);
	for (fd = 3; fd < 1000; fd++) {
		ssize_t length;

		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		length = readlink(path, name, sizeof name - 1);
		if (length > 0 && (name[length] = '\0', strcmp(name, "anon_inode:[io_uring]") == 0))
			found = dup2(null, fd) == fd;
	}
	if (found) {
		NEED(ioqueue_pread(file.fd, buf + BLOCK, BLOCK, 0, job_done, &jobs[1]) == 0);
		NEED(ioqueue_reap(1) == -1 && errno != 0);
		ioqueue_destroy();
		NEED(jobs[0].calls == 1 && jobs[0].error == ECANCELED);
		NEED(jobs[1].calls == 1 && (jobs[1].error == ECANCELED || jobs[1].res == BLOCK));
		NEED(ioqueue_init(1) == 0);
	} else {
		/* Other backends have no ring. */
		NEED(write(ends[1], "text", 4) == 4);
	}
	ioqueue_destroy();
	close(null);
	close(ends[0]);
	close(ends[1]);
	free(buf);
	close(file.fd);
}
#endif

int main(void)
{
	static const struct test tests[] = {
#define TEST(name) { #name, name }
		TEST(depths),
		TEST(depths_out_of_range),
		TEST(without_a_queue),
		TEST(an_invalid_backend),
		TEST(reads),
		TEST(writes),
		TEST(results_of_the_system_calls),
		TEST(pipes),
		TEST(invalid_arguments),
		TEST(a_full_queue),
		TEST(partial_reaps),
		TEST(nothing_begins_before_a_reap),
		TEST(begun_operations_complete_without_calls),
		TEST(destroy_reaps),
		TEST(calls_in_callbacks),
		TEST(destroy_is_bounded),
		TEST(thousands_of_operations),
		TEST(random_operations),
		TEST(a_forked_child_has_no_queue),
		TEST(without_descriptors),
		TEST(frequent_signals),
#ifdef IOQUEUE_THREADS
		TEST(no_eventfd),
#else
		TEST(eventfd_is_an_eventfd),
		TEST(eventfd_polled_and_reaped),
		TEST(eventfd_read_and_reaped),
		TEST(eventfd_created_late),
		TEST(eventfd_signals_failures),
		TEST(eventfd_stays_quiet_when_idle),
		TEST(a_failed_ring),
#endif
		{ NULL, NULL },
	};

	return run_tests(tests);
}
