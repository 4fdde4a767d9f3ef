/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What ioqueue.h promises, on each backend and for both libraries. The original's bugs have tests of their own, ioqueue_bugs.c.
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
	void *buf = aligned(BLOCK);

	CHECK_FAILS(EINVAL, ioqueue_init(0));
	CHECK_FAILS(EINVAL, ioqueue_init(UINT_MAX));
	CHECK_FAILS(EINVAL, ioqueue_init((unsigned)INT_MAX + 1));
	CHECK_FAILS(ENOMEM, ioqueue_init(INT_MAX));
	CHECK_FAILS(ENOMEM, ioqueue_init(16777216));
	ioqueue_destroy();

	/* A second queue is refused, and the first one stays as it was. */
	begin(1);
	CHECK_FAILS(EINVAL, ioqueue_init(1));
	CHECK_FAILS(EINVAL, ioqueue_init(32));
	CHECK(once(0, file.fd, buf, BLOCK, 0).res == BLOCK);
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

static void without_a_queue(void)
{
	char buf[8];

	CHECK(ioqueue_backend() == NULL);
	CHECK_FAILS(EINVAL, ioqueue_reap(0));
	CHECK_FAILS(EINVAL, ioqueue_reap(1));
	CHECK_FAILS(EINVAL, ioqueue_pread(0, buf, sizeof buf, 0, job_done, NULL));
	CHECK_FAILS(EINVAL, ioqueue_pwrite(0, buf, sizeof buf, 0, job_done, NULL));
	ioqueue_destroy();
}

static void a_backend_that_is_none(void)
{
	int fds = count_of("fd");

	setenv("RINGWAY_BACKEND", "carrier pigeons", 1);
#ifdef IOQUEUE_THREADS
	CHECK(ioqueue_init(8) == 0); /* It does not ask. */
	ioqueue_destroy();
#else
	CHECK_FAILS(EINVAL, ioqueue_init(8));
	CHECK(ioqueue_backend() == NULL);
	ioqueue_destroy();
#endif
	CHECK(count_of("fd") == fds);
}

static void reads(void)
{
	struct file file = make_file();
	size_t len = (size_t)file.align;
	char *buf = aligned(2 * BLOCK);
	struct job first = { 0, 0, 0, NULL, 0 }, second = first;

	begin(32);
	CHECK(ioqueue_pread(file.fd, buf, len, 0, job_done, &first) == 0);
	CHECK(ioqueue_pread(file.fd, buf + BLOCK, len, file.align, job_done, &second) == 0);
	CHECK(ioqueue_reap(2) == 2);
	CHECK(first.calls == 1 && first.res == file.align && first.buf == buf && holds(buf, len, 0));
	CHECK(second.calls == 1 && second.res == file.align && second.buf == buf + BLOCK && holds(buf + BLOCK, len, len));
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

static void writes(void)
{
	struct file file = make_file();
	uint64_t *buf = aligned(BLOCK), *back = aligned(BLOCK);

	begin(32);
	fill(buf, BLOCK, 1 << 30);
	CHECK(once(1, file.fd, buf, BLOCK, 3 * BLOCK).res == BLOCK);
	CHECK(pread(file.fd, back, BLOCK, 3 * BLOCK) == BLOCK && holds(back, BLOCK, 1 << 30));
	CHECK(pread(file.fd, back, BLOCK, 4 * BLOCK) == BLOCK && holds(back, BLOCK, 4 * BLOCK));
	ioqueue_destroy();
	free(buf);
	free(back);
	close(file.fd);
}

/* Results are those of pread(2) and pwrite(2), the errno included. */
static void the_same_as_the_system_call(void)
{
	struct file file = make_file();
	int buffered, reader, writer, folder, i;
	char *buf = aligned(2 * BLOCK);

	CHECK((folder = open("/", O_RDONLY | O_DIRECTORY)) >= 0);
	CHECK((buffered = open("/proc/self/exe", O_RDONLY)) >= 0);
	CHECK((reader = open("/dev/null", O_RDONLY)) >= 0);
	CHECK((writer = open("/dev/null", O_WRONLY)) >= 0);
	{
		const struct {
			int fd;
			size_t shift, len;
			off_t offset;
		} cases[] = {
			{ file.fd, 0, BLOCK, FILE_SIZE },            /* the end */
			{ file.fd, 0, BLOCK, FILE_SIZE + BLOCK },    /* behind it */
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
				continue; /* The file stays as it is. */
			res = writes ? pwrite(fd, at, len, offset) : pread(fd, at, len, offset);
			error = res == -1 ? errno : 0;
			job = once(writes, fd, at, len, offset);
			if (job.res != res || job.error != error)
				printf("case %d: %zd, %s instead of %zd, %s\n", i / 2, job.res, strerror(job.error), res, strerror(error));
			CHECK(job.res == res && job.error == error);
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

/* What has no positions is read from and written to as it comes. */
static void pipes(void)
{
	int ends[2];
	char buf[8];

	CHECK(pipe(ends) == 0);
	begin(4);
	CHECK(once(1, ends[1], (char[]){ "12345678" }, 8, 100).res == 8);
	CHECK(once(0, ends[0], buf, sizeof buf, 7).res == 8 && memcmp(buf, "12345678", 8) == 0);
	close(ends[1]);
	CHECK(once(0, ends[0], buf, sizeof buf, 0).res == 0);
	ioqueue_destroy();
	close(ends[0]);
}

/* A read that never completes does not keep destroy for ever: it is cancelled, after what does complete has. */
static void destroy_is_bounded(void)
{
	struct file file = make_file();
	struct job never = { 0, 0, 0, NULL, 0 }, read = never;
	char *buf = aligned(BLOCK), byte;
	const struct timespec pause = { 0, 1000000 };
	int ends[2], fds = count_of("fd") + 2;

	CHECK(pipe(ends) == 0);
	begin(4);
	CHECK(ioqueue_pread(ends[0], &byte, 1, 0, job_done, &never) == 0);
	CHECK(ioqueue_reap(0) == 0);
	CHECK(ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, &read) == 0);
	ioqueue_destroy();
	CHECK(never.calls == 1 && never.res == -1 && never.error == ECANCELED);
	CHECK(read.calls == 1 && read.res == BLOCK);
	/* Threads end by themselves, and the last one closes what they had. The time limit ends this too. */
	while (count_of("fd") != fds)
		nanosleep(&pause, NULL);
	close(ends[0]);
	close(ends[1]);
	free(buf);
	close(file.fd);
}

static void arguments_that_cannot_be_meant(void)
{
	struct file file = make_file();
	char *buf = aligned(BLOCK);
	int writes;

	begin(1);
	for (writes = 0; writes < 2; writes++) {
		int (*push)(int, void *, size_t, off_t, ioqueue_cb, void *) = writes ? ioqueue_pwrite : ioqueue_pread;

		CHECK_FAILS(EINVAL, push(file.fd, NULL, BLOCK, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, push(file.fd, buf, 0, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, push(file.fd, buf, SIZE_MAX, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, push(file.fd, buf, (size_t)SSIZE_MAX + 1, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, push(file.fd, buf, BLOCK, 0, NULL, NULL));
		/* None of them has taken a place. */
		CHECK_FAILS(EINVAL, ioqueue_reap(0));
		CHECK(once(0, file.fd, buf, BLOCK, 0).res == BLOCK);
	}
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

static int unnamed_calls;

static void unnamed(void *arg, ssize_t res, void *buf)
{
	CHECK(arg == NULL && buf != NULL && res == BLOCK);
	unnamed_calls++;
}

static void full(void)
{
	struct file file = make_file();
	char *buf = aligned(BLOCK);
	int round, i;

	begin(32);
	for (round = 0; round < 20; round++) {
		unnamed_calls = 0;
		/* All into one buffer: each writes the same. */
		for (i = 0; i < 32; i++)
			CHECK(ioqueue_pread(file.fd, buf, BLOCK, BLOCK, unnamed, NULL) == 0);
		CHECK_FAILS(EAGAIN, ioqueue_pread(file.fd, buf, BLOCK, BLOCK, unnamed, NULL));
		CHECK_FAILS(EAGAIN, ioqueue_pread(-1, buf, BLOCK, BLOCK, unnamed, NULL));
		CHECK_FAILS(EINVAL, ioqueue_reap(33));
		CHECK(unnamed_calls == 0);
		CHECK(ioqueue_reap(32) == 32 && unnamed_calls == 32);
		CHECK(holds(buf, BLOCK, BLOCK));
		CHECK_FAILS(EINVAL, ioqueue_reap(0));
	}
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

/* Everything is called back in the end, in as many reaps as it takes, and reap(0) does not wait. */
static void reaping_in_parts(void)
{
	struct file file = make_file();
	char *buf = aligned(FILE_SIZE);
	struct job jobs[64];
	int round, i;

	memset(jobs, 0, sizeof jobs);
	begin(64);
	for (round = 1; round <= 50; round++) {
		unsigned min = (unsigned)round % 5;
		int left = 64;

		for (i = 0; i < 64; i++)
			CHECK(ioqueue_pread(file.fd, buf + i * BLOCK, BLOCK, i * BLOCK, job_done, &jobs[i]) == 0);
		while (left > 0) {
			unsigned wanted = min < (unsigned)left ? min : (unsigned)left;
			int count = ioqueue_reap(wanted);

			CHECK(count >= (int)wanted && count <= left);
			left -= count;
		}
		for (i = 0; i < 64; i++)
			CHECK(jobs[i].calls == round && jobs[i].res == BLOCK && holds(buf + i * BLOCK, BLOCK, (uint64_t)i * BLOCK));
		memset(buf, 0, FILE_SIZE);
	}
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

/* A write that is queued has not been done, whatever time passes, before somebody reaps. */
static void nothing_begins_before_a_reap(void)
{
	struct file file = make_file();
	uint64_t *buf = aligned(BLOCK), *seen = aligned(BLOCK);
	int direct = file.fd, i;
	struct job job = { 0, 0, 0, NULL, 0 };
	const struct timespec pause = { 0, 100000 };

	begin(8);
	fill(buf, BLOCK, 1 << 30);
	CHECK(ioqueue_pwrite(direct, buf, BLOCK, 0, job_done, &job) == 0);
	for (i = 0; i < 200; i++) {
		nanosleep(&pause, NULL);
		CHECK(pread(direct, seen, BLOCK, 0) == BLOCK && holds(seen, BLOCK, 0));
	}
	CHECK(job.calls == 0);
	CHECK(ioqueue_reap(1) == 1 && job.calls == 1);
	CHECK(pread(direct, seen, BLOCK, 0) == BLOCK && holds(seen, BLOCK, 1 << 30));
	ioqueue_destroy();
	free(buf);
	free(seen);
	close(file.fd);
}

/* What reap(0) began goes on without us. */
static void what_has_begun_ends_by_itself(void)
{
	struct file file = make_file();
	uint64_t *buf = aligned(BLOCK), *seen = aligned(BLOCK);
	struct job job = { 0, 0, 0, NULL, 0 };
	const struct timespec pause = { 0, 1000000 };

	begin(8);
	fill(buf, BLOCK, 1 << 30);
	CHECK(ioqueue_pwrite(file.fd, buf, BLOCK, 0, job_done, &job) == 0);
	CHECK(ioqueue_reap(0) == job.calls);
	do {
		nanosleep(&pause, NULL); /* Ended by the time limit, if never. */
		CHECK(pread(file.fd, seen, BLOCK, 0) == BLOCK);
	} while (!holds(seen, BLOCK, 1 << 30));
	while (job.calls == 0)
		CHECK(ioqueue_reap(0) == job.calls);
	ioqueue_destroy();
	free(buf);
	free(seen);
	close(file.fd);
}

/* With real results, not cancelled: what was submitted, and what was only queued. */
static void destroy_reaps(void)
{
	struct file file = make_file();
	char *buf = aligned(FILE_SIZE);
	struct job jobs[64];
	int submitted, i;

	for (submitted = 0; submitted <= 64; submitted += 16) {
		memset(jobs, 0, sizeof jobs);
		memset(buf, 0, FILE_SIZE);
		begin(64);
		for (i = 0; i < 64; i++) {
			CHECK(ioqueue_pread(file.fd, buf + i * BLOCK, BLOCK, i * BLOCK, job_done, &jobs[i]) == 0);
			if (i + 1 == submitted)
				CHECK(ioqueue_reap(0) >= 0);
		}
		ioqueue_destroy();
		for (i = 0; i < 64; i++)
			CHECK(jobs[i].calls == 1 && jobs[i].res == BLOCK && holds(buf + i * BLOCK, BLOCK, (uint64_t)i * BLOCK));
	}
	free(buf);
	close(file.fd);
}

static int refused_in_destroy;

static void asks_for_more(void *arg, ssize_t res, void *buf)
{
	CHECK(res == BLOCK);
	errno = 0;
	CHECK(ioqueue_pread(*(int *)arg, buf, BLOCK, 0, asks_for_more, arg) == -1 && errno == ESHUTDOWN);
	CHECK_FAILS(EINVAL, ioqueue_init(8));
	CHECK_FAILS(EDEADLK, ioqueue_reap(0));
	errno = 0;
	ioqueue_destroy();
	CHECK(errno == EDEADLK);
	refused_in_destroy++;
}

static void no_more_in_destroy(void)
{
	struct file file = make_file();
	char *buf = aligned(BLOCK);
	int i;

	begin(8);
	for (i = 0; i < 8; i++)
		CHECK(ioqueue_pread(file.fd, buf, BLOCK, 0, asks_for_more, &file.fd) == 0);
	ioqueue_destroy();
	CHECK(refused_in_destroy == 8);
	free(buf);
	close(file.fd);
}

/* 4096 at once, good and bad ones among each other: each is called back once, with its own result. */
static void thousands_at_once(void)
{
	struct file file = make_file();
	struct job *jobs = calloc(4096, sizeof *jobs);
	char *buf = aligned(BLOCK);
	int round, i;

	CHECK(jobs != NULL);
	begin(4096);
	for (round = 1; round <= 3; round++) {
		for (i = 0; i < 4096; i++)
			CHECK(ioqueue_pread(i % 5 == round ? -1 : file.fd, buf, BLOCK, i % 7 == 3 ? -5 : 0, job_done, &jobs[i]) == 0);
		CHECK_FAILS(EAGAIN, ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, jobs));
		CHECK(ioqueue_reap(4096) == 4096);
		for (i = 0; i < 4096; i++) {
			int error = i % 7 == 3 ? EINVAL : i % 5 == round ? EBADF : 0;

			CHECK(jobs[i].calls == round && jobs[i].error == error && jobs[i].res == (error ? -1 : BLOCK));
		}
	}
	CHECK(count_of("task") < 100);
	ioqueue_destroy();
	free(jobs);
	free(buf);
	close(file.fd);
}

/* Random pushes, good and bad, and random reaps, beside a model that only counts. */
static void at_random(void)
{
	enum { DEPTH = 24 };
	struct file file = make_file();
	char *buf = aligned(DEPTH * BLOCK);
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
			CHECK(ioqueue_pread(how == 0 ? -1 : file.fd, buf + i * BLOCK, BLOCK, how == 1 ? -1 : how == 2 ? FILE_SIZE : (off_t)offset,
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
			CHECK(count >= (int)min && count <= outstanding);
			for (i = 0; i < DEPTH; i++) {
				if (expected[i] < 0 || !jobs[i].calls)
					continue;
				CHECK(jobs[i].calls == 1 && jobs[i].buf == buf + i * BLOCK);
				if (expected[i] == 0)
					CHECK(jobs[i].res == BLOCK && holds(jobs[i].buf, BLOCK, jobs[i].offset));
				else if (expected[i] == 1 << 20)
					CHECK(jobs[i].res == 0);
				else
					CHECK(jobs[i].res == -1 && jobs[i].error == expected[i]);
				expected[i] = -1;
				called++;
			}
			CHECK(called == count);
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
	char *buf = aligned(2 * BLOCK);
	struct job before = { 0, 0, 0, NULL, 0 };
	pid_t child;
	int status;

	begin(8);
#ifndef IOQUEUE_THREADS
	CHECK(ioqueue_eventfd() >= 0);
#endif
	CHECK(ioqueue_pread(file.fd, buf, BLOCK, BLOCK, job_done, &before) == 0);
	CHECK(ioqueue_reap(0) == before.calls);
	if (before.calls)
		CHECK(ioqueue_pread(file.fd, buf, BLOCK, BLOCK, job_done, &before) == 0);
	before.calls = 0;
	CHECK((child = fork()) >= 0);
	if (child == 0) {
		CHECK_FAILS(ECHILD, ioqueue_pread(file.fd, buf + BLOCK, BLOCK, 0, job_done, &before));
		CHECK_FAILS(ECHILD, ioqueue_reap(0));
		CHECK_FAILS(ECHILD, ioqueue_reap(1));
#ifndef IOQUEUE_THREADS
		CHECK_FAILS(ECHILD, ioqueue_eventfd());
#endif
		ioqueue_destroy();
		CHECK(before.calls == 0);
		begin(8);
		CHECK(once(0, file.fd, buf + BLOCK, BLOCK, 2 * BLOCK).res == BLOCK && holds(buf + BLOCK, BLOCK, 2 * BLOCK));
		ioqueue_destroy();
		/* What it had of the parent's queue is forgotten, not freed: no leak check is to look for that. */
		execlp("true", "true", (char *)NULL);
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(ioqueue_reap(1) == 1 && before.calls == 1 && before.res == BLOCK && holds(buf, BLOCK, BLOCK));
	CHECK(once(0, file.fd, buf, BLOCK, 5 * BLOCK).res == BLOCK && holds(buf, BLOCK, 5 * BLOCK));
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

	CHECK(count >= 0);
	return count > 0;
}

static void eventfd_is_one(void)
{
	char link[64], path[64];
	uint64_t count;
	ssize_t len;
	int fd;

	CHECK_FAILS(EINVAL, ioqueue_eventfd());
	begin(4);
	CHECK((fd = ioqueue_eventfd()) > 2);
	CHECK(ioqueue_eventfd() == fd);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	CHECK((len = readlink(path, link, sizeof link - 1)) > 0);
	link[len] = 0;
	CHECK(strcmp(link, "anon_inode:[eventfd]") == 0);
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
	if (readable(fd, 0))
		CHECK(read(fd, &count, sizeof count) == sizeof count);
	CHECK_FAILS(EAGAIN, read(fd, &count, sizeof count));
	ioqueue_destroy();
	CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
}

/* A server's loop; `reads` are the bytes of the counter that it reads before it reaps. With the descriptor asked for late; and with half of
   the reads from the page cache, which Linux AIO leaves to threads. */
static void poll_loop(size_t reads, int late, int cached)
{
	struct file file = make_file();
	char path[64];
	char *buf = aligned(64 * BLOCK);
	struct job jobs[64];
	int pushed = 0, called = 0, fd = -1, few, i;
	uint64_t count;

	snprintf(path, sizeof path, "/proc/self/fd/%d", file.fd);
	CHECK((cached = cached ? open(path, O_RDONLY | O_CLOEXEC) : dup(file.fd)) >= 0);
	memset(jobs, 0, sizeof jobs);
	begin(64);
	if (!late)
		CHECK((fd = ioqueue_eventfd()) >= 0);
	while (called < 5000) {
		/* Sometimes few, sometimes many. */
		for (few = pushed % 3; pushed < 5000 && pushed - called < (few ? few : 64); pushed++) {
			for (i = 0; jobs[i].offset; i++)
				;
			jobs[i].offset = 1;
			CHECK(ioqueue_pread(pushed % 2 ? cached : file.fd, buf + i * BLOCK, BLOCK, pushed % 256 * BLOCK, job_done, &jobs[i]) == 0);
		}
		if (pushed > called) {
			int got = ioqueue_reap(0);

			CHECK(got >= 0);
			called += got;
		}
		if (pushed > called) {
			if (late && fd < 0)
				CHECK((fd = ioqueue_eventfd()) >= 0);
			/* For ever, if a wake-up is lost; the time limit ends that. */
			CHECK(readable(fd, -1));
			if (reads)
				CHECK(read(fd, &count, reads) == sizeof count && count > 0);
			i = ioqueue_reap(0);
			CHECK(i >= 0);
			called += i;
		}
		for (i = 0; i < 64; i++)
			if (jobs[i].calls) {
				CHECK(jobs[i].calls == 1 && jobs[i].res == BLOCK);
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

static void eventfd_asked_for_late(void)
{
	poll_loop(0, 1, 0);
	poll_loop(8, 1, 1);
}

/* Failures wake up too: of the descriptor, and of what never reaches the kernel. */
static void eventfd_tells_of_failures(void)
{
	struct job job = { 0, 0, 0, NULL, 0 };
	char buf[8];
	int fd, i;

	begin(4);
	CHECK((fd = ioqueue_eventfd()) >= 0);
	for (i = 0; i < 200; i++) {
		memset(&job, 0, sizeof job);
		CHECK(ioqueue_pread(i % 2 ? -1 : 0, buf, sizeof buf, i % 2 ? 0 : -1, job_done, &job) == 0);
		if (ioqueue_reap(0) == 0) {
			CHECK(job.calls == 0);
			while (job.calls == 0) {
				CHECK(readable(fd, -1));
				CHECK(ioqueue_reap(0) == job.calls);
			}
		}
		CHECK(job.calls == 1 && job.res == -1 && job.error == (i % 2 ? EBADF : EINVAL));
	}
	ioqueue_destroy();
}

/* Idle, a loop sleeps, also one that never reads the descriptor: a completion that was reaped may still ring, but not for ever. */
static void eventfd_falls_silent(void)
{
	struct file file = make_file();
	char *buf = aligned(BLOCK);
	int fd, i, rings;

	begin(4);
	CHECK((fd = ioqueue_eventfd()) >= 0);
	for (i = 0; i < 100; i++) {
		struct job job = { 0, 0, 0, NULL, 0 };

		CHECK(ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, &job) == 0);
		while (job.calls == 0)
			CHECK(ioqueue_reap(0) >= 0 && (job.calls || readable(fd, -1)));
		for (rings = 0; readable(fd, 1); rings++) {
			CHECK(rings < 3);
			CHECK_FAILS(EINVAL, ioqueue_reap(0));
		}
	}
	ioqueue_destroy();
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
		TEST(a_backend_that_is_none),
		TEST(reads),
		TEST(writes),
		TEST(the_same_as_the_system_call),
		TEST(pipes),
		TEST(arguments_that_cannot_be_meant),
		TEST(full),
		TEST(reaping_in_parts),
		TEST(nothing_begins_before_a_reap),
		TEST(what_has_begun_ends_by_itself),
		TEST(destroy_reaps),
		TEST(no_more_in_destroy),
		TEST(destroy_is_bounded),
		TEST(thousands_at_once),
		TEST(at_random),
		TEST(a_forked_child_has_no_queue),
#ifdef IOQUEUE_THREADS
		TEST(no_eventfd),
#else
		TEST(eventfd_is_one),
		TEST(eventfd_polled_and_reaped),
		TEST(eventfd_read_and_reaped),
		TEST(eventfd_asked_for_late),
		TEST(eventfd_tells_of_failures),
		TEST(eventfd_falls_silent),
#endif
		{ NULL, NULL },
	};

	return run_tests(tests);
}
