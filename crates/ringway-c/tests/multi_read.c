/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* ringway_multi_read(): each range has the result of a plain read, with other operations in flight
   and under faults. */
#include "check.h"

enum { BLOCK = 4096, BLOCKS = 64, SIZE = BLOCK * BLOCKS, MOST = 3 * BLOCKS };

static int buffered, direct, pipes[2];
static struct ringway_range ranges[MOST];
static uint8_t *bytes; /* MOST blocks */

/* Reads the ranges; each result must be that of pread(2). */
static void read_all(struct ringway_queue *queue, size_t count, int failed)
{
	int returned = ringway_multi_read(queue, ranges, count);
	size_t i;
	int bad = 0;

	for (i = 0; i < count; i++) {
		int64_t left = ranges[i].offset < SIZE ? (int64_t)(SIZE - ranges[i].offset) : 0;

		bad += ranges[i].result < 0;
		if (ranges[i].result < 0)
			continue;
		SAME(ranges[i].result,
		     left < (int64_t)ranges[i].length ? left : (int64_t)ranges[i].length);
		CHECK(check_filled(ranges[i].buf, ranges[i].offset, (size_t)ranges[i].result));
	}
	SAME(bad, failed < 0 ? returned : failed);
	SAME(returned, bad);
	COUNTERS(queue);
}

static void shapes_of(struct ringway_queue *queue, int fd)
{
	uint32_t known = fd == direct ? RINGWAY_RANGE_DIRECT : RINGWAY_RANGE_BUFFERED;
	size_t i;

	/* One range; all blocks backwards; several times more than fit in flight. */
	for (i = 0; i < MOST; i++) {
		ranges[i] = check_range(fd, (BLOCKS - 1 - i % BLOCKS) * BLOCK, BLOCK,
		                        bytes + i * BLOCK);
		ranges[i].flags = i % 2 == 0 ? 0 : known;
	}
	read_all(queue, 1, 0);
	read_all(queue, BLOCKS, 0);
	read_all(queue, MOST, 0);
	/* The end of the file, beyond it, an empty range, and a long one. */
	ranges[0] = check_range(fd, SIZE - BLOCK, 4 * BLOCK, bytes);
	ranges[1] = check_range(fd, SIZE, BLOCK, bytes + 4 * BLOCK);
	ranges[2] = check_range(fd, (uint64_t)SIZE * 1000, BLOCK, bytes + 5 * BLOCK);
	ranges[3] = check_range(fd, 0, 0, NULL);
	ranges[4] = check_range(fd, 0, SIZE, bytes + 8 * BLOCK);
	read_all(queue, 5, 0);
	/* Overlapping ranges. */
	for (i = 0; i < BLOCKS; i++)
		ranges[i] = check_range(fd, i / 4 * BLOCK, 2 * BLOCK, bytes + 2 * i * BLOCK);
	read_all(queue, BLOCKS, 0);
}

static void shapes(struct ringway_queue *queue)
{
	size_t i;

	SAME(ringway_multi_read(queue, ranges, 0), 0);
	SAME(ringway_multi_read(queue, NULL, 0), 0);
	shapes_of(queue, buffered);
	if (direct >= 0)
		shapes_of(queue, direct);
	/* Without direct I/O, any offset and length. */
	for (i = 0; i < 100; i++)
		ranges[i] = check_range(buffered, i * 613, 1 + i * 37, bytes + i * BLOCK);
	read_all(queue, 100, 0);
	/* Bad ranges among good ones. */
	for (i = 0; i < BLOCKS; i++)
		ranges[i] = check_range(i % 8 == 3   ? 1000000
		                        : i % 8 == 5 ? -1
		                        : i % 8 == 6 ? pipes[1]
		                        : direct < 0 ? buffered
		                                     : (i % 2 ? direct : buffered),
		                        i * BLOCK, BLOCK, bytes + i * BLOCK);
	read_all(queue, BLOCKS, BLOCKS / 8 * 3);
	for (i = 0; i < BLOCKS; i++)
		SAME(ranges[i].result, i % 8 == 3 || i % 8 == 5 || i % 8 == 6 ? -EBADF : BLOCK);
}

/* The whole call is refused, with no result set. */
static void refused(struct ringway_queue *queue)
{
	int how;
	int i;

	for (how = 0; how < 4; how++) {
		for (i = 0; i < 3; i++)
			ranges[i] = check_range(buffered, 0, 64, bytes);
		if (how == 0)
			ranges[1].buf = NULL;
		else if (how == 1)
			ranges[2].length = (uint64_t)INT64_MAX + 1;
		else if (how == 2)
			ranges[0].flags = 1u << 30;
		else
			ranges[1].offset = (uint64_t)INT64_MAX + 1;
		SAME(ringway_multi_read(queue, ranges, 3), -EINVAL);
		CHECK(*ringway_last_error() != '\0');
		for (i = 0; i < 3; i++)
			SAME(ranges[i].result, INT64_MIN);
		COUNTERS(queue);
	}
	SAME(ringway_multi_read(queue, NULL, 3), -EINVAL);
	SAME(ringway_in_flight(queue), 0);
}

static void few_and_many_in_flight(unsigned backend)
{
	struct ringway_options options = check_default_options();

	for (options.in_flight = 1; options.in_flight <= 1000; options.in_flight *= 10) {
		struct ringway_queue *queue;

		options.entries = options.in_flight < 64 ? options.in_flight : 64;
		queue = check_queue(backend, options);
		NEED(queue != NULL);
		shapes(queue);
		/* Reads from the device, not from the page cache. */
		NEED(fsync(buffered) == 0 &&
		     posix_fadvise(buffered, 0, 0, POSIX_FADV_DONTNEED) == 0);
		shapes(queue);
		refused(queue);
		SAME(ringway_destroy(&queue), 0);
	}
}

/* Completions of other operations stay for the next reap, in every state. */
static void with_other_operations(unsigned backend)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct answer answers[32];
	uint8_t byte[10];
	int i;

	options.in_flight = 32;
	queue = check_queue(backend, options);
	NEED(queue != NULL);
	memset(answers, 0, sizeof answers);
	for (i = 0; i < 30; i++) {
		check_start(queue,
		            i < 10   ? READ(pipes[0], &byte[i], 1, HERE)
		            : i < 20 ? NOP()
		                     : FSYNC(buffered),
		            &answers[i]);
		if (i == 15)
			CHECK(ringway_submit(queue) >= 0);
	}
	for (i = 0; i < 100; i++)
		ranges[i] = check_range(i % 2 == 0 || direct < 0 ? buffered : direct,
		                        (uint64_t)i % BLOCKS * BLOCK, BLOCK, bytes + i * BLOCK);
	/* Two slots are free. */
	read_all(queue, 100, 0);
	SAME(ringway_in_flight(queue), 30);
	for (i = 0; i < 30; i++)
		SAME(answers[i].count, 0);
	/* No slot is free. */
	check_start(queue, POLL(pipes[0], POLLIN), &answers[30]);
	check_start(queue, POLL(pipes[0], POLLIN), &answers[31]);
	ranges[0].fd = direct >= 0 ? direct : buffered;
	i = ringway_multi_read(queue, ranges, 1);
	CHECK(i == -EAGAIN || (direct < 0 && i == 0));
	NEED(write(pipes[1], "0123456789ab", 12) == 12);
	check_drain(queue);
	check_answers(answers, 10, 1);
	check_answers(answers + 10, 20, 0);
	check_answers(answers + 30, 2, POLLIN);
	NEED(read(pipes[0], byte, 2) == 2);
	SAME(ringway_destroy(&queue), 0);
}

static void under_faults(unsigned backend, const char *faults, int errors)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct ringway_stats stats;
	int round;
	size_t i;

	options.faults = faults;
	queue = check_queue(backend, options);
	NEED(queue != NULL);
	for (round = 0; round < 20; round++) {
		for (i = 0; i < BLOCKS; i++)
			ranges[i] = check_range(direct >= 0 ? direct : buffered, i * BLOCK,
			                        2 * BLOCK, bytes + 2 * i * BLOCK);
		memset(bytes, 0xee, 2 * SIZE);
		read_all(queue, BLOCKS, errors ? -1 : 0);
		SAME(ringway_in_flight(queue), 0);
	}
	ringway_get_stats(queue, &stats, sizeof stats);
	/* Faults do not affect operations that fall back to threads. */
	CHECK(direct < 0 || stats.continued > 0 || stats.retries > 0 || errors);
	SAME(ringway_destroy(&queue), 0);
}

static void faults(unsigned backend)
{
	under_faults(backend, "seed=1 short=500 retryable=200 delay=200/4 reorder=500", 0);
	under_faults(backend, "seed=2 short=300 errors=100", 1);
}

int main(void)
{
	static void (*const tests[])(unsigned) = {few_and_many_in_flight, with_other_operations,
	                                          faults, NULL};
	int code;

	buffered = check_file("ranges", SIZE, 0);
	direct = check_file("ranges-direct", SIZE, O_DIRECT);
	bytes = check_aligned(MOST * BLOCK);
	check_pipe(pipes);
	code = check_each_backend("multi_read", 200, tests);
	free(bytes);
	return code;
}
