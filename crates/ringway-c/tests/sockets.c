/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* RINGWAY_SOCKET: transfers of sockets, which io_uring makes without looking up the file, and what
   the flag does for files that are not sockets. Polls of sockets are in polls.c. */
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static volatile sig_atomic_t broken_pipes;

static void count_broken_pipe(int number)
{
	(void)number;
	broken_pipes++;
}

static struct ringway_operation receive(int fd, void *buffer, size_t length, uint16_t flags)
{
	struct ringway_operation read = READ(fd, buffer, length, HERE);

	read.flags = RINGWAY_SOCKET | flags;
	return read;
}

static struct ringway_operation send_from(int fd, const void *buffer, size_t length, uint16_t flags)
{
	struct ringway_operation write = WRITE(fd, buffer, length, HERE);

	write.flags = RINGWAY_SOCKET | flags;
	return write;
}

/* Pushes an operation that must wait, and lets it get as far as it can. */
static int64_t start(struct ringway_queue *queue, struct ringway_operation operation,
                     struct answer *answer)
{
	int64_t id = check_start(queue, operation, answer);
	int i;

	answer->count = 0;
	for (i = 0; i < 3; i++) {
		SAME(ringway_reap(queue, 0, 0), 0);
		usleep(1000);
	}
	return id;
}

static int64_t finish(struct ringway_queue *queue, struct answer *answer)
{
	while (answer->count == 0 && CHECK(ringway_reap(queue, 1, RINGWAY_FOREVER) >= 0))
		;
	SAME(answer->count, 1);
	return answer->result;
}

static void pair(int fds[2], int type)
{
	NEED(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) == 0);
}

static void transfers_of(struct ringway_queue *queue, int type)
{
	enum { LONG = 1 << 20 };
	static uint8_t sent[LONG];
	static uint8_t got[LONG];
	struct ringway_operation limited;
	struct answer answers[2] = {{0, 0}, {0, 0}};
	unsigned least;
	int64_t id;
	int fds[2];

	pair(fds, type);
	check_fill(sent, 0, sizeof sent);
	/* A read waits; a write need not. */
	start(queue, receive(fds[0], got, 100, 0), answers);
	NEED(write(fds[1], sent, 60) == 60);
	SAME(finish(queue, answers), 60);
	SAME(check_run(queue, send_from(fds[0], sent, 70, 0)), 70);
	SAME(check_run(queue, receive(fds[1], got, 100, 0)), 70);
	CHECK(memcmp(got, sent, 70) == 0);

	/* The data is there: the read ends within the call. On the threads that needs RWF_NOWAIT
	   for sockets. */
	NEED(write(fds[1], sent, 10) == 10);
	answers[0].count = 0;
	check_start(queue, receive(fds[0], got, 100, 0), answers);
	least = ringway_get_backend(queue) != RINGWAY_BACKEND_URING && check_older_than(6, 5);
	SAME(ringway_reap(queue, least, RINGWAY_FOREVER), 1);
	check_answers(answers, 1, 10);

	/* Exact, with more bytes than a socket holds. */
	memset(got, 0, sizeof got);
	memset(answers, 0, sizeof answers);
	check_start(queue, receive(fds[0], got, LONG, RINGWAY_EXACT), &answers[0]);
	check_start(queue, send_from(fds[1], sent, LONG, RINGWAY_EXACT), &answers[1]);
	check_drain(queue);
	check_answers(answers, 2, LONG);
	CHECK(memcmp(got, sent, LONG) == 0);

	/* A cancelled read takes no bytes, and neither does one whose time is over. */
	id = start(queue, receive(fds[0], got, 100, 0), answers);
	SAME(ringway_cancel(queue, id), 0);
	SAME(finish(queue, answers), -ECANCELED);
	limited = receive(fds[0], got, 100, RINGWAY_EXACT);
	limited.timeout_ns = 1000000;
	SAME(check_run(queue, limited), -ETIMEDOUT);
	NEED(write(fds[1], sent, 10) == 10);
	SAME(check_run(queue, receive(fds[0], got, 100, 0)), 10);

	/* The other side closes: at once, and after a part. */
	start(queue, receive(fds[0], got, 100, 0), answers);
	NEED(shutdown(fds[1], SHUT_WR) == 0);
	SAME(finish(queue, answers), 0);
	SAME(check_run(queue, receive(fds[0], got, 100, RINGWAY_EXACT)), 0);
	check_close(fds);
	pair(fds, type);
	start(queue, receive(fds[0], got, 100, RINGWAY_EXACT), answers);
	NEED(write(fds[1], sent, 30) == 30);
	close(fds[1]);
	SAME(finish(queue, answers), 30);

	/* Without a reader a write fails, and no signal comes. */
	SAME(check_run(queue, send_from(fds[0], sent, 10, 0)), -EPIPE);
	SAME(broken_pipes, 0);
	close(fds[0]);
	SAME(check_run(queue, receive(fds[0], got, 10, 0)), -EBADF);
	COUNTERS(queue);
}

static void transfers(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);

	transfers_of(queue, SOCK_STREAM);
	transfers_of(queue, SOCK_STREAM | SOCK_NONBLOCK);
	SAME(ringway_destroy(&queue), 0);
}

/* A datagram is one write and one read; the flag does not change what is cut off. */
static void datagrams(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	char got[10];
	int fds[2];

	pair(fds, SOCK_DGRAM);
	SAME(check_run(queue, send_from(fds[0], "a datagram", 10, 0)), 10);
	SAME(check_run(queue, send_from(fds[0], "another", 7, 0)), 7);
	SAME(check_run(queue, receive(fds[1], got, 4, 0)), 4);
	SAME(check_run(queue, receive(fds[1], got, 10, 0)), 7);
	CHECK(memcmp(got, "another", 7) == 0);
	SAME(check_run(queue, receive(fds[1], got, 0, 0)), 0);
	check_close(fds);
	SAME(ringway_destroy(&queue), 0);
}

/* A pipe is cancelled before and after the kernel has refused the socket; in a chain that notices
   nothing. */
static void pipes_instead(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	struct ringway_operation chain[2];
	static uint8_t bytes[4096];
	struct answer answer = {0, 0};
	int64_t id;
	int pipes[2];
	int how;

	check_pipe(pipes);
	for (how = 0; how < 2; how++) {
		if (how == 0)
			id = start(queue, receive(pipes[0], bytes, 100, 0), &answer);
		else
			id = check_start(queue, receive(pipes[0], bytes, 100, 0), &answer);
		NEED(ringway_submit(queue) >= 0);
		SAME(ringway_cancel(queue, id), 0);
		SAME(finish(queue, &answer), -ECANCELED);
		answer.count = 0;
	}
	chain[0] = send_from(pipes[1], "hello", 5, 0);
	chain[1] = receive(pipes[0], bytes, 5, RINGWAY_EXACT);
	CHECK(ringway_push_chain(queue, chain, 2, NULL) > 0);
	check_drain(queue);
	CHECK(memcmp(bytes, "hello", 5) == 0);
	/* The end of the data, after a part. */
	answer.count = 0;
	check_start(queue, receive(pipes[0], bytes, 100, RINGWAY_EXACT), &answer);
	NEED(write(pipes[1], "12", 2) == 2);
	close(pipes[1]);
	SAME(finish(queue, &answer), 2);
	close(pipes[0]);
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
}

/* A file: the position advances, an append is one, the end is found, also with direct I/O. */
static void files_instead(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	uint8_t *bytes = check_aligned(3 * 4096);
	int flags[] = {0, O_DIRECT};
	int file;
	int i;

	for (i = 0; i < 2; i++) {
		file = check_file("not_a_socket", 10000, flags[i]);
		if (file < 0) {
			check_skip("this file system has no direct I/O", 1);
			continue;
		}
		SAME(check_run(queue, receive(file, bytes, 4096, 0)), 4096);
		SAME(check_run(queue, receive(file, bytes, 4096, 0)), 4096);
		CHECK(check_filled(bytes, 4096, 4096));
		SAME(lseek(file, 0, SEEK_CUR), 8192);
		SAME(check_run(queue, receive(file, bytes, 3 * 4096, RINGWAY_EXACT)), 10000 - 8192);
		CHECK(check_filled(bytes, 8192, 10000 - 8192));
		if (i == 0) {
			check_fill(bytes, 10000, 500);
			SAME(check_run(queue, send_from(file, bytes, 500, 0)), 500);
			SAME(lseek(file, 0, SEEK_CUR), 10500);
			SAME(pread(file, bytes, 500, 10000), 500);
			CHECK(check_filled(bytes, 10000, 500));
		}
		if (i == 0 && ringway_register_file(queue, file) == 0) {
			NEED(lseek(file, 100, SEEK_SET) == 100);
			SAME(check_run(queue, receive(file, bytes, 50, 0)), 50);
			CHECK(check_filled(bytes, 100, 50));
			SAME(ringway_unregister_file(queue, file), 0);
		}
		close(file);
	}
	NEED((file = open(".", O_RDONLY | O_CLOEXEC)) >= 0);
	SAME(check_run(queue, receive(file, bytes, 10, 0)), -EISDIR);
	SAME(check_run(queue, receive(file, bytes, 0, 0)), -EISDIR);
	SAME(check_run(queue, send_from(file, bytes, 10, 0)), -EBADF);
	close(file);
	free(bytes);
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
}

static void refused(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, 0);
	char byte;
	struct iovec part = {&byte, 1};
	struct ringway_operation wrong[5];
	int i;

	wrong[0] = READ(0, &byte, 1, 0);
	wrong[1] = READV(0, &part, 1, HERE);
	wrong[2] = FSYNC(0);
	wrong[3] = POLL(0, POLLIN);
	wrong[4] = NOP();
	for (i = 0; i < 5; i++) {
		wrong[i].flags = RINGWAY_SOCKET;
		SAME(ringway_push(queue, &wrong[i]), -EINVAL);
		CHECK(strstr(ringway_last_error(), "socket") != NULL);
		SAME(ringway_push_chain(queue, &wrong[i], 1, NULL), -EINVAL);
	}
	SAME(ringway_in_flight(queue), 0);
	SAME(ringway_destroy(&queue), 0);
}

/* A kernel thread refuses the first submission at any time before or after the cancel. */
static void cancels_with_sqpoll(unsigned backend)
{
	struct ringway_queue *queue;
	char byte;
	int pipes[2];
	int round;

	if (backend != RINGWAY_BACKEND_URING)
		return;
	queue = check_open(backend, RINGWAY_SQPOLL);
	check_pipe(pipes);
	for (round = 0; round < 500; round++) {
		struct ringway_operation read = receive(pipes[0], &byte, 1, 0);
		struct answer answer = {0, 0};
		int64_t id;

		if (round % 2 == 0)
			read.timeout_ns = 1 + (uint64_t)round * 100;
		id = check_start(queue, read, &answer);
		NEED(ringway_submit(queue) >= 0);
		if (round % 4 == 1)
			usleep((unsigned)round % 50);
		if (round % 2 == 1)
			SAME(ringway_cancel(queue, id), 0);
		SAME(finish(queue, &answer), round % 2 == 0 ? -ETIMEDOUT : -ECANCELED);
	}
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	check_close(pipes);
}

/* From now on, a look-up of a file ends the process. */
static void forbid_look_ups(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fstat, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_statx, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

	NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	NEED(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void transfer_without_look_ups(void *flags)
{
	struct ringway_queue *queue = check_open(RINGWAY_BACKEND_URING, 0);
	struct answer answers[2] = {{0, 0}, {0, 0}};
	struct ringway_operation one;
	char byte;
	int fds[2];
	int i;

	pair(fds, SOCK_STREAM | SOCK_NONBLOCK);
	forbid_look_ups();
	for (i = 0; i < 6; i++) {
		one = i % 2 == 0 ? receive(fds[0], &byte, 1, RINGWAY_EXACT) :
		                   send_from(fds[1], "x", 1, 0);
		one.flags &= *(const uint16_t *)flags;
		answers[i % 2].count = 0;
		check_start(queue, one, &answers[i % 2]);
		if (i % 2 == 0)
			NEED(ringway_submit(queue) >= 0);
		else
			check_drain(queue);
	}
	check_answers(answers, 2, 1);
	fflush(stdout);
	_exit(check_failures == 0 ? 0 : 1);
}

static void without_look_ups(unsigned backend)
{
	uint16_t all = UINT16_MAX;
	uint16_t none = RINGWAY_EXACT;
	int status;

	if (backend != RINGWAY_BACKEND_URING)
		return;
	SAME(check_child(transfer_without_look_ups, &all), 0);
	/* Without the flag the filter finds the look-ups. */
	status = check_child(transfer_without_look_ups, &none);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

int main(void)
{
	static void (*const tests[])(unsigned) = {
		transfers, datagrams,           pipes_instead,    files_instead,
		refused,   cancels_with_sqpoll, without_look_ups, NULL};

	NEED(signal(SIGPIPE, count_broken_pipe) != SIG_ERR);
	return check_each_backend("sockets", 100, tests);
}
