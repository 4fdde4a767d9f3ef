/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Registered memory and files: the same bytes with registrations and without, and an explanation if
   they are refused. */
#include "check.h"

enum { BLOCK = 4096, BLOCKS = 16 };

/* Whether a registration succeeded. Backends without a ring must refuse it for that reason. */
static int check_available(struct ringway_queue *queue, int answer)
{
	char text[4096];

	ringway_explain(queue, text, sizeof text);
	if (ringway_get_backend(queue) == RINGWAY_BACKEND_URING) {
		SAME(answer, 0);
		return answer == 0;
	}
	SAME(answer, -EOPNOTSUPP);
	CHECK(*ringway_last_error() != '\0');
	CHECK(strstr(text, "EOPNOTSUPP") != NULL);
	return 0;
}

static void buffers(unsigned backend, int fd)
{
	struct ringway_queue *queue = check_open(backend, 0);
	uint8_t *memory = check_aligned(BLOCKS * BLOCK);
	uint8_t *other = check_aligned(BLOCK);
	struct iovec two[2] = {{memory, BLOCKS * BLOCK}, {other, BLOCK}};
	struct iovec bad[2] = {{other, BLOCK}, {NULL, BLOCK}};
	struct ringway_range range = check_range(fd, BLOCK, BLOCK, memory);
	struct answer answers[BLOCKS];
	int i;

	SAME(ringway_register_buffers(queue, bad, 2), -EINVAL);
	check_available(queue, ringway_register_buffers(queue, two, 2));
	memset(answers, 0, sizeof answers);
	for (i = 0; i < BLOCKS; i++) {
		struct ringway_operation read =
			READ(fd, memory + i * BLOCK, BLOCK, (uint64_t)i * BLOCK);

		read.flags = i % 2 == 1 ? RINGWAY_EXACT : 0;
		check_start(queue, read, &answers[i]);
	}
	check_drain(queue);
	check_answers(answers, BLOCKS, BLOCK);
	CHECK(check_filled(memory, 0, BLOCKS * BLOCK));
	/* A buffer across the end of an element works, for reads and writes. */
	SAME(check_run(queue, READ(fd, other, BLOCK, BLOCK)), BLOCK);
	CHECK(check_filled(other, BLOCK, BLOCK));
	SAME(check_run(queue, WRITE(fd, memory + BLOCK, BLOCK, BLOCK)), BLOCK);
	SAME(check_run(queue, READ(fd, memory, BLOCKS * BLOCK, 0)), BLOCKS * BLOCK);
	CHECK(check_filled(memory, 0, BLOCKS * BLOCK));
	SAME(ringway_multi_read(queue, &range, 1), 0);
	CHECK(range.result == BLOCK && check_filled(memory, BLOCK, BLOCK));
	SAME(ringway_destroy(&queue), 0);
	free(memory);
	free(other);
}

static void in_flight(struct ringway_queue *queue, uint8_t *bytes)
{
	struct answer answer = {0, 0};
	int pipes[2];

	check_pipe(pipes);
	SAME(ringway_register_file(queue, pipes[0]), 0);
	check_start(queue, READ(pipes[0], bytes, 4, HERE), &answer);
	CHECK(ringway_submit(queue) >= 0);
	SAME(ringway_unregister_file(queue, pipes[0]), -EBUSY);
	NEED(write(pipes[1], "text", 4) == 4);
	check_drain(queue);
	check_answers(&answer, 1, 4);
	SAME(ringway_unregister_file(queue, pipes[0]), 0);
	check_close(pipes);
}

/* At most 64 files. The number of a closed descriptor belongs to nobody. */
static void as_many_as_possible(struct ringway_queue *queue, int fd, uint8_t *bytes)
{
	int copies[64];
	int i;

	for (i = 0; i < 64; i++) {
		copies[i] = fcntl(fd, F_DUPFD_CLOEXEC, 300);
		NEED(copies[i] >= 300);
		SAME(ringway_register_file(queue, copies[i]), 0);
	}
	SAME(ringway_register_file(queue, fd), -ENOSPC);
	for (i = 0; i < 64; i++) {
		SAME(check_run(queue, READ(copies[i], bytes, BLOCK, BLOCK)), BLOCK);
		SAME(ringway_unregister_file(queue, copies[i]), 0);
		SAME(close(copies[i]), 0);
		SAME(check_run(queue, READ(copies[i], bytes, BLOCK, BLOCK)), -EBADF);
	}
}

static void files(unsigned backend, int fd)
{
	struct ringway_queue *queue = check_open(backend, 0);
	struct ringway_operation closing = ringway_prep_close(fd, NULL, NULL);
	uint8_t *bytes = check_aligned(BLOCK);
	int can = check_available(queue, ringway_register_file(queue, fd));
	int other;

	SAME(ringway_unregister_file(queue, 1000000), -ENOENT);
	SAME(check_run(queue, READ(fd, bytes, BLOCK, BLOCK)), BLOCK);
	CHECK(check_filled(bytes, BLOCK, BLOCK));
	SAME(check_run(queue, WRITE(fd, bytes, BLOCK, BLOCK)), BLOCK);
	SAME(check_run(queue, FSYNC(fd)), 0);
	SAME(check_run(queue, ringway_prep_fallocate(fd, 0, 0, BLOCK, NULL, NULL)), 0);
	SAME(check_run(queue, POLL(fd, POLLIN)), POLLIN);
	if (can) {
		SAME(ringway_register_file(queue, fd), 0);
		SAME(ringway_register_file(queue, 1000000), -EBADF);
		SAME(ringway_register_file(queue, -1), -EBADF);
		SAME(ringway_push(queue, &closing), -EBUSY);
		SAME(check_run(queue, READ(fd, bytes, BLOCK, BLOCK)), BLOCK);
		SAME(ringway_unregister_file(queue, fd), 0);
		SAME(ringway_unregister_file(queue, fd), -ENOENT);
		in_flight(queue, bytes);
		/* The number of a closed descriptor that now belongs to another file. */
		other = check_file("another", BLOCK, 0);
		SAME(check_run(queue, READ(other, bytes, 10, 100)), 10);
		CHECK(check_filled(bytes, 100, 10));
		close(other);
		as_many_as_possible(queue, fd, bytes);
	}
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	free(bytes);
}

static void registrations(unsigned backend)
{
	int before = check_descriptors();
	int opened[] = {check_file("registered", BLOCKS * BLOCK, 0),
	                check_file("direct", BLOCKS * BLOCK, O_DIRECT)};
	int i;

	for (i = 0; i < 2 && opened[i] >= 0; i++) {
		buffers(backend, opened[i]);
		files(backend, opened[i]);
	}
	check_close(opened);
	CHECK(check_no_more_descriptors(before));
}

int main(void)
{
	static void (*const tests[])(unsigned) = {registrations, NULL};

	return check_each_backend("registered", 100, tests);
}
