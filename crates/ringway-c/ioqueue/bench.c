/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Benchmark of ioqueue.h, as the README of the original describes it: random reads, each followed
 * by a reap that waits only if the queue is full.
 */
#include "bench.h"
#include "ioqueue.h"

static unsigned in_flight;

static void done(void *arg, ssize_t res, void *buf)
{
	struct bench *bench = arg;

	if (res != (ssize_t)bench->bufsize)
		die(res == -1 ? "read" : "a read is short");
	bench->free[bench->nfree++] = buf;
	in_flight--;
}

static void reap(unsigned min)
{
	if (ioqueue_reap(min) == -1)
		die("ioqueue_reap");
}

static void loop(struct bench *bench)
{
	unsigned i;

	for (i = 0; i < bench->reqs; i++) {
		if (ioqueue_pread(bench->fd, bench->free[--bench->nfree], bench->bufsize,
		                  next_offset(bench), done, bench) == -1)
			die("ioqueue_pread");
		in_flight++;
		reap(in_flight < bench->depth ? 0 : 1);
	}
	while (in_flight > 0)
		reap(in_flight);
}

int main(int argc, char **argv)
{
	int code;

	if (ioqueue_init(getenv("DEPTH") ? (unsigned)atoi(getenv("DEPTH")) : 32) == -1)
		die("ioqueue_init");
	code = bench_main(ioqueue_backend(), argc, argv);
	ioqueue_destroy();
	return code;
}
