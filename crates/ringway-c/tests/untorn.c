/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Untorn writes: whole on XFS of a loop device, which needs nothing of the device, and refused with
   a reason elsewhere. They are never made as plain writes. */
#include "check.h"

enum { BLOCK = 4096, BLOCKS = 16 };

static struct ringway_operation untorn(struct ringway_operation operation)
{
	operation.flags |= RINGWAY_UNTORN;
	return operation;
}

/* The push fails with this errno, and says why. */
static void refused(struct ringway_queue *queue, struct ringway_operation operation, int error,
                    const char *why)
{
	operation = untorn(operation);
	SAME(ringway_push(queue, &operation), -error);
	if (!CHECK(strstr(ringway_last_error(), why) != NULL))
		printf("%s\n", ringway_last_error());
}

/* On files without untorn writes: nothing is written. */
static void none(unsigned backend, int fd)
{
	struct ringway_queue *queue = check_open(backend, 0);
	struct ringway_direct_io direct;
	uint8_t *bytes = check_aligned(BLOCKS * BLOCK);
	struct iovec part = {bytes, BLOCK};

	memset(&direct, 0xff, sizeof direct);
	SAME(ringway_get_direct_io(fd, &direct, sizeof direct), 0);
	if (direct.untorn_max != 0) {
		printf("the disk has untorn writes\n");
	} else {
		SAME(direct.untorn_min, 0);
		SAME(direct.untorn_max_opt, 0);
		SAME(direct.untorn_max_segments, 0);
		memset(bytes, 7, BLOCK);
		refused(queue, WRITE(fd, bytes, BLOCK, 0), EOPNOTSUPP, "fix: ");
	}
	refused(queue, WRITE(fd, bytes, BLOCK, RINGWAY_CURRENT_POSITION), EINVAL, "at an offset");
	refused(queue, READ(fd, bytes, BLOCK, 0), EINVAL, "only a write");
	refused(queue, FSYNC(fd), EINVAL, "only a write");
	refused(queue, ringway_prep_writev(fd, &part, 1, 0, NULL, NULL), EINVAL, "one buffer");
	SAME(check_run(queue, untorn(WRITE(-1, bytes, BLOCK, 0))), -EBADF);
	SAME(check_run(queue, READ(fd, bytes, BLOCKS * BLOCK, 0)), BLOCKS * BLOCK);
	CHECK(check_filled(bytes, 0, BLOCKS * BLOCK));
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	free(bytes);
}

static void files_without(unsigned backend)
{
	char path[] = "/dev/shm/ringway-XXXXXX";
	int disk = check_file("untorn", BLOCKS * BLOCK, O_DIRECT);
	int memory = mkstemp(path);

	NEED(memory >= 0 && close(memory) == 0);
	memory = check_file(path, BLOCKS * BLOCK, 0);
	none(backend, disk);
	none(backend, memory);
	close(disk);
	close(memory);
	unlink(path);
}

static int run(const char *command)
{
	return system(command) == 0;
}

/* A write of each length, alone and with a sync behind it. */
static void lengths(struct ringway_queue *queue, int fd, const struct ringway_direct_io *direct)
{
	uint8_t *bytes = check_aligned(direct->untorn_max);
	uint8_t *found = check_aligned(direct->untorn_max);
	struct iovec all = {bytes, direct->untorn_max};
	uint32_t length;

	/* The kernel takes no registered memory for it, which is no concern of the caller. */
	(void)ringway_register_buffers(queue, &all, 1);
	for (length = direct->untorn_min; length <= direct->untorn_max; length *= 2) {
		struct ringway_operation chain[2] = {
			untorn(WRITE(fd, bytes, length, length)), FSYNC(fd)};
		struct answer answers[2] = {{INT64_MIN, 0}, {INT64_MIN, 0}};
		int member;

		memset(bytes, (int)(length >> 12) | 1, length);
		SAME(check_run(queue, chain[0]), length);
		SAME(check_run(queue, READ(fd, found, length, length)), length);
		CHECK(memcmp(bytes, found, length) == 0);
		memset(bytes, (int)(length >> 12) | 2, length);
		CHECK(memcmp(bytes, found, length) != 0);
		for (member = 0; member < 2; member++) {
			chain[member].callback = check_answer;
			chain[member].user_data = &answers[member];
		}
		NEED(ringway_push_chain(queue, chain, 2, NULL) > 0);
		SAME(ringway_reap(queue, 2, RINGWAY_FOREVER), 2);
		check_answers(&answers[0], 1, length);
		check_answers(&answers[1], 1, 0);
		SAME(check_run(queue, READ(fd, found, length, length)), length);
		CHECK(memcmp(bytes, found, length) == 0);
	}
	refused(queue, WRITE(fd, bytes, direct->untorn_max / 4 * 3, 0), EINVAL, "power of two");
	refused(queue, WRITE(fd, bytes, direct->untorn_min / 2, 0), EINVAL, "power of two");
	refused(queue, WRITE(fd, bytes, 2 * (uint64_t)direct->untorn_max, 0), EINVAL,
	        "power of two");
	refused(queue, WRITE(fd, bytes, 2 * BLOCK, BLOCK), EINVAL, "multiple of the length");
	refused(queue, WRITE(fd, bytes + 1, BLOCK, 0), EINVAL, "alignment");
	free(bytes);
	free(found);
}

static void on_xfs(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	struct ringway_direct_io direct;
	char before[BLOCK];
	char after[BLOCK];
	int fd = open("xfs/file", O_RDWR | O_CREAT | O_DIRECT, 0600);
	int buffered = open("xfs/file", O_RDWR);
	int appending = open("xfs/file", O_WRONLY | O_DIRECT | O_APPEND);
	uint8_t *bytes = check_aligned(BLOCK);

	NEED(fd >= 0 && buffered >= 0 && appending >= 0);
	SAME(ringway_get_direct_io(fd, &direct, sizeof direct), 0);
	NEED(direct.untorn_min == BLOCK && direct.untorn_max > BLOCK);
	SAME(direct.untorn_max_segments, 1);
	lengths(queue, fd, &direct);
	memset(bytes, 3, BLOCK);
	SAME(check_run(queue, untorn(WRITE(fd, bytes, BLOCK, 0))), BLOCK);
	SAME(pread(buffered, before, BLOCK, 0), BLOCK);
	memset(bytes, 9, BLOCK);
	refused(queue, WRITE(buffered, bytes, BLOCK, 0), EOPNOTSUPP, "direct I/O");
	refused(queue, WRITE(appending, bytes, BLOCK, 0), EINVAL, "appending");
	SAME(pread(buffered, after, BLOCK, 0), BLOCK);
	CHECK(memcmp(before, after, BLOCK) == 0);
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	close(fd);
	close(buffered);
	close(appending);
	free(bytes);
}

int main(void)
{
	static void (*const tests[])(unsigned) = {files_without, NULL};
	static void (*const tests_on_xfs[])(unsigned) = {on_xfs, NULL};
	int failed = check_each_backend("untorn", 100, tests);

	if (geteuid() != 0) {
		check_skip("only root may mount", 1);
	} else if (check_older_than(6, 16)) {
		check_skip("a kernel before 6.16 has no untorn writes on XFS", 1);
	} else if (!run("PATH=$PATH:/sbin:/usr/sbin; mkdir xfs && truncate -s 512M image && "
	                "mkfs.xfs -q -m reflink=1 image && mount -o loop image xfs")) {
		check_skip("no XFS on a loop device", 0);
	} else {
		failed |= check_each_backend("untorn on XFS", 100, tests_on_xfs);
		NEED(run("umount xfs"));
	}
	return failed;
}
