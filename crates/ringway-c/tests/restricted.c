/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* valgrind: no, because the filters and limits would affect its own system calls */
/*
 * If io_uring or Linux AIO is refused, or no descriptor is left, the queue falls back to the next
 * backend and explains why, with the errno and the fix.
 */
#include "check.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

struct refusal {
	int calls[4];
	int errnos[4];
	unsigned backend; /* the backend then chosen */
	const char *words[3];
};

/* Makes some system calls fail from now on. */
static void forbid(const struct refusal *refusal)
{
	struct sock_filter filter[16];
	struct sock_fprog program = {0, filter};
	struct sock_filter load = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	int i;

	filter[program.len++] = load;
	for (i = 0; i < 4 && refusal->errnos[i] != 0; i++) {
		struct sock_filter is =
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refusal->calls[i], 0, 1);
		struct sock_filter fails =
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)refusal->errnos[i]);

		filter[program.len++] = is;
		filter[program.len++] = fails;
	}
	filter[program.len++] = allow;
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
	int fd;
	int i;

	fd = check_file("filtered", 1000, 0);
	unsetenv("RINGWAY_BACKEND");
	forbid(refusal);
	if (!CHECK(ringway_create(NULL, &queue) == 0)) {
		printf("%s\n", ringway_last_error());
		return;
	}
	SAME(ringway_get_backend(queue), refusal->backend);
	ringway_explain(queue, text, sizeof text);
	for (i = 0; i < 3 && refusal->words[i] != NULL; i++)
		if (!CHECK(strstr(text, refusal->words[i]) != NULL))
			printf("%s is missing in:\n%s\n", refusal->words[i], text);
	CHECK(strstr(text, "fix") != NULL);
	SAME(check_run(queue, ringway_prep_read(fd, bytes, 100, 200, NULL, NULL)), 100);
	CHECK(check_filled(bytes, 200, 100));
	SAME(ringway_destroy(&queue), 0);
	/* Choosing the backend by name is an error with the errno. */
	options.backend = RINGWAY_BACKEND_URING;
	SAME(ringway_create(&options, &queue), -refusal->errnos[0]);
	CHECK(queue == NULL);
	CHECK(strstr(ringway_last_error(), "io_uring") != NULL);
	if (refusal->backend == RINGWAY_BACKEND_THREADS) {
		options.backend = RINGWAY_BACKEND_KAIO;
		SAME(ringway_create(&options, &queue), -refusal->errnos[1]);
		CHECK(queue == NULL);
	}
	close(fd);
}

/* Without free descriptors: an error or a working queue, and no leak. */
static void without_descriptors(void *arg)
{
	static int taken[4096];
	int most = *(int *)arg;
	int left;
	unsigned b;

	for (left = 0; left <= most; left++) {
		for (b = 0; b < 4; b++) {
			struct rlimit limit;
			struct ringway_options options = check_default_options();
			struct ringway_queue *queue = NULL;
			struct answer answer = {0, 0};
			int count = 0;
			int error;
			int fd;
			int i;

			NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
			limit.rlim_cur = 100;
			NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
			fd = check_file("few", 1000, 0);
			while (count < 4096 && (taken[count] = dup(fd)) >= 0)
				count++;
			SAME(errno, EMFILE);
			for (i = 0; i < left; i++)
				close(taken[--count]);
			options.backend = b; /* the best backend, and each by name */
			error = ringway_create(&options, &queue);
			if (error == 0) {
				uint8_t bytes[100];
				int told = ringway_fd(queue);

				CHECK(told >= 0 || told == -EMFILE);
				SAME(check_run(queue,
				               ringway_prep_read(fd, bytes, 100, 100, NULL, NULL)),
				     100);
				CHECK(check_filled(bytes, 100, 100));
				SAME(check_run(queue, ringway_prep_timeout(1000, NULL, NULL)), 0);
				SAME(check_run(queue, ringway_prep_fsync(fd, NULL, NULL)), 0);
				error = (int)check_run(queue,
				                       ringway_prep_open(AT_FDCWD, "few", O_RDONLY,
				                                         0, NULL, NULL));
				CHECK(error >= 0 || error == -EMFILE);
				if (error >= 0)
					close(error);
			} else {
				CHECK(queue == NULL);
				CHECK(error == -EMFILE || error == -EINVAL);
				CHECK(b != RINGWAY_BACKEND_BEST || error == -EMFILE);
				CHECK(*ringway_last_error() != '\0');
			}
			SAME(ringway_destroy(&queue), 0);
			(void)answer;
			while (count > 0)
				close(taken[--count]);
			close(fd);
		}
	}
}

/* With as little lockable memory as containers often allow, a backend is chosen, and the
   explanation names the limit. */
static void with_little_memory(void *arg)
{
	struct rlimit limit = {0, 0};
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	char text[8192];

	(void)arg;
	if (geteuid() == 0) {
		uid_t user = 20000 + (uid_t)getpid() % 40000;

		NEED(setgid(user) == 0 && setuid(user) == 0);
	}
	unsetenv("RINGWAY_BACKEND");
	NEED(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	options.entries = 4096;
	if (CHECK(ringway_create(&options, &queue) == 0)) {
		SAME(check_run(queue, ringway_prep_nop(NULL, NULL)), 0);
		ringway_explain(queue, text, sizeof text);
		if (ringway_get_backend(queue) != RINGWAY_BACKEND_URING &&
		    !CHECK(strstr(text, "MEMLOCK") != NULL))
			printf("%s\n", text);
		SAME(ringway_destroy(&queue), 0);
	}
}

int main(void)
{
	struct refusal no_uring = {{SYS_io_uring_setup},
	                           {EPERM},
	                           RINGWAY_BACKEND_KAIO,
	                           {"io_uring", "EPERM", "seccomp"}};
	struct refusal hidden = {
		{SYS_io_uring_setup}, {ENOSYS}, RINGWAY_BACKEND_KAIO, {"io_uring", "ENOSYS"}};
	struct refusal neither = {{SYS_io_uring_setup, SYS_io_setup},
	                          {EPERM, EACCES},
	                          RINGWAY_BACKEND_THREADS,
	                          {"EPERM", "EACCES", "fix"}};
	struct refusal no_kaio = {{SYS_io_uring_setup, SYS_io_setup},
	                          {ENOSYS, ENOSYS},
	                          RINGWAY_BACKEND_THREADS,
	                          {"ENOSYS"}};
	struct ringway_queue *probe = NULL;
	struct ringway_options options = check_default_options();
	int left = 8;

	check_watch("restricted", 200);
	options.backend = RINGWAY_BACKEND_KAIO;
	if (ringway_create(&options, &probe) == 0) {
		ringway_destroy(&probe);
		SAME(check_child(by_a_filter, &no_uring), 0);
		SAME(check_child(by_a_filter, &hidden), 0);
	} else {
		check_skip("Linux AIO is not available", 0);
	}
	SAME(check_child(by_a_filter, &neither), 0);
	SAME(check_child(by_a_filter, &no_kaio), 0);
	SAME(check_child(without_descriptors, &left), 0);
	SAME(check_child(with_little_memory, NULL), 0);
	return check_end("restricted");
}
