/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* valgrind: no, because it reports memory that only the parent's other threads refer to */
/*
 * Calls every function of the header and runs every operation in every situation, and checks that
 * the results are those that the header documents. The list of functions comes from the header, so
 * that none is missing.
 */
#include "check.h"

#include <ctype.h>
#include <sys/time.h>

enum situation {
	PLAIN,
	IN_DESTROY,
	CANCELLED,
	FAILED,
	NO_DESCRIPTORS,
	SIGNALS,
	CHILD,
	BAD,
	SITUATIONS
};

static const char *const situations[SITUATIONS] = {"plain",  "in destroy", "cancelled", "failed",
                                                   "EMFILE", "signals",    "child",     "bad"};

struct world {
	unsigned backend;
	enum situation situation;
	struct ringway_queue *queue;
	int file;
	int other;
	int pipes[2];
	int64_t waiting;
	uint8_t *bytes; /* 4096 bytes */
};

static void close_opened(struct ringway_queue *queue, const struct ringway_completion *done)
{
	(void)queue;
	/* The descriptor of an open. */
	if (done->opcode == RINGWAY_OP_OPEN && done->result >= 0)
		close((int)done->result);
}

/* ---- The functions: with valid arguments, or, in BAD, with arguments that they must refuse ----
 */

#define CALL(name, answer)                               \
	static int64_t call_##name(struct world *world)  \
	{                                                \
		(void)world;                             \
		return (int64_t)(answer);                \
	}

#define IS_BAD (world->situation == BAD)

CALL(version, strlen(ringway_version()))
CALL(last_error, ringway_last_error() != NULL)
CALL(backend_name, strcmp(ringway_backend_name(IS_BAD ? 99 : world->backend), "?") != 0)
CALL(opcode_name, strcmp(ringway_opcode_name(IS_BAD ? 99 : RINGWAY_OP_READ), "?") != 0)
CALL(get_backend, ringway_get_backend(world->queue) == world->backend)
CALL(submit, ringway_submit(world->queue))
CALL(get_stats, COUNTERS(world->queue) ? 0 : -EIO)
CALL(in_flight, ringway_in_flight(world->queue))
CALL(free_slots, ringway_free_slots(world->queue))
CALL(fd, ringway_fd(world->queue))
CALL(register_file, ringway_register_file(world->queue, IS_BAD ? -1 : world->other))
CALL(unregister_file, ringway_unregister_file(world->queue, IS_BAD ? -1 : world->other))
CALL(cancel, ringway_cancel(world->queue, IS_BAD ? 0 : world->waiting))
CALL(cancel_all, ringway_cancel_all(world->queue))
/* (No arguments of a reap are invalid.) */
CALL(reap, ringway_reap(world->queue, !IS_BAD, RINGWAY_FOREVER))

static int64_t call_create(struct world *world)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue = NULL;
	int result;

	options.backend = world->backend;
	options.flags = IS_BAD ? 1u << 31 : 0;
	result = ringway_create(&options, &queue);
	CHECK((result == 0) == (queue != NULL));
	SAME(ringway_destroy(&queue), 0);
	return result;
}

static int64_t call_destroy(struct world *world)
{
	int result;

	if (IS_BAD)
		return ringway_destroy(NULL);
	result = ringway_destroy(&world->queue);
	CHECK((result == -EDEADLK) == (world->queue != NULL));
	return result;
}

static int64_t call_push(struct world *world)
{
	struct ringway_operation read = READ(world->file, IS_BAD ? NULL : world->bytes, 4096, 0);

	return ringway_push(world->queue, &read);
}

static int64_t call_push_chain(struct world *world)
{
	struct ringway_operation chain[2] = {NOP(), NOP()};

	return ringway_push_chain(world->queue, chain, IS_BAD ? 0 : 2, NULL);
}

static int64_t call_reap_into(struct world *world)
{
	struct ringway_completion done;
	struct ringway_operation nop = NOP();

	(void)ringway_push(world->queue, &nop);
	return ringway_reap_into(world->queue, &done, !IS_BAD, 1, RINGWAY_FOREVER);
}

static int64_t call_multi_read(struct world *world)
{
	struct ringway_range ranges[2];
	int result;

	ranges[0] = check_range(world->file, 0, 16, world->bytes);
	ranges[1] = check_range(world->file, 16, 16, IS_BAD ? NULL : world->bytes + 16);
	ranges[0].flags = ranges[1].flags = RINGWAY_RANGE_DIRECT;
	result = ringway_multi_read(world->queue, ranges, 2);
	CHECK((ranges[0].result == INT64_MIN) == (result < 0 && result != -EIO));
	CHECK(result != 0 || (ranges[0].result == 16 && ranges[1].result == 16));
	return result;
}

static int64_t call_file_create(struct world *world)
{
	struct ringway_file *file = NULL;
	int result = ringway_file_create(IS_BAD ? -1 : world->file, &file);

	CHECK((result == 0) == (file != NULL));
	ringway_file_destroy(file);
	return result;
}

static int64_t call_file_destroy(struct world *world)
{
	(void)world;
	ringway_file_destroy(NULL);
	return 0;
}

static int64_t call_read_now(struct world *world)
{
	struct ringway_file *file = NULL;
	int64_t result;

	SAME(ringway_file_create(world->file, &file), 0);
	result = ringway_read_now(file, world->bytes, 16, IS_BAD ? UINT64_MAX - 1 : 0);
	ringway_file_destroy(file);
	/* An answer rather than a failure: it has no text. */
	return result == -EAGAIN ? 0 : result;
}

static int64_t call_note_written(struct world *world)
{
	struct ringway_file *file = NULL;

	SAME(ringway_file_create(world->file, &file), 0);
	ringway_note_written(file);
	ringway_file_destroy(file);
	return 0;
}

static int64_t call_warm(struct world *world)
{
	struct ringway_range ranges[2];
	int result;

	/* Otherwise nothing is to be read. */
	(void)fsync(world->file);
	(void)posix_fadvise(world->file, 0, 0, POSIX_FADV_DONTNEED);
	ranges[0] = check_range(world->file, 0, 16, NULL);
	ranges[1] = check_range(world->file, 4090, UINT64_MAX, NULL);
	ranges[1].flags = IS_BAD ? 1u << 30 : 0;
	result = ringway_warm(world->queue, ranges, 2);
	CHECK((ranges[0].result == INT64_MIN) == (result < 0 && result != -EIO));
	CHECK(result != 0 || (ranges[0].result == 16 && ranges[1].result == 6));
	return result;
}

static int64_t call_register_buffers(struct world *world)
{
	struct iovec memory = {world->bytes, 4096};

	return ringway_register_buffers(world->queue, &memory, !IS_BAD);
}

static int64_t call_explain(struct world *world)
{
	char text[8];
	size_t length = ringway_explain(world->queue, IS_BAD ? NULL : text, IS_BAD ? 0 : 8);

	CHECK(IS_BAD || strlen(text) == sizeof text - 1);
	return (int64_t)length;
}

static int64_t call_explain_dont_cache(struct world *world)
{
	char text[8];

	return (int64_t)ringway_explain_dont_cache(world->queue, IS_BAD ? -1 : world->file, text,
	                                           sizeof text);
}

static int64_t call_get_direct_io(struct world *world)
{
	struct ringway_direct_io direct;

	return ringway_get_direct_io(IS_BAD ? -1 : world->file, &direct, sizeof direct);
}

#define ALL(answer) answer, answer, answer, answer, answer, answer, answer, answer
#define FUNCTION(name, ...) {#name, call_##name, {__VA_ARGS__}}

/*
 * The allowed results, one word for each situation: "0"; "+": more than 0; "=": 0 or more; errnos;
 * "|" separates alternatives; "R": see check_result(). The functions are called in this order on
 * one queue.
 */
static const struct function {
	const char *name;
	int64_t (*call)(struct world *world);
	const char *answers[SITUATIONS];
} functions[] = {
	/* plain, in destroy, cancelled, failed, EMFILE, signals, child, bad */
	FUNCTION(version, ALL("+")),
	FUNCTION(last_error, ALL("+")),
	FUNCTION(backend_name, "1", "1", "1", "1", "1", "1", "1", "0"),
	FUNCTION(opcode_name, "1", "1", "1", "1", "1", "1", "1", "0"),
	FUNCTION(get_backend, ALL("+")),
	FUNCTION(get_direct_io, "0", "0", "0", "0", "0", "0", "0", "EBADF"),
	FUNCTION(create, "0", "0", "0", "0", "0|EMFILE", "0", "0", "EINVAL"),
	FUNCTION(push, "+", "ESHUTDOWN", "+", "+", "+", "+", "ECHILD", "EINVAL"),
	FUNCTION(push_chain, "+", "ESHUTDOWN", "+", "+", "+", "+", "ECHILD", "EINVAL"),
	FUNCTION(submit, "=", "=", "=", "EBADF", "=", "=", "ECHILD", "="),
	FUNCTION(get_stats, ALL("0")),
	FUNCTION(explain, ALL("+")),
	FUNCTION(explain_dont_cache, ALL("0")),
	FUNCTION(in_flight, "+", "=", "+", "+", "+", "+", "+", "="),
	FUNCTION(free_slots, ALL("+")),
	FUNCTION(fd, "=", "=", "=", "=", "=|EMFILE", "=", "ECHILD", "="),
	FUNCTION(register_buffers, "R", "R", "R", "R", "R", "R", "ECHILD", "EINVAL"),
	FUNCTION(register_file, "R", "R", "R", "R", "R", "R", "ECHILD", "EBADF"),
	FUNCTION(unregister_file, "0|ENOENT", "0|ENOENT", "0|ENOENT", "0|ENOENT", "0|ENOENT",
	         "0|ENOENT", "ECHILD", "ENOENT"),
	FUNCTION(cancel, "0", "0|ENOENT", "0|ENOENT", "0", "0", "0", "ECHILD", "ENOENT"),
	FUNCTION(reap, "+", "EDEADLK", "+", "EBADF", "+", "+", "ECHILD", "="),
	FUNCTION(reap_into, "+", "EDEADLK", "+", "EBADF", "+", "+", "ECHILD", "EINVAL"),
	FUNCTION(multi_read, "0", "ESHUTDOWN", "0", "EIO", "0", "0", "ECHILD", "EINVAL"),
	FUNCTION(file_create, "0", "0", "0", "0", "0", "0", "0", "EBADF"),
	FUNCTION(file_destroy, ALL("0")),
	FUNCTION(read_now, "=", "=", "=", "=", "=", "=", "=", "0"),
	FUNCTION(note_written, ALL("0")),
	FUNCTION(warm, "0", "ESHUTDOWN", "0", "ESHUTDOWN", "0", "0", "ECHILD", "EINVAL"),
	FUNCTION(cancel_all, "=", "=", "=", "=", "=", "=", "ECHILD", "="),
	FUNCTION(destroy, "0", "EDEADLK", "0", "0", "0", "0", "0", "0"),
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* ---- The operations ---- */

static struct statx statx_buffer;
static struct iovec part;

static struct ringway_operation make_operation(const struct world *world, unsigned opcode)
{
	int file = world->file;
	void *bytes = world->bytes;
	int at = AT_FDCWD;

	part.iov_base = bytes;
	part.iov_len = 16;
	switch (opcode) {
	case RINGWAY_OP_NOP: return NOP();
	case RINGWAY_OP_READ: return READ(file, bytes, 16, 0);
	case RINGWAY_OP_WRITE: return WRITE(file, bytes, 16, 0);
	case RINGWAY_OP_READV: return READV(file, &part, 1, 0);
	case RINGWAY_OP_WRITEV: return WRITEV(file, &part, 1, 0);
	case RINGWAY_OP_FSYNC:
		return world->backend % 2 == 0 ? FSYNC(file)
		                               : ringway_prep_fdatasync(file, NULL, NULL);
	case RINGWAY_OP_SYNC_RANGE: return ringway_prep_sync_range(file, 0, 16, 0, NULL, NULL);
	case RINGWAY_OP_OPEN: return OPEN("matrix", O_RDONLY);
	case RINGWAY_OP_CLOSE: return ringway_prep_close(1000000, NULL, NULL);
	case RINGWAY_OP_STATX:
		return ringway_prep_statx(at, "matrix", 0, STATX_SIZE, &statx_buffer, NULL, NULL);
	case RINGWAY_OP_FALLOCATE: return ringway_prep_fallocate(file, 0, 0, 4096, NULL, NULL);
	case RINGWAY_OP_FTRUNCATE: return ringway_prep_ftruncate(file, 4096, NULL, NULL);
	case RINGWAY_OP_FADVISE:
		return ringway_prep_fadvise(file, 0, 16, POSIX_FADV_NORMAL, NULL, NULL);
	case RINGWAY_OP_RENAME: return ringway_prep_rename(at, "none", at, "x", 0, NULL, NULL);
	case RINGWAY_OP_UNLINK: return ringway_prep_unlink(at, "none", 0, NULL, NULL);
	case RINGWAY_OP_MKDIR: return ringway_prep_mkdir(at, "matrix", 0755, NULL, NULL);
	case RINGWAY_OP_LINK: return ringway_prep_link(at, "none", at, "x", 0, NULL, NULL);
	case RINGWAY_OP_SYMLINK: return ringway_prep_symlink("target", at, "matrix", NULL, NULL);
	case RINGWAY_OP_POLL: return POLL(file, POLLIN);
	case RINGWAY_OP_TIMEOUT: return TIMEOUT(1000000);
	default: return ringway_prep((enum ringway_opcode)opcode, -1, NULL, NULL);
	}
}

/* Results in the situation PLAIN. */
static const char *const results[] = {"0", "16",     "16",     "16",     "16",           "0",
                                      "0", "=",      "EBADF",  "0",      "0|EOPNOTSUPP", "0",
                                      "0", "ENOENT", "ENOENT", "EEXIST", "ENOENT",       "EEXIST",
                                      "+", "0"};
enum { OPCODES = sizeof results / sizeof *results };

/* ---- Checking results ---- */

static int one_of(const char *allowed, int64_t answer)
{
	static const struct {
		const char *name;
		int number;
	} errnos[] = {{"EBADF", EBADF},          {"EMFILE", EMFILE},
	              {"EINVAL", EINVAL},        {"ESHUTDOWN", ESHUTDOWN},
	              {"ECHILD", ECHILD},        {"EDEADLK", EDEADLK},
	              {"ENOENT", ENOENT},        {"EIO", EIO},
	              {"EEXIST", EEXIST},        {"ECANCELED", ECANCELED},
	              {"EOPNOTSUPP", EOPNOTSUPP}, {"EBUSY", EBUSY}};
	size_t i;

	for (; *allowed != '\0'; allowed += strcspn(allowed, "|"), allowed += *allowed == '|') {
		size_t length = strcspn(allowed, "|");

		if (*allowed == '+' && answer > 0)
			return 1;
		if (*allowed == '=' && answer >= 0)
			return 1;
		if (isdigit((unsigned char)*allowed) && answer == atoi(allowed))
			return 1;
		for (i = 0; i < sizeof errnos / sizeof *errnos; i++)
			if (strncmp(allowed, errnos[i].name, length) == 0 &&
			    errnos[i].name[length] == '\0' && answer == -errnos[i].number)
				return 1;
	}
	return 0;
}

static void check_result(const struct world *world, const char *name, const char *allowed,
                         int64_t answer)
{
	/* A registration needs a ring. Before Linux 5.19, that of a buffer needs one without
	   operations in flight. */
	if (strcmp(allowed, "R") == 0 && world->backend != RINGWAY_BACKEND_URING)
		allowed = "EOPNOTSUPP";
	else if (strcmp(allowed, "R") == 0)
		allowed = strcmp(name, "register_buffers") == 0 && check_older_than(5, 19) ?
		                  "0|EOPNOTSUPP|EBUSY" :
		                  "0|EOPNOTSUPP";
	printf("%-8s %-10s %-18s %" PRId64 "%s%s\n", ringway_backend_name(world->backend),
	       situations[world->situation], name, answer, answer < 0 ? " " : "",
	       answer < 0 ? strerror((int)-answer) : "");
	if (!one_of(allowed, answer)) {
		printf("... but expected %s\n", allowed);
		check_failures++;
	}
}

static void all_functions(struct world *world)
{
	int i;

	for (i = 0; i < FUNCTIONS; i++) {
		int64_t answer = functions[i].call(world);

		CHECK(answer >= 0 || *ringway_last_error() != '\0');
		check_result(world, functions[i].name, functions[i].answers[world->situation],
		             answer);
	}
}

struct result {
	int64_t result;
	int count;
	unsigned opcode;
};

static void store_result(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct result *result = done->user_data;

	close_opened(queue, done);
	result->result = done->result;
	result->count++;
	SAME(done->opcode, result->opcode);
}

static void all_operations(struct world *world)
{
	static struct result answers[OPCODES];
	unsigned opcode;

	memset(answers, 0, sizeof answers);
	for (opcode = 0; opcode < OPCODES; opcode++) {
		struct ringway_operation operation = make_operation(world, opcode);
		int64_t id;

		answers[opcode].opcode = opcode;
		operation.callback = store_result;
		operation.user_data = &answers[opcode];
		if (world->situation == BAD)
			operation.flags = 1u << 15;
		id = ringway_push(world->queue, &operation);
		if (world->situation == IN_DESTROY || world->situation == CHILD ||
		    world->situation == BAD) {
			check_result(world, ringway_opcode_name(opcode),
			             world->situation == IN_DESTROY ? "ESHUTDOWN"
			             : world->situation == CHILD    ? "ECHILD"
			                                            : "EINVAL",
			             id);
			continue;
		}
		CHECK(id > 0);
		if (world->situation == CANCELLED)
			SAME(ringway_cancel(world->queue, id), 0);
	}
	if (world->situation == IN_DESTROY || world->situation == CHILD || world->situation == BAD)
		return;
	if (world->situation == FAILED)
		SAME(ringway_destroy(&world->queue), 0);
	for (opcode = 0; opcode < OPCODES; opcode++) {
		char allowed[64];

		while (world->queue != NULL && answers[opcode].count == 0 &&
		       CHECK(ringway_reap(world->queue, 1, RINGWAY_FOREVER) >= 0))
			;
		SAME(answers[opcode].count, 1);
		snprintf(allowed, sizeof allowed, "%s%s%s",
		         world->situation == FAILED ? "" : results[opcode],
		         world->situation == CANCELLED ? "|ECANCELED"
		         : world->situation == FAILED  ? "ECANCELED"
		                                       : "",
		         world->situation == NO_DESCRIPTORS && opcode == RINGWAY_OP_OPEN ? "|EMFILE"
		                                                                         : "");
		check_result(world, ringway_opcode_name(opcode), allowed, answers[opcode].result);
	}
}

/* ---- The situations ---- */

static void interrupted(int number)
{
	(void)number;
}

static void start_signals(long microseconds)
{
	struct sigaction action;
	struct itimerval timer;

	memset(&action, 0, sizeof action);
	action.sa_handler = interrupted; /* without SA_RESTART */
	NEED(sigaction(SIGALRM, &action, NULL) == 0);
	memset(&timer, 0, sizeof timer);
	timer.it_interval.tv_usec = timer.it_value.tv_usec = microseconds;
	NEED(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static struct world *destroy_seen;

static void during_destroy(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct world *world = done->user_data;

	SAME(done->result, -ECANCELED);
	CHECK(queue == world->queue);
	if (destroy_seen == world)
		all_operations(world);
	else
		all_functions(world);
	destroy_seen = world;
}

#ifndef __SANITIZE_ADDRESS__
static void in_a_child(void *arg)
{
	struct world *world = arg;

	all_operations(world);
	all_functions(world);
}
#endif

static void begin(struct world *world, unsigned backend, enum situation situation)
{
	struct ringway_options options = check_default_options();
	struct ringway_operation operation;

	memset(world, 0, sizeof *world);
	world->backend = backend;
	world->situation = situation;
	world->file = check_file("matrix", 4096, 0);
	world->other = open("matrix", O_RDWR | O_CLOEXEC);
	NEED(world->other >= 0 && pipe2(world->pipes, O_CLOEXEC) == 0);
	world->bytes = check_aligned(4096);
	if (situation == FAILED)
		options.faults = "enters=0";
	world->queue = check_queue(backend, options);
	NEED(world->queue != NULL);
	operation = READ(world->pipes[0], world->bytes, 16, HERE);
	operation.callback = close_opened;
	world->waiting = check_push(world->queue, operation);
}

static void end(struct world *world)
{
	SAME(ringway_destroy(&world->queue), 0);
	close(world->file);
	close(world->other);
	close(world->pipes[0]);
	close(world->pipes[1]);
	free(world->bytes);
}

static void in_destroy(struct world *world, int operations)
{
	struct ringway_queue *queue = world->queue;

	destroy_seen = operations ? world : NULL;
	check_push(queue, ringway_prep_timeout(HOUR, during_destroy, world));
	SAME(ringway_destroy(&queue), 0);
	CHECK(destroy_seen == world);
	world->queue = NULL;
}

/* The lowest free descriptor is the limit. poll(2) requires one above its number of descriptors. */
static void limit_descriptors(const struct world *world, struct rlimit *before)
{
	struct rlimit none;

	NEED(getrlimit(RLIMIT_NOFILE, before) == 0);
	none = *before;
	none.rlim_cur = (rlim_t)dup(world->file);
	close((int)none.rlim_cur);
	NEED(setrlimit(RLIMIT_NOFILE, &none) == 0);
}

static void run(unsigned backend, enum situation situation, int operations)
{
	struct rlimit limit;
	struct world world;

	begin(&world, backend, situation);
	if (situation == IN_DESTROY) {
		in_destroy(&world, operations);
	} else if (situation == CHILD) {
#ifdef __SANITIZE_ADDRESS__
		check_skip("fork with AddressSanitizer, whose locks other threads may hold", 1);
#else
		if (operations == 0)
			SAME(check_child(in_a_child, &world), 0);
#endif
	} else {
		if (situation == CANCELLED)
			SAME(ringway_cancel(world.queue, world.waiting), 0);
		if (situation == NO_DESCRIPTORS)
			limit_descriptors(&world, &limit);
		if (situation == SIGNALS)
			start_signals(500);
		if (operations)
			all_operations(&world);
		else
			all_functions(&world);
		if (situation == SIGNALS) {
			start_signals(0);
			check_watch("matrix", 100);
		}
		if (situation == NO_DESCRIPTORS)
			NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	}
	end(&world);
}

static void every_situation(unsigned backend)
{
	int i;

	for (i = 0; i < 2 * SITUATIONS; i++)
		run(backend, (enum situation)(i / 2), i % 2);
}

/* Checks that every function of the header is in a table above. */
static void check_tables_are_complete(const char *header)
{
	char line[1000];
	FILE *file = fopen(header, "r");
	int found = 0;

	NEED(file != NULL);
	while (fgets(line, sizeof line, file) != NULL) {
		char *name = strstr(line, "ringway_");
		size_t length;
		int i;

		if (!isalpha((unsigned char)*line) || strncmp(line, "typedef", 7) == 0 ||
		    strncmp(line, "enum ringway_opcode", 17) == 0)
			continue;
		/* The last name before a parenthesis. */
		while (name != NULL &&
		       name[8 + strspn(name + 8, "abcdefghijklmnopqrstuvwxyz_")] != '(')
			name = strstr(name + 8, "ringway_");
		if (name == NULL)
			continue;
		found++;
		name += 8;
		length = strspn(name, "abcdefghijklmnopqrstuvwxyz_");
		name[length] = '\0';
		for (i = 0; i < FUNCTIONS && strcmp(functions[i].name, name) != 0; i++)
			;
		if (i < FUNCTIONS || strcmp(name, "options_init") == 0 ||
		    strcmp(name, "prep") == 0 || strcmp(name, "prep_fdatasync") == 0)
			continue;
		for (i = 0; i < OPCODES; i++)
			if (strncmp(name, "prep_", 5) == 0 &&
			    strcmp(ringway_opcode_name((unsigned)i), name + 5) == 0)
				break;
		if (i == OPCODES) {
			printf("ringway_%s() is in no table\n", name);
			check_failures++;
		}
	}
	fclose(file);
	CHECK(found >= FUNCTIONS + OPCODES);
	CHECK(strcmp(ringway_opcode_name(OPCODES), "?") == 0);
}

int main(int argc, char **argv)
{
	static void (*const tests[])(unsigned) = {every_situation, NULL};
	char header[4096];

	setvbuf(stdout, NULL, _IOLBF, 0);
	NEED(argc == 2);
	snprintf(header, sizeof header, "%s/../crates/ringway-c/include/ringway.h", argv[1]);
	check_tables_are_complete(header);
	return check_each_backend("matrix", 100, tests);
}
