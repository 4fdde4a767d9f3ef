/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* ringway_fd() in an event loop with poll(2) or epoll(7): no wakeup is lost in thousands of rounds.
   examples/ has servers, and ioqueue_poll_server.c one with a single poll(2). */
#include "check.h"

#include <sys/epoll.h>

/* Longer than every operation here: a wait of this length means a lost wakeup. */
#define LOST 10000

struct files {
	int buffered;
	int direct;
	int ready;
	void *bytes;
	struct statx stat;
};

static struct ringway_operation mixture(unsigned number, struct files *files)
{
	struct ringway_operation operation = TIMEOUT(100000);
	int file = number % 12 < 10 && files->direct >= 0 ? files->direct : files->buffered;
	uint64_t long_range = UINT64_C(1) << 33;

	operation.timeout_ns = 60 * UINT64_C(1000000000);
	switch (number % 12) {
	case 0:
		return ringway_prep_fadvise(files->buffered, 0, long_range, POSIX_FADV_NORMAL, NULL,
		                            NULL);
	case 1:
		return ringway_prep_sync_range(files->buffered, 0, long_range, 0, NULL, NULL);
	case 2: return ringway_prep_fdatasync(files->buffered, NULL, NULL);
	case 3: return TIMEOUT(1000000);
	case 4:
		return ringway_prep_statx(AT_FDCWD, ".", 0, STATX_BASIC_STATS, &files->stat, NULL,
		                          NULL);
	case 5: return POLL(files->ready, POLLIN);
	case 6: return NOP();
	case 7: return operation;
	default: return READ(file, files->bytes, 4096, 4096);
	}
}

/* Waits until the queue's descriptor is readable, as an event loop would. (Work of a ring for this
   thread interrupts waits like a signal, so epoll_wait(2) may fail with EINTR.) */
static int wait_for(int fd, int epoll)
{
	struct pollfd one = {fd, POLLIN, 0};
	struct epoll_event event;
	int ready;

	do {
		ready = epoll >= 0 ? epoll_wait(epoll, &event, 1, LOST) : poll(&one, 1, LOST);
	} while (ready < 0 && errno == EINTR);
	return ready == 1;
}

static void count(struct ringway_queue *queue, const struct ringway_completion *done)
{
	(void)queue;
	++*(int *)done->user_data;
	CHECK(done->result >= 0);
}

/* Pushes some operations, and reaps them when the descriptor is readable. */
static int round_of(struct ringway_queue *queue, struct files *files, unsigned number, int epoll)
{
	int batch = number % 50 == 0 ? 60 : 1;
	int seen = 0;
	int some;
	int i;

	for (i = 0; i < batch; i++) {
		struct ringway_operation operation = mixture(number + (unsigned)i, files);

		operation.callback = count;
		operation.user_data = &seen;
		check_push(queue, operation);
	}
	CHECK(ringway_submit(queue) >= 0);
	while (seen < batch) {
		if (!CHECK(wait_for(ringway_fd(queue), epoll))) {
			printf("lost wakeup in round %u, %d of %d\n", number, seen, batch);
			break;
		}
		do {
			some = ringway_reap(queue, 0, 0);
			COUNTERS(queue);
		} while (some > 0);
		SAME(some, 0);
	}
	return seen == batch;
}

static void rounds(unsigned backend, uint32_t flags, int use_epoll, unsigned edge)
{
	unsigned many = getenv("RINGWAY_TEST_BACKENDS") != NULL ? 300 : 2000;
	struct ringway_queue *queue = check_open(backend, flags);
	struct files files;
	int pipes[2];
	int epoll = -1;
	unsigned number;
	int fd = ringway_fd(queue);

	memset(&files, 0, sizeof files);
	files.buffered = check_file("loop", 8192, 0);
	files.direct = check_file("loop-direct", 8192, O_DIRECT);
	files.bytes = check_aligned(4096);
	check_pipe(pipes);
	NEED(write(pipes[1], "x", 1) == 1);
	files.ready = pipes[0];
	CHECK(fd >= 0);
	SAME(ringway_fd(queue), fd);
	SAME(fcntl(fd, F_GETFD), FD_CLOEXEC);
	if (use_epoll) {
		struct epoll_event event = {.events = EPOLLIN | edge};

		epoll = epoll_create1(EPOLL_CLOEXEC);
		NEED(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
	}
	for (number = 0; number < many && round_of(queue, &files, number, epoll); number++)
		;
	check_drain(queue);
	SAME(ringway_destroy(&queue), 0);
	check_close(pipes);
	close(files.buffered);
	close(files.direct);
	close(epoll);
	free(files.bytes);
}

static void all_rounds(unsigned backend)
{
	rounds(backend, 0, 0, 0);
	rounds(backend, RINGWAY_EVENTFD, 0, 0);
	rounds(backend, 0, 1, 0);
	rounds(backend, RINGWAY_SINGLE_ISSUER, 1, EPOLLET);
	rounds(backend, RINGWAY_EVENTFD, 1, EPOLLET);
}

/* Only with the flag it is an eventfd everywhere. */
static void kinds(unsigned backend)
{
	uint32_t flags;

	for (flags = 0; flags <= RINGWAY_EVENTFD; flags += RINGWAY_EVENTFD) {
		struct ringway_queue *queue = check_open(backend, flags);
		char path[64];
		char name[64] = "";

		snprintf(path, sizeof path, "/proc/self/fd/%d", ringway_fd(queue));
		NEED(readlink(path, name, sizeof name - 1) > 0);
		SAME(strcmp(name, "anon_inode:[eventfd]") == 0,
		     flags != 0 || backend != RINGWAY_BACKEND_URING);
		SAME(ringway_destroy(&queue), 0);
	}
}

/* The descriptor is readable for completions that are left, whenever it was created, and does not
   stay readable without any. */
static void remaining(unsigned backend, uint32_t flags)
{
	struct ringway_queue *queue = check_open(backend, flags);
	struct ringway_completion done[2];
	struct pollfd one = {0, POLLIN, 0};
	int quiet = 0;
	int i;

	for (i = 0; i < 5; i++)
		check_push(queue, NOP());
	while (ringway_submit(queue) < 5)
		usleep(1000);
	one.fd = ringway_fd(queue);
	SAME(poll(&one, 1, LOST), 1);
	SAME(ringway_reap_into(queue, done, 2, 1, RINGWAY_FOREVER), 2);
	SAME(poll(&one, 1, LOST), 1);
	SAME(ringway_submit(queue), 3);
	SAME(poll(&one, 1, LOST), 1);
	SAME(ringway_reap(queue, 0, 0), 3);
	for (i = 0; i < 10 && !quiet; i++) {
		SAME(ringway_reap(queue, 0, 0), 0);
		quiet = poll(&one, 1, 1) == 0;
	}
	CHECK(quiet);
	SAME(ringway_destroy(&queue), 0);
}

static void remaining_completions(unsigned backend)
{
	remaining(backend, 0);
	remaining(backend, RINGWAY_EVENTFD);
}

int main(void)
{
	static void (*const tests[])(unsigned) = {all_rounds, kinds, remaining_completions, NULL};

	return check_each_backend("loop", 300, tests);
}
