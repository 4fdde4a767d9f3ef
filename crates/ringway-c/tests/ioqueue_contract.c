/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Tests that every function of ioqueue.h does what the header documents, in every situation, on
 * each backend and for both libraries. ioqueue_bugs.c tests the bugs of the original.
 */
#include "ioqueue_check.h"

#include <sys/prctl.h>

static void depths(const struct file *file, char *buf)
{
	static const unsigned refused[] = { 0, (unsigned)INT_MAX + 1, UINT_MAX };
	unsigned depth;

	for (depth = 1; depth <= 4096; depth *= 2) {
		begin(depth);
		ioqueue_destroy();
	}
	for (depth = 0; depth < 3; depth++)
		CHECK_FAILS(EINVAL, ioqueue_init(refused[depth]));
	CHECK_FAILS(ENOMEM, ioqueue_init(INT_MAX));
	CHECK_FAILS(ENOMEM, ioqueue_init(16777216));
	ioqueue_destroy();

	/* A second queue is refused, and the first one still works. */
	begin(1);
	CHECK_FAILS(EINVAL, ioqueue_init(1));
	CHECK_FAILS(EINVAL, ioqueue_init(32));
	NEED(once(0, file->fd, buf, BLOCK, 0).res == BLOCK);
	ioqueue_destroy();
}

/* All functions fail without a queue, before the first one and after it has been destroyed. */
static void without_a_queue(const struct file *file, char *buf)
{
	int round;

	for (round = 0; round < 2; round++) {
		ioqueue_destroy();
		NEED(ioqueue_backend() == NULL);
		CHECK_FAILS(EINVAL, ioqueue_reap(0));
		CHECK_FAILS(EINVAL, ioqueue_reap(1));
		CHECK_FAILS(EINVAL, ioqueue_pread(file->fd, buf, 8, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, ioqueue_pwrite(file->fd, buf, 8, 0, job_done, NULL));
#ifdef IOQUEUE_THREADS
		CHECK_FAILS(ENOTSUP, ioqueue_eventfd());
#else
		CHECK_FAILS(EINVAL, ioqueue_eventfd());
#endif
		begin(2);
	}
#ifdef IOQUEUE_THREADS
	CHECK_FAILS(ENOTSUP, ioqueue_eventfd());
#endif
	ioqueue_destroy();
}

static void an_invalid_backend(const struct file *file, char *buf)
{
	int fds = check_descriptors();

	(void)file;
	(void)buf;
	setenv("RINGWAY_BACKEND", "unknown", 1);
#ifdef IOQUEUE_THREADS
	NEED(ioqueue_init(8) == 0); /* RINGWAY_BACKEND is ignored. */
#else
	CHECK_FAILS(EINVAL, ioqueue_init(8));
	NEED(ioqueue_backend() == NULL);
#endif
	ioqueue_destroy();
	NEED(check_descriptors() == fds);
}

static void reads_and_writes(const struct file *file, char *buf)
{
	struct job first = { 0, 0, 0, NULL, 0 }, second = first;
	size_t len = (size_t)file->align;

	begin(32);
	NEED(ioqueue_pread(file->fd, buf, len, 0, job_done, &first) == 0);
	NEED(ioqueue_pread(file->fd, buf + BLOCK, len, file->align, job_done, &second) == 0);
	NEED(ioqueue_reap(2) == 2);
	NEED(first.calls == 1 && first.res == file->align && first.buf == buf);
	NEED(second.calls == 1 && second.res == file->align && second.buf == buf + BLOCK);
	NEED(check_filled(buf, 0, len) && check_filled(buf + BLOCK, len, len));
	check_fill(buf, 1 << 30, BLOCK);
	NEED(once(1, file->fd, buf, BLOCK, 3 * BLOCK).res == BLOCK);
	NEED(pread(file->fd, buf, 2 * BLOCK, 3 * BLOCK) == 2 * BLOCK);
	NEED(check_filled(buf, 1 << 30, BLOCK) && check_filled(buf + BLOCK, 4 * BLOCK, BLOCK));
	ioqueue_destroy();
}

/* Results and errnos are those of pread(2) and pwrite(2). */
static void results_of_the_system_calls(const struct file *file, char *buf)
{
	int folder = open("/", O_RDONLY | O_DIRECTORY), buffered = open("/proc/self/exe", O_RDONLY);
	int reader = open("/dev/null", O_RDONLY), writer = open("/dev/null", O_WRONLY), i;
	const struct {
		int fd;
		size_t shift, len;
		off_t offset;
	} cases[] = {
		{ file->fd, 0, BLOCK, FILE_SIZE },             /* at the end */
		{ file->fd, 0, BLOCK, FILE_SIZE + BLOCK },     /* beyond it */
		{ file->fd, 0, 2 * BLOCK, FILE_SIZE - BLOCK }, /* across it */
		{ file->fd, 0, 10, 0 },
		{ file->fd, 1, BLOCK, 0 },
		{ file->fd, 0, BLOCK, 7 },
		{ file->fd, 0, BLOCK, -1 },
		{ file->fd, 0, BLOCK, -BLOCK },
		{ file->fd, 0, BLOCK, INT64_MIN },
		{ file->fd, 0, BLOCK, INT64_MAX },
		{ file->fd, 0, BLOCK, INT64_MAX - BLOCK + 1 },
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
		int writes = i % 2, fd = cases[i / 2].fd, error;
		char *at = buf + cases[i / 2].shift;
		size_t len = cases[i / 2].len;
		off_t offset = cases[i / 2].offset;
		struct job job;
		ssize_t res;

		if (writes && offset > 0 && fd == file->fd && offset <= FILE_SIZE + BLOCK)
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

/* Pipes have no positions and ignore the offset. */
static void pipes(const struct file *file, char *buf)
{
	int ends[2];

	(void)file;
	check_pipe(ends);
	begin(4);
	NEED(once(1, ends[1], (char[]){ "12345678" }, 8, 100).res == 8);
	NEED(once(0, ends[0], buf, 8, 7).res == 8 && memcmp(buf, "12345678", 8) == 0);
	close(ends[1]);
	NEED(once(0, ends[0], buf, 8, 0).res == 0);
	ioqueue_destroy();
	close(ends[0]);
}

static void invalid_arguments(const struct file *file, char *buf)
{
	int writes;

	begin(1);
	for (writes = 0; writes < 2; writes++) {
		int (*push)(int, void *, size_t, off_t, ioqueue_cb, void *) =
			writes ? ioqueue_pwrite : ioqueue_pread;

		CHECK_FAILS(EINVAL, push(file->fd, NULL, BLOCK, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, push(file->fd, buf, 0, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, push(file->fd, buf, SIZE_MAX, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, push(file->fd, buf, (size_t)SSIZE_MAX + 1, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, push(file->fd, buf, BLOCK, 0, NULL, NULL));
		/* None of them occupies a slot. */
		CHECK_FAILS(EINVAL, ioqueue_reap(0));
		NEED(once(0, file->fd, buf, BLOCK, 0).res == BLOCK);
	}
	ioqueue_destroy();
}

/* Any number of reaps calls back every operation, and reap(0) does not wait. */
static void full_queues(const struct file *file, char *buf)
{
	struct job jobs[64];
	int round, i;

	memset(jobs, 0, sizeof jobs);
	begin(64);
	for (round = 1; round <= 50; round++) {
		int left = 64;

		for (i = 0; i < 64; i++)
			push_read(file->fd, buf + i * BLOCK, i * BLOCK, &jobs[i]);
		CHECK_FAILS(EAGAIN, ioqueue_pread(file->fd, buf, BLOCK, 0, job_done, NULL));
		CHECK_FAILS(EAGAIN, ioqueue_pread(-1, buf, BLOCK, 0, job_done, NULL));
		CHECK_FAILS(EAGAIN, ioqueue_pwrite(file->fd, buf, BLOCK, 0, job_done, NULL));
		CHECK_FAILS(EINVAL, ioqueue_reap(65));
		NEED(jobs[0].calls == round - 1);
		while (left > 0) {
			unsigned min = (unsigned)round % 5;
			unsigned wanted = min < (unsigned)left ? min : (unsigned)left;
			int count = ioqueue_reap(wanted);

			NEED(count >= (int)wanted && count <= left);
			left -= count;
		}
		CHECK_FAILS(EINVAL, ioqueue_reap(0));
		for (i = 0; i < 64; i++)
			NEED(jobs[i].calls == round && jobs[i].res == BLOCK);
		NEED(check_filled(buf, 0, 64 * BLOCK));
		memset(buf, 0, FILE_SIZE);
	}
	ioqueue_destroy();
}

/* A queued write does not begin before a reap, and completes after one without further calls. */
static void reaps_begin_operations(const struct file *file, char *buf)
{
	const struct timespec pause = { 0, 100000 };
	struct job job = { 0, 0, 0, NULL, 0 };
	char *seen = buf + BLOCK;
	int i;

	begin(8);
	check_fill(buf, 1 << 30, BLOCK);
	NEED(ioqueue_pwrite(file->fd, buf, BLOCK, 0, job_done, &job) == 0);
	for (i = 0; i < 200; i++) {
		nanosleep(&pause, NULL);
		NEED(pread(file->fd, seen, BLOCK, 0) == BLOCK && check_filled(seen, 0, BLOCK));
	}
	NEED(job.calls == 0);
	NEED(ioqueue_reap(0) == job.calls);
	/* The time limit of the test ends this if it never completes. */
	do {
		nanosleep(&pause, NULL);
		NEED(pread(file->fd, seen, BLOCK, 0) == BLOCK);
	} while (!check_filled(seen, 1 << 30, BLOCK));
	while (job.calls == 0)
		NEED(ioqueue_reap(0) == job.calls);
	ioqueue_destroy();
}

/* Destroy delivers real results for submitted and for queued operations. */
static void destroy_reaps(const struct file *file, char *buf)
{
	struct job jobs[64];
	int submitted, i;

	for (submitted = 0; submitted <= 64; submitted += 16) {
		memset(jobs, 0, sizeof jobs);
		memset(buf, 0, FILE_SIZE);
		begin(64);
		for (i = 0; i < 64; i++) {
			push_read(file->fd, buf + i * BLOCK, i * BLOCK, &jobs[i]);
			if (i + 1 == submitted)
				NEED(ioqueue_reap(0) >= 0);
		}
		ioqueue_destroy();
		for (i = 0; i < 64; i++)
			NEED(jobs[i].calls == 1 && jobs[i].res == BLOCK);
		NEED(check_filled(buf, 0, 64 * BLOCK));
	}
}

/* Destroy cancels a read that never completes, after the others have completed. */
static void destroy_is_bounded(const struct file *file, char *buf)
{
	struct job never = { 0, 0, 0, NULL, 0 }, read = never;
	char byte;
	int ends[2], fds = check_descriptors() + 2;

	check_pipe(ends);
	begin(4);
	NEED(ioqueue_pread(ends[0], &byte, 1, 0, job_done, &never) == 0);
	NEED(ioqueue_reap(0) == 0);
	push_read(file->fd, buf, 0, &read);
	ioqueue_destroy();
	NEED(never.calls == 1 && never.res == -1 && never.error == ECANCELED);
	NEED(read.calls == 1 && read.res == BLOCK);
	/* Threads end asynchronously, and the last one closes their descriptors. */
	NEED(check_no_more_descriptors(fds));
	check_close(ends);
}

static int destroying, called;
static struct job jobs[2];

/* What a callback may call and what it may not, also in destroy. */
static void calls_everything(void *arg, ssize_t res, void *buf)
{
	int fd = *(const int *)arg;

	NEED(res == BLOCK);
	CHECK_FAILS(EDEADLK, ioqueue_reap(0));
	if (destroying) {
		CHECK_FAILS(ESHUTDOWN, ioqueue_pread(fd, buf, BLOCK, 0, job_done, NULL));
		CHECK_FAILS(ESHUTDOWN, ioqueue_pwrite(fd, buf, BLOCK, 0, job_done, NULL));
	} else {
		push_read(fd, buf, 0, &jobs[0]);
		NEED(ioqueue_pwrite(fd, buf, BLOCK, 0, job_done, &jobs[1]) == 0);
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

static void calls_in_callbacks(const struct file *file, char *buf)
{
	int fd = file->fd, i;

	begin(8);
	NEED(ioqueue_pread(fd, buf, BLOCK, 0, calls_everything, &fd) == 0);
	NEED(ioqueue_reap(1) == 1);
	NEED(ioqueue_reap(2) == 2);
	NEED(jobs[0].res == BLOCK && jobs[1].res == BLOCK && called == 1);
	destroying = 1;
	for (i = 0; i < 8; i++)
		NEED(ioqueue_pread(fd, buf, BLOCK, 0, calls_everything, &fd) == 0);
	ioqueue_destroy();
	NEED(called == 9);
}

/* 4096 good and bad operations: each is called back once, with its own result. */
static void thousands_of_operations(const struct file *file, char *buf)
{
	struct job *jobs = calloc(4096, sizeof *jobs);
	int round, i;

	NEED(jobs != NULL);
	begin(4096);
	for (round = 1; round <= 3; round++) {
		for (i = 0; i < 4096; i++)
			push_read(i % 5 == round ? -1 : file->fd, buf, i % 7 == 3 ? -5 : 0,
			          &jobs[i]);
		CHECK_FAILS(EAGAIN, ioqueue_pread(file->fd, buf, BLOCK, 0, job_done, jobs));
		NEED(ioqueue_reap(4096) == 4096);
		for (i = 0; i < 4096; i++) {
			int error = i % 7 == 3 ? EINVAL : i % 5 == round ? EBADF : 0;

			NEED(jobs[i].calls == round && jobs[i].error == error &&
			     jobs[i].res == (error ? -1 : BLOCK));
		}
	}
	NEED(check_count_threads(1) < 100);
	ioqueue_destroy();
	free(jobs);
}

static void fails_in_the_child(const struct file *file, char *buf)
{
	struct job job = { 0, 0, 0, NULL, 0 };

	CHECK_FAILS(ECHILD, ioqueue_pread(file->fd, buf, BLOCK, 0, job_done, &job));
	CHECK_FAILS(ECHILD, ioqueue_pwrite(file->fd, buf, BLOCK, 0, job_done, &job));
	CHECK_FAILS(ECHILD, ioqueue_reap(0));
	CHECK_FAILS(ECHILD, ioqueue_eventfd());
	/* Also where something else is wrong. */
	CHECK_FAILS(ECHILD, ioqueue_init(8));
	CHECK_FAILS(ECHILD, ioqueue_reap(100));
	CHECK_FAILS(ECHILD, ioqueue_pread(file->fd, NULL, 0, 0, NULL, NULL));
	ioqueue_destroy();
	NEED(job.calls == 0 && ioqueue_backend() == NULL);
	begin(8);
	NEED(once(0, file->fd, buf, BLOCK, 2 * BLOCK).res == BLOCK);
	NEED(check_filled(buf, 2 * BLOCK, BLOCK));
	ioqueue_destroy();
}

/* True if each other thread runs the library's code, which has named it, and sleeps there. */
static int threads_sleep(void)
{
	DIR *directory = opendir("/proc/self/task");
	char own[16], path[300], line[512];
	struct dirent *entry;
	int all = 1;

	NEED(directory != NULL && prctl(PR_GET_NAME, own) == 0);
	while ((entry = readdir(directory)) != NULL) {
		const char *name, *end;
		FILE *file;

		if (entry->d_name[0] == '.' || atoi(entry->d_name) == (int)getpid())
			continue;
		snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
		file = fopen(path, "r");
		if (file == NULL) /* The thread has ended since. */
			continue;
		if (fgets(line, sizeof line, file) != NULL) {
			name = strchr(line, '(') + 1;
			end = strrchr(line, ')');
			all &= strncmp(name, own, (size_t)(end - name)) != 0 && end[2] == 'S';
		}
		fclose(file);
	}
	closedir(directory);
	return all;
}

static void a_forked_child_has_no_queue(const struct file *file, char *buf)
{
	const struct timespec pause = { 0, 1000000 };
	struct job before = { 0, 0, 0, NULL, 0 }, waiting = before;
	char text[4];
	pid_t child;
	int status, ends[2];

	begin(8);
#ifndef IOQUEUE_THREADS
	NEED(ioqueue_eventfd() >= 0);
#endif
	/* A read that still waits after the child has ended. */
	check_pipe(ends);
	NEED(ioqueue_pread(ends[0], text, 4, 0, job_done, &waiting) == 0);
	NEED(ioqueue_reap(0) == 0);
	push_read(file->fd, buf, BLOCK, &before);
	/* A thread that starts may hold a lock of a sanitizer during fork, which would then stay
	   locked in the child. */
	while (!threads_sleep())
		nanosleep(&pause, NULL);
	NEED((child = fork()) >= 0);
	if (child == 0) {
		fails_in_the_child(file, buf + BLOCK);
		/* The child's copy of buffers in flight is not freed: exec avoids a leak check. */
		execlp("true", "true", (char *)NULL);
		_exit(1);
	}
	NEED(waitpid(child, &status, 0) == child && status == 0);
	NEED(ioqueue_reap(1) == 1);
	NEED(before.calls == 1 && before.res == BLOCK && check_filled(buf, BLOCK, BLOCK));
	NEED(waiting.calls == 0 && write(ends[1], "text", 4) == 4);
	NEED(ioqueue_reap(1) == 1 && waiting.calls == 1 && waiting.res == 4);
	check_close(ends);
	ioqueue_destroy();
}

#ifndef IOQUEUE_THREADS
static int readable(int fd, int timeout)
{
	struct pollfd poller = { fd, POLLIN, 0 };
	int count = poll(&poller, 1, timeout);

	NEED(count >= 0);
	return count > 0;
}

static void eventfd_is_an_eventfd(const struct file *file, char *buf)
{
	char link[64] = "", path[64];
	uint64_t count;
	int fd;

	(void)file;
	(void)buf;
	begin(4);
	NEED((fd = ioqueue_eventfd()) > 2);
	NEED(ioqueue_eventfd() == fd);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	NEED(readlink(path, link, sizeof link - 1) > 0);
	NEED(strcmp(link, "anon_inode:[eventfd]") == 0);
	NEED(fcntl(fd, F_GETFD) & FD_CLOEXEC && fcntl(fd, F_GETFL) & O_NONBLOCK);
	if (readable(fd, 0))
		NEED(read(fd, &count, sizeof count) == sizeof count);
	CHECK_FAILS(EAGAIN, read(fd, &count, sizeof count));
	ioqueue_destroy();
	NEED(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
}

/* The loop of a server. `reads` is the number of bytes of the counter that it reads before it
   reaps. `late`: creates the eventfd late. `cached`: half of the reads are buffered, which run on
   threads on Linux AIO. */
static void poll_loop(const struct file *file, char *buf, size_t reads, int late, int cached)
{
	struct job jobs[64];
	int pushed = 0, called = 0, fd = -1, few, i;
	char path[64];
	uint64_t count;

	snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
	NEED((cached = cached ? open(path, O_RDONLY | O_CLOEXEC) : dup(file->fd)) >= 0);
	memset(jobs, 0, sizeof jobs);
	begin(64);
	while (called < 3000) {
		/* Few or many. */
		for (few = pushed % 3; pushed < 3000 && pushed - called < (few ? few : 64);
		     pushed++) {
			for (i = 0; jobs[i].offset; i++)
				;
			jobs[i].offset = 1;
			push_read(pushed % 2 ? cached : file->fd, buf + i * BLOCK,
			          pushed % 256 * BLOCK, &jobs[i]);
		}
		if (fd < 0 && !late)
			NEED((fd = ioqueue_eventfd()) >= 0);
		NEED((i = ioqueue_reap(0)) >= 0);
		called += i;
		if (pushed > called) {
			if (fd < 0)
				NEED((fd = ioqueue_eventfd()) >= 0);
			/* Waits forever if a wakeup is lost; the time limit of the test ends
			   that. */
			NEED(readable(fd, -1));
			if (reads)
				NEED(read(fd, &count, reads) == sizeof count && count > 0);
			NEED((i = ioqueue_reap(0)) >= 0);
			called += i;
		}
		for (i = 0; i < 64; i++)
			if (jobs[i].calls) {
				NEED(jobs[i].calls == 1 && jobs[i].res == BLOCK);
				memset(&jobs[i], 0, sizeof jobs[i]);
			}
	}
	ioqueue_destroy();
	close(cached);
}

static void eventfd_loses_no_wakeup(const struct file *file, char *buf)
{
	int i;

	for (i = 0; i < 8; i++)
		poll_loop(file, buf, i & 1 ? 8 : 0, i & 2, i & 4);
}

/* Failures signal the eventfd, too: a bad descriptor, and an error that does not reach the kernel.
   An idle loop sleeps, even if it never reads the eventfd: after a reap there may be a spurious
   wakeup, but no endless ones. */
static void eventfd_signals_failures(const struct file *file, char *buf)
{
	int fd, i, rings;

	begin(4);
	NEED((fd = ioqueue_eventfd()) >= 0);
	for (i = 0; i < 300; i++) {
		static const int errors[] = { EINVAL, EBADF, 0 };
		struct job job = { 0, 0, 0, NULL, 0 };

		push_read(i % 3 == 1 ? -1 : file->fd, buf, i % 3 == 0 ? -1 : 0, &job);
		while (job.calls == 0)
			NEED(ioqueue_reap(0) == job.calls && (job.calls || readable(fd, -1)));
		NEED(job.calls == 1 && job.error == errors[i % 3]);
		for (rings = 0; i % 3 == 2 && readable(fd, 1); rings++) {
			NEED(rings < 3);
			CHECK_FAILS(EINVAL, ioqueue_reap(0));
		}
	}
	ioqueue_destroy();
}

/* After the ring has failed, destroy calls back what is outstanding, and a new queue works. The
   other backends have no ring. */
static void a_failed_ring(const struct file *file, char *buf)
{
	int ends[2];

	begin(4);
	if (strcmp(ioqueue_backend(), "uring") != 0) {
		NEED(check_break_rings() == 0);
		ioqueue_destroy();
		return;
	}
	memset(jobs, 0, sizeof jobs);
	check_pipe(ends);
	NEED(ioqueue_pread(ends[0], buf, 4, 0, job_done, &jobs[0]) == 0);
	NEED(ioqueue_reap(0) == 0);
	NEED(check_break_rings() > 0);
	push_read(file->fd, buf + BLOCK, 0, &jobs[1]);
	NEED(ioqueue_reap(1) == -1 && errno != 0);
	ioqueue_destroy();
	NEED(jobs[0].calls == 1 && jobs[0].error == ECANCELED);
	NEED(jobs[1].calls == 1 && (jobs[1].error == ECANCELED || jobs[1].res == BLOCK));
	NEED(ioqueue_init(1) == 0);
	ioqueue_destroy();
	check_close(ends);
}
#endif

/* Without free descriptors the queue works, and its own can be reused for another. */
static void without_descriptors(const struct file *file, char *buf)
{
	struct rlimit limit, none;

	begin(4);
	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	none = limit;
	NEED((none.rlim_cur = (rlim_t)dup(0)) != (rlim_t)-1 && close((int)none.rlim_cur) == 0);
	NEED(setrlimit(RLIMIT_NOFILE, &none) == 0);
	NEED(once(0, file->fd, buf, BLOCK, 0).res == BLOCK);
	NEED(once(1, file->fd, buf, BLOCK, 0).res == BLOCK);
#ifndef IOQUEUE_THREADS
	NEED(ioqueue_eventfd() >= 0 || errno == EMFILE);
#endif
	ioqueue_destroy();
	NEED(ioqueue_init(1) == 0 || errno == EMFILE);
	ioqueue_destroy();
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

int main(void)
{
	static const struct test tests[] = {
#define TEST(name) { #name, name }
		TEST(depths),
		TEST(without_a_queue),
		TEST(an_invalid_backend),
		TEST(reads_and_writes),
		TEST(results_of_the_system_calls),
		TEST(pipes),
		TEST(invalid_arguments),
		TEST(full_queues),
		TEST(reaps_begin_operations),
		TEST(destroy_reaps),
		TEST(calls_in_callbacks),
		TEST(destroy_is_bounded),
		TEST(thousands_of_operations),
		TEST(a_forked_child_has_no_queue),
		TEST(without_descriptors),
#ifndef IOQUEUE_THREADS
		TEST(eventfd_is_an_eventfd),
		TEST(eventfd_loses_no_wakeup),
		TEST(eventfd_signals_failures),
		TEST(a_failed_ring),
#endif
		{ NULL, NULL },
	};

	return run_tests(tests);
}
