// Package refusal explains why a feature is not available, and how to fix it.
//
// The kernel returns one errno, which has several possible causes: EPERM from io_uring_setup may be
// a sysctl, a seccomp filter or a security module. [New] inspects the machine when the error
// occurs, so that the reason for a fallback can be shown later.
package refusal

import (
	"errors"
	"fmt"
	"syscall"
)

// Names of features.
const (
	Uring        = "io_uring"
	KAIO         = "Linux AIO"
	Threads      = "threads"
	IOWQWorkers  = "limit on io-wq workers"
	DirectIO     = "direct I/O"
	DontCache    = "RWF_DONTCACHE"
	AtomicWrite  = "RWF_ATOMIC"
	FixedBuffers = "fixed buffers"
)

// Refusal is a feature that is not available: the errno, what it means on this machine, and the
// fix.
type Refusal struct {
	// Feature is what was requested: io_uring, SQPOLL, Linux AIO.
	Feature string
	// Errno is the error that the kernel returned.
	Errno syscall.Errno
	// Meaning is what the errno means for this feature on this machine.
	Meaning string
	// Fix is what an operator can do about it; empty if nothing helps.
	Fix string
}

// Error returns everything in one line.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("%s refused: %s (%s): %s", r.Feature, errnoName(r.Errno), r.Errno.Error(),
		r.Meaning)
	if r.Fix != "" {
		text += "; fix: " + r.Fix
	}
	return text
}

// Errno returns the errno that err wraps, or EIO.
func Errno(err error) syscall.Errno {
	errno := syscall.EIO
	errors.As(err, &errno)
	return errno
}

// NoBackend returns the error for an unknown backend name in an environment variable or an option.
func NoBackend(source, name string) error {
	return fmt.Errorf("ringway: %s: no backend is called %q; there are uring, kaio and threads: %w",
		source, name, syscall.EINVAL)
}

// Unwrap returns the errno, for errors.Is.
func (r *Refusal) Unwrap() error { return r.Errno }

func errnoName(errno syscall.Errno) string {
	names := map[syscall.Errno]string{
		syscall.EPERM:      "EPERM",
		syscall.EACCES:     "EACCES",
		syscall.ENOSYS:     "ENOSYS",
		syscall.EINVAL:     "EINVAL",
		syscall.ENOMEM:     "ENOMEM",
		syscall.EMFILE:     "EMFILE",
		syscall.ENFILE:     "ENFILE",
		syscall.EAGAIN:     "EAGAIN",
		syscall.EOPNOTSUPP: "EOPNOTSUPP",
		syscall.ETIMEDOUT:  "ETIMEDOUT",
		syscall.EIO:        "EIO",
		syscall.EBUSY:      "EBUSY",
		syscall.EEXIST:     "EEXIST",
		syscall.EBADF:      "EBADF",
		syscall.ECHILD:     "ECHILD",
		syscall.ENOSPC:     "ENOSPC",
		syscall.ENOTTY:     "ENOTTY",
		syscall.EFBIG:      "EFBIG",
	}
	if name, ok := names[errno]; ok {
		return name
	}
	return fmt.Sprintf("errno %d", int(errno))
}
