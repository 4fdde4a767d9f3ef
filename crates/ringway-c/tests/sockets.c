/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* RINGWAY_SOCKET: transfers of sockets, which io_uring makes without looking up the file, and what
   the flag does for files that are not sockets. Polls of sockets are in polls.c. */
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static const uint64_t here = RINGWAY_CURRENT_POSITION;
static volatile sig_atomic_t broken_pipes;

static void count_broken_pipe(int number)
{
	(void)number;
	broken_pipes++;
}

static struct ringway_operation receive(int fd, void *buffer, size_t length, uint16_t flags)
{
	struct ringway_operation read = ringway_prep_read(fd, buffer, length, here, NULL, NULL);

	read.flags = RINGWAY_SOCKET | flags;
	return read;
}

static struct ringway_operation send_from(int fd, const void *buffer, size_t length, uint16_t flags)
{
	struct ringway_operation write = ringway_prep_write(fd, buffer, length, here, NULL, NULL);

	write.flags = RINGWAY_SOCKET | flags;
	return write;
}

static int64_t push(struct ringway_queue *queue, struct ringway_operation operation)
{
	int64_t id = ringway_push(queue, &operation);

	NEED(id > 0);
	return id;
}

/* The result of the next operation to complete. */
static int64_t next_result(struct ringway_queue *queue)
{
	struct ringway_completion done;

	NEED(ringway_reap_into(queue, &done, 1, 1, RINGWAY_FOREVER) == 1);
	return done.result;
}

static int64_t run(struct ringway_queue *queue, struct ringway_operation operation)
{
	push(queue, operation);
	return next_result(queue);
}

/* Pushes an operation that must wait, and lets it get as far as it can. */
static int64_t start(struct ringway_queue *queue, struct ringway_operation operation)
{
	struct ringway_completion done;
	int64_t id = push(queue, operation);
	int i;

	for (i = 0; i < 3; i++) {
		SAME(ringway_reap_into(queue, &done, 1, 0, 0), 0);
		usleep(1000);
	}
	return id;
}

static void pair(int fds[2], int type)
{
	NEED(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) == 0);
}

static void close_both(const int fds[2])
{
	close(fds[0]);
	close(fds[1]);
}

static void transfers(struct ringway_queue *queue, int type)
{
	enum { LONG = 1 << 20 };
	static uint8_t sent[LONG];
	static uint8_t got[LONG];
	struct ringway_operation limited;
	struct ringway_completion done[2];
	size_t least;
	int64_t id;
	int fds[2];

	pair(fds, type);
	check_fill(sent, 0, sizeof sent);
	/* A read waits; a write need not. */
	memset(got, 0, sizeof got);
	start(queue, receive(fds[0], got, 100, 0));
	NEED(write(fds[1], sent, 60) == 60);
	SAME(next_result(queue), 60);
	SAME(run(queue, send_from(fds[0], sent, 70, 0)), 70);
	SAME(run(queue, receive(fds[1], got + 60, 100, 0)), 70);
	CHECK(memcmp(got, sent, 60) == 0 && memcmp(got + 60, sent, 70) == 0);

	/* The data is there: the read ends within the call. On the threads that needs RWF_NOWAIT
	   for sockets. */
	NEED(write(fds[1], sent, 10) == 10);
	push(queue, receive(fds[0], got, 100, 0));
	least = ringway_get_backend(queue) != RINGWAY_BACKEND_URING && check_older_than(6, 5);
	SAME(ringway_reap_into(queue, done, 1, least, RINGWAY_FOREVER), 1);
	SAME(done[0].result, 10);

	/* Exact, with more bytes than a socket holds. */
	memset(got, 0, sizeof got);
	push(queue, receive(fds[0], got, LONG, RINGWAY_EXACT));
	push(queue, send_from(fds[1], sent, LONG, RINGWAY_EXACT));
	NEED(ringway_reap_into(queue, done, 2, 2, RINGWAY_FOREVER) == 2);
	SAME(done[0].result, LONG);
	SAME(done[1].result, LONG);
	CHECK(memcmp(got, sent, LONG) == 0);

	/* A cancelled read takes no bytes, and neither does one whose time is over. */
	id = start(queue, receive(fds[0], got, 100, 0));
	SAME(ringway_cancel(queue, id), 0);
	SAME(next_result(queue), -ECANCELED);
	limited = receive(fds[0], got, 100, RINGWAY_EXACT);
	limited.timeout_ns = 1000000;
	SAME(run(queue, limited), -ETIMEDOUT);
	NEED(write(fds[1], sent, 10) == 10);
	SAME(run(queue, receive(fds[0], got, 100, 0)), 10);

	/* The other side closes: at once, and after a part. */
	start(queue, receive(fds[0], got, 100, 0));
	NEED(shutdown(fds[1], SHUT_WR) == 0);
	SAME(next_result(queue), 0);
	SAME(run(queue, receive(fds[0], got, 100, RINGWAY_EXACT)), 0);
	close_both(fds);
	pair(fds, type);
	start(queue, receive(fds[0], got, 100, RINGWAY_EXACT));
	NEED(write(fds[1], sent, 30) == 30);
	close(fds[1]);
	SAME(next_result(queue), 30);

	/* Without a reader a write fails, and no signal comes. */
	SAME(run(queue, send_from(fds[0], sent, 10, 0)), -EPIPE);
	SAME(broken_pipes, 0);
	close(fds[0]);
	SAME(run(queue, receive(fds[0], got, 10, 0)), -EBADF);
	COUNTERS(queue);
}

/* A datagram is one write and one read; the flag does not change what is cut off. */
static void datagrams(struct ringway_queue *queue)
{
	char got[10];
	int fds[2];

	pair(fds, SOCK_DGRAM);
	SAME(run(queue, send_from(fds[0], "a datagram", 10, 0)), 10);
	SAME(run(queue, send_from(fds[0], "another", 7, 0)), 7);
	SAME(run(queue, receive(fds[1], got, 4, 0)), 4);
	SAME(run(queue, receive(fds[1], got, 10, 0)), 7);
	CHECK(memcmp(got, "another", 7) == 0);
	SAME(run(queue, receive(fds[1], got, 0, 0)), 0);
	close_both(fds);
}

static void chains(struct ringway_queue *queue)
{
	struct ringway_operation chain[3];
	struct ringway_completion done[3];
	char got[10];
	int fds[2];
	int pipes[2];
	int i;

	pair(fds, SOCK_STREAM);
	NEED(pipe2(pipes, O_CLOEXEC) == 0);
	/* The second operation's file is not a socket; the chain does not notice. */
	chain[0] = send_from(fds[0], "hello", 5, 0);
	chain[1] = send_from(pipes[1], "hello", 5, 0);
	chain[2] = receive(fds[1], got, 5, RINGWAY_EXACT);
	NEED(ringway_push_chain(queue, chain, 3, NULL) > 0);
	NEED(ringway_reap_into(queue, done, 3, 3, RINGWAY_FOREVER) == 3);
	for (i = 0; i < 3; i++)
		SAME(done[i].result, 5);
	CHECK(memcmp(got, "hello", 5) == 0);
	close_both(fds);
	close_both(pipes);
}

static void not_sockets(struct ringway_queue *queue)
{
	static uint8_t bytes[3 * 4096];
	uint8_t *aligned = check_aligned(3 * 4096);
	int64_t id;
	int pipes[2];
	int file;

	/* A pipe: it waits, and is cancelled before and after the kernel has refused the socket. */
	NEED(pipe2(pipes, O_CLOEXEC) == 0);
	start(queue, receive(pipes[0], bytes, 100, 0));
	SAME(run(queue, send_from(pipes[1], "hello", 5, 0)), 5);
	SAME(next_result(queue), 5);
	CHECK(memcmp(bytes, "hello", 5) == 0);
	id = start(queue, receive(pipes[0], bytes, 100, 0));
	SAME(ringway_cancel(queue, id), 0);
	SAME(next_result(queue), -ECANCELED);
	id = push(queue, receive(pipes[0], bytes, 100, 0));
	NEED(ringway_submit(queue) >= 0);
	SAME(ringway_cancel(queue, id), 0);
	SAME(next_result(queue), -ECANCELED);
	push(queue, receive(pipes[0], bytes, 100, RINGWAY_EXACT));
	NEED(write(pipes[1], "12", 2) == 2);
	close(pipes[1]);
	SAME(next_result(queue), 2);
	close(pipes[0]);

	/* A file: the position advances, an append is one, the end is found. */
	file = check_file("not_a_socket", 10000, 0);
	NEED(file >= 0);
	SAME(run(queue, receive(file, bytes, 4096, 0)), 4096);
	CHECK(check_filled(bytes, 0, 4096));
	SAME(run(queue, receive(file, bytes, 4096, 0)), 4096);
	CHECK(check_filled(bytes, 4096, 4096));
	SAME(run(queue, receive(file, bytes, sizeof bytes, RINGWAY_EXACT)), 10000 - 8192);
	CHECK(check_filled(bytes, 8192, 10000 - 8192));
	SAME(lseek(file, 0, SEEK_CUR), 10000);
	check_fill(bytes, 10000, 500);
	SAME(run(queue, send_from(file, bytes, 500, 0)), 500);
	SAME(lseek(file, 0, SEEK_CUR), 10500);
	SAME(pread(file, bytes, 500, 10000), 500);
	CHECK(check_filled(bytes, 10000, 500));
	if (ringway_register_file(queue, file) == 0) {
		NEED(lseek(file, 100, SEEK_SET) == 100);
		SAME(run(queue, receive(file, bytes, 50, 0)), 50);
		CHECK(check_filled(bytes, 100, 50));
		SAME(ringway_unregister_file(queue, file), 0);
	}
	close(file);

	/* Direct I/O: the position advances too, and the last block is short. */
	file = check_file("not_a_socket", 10000, O_DIRECT);
	if (file < 0) {
		check_skip("this file system has no direct I/O", 1);
	} else {
		SAME(run(queue, receive(file, aligned, 4096, 0)), 4096);
		SAME(run(queue, receive(file, aligned, 4096, 0)), 4096);
		CHECK(check_filled(aligned, 4096, 4096));
		SAME(lseek(file, 0, SEEK_CUR), 8192);
		SAME(run(queue, receive(file, aligned, 3 * 4096, RINGWAY_EXACT)), 10000 - 8192);
		CHECK(check_filled(aligned, 8192, 10000 - 8192));
		close(file);
	}
	file = open(".", O_RDONLY | O_CLOEXEC);
	NEED(file >= 0);
	SAME(run(queue, receive(file, bytes, 10, 0)), -EISDIR);
	SAME(run(queue, receive(file, bytes, 0, 0)), -EISDIR);
	SAME(run(queue, send_from(file, bytes, 10, 0)), -EBADF);
	close(file);
	free(aligned);
	COUNTERS(queue);
}

static void refused(struct ringway_queue *queue)
{
	struct iovec part;
	struct ringway_operation wrong[5];
	char byte;
	int i;

	part.iov_base = &byte;
	part.iov_len = 1;
	wrong[0] = ringway_prep_read(0, &byte, 1, 0, NULL, NULL);
	wrong[1] = ringway_prep_readv(0, &part, 1, here, NULL, NULL);
	wrong[2] = ringway_prep_fsync(0, NULL, NULL);
	wrong[3] = ringway_prep_poll(0, POLLIN, NULL, NULL);
	wrong[4] = ringway_prep_nop(NULL, NULL);
	for (i = 0; i < 5; i++) {
		wrong[i].flags = RINGWAY_SOCKET;
		SAME(ringway_push(queue, &wrong[i]), -EINVAL);
		CHECK(strstr(ringway_last_error(), "socket") != NULL);
		SAME(ringway_push_chain(queue, &wrong[i], 1, NULL), -EINVAL);
	}
	SAME(ringway_in_flight(queue), 0);
}

/* A kernel thread refuses the first submission at any time before or after the cancel. */
static void cancels_with_sqpoll(void)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	char byte;
	int pipes[2];
	int round;

	options.flags = RINGWAY_SQPOLL;
	queue = check_queue(RINGWAY_BACKEND_URING, options);
	if (queue == NULL)
		return;
	NEED(pipe2(pipes, O_CLOEXEC) == 0);
	for (round = 0; round < 500; round++) {
		struct ringway_operation read = receive(pipes[0], &byte, 1, 0);
		int64_t id;

		if (round % 2 == 0)
			read.timeout_ns = 1 + (uint64_t)round * 100;
		id = push(queue, read);
		NEED(ringway_submit(queue) >= 0);
		if (round % 4 == 1)
			usleep((unsigned)round % 50);
		if (round % 2 == 0) {
			SAME(next_result(queue), -ETIMEDOUT);
		} else {
			SAME(ringway_cancel(queue, id), 0);
			SAME(next_result(queue), -ECANCELED);
		}
	}
	COUNTERS(queue);
	SAME(ringway_destroy(&queue), 0);
	close_both(pipes);
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

static void without_look_ups(void *flags)
{
	struct ringway_queue *queue =
		check_queue(RINGWAY_BACKEND_URING, check_default_options());
	struct ringway_operation one;
	char byte;
	int fds[2];
	int i;

	if (queue == NULL)
		_exit(77);
	pair(fds, SOCK_STREAM | SOCK_NONBLOCK);
	forbid_look_ups();
	for (i = 0; i < 3; i++) {
		one = receive(fds[0], &byte, 1, RINGWAY_EXACT);
		one.flags &= *(const uint16_t *)flags;
		push(queue, one);
		NEED(ringway_submit(queue) >= 0);
		one = send_from(fds[1], "x", 1, 0);
		one.flags &= *(const uint16_t *)flags;
		push(queue, one);
		SAME(next_result(queue), 1);
		SAME(next_result(queue), 1);
	}
	fflush(stdout);
	_exit(check_failures == 0 ? 0 : 1);
}

int main(void)
{
	uint16_t all = UINT16_MAX;
	uint16_t none = RINGWAY_EXACT;
	int status;
	unsigned b;

	check_watch("sockets", 100);
	NEED(signal(SIGPIPE, count_broken_pipe) != SIG_ERR);
	for (b = 0; b < 3; b++) {
		struct ringway_queue *queue =
			check_queue(check_backends[b], check_default_options());

		if (queue == NULL)
			continue;
		transfers(queue, SOCK_STREAM);
		transfers(queue, SOCK_STREAM | SOCK_NONBLOCK);
		datagrams(queue);
		chains(queue);
		not_sockets(queue);
		refused(queue);
		SAME(ringway_destroy(&queue), 0);
	}
	cancels_with_sqpoll();
	if (check_wanted(RINGWAY_BACKEND_URING)) {
		status = check_child(without_look_ups, &all);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
			return check_end("sockets");
		SAME(status, 0);
		/* Without the flag the filter finds the look-ups. */
		status = check_child(without_look_ups, &none);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
	}
	return check_end("sockets");
}
