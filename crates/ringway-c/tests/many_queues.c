/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Creating and destroying a thousand queues leaks no descriptor and no thread, also for an ordinary
   user with little lockable memory. */
#include "check.h"

#include <grp.h>

struct work {
	unsigned backend;
	int rounds;
	int ordinary;
};

static void become_ordinary(void)
{
	struct rlimit limit = {64 << 10, 64 << 10};
	uid_t user = 20000 + (uid_t)getpid() % 40000;

	if (geteuid() == 0)
		NEED(setgroups(0, NULL) == 0 && setgid(user) == 0 && setuid(user) == 0);
	NEED(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
}

static void one_after_the_other(void *arg)
{
	static const uint32_t flags[] = {RINGWAY_EVENTFD, RINGWAY_SINGLE_ISSUER, 0};
	struct work *work = arg;
	int fd = check_file("many", 8192, 0);
	int direct = check_file("many-direct", 8192, O_DIRECT);
	void *bytes = check_aligned(4096);
	int before;
	int i;

	if (work->ordinary)
		become_ordinary();
	before = check_descriptors();
	for (i = 0; i < work->rounds; i++) {
		struct ringway_options options = check_default_options();
		struct ringway_queue *queue;

		options.flags = flags[i % 3];
		options.entries = 8;
		queue = check_queue(work->backend, options);
		if (queue == NULL)
			break;
		if (i % 5 == 0)
			CHECK(ringway_fd(queue) >= 0);
		SAME(check_run(queue, NOP()), 0);
		if (i % 4 == 0)
			SAME(check_run(queue, READ(fd, bytes, 4096, 0)), 4096);
		if (i % 4 == 1 && direct >= 0)
			SAME(check_run(queue, READ(direct, bytes, 4096, 0)), 4096);
		SAME(ringway_destroy(&queue), 0);
	}
	CHECK(check_no_more_descriptors(before));
	/* Threads that are asked to end may take a moment. */
	for (i = 0; check_count_threads(0) > 1 && i < 2000; i++)
		usleep(5000);
	SAME(check_count_threads(0), 1);
	free(bytes);
	close(fd);
	close(direct);
}

static void many(unsigned backend)
{
	/* Fewer under valgrind, which runs one thread at a time; and on Linux AIO, where
	   io_destroy(2) waits for a grace period of the kernel. */
	struct work work = {backend,
	                    getenv("RINGWAY_TEST_BACKENDS") != NULL ? 100
	                    : backend == RINGWAY_BACKEND_KAIO       ? 200
	                                                            : 1000,
	                    0};

	SAME(check_child(one_after_the_other, &work), 0);
	work.ordinary = 1;
	work.rounds /= 20;
	SAME(check_child(one_after_the_other, &work), 0);
}

static void at_once(unsigned backend)
{
	struct ringway_queue *queues[40];
	struct ringway_options options = check_default_options();
	int before = check_descriptors();
	int i;

	options.entries = 8;
	for (i = 0; i < 40; i++) {
		queues[i] = check_queue(backend, options);
		if (queues[i] != NULL)
			SAME(check_run(queues[i], NOP()), 0);
	}
	for (i = 0; i < 40; i++) {
		if (queues[i] != NULL)
			SAME(check_run(queues[i], TIMEOUT(1)), 0);
		SAME(ringway_destroy(&queues[i]), 0);
	}
	CHECK(check_no_more_descriptors(before));
}

/* Queues that cannot be created leak nothing. */
static void refused_queues(unsigned backend)
{
	struct ringway_options options = check_default_options();
	int before = check_descriptors();
	struct ringway_queue *queue;
	int i;

	for (i = 0; i < 200; i++) {
		options.backend = i % 2 == 0 ? RINGWAY_BACKEND_THREADS : backend;
		options.flags = i % 2 == 0 ? RINGWAY_SQPOLL | RINGWAY_STRICT : 0;
		options.entries = i % 2 == 0 ? 0 : 40000;
		CHECK(ringway_create(&options, &queue) < 0 && queue == NULL);
	}
	CHECK(check_no_more_descriptors(before));
}

int main(void)
{
	static void (*const tests[])(unsigned) = {many, at_once, refused_queues, NULL};

	NEED(chmod(".", 0777) == 0);
	return check_each_backend("many_queues", 300, tests);
}
