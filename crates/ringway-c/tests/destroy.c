/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* ringway_destroy() is idempotent, bounded in time, calls back every operation in flight, and
   closes all descriptors. */
#include "check.h"

#include <time.h>

#include <pthread.h>

static int pushes_refused;

static void on_destroy(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct answer *answer = done->user_data;
	struct ringway_operation nop = ringway_prep_nop(NULL, NULL);
	uint8_t byte;
	struct ringway_range range = {0, 0, 0, 1, NULL, 77};

	range.buf = &byte;
	answer->count++;
	answer->result = done->result;
	pushes_refused += ringway_push(queue, &nop) == -ESHUTDOWN;
	SAME(ringway_push_chain(queue, &nop, 1, NULL), -ESHUTDOWN);
	SAME(ringway_multi_read(queue, &range, 1), -ESHUTDOWN);
	SAME(range.result, 77);
	SAME(ringway_reap(queue, 0, 0), -EDEADLK);
	SAME(ringway_destroy(&queue), -EDEADLK);
	CHECK(queue != NULL);
	COUNTERS(queue);
}

/* Operations that can be cancelled are, and every callback is called once. */
static void with_operations_in_flight(unsigned backend, int submit, uint32_t flags)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct answer answers[9];
	struct ringway_operation operation;
	struct ringway_operation chain[2];
	uint8_t bytes[4][16];
	struct iovec part = {bytes[3], 16};
	int pipes[2];
	int file = check_file("destroy", 100, 0);
	int i;

	options.flags = flags;
	queue = check_queue(backend, options);
	if (queue == NULL) {
		close(file);
		return;
	}
	NEED(pipe2(pipes, O_CLOEXEC) == 0);
	memset(answers, 0, sizeof answers);
	pushes_refused = 0;
	for (i = 0; i < 3; i++) {
		operation = ringway_prep_read(pipes[0], bytes[i], 16, RINGWAY_CURRENT_POSITION,
		                              on_destroy, &answers[i]);
		CHECK(ringway_push(queue, &operation) > 0);
	}
	operation = ringway_prep_readv(pipes[0], &part, 1, RINGWAY_CURRENT_POSITION, on_destroy,
	                               &answers[3]);
	CHECK(ringway_push(queue, &operation) > 0);
	operation = ringway_prep_poll(pipes[0], POLLIN, on_destroy, &answers[4]);
	CHECK(ringway_push(queue, &operation) > 0);
	operation = ringway_prep_timeout(UINT64_C(3600000000000), on_destroy, &answers[5]);
	CHECK(ringway_push(queue, &operation) > 0);
	chain[0] = ringway_prep_poll(pipes[0], POLLIN, on_destroy, &answers[6]);
	chain[1] = ringway_prep_nop(on_destroy, &answers[7]);
	CHECK(ringway_push_chain(queue, chain, 2, NULL) > 0);
	operation = ringway_prep_nop(on_destroy, &answers[8]);
	operation.flags = RINGWAY_DRAIN;
	CHECK(ringway_push(queue, &operation) > 0);
	if (submit)
		CHECK(ringway_submit(queue) >= 0);
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	CHECK(queue == NULL);
	for (i = 0; i < 9; i++) {
		SAME(answers[i].count, 1);
		SAME(answers[i].result, -ECANCELED);
	}
	SAME(pushes_refused, 9);
	SAME(ringway_destroy(&queue), 0);
	/* No operation has read from the pipe, or does so now. */
	NEED(write(pipes[1], "kept", 4) == 4);
	NEED(read(pipes[0], bytes[0], 16) == 4);
	close(pipes[0]);
	close(pipes[1]);
	close(file);
}

struct foreign {
	unsigned backend;
	uint32_t flags;
	int submit;
	int pipes[2];
	int file;
	struct ringway_queue *queue;
	struct answer answers[8];
	uint8_t bytes[5][16];
};

/* A thread that creates a queue, leaves operations in every state on it, and ends. */
static void *worker(void *arg)
{
	struct foreign *foreign = arg;
	struct ringway_options options = check_default_options();
	struct ringway_operation operation;
	int i;

	options.flags = foreign->flags;
	foreign->queue = check_queue(foreign->backend, options);
	if (foreign->queue == NULL)
		return NULL;
	/* Operations that complete, some of them linked, and operations that wait. */
	operation = ringway_prep_nop(check_answer, &foreign->answers[0]);
	CHECK(ringway_push(foreign->queue, &operation) > 0);
	operation = ringway_prep_read(foreign->file, foreign->bytes[0], 16, 0, check_answer,
	                              &foreign->answers[1]);
	CHECK(ringway_push(foreign->queue, &operation) > 0);
	operation = ringway_prep_fdatasync(foreign->file, check_answer, &foreign->answers[2]);
	CHECK(ringway_push(foreign->queue, &operation) > 0);
	for (i = 3; i < 5; i++) {
		operation = ringway_prep_read(foreign->pipes[0], foreign->bytes[i], 16,
		                              RINGWAY_CURRENT_POSITION, check_answer,
		                              &foreign->answers[i]);
		CHECK(ringway_push(foreign->queue, &operation) > 0);
	}
	operation =
		ringway_prep_poll(foreign->pipes[0], POLLIN, check_answer, &foreign->answers[5]);
	CHECK(ringway_push(foreign->queue, &operation) > 0);
	operation =
		ringway_prep_timeout(UINT64_C(3600000000000), check_answer, &foreign->answers[6]);
	CHECK(ringway_push(foreign->queue, &operation) > 0);
	if (foreign->submit) {
		CHECK(ringway_submit(foreign->queue) >= 0);
		/* Waits until those that can complete have, without reaping them. */
		usleep(20000);
		while (foreign->submit > 1 && ringway_submit(foreign->queue) < 3)
			usleep(1000);
	}
	/* Never submitted. */
	operation = ringway_prep_write(foreign->pipes[1], "never", 5, RINGWAY_CURRENT_POSITION,
	                               check_answer, &foreign->answers[7]);
	CHECK(ringway_push(foreign->queue, &operation) > 0);
	return NULL;
}

/* The main thread destroys the queue of a thread that has ended. */
static void from_another_thread(unsigned backend, uint32_t flags, int submit)
{
	struct foreign foreign;
	struct ringway_operation nop = ringway_prep_nop(NULL, NULL);
	pthread_t thread;
	uint8_t bytes[16];
	int i;

	memset(&foreign, 0, sizeof foreign);
	foreign.backend = backend;
	foreign.flags = flags;
	foreign.submit = submit;
	foreign.file = check_file("foreign", 100, 0);
	NEED(pipe2(foreign.pipes, O_CLOEXEC | O_NONBLOCK) == 0);
	NEED(pthread_create(&thread, NULL, worker, &foreign) == 0);
	NEED(pthread_join(thread, NULL) == 0);
	if (foreign.queue != NULL) {
		if (flags & RINGWAY_SINGLE_ISSUER) {
			SAME(ringway_submit(foreign.queue), -EEXIST);
			SAME(ringway_reap(foreign.queue, 0, 0), -EEXIST);
		}
		CHECK(ringway_push(foreign.queue, &nop) > 0);
		SAME(ringway_destroy(&foreign.queue), 0);
		CHECK(foreign.queue == NULL);
		for (i = 0; i < 8; i++) {
			int64_t result = foreign.answers[i].result;

			SAME(foreign.answers[i].count, 1);
			CHECK(result == -ECANCELED || (i < 3 && result == (i == 1 ? 16 : 0)));
			if (submit > 1 && i < 3)
				SAME(result, i == 1 ? 16 : 0);
		}
		/* No operation has used the pipe or will do so, so the buffers can be reused. */
		memset(foreign.bytes, 0x55, sizeof foreign.bytes);
		NEED(write(foreign.pipes[1], "kept", 4) == 4);
		usleep(5000);
		SAME(read(foreign.pipes[0], bytes, 16), 4);
		SAME(foreign.bytes[3][0], 0x55);
		SAME(foreign.bytes[4][0], 0x55);
	}
	close(foreign.pipes[0]);
	close(foreign.pipes[1]);
	close(foreign.file);
}

/* Completions that are ready but not delivered. */
static void with_completions(unsigned backend)
{
	struct ringway_queue *queue = check_queue(backend, check_default_options());
	struct answer answers[5];
	int i;

	if (queue == NULL)
		return;
	memset(answers, 0, sizeof answers);
	for (i = 0; i < 5; i++) {
		struct ringway_operation operation =
			ringway_prep_nop(i == 3 ? NULL : check_answer, &answers[i]);

		CHECK(ringway_push(queue, &operation) > 0);
	}
	while (ringway_submit(queue) < 5)
		usleep(1000);
	SAME(ringway_destroy(&queue), 0);
	for (i = 0; i < 5; i++)
		SAME(answers[i].count, i != 3);
}

/* Many operations that wait, on few threads. */
static void with_many_waits(unsigned backend)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct answer answer = {0, 0};
	int pipes[2];
	uint8_t bytes[200];
	int i;

	options.threads = 2;
	options.entries = 4;
	queue = check_queue(backend, options);
	if (queue == NULL)
		return;
	NEED(pipe2(pipes, O_CLOEXEC) == 0);
	for (i = 0; i < 200; i++) {
		struct ringway_operation operation = ringway_prep_read(
			pipes[0], &bytes[i], 1, RINGWAY_CURRENT_POSITION, check_answer, &answer);

		CHECK(ringway_push(queue, &operation) > 0);
	}
	CHECK(ringway_submit(queue) >= 0);
	SAME(ringway_destroy(&queue), 0);
	SAME(answer.count, 200);
	close(pipes[0]);
	close(pipes[1]);
}

/* Every descriptor that a cancelled open still opens reaches its callback. */
static void with_opens(unsigned backend)
{
	struct ringway_queue *queue;
	struct answer answers[50];
	int before = check_descriptors();
	int i;

	close(check_file("opened", 10, 0));
	queue = check_queue(backend, check_default_options());
	if (queue == NULL)
		return;
	memset(answers, 0, sizeof answers);
	for (i = 0; i < 50; i++) {
		struct ringway_operation operation = ringway_prep_open(
			AT_FDCWD, "opened", O_RDONLY, 0, check_answer, &answers[i]);

		CHECK(ringway_push(queue, &operation) > 0);
		if (i == 25)
			CHECK(ringway_submit(queue) >= 0);
	}
	SAME(ringway_destroy(&queue), 0);
	for (i = 0; i < 50; i++) {
		SAME(answers[i].count, 1);
		CHECK(answers[i].result >= 0 || answers[i].result == -ECANCELED ||
		      !check_openat2());
		if (answers[i].result >= 0)
			SAME(close((int)answers[i].result), 0);
	}
	CHECK(check_no_more_descriptors(before));
}

/* No descriptor of the queue outlives it: neither the polled one, nor those that wake threads. */
static void closes_its_descriptors(unsigned backend, uint32_t flags, int polled)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct ringway_operation operation;
	struct answer answers[2];
	int file = check_file("synced", 10, 0);
	int pipes[2];
	int before;
	int round;

	options.flags = flags;
	NEED(pipe2(pipes, O_CLOEXEC) == 0);
	before = check_descriptors();
	/* The threads of the queue may end later, so one round may not show it. */
	for (round = 0; round < 20; round++) {
		queue = check_queue(backend, options);
		if (queue == NULL)
			break;
		memset(answers, 0, sizeof answers);
		if (polled)
			CHECK(ringway_fd(queue) >= 0);
		operation = ringway_prep_fsync(file, check_answer, &answers[0]);
		CHECK(ringway_push(queue, &operation) > 0);
		CHECK(ringway_submit(queue) >= 0);
		while (answers[0].count == 0)
			CHECK(ringway_reap(queue, 1, RINGWAY_FOREVER) >= 0);
		if (round & 1) {
			operation = ringway_prep_poll(pipes[0], POLLIN, check_answer, &answers[1]);
			CHECK(ringway_push(queue, &operation) > 0);
			CHECK(ringway_submit(queue) >= 0);
		}
		SAME(ringway_destroy(&queue), 0);
		SAME(check_descriptors(), before);
	}
	close(pipes[0]);
	close(pipes[1]);
	close(file);
}

/* A wait for an operation that cannot be cancelled, in milliseconds. */
struct wait {
	unsigned backend;
	uint32_t flags;
	uint32_t close_wait_ms;
	int64_t least, most;
};

static int64_t now_ms(void)
{
	struct timespec now;

	NEED(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The wait for an operation that cannot be cancelled takes as long as the options say. The
   operation is an open that waits for the other end of a FIFO. */
static void bounded_wait(void *arg)
{
	const struct wait *wait = arg;
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct answer answers[2] = {{0, 0}, {0, 0}};
	struct ringway_operation operation;
	struct ringway_completion none;
	int64_t took;
	int left;
	int fd;

	options.flags = wait->flags;
	options.close_wait_ms = wait->close_wait_ms;
	queue = check_queue(wait->backend, options);
	if (queue == NULL)
		return;
	unlink("fifo");
	NEED(mkfifo("fifo", 0600) == 0);
	operation = ringway_prep_open(AT_FDCWD, "fifo", O_WRONLY, 0, check_answer, &answers[0]);
	CHECK(ringway_push(queue, &operation) > 0);
	operation = ringway_prep_timeout(UINT64_C(3600000000000), check_answer, &answers[1]);
	CHECK(ringway_push(queue, &operation) > 0);
	/* Waits until the open blocks. */
	SAME(ringway_reap_into(queue, &none, 1, 1, 20000000), 0);
	took = now_ms();
	left = ringway_destroy(&queue);
	took = now_ms() - took;
	CHECK(queue == NULL);
	/* Without a wait, the timeout may not have been reaped either. */
	CHECK(left >= 0 && left <= (wait->flags & RINGWAY_NO_CLOSE_WAIT ? 2 : 1));
	SAME(answers[0].count + answers[1].count, 2 - left);
	CHECK(answers[1].count == 0 || answers[1].result == -ECANCELED);
	if (!CHECK(took < wait->most && (left == 0 || took >= wait->least)))
		printf("destroy took %" PRId64 " ms\n", took);
	/* Releases the open. */
	fd = open("fifo", O_RDONLY | O_NONBLOCK);
	CHECK(fd >= 0);
	usleep(10000);
	close(fd);
}

int main(void)
{
	unsigned b;
	int round;

	check_watch("destroy", 200);
	for (b = 0; b < 3; b++) {
		for (round = 0; round < 5; round++) {
			with_operations_in_flight(check_backends[b], 0, 0);
			with_operations_in_flight(check_backends[b], 1, 0);
			with_operations_in_flight(check_backends[b], 1,
			                          RINGWAY_EVENTFD | RINGWAY_SINGLE_ISSUER);
		}
		for (round = 0; round < 3; round++) {
			from_another_thread(check_backends[b], RINGWAY_SINGLE_ISSUER, round);
			from_another_thread(check_backends[b],
			                    RINGWAY_SINGLE_ISSUER | RINGWAY_EVENTFD, round);
			from_another_thread(check_backends[b],
			                    RINGWAY_SINGLE_ISSUER | RINGWAY_SQPOLL, round);
			from_another_thread(check_backends[b], 0, round);
		}
		with_completions(check_backends[b]);
		with_many_waits(check_backends[b]);
		with_opens(check_backends[b]);
		for (round = 0; round < 4; round++)
			closes_its_descriptors(check_backends[b],
			                       round & 1 ? RINGWAY_INTERRUPTIBLE : 0, round & 2);
		if (check_openat2()) {
			struct wait waits[] = {
				{check_backends[b], 0, 50, 50, 2000},
				{check_backends[b], RINGWAY_NO_CLOSE_WAIT, 0, 0, 2000},
				/* 0 is the default of five seconds. */
				{check_backends[b], 0, 0, 5000, 20000},
			};

			/* In a child, because the memory of such an operation is never freed. */
			for (round = 0; round < 3; round++)
				SAME(check_child(bounded_wait, &waits[round]), 0);
		}
	}
	return check_end("destroy");
}
