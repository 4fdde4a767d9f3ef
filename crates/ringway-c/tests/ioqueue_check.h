/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Shared code of the tests of ioqueue.h: a file to read, and running each test in a process of its
 * own on each backend. Compiled with IOQUEUE_THREADS for libioqueuemt, as ioqueue.c is.
 */
#ifndef IOQUEUE_CHECK_H
#define IOQUEUE_CHECK_H

#include "check.h"
#include "ioqueue.h"

#include <limits.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

#ifdef IOQUEUE_THREADS
#define LIBRARY "libioqueuemt"
static const char *const backends[] = { "threads", NULL };
#else
#define LIBRARY "libioqueue"
static const char *const backends[] = { "uring", "kaio", "threads", NULL };
#endif

/* Longer than any test takes, even under valgrind. */
#define LIMIT_SECONDS 300

/* A call must fail with this errno. */
#define CHECK_FAILS(error, call)        \
	do {                            \
		errno = 0;              \
		NEED((call) == -1);    \
		NEED(errno == (error)); \
	} while (0)

#define BLOCK 4096
#define FILE_SIZE (256 * BLOCK)

struct file {
	int fd;
	int align; /* the alignment of direct I/O */
	char path[PATH_MAX];
};

/* Creates a file and opens it for direct I/O if the file system supports that. */
static inline struct file make_file(void)
{
	struct file file;
	const char *dir = getenv("TMPDIR");
	char *buf = check_aligned(FILE_SIZE);
	int fd;

	NEED(snprintf(file.path, sizeof file.path, "%s/ioqueue-test.XXXXXX", dir ? dir : "/tmp") <
	     (int)sizeof file.path);
	NEED((fd = mkstemp(file.path)) >= 0);
	check_fill(buf, 0, FILE_SIZE);
	NEED(write(fd, buf, FILE_SIZE) == FILE_SIZE);
	NEED(fsync(fd) == 0);
	close(fd);
	file.fd = open(file.path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (file.fd < 0) {
		check_skip("no direct I/O on this file system", 0);
		NEED((file.fd = open(file.path, O_RDWR | O_CLOEXEC)) >= 0);
	}
	file.align = pread(file.fd, buf, 512, 512) == 512 ? 512 : BLOCK;
	NEED(unlink(file.path) == 0);
	free(buf);
	return file;
}

/* Creates the queue. The kernel releases the locked memory of closed rings late. */
static inline void begin(unsigned depth)
{
	const struct timespec pause = { 0, 5000000 };
	int tries, done = ioqueue_init(depth);

	for (tries = 0; done == -1 && errno == ENOMEM && tries < 2000; tries++) {
		nanosleep(&pause, NULL);
		done = ioqueue_init(depth);
	}
	NEED(done == 0);
}

/* The result of one read or write, and how often it was called back. */
struct job {
	int calls;
	ssize_t res;
	int error;
	void *buf;
	uint64_t offset;
};

static inline void job_done(void *arg, ssize_t res, void *buf)
{
	struct job *job = arg;

	job->calls++;
	job->res = res;
	job->error = res == -1 ? errno : 0;
	job->buf = buf;
}

/* Queues a read of one block. */
static inline void push_read(int fd, char *buf, off_t offset, struct job *job)
{
	NEED(ioqueue_pread(fd, buf, BLOCK, offset, job_done, job) == 0);
}

/* Runs one read or write. */
static inline struct job once(int writes, int fd, void *buf, size_t len, off_t offset)
{
	struct job job = { 0, 0, 0, NULL, 0 };

	NEED((writes ? ioqueue_pwrite : ioqueue_pread)(fd, buf, len, offset, job_done, &job) == 0);
	NEED(job.calls == 0);
	NEED(ioqueue_reap(1) == 1);
	NEED(job.calls == 1 && job.buf == buf);
	return job;
}

struct test {
	const char *name;
	/* With a file, and a buffer of FILE_SIZE. */
	void (*run)(const struct file *file, char *buf);
};

/* Runs a test in a child. Returns 0 if it passed, and 77 if the backend is not available. */
static inline int run_test(const char *backend, void (*run)(const struct file *, char *))
{
	struct file file;
	char *buf;
	int status;
	pid_t child = fork();

	NEED(child >= 0);
	if (child == 0) {
		setenv("RINGWAY_BACKEND", backend, 1);
		check_watch("a test", LIMIT_SECONDS);
		file = make_file();
		buf = check_aligned(FILE_SIZE);
		run(&file, buf);
		free(buf);
		close(file.fd);
		fflush(stdout);
		exit(check_failures != 0);
	}
	NEED(waitpid(child, &status, 0) == child);
	if (WIFSIGNALED(status))
		printf("killed by %s\n", strsignal(WTERMSIG(status)));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static inline void has_backend(const struct file *file, char *buf)
{
	(void)file;
	(void)buf;
	if (ioqueue_init(1) == -1) {
		printf("skipped: %s is not available: %s\n", getenv("RINGWAY_BACKEND"),
		       strerror(errno));
		fflush(stdout);
		_exit(getenv("CI") ? 1 : 77);
	}
	NEED(strcmp(ioqueue_backend(), getenv("RINGWAY_BACKEND")) == 0);
	ioqueue_destroy();
}

/* Runs the tests on all backends. RINGWAY_TEST_BACKENDS=threads leaves out what valgrind does not
   know; RINGWAY_TEST=bug_03 all tests that are not called so. */
static inline int run_tests(const struct test *tests)
{
	const char *wanted = getenv("RINGWAY_TEST_BACKENDS"), *name = getenv("RINGWAY_TEST");
	int failed = 0, passed = 0, i, b;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (b = 0; backends[b]; b++) {
		int has;

		if (wanted && *wanted && !strstr(wanted, backends[b]))
			continue;
		has = run_test(backends[b], has_backend);
		failed += has != 0 && has != 77;
		for (i = 0; has == 0 && tests[i].name; i++) {
			if (name && !strstr(tests[i].name, name))
				continue;
			if (run_test(backends[b], tests[i].run) == 0) {
				passed++;
			} else {
				failed++;
				printf("FAILED: %s, %s, %s\n", LIBRARY, backends[b], tests[i].name);
			}
		}
	}
	printf("%s: %d passed, %d failed\n", LIBRARY, passed, failed);
	return failed != 0 || passed == 0;
}

#endif
