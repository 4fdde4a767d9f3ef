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

static void one_after_the_other(void *arg)
{
	struct work *work = arg;
	int fd = check_file("many", 8192, 0);
	int direct = check_file("many-direct", 8192, O_DIRECT);
	void *bytes = check_aligned(4096);
	int before;
	int i;

	if (work->ordinary) {
		struct rlimit limit = {64 << 10, 64 << 10};

		if (geteuid() == 0) {
			uid_t user = 20000 + (uid_t)getpid() % 40000;

			NEED(setgroups(0, NULL) == 0 && setgid(user) == 0 && setuid(user) == 0);
		}
		NEED(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	}
	before = check_descriptors();
	for (i = 0; i < work->rounds; i++) {
		struct ringway_options options = check_default_options();
		struct ringway_queue *queue;

		options.flags = i % 3 == 0   ? RINGWAY_EVENTFD
		                : i % 3 == 1 ? RINGWAY_SINGLE_ISSUER
		                             : 0;
		options.entries = 8;
		queue = check_queue(work->backend, options);
		if (queue == NULL)
			break;
		if (i % 5 == 0)
			CHECK(ringway_fd(queue) >= 0);
		SAME(check_run(queue, ringway_prep_nop(NULL, NULL)), 0);
		if (i % 4 == 0) {
			SAME(check_run(queue, ringway_prep_read(fd, bytes, 4096, 0, NULL, NULL)),
			     4096);
			SAME(check_run(queue, ringway_prep_statx(AT_FDCWD, "many", 0, STATX_SIZE,
			                                         bytes, NULL, NULL)),
			     0);
		}
		if (i % 4 == 1 && direct >= 0)
			SAME(check_run(queue,
			               ringway_prep_read(direct, bytes, 4096, 0, NULL, NULL)),
			     4096);
		SAME(ringway_destroy(&queue), 0);
	}
	CHECK(check_no_more_descriptors(before));
	/* Threads that are asked to end may take a moment. */
	for (i = 0; check_own_threads() > 1 && i < 2000; i++)
		usleep(5000);
	SAME(check_own_threads(), 1);
	free(bytes);
	close(fd);
	close(direct);
}

static void at_once(unsigned backend, int count)
{
	struct ringway_queue *queues[40];
	struct ringway_options options = check_default_options();
	int before = check_descriptors();
	int i;

	options.entries = 8;
	for (i = 0; i < count; i++) {
		queues[i] = check_queue(backend, options);
		if (queues[i] != NULL)
			SAME(check_run(queues[i], ringway_prep_nop(NULL, NULL)), 0);
	}
	for (i = 0; i < count; i++) {
		if (queues[i] != NULL)
			SAME(check_run(queues[i], ringway_prep_timeout(1, NULL, NULL)), 0);
		SAME(ringway_destroy(&queues[i]), 0);
	}
	CHECK(check_no_more_descriptors(before));
}

/* Queues that cannot be created leak nothing. */
static void refused_queues(void)
{
	int before = check_descriptors();
	int i;

	for (i = 0; i < 200; i++) {
		struct ringway_options options = check_default_options();
		struct ringway_queue *queue;

		options.backend = RINGWAY_BACKEND_THREADS;
		options.flags = RINGWAY_SQPOLL | RINGWAY_STRICT;
		CHECK(ringway_create(&options, &queue) < 0 && queue == NULL);
		options.flags = 0;
		options.entries = 40000;
		CHECK(ringway_create(&options, &queue) < 0 && queue == NULL);
	}
	CHECK(check_no_more_descriptors(before));
}

int main(void)
{
	unsigned b;

	check_watch("many_queues", 300);
	NEED(chmod(".", 0777) == 0);
	for (b = 0; b < 3; b++) {
		/* Fewer under valgrind, which runs one thread at a time; and on KAIO, where
		   io_destroy(2) waits for a grace period of the kernel. */
		int rounds = getenv("RINGWAY_TEST_BACKENDS") != NULL     ? 100
		             : check_backends[b] == RINGWAY_BACKEND_KAIO ? 200
		                                                         : 1000;
		struct work work = {check_backends[b], rounds, 0};

		if (!check_wanted(work.backend))
			continue;
		SAME(check_child(one_after_the_other, &work), 0);
		work.ordinary = 1;
		work.rounds /= 20;
		SAME(check_child(one_after_the_other, &work), 0);
		at_once(check_backends[b], 40);
	}
	refused_queues();
	return check_end("many_queues");
}
