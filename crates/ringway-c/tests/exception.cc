/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* valgrind: no, because it reports the memory of a child that aborts */
/* The header and the library work from C++17. A callback that throws aborts the program and does
   not unwind the library. */
#include "check.h"

#include <stdexcept>
#include <vector>

static void throws(struct ringway_queue *, const struct ringway_completion *)
{
	throw std::runtime_error("thrown by a callback");
}

struct guard {
	~guard()
	{
		/* The exception must not reach this frame. */
		_exit(77);
	}
};

static void in_the_child(void *arg)
{
	unsigned backend = *static_cast<unsigned *>(arg);
	struct ringway_queue *queue = check_queue(backend, check_default_options());
	guard here;

	/* Hides the expected message of the abort. */
	close(2);
	if (queue == nullptr)
		abort();
	struct ringway_operation nop = ringway_prep_nop(throws, nullptr);
	ringway_push(queue, &nop);
	try {
		ringway_reap(queue, 1, RINGWAY_FOREVER);
	} catch (...) {
		_exit(78);
	}
}

int main()
{
	check_watch("exception", 60);
	for (unsigned backend : check_backends) {
		struct ringway_queue *queue = check_queue(backend, check_default_options());
		if (queue == nullptr)
			continue;
		int fd = check_file("cplusplus", 10000, 0);
		std::vector<char> bytes(10000);
		std::vector<struct ringway_range> ranges;
		for (unsigned i = 0; i < 10; i++)
			ranges.push_back({fd, 0, i * 1000u, 1000, bytes.data() + i * 1000, -1});
		SAME(ringway_multi_read(queue, ranges.data(), ranges.size()), 0);
		CHECK(check_filled(bytes.data(), 0, bytes.size()));
		int64_t result = -1;
		/* A lambda without captures can be a callback. */
		struct ringway_operation read_it = ringway_prep_read(
			fd, bytes.data(), 100, 500,
			[](struct ringway_queue *, const struct ringway_completion *done) {
				*static_cast<int64_t *>(done->user_data) = done->result;
			},
			&result);
		read_it.flags = RINGWAY_EXACT;
		CHECK(ringway_push(queue, &read_it) > 0);
		check_drain(queue);
		SAME(result, 100);
		CHECK(check_filled(bytes.data(), 500, 100));
		SAME(ringway_destroy(&queue), 0);
		close(fd);
		int status = check_child(in_the_child, &backend);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
	return check_end("exception");
}
