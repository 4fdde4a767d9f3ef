/* The stub of Direct_io. */
#define CAML_NAME_SPACE
#include "ringway.h"

#include <caml/memory.h>
#include <caml/mlvalues.h>
#include <caml/threads.h>

/* Fills an array of 7 integers. */
value ringway_ml_direct_io(value fd, value numbers)
{
	CAMLparam2(fd, numbers);
	struct ringway_direct_io direct;
	int number = Int_val(fd);
	int result;

	caml_release_runtime_system();
	result = ringway_get_direct_io(number, &direct, sizeof direct);
	caml_acquire_runtime_system();
	if (result == 0) {
		Field(numbers, 0) = Val_long(direct.mem_align);
		Field(numbers, 1) = Val_long(direct.offset_align);
		Field(numbers, 2) = Val_long(direct.max_request);
		Field(numbers, 3) = Val_long(direct.untorn_min);
		Field(numbers, 4) = Val_long(direct.untorn_max);
		Field(numbers, 5) = Val_long(direct.untorn_max_opt);
		Field(numbers, 6) = Val_long(direct.untorn_max_segments);
	}
	CAMLreturn(Val_long(result));
}
