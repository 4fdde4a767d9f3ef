/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A callback may push, submit, cancel, query and multi-read; it may not reap or destroy. */
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

	count->calls++;
	SAME(done->result, 0);
	COUNTERS(queue);
	if (count->calls < count->limit) {
		struct ringway_operation nop = ringway_prep_nop(push_again, count);

		CHECK(ringway_push(queue, &nop) > 0);
		/* The queue is full again: one operation completed and one was pushed. */
		if (count->full)
			SAME(ringway_push(queue, &nop), -EAGAIN);
	}
}

static void full_queues(unsigned backend)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct ringway_operation nop;
	struct count count = {0, 1000, 1, 0, -1};
	int i;

	options.in_flight = 1;
	queue = check_queue(backend, options);
	if (queue == NULL)
		return;
	nop = ringway_prep_nop(push_again, &count);
	CHECK(ringway_push(queue, &nop) > 0);
	SAME(ringway_push(queue, &nop), -EAGAIN);
	CHECK(*ringway_last_error() != '\0');
	check_drain(queue);
	SAME(count.calls, 1000);
	SAME(ringway_destroy(&queue), 0);
	/* With several completions, each callback finds a free slot. */
	options.in_flight = 7;
	queue = check_queue(backend, options);
	if (queue == NULL)
		return;
	count.calls = 0;
	count.full = 0;
	for (i = 0; i < 7; i++)
		CHECK(ringway_push(queue, &nop) > 0);
	SAME(ringway_push(queue, &nop), -EAGAIN);
	check_drain(queue);
	CHECK(count.calls >= 1000 && count.calls < 1007);
	SAME(ringway_destroy(&queue), 0);
}

static void forbidden(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct count *count = done->user_data;
	struct ringway_completion place;
	struct ringway_queue *copy = queue;

	count->calls++;
	SAME(ringway_reap(queue, 0, 0), -EDEADLK);
	SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), -EDEADLK);
	SAME(ringway_reap_into(queue, &place, 1, 0, 0), -EDEADLK);
	SAME(ringway_destroy(&copy), -EDEADLK);
	CHECK(copy == queue);
	CHECK(*ringway_last_error() != '\0');
	CHECK(ringway_submit(queue) >= 0);
}

static void cancels(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct count *count = done->user_data;

	count->calls++;
	SAME(ringway_cancel(queue, count->waits), 0);
	SAME(ringway_cancel(queue, done->id), -ENOENT);
}

static void reads_many(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct count *count = done->user_data;
	uint8_t bytes[4][1000];
	struct ringway_range ranges[4];
	int i;

	count->calls++;
	for (i = 0; i < 4; i++) {
		struct ringway_range range = {count->fd, 0, (uint64_t)i * 3000, 1000, bytes[i], -1};

		ranges[i] = range;
	}
	SAME(ringway_multi_read(queue, ranges, 4), 0);
	for (i = 0; i < 4; i++) {
		SAME(ranges[i].result, 1000);
		CHECK(check_filled(bytes[i], (uint64_t)i * 3000, 1000));
	}
}

static void queries(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct count *count = done->user_data;
	char text[100];

	count->calls++;
	COUNTERS(queue);
	CHECK(ringway_explain(queue, text, sizeof text) > 0);
	CHECK(ringway_free_slots(queue) > 0);
	CHECK(ringway_fd(queue) >= 0);
	CHECK(ringway_backend_name(ringway_get_backend(queue)) != NULL);
}

static void from_callbacks(unsigned backend)
{
	struct ringway_queue *queue = check_queue(backend, check_default_options());
	struct count count = {0, 0, 0, 0, -1};
	struct answer waits = {0, 0};
	struct ringway_operation operation;
	int pipes[2];
	int i;

	if (queue == NULL)
		return;
	count.fd = check_file("callbacks", 20000, 0);
	NEED(pipe2(pipes, O_CLOEXEC) == 0);
	for (i = 0; i < 20; i++) {
		operation = ringway_prep_nop(forbidden, &count);
		CHECK(ringway_push(queue, &operation) > 0);
	}
	check_drain(queue);
	SAME(count.calls, 20);
	/* Reaping still works afterwards. */
	for (i = 0; i < 20; i++) {
		operation = ringway_prep_poll(pipes[0], POLLIN, check_answer, &waits);
		count.waits = ringway_push(queue, &operation);
		CHECK(count.waits > 0);
		if (i % 2 == 0)
			CHECK(ringway_submit(queue) >= 0);
		operation = ringway_prep_nop(cancels, &count);
		CHECK(ringway_push(queue, &operation) > 0);
		check_drain(queue);
		SAME(waits.count, i + 1);
		SAME(waits.result, -ECANCELED);
	}
	/* Callbacks of other operations are not called inside. */
	waits.count = 0;
	for (i = 0; i < 20; i++) {
		operation = ringway_prep_fdatasync(count.fd, check_answer, &waits);
		CHECK(ringway_push(queue, &operation) > 0);
		operation = ringway_prep_nop(i % 2 == 0 ? reads_many : queries, &count);
		CHECK(ringway_push(queue, &operation) > 0);
	}
	check_drain(queue);
	SAME(waits.count, 20);
	SAME(count.calls, 60);
	/* A completion without a callback is counted and dropped. */
	operation = ringway_prep_nop(NULL, NULL);
	CHECK(ringway_push(queue, &operation) > 0);
	SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), 1);
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	close(pipes[0]);
	close(pipes[1]);
	close(count.fd);
}

/* A callback of one queue may drive another queue. */
static void drives_another(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct ringway_queue *other = *(struct ringway_queue **)done->user_data;

	CHECK(queue != other);
	SAME(check_run(other, ringway_prep_nop(NULL, NULL)), 0);
}

static void two_queues(unsigned backend)
{
	struct ringway_queue *queue = check_queue(backend, check_default_options());
	struct ringway_queue *other = check_queue(backend, check_default_options());
	struct ringway_operation operation = ringway_prep_nop(drives_another, &other);

	if (queue != NULL && other != NULL) {
		CHECK(ringway_push(queue, &operation) > 0);
		check_drain(queue);
		COUNTERS(other);
	}
	SAME(ringway_destroy(&queue), 0);
	SAME(ringway_destroy(&other), 0);
}

/* Completions beyond the array stay for the next call, and both ways of reaping can be mixed. */
static void into_arrays(unsigned backend)
{
	struct ringway_queue *queue = check_queue(backend, check_default_options());
	struct ringway_completion done[4];
	struct answer answer = {-1, 0};
	char seen[10] = {0};
	int total = 0;
	int i;

	if (queue == NULL)
		return;
	for (i = 0; i < 10; i++) {
		struct ringway_operation operation = ringway_prep_nop(check_answer, &answer);

		operation.user_data = &seen[i];
		if (i == 9)
			operation.user_data = &answer;
		CHECK(ringway_push(queue, &operation) > 0);
	}
	while (total < 9) {
		int count = ringway_reap_into(queue, done, total < 5 ? 4 : 1, 100, RINGWAY_FOREVER);

		if (!CHECK(count > 0 && count <= 4))
			break;
		total += count;
		for (i = 0; i < count; i++) {
			SAME(done[i].result, 0);
			SAME(done[i].opcode, RINGWAY_OP_NOP);
			SAME(done[i].reserved, 0);
			CHECK(done[i].callback == check_answer);
			if (done[i].user_data != &answer)
				++*(char *)done[i].user_data;
			else
				total--, answer.count = 1;
		}
		COUNTERS(queue);
	}
	if (answer.count == 0)
		SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), 1);
	SAME(answer.count, 1);
	for (i = 0; i < 9; i++)
		SAME(seen[i], 1);
	SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), 0);
	SAME(ringway_reap_into(queue, done, 4, 1, RINGWAY_FOREVER), 0);
	/* A timeout, and a reap without waiting. */
	{
		struct ringway_operation operation =
			ringway_prep_timeout(UINT64_C(60000000000), check_answer, &answer);
		int64_t id = ringway_push(queue, &operation);

		SAME(ringway_reap(queue, 1, 0), 0);
		SAME(ringway_reap(queue, 1, 1000000), 0);
		SAME(ringway_reap_into(queue, done, 4, 1, 1000000), 0);
		SAME(ringway_cancel(queue, id), 0);
		SAME(ringway_reap_into(queue, done, 4, 1, RINGWAY_FOREVER), 1);
		SAME(done[0].id, id);
		SAME(done[0].result, -ECANCELED);
	}
	SAME(ringway_destroy(&queue), 0);
}

/* A descriptor opened without a callback is closed, by a reap and by destroy. */
static void without_callback(unsigned backend)
{
	struct ringway_queue *queue;
	struct ringway_operation operation;
	int before = check_descriptors();
	int first;
	int i;

	close(check_file("without_callback", 10, 0));
	queue = check_queue(backend, check_default_options());
	if (queue == NULL)
		return;
	operation = ringway_prep_open(AT_FDCWD, "without_callback", O_RDONLY, 0, NULL, NULL);
	CHECK(ringway_push(queue, &operation) > 0);
	SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), 1);
	first = check_descriptors();
	for (i = 0; i < 20; i++)
		CHECK(ringway_push(queue, &operation) > 0);
	check_drain(queue);
	CHECK(check_no_more_descriptors(first));
	for (i = 0; i < 20; i++)
		CHECK(ringway_push(queue, &operation) > 0);
	CHECK(ringway_submit(queue) >= 0);
	SAME(ringway_destroy(&queue), 0);
	CHECK(check_no_more_descriptors(before));
}

/* open(2) ignores the bits of the file's type in a mode, as in st_mode of the file's model. */
static void mode_with_a_type(unsigned backend)
{
	struct ringway_queue *queue = check_queue(backend, check_default_options());
	struct ringway_operation operation = ringway_prep_open(
		AT_FDCWD, "with_a_type", O_RDWR | O_CREAT, S_IFREG | 0600, NULL, NULL);
	struct ringway_completion done;

	if (queue == NULL)
		return;
	CHECK(ringway_push(queue, &operation) > 0);
	SAME(ringway_reap_into(queue, &done, 1, 1, RINGWAY_FOREVER), 1);
	CHECK(done.result >= 0);
	close((int)done.result);
	SAME(ringway_destroy(&queue), 0);
}

int main(void)
{
	unsigned b;

	check_watch("callbacks", 200);
	for (b = 0; b < 3; b++) {
		mode_with_a_type(check_backends[b]);
		full_queues(check_backends[b]);
		from_callbacks(check_backends[b]);
		two_queues(check_backends[b]);
		into_arrays(check_backends[b]);
		without_callback(check_backends[b]);
	}
	return check_end("callbacks");
}
