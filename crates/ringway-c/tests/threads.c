/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Several queues used concurrently, each by its thread; a queue used by one thread after another; a
   queue with RINGWAY_SINGLE_ISSUER, which refuses other threads; and destructors of an ending
   thread, which can use and destroy a queue. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 8, READS = 2000, DEPTH = 16 };

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
	struct ringway_queue *queue = check_open(worker->backend, worker->flags);
	struct one ones[DEPTH];
	int pushed = 0;
	int i;

	memset(ones, 0, sizeof ones);
	while (worker->done < READS) {
		for (i = 0; i < DEPTH && pushed < READS; i++) {
			struct ringway_operation read;

			if (ones[i].busy)
				continue;
			ones[i].worker = worker;
			ones[i].at = (uint64_t)(pushed * 7 + worker->number) % 60000;
			ones[i].busy = 1;
			read = ringway_prep_read(worker->fd, ones[i].bytes, 100, ones[i].at,
			                         on_completion, &ones[i]);
			worker->wrong += ringway_push(queue, &read) <= 0;
			pushed++;
		}
		if (ringway_reap(queue, 1, RINGWAY_FOREVER) <= 0)
			break;
		/* Each thread has its own last error. */
		worker->wrong += ringway_cancel(queue, worker->number + 1) != -ENOENT;
		worker->wrong += *ringway_last_error() == '\0';
	}
	worker->wrong += ringway_destroy(&queue) != 0;
	return NULL;
}

static void several_queues(unsigned backend)
{
	int fd = check_file("threads", 70000, 0);
	pthread_t threads[THREADS];
	struct worker workers[THREADS];
	int i;

	memset(workers, 0, sizeof workers);
	for (i = 0; i < THREADS; i++) {
		workers[i].backend = backend;
		workers[i].flags = i % 2 == 0 ? 0 : RINGWAY_SINGLE_ISSUER;
		workers[i].fd = fd;
		workers[i].number = i;
		NEED(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
	}
	for (i = 0; i < THREADS; i++) {
		NEED(pthread_join(threads[i], NULL) == 0);
		SAME(workers[i].wrong, 0);
		SAME(workers[i].done, READS);
	}
	close(fd);
}

struct passed {
	struct ringway_queue *queue;
	struct answer answer;
	int fd;
	uint8_t bytes[100];
};

static void in_thread(void *(*body)(void *), void *arg)
{
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, body, arg) == 0 && pthread_join(thread, NULL) == 0);
}

/* Operations complete although the thread that pushed them has ended. */
static void *pushes(void *arg)
{
	struct passed *passed = arg;

	check_start(passed->queue, READ(passed->fd, passed->bytes, 100, 500), &passed->answer);
	check_push(passed->queue, NOP());
	CHECK(ringway_submit(passed->queue) >= 0);
	return NULL;
}

static void moved_between_threads(unsigned backend)
{
	struct passed passed;
	int round;

	memset(&passed, 0, sizeof passed);
	passed.queue = check_open(backend, 0);
	passed.fd = check_file("threads", 1000, 0);
	for (round = 0; round < 20; round++) {
		passed.answer.count = 0;
		in_thread(pushes, &passed);
		check_drain(passed.queue);
		check_answers(&passed.answer, 1, 100);
		CHECK(check_filled(passed.bytes, 500, 100));
	}
	SAME(ringway_destroy(&passed.queue), 0);
	close(passed.fd);
}

static void *uses_from_other_thread(void *arg)
{
	struct passed *passed = arg;
	struct ringway_operation nops[2] = {NOP(), NOP()};

	SAME(ringway_submit(passed->queue), -EEXIST);
	SAME(ringway_reap(passed->queue, 1, RINGWAY_FOREVER), -EEXIST);
	SAME(ringway_push(passed->queue, &nops[0]), -EEXIST);
	SAME(ringway_push_chain(passed->queue, nops, 2, NULL), -EEXIST);
	SAME(ringway_in_flight(passed->queue), 1);
	return NULL;
}

/* ringway.h, RINGWAY_SINGLE_ISSUER: other threads get EEXIST, and nothing is lost. */
static void a_single_issuer(unsigned backend)
{
	struct passed passed;

	memset(&passed, 0, sizeof passed);
	passed.queue = check_open(backend, RINGWAY_SINGLE_ISSUER);
	passed.fd = check_file("threads", 1000, 0);
	check_start(passed.queue, READ(passed.fd, passed.bytes, 100, 500), &passed.answer);
	in_thread(uses_from_other_thread, &passed);
	check_drain(passed.queue);
	check_answers(&passed.answer, 1, 100);
	SAME(ringway_destroy(&passed.queue), 0);
	close(passed.fd);
}

/* ---- Destructors of an ending thread ---- */

/* POSIX calls them at least this often (PTHREAD_DESTRUCTOR_ITERATIONS). */
#define ROUNDS 4

struct ending {
	unsigned backend;
	uint32_t flags;
	struct ringway_queue *queue;
	int file;
	int rounds;
	uint8_t bytes[2][16];
};

static pthread_key_t key;

static void use(struct ending *ending)
{
	struct ringway_range range = check_range(ending->file, 0, 16, ending->bytes[1]);

	SAME(check_run(ending->queue, READ(ending->file, ending->bytes[0], 16, 0)), 16);
	SAME(ringway_multi_read(ending->queue, &range, 1), 0);
	SAME(range.result, 16);
	SAME(ringway_push(ending->queue, NULL), -EINVAL);
	CHECK(ringway_last_error() != NULL);
	SAME(ringway_submit(ending->queue), 0);
	SAME(ringway_cancel(ending->queue, 1), -ENOENT);
}

static void ends(void *arg)
{
	struct ending *ending = arg;
	int i;

	if (++ending->rounds < ROUNDS) {
		NEED(pthread_setspecific(key, ending) == 0);
		return;
	}
	for (i = 0; i < 2; i++) {
		if (i == 1)
			ending->queue = check_open(ending->backend, 0);
		use(ending);
		SAME(ringway_destroy(&ending->queue), 0);
	}
}

static void *ending_thread(void *arg)
{
	struct ending *ending = arg;

	ending->queue = check_open(ending->backend, ending->flags);
	use(ending);
	NEED(pthread_setspecific(key, ending) == 0);
	return NULL;
}

static void destructors(unsigned backend)
{
	static const uint32_t flags[] = {0, RINGWAY_SINGLE_ISSUER, RINGWAY_EVENTFD};
	size_t i;

	NEED(pthread_key_create(&key, ends) == 0);
	for (i = 0; i < sizeof flags / sizeof *flags; i++) {
		struct ending ending;

		memset(&ending, 0, sizeof ending);
		ending.backend = backend;
		ending.flags = flags[i];
		ending.file = check_file("ending", 100, 0);
		in_thread(ending_thread, &ending);
		CHECK(ending.queue == NULL);
		SAME(ending.rounds, ROUNDS);
		close(ending.file);
	}
	NEED(pthread_key_delete(key) == 0);
}

int main(void)
{
	static void (*const tests[])(unsigned) = {several_queues, moved_between_threads,
	                                          a_single_issuer, destructors, NULL};

	return check_each_backend("threads", 280, tests);
}
