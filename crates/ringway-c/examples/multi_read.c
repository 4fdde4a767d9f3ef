/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * multi_read FILE OFFSET:LENGTH...: prints ranges of a file, which it reads concurrently.
 *
 * Shows ringway_multi_read(): many reads with one call, no callback, and a result for each. A
 * database that looks up many keys does this, so that the device works on all of them in parallel.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <ringway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	size_t count = argc > 2 ? (size_t)argc - 2 : 0;
	struct ringway_range *ranges = calloc(count ? count : 1, sizeof *ranges);
	struct ringway_queue *queue;
	int failed, fd;

	if (count == 0 || !ranges) {
		fprintf(stderr, "usage: multi_read FILE OFFSET:LENGTH...\n");
		return 2;
	}
	fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		perror(argv[1]);
		return 1;
	}
	for (size_t i = 0; i < count; i++) {
		if (sscanf(argv[i + 2], "%" SCNu64 ":%" SCNu64, &ranges[i].offset,
		           &ranges[i].length) != 2) {
			fprintf(stderr, "multi_read: %s: not of the form OFFSET:LENGTH\n",
			        argv[i + 2]);
			return 2;
		}
		ranges[i].fd = fd;
		ranges[i].flags = RINGWAY_RANGE_BUFFERED; /* avoids a lookup */
		ranges[i].buf = malloc(ranges[i].length ? ranges[i].length : 1);
		if (!ranges[i].buf) {
			perror("multi_read");
			return 1;
		}
	}

	if (ringway_create(NULL, &queue) < 0) {
		fprintf(stderr, "multi_read: %s\n", ringway_last_error());
		return 1;
	}
	failed = ringway_multi_read(queue, ranges, count);
	if (failed < 0) {
		fprintf(stderr, "multi_read: %s\n", ringway_last_error());
		return 1;
	}
	/* Each range has its own result; a failure does not affect the others. */
	for (size_t i = 0; i < count; i++) {
		if (ranges[i].result < 0)
			fprintf(stderr, "multi_read: %s: %s\n", argv[i + 2],
			        strerror((int)-ranges[i].result));
		else if (fwrite(ranges[i].buf, 1, (size_t)ranges[i].result, stdout) !=
		         (size_t)ranges[i].result)
			failed++;
		free(ranges[i].buf);
	}
	if (fflush(stdout) != 0) {
		perror("multi_read: standard output");
		failed++;
	}
	ringway_destroy(&queue);
	close(fd);
	free(ranges);
	return failed == 0 ? 0 : 1;
}
