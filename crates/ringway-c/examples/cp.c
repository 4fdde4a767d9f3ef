/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * cp FROM TO: copies the contents of a file, with eight blocks in flight.
 *
 * Shows a buffer that is used alternately for a read and a write, preserves holes, and finishes
 * with a chain of truncate, fsync and close, each of which begins after the one before it has
 * succeeded.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <ringway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IN_FLIGHT = 8, BLOCK = 256 * 1024 };

struct copy {
	const char *from_path, *to_path;
	int from, to;
	uint64_t size;     /* of FROM */
	uint64_t next;     /* offset of the next read */
	uint64_t data_end; /* end of the data around `next`, where a hole begins */
	int failed;        /* an error was printed; no more operations are pushed */
};

struct block {
	struct copy *copy;
	void *buffer;
	uint64_t offset, length;
};

/* Prints the first error only: operations in flight may fail for the same reason. */
static void fail(struct copy *copy, const char *path, int64_t error)
{
	if (!copy->failed)
		fprintf(stderr, "cp: %s: %s\n", path, strerror((int)-error));
	copy->failed = 1;
}

/* Pushes an operation and handles an error of the push. */
static void push(struct ringway_queue *queue, struct copy *copy,
                 const struct ringway_operation *operation)
{
	int64_t id = ringway_push(queue, operation);

	if (id < 0)
		fail(copy, copy->to_path, id);
}

static void read_next(struct ringway_queue *queue, struct block *block);

static void written(struct ringway_queue *queue, const struct ringway_completion *completion)
{
	struct block *block = completion->user_data;

	if (completion->result < 0)
		fail(block->copy, block->copy->to_path, completion->result);
	else
		read_next(queue, block); /* reuses the buffer */
}

static void was_read(struct ringway_queue *queue, const struct ringway_completion *completion)
{
	struct block *block = completion->user_data;
	struct copy *copy = block->copy;
	struct ringway_operation write;

	if (completion->result < 0) {
		fail(copy, copy->from_path, completion->result);
	} else if ((uint64_t)completion->result < block->length) {
		fprintf(stderr, "cp: %s: the file was truncated while it was copied\n",
		        copy->from_path);
		copy->failed = 1;
	} else if (!copy->failed) {
		write = ringway_prep_write(copy->to, block->buffer, block->length, block->offset,
		                           written, block);
		write.flags = RINGWAY_EXACT; /* all bytes, or an error such as ENOSPC */
		push(queue, copy, &write);
	}
}

/* Advances `next` over a hole. File systems that do not report holes have only data. */
static void skip_hole(struct copy *copy)
{
	off_t data, hole;

	if (copy->next < copy->data_end || copy->next >= copy->size)
		return;
	data = lseek(copy->from, (off_t)copy->next, SEEK_DATA);
	if (data < 0 && errno == ENXIO)
		data = (off_t)copy->size; /* a hole up to the end */
	hole = data < 0 ? -1 : lseek(copy->from, data, SEEK_HOLE);
	if (data >= 0)
		copy->next = (uint64_t)data;
	copy->data_end = hole < 0 || (uint64_t)hole > copy->size ? copy->size : (uint64_t)hole;
}

static void read_next(struct ringway_queue *queue, struct block *block)
{
	struct copy *copy = block->copy;
	struct ringway_operation read;

	skip_hole(copy);
	if (copy->next >= copy->size || copy->failed)
		return;
	block->offset = copy->next;
	block->length = copy->data_end - copy->next < BLOCK ? copy->data_end - copy->next : BLOCK;
	copy->next += block->length;
	read = ringway_prep_read(copy->from, block->buffer, block->length, block->offset, was_read,
	                         block);
	read.flags = RINGWAY_EXACT;
	push(queue, copy, &read);
}

/* Callback of the last three operations. If one fails, the later ones are cancelled. */
static void ended(struct ringway_queue *queue, const struct ringway_completion *completion)
{
	struct copy *copy = completion->user_data;

	(void)queue;
	if (completion->result < 0 && completion->result != -ECANCELED)
		fail(copy, copy->to_path, completion->result);
	if (completion->opcode == RINGWAY_OP_CLOSE && completion->result != -ECANCELED)
		copy->to = -1; /* closed, even if close failed */
}

static int run(struct ringway_queue *queue)
{
	while (ringway_in_flight(queue) > 0) {
		if (ringway_reap(queue, 1, RINGWAY_FOREVER) < 0) {
			fprintf(stderr, "cp: %s\n", ringway_last_error());
			return -1;
		}
	}
	return 0;
}

/* Opens both files and checks that they differ before it truncates TO. */
static int open_both(struct copy *copy)
{
	struct stat from, to;

	copy->from = open(copy->from_path, O_RDONLY | O_CLOEXEC);
	if (copy->from < 0 || fstat(copy->from, &from) < 0)
		return fail(copy, copy->from_path, -errno), -1;
	copy->to = open(copy->to_path, O_WRONLY | O_CREAT | O_CLOEXEC, from.st_mode & 0777);
	if (copy->to < 0 || fstat(copy->to, &to) < 0)
		return fail(copy, copy->to_path, -errno), -1;
	if (!S_ISREG(from.st_mode) || (from.st_dev == to.st_dev && from.st_ino == to.st_ino)) {
		fprintf(stderr, "cp: %s: is not a regular file, or is the same file as %s\n",
		        copy->from_path, copy->to_path);
		return -1;
	}
	if (ftruncate(copy->to, 0) < 0)
		return fail(copy, copy->to_path, -errno), -1;
	copy->size = (uint64_t)from.st_size;
	return 0;
}

int main(int argc, char **argv)
{
	static char memory[IN_FLIGHT][BLOCK];
	struct copy copy = { 0 };
	struct block blocks[IN_FLIGHT];
	struct ringway_operation end[3];
	struct ringway_queue *queue;

	if (argc != 3) {
		fprintf(stderr, "usage: cp FROM TO\n");
		return 2;
	}
	copy.from_path = argv[1];
	copy.to_path = argv[2];
	if (open_both(&copy) < 0)
		return 1;
	if (ringway_create(NULL, &queue) < 0) {
		fprintf(stderr, "cp: %s\n", ringway_last_error());
		return 1;
	}

	for (int i = 0; i < IN_FLIGHT; i++) {
		blocks[i] = (struct block){ &copy, memory[i], 0, 0 };
		read_next(queue, &blocks[i]);
	}
	if (run(queue) < 0)
		return 1;

	if (!copy.failed) {
		/* The file may end with a hole, so set its length. */
		end[0] = ringway_prep_ftruncate(copy.to, copy.size, ended, &copy);
		end[1] = ringway_prep_fsync(copy.to, ended, &copy);
		end[2] = ringway_prep_close(copy.to, ended, &copy);
		if (ringway_push_chain(queue, end, 3, NULL) < 0) {
			fprintf(stderr, "cp: %s\n", ringway_last_error());
			copy.failed = 1;
		}
		if (run(queue) < 0)
			return 1;
	}
	ringway_destroy(&queue);
	close(copy.from);
	if (copy.to >= 0)
		close(copy.to);
	return copy.failed;
}
