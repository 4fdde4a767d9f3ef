/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* ringway_warm(): afterwards the page cache has the ranges; errors are those of their ranges. */
#include "check.h"

#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 600, SIZE = PAGE * PAGES + 100, MOST = 1000 };

static struct ringway_range ranges[MOST];
static int file;

/* Whether the page cache has this page. Reads none. */
static int has(int page)
{
	uint8_t *mapping = (uint8_t *)mmap(NULL, SIZE, PROT_READ, MAP_SHARED, file, 0);
	unsigned char found = 0;

	NEED(mapping != MAP_FAILED);
	NEED(mincore(mapping + (size_t)page * PAGE, 1, &found) == 0);
	NEED(munmap(mapping, SIZE) == 0);
	return found & 1;
}

static void evict(void)
{
	NEED(fsync(file) == 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
}

static void ranges_of(struct ringway_queue *queue)
{
	int i;

	evict();
	CHECK(!has(7) && !has(300));
	ranges[0] = check_range(file, 40 * PAGE + 5, 1, NULL);
	ranges[1] = check_range(file, 7 * PAGE, 2 * PAGE, NULL);
	ranges[2] = check_range(file, PAGES * PAGE, UINT64_MAX, NULL);
	ranges[3] = check_range(file, 5, 0, NULL);
	ranges[4] = check_range(file, UINT64_MAX, UINT64_MAX, NULL);
	SAME(ringway_warm(queue, ranges, 5), 0);
	SAME(ranges[0].result, 1);
	SAME(ranges[1].result, 2 * PAGE);
	SAME(ranges[2].result, 100);
	SAME(ranges[3].result, 0);
	SAME(ranges[4].result, 0);
	CHECK(has(7) && has(8) && has(40) && has(PAGES));
	CHECK(!has(300));
	/* Many ranges, of all pages, twice. */
	for (i = 0; i < MOST; i++)
		ranges[i] = check_range(file, (uint64_t)(i * 7 % (PAGES + 1)) * PAGE, 1, NULL);
	SAME(ringway_warm(queue, ranges, MOST), 0);
	for (i = 0; i <= PAGES; i++)
		CHECK(has(i));
	for (i = 0; i < MOST; i++)
		SAME(ranges[i].result, 1);
	/* A whole file. */
	evict();
	ranges[0] = check_range(file, 0, UINT64_MAX, NULL);
	SAME(ringway_warm(queue, ranges, 1), 0);
	SAME(ranges[0].result, SIZE);
	for (i = 0; i <= PAGES; i++)
		CHECK(has(i));
	COUNTERS(queue);
}

static void refused(struct ringway_queue *queue)
{
	int pipes[2];
	int direct = check_file("warm-direct", PAGE, O_DIRECT);
	int write_only = open("warm", O_WRONLY | O_CLOEXEC);

	NEED(pipe(pipes) == 0 && write_only >= 0);
	evict();
	SAME(ringway_warm(queue, ranges, 0), 0);
	SAME(ringway_warm(queue, NULL, 0), 0);
	SAME(ringway_warm(queue, NULL, 1), -EINVAL);
	ranges[0] = check_range(file, 0, 1, NULL);
	ranges[1] = check_range(pipes[0], 0, 1, NULL);
	ranges[2] = check_range(1000000, 0, 1, NULL);
	ranges[3] = check_range(write_only, 0, PAGE, NULL);
	ranges[4] = check_range(direct >= 0 ? direct : pipes[1], 0, 1, NULL);
	ranges[5] = check_range(-1, 0, 1, NULL);
	ranges[6] = check_range(file, 9 * PAGE, 1, NULL);
	SAME(ringway_warm(queue, ranges, 7), 5);
	SAME(ranges[0].result, 1);
	SAME(ranges[1].result, -EINVAL);
	SAME(ranges[2].result, -EBADF);
	SAME(ranges[3].result, -EBADF);
	SAME(ranges[4].result, -EINVAL);
	SAME(ranges[5].result, -EBADF);
	SAME(ranges[6].result, 1);
	CHECK(has(0) && has(9));
	ranges[1] = check_range(file, 0, 1, NULL);
	ranges[1].flags = 1u << 30;
	SAME(ringway_warm(queue, ranges, 2), -EINVAL);
	CHECK(*ringway_last_error() != '\0');
	COUNTERS(queue);
	close(pipes[0]);
	close(pipes[1]);
	close(write_only);
	if (direct >= 0)
		close(direct);
}

/* Completions of other operations stay for the next reap. */
static void with_other_operations(struct ringway_queue *queue)
{
	struct answer answer;

	memset(&answer, 0, sizeof answer);
	check_start(queue, NOP(), &answer);
	evict();
	ranges[0] = check_range(file, 0, SIZE, NULL);
	SAME(ringway_warm(queue, ranges, 1), 0);
	SAME(ranges[0].result, SIZE);
	SAME(answer.count, 0);
	check_drain(queue);
	check_answers(&answer, 1, 0);
}

static void on_backend(unsigned backend)
{
	struct ringway_options options = check_default_options();

	for (options.in_flight = 2; options.in_flight <= 200; options.in_flight *= 10) {
		struct ringway_queue *queue = check_queue(backend, options);

		NEED(queue != NULL);
		ranges_of(queue);
		refused(queue);
		with_other_operations(queue);
		SAME(ringway_destroy(&queue), 0);
	}
}

int main(void)
{
	static void (*const tests[])(unsigned) = {on_backend, NULL};

	file = check_file("warm", SIZE, 0);
	return check_each_backend("warm", 100, tests);
}
