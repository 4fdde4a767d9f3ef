/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The loop of bench.c written directly on libaio: the reference for ioqueue.h on the kaio backend.
 */
#include "bench.h"

#include <libaio.h>

static io_context_t context;
static struct io_event *events;
static unsigned in_flight;

static void check(const char *what, int result)
{
	if (result < 0) {
		errno = -result;
		die(what);
	}
}

/* Waits for `min` completions and takes all that are ready. With a zero timeout, libaio checks the
   mapped ring first and makes no system call if it is empty. */
static void reap(struct bench *bench, unsigned min)
{
	struct timespec none = { 0, 0 };
	int count, i;

	do
		count = io_getevents(context, min, bench->depth, events, min ? NULL : &none);
	while (count == -EINTR);
	check("io_getevents", count);
	for (i = 0; i < count; i++) {
		if (events[i].res != bench->bufsize)
			die("read");
		bench->free[bench->nfree++] = events[i].data;
		in_flight--;
	}
}

static void loop(struct bench *bench)
{
	unsigned i;

	events = calloc(bench->depth, sizeof *events);
	if (!events)
		die("memory");
	for (i = 0; i < bench->reqs; i++) {
		void *buf = bench->free[--bench->nfree];
		struct iocb iocb, *one = &iocb; /* The kernel copies it. */
		int count;

		io_prep_pread(&iocb, bench->fd, buf, bench->bufsize, next_offset(bench));
		iocb.data = buf;
		do
			count = io_submit(context, 1, &one);
		while (count == -EINTR || count == -EAGAIN);
		check("io_submit", count);
		in_flight++;
		reap(bench, in_flight < bench->depth ? 0 : 1);
	}
	while (in_flight > 0)
		reap(bench, in_flight);
	free(events);
}

int main(int argc, char **argv)
{
	int code;

	check("io_setup", io_setup(getenv("DEPTH") ? atoi(getenv("DEPTH")) : 32, &context));
	code = bench_main("libaio", argc, argv);
	io_destroy(context);
	return code;
}
