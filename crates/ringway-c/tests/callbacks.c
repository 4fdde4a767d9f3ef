/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A callback may push, submit, cancel, query and multi-read; it may not reap or destroy.
   Completions in arrays, timeouts of a reap, and operations without a callback. */
#include "check.h"

struct count {
	int calls;
	int limit;
	int full;
	int64_t waits;
	int fd;
};

/* At least one push succeeds in a callback, even if the queue was full. */
static void push_again(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct count *count = done->user_data;
	struct ringway_operation nop = ringway_prep_nop(push_again, count);

	count->calls++;
	SAME(done->result, 0);
	COUNTERS(queue);
	if (count->calls < count->limit) {
		check_push(queue, nop);
		/* The queue is full again: one operation completed and one was pushed. */
		if (count->full)
			SAME(ringway_push(queue, &nop), -EAGAIN);
	}
}

/* With several completions, each callback finds a free slot. */
static void full_queues(unsigned backend)
{
	struct count count = {0, 1000, 1, 0, -1};
	struct ringway_operation nop = ringway_prep_nop(push_again, &count);
	struct ringway_options options = check_default_options();
	uint32_t i;

	for (options.in_flight = 1; options.in_flight < 8; options.in_flight += 6) {
		struct ringway_queue *queue = check_queue(backend, options);

		count.calls = 0;
		count.full = options.in_flight == 1;
		for (i = 0; i < options.in_flight; i++)
			check_push(queue, nop);
		SAME(ringway_push(queue, &nop), -EAGAIN);
		CHECK(*ringway_last_error() != '\0');
		check_drain(queue);
		CHECK(count.calls >= 1000 && count.calls < 1000 + (int)options.in_flight);
		SAME(ringway_destroy(&queue), 0);
	}
}

/* Of two completions of a reap, the first pushes as much as it can, in this way. */
static void fans_out(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct count *count = done->user_data;
	struct ringway_operation nops[2] = {NOP(), NOP()};

	SAME(ringway_free_slots(queue), 1);
	if (count->calls++ == 0 && count->limit == 0)
		SAME(ringway_push_chain(queue, nops, 2, NULL), -EAGAIN);
	check_push(queue, nops[0]);
	SAME(ringway_push(queue, &nops[0]), -EAGAIN);
	SAME(ringway_free_slots(queue), 0);
	COUNTERS(queue);
}

/* A callback does not take the slot that another one of the same reap needs. */
static void shared_slots(unsigned backend)
{
	struct ringway_options options = check_default_options();
	struct count count = {0, 0, 0, 0, -1};

	options.in_flight = 2;
	for (count.limit = 0; count.limit < 2; count.limit++) {
		struct ringway_queue *queue = check_queue(backend, options);

		count.calls = 0;
		check_push(queue, ringway_prep_nop(fans_out, &count));
		check_push(queue, ringway_prep_nop(fans_out, &count));
		while (ringway_submit(queue) < 2)
			usleep(1000);
		SAME(ringway_reap(queue, 2, RINGWAY_FOREVER), 2);
		SAME(count.calls, 2);
		SAME(ringway_free_slots(queue), 0);
		check_drain(queue);
		SAME(ringway_free_slots(queue), 2);
		SAME(ringway_destroy(&queue), 0);
	}
}

static void forbidden(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct ringway_completion place;
	struct ringway_queue *copy = queue;

	++*(int *)done->user_data;
	SAME(ringway_reap(queue, 0, 0), -EDEADLK);
	SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), -EDEADLK);
	SAME(ringway_reap_into(queue, &place, 1, 0, 0), -EDEADLK);
	SAME(ringway_destroy(&copy), -EDEADLK);
	CHECK(copy == queue && *ringway_last_error() != '\0');
	CHECK(ringway_submit(queue) >= 0);
}

static void cancels(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct count *count = done->user_data;

	count->calls++;
	SAME(ringway_cancel(queue, count->waits), 0);
	SAME(ringway_cancel(queue, done->id), -ENOENT);
}

static void reads_and_queries(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct count *count = done->user_data;
	uint8_t bytes[4][1000];
	struct ringway_range ranges[4];
	char text[100];
	int i;

	count->calls++;
	for (i = 0; i < 4; i++)
		ranges[i] = check_range(count->fd, (uint64_t)i * 3000, 1000, bytes[i]);
	SAME(ringway_multi_read(queue, ranges, 4), 0);
	for (i = 0; i < 4; i++) {
		SAME(ranges[i].result, 1000);
		CHECK(check_filled(bytes[i], (uint64_t)i * 3000, 1000));
	}
	COUNTERS(queue);
	CHECK(ringway_explain(queue, text, sizeof text) > 0);
	CHECK(ringway_free_slots(queue) > 0 && ringway_fd(queue) >= 0);
}

static void from_callbacks(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	struct count count = {0, 0, 0, 0, -1};
	struct answer waits = {0, 0};
	int pipes[2];
	int i;

	count.fd = check_file("callbacks", 20000, 0);
	check_pipe(pipes);
	for (i = 0; i < 20; i++)
		check_push(queue, ringway_prep_nop(forbidden, &count.calls));
	check_drain(queue);
	SAME(count.calls, 20);
	/* Reaping still works afterwards. */
	for (i = 0; i < 20; i++) {
		count.waits = check_start(queue, POLL(pipes[0], POLLIN), &waits);
		if (i % 2 == 0)
			CHECK(ringway_submit(queue) >= 0);
		check_push(queue, ringway_prep_nop(cancels, &count));
		check_drain(queue);
		SAME(waits.count, i + 1);
		SAME(waits.result, -ECANCELED);
	}
	/* Callbacks of other operations are not called inside. */
	waits.count = 0;
	for (i = 0; i < 20; i++) {
		check_start(queue, FSYNC(count.fd), &waits);
		check_push(queue, ringway_prep_nop(reads_and_queries, &count));
	}
	check_drain(queue);
	SAME(waits.count, 20);
	SAME(count.calls, 60);
	/* A completion without a callback is counted and dropped. */
	check_push(queue, NOP());
	SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), 1);
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	check_close(pipes);
	close(count.fd);
}

/* A callback of one queue may drive another queue. */
static void drives_another(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct ringway_queue *other = *(struct ringway_queue **)done->user_data;

	CHECK(queue != other);
	SAME(check_run(other, NOP()), 0);
}

static void two_queues(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	struct ringway_queue *other = check_open(backend, 0);

	check_push(queue, ringway_prep_nop(drives_another, &other));
	check_drain(queue);
	COUNTERS(other);
	SAME(ringway_destroy(&queue), 0);
	SAME(ringway_destroy(&other), 0);
}

/* Completions beyond the array stay for the next call, and both ways of reaping can be mixed. */
static void into_arrays(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	struct ringway_completion done[5];
	struct answer answer = {-1, 0};
	char seen[10] = {0};
	int total = 0;
	int count;
	int i;

	for (i = 0; i < 10; i++)
		check_push(queue, ringway_prep_nop(check_answer, &seen[i]));
	while (ringway_submit(queue) < 10)
		usleep(1000);
	while (total < 10) {
		int room = total < 5 ? 4 : 1;

		memset(done, 0x77, sizeof done);
		count = ringway_reap_into(queue, done, (size_t)room, 100, RINGWAY_FOREVER);
		SAME(count, room < 10 - total ? room : 10 - total);
		SAME(done[count].reserved, 0x77777777);
		for (i = 0; i < count; i++) {
			CHECK(done[i].result == 0 && done[i].opcode == RINGWAY_OP_NOP);
			CHECK(done[i].reserved == 0 && done[i].callback == check_answer);
			++*(char *)done[i].user_data;
		}
		total += count;
		COUNTERS(queue);
	}
	for (i = 0; i < 10; i++)
		SAME(seen[i], 1);
	check_start(queue, NOP(), &answer);
	SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), 1);
	check_answers(&answer, 1, 0);
	SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), 0);
	SAME(ringway_reap_into(queue, done, 4, 1, RINGWAY_FOREVER), 0);
	SAME(ringway_destroy(&queue), 0);
}

/* A timeout, and a reap without waiting. */
static void timeouts(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	struct ringway_completion done[4];
	int64_t id = check_push(queue, TIMEOUT(HOUR));

	SAME(ringway_reap(queue, 1, 0), 0);
	SAME(ringway_reap(queue, 1, 1000000), 0);
	SAME(ringway_reap_into(queue, done, 4, 1, 1000000), 0);
	/* No more is waited for than the array has room for. */
	check_push(queue, NOP());
	SAME(ringway_reap_into(queue, done, 1, 5, RINGWAY_FOREVER), 1);
	SAME(ringway_cancel(queue, id), 0);
	SAME(ringway_reap_into(queue, done, 4, 1, RINGWAY_FOREVER), 1);
	SAME(done[0].id, id);
	SAME(done[0].result, -ECANCELED);
	SAME(ringway_destroy(&queue), 0);
}

/* A descriptor opened without a callback is closed, by a reap and by destroy. */
static void without_callback(unsigned backend)
{
	int before = check_descriptors();
	struct ringway_queue *queue = check_open(backend, 0);
	int first;
	int i;

	close(check_file("without_callback", 10, 0));
	check_push(queue, OPEN("without_callback", O_RDONLY));
	SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), 1);
	first = check_descriptors();
	for (i = 0; i < 20; i++)
		check_push(queue, OPEN("without_callback", O_RDONLY));
	check_drain(queue);
	CHECK(check_no_more_descriptors(first));
	for (i = 0; i < 20; i++)
		check_push(queue, OPEN("without_callback", O_RDONLY));
	CHECK(ringway_submit(queue) >= 0);
	SAME(ringway_destroy(&queue), 0);
	CHECK(check_no_more_descriptors(before));
}

/* open(2) ignores the bits of the file's type in a mode, as in st_mode of the file's model. */
static void mode_with_a_type(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	int64_t fd = check_run(queue, ringway_prep_open(AT_FDCWD, "with_a_type", O_RDWR | O_CREAT,
	                                                S_IFREG | 0600, NULL, NULL));

	CHECK(fd >= 0 || !check_openat2());
	close((int)fd);
	SAME(ringway_destroy(&queue), 0);
}

int main(void)
{
	static void (*const tests[])(unsigned) = {
		mode_with_a_type, full_queues, shared_slots, from_callbacks,
		two_queues,       into_arrays, timeouts,     without_callback,
		NULL};

	return check_each_backend("callbacks", 200, tests);
}
