/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Direct transfers that io_uring cannot start without waiting are counted and explained: those on a
   tmpfs, which does not support RWF_NOWAIT, and, before Linux 5.13, reads of cached pages. */
#include "check.h"

#include <fcntl.h>

enum { TRANSFERS = 20, BLOCK = 4096 };

static void on_tmpfs(void)
{
	struct ringway_queue *queue = check_queue(RINGWAY_BACKEND_URING, check_default_options());
	struct ringway_stats stats;
	char path[64];
	char text[4096];
	void *bytes;
	int fd;
	int i;

	if (queue == NULL)
		return;
	snprintf(path, sizeof path, "/dev/shm/ringway-punted-%d", (int)getpid());
	fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	unlink(path);
	if (fd < 0) {
		check_skip("no direct I/O on tmpfs (Linux 6.6)", 1);
		ringway_destroy(&queue);
		return;
	}
	bytes = check_aligned(BLOCK);
	for (i = 0; i < TRANSFERS; i++) {
		check_fill(bytes, (uint64_t)i, BLOCK);
		SAME(check_run(queue, ringway_prep_write(fd, bytes, BLOCK, 0, NULL, NULL)), BLOCK);
		memset(bytes, 0, BLOCK);
		SAME(check_run(queue, ringway_prep_read(fd, bytes, BLOCK, 0, NULL, NULL)), BLOCK);
		CHECK(check_filled(bytes, (uint64_t)i, BLOCK));
	}
	ringway_get_stats(queue, &stats, sizeof stats);
	SAME(stats.delivered, 2 * TRANSFERS);
	SAME(stats.punted, 2 * TRANSFERS);
	SAME(stats.routed, 0);
	ringway_explain(queue, text, sizeof text);
	CHECK(strstr(text, "RWF_NOWAIT") != NULL);
	/* A program that was built with an older header has no such field. */
	memset(&stats, 0xff, sizeof stats);
	ringway_get_stats(queue, &stats, offsetof(struct ringway_stats, punted));
	SAME(stats.delivered, 2 * TRANSFERS);
	CHECK(stats.punted == UINT64_MAX);
	SAME(ringway_destroy(&queue), 0);
	close(fd);
	free(bytes);
}

static void cached_pages(unsigned backend)
{
	struct ringway_queue *queue = check_queue(backend, check_default_options());
	struct ringway_stats stats;
	void *bytes;
	int fd;
	int i;

	if (queue == NULL)
		return;
	fd = check_file("cached", BLOCK, O_DIRECT);
	if (fd < 0) {
		check_skip("no direct I/O here", 0);
		ringway_destroy(&queue);
		return;
	}
	bytes = check_aligned(BLOCK);
	/* Its pages are cached, and clean. */
	NEED(fdatasync(fd) == 0);
	for (i = 0; i < TRANSFERS; i++) {
		memset(bytes, 0, BLOCK);
		SAME(check_run(queue, ringway_prep_read(fd, bytes, BLOCK, 0, NULL, NULL)), BLOCK);
		CHECK(check_filled(bytes, 0, BLOCK));
	}
	ringway_get_stats(queue, &stats, sizeof stats);
	SAME(stats.delivered, TRANSFERS);
	/* A queue that may choose reads such pages with Linux AIO, except now and then. A read that
	   is found to be punted may be the first one to go there. */
	if (!check_older_than(5, 13))
		SAME(stats.punted + stats.routed, 0);
	else if (backend == RINGWAY_BACKEND_URING)
		SAME(stats.punted, TRANSFERS);
	else
		CHECK(stats.punted > 0 && stats.routed > 0 && stats.routed <= TRANSFERS &&
		      stats.punted + stats.routed >= TRANSFERS);
	SAME(ringway_destroy(&queue), 0);
	close(fd);
	free(bytes);
}

int main(void)
{
	on_tmpfs();
	cached_pages(RINGWAY_BACKEND_URING);
	cached_pages(RINGWAY_BACKEND_BEST);
	return check_end("punted");
}
