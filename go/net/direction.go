//go:build linux

package net

// One direction of a socket: an operation at a time, its deadline, and its end.

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/ring"
)

// direction is what a socket reads by, writes by, or accepts by.
//
// It begins an operation only while nothing stops it, and looks at that under the shard's lock. Whoever stops it says so
// first, and then, under the same lock, cancels what is in flight. So an operation that has begun is cancelled, and one that
// has not does not begin.
//
// It does not refer to its connection: its timer refers to it, and a circle would keep what is forgotten from being closed.
type direction struct {
	fd    int
	shard *shard
	turn  sync.Mutex // One operation at a time.

	request ring.Request
	flying  *ring.Request // What the kernel has of this direction. Under the shard's lock.
	result  int32
	landed  chan struct{} // With room for one, so that who reaps never waits.

	closed, expired atomic.Bool // What stops it.

	mu       sync.Mutex
	deadline time.Time // With the monotonic clock; zero is none.
	timer    *time.Timer
}

func newDirection(fd int, s *shard) *direction {
	return &direction{fd: fd, shard: s, landed: make(chan struct{}, 1)}
}

// stopped is why no operation may begin, or nil.
func (d *direction) stopped() error {
	switch {
	case d.closed.Load():
		return net.ErrClosed
	case d.expired.Load():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// fly takes a request through the ring and waits for its result. The error is why it did not begin. The turn is held.
func (d *direction) fly(q *ring.Request) (int32, error) {
	s := d.shard
	s.mu.Lock()
	s.makeRoom()
	if err := d.stopped(); err != nil {
		s.mu.Unlock()
		return 0, err
	}
	q.Tag, d.flying = d, q
	s.push(q)
	s.enter()
	s.mu.Unlock()
	<-d.landed
	return d.result, nil
}

// cancel asks the kernel for an early end of what is in flight.
func (d *direction) cancel() {
	s := d.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoom()
	if d.flying == nil {
		return
	}
	var q *ring.Request
	if n := len(s.spare); n > 0 {
		q, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		q = new(ring.Request)
	}
	q.Cancel(d.flying)
	q.Tag = cancelled{d}
	s.push(q)
	s.enter()
}

// run does the operation that the request was prepared for, once the socket is ready for it. The turn is held.
//
// A cancel that was asked for shows when the operation is about to begin again. One that was not (its thread has ended),
// and a signal, are nobody's business.
func (d *direction) run(ready uint32) (int, error) {
	for {
		result, err := d.fly(&d.request)
		if err != nil || result >= 0 {
			return int(result), err
		}
		switch errno := syscall.Errno(-result); errno {
		case syscall.EINTR, syscall.ECANCELED:
		case syscall.EAGAIN:
			// Some kernels do not wait where the descriptor is non-blocking.
			if err := d.poll(ready); err != nil {
				return 0, err
			}
		default:
			return 0, errno
		}
	}
}

// poll waits until the socket is ready for something. The turn is held.
func (d *direction) poll(events uint32) error {
	q := new(ring.Request)
	for {
		result, err := d.fly(q.Poll(d.fd, events))
		if err != nil || result >= 0 {
			return err
		}
		if errno := syscall.Errno(-result); errno != syscall.EINTR && errno != syscall.ECANCELED {
			return errno
		}
	}
}

// Events of poll(2).
const (
	readReady  = 0x1
	writeReady = 0x4
)

// setDeadline is for what waits now and for what comes.
func (d *direction) setDeadline(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.deadline = time.Time{}
	if t.IsZero() {
		d.expired.Store(false)
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.expired.Store(true)
		d.cancel()
		return
	}
	d.expired.Store(false)
	d.deadline = time.Now().Add(left)
	if d.timer == nil {
		d.timer = time.AfterFunc(left, d.expire)
	} else {
		d.timer.Reset(left)
	}
}

// expire is called by the timer. One that fires late finds another deadline, or none.
func (d *direction) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deadline.IsZero() || time.Now().Before(d.deadline) {
		return
	}
	d.expired.Store(true)
	d.cancel()
}

// close lets no operation begin any more, and cancels what is in flight.
func (d *direction) close() {
	d.closed.Store(true)
	d.mu.Lock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.mu.Unlock()
	d.cancel()
}

// stop ends a connect as a deadline would.
func (d *direction) stop() {
	d.expired.Store(true)
	d.cancel()
}
