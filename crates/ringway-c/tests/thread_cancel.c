/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* valgrind: no, because it runs one thread at a time and may not release one that waits in the
 * kernel */
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
	struct ringway_operation operation =
		ringway_prep_read(shared->pipes[0], shared->bytes, 100, RINGWAY_CURRENT_POSITION,
		                  in_a_callback, &shared->answer);
	struct ringway_range range = {0, 0, 0, 100, NULL, INT64_MIN};
	struct ringway_completion done;

	range.fd = shared->pipes[0];
	range.buf = shared->bytes;
	if (shared->how < 3)
		CHECK(ringway_push(shared->queue, &operation) > 0);
	__atomic_store_n(&shared->begun, 1, __ATOMIC_RELEASE);
	switch (shared->how) {
	case 0:
		SAME(ringway_reap(shared->queue, 1, RINGWAY_FOREVER), 1);
		break;
	case 1:
		SAME(ringway_reap(shared->queue, 1, INT64_C(3600000000000)), 1);
		break;
	case 2:
		SAME(ringway_reap_into(shared->queue, &done, 1, 1, RINGWAY_FOREVER), 1);
		shared->answer.count++;
		shared->answer.result = done.result;
		break;
	default:
		SAME(ringway_multi_read(shared->queue, &range, 1), 0);
		shared->answer.count++;
		shared->answer.result = range.result;
		break;
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
	shared->queue = check_queue(backend, check_default_options());
	if (shared->queue == NULL) {
		free(shared);
		return;
	}
	NEED(pipe2(shared->pipes, O_CLOEXEC) == 0);
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
	SAME(shared->answer.count, 1);
	/* (A multi-read completes first.) */
	SAME(shared->answer.result, 100);
	COUNTERS(shared->queue);
	SAME(check_run(shared->queue, ringway_prep_nop(NULL, NULL)), 0);
	SAME(ringway_destroy(&shared->queue), 0);
	close(shared->pipes[0]);
	close(shared->pipes[1]);
	free(shared);
}

int main(void)
{
	unsigned b;
	int how;

	check_watch("thread_cancel", 100);
	for (b = 0; b < 3; b++)
		for (how = 0; how < 4; how++)
			run(check_backends[b], how);
	return check_end("thread_cancel");
}
