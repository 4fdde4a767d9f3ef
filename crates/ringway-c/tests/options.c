/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Arguments and options: structures of other versions, values out of range, defaults, names, error
   texts. */
#include "check.h"

#include <dirent.h>
#include <sched.h>

#include <pthread.h>

static int create(const struct ringway_options *options, struct ringway_queue **queue)
{
	*queue = (struct ringway_queue *)(uintptr_t)1;
	return ringway_create(options, queue);
}

/* Checks that a queue is refused with this errno and a text that contains `word`. */
static void refused(const struct ringway_options *options, int error, const char *word)
{
	struct ringway_queue *queue;

	SAME(create(options, &queue), error);
	CHECK(queue == NULL);
	if (!CHECK(strstr(ringway_last_error(), word) != NULL))
		printf("%s is not in: %s\n", word, ringway_last_error());
}

static void sizes_of_options(void)
{
	struct {
		struct ringway_options options;
		unsigned char later[64];
	} larger;
	struct ringway_options options;
	struct ringway_queue *queue;
	size_t i;

	/* This is the first version, so a smaller size is an error. */
	for (i = 0; i < sizeof options; i++) {
		options = check_default_options();
		options.backend = RINGWAY_BACKEND_THREADS;
		options.size = (uint32_t)i;
		refused(&options, -EINVAL, "ringway_options");
	}
	/* As from a program built against a later header. */
	memset(&larger, 0, sizeof larger);
	larger.options = check_default_options();
	larger.options.backend = RINGWAY_BACKEND_THREADS;
	larger.options.size = (uint32_t)sizeof larger;
	SAME(create(&larger.options, &queue), 0);
	SAME(ringway_destroy(&queue), 0);
	larger.later[63] = 1;
	refused(&larger.options, -E2BIG, "");
	larger.later[63] = 0;
	larger.later[0] = 1;
	refused(&larger.options, -E2BIG, "");
}

static void sizes_of_operations(struct ringway_queue *queue)
{
	struct {
		struct ringway_operation operation;
		unsigned char later[64];
	} larger;
	struct ringway_operation operation;

	memset(&larger, 0, sizeof larger);
	larger.operation = NOP();
	larger.operation.size = (uint32_t)sizeof larger;
	CHECK(ringway_push(queue, &larger.operation) > 0);
	check_drain(queue);
	larger.later[5] = 1;
	SAME(ringway_push(queue, &larger.operation), -E2BIG);
	CHECK(*ringway_last_error() != '\0');
	SAME(ringway_push_chain(queue, &larger.operation, 1, NULL), -E2BIG);
	operation = NOP();
	operation.size = 0;
	SAME(ringway_push(queue, &operation), -EINVAL);
	SAME(ringway_in_flight(queue), 0);
}

/* The number of processors that the kernel thread of SQPOLL may run on; 0 without one. */
static int polling_cpus(void)
{
	char path[300];
	struct dirent *entry;
	DIR *tasks = opendir("/proc/self/task");
	int cpus = 0;

	NEED(tasks != NULL);
	while ((entry = readdir(tasks)) != NULL) {
		char name[32] = "";
		cpu_set_t set;
		FILE *comm;

		snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
		comm = fopen(path, "r");
		if (comm == NULL)
			continue;
		if (fgets(name, sizeof name, comm) != NULL && strncmp(name, "iou-sqp", 7) == 0 &&
		    sched_getaffinity(atoi(entry->d_name), sizeof set, &set) == 0)
			cpus = CPU_COUNT(&set);
		fclose(comm);
	}
	closedir(tasks);
	return cpus;
}

/* Options that are 0 except for the size and the flags have their defaults. */
static void zeroed_options(void)
{
	struct ringway_options options;
	struct ringway_options made = check_default_options();
	struct ringway_queue *queue;
	cpu_set_t all;

	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	SAME(memcmp(&options, &made, sizeof options), 0);
	SAME(create(&options, &queue), 0);
	CHECK(ringway_free_slots(queue) == 1024);
	SAME(check_run(queue, NOP()), 0);
	SAME(ringway_destroy(&queue), 0);
	if (!check_wanted(RINGWAY_BACKEND_URING))
		return;
	options.flags = RINGWAY_SQPOLL;
	SAME(create(&options, &queue), 0);
	CPU_ZERO(&all);
	NEED(sched_getaffinity(0, sizeof all, &all) == 0);
	if (polling_cpus() == 0)
		check_skip("SQPOLL is not available", 0);
	else
		SAME(polling_cpus(), CPU_COUNT(&all));
	SAME(ringway_destroy(&queue), 0);
	options.flags |= RINGWAY_SQPOLL_CPU;
	SAME(create(&options, &queue), 0);
	if (polling_cpus() != 0)
		SAME(polling_cpus(), 1);
	SAME(ringway_destroy(&queue), 0);
}

static void invalid_options(void)
{
	static const struct {
		struct ringway_options set;
		const char *word;
	} cases[] = {
		{{.entries = 32769}, "entries"},
		{{.in_flight = 1 << 24}, "in_flight"},
		{{.flags = 1u << 31}, ""},
		{{.backend = 77}, ""},
		{{.faults = "sort=5"}, "sort"},
		{{.flags = RINGWAY_IOPOLL}, "iopoll_fd"},
		{{.flags = RINGWAY_IOPOLL, .iopoll_fd = -1}, "iopoll_fd"},
		{{.flags = RINGWAY_NO_CLOSE_WAIT, .close_wait_ms = 1}, "close_wait_ms"},
		{{.flags = RINGWAY_SQPOLL_CPU}, "SQPOLL_CPU"},
	};
	struct ringway_options options;
	struct ringway_queue *queue;
	char text[4096];
	size_t i;

	for (i = 0; i < sizeof cases / sizeof *cases; i++) {
		options = cases[i].set;
		options.size = sizeof options;
		refused(&options, -EINVAL, cases[i].word);
	}
	SAME(ringway_create(NULL, NULL), -EINVAL);
	/* The environment chooses the backend if the options do not. */
	setenv("RINGWAY_BACKEND", "treads", 1);
	refused(NULL, -EINVAL, "treads");
	options = check_default_options();
	options.backend = RINGWAY_BACKEND_THREADS;
	SAME(create(&options, &queue), 0);
	SAME(ringway_destroy(&queue), 0);
	setenv("RINGWAY_BACKEND", "threads", 1);
	SAME(create(NULL, &queue), 0);
	SAME(ringway_get_backend(queue), RINGWAY_BACKEND_THREADS);
	CHECK(ringway_explain(queue, text, sizeof text) < sizeof text);
	CHECK(strstr(text, "backend threads (forced by RINGWAY_BACKEND)") == text);
	SAME(ringway_destroy(&queue), 0);
	CHECK(queue == NULL);
	/* RINGWAY_STRICT refuses what only a ring can do. */
	options.flags = RINGWAY_SQPOLL | RINGWAY_STRICT;
	refused(&options, -EOPNOTSUPP, "");
	options.flags = RINGWAY_SQPOLL;
	SAME(create(&options, &queue), 0);
	CHECK(ringway_explain(queue, text, sizeof text) < sizeof text);
	CHECK(strstr(text, "EOPNOTSUPP") != NULL);
	CHECK(strstr(text, "backend threads (forced by the option backend)") == text);
	SAME(ringway_destroy(&queue), 0);
}

/* Paths and buffers that are missing, unknown numbers, offsets that are negative. */
static void invalid_operations(struct ringway_queue *queue)
{
	uint8_t bytes[16] = {0};
	struct iovec part = {bytes, sizeof bytes};
	struct statx stat;
	struct ringway_operation operations[] = {
		NOP(),
		NOP(),
		READ(0, NULL, 16, 0),
		WRITE(1, NULL, 16, 0),
		READV(0, NULL, 1, 0),
		WRITEV(1, NULL, 1, 0),
		READ(0, bytes, 16, (uint64_t)INT64_MAX + 1),
		READV(0, &part, 1, UINT64_MAX - 1),
		READV(0, &part, 1025, 0),
		OPEN(NULL, O_RDONLY),
		ringway_prep_statx(AT_FDCWD, NULL, 0, 0, &stat, NULL, NULL),
		ringway_prep_statx(AT_FDCWD, "x", 0, 0, NULL, NULL, NULL),
		ringway_prep_rename(AT_FDCWD, "x", AT_FDCWD, NULL, 0, NULL, NULL),
		ringway_prep_rename(AT_FDCWD, NULL, AT_FDCWD, "x", 0, NULL, NULL),
		ringway_prep_unlink(AT_FDCWD, NULL, 0, NULL, NULL),
		ringway_prep_mkdir(AT_FDCWD, NULL, 0755, NULL, NULL),
		ringway_prep_link(AT_FDCWD, NULL, AT_FDCWD, "x", 0, NULL, NULL),
		ringway_prep_symlink(NULL, AT_FDCWD, "x", NULL, NULL),
		ringway_prep_symlink("x", AT_FDCWD, NULL, NULL, NULL),
	};
	struct ringway_operation chain[3] = {NOP(), OPEN(NULL, O_RDONLY), NOP()};
	static const int64_t nobody[] = {0, -5, INT64_MAX, INT64_MIN};
	struct ringway_stats before, after;
	unsigned i;

	ringway_get_stats(queue, &before, sizeof before);
	operations[0].opcode = 20;
	operations[1].flags = 1u << 15;
	for (i = 0; i < sizeof operations / sizeof *operations; i++) {
		if (ringway_push(queue, &operations[i]) != -EINVAL || *ringway_last_error() == '\0')
			SAME(i, -1);
	}
	operations[0] = ringway_prep_read(0, &before, 1, UINT64_C(1) << 63, NULL, NULL);
	SAME(ringway_push(queue, operations), -EINVAL);
	CHECK(strstr(ringway_last_error(), "largest offset of a file") != NULL);
	SAME(ringway_push(queue, NULL), -EINVAL);
	SAME(ringway_push_chain(queue, chain, 3, NULL), -EINVAL);
	SAME(ringway_push_chain(queue, chain, 0, NULL), -EINVAL);
	SAME(ringway_push_chain(queue, NULL, 2, NULL), -EINVAL);
	ringway_get_stats(queue, &after, sizeof after);
	SAME(after.pushed, before.pushed);
	SAME(ringway_reap_into(queue, NULL, 0, 0, 0), -EINVAL);
	for (i = 0; i < 4; i++)
		SAME(ringway_cancel(queue, nobody[i]), -ENOENT);
	SAME(check_run(queue, NOP()), 0);
}

static void names(void)
{
	unsigned kind;

	for (kind = RINGWAY_OP_NOP; kind <= RINGWAY_OP_TIMEOUT; kind++)
		CHECK(strcmp(ringway_opcode_name(kind), "?") != 0);
	CHECK(strcmp(ringway_opcode_name(20), "?") == 0);
	CHECK(strcmp(ringway_opcode_name(RINGWAY_OP_SYNC_RANGE), "sync_range") == 0);
	CHECK(strcmp(ringway_opcode_name(UINT32_MAX), "?") == 0);
	CHECK(strcmp(ringway_backend_name(RINGWAY_BACKEND_NULL), "null") == 0);
	CHECK(strcmp(ringway_backend_name(9), "?") == 0);
}

static void queries(struct ringway_queue *queue, unsigned backend)
{
	char text[4096];
	char cut[8];
	size_t length = ringway_explain(queue, NULL, 0);
	struct {
		struct ringway_stats stats;
		uint64_t later;
	} larger;
	struct ringway_direct_io direct;
	int fd = check_file("direct", 4096, 0);

	SAME(ringway_explain(queue, text, sizeof text), length);
	SAME(strlen(text), length);
	CHECK(strstr(text, ringway_backend_name(backend)) != NULL);
	memset(cut, 'x', sizeof cut);
	SAME(ringway_explain(queue, cut, 5), length);
	SAME(strlen(cut), 4);
	CHECK(memcmp(cut, text, 4) == 0 && cut[5] == 'x');
	SAME(ringway_explain(queue, cut + 7, 1), length);
	SAME(cut[7], 0);
	memset(&larger, 0xff, sizeof larger);
	ringway_get_stats(queue, &larger.stats, sizeof larger);
	SAME(larger.later, 0);
	memset(&larger, 0xff, sizeof larger);
	ringway_get_stats(queue, &larger.stats, 8);
	CHECK(larger.stats.delivered == UINT64_MAX && larger.stats.pushed != UINT64_MAX);
	memset(&direct, 0xff, sizeof direct);
	SAME(ringway_get_direct_io(fd, &direct, sizeof direct), 0);
	CHECK(direct.mem_align >= 1 && direct.mem_align <= 65536 && direct.offset_align >= 1 &&
	      direct.offset_align <= 65536);
	SAME(ringway_get_direct_io(1000000, &direct, sizeof direct), -EBADF);
	SAME(ringway_get_direct_io(-1, &direct, sizeof direct), -EBADF);
	close(fd);
}

/* Every member of a chain has the id that push_chain stored; a NULL array is allowed. */
static void chain_ids(struct ringway_queue *queue)
{
	struct ringway_operation chain[5];
	struct ringway_completion done;
	int64_t ids[6] = {0, 0, 0, 0, 0, 77};
	int64_t first;
	int i;

	for (i = 0; i < 5; i++)
		chain[i] = ringway_prep_nop(NULL, &ids[i]);
	first = ringway_push_chain(queue, chain, 5, ids);
	SAME(first, ids[0]);
	for (i = 0; i < 5; i++) {
		SAME(ringway_reap_into(queue, &done, 1, 1, RINGWAY_FOREVER), 1);
		SAME(done.id, *(int64_t *)done.user_data);
	}
	for (i = 0; i < 5; i++)
		CHECK(ids[i] > 0);
	SAME(ids[5], 77);
	/* A member in the middle can be cancelled by its id; an error stores nothing. */
	chain[0] = TIMEOUT(HOUR);
	CHECK(ringway_push_chain(queue, chain, 3, ids) > 0);
	SAME(ringway_cancel(queue, ids[1]), 0);
	SAME(ringway_cancel(queue, ids[0]), 0);
	check_drain(queue);
	ids[0] = 77;
	SAME(ringway_push_chain(queue, chain, 0, ids), -EINVAL);
	SAME(ids[0], 77);
	CHECK(ringway_push_chain(queue, chain + 1, 1, NULL) > 0);
	check_drain(queue);
}

/* A queue works with every option, also where that is refused. */
static void works(struct ringway_queue *queue, int fd)
{
	uint8_t bytes[100];
	struct ringway_operation late = TIMEOUT(HOUR);

	SAME(check_run(queue, READ(fd, bytes, 100, 700)), 100);
	CHECK(check_filled(bytes, 700, 100));
	SAME(check_run(queue, FSYNC(fd)), 0);
	SAME(check_run(queue, POLL(fd, POLLIN)), POLLIN);
	late.timeout_ns = 1000000;
	SAME(check_run(queue, late), -ETIMEDOUT);
	COUNTERS(queue);
}

static void every_option(unsigned backend)
{
	int fd = check_file("options", 4096, 0);
	struct ringway_queue *first = check_open(backend, 0);
	const struct ringway_options cases[] = {
		{.flags = RINGWAY_SINGLE_ISSUER},
		{.flags = RINGWAY_EVENTFD | RINGWAY_SINGLE_ISSUER},
		{.flags = RINGWAY_SQPOLL, .sqpoll_idle_ms = 5},
		{.flags = RINGWAY_SQPOLL | RINGWAY_SQPOLL_CPU},
		{.attach = first},
		{.io_wq_bounded = 2, .io_wq_unbounded = 2},
		{.entries = 1, .in_flight = 2},
		{.threads = 1, .sync_threads = 1, .completion_entries = 4096},
		{.flags = RINGWAY_IOPOLL, .iopoll_fd = fd},
		{.close_wait_ms = 1},
	};
	size_t i;

	works(first, fd);
	for (i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ringway_options options = cases[i];
		struct ringway_queue *queue;

		options.size = sizeof options;
		queue = check_queue(backend, options);
		NEED(queue != NULL);
		SAME(ringway_free_slots(queue), options.in_flight ? options.in_flight : 1024);
		works(queue, fd);
		SAME(ringway_destroy(&queue), 0);
	}
	works(first, fd);
	SAME(ringway_destroy(&first), 0);
	close(fd);
}

/* The null backend: everything succeeds without being performed. */
static void null_backend(void)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	uint8_t bytes[100];

	options.backend = RINGWAY_BACKEND_NULL;
	SAME(create(&options, &queue), 0);
	SAME(ringway_get_backend(queue), RINGWAY_BACKEND_NULL);
	SAME(check_run(queue, NOP()), 0);
	SAME(check_run(queue, READ(0, bytes, 100, 0)), 100);
	SAME(ringway_destroy(&queue), 0);
}

/* Not null if this thread has no error of another one. */
static void *last_error_of_thread(void *arg)
{
	return *ringway_last_error() == '\0' ? arg : NULL;
}

static void arguments(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);

	SAME(ringway_get_backend(queue), backend);
	sizes_of_operations(queue);
	invalid_operations(queue);
	chain_ids(queue);
	queries(queue, backend);
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	CHECK(queue == NULL);
	SAME(ringway_destroy(&queue), 0);
}

int main(void)
{
	static void (*const tests[])(unsigned) = {arguments, every_option, NULL};
	char version[64];
	pthread_t thread;
	void *text;

	check_watch("options", 120);
	CHECK(strcmp(ringway_last_error(), "") == 0);
	snprintf(version, sizeof version, "%d.%d.%d", RINGWAY_VERSION_MAJOR, RINGWAY_VERSION_MINOR,
	         RINGWAY_VERSION_PATCH);
	CHECK(strcmp(ringway_version(), version) == 0);
	names();
	sizes_of_options();
	/* Each thread has its own last error. */
	NEED(pthread_create(&thread, NULL, last_error_of_thread, &text) == 0 &&
	     pthread_join(thread, &text) == 0);
	SAME(text != NULL, 1);
	CHECK(*ringway_last_error() != '\0');
	SAME(ringway_destroy(NULL), 0);
	null_backend();
	zeroed_options();
	invalid_options();
	unsetenv("RINGWAY_BACKEND");
	return check_each_backend("options", 120, tests);
}
