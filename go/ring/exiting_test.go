//go:build linux

// io-wq workers that exit, as exiting.go describes, and limits that the Rust core has too.

package ring

import (
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/core"
	"github.com/ringway-io/ringway/go/internal/kernel"
)

// A thread that submits soon after a ring was closed gets a worker once.
func TestWorkerSoonAfterClose(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	must(t, newRing(t, Options{}).Close())
	r := newRing(t, Options{})
	defer r.Close()
	affected := workersExit()
	submit := func() {
		must(t, r.Push(new(Request).Nop()))
		n, err := r.Submit()
		require(t, n == 1 && err == nil, "%v, %v", n, err)
	}
	require(t, r.needsWorker() == affected, "needs a worker: %v", !affected)
	submit()
	_, has := r.submitters[syscall.Gettid()]
	require(t, has == affected, "has a worker: %v", has)
	// Later no thread needs one.
	lastClosed.Store(int64(time.Since(processStart)-soon) - 1)
	require(t, !r.needsWorker() && r.seenClosed == lastClosed.Load(),
		"needs a worker long after a close")
	submit()
}

// A new thread has the workers of its ring, and the ring that starts one is gone.
func TestAddSubmitter(t *testing.T) {
	if !kernel.AtLeast(5, 18) {
		t.Skip("skipped: a kernel that is older than 5.18 has no registered rings")
	}
	r := newRing(t, Options{})
	defer r.Close()
	_, _, err := r.IOWQMaxWorkers(5, 6)
	require(t, err == nil, "%v", err)
	before := openDescriptors(t)
	// Most of these threads are new. The others may have workers of other tests' rings.
	const threads = 32
	var mu sync.Mutex
	var begun, ended sync.WaitGroup
	begun.Add(threads)
	limits := map[[2]uint32]int{}
	for range threads {
		ended.Go(func() {
			runtime.LockOSThread() // Not unlocked: the thread ends.
			begun.Done()
			begun.Wait()
			mu.Lock()
			defer mu.Unlock()
			expect(t, r.addSubmitter(), "not added")
			startWorker()
			files, rest, err := r.IOWQMaxWorkers(0, 0)
			expect(t, err == nil, "%v", err)
			limits[[2]uint32{files, rest}]++
		})
	}
	ended.Wait()
	expect(t, limits[[2]uint32{5, 6}] >= threads/4, "the limits are %v", limits)
	after := openDescriptors(t)
	expect(t, after == before, "%v descriptors, and %v before", after, before)
}

// A constant that changes here or there changes in both, or its line goes, with the reason.
func TestConstantsAreThoseOfTheCore(t *testing.T) {
	const memory = "ringway-core/src/backend/uring/memory.rs"
	const exiting = "ringway-core/src/backend/uring/exiting.rs"
	for _, c := range []struct {
		value      int64
		file, name string
	}{
		{int64(memoryWait), memory, "LONGEST_WAIT"},
		{int64(memoryStep), memory, "WAIT_STEP"},
		{int64(memoryHopeless), memory, "WITHOUT_HOPE"},
		{int64(soon), exiting, "SOON"},
		{int64(workerExit), exiting, "EXITED"},
		{workerTries, exiting, "TRIES"},
		{maxSubmitters, exiting, "MAX_THREADS"},
	} {
		if there := core.Constant(t, c.file, c.name); c.value != there {
			t.Errorf("%d here, but %s is %d in crates/%s", c.value, c.name, there, c.file)
		}
	}
}
