/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bugs that the original ioqueue is known for, by the numbers that docs/ioqueue.md has: each must not be here, on any backend.
 */
#include "ioqueue_check.h"

/* 1. A bad descriptor at the head of a full queue had another request's callback run twice, and one never. */
static void bug_01_bad_descriptor_in_a_full_queue(void)
{
	struct file file = make_file();
	char *buf = aligned(4 * BLOCK);
	struct job jobs[5];
	int round, bad, i;

	begin(4);
	for (round = 0; round < 100; round++) {
		memset(jobs, 0, sizeof jobs);
		bad = round % 4;
		for (i = 0; i < 4; i++)
			CHECK(ioqueue_pread(i == bad ? -1 : file.fd, buf + i * BLOCK, BLOCK, i * BLOCK, job_done, &jobs[i]) == 0);
		CHECK_FAILS(EAGAIN, ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, &jobs[4]));
		/* The bad one is called back; into its place goes another; and everything is called back once. */
		while (jobs[bad].calls == 0)
			CHECK(ioqueue_reap(1) >= 1);
		CHECK(ioqueue_pread(file.fd, buf + bad * BLOCK, BLOCK, bad * BLOCK, job_done, &jobs[4]) == 0);
		while (jobs[0].calls + jobs[1].calls + jobs[2].calls + jobs[3].calls + jobs[4].calls < 5)
			CHECK(ioqueue_reap(1) >= 1);
		CHECK_FAILS(EINVAL, ioqueue_reap(0));
		for (i = 0; i < 5; i++) {
			CHECK(jobs[i].calls == 1);
			CHECK(jobs[i].res == (i == bad ? -1 : BLOCK) && jobs[i].error == (i == bad ? EBADF : 0));
		}
		CHECK(holds(buf, 4 * BLOCK, 0));
	}
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

/* 2. Failures were taken off `min`, which went below 0: the reap failed although it had called back. */
static void bug_02_more_failures_than_min(void)
{
	struct file file = make_file();
	struct job jobs[3];
	char *buf = aligned(BLOCK);
	int round, count;

	begin(8);
	for (round = 0; round < 100; round++) {
		memset(jobs, 0, sizeof jobs);
		CHECK(ioqueue_pread(-1, buf, BLOCK, 0, job_done, &jobs[0]) == 0);
		CHECK(ioqueue_pread(-1, buf, BLOCK, 0, job_done, &jobs[1]) == 0);
		if (round % 2)
			CHECK(ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, &jobs[2]) == 0);
		count = ioqueue_reap(1);
		CHECK(count >= 1 && count == jobs[0].calls + jobs[1].calls + jobs[2].calls);
		if (count < 2 + round % 2)
			CHECK(ioqueue_reap((unsigned)(2 + round % 2 - count)) == 2 + round % 2 - count);
		CHECK(jobs[0].calls == 1 && jobs[1].calls == 1 && jobs[2].calls == round % 2);
		CHECK(jobs[0].error == EBADF && jobs[1].error == EBADF);
	}
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

/* 3. An offset that the kernel refuses poisoned the queue: no reap worked any more, and the destroy never ended. */
static void bug_03_a_bad_offset(void)
{
	static const off_t offsets[] = { -1, -512, INT64_MIN, INT64_MAX, INT64_MAX - 511 };
	struct file file = make_file();
	char *buf = aligned(2 * BLOCK);
	struct job jobs[3];
	size_t i;

	begin(8);
	for (i = 0; i < sizeof offsets / sizeof *offsets; i++) {
		memset(jobs, 0, sizeof jobs);
		CHECK(ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, &jobs[0]) == 0);
		CHECK(ioqueue_pread(file.fd, buf, BLOCK, offsets[i], job_done, &jobs[1]) == 0);
		CHECK(ioqueue_pread(file.fd, buf + BLOCK, BLOCK, BLOCK, job_done, &jobs[2]) == 0);
		CHECK(ioqueue_reap(3) == 3);
		CHECK(jobs[0].calls == 1 && jobs[0].res == BLOCK && jobs[2].calls == 1 && jobs[2].res == BLOCK);
		CHECK(jobs[1].calls == 1 && jobs[1].res == -1);
		CHECK(offsets[i] > 0 || jobs[1].error == EINVAL);
		CHECK(holds(buf, 2 * BLOCK, 0));
	}
	/* And destroy with bad ones in the queue, none of which has been submitted. */
	memset(jobs, 0, sizeof jobs);
	for (i = 0; i < 3; i++)
		CHECK(ioqueue_pwrite(file.fd, buf, BLOCK, -BLOCK, job_done, &jobs[i]) == 0);
	ioqueue_destroy();
	for (i = 0; i < 3; i++)
		CHECK(jobs[i].calls == 1 && jobs[i].res == -1 && jobs[i].error == EINVAL);
	free(buf);
	close(file.fd);
}

/* 4. When the kernel took a part of what was submitted, the rest was moved by bytes instead of by requests. */
static void bug_04_a_part_is_submitted(void)
{
	enum { DEPTH = 512 };
	struct file file = make_file();
	char *buf = aligned(DEPTH * BLOCK);
	struct job *jobs = calloc(DEPTH, sizeof *jobs);
	int every, i;

	CHECK(jobs != NULL);
	begin(DEPTH);
	/* Each bad descriptor or offset ends what one system call takes: in all positions and distances. */
	for (every = 1; every <= 40; every++) {
		memset(jobs, 0, DEPTH * sizeof *jobs);
		for (i = 0; i < DEPTH; i++) {
			uint64_t offset = (uint64_t)(i % 256) * BLOCK;
			int bad = i % every == every - 1;

			jobs[i].offset = offset;
			CHECK(ioqueue_pread(bad ? -1 : file.fd, buf + i * BLOCK, BLOCK, (off_t)offset, job_done, &jobs[i]) == 0);
		}
		CHECK(ioqueue_reap(DEPTH) == DEPTH);
		for (i = 0; i < DEPTH; i++) {
			int bad = i % every == every - 1;

			CHECK(jobs[i].calls == 1 && jobs[i].buf == buf + i * BLOCK);
			CHECK(jobs[i].res == (bad ? -1 : BLOCK) && jobs[i].error == (bad ? EBADF : 0));
			CHECK(bad || holds(jobs[i].buf, BLOCK, jobs[i].offset));
		}
	}
	ioqueue_destroy();
	free(jobs);
	free(buf);
	close(file.fd);
}

static volatile sig_atomic_t signals_seen;
static const struct itimerval soon = { { 0, 0 }, { 0, 200 } }, never = { { 0, 0 }, { 0, 0 } };

/* The next one comes some time after this one has been seen to: at a fixed pace they could come faster than they can be
 * seen to, and nothing else would move. */
static void signal_came(int number)
{
	int before = errno;

	(void)number;
	signals_seen++;
	setitimer(ITIMER_REAL, &soon, NULL);
	errno = before;
}

/* 5. A signal ended a reap, which gave -4. */
static void bug_05_a_signal_in_a_reap(void)
{
	struct file file = make_file();
	struct sigaction action;
	struct job job = { 0, 0, 0, NULL, 0 };
	char *buf = aligned(8 * FILE_SIZE);
	int disturbed = 0, i;

	memset(&action, 0, sizeof action);
	action.sa_handler = signal_came; /* without SA_RESTART */
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	begin(8);
	CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
	/* The time limit ends this too, should no signal ever come in time. */
	while (disturbed < 200) {
		int before = signals_seen;

		for (i = 0; i < 8; i++)
			CHECK(ioqueue_pread(file.fd, buf + i * FILE_SIZE, FILE_SIZE, 0, job_done, &job) == 0);
		CHECK(ioqueue_reap(8) == 8 && job.res == FILE_SIZE);
		disturbed += signals_seen - before > 1;
	}
	action.sa_handler = SIG_IGN; /* one may be about to set the timer again */
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CHECK(holds(buf, FILE_SIZE, 0) && holds(buf + 7 * FILE_SIZE, FILE_SIZE, 0));
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

/* 6. What the kernel refused was called back with a negative errno as the result, and errno 0. */
static void result_is_minus_one(void *arg, ssize_t res, void *buf)
{
	(void)buf;
	CHECK(res == -1);
	CHECK(errno == *(int *)arg);
	*(int *)arg = 0;
}

static void bug_06_errors_of_the_kernel(void)
{
	struct file file = make_file();
	int write_only, folder, errors[4], i;
	void *buf = aligned(BLOCK), *read_only;

	CHECK((write_only = open("/dev/null", O_WRONLY)) >= 0);
	CHECK((folder = open("/", O_RDONLY | O_DIRECTORY)) >= 0);
	begin(4);
	errors[0] = EBADF;
	errors[1] = EBADF;
	errors[2] = EISDIR;
	errors[3] = EINVAL;
	CHECK(ioqueue_pread(write_only, buf, BLOCK, 0, result_is_minus_one, &errors[0]) == 0);
	CHECK(ioqueue_pread(-1, buf, BLOCK, 0, result_is_minus_one, &errors[1]) == 0);
	CHECK(ioqueue_pread(folder, buf, BLOCK, 0, result_is_minus_one, &errors[2]) == 0);
	CHECK(ioqueue_pread(file.fd, buf, BLOCK, -1, result_is_minus_one, &errors[3]) == 0);
	CHECK(ioqueue_reap(4) == 4);
	for (i = 0; i < 4; i++)
		CHECK(errors[i] == 0);
	/* Memory that the kernel cannot write to. */
	errors[0] = EFAULT;
	CHECK((read_only = mmap(NULL, BLOCK, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
	CHECK(ioqueue_pread(file.fd, read_only, BLOCK, 0, result_is_minus_one, &errors[0]) == 0);
	CHECK(ioqueue_reap(1) == 1 && errors[0] == 0);
	munmap(read_only, BLOCK);
	ioqueue_destroy();
	free(buf);
	close(write_only);
	close(folder);
	close(file.fd);
}

/* 7. Each destroy lost the eventfd; and before an init it was 0, which is standard input. */
static void bug_07_descriptors_are_lost(void)
{
	struct file file = make_file();
	const struct timespec pause = { 0, 1000000 };
	char *buf = aligned(BLOCK);
	int before, rounds, i;

	/* The kernel takes its time, tens of milliseconds, to end a context of Linux AIO. */
	rounds = strcmp(getenv("RINGWAY_BACKEND"), "kaio") == 0 ? 200 : 1000;
	CHECK(ioqueue_eventfd() == -1 && (errno == EINVAL || errno == ENOTSUP));
	before = count_of("fd");
	for (i = 0; i < rounds; i++) {
		begin(8);
		if (i % 2)
			(void)ioqueue_eventfd();
		if (i % 3 == 0)
			CHECK(once(0, file.fd, buf, BLOCK, 0).res == BLOCK);
		if (i % 5 == 0)
			CHECK(once(0, -1, buf, BLOCK, 0).error == EBADF);
		ioqueue_destroy();
		CHECK(ioqueue_eventfd() == -1 && (errno == EINVAL || errno == ENOTSUP));
	}
	/* Threads end by themselves, and the last one closes what they had. The time limit ends this too. */
	while (count_of("fd") != before)
		nanosleep(&pause, NULL);
	free(buf);
	close(file.fd);
}

/* 8. A second destroy freed what the first had. */
static void bug_08_a_second_destroy(void)
{
	struct file file = make_file();
	char *buf = aligned(BLOCK);
	int i;

	ioqueue_destroy();
	for (i = 0; i < 3; i++) {
		begin(4);
		CHECK(once(0, file.fd, buf, BLOCK, 0).res == BLOCK);
		ioqueue_destroy();
		ioqueue_destroy();
		ioqueue_destroy();
	}
	free(buf);
	close(file.fd);
}

static struct file again_file;
static int again_left, again_calls;

static void again(void *arg, ssize_t res, void *buf)
{
	CHECK(res == BLOCK && arg == &again_file);
	again_calls++;
	CHECK_FAILS(EDEADLK, ioqueue_reap(0));
	CHECK_FAILS(EDEADLK, ioqueue_reap(1));
	CHECK_FAILS(EINVAL, ioqueue_init(4));
	errno = 0;
	ioqueue_destroy();
	CHECK(errno == EDEADLK);
	if (again_left > 0) {
		again_left--;
		CHECK(ioqueue_pread(again_file.fd, buf, BLOCK, 0, again, arg) == 0);
	}
}

/* 9. A callback could not queue anything when the queue was full, and a reap in it broke the one around it. */
static void bug_09_queueing_and_reaping_in_a_callback(void)
{
	enum { DEPTH = 4, MORE = 1000 };
	char *buf = aligned(BLOCK);
	int i, calls = 0;

	again_file = make_file();
	again_left = MORE;
	begin(DEPTH);
	for (i = 0; i < DEPTH; i++)
		CHECK(ioqueue_pread(again_file.fd, buf, BLOCK, 0, again, &again_file) == 0);
	/* Each reap calls back what there was, not what the callbacks queued. */
	while (calls < DEPTH + MORE) {
		int count = ioqueue_reap(1);

		CHECK(count >= 1 && count <= DEPTH);
		calls += count;
		CHECK(calls == again_calls);
	}
	CHECK_FAILS(EINVAL, ioqueue_reap(0));
	ioqueue_destroy();
	free(buf);
	close(again_file.fd);
}

static int rounds_left;

static void until_done(void *arg, ssize_t res, void *buf)
{
	CHECK(res == BLOCK);
	if (rounds_left > 0) {
		rounds_left--;
		CHECK(ioqueue_pread(*(int *)arg, buf, BLOCK, 0, until_done, arg) == 0);
	}
}

/* 10. A completion during a callback woke nobody: the next reap slept for ever, after a few hundred rounds. */
static void bug_10_a_wake_up_is_lost(void)
{
	struct file file = make_file();
	char *buf = aligned(4 * BLOCK);
	int round, i, got, outstanding = 4;

	begin(4);
	/* Four, and a reap of four. */
	for (round = 0; round < 5000; round++) {
		for (i = 0; i < 4; i++)
			CHECK(ioqueue_pread(file.fd, buf + i * BLOCK, BLOCK, i * BLOCK, until_done, &file.fd) == 0);
		CHECK(ioqueue_reap(4) == 4);
	}
	/* And with callbacks that queue more. */
	rounds_left = 20000;
	for (i = 0; i < 4; i++)
		CHECK(ioqueue_pread(file.fd, buf + i * BLOCK, BLOCK, i * BLOCK, until_done, &file.fd) == 0);
	while (outstanding > 0) {
		int before = rounds_left;

		got = ioqueue_reap((unsigned)outstanding);
		CHECK(got == outstanding);
		outstanding -= got - (before - rounds_left);
	}
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

/* 11. A reap of more than there are took what had completed, and then failed. */
static void bug_11_a_reap_of_too_many(void)
{
	const struct timespec pause = { 0, 300000 };
	struct file file = make_file();
	char *buf = aligned(BLOCK);
	int i;

	begin(8);
	for (i = 0; i < 1000; i++) {
		struct job job = { 0, 0, 0, NULL, 0 };

		CHECK_FAILS(EINVAL, ioqueue_reap(0));
		CHECK_FAILS(EINVAL, ioqueue_reap(1));
		CHECK_FAILS(EINVAL, ioqueue_reap(UINT_MAX));
		CHECK(ioqueue_pread(i % 2 ? file.fd : -1, buf, BLOCK, 0, job_done, &job) == 0);
		if (i % 4 >= 2)
			CHECK(ioqueue_reap(0) == job.calls);
		nanosleep(&pause, NULL); /* so that it has completed, in many of the rounds */
		if (job.calls == 0) {
			CHECK_FAILS(EINVAL, ioqueue_reap(2));
			CHECK_FAILS(EINVAL, ioqueue_reap(UINT_MAX));
			CHECK(job.calls == 0);
			CHECK(ioqueue_reap(1) == 1);
		}
		CHECK(job.calls == 1);
	}
	ioqueue_destroy();
	free(buf);
	close(file.fd);
}

/* 12. A thread for each place of the queue, and a queue that was used after its end. */
static void bug_12_threads_and_the_end(void)
{
	struct file file = make_file();
	struct job job = { 0, 0, 0, NULL, 0 };
	char *buf = aligned(BLOCK);
	int i;

	begin(4096);
	CHECK(count_of("task") < 100);
	for (i = 0; i < 4096; i++)
		CHECK(ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, &job) == 0);
	CHECK(ioqueue_reap(4096) == 4096 && job.calls == 4096);
	CHECK(count_of("task") < 100);
	ioqueue_destroy();

	CHECK_FAILS(EINVAL, ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, &job));
	CHECK_FAILS(EINVAL, ioqueue_pwrite(file.fd, buf, BLOCK, 0, job_done, &job));
	CHECK_FAILS(EINVAL, ioqueue_reap(0));
	CHECK_FAILS(EINVAL, ioqueue_reap(1));
	CHECK(job.calls == 4096);
	for (i = 0; i < 50; i++) {
		begin(1 + (unsigned)i % 7);
		CHECK(ioqueue_pread(file.fd, buf, BLOCK, 0, job_done, &job) == 0);
		if (i % 2)
			CHECK(ioqueue_reap(0) >= 0);
		ioqueue_destroy();
		CHECK(job.calls == 4097 + i);
	}
	free(buf);
	close(file.fd);
}

int main(void)
{
	static const struct test tests[] = {
#define TEST(name) { #name, name }
		TEST(bug_01_bad_descriptor_in_a_full_queue),
		TEST(bug_02_more_failures_than_min),
		TEST(bug_03_a_bad_offset),
		TEST(bug_04_a_part_is_submitted),
		TEST(bug_05_a_signal_in_a_reap),
		TEST(bug_06_errors_of_the_kernel),
		TEST(bug_07_descriptors_are_lost),
		TEST(bug_08_a_second_destroy),
		TEST(bug_09_queueing_and_reaping_in_a_callback),
		TEST(bug_10_a_wake_up_is_lost),
		TEST(bug_11_a_reap_of_too_many),
		TEST(bug_12_threads_and_the_end),
		{ NULL, NULL },
	};

	return run_tests(tests);
}
