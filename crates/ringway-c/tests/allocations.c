/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* sanitized: no, because it replaces the allocator to count allocations */
/* valgrind: no, because it replaces the allocator to count allocations */
/* A queue in a steady state does not allocate: not for reads and reaps, not when a push finds
   it full, not for polls of descriptors that nothing else uses or transfers of such sockets,
   and not when an operation to cancel has already completed. */
#include "check.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

static unsigned long allocations;
/* Those of the calling thread. */
static __thread unsigned long own_allocations;

static void count_one(void)
{
	__atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
	own_allocations++;
}

#if defined(__GLIBC__)
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
	count_one();
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	count_one();
	return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
	count_one();
	return __libc_realloc(old, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
	count_one();
	*memory = __libc_memalign(alignment, size);
	return *memory == NULL ? ENOMEM : 0;
}
#endif

static unsigned long count_allocations(void)
{
	return __atomic_load_n(&allocations, __ATOMIC_RELAXED);
}

/* These refusals do not allocate. */
static void refusals_of_a_full_queue(unsigned backend)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct ringway_operation waits;
	struct ringway_operation chain[9];
	struct ringway_range range;
	uint8_t bytes[8];
	unsigned long before;
	int64_t over;
	int pipes[2];
	int i;

	options.in_flight = 8;
	queue = check_queue(backend, options);
	check_pipe(pipes);
	over = check_push(queue, NOP());
	check_drain(queue);
	waits = READ(pipes[0], bytes, 1, HERE);
	for (i = 0; i < 8; i++)
		check_push(queue, waits);
	CHECK(ringway_submit(queue) >= 0);
	for (i = 0; i < 9; i++)
		chain[i] = i == 0 ? OPEN("full", O_RDONLY) : NOP();
	range = check_range(pipes[0], 0, 1, bytes);
	/* The first error of a thread allocates its text. */
	SAME(ringway_push(queue, &waits), -EAGAIN);
	/* The threads of the queue may still start. */
	before = own_allocations;
	for (i = 0; i < 1000; i++) {
		if (ringway_push(queue, &waits) != -EAGAIN ||
		    ringway_push(queue, &chain[0]) != -EAGAIN ||
		    ringway_push_chain(queue, chain, 2, NULL) != -EAGAIN ||
		    ringway_multi_read(queue, &range, 1) != -EAGAIN ||
		    ringway_cancel(queue, over) != -ENOENT ||
		    strstr(ringway_last_error(), "already known") == NULL ||
		    ringway_push(queue, &waits) != -EAGAIN)
			break;
	}
	SAME(own_allocations - before, 0);
	SAME(i, 1000);
	CHECK(strstr(ringway_last_error(), "full") != NULL);
	/* A chain longer than the queue is refused with EINVAL, because reaping cannot help. */
	SAME(ringway_push_chain(queue, chain + 1, 8, NULL), -EAGAIN);
	SAME(ringway_push_chain(queue, chain, 9, NULL), -EINVAL);
	NEED(write(pipes[1], "12345678", 8) == 8);
	check_drain(queue);
	SAME(ringway_push_chain(queue, chain, 9, NULL), -EINVAL);
	CHECK(ringway_push_chain(queue, chain + 1, 8, NULL) > 0);
	SAME(ringway_destroy(&queue), 0);
	check_close(pipes);
}

enum { DEPTH = 8, BLOCK = 4096, ROUNDS = 2000 };

static void reaped(struct ringway_queue *queue, const struct ringway_completion *done)
{
	(void)queue;
	*(int *)done->user_data += done->result == BLOCK;
}

/* Takes `left` completions with arrays that are shorter; returns how many have read a block. */
static int reap_into(struct ringway_queue *queue, int left)
{
	struct ringway_completion done[DEPTH];
	int read = 0;

	while (left > 0) {
		unsigned min = left < DEPTH ? (unsigned)left : DEPTH;
		int got = ringway_reap_into(queue, done, DEPTH, min, RINGWAY_FOREVER);

		if (got <= 0)
			break;
		left -= got;
		while (got > 0)
			read += done[--got].result == BLOCK;
	}
	return read;
}

/* Reads singly and in chains, reaps with callbacks and arrays, with one operation on the file
   always in flight. */
static void steady_state(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	struct ringway_operation one, chain[2];
	static uint8_t bytes[DEPTH + 2][BLOCK];
	int file = check_file("steady_state", (DEPTH + 2) * BLOCK, 0);
	unsigned long before = 0;
	int64_t endless;
	int pipes[2];
	int round;
	int read = 0;
	int into = 0;
	int i;

	check_pipe(pipes);
	/* A read of the file waits in a chain behind one that does not end, so its properties stay
	   cached. */
	chain[0] = READ(pipes[0], bytes[0], 1, HERE);
	chain[1] = READ(file, bytes[0], BLOCK, 0);
	endless = ringway_push_chain(queue, chain, 2, NULL);
	CHECK(endless > 0);
	for (round = 0; round < ROUNDS; round++) {
		if (round == ROUNDS / 2)
			before = count_allocations();
		for (i = 0; i < DEPTH + 2; i++) {
			one = ringway_prep_read(file, bytes[i], BLOCK, (uint64_t)i * BLOCK, reaped,
			                        &read);
			if (i >= DEPTH)
				chain[i - DEPTH] = one;
			else
				NEED(ringway_push(queue, &one) > 0);
		}
		NEED(ringway_push_chain(queue, chain, 2, NULL) > 0);
		if (round % 2 == 0)
			NEED(ringway_reap(queue, DEPTH + 2, RINGWAY_FOREVER) == DEPTH + 2);
		else
			into += reap_into(queue, DEPTH + 2);
	}
	/* For 10000 operations. A table may still grow, or a thread start. */
	CHECK(count_allocations() - before < 100);
	SAME(read, ROUNDS / 2 * (DEPTH + 2));
	SAME(into, ROUNDS / 2 * (DEPTH + 2));
	SAME(ringway_cancel(queue, endless), 0);
	check_drain(queue);
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	check_close(pipes);
	close(file);
}

/* Each descriptor has only this operation, as in an event loop. */
static void polls(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	struct ringway_completion done[DEPTH];
	unsigned long before = 0;
	int fds[DEPTH];
	int round;
	int i;

	for (i = 0; i < DEPTH; i++)
		NEED((fds[i] = eventfd(1, EFD_CLOEXEC)) >= 0);
	for (round = 0; round < ROUNDS; round++) {
		if (round == ROUNDS / 2)
			before = count_allocations();
		for (i = 0; i < DEPTH; i++)
			check_push(queue, POLL(fds[i], POLLIN));
		NEED(ringway_reap_into(queue, done, DEPTH, DEPTH, RINGWAY_FOREVER) == DEPTH);
		for (i = 0; i < DEPTH; i++)
			CHECK(done[i].result == POLLIN);
	}
	CHECK(count_allocations() - before < 100);
	SAME(ringway_destroy(&queue), 0);
	for (i = 0; i < DEPTH; i++)
		close(fds[i]);
}

/* Each socket has only this operation, which without RINGWAY_SOCKET looks up its file. On other
   backends it does so even with the flag. */
static void sockets(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	struct ringway_completion done;
	struct ringway_operation one;
	unsigned long before = 0;
	char byte = 'x';
	int fds[2];
	int round;

	NEED(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	for (round = 0; round < 2 * ROUNDS; round++) {
		if (round == ROUNDS)
			before = count_allocations();
		one = round % 2 == 0 ? WRITE(fds[0], &byte, 1, HERE) : READ(fds[1], &byte, 1, HERE);
		one.flags = RINGWAY_SOCKET;
		check_push(queue, one);
		NEED(ringway_reap_into(queue, &done, 1, 1, RINGWAY_FOREVER) == 1);
		SAME(done.result, 1);
	}
	CHECK(backend != RINGWAY_BACKEND_URING || count_allocations() - before < 100);
	SAME(ringway_destroy(&queue), 0);
	check_close(fds);
}

int main(void)
{
	static void (*const tests[])(unsigned) = {refusals_of_a_full_queue, steady_state, polls,
	                                          sockets, NULL};
	void *volatile memory = malloc(1);

	free(memory);
	if (allocations == 0)
		check_skip("the allocations of this C library cannot be counted", 1);
	return check_each_backend("allocations", 100, tests);
}
