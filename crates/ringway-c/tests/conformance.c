/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs the cases of conformance/ (see its README.md) through the C API: each on every backend, with
 * callbacks and with ringway_reap_into(). After every step pushed = delivered + orphaned + in
 * flight must hold.
 *
 * Usage: conformance DIRECTORY [PART-OF-A-NAME], in an empty directory, where each case gets a
 * directory of its own.
 */
#include "check.h"

#include <ctype.h>
#include <dirent.h>
#include <linux/openat2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <time.h>

enum { WORDS = 48, WORD = 2048, LINES = 400, CASES = 1000, OPERATIONS = 2048, NAMES = 64 };

/* No descriptor has this number. */
#define NONE 1000000

struct line {
	char *text;
	int number;
};

struct test {
	char *file;
	char *name;
	int number;
	struct line lines[LINES];
	size_t count;
};

struct operation {
	char name[64];
	int line;
	struct ringway_operation prepared;
	uint8_t *memory; /* the allocation behind `parts` */
	size_t size;
	struct iovec parts[1100]; /* the buffers, in order */
	size_t count;
	struct statx stat;
	char expected[256];
	char gives[WORD];
	int64_t plain; /* result of the plain system call */
	int64_t id;
	int64_t result;
	int done;
	int order;
};

struct name {
	char name[64];
	int fd;
};

static struct test *tests[CASES];
static size_t test_count;

/* The current case. */
static struct test *current;
static int line;
static const char *mode;
static int into_array_mode;
static struct ringway_queue *queue;
static struct ringway_options options;
static char faults[256];
static struct operation *operations[OPERATIONS];
static size_t operation_count;
static struct operation *chain[OPERATIONS];
static size_t chain_count;
static int chaining;
static int completed;
static int mismatched; /* a completion did not match its operation */
static struct name names[NAMES];
static size_t name_count;
static int other_user;
static uid_t root;
static jmp_buf over;
enum outcome { PASSED, FAILED, SKIPPED };

static int limit_files(rlim_t size)
{
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = size < limit.rlim_max ? size : limit.rlim_max;
	return setrlimit(RLIMIT_FSIZE, &limit);
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
	va_list list;

	limit_files(RLIM_INFINITY); /* The output may be a long file. */
	printf("%s:%d: %s (%s): ", current->file, line, current->name, mode);
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	printf("\n");
	fflush(stdout);
	longjmp(over, FAILED);
}

static void require(int right, const char *what)
{
	if (!right)
		fail("%s: %s", what, strerror(errno));
}

/* ---- Words -------------------------------------------------------------------------------- */

#define FLAG(name) {#name, (uint64_t)(name)}

static const struct constant {
	const char *name;
	uint64_t value;
} constants[] = {
	FLAG(O_RDONLY), FLAG(O_WRONLY), FLAG(O_RDWR), FLAG(O_CREAT), FLAG(O_EXCL), FLAG(O_TRUNC),
	FLAG(O_APPEND), FLAG(O_DIRECT), FLAG(O_DIRECTORY), FLAG(O_NOFOLLOW), FLAG(O_TMPFILE),
	FLAG(O_PATH), FLAG(O_NONBLOCK), FLAG(O_NOATIME), FLAG(O_SYNC), FLAG(AT_REMOVEDIR),
	FLAG(AT_SYMLINK_FOLLOW), FLAG(AT_SYMLINK_NOFOLLOW), FLAG(AT_EMPTY_PATH),
	FLAG(AT_STATX_DONT_SYNC), FLAG(RENAME_NOREPLACE), FLAG(RENAME_EXCHANGE),
	FLAG(FALLOC_FL_KEEP_SIZE), FLAG(FALLOC_FL_PUNCH_HOLE), FLAG(FALLOC_FL_ZERO_RANGE),
	FLAG(FALLOC_FL_COLLAPSE_RANGE), FLAG(FALLOC_FL_INSERT_RANGE), FLAG(POSIX_FADV_NORMAL),
	FLAG(POSIX_FADV_RANDOM), FLAG(POSIX_FADV_SEQUENTIAL), FLAG(POSIX_FADV_WILLNEED),
	FLAG(POSIX_FADV_DONTNEED), FLAG(POSIX_FADV_NOREUSE), FLAG(SYNC_FILE_RANGE_WAIT_BEFORE),
	FLAG(SYNC_FILE_RANGE_WRITE), FLAG(SYNC_FILE_RANGE_WAIT_AFTER), FLAG(POLLIN), FLAG(POLLOUT),
	FLAG(POLLERR), FLAG(POLLHUP), FLAG(POLLPRI), FLAG(RESOLVE_BENEATH), FLAG(RESOLVE_IN_ROOT),
	FLAG(RESOLVE_NO_SYMLINKS), FLAG(RESOLVE_NO_MAGICLINKS), FLAG(RESOLVE_NO_XDEV),
	FLAG(STATX_BASIC_STATS), FLAG(STATX_SIZE), FLAG(STATX__RESERVED),

	FLAG(EACCES), FLAG(EAGAIN), FLAG(EBADF), FLAG(EBUSY), FLAG(ECANCELED), FLAG(EEXIST),
	FLAG(EFBIG), FLAG(EINVAL), FLAG(EISDIR), FLAG(ELOOP), FLAG(EMLINK), FLAG(ENAMETOOLONG),
	FLAG(ENODEV), FLAG(ENOENT), FLAG(ENOSPC), FLAG(ENOTDIR), FLAG(ENOTEMPTY), FLAG(ENXIO),
	FLAG(EOPNOTSUPP), FLAG(EOVERFLOW), FLAG(EPERM), FLAG(EPIPE), FLAG(ESPIPE), FLAG(ETIMEDOUT),
	FLAG(ETXTBSY), FLAG(EXDEV), FLAG(EIO),
};

/* Parses a number up to `end`: terms joined by + - *, evaluated from left to right. */
static uint64_t number_to(const char *text, const char *end)
{
	uint64_t value = 0;
	char sign = '+';

	while (text < end) {
		uint64_t term;
		char *rest;

		if (strncmp(text, "max", 3) == 0) {
			term = INT64_MAX;
			text += 3;
		} else {
			errno = 0;
			term = strtoull(text, &rest, 0);
			if (rest == text || errno != 0)
				fail("not a number: %s", text);
			text = rest;
			if (text < end && strchr("KMGT", *text) != NULL)
				term <<= 10 * (strchr("KMGT", *text++) - "KMGT" + 1);
		}
		value = sign == '+' ? value + term : sign == '-' ? value - term : value * term;
		if (text < end && strchr("+-*", *text) == NULL)
			fail("not a number: %s", text);
		sign = *text++;
	}
	return value;
}

static uint64_t number(const char *text)
{
	if (*text == '\0')
		fail("missing number");
	return number_to(text, text + strlen(text));
}

/* Parses constants joined by |, or a number. */
static uint64_t flags(const char *text)
{
	uint64_t value = 0;

	if (isdigit((unsigned char)*text))
		return number(text);
	while (*text != '\0') {
		size_t length = strcspn(text, "|");
		size_t i;

		for (i = 0; i < sizeof constants / sizeof constants[0]; i++)
			if (strlen(constants[i].name) == length &&
			    strncmp(constants[i].name, text, length) == 0)
				break;
		if (i == sizeof constants / sizeof constants[0])
			fail("unknown constant: %s", text);
		value |= constants[i].value;
		text += length;
		text += *text == '|';
	}
	return value;
}

/* Returns the bytes that `text` describes, and their number in *length. */
static uint8_t *content(const char *text, size_t *length)
{
	char *bytes = NULL;
	FILE *out = open_memstream(&bytes, length);
	const char *close;

	require(out != NULL, "open_memstream");
	for (; strcmp(text, "none") != 0 && *text != '\0'; text = close + (*close == '+')) {
		const char *open = text + strcspn(text, "(");
		const char *comma = open + strcspn(open, ",)");

		close = open + strcspn(open, ")");
		if (*close == '\0')
			fail("not a content: %s", text);
		if (strncmp(text, "text(", 5) == 0) {
			fwrite(open + 1, 1, (size_t)(close - open - 1), out);
		} else if (strncmp(text, "hex(", 4) == 0) {
			unsigned byte;

			for (open++; open < close && sscanf(open, "%2x", &byte) == 1; open += 2)
				fputc((int)byte, out);
		} else if (strncmp(text, "pattern(", 8) == 0 || strncmp(text, "fill(", 5) == 0) {
			uint64_t first = number_to(open + 1, comma);
			uint64_t more = number_to(comma + 1, close);
			uint64_t k;

			for (k = 0; k < more; k++)
				fputc(*text == 'p' ? check_byte(first + k) : (int)first, out);
		} else {
			fail("not a content: %s", text);
		}
		close++;
	}
	fclose(out);
	return (uint8_t *)bytes;
}

/* Fails the case at the first byte that differs. */
static void compare(const uint8_t *found, size_t length, const char *text, const char *what)
{
	size_t wanted_length;
	uint8_t *wanted = content(text, &wanted_length);
	size_t i = 0;

	while (i < length && i < wanted_length && found[i] == wanted[i])
		i++;
	if (i < wanted_length || length > wanted_length) {
		int expected = i < wanted_length ? wanted[i] : -1;

		free(wanted);
		fail("%s: byte %zu is %d, expected %d (-1: none)", what, i,
		     i < length ? found[i] : -1, expected);
	}
	free(wanted);
}

/* Parses a path: "" is the empty one, long(N) is N times n. */
static const char *path_of(const char *text)
{
	static char path[2][WORD * 4];
	static int turn;
	char *place = path[turn ^= 1];

	if (strcmp(text, "\"\"") == 0)
		return "";
	if (strncmp(text, "long(", 5) == 0) {
		size_t length = number_to(text + 5, strchr(text, ')'));

		memset(place, 'n', length);
		place[length] = '\0';
		return place;
	}
	return text;
}

static int *lookup(const char *name)
{
	size_t i;

	for (i = 0; i < name_count; i++)
		if (strcmp(names[i].name, name) == 0)
			return &names[i].fd;
	return NULL;
}

static void define_descriptor(const char *name, int fd)
{
	if (lookup(name) != NULL)
		fail("two descriptors have the name %s", name);
	if (name_count == NAMES)
		fail("too many descriptors");
	snprintf(names[name_count].name, sizeof names[0].name, "%s", name);
	names[name_count++].fd = fd;
}

static void undefine_descriptor(const char *name)
{
	int *fd = lookup(name);

	if (fd != NULL)
		names[(struct name *)(void *)((char *)fd - offsetof(struct name, fd)) - names] =
			names[--name_count];
}

static int descriptor(const char *text)
{
	int *fd = lookup(text);

	if (strcmp(text, "cwd") == 0)
		return AT_FDCWD;
	if (strcmp(text, "bad") == 0)
		return NONE;
	if (strcmp(text, "negative") == 0)
		return -1;
	if (fd == NULL)
		fail("unknown descriptor: %s", text);
	return *fd;
}

static struct operation *operation_of(const char *name)
{
	size_t i;

	for (i = operation_count; i > 0; i--)
		if (strcmp(operations[i - 1]->name, name) == 0)
			return operations[i - 1];
	fail("no operation has the name %s", name);
}

/* ---- Operations --------------------------------------------------------------------------- */

static const char *value_of(char (*words)[WORD], int count, const char *key, const char *otherwise)
{
	size_t length = strlen(key);
	int i;

	for (i = 0; i < count; i++)
		if (strncmp(words[i], key, length) == 0 && words[i][length] == '=')
			return words[i] + length + 1;
	if (otherwise == NULL)
		fail("missing parameter %s=", key);
	return otherwise;
}

static int has(char (*words)[WORD], int count, const char *word)
{
	int i;

	for (i = 0; i < count; i++)
		if (strcmp(words[i], word) == 0)
			return 1;
	return 0;
}

/* Allocates the buffers of a transfer, each `skew` bytes after a multiple of 4096. */
static void allocate_buffers(struct operation *it, char (*words)[WORD], int count, int vectored,
                             int writes)
{
	size_t skew = number(value_of(words, count, "skew", "0"));
	size_t length = 0;
	uint8_t *bytes = NULL;
	size_t at = 0;
	size_t i;

	if (writes)
		bytes = content(value_of(words, count, "data", NULL), &length);
	if (vectored) {
		const char *lens = value_of(words, count, "lens", NULL);

		while (*lens != '\0' && strcmp(lens, "none") != 0) {
			const char *end = lens + strcspn(lens, ",");
			const char *times = memchr(lens, 'x', (size_t)(end - lens));
			size_t repeats = times == NULL ? 1 : number_to(lens, times);
			size_t one = number_to(times == NULL ? lens : times + 1, end);

			for (i = 0; i < repeats; i++)
				it->parts[it->count++].iov_len = one;
			lens = end + (*end == ',');
		}
	} else {
		it->parts[it->count++].iov_len =
			writes ? length : number(value_of(words, count, "len", NULL));
	}
	for (i = 0; i < it->count; i++)
		it->size += (it->parts[i].iov_len + skew + 4095) / 4096 * 4096;
	it->memory = check_aligned(it->size);
	it->size = 0;
	for (i = 0; i < it->count; i++) {
		it->parts[i].iov_base = it->memory + it->size + skew;
		it->size += (it->parts[i].iov_len + skew + 4095) / 4096 * 4096;
		if (writes && at + it->parts[i].iov_len <= length)
			memcpy(it->parts[i].iov_base, bytes + at, it->parts[i].iov_len);
		at += it->parts[i].iov_len;
	}
	if (writes && at != length)
		fail("data= and lens= have different lengths");
	free(bytes);
}

/* Copies `length` bytes at `at`, across all buffers. */
static uint8_t *gather(const struct operation *it, size_t at, size_t length)
{
	uint8_t *bytes = malloc(length + 1);
	size_t done = 0;
	size_t i;

	for (i = 0; i < it->count && done < length; i++) {
		size_t skip = at < it->parts[i].iov_len ? at : it->parts[i].iov_len;
		size_t some = it->parts[i].iov_len - skip;

		at -= skip;
		if (some > length - done)
			some = length - done;
		memcpy(bytes + done, (const uint8_t *)it->parts[i].iov_base + skip, some);
		done += some;
	}
	if (done < length) {
		free(bytes);
		fail("the buffers of %s do not have %zu bytes there", it->name, length);
	}
	return bytes;
}

static void on_completion(struct ringway_queue *of, const struct ringway_completion *done);

static void set_result(struct operation *it, int64_t result)
{
	if (it->done)
		fail("%s completed twice", it->name);
	it->done = 1;
	it->result = result;
	it->order = ++completed;
}

/* Whether a completion belongs to this operation. */
static int belongs_to(const struct operation *it, const struct ringway_completion *done)
{
	return done->id > 0 && done->id == it->id && done->opcode == it->prepared.opcode &&
	       done->callback == on_completion && done->reserved == 0;
}

static void on_completion(struct ringway_queue *of, const struct ringway_completion *done)
{
	struct operation *it = done->user_data;

	/* A callback must not longjmp(), so an error is only recorded. */
	if (of != queue || !belongs_to(it, done) || it->done)
		mismatched = 1;
	else
		set_result(it, done->result);
}

/* Skips the case where openat2(2) does not work. */
static void need_openat2(void)
{
	static int told;

	if (check_openat2())
		return;
	if (!told++)
		check_skip("cases with open: openat2(2) is not supported here", 1);
	longjmp(over, SKIPPED);
}

#define GET(key, otherwise) value_of(words, count, key, otherwise)
#define FLAGS(key) flags(GET(key, "0"))
#define KIND(name) (strcmp(words[0], name) == 0)
#define DONE on_completion, it

/* The operations on a descriptor. */
static int prepare_on_file(struct operation *it, char (*words)[WORD], int count)
{
	const char *at = GET("offset", "0");
	uint64_t offset = strcmp(at, "current") == 0 ? RINGWAY_CURRENT_POSITION : number(at);
	uint64_t len = number(GET("len", "0"));
	int fd = descriptor(GET("fd", "negative"));
	int vectored = KIND("readv") || KIND("writev");

	if (vectored || KIND("read") || KIND("write"))
		allocate_buffers(it, words, count, vectored, *words[0] == 'w');
	if (KIND("read"))
		it->prepared = ringway_prep_read(fd, it->parts[0].iov_base, it->parts[0].iov_len,
		                                 offset, DONE);
	else if (KIND("write"))
		it->prepared = ringway_prep_write(fd, it->parts[0].iov_base, it->parts[0].iov_len,
		                                  offset, DONE);
	else if (KIND("readv"))
		it->prepared = ringway_prep_readv(fd, it->parts, it->count, offset, DONE);
	else if (KIND("writev"))
		it->prepared = ringway_prep_writev(fd, it->parts, it->count, offset, DONE);
	else if (KIND("fsync"))
		it->prepared = ringway_prep_fsync(fd, DONE);
	else if (KIND("fdatasync"))
		it->prepared = ringway_prep_fdatasync(fd, DONE);
	else if (KIND("sync_range"))
		it->prepared =
			ringway_prep_sync_range(fd, offset, len, (unsigned)FLAGS("flags"), DONE);
	else if (KIND("fallocate"))
		it->prepared = ringway_prep_fallocate(fd, (int)FLAGS("mode"), offset, len, DONE);
	else if (KIND("ftruncate"))
		it->prepared = ringway_prep_ftruncate(fd, len, DONE);
	else if (KIND("fadvise"))
		it->prepared = ringway_prep_fadvise(fd, offset, len, (int)FLAGS("advice"), DONE);
	else if (KIND("poll"))
		it->prepared = ringway_prep_poll(fd, (unsigned)FLAGS("events"), DONE);
	else if (KIND("close"))
		it->prepared = ringway_prep_close(fd, DONE);
	else
		return 0;
	if (KIND("close") && fd >= 0 && fd != NONE)
		undefine_descriptor(GET("fd", NULL));
	return 1;
}

/* The operations on paths, and those on nothing. */
static int prepare_others(struct operation *it, char (*words)[WORD], int count)
{
	const char *path = path_of(GET("path", "?"));
	const char *path2 = path_of(GET("path2", "?"));
	int dir = descriptor(GET("dir", "cwd"));
	int dir2 = descriptor(GET("dir2", "cwd"));
	unsigned mode = (unsigned)FLAGS("mode");
	int how = (int)FLAGS("flags");

	if (KIND("nop")) {
		it->prepared = ringway_prep_nop(DONE);
	} else if (KIND("timeout")) {
		it->prepared = ringway_prep_timeout(number(GET("ns", NULL)), DONE);
	} else if (KIND("open")) {
		need_openat2();
		it->prepared = ringway_prep_open(dir, path, how, mode, DONE);
		it->prepared.resolve = FLAGS("resolve");
	} else if (KIND("statx")) {
		it->prepared = ringway_prep_statx(dir, path, how, 0, &it->stat, DONE);
		it->prepared.mode = (uint32_t)flags(GET("mask", "STATX_BASIC_STATS"));
	} else if (KIND("rename")) {
		it->prepared = ringway_prep_rename(dir, path, dir2, path2, (unsigned)how, DONE);
	} else if (KIND("link")) {
		it->prepared = ringway_prep_link(dir, path, dir2, path2, how, DONE);
	} else if (KIND("unlink")) {
		it->prepared = ringway_prep_unlink(dir, path, how, DONE);
	} else if (KIND("mkdir")) {
		it->prepared = ringway_prep_mkdir(dir, path, mode, DONE);
	} else if (KIND("symlink")) {
		it->prepared = ringway_prep_symlink(path_of(GET("target", NULL)), dir, path, DONE);
	} else {
		return 0;
	}
	return 1;
}

static void make(struct operation *it, char (*words)[WORD], int count)
{
	if (!prepare_on_file(it, words, count) && !prepare_others(it, words, count))
		fail("unknown operation: %s", words[0]);
	it->prepared.timeout_ns = number(GET("timeout", "0"));
	it->prepared.flags =
		(uint16_t)((has(words, count, "exact") ? RINGWAY_EXACT : 0) |
		           (has(words, count, "drain") ? RINGWAY_DRAIN : 0) |
		           (has(words, count, "continue_on_error") ? RINGWAY_CONTINUE_ON_ERROR
		                                                   : 0));
}

/* Makes the blocking system call of an operation whose expected result may be that of the call. */
static int64_t call(const struct ringway_operation *it)
{
	int64_t result = -1;
	off_t offset = (off_t)it->offset;
	const struct iovec *parts = it->buf;
	struct iovec one = {(void *)(uintptr_t)it->buf, it->length};

	errno = ENOSYS;
	switch (it->opcode) {
	case RINGWAY_OP_READ: result = preadv2(it->fd, &one, 1, offset, 0); break;
	case RINGWAY_OP_WRITE: result = pwritev2(it->fd, &one, 1, offset, 0); break;
	case RINGWAY_OP_READV:
		result = preadv2(it->fd, parts, (int)it->length, offset, 0);
		break;
	case RINGWAY_OP_WRITEV:
		result = pwritev2(it->fd, parts, (int)it->length, offset, 0);
		break;
	case RINGWAY_OP_FALLOCATE:
		result = fallocate(it->fd, (int)it->op_flags, offset, (off_t)it->length);
		break;
	case RINGWAY_OP_FTRUNCATE: result = ftruncate(it->fd, (off_t)it->length); break;
	default: break;
	}
	return result < 0 ? -errno : result;
}

/* Whether the result is one of the expected ones. */
static int expected(struct operation *it)
{
	char text[256];
	char *rest;
	char *one;

	snprintf(text, sizeof text, "%s", it->expected);
	for (one = strtok_r(text, "/", &rest); one != NULL; one = strtok_r(NULL, "/", &rest)) {
		int64_t wanted;

		if (strcmp(one, "fd") == 0) {
			if (it->result < 0)
				continue;
			define_descriptor(it->name, (int)it->result);
			return 1;
		}
		if (strcmp(one, "plain") == 0)
			wanted = it->plain;
		else if (*one == '-')
			wanted = -(int64_t)flags(one + 1);
		else
			wanted = (int64_t)(*one == 'm' ? number(one) : flags(one));
		if (it->result == wanted)
			return 1;
	}
	return 0;
}

/* Checks the answer of a call. */
static void check_call(const char *what, int64_t answer, const char *wanted)
{
	struct operation it = {.result = answer};

	snprintf(it.expected, sizeof it.expected, "%s", wanted);
	if (!expected(&it))
		fail("%s returned %" PRId64 " (%s), expected %s: %s", what, answer,
		     answer < 0 ? strerror((int)-answer) : "-", wanted, ringway_last_error());
}

static void check_buffer(const struct operation *it, uint64_t at, const char *text)
{
	size_t length;
	uint8_t *found = content(text, &length);

	free(found);
	found = gather(it, at, length);
	compare(found, length, text, "the buffer");
	free(found);
}

static void check_result(struct operation *it)
{
	int keep = line;

	line = it->line;
	if (!expected(it))
		fail("%s: the result of %s is %" PRId64 " (%s), expected %s", it->name,
		     ringway_opcode_name(it->prepared.opcode), it->result,
		     it->result < 0 ? strerror((int)-it->result) : "-", it->expected);
	if (it->gives[0] != '\0')
		check_buffer(it, 0, it->gives);
	line = keep;
}

/* Checks the counters after every step, and the results of operations that have completed. */
static void check_counters_and_results(void)
{
	struct ringway_stats stats;
	size_t i;

	if (mismatched)
		fail("a completion does not match its operation");
	if (queue != NULL) {
		ringway_get_stats(queue, &stats, sizeof stats);
		if (stats.pushed != stats.delivered + stats.orphaned + stats.in_flight ||
		    stats.in_flight != ringway_in_flight(queue) || stats.orphaned != 0)
			fail("%" PRIu64 " pushed, %" PRIu64 " delivered, %" PRIu64
			     " orphaned, %" PRIu64 " in flight",
			     stats.pushed, stats.delivered, stats.orphaned, stats.in_flight);
	}
	for (i = 0; i < operation_count; i++)
		if (operations[i]->done == 1) {
			operations[i]->done = 2;
			check_result(operations[i]);
		}
}

/* Waits for `min` completions, delivers all that are ready, and returns their number. */
static int reap(unsigned min)
{
	struct ringway_completion done[3];
	int count;
	int i;

	if (!into_array_mode) {
		count = ringway_reap(queue, min, RINGWAY_FOREVER);
	} else {
		memset(done, 0xff, sizeof done);
		count = ringway_reap_into(queue, done, 3, min, RINGWAY_FOREVER);
		for (i = 0; i < count; i++) {
			struct operation *it = done[i].user_data;

			if (!belongs_to(it, &done[i]))
				fail("a completion does not match its operation");
			set_result(it, done[i].result);
		}
	}
	if (count < 0)
		fail("reap returned %d (%s): %s", count, strerror(-count), ringway_last_error());
	check_counters_and_results();
	return count;
}

/* Pushes copies and overwrites them, because the library may rely only on what the header says. */
static int64_t push_all(struct operation **all, size_t count)
{
	struct ringway_operation *copies = calloc(count + 1, sizeof *copies);
	int64_t *ids = calloc(count + 1, sizeof *ids);
	int64_t id;
	size_t i;

	for (i = 0; i < count; i++) {
		copies[i] = all[i]->prepared;
		if (copies[i].path != NULL)
			copies[i].path = strdup(copies[i].path);
		if (copies[i].path2 != NULL)
			copies[i].path2 = strdup(copies[i].path2);
		if (copies[i].opcode == RINGWAY_OP_READV || copies[i].opcode == RINGWAY_OP_WRITEV) {
			struct iovec *parts = malloc(all[i]->count * sizeof *parts + 1);

			memcpy(parts, all[i]->parts, all[i]->count * sizeof *parts);
			copies[i].buf = parts;
		}
	}
	if (chaining)
		id = ringway_push_chain(queue, copies, count, ids);
	else
		id = ids[0] = ringway_push(queue, copies);
	for (i = 0; i < count; i++) {
		all[i]->id = ids[i];
		if (copies[i].opcode == RINGWAY_OP_READV || copies[i].opcode == RINGWAY_OP_WRITEV) {
			memset((void *)(uintptr_t)copies[i].buf, 0xa5,
			       all[i]->count * sizeof(struct iovec));
			free((void *)(uintptr_t)copies[i].buf);
		}
		free((void *)(uintptr_t)copies[i].path);
		free((void *)(uintptr_t)copies[i].path2);
	}
	memset(copies, 0xa5, (count + 1) * sizeof *copies);
	free(copies);
	free(ids);
	return id;
}

static void discard(struct operation *it)
{
	free(it->memory);
	free((void *)(uintptr_t)it->prepared.path);
	free((void *)(uintptr_t)it->prepared.path2);
	free(it);
}

/* Appends the operation that the words describe. */
static struct operation *new_operation(char (*words)[WORD], int count, const char *wanted)
{
	struct operation *it = calloc(1, sizeof *it);
	size_t length = strlen(words[0]);

	if (operation_count == OPERATIONS)
		fail("too many operations");
	operations[operation_count++] = it;
	it->line = line;
	snprintf(it->name, sizeof it->name, "%s", words[0]);
	if (length > 1 && words[0][length - 1] == ':') {
		it->name[length - 1 < 63 ? length - 1 : 63] = '\0';
		words++;
		count--;
	}
	snprintf(it->expected, sizeof it->expected, "%s", wanted);
	snprintf(it->gives, sizeof it->gives, "%s", value_of(words, count, "gives", ""));
	make(it, words, count);
	if (it->prepared.path != NULL)
		it->prepared.path = strdup(it->prepared.path);
	if (it->prepared.path2 != NULL)
		it->prepared.path2 = strdup(it->prepared.path2);
	if (strstr(it->expected, "plain") != NULL) {
		it->plain = call(&it->prepared);
		if (it->prepared.opcode == RINGWAY_OP_READ ||
		    it->prepared.opcode == RINGWAY_OP_READV)
			memset(it->memory, 0xee, it->size);
	}
	return it;
}

static void open_queue(void)
{
	if (queue != NULL)
		return;
	if (ringway_create(&options, &queue) != 0) {
		queue = NULL;
		fail("%s", ringway_last_error());
	}
}

/* ---- Steps -------------------------------------------------------------------------------- */

static void write_file(const char *path, const char *text)
{
	size_t length;
	uint8_t *bytes = content(text, &length);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	require(fd >= 0, path);
	require(write(fd, bytes, length) == (ssize_t)length, path);
	close(fd);
	free(bytes);
}

static void set_up(char (*words)[WORD], int count)
{
	const char *path = path_of(words[1]);

	if (strcmp(words[0], "file") == 0 && count == 3) {
		write_file(path, words[2]);
	} else if (strcmp(words[0], "sparse") == 0 && count == 3) {
		write_file(path, "none");
		require(truncate(path, (off_t)number(words[2])) == 0, path);
	} else if (strcmp(words[0], "dir") == 0 && count == 2) {
		require(mkdir(path, 0755) == 0, path);
	} else if (strcmp(words[0], "fifo") == 0 && count == 2) {
		require(mkfifo(path, 0644) == 0, path);
	} else if (strcmp(words[0], "symlink") == 0 && count == 3) {
		require(symlink(words[2], path) == 0, path);
	} else {
		fail("cannot make: %s", words[0]);
	}
}

static void compare_file(const char *path, uint64_t at, const char *text, int whole)
{
	struct stat stat;
	size_t length;
	uint8_t *bytes = content(text, &length);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t some;

	require(fd >= 0 && fstat(fd, &stat) == 0, path);
	if (whole && (size_t)stat.st_size != length)
		fail("%s has %lld bytes, expected %zu", path, (long long)stat.st_size, length);
	some = pread(fd, bytes, length, (off_t)at);
	close(fd);
	compare(bytes, some < 0 ? 0 : (size_t)some, text, path);
	free(bytes);
}

/* Reads bytes from a pipe, and reaps meanwhile so that exact writes to it continue. */
static void read_from(int fd, const char *text)
{
	size_t length;
	uint8_t *bytes = content(text, &length);
	size_t done = 0;

	while (done < length) {
		struct pollfd one = {fd, POLLIN, 0};
		ssize_t some;

		if (poll(&one, 1, 1) > 0) {
			some = read(fd, bytes + done, length - done);
			if (some <= 0)
				fail("only %zu bytes arrived", done);
			done += (size_t)some;
		}
		reap(0);
	}
	compare(bytes, length, text, "what comes");
	free(bytes);
}

static const char *type_of(unsigned mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG: return "file";
	case S_IFDIR: return "dir";
	case S_IFLNK: return "symlink";
	case S_IFIFO: return "fifo";
	default: return "other";
	}
}

/* Checks a field of a file. Returns 0 if it is none of these. */
static int check_field(const char *field, const char *value, uint64_t size, unsigned mode,
                       uint64_t links)
{
	if (strcmp(field, "type") == 0) {
		if (strcmp(type_of(mode), value) != 0)
			fail("the type is %s", type_of(mode));
		return 1;
	}
	if (strcmp(field, "size") != 0 && strcmp(field, "mode") != 0 && strcmp(field, "nlink") != 0)
		return 0;
	if ((*field == 's' ? size : *field == 'm' ? mode & 07777u : links) != number(value))
		fail("%s differs: size %" PRIu64 ", mode %o, %" PRIu64 " links", field, size, mode,
		     links);
	return 1;
}

static void check_stat(const struct operation *it, const char *field, const char *value)
{
	struct stat stat;
	const struct statx *found = &it->stat;

	if (check_field(field, value, found->stx_size, found->stx_mode, found->stx_nlink))
		return;
	if (strcmp(field, "same") != 0)
		fail("unknown field: %s", field);
	require(fstatat(AT_FDCWD, value, &stat, AT_SYMLINK_NOFOLLOW) == 0, value);
	if (found->stx_ino != stat.st_ino || found->stx_size != (uint64_t)stat.st_size ||
	    found->stx_mode != stat.st_mode || found->stx_uid != stat.st_uid ||
	    found->stx_mtime.tv_sec != stat.st_mtim.tv_sec ||
	    found->stx_mtime.tv_nsec != (uint32_t)stat.st_mtim.tv_nsec ||
	    found->stx_blocks != (uint64_t)stat.st_blocks)
		fail("statx differs from stat(2) of %s", value);
}

static void check_path(char (*words)[WORD], int count)
{
	const char *what = words[0];
	const char *path = path_of(words[1]);
	char target[WORD] = "";
	struct stat stat;
	struct stat other;
	int there = fstatat(AT_FDCWD, path, &stat, AT_SYMLINK_NOFOLLOW) == 0;

	if (strcmp(what, "absent") == 0) {
		if (there)
			fail("%s exists", path);
		return;
	}
	require(there, path);
	if (count < 3)
		fail("missing word");
	if (strcmp(what, "target") == 0) {
		require(readlink(path, target, sizeof target - 1) >= 0, path);
		if (strcmp(target, words[2]) != 0)
			fail("the target of %s is %s", path, target);
	} else if (strcmp(what, "same") == 0) {
		require(fstatat(AT_FDCWD, words[2], &other, AT_SYMLINK_NOFOLLOW) == 0, words[2]);
		if (stat.st_ino != other.st_ino)
			fail("%s and %s are different files", path, words[2]);
	} else {
		check_field(what, words[2], (uint64_t)stat.st_size, stat.st_mode, stat.st_nlink);
	}
}

/* Opens a descriptor, or skips the case without direct I/O. */
static void open_plain(char (*words)[WORD], int count)
{
	int how = (int)flags(words[3]);
	int fd = open(path_of(words[2]), how | O_CLOEXEC,
	              count > 4 ? (mode_t)number(words[4]) : 0644);

	if (fd < 0 && how & O_DIRECT && errno == EINVAL) {
		check_skip("no direct I/O on this file system", 0);
		longjmp(over, SKIPPED);
	}
	require(fd >= 0, words[2]);
	define_descriptor(words[1], fd);
}

static void change_options(char (*words)[WORD], int count)
{
	const struct {
		const char *name;
		uint32_t *value;
	} numbers[] = {{"in_flight", &options.in_flight},
	               {"entries", &options.entries},
	               {"completion_entries", &options.completion_entries},
	               {"threads", &options.threads},
	               {"sync_threads", &options.sync_threads}};
	const char *plan = value_of(words, count, "faults", "");
	size_t known = 0;
	size_t i;

	for (i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		const char *value = value_of(words, count, numbers[i].name, "");

		if (*value != '\0')
			*numbers[i].value = (uint32_t)number(value), known++;
	}
	if (*plan != '\0') {
		/* Words contain no blanks, so commas stand for them. */
		for (i = 0; i + 1 < sizeof faults && plan[i] != '\0'; i++)
			faults[i] = plan[i] == ',' ? ' ' : plan[i] == ':' ? '=' : plan[i];
		faults[i] = '\0';
		options.faults = faults;
		known++;
	}
	if ((int)known != count - 1)
		fail("unknown option");
}

#define IS(word, least) (strcmp(words[0], word) == 0 && count >= (least))

/* The steps that are blocking system calls. Returns 0 if it is none of these. */
static int blocking_step(char (*words)[WORD], int count)
{
	int ends[2];

	if (IS("as", 2)) {
		other_user = root == 0;
		require(!other_user || seteuid(65534) == 0, "seteuid");
	} else if (IS("limit", 3)) {
		require(limit_files(number(words[2])) == 0, "setrlimit");
	} else if (IS("make", 3)) {
		set_up(words + 1, count - 1);
	} else if (IS("chmod", 3)) {
		require(chmod(words[1], (mode_t)number(words[2])) == 0, words[1]);
	} else if (IS("open", 4)) {
		open_plain(words, count);
	} else if (IS("pipe", 3)) {
		require(pipe2(ends, O_CLOEXEC) == 0, "pipe");
	} else if (IS("sockets", 3)) {
		require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "sockets");
	} else if (IS("close", 2)) {
		require(close(descriptor(words[1])) == 0, words[1]);
		undefine_descriptor(words[1]);
	} else if (IS("put", 3)) {
		size_t length;
		uint8_t *bytes = content(words[2], &length);

		require(write(descriptor(words[1]), bytes, length) == (ssize_t)length, "put");
		free(bytes);
	} else if (IS("take", 3)) {
		read_from(descriptor(words[1]), words[2]);
	} else if (IS("emptied", 2)) {
		struct pollfd one = {descriptor(words[1]), POLLIN, 0};

		for (reap(0); poll(&one, 1, 0) > 0; reap(0))
			usleep(1000);
	} else if (IS("seek", 3)) {
		require(lseek(descriptor(words[1]), (off_t)number(words[2]), SEEK_SET) >= 0,
		        "seek");
	} else {
		return 0;
	}
	if (IS("pipe", 3) || IS("sockets", 3)) {
		define_descriptor(words[1], ends[0]);
		define_descriptor(words[2], ends[1]);
	}
	return 1;
}

/* The steps that check something. Returns 0 if it is none of these. */
static int checking_step(char (*words)[WORD], int count)
{
	int j;

	if (IS("file", 3) && count == 3) {
		compare_file(words[1], 0, words[2], 1);
	} else if (IS("part", 4)) {
		compare_file(words[1], number(words[2]), words[3], 0);
	} else if (IS("absent", 2) || IS("size", 3) || IS("type", 3) || IS("target", 3) ||
	           IS("mode", 3) || IS("nlink", 3) || IS("same", 3)) {
		check_path(words, count);
	} else if (IS("position", 3)) {
		if (lseek(descriptor(words[1]), 0, SEEK_CUR) != (off_t)number(words[2]))
			fail("another current position");
	} else if (IS("cloexec", 2)) {
		if (fcntl(descriptor(words[1]), F_GETFD) != FD_CLOEXEC)
			fail("not close-on-exec");
	} else if (IS("stat", 4)) {
		check_stat(operation_of(words[1]), words[2], words[3]);
	} else if (IS("bytes", 4)) {
		check_buffer(operation_of(words[1]), number(words[2]), words[3]);
	} else if (IS("order", 3)) {
		for (j = 1; j + 1 < count; j++)
			if (operation_of(words[j])->order >= operation_of(words[j + 1])->order)
				fail("%s was delivered before %s", words[j + 1], words[j]);
	} else if (IS("in_flight", 2)) {
		if (ringway_in_flight(queue) != number(words[1]))
			fail("%zu operations are in flight", ringway_in_flight(queue));
	} else if (IS("free_slots", 2)) {
		open_queue();
		if (ringway_free_slots(queue) != number(words[1]))
			fail("%zu slots are free", ringway_free_slots(queue));
	} else {
		return 0;
	}
	return 1;
}

static void wait_for(struct operation *it)
{
	while (!it->done)
		if (reap(1) == 0)
			fail("reap returned 0, but %s has not completed", it->name);
}

static void refuse(char (*words)[WORD], int count, const char *wanted)
{
	size_t room;
	struct operation *it;

	open_queue();
	room = ringway_free_slots(queue);
	it = new_operation(words + 1, count - 1, wanted);
	operation_count--;
	it->result = push_all(&it, 1);
	if (it->result > 0)
		fail("push succeeded");
	check_call("push", it->result, wanted);
	if (ringway_free_slots(queue) != room)
		fail("a refused push occupies a slot");
	discard(it);
}

static void end_chain(const char *wanted)
{
	int64_t id = push_all(chain, chain_count);
	size_t i;

	chaining = 0;
	if (*wanted == '\0' && id <= 0)
		check_call("push_chain", id, "1");
	if (*wanted == '\0')
		return;
	check_call("push_chain", id > 0 ? 0 : id, wanted);
	operation_count -= chain_count;
	for (i = 0; i < chain_count; i++)
		discard(chain[i]);
}

/* The steps on the queue. Returns 0 if it is none of these. */
static int queue_step(char (*words)[WORD], int count, const char *wanted)
{
	struct operation *it;
	int j;

	if (IS("do", 2) || IS("push", 2)) {
		open_queue();
		it = new_operation(words + 1, count - 1, wanted);
		if (chaining) {
			chain[chain_count++] = it;
			return 1;
		}
		push_all(&it, 1);
		if (it->id <= 0 && IS("push", 2))
			check_call("push", it->id, "1");
		if (it->id <= 0) /* a refused push counts as the result */
			set_result(it, it->id);
		if (IS("do", 2))
			wait_for(it);
	} else if (IS("refuse", 2)) {
		refuse(words, count, wanted);
	} else if (IS("chain", 1)) {
		open_queue();
		chaining = 1;
		chain_count = 0;
	} else if (IS("end", 1)) {
		end_chain(wanted);
	} else if (IS("submit", 1)) {
		if (ringway_submit(queue) < 0)
			fail("submit: %s", ringway_last_error());
	} else if (IS("look", 1)) {
		reap(0);
	} else if (IS("ready", 2)) {
		while (ringway_submit(queue) < (int)number(words[1]))
			usleep(1000);
	} else if (IS("wait", 2) && strcmp(words[1], "all") == 0) {
		while (ringway_in_flight(queue) > 0)
			reap(1);
	} else if (IS("wait", 2)) {
		for (j = 1; j < count; j++)
			wait_for(operation_of(words[j]));
	} else if (IS("pending", 2)) {
		reap(0);
		for (j = 1; j < count; j++)
			if (operation_of(words[j])->done)
				fail("%s completed with %" PRId64, words[j],
				     operation_of(words[j])->result);
	} else if (IS("cancel", 2)) {
		check_call("cancel", ringway_cancel(queue, operation_of(words[1])->id), wanted);
	} else if (IS("cancel_all", 1)) {
		check_call("cancel_all", ringway_cancel_all(queue), wanted);
	} else {
		return 0;
	}
	return 1;
}

static void step(char (*words)[WORD], int count)
{
	const char *wanted = "";

	/* The expected result follows an arrow. */
	if (count > 2 && strcmp(words[count - 2], "=>") == 0) {
		wanted = words[count - 1];
		count -= 2;
	}
	if (IS("queue", 2))
		change_options(words, count);
	else if (!blocking_step(words, count) && !checking_step(words, count) &&
	         !queue_step(words, count, wanted))
		fail("unknown step: %s", words[0]);
	check_counters_and_results();
}

/* Runs one line, with $ replaced by the round of its loop. */
static void run_line(const char *text, long round)
{
	static char words[WORDS][WORD];
	char whole[WORD * 4];
	size_t length = 0;
	int count = 0;
	char *word;
	char *rest;

	for (; *text != '\0' && length + 24 < sizeof whole; text++) {
		if (*text == '$')
			length += (size_t)snprintf(whole + length, sizeof whole - length, "%ld",
			                           round);
		else
			whole[length++] = *text;
	}
	whole[length] = '\0';
	for (word = strtok_r(whole, " \t\n", &rest); word != NULL;
	     word = strtok_r(NULL, " \t\n", &rest)) {
		if (count == WORDS || strlen(word) >= WORD)
			fail("the line is too long");
		strcpy(words[count++], word);
	}
	step(words, count);
}

static void run_lines(void)
{
	size_t i;
	size_t first = 0;
	long round = 0;
	long rounds = 0;

	for (i = 0; i < current->count; i++) {
		const char *text = current->lines[i].text;

		line = current->lines[i].number;
		if (strncmp(text, "repeat ", 7) == 0) {
			rounds = atol(text + 7);
			round = 0;
			first = i;
		} else if (strcmp(text, "again") == 0) {
			if (++round < rounds)
				i = first;
			else
				rounds = round = 0;
		} else {
			run_line(text, round);
		}
	}
}

/* Closes, restores and frees everything of the case. */
static void end_case(void)
{
	int left = ringway_destroy(&queue);
	size_t i;

	if (left != 0)
		check_failures++, printf("%s: %s (%s): destroy returned %d\n", current->file,
		                         current->name, mode, left);
	limit_files(RLIM_INFINITY);
	if (other_user && seteuid(0) != 0)
		abort();
	other_user = 0;
	for (i = 0; i < name_count; i++)
		close(names[i].fd);
	name_count = 0;
	/* Memory that the kernel still uses is not freed. */
	for (i = 0; i < operation_count && left == 0; i++)
		discard(operations[i]);
	operation_count = 0;
	chaining = 0;
	completed = 0;
	mismatched = 0;
}

static enum outcome run(struct test *test, unsigned backend, int into_array)
{
	static int turn;
	static char described[64];
	char directory[64];
	int outcome;

	current = test;
	into_array_mode = into_array;
	snprintf(described, sizeof described, "%s, %s", ringway_backend_name(backend),
	         into_array ? "into an array" : "callbacks");
	mode = described;
	line = test->number;
	options = check_default_options();
	options.backend = backend;
	snprintf(directory, sizeof directory, "case-%d", turn++);
	if (mkdir(directory, 0777) != 0 || chmod(directory, 0777) != 0 || chdir(directory) != 0) {
		perror(directory);
		exit(1);
	}
	check_watch(test->name, 120);
	outcome = setjmp(over);
	if (outcome == PASSED) {
		run_lines();
		line = current->number;
		if (queue != NULL) {
			while (ringway_in_flight(queue) > 0)
				if (reap(1) == 0)
					fail("reap returned 0 with %zu operations in flight",
					     ringway_in_flight(queue));
		}
		if (chaining)
			fail("chain without end");
	}
	end_case();
	alarm(0);
	if (chdir("..") != 0) {
		perror("..");
		exit(1);
	}
	return (enum outcome)outcome;
}

/* ---- Files of cases ----------------------------------------------------------------------- */

static void load(const char *directory, const char *name)
{
	char path[WORD];
	char text[WORD * 4];
	struct test *test = NULL;
	int number = 0;
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", directory, name);
	file = fopen(path, "re");
	if (file == NULL) {
		perror(path);
		exit(1);
	}
	while (fgets(text, sizeof text, file) != NULL) {
		char *begin = text + strspn(text, " \t");

		begin[strcspn(begin, "\n")] = '\0';
		number++;
		if (*begin == '\0' || *begin == '#')
			continue;
		if (strncmp(begin, "case ", 5) == 0) {
			test = calloc(1, sizeof *test);
			test->file = strdup(path);
			test->name = strdup(begin + 5);
			test->number = number;
			if (test_count == CASES)
				abort();
			tests[test_count++] = test;
			continue;
		}
		if (test == NULL || test->count == LINES) {
			printf("%s:%d: not in a case, or the case is too long\n", path, number);
			exit(1);
		}
		test->lines[test->count].number = number;
		test->lines[test->count++].text = strdup(begin);
	}
	fclose(file);
}

static int is_case(const struct dirent *entry)
{
	const char *dot = strrchr(entry->d_name, '.');

	return dot != NULL && strcmp(dot, ".case") == 0;
}

static void load_all(const char *directory)
{
	struct dirent **found;
	int count = scandir(directory, &found, is_case, alphasort);
	int i;

	if (count < 0) {
		perror(directory);
		exit(1);
	}
	for (i = 0; i < count; i++) {
		load(directory, found[i]->d_name);
		free(found[i]);
	}
	free(found);
}

int main(int argc, char **argv)
{
	size_t outcomes[3] = {0, 0, 0};
	unsigned backends = 0;
	size_t i;
	size_t b;

	if (argc < 2) {
		printf("usage: conformance DIRECTORY [PART-OF-A-NAME]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* As with write(2), ignoring these is the program's responsibility. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	root = geteuid();
	umask(022);
	load_all(argv[1]);
	for (b = 0; b < 3; b++) {
		struct ringway_queue *probe =
			check_queue(check_backends[b], check_default_options());

		if (probe == NULL)
			continue;
		ringway_destroy(&probe);
		backends++;
		for (i = 0; i < 2 * test_count; i++)
			if (argc == 2 || strstr(tests[i / 2]->name, argv[2]) != NULL)
				outcomes[run(tests[i / 2], check_backends[b], i % 2)]++;
	}
	outcomes[FAILED] += (size_t)check_failures;
	printf("%zu cases, %u backends: %zu passed, %zu skipped, %zu FAILED\n", test_count,
	       backends, outcomes[PASSED], outcomes[SKIPPED], outcomes[FAILED]);
	for (i = 0; i < test_count; i++) {
		while (tests[i]->count > 0)
			free(tests[i]->lines[--tests[i]->count].text);
		free(tests[i]->file);
		free(tests[i]->name);
		free(tests[i]);
	}
	return outcomes[FAILED] == 0 && outcomes[PASSED] > 0 ? 0 : 1;
}
