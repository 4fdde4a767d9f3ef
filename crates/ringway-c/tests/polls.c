/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Polls as an event loop uses them: with RINGWAY_INTERRUPTIBLE a signal ends the wait, and a
   cancelled poll releases its file. Readiness of ringway_fd() is in loop.c. */
#include "check.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

static volatile sig_atomic_t signals_seen;

static void signal_came(int number)
{
	(void)number;
	signals_seen++;
}

static void handle(int flags)
{
	struct sigaction action;

	memset(&action, 0, sizeof action);
	action.sa_handler = signal_came;
	action.sa_flags = flags;
	NEED(sigaction(SIGUSR1, &action, NULL) == 0);
}

/* A thread that sends signals to another one, or to itself, until it is stopped. */
struct sender {
	pthread_t thread;
	pthread_t target;
	int to_itself;
	int stop;
};

static void *send_signals(void *arg)
{
	struct sender *sender = arg;

	while (!__atomic_load_n(&sender->stop, __ATOMIC_RELAXED)) {
		pthread_kill(sender->to_itself ? pthread_self() : sender->target, SIGUSR1);
		usleep(500);
	}
	return NULL;
}

static void start_sender(struct sender *sender, int to_itself)
{
	sender->target = pthread_self();
	sender->to_itself = to_itself;
	sender->stop = 0;
	NEED(pthread_create(&sender->thread, NULL, send_signals, sender) == 0);
}

static void stop_sender(struct sender *sender)
{
	__atomic_store_n(&sender->stop, 1, __ATOMIC_RELAXED);
	NEED(pthread_join(sender->thread, NULL) == 0);
}

/* Ten signals end no wait. */
static void not_ended(struct ringway_queue *queue)
{
	struct ringway_completion done[4];
	int before = signals_seen;

	while (signals_seen < before + 10) {
		check_push(queue, TIMEOUT(5000000));
		SAME(ringway_reap_into(queue, done, 4, 1, RINGWAY_FOREVER), 1);
	}
}

/* A wait that no signal ends hangs here, which the time limit of the test reports. */
static void signals(unsigned backend, uint32_t flags, int handler_flags)
{
	struct ringway_queue *queue = check_open(backend, flags);
	struct ringway_completion done[4];
	char byte[2];
	int file = check_file("polls", 4096, 0);
	struct ringway_range range = check_range(file, 0, 2, byte);
	struct sender sender;
	int pipes[2];
	int seen;

	handle(handler_flags);
	check_pipe(pipes);
	start_sender(&sender, 0);
	check_push(queue, POLL(pipes[0], POLLIN));
	if (flags & RINGWAY_INTERRUPTIBLE) {
		/* Submitted by the call that waits, and before it. */
		SAME(ringway_reap_into(queue, done, 4, 1, RINGWAY_FOREVER), 0);
		SAME(ringway_reap_into(queue, done, 4, 1, (int64_t)HOUR), 0);
		SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), 0);
		SAME(ringway_reap(queue, 1, (int64_t)HOUR), 0);
		/* One of two completions is there. */
		check_push(queue, NOP());
		for (seen = 0; seen == 0;)
			seen = ringway_reap_into(queue, done, 4, 2, RINGWAY_FOREVER);
		SAME(seen, 1);
		SAME(done[0].opcode, RINGWAY_OP_NOP);
	} else {
		not_ended(queue);
	}
	/* Waits of other functions are not affected. */
	SAME(ringway_multi_read(queue, &range, 1), 0);
	SAME(range.result, 2);
	/* Nothing is lost. */
	NEED(write(pipes[1], "x", 1) == 1);
	for (seen = 0; seen == 0;)
		seen = ringway_reap_into(queue, done, 4, 1, RINGWAY_FOREVER);
	SAME(seen, 1);
	CHECK(done[0].result & POLLIN);
	COUNTERS(queue);
	stop_sender(&sender);

	/* Signals that are handled on another thread. */
	start_sender(&sender, 1);
	not_ended(queue);
	stop_sender(&sender);
	SAME(ringway_destroy(&queue), 0);
	check_close(pipes);
	close(file);
}

static void all_signals(unsigned backend)
{
	signals(backend, RINGWAY_INTERRUPTIBLE, 0);
	signals(backend, RINGWAY_INTERRUPTIBLE | RINGWAY_SINGLE_ISSUER, SA_RESTART);
	signals(backend, 0, 0);
	signals(backend, RINGWAY_SINGLE_ISSUER, SA_RESTART);
}

/* Destroying a queue waits for the operations in flight, whatever signals come. */
static void destroyed(unsigned backend)
{
	struct ringway_queue *queue = check_open(backend, RINGWAY_INTERRUPTIBLE);
	struct sender sender;
	char byte;
	int pipes[2];

	handle(0);
	check_pipe(pipes);
	check_push(queue, POLL(pipes[0], POLLIN));
	check_push(queue, READ(pipes[0], &byte, 1, HERE));
	CHECK(ringway_submit(queue) >= 0);
	start_sender(&sender, 0);
	SAME(ringway_destroy(&queue), 0);
	stop_sender(&sender);
	check_close(pipes);
}

/* A socket that listens on this port of the loopback address; 0: on any. -1 if it is in use. */
static int listening(uint16_t port)
{
	struct sockaddr_in address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	NEED(fd >= 0);
	memset(&address, 0, sizeof address);
	address.sin_family = AF_INET;
	address.sin_port = port;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 5) == 0)
		return fd;
	CHECK(errno == EADDRINUSE);
	close(fd);
	return -1;
}

/* The port is free as soon as the socket is closed, although it was polled. */
static void released(unsigned backend)
{
	struct ringway_queue *queues[] = {check_open(backend, 0),
	                                  check_open(backend, RINGWAY_SINGLE_ISSUER)};
	struct sockaddr_in address;
	socklen_t length = sizeof address;
	int round, tries;

	for (round = 0; round < 200; round++) {
		struct ringway_queue *queue = queues[round % 2];
		struct ringway_completion done;
		struct ringway_stats before, after;
		int fd = listening(0);
		int64_t id = check_push(queue, POLL(fd, POLLIN));

		NEED(fd >= 0);
		NEED(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
		CHECK(ringway_submit(queue) >= 0);
		SAME(ringway_cancel(queue, id), 0);
		ringway_get_stats(queue, &before, sizeof before);
		SAME(ringway_reap_into(queue, &done, 1, backend != RINGWAY_BACKEND_URING,
		                       RINGWAY_FOREVER),
		     1);
		ringway_get_stats(queue, &after, sizeof after);
		if (backend == RINGWAY_BACKEND_URING)
			SAME(after.system_calls - before.system_calls, 1);
		SAME(done.id, id);
		SAME(done.result, -ECANCELED);
		close(fd);
		fd = listening(address.sin_port);
		/* Linux AIO reports the completion just before it releases the file. */
		for (tries = 0; fd < 0 && tries < 1000; tries++) {
			if (backend != RINGWAY_BACKEND_KAIO)
				break;
			usleep(1000);
			fd = listening(address.sin_port);
		}
		CHECK(fd >= 0);
		close(fd);
	}
	SAME(ringway_destroy(&queues[0]), 0);
	SAME(ringway_destroy(&queues[1]), 0);
}

int main(void)
{
	static void (*const tests[])(unsigned) = {all_signals, destroyed, released, NULL};

	return check_each_backend("polls", 200, tests);
}
