/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* ringway_read_now(): what is cached is read at once, and 0 is the end of the file only. */
#include "check.h"

#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>

enum { SIZE = 100000, BLOCK = 64 << 10, LONG = 10000000 };

static uint8_t bytes[LONG + BLOCK];

/* The first read after a write may change the access time; see that this is over. */
static void settle(int fd)
{
	struct timespec tick = { 0, 20000000 };

	nanosleep(&tick, NULL);
	NEED(pread(fd, bytes, 1, 0) == 1);
	nanosleep(&tick, NULL);
}

/* The file to its end, at offsets or at the current position; what is not cached with pread(2). */
static size_t read_to_end(int fd, const struct ringway_file *file, int at_position)
{
	size_t at = 0;
	int64_t more;

	NEED(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	NEED(lseek(fd, 0, SEEK_SET) == 0);
	do {
		more = ringway_read_now(file, bytes + at, BLOCK,
		                        at_position ? RINGWAY_CURRENT_POSITION : at);
		if (more == -EAGAIN)
			more = at_position ? read(fd, bytes + at, BLOCK)
			                   : pread(fd, bytes + at, BLOCK, (off_t)at);
		NEED(more >= 0 && at + (size_t)more <= LONG);
		at += (size_t)more;
	} while (more > 0);
	return at;
}

static int changes_access_times(int fd)
{
	struct statfs type;
	struct statvfs mount;

	NEED(fstatfs(fd, &type) == 0 && fstatvfs(fd, &mount) == 0);
	return type.f_type == 0xef53 && (mount.f_flag & (ST_NOATIME | ST_RDONLY)) == 0;
}

int main(void)
{
	struct ringway_file *file = NULL;
	int fd = check_file("read_now", SIZE, 0);
	int ends[2], large;
	int64_t first;

	SAME(ringway_file_create(fd, NULL), -EINVAL);
	SAME(ringway_file_create(-1, &file), -EBADF);
	CHECK(file == NULL);
	ringway_file_destroy(NULL);
	NEED(ringway_file_create(fd, &file) == 0);
	settle(fd);
	first = ringway_read_now(file, bytes, 10, 7);
	if (first == -EAGAIN) {
		check_skip("this file system does not report what is cached", 1);
	} else {
		SAME(first, 10);
		CHECK(check_filled(bytes, 7, 10));
		SAME(ringway_read_now(file, bytes, 100, SIZE - 3), 3);
		NEED(lseek(fd, 5, SEEK_SET) == 5);
		SAME(ringway_read_now(file, bytes, 10, RINGWAY_CURRENT_POSITION), 10);
		CHECK(check_filled(bytes, 5, 10));
		SAME(lseek(fd, 0, SEEK_CUR), 15);
	}
	SAME(ringway_read_now(file, NULL, 0, 0), 0);
	SAME(ringway_read_now(file, bytes, 1, UINT64_MAX - 1), -EAGAIN);

	/* The first read after a write changes the access time, which may wait. */
	if (first == 10 && changes_access_times(fd)) {
		SAME(ringway_read_now(file, bytes, 10, 0), 10);
		NEED(pwrite(fd, "", 1, SIZE - 1) == 1);
		ringway_note_written(file);
		SAME(ringway_read_now(file, bytes, 10, 0), -EAGAIN);
	}
	ringway_file_destroy(file);

	/* Kernels 5.9 and 5.10 return 0 where the next page is not cached. */
	large = check_file("large", LONG, 0);
	NEED(ringway_file_create(large, &file) == 0);
	SAME(read_to_end(large, file, 0), LONG);
	CHECK(check_filled(bytes, 0, LONG));
	SAME(read_to_end(large, file, 1), LONG);
	CHECK(check_filled(bytes, 0, LONG));
	ringway_file_destroy(file);

	/* Nothing is taken from a pipe. */
	NEED(pipe(ends) == 0 && write(ends[1], "abc", 3) == 3);
	NEED(ringway_file_create(ends[0], &file) == 0);
	SAME(ringway_read_now(file, bytes, 3, RINGWAY_CURRENT_POSITION), -EAGAIN);
	SAME(read(ends[0], bytes, 3), 3);
	ringway_file_destroy(file);
	return check_end("read_now");
}
