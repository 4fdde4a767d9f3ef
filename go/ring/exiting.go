//go:build linux

// A defect of kernels from 7.0 on, and of late releases of 6.18 and 6.19: a request that needs an
// io-wq worker may never start.
//
// A thread's workers serve all rings that it submits to. Those kernels let them exit when the last
// of these rings is released, some milliseconds after it was closed. A request of a new ring may
// then be handed to a worker that is about to exit, and lies there until another request for a
// worker comes. So a thread that submits soon after a ring was closed first makes sure that it has
// a worker.

package ring

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/kernel"
)

const (
	// soon is when the kernel has released a closed ring, if nothing was in flight on it.
	soon = time.Second
	// workerExit is when a worker that exits has gone.
	workerExit = 20 * time.Millisecond
	// workerTries is how often to try. The second time is enough, unless all the workers that the
	// thread may have are busy for other rings of it; but then they do not exit.
	workerTries = 3
	// maxSubmitters is the most threads that a ring remembers.
	maxSubmitters = 64
)

// lastClosed is when this process last closed a ring, since processStart; 0: never.
var lastClosed atomic.Int64

var processStart = time.Now()

// noteClosed is called when the ring is closed.
func (r *Ring) noteClosed() {
	if !r.startsWorker {
		lastClosed.Store(int64(time.Since(processStart)) + 1)
	}
}

// workersExit reports whether this kernel may have the defect.
var workersExit = sync.OnceValue(func() bool { return kernel.AtLeast(6, 18) })

// needsWorker reports whether a thread that has not submitted to the ring needs a worker first.
func (r *Ring) needsWorker() bool {
	closed := lastClosed.Load()
	if closed == r.seenClosed || r.startsWorker {
		return false
	}
	if time.Since(processStart)-time.Duration(closed) < soon &&
		r.params.flags&setupSQPoll == 0 && workersExit() {
		return true
	}
	r.seenClosed = closed // No thread needs one any more.
	return false
}

// callWithWorker makes the system call after it has made sure that this thread has a worker.
func (r *Ring) callWithWorker(submit, wait, flags uint32, arg *geteventsArg) (int, syscall.Errno) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := syscall.Gettid()
	if _, has := r.submitters[thread]; !has && r.addSubmitter() {
		startWorker()
		if r.submitters == nil {
			r.submitters = make(map[int]struct{})
		}
		if len(r.submitters) == maxSubmitters {
			clear(r.submitters)
		}
		r.submitters[thread] = struct{}{}
	}
	return r.call(submit, wait, flags, arg)
}

// addSubmitter makes this thread one that submits to the ring, as its first submission would. It
// then has workers, with the ring's limits, and they stay while the ring is open. It returns
// whether that is so: another thread's ring and a filter refuse it. (Then another ring, as the only
// one of this thread, would make it worse.)
func (r *Ring) addSubmitter() bool {
	const registerRingFDs = 20
	// That is the first thing that the kernel does when a ring is registered (Linux 5.18). There is
	// no ring -1, so it does nothing else: EBADF.
	nothing := struct {
		offset, reserved uint32
		data             uint64
	}{math.MaxUint32, 0, math.MaxUint32}
	_, err := r.register(registerRingFDs, unsafe.Pointer(&nothing), 1)
	return errors.Is(err, syscall.EBADF)
}

// startWorker makes this thread's workers do something, and so starts one. Without a worker, a
// request that needs one is as likely to wait as before.
func startWorker() {
	r, err := New(Options{Entries: 2})
	if err != nil {
		return
	}
	r.startsWorker = true
	var done [2]Completion
	for range workerTries {
		if r.SpaceLeft() > 0 {
			_ = r.Push(new(Request).Nop().Async())
		}
		_, _ = r.SubmitAndWait(1, workerExit) // An error leaves the request for the next call.
		if r.Reap(done[:]) > 0 {
			break
		}
	}
	_ = r.Close()
}
