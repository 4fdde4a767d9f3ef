//go:build linux

package main

// The design that this door grew from, rebuilt as a contestant, since its library is of no use on kernels of today.
//
// What it did, by its own description: a ring for each processor, of 4096 submissions and 8192 completions, all with the
// same kernel workers (IORING_SETUP_ATTACH_WQ); an operation goes to the ring that the number of its thread
// (gettid) points to, under that ring's lock, and is entered by itself, with a system call of its own; for each ring a
// thread is blocked in io_uring_enter until something completes, and wakes the goroutine by a channel.
//
// Here that is made in the cheapest way that keeps the design: plain reads rather than vectored ones, no allocation, and
// a completion finds its goroutine by an index. What the original got wrong (short reads, errors, wake-ups lost, closing)
// is not rebuilt.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

type seed struct {
	osFile
	fd    int
	rings []*seedRing
}

type seedRing struct {
	*bareRing
	mu      sync.Mutex
	waiters [seedRoom]atomic.Pointer[seedWaiter]
	free    chan uint32 // Places in waiters.
	waits   atomic.Int64
}

const (
	seedEntries = 4096
	// seedRoom is as many operations as the completion queue holds.
	seedRoom = 8192
)

// seedWaiter is a goroutine that waits; it refers to the buffer as long as the kernel writes to it.
type seedWaiter struct {
	p      []byte
	result int32
	done   chan struct{}
}

var seedWaiters = sync.Pool{New: func() any { return &seedWaiter{done: make(chan struct{}, 1)} }}

func openSeed(s setup) (subject, error) {
	f, err := os.OpenFile(s.file, s.flag, 0)
	if err != nil {
		return nil, err
	}
	all := &seed{osFile: osFile{File: f}, fd: int(f.Fd())}
	workersOf := -1
	for range runtime.NumCPU() {
		b, err := newBareRing(seedEntries, seedRoom, workersOf)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("io_uring_setup: %w", err), f.Close())
		}
		workersOf = b.fd
		r := &seedRing{bareRing: b, free: make(chan uint32, seedRoom)}
		for i := range uint32(seedRoom) {
			r.free <- i
		}
		all.rings = append(all.rings, r)
		go r.reap() // As long as the process lives.
	}
	return all, nil
}

func (r *seedRing) reap() {
	runtime.LockOSThread()
	for {
		for {
			c, ok := r.next()
			if !ok {
				break
			}
			w := r.waiters[c.userData].Swap(nil)
			r.free <- uint32(c.userData)
			w.result = c.result
			w.done <- struct{}{}
		}
		r.waits.Add(1)
		r.wait(0)
	}
}

func (s *seed) ReadAt(p []byte, off int64) (int, error) {
	thread, _, _ := syscall.RawSyscall(syscall.SYS_GETTID, 0, 0, 0)
	r := s.rings[int(thread)%len(s.rings)]
	w := seedWaiters.Get().(*seedWaiter)
	w.p = p
	place := <-r.free
	r.waiters[place].Store(w)
	r.mu.Lock()
	err := r.read(s.fd, p, off, uint64(place))
	r.mu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("io_uring_enter: %w", err)
	}
	<-w.done
	n := w.result
	w.p = nil
	seedWaiters.Put(w)
	switch {
	case n < 0:
		return 0, syscall.Errno(-n)
	case int(n) < len(p):
		return int(n), io.EOF
	}
	return int(n), nil
}

// trips: an enter for each read, and those of the threads that wait. Its gettid is not counted.
func (s *seed) trips() (trips, bool) {
	var t trips
	for _, r := range s.rings {
		r.mu.Lock()
		entered := int64(r.entered)
		r.mu.Unlock()
		t.calls += entered + r.waits.Load()
		t.carried += entered
	}
	return t, true
}
