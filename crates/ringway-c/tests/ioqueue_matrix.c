/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* valgrind: no, because it reports memory that only the parent's other threads refer to */
/* sanitized: no, because a child's allocator has locks that the parent's other threads may hold */
/* Every function of ioqueue.h in every situation, and what it answers. */
#include "ioqueue_check.h"

#include <sys/resource.h>

static struct file file;
static char *buf;
static struct job jobs[8];
static int pipes[2];

#define ANSWER(wanted, call)                                                                       \
	do {                                                                                       \
		long answer_ = (errno = 0, (long)(call));                                          \
		int error_answer_ = answer_ == -1 ? -errno : 0;                                    \
		printf("%s: %ld%s%s\n", #call, answer_, error_answer_ ? " " : "",                  \
		       error_answer_ ? strerror(-error_answer_) : "");                             \
		if ((error_answer_ ? error_answer_ : answer_) != (wanted)) {                       \
			printf("... and not %ld\n", (long)(wanted));                               \
			fflush(stdout);                                                            \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

#define READ ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, &jobs[0])
#define WRITE ioqueue_pwrite(file.fd, buf, BLOCK, 0, job_done, &jobs[1])

static void start(unsigned depth)
{
	memset(jobs, 0, sizeof jobs);
	file = make_file();
	buf = aligned(BLOCK);
	CHECK(pipe(pipes) == 0);
	begin(depth);
}

/* Without a queue, before and after there is one. */
static void no_queue(void)
{
	int again;

	start(2);
	for (again = 0; again < 2; again++) {
		ioqueue_destroy();
		ANSWER(-EINVAL, READ);
		ANSWER(-EINVAL, WRITE);
		ANSWER(-EINVAL, ioqueue_reap(0));
		ANSWER(1, ioqueue_backend() == NULL);
#ifdef IOQUEUE_THREADS
		ANSWER(-ENOTSUP, ioqueue_eventfd());
#else
		ANSWER(-EINVAL, ioqueue_eventfd());
#endif
		ANSWER(-EINVAL, ioqueue_init(0));
		ANSWER(-EINVAL, ioqueue_init((unsigned)INT_MAX + 1));
		ANSWER(-ENOMEM, ioqueue_init(16777216));
		ANSWER(0, ioqueue_init(2));
		ANSWER(-EINVAL, ioqueue_init(2));
	}
	ioqueue_destroy();
}

/* Bad arguments, and a queue that is full. */
static void refused(void)
{
	start(2);
	ANSWER(-EINVAL, ioqueue_pread(file.fd, NULL, BLOCK, 0, job_done, NULL));
	ANSWER(-EINVAL, ioqueue_pwrite(file.fd, buf, BLOCK, 0, NULL, NULL));
	ANSWER(-EINVAL, ioqueue_pread(file.fd, buf, 0, 0, job_done, NULL));
	ANSWER(-EINVAL, ioqueue_pwrite(file.fd, buf, (size_t)SSIZE_MAX + 1, 0, job_done, NULL));
	ANSWER(-EINVAL, ioqueue_reap(0));
	ANSWER(0, READ);
	ANSWER(0, WRITE);
	ANSWER(-EAGAIN, READ);
	ANSWER(-EAGAIN, WRITE);
	ANSWER(-EINVAL, ioqueue_reap(3));
	ANSWER(2, ioqueue_reap(2));
	/* What the kernel refuses comes with the callback. */
	ANSWER(0, ioqueue_pread(-1, buf, BLOCK, 0, job_done, &jobs[2]));
	ANSWER(0, ioqueue_pwrite(file.fd, buf, BLOCK, -5, job_done, &jobs[3]));
	ANSWER(2, ioqueue_reap(2));
	CHECK(jobs[2].error == EBADF && jobs[3].error == EINVAL);
	ioqueue_destroy();
}

static int ending;

static void all_of_them(void *arg, ssize_t res, void *at)
{
	job_done(arg, res, at);
	ANSWER(-EDEADLK, ioqueue_reap(0));
	ANSWER(ending ? -ESHUTDOWN : 0, READ);
	ANSWER(ending ? -ESHUTDOWN : 0, WRITE);
	ANSWER(-EINVAL, ioqueue_init(1));
	ANSWER(0, ioqueue_backend() == NULL);
#ifndef IOQUEUE_THREADS
	ANSWER(1, ioqueue_eventfd() >= 0);
#endif
	ioqueue_destroy();
	CHECK(errno == EDEADLK && ioqueue_backend() != NULL);
}

static void in_a_callback(void)
{
	start(4);
	ANSWER(0, ioqueue_pread(file.fd, buf, BLOCK, 0, all_of_them, &jobs[2]));
	ANSWER(1, ioqueue_reap(1));
	ANSWER(2, ioqueue_reap(2));
	CHECK(jobs[0].res == BLOCK && jobs[1].res == BLOCK && jobs[2].res == BLOCK);
	ending = 1;
	ANSWER(0, ioqueue_pread(file.fd, buf, BLOCK, 0, all_of_them, &jobs[3]));
	ioqueue_destroy();
	CHECK(jobs[3].calls == 1 && jobs[3].res == BLOCK);
}

static void in_a_child(void)
{
	int status;
	pid_t child;

	start(4);
	ANSWER(0, READ);
	ANSWER(0, ioqueue_pread(pipes[0], buf, 4, 0, job_done, &jobs[2]));
	ANSWER(1, ioqueue_reap(1));
	fflush(stdout);
	CHECK((child = fork()) >= 0);
	if (child == 0) {
		ANSWER(-ECHILD, READ);
		ANSWER(-ECHILD, WRITE);
		ANSWER(-ECHILD, ioqueue_reap(1));
#ifndef IOQUEUE_THREADS
		ANSWER(-ECHILD, ioqueue_eventfd());
#endif
		ioqueue_destroy();
		ANSWER(1, ioqueue_backend() == NULL);
		ANSWER(0, ioqueue_init(1));
		ANSWER(0, READ);
		ANSWER(1, ioqueue_reap(1));
		ioqueue_destroy();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(write(pipes[1], "text", 4) == 4);
	ANSWER(1, ioqueue_reap(1));
	CHECK(jobs[2].calls == 1 && jobs[2].res == 4);
	ioqueue_destroy();
}

static void without_descriptors(void)
{
	struct rlimit limit;
	struct rlimit none;
	int result;

	start(4);
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	none = limit;
	CHECK((none.rlim_cur = (rlim_t)dup(0)) != (rlim_t)-1 && close((int)none.rlim_cur) == 0);
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	ANSWER(0, READ);
	ANSWER(0, WRITE);
	ANSWER(2, ioqueue_reap(2));
	CHECK(jobs[0].res == BLOCK && jobs[1].res == BLOCK);
#ifndef IOQUEUE_THREADS
	CHECK((result = ioqueue_eventfd()) >= 0 || errno == EMFILE);
#endif
	ioqueue_destroy();
	/* With those that the queue had, there may be room for another. */
	CHECK((result = ioqueue_init(1)) == 0 || errno == EMFILE);
	ioqueue_destroy();
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void nothing(int number)
{
	(void)number;
}

static void in_a_storm_of_signals(void)
{
	struct sigaction action;
	struct itimerval timer = { { 0, 300 }, { 0, 300 } };
	int i;

	start(4);
	memset(&action, 0, sizeof action);
	action.sa_handler = nothing; /* without SA_RESTART */
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	for (i = 0; i < 50; i++) {
		CHECK(READ == 0 && WRITE == 0);
		CHECK(ioqueue_reap(2) == 2);
		CHECK(jobs[0].res == BLOCK && jobs[1].res == BLOCK);
	}
	ioqueue_destroy();
	memset(&timer, 0, sizeof timer);
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

#ifndef IOQUEUE_THREADS
/* The ring is gone: what is queued is answered at the end. */
static void a_failed_ring(void)
{
	char path[64], name[64];
	int fd, null, found = 0;

	start(4);
	ANSWER(0, ioqueue_pread(pipes[0], buf, 4, 0, job_done, &jobs[0]));
	ANSWER(0, ioqueue_reap(0));
	CHECK((null = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0);
	for (fd = 3; fd < 1000; fd++) {
		ssize_t length;

		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		length = readlink(path, name, sizeof name - 1);
		if (length > 0 && (name[length] = '\0', strcmp(name, "anon_inode:[io_uring]") == 0))
			found = dup2(null, fd) == fd;
	}
	if (!found) {
		printf("no ring to break\n");
		CHECK(write(pipes[1], "text", 4) == 4);
		ioqueue_destroy();
		return;
	}
	ANSWER(0, ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, &jobs[1]));
	CHECK(ioqueue_reap(1) == -1 && errno != 0);
	ioqueue_destroy();
	CHECK(jobs[0].calls == 1 && jobs[0].error == ECANCELED);
	CHECK(jobs[1].calls == 1 && (jobs[1].error == ECANCELED || jobs[1].res == BLOCK));
	ANSWER(0, ioqueue_init(1));
	ioqueue_destroy();
}
#endif

int main(void)
{
	static const struct test tests[] = {
#define TEST(name) { #name, name }
		TEST(no_queue),
		TEST(refused),
		TEST(in_a_callback),
		TEST(in_a_child),
		TEST(without_descriptors),
		TEST(in_a_storm_of_signals),
#ifndef IOQUEUE_THREADS
		TEST(a_failed_ring),
#endif
		{ NULL, NULL },
	};

	return run_tests(tests);
}
