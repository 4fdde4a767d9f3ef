/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See main.c. */
#include <ringway.h>
#include <ringway.h>

extern "C" int64_t pushed_in_cplusplus(struct ringway_queue *queue, int *result)
{
	struct ringway_operation nop = ringway_nop(
		[](struct ringway_queue *, const struct ringway_completion *done) {
			*static_cast<int *>(done->arg) = static_cast<int>(done->result);
		},
		result);

	return ringway_push(queue, &nop);
}

extern "C" struct ringway_options made_in_cplusplus(void)
{
	return ringway_options();
}
