// Package refusal says why something was not granted, in words that an operator can act on.
//
// The kernel answers a refusal with one number, and the same number has many causes: EPERM for io_uring_setup may be a
// sysctl, a seccomp filter or a security module. [New] looks at the machine while the cause is still there and keeps
// what it found, so that the reason for a step down survives until somebody asks for it.
package refusal

import (
	"errors"
	"fmt"
	"strconv"
	"syscall"
)

// Names of what may be refused, as the field knows them.
const (
	Uring        = "io_uring"
	KAIO         = "Linux KAIO"
	Threads      = "threads"
	IOWQWorkers  = "io-wq worker cap"
	DirectIO     = "direct I/O"
	FixedBuffers = "fixed buffers"
)

// since is the first kernel that has a part of io_uring.
var since = map[string]string{
	"CQSIZE": "5.5", "CLAMP": "5.6", "SUBMIT_ALL": "5.18", "COOP_TASKRUN": "5.19", "SINGLE_ISSUER": "6.0",
	"DEFER_TASKRUN": "6.1", "NO_SQARRAY": "6.6", "SQPOLL": "5.1", "ATTACH_WQ": "5.6", "IOPOLL": "5.1",
	"EXT_ARG": "5.11", IOWQWorkers: "5.15",
}

// Refusal is something that was not granted: the errno, what it means on this machine, and what to do about it.
type Refusal struct {
	// Feature is what was asked for, by the field's own name: io_uring, SQPOLL, Linux KAIO.
	Feature string
	// Errno is the kernel's answer.
	Errno syscall.Errno
	// Meaning is what that answer means for this feature on this machine.
	Meaning string
	// Fix is what an operator can do about it; empty where nothing can be done.
	Fix string
}

// Error has everything in one line.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("%s refused: %s (%s): %s", r.Feature, errnoName(r.Errno), r.Errno.Error(), r.Meaning)
	if r.Fix != "" {
		text += "; fix: " + r.Fix
	}
	return text
}

// Errno is the one below an error, or EIO.
func Errno(err error) syscall.Errno {
	errno := syscall.EIO
	errors.As(err, &errno)
	return errno
}

// NoBackend is the error of a name that is no backend's, in the variable that forces one.
func NoBackend(variable, name string) error {
	return fmt.Errorf("ringway: %s: no backend is called %q; there are uring, kaio and threads", variable, name)
}

// Unwrap gives the errno, for errors.Is.
func (r *Refusal) Unwrap() error { return r.Errno }

// limits is what this process may use. Zero values of pointers: it could not be read, or this kernel does not have it.
type limits struct {
	memlock          uint64
	memlockUnlimited bool
	nofile           uint64
	uringDisabled    string
	uringGroup       string
	aioMaxNr, aioNr  string
	capabilities     uint64
	seccomp          string
}

const (
	capIPCLock  = 1 << 14
	capSysAdmin = 1 << 21
)

// explain says what errno means as the answer to asking for feature, and the fix. All knowledge of the machine is in
// the limits.
func explain(feature string, errno syscall.Errno, l limits) (meaning, fix string) {
	uring := feature != KAIO && feature != Threads && feature != DirectIO
	filtered := l.seccomp == "2"
	allow := "allow " + systemCalls(feature) +
		" in the seccomp profile (docker run --security-opt seccomp=PROFILE; SystemCallFilter=@aio in systemd)"
	switch errno {
	case syscall.EPERM, syscall.EACCES:
		if feature == DirectIO {
			return "the file may not be opened this way, or a security module refuses it",
				"check the mode and the attributes of the file (lsattr)"
		}
		if errno == syscall.EPERM && uring {
			if meaning, fix := explainSysctl(l); meaning != "" {
				return meaning, fix
			}
		}
		if filtered {
			return "a seccomp filter of the container or service refuses it", allow
		}
		return "a security module or a sandbox refuses it",
			"look for denials of SELinux or AppArmor (ausearch -m avc, dmesg)"
	case syscall.ENOSYS:
		built, option := "io_uring", "CONFIG_IO_URING=y, version 5.1 or newer"
		if feature == KAIO {
			built, option = "KAIO", "CONFIG_AIO=y"
		}
		if filtered {
			return "a seccomp filter hides it, or the kernel was built without " + built, allow
		}
		return "the kernel was built without " + built + ", is too old, or is a sandbox's (gVisor)",
			"use a kernel with " + option
	case syscall.EINVAL:
		switch {
		case feature == Uring:
			return "the kernel refused the parameters or a plain read: io_uring is too old or incomplete here",
				"use kernel 5.6 or newer outside a sandboxed kernel (gVisor), or another backend"
		case feature == DirectIO:
			return "this file system has no direct I/O",
				"put the file on a file system with direct I/O (ext4, xfs, btrfs), or read through the page cache"
		case since[feature] != "":
			return "this kernel does not know " + feature,
				"nothing to do: operations work without it; kernel " + since[feature] + " or newer has it"
		}
	case syscall.ENOMEM:
		if feature == KAIO {
			return "no kernel memory or no address space for the completion ring",
				"check the memory limit of the container (memory.max), ulimit -v and vm.max_map_count"
		}
		if uring && !l.memlockUnlimited && l.capabilities&capIPCLock == 0 {
			if feature == FixedBuffers {
				return fmt.Sprintf("registered memory counts against RLIMIT_MEMLOCK, which is %s for all processes of this user together",
						bytesText(l.memlock)),
					"register less, or raise the limit (ulimit -l; LimitMEMLOCK= in systemd; docker run --ulimit memlock=-1)"
			}
			return fmt.Sprintf("ring memory counts against RLIMIT_MEMLOCK, which is %s for all processes of this user together",
					bytesText(l.memlock)),
				"make fewer or smaller rings, or raise the limit (ulimit -l; LimitMEMLOCK= in systemd; docker run --ulimit memlock=-1)"
		}
		return "the kernel found no memory for it; RLIMIT_MEMLOCK does not bind this process",
			"make fewer or smaller rings; check the container's memory limit (memory.max)"
	case syscall.EMFILE:
		return fmt.Sprintf("this process has no descriptor left; RLIMIT_NOFILE is %d", l.nofile),
			"close descriptors or raise the limit (ulimit -n; LimitNOFILE= in systemd; docker run --ulimit nofile=)"
	case syscall.ENFILE:
		return "the whole machine has no descriptor left", "raise fs.file-max, or find the process that leaks (lsof)"
	case syscall.EAGAIN:
		if feature == KAIO {
			meaning := "the machine's budget of KAIO requests (fs.aio-max-nr) is spent"
			if l.aioMaxNr != "" && l.aioNr != "" {
				meaning = "fs.aio-max-nr is " + l.aioMaxNr + " for the whole machine, of which " + l.aioNr + " are taken"
			}
			return meaning, "sysctl -w fs.aio-max-nr=1048576, or ask for fewer requests in flight"
		}
		return "the kernel is short of a resource for now", "try again, with less in flight"
	case syscall.EOPNOTSUPP:
		if feature == FixedBuffers {
			return "only the backend uring has them", "nothing to do: operations work without them"
		}
		return "this kernel, file system or device does not have it", "nothing to do: operations work without it"
	case syscall.ETIMEDOUT:
		return "a read through it did not complete", "look whether a sandbox emulates it in part (gVisor)"
	case syscall.EIO:
		return "a read through it gave wrong bytes", "look whether a sandbox emulates it in part (gVisor)"
	}
	return "the kernel gave no answer that is expected here", ""
}

// explainSysctl accounts for EPERM by the sysctl that kernel 6.6 and newer have; empty when it is something else.
func explainSysctl(l limits) (meaning, fix string) {
	switch l.uringDisabled {
	case "1":
		if l.capabilities&capSysAdmin != 0 {
			return "", ""
		}
		if group, err := strconv.Atoi(l.uringGroup); err == nil && group >= 0 {
			return fmt.Sprintf("kernel.io_uring_disabled is 1, and this process is not in group %d (kernel.io_uring_group)", group),
				fmt.Sprintf("run it in group %d, or sysctl -w kernel.io_uring_disabled=0", group)
		}
		return "kernel.io_uring_disabled is 1, which leaves io_uring to CAP_SYS_ADMIN",
			"set kernel.io_uring_group to a group of this process, or sysctl -w kernel.io_uring_disabled=0"
	case "2":
		return "kernel.io_uring_disabled is 2", "sysctl -w kernel.io_uring_disabled=0"
	}
	return "", ""
}

func systemCalls(feature string) string {
	if feature == KAIO {
		return "io_setup, io_submit, io_getevents and io_destroy"
	}
	return "io_uring_setup, io_uring_enter and io_uring_register"
}

// bytesText is a size in the largest unit that stays exact.
func bytesText(bytes uint64) string {
	for _, unit := range []struct {
		size uint64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if bytes >= unit.size && bytes%unit.size == 0 {
			return fmt.Sprintf("%d %s", bytes/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}

func errnoName(errno syscall.Errno) string {
	names := map[syscall.Errno]string{
		syscall.EPERM: "EPERM", syscall.EACCES: "EACCES", syscall.ENOSYS: "ENOSYS", syscall.EINVAL: "EINVAL",
		syscall.ENOMEM: "ENOMEM", syscall.EMFILE: "EMFILE", syscall.ENFILE: "ENFILE", syscall.EAGAIN: "EAGAIN",
		syscall.EOPNOTSUPP: "EOPNOTSUPP", syscall.ETIMEDOUT: "ETIMEDOUT", syscall.EIO: "EIO", syscall.EBUSY: "EBUSY",
		syscall.EEXIST: "EEXIST", syscall.EBADF: "EBADF",
	}
	if name, ok := names[errno]; ok {
		return name
	}
	return fmt.Sprintf("errno %d", int(errno))
}
