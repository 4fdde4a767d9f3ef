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
	larger.operation = ringway_prep_nop(NULL, NULL);
	larger.operation.size = (uint32_t)sizeof larger;
	CHECK(ringway_push(queue, &larger.operation) > 0);
	check_drain(queue);
	larger.later[5] = 1;
	SAME(ringway_push(queue, &larger.operation), -E2BIG);
	CHECK(*ringway_last_error() != '\0');
	SAME(ringway_push_chain(queue, &larger.operation, 1, NULL), -E2BIG);
	operation = ringway_prep_nop(NULL, NULL);
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
	SAME(check_run(queue, ringway_prep_nop(NULL, NULL)), 0);
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
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;

	options.entries = 32769;
	refused(&options, -EINVAL, "entries");
	options = check_default_options();
	options.in_flight = 1 << 24;
	refused(&options, -EINVAL, "in_flight");
	options = check_default_options();
	options.flags = 1u << 31;
	refused(&options, -EINVAL, "");
	options = check_default_options();
	options.backend = 77;
	refused(&options, -EINVAL, "");
	options = check_default_options();
	options.faults = "sort=5";
	refused(&options, -EINVAL, "sort");
	options = check_default_options();
	options.flags = RINGWAY_IOPOLL;
	refused(&options, -EINVAL, "iopoll_fd");
	options.iopoll_fd = -1;
	refused(&options, -EINVAL, "iopoll_fd");
	options = check_default_options();
	options.flags = RINGWAY_NO_CLOSE_WAIT;
	options.close_wait_ms = 1;
	refused(&options, -EINVAL, "close_wait_ms");
	options = check_default_options();
	options.flags = RINGWAY_SQPOLL_CPU;
	refused(&options, -EINVAL, "SQPOLL_CPU");
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
	SAME(ringway_destroy(&queue), 0);
	CHECK(queue == NULL);
	/* RINGWAY_STRICT refuses what only a ring can do. */
	options = check_default_options();
	options.backend = RINGWAY_BACKEND_THREADS;
	options.flags = RINGWAY_SQPOLL | RINGWAY_STRICT;
	SAME(create(&options, &queue), -EOPNOTSUPP);
	CHECK(queue == NULL);
	CHECK(*ringway_last_error() != '\0');
	options.flags = RINGWAY_SQPOLL;
	SAME(create(&options, &queue), 0);
	if (queue != NULL) {
		char text[4096];

		CHECK(ringway_explain(queue, text, sizeof text) < sizeof text);
		CHECK(strstr(text, "EOPNOTSUPP") != NULL);
	}
	SAME(ringway_destroy(&queue), 0);
}

static void invalid_operations(struct ringway_queue *queue)
{
	uint8_t bytes[16] = {0};
	struct iovec part = {bytes, sizeof bytes};
	struct ringway_operation operation;
	struct ringway_operation chain[3];
	struct statx stat;
	struct ringway_stats before;
	struct ringway_stats after;
	unsigned kind;

	ringway_get_stats(queue, &before, sizeof before);
#define REFUSED(made, change)                             \
	do {                                              \
		operation = made;                         \
		change;                                   \
		SAME(ringway_push(queue, &operation), -EINVAL); \
		CHECK(*ringway_last_error() != '\0');     \
	} while (0)
	REFUSED(ringway_prep_nop(NULL, NULL), operation.opcode = 20);
	REFUSED(ringway_prep_nop(NULL, NULL), operation.opcode = 65535);
	REFUSED(ringway_prep_nop(NULL, NULL), operation.flags = 1u << 15);
	REFUSED(ringway_prep_read(0, NULL, 16, 0, NULL, NULL), );
	REFUSED(ringway_prep_write(1, NULL, 16, 0, NULL, NULL), );
	REFUSED(ringway_prep_readv(0, NULL, 1, 0, NULL, NULL), );
	REFUSED(ringway_prep_writev(1, NULL, 1, 0, NULL, NULL), );
	REFUSED(ringway_prep_read(0, bytes, 16, (uint64_t)INT64_MAX + 1, NULL, NULL), );
	REFUSED(ringway_prep_readv(0, &part, 1, UINT64_MAX - 1, NULL, NULL), );
	REFUSED(ringway_prep_open(AT_FDCWD, NULL, O_RDONLY, 0, NULL, NULL), );
	REFUSED(ringway_prep_statx(AT_FDCWD, NULL, 0, 0, &stat, NULL, NULL), );
	REFUSED(ringway_prep_statx(AT_FDCWD, "x", 0, 0, NULL, NULL, NULL), );
	REFUSED(ringway_prep_rename(AT_FDCWD, "x", AT_FDCWD, NULL, 0, NULL, NULL), );
	REFUSED(ringway_prep_rename(AT_FDCWD, NULL, AT_FDCWD, "x", 0, NULL, NULL), );
	REFUSED(ringway_prep_unlink(AT_FDCWD, NULL, 0, NULL, NULL), );
	REFUSED(ringway_prep_mkdir(AT_FDCWD, NULL, 0755, NULL, NULL), );
	REFUSED(ringway_prep_link(AT_FDCWD, NULL, AT_FDCWD, "x", 0, NULL, NULL), );
	REFUSED(ringway_prep_symlink(NULL, AT_FDCWD, "x", NULL, NULL), );
	REFUSED(ringway_prep_symlink("x", AT_FDCWD, NULL, NULL, NULL), );
	SAME(ringway_push(queue, NULL), -EINVAL);
	chain[0] = chain[2] = ringway_prep_nop(NULL, NULL);
	chain[1] = ringway_prep_mkdir(AT_FDCWD, NULL, 0755, NULL, NULL);
	SAME(ringway_push_chain(queue, chain, 3, NULL), -EINVAL);
	SAME(ringway_push_chain(queue, chain, 0, NULL), -EINVAL);
	SAME(ringway_push_chain(queue, NULL, 2, NULL), -EINVAL);
	ringway_get_stats(queue, &after, sizeof after);
	SAME(after.pushed, before.pushed);
	SAME(ringway_reap_into(queue, NULL, 0, 0, 0), -EINVAL);
	SAME(ringway_cancel(queue, 0), -ENOENT);
	SAME(ringway_cancel(queue, -5), -ENOENT);
	SAME(ringway_cancel(queue, INT64_MAX), -ENOENT);
	SAME(ringway_cancel(queue, INT64_MIN), -ENOENT);
	SAME(check_run(queue, ringway_prep_nop(NULL, NULL)), 0);
	/* Every opcode has a name. */
	for (kind = RINGWAY_OP_NOP; kind <= RINGWAY_OP_TIMEOUT; kind++)
		CHECK(strcmp(ringway_opcode_name(kind), "?") != 0);
	CHECK(strcmp(ringway_opcode_name(20), "?") == 0);
	CHECK(strcmp(ringway_opcode_name(RINGWAY_OP_SYNC_RANGE), "sync_range") == 0);
	CHECK(strcmp(ringway_opcode_name(UINT32_MAX), "?") == 0);
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
	struct ringway_completion completions[5];
	int64_t ids[6] = {0, 0, 0, 0, 0, 77};
	int64_t first;
	int i;

	for (i = 0; i < 5; i++)
		chain[i] = ringway_prep_nop(NULL, &ids[i]);
	first = ringway_push_chain(queue, chain, 5, ids);
	SAME(first, ids[0]);
	for (i = 0; i < 5;) {
		int j, count = ringway_reap_into(queue, completions, 5, 1, RINGWAY_FOREVER);

		if (!CHECK(count > 0))
			return;
		for (j = 0; j < count; j++, i++)
			SAME(completions[j].id, *(int64_t *)completions[j].user_data);
	}
	for (i = 0; i < 5; i++)
		CHECK(ids[i] > 0);
	SAME(ids[5], 77);
	/* A member in the middle can be cancelled by its id; an error stores null_backend. */
	chain[0] = ringway_prep_timeout(UINT64_C(60000000000), NULL, &ids[0]);
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
	struct ringway_operation chain[2];
	struct answer answers[2] = {{-1, 0}, {-1, 0}};
	struct ringway_operation late;

	if (queue == NULL)
		return;
	SAME(check_run(queue, ringway_prep_read(fd, bytes, 100, 700, NULL, NULL)), 100);
	CHECK(check_filled(bytes, 700, 100));
	chain[0] = ringway_prep_fsync(fd, check_answer, &answers[0]);
	chain[1] = ringway_prep_poll(fd, POLLIN, check_answer, &answers[1]);
	CHECK(ringway_push_chain(queue, chain, 2, NULL) > 0);
	check_drain(queue);
	SAME(answers[0].result, 0);
	SAME(answers[1].result, POLLIN);
	late = ringway_prep_timeout(UINT64_C(60000000000), NULL, NULL);
	late.timeout_ns = 1000000;
	SAME(check_run(queue, late), -ETIMEDOUT);
	COUNTERS(queue);
}

static void every_option(unsigned backend)
{
	int fd = check_file("options", 4096, 0);
	struct ringway_queue *first = check_queue(backend, check_default_options());
	unsigned i;

	works(first, fd);
	for (i = 0; i < 10; i++) {
		struct ringway_options options = check_default_options();
		struct ringway_queue *queue;

		switch (i) {
		case 0:
			options.flags = RINGWAY_SINGLE_ISSUER;
			break;
		case 1:
			options.flags = RINGWAY_EVENTFD | RINGWAY_SINGLE_ISSUER;
			break;
		case 2:
			options.flags = RINGWAY_SQPOLL;
			options.sqpoll_idle_ms = 5;
			break;
		case 3:
			options.flags = RINGWAY_SQPOLL | RINGWAY_SQPOLL_CPU;
			options.sqpoll_cpu = 0;
			break;
		case 4:
			options.attach = first;
			break;
		case 5:
			options.io_wq_bounded = 2;
			options.io_wq_unbounded = 2;
			break;
		case 6:
			options.entries = 1;
			options.in_flight = 2;
			break;
		case 7:
			options.threads = 1;
			options.sync_threads = 1;
			options.completion_entries = 4096;
			break;
		case 8:
			options.flags = RINGWAY_IOPOLL;
			options.iopoll_fd = fd;
			break;
		default:
			options.close_wait_ms = 1;
			break;
		}
		queue = check_queue(backend, options);
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
	SAME(check_run(queue, ringway_prep_nop(NULL, NULL)), 0);
	SAME(check_run(queue, ringway_prep_read(0, bytes, 100, 0, NULL, NULL)), 100);
	SAME(ringway_destroy(&queue), 0);
}

static void *last_error_of_thread(void *arg)
{
	(void)arg;
	return (void *)(uintptr_t)ringway_last_error();
}

int main(void)
{
	struct ringway_queue *queue = NULL;
	char version[64];
	pthread_t thread;
	void *text;
	unsigned b;

	check_watch("options", 120);
	CHECK(strcmp(ringway_last_error(), "") == 0);
	snprintf(version, sizeof version, "%d.%d.%d", RINGWAY_VERSION_MAJOR, RINGWAY_VERSION_MINOR,
	         RINGWAY_VERSION_PATCH);
	CHECK(strcmp(ringway_version(), version) == 0);
	CHECK(strcmp(ringway_backend_name(RINGWAY_BACKEND_NULL), "null") == 0);
	CHECK(strcmp(ringway_backend_name(9), "?") == 0);
	sizes_of_options();
	/* Each thread has its own last error. */
	NEED(pthread_create(&thread, NULL, last_error_of_thread, NULL) == 0 &&
	     pthread_join(thread, &text) == 0);
	CHECK(*ringway_last_error() != '\0');
	for (b = 0; b < 3; b++) {
		queue = check_queue(check_backends[b], check_default_options());
		if (queue == NULL)
			continue;
		SAME(ringway_get_backend(queue), check_backends[b]);
		sizes_of_operations(queue);
		invalid_operations(queue);
		chain_ids(queue);
		queries(queue, check_backends[b]);
		COUNTERS(queue);
		SAME(ringway_destroy(&queue), 0);
		CHECK(queue == NULL);
		SAME(ringway_destroy(&queue), 0);
	}
	SAME(ringway_destroy(NULL), 0);
	for (b = 0; b < 3; b++)
		every_option(check_backends[b]);
	null_backend();
	zeroed_options();
	invalid_options();
	return check_end("options");
}
