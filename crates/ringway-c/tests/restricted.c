/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* valgrind: no, because the filters and limits would affect its own system calls */
/*
 * If io_uring or Linux AIO is refused, or no descriptor is left, the queue falls back to the next
 * backend and explains why, with the errno and the fix. The core's tests have each refusal.
 */
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

struct refusal {
	int uring, kaio;  /* the errnos */
	unsigned backend; /* the backend then chosen */
	const char *word; /* the explanation has it */
};

/* Makes the system calls that create rings fail from now on. */
static void forbid(const struct refusal *refusal)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)refusal->uring),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K,
		         refusal->kaio == 0 ? SECCOMP_RET_ALLOW :
		                              SECCOMP_RET_ERRNO | (unsigned)refusal->kaio),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

	NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	NEED(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void by_a_filter(void *arg)
{
	const struct refusal *refusal = arg;
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	char text[8192];
	uint8_t bytes[100];
	int fd = check_file("filtered", 1000, 0);

	unsetenv("RINGWAY_BACKEND");
	forbid(refusal);
	NEED(ringway_create(NULL, &queue) == 0);
	SAME(ringway_get_backend(queue), refusal->backend);
	ringway_explain(queue, text, sizeof text);
	if (!CHECK(strstr(text, "io_uring") && strstr(text, "fix") && strstr(text, refusal->word)))
		printf("%s is missing in:\n%s\n", refusal->word, text);
	SAME(check_run(queue, READ(fd, bytes, 100, 200)), 100);
	CHECK(check_filled(bytes, 200, 100));
	SAME(ringway_destroy(&queue), 0);
	/* Choosing the backend by name is an error with the errno. */
	options.backend = RINGWAY_BACKEND_URING;
	SAME(ringway_create(&options, &queue), -refusal->uring);
	CHECK(queue == NULL);
	CHECK(strstr(ringway_last_error(), "io_uring") != NULL);
	options.backend = RINGWAY_BACKEND_KAIO;
	SAME(ringway_create(&options, &queue), -refusal->kaio);
	SAME(ringway_destroy(&queue), 0);
	close(fd);
}

static void works(struct ringway_queue *queue, int fd)
{
	uint8_t bytes[100];
	int result = ringway_fd(queue);

	CHECK(result >= 0 || result == -EMFILE);
	SAME(check_run(queue, READ(fd, bytes, 100, 100)), 100);
	CHECK(check_filled(bytes, 100, 100));
	SAME(check_run(queue, TIMEOUT(1000)), 0);
	SAME(check_run(queue, FSYNC(fd)), 0);
	result = (int)check_run(queue, OPEN("few", O_RDONLY));
	CHECK(result >= 0 || result == -EMFILE);
	close(result);
}

/* Without free descriptors: an error or a working queue, and no leak. */
static void without_descriptors(void *arg)
{
	static int taken[4096];
	struct rlimit limit = {100, 100};
	struct ringway_options options = check_default_options();
	int step;

	(void)arg;
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	/* 0 to 8 are left, for the best backend and for each by name. */
	for (step = 0; step < 9 * 4; step++) {
		struct ringway_queue *queue = NULL;
		int fd = check_file("few", 1000, 0);
		int count = 0;
		int error;
		int i;

		while (count < 4096 && (taken[count] = dup(fd)) >= 0)
			count++;
		SAME(errno, EMFILE);
		for (i = 0; i < step / 4; i++)
			close(taken[--count]);
		options.backend = (unsigned)step % 4;
		error = ringway_create(&options, &queue);
		if (error == 0) {
			works(queue, fd);
		} else {
			CHECK(queue == NULL && *ringway_last_error() != '\0');
			CHECK(error == -EMFILE || (error == -EINVAL && options.backend != 0));
		}
		SAME(ringway_destroy(&queue), 0);
		while (count > 0)
			close(taken[--count]);
		close(fd);
	}
}

/* With as little lockable memory as containers often allow, a backend is chosen, and the
   explanation names the limit. */
static void with_little_memory(void *arg)
{
	struct rlimit limit = {0, 0};
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	uid_t user = 20000 + (uid_t)getpid() % 40000;
	char text[8192];

	(void)arg;
	if (geteuid() == 0)
		NEED(setgid(user) == 0 && setuid(user) == 0);
	unsetenv("RINGWAY_BACKEND");
	NEED(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	options.entries = 4096;
	NEED(ringway_create(&options, &queue) == 0);
	SAME(check_run(queue, NOP()), 0);
	ringway_explain(queue, text, sizeof text);
	CHECK(ringway_get_backend(queue) == RINGWAY_BACKEND_URING ||
	      strstr(text, "MEMLOCK") != NULL);
	SAME(ringway_destroy(&queue), 0);
}

int main(void)
{
	struct refusal refusals[] = {
		{EPERM, 0, RINGWAY_BACKEND_KAIO, "seccomp"},
		{ENOSYS, 0, RINGWAY_BACKEND_KAIO, "ENOSYS"},
		{EPERM, EACCES, RINGWAY_BACKEND_THREADS, "EACCES"},
	};
	struct ringway_options options = check_default_options();
	struct ringway_queue *probe = NULL;
	int has_kaio;
	int i;

	check_watch("restricted", 200);
	options.backend = RINGWAY_BACKEND_KAIO;
	has_kaio = ringway_create(&options, &probe) == 0;
	SAME(ringway_destroy(&probe), 0);
	if (!has_kaio)
		check_skip("Linux AIO is not available", 0);
	for (i = has_kaio ? 0 : 2; i < 3; i++)
		SAME(check_child(by_a_filter, &refusals[i]), 0);
	SAME(check_child(without_descriptors, NULL), 0);
	SAME(check_child(with_little_memory, NULL), 0);
	return check_end("restricted");
}
