/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * server SOCKET DIRECTORY: serves ranges of the files below DIRECTORY over a Unix socket to many
 * clients, from one thread that never blocks on the disk.
 *
 * A request is a line, "OFFSET LENGTH PATH". The reply is a line with the number of bytes, followed
 * by the bytes; or a line with minus an errno. A client sends its next request after the reply.
 * SIGTERM and SIGINT stop the server.
 *
 * Shows a queue in an event loop with sockets: ringway_fd() is one more descriptor in the epoll
 * set. Also shows how to handle a client that disconnects while its operation is in flight: cancel
 * the operation and keep the buffer until the completion arrives.
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

enum { MAX_REQUEST = 512, MAX_REPLY = 1024 * 1024, HEADER = 24 };

struct client {
	int socket;
	int file;                  /* -1: not open */
	int64_t in_flight;         /* id of the operation in flight; 0: none */
	int gone;                  /* disconnected; freed when no operation is in flight */
	char request[MAX_REQUEST]; /* the bytes received so far */
	size_t received;
	uint64_t offset, length;
	char *reply; /* the header line, then the bytes; NULL: nothing to send */
	size_t sent, size;
};

static int loop, directory;
static volatile sig_atomic_t stopping;

static void stop(int number)
{
	(void)number;
	stopping = 1;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Closes the socket at once, but frees the client only when no operation can use its buffer. */
static void drop(struct ringway_queue *queue, struct client *client)
{
	if (!client->gone) {
		close(client->socket); /* also removes it from the epoll set */
		client->gone = 1;
	}
	if (client->in_flight) {
		ringway_cancel(queue, client->in_flight);
		return;
	}
	if (client->file >= 0)
		close(client->file);
	free(client->reply);
	free(client);
}

static void watch(int change, int fd, void *owner, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = owner };

	if (epoll_ctl(loop, change, fd, &event) < 0)
		die("epoll_ctl");
}

/* Sends until the socket is full, and continues when epoll reports it writable. */
static void send_more(struct ringway_queue *queue, struct client *client)
{
	while (client->sent < client->size) {
		ssize_t n = send(client->socket, client->reply + client->sent,
		                 client->size - client->sent, MSG_NOSIGNAL);

		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			watch(EPOLL_CTL_MOD, client->socket, client, EPOLLOUT);
			return;
		}
		if (n < 0) {
			drop(queue, client);
			return;
		}
		client->sent += (size_t)n;
	}
	free(client->reply);
	client->reply = NULL;
	watch(EPOLL_CTL_MOD, client->socket, client, EPOLLIN);
}

/* Ends a request. `result` is minus an errno, or the number of bytes after the header space. */
static void send_reply(struct ringway_queue *queue, struct client *client, int64_t result)
{
	size_t bytes = result > 0 ? (size_t)result : 0;
	char header[HEADER];
	int length = snprintf(header, sizeof header, "%" PRId64 "\n", result);

	if (client->file >= 0)
		close(client->file);
	client->file = -1;
	if (!client->reply)
		client->reply = malloc(HEADER);
	if (!client->reply) {
		drop(queue, client);
		return;
	}
	/* The header ends where the bytes begin. */
	client->sent = HEADER - (size_t)length;
	client->size = HEADER + bytes;
	memcpy(client->reply + client->sent, header, (size_t)length);
	send_more(queue, client);
}

static void start(struct ringway_queue *queue, struct client *client,
                  const struct ringway_operation *operation)
{
	int64_t id = ringway_push(queue, operation);

	/* -EAGAIN: the queue is full, and the client may retry. */
	if (id < 0)
		send_reply(queue, client, id);
	else
		client->in_flight = id;
}

static void was_read(struct ringway_queue *queue, const struct ringway_completion *completion)
{
	struct client *client = completion->user_data;

	client->in_flight = 0;
	if (client->gone)
		drop(queue, client);
	else
		send_reply(queue, client, completion->result);
}

static void opened(struct ringway_queue *queue, const struct ringway_completion *completion)
{
	struct client *client = completion->user_data;
	struct ringway_operation read;

	client->in_flight = 0;
	if (completion->result >= 0)
		client->file =
			(int)completion->result; /* must be closed even if the client is gone */
	if (client->gone) {
		drop(queue, client);
		return;
	}
	client->reply = completion->result >= 0 ? malloc(HEADER + client->length) : NULL;
	if (completion->result < 0 || !client->reply) {
		send_reply(queue, client, completion->result < 0 ? completion->result : -ENOMEM);
		return;
	}
	read = ringway_prep_read(client->file, client->reply + HEADER, client->length,
	                         client->offset, was_read, client);
	read.flags = RINGWAY_EXACT;
	read.timeout_ns = UINT64_C(30000000000); /* 30 s */
	start(queue, client, &read);
}

static void receive(struct ringway_queue *queue, struct client *client)
{
	size_t capacity = sizeof client->request - client->received;
	ssize_t n = recv(client->socket, client->request + client->received, capacity, 0);
	struct ringway_operation open;
	char *line_end;
	int path = 0;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	client->received += n > 0 ? (size_t)n : 0;
	line_end = memchr(client->request, '\n', client->received);
	if (n <= 0 || (!line_end && client->received == sizeof client->request)) {
		drop(queue, client);
		return;
	}
	if (!line_end)
		return;
	*line_end = '\0';
	client->received = 0;
	/* One request at a time. epoll reports a hang-up in any case. */
	watch(EPOLL_CTL_MOD, client->socket, client, 0);
	if (sscanf(client->request, "%" SCNu64 " %" SCNu64 " %n", &client->offset, &client->length,
	           &path) < 2 ||
	    !path || client->length > MAX_REPLY || client->offset > INT64_MAX) {
		send_reply(queue, client, -EINVAL);
		return;
	}
	/* RESOLVE_BENEATH confines paths to the directory. O_NONBLOCK avoids waiting for a FIFO. */
	open = ringway_prep_open(directory, client->request + path, O_RDONLY | O_NONBLOCK, 0,
	                         opened, client);
	open.resolve = RESOLVE_BENEATH;
	start(queue, client, &open);
}

static void accept_client(int listener)
{
	int socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct client *client = socket < 0 ? NULL : calloc(1, sizeof *client);

	if (!client) {
		if (socket >= 0)
			close(socket);
		return; /* out of descriptors or memory */
	}
	client->socket = socket;
	client->file = -1;
	watch(EPOLL_CTL_ADD, socket, client, EPOLLIN);
}

int main(int argc, char **argv)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct sigaction action = { .sa_handler = stop };
	struct epoll_event events[64];
	struct ringway_queue *queue;
	sigset_t blocked, before;
	int listener, completions;

	if (argc != 3 || strlen(argv[1]) >= sizeof address.sun_path) {
		fprintf(stderr, "usage: server SOCKET DIRECTORY\n");
		return 2;
	}
	/* Signals are delivered only in epoll_pwait(), and only to this thread: the threads of the
	   queue inherit the blocked mask. */
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGTERM);
	sigaddset(&blocked, SIGINT);
	sigprocmask(SIG_BLOCK, &blocked, &before);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	strcpy(address.sun_path, argv[1]);
	directory = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	loop = epoll_create1(EPOLL_CLOEXEC);
	if (directory < 0 || listener < 0 || loop < 0 ||
	    bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ||
	    listen(listener, 128) < 0)
		die("server");
	if (ringway_create(NULL, &queue) < 0 || (completions = ringway_fd(queue)) < 0) {
		fprintf(stderr, "server: %s\n", ringway_last_error());
		return 1;
	}
	watch(EPOLL_CTL_ADD, listener, &listener, EPOLLIN);
	watch(EPOLL_CTL_ADD, completions, &completions, EPOLLIN);

	while (!stopping) {
		int reaped, n;

		/* Reaping also submits. Wait for the descriptor only after a reap that returns 0.
		 */
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
				accept_client(listener);
			else if (events[i].events & EPOLLIN)
				receive(queue, client);
			else if (events[i].events & EPOLLOUT)
				send_more(queue, client);
			else
				drop(queue, client); /* hang-up */
		}
	}
	/* Cancels operations in flight and runs their callbacks, which use the queue that they are
	   passed: `queue` is NULL by then. The process exits, so the clients are not freed. */
	ringway_destroy(&queue);
	unlink(argv[1]);
	return 0;
}
