/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* valgrind: no, because it reports memory that only the parent's other threads refer to */
/* sanitized: no, because the parent's other threads may hold locks of its allocator during fork */
/* fork() with operations in flight: every function in the child fails with ECHILD, and the parent's
   operations complete normally. Destroying the child's copy closes its descriptors. */
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
	struct ringway_operation nop = ringway_prep_nop(NULL, NULL);
	struct ringway_completion done;
	struct ringway_stats stats;
	uint8_t byte[16];
	struct iovec memory = {byte, sizeof byte};
	struct ringway_range range = {0, 0, 0, 16, NULL, 77};
	struct ringway_options options = check_default_options();
	char text[100];

	range.buf = byte;
	range.fd = shared->fd;
	options.attach = queue;
	SAME(ringway_create(&options, &own), -ECHILD);
	CHECK(own == NULL);
	SAME(ringway_push(queue, &nop), -ECHILD);
	CHECK(strstr(ringway_last_error(), "parent") != NULL);
	SAME(ringway_push_chain(queue, &nop, 1, NULL), -ECHILD);
	SAME(ringway_submit(queue), -ECHILD);
	SAME(ringway_reap(queue, 0, 0), -ECHILD);
	SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), -ECHILD);
	SAME(ringway_reap_into(queue, &done, 1, 1, RINGWAY_FOREVER), -ECHILD);
	SAME(ringway_cancel(queue, shared->waiting), -ECHILD);
	SAME(ringway_cancel_all(queue), -ECHILD);
	SAME(ringway_multi_read(queue, &range, 1), -ECHILD);
	SAME(range.result, 77);
	SAME(ringway_fd(queue), -ECHILD);
	SAME(ringway_register_buffers(queue, &memory, 1), -ECHILD);
	SAME(ringway_register_file(queue, shared->fd), -ECHILD);
	SAME(ringway_unregister_file(queue, shared->fd), -ECHILD);
	/* Functions that only read work. */
	ringway_get_stats(queue, &stats, sizeof stats);
	CHECK(ringway_explain(queue, text, sizeof text) > 0);
	SAME(ringway_get_backend(queue), shared->backend);
	/* The child's own queue works before and after it destroys its copy of the parent's. */
	own = check_queue(shared->backend, check_default_options());
	if (own != NULL) {
		SAME(check_run(own, ringway_prep_nop(NULL, NULL)), 0);
		SAME(check_run(own, ringway_prep_read(shared->fd, byte, 16, 32, NULL, NULL)), 16);
		CHECK(check_filled(byte, 32, 16));
	}
	SAME(ringway_destroy(&queue), 0);
	CHECK(queue == NULL);
	SAME(ringway_destroy(&queue), 0);
	if (own != NULL)
		SAME(check_run(own, ringway_prep_read(shared->fd, byte, 16, 48, NULL, NULL)), 16);
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
	struct ringway_options options = check_default_options();
	struct answer answers[20];
	struct ringway_operation operation;
	uint8_t *bytes[20];
	uint8_t byte;
	int pipes[2];
	int round;
	int i;

	options.flags = flags;
	shared.backend = backend;
	shared.fd = check_file("fork", 100000, 0);
	NEED(pipe2(pipes, O_CLOEXEC) == 0);
	list_descriptors(shared.before);
	shared.queue = check_queue(backend, options);
	if (shared.queue == NULL) {
		close(pipes[0]);
		close(pipes[1]);
		close(shared.fd);
		return;
	}
	if (flags & RINGWAY_EVENTFD)
		CHECK(ringway_fd(shared.queue) >= 0);
	for (round = 0; round < 5; round++) {
		memset(answers, 0, sizeof answers);
		operation = ringway_prep_read(pipes[0], &byte, 1, RINGWAY_CURRENT_POSITION,
		                              check_answer, &answers[0]);
		shared.waiting = ringway_push(shared.queue, &operation);
		CHECK(shared.waiting > 0);
		operation = ringway_prep_poll(pipes[0], POLLIN, check_answer, &answers[1]);
		CHECK(ringway_push(shared.queue, &operation) > 0);
		for (i = 2; i < 20; i++) {
			bytes[i] = malloc(5000);
			operation = ringway_prep_read(shared.fd, bytes[i], 5000, (uint64_t)i * 5000,
			                              check_answer, &answers[i]);
			CHECK(ringway_push(shared.queue, &operation) > 0);
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
		SAME(answers[0].result, 1);
		SAME(answers[1].result, POLLIN);
		NEED(read(pipes[0], &byte, 1) == 1);
		for (i = 2; i < 20; i++) {
			SAME(answers[i].count, 1);
			SAME(answers[i].result, 5000);
			CHECK(check_filled(bytes[i], (uint64_t)i * 5000, 5000));
			free(bytes[i]);
		}
	}
	SAME(ringway_destroy(&shared.queue), 0);
	close(pipes[0]);
	close(pipes[1]);
	close(shared.fd);
}

int main(void)
{
	unsigned b;

	check_watch("fork", 200);
	for (b = 0; b < 3; b++) {
		run(check_backends[b], 0);
		run(check_backends[b], RINGWAY_EVENTFD);
		run(check_backends[b], RINGWAY_SINGLE_ISSUER);
	}
	return check_end("fork");
}
