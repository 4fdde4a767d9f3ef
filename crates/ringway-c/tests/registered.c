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

static void buffers(struct ringway_queue *queue, int fd)
{
	uint8_t *memory = check_aligned(BLOCKS * BLOCK);
	uint8_t *other = check_aligned(BLOCK);
	struct iovec two[2] = {{memory, BLOCKS * BLOCK}, {other, BLOCK}};
	struct iovec bad[2] = {{other, BLOCK}, {NULL, BLOCK}};
	struct answer answers[BLOCKS];
	int i;
	int round;

	if (fd < 0) {
		free(memory);
		free(other);
		return;
	}
	SAME(ringway_register_buffers(queue, bad, 2), -EINVAL);
	check_available(queue, ringway_register_buffers(queue, two, 2));
	for (round = 0; round < 3; round++) {
		memset(memory, 0xee, BLOCKS * BLOCK);
		memset(answers, 0, sizeof answers);
		for (i = 0; i < BLOCKS; i++) {
			struct ringway_operation operation =
				ringway_prep_read(fd, memory + i * BLOCK, BLOCK,
				                  (uint64_t)i * BLOCK, check_answer, &answers[i]);

			operation.flags = round == 1 ? RINGWAY_EXACT : 0;
			CHECK(ringway_push(queue, &operation) > 0);
		}
		check_drain(queue);
		for (i = 0; i < BLOCKS; i++)
			SAME(answers[i].result, BLOCK);
		CHECK(check_filled(memory, 0, BLOCKS * BLOCK));
	}
	/* A buffer across the end of an element works, for reads and writes. */
	SAME(check_run(queue, ringway_prep_read(fd, other, BLOCK, BLOCK, NULL, NULL)), BLOCK);
	CHECK(check_filled(other, BLOCK, BLOCK));
	SAME(check_run(queue, ringway_prep_write(fd, memory + BLOCK, BLOCK, BLOCK, NULL, NULL)),
	     BLOCK);
	SAME(check_run(queue, ringway_prep_read(fd, memory, BLOCKS * BLOCK, 0, NULL, NULL)),
	     BLOCKS * BLOCK);
	CHECK(check_filled(memory, 0, BLOCKS * BLOCK));
	{
		struct ringway_range range = {fd, 0, BLOCK, BLOCK, memory, -1};

		SAME(ringway_multi_read(queue, &range, 1), 0);
		SAME(range.result, BLOCK);
		CHECK(check_filled(memory, BLOCK, BLOCK));
	}
	SAME(ringway_destroy(&queue), 0);
	free(memory);
	free(other);
}

static void files(struct ringway_queue *queue, int fd)
{
	uint8_t *bytes = check_aligned(BLOCK);
	int pipes[2];
	struct answer answer = {0, 0};
	int can = check_available(queue, ringway_register_file(queue, fd));
	int copies[64];
	int other;
	int i;

	if (can) {
		SAME(ringway_register_file(queue, fd), 0);
		SAME(ringway_register_file(queue, 1000000), -EBADF);
		SAME(ringway_register_file(queue, -1), -EBADF);
	}
	SAME(ringway_unregister_file(queue, 1000000), -ENOENT);
	for (i = 0; i < 5; i++) {
		SAME(check_run(queue, ringway_prep_read(fd, bytes, BLOCK, BLOCK, NULL, NULL)),
		     BLOCK);
		CHECK(check_filled(bytes, BLOCK, BLOCK));
		SAME(check_run(queue, ringway_prep_write(fd, bytes, BLOCK, BLOCK, NULL, NULL)),
		     BLOCK);
		SAME(check_run(queue, ringway_prep_fdatasync(fd, NULL, NULL)), 0);
		SAME(check_run(queue, ringway_prep_fallocate(fd, 0, 0, BLOCK, NULL, NULL)), 0);
		SAME(check_run(queue,
		               ringway_prep_fadvise(fd, 0, 0, POSIX_FADV_NORMAL, NULL, NULL)),
		     0);
		SAME(check_run(queue, ringway_prep_poll(fd, POLLIN, NULL, NULL)), POLLIN);
	}
	if (can) {
		struct ringway_operation operation = ringway_prep_close(fd, check_answer, &answer);

		SAME(ringway_push(queue, &operation), -EBUSY);
		SAME(ringway_unregister_file(queue, fd), 0);
		SAME(ringway_unregister_file(queue, fd), -ENOENT);
		NEED(pipe2(pipes, O_CLOEXEC) == 0);
		SAME(ringway_register_file(queue, pipes[0]), 0);
		operation = ringway_prep_read(pipes[0], bytes, 4, RINGWAY_CURRENT_POSITION,
		                              check_answer, &answer);
		CHECK(ringway_push(queue, &operation) > 0);
		CHECK(ringway_submit(queue) >= 0);
		SAME(ringway_unregister_file(queue, pipes[0]), -EBUSY);
		NEED(write(pipes[1], "text", 4) == 4);
		check_drain(queue);
		SAME(answer.result, 4);
		SAME(ringway_unregister_file(queue, pipes[0]), 0);
		close(pipes[0]);
		close(pipes[1]);
		/* The number of a closed descriptor that now belongs to another file. */
		other = check_file("another", BLOCK, 0);
		SAME(check_run(queue, ringway_prep_read(other, bytes, 10, 100, NULL, NULL)), 10);
		CHECK(check_filled(bytes, 100, 10));
		close(other);
		/* At most 64. */
		for (i = 0; i < 64; i++) {
			copies[i] = fcntl(fd, F_DUPFD_CLOEXEC, 300);
			NEED(copies[i] >= 300);
			SAME(ringway_register_file(queue, copies[i]), 0);
		}
		SAME(ringway_register_file(queue, fd), -ENOSPC);
		for (i = 0; i < 64; i++) {
			SAME(check_run(queue, ringway_prep_read(copies[i], bytes, BLOCK, BLOCK,
			                                        NULL, NULL)),
			     BLOCK);
			SAME(ringway_unregister_file(queue, copies[i]), 0);
			SAME(close(copies[i]), 0);
			SAME(check_run(queue, ringway_prep_read(copies[i], bytes, BLOCK, BLOCK,
			                                        NULL, NULL)),
			     -EBADF);
		}
	}
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	free(bytes);
}

int main(void)
{
	int buffered = check_file("registered", BLOCKS * BLOCK, 0);
	int direct = check_file("registered-direct", BLOCKS * BLOCK, O_DIRECT);
	unsigned b;
	int before = check_descriptors();

	check_watch("registered", 100);
	for (b = 0; b < 3; b++) {
		int i;

		for (i = 0; i < 4; i++) {
			struct ringway_queue *queue =
				check_queue(check_backends[b], check_default_options());

			if (queue == NULL)
				break;
			if (i < 2)
				buffers(queue, i == 0 ? buffered : direct);
			else if (i == 2 || direct >= 0)
				files(queue, i == 2 ? buffered : direct);
			else
				ringway_destroy(&queue);
		}
	}
	CHECK(check_no_more_descriptors(before));
	close(buffered);
	close(direct);
	return check_end("registered");
}
