// What an errno means on this machine.

package refusal

import (
	"fmt"
	"strconv"
	"syscall"
)

// since is the first kernel that supports a feature of io_uring.
var since = map[string]string{
	"CQSIZE": "5.5", "CLAMP": "5.6", "SUBMIT_ALL": "5.18", "COOP_TASKRUN": "5.19",
	"SINGLE_ISSUER": "6.0",
	"DEFER_TASKRUN": "6.1", "NO_SQARRAY": "6.6", "SQPOLL": "5.1", "ATTACH_WQ": "5.6",
	"IOPOLL":  "5.1",
	"EXT_ARG": "5.11", IOWQWorkers: "5.15",
}

// limits is what this process may use. A zero value means that it is not known or that the kernel
// does not have it.
type limits struct {
	memlock          uint64
	memlockUnlimited bool
	nofile           uint64
	uringDisabled    string
	uringGroup       string
	aioMaxNr, aioNr  string
	capabilities     uint64
	// In another user namespace than the initial one, as in a rootless container, root's
	// capabilities do not count for the machine's resources.
	userNamespace bool
	seccomp       string
}

const (
	capIPCLock  = 1 << 14
	capSysAdmin = 1 << 21
)

// explain returns what errno means as the result of a request for feature, and the fix.
func explain(feature string, errno syscall.Errno, l limits) (meaning, fix string) {
	uring := feature != KAIO && feature != Threads && feature != DirectIO
	filtered := l.seccomp == "2"
	allow := "allow " + systemCalls(feature) + " in the seccomp profile " +
		"(docker run --security-opt seccomp=PROFILE; SystemCallFilter=@aio in systemd)"
	switch errno {
	case syscall.EPERM, syscall.EACCES:
		if feature == DirectIO {
			return "O_DIRECT is not permitted for the file, or a security module refuses it",
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
		built, option := "io_uring", "CONFIG_IO_URING=y, version 5.6 or newer"
		if feature == KAIO {
			built, option = "Linux AIO", "CONFIG_AIO=y"
		}
		if filtered {
			return "a seccomp filter hides it, or the kernel was built without " + built, allow
		}
		return "the kernel was built without " + built + ", is too old, or is a sandbox's (gVisor)",
			"use a kernel with " + option
	case syscall.EINVAL:
		switch {
		case feature == Uring:
			return "the kernel rejected the parameters or a read: " +
					"io_uring is too old or incomplete",
				"use Linux 5.6 or newer outside a sandboxed kernel (gVisor), or another backend"
		case feature == DirectIO:
			return "this file system does not support direct I/O",
				"move the file to a file system with it (ext4, xfs, btrfs), or use buffered reads"
		case since[feature] != "":
			return "this kernel does not support " + feature,
				"none needed: operations work without it; kernel " + since[feature] +
					" or newer supports it"
		}
	case syscall.ENOMEM:
		if feature == KAIO {
			return "not enough kernel memory or address space for the completion ring",
				"check the container's memory limit (memory.max), ulimit -v and vm.max_map_count"
		}
		if uring && !l.memlockUnlimited && !l.mayLockAllMemory() {
			return explainMemlock(feature, l)
		}
		return "the kernel has no memory for it; RLIMIT_MEMLOCK does not apply to this process",
			"create fewer or smaller rings; check the container's memory limit (memory.max)"
	case syscall.EMFILE:
		return fmt.Sprintf("this process is out of descriptors; RLIMIT_NOFILE is %d", l.nofile),
			"close descriptors or raise the limit (ulimit -n; LimitNOFILE= in systemd; " +
				"docker run --ulimit nofile=)"
	case syscall.ENFILE:
		return "the machine is out of descriptors",
			"raise fs.file-max, or find the process that leaks descriptors (lsof)"
	case syscall.EAGAIN:
		if feature == KAIO {
			meaning := "the machine's limit of Linux AIO requests (fs.aio-max-nr) is reached"
			if l.aioMaxNr != "" && l.aioNr != "" {
				meaning = "fs.aio-max-nr is " + l.aioMaxNr + " for the whole machine, and " +
					l.aioNr + " are in use"
			}
			return meaning, "sysctl -w fs.aio-max-nr=1048576, or use fewer requests in flight"
		}
		return "the kernel is temporarily short of a resource",
			"try again with fewer requests in flight"
	case syscall.EOPNOTSUPP:
		if feature == FixedBuffers {
			return "only the backend uring supports them",
				"none needed: operations work without them"
		}
		return "this kernel, file system or device does not support it",
			"none needed: operations work without it"
	case syscall.ETIMEDOUT:
		return "a read through it did not complete",
			"check whether a sandbox emulates it incompletely (gVisor)"
	case syscall.EIO:
		return "a read through it returned wrong bytes",
			"check whether a sandbox emulates it incompletely (gVisor)"
	}
	return "the kernel returned an unexpected error", ""
}

// mayLockAllMemory reports whether RLIMIT_MEMLOCK does not apply: with CAP_IPC_LOCK in the initial
// user namespace.
func (l limits) mayLockAllMemory() bool {
	return l.capabilities&capIPCLock != 0 && !l.userNamespace
}

// explainMemlock is for ENOMEM where the memory counts against RLIMIT_MEMLOCK.
func explainMemlock(feature string, l limits) (meaning, fix string) {
	kind, reduce := "ring", "create fewer or smaller rings"
	note := "; that of a closed ring counts for some milliseconds"
	if feature == FixedBuffers {
		kind, reduce = "registered", "register fewer buffers"
		note = "; a buffer in a huge page counts as the whole page (2 MiB)"
	}
	namespace := ""
	if l.capabilities&capIPCLock != 0 {
		namespace = " (CAP_IPC_LOCK does not lift it in a user namespace, such as a rootless " +
			"container's)"
	}
	return kind + " memory counts against RLIMIT_MEMLOCK, which is " + bytesText(l.memlock) +
			" for all processes of this user together" + namespace + note,
		reduce + ", or raise the limit (ulimit -l; LimitMEMLOCK= in systemd; " +
			"docker run --ulimit memlock=-1)"
}

// explainSysctl returns the reason for EPERM if it is the sysctl of Linux 6.6 and later, or "".
func explainSysctl(l limits) (meaning, fix string) {
	switch l.uringDisabled {
	case "1":
		if l.capabilities&capSysAdmin != 0 {
			return "", ""
		}
		if group, err := strconv.Atoi(l.uringGroup); err == nil && group >= 0 {
			return fmt.Sprintf("kernel.io_uring_disabled is 1, and this process is not in group "+
					"%d (kernel.io_uring_group)", group),
				fmt.Sprintf("run it in group %d, or sysctl -w kernel.io_uring_disabled=0", group)
		}
		return "kernel.io_uring_disabled is 1, which restricts io_uring to CAP_SYS_ADMIN",
			"set kernel.io_uring_group to a group of this process, or " +
				"sysctl -w kernel.io_uring_disabled=0"
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

// bytesText formats a size in the largest exact unit.
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
