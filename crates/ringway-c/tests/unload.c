/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* dlclose(3) of libringway.so: threads of a queue that was destroyed may still be running. */
#include "check.h"

#include <dlfcn.h>
#include <fcntl.h>

enum { BLOCK = 512, OPERATIONS = 32, ROUNDS = 20 };

static char blocks[OPERATIONS][BLOCK];

/* The library is in the directory above that of this program. */
static void find_library(char *path, size_t size)
{
	ssize_t length = readlink("/proc/self/exe", path, size - 1);
	int i;

	NEED(length > 0);
	path[length] = 0;
	for (i = 0; i < 2; i++)
		*strrchr(path, '/') = 0;
	NEED(strlen(path) + sizeof "/libringway.so" <= size);
	strcat(path, "/libringway.so");
}

/* A function of the library that was loaded, not that of the test. */
#define LOADED(name) ((__typeof__(&(name)))(uintptr_t)dlsym(library, #name))

static void load_and_unload(const char *path, int fd)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	struct ringway_options options;
	struct ringway_queue *queue;
	int i;

	if (library == NULL) {
		printf("%s\n", dlerror());
		exit(1);
	}
	ringway_options_init(&options);
	options.backend = RINGWAY_BACKEND_THREADS;
	NEED(LOADED(ringway_create)(&options, &queue) == 0);
	for (i = 0; i < OPERATIONS; i++) {
		struct ringway_operation operation =
			i % 2 == 0 ? ringway_prep_read(fd, blocks[i], BLOCK, 0, NULL, NULL)
				   : ringway_prep_timeout(1000000, NULL, NULL);

		NEED(LOADED(ringway_push)(queue, &operation) >= 0);
	}
	while (LOADED(ringway_in_flight)(queue) > 0)
		NEED(LOADED(ringway_reap)(queue, 1, RINGWAY_FOREVER) >= 0);
	NEED(LOADED(ringway_destroy)(&queue) == 0);
	CHECK(dlclose(library) == 0);
}

int main(void)
{
	char path[4096];
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), round;

	NEED(fd >= 0);
	find_library(path, sizeof path);
	for (round = 0; round < ROUNDS; round++)
		load_and_unload(path, fd);
	/* Idle threads end after a while; those that were told to, now. */
	usleep(200000);
	close(fd);
	return check_end("unload");
}
