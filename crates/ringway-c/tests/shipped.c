/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The installed library has no code for tests and says so. (Other tests use the library for
   tests.) */
#include "check.h"

static void refused(const struct ringway_options *options, const char *text)
{
	struct ringway_queue *queue = NULL;

	SAME(ringway_create(options, &queue), -EOPNOTSUPP);
	CHECK(queue == NULL);
	CHECK(strstr(ringway_last_error(), text) != NULL);
	CHECK(strstr(ringway_last_error(), "testing") != NULL);
}

int main(void)
{
	struct ringway_options options;

	ringway_options_init(&options);
	options.faults = "seed=1 short=500";
	refused(&options, "faults");
	ringway_options_init(&options);
	options.backend = RINGWAY_BACKEND_NULL;
	refused(&options, "RINGWAY_BACKEND_NULL");
	return check_failures != 0;
}
