/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * server SOCKET FOLDER: serves ranges of the files below FOLDER over a Unix socket, to many clients at once, from one thread that
 * never waits for the disk.
 *
 * A request is a line, "OFFSET LENGTH PATH"; the answer is a line with the number of bytes, and they follow; or a line with minus an errno.
 * A client sends its next request when it has the answer. SIGTERM and SIGINT end the server.
 *
 * Shows a queue in a loop that also has sockets: ringway_fd() is one more descriptor in the epoll set. And what to do when a client
 * goes away while its operation is in flight: cancel it, and keep the buffer until the completion has come.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <ringway.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LONGEST_REQUEST = 512, LONGEST_ANSWER = 1024 * 1024, HEADER = 24 };

struct client {
	int socket;
	int file;                      /* -1: none is open */
	int64_t in_flight;             /* the operation that this client waits for; 0: none */
	int gone;                      /* no more to be answered; freed when nothing is in flight */
	char request[LONGEST_REQUEST]; /* as far as it has come */
	size_t received;
	uint64_t offset, length;
	char *answer; /* the header's line, then the bytes; NULL: nothing is to be sent */
	size_t sent, size;
};

static struct ringway_queue *queue;
static int loop, folder;
static volatile sig_atomic_t ending;

static void end(int number)
{
	(void)number;
	ending = 1;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Closed at once, but freed only when no operation can write into its buffer any more. */
static void drop(struct client *client)
{
	if (!client->gone) {
		close(client->socket); /* which takes it out of the epoll set too */
		client->gone = 1;
	}
	if (client->in_flight) {
		ringway_cancel(queue, client->in_flight);
		return;
	}
	if (client->file >= 0)
		close(client->file);
	free(client->answer);
	free(client);
}

static void watch(int change, int fd, void *who, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = who };

	if (epoll_ctl(loop, change, fd, &event) < 0)
		die("epoll_ctl");
}

/* Sends what the socket takes; the rest when epoll says that it takes more. */
static void send_on(struct client *client)
{
	while (client->sent < client->size) {
		ssize_t n = send(client->socket, client->answer + client->sent, client->size - client->sent, MSG_NOSIGNAL);

		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			watch(EPOLL_CTL_MOD, client->socket, client, EPOLLOUT);
			return;
		}
		if (n < 0) {
			drop(client);
			return;
		}
		client->sent += (size_t)n;
	}
	free(client->answer);
	client->answer = NULL;
	watch(EPOLL_CTL_MOD, client->socket, client, EPOLLIN);
}

/* The request is done: `result` is what it gave, and that many bytes are behind the place of the header. */
static void answer(struct client *client, int64_t result)
{
	size_t bytes = result > 0 ? (size_t)result : 0;
	char header[HEADER];
	int length = snprintf(header, sizeof header, "%" PRId64 "\n", result);

	if (client->file >= 0)
		close(client->file);
	client->file = -1;
	if (!client->answer)
		client->answer = malloc(HEADER);
	if (!client->answer) {
		drop(client);
		return;
	}
	/* The header goes right before the bytes. */
	client->sent = HEADER - (size_t)length;
	client->size = HEADER + bytes;
	memcpy(client->answer + client->sent, header, (size_t)length);
	send_on(client);
}

static void start(struct client *client, const struct ringway_operation *operation)
{
	int64_t id = ringway_push(queue, operation);

	if (id < 0)
		answer(client, id); /* -EAGAIN: the queue is full; the client may try again */
	else
		client->in_flight = id;
}

static void was_read(struct ringway_queue *q, const struct ringway_completion *done)
{
	struct client *client = done->user_data;

	(void)q;
	client->in_flight = 0;
	if (client->gone)
		drop(client);
	else
		answer(client, done->result);
}

static void opened(struct ringway_queue *q, const struct ringway_completion *done)
{
	struct client *client = done->user_data;
	struct ringway_operation read;

	(void)q;
	client->in_flight = 0;
	if (done->result >= 0)
		client->file = (int)done->result; /* ours to close, for a client that is gone too */
	if (client->gone) {
		drop(client);
		return;
	}
	client->answer = done->result >= 0 ? malloc(HEADER + client->length) : NULL;
	if (done->result < 0 || !client->answer) {
		answer(client, done->result < 0 ? done->result : -ENOMEM);
		return;
	}
	read = ringway_prep_read(client->file, client->answer + HEADER, client->length, client->offset, was_read, client);
	read.flags = RINGWAY_EXACT;
	read.timeout_ns = UINT64_C(30000000000); /* a disk or server that hangs is the client's to know */
	start(client, &read);
}

static void receive(struct client *client)
{
	size_t room = sizeof client->request - client->received;
	ssize_t n = recv(client->socket, client->request + client->received, room, 0);
	struct ringway_operation open;
	char *line_end;
	int path = 0;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	client->received += n > 0 ? (size_t)n : 0;
	line_end = memchr(client->request, '\n', client->received);
	if (n <= 0 || (!line_end && client->received == sizeof client->request)) {
		drop(client);
		return;
	}
	if (!line_end)
		return;
	*line_end = '\0';
	client->received = 0;
	watch(EPOLL_CTL_MOD, client->socket, client, 0); /* one request at a time; that the client hangs up is told all the same */
	if (sscanf(client->request, "%" SCNu64 " %" SCNu64 " %n", &client->offset, &client->length, &path) < 2 || !path ||
	    client->length > LONGEST_ANSWER) {
		answer(client, -EINVAL);
		return;
	}
	/* RESOLVE_BENEATH: what the client asks for cannot lie outside of the folder. O_NONBLOCK: a FIFO there is not waited for. */
	open = ringway_prep_open(folder, client->request + path, O_RDONLY | O_NONBLOCK, 0, opened, client);
	open.resolve = RESOLVE_BENEATH;
	start(client, &open);
}

static void take(int listener)
{
	int socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct client *client = socket < 0 ? NULL : calloc(1, sizeof *client);

	if (!client) {
		if (socket >= 0)
			close(socket);
		return; /* out of descriptors or memory: the others go on */
	}
	client->socket = socket;
	client->file = -1;
	watch(EPOLL_CTL_ADD, socket, client, EPOLLIN);
}

int main(int argc, char **argv)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct sigaction action = { .sa_handler = end };
	struct epoll_event events[64];
	sigset_t ends, before;
	int listener, completions;

	if (argc != 3 || strlen(argv[1]) >= sizeof address.sun_path) {
		fprintf(stderr, "usage: server SOCKET FOLDER\n");
		return 2;
	}
	/* The signals come during epoll_pwait() alone, and to this thread: the queue's own threads inherit that they are blocked. */
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, &before);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	strcpy(address.sun_path, argv[1]);
	folder = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	loop = epoll_create1(EPOLL_CLOEXEC);
	if (folder < 0 || listener < 0 || loop < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ||
	    listen(listener, 128) < 0)
		die("server");
	if (ringway_create(NULL, &queue) < 0 || (completions = ringway_fd(queue)) < 0) {
		fprintf(stderr, "server: %s\n", ringway_last_error());
		return 1;
	}
	watch(EPOLL_CTL_ADD, listener, &listener, EPOLLIN);
	watch(EPOLL_CTL_ADD, completions, &completions, EPOLLIN);

	while (!ending) {
		int reaped, n;

		/* Reaping submits too. It goes on until nothing comes: only then may the descriptor be waited for. */
		while ((reaped = ringway_reap(queue, 0, 0)) > 0)
			;
		if (reaped < 0) {
			fprintf(stderr, "server: %s\n", ringway_last_error());
			return 1;
		}
		n = epoll_pwait(loop, events, 64, -1, &before);
		if (n < 0 && errno != EINTR)
			die("epoll_pwait");
		for (int i = 0; i < n; i++) {
			struct client *client = events[i].data.ptr;

			if (events[i].data.ptr == &completions)
				continue;
			if (events[i].data.ptr == &listener)
				take(listener);
			else if (events[i].events & EPOLLIN)
				receive(client);
			else if (events[i].events & EPOLLOUT)
				send_on(client);
			else
				drop(client); /* hung up */
		}
	}
	/* What is in flight is cancelled, and its callbacks run now. The clients' memory goes with the process. */
	ringway_destroy(&queue);
	unlink(argv[1]);
	return 0;
}
