/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* valgrind: no, because it runs one thread at a time and may not release one in the kernel */
/* pthread_cancel() of a thread inside the library takes effect after the function has returned, and
   the queue still works. */
#include "check.h"

#include <pthread.h>

struct shared {
	struct ringway_queue *queue;
	int pipes[2];
	int how;
	int begun;
	struct answer answer;
	uint8_t bytes[4096];
	int returned;
};

static void in_a_callback(struct ringway_queue *queue, const struct ringway_completion *done)
{
	check_answer(queue, done);
	/* A cancellation point inside a callback. */
	pthread_testcancel();
	usleep(1000);
}

static void *waits(void *arg)
{
	struct shared *shared = arg;
	struct ringway_range range = check_range(shared->pipes[0], 0, 100, shared->bytes);
	struct ringway_completion done;

	if (shared->how < 3)
		check_push(shared->queue, ringway_prep_read(shared->pipes[0], shared->bytes, 100,
		                                            HERE, in_a_callback, &shared->answer));
	__atomic_store_n(&shared->begun, 1, __ATOMIC_RELEASE);
	if (shared->how < 2) {
		int64_t timeout = shared->how ? (int64_t)HOUR : RINGWAY_FOREVER;

		SAME(ringway_reap(shared->queue, 1, timeout), 1);
	} else {
		if (shared->how == 2)
			SAME(ringway_reap_into(shared->queue, &done, 1, 1, RINGWAY_FOREVER), 1);
		else
			SAME(ringway_multi_read(shared->queue, &range, 1), 0);
		shared->answer.count++;
		shared->answer.result = shared->how == 2 ? done.result : range.result;
	}
	__atomic_store_n(&shared->returned, 1, __ATOMIC_RELEASE);
	pthread_testcancel();
	CHECK(!"a cancelled thread goes on");
	return NULL;
}

static void run(unsigned backend, int how)
{
	static const char text[100] = "late";
	struct shared *shared = calloc(1, sizeof *shared);
	pthread_t thread;
	void *result = NULL;

	NEED(shared != NULL);
	shared->how = how;
	shared->queue = check_open(backend, 0);
	check_pipe(shared->pipes);
	NEED(pthread_create(&thread, NULL, waits, shared) == 0);
	while (!__atomic_load_n(&shared->begun, __ATOMIC_ACQUIRE))
		usleep(1000);
	usleep(20000); /* until it waits */
	SAME(pthread_cancel(thread), 0);
	usleep(20000);
	SAME(__atomic_load_n(&shared->returned, __ATOMIC_ACQUIRE), 0);
	NEED(write(shared->pipes[1], text, sizeof text) == sizeof text);
	NEED(pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED);
	SAME(shared->returned, 1);
	check_answers(&shared->answer, 1, 100);
	COUNTERS(shared->queue);
	SAME(check_run(shared->queue, NOP()), 0);
	SAME(ringway_destroy(&shared->queue), 0);
	check_close(shared->pipes);
	free(shared);
}

static void every_wait(unsigned backend)
{
	int how;

	for (how = 0; how < 4; how++)
		run(backend, how);
}

struct pushed {
	unsigned backend;
	struct ringway_queue *queue;
	struct ringway_operation operation;
	int64_t id;
};

static void *pushes(void *arg)
{
	struct pushed *pushed = arg;

	NEED(pthread_cancel(pthread_self()) == 0);
	pushed->id = ringway_push(pushed->queue, &pushed->operation);
	pthread_testcancel();
	CHECK(!"a cancelled thread goes on");
	return NULL;
}

/* The first direct transfer of a process is pushed by a thread that is cancelled. */
static void push_once(void *arg)
{
	struct pushed *pushed = arg;
	struct ringway_completion done;
	pthread_t thread;
	void *result = NULL;

	pushed->queue = check_open(pushed->backend, 0);
	NEED(pthread_create(&thread, NULL, pushes, pushed) == 0);
	NEED(pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED);
	CHECK(pushed->id > 0);
	SAME(ringway_reap_into(pushed->queue, &done, 1, 1, RINGWAY_FOREVER), 1);
	SAME(done.id, pushed->id);
	SAME(ringway_destroy(&pushed->queue), 0);
}

/* What the library knows of a device's driver it keeps, so each push has a process of its own. */
static void first_pushes(unsigned backend)
{
	int fd = check_file("pushed", 65536, O_DIRECT);
	struct pushed pushed = {.backend = backend};
	uint8_t *memory;
	int i;

	if (fd < 0) {
		check_skip("no direct I/O here", 0);
		return;
	}
	NEED(posix_memalign((void **)&memory, 4096, 16384) == 0);
	memset(memory, 0, 16384);
	for (i = 0; i < 4; i++) {
		/* At a page, and beside one. */
		uint8_t *buf = memory + (i < 2 ? 512 : 0);

		pushed.operation = i % 2 == 0 ? READ(fd, buf, 4096, 0) : WRITE(fd, buf, 4096, 0);
		SAME(check_child(push_once, &pushed), 0);
	}
	free(memory);
	close(fd);
}

int main(void)
{
	static void (*const tests[])(unsigned) = {first_pushes, every_wait, NULL};

	return check_each_backend("thread_cancel", 100, tests);
}
