/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Shared code of the C tests: checks that report their location, tests on each backend, short names
 * of operations without a callback, files, children. Include it first, because it defines
 * _GNU_SOURCE.
 */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <ringway.h>

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

static int check_failures;

/* Report a failure and continue. */
#define CHECK(condition) check_that(!!(condition), #condition, __FILE__, __LINE__)
#define SAME(found, wanted) \
	check_same((int64_t)(found), (int64_t)(wanted), #found, __FILE__, __LINE__)

/* Reports a failure and ends the test. */
#define NEED(condition)                                                                         \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			printf("%s:%d: %s: %s (ringway: %s)\n", __FILE__, __LINE__, #condition, \
			       strerror(errno), ringway_last_error());                          \
			exit(1);                                                                \
		}                                                                               \
	} while (0)

static inline int check_that(int right, const char *text, const char *file, int line)
{
	if (!right) {
		check_failures++;
		printf("%s:%d: failed: %s\n", file, line, text);
		fflush(stdout);
	}
	return right;
}

static inline int check_same(int64_t found, int64_t wanted, const char *text, const char *file,
                             int line)
{
	if (found != wanted) {
		check_failures++;
		printf("%s:%d: %s is %" PRId64 ", not %" PRId64 "\n", file, line, text, found,
		       wanted);
		fflush(stdout);
	}
	return found == wanted;
}

/* Prints the outcome and returns the exit code of the test. */
static inline int check_end(const char *name)
{
	printf("%s: %s\n", name, check_failures == 0 ? "passed" : "FAILED");
	fflush(stdout);
	return check_failures == 0 ? 0 : 1;
}

/* Reports why something is not tested. Where CI is set, that is a failure unless `expected` is
   set. */
static inline void check_skip(const char *why, int expected)
{
	printf("skipped: %s\n", why);
	if (!expected && getenv("CI") != NULL) {
		check_failures++;
		printf("a skip is a failure where CI is set\n");
	}
	fflush(stdout);
}

/* RINGWAY_TEST_BACKENDS=threads leaves out the other backends, which valgrind does not support. */
static inline int check_wanted(unsigned backend)
{
	const char *only = getenv("RINGWAY_TEST_BACKENDS");

	return only == NULL || *only == '\0' || strstr(only, ringway_backend_name(backend)) != NULL;
}

static const unsigned check_backends[] __attribute__((unused)) = {
	RINGWAY_BACKEND_URING, RINGWAY_BACKEND_KAIO, RINGWAY_BACKEND_THREADS};

/* The default options, for use in an expression. */
static inline struct ringway_options check_default_options(void)
{
	struct ringway_options options;

	ringway_options_init(&options);
	return options;
}

/* Creates a queue on this backend. If the machine refuses it, reports a skip and returns NULL. */
static inline struct ringway_queue *check_queue(unsigned backend, struct ringway_options options)
{
	struct ringway_queue *queue = NULL;
	int error;
	int tries;

	options.backend = backend;
	if (!check_wanted(backend))
		return NULL;
	error = ringway_create(&options, &queue);
	/* The kernel releases the locked memory of closed rings late. */
	for (tries = 0; error == -ENOMEM && tries < 2000; tries++) {
		usleep(5000);
		error = ringway_create(&options, &queue);
	}
	if (error != 0) {
		char why[200];

		snprintf(why, sizeof why, "%s: %s", ringway_backend_name(backend),
		         ringway_last_error());
		check_skip(why, 0);
		return NULL;
	}
	return queue;
}

/* A queue on a backend that has been found to be available, with these flags. */
static inline struct ringway_queue *check_open(unsigned backend, uint32_t flags)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;

	options.flags = flags;
	queue = check_queue(backend, options);
	NEED(queue != NULL);
	return queue;
}

/* Checks that pushed = delivered + orphaned + in flight. */
#define COUNTERS(queue) check_counters(queue, __FILE__, __LINE__)

static inline int check_counters(const struct ringway_queue *queue, const char *file, int line)
{
	struct ringway_stats stats;

	memset(&stats, 0xff, sizeof stats);
	ringway_get_stats(queue, &stats, sizeof stats);
	if (stats.pushed == stats.delivered + stats.orphaned + stats.in_flight &&
	    stats.in_flight == ringway_in_flight(queue) && stats.orphaned == 0)
		return 1;
	check_failures++;
	printf("%s:%d: %" PRIu64 " pushed, %" PRIu64 " delivered, %" PRIu64 " orphaned, %" PRIu64
	       " in flight (%zu)\n",
	       file, line, stats.pushed, stats.delivered, stats.orphaned, stats.in_flight,
	       ringway_in_flight(queue));
	return 0;
}

/* Ends a test that hangs and prints its name. */
static const char *check_what = "a test";

static inline void check_hangs(int number)
{
	static const char text[] = " hangs\n";

	(void)number;
	if (write(1, check_what, strlen(check_what)) < 0 || write(1, text, sizeof text - 1) < 0)
		_exit(1);
	_exit(1);
}

static inline void check_watch(const char *what, unsigned seconds)
{
	struct sigaction action;

	memset(&action, 0, sizeof action);
	action.sa_handler = check_hangs;
	check_what = what;
	sigaction(SIGALRM, &action, NULL);
	alarm(seconds);
}

/* The byte that belongs at an offset of a test file. */
static inline uint8_t check_byte(uint64_t at)
{
	return (uint8_t)(at ^ at >> 8 ^ at >> 16 ^ at >> 24);
}

static inline void check_fill(void *bytes, uint64_t at, size_t length)
{
	uint8_t *byte = (uint8_t *)bytes;
	size_t i;

	for (i = 0; i < length; i++)
		byte[i] = check_byte(at + i);
}

static inline int check_filled(const void *bytes, uint64_t at, size_t length)
{
	const uint8_t *byte = (const uint8_t *)bytes;
	size_t i;

	for (i = 0; i < length; i++)
		if (byte[i] != check_byte(at + i))
			return 0;
	return 1;
}

/* Creates a file of such bytes and opens it for reading and writing. Returns -1 if `flags` has
   O_DIRECT and the file system does not support it. */
static inline int check_file(const char *path, uint64_t length, int flags)
{
	uint8_t *bytes = (uint8_t *)malloc(length + 1);
	int fd;

	NEED(bytes != NULL);
	unlink(path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	NEED(fd >= 0);
	check_fill(bytes, 0, length);
	NEED(pwrite(fd, bytes, length, 0) == (ssize_t)length);
	NEED(close(fd) == 0);
	free(bytes);
	fd = open(path, O_RDWR | O_CLOEXEC | flags);
	NEED(fd >= 0 || (flags & O_DIRECT && errno == EINVAL));
	return fd;
}

/* Whether this kernel is older than `major`.`minor`. */
static inline int check_older_than(int major, int minor)
{
	struct utsname name;
	int here[2];

	NEED(uname(&name) == 0);
	NEED(sscanf(name.release, "%d.%d", &here[0], &here[1]) == 2);
	return here[0] < major || (here[0] == major && here[1] < minor);
}

#define HOUR UINT64_C(3600000000000)

/* Operations whose callback and user_data the caller sets, if any. */
#define HERE RINGWAY_CURRENT_POSITION
#define NOP() ringway_prep_nop(NULL, NULL)
#define READ(fd, buf, length, at) ringway_prep_read(fd, buf, length, at, NULL, NULL)
#define WRITE(fd, buf, length, at) ringway_prep_write(fd, buf, length, at, NULL, NULL)
#define READV(fd, iov, count, at) ringway_prep_readv(fd, iov, count, at, NULL, NULL)
#define WRITEV(fd, iov, count, at) ringway_prep_writev(fd, iov, count, at, NULL, NULL)
#define POLL(fd, events) ringway_prep_poll(fd, events, NULL, NULL)
#define TIMEOUT(ns) ringway_prep_timeout(ns, NULL, NULL)
#define FSYNC(fd) ringway_prep_fsync(fd, NULL, NULL)
#define OPEN(path, flags) ringway_prep_open(AT_FDCWD, path, flags, 0, NULL, NULL)

/* Pushes an operation, and returns its id. */
static inline int64_t check_push(struct ringway_queue *queue, struct ringway_operation operation)
{
	int64_t id = ringway_push(queue, &operation);

	CHECK(id > 0);
	return id;
}

static inline void check_pipe(int pipes[2])
{
	NEED(pipe2(pipes, O_CLOEXEC) == 0);
}

static inline void check_close(const int pair[2])
{
	close(pair[0]);
	close(pair[1]);
}

/* Replaces the rings of this process by another file, as if a program had closed their descriptors
   by mistake. Returns their number. */
static inline int check_break_rings(void)
{
	int found = 0;
	int fd;

	for (fd = 3; fd < 1000; fd++) {
		char path[64];
		char name[64] = "";
		int null;

		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		if (readlink(path, name, sizeof name - 1) < 0 ||
		    strcmp(name, "anon_inode:[io_uring]") != 0)
			continue;
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
		NEED(null >= 0 && dup2(null, fd) == fd && close(null) == 0);
		found++;
	}
	return found;
}

/* Counts the open descriptors of this process. */
static inline int check_descriptors(void)
{
	int count = 0;
	int fd;

	for (fd = 0; fd < 4096; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* Counts the threads of this process: with `kernels`, those of the kernel too, which are io_uring's
   workers. (The last idle one of a thread ends with that thread.) */
static inline int check_count_threads(int kernels)
{
	DIR *directory = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	NEED(directory != NULL);
	while ((entry = readdir(directory)) != NULL) {
		char path[300], name[32] = "";
		FILE *file;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
		/* (The thread may have ended since.) */
		file = fopen(path, "r");
		if (file == NULL)
			continue;
		if (fgets(name, sizeof name, file) != NULL)
			count += kernels || strncmp(name, "iou-wrk-", 8) != 0;
		fclose(file);
	}
	closedir(directory);
	return count;
}

/* Checks that no descriptor leaked. A thread of a destroyed queue may hold one for a moment
   longer. */
static inline int check_no_more_descriptors(int before)
{
	int tries;

	for (tries = 0; tries < 2000 && check_descriptors() > before; tries++)
		usleep(5000);
	return check_descriptors() <= before;
}

static inline void *check_aligned(size_t length)
{
	void *bytes = NULL;

	NEED(posix_memalign(&bytes, 4096, length == 0 ? 1 : length) == 0);
	memset(bytes, 0xee, length);
	return bytes;
}

/* Runs `body` in a forked child and returns its wait status: 0 if no check failed. */
static inline int check_child(void (*body)(void *), void *arg)
{
	pid_t child;
	int status = -1;

	fflush(stdout);
	child = fork();
	NEED(child >= 0);
	if (child == 0) {
		check_failures = 0;
		check_watch("a child", 60);
		body(arg);
		fflush(stdout);
		_exit(check_failures == 0 ? 0 : 1);
	}
	NEED(waitpid(child, &status, 0) == child);
	return status;
}

/* Whether openat2(2) works: valgrind 3.19 does not support it. */
static inline int check_openat2(void)
{
	static const uint64_t how[3] = {0, 0, 0};

	return syscall(SYS_openat2, AT_FDCWD, "\0", how, sizeof how) >= 0 || errno != ENOSYS;
}

/* Waits until everything in flight has completed. */
static inline void check_drain(struct ringway_queue *queue)
{
	while (ringway_in_flight(queue) > 0) {
		if (!CHECK(ringway_reap(queue, 1, RINGWAY_FOREVER) >= 0))
			return;
		COUNTERS(queue);
	}
}

/* A range to read, with a result that no read has. */
static inline struct ringway_range check_range(int fd, uint64_t offset, uint64_t length,
                                               void *buffer)
{
	struct ringway_range range;

	memset(&range, 0, sizeof range);
	range.fd = fd;
	range.offset = offset;
	range.length = length;
	range.buf = buffer;
	range.result = INT64_MIN;
	return range;
}

/* The result that check_answer() stores. */
struct answer {
	int64_t result;
	int count;
};

static inline void check_answer(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct answer *answer = (struct answer *)done->user_data;

	(void)queue;
	answer->result = done->result;
	answer->count++;
}

/* Pushes an operation whose result is stored. */
static inline int64_t check_start(struct ringway_queue *queue, struct ringway_operation operation,
                                  struct answer *answer)
{
	operation.callback = check_answer;
	operation.user_data = answer;
	return check_push(queue, operation);
}

/* Checks that each operation has been called back once, with this result. */
static inline void check_answers(const struct answer *answers, int count, int64_t result)
{
	int i;

	for (i = 0; i < count; i++) {
		SAME(answers[i].count, 1);
		SAME(answers[i].result, result);
	}
}

/* Runs one operation with its own callback and returns its result. */
static inline int64_t check_run(struct ringway_queue *queue, struct ringway_operation operation)
{
	struct answer answer = {INT64_MIN, 0};
	int64_t id;

	operation.callback = check_answer;
	operation.user_data = &answer;
	id = ringway_push(queue, &operation);
	if (id < 0)
		return id;
	while (answer.count == 0 && CHECK(ringway_reap(queue, 1, RINGWAY_FOREVER) >= 0))
		;
	SAME(answer.count, 1);
	return answer.result;
}

/* Runs the tests on each backend that is available, and returns the exit code of the program. The
   list ends with NULL. */
static inline int check_each_backend(const char *name, unsigned seconds,
                                     void (*const *tests)(unsigned backend))
{
	size_t b, i;

	check_watch(name, seconds);
	for (b = 0; b < 3; b++) {
		struct ringway_queue *probe =
			check_queue(check_backends[b], check_default_options());

		if (probe == NULL)
			continue;
		SAME(ringway_destroy(&probe), 0);
		for (i = 0; tests[i] != NULL; i++)
			tests[i](check_backends[b]);
	}
	return check_end(name);
}

#endif /* CHECK_H */
