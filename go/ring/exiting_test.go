//go:build linux

package ring

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

func TestKernelsWhoseWorkersExit(t *testing.T) {
	for release, exits := range map[string]bool{"7.0.0": true, "7.2.13+deb14-cloud-amd64": true,
		"6.18.44": true, "6.17.5": false, "5.10.0-46-cloud-amd64": false, "10.1": true,
		"unknown": true} {
		if exitsSince(release) != exits {
			t.Error(release)
		}
	}
}

// A thread that submits soon after a ring was closed gets a worker once.
func TestWorkerSoonAfterClose(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := newRing(t, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	r := newRing(t, Options{})
	defer r.Close()
	affected := workersExit()
	submit := func() {
		if err := r.Push(new(Request).Nop()); err != nil {
			t.Fatal(err)
		}
		if n, err := r.Submit(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if r.needsWorker() != affected {
		t.Fatal("needs a worker: ", !affected)
	}
	submit()
	if _, has := r.submitters[syscall.Gettid()]; has != affected {
		t.Fatal("has a worker: ", has)
	}
	// Later no thread needs one.
	lastClosed.Store(int64(time.Since(processStart)-soon) - 1)
	if r.needsWorker() || r.seenClosed != lastClosed.Load() {
		t.Fatal("needs a worker long after a close")
	}
	submit()
}

func TestNewWorker(t *testing.T) {
	newRing(t, Options{}).Close()
	worker := newWorker()
	if worker == nil || worker.InFlight() != 0 {
		t.Fatalf("%+v", worker)
	}
	before := lastClosed.Load()
	if err := worker.Close(); err != nil || lastClosed.Load() != before {
		t.Fatal(err, lastClosed.Load(), before)
	}
}
