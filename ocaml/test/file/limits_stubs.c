/* For tests: limits, system call filters, and errors of system calls, which OCaml's Unix does not
 * have. */
#define _GNU_SOURCE
#define CAML_NAME_SPACE
#include <caml/fail.h>
#include <caml/mlvalues.h>

#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

value ringway_test_refuse(value io_uring, value aio)
{
	unsigned ring = Bool_val(io_uring) ? __NR_io_uring_setup : ~0u;
	unsigned context = Bool_val(aio) ? __NR_io_setup : ~0u;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ring, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, context, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {
		.len = sizeof filter / sizeof *filter,
		.filter = filter,
	};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		caml_failwith("seccomp");
	return Val_unit;
}

value ringway_test_set_descriptors(value limit)
{
	struct rlimit both = {
		.rlim_cur = (rlim_t)Long_val(limit),
		.rlim_max = (rlim_t)Long_val(limit),
	};

	if (setrlimit(RLIMIT_NOFILE, &both) != 0)
		caml_failwith("setrlimit");
	return Val_unit;
}

/* How many calls of io_uring_enter(2) that do not wait fail, and with which error. */
static int failing_enters;
static int enter_errno;
static int no_timers;

/* In place of libc's, also for the library. */
long syscall(long number, ...)
{
	long arguments[6];
	long (*real)(long, ...);
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		arguments[i] = va_arg(list, long);
	va_end(list);
	if (failing_enters > 0 && number == SYS_io_uring_enter && arguments[2] == 0) {
		failing_enters--;
		errno = enter_errno;
		return -1;
	}
	*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
	            arguments[5]);
}

int timerfd_create(int clock, int flags)
{
	if (no_timers) {
		errno = EMFILE;
		return -1;
	}
	return (int)syscall(SYS_timerfd_create, clock, flags);
}

value ringway_test_fail_enters(value count, value try_again)
{
	failing_enters = Int_val(count);
	enter_errno = Bool_val(try_again) ? EAGAIN : ENOMEM;
	return Val_unit;
}

value ringway_test_no_timers(value refuse)
{
	no_timers = Bool_val(refuse);
	return Val_unit;
}

value ringway_test_failing_enters(value unit)
{
	(void)unit;
	return Val_int(failing_enters);
}
