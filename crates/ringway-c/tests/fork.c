/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* valgrind: no, because it reports memory that only the parent's other threads refer to */
/* sanitized: no, because the parent's other threads may hold locks of its allocator during fork */
/* fork() with operations in flight: the child has ECHILD and its own queues, and the parent's
   operations complete normally. Destroying the child's copy closes its descriptors. matrix.c calls
   every function in a child. */
#include "check.h"

struct shared {
	struct ringway_queue *queue;
	unsigned char before[1024]; /* the descriptors that were open before it was created */
	unsigned backend;
	int64_t waiting;
	int fd;
};

static void in_the_child(void *arg)
{
	struct shared *shared = arg;
	struct ringway_queue *queue = shared->queue;
	struct ringway_queue *own;
	struct ringway_operation nop = NOP();
	uint8_t byte[16];
	struct ringway_range range = check_range(shared->fd, 0, 16, byte);
	struct ringway_options options = check_default_options();

	options.attach = queue;
	SAME(ringway_create(&options, &own), -ECHILD);
	CHECK(own == NULL);
	SAME(ringway_push(queue, &nop), -ECHILD);
	CHECK(strstr(ringway_last_error(), "parent") != NULL);
	SAME(ringway_reap(queue, 0, 0), -ECHILD);
	SAME(ringway_cancel(queue, shared->waiting), -ECHILD);
	SAME(ringway_multi_read(queue, &range, 1), -ECHILD);
	SAME(ringway_warm(queue, &range, 1), -ECHILD);
	SAME(range.result, INT64_MIN);
	/* The child's own queue works before and after it destroys its copy of the parent's. */
	own = check_open(shared->backend, 0);
	SAME(check_run(own, READ(shared->fd, byte, 16, 32)), 16);
	CHECK(check_filled(byte, 32, 16));
	SAME(ringway_destroy(&queue), 0);
	CHECK(queue == NULL);
	SAME(ringway_destroy(&queue), 0);
	SAME(check_run(own, READ(shared->fd, byte, 16, 48)), 16);
	SAME(ringway_destroy(&own), 0);
}

static void list_descriptors(unsigned char open[1024])
{
	int fd;

	for (fd = 0; fd < 1024; fd++)
		open[fd] = fcntl(fd, F_GETFD) >= 0;
}

/* A child that keeps none of its parent's queue. */
static void keeps_no_descriptors(void *arg)
{
	struct shared *shared = arg;
	unsigned char now[1024];
	int fd;

	SAME(ringway_destroy(&shared->queue), 0);
	list_descriptors(now);
	/* (Threads of an earlier queue may have closed theirs since.) */
	for (fd = 0; fd < 1024; fd++)
		if (now[fd] && !shared->before[fd])
			SAME(fd, -1);
}

static void leaves(void *arg)
{
	(void)arg;
}

static void run(unsigned backend, uint32_t flags)
{
	struct shared shared = {NULL, {0}, 0, 0, -1};
	struct answer answers[20];
	static uint8_t bytes[20][5000];
	uint8_t byte;
	int pipes[2];
	int round;
	int i;

	shared.backend = backend;
	shared.fd = check_file("fork", 100000, 0);
	check_pipe(pipes);
	list_descriptors(shared.before);
	shared.queue = check_open(backend, flags);
	if (flags & RINGWAY_EVENTFD)
		CHECK(ringway_fd(shared.queue) >= 0);
	for (round = 0; round < 5; round++) {
		memset(answers, 0, sizeof answers);
		shared.waiting =
			check_start(shared.queue, READ(pipes[0], &byte, 1, HERE), &answers[0]);
		check_start(shared.queue, POLL(pipes[0], POLLIN), &answers[1]);
		for (i = 2; i < 20; i++) {
			uint64_t at = (uint64_t)i * 5000;

			check_start(shared.queue, READ(shared.fd, bytes[i], 5000, at),
			            &answers[i]);
			if (i == 10)
				CHECK(ringway_submit(shared.queue) >= 0);
		}
		SAME(check_child(in_the_child, &shared), 0);
		SAME(check_child(keeps_no_descriptors, &shared), 0);
		/* A child that exits without destroying its copy. */
		SAME(check_child(leaves, NULL), 0);
		COUNTERS(shared.queue);
		NEED(write(pipes[1], "xy", 2) == 2);
		check_drain(shared.queue);
		check_answers(answers, 1, 1);
		check_answers(answers + 1, 1, POLLIN);
		check_answers(answers + 2, 18, 5000);
		NEED(read(pipes[0], &byte, 1) == 1);
		for (i = 2; i < 20; i++)
			CHECK(check_filled(bytes[i], (uint64_t)i * 5000, 5000));
	}
	SAME(ringway_destroy(&shared.queue), 0);
	check_close(pipes);
	close(shared.fd);
}

static void forks(unsigned backend)
{
	run(backend, 0);
	run(backend, RINGWAY_EVENTFD);
	run(backend, RINGWAY_SINGLE_ISSUER);
}

int main(void)
{
	static void (*const tests[])(unsigned) = {forks, NULL};

	return check_each_backend("fork", 200, tests);
}
