//go:build linux

// Waiting for lockable memory: the kernel gives that of a closed ring back some milliseconds later,
// so a process that makes rings as fast as others are closed meets its limit for a moment.

package ring

import (
	"sync/atomic"
	"syscall"
	"time"
)

const (
	memoryWait = 100 * time.Millisecond
	memoryStep = 2 * time.Millisecond
	// memoryHopeless is how long later calls do not wait after a wait in vain: the limit is simply
	// too low.
	memoryHopeless = time.Second
)

// memoryInVain is when a wait was last in vain; nil if none was.
var memoryInVain atomic.Pointer[time.Time]

// setupWaiting is setup, tried again for a while after ENOMEM.
func (w *config) setupWaiting() (fd int, p params, errno syscall.Errno) {
	fd, p, errno = w.setup()
	if errno != syscall.ENOMEM {
		return fd, p, errno
	}
	if last := memoryInVain.Load(); last != nil && time.Since(*last) < memoryHopeless {
		return fd, p, errno
	}
	for until := time.Now().Add(memoryWait); errno == syscall.ENOMEM && time.Now().Before(until); {
		time.Sleep(memoryStep)
		fd, p, errno = w.setup()
	}
	if errno == syscall.ENOMEM {
		now := time.Now()
		memoryInVain.Store(&now)
	}
	return fd, p, errno
}
