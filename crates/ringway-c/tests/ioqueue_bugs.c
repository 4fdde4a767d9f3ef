/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Tests for the known bugs of the original ioqueue, with the numbers of docs/ioqueue.md, on each
 * backend.
 */
#include "ioqueue_check.h"

/* 1. A bad descriptor at the head of a full queue: one callback ran twice, another never. */
static void bug_01_bad_descriptor_in_a_full_queue(const struct file *file, char *buf)
{
	struct job jobs[5];
	int round, bad, i;

	begin(4);
	for (round = 0; round < 100; round++) {
		memset(jobs, 0, sizeof jobs);
		bad = round % 4;
		for (i = 0; i < 4; i++)
			push_read(i == bad ? -1 : file->fd, buf + i * BLOCK, i * BLOCK, &jobs[i]);
		CHECK_FAILS(EAGAIN, ioqueue_pread(file->fd, buf, BLOCK, 0, job_done, &jobs[4]));
		/* The bad request is called back, another takes its slot, and each is called back
		   once. */
		while (jobs[bad].calls == 0)
			NEED(ioqueue_reap(1) >= 1);
		push_read(file->fd, buf + bad * BLOCK, bad * BLOCK, &jobs[4]);
		while (jobs[0].calls + jobs[1].calls + jobs[2].calls + jobs[3].calls +
		               jobs[4].calls <
		       5)
			NEED(ioqueue_reap(1) >= 1);
		CHECK_FAILS(EINVAL, ioqueue_reap(0));
		for (i = 0; i < 5; i++) {
			NEED(jobs[i].calls == 1);
			NEED(jobs[i].res == (i == bad ? -1 : BLOCK) &&
			     jobs[i].error == (i == bad ? EBADF : 0));
		}
		NEED(check_filled(buf, 0, 4 * BLOCK));
	}
	ioqueue_destroy();
}

/* 2. More failures than `min`: the reap failed although it had called back. */
static void bug_02_more_failures_than_min(const struct file *file, char *buf)
{
	struct job jobs[3];
	int round, count;

	begin(8);
	for (round = 0; round < 100; round++) {
		memset(jobs, 0, sizeof jobs);
		push_read(-1, buf, 0, &jobs[0]);
		push_read(-1, buf, 0, &jobs[1]);
		if (round % 2)
			push_read(file->fd, buf, 0, &jobs[2]);
		count = ioqueue_reap(1);
		NEED(count >= 1 && count == jobs[0].calls + jobs[1].calls + jobs[2].calls);
		if (count < 2 + round % 2)
			NEED(ioqueue_reap((unsigned)(2 + round % 2 - count)) ==
			     2 + round % 2 - count);
		NEED(jobs[0].calls == 1 && jobs[1].calls == 1 && jobs[2].calls == round % 2);
		NEED(jobs[0].error == EBADF && jobs[1].error == EBADF);
	}
	ioqueue_destroy();
}

/* 3. An offset that the kernel refuses: every later reap failed, and destroy never returned. */
static void bug_03_a_bad_offset(const struct file *file, char *buf)
{
	static const off_t offsets[] = { -1, -512, INT64_MIN, INT64_MAX, INT64_MAX - 511 };
	struct job jobs[3];
	size_t i;

	begin(8);
	for (i = 0; i < sizeof offsets / sizeof *offsets; i++) {
		memset(jobs, 0, sizeof jobs);
		push_read(file->fd, buf, 0, &jobs[0]);
		push_read(file->fd, buf, offsets[i], &jobs[1]);
		push_read(file->fd, buf + BLOCK, BLOCK, &jobs[2]);
		NEED(ioqueue_reap(3) == 3);
		NEED(jobs[0].calls == 1 && jobs[0].res == BLOCK && jobs[2].calls == 1 &&
		     jobs[2].res == BLOCK);
		NEED(jobs[1].calls == 1 && jobs[1].res == -1);
		NEED(offsets[i] > 0 || jobs[1].error == EINVAL);
		NEED(check_filled(buf, 0, 2 * BLOCK));
	}
	/* Destroy with bad requests that have not been submitted. */
	memset(jobs, 0, sizeof jobs);
	for (i = 0; i < 3; i++)
		NEED(ioqueue_pwrite(file->fd, buf, BLOCK, -BLOCK, job_done, &jobs[i]) == 0);
	ioqueue_destroy();
	for (i = 0; i < 3; i++)
		NEED(jobs[i].calls == 1 && jobs[i].res == -1 && jobs[i].error == EINVAL);
}

/* 4. The kernel accepted only part of a submission: the rest was corrupted. */
static void bug_04_a_partial_submission(const struct file *file, char *unused)
{
	enum { DEPTH = 512 };
	char *large = check_aligned(DEPTH * BLOCK);
	struct job *jobs = calloc(DEPTH, sizeof *jobs);
	int every, i;

	(void)unused;
	NEED(jobs != NULL);
	begin(DEPTH);
	/* Each bad descriptor or offset ends a submission: in all positions and distances. */
	for (every = 1; every <= 40; every++) {
		memset(jobs, 0, DEPTH * sizeof *jobs);
		for (i = 0; i < DEPTH; i++) {
			uint64_t offset = (uint64_t)(i % 256) * BLOCK;
			int bad = i % every == every - 1;

			jobs[i].offset = offset;
			push_read(bad ? -1 : file->fd, large + i * BLOCK, (off_t)offset, &jobs[i]);
		}
		NEED(ioqueue_reap(DEPTH) == DEPTH);
		for (i = 0; i < DEPTH; i++) {
			int bad = i % every == every - 1;

			NEED(jobs[i].calls == 1 && jobs[i].buf == large + i * BLOCK);
			NEED(jobs[i].res == (bad ? -1 : BLOCK) &&
			     jobs[i].error == (bad ? EBADF : 0));
			NEED(bad || check_filled(jobs[i].buf, jobs[i].offset, BLOCK));
		}
	}
	ioqueue_destroy();
	free(jobs);
	free(large);
}

static volatile sig_atomic_t signals_seen;
static const struct itimerval soon = { { 0, 0 }, { 0, 200 } }, never = { { 0, 0 }, { 0, 0 } };

/* The next signal follows some time after this one: at a fixed rate they could arrive faster than
   they are handled. */
static void signal_came(int number)
{
	int before = errno;

	(void)number;
	signals_seen++;
	setitimer(ITIMER_REAL, &soon, NULL);
	errno = before;
}

/* 5. A signal ended a reap, with -4. */
static void bug_05_a_signal_in_a_reap(const struct file *file, char *unused)
{
	struct sigaction action;
	struct job job = { 0, 0, 0, NULL, 0 };
	char *large = check_aligned(8 * FILE_SIZE);
	int disturbed = 0, i;

	(void)unused;
	memset(&action, 0, sizeof action);
	action.sa_handler = signal_came; /* without SA_RESTART */
	NEED(sigaction(SIGALRM, &action, NULL) == 0);
	begin(8);
	NEED(setitimer(ITIMER_REAL, &soon, NULL) == 0);
	/* The time limit of the test ends this if no signal ever arrives in time. */
	while (disturbed < 200) {
		int before = signals_seen;

		for (i = 0; i < 8; i++)
			NEED(ioqueue_pread(file->fd, large + i * FILE_SIZE, FILE_SIZE, 0, job_done,
			                   &job) == 0);
		NEED(ioqueue_reap(8) == 8 && job.res == FILE_SIZE);
		disturbed += signals_seen - before > 1;
	}
	action.sa_handler = SIG_IGN; /* a handler may be about to set the timer again */
	NEED(sigaction(SIGALRM, &action, NULL) == 0);
	NEED(setitimer(ITIMER_REAL, &never, NULL) == 0);
	NEED(check_filled(large, 0, FILE_SIZE));
	NEED(check_filled(large + 7 * FILE_SIZE, 0, FILE_SIZE));
	ioqueue_destroy();
	free(large);
}

/* 6. Kernel errors arrived as negative results, with errno 0. */
static void result_is_minus_one(void *arg, ssize_t res, void *buf)
{
	(void)buf;
	NEED(res == -1);
	NEED(errno == *(int *)arg);
	*(int *)arg = 0;
}

static void bug_06_errors_of_the_kernel(const struct file *file, char *buf)
{
	int write_only, folder, errors[4], i;
	void *read_only;

	NEED((write_only = open("/dev/null", O_WRONLY)) >= 0);
	NEED((folder = open("/", O_RDONLY | O_DIRECTORY)) >= 0);
	begin(4);
	errors[0] = EBADF;
	errors[1] = EBADF;
	errors[2] = EISDIR;
	errors[3] = EINVAL;
	NEED(ioqueue_pread(write_only, buf, BLOCK, 0, result_is_minus_one, &errors[0]) == 0);
	NEED(ioqueue_pread(-1, buf, BLOCK, 0, result_is_minus_one, &errors[1]) == 0);
	NEED(ioqueue_pread(folder, buf, BLOCK, 0, result_is_minus_one, &errors[2]) == 0);
	NEED(ioqueue_pread(file->fd, buf, BLOCK, -1, result_is_minus_one, &errors[3]) == 0);
	NEED(ioqueue_reap(4) == 4);
	for (i = 0; i < 4; i++)
		NEED(errors[i] == 0);
	/* Memory that the kernel cannot write to. */
	errors[0] = EFAULT;
	NEED((read_only = mmap(NULL, BLOCK, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) !=
	     MAP_FAILED);
	NEED(ioqueue_pread(file->fd, read_only, BLOCK, 0, result_is_minus_one, &errors[0]) == 0);
	NEED(ioqueue_reap(1) == 1 && errors[0] == 0);
	munmap(read_only, BLOCK);
	ioqueue_destroy();
	close(write_only);
	close(folder);
}

/* 7. Each destroy leaked the eventfd; before init ioqueue_eventfd() was 0, standard input. */
static void bug_07_leaked_descriptors(const struct file *file, char *buf)
{
	const struct timespec pause = { 0, 1000000 };
	int before, rounds, i;

	/* The kernel takes tens of milliseconds to destroy a context of Linux AIO. */
	rounds = strcmp(getenv("RINGWAY_BACKEND"), "kaio") == 0 ? 200 : 1000;
	NEED(ioqueue_eventfd() == -1 && (errno == EINVAL || errno == ENOTSUP));
	before = check_descriptors();
	for (i = 0; i < rounds; i++) {
		begin(8);
		if (i % 2)
			(void)ioqueue_eventfd();
		if (i % 3 == 0)
			NEED(once(0, file->fd, buf, BLOCK, 0).res == BLOCK);
		if (i % 5 == 0)
			NEED(once(0, -1, buf, BLOCK, 0).error == EBADF);
		ioqueue_destroy();
		NEED(ioqueue_eventfd() == -1 && (errno == EINVAL || errno == ENOTSUP));
	}
	/* Threads end asynchronously, and the last one closes their descriptors. */
	while (check_descriptors() != before)
		nanosleep(&pause, NULL);
}

/* 8. A second destroy freed twice. */
static void bug_08_a_second_destroy(const struct file *file, char *buf)
{
	int i;

	ioqueue_destroy();
	for (i = 0; i < 3; i++) {
		begin(4);
		NEED(once(0, file->fd, buf, BLOCK, 0).res == BLOCK);
		ioqueue_destroy();
		ioqueue_destroy();
		ioqueue_destroy();
	}
}

static int again_fd, again_left, again_calls;

static void again(void *arg, ssize_t res, void *buf)
{
	NEED(res == BLOCK && arg == &again_fd);
	again_calls++;
	CHECK_FAILS(EDEADLK, ioqueue_reap(0));
	CHECK_FAILS(EDEADLK, ioqueue_reap(1));
	CHECK_FAILS(EINVAL, ioqueue_init(4));
	errno = 0;
	ioqueue_destroy();
	NEED(errno == EDEADLK);
	if (again_left > 0) {
		again_left--;
		NEED(ioqueue_pread(again_fd, buf, BLOCK, 0, again, arg) == 0);
	}
}

/* 9. In a full queue a callback could not queue another operation, and a reap in a callback broke
   the outer one. */
static void bug_09_queueing_and_reaping_in_a_callback(const struct file *file, char *buf)
{
	enum { DEPTH = 4, MORE = 1000 };
	int i, calls = 0;

	again_fd = file->fd;
	again_left = MORE;
	begin(DEPTH);
	for (i = 0; i < DEPTH; i++)
		NEED(ioqueue_pread(again_fd, buf, BLOCK, 0, again, &again_fd) == 0);
	/* A reap does not wait for operations that its callbacks queue. */
	while (calls < DEPTH + MORE) {
		int count = ioqueue_reap(1);

		NEED(count >= 1 && count <= DEPTH);
		calls += count;
		NEED(calls == again_calls);
	}
	CHECK_FAILS(EINVAL, ioqueue_reap(0));
	ioqueue_destroy();
	}

static int rounds_left;

static void until_done(void *arg, ssize_t res, void *buf)
{
	NEED(res == BLOCK);
	if (rounds_left > 0) {
		rounds_left--;
		NEED(ioqueue_pread(*(int *)arg, buf, BLOCK, 0, until_done, arg) == 0);
	}
}

/* 10. A completion during a callback was lost: after a few hundred rounds a reap slept forever. */
static void bug_10_a_lost_wakeup(const struct file *file, char *buf)
{
	int round, i, got, outstanding = 4;

	begin(4);
	/* Four reads, and a reap of four. */
	for (round = 0; round < 5000; round++) {
		for (i = 0; i < 4; i++)
			NEED(ioqueue_pread(file->fd, buf + i * BLOCK, BLOCK, i * BLOCK, until_done,
			                   (void *)(uintptr_t)&file->fd) == 0);
		NEED(ioqueue_reap(4) == 4);
	}
	/* The same with callbacks that queue more. */
	rounds_left = 20000;
	for (i = 0; i < 4; i++)
		NEED(ioqueue_pread(file->fd, buf + i * BLOCK, BLOCK, i * BLOCK, until_done,
		                   (void *)(uintptr_t)&file->fd) == 0);
	while (outstanding > 0) {
		int before = rounds_left;

		got = ioqueue_reap((unsigned)outstanding);
		NEED(got == outstanding);
		outstanding -= got - (before - rounds_left);
	}
	ioqueue_destroy();
}

/* 11. A reap for too many consumed completions, then failed. */
static void bug_11_a_reap_of_too_many(const struct file *file, char *buf)
{
	const struct timespec pause = { 0, 300000 };
	int i;

	begin(8);
	for (i = 0; i < 1000; i++) {
		struct job job = { 0, 0, 0, NULL, 0 };

		CHECK_FAILS(EINVAL, ioqueue_reap(0));
		CHECK_FAILS(EINVAL, ioqueue_reap(1));
		CHECK_FAILS(EINVAL, ioqueue_reap(UINT_MAX));
		push_read(i % 2 ? file->fd : -1, buf, 0, &job);
		if (i % 4 >= 2)
			NEED(ioqueue_reap(0) == job.calls);
		nanosleep(&pause, NULL); /* so that it has completed in many of the rounds */
		if (job.calls == 0) {
			CHECK_FAILS(EINVAL, ioqueue_reap(2));
			CHECK_FAILS(EINVAL, ioqueue_reap(UINT_MAX));
			NEED(job.calls == 0);
			NEED(ioqueue_reap(1) == 1);
		}
		NEED(job.calls == 1);
	}
	ioqueue_destroy();
}

/* 12. As many threads as the queue is deep, and a use after destroy. */
static void bug_12_threads_and_destroy(const struct file *file, char *buf)
{
	struct job job = { 0, 0, 0, NULL, 0 };
	int i;

	begin(4096);
	NEED(check_count_threads(1) < 100);
	for (i = 0; i < 4096; i++)
		push_read(file->fd, buf, 0, &job);
	NEED(ioqueue_reap(4096) == 4096 && job.calls == 4096);
	NEED(check_count_threads(1) < 100);
	ioqueue_destroy();

	CHECK_FAILS(EINVAL, ioqueue_pread(file->fd, buf, BLOCK, 0, job_done, &job));
	CHECK_FAILS(EINVAL, ioqueue_pwrite(file->fd, buf, BLOCK, 0, job_done, &job));
	CHECK_FAILS(EINVAL, ioqueue_reap(0));
	CHECK_FAILS(EINVAL, ioqueue_reap(1));
	NEED(job.calls == 4096);
	for (i = 0; i < 50; i++) {
		begin(1 + (unsigned)i % 7);
		push_read(file->fd, buf, 0, &job);
		if (i % 2)
			NEED(ioqueue_reap(0) >= 0);
		ioqueue_destroy();
		NEED(job.calls == 4097 + i);
	}
}

int main(void)
{
	static const struct test tests[] = {
#define TEST(name) { #name, name }
		TEST(bug_01_bad_descriptor_in_a_full_queue),
		TEST(bug_02_more_failures_than_min),
		TEST(bug_03_a_bad_offset),
		TEST(bug_04_a_partial_submission),
		TEST(bug_05_a_signal_in_a_reap),
		TEST(bug_06_errors_of_the_kernel),
		TEST(bug_07_leaked_descriptors),
		TEST(bug_08_a_second_destroy),
		TEST(bug_09_queueing_and_reaping_in_a_callback),
		TEST(bug_10_a_lost_wakeup),
		TEST(bug_11_a_reap_of_too_many),
		TEST(bug_12_threads_and_destroy),
		{ NULL, NULL },
	};

	return run_tests(tests);
}
