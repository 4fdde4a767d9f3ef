/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program for the original ioqueue: random direct reads in the loop of its README, with a reap
 * after each read that waits only if the queue is full. It must compile unchanged as C89, C11 and
 * C++.
 */
#define _GNU_SOURCE 1

#include "ioqueue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEPTH 32
#define REQUESTS 4096
#define BUFSIZE 4096
#define BLOCKS 256

static unsigned in_flight, completed, failed;
static void *free_bufs[DEPTH];
static unsigned nfree;

static void on_read(void *arg, ssize_t res, void *buf)
{
	off_t block = (off_t)(size_t)arg;

	if (res != BUFSIZE) {
		fprintf(stderr, "read of block %ld: %s\n", (long)block,
		        res == -1 ? strerror(errno) : "short");
		failed++;
	} else if (*(unsigned char *)buf != block % 256) {
		fprintf(stderr, "block %ld has wrong bytes\n", (long)block);
		failed++;
	}
	free_bufs[nfree++] = buf;
	in_flight--;
	completed++;
}

int main(int argc, char **argv)
{
	char path[4096];
	void *buf;
	int fd, i;

	(void)argc;
	(void)argv;
	sprintf(path, "%.4000s/ioqueue-reads.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	fd = mkstemp(path);
	if (fd == -1) {
		perror(path);
		return 1;
	}
	if (posix_memalign(&buf, 4096, BUFSIZE) != 0)
		return 1;
	for (i = 0; i < BLOCKS; i++) {
		memset(buf, i, BUFSIZE);
		if (write(fd, buf, BUFSIZE) != BUFSIZE) {
			perror("write");
			return 1;
		}
	}
	free(buf);
	close(fd);
	fd = open(path, O_RDONLY | O_DIRECT);
	unlink(path);
	if (fd == -1) {
		perror("open with O_DIRECT");
		return errno == EINVAL && !getenv("CI") ? 0 : 1;
	}
	for (i = 0; i < DEPTH; i++) {
		if (posix_memalign(&free_bufs[i], 4096, BUFSIZE) != 0)
			return 1;
		nfree++;
	}

	if (ioqueue_init(DEPTH) == -1) {
		perror("ioqueue_init");
		return 1;
	}
	for (i = 0; i < REQUESTS; i++) {
		size_t block = (size_t)random() % BLOCKS;

		if (ioqueue_pread(fd, free_bufs[--nfree], BUFSIZE, (off_t)block * BUFSIZE, on_read,
		                  (void *)block) == -1) {
			perror("ioqueue_pread");
			return 1;
		}
		in_flight++;
		if (ioqueue_reap(in_flight < DEPTH ? 0 : 1) == -1) {
			perror("ioqueue_reap");
			return 1;
		}
	}
	while (in_flight > 0) {
		if (ioqueue_reap(in_flight) == -1) {
			perror("ioqueue_reap");
			return 1;
		}
	}
	ioqueue_destroy();
	close(fd);
	while (nfree > 0)
		free(free_bufs[--nfree]);
	if (completed != REQUESTS || failed)
		fprintf(stderr, "%u completed, %u failed\n", completed, failed);
	return completed != REQUESTS || failed;
}
