//go:build linux

package ringway

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringway-io/ringway/go/ring"
)

// kind is what a request does.
type kind uint8

const (
	read kind = iota
	write
	writev
	fsync
	fdatasync
)

// request is one operation on its way through a shard.
type request struct {
	ring.Request
	iocb iocb

	kind  kind
	fd    int
	p     []byte
	many  [][]byte // Of a writev.
	off   int64
	index int // In a batch.

	// linked begins when this one is done; both are submitted together, and neither is tried again by itself.
	linked  *request
	chained bool

	// These belong to the shard's front.
	prev, next *request
	place      place

	cancelled atomic.Bool
	tries     uint8
	result    int32 // Of the kernel, or cannotCarry.
	waiter    *waiter
	own       waiter // Of a request alone.
}

// place is how far a request has come.
type place uint8

const (
	idle place = iota
	waiting
	carried
)

// cannotCarry is no errno: the backend does not do this one, and the goroutine does it by a plain system call.
const cannotCarry = -1 << 20

// waiter is a goroutine that waits for some requests.
type waiter struct {
	left atomic.Int32
	done chan struct{} // With room for one, so that who completes never waits.
}

func (w *waiter) one() {
	if w.left.Add(-1) == 0 {
		w.done <- struct{}{}
	}
}

// requests are used again: a request alone allocates nothing.
var requests = sync.Pool{New: func() any {
	r := new(request)
	r.own.done = make(chan struct{}, 1)
	r.waiter = &r.own
	r.Tag = r
	return r
}}

func newRequest(kind kind, fd int, p []byte, off int64) *request {
	r := requests.Get().(*request)
	r.kind, r.fd, r.p, r.off = kind, fd, p, off
	return r
}

// free gives a request back, unless somebody may still ask to cancel it.
func (r *request) free() {
	if r.cancelled.Load() {
		return
	}
	r.p, r.many, r.linked, r.waiter = nil, nil, nil, &r.own
	r.place, r.tries, r.chained = idle, 0, false
	r.Drop()
	requests.Put(r)
}

// bytes is how much a request moves.
func (r *request) bytes() int {
	n := len(r.p)
	for _, b := range r.many {
		n += len(b)
	}
	return n
}

// errno of a result below 0.
func errnoOf(result int32) syscall.Errno { return syscall.Errno(-result) }
