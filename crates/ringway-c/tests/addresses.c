/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* valgrind: no, because it reports the bad addresses that the test passes */
/* Bad addresses complete with EFAULT on every backend and affect nothing else. */
#include "check.h"

#include <sys/mman.h>

static void bad_addresses(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	int files[] = {check_file("addresses", 8192, 0), check_file("direct", 8192, O_DIRECT)};
	void *none = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *good = check_aligned(4096);
	struct iovec part = {none, 4096};
	struct ringway_range ranges[2];
	int pipes[2];
	int i;

	NEED(none != MAP_FAILED);
	check_pipe(pipes);
	NEED(write(pipes[1], "text", 4) == 4);
	for (i = 0; i < 2 && files[i] >= 0; i++) {
		SAME(check_run(queue, READ(files[i], none, 4096, 0)), -EFAULT);
		SAME(check_run(queue, WRITE(files[i], none, 4096, 0)), -EFAULT);
		SAME(check_run(queue, READV(files[i], &part, 1, 0)), -EFAULT);
		SAME(check_run(queue, WRITEV(files[i], &part, 1, 0)), -EFAULT);
	}
	SAME(check_run(queue, READ(pipes[0], none, 4, HERE)), -EFAULT);
	SAME(check_run(queue, WRITE(pipes[1], none, 4, HERE)), -EFAULT);
	SAME(check_run(queue, ringway_prep_statx(AT_FDCWD, ".", 0, STATX_BASIC_STATS, none, NULL,
	                                         NULL)),
	     -EFAULT);
	ranges[0] = check_range(files[0], 0, 4096, none);
	ranges[1] = check_range(files[0], 0, 4096, good);
	SAME(ringway_multi_read(queue, ranges, 2), 1);
	SAME(ranges[0].result, -EFAULT);
	SAME(ranges[1].result, 4096);
	CHECK(check_filled(good, 0, 4096));
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	check_close(pipes);
	check_close(files);
	munmap(none, 8192);
	free(good);
}

int main(void)
{
	static void (*const tests[])(unsigned) = {bad_addresses, NULL};

	return check_each_backend("addresses", 60, tests);
}
