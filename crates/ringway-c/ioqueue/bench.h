/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Shared code of the benchmark of ioqueue.h and the comparison loop on libaio: table rows, buffers,
 * random offsets, clocks. The two programs differ only in their loops.
 *
 *	ioqueue_bench FILE [BUFSIZE...]
 *
 * reads FILE at random offsets with O_DIRECT, in blocks of 512 bytes to 256 KiB or of BUFSIZE
 * bytes. The environment variables REQS, DEPTH and SEED set the number of requests, the queue depth
 * and the random seed. Times are in milliseconds. us/op is the latency of a request, rtime * depth
 * / reqs, as in the README of the original.
 */
#ifndef BENCH_H
#define BENCH_H

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct bench {
	int fd;
	unsigned reqs;
	unsigned depth;
	size_t bufsize;
	uint64_t blocks;  /* blocks of bufsize bytes in the file */
	uint64_t random;
	void **free;      /* a stack of free buffers */
	unsigned nfree;
};

/* Makes all requests of a row. All buffers are free before and after. */
static void loop(struct bench *bench);

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* The next offset, from xorshift, which is cheap. */
static inline off_t next_offset(struct bench *bench)
{
	bench->random ^= bench->random << 13;
	bench->random ^= bench->random >> 7;
	bench->random ^= bench->random << 17;
	return (off_t)(bench->random % bench->blocks * bench->bufsize);
}

static double seconds(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Runs and prints one row. `name` is its first column. */
static void row(const char *name, struct bench *bench)
{
	struct rusage before, after;
	double real, user, system;

	getrusage(RUSAGE_SELF, &before);
	real = now();
	loop(bench);
	real = now() - real;
	getrusage(RUSAGE_SELF, &after);
	user = seconds(after.ru_utime) - seconds(before.ru_utime);
	system = seconds(after.ru_stime) - seconds(before.ru_stime);
	printf("%-8s%-8u%-8zu%-8u%-8.0f%-8.0f%-8.0f%-8.0f%-8.0f%-8.0f%.2f\n", name, bench->reqs,
	       bench->bufsize, bench->depth, real * 1e3, user * 1e3, system * 1e3,
	       (user + system) * 1e3, real * bench->depth / bench->reqs * 1e6, bench->reqs / real,
	       (double)bench->reqs * (double)bench->bufsize / real / (1 << 20));
	fflush(stdout);
}

/* The number of requests in the README of the original. */
static unsigned usual_reqs(size_t bufsize)
{
	return bufsize <= 2048     ? 262144
	       : bufsize <= 16384  ? 131072
	       : bufsize <= 131072 ? 65536
	                           : 32768;
}

static void bench_row(const char *name, int fd, off_t size, size_t bufsize)
{
	struct bench bench = {fd, usual_reqs(bufsize),          32,   bufsize,
	                      0,  UINT64_C(0x9e3779b97f4a7c15), NULL, 0};

	if (getenv("REQS"))
		bench.reqs = (unsigned)atoi(getenv("REQS"));
	if (getenv("DEPTH"))
		bench.depth = (unsigned)atoi(getenv("DEPTH"));
	if (getenv("SEED")) /* avoids offsets that another run has just read */
		bench.random += strtoull(getenv("SEED"), NULL, 10) * UINT64_C(0xd1342543de82ef95);
	bench.blocks = (uint64_t)size / bufsize;
	bench.free = calloc(bench.depth, sizeof *bench.free);
	if (!bench.free || !bench.blocks || !bench.reqs)
		die("the file is smaller than a block, REQS is 0, or memory is exhausted");
	for (; bench.nfree < bench.depth; bench.nfree++) {
		if (posix_memalign(&bench.free[bench.nfree], 4096, bufsize) != 0)
			die("memory");
		memset(bench.free[bench.nfree], 0, bufsize);
	}
	row(name, &bench);
	while (bench.nfree > 0)
		free(bench.free[--bench.nfree]);
	free(bench.free);
}

/* Prints the rows of the table, or those of the command line. */
static int bench_main(const char *name, int argc, char **argv)
{
	int fd, i;
	off_t size;

	if (argc < 2) {
		fprintf(stderr, "usage: %s FILE [BUFSIZE...]\n", argv[0]);
		return 2;
	}
	fd = open(argv[1], O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (fd < 0)
		die(argv[1]);
	size = lseek(fd, 0, SEEK_END);
	printf("backend reqs    bufsize depth   rtime   utime   stime   cpu     us/op   op/s    "
	       "MB/s\n");
	for (i = 2; i < argc; i++)
		bench_row(name, fd, size, (size_t)atol(argv[i]));
	for (i = 0; argc == 2 && i < 10; i++)
		bench_row(name, fd, size, (size_t)512 << i);
	close(fd);
	return 0;
}

#endif
