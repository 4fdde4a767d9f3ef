/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Compares random operations with cancels, timeouts, chains and faults with a model of the file in
 * memory. Operations in flight use different blocks. After a cancelled write a block may have its
 * old or its new bytes. The test prints its seed; MODEL_SEED in the environment repeats it, and
 * MODEL_ROUNDS sets its length.
 */
#include "check.h"

enum { BLOCK = 4096, BLOCKS = 256, TASKS = 48, MOST = 4 };

struct task {
	int busy;
	int kind; /* 0 read, 1 write, 2 readv, 3 writev */
	int first;
	int count;
	int cancelled;
	int limited;
	int64_t id;
	uint8_t *bytes;
	struct iovec parts[MOST];
};

static uint64_t state;
static uint8_t model[BLOCKS];   /* the bytes of each block */
static uint8_t maybe[BLOCKS];   /* or these, after a cancelled write */
static char taken[BLOCKS];
static struct task tasks[TASKS];
static unsigned counts[4];

static uint32_t below(uint32_t limit)
{
	uint64_t z;

	state += UINT64_C(0x9e3779b97f4a7c15);
	z = (state ^ state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z ^ z >> 31) % limit);
}

static int filled_with(const uint8_t *bytes, uint8_t byte)
{
	int i;

	for (i = 0; i < BLOCK; i++)
		if (bytes[i] != byte)
			return 0;
	return 1;
}

static void release(struct task *task)
{
	memset(taken + task->first, 0, (size_t)task->count);
	task->busy = 0;
}

static void on_completion(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct task *task = done->user_data;
	int i;

	(void)queue;
	CHECK(task->busy);
	SAME(done->id, task->id);
	if (done->result == -ECANCELED || done->result == -ETIMEDOUT) {
		CHECK(done->result == -ECANCELED ? task->cancelled : task->limited);
		/* A cancelled write leaves the old or the new bytes. (If that was so before, it
		   wrote one of the two.) */
		for (i = 0; i < task->count && task->kind % 2 == 1; i++)
			if (model[task->first + i] == maybe[task->first + i])
				maybe[task->first + i] = task->bytes[i * BLOCK];
		counts[2]++;
		release(task);
		return;
	}
	SAME(done->result, task->count * BLOCK);
	counts[task->kind % 2]++;
	for (i = 0; i < task->count; i++) {
		uint8_t *bytes = task->bytes + i * BLOCK;
		int block = task->first + i;

		if (task->kind % 2 == 1) {
			model[block] = maybe[block] = *bytes;
		} else if (model[block] == maybe[block]) {
			if (!CHECK(filled_with(bytes, model[block])))
				printf("block %d\n", block);
		} else {
			/* A cancelled write may be partial: each byte is the old or the new one. */
			int j;

			for (j = 0; j < BLOCK; j++)
				CHECK(bytes[j] == model[block] || bytes[j] == maybe[block]);
		}
	}
	release(task);
}

static int make(struct task *task, int fd, struct ringway_operation *operation)
{
	uint64_t offset;
	int i;

	task->count = 1 + (int)below(MOST);
	task->first = (int)below(BLOCKS - MOST);
	for (i = 0; i < task->count; i++)
		if (taken[task->first + i])
			return 0;
	memset(taken + task->first, 1, (size_t)task->count);
	task->busy = 1;
	task->kind = (int)below(4);
	task->cancelled = 0;
	offset = (uint64_t)task->first * BLOCK;
	for (i = 0; i < task->count; i++) {
		memset(task->bytes + i * BLOCK, (int)below(256), BLOCK);
		task->parts[i].iov_base = task->bytes + i * BLOCK;
		task->parts[i].iov_len = BLOCK;
	}
	/* A block with two possible contents is rewritten with one of them, not a third. */
	for (i = 0; i < task->count; i++)
		if (task->kind % 2 == 1 && model[task->first + i] != maybe[task->first + i])
			memset(task->bytes + i * BLOCK, model[task->first + i], BLOCK);
	if (task->kind < 2) {
		*operation =
			task->kind == 0
		                ? ringway_prep_read(fd, task->bytes, (size_t)task->count * BLOCK,
		                                    offset, on_completion, task)
		                : ringway_prep_write(fd, task->bytes, (size_t)task->count * BLOCK,
		                                     offset, on_completion, task);
	} else {
		*operation = task->kind == 2
		                     ? ringway_prep_readv(fd, task->parts, (size_t)task->count,
		                                          offset, on_completion, task)
		                     : ringway_prep_writev(fd, task->parts, (size_t)task->count,
		                                           offset, on_completion, task);
	}
	operation->flags = RINGWAY_EXACT;
	if (below(20) == 0)
		operation->flags |= RINGWAY_DRAIN;
	task->limited = below(10) == 0;
	if (task->limited)
		operation->timeout_ns = 1 + below(2000000);
	return 1;
}

static void run(unsigned backend, int fd, const char *faults, unsigned rounds)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct ringway_operation operation;
	struct ringway_stats stats;
	unsigned round;
	int i;

	if (fd < 0)
		return;
	options.faults = faults;
	options.entries = 8;
	options.in_flight = 32;
	queue = check_queue(backend, options);
	if (queue == NULL)
		return;
	memset(model, 0, sizeof model);
	memset(maybe, 0, sizeof maybe);
	NEED(ftruncate(fd, 0) == 0 && ftruncate(fd, BLOCKS * BLOCK) == 0);
	for (round = 0; round < rounds; round++) {
		struct task *task = &tasks[below(TASKS)];

		switch (below(10)) {
		case 0:
			if (task->busy) {
				int answer = ringway_cancel(queue, task->id);

				CHECK(answer == 0 || answer == -ENOENT);
				task->cancelled |= answer == 0;
			}
			break;
		case 1:
			CHECK(ringway_submit(queue) >= 0);
			break;
		case 2:
			CHECK(ringway_reap(queue, below(3), RINGWAY_FOREVER) >= 0);
			break;
		case 3:
			if (below(100) == 0) {
				int busy = 0;

				for (i = 0; i < TASKS; i++) {
					tasks[i].cancelled |= tasks[i].busy;
					busy += tasks[i].busy;
				}
				i = ringway_cancel_all(queue);
				CHECK(i >= 0 && i <= busy);
			}
			break;
		default:
			if (!task->busy && make(task, fd, &operation)) {
				task->id = ringway_push(queue, &operation);
				if (task->id == -EAGAIN) {
					release(task);
					CHECK(ringway_reap(queue, 1, RINGWAY_FOREVER) > 0);
				} else if (!CHECK(task->id > 0)) {
					release(task);
				}
			}
		}
		COUNTERS(queue);
	}
	check_drain(queue);
	for (i = 0; i < TASKS; i++)
		CHECK(!tasks[i].busy);
	ringway_get_stats(queue, &stats, sizeof stats);
	SAME(ringway_destroy(&queue), 0);
	/* Compares the file with the model, with plain reads. */
	for (i = 0; i < BLOCKS; i++) {
		uint8_t *bytes = tasks[0].bytes;

		NEED(pread(fd, bytes, BLOCK, (off_t)i * BLOCK) == BLOCK);
		if (model[i] == maybe[i])
			CHECK(filled_with(bytes, model[i]));
	}
	printf("%s%s: %" PRIu64 " operations, %u reads, %u writes, %u cancelled\n",
	       ringway_backend_name(backend), faults != NULL ? " with faults" : "", stats.pushed,
	       counts[0], counts[1], counts[2]);
	CHECK(counts[0] > 0 && counts[1] > 0 && counts[2] > 0);
	memset(counts, 0, sizeof counts);
}

int main(void)
{
	const char *seed = getenv("MODEL_SEED");
	const char *rounds = getenv("MODEL_ROUNDS");
	unsigned many = rounds != NULL                            ? (unsigned)atoi(rounds)
	                : getenv("RINGWAY_TEST_BACKENDS") != NULL ? 3000
	                                                          : 20000;
	int buffered = check_file("model", 0, 0);
	int direct = check_file("model-direct", 0, O_DIRECT);
	unsigned b;
	int i;

	check_watch("model", 280);
	state = seed != NULL ? strtoull(seed, NULL, 0) : 1;
	printf("MODEL_SEED=%" PRIu64 " MODEL_ROUNDS=%u\n", state, many);
	for (i = 0; i < TASKS; i++)
		tasks[i].bytes = check_aligned(MOST * BLOCK);
	for (b = 0; b < 3; b++) {
		const char *faults = "seed=11 short=300 retryable=200 delay=300/4 reorder=500";

		run(check_backends[b], buffered, NULL, many);
		run(check_backends[b], direct, NULL, many);
		run(check_backends[b], buffered, faults, many / 4);
		run(check_backends[b], direct, faults, many / 4);
	}
	for (i = 0; i < TASKS; i++)
		free(tasks[i].bytes);
	close(buffered);
	close(direct);
	return check_end("model");
}
