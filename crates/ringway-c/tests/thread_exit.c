/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Destructors of an ending thread can use and destroy a queue. */
#include "check.h"

#include <pthread.h>

/* POSIX calls them at least this often (PTHREAD_DESTRUCTOR_ITERATIONS). */
#define ROUNDS 4

struct shared {
	unsigned backend;
	uint32_t flags;
	struct ringway_queue *queue;
	int file;
	int rounds;
	uint8_t bytes[2][16];
};

static pthread_key_t key;

static void use(struct shared *shared)
{
	struct ringway_range range = {0, 0, 0, 16, NULL, -1};
	struct ringway_operation operation =
		ringway_prep_read(shared->file, shared->bytes[0], 16, 0, NULL, NULL);

	SAME(check_run(shared->queue, operation), 16);
	range.fd = shared->file;
	range.buf = shared->bytes[1];
	SAME(ringway_multi_read(shared->queue, &range, 1), 0);
	SAME(range.result, 16);
	SAME(ringway_push(shared->queue, NULL), -EINVAL);
	CHECK(ringway_last_error() != NULL);
	SAME(ringway_submit(shared->queue), 0);
	SAME(ringway_cancel(shared->queue, 1), -ENOENT);
}

static void ends(void *arg)
{
	struct shared *shared = arg;
	struct ringway_queue *another;

	if (++shared->rounds < ROUNDS) {
		NEED(pthread_setspecific(key, shared) == 0);
		return;
	}
	use(shared);
	SAME(ringway_destroy(&shared->queue), 0);
	another = check_queue(shared->backend, check_default_options());
	if (CHECK(another != NULL)) {
		shared->queue = another;
		use(shared);
		SAME(ringway_destroy(&shared->queue), 0);
	}
}

static void *thread(void *arg)
{
	struct shared *shared = arg;
	struct ringway_options options = check_default_options();

	options.flags = shared->flags;
	shared->queue = check_queue(shared->backend, options);
	if (shared->queue == NULL)
		return NULL;
	use(shared);
	NEED(pthread_setspecific(key, shared) == 0);
	return NULL;
}

int main(void)
{
	static const uint32_t flags[] = {0, RINGWAY_SINGLE_ISSUER, RINGWAY_EVENTFD};
	size_t i;
	size_t j;

	check_watch("thread_exit", 60);
	NEED(pthread_key_create(&key, ends) == 0);
	for (i = 0; i < sizeof check_backends / sizeof *check_backends; i++) {
		for (j = 0; j < sizeof flags / sizeof *flags; j++) {
			struct shared shared;
			pthread_t id;

			memset(&shared, 0, sizeof shared);
			shared.backend = check_backends[i];
			shared.flags = flags[j];
			shared.file = check_file("thread_exit", 100, 0);
			NEED(pthread_create(&id, NULL, thread, &shared) == 0);
			NEED(pthread_join(id, NULL) == 0);
			CHECK(shared.queue == NULL);
			SAME(shared.rounds, check_wanted(shared.backend) ? ROUNDS : 0);
			close(shared.file);
		}
	}
	return check_end("thread_exit");
}
