/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the tests of ioqueue.h share: checks, a file to read, and running each test in a process of its own, on each backend, with a
 * limit to its time. Compiled with IOQUEUE_THREADS for libioqueuemt, as ioqueue.c is.
 */
#ifndef IOQUEUE_CHECK_H
#define IOQUEUE_CHECK_H

#define _GNU_SOURCE

#include "ioqueue.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef IOQUEUE_THREADS
#define LIBRARY "libioqueuemt"
static const char *const backends[] = { "threads", NULL };
#else
#define LIBRARY "libioqueue"
static const char *const backends[] = { "uring", "kaio", "threads", NULL };
#endif

/* Longer than any test takes, even under valgrind. */
#define LIMIT_SECONDS 300

#define CHECK(what)                                                                                          \
	do {                                                                                                 \
		if (!(what)) {                                                                               \
			int error_ = errno;                                                                  \
			printf("%s:%d: not so: %s (errno: %s)\n", __FILE__, __LINE__, #what, strerror(error_)); \
			fflush(stdout);                                                                      \
			_exit(1);                                                                            \
		}                                                                                            \
	} while (0)

/* A call that fails, and with which errno. */
#define CHECK_FAILS(error, call)        \
	do {                            \
		errno = 0;              \
		CHECK((call) == -1);    \
		CHECK(errno == (error)); \
	} while (0)

/* The file: each word of 8 bytes is its own offset. */
#define BLOCK 4096
#define FILE_SIZE (256 * BLOCK)

struct file {
	int fd;
	int align; /* direct I/O of so many bytes works */
	char path[PATH_MAX];
};

static inline void fill(void *buf, size_t len, uint64_t offset)
{
	uint64_t *words = buf, i;

	for (i = 0; i < len / 8; i++)
		words[i] = offset + 8 * i;
}

static inline int holds(const void *buf, size_t len, uint64_t offset)
{
	const uint64_t *words = buf;
	uint64_t i;

	for (i = 0; i < len / 8; i++)
		if (words[i] != offset + 8 * i)
			return 0;
	return 1;
}

static inline void *aligned(size_t len)
{
	void *buf = NULL;

	CHECK(posix_memalign(&buf, BLOCK, len) == 0);
	memset(buf, 0xa5, len);
	return buf;
}

static inline void no_skip(const char *why)
{
	printf("skipped: %s\n", why);
	if (getenv("CI"))
		_exit(1);
	fflush(stdout);
}

/* Open for direct I/O; buffered, where the file system has none. */
static inline struct file make_file(void)
{
	struct file file;
	const char *dir = getenv("TMPDIR");
	char *buf = aligned(FILE_SIZE);
	int fd;

	CHECK(snprintf(file.path, sizeof file.path, "%s/ioqueue-test.XXXXXX", dir ? dir : "/tmp") < (int)sizeof file.path);
	CHECK((fd = mkstemp(file.path)) >= 0);
	fill(buf, FILE_SIZE, 0);
	CHECK(write(fd, buf, FILE_SIZE) == FILE_SIZE);
	CHECK(fsync(fd) == 0);
	close(fd);
	file.fd = open(file.path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (file.fd < 0) {
		no_skip("direct I/O, which this file system does not have");
		CHECK((file.fd = open(file.path, O_RDWR | O_CLOEXEC)) >= 0);
	}
	file.align = pread(file.fd, buf, 512, 512) == 512 ? 512 : BLOCK;
	CHECK(unlink(file.path) == 0);
	free(buf);
	return file;
}

/* A queue. The rings of queues that are gone give their locked memory back late. */
static inline void begin(unsigned depth)
{
	const struct timespec pause = { 0, 5000000 };
	int tries, done = ioqueue_init(depth);

	for (tries = 0; done == -1 && errno == ENOMEM && tries < 2000; tries++) {
		nanosleep(&pause, NULL);
		done = ioqueue_init(depth);
	}
	CHECK(done == 0);
}

/* One read or write, what came of it, and how often. */
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

/* Reads or writes once through the queue and waits for it. */
static inline struct job once(int writes, int fd, void *buf, size_t len, off_t offset)
{
	struct job job = { 0, 0, 0, NULL, 0 };

	CHECK((writes ? ioqueue_pwrite : ioqueue_pread)(fd, buf, len, offset, job_done, &job) == 0);
	CHECK(job.calls == 0);
	CHECK(ioqueue_reap(1) == 1);
	CHECK(job.calls == 1 && job.buf == buf);
	return job;
}

/* Entries of a folder of /proc/self, such as "fd" or "task". */
static inline int count_of(const char *what)
{
	char path[64];
	struct dirent *entry;
	int count = 0;
	DIR *dir;

	snprintf(path, sizeof path, "/proc/self/%s", what);
	CHECK((dir = opendir(path)) != NULL);
	while ((entry = readdir(dir)) != NULL)
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

struct test {
	const char *name;
	void (*run)(void);
};

/* 0: it passed; 77: there is no such backend here. */
static inline int run_test(const char *backend, void (*run)(void))
{
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		setenv("RINGWAY_BACKEND", backend, 1);
		alarm(LIMIT_SECONDS);
		run();
		fflush(stdout);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	if (WIFSIGNALED(status))
		printf("killed by %s\n", strsignal(WTERMSIG(status)));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static inline void has_backend(void)
{
	if (ioqueue_init(1) == -1) {
		printf("skipped: %s is refused here: %s\n", getenv("RINGWAY_BACKEND"), strerror(errno));
		fflush(stdout);
		_exit(getenv("CI") ? 1 : 77);
	}
	CHECK(strcmp(ioqueue_backend(), getenv("RINGWAY_BACKEND")) == 0);
	ioqueue_destroy();
}

/* Runs the tests on all backends. RINGWAY_TEST_BACKENDS=threads leaves out what valgrind does not know; RINGWAY_TEST=bug_03 all tests that
   are not called so. */
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
