/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* valgrind: no, because it reports the bad addresses that the test passes */
/* Bad addresses complete with EFAULT on every backend and affect nothing else. */
#include "check.h"

#include <sys/mman.h>

int main(void)
{
	int buffered = check_file("addresses", 8192, 0);
	int direct = check_file("addresses-direct", 8192, O_DIRECT);
	uint8_t *none = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *good = check_aligned(4096);
	struct iovec parts[2];
	int pipes[2];
	unsigned b;

	check_watch("addresses", 60);
	NEED(none != MAP_FAILED);
	parts[0].iov_base = none;
	parts[0].iov_len = 4096;
	for (b = 0; b < 3; b++) {
		struct ringway_queue *queue =
			check_queue(check_backends[b], check_default_options());
		int i;

		if (queue == NULL)
			continue;
		NEED(pipe2(pipes, O_CLOEXEC) == 0 && write(pipes[1], "text", 4) == 4);
		for (i = 0; i < 2; i++) {
			int fd = i == 0 ? buffered : direct;

			if (fd < 0)
				continue;
			SAME(check_run(queue, ringway_prep_read(fd, none, 4096, 0, NULL, NULL)),
			     -EFAULT);
			SAME(check_run(queue, ringway_prep_write(fd, none, 4096, 0, NULL, NULL)),
			     -EFAULT);
			SAME(check_run(queue, ringway_prep_readv(fd, parts, 1, 0, NULL, NULL)),
			     -EFAULT);
			SAME(check_run(queue, ringway_prep_writev(fd, parts, 1, 0, NULL, NULL)),
			     -EFAULT);
			SAME(check_run(queue, ringway_prep_read(fd, good, 4096, 4096, NULL, NULL)),
			     4096);
			CHECK(check_filled(good, 4096, 4096));
		}
		SAME(check_run(queue, ringway_prep_read(pipes[0], none, 4, RINGWAY_CURRENT_POSITION,
		                                        NULL, NULL)),
		     -EFAULT);
		SAME(check_run(queue, ringway_prep_write(pipes[1], none, 4,
		                                         RINGWAY_CURRENT_POSITION, NULL, NULL)),
		     -EFAULT);
		SAME(check_run(queue, ringway_prep_statx(AT_FDCWD, ".", 0, STATX_BASIC_STATS,
		                                         (struct statx *)(void *)none, NULL, NULL)),
		     -EFAULT);
		{
			struct ringway_range ranges[2] = {{0, 0, 0, 4096, NULL, 0},
			                                  {0, 0, 0, 4096, NULL, 0}};

			ranges[0].fd = ranges[1].fd = buffered;
			ranges[0].buf = none;
			ranges[1].buf = good;
			SAME(ringway_multi_read(queue, ranges, 2), 1);
			SAME(ranges[0].result, -EFAULT);
			SAME(ranges[1].result, 4096);
		}
		COUNTERS(queue);
		SAME(ringway_destroy(&queue), 0);
		close(pipes[0]);
		close(pipes[1]);
	}
	munmap(none, 8192);
	free(good);
	close(buffered);
	close(direct);
	return check_end("addresses");
}
