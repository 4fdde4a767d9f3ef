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

static void push(struct ringway_queue *queue, struct ringway_operation operation)
{
	NEED(ringway_push(queue, &operation) > 0);
}

/* A wait that no signal ends hangs here, which the time limit of the test reports. */
static void signals(unsigned backend, uint32_t flags, int handler_flags)
{
	static const int64_t hour = INT64_C(3600) * 1000000000;
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct ringway_completion done[4];
	struct ringway_range range;
	struct sender sender;
	char byte[2];
	int file;
	int pipes[2];
	int before;
	int seen;

	options.flags = flags;
	queue = check_queue(backend, options);
	if (queue == NULL)
		return;
	handle(handler_flags);
	NEED(pipe2(pipes, O_CLOEXEC) == 0);
	file = check_file("polls", 4096, 0);

	start_sender(&sender, 0);
	push(queue, ringway_prep_poll(pipes[0], POLLIN, NULL, NULL));
	if (flags & RINGWAY_INTERRUPTIBLE) {
		/* Submitted by the call that waits, and before it. */
		SAME(ringway_reap_into(queue, done, 4, 1, RINGWAY_FOREVER), 0);
		SAME(ringway_reap_into(queue, done, 4, 1, RINGWAY_FOREVER), 0);
		SAME(ringway_reap_into(queue, done, 4, 1, hour), 0);
		SAME(ringway_reap(queue, 1, RINGWAY_FOREVER), 0);
		SAME(ringway_reap(queue, 1, hour), 0);
		/* One of two completions is there. */
		push(queue, ringway_prep_nop(NULL, NULL));
		for (seen = 0; seen == 0;)
			seen = ringway_reap_into(queue, done, 4, 2, RINGWAY_FOREVER);
		SAME(seen, 1);
		SAME(done[0].opcode, RINGWAY_OP_NOP);
	} else {
		before = signals_seen;
		while (signals_seen < before + 10) {
			push(queue, ringway_prep_timeout(5000000, NULL, NULL));
			SAME(ringway_reap_into(queue, done, 4, 1, RINGWAY_FOREVER), 1);
		}
	}
	/* Waits of other functions are not affected. */
	range = check_range(file, 0, 2, byte);
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
	before = signals_seen;
	while (signals_seen < before + 10) {
		push(queue, ringway_prep_timeout(5000000, NULL, NULL));
		SAME(ringway_reap_into(queue, done, 4, 1, RINGWAY_FOREVER), 1);
	}
	stop_sender(&sender);
	SAME(ringway_destroy(&queue), 0);
	close(pipes[0]);
	close(pipes[1]);
	close(file);
}

/* Destroying a queue waits for the operations in flight, whatever signals come. */
static void destroyed(unsigned backend)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct sender sender;
	char byte;
	int pipes[2];

	options.flags = RINGWAY_INTERRUPTIBLE;
	queue = check_queue(backend, options);
	if (queue == NULL)
		return;
	handle(0);
	NEED(pipe2(pipes, O_CLOEXEC) == 0);
	push(queue, ringway_prep_poll(pipes[0], POLLIN, NULL, NULL));
	push(queue, ringway_prep_read(pipes[0], &byte, 1, RINGWAY_CURRENT_POSITION, NULL, NULL));
	CHECK(ringway_submit(queue) >= 0);
	start_sender(&sender, 0);
	SAME(ringway_destroy(&queue), 0);
	stop_sender(&sender);
	close(pipes[0]);
	close(pipes[1]);
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
static void released(unsigned backend, uint32_t flags)
{
	struct ringway_options options = check_default_options();
	struct ringway_queue *queue;
	struct ringway_completion done;
	struct sockaddr_in address;
	socklen_t length = sizeof address;
	int64_t id;
	int round;

	options.flags = flags;
	queue = check_queue(backend, options);
	if (queue == NULL)
		return;
	for (round = 0; round < 100; round++) {
		int fd = listening(0);
		struct ringway_operation operation = ringway_prep_poll(fd, POLLIN, NULL, NULL);
		struct ringway_stats before;
		struct ringway_stats after;
		int tries;

		NEED(fd >= 0);
		NEED(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
		id = ringway_push(queue, &operation);
		CHECK(ringway_submit(queue) >= 0);
		SAME(ringway_cancel(queue, id), 0);
		if (backend == RINGWAY_BACKEND_URING) {
			ringway_get_stats(queue, &before, sizeof before);
			SAME(ringway_reap_into(queue, &done, 1, 0, 0), 1);
			ringway_get_stats(queue, &after, sizeof after);
			SAME(after.system_calls - before.system_calls, 1);
		} else
			SAME(ringway_reap_into(queue, &done, 1, 1, RINGWAY_FOREVER), 1);
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
	SAME(ringway_destroy(&queue), 0);
}

int main(void)
{
	size_t i;

	for (i = 0; i < sizeof check_backends / sizeof *check_backends; i++) {
		unsigned backend = check_backends[i];

		check_watch("a wait", 120);
		signals(backend, RINGWAY_INTERRUPTIBLE, 0);
		signals(backend, RINGWAY_INTERRUPTIBLE, SA_RESTART);
		signals(backend, RINGWAY_INTERRUPTIBLE | RINGWAY_SINGLE_ISSUER, SA_RESTART);
		signals(backend, 0, 0);
		signals(backend, RINGWAY_SINGLE_ISSUER, SA_RESTART);
		destroyed(backend);
		released(backend, 0);
		released(backend, RINGWAY_SINGLE_ISSUER);
	}
	return check_end("polls");
}
