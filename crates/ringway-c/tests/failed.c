/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* After a backend has failed, every function returns, every operation completes, and every buffer
   is released. */
#include "check.h"

#include <sys/mman.h>
#include <sys/uio.h>

enum { BLOCK = 4096, RANGES = 40 };

/* A failure: a fault plan that limits the number of enters; or, with NULL, a ring that is gone. */
static struct ringway_queue *failing(unsigned backend, const char *faults, uint32_t flags)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;

	options.faults = faults;
	options.flags = flags;
	options.in_flight = 16;
	options.close_wait_ms = 2000;
	queue = check_queue(backend, options);
	NEED(queue != NULL);
	return queue;
}

/* What the kernel has read does not change any more, and the pipe's bytes are still there. */
static void check_released(uint8_t *bytes, int length, const int pipes[2])
{
	uint8_t byte[16];
	int i;

	memset(bytes, 0x55, (size_t)length);
	NEED(write(pipes[1], "kept", 4) == 4);
	usleep(5000);
	for (i = 0; i < length && bytes[i] == 0x55; i++)
		;
	SAME(i, length);
	SAME(read(pipes[0], byte, 16), 4);
}

/* Reads ranges of a file, optionally with a pipe that is never written to among them. */
static void multi_read(unsigned backend, const char *faults, uint32_t flags, int with_pipe)
{
	struct ringway_queue *queue = failing(backend, faults, flags);
	struct ringway_operation nop = NOP();
	struct ringway_range ranges[RANGES];
	struct answer answers[2] = {{0, 0}, {0, 0}};
	uint8_t *bytes = check_aligned(RANGES * BLOCK);
	int file = check_file("failed", RANGES * BLOCK, O_DIRECT);
	uint8_t byte[16];
	int pipes[2];
	int i;

	NEED(pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0);
	if (file < 0)
		file = open("failed", O_RDONLY | O_CLOEXEC);
	check_start(queue, READ(pipes[0], byte, 16, HERE), &answers[0]);
	check_start(queue, TIMEOUT(HOUR), &answers[1]);
	if (faults == NULL) {
		CHECK(ringway_submit(queue) >= 0);
		NEED(check_break_rings() > 0);
	}
	for (i = 0; i < RANGES; i++)
		ranges[i] = check_range(with_pipe && i == 5 ? pipes[0] : file, (uint64_t)i * BLOCK,
		                        BLOCK, bytes + i * BLOCK);
	SAME(ringway_multi_read(queue, ranges, RANGES), -EIO);
	CHECK(*ringway_last_error() != '\0');
	for (i = 0; i < RANGES; i++)
		CHECK(ranges[i].result == -ECANCELED ||
		      (ranges[i].result == BLOCK &&
		       check_filled(ranges[i].buf, ranges[i].offset, BLOCK)));
	check_released(bytes, RANGES * BLOCK, pipes);
	/* The queue that is left. */
	SAME(ringway_push(queue, &nop), -ESHUTDOWN);
	SAME(ringway_push_chain(queue, &nop, 1, NULL), -ESHUTDOWN);
	SAME(ringway_multi_read(queue, ranges, 2), -ESHUTDOWN);
	CHECK(ringway_submit(queue) >= 0);
	SAME(ringway_reap(queue, 2, RINGWAY_FOREVER), 2);
	SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), 0);
	check_answers(answers, 2, -ECANCELED);
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	free(bytes);
	close(file);
	check_close(pipes);
}

/* Warms a file that has to be read: no page of it can be looked at without waiting, since its file
   system does not know RWF_NOWAIT. (Of a file on a disk that answers at once, the look itself may
   bring every page.) */
static void warm(const char *faults, uint32_t flags)
{
	struct ringway_queue *queue = failing(RINGWAY_BACKEND_URING, faults, flags);
	struct ringway_range range;
	int file = memfd_create("failed", MFD_CLOEXEC);
	uint8_t byte[1];
	struct iovec look = {byte, sizeof byte};

	NEED(file >= 0 && ftruncate(file, RANGES * BLOCK) == 0);
	NEED(preadv2(file, &look, 1, 0, RWF_NOWAIT) < 0);
	if (faults == NULL)
		NEED(check_break_rings() > 0);
	range = check_range(file, 0, RANGES * BLOCK, NULL);
	SAME(ringway_warm(queue, &range, 1), -EIO);
	CHECK(*ringway_last_error() != '\0');
	SAME(range.result, -ECANCELED);
	SAME(ringway_warm(queue, &range, 1), -ESHUTDOWN);
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	close(file);
}

/* A failed wait loses nothing, and destroy completes every operation. */
static void destroy(unsigned backend, const char *faults, uint32_t flags)
{
	struct ringway_queue *queue = failing(backend, faults, flags);
	struct answer answers[6];
	struct ringway_operation all[6];
	uint8_t bytes[3][16];
	int pipes[2];
	int i;

	NEED(pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0);
	memset(answers, 0, sizeof answers);
	for (i = 0; i < 6; i++) {
		all[i] = i < 3    ? READ(pipes[0], bytes[i], 16, HERE)
		         : i == 3 ? POLL(pipes[0], POLLIN)
		                  : NOP();
		all[i].callback = check_answer;
		all[i].user_data = &answers[i];
	}
	all[5].flags = RINGWAY_DRAIN;
	check_push(queue, all[0]);
	(void)ringway_submit(queue);
	check_push(queue, all[1]);
	check_push(queue, all[2]);
	CHECK(ringway_push_chain(queue, &all[3], 2, NULL) > 0);
	(void)ringway_submit(queue);
	NEED(faults != NULL || check_break_rings() > 0);
	for (i = 0; i < 4; i++)
		(void)ringway_submit(queue);
	check_push(queue, all[5]);
	CHECK(ringway_reap(queue, 1, RINGWAY_FOREVER) < 0);
	CHECK(*ringway_last_error() != '\0');
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	check_answers(answers, 6, -ECANCELED);
	check_released(bytes[0], sizeof bytes, pipes);
	check_close(pipes);
}

static void every_failure(unsigned backend)
{
	static const uint32_t flags[] = {0, RINGWAY_SINGLE_ISSUER, RINGWAY_EVENTFD};
	static const char *const failures[] = {"enters=0", "enters=1", NULL, "enters=2"};
	int i;

	for (i = 0; i < 12; i++) {
		/* The other backends have no ring. */
		if (failures[i % 4] == NULL && backend != RINGWAY_BACKEND_URING)
			continue;
		multi_read(backend, failures[i % 4], flags[i / 4], 0);
		/* (A wait for only the pipe would not return.) */
		if (i % 4 < 3)
			multi_read(backend, failures[i % 4], flags[i / 4], 1);
		destroy(backend, failures[i % 4], flags[i / 4]);
		if (backend == RINGWAY_BACKEND_URING && i % 4 != 1 && i % 4 != 3)
			warm(failures[i % 4], flags[i / 4]);
	}
}

int main(void)
{
	static void (*const tests[])(unsigned) = {every_failure, NULL};

	return check_each_backend("failed", 200, tests);
}
