/* What the benchmark needs from the system and OCaml's Unix library does not have: the resources
   that the process has used, its system calls, O_DIRECT, the page cache, and processors. Nothing
   here is a contestant, except ringway_bench_pread, since Unix has no pread(2) before OCaml 5.2. */

#define _GNU_SOURCE
#include <caml/alloc.h>
#include <caml/bigarray.h>
#include <caml/memory.h>
#include <caml/mlvalues.h>
#include <caml/signals.h>
#include <caml/unixsupport.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static long nanoseconds(struct timeval t)
{
	return t.tv_sec * 1000000000L + t.tv_usec * 1000L;
}

/* [| user ns; system ns; voluntary; involuntary context switches |] of all threads. */
value ringway_bench_usage(value unit)
{
	struct rusage usage;
	value result;

	(void)unit;
	if (getrusage(RUSAGE_SELF, &usage) != 0)
		uerror("getrusage", Nothing);
	result = caml_alloc_tuple(4);
	Field(result, 0) = Val_long(nanoseconds(usage.ru_utime));
	Field(result, 1) = Val_long(nanoseconds(usage.ru_stime));
	Field(result, 2) = Val_long(usage.ru_nvcsw);
	Field(result, 3) = Val_long(usage.ru_nivcsw);
	return result;
}

static int tracepoint(const char *path)
{
	FILE *file = fopen(path, "re");
	int id = -1;

	if (file == NULL)
		return -1;
	if (fscanf(file, "%d", &id) != 1)
		id = -1;
	fclose(file);
	return id;
}

/* A descriptor that counts the system calls of this thread and of those it starts from now on, or
   -1. Needs root, or a perf_event_paranoid of -1. */
value ringway_bench_count_calls(value unit)
{
	struct perf_event_attr attr;
	int id = tracepoint("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id");

	(void)unit;
	if (id < 0)
		id = tracepoint("/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id");
	if (id < 0)
		return Val_int(-1);
	memset(&attr, 0, sizeof attr);
	attr.type = PERF_TYPE_TRACEPOINT;
	attr.size = sizeof attr;
	attr.config = (unsigned)id;
	attr.inherit = 1;
	attr.inherit_thread = 1;
	return Val_int(syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

/* The count of such a descriptor. */
value ringway_bench_calls(value fd)
{
	unsigned long long count;

	if (read(Int_val(fd), &count, sizeof count) != sizeof count)
		uerror("read", Nothing);
	return Val_long(count);
}

/* Opens a file to read it with O_DIRECT. */
value ringway_bench_open_direct(value path)
{
	int fd = open(String_val(path), O_RDONLY | O_CLOEXEC | O_DIRECT);

	if (fd < 0)
		uerror("open", path);
	return Val_int(fd);
}

/* Drops the clean pages of a file from the page cache. */
value ringway_bench_drop_cache(value fd)
{
	int error = posix_fadvise(Int_val(fd), 0, 0, POSIX_FADV_DONTNEED);

	if (error != 0)
		unix_error(error, "posix_fadvise", Nothing);
	return Val_unit;
}

/* Restricts the calling thread, and those it starts, to the first processor that it may use. */
value ringway_bench_use_first_processor(value unit)
{
	cpu_set_t allowed, one;
	int cpu = 0;

	(void)unit;
	if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
		uerror("sched_getaffinity", Nothing);
	while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &allowed))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof one, &one) != 0)
		uerror("sched_setaffinity", Nothing);
	return Val_unit;
}

/* The runtime lock is released, as Unix.read does. The buffer is not moved and, since the caller
   keeps it, not freed. */
value ringway_bench_pread(value fd, value buffer, value len, value pos)
{
	CAMLparam1(buffer);
	char *data = Caml_ba_data_val(buffer);
	ssize_t result;

	caml_enter_blocking_section();
	result = pread(Int_val(fd), data, Long_val(len), Long_val(pos));
	caml_leave_blocking_section();
	if (result < 0)
		uerror("pread", Nothing);
	CAMLreturn(Val_long(result));
}
