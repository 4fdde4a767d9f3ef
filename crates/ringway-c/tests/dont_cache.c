/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Transfers that leave no pages in the page cache: the same bytes and results wherever the flag is
   refused, and the reason. */
#include "check.h"

enum { BLOCK = 4096, BLOCKS = 16 };

static struct ringway_operation flagged(struct ringway_operation operation)
{
	operation.flags = RINGWAY_DONT_CACHE | RINGWAY_EXACT;
	return operation;
}

static void transfers(unsigned backend, int fd, int refused)
{
	struct ringway_queue *queue = check_open(backend, 0);
	struct ringway_operation sync = FSYNC(fd);
	uint8_t *bytes = check_aligned(BLOCKS * BLOCK);
	struct iovec parts[2] = {{bytes, BLOCK}, {bytes + BLOCK, (BLOCKS - 1) * BLOCK}};
	char text[1024] = "";
	int held = ringway_register_file(queue, fd) == 0;

	SAME(ringway_explain_dont_cache(queue, fd, text, sizeof text), 0);
	SAME(check_run(queue, flagged(READ(fd, bytes, BLOCKS * BLOCK, 0))), BLOCKS * BLOCK);
	CHECK(check_filled(bytes, 0, BLOCKS * BLOCK));
	if (held && refused) {
		CHECK(ringway_explain_dont_cache(queue, fd, text, sizeof text) == strlen(text));
		CHECK(strstr(text, "EOPNOTSUPP") != NULL && strstr(text, "fix: ") != NULL);
		CHECK(ringway_explain_dont_cache(queue, fd, NULL, 0) == strlen(text));
	} else if (!refused) {
		SAME(ringway_explain_dont_cache(queue, fd, text, sizeof text), 0);
		CHECK(*text == '\0');
	}
	SAME(ringway_explain_dont_cache(queue, -1, text, sizeof text), 0);
	SAME(ringway_explain_dont_cache(queue, 1000000, text, sizeof text), 0);
	SAME(check_run(queue, flagged(WRITE(fd, bytes, BLOCKS * BLOCK, 0))), BLOCKS * BLOCK);
	SAME(check_run(queue, flagged(ringway_prep_writev(fd, parts, 2, 0, NULL, NULL))),
	     BLOCKS * BLOCK);
	memset(bytes, 0, BLOCKS * BLOCK);
	SAME(check_run(queue, flagged(ringway_prep_readv(fd, parts, 2, 0, NULL, NULL))),
	     BLOCKS * BLOCK);
	CHECK(check_filled(bytes, 0, BLOCKS * BLOCK));
	/* Another error is returned. */
	SAME(check_run(queue, flagged(READ(fd, bytes, BLOCK, (uint64_t)1 << 63))), -EINVAL);
	sync.flags = RINGWAY_DONT_CACHE;
	SAME(ringway_push(queue, &sync), -EINVAL);
	CHECK(strstr(ringway_last_error(), "only a read or a write") != NULL);
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	free(bytes);
}

/* Whether the kernel refuses RWF_DONTCACHE for a file. */
static int is_refused(int fd)
{
	char byte;
	struct iovec one = {&byte, 1};

	return preadv2(fd, &one, 1, 0, 0x80) < 0;
}

static void files(unsigned backend)
{
	char path[] = "/dev/shm/ringway-XXXXXX";
	int disk = check_file("uncached", BLOCKS * BLOCK, 0);
	int memory = mkstemp(path);

	NEED(memory >= 0 && close(memory) == 0);
	memory = check_file(path, BLOCKS * BLOCK, 0);
	transfers(backend, disk, is_refused(disk));
	transfers(backend, memory, is_refused(memory));
	close(disk);
	close(memory);
	unlink(path);
}

int main(void)
{
	static void (*const tests[])(unsigned) = {files, NULL};

	return check_each_backend("dont_cache", 100, tests);
}
