//go:build linux

// The limits and sysctls of this process and machine, on which the meaning of an errno depends.

package refusal

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// New explains errno as the result of a request for feature, using the current limits and sysctls.
// It reads a few files in /proc; if one cannot be read, the explanation is less exact.
func New(feature string, errno syscall.Errno) *Refusal {
	meaning, fix := explain(feature, errno, currentLimits())
	return &Refusal{Feature: feature, Errno: errno, Meaning: meaning, Fix: fix}
}

const rlimitMemlock = 8

// The number is that of PROC_USER_INIT_INO, part of the kernel's interface.
const initialUserNamespace = "user:[4026531837]"

func currentLimits() limits {
	var l limits
	var limit syscall.Rlimit
	if syscall.Getrlimit(rlimitMemlock, &limit) == nil {
		l.memlock = limit.Cur
		l.memlockUnlimited = limit.Cur == ^uint64(0)
	}
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		l.nofile = limit.Cur
	}
	if namespace, err := os.Readlink("/proc/self/ns/user"); err == nil {
		l.userNamespace = namespace != initialUserNamespace
	}
	l.uringDisabled = sysctl("kernel/io_uring_disabled")
	l.uringGroup = sysctl("kernel/io_uring_group")
	l.aioMaxNr, l.aioNr = sysctl("fs/aio-max-nr"), sysctl("fs/aio-nr")
	status, _ := os.ReadFile("/proc/thread-self/status")
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch name {
		case "CapEff":
			l.capabilities, _ = strconv.ParseUint(value, 16, 64)
		case "Seccomp":
			l.seccomp = value
		}
	}
	return l
}

func sysctl(name string) string {
	value, _ := os.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(value))
}
