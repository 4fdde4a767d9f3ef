/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* sanitized: no, because it counts allocations, in the place of the sanitizer's allocator */
/* valgrind: no, because it counts allocations, in the place of valgrind's allocator */
/* A queue that is full is ordinary flow control: it is told without an allocation. */
#include "check.h"

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

static void run(unsigned backend)
{
	struct ringway_options options = ringway_options();
	struct ringway_queue *queue;
	struct ringway_operation waits;
	struct ringway_operation chain[9];
	uint8_t bytes[8];
	unsigned long before;
	int pipes[2];
	int i;

	options.in_flight = 8;
	queue = check_queue(backend, options);
	if (queue == NULL)
		return;
	NEED(pipe2(pipes, O_CLOEXEC) == 0);
	for (i = 0; i < 8; i++) {
		waits = ringway_read(pipes[0], &bytes[i], 1, RINGWAY_CURSOR, NULL, NULL);
		CHECK(ringway_push(queue, &waits) > 0);
	}
	CHECK(ringway_submit(queue) >= 0);
	usleep(20000); /* the threads have begun by then, and allocate no more */
	chain[0] = ringway_open(AT_FDCWD, "full", O_RDONLY, 0, NULL, NULL);
	chain[1] = ringway_nop(NULL, NULL);
	/* The first error of a thread makes room for its text. */
	SAME(ringway_push(queue, &waits), -EAGAIN);
	before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
	for (i = 0; i < 1000; i++) {
		if (ringway_push(queue, &waits) != -EAGAIN || ringway_push(queue, &chain[0]) != -EAGAIN ||
		    ringway_push_chain(queue, chain, 2) != -EAGAIN)
			break;
	}
	SAME(__atomic_load_n(&allocations, __ATOMIC_RELAXED) - before, 0);
	SAME(i, 1000);
	CHECK(strstr(ringway_last_error(), "full") != NULL);
	BOOKS(queue);
	/* For one that is longer than the queue there never is room: to reap and push again would not end. */
	for (i = 1; i < 9; i++)
		chain[i] = ringway_nop(NULL, NULL);
	SAME(ringway_push_chain(queue, chain + 1, 8), -EAGAIN);
	SAME(ringway_push_chain(queue, chain, 9), -EINVAL);
	NEED(write(pipes[1], "12345678", 8) == 8);
	check_drain(queue);
	SAME(ringway_push_chain(queue, chain, 9), -EINVAL);
	CHECK(ringway_push_chain(queue, chain + 1, 8) > 0);
	SAME(ringway_destroy(&queue), 0);
	close(pipes[0]);
	close(pipes[1]);
}

int main(void)
{
	void *volatile memory;
	unsigned b;

	check_watch("full", 100);
	memory = malloc(1);
	free(memory);
	if (allocations == 0)
		check_skip("this C library's allocations cannot be counted", 1);
	for (b = 0; b < 3; b++)
		run(check_backends[b]);
	return check_end("full");
}
