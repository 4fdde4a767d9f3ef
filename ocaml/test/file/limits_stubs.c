/* For tests: limits and system call filters, which OCaml's Unix does not have. */
#define _GNU_SOURCE
#define CAML_NAME_SPACE
#include <caml/fail.h>
#include <caml/mlvalues.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

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
