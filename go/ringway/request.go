//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// One operation in a shard, and whoever waits for it.

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

// op is the name that package os has for it.
func (k kind) op() string {
	if k == read {
		return "read"
	}
	return "write"
}

// request is one operation on its way through a shard. It is small, two cache lines: of a hundred thousand that wait, each
// is one. What the kernel sees belongs to the queue, and there are no more of those than may be in flight.
type request struct {
	// Where it is, under the shard's lock.
	prev, next *request
	place      place

	kind      kind
	tries     uint8
	chained   bool // Part of a link: not tried again by itself.
	cancelled atomic.Bool
	slot      int32 // Among those that the queue has.
	result    int32 // Of the kernel, or cannotCarry.
	index     int32 // In a batch.
	fd        int
	hold      *hold // Of the file that the descriptor is, or nil.
	off       int64
	p         []byte
	waiter    *waiter
	own       waiter        // Of a request alone.
	flight    *ring.Request // While a ring has it.
	more      *more         // Of a writev.
}

// more is what few requests have.
type more struct {
	many   [][]byte
	linked *request // Begins when this one is done; both are submitted together.
}

// linked is the request behind this one, or nil.
func (r *request) linked() *request {
	if r.more == nil {
		return nil
	}
	return r.more.linked
}

// place is how far a request has come.
type place uint8

const (
	idle place = iota
	waiting
	carried
	abandoned // By the end of its engine: the kernel may still have it, and it belongs to nobody.
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
	return r
}}

func newRequest(kind kind, fd int, p []byte, off int64) *request {
	r := requests.Get().(*request)
	r.kind, r.fd, r.p, r.off = kind, fd, p, off
	return r
}

// request is one on the file, which is held open until it is done.
func (f *File) request(kind kind, p []byte, off int64) *request {
	r := newRequest(kind, f.fd, p, off)
	r.hold = &f.hold
	return r
}

// free gives a request back, unless somebody may still ask to cancel it.
func (r *request) free() {
	if r.cancelled.Load() {
		return
	}
	r.p, r.hold, r.waiter, r.place, r.tries = nil, nil, &r.own, idle, 0
	if r.kind > write {
		r.more, r.chained = nil, false
	}
	requests.Put(r)
}

// count is how many operations this is: with the linked one, two.
func (r *request) count() int {
	if r.linked() == nil {
		return 1
	}
	return 2
}

// bytes is how much a request moves.
func (r *request) bytes() int {
	n := len(r.p)
	if r.more != nil {
		for _, b := range r.more.many {
			n += len(b)
		}
	}
	return n
}

// errno of a result below 0.
func errnoOf(result int32) syscall.Errno { return syscall.Errno(-result) }
