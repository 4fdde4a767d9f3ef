/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* After a backend has failed, every function returns, every operation completes, and every buffer
   is released. */
#include "check.h"

enum { BLOCK = 4096, RANGES = 40 };

/* Replaces the rings of this process by another file, as if a program had closed their descriptors
   by mistake. */
static int break_rings(void)
{
	int found = 0;
	int fd;

	for (fd = 3; fd < 1000; fd++) {
		char path[64];
		char name[64] = "";
		int null;

		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		if (readlink(path, name, sizeof name - 1) < 0 ||
		    strcmp(name, "anon_inode:[io_uring]") != 0)
			continue;
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
		NEED(null >= 0 && dup2(null, fd) == fd && close(null) == 0);
		found++;
	}
	return found;
}

/* The failure: a fault plan that limits the number of enters; or, with NULL, a ring that is
   gone. */
static const char *const failures[] = {"enters=0", "enters=1", NULL, "enters=2"};

/* Reads ranges of a file, optionally with a pipe that is never written to among them. */
static void multi_read(unsigned backend, const char *faults, uint32_t flags, int with_pipe)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct ringway_operation operation;
	struct ringway_range ranges[RANGES];
	struct answer answers[2] = {{0, 0}, {0, 0}};
	uint8_t *bytes = check_aligned(RANGES * BLOCK);
	int file = check_file("failed", RANGES * BLOCK, O_DIRECT);
	uint8_t byte[16];
	int pipes[2];
	int pending = 0;
	int returned;
	int i;

	NEED(pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0);
	if (file < 0)
		file = open("failed", O_RDONLY | O_CLOEXEC);
	options.faults = faults;
	options.flags = flags;
	options.in_flight = 16;
	options.close_wait_ms = 2000;
	queue = check_queue(backend, options);
	if (queue == NULL)
		goto end;
	operation = ringway_prep_read(pipes[0], byte, 16, RINGWAY_CURRENT_POSITION, check_answer,
	                              &answers[0]);
	CHECK(ringway_push(queue, &operation) > 0);
	operation = ringway_prep_timeout(UINT64_C(3600000000000), check_answer, &answers[1]);
	CHECK(ringway_push(queue, &operation) > 0);
	if (faults == NULL) {
		CHECK(ringway_submit(queue) >= 0);
		if (break_rings() == 0)
			goto destroy;
	}
	for (i = 0; i < RANGES; i++)
		ranges[i] = check_range(with_pipe && i == 5 ? pipes[0] : file, (uint64_t)i * BLOCK,
		                        BLOCK, bytes + i * BLOCK);
	returned = ringway_multi_read(queue, ranges, RANGES);
	SAME(returned, -EIO);
	CHECK(*ringway_last_error() != '\0');
	for (i = 0; i < RANGES; i++) {
		pending += ranges[i].result == -EINPROGRESS;
		CHECK(ranges[i].result == -ECANCELED || ranges[i].result == -EINPROGRESS ||
		      (ranges[i].result == BLOCK &&
		       check_filled(ranges[i].buf, ranges[i].offset, BLOCK)));
	}
	SAME(pending, 0);
	/* The buffers can be reused. */
	memset(bytes, 0x55, RANGES * BLOCK);
	NEED(write(pipes[1], "kept", 4) == 4);
	usleep(5000);
	for (i = 0; i < RANGES * BLOCK; i++)
		if (bytes[i] != 0x55)
			break;
	SAME(i, RANGES * BLOCK);
	SAME(read(pipes[0], byte, 16), 4);
	/* The queue that is left. */
	SAME(ringway_push(queue, &operation), -ESHUTDOWN);
	SAME(ringway_push_chain(queue, &operation, 1, NULL), -ESHUTDOWN);
	SAME(ringway_multi_read(queue, ranges, 2), -ESHUTDOWN);
	CHECK(ringway_submit(queue) >= 0);
	SAME(ringway_reap(queue, 2, RINGWAY_FOREVER), 2);
	SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), 0);
	for (i = 0; i < 2; i++) {
		SAME(answers[i].count, 1);
		SAME(answers[i].result, -ECANCELED);
	}
	COUNTERS(queue);
destroy:
	SAME(ringway_destroy(&queue), 0);
end:
	free(bytes);
	close(file);
	close(pipes[0]);
	close(pipes[1]);
}

/* A failed wait loses nothing, and destroy completes every operation. */
static void destroy(unsigned backend, const char *faults, uint32_t flags)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct answer answers[6];
	struct ringway_operation operation;
	struct ringway_operation chain[2];
	uint8_t bytes[3][16];
	int pipes[2];
	int broken;
	int i;

	options.faults = faults;
	options.flags = flags;
	queue = check_queue(backend, options);
	if (queue == NULL)
		return;
	NEED(pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0);
	memset(answers, 0, sizeof answers);
	for (i = 0; i < 3; i++) {
		operation = ringway_prep_read(pipes[0], bytes[i], 16, RINGWAY_CURRENT_POSITION,
		                              check_answer, &answers[i]);
		CHECK(ringway_push(queue, &operation) > 0);
		if (i == 0)
			(void)ringway_submit(queue);
	}
	chain[0] = ringway_prep_poll(pipes[0], POLLIN, check_answer, &answers[3]);
	chain[1] = ringway_prep_nop(check_answer, &answers[4]);
	CHECK(ringway_push_chain(queue, chain, 2, NULL) > 0);
	(void)ringway_submit(queue);
	broken = faults != NULL || break_rings() > 0;
	for (i = 0; i < 4; i++)
		(void)ringway_submit(queue);
	operation = ringway_prep_nop(check_answer, &answers[5]);
	operation.flags = RINGWAY_DRAIN;
	CHECK(ringway_push(queue, &operation) > 0);
	if (broken) {
		CHECK(ringway_reap(queue, 1, RINGWAY_FOREVER) < 0);
		CHECK(*ringway_last_error() != '\0');
	}
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	for (i = 0; i < 6; i++) {
		SAME(answers[i].count, 1);
		SAME(answers[i].result, -ECANCELED);
	}
	memset(bytes, 0x55, sizeof bytes);
	NEED(write(pipes[1], "kept", 4) == 4);
	usleep(5000);
	SAME(read(pipes[0], bytes[0], 16), 4);
	SAME(bytes[1][0], 0x55);
	SAME(bytes[2][0], 0x55);
	close(pipes[0]);
	close(pipes[1]);
}

int main(void)
{
	static const uint32_t flags[] = {0, RINGWAY_SINGLE_ISSUER, RINGWAY_EVENTFD};
	unsigned b;
	unsigned f;
	unsigned i;

	check_watch("failed", 200);
	for (b = 0; b < 3; b++)
		for (f = 0; f < 3; f++)
			for (i = 0; i < sizeof failures / sizeof *failures; i++) {
				multi_read(check_backends[b], failures[i], flags[f], 0);
				/* (A wait for only the pipe would not return.) */
				if (i < 3)
					multi_read(check_backends[b], failures[i], flags[f], 1);
				destroy(check_backends[b], failures[i], flags[f]);
			}
	return check_end("failed");
}
