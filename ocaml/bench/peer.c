/* The other end of the TCP rows, the same for every contestant: a sender of bytes, and the clients
   of an echo server. It runs until the server closes the connection or ends it with a signal. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <signal.h>
#include <unistd.h>

enum { BLOCK = 32 * 1024, MESSAGE = 100 };

static int connect_to(int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int one = 1;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
		err(1, "connect");
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
		err(1, "setsockopt");
	return fd;
}

static void write_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t written = write(fd, data, len);

		if (written < 0)
			err(1, "write");
		data += written;
		len -= written;
	}
}

/* As netcat does with a file: blocks of 32 KiB, one after the other. */
static void send_bytes(int port, long long bytes)
{
	static char block[BLOCK];
	int fd = connect_to(port);

	for (int i = 0; i < BLOCK; i++)
		block[i] = (char)(i * 7 + i / 256);
	for (; bytes > 0; bytes -= BLOCK)
		write_all(fd, block, bytes < BLOCK ? (size_t)bytes : BLOCK);
	close(fd);
}

/* Each connection has one message under way. */
static void echo(int port, int connections)
{
	static char message[MESSAGE], data[4096];
	struct epoll_event *events = calloc(connections, sizeof *events);
	int *missing = calloc(connections, sizeof *missing);
	int *fds = calloc(connections, sizeof *fds);
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	if (events == NULL || missing == NULL || fds == NULL || epoll < 0)
		err(1, "epoll_create1");
	for (int i = 0; i < connections; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.u32 = i };

		fds[i] = connect_to(port);
		missing[i] = MESSAGE;
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event) != 0)
			err(1, "epoll_ctl");
	}
	for (int i = 0; i < connections; i++)
		write_all(fds[i], message, MESSAGE);
	for (;;) {
		int ready = epoll_wait(epoll, events, connections, -1);

		if (ready < 0 && errno != EINTR)
			err(1, "epoll_wait");
		for (int i = 0; i < ready; i++) {
			int number = events[i].data.u32;
			ssize_t got = read(fds[number], data, sizeof data);

			if (got <= 0)
				return;
			missing[number] -= got;
			if (missing[number] == 0) {
				missing[number] = MESSAGE;
				write_all(fds[number], message, MESSAGE);
			}
		}
	}
}

/* The server has the first processor. */
static void use_last_processor(void)
{
	cpu_set_t allowed, one;
	int chosen = 0;

	if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
		err(1, "sched_getaffinity");
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed))
			chosen = cpu;
	CPU_ZERO(&one);
	CPU_SET(chosen, &one);
	if (sched_setaffinity(0, sizeof one, &one) != 0)
		err(1, "sched_setaffinity");
}

int main(int argc, char **argv)
{
	if (argc != 4)
		errx(2, "usage: peer send PORT BYTES | peer echo PORT CONNECTIONS");
	/* A server that fails leaves no client behind. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		err(1, "prctl");
	use_last_processor();
	if (strcmp(argv[1], "send") == 0)
		send_bytes(atoi(argv[2]), atoll(argv[3]));
	else
		echo(atoi(argv[2]), atoi(argv[3]));
	return 0;
}
