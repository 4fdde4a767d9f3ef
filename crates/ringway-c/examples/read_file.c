/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * read_file FILE: reads a file with direct I/O, 16 blocks at a time, and prints counts.
 *
 * Shows the loop that most programs need. Each block has a buffer. When its read completes, the
 * callback pushes a read of the next offset into the same buffer. The buffers are allocated once,
 * aligned for direct I/O.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <ringway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IN_FLIGHT = 16, BLOCK = 64 * 1024 };

struct reading {
	int fd;
	uint64_t size; /* of the file */
	uint64_t next; /* offset of the next read */
	uint64_t submitted, completed, bytes;
	int error; /* the first error, after which no more reads are pushed */
};

struct block {
	struct reading *reading;
	void *buffer;
};

static void push_next(struct ringway_queue *queue, struct block *block);

/* Called by ringway_reap() for each read that has completed. */
static void arrived(struct ringway_queue *queue, const struct ringway_completion *completion)
{
	struct block *block = completion->user_data;
	struct reading *reading = block->reading;

	reading->completed++;
	if (completion->result < 0) {
		if (!reading->error)
			reading->error = (int)-completion->result;
		return;
	}
	/* block->buffer has completion->result bytes, which a real program would use here. */
	reading->bytes += (uint64_t)completion->result;
	push_next(queue, block);
}

/* Pushes the next read, if there is one. At least one push succeeds in a callback. */
static void push_next(struct ringway_queue *queue, struct block *block)
{
	struct reading *reading = block->reading;
	struct ringway_operation read;
	int64_t id;

	if (reading->next >= reading->size || reading->error)
		return;
	read = ringway_prep_read(reading->fd, block->buffer, BLOCK, reading->next, arrived, block);
	read.flags = RINGWAY_EXACT; /* a short result then means the end of the file */
	id = ringway_push(queue, &read);
	if (id < 0) {
		reading->error = (int)-id;
		return;
	}
	reading->next += BLOCK;
	reading->submitted++;
}

/* Opens for direct I/O if the file system supports it. */
static int open_direct(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);

	return fd < 0 && errno == EINVAL ? open(path, O_RDONLY | O_CLOEXEC) : fd;
}

int main(int argc, char **argv)
{
	struct reading reading = { 0 };
	struct block blocks[IN_FLIGHT];
	struct ringway_queue *queue;
	struct ringway_direct_io direct;
	struct stat stat;
	void *memory;
	int error;

	if (argc != 2) {
		fprintf(stderr, "usage: read_file FILE\n");
		return 2;
	}
	reading.fd = open_direct(argv[1]);
	if (reading.fd < 0 || fstat(reading.fd, &stat) < 0) {
		perror(argv[1]);
		return 1;
	}
	reading.size = (uint64_t)stat.st_size;

	/* Direct I/O requires aligned addresses, offsets and lengths. BLOCK is a multiple of every
	   device's alignment. */
	error = ringway_get_direct_io(reading.fd, &direct, sizeof direct);
	if (error < 0) {
		fprintf(stderr, "read_file: %s\n", ringway_last_error());
		return 1;
	}
	error = posix_memalign(&memory, direct.mem_align > 4096 ? direct.mem_align : 4096,
	                       (size_t)IN_FLIGHT * BLOCK);
	if (error) {
		fprintf(stderr, "read_file: %s\n", strerror(error));
		return 1;
	}

	error = ringway_create(NULL, &queue);
	if (error < 0) {
		fprintf(stderr, "read_file: %s\n", ringway_last_error());
		return 1;
	}
	for (int i = 0; i < IN_FLIGHT; i++) {
		blocks[i] = (struct block){ &reading, (char *)memory + (size_t)i * BLOCK };
		push_next(queue, &blocks[i]);
	}
	/* Submits what was pushed, waits for at least one completion, and calls the callbacks. */
	while (ringway_in_flight(queue) > 0) {
		error = ringway_reap(queue, 1, RINGWAY_FOREVER);
		if (error < 0) {
			fprintf(stderr, "read_file: %s\n", ringway_last_error());
			return 1;
		}
	}

	/* Nothing is in flight, so memory and descriptor can be released. */
	ringway_destroy(&queue);
	free(memory);
	close(reading.fd);
	if (reading.error) {
		fprintf(stderr, "read_file: %s: %s\n", argv[1], strerror(reading.error));
		return 1;
	}
	printf("submitted=%" PRIu64 ", completed=%" PRIu64 ", bytes=%" PRIu64 "\n",
	       reading.submitted, reading.completed, reading.bytes);
	return 0;
}
