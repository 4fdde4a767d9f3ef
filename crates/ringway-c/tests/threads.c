/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Several queues used concurrently, each by its thread; a queue used by one thread after another;
   and a queue with RINGWAY_SINGLE_ISSUER, which refuses other threads. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 8, READS = 2000 };

struct worker {
	unsigned backend;
	uint32_t flags;
	int fd;
	int number;
	int wrong;
	int done;
};

struct one {
	struct worker *worker;
	uint64_t at;
	uint8_t bytes[100];
	int busy;
};

/* Does not use CHECK, which is not thread-safe. */
static void on_completion(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct one *one = done->user_data;

	(void)queue;
	one->worker->wrong += done->result != 100 || !check_filled(one->bytes, one->at, 100);
	one->worker->done++;
	one->busy = 0;
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct one ones[16];
	int pushed = 0;
	int i;

	options.backend = worker->backend;
	options.flags = worker->flags;
	if (ringway_create(&options, &queue) != 0) {
		worker->wrong++;
		return NULL;
	}
	memset(ones, 0, sizeof ones);
	while (worker->done < READS) {
		for (i = 0; i < 16 && pushed < READS; i++)
			if (!ones[i].busy) {
				struct ringway_operation operation;

				ones[i].worker = worker;
				ones[i].at = (uint64_t)(pushed * 7 + worker->number) % 60000;
				ones[i].busy = 1;
				operation = ringway_prep_read(worker->fd, ones[i].bytes, 100,
				                              ones[i].at, on_completion, &ones[i]);
				worker->wrong += ringway_push(queue, &operation) <= 0;
				pushed++;
			}
		if (ringway_reap(queue, 1, RINGWAY_FOREVER) <= 0) {
			worker->wrong++;
			break;
		}
		/* Each thread has its own last error. */
		if (ringway_cancel(queue, worker->number + 1) != -ENOENT ||
		    *ringway_last_error() == '\0')
			worker->wrong++;
	}
	worker->wrong += ringway_destroy(&queue) != 0;
	return NULL;
}

static void several_queues(unsigned backend, uint32_t flags, int fd)
{
	pthread_t threads[THREADS];
	struct worker workers[THREADS];
	struct ringway_queue *probe = check_queue(backend, check_default_options());
	int i;

	if (probe == NULL)
		return;
	ringway_destroy(&probe);
	memset(workers, 0, sizeof workers);
	for (i = 0; i < THREADS; i++) {
		workers[i].backend = backend;
		workers[i].flags = flags;
		workers[i].fd = fd;
		workers[i].number = i;
		NEED(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
	}
	for (i = 0; i < THREADS; i++) {
		NEED(pthread_join(threads[i], NULL) == 0);
		SAME(workers[i].wrong, 0);
		SAME(workers[i].done, READS);
	}
}

struct passed {
	struct ringway_queue *queue;
	struct answer answer;
	int fd;
	uint8_t bytes[100];
	int reaped;
	int submitted;
};

/* Operations complete although the thread that pushed them has ended. */
static void *pushes(void *arg)
{
	struct passed *passed = arg;
	struct ringway_operation operation = ringway_prep_read(passed->fd, passed->bytes, 100, 500,
	                                                       check_answer, &passed->answer);
	struct ringway_operation nop = ringway_prep_nop(NULL, NULL);

	passed->reaped = ringway_push(passed->queue, &operation) > 0;
	passed->reaped += ringway_push(passed->queue, &nop) > 0;
	passed->submitted = ringway_submit(passed->queue);
	return NULL;
}

static void moved_between_threads(unsigned backend, int fd)
{
	struct passed passed;
	pthread_t thread;
	int round;

	memset(&passed, 0, sizeof passed);
	passed.queue = check_queue(backend, check_default_options());
	passed.fd = fd;
	if (passed.queue == NULL)
		return;
	for (round = 0; round < 20; round++) {
		passed.answer.count = 0;
		NEED(pthread_create(&thread, NULL, pushes, &passed) == 0 &&
		     pthread_join(thread, NULL) == 0);
		SAME(passed.reaped, 2);
		CHECK(passed.submitted >= 0);
		check_drain(passed.queue);
		SAME(passed.answer.count, 1);
		SAME(passed.answer.result, 100);
		CHECK(check_filled(passed.bytes, 500, 100));
	}
	SAME(ringway_destroy(&passed.queue), 0);
}

static void *uses_from_other_thread(void *arg)
{
	struct passed *passed = arg;

	passed->submitted = ringway_submit(passed->queue);
	passed->reaped = ringway_reap(passed->queue, 1, RINGWAY_FOREVER);
	return NULL;
}

/* ringway.h, RINGWAY_SINGLE_ISSUER: other threads get EEXIST, and nothing is lost. */
static void a_single_issuer(unsigned backend, int fd)
{
	struct ringway_options options = check_default_options();
	struct passed passed;
	pthread_t thread;
	struct ringway_operation operation;

	memset(&passed, 0, sizeof passed);
	options.flags = RINGWAY_SINGLE_ISSUER;
	passed.queue = check_queue(backend, options);
	if (passed.queue == NULL)
		return;
	operation = ringway_prep_read(fd, passed.bytes, 100, 500, check_answer, &passed.answer);
	CHECK(ringway_push(passed.queue, &operation) > 0);
	NEED(pthread_create(&thread, NULL, uses_from_other_thread, &passed) == 0 &&
	     pthread_join(thread, NULL) == 0);
	SAME(passed.submitted, -EEXIST);
	SAME(passed.reaped, -EEXIST);
	check_drain(passed.queue);
	SAME(passed.answer.result, 100);
	SAME(ringway_destroy(&passed.queue), 0);
}

int main(void)
{
	int fd = check_file("threads", 70000, 0);
	unsigned b;

	check_watch("threads", 280);
	for (b = 0; b < 3; b++) {
		several_queues(check_backends[b], 0, fd);
		several_queues(check_backends[b], RINGWAY_SINGLE_ISSUER, fd);
		moved_between_threads(check_backends[b], fd);
		a_single_issuer(check_backends[b], fd);
	}
	close(fd);
	return check_end("threads");
}
