/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs the cases of conformance/ (see its README.md) through the C API: each on every backend, with
 * callbacks and with ringway_reap_into(). Cases that need only plain system calls run with those
 * first, because the expected results are those of the kernel. After every step pushed = delivered
 * + orphaned + in flight must hold.
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
#include <sys/syscall.h>
#include <time.h>

enum { WORDS = 48, WORD = 2048, LINES = 400, CASES = 1000, OPERATIONS = 2048, NAMES = 64 };

/* No descriptor has this number. */
#define NONE 1000000

struct line {
	char *text;
	int number;
};

struct test {
	const char *file;
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
static char *paths[256];
static size_t path_count;

/* The current case. */
static struct test *current;
static int line;
static const char *mode;
static int plain;
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
enum outcome { PASSED, FAILED, SKIPPED, LEFT_OUT };

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

/* ---- Words -------------------------------------------------------------------------------- */

#define FLAG(name) {#name, (uint64_t)(name)}

static const struct constant {
	const char *name;
	uint64_t value;
} constants[] = {
	FLAG(O_RDONLY),
	FLAG(O_WRONLY),
	FLAG(O_RDWR),
	FLAG(O_CREAT),
	FLAG(O_EXCL),
	FLAG(O_TRUNC),
	FLAG(O_APPEND),
	FLAG(O_DIRECT),
	FLAG(O_DIRECTORY),
	FLAG(O_NOFOLLOW),
	FLAG(O_TMPFILE),
	FLAG(O_PATH),
	FLAG(O_NONBLOCK),
	FLAG(O_NOATIME),
	FLAG(O_SYNC),
	FLAG(AT_REMOVEDIR),
	FLAG(AT_SYMLINK_FOLLOW),
	FLAG(AT_SYMLINK_NOFOLLOW),
	FLAG(AT_EMPTY_PATH),
	FLAG(AT_STATX_DONT_SYNC),
	FLAG(RENAME_NOREPLACE),
	FLAG(RENAME_EXCHANGE),
	FLAG(FALLOC_FL_KEEP_SIZE),
	FLAG(FALLOC_FL_PUNCH_HOLE),
	FLAG(FALLOC_FL_ZERO_RANGE),
	FLAG(FALLOC_FL_COLLAPSE_RANGE),
	FLAG(FALLOC_FL_INSERT_RANGE),
	FLAG(POSIX_FADV_NORMAL),
	FLAG(POSIX_FADV_RANDOM),
	FLAG(POSIX_FADV_SEQUENTIAL),
	FLAG(POSIX_FADV_WILLNEED),
	FLAG(POSIX_FADV_DONTNEED),
	FLAG(POSIX_FADV_NOREUSE),
	FLAG(SYNC_FILE_RANGE_WAIT_BEFORE),
	FLAG(SYNC_FILE_RANGE_WRITE),
	FLAG(SYNC_FILE_RANGE_WAIT_AFTER),
	FLAG(POLLIN),
	FLAG(POLLOUT),
	FLAG(POLLERR),
	FLAG(POLLHUP),
	FLAG(POLLPRI),
	FLAG(RESOLVE_BENEATH),
	FLAG(RESOLVE_IN_ROOT),
	FLAG(RESOLVE_NO_SYMLINKS),
	FLAG(RESOLVE_NO_MAGICLINKS),
	FLAG(RESOLVE_NO_XDEV),
	FLAG(STATX_BASIC_STATS),
	FLAG(STATX_SIZE),
	FLAG(STATX__RESERVED),
};

static const struct constant errnos[] = {
	FLAG(EACCES),  FLAG(EAGAIN),       FLAG(EBADF),  FLAG(EBUSY),      FLAG(ECANCELED),
	FLAG(EEXIST),  FLAG(EFBIG),        FLAG(EINVAL), FLAG(EISDIR),     FLAG(ELOOP),
	FLAG(EMLINK),  FLAG(ENAMETOOLONG), FLAG(ENODEV), FLAG(ENOENT),     FLAG(ENOSPC),
	FLAG(ENOTDIR), FLAG(ENOTEMPTY),    FLAG(ENXIO),  FLAG(EOPNOTSUPP), FLAG(EOVERFLOW),
	FLAG(EPERM),   FLAG(EPIPE),        FLAG(ESPIPE), FLAG(ETIMEDOUT),  FLAG(ETXTBSY),
	FLAG(EXDEV),   FLAG(EIO),
};

static const char *errno_name(int64_t number)
{
	size_t i;

	for (i = 0; i < sizeof errnos / sizeof errnos[0]; i++)
		if ((int64_t)errnos[i].value == number)
			return errnos[i].name;
	return "?";
}

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
	uint8_t *bytes = malloc(1);
	const char *whole = text;

	*length = 0;
	if (strcmp(text, "none") == 0)
		return bytes;
	while (*text != '\0') {
		const char *open = strchr(text, '(');
		const char *close = open == NULL ? NULL : strchr(open, ')');
		const char *comma =
			open == NULL
		                ? NULL
		                : memchr(open, ',', (size_t)(close == NULL ? 0 : close - open));
		size_t more;
		size_t i;

		if (close == NULL)
			fail("not a content: %s", whole);
		open++;
		if (strncmp(text, "text(", 5) == 0) {
			more = (size_t)(close - open);
			bytes = realloc(bytes, *length + more + 1);
			memcpy(bytes + *length, open, more);
		} else if (strncmp(text, "hex(", 4) == 0) {
			more = (size_t)(close - open) / 2;
			bytes = realloc(bytes, *length + more + 1);
			for (i = 0; i < more; i++) {
				char digits[3] = {open[2 * i], open[2 * i + 1], 0};

				bytes[*length + i] = (uint8_t)strtoul(digits, NULL, 16);
			}
		} else if (comma != NULL &&
		           (strncmp(text, "pattern(", 8) == 0 || strncmp(text, "fill(", 5) == 0)) {
			uint64_t first = number_to(open, comma);

			more = number_to(comma + 1, close);
			bytes = realloc(bytes, *length + more + 1);
			if (*text == 'p')
				check_fill(bytes + *length, first, more);
			else
				memset(bytes + *length, (int)first, more);
		} else {
			fail("not a content: %s", whole);
		}
		*length += more;
		text = close + 1;
		text += *text == '+';
	}
	return bytes;
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

static void make(struct operation *it, char (*words)[WORD], int count)
{
	const char *kind = words[0];
	int fd = -1;
	int dir = AT_FDCWD;
	const char *path = value_of(words, count, "path", "?");
	uint64_t offset = 0;
	const char *at = value_of(words, count, "offset", "0");

	offset = strcmp(at, "current") == 0 ? RINGWAY_CURRENT_POSITION : number(at);
	if (strcmp(value_of(words, count, "fd", "?"), "?") != 0)
		fd = descriptor(value_of(words, count, "fd", NULL));
	dir = descriptor(value_of(words, count, "dir", "cwd"));
#define LENGTH number(value_of(words, count, "len", NULL))
#define FLAGS(key) flags(value_of(words, count, key, "0"))
	if (strcmp(kind, "nop") == 0) {
		it->prepared = ringway_prep_nop(on_completion, it);
	} else if (strcmp(kind, "read") == 0) {
		allocate_buffers(it, words, count, 0, 0);
		it->prepared = ringway_prep_read(fd, it->parts[0].iov_base, it->parts[0].iov_len,
		                                 offset, on_completion, it);
	} else if (strcmp(kind, "write") == 0) {
		allocate_buffers(it, words, count, 0, 1);
		it->prepared = ringway_prep_write(fd, it->parts[0].iov_base, it->parts[0].iov_len,
		                                  offset, on_completion, it);
	} else if (strcmp(kind, "readv") == 0) {
		allocate_buffers(it, words, count, 1, 0);
		it->prepared =
			ringway_prep_readv(fd, it->parts, it->count, offset, on_completion, it);
	} else if (strcmp(kind, "writev") == 0) {
		allocate_buffers(it, words, count, 1, 1);
		it->prepared =
			ringway_prep_writev(fd, it->parts, it->count, offset, on_completion, it);
	} else if (strcmp(kind, "fsync") == 0) {
		it->prepared = ringway_prep_fsync(fd, on_completion, it);
	} else if (strcmp(kind, "fdatasync") == 0) {
		it->prepared = ringway_prep_fdatasync(fd, on_completion, it);
	} else if (strcmp(kind, "sync_range") == 0) {
		it->prepared = ringway_prep_sync_range(fd, offset, LENGTH, (unsigned)FLAGS("flags"),
		                                       on_completion, it);
	} else if (strcmp(kind, "open") == 0) {
		if (!check_openat2()) {
			static int told;

			if (!told++)
				check_skip("cases with open: openat2(2) is not supported here", 1);
			longjmp(over, SKIPPED);
		}
		it->prepared = ringway_prep_open(dir, path_of(path), (int)FLAGS("flags"),
		                                 (unsigned)FLAGS("mode"), on_completion, it);
		it->prepared.resolve = FLAGS("resolve");
	} else if (strcmp(kind, "close") == 0) {
		it->prepared = ringway_prep_close(fd, on_completion, it);
		if (fd >= 0 && fd != NONE)
			undefine_descriptor(value_of(words, count, "fd", NULL));
	} else if (strcmp(kind, "statx") == 0) {
		unsigned mask =
			(unsigned)flags(value_of(words, count, "mask", "STATX_BASIC_STATS"));

		it->prepared = ringway_prep_statx(dir, path_of(path), (int)FLAGS("flags"), mask,
		                                  &it->stat, on_completion, it);
	} else if (strcmp(kind, "fallocate") == 0) {
		it->prepared = ringway_prep_fallocate(fd, (int)FLAGS("mode"), offset, LENGTH,
		                                      on_completion, it);
	} else if (strcmp(kind, "ftruncate") == 0) {
		it->prepared = ringway_prep_ftruncate(fd, LENGTH, on_completion, it);
	} else if (strcmp(kind, "fadvise") == 0) {
		it->prepared = ringway_prep_fadvise(fd, offset, LENGTH, (int)FLAGS("advice"),
		                                    on_completion, it);
	} else if (strcmp(kind, "rename") == 0 || strcmp(kind, "link") == 0) {
		int dir2 = descriptor(value_of(words, count, "dir2", "cwd"));
		const char *path2 = path_of(value_of(words, count, "path2", NULL));

		if (*kind == 'r')
			it->prepared =
				ringway_prep_rename(dir, path_of(path), dir2, path2,
				                    (unsigned)FLAGS("flags"), on_completion, it);
		else
			it->prepared = ringway_prep_link(dir, path_of(path), dir2, path2,
			                                 (int)FLAGS("flags"), on_completion, it);
	} else if (strcmp(kind, "unlink") == 0) {
		it->prepared = ringway_prep_unlink(dir, path_of(path), (int)FLAGS("flags"),
		                                   on_completion, it);
	} else if (strcmp(kind, "mkdir") == 0) {
		it->prepared = ringway_prep_mkdir(dir, path_of(path), (unsigned)FLAGS("mode"),
		                                  on_completion, it);
	} else if (strcmp(kind, "symlink") == 0) {
		it->prepared = ringway_prep_symlink(path_of(value_of(words, count, "target", NULL)),
		                                    dir, path_of(path), on_completion, it);
	} else if (strcmp(kind, "poll") == 0) {
		it->prepared = ringway_prep_poll(fd, (unsigned)FLAGS("events"), on_completion, it);
	} else if (strcmp(kind, "timeout") == 0) {
		it->prepared = ringway_prep_timeout(number(value_of(words, count, "ns", NULL)),
		                                    on_completion, it);
	} else {
		fail("unknown operation: %s", kind);
	}
	it->prepared.timeout_ns = number(value_of(words, count, "timeout", "0"));
	it->prepared.flags =
		(uint16_t)((has(words, count, "exact") ? RINGWAY_EXACT : 0) |
		           (has(words, count, "drain") ? RINGWAY_DRAIN : 0) |
		           (has(words, count, "continue_on_error") ? RINGWAY_CONTINUE_ON_ERROR
		                                                   : 0));
}

/* Makes the blocking system call of an operation. Returns what the operation would return. */
static int64_t call(const struct ringway_operation *it)
{
	int64_t result = -1;
	off_t offset = (off_t)it->offset;
	int at_current = it->offset == RINGWAY_CURRENT_POSITION;
	const struct iovec *parts = it->buf;

	errno = 0;
	switch (it->opcode) {
	case RINGWAY_OP_NOP:
		return 0;
	case RINGWAY_OP_READ:
		if (!at_current)
			result = pread(it->fd, (void *)(uintptr_t)it->buf, it->length, offset);
		if (at_current || (result < 0 && errno == ESPIPE)) /* pipes have no offsets */
			result = read(it->fd, (void *)(uintptr_t)it->buf, it->length);
		break;
	case RINGWAY_OP_WRITE:
		if (!at_current)
			result = pwrite(it->fd, it->buf, it->length, offset);
		if (at_current || (result < 0 && errno == ESPIPE))
			result = write(it->fd, it->buf, it->length);
		break;
	case RINGWAY_OP_READV:
		if (!at_current)
			result = preadv(it->fd, parts, (int)it->length, offset);
		if (at_current || (result < 0 && errno == ESPIPE))
			result = readv(it->fd, parts, (int)it->length);
		break;
	case RINGWAY_OP_WRITEV:
		if (!at_current)
			result = pwritev(it->fd, parts, (int)it->length, offset);
		if (at_current || (result < 0 && errno == ESPIPE))
			result = writev(it->fd, parts, (int)it->length);
		break;
	case RINGWAY_OP_FSYNC:
		result = it->op_flags == 1 ? fdatasync(it->fd) : fsync(it->fd);
		break;
	case RINGWAY_OP_SYNC_RANGE:
		result = sync_file_range(it->fd, offset, (off_t)it->length, it->op_flags);
		break;
	case RINGWAY_OP_OPEN: {
		struct open_how how;

		memset(&how, 0, sizeof how);
		how.flags = it->op_flags | O_CLOEXEC;
		how.mode = it->mode;
		how.resolve = it->resolve;
		result = syscall(SYS_openat2, it->fd, it->path, &how, sizeof how);
		break;
	}
	case RINGWAY_OP_CLOSE:
		result = close(it->fd);
		break;
	case RINGWAY_OP_STATX:
		result = statx(it->fd, it->path, (int)it->op_flags, it->mode,
		               (struct statx *)(uintptr_t)it->buf);
		break;
	case RINGWAY_OP_FALLOCATE:
		result = fallocate(it->fd, (int)it->op_flags, offset, (off_t)it->length);
		break;
	case RINGWAY_OP_FTRUNCATE:
		result = ftruncate(it->fd, (off_t)it->length);
		break;
	case RINGWAY_OP_FADVISE:
		return -posix_fadvise(it->fd, offset, (off_t)it->length, (int)it->op_flags);
	case RINGWAY_OP_RENAME:
		result = renameat2(it->fd, it->path, it->fd2, it->path2, it->op_flags);
		break;
	case RINGWAY_OP_UNLINK:
		result = unlinkat(it->fd, it->path, (int)it->op_flags);
		break;
	case RINGWAY_OP_MKDIR:
		result = mkdirat(it->fd, it->path, it->mode);
		break;
	case RINGWAY_OP_LINK:
		result = linkat(it->fd, it->path, it->fd2, it->path2, (int)it->op_flags);
		break;
	case RINGWAY_OP_SYMLINK:
		result = symlinkat(it->path2, it->fd, it->path);
		break;
	case RINGWAY_OP_POLL: {
		struct pollfd one = {it->fd, (short)it->op_flags, 0};

		if (it->fd < 0) /* poll(2) ignores it */
			return -EBADF;
		result = poll(&one, 1, -1);
		if (result >= 0)
			return one.revents & POLLNVAL ? -EBADF : one.revents;
		break;
	}
	case RINGWAY_OP_TIMEOUT: {
		struct timespec time = {(time_t)(it->length / 1000000000),
		                        (long)(it->length % 1000000000)};

		result = nanosleep(&time, NULL);
		break;
	}
	default:
		break;
	}
	return result < 0 ? -errno : result;
}

/* Whether the result is one of the expected ones. */
static int expected(struct operation *it)
{
	char *text = it->expected;

	while (*text != '\0') {
		size_t length = strcspn(text, "/");
		char one[256];

		snprintf(one, sizeof one, "%.*s", (int)length, text);
		text += length;
		text += *text == '/';
		if (strcmp(one, "fd") == 0) {
			if (it->result >= 0) {
				define_descriptor(it->name, (int)it->result);
				return 1;
			}
		} else if (strcmp(one, "plain") == 0) {
			if (it->result == it->plain)
				return 1;
		} else if (one[0] == '-' && isalpha((unsigned char)one[1])) {
			size_t i;

			for (i = 0; i < sizeof errnos / sizeof errnos[0]; i++)
				if (strcmp(errnos[i].name, one + 1) == 0)
					break;
			if (i == sizeof errnos / sizeof errnos[0])
				fail("unknown errno: %s", one);
			if (it->result == -(int64_t)errnos[i].value)
				return 1;
		} else if (it->result == (int64_t)(isdigit((unsigned char)one[0]) || one[0] == 'm'
							   ? number(one)
							   : flags(one))) {
			return 1;
		}
	}
	return 0;
}

static void check_result(struct operation *it)
{
	int keep = line;

	line = it->line;
	if (!expected(it))
		fail("%s: the result of %s is %" PRId64 " (%s), expected %s", it->name,
		     ringway_opcode_name(it->prepared.opcode), it->result,
		     it->result < 0 ? errno_name(-it->result) : "-", it->expected);
	if (it->gives[0] != '\0') {
		size_t length;
		uint8_t *wanted = content(it->gives, &length);
		uint8_t *found;

		free(wanted);
		found = gather(it, 0, length);
		compare(found, length, it->gives, "the buffer");
		free(found);
	}
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
		fail("reap returned %d (%s): %s", count, errno_name(-count), ringway_last_error());
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
	if (plain || queue != NULL)
		return;
	if (ringway_create(&options, &queue) != 0) {
		queue = NULL;
		fail("%s", ringway_last_error());
	}
}

/* ---- Steps -------------------------------------------------------------------------------- */

static void require(int right, const char *what)
{
	if (!right)
		fail("%s: %s", what, strerror(errno));
}

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
		if (!plain)
			reap(0);
	}
	compare(bytes, length, text, "what comes");
	free(bytes);
}

static void check_stat(struct operation *it, const char *field, const char *value)
{
	struct stat stat;
	const struct statx *found = &it->stat;

	if (strcmp(field, "size") == 0) {
		if (found->stx_size != number(value))
			fail("size is %llu", (unsigned long long)found->stx_size);
	} else if (strcmp(field, "mode") == 0) {
		if ((found->stx_mode & 07777u) != number(value))
			fail("mode is %o", found->stx_mode & 07777u);
	} else if (strcmp(field, "nlink") == 0) {
		if (found->stx_nlink != number(value))
			fail("nlink is %u", found->stx_nlink);
	} else if (strcmp(field, "type") == 0) {
		unsigned type = found->stx_mode & S_IFMT;
		const char *name = type == S_IFREG   ? "file"
		                   : type == S_IFDIR ? "dir"
		                   : type == S_IFLNK ? "symlink"
		                                     : "fifo";

		if (strcmp(name, value) != 0)
			fail("the type is %s", name);
	} else if (strcmp(field, "same") == 0) {
		require(fstatat(AT_FDCWD, value, &stat, AT_SYMLINK_NOFOLLOW) == 0, value);
		if (found->stx_ino != stat.st_ino || found->stx_size != (uint64_t)stat.st_size ||
		    found->stx_mode != stat.st_mode || found->stx_uid != stat.st_uid ||
		    found->stx_mtime.tv_sec != stat.st_mtim.tv_sec ||
		    found->stx_mtime.tv_nsec != (uint32_t)stat.st_mtim.tv_nsec ||
		    found->stx_blocks != (uint64_t)stat.st_blocks)
			fail("statx differs from stat(2) of %s", value);
	} else {
		fail("unknown field: %s", field);
	}
}

static void check_path(char (*words)[WORD], int count)
{
	const char *what = words[0];
	const char *path = path_of(words[1]);
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
	if (strcmp(what, "size") == 0) {
		if ((uint64_t)stat.st_size != number(words[2]))
			fail("%s has %lld bytes", path, (long long)stat.st_size);
	} else if (strcmp(what, "type") == 0) {
		const char *name = S_ISREG(stat.st_mode)   ? "file"
		                   : S_ISDIR(stat.st_mode) ? "dir"
		                   : S_ISLNK(stat.st_mode) ? "symlink"
		                                           : "fifo";

		if (strcmp(name, words[2]) != 0)
			fail("%s is a %s", path, name);
	} else if (strcmp(what, "target") == 0) {
		char target[WORD];
		ssize_t length = readlink(path, target, sizeof target - 1);

		require(length >= 0, path);
		target[length] = '\0';
		if (strcmp(target, words[2]) != 0)
			fail("the target of %s is %s", path, target);
	} else if (strcmp(what, "mode") == 0) {
		if ((stat.st_mode & 07777) != number(words[2]))
			fail("mode is %o", stat.st_mode & 07777);
	} else if (strcmp(what, "nlink") == 0) {
		if (stat.st_nlink != number(words[2]))
			fail("%s has %llu links", path, (unsigned long long)stat.st_nlink);
	} else if (strcmp(what, "same") == 0) {
		require(fstatat(AT_FDCWD, words[2], &other, AT_SYMLINK_NOFOLLOW) == 0, words[2]);
		if (stat.st_ino != other.st_ino)
			fail("%s and %s are different files", path, words[2]);
	} else {
		fail("unknown step: %s", what);
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
	int i;

	for (i = 1; i < count; i++) {
		char *value = strchr(words[i], '=');

		if (value == NULL)
			fail("unknown option: %s", words[i]);
		*value++ = '\0';
		if (strcmp(words[i], "in_flight") == 0) {
			options.in_flight = (uint32_t)number(value);
		} else if (strcmp(words[i], "entries") == 0) {
			options.entries = (uint32_t)number(value);
		} else if (strcmp(words[i], "completion_entries") == 0) {
			options.completion_entries = (uint32_t)number(value);
		} else if (strcmp(words[i], "threads") == 0) {
			options.threads = (uint32_t)number(value);
		} else if (strcmp(words[i], "sync_threads") == 0) {
			options.sync_threads = (uint32_t)number(value);
		} else if (strcmp(words[i], "faults") == 0) {
			char *byte;

			/* Words contain no blanks, so commas stand for them. */
			snprintf(faults, sizeof faults, "%s", value);
			for (byte = faults; *byte != '\0'; byte++)
				*byte = *byte == ',' ? ' ' : *byte == ':' ? '=' : *byte;
			options.faults = faults;
		} else {
			fail("unknown option: %s", words[i]);
		}
	}
}

static void step(char (*words)[WORD], int count)
{
	const char *what = words[0];
	const char *wanted = "";
	struct operation *it;
	size_t i;
	int j;

	/* The expected result follows an arrow. */
	if (count > 2 && strcmp(words[count - 2], "=>") == 0) {
		wanted = words[count - 1];
		count -= 2;
	}
#define IS(word, least) (strcmp(what, word) == 0 && count >= (least))
	if (IS("queue", 2)) {
		change_options(words, count);
		return;
	}
	if (IS("as", 2)) {
		if (root == 0) {
			require(seteuid(65534) == 0, "seteuid");
			other_user = 1;
		}
		return;
	}
	if (IS("limit", 3)) {
		require(limit_files(number(words[2])) == 0, "setrlimit");
	} else if (IS("make", 3)) {
		set_up(words + 1, count - 1);
	} else if (IS("chmod", 3)) {
		require(chmod(words[1], (mode_t)number(words[2])) == 0, words[1]);
	} else if (IS("open", 4)) {
		open_plain(words, count);
	} else if (IS("pipe", 3) || IS("sockets", 3)) {
		int ends[2];

		require((*what == 'p'
				 ? pipe2(ends, O_CLOEXEC)
				 : socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) == 0,
		        what);
		define_descriptor(words[1], ends[0]);
		define_descriptor(words[2], ends[1]);
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

		reap(0);
		while (poll(&one, 1, 0) > 0) {
			usleep(1000);
			reap(0);
		}
	} else if (IS("seek", 3)) {
		require(lseek(descriptor(words[1]), (off_t)number(words[2]), SEEK_SET) >= 0,
		        "seek");
	} else if (IS("do", 2)) {
		it = new_operation(words + 1, count - 1, wanted);
		if (plain) {
			if (it->prepared.timeout_ns != 0 || it->prepared.flags != 0)
				longjmp(over, LEFT_OUT);
			set_result(it, call(&it->prepared));
		} else {
			open_queue();
			push_all(&it, 1);
			if (it->id <= 0) /* a refused push counts as the result */
				set_result(it, it->id);
			while (!it->done)
				if (reap(1) == 0)
					fail("reap returned 0");
		}
		check_counters_and_results();
	} else if (strcmp(what, "file") == 0 && count == 3) {
		compare_file(words[1], 0, words[2], 1);
	} else if (IS("part", 4)) {
		compare_file(words[1], number(words[2]), words[3], 0);
	} else if (IS("absent", 2) || IS("size", 3) || IS("type", 3) || IS("target", 3) ||
	           IS("mode", 3) || IS("nlink", 3) || IS("same", 3)) {
		check_path(words, count);
	} else if (IS("position", 3)) {
		off_t position = lseek(descriptor(words[1]), 0, SEEK_CUR);

		if (position != (off_t)number(words[2]))
			fail("the current position is %lld", (long long)position);
	} else if (IS("cloexec", 2)) {
		if (fcntl(descriptor(words[1]), F_GETFD) != FD_CLOEXEC)
			fail("not close-on-exec");
	} else if (IS("stat", 4)) {
		check_stat(operation_of(words[1]), words[2], words[3]);
	} else if (IS("bytes", 4)) {
		size_t length;
		uint8_t *found = content(words[3], &length);

		free(found);
		it = operation_of(words[1]);
		found = gather(it, number(words[2]), length);
		compare(found, length, words[3], "the buffer");
		free(found);
	} else if (plain) {
		longjmp(over, LEFT_OUT); /* The remaining steps need a queue. */
	} else if (IS("push", 2)) {
		open_queue();
		it = new_operation(words + 1, count - 1, wanted);
		if (chaining) {
			chain[chain_count++] = it;
			return;
		}
		push_all(&it, 1);
		if (it->id <= 0)
			fail("push returned %" PRId64 " (%s): %s", it->id, errno_name(-it->id),
			     ringway_last_error());
	} else if (IS("refuse", 2)) {
		int64_t room;

		open_queue();
		room = (int64_t)ringway_free_slots(queue);
		it = new_operation(words + 1, count - 1, wanted);
		operation_count--;
		it->result = push_all(&it, 1);
		if (it->result > 0 || !expected(it))
			fail("push returned %" PRId64 " (%s), expected %s", it->result,
			     errno_name(-it->result), wanted);
		if ((int64_t)ringway_free_slots(queue) != room)
			fail("a refused push occupies a slot");
		discard(it);
	} else if (IS("chain", 1)) {
		open_queue();
		chaining = 1;
		chain_count = 0;
	} else if (IS("end", 1)) {
		int64_t id = push_all(chain, chain_count);

		chaining = 0;
		if (*wanted != '\0') {
			struct operation answer = {.result = id};

			snprintf(answer.expected, sizeof answer.expected, "%s", wanted);
			if (id > 0 || !expected(&answer))
				fail("push_chain returned %" PRId64 " (%s), expected %s", id,
				     errno_name(-id), wanted);
			operation_count -= chain_count;
			for (i = 0; i < chain_count; i++)
				discard(chain[i]);
		} else {
			if (id <= 0)
				fail("push_chain returned %" PRId64 " (%s): %s", id,
				     errno_name(-id), ringway_last_error());
		}
	} else if (IS("submit", 1)) {
		if (ringway_submit(queue) < 0)
			fail("submit: %s", ringway_last_error());
	} else if (IS("look", 1)) {
		reap(0);
	} else if (IS("ready", 2)) {
		while (ringway_submit(queue) < (int)number(words[1]))
			usleep(1000);
	} else if (IS("wait", 2)) {
		if (strcmp(words[1], "all") == 0) {
			while (ringway_in_flight(queue) > 0)
				reap(1);
			return;
		}
		for (j = 1; j < count; j++)
			while (!operation_of(words[j])->done)
				if (reap(1) == 0)
					fail("reap returned 0, but %s has not completed", words[j]);
	} else if (IS("pending", 2)) {
		reap(0);
		for (j = 1; j < count; j++)
			if (operation_of(words[j])->done)
				fail("%s completed with %" PRId64, words[j],
				     operation_of(words[j])->result);
	} else if (IS("cancel", 2) || IS("cancel_all", 1)) {
		struct operation answer = {.result = 0};

		answer.result = count == 1 ? ringway_cancel_all(queue)
		                           : ringway_cancel(queue, operation_of(words[1])->id);
		snprintf(answer.expected, sizeof answer.expected, "%s", wanted);
		if (!expected(&answer))
			fail("cancel returned %" PRId64 " (%s), expected %s", answer.result,
			     errno_name(-answer.result), wanted);
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
		fail("unknown step: %s", what);
	}
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

static enum outcome run(struct test *test, unsigned backend, int by_plain_calls, int into_array)
{
	static int turn;
	static char described[64];
	char directory[64];
	int outcome;

	current = test;
	plain = by_plain_calls;
	into_array_mode = into_array;
	snprintf(described, sizeof described, "%s%s",
	         plain ? "plain system calls" : ringway_backend_name(backend),
	         plain             ? ""
	         : into_array_mode ? ", into an array"
	                           : ", callbacks");
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
	char *path = malloc(strlen(directory) + strlen(name) + 2);
	char text[WORD * 4];
	struct test *test = NULL;
	int number = 0;
	FILE *file;

	sprintf(path, "%s/%s", directory, name);
	paths[path_count++] = path;
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
			test->file = path;
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

static int by_name(const void *one, const void *other)
{
	return strcmp(*(char *const *)one, *(char *const *)other);
}

static void load_all(const char *directory)
{
	DIR *list = opendir(directory);
	struct dirent *entry;
	char *found[256];
	size_t count = 0;
	size_t i;

	if (list == NULL) {
		perror(directory);
		exit(1);
	}
	while ((entry = readdir(list)) != NULL && count < 256) {
		size_t length = strlen(entry->d_name);

		if (length > 5 && strcmp(entry->d_name + length - 5, ".case") == 0)
			found[count++] = strdup(entry->d_name);
	}
	closedir(list);
	qsort(found, count, sizeof found[0], by_name);
	for (i = 0; i < count; i++) {
		load(directory, found[i]);
		free(found[i]);
	}
}

int main(int argc, char **argv)
{
	size_t outcomes[4] = {0, 0, 0, 0};
	size_t by_calls = 0;
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
	for (i = 0; i < test_count; i++)
		if (argc == 2 || strstr(tests[i]->name, argv[2]) != NULL) {
			enum outcome outcome = run(tests[i], RINGWAY_BACKEND_NULL, 1, 0);

			by_calls += outcome == PASSED;
			if (outcome == FAILED)
				outcomes[FAILED]++;
		}
	for (b = 0; b < 3; b++) {
		struct ringway_queue *probe =
			check_queue(check_backends[b], check_default_options());

		if (probe == NULL)
			continue;
		ringway_destroy(&probe);
		backends++;
		for (i = 0; i < test_count; i++)
			if (argc == 2 || strstr(tests[i]->name, argv[2]) != NULL) {
				outcomes[run(tests[i], check_backends[b], 0, 0)]++;
				outcomes[run(tests[i], check_backends[b], 0, 1)]++;
			}
	}
	printf("%zu also by plain system calls, %zu skipped\n", by_calls, outcomes[SKIPPED]);
	printf("%zu cases, %u backends: ",
	       outcomes[PASSED] == 0 ? 0
	       : argc == 2           ? test_count
	                             : outcomes[PASSED] / 2 / (backends + !backends),
	       backends);
	if (outcomes[FAILED] + (size_t)check_failures == 0 && outcomes[PASSED] > 0)
		printf("passed\n");
	else
		printf("%zu FAILED\n", outcomes[FAILED] + (size_t)check_failures);
	for (i = 0; i < test_count; i++) {
		while (tests[i]->count > 0)
			free(tests[i]->lines[--tests[i]->count].text);
		free(tests[i]->name);
		free(tests[i]);
	}
	while (path_count > 0)
		free(paths[--path_count]);
	return outcomes[FAILED] + (size_t)check_failures == 0 && outcomes[PASSED] > 0 ? 0 : 1;
}
