/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The header in several translation units of one program, C and C++, twice in each: nothing is defined twice, and all mean the same. */
#include <ringway.h>
#include <ringway.h>

#include <stdio.h>

int64_t pushed_in_c(struct ringway_queue *queue, int *result);
int64_t pushed_in_cplusplus(struct ringway_queue *queue, int *result);
struct ringway_options made_in_cplusplus(void);

static void here(struct ringway_queue *queue, const struct ringway_completion *done)
{
	(void)queue;
	*(int *)done->arg = (int)done->result;
}

int main(void)
{
	struct ringway_options options = made_in_cplusplus();
	struct ringway_queue *queue;
	int results[3] = {-1, -1, -1};
	struct ringway_operation nop = ringway_nop(here, &results[0]);

	if (options.size != sizeof options || ringway_create(&options, &queue) != 0 || ringway_push(queue, &nop) <= 0 ||
	    pushed_in_c(queue, &results[1]) <= 0 || pushed_in_cplusplus(queue, &results[2]) <= 0)
		return 1;
	while (ringway_in_flight(queue) > 0)
		if (ringway_reap(queue, 1, RINGWAY_FOREVER) < 0)
			return 1;
	if (ringway_destroy(&queue) != 0 || results[0] != 0 || results[1] != 0 || results[2] != 0)
		return 1;
	printf("units: passed\n");
	return 0;
}
