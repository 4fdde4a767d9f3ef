/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program for the original ioqueue: a server that sends blocks of a file to its clients, with one
 * poll(2) for its sockets and the eventfd. Without an eventfd (-lioqueuemt) it waits in the reap
 * while reads are in flight. It must compile unchanged as C89, C11 and C++. Its clients are in a
 * forked child, over socket pairs: each requests blocks by number and checks them.
 */
#define _GNU_SOURCE 1

#include "ioqueue.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLIENTS 16
#define ASKED 200
#define BUFSIZE 4096
#define BLOCKS 256

struct client {
	int socket;
	int reading;
	void *buf;
};

static struct client clients[CLIENTS];
static unsigned in_flight;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void on_read(void *arg, ssize_t res, void *buf)
{
	struct client *client = (struct client *)arg;

	if (res == -1)
		die("read");
	if (write(client->socket, buf, BUFSIZE) != BUFSIZE)
		die("write to a client");
	client->reading = 0;
	in_flight--;
}

/* All clients send requests, then all wait, so that the server has many reads in flight. */
static int run_clients(const int *sockets)
{
	unsigned char block[CLIENTS], buf[BUFSIZE];
	int asked, i, j;

	for (asked = 0; asked < ASKED; asked++) {
		for (i = 0; i < CLIENTS; i++) {
			block[i] = (unsigned char)random();
			if (write(sockets[i], &block[i], 1) != 1)
				return 1;
		}
		for (i = 0; i < CLIENTS; i++) {
			if (recv(sockets[i], buf, BUFSIZE, MSG_WAITALL) != BUFSIZE)
				return 1;
			for (j = 0; j < BUFSIZE; j++)
				if (buf[j] != block[i])
					return 1;
		}
	}
	return 0;
}

static int make_file(void)
{
	char path[4096], buf[BUFSIZE];
	int fd, i;

	sprintf(path, "%.4000s/ioqueue-server.XXXXXX",
	        getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	fd = mkstemp(path);
	if (fd == -1)
		die(path);
	for (i = 0; i < BLOCKS; i++) {
		memset(buf, i, BUFSIZE);
		if (write(fd, buf, BUFSIZE) != BUFSIZE)
			die("write");
	}
	close(fd);
	fd = open(path, O_RDONLY | O_DIRECT);
	unlink(path);
	if (fd == -1) {
		perror("open with O_DIRECT");
		exit(errno == EINVAL && !getenv("CI") ? 0 : 1);
	}
	return fd;
}

int main(void)
{
	struct pollfd fds[CLIENTS + 1];
	int pair[2], theirs[CLIENTS], fd, efd, open_clients = CLIENTS, i, status;
	pid_t child;

	fd = make_file();
	for (i = 0; i < CLIENTS; i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == -1)
			die("socketpair");
		clients[i].socket = pair[0];
		theirs[i] = pair[1];
		if (posix_memalign(&clients[i].buf, 4096, BUFSIZE) != 0)
			die("memory");
	}
	child = fork();
	if (child == -1)
		die("fork");
	if (child == 0) {
		for (i = 0; i < CLIENTS; i++)
			close(clients[i].socket);
		_exit(run_clients(theirs));
	}
	for (i = 0; i < CLIENTS; i++)
		close(theirs[i]);

	if (ioqueue_init(CLIENTS) == -1)
		die("ioqueue_init");
	efd = ioqueue_eventfd();
	if (efd == -1 && errno != ENOTSUP)
		die("ioqueue_eventfd");

	while (open_clients > 0) {
		for (i = 0; i < CLIENTS; i++) {
			/* A client has at most one request in flight. */
			fds[i].fd = clients[i].reading ? -1 : clients[i].socket;
			fds[i].events = POLLIN;
		}
		fds[CLIENTS].fd = efd;
		fds[CLIENTS].events = POLLIN;
		if (poll(fds, CLIENTS + 1, efd == -1 && in_flight > 0 ? 0 : -1) == -1)
			die("poll");
		for (i = 0; i < CLIENTS; i++) {
			unsigned char block;
			ssize_t n;

			if (fds[i].fd == -1 || !fds[i].revents)
				continue;
			n = read(clients[i].socket, &block, 1);
			if (n == -1 && errno != ECONNRESET)
				die("read from a client");
			if (n <= 0) {
				close(clients[i].socket);
				clients[i].socket = -1;
				open_clients--;
				continue;
			}
			if (ioqueue_pread(fd, clients[i].buf, BUFSIZE, (off_t)block * BUFSIZE,
			                  on_read, &clients[i]) == -1)
				die("ioqueue_pread");
			clients[i].reading = 1;
			in_flight++;
		}
		if (efd != -1 && fds[CLIENTS].revents & POLLIN) {
			unsigned long long n;

			if (read(efd, &n, sizeof n) != sizeof n)
				die("read of the eventfd");
		}
		if (in_flight > 0 && ioqueue_reap(efd == -1 ? 1 : 0) == -1)
			die("ioqueue_reap");
	}
	ioqueue_destroy();
	close(fd);
	for (i = 0; i < CLIENTS; i++)
		free(clients[i].buf);
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		fprintf(stderr, "a client failed\n");
		return 1;
	}
	return 0;
}
