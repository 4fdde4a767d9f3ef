/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* ringway_fd() in an event loop with poll(2) or epoll(7), a pipe and a socket: no wakeup is lost in
   thousands of rounds. */
#include "check.h"

#include <sys/epoll.h>
#include <sys/socket.h>

/* Longer than every operation here: a wait of this length means a lost wakeup. */
#define LOST 10000

static unsigned interrupted;

struct round {
	int seen;
	int wrong;
};

static void count(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct round *round = done->user_data;

	(void)queue;
	round->seen++;
	round->wrong += done->result < 0;
}

struct files {
	int buffered;
	int direct;
	int ready;
	void *bytes;
	struct statx stat;
};

static struct ringway_operation mixture(unsigned number, struct files *files, struct round *round)
{
	struct ringway_operation operation;

	switch (number % 12) {
	case 0:
		return ringway_prep_fadvise(files->buffered, 0, UINT64_C(1) << 33,
		                            POSIX_FADV_NORMAL, count, round);
	case 1:
		return ringway_prep_sync_range(files->buffered, 0, UINT64_C(1) << 33, 0, count,
		                               round);
	case 2:
		return ringway_prep_fdatasync(files->buffered, count, round);
	case 3:
		return ringway_prep_timeout(1000000, count, round);
	case 4:
		return ringway_prep_statx(AT_FDCWD, ".", 0, STATX_BASIC_STATS, &files->stat, count,
		                          round);
	case 5:
		return ringway_prep_poll(files->ready, POLLIN, count, round);
	case 6:
		return ringway_prep_nop(count, round);
	case 7:
		operation = ringway_prep_timeout(100000, count, round);
		operation.timeout_ns = UINT64_C(60000000000);
		return operation;
	case 8:
	case 9:
		if (files->direct >= 0)
			return ringway_prep_read(files->direct, files->bytes, 4096, 4096, count,
			                         round);
		/* fall through */
	default:
		return ringway_prep_read(files->buffered, files->bytes, 4096, 4096, count, round);
	}
}

/* Waits until the queue's descriptor is readable, as an event loop would. (Work of a ring for this
   thread interrupts waits like a signal, so epoll_wait(2) may fail with EINTR.) */
static int wait_for(int fd, int epoll)
{
	struct pollfd one = {fd, POLLIN, 0};
	struct epoll_event event;
	int ready;

	do {
		ready = epoll >= 0 ? epoll_wait(epoll, &event, 1, LOST) : poll(&one, 1, LOST);
		interrupted += ready < 0 && errno == EINTR;
	} while (ready < 0 && errno == EINTR);
	return ready == 1;
}

static void rounds(unsigned backend, uint32_t flags, int use_epoll, unsigned edge, unsigned many)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct files files;
	struct round round = {0, 0};
	int pipes[2];
	int epoll = -1;
	unsigned number;
	int fd;

	options.flags = flags;
	queue = check_queue(backend, options);
	if (queue == NULL)
		return;
	memset(&files, 0, sizeof files);
	files.buffered = check_file("loop", 8192, 0);
	files.direct = check_file("loop-direct", 8192, O_DIRECT);
	files.bytes = check_aligned(4096);
	NEED(pipe2(pipes, O_CLOEXEC) == 0 && write(pipes[1], "x", 1) == 1);
	files.ready = pipes[0];
	fd = ringway_fd(queue);
	CHECK(fd >= 0);
	SAME(ringway_fd(queue), fd);
	SAME(fcntl(fd, F_GETFD), FD_CLOEXEC);
	if (use_epoll) {
		struct epoll_event event = {.events = EPOLLIN | edge};

		epoll = epoll_create1(EPOLL_CLOEXEC);
		NEED(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
	}
	for (number = 0; number < many; number++) {
		unsigned batch = number % 50 == 0 ? 60 : 1;
		unsigned i;

		round.seen = 0;
		for (i = 0; i < batch; i++) {
			struct ringway_operation operation = mixture(number + i, &files, &round);

			CHECK(ringway_push(queue, &operation) > 0);
		}
		CHECK(ringway_submit(queue) >= 0);
		while (round.seen < (int)batch) {
			int some;

			if (!CHECK(wait_for(fd, epoll))) {
				printf("lost wakeup: %s, flags %#x, %s%s, round %u, %d of %u\n",
				       ringway_backend_name(backend), flags,
				       use_epoll ? "epoll" : "poll", edge ? " EPOLLET" : "", number,
				       round.seen, batch);
				goto over;
			}
			do {
				some = ringway_reap(queue, 0, 0);
				COUNTERS(queue);
			} while (some > 0);
			SAME(some, 0);
		}
		SAME(round.seen, batch);
	}
	SAME(round.wrong, 0);
over:
	check_drain(queue);
	SAME(ringway_destroy(&queue), 0);
	close(pipes[0]);
	close(pipes[1]);
	close(files.buffered);
	close(files.direct);
	close(epoll);
	free(files.bytes);
}

/* The loop of a server: requests arrive through a socket and a pipe, each reads a file, and the
   reply goes to the socket. */
struct request {
	int socket;
	uint32_t block;
	uint8_t bytes[64];
	int *open;
};

static void on_read(struct ringway_queue *queue, const struct ringway_completion *done)
{
	struct request *request = done->user_data;

	(void)queue;
	SAME(done->result, 64);
	CHECK(send(request->socket, request->bytes, 64, 0) == 64);
	--*request->open;
	free(request);
}

static void send_requests(void *arg)
{
	int *ends = arg;
	uint32_t block;
	uint8_t bytes[64];
	int round;

	for (round = 0; round < 300; round++) {
		block = (uint32_t)round * 37 % 1000;
		/* Some requests go through the pipe. */
		NEED(write(ends[round % 3 == 0], &block, sizeof block) == sizeof block);
		NEED(recv(ends[0], bytes, 64, MSG_WAITALL) == 64);
		CHECK(check_filled(bytes, (uint64_t)block * 64, 64));
	}
}

static void server(unsigned backend)
{
	struct ringway_queue *queue = check_queue(backend, check_default_options());
	int sockets[2];
	int pipes[2];
	int client[2];
	int file;
	int open = 0;
	int closed = 0;
	const char *program;
	pid_t child;
	int status;

	if (queue == NULL)
		return;
	/* The client is forked before the queue is created, so that it has no copy of it. */
	ringway_destroy(&queue);
	file = check_file("served", 64000, 0);
	NEED(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0 &&
	     pipe2(pipes, O_CLOEXEC) == 0);
	fflush(stdout);
	child = fork();
	NEED(child >= 0);
	if (child == 0) {
		check_failures = 0;
		check_watch("a client", 60);
		close(sockets[0]);
		close(pipes[0]);
		client[0] = sockets[1];
		client[1] = pipes[1];
		send_requests(client);
		fflush(stdout);
		/* Not _exit(): valgrind would report memory of the parent's ending threads. */
		program = check_failures == 0 ? "true" : "false";
		execlp(program, program, (char *)NULL);
		_exit(1);
	}
	close(sockets[1]);
	close(pipes[1]);
	queue = check_queue(backend, check_default_options());
	NEED(queue != NULL);
	while (!closed || open > 0) {
		struct pollfd all[3] = {
			{sockets[0], POLLIN, 0}, {pipes[0], POLLIN, 0}, {0, POLLIN, 0}};
		int i;

		all[2].fd = ringway_fd(queue);
		if (closed)
			all[0].fd = all[1].fd = -1;
		if (!CHECK(poll(all, 3, LOST) > 0))
			break;
		for (i = 0; i < 2; i++) {
			struct request *request;
			struct ringway_operation read_it;
			ssize_t some;

			if (all[i].revents == 0)
				continue;
			request = calloc(1, sizeof *request);
			some = read(all[i].fd, &request->block, sizeof request->block);
			if (some == 0) {
				closed = i == 0 ? 1 : closed;
				free(request);
				continue;
			}
			NEED(some == sizeof request->block);
			request->socket = sockets[0];
			request->open = &open;
			open++;
			read_it =
				ringway_prep_read(file, request->bytes, 64,
				                  (uint64_t)request->block * 64, on_read, request);
			read_it.flags = RINGWAY_EXACT;
			CHECK(ringway_push(queue, &read_it) > 0);
		}
		CHECK(ringway_submit(queue) >= 0);
		if (all[2].revents != 0)
			while (ringway_reap(queue, 0, 0) > 0)
				;
		COUNTERS(queue);
	}
	NEED(waitpid(child, &status, 0) == child);
	SAME(status, 0);
	SAME(ringway_destroy(&queue), 0);
	close(sockets[0]);
	close(pipes[0]);
	close(file);
}

/* The descriptor is readable for completions that are left, whenever it was created, and does not
   stay readable without any. */
static void remaining_completions(unsigned backend, uint32_t flags)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct ringway_completion done[2];
	struct round round = {0, 0};
	struct pollfd one = {0, POLLIN, 0};
	int quiet = 0;
	int i;

	options.flags = flags;
	queue = check_queue(backend, options);
	if (queue == NULL)
		return;
	for (i = 0; i < 5; i++) {
		struct ringway_operation nop = ringway_prep_nop(count, &round);

		CHECK(ringway_push(queue, &nop) > 0);
	}
	while (ringway_submit(queue) < 5)
		usleep(1000);
	one.fd = ringway_fd(queue);
	SAME(poll(&one, 1, LOST), 1);
	SAME(ringway_reap_into(queue, done, 2, 1, RINGWAY_FOREVER), 2);
	SAME(poll(&one, 1, LOST), 1);
	SAME(ringway_submit(queue), 3);
	SAME(poll(&one, 1, LOST), 1);
	SAME(ringway_reap(queue, 0, 0), 3);
	for (i = 0; i < 10 && !quiet; i++) {
		SAME(ringway_reap(queue, 0, 0), 0);
		quiet = poll(&one, 1, 1) == 0;
	}
	CHECK(quiet);
	SAME(ringway_destroy(&queue), 0);
}

int main(void)
{
	unsigned many = getenv("RINGWAY_TEST_BACKENDS") != NULL ? 300 : 4000;
	unsigned b;

	check_watch("loop", 300);
	for (b = 0; b < 3; b++) {
		rounds(check_backends[b], 0, 0, 0, many);
		rounds(check_backends[b], RINGWAY_EVENTFD, 0, 0, many / 2);
		rounds(check_backends[b], 0, 1, 0, many);
		rounds(check_backends[b], RINGWAY_SINGLE_ISSUER, 1, EPOLLET, many / 2);
		rounds(check_backends[b], RINGWAY_EVENTFD, 1, EPOLLET, many / 2);
		server(check_backends[b]);
		remaining_completions(check_backends[b], 0);
		remaining_completions(check_backends[b], RINGWAY_EVENTFD);
	}
	printf("interrupted without a signal: %u times\n", interrupted);
	return check_end("loop");
}
