/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* ringway_multi_read(): each range has the result of a plain read, with other operations in flight
   and under faults. */
#include "check.h"

enum { BLOCK = 4096, BLOCKS = 64, SIZE = BLOCK * BLOCKS };

struct files {
	int buffered;
	int direct;
	int pipes[2];
};

/* Each result must be that of pread(2). */
static void check_ranges(const struct ringway_range *ranges, size_t count, int failed, int returned)
{
	size_t i;
	int bad = 0;

	for (i = 0; i < count; i++) {
		int64_t left = ranges[i].offset < SIZE ? (int64_t)(SIZE - ranges[i].offset) : 0;

		if (ranges[i].result < 0) {
			bad++;
			continue;
		}
		SAME(ranges[i].result,
		     left < (int64_t)ranges[i].length ? left : (int64_t)ranges[i].length);
		CHECK(check_filled(ranges[i].buf, ranges[i].offset, (size_t)ranges[i].result));
	}
	SAME(bad, failed);
	SAME(returned, failed);
}

static void shapes(struct ringway_queue *queue, const struct files *files)
{
	size_t count = 3 * BLOCKS;
	uint8_t *bytes = check_aligned(count * BLOCK);
	struct ringway_range *ranges = calloc(count, sizeof *ranges);
	int fds[2];
	size_t i;
	int f;

	fds[0] = files->buffered;
	fds[1] = files->direct >= 0 ? files->direct : files->buffered;
	/* No ranges. */
	SAME(ringway_multi_read(queue, ranges, 0), 0);
	SAME(ringway_multi_read(queue, NULL, 0), 0);
	for (f = 0; f < 2; f++) {
		uint32_t known =
			fds[f] == files->direct ? RINGWAY_RANGE_DIRECT : RINGWAY_RANGE_BUFFERED;

		/* One range; all blocks backwards; several times more than fit in flight. */
		for (i = 0; i < count; i++) {
			ranges[i] = check_range(fds[f], (BLOCKS - 1 - i % BLOCKS) * BLOCK, BLOCK,
			                  bytes + i * BLOCK);
			ranges[i].flags = i % 2 == 0 ? 0 : known;
		}
		check_ranges(ranges, 1, 0, ringway_multi_read(queue, ranges, 1));
		check_ranges(ranges, BLOCKS, 0, ringway_multi_read(queue, ranges, BLOCKS));
		check_ranges(ranges, count, 0, ringway_multi_read(queue, ranges, count));
		COUNTERS(queue);
		/* The end of the file, beyond it, an empty range, and a long one. */
		ranges[0] = check_range(fds[f], SIZE - BLOCK, 4 * BLOCK, bytes);
		ranges[1] = check_range(fds[f], SIZE, BLOCK, bytes + 4 * BLOCK);
		ranges[2] = check_range(fds[f], (uint64_t)SIZE * 1000, BLOCK, bytes + 5 * BLOCK);
		ranges[3] = check_range(fds[f], 0, 0, bytes + 6 * BLOCK);
		ranges[4] = check_range(fds[f], 0, SIZE, bytes + 8 * BLOCK);
		check_ranges(ranges, 5, 0, ringway_multi_read(queue, ranges, 5));
		ranges[3].buf = NULL;
		SAME(ringway_multi_read(queue, ranges + 3, 1), 0);
		SAME(ranges[3].result, 0);
		/* Overlapping ranges. */
		for (i = 0; i < BLOCKS; i++)
			ranges[i] = check_range(fds[f], i / 4 * BLOCK, 2 * BLOCK,
			                        bytes + 2 * i * BLOCK);
		check_ranges(ranges, BLOCKS, 0, ringway_multi_read(queue, ranges, BLOCKS));
	}
	/* Without direct I/O, any offset and length. */
	for (i = 0; i < 100; i++)
		ranges[i] = check_range(files->buffered, i * 613, 1 + i * 37, bytes + i * BLOCK);
	check_ranges(ranges, 100, 0, ringway_multi_read(queue, ranges, 100));
	/* Bad ranges among good ones. */
	for (i = 0; i < BLOCKS; i++) {
		int fd = i % 8 == 3   ? 1000000
		         : i % 8 == 5 ? -1
		         : i % 8 == 6 ? files->pipes[1]
		                      : fds[i % 2];

		ranges[i] = check_range(fd, i * BLOCK, BLOCK, bytes + i * BLOCK);
	}
	check_ranges(ranges, BLOCKS, BLOCKS / 8 * 3, ringway_multi_read(queue, ranges, BLOCKS));
	for (i = 0; i < BLOCKS; i++)
		if (i % 8 == 3 || i % 8 == 5 || i % 8 == 6)
			SAME(ranges[i].result, -EBADF);
	COUNTERS(queue);
	free(ranges);
	free(bytes);
}

/* The whole call is refused, with no result set. */
static void refused(struct ringway_queue *queue, const struct files *files)
{
	uint8_t bytes[64];
	struct ringway_range ranges[3];
	int i;

#define REFUSE(change)                                               \
	do {                                                         \
		for (i = 0; i < 3; i++)                              \
			ranges[i] = check_range(files->buffered, 0, 64, bytes); \
		change;                                              \
		SAME(ringway_multi_read(queue, ranges, 3), -EINVAL); \
		CHECK(*ringway_last_error() != '\0');                \
		for (i = 0; i < 3; i++)                              \
			SAME(ranges[i].result, INT64_MIN);           \
		COUNTERS(queue);                                        \
	} while (0)
	REFUSE(ranges[1].buf = NULL);
	REFUSE(ranges[2].length = (uint64_t)INT64_MAX + 1);
	REFUSE(ranges[0].flags = 1u << 30);
	SAME(ringway_multi_read(queue, NULL, 3), -EINVAL);
	/* An offset beyond INT64_MAX refuses the call; nothing stays in flight. */
	for (i = 0; i < 3; i++)
		ranges[i] = check_range(files->buffered, 0, 64, bytes);
	ranges[1].offset = (uint64_t)INT64_MAX + 1;
	i = ringway_multi_read(queue, ranges, 3);
	CHECK((i == -EINVAL && ranges[0].result == INT64_MIN) ||
	      (i == 1 && ranges[1].result == -EINVAL && ranges[2].result == 64));
	SAME(ringway_in_flight(queue), 0);
}

/* Completions of other operations stay for the next reap, in every state. */
static void with_other_operations(unsigned backend, const struct files *files)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct answer answers[30];
	struct ringway_operation operation;
	struct ringway_range ranges[100];
	uint8_t *bytes = check_aligned(100 * BLOCK);
	uint8_t byte[10];
	int i;

	options.in_flight = 32;
	queue = check_queue(backend, options);
	if (queue == NULL) {
		free(bytes);
		return;
	}
	memset(answers, 0, sizeof answers);
	for (i = 0; i < 30; i++) {
		if (i < 10)
			operation = ringway_prep_read(files->pipes[0], &byte[i], 1,
			                              RINGWAY_CURRENT_POSITION, check_answer,
			                              &answers[i]);
		else if (i < 20)
			operation = ringway_prep_nop(check_answer, &answers[i]);
		else
			operation =
				ringway_prep_fdatasync(files->buffered, check_answer, &answers[i]);
		CHECK(ringway_push(queue, &operation) > 0);
		if (i == 15)
			CHECK(ringway_submit(queue) >= 0);
	}
	for (i = 0; i < 100; i++)
		ranges[i] = check_range(i % 2 == 0 || files->direct < 0 ? files->buffered
		                                                        : files->direct,
		                        (uint64_t)i % BLOCKS * BLOCK, BLOCK, bytes + i * BLOCK);
	/* Two slots are free. */
	check_ranges(ranges, 100, 0, ringway_multi_read(queue, ranges, 100));
	COUNTERS(queue);
	SAME(ringway_in_flight(queue), 30);
	for (i = 0; i < 30; i++)
		SAME(answers[i].count, 0);
	/* No slot is free. */
	operation = ringway_prep_poll(files->pipes[0], POLLIN, check_answer, &answers[0]);
	CHECK(ringway_push(queue, &operation) > 0);
	CHECK(ringway_push(queue, &operation) > 0);
	ranges[0].fd = files->direct >= 0 ? files->direct : files->buffered;
	i = ringway_multi_read(queue, ranges, 1);
	CHECK(i == -EAGAIN || (files->direct < 0 && i == 0));
	NEED(write(files->pipes[1], "0123456789ab", 12) == 12);
	check_drain(queue);
	SAME(answers[0].count, 3);
	for (i = 1; i < 30; i++) {
		SAME(answers[i].count, 1);
		SAME(answers[i].result, i < 10 ? 1 : 0);
	}
	NEED(read(files->pipes[0], byte, 2) == 2);
	SAME(ringway_destroy(&queue), 0);
	free(bytes);
}

static void under_faults(unsigned backend, const struct files *files, const char *faults,
                         int errors)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct ringway_range ranges[BLOCKS];
	uint8_t *bytes = check_aligned(2 * SIZE);
	struct ringway_stats stats;
	int round;
	int i;

	options.faults = faults;
	queue = check_queue(backend, options);
	if (queue == NULL) {
		free(bytes);
		return;
	}
	for (round = 0; round < 20; round++) {
		int failed = 0;
		int returned;

		for (i = 0; i < BLOCKS; i++)
			ranges[i] =
				check_range(files->direct >= 0 ? files->direct : files->buffered,
				            (uint64_t)i * BLOCK, 2 * BLOCK, bytes + 2 * i * BLOCK);
		memset(bytes, 0xee, 2 * SIZE);
		returned = ringway_multi_read(queue, ranges, BLOCKS);
		for (i = 0; i < BLOCKS; i++)
			failed += ranges[i].result < 0;
		CHECK(errors || failed == 0);
		check_ranges(ranges, BLOCKS, failed, returned);
		COUNTERS(queue);
		SAME(ringway_in_flight(queue), 0);
	}
	ringway_get_stats(queue, &stats, sizeof stats);
	/* Faults do not affect operations that fall back to threads. */
	CHECK(files->direct < 0 || stats.continued > 0 || stats.retries > 0 || errors);
	SAME(ringway_destroy(&queue), 0);
	free(bytes);
}

int main(void)
{
	struct files files;
	unsigned b;

	check_watch("multi_read", 200);
	files.buffered = check_file("ranges", SIZE, 0);
	files.direct = check_file("ranges-direct", SIZE, O_DIRECT);
	NEED(pipe2(files.pipes, O_CLOEXEC) == 0);
	for (b = 0; b < 3; b++) {
		struct ringway_options options = check_default_options();
		struct ringway_queue *queue;
		uint32_t most;

		for (most = 1; most <= 1000; most *= 10) {
			options.in_flight = most;
			options.entries = most < 64 ? most : 64;
			queue = check_queue(check_backends[b], options);
			if (queue == NULL)
				break;
			shapes(queue, &files);
			/* Reads from the device, not from the page cache. */
			NEED(fsync(files.buffered) == 0 &&
			     posix_fadvise(files.buffered, 0, 0, POSIX_FADV_DONTNEED) == 0);
			shapes(queue, &files);
			refused(queue, &files);
			SAME(ringway_destroy(&queue), 0);
		}
		with_other_operations(check_backends[b], &files);
		under_faults(check_backends[b], &files,
		             "seed=1 short=500 retryable=200 delay=200/4 reorder=500", 0);
		under_faults(check_backends[b], &files, "seed=2 short=300 errors=100", 1);
	}
	close(files.buffered);
	close(files.direct);
	close(files.pipes[0]);
	close(files.pipes[1]);
	return check_end("multi_read");
}
