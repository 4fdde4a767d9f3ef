//go:build linux

// What refusals say, for limits of every kind. Nothing is read from this machine but once.

package refusal

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// One errno has several causes, each with its own fix.
func TestFixDependsOnTheCause(t *testing.T) {
	for _, c := range []struct {
		feature string
		errno   syscall.Errno
		limits  limits
		meaning string
		fix     string
	}{
		{Uring, syscall.EPERM, limits{seccomp: "2", uringDisabled: "0"}, "seccomp filter",
			"io_uring_setup"},
		{Uring, syscall.EPERM, limits{uringDisabled: "2"}, "kernel.io_uring_disabled is 2",
			"sysctl"},
		{Uring, syscall.EPERM, limits{uringDisabled: "1", uringGroup: "7"}, "group 7", "group 7"},
		{Uring, syscall.EPERM, limits{uringDisabled: "1", uringGroup: "-1"}, "CAP_SYS_ADMIN",
			"sysctl"},
		{Uring, syscall.EPERM, limits{uringDisabled: "1", capabilities: capSysAdmin},
			"security module", "SELinux"},
		{KAIO, syscall.EPERM, limits{seccomp: "2", uringDisabled: "2"}, "seccomp filter",
			"io_setup"},
		{Uring, syscall.ENOSYS, limits{}, "without io_uring", "CONFIG_IO_URING"},
		{KAIO, syscall.ENOSYS, limits{}, "without Linux AIO", "CONFIG_AIO"},
		{Uring, syscall.ENOMEM, limits{memlock: 64 << 10}, "64 KiB", "ulimit -l"},
		{Uring, syscall.ENOMEM, limits{memlock: 64 << 10, capabilities: capIPCLock},
			"does not apply", "memory.max"},
		{Uring, syscall.ENOMEM,
			limits{memlock: 8 << 20, capabilities: capIPCLock, userNamespace: true},
			"8 MiB for all processes of this user together (CAP_IPC_LOCK does not lift it",
			"ulimit -l"},
		{Uring, syscall.ENOMEM, limits{memlock: 64 << 10}, "a closed ring", "smaller rings"},
		{FixedBuffers, syscall.ENOMEM, limits{memlock: 1 << 20}, "huge page", "fewer buffers"},
		{KAIO, syscall.EAGAIN, limits{aioMaxNr: "65536", aioNr: "65000"}, "65000 are in use",
			"fs.aio-max-nr"},
		{"DEFER_TASKRUN", syscall.EINVAL, limits{}, "does not support DEFER_TASKRUN", "6.1"},
		{Uring, syscall.EMFILE, limits{nofile: 1024}, "1024", "ulimit -n"},
		{DirectIO, syscall.EINVAL, limits{}, "does not support direct I/O", "ext4"},
	} {
		meaning, fix := explain(c.feature, c.errno, c.limits)
		if !strings.Contains(meaning, c.meaning) || !strings.Contains(fix, c.fix) {
			t.Errorf("%s, %v, %+v: %q, %q", c.feature, c.errno, c.limits, meaning, fix)
		}
	}
}

func TestErrorNamesFeatureErrnoAndFix(t *testing.T) {
	r := New(Uring, syscall.ENOSYS)
	for _, part := range []string{"io_uring refused", "ENOSYS", "function not implemented",
		"fix: "} {
		if !strings.Contains(r.Error(), part) {
			t.Errorf("%q lacks %q", r.Error(), part)
		}
	}
	if !errors.Is(r, syscall.ENOSYS) {
		t.Error("errors.Is does not find the errno")
	}
}
