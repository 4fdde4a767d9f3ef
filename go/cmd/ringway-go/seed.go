//go:build linux

package main

// The design that this door grew from, rebuilt: a ring for each processor, every operation entered by itself, chosen by the
// number of the thread, and for each ring a thread that is blocked in the kernel until something completes.

import (
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

type seed struct {
	*os.File
	fd    int
	rings []*seedRing
}

type seedRing struct {
	*bareRing
	mu      sync.Mutex
	waiters [seedRoom]atomic.Pointer[seedWaiter]
	free    chan uint32
}

// seedRoom is as many operations as its completion queues hold.
const seedRoom = 8192

type seedWaiter struct {
	p      []byte
	result int32
	done   chan struct{}
}

var seedWaiters = sync.Pool{New: func() any { return &seedWaiter{done: make(chan struct{}, 1)} }}

func openSeed(name string, direct bool) (subject, error) {
	f, err := os.OpenFile(name, flags(direct), 0)
	if err != nil {
		return nil, err
	}
	s := &seed{File: f, fd: int(f.Fd())}
	for range runtime.NumCPU() {
		b, err := newBareRing(4096, seedRoom)
		if err != nil {
			return nil, err
		}
		r := &seedRing{bareRing: b, free: make(chan uint32, seedRoom)}
		for i := range uint32(seedRoom) {
			r.free <- i
		}
		s.rings = append(s.rings, r)
		go r.reap()
	}
	return s, nil
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
		r.wait()
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
		return 0, err
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
