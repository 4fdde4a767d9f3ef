/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* sanitized: no, because it replaces the allocator to count allocations */
/* valgrind: no, because it replaces the allocator to count allocations */
/* A queue in steady_state state does not allocate: not for reads and reaps, not when a push finds
   it full, not for polls of descriptors that nothing else uses or transfers of such sockets,
   and not when an operation to cancel has already completed. */
#include "check.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

static unsigned long allocations;

#if defined(__GLIBC__)
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
	__atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	__atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
	return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
	__atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
	return __libc_realloc(old, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
	__atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
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
	struct ringway_range range = {-1, 0, 0, 1, NULL, 0};
	struct ringway_completion done;
	uint8_t bytes[8];
	unsigned long before;
	int64_t over;
	int pipes[2];
	int i;

	options.in_flight = 8;
	queue = check_queue(backend, options);
	if (queue == NULL)
		return;
	NEED(pipe2(pipes, O_CLOEXEC) == 0);
	waits = ringway_prep_nop(NULL, NULL);
	over = ringway_push(queue, &waits);
	CHECK(over > 0);
	SAME(ringway_reap_into(queue, &done, 1, 1, RINGWAY_FOREVER), 1);
	for (i = 0; i < 8; i++) {
		waits = ringway_prep_read(pipes[0], &bytes[i], 1, RINGWAY_CURRENT_POSITION, NULL,
		                          NULL);
		CHECK(ringway_push(queue, &waits) > 0);
	}
	CHECK(ringway_submit(queue) >= 0);
	usleep(20000); /* the threads have started, and no longer allocate */
	chain[0] = ringway_prep_open(AT_FDCWD, "full", O_RDONLY, 0, NULL, NULL);
	chain[1] = ringway_prep_nop(NULL, NULL);
	range.fd = pipes[0];
	range.buf = bytes;
	/* The first error of a thread allocates its text. */
	SAME(ringway_push(queue, &waits), -EAGAIN);
	before = count_allocations();
	for (i = 0; i < 1000; i++) {
		if (ringway_push(queue, &waits) != -EAGAIN ||
		    ringway_push(queue, &chain[0]) != -EAGAIN ||
		    ringway_push_chain(queue, chain, 2, NULL) != -EAGAIN)
			break;
		if (ringway_multi_read(queue, &range, 1) != -EAGAIN ||
		    ringway_cancel(queue, over) != -ENOENT ||
		    strstr(ringway_last_error(), "already known") == NULL ||
		    ringway_push(queue, &waits) != -EAGAIN)
			break;
	}
	SAME(count_allocations() - before, 0);
	SAME(i, 1000);
	CHECK(strstr(ringway_last_error(), "full") != NULL);
	COUNTERS(queue);
	/* A chain longer than the queue is refused with EINVAL, because reaping cannot help. */
	for (i = 1; i < 9; i++)
		chain[i] = ringway_prep_nop(NULL, NULL);
	SAME(ringway_push_chain(queue, chain + 1, 8, NULL), -EAGAIN);
	SAME(ringway_push_chain(queue, chain, 9, NULL), -EINVAL);
	NEED(write(pipes[1], "12345678", 8) == 8);
	check_drain(queue);
	SAME(ringway_push_chain(queue, chain, 9, NULL), -EINVAL);
	CHECK(ringway_push_chain(queue, chain + 1, 8, NULL) > 0);
	SAME(ringway_destroy(&queue), 0);
	close(pipes[0]);
	close(pipes[1]);
}

enum { DEPTH = 8, BLOCK = 4096 };

static void reaped(struct ringway_queue *queue, const struct ringway_completion *done)
{
	(void)queue;
	*(int *)done->user_data += done->result == BLOCK;
}

/* Reads singly and in chains, reaps with callbacks and arrays, with one operation on the file
   always in flight. */
static void steady_state(unsigned backend)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct ringway_completion done[DEPTH];
	struct ringway_operation one;
	struct ringway_operation chain[2];
	static uint8_t bytes[DEPTH + 2][BLOCK];
	int file = check_file("steady_state", (DEPTH + 2) * BLOCK, 0);
	unsigned long before = 0;
	int64_t endless;
	int pipes[2];
	int round;
	int read = 0;
	int into = 0;
	int i;

	NEED(file >= 0 && pipe2(pipes, O_CLOEXEC) == 0);
	queue = check_queue(backend, options);
	if (queue == NULL)
		return;
	/* A read of the file waits in a chain behind one that does not end, so its properties stay
	   cached. */
	chain[0] = ringway_prep_read(pipes[0], bytes[0], 1, RINGWAY_CURRENT_POSITION, NULL, NULL);
	chain[1] = ringway_prep_read(file, bytes[0], BLOCK, 0, NULL, NULL);
	endless = ringway_push_chain(queue, chain, 2, NULL);
	CHECK(endless > 0);
	for (round = 0; round < 2000; round++) {
		if (round == 1000)
			before = count_allocations();
		for (i = 0; i < DEPTH; i++) {
			one = ringway_prep_read(file, bytes[i], BLOCK, (uint64_t)i * BLOCK, reaped,
			                        &read);
			if (ringway_push(queue, &one) <= 0)
				break;
		}
		for (i = 0; i < 2; i++)
			chain[i] = ringway_prep_read(file, bytes[DEPTH + i], BLOCK,
			                             (uint64_t)i * BLOCK, reaped, &read);
		if (ringway_push_chain(queue, chain, 2, NULL) <= 0)
			break;
		if (round % 2 == 0) {
			if (ringway_reap(queue, DEPTH + 2, RINGWAY_FOREVER) != DEPTH + 2)
				break;
		} else {
			int left = DEPTH + 2;

			while (left > 0) {
				int got = ringway_reap_into(queue, done, DEPTH,
				                            left < DEPTH ? (unsigned)left : DEPTH,
				                            RINGWAY_FOREVER);

				if (got <= 0)
					break;
				for (i = 0; i < got; i++)
					into += done[i].result == BLOCK;
				left -= got;
			}
		}
	}
	/* For 10000 operations. A table may still grow, or a thread start. */
	CHECK(count_allocations() - before < 100);
	SAME(round, 2000);
	SAME(read, 1000 * (DEPTH + 2));
	SAME(into, 1000 * (DEPTH + 2));
	SAME(ringway_cancel(queue, endless), 0);
	check_drain(queue);
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	close(pipes[0]);
	close(pipes[1]);
	close(file);
}

/* Each descriptor has only this operation, as in an event loop. */
static void polls(unsigned backend)
{
	struct ringway_queue *queue = check_queue(backend, check_default_options());
	struct ringway_completion done[DEPTH];
	unsigned long before = 0;
	int fds[DEPTH];
	int round;
	int i;

	if (queue == NULL)
		return;
	for (i = 0; i < DEPTH; i++) {
		fds[i] = eventfd(1, EFD_CLOEXEC);
		NEED(fds[i] >= 0);
	}
	for (round = 0; round < 2000; round++) {
		if (round == 1000)
			before = count_allocations();
		for (i = 0; i < DEPTH; i++) {
			struct ringway_operation one =
				ringway_prep_poll(fds[i], POLLIN, NULL, NULL);

			NEED(ringway_push(queue, &one) > 0);
		}
		if (ringway_reap_into(queue, done, DEPTH, DEPTH, RINGWAY_FOREVER) != DEPTH)
			break;
		for (i = 0; i < DEPTH; i++)
			CHECK(done[i].result == POLLIN);
	}
	SAME(round, 2000);
	/* For 8000 operations. */
	CHECK(count_allocations() - before < 100);
	SAME(ringway_destroy(&queue), 0);
	for (i = 0; i < DEPTH; i++)
		close(fds[i]);
}

/* Each socket has only this operation, which without RINGWAY_SOCKET looks up its file. On other
   backends it does so even with the flag. */
static void sockets(void)
{
	struct ringway_queue *queue =
		check_queue(RINGWAY_BACKEND_URING, check_default_options());
	struct ringway_completion done;
	struct ringway_operation one;
	unsigned long before = 0;
	char byte = 'x';
	int fds[2];
	int round;

	if (queue == NULL)
		return;
	NEED(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	for (round = 0; round < 4000; round++) {
		if (round == 2000)
			before = count_allocations();
		one = round % 2 == 0 ? ringway_prep_write(fds[0], &byte, 1,
		                                          RINGWAY_CURRENT_POSITION, NULL, NULL)
		                     : ringway_prep_read(fds[1], &byte, 1,
		                                         RINGWAY_CURRENT_POSITION, NULL, NULL);
		one.flags = RINGWAY_SOCKET;
		NEED(ringway_push(queue, &one) > 0);
		if (ringway_reap_into(queue, &done, 1, 1, RINGWAY_FOREVER) != 1 || done.result != 1)
			break;
	}
	SAME(round, 4000);
	/* For 2000 operations. */
	CHECK(count_allocations() - before < 100);
	SAME(ringway_destroy(&queue), 0);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	void *volatile memory;
	unsigned b;

	check_watch("allocations", 100);
	memory = malloc(1);
	free(memory);
	if (allocations == 0)
		check_skip("the allocations of this C library cannot be counted", 1);
	for (b = 0; b < 3; b++) {
		refusals_of_a_full_queue(check_backends[b]);
		steady_state(check_backends[b]);
		polls(check_backends[b]);
	}
	sockets();
	return check_end("allocations");
}
