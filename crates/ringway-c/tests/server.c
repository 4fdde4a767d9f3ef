/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The example server ends cleanly if it is stopped while it opens a file, which callbacks of
   ringway_destroy() find out. */
#include "check.h"

#include <sys/socket.h>
#include <sys/un.h>

static unsigned server_backend;

/* The completion of the first open waits for a cancel, which does not undo the open. */
static int create_with_late_open(const struct ringway_options *none, struct ringway_queue **queue)
{
	struct ringway_options options = check_default_options();

	(void)none;
	options.backend = server_backend;
	options.faults = "late=open.0/forever";
	return ringway_create(&options, queue);
}

#define main server_main
#define ringway_create create_with_late_open
#include "../examples/server.c"
#undef ringway_create
#undef main

static void serve(void *directory)
{
	char name[] = "server", path[] = "socket";
	char *argv[] = {name, path, directory, NULL};

	_exit(server_main(3, argv)); /* its clients are not freed */
}

static int connect_to_server(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
	int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int tries;

	NEED(client >= 0);
	for (tries = 0; connect(client, (struct sockaddr *)&address, sizeof address) < 0; tries++) {
		NEED(tries < 10000);
		usleep(1000);
	}
	return client;
}

/* Connects and sends a request. */
static int request(void)
{
	static const char text[] = "0 5 opened\n";
	int client = connect_to_server();

	NEED(write(client, text, sizeof text - 1) == sizeof text - 1);
	return client;
}

/* The number that a reply begins with. */
static int reply(int client)
{
	char text[100] = "";

	CHECK(read(client, text, sizeof text - 1) > 0);
	return atoi(text);
}

static void stopped_during_an_open(unsigned backend)
{
	char here[] = ".";
	int status = -1;
	int client, other, result;
	pid_t child;

	if (!check_openat2())
		return;
	unlink("socket");
	close(check_file("opened", 10, 0));
	server_backend = backend;
	fflush(stdout);
	child = fork();
	NEED(child >= 0);
	if (child == 0)
		serve(here);
	client = request();
	/* When a later request has its reply, the first open is in flight. */
	other = request();
	SAME(reply(other), 5);
	NEED(kill(child, SIGTERM) == 0);
	NEED(waitpid(child, &status, 0) == child);
	SAME(status, 0);
	result = reply(client);
	/* The open has succeeded, and the read was refused. (Linux AIO cannot open: its fallback
	   pool does, without faults.) */
	if (backend != RINGWAY_BACKEND_KAIO || result != 5)
		SAME(result, -ESHUTDOWN);
	close(other);
	close(client);
}

int main(void)
{
	static void (*const tests[])(unsigned) = {stopped_during_an_open, NULL};

	return check_each_backend("server", 100, tests);
}
