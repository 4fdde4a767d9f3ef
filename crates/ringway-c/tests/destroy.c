/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* ringway_destroy() is idempotent, bounded in time, calls back every operation in flight, and
   closes all descriptors. */
#include "check.h"

#include <pthread.h>
#include <time.h>

static int pushes_refused;
static struct ringway_queue *destroyed; /* the program's pointer */

static void on_destroy(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct ringway_operation nop = NOP();
	uint8_t byte;
	struct ringway_range range = check_range(0, 0, 1, &byte);

	check_answer(queue, done);
	CHECK(destroyed == NULL);
	pushes_refused += ringway_push(queue, &nop) == -ESHUTDOWN;
	SAME(ringway_multi_read(queue, &range, 1), -ESHUTDOWN);
	SAME(range.result, INT64_MIN);
	SAME(ringway_destroy(&queue), -EDEADLK);
	CHECK(queue != NULL);
	COUNTERS(queue);
}

/* Operations that can be cancelled are, and every callback is called once. */
static void with_operations_in_flight(unsigned backend, int submit, uint32_t flags)
{
	struct ringway_queue *queue = check_open(backend, flags);
	struct answer answers[8];
	struct ringway_operation all[8];
	uint8_t bytes[3][16];
	struct iovec part = {bytes[2], 16};
	int pipes[2];
	int i;

	check_pipe(pipes);
	memset(answers, 0, sizeof answers);
	pushes_refused = 0;
	all[0] = READ(pipes[0], bytes[0], 16, HERE);
	all[1] = READ(pipes[0], bytes[1], 16, HERE);
	all[2] = READV(pipes[0], &part, 1, HERE);
	all[3] = POLL(pipes[0], POLLIN);
	all[4] = TIMEOUT(HOUR);
	all[5] = POLL(pipes[0], POLLIN);
	all[6] = NOP();
	all[7] = NOP();
	all[7].flags = RINGWAY_DRAIN;
	for (i = 0; i < 8; i++) {
		all[i].callback = on_destroy;
		all[i].user_data = &answers[i];
	}
	for (i = 0; i < 8; i++) {
		if (i == 5)
			CHECK(ringway_push_chain(queue, &all[5], 2, NULL) > 0);
		else if (i != 6)
			check_push(queue, all[i]);
	}
	if (submit)
		CHECK(ringway_submit(queue) >= 0);
	COUNTERS(queue);
	destroyed = queue;
	SAME(ringway_destroy(&destroyed), 0);
	CHECK(destroyed == NULL);
	check_answers(answers, 8, -ECANCELED);
	SAME(pushes_refused, 8);
	SAME(ringway_destroy(&destroyed), 0);
	/* No operation has read from the pipe, or does so now. */
	NEED(write(pipes[1], "kept", 4) == 4);
	NEED(read(pipes[0], bytes[0], 16) == 4);
	check_close(pipes);
}

static void in_flight(unsigned backend)
{
	int round;

	for (round = 0; round < 5; round++) {
		with_operations_in_flight(backend, 0, 0);
		with_operations_in_flight(backend, 1, 0);
		with_operations_in_flight(backend, 1, RINGWAY_EVENTFD | RINGWAY_SINGLE_ISSUER);
	}
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
	struct ringway_queue *queue = check_open(foreign->backend, foreign->flags);
	int in = foreign->pipes[0];

	foreign->queue = queue;
	/* Operations that complete, some of them linked, and operations that wait. */
	check_start(queue, NOP(), &foreign->answers[0]);
	check_start(queue, READ(foreign->file, foreign->bytes[0], 16, 0), &foreign->answers[1]);
	check_start(queue, FSYNC(foreign->file), &foreign->answers[2]);
	check_start(queue, READ(in, foreign->bytes[3], 16, HERE), &foreign->answers[3]);
	check_start(queue, READ(in, foreign->bytes[4], 16, HERE), &foreign->answers[4]);
	check_start(queue, POLL(in, POLLIN), &foreign->answers[5]);
	check_start(queue, TIMEOUT(HOUR), &foreign->answers[6]);
	if (foreign->submit) {
		CHECK(ringway_submit(queue) >= 0);
		/* Waits until those that can complete have, without reaping them. */
		usleep(20000);
		while (foreign->submit > 1 && ringway_submit(queue) < 3)
			usleep(1000);
	}
	/* Never submitted. */
	check_start(queue, WRITE(foreign->pipes[1], "never", 5, HERE), &foreign->answers[7]);
	return NULL;
}

/* The main thread destroys the queue of a thread that has ended. */
static void from_another_thread(unsigned backend, uint32_t flags, int submit)
{
	struct foreign foreign;
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
	if (flags & RINGWAY_SINGLE_ISSUER) {
		SAME(ringway_submit(foreign.queue), -EEXIST);
		SAME(ringway_reap(foreign.queue, 0, 0), -EEXIST);
	} else {
		check_push(foreign.queue, NOP());
	}
	SAME(ringway_destroy(&foreign.queue), 0);
	for (i = 0; i < 8; i++) {
		int64_t result = foreign.answers[i].result;

		SAME(foreign.answers[i].count, 1);
		CHECK((result == -ECANCELED && (submit < 2 || i > 2)) ||
		      (i < 3 && result == (i == 1 ? 16 : 0)));
	}
	/* No operation has used the pipe or will do so, so the buffers can be reused. */
	memset(foreign.bytes, 0x55, sizeof foreign.bytes);
	NEED(write(foreign.pipes[1], "kept", 4) == 4);
	usleep(5000);
	SAME(read(foreign.pipes[0], bytes, 16), 4);
	SAME(foreign.bytes[3][0], 0x55);
	SAME(foreign.bytes[4][0], 0x55);
	check_close(foreign.pipes);
	close(foreign.file);
}

static void other_threads(unsigned backend)
{
	static const uint32_t flags[] = {0, RINGWAY_SINGLE_ISSUER,
	                                 RINGWAY_SINGLE_ISSUER | RINGWAY_EVENTFD,
	                                 RINGWAY_SINGLE_ISSUER | RINGWAY_SQPOLL};
	int i;

	for (i = 0; i < 12; i++)
		from_another_thread(backend, flags[i % 4], i / 4);
}

/* Completions that are ready but not delivered. */
static void with_completions(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	struct answer answers[4];
	int i;

	memset(answers, 0, sizeof answers);
	for (i = 0; i < 4; i++)
		check_start(queue, NOP(), &answers[i]);
	check_push(queue, NOP());
	while (ringway_submit(queue) < 5)
		usleep(1000);
	SAME(ringway_destroy(&queue), 0);
	check_answers(answers, 4, 0);
}

/* Every descriptor that a cancelled open still opens reaches its callback. */
static void with_opens(unsigned backend)
{
	int before = check_descriptors();
	struct ringway_queue *queue = check_open(backend, 0);
	struct answer answers[50];
	int i;

	close(check_file("opened", 10, 0));
	memset(answers, 0, sizeof answers);
	for (i = 0; i < 50; i++) {
		check_start(queue, OPEN("opened", O_RDONLY), &answers[i]);
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
static void closes_its_descriptors(unsigned backend)
{
	struct ringway_queue *queue;
	struct answer answer;
	int file = check_file("synced", 10, 0);
	int pipes[2];
	int before;
	int round;

	check_pipe(pipes);
	before = check_descriptors();
	/* The threads of the queue may end later, so one round may not show it. */
	for (round = 0; round < 80; round++) {
		queue = check_open(backend, round & 4 ? RINGWAY_INTERRUPTIBLE : 0);
		memset(&answer, 0, sizeof answer);
		if (round & 2)
			CHECK(ringway_fd(queue) >= 0);
		SAME(check_run(queue, FSYNC(file)), 0);
		if (round & 1) {
			check_start(queue, POLL(pipes[0], POLLIN), &answer);
			CHECK(ringway_submit(queue) >= 0);
		}
		SAME(ringway_destroy(&queue), 0);
		SAME(check_descriptors(), before);
	}
	check_close(pipes);
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

/* The operation is an open that waits for the other end of a FIFO. */
static void bounded_wait(void *arg)
{
	const struct wait *wait = arg;
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct answer answers[2] = {{0, 0}, {0, 0}};
	struct ringway_completion none;
	int64_t took;
	int left;
	int fd;

	options.flags = wait->flags;
	options.close_wait_ms = wait->close_wait_ms;
	queue = check_queue(wait->backend, options);
	NEED(queue != NULL);
	unlink("fifo");
	NEED(mkfifo("fifo", 0600) == 0);
	check_start(queue, OPEN("fifo", O_WRONLY), &answers[0]);
	check_start(queue, TIMEOUT(HOUR), &answers[1]);
	/* Waits until the open blocks. */
	SAME(ringway_reap_into(queue, &none, 1, 1, 20000000), 0);
	took = now_ms();
	left = ringway_destroy(&queue);
	took = now_ms() - took;
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

static void bounded_waits(unsigned backend)
{
	/* 0 is the default of five seconds. */
	struct wait waits[] = {{0, 0, 50, 50, 4500},
	                       {0, RINGWAY_NO_CLOSE_WAIT, 0, 0, 4500},
	                       {0, 0, 0, 5000, 20000}};
	int i;

	/* In a child, because the memory of such an operation is never freed. */
	for (i = 0; check_openat2() && i < 3; i++) {
		waits[i].backend = backend;
		SAME(check_child(bounded_wait, &waits[i]), 0);
	}
}

int main(void)
{
	static void (*const tests[])(unsigned) = {
		in_flight,  other_threads,          with_completions,
		with_opens, closes_its_descriptors, bounded_waits,    NULL};

	return check_each_backend("destroy", 200, tests);
}
