/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See main.c. */
#include <ringway.h>
#include <ringway.h>

int64_t pushed_in_c(struct ringway_queue *queue, int *result);

static void here(struct ringway_queue *queue, const struct ringway_completion *done)
{
	(void)queue;
	*(int *)done->arg = (int)done->result;
}

int64_t pushed_in_c(struct ringway_queue *queue, int *result)
{
	struct ringway_operation nop = ringway_nop(here, result);

	return ringway_push(queue, &nop);
}
