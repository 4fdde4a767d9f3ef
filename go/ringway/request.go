//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Requests: operations on their way through a shard, and the goroutines that wait for them.

package ringway

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringway-io/ringway/go/ring"
)

// request is one operation. It is small, two cache lines, because each of a hundred thousand
// waiting operations has one. What the kernel sees belongs to the queue; there are no more of those
// than operations in flight.
type request struct {
	// The list and the state are protected by the shard's lock.
	prev, next *request
	state      requestState

	opcode   opcode
	tries    uint8
	chain    chain
	mayWait  bool  // The submission may wait.
	admitted bool  // It counts in its device's queue. The shard's lock protects it.
	flags    uint8 // RWF_* of a transfer.
	refused  uint8 // The errno with which RWF_DONTCACHE may have been refused.
	canceled atomic.Bool
	slot     int32 // The index in shard.inQueue.
	result   int32 // Of the kernel, or unsupported.
	index    int32 // In a batch.
	fd       int
	file     *File // With the descriptor, or nil.
	off      int64
	p        []byte
	waiter   *waiter
	own      waiter        // For a request that is waited for alone.
	inRing   *ring.Request // While a ring has it.
	extra    *writevRequest
}

// writevRequest is what only a vectored write has.
type writevRequest struct {
	buffers [][]byte
	linked  *request // Starts when the write is complete. Both are submitted together.
}

// chain is whether a request is part of a chain, and is not retried on its own.
type chain uint8

const (
	unchained chain = iota
	chained
	// brokenChain is the end of a chain whose beginning the kernel took alone. It need not wait for
	// the beginning, so its success has no meaning.
	brokenChain
)

// linked returns the request that is linked behind this one, or nil.
func (r *request) linked() *request {
	if r.extra == nil {
		return nil
	}
	return r.extra.linked
}

// requestState is where a request is.
type requestState uint8

const (
	stateIdle      requestState = iota // Not submitted, or complete.
	statePending                       // In the shard's submission queue.
	stateHeld                          // Waits for room in the queue of its device.
	stateQueued                        // In the kernel's queue.
	stateAbandoned                     // The engine was closed; the kernel may still have it.
)

// unsupported is the result of a request that the backend does not support. Its goroutine makes a
// plain system call. The value is not an errno.
const unsupported = -1 << 20

// waiter is a goroutine that waits for one or more requests.
type waiter struct {
	left atomic.Int32
	done chan struct{} // Buffered, so that a completion never blocks.
}

// completeOne counts a request as complete, and wakes the goroutine after the last one.
func (w *waiter) completeOne() {
	if w.left.Add(-1) == 0 {
		w.done <- struct{}{}
	}
}

// requests pools requests: an operation allocates nothing in the steady state.
var requests = sync.Pool{New: func() any {
	r := new(request)
	r.own.done = make(chan struct{}, 1)
	r.waiter = &r.own
	return r
}}

func newRequest(op opcode, fd int, p []byte, off int64) *request {
	r := requests.Get().(*request)
	r.opcode, r.fd, r.p, r.off = op, fd, p, off
	return r
}

// request returns a request on the file. The caller holds the file open until it is complete.
func (f *File) request(op opcode, p []byte, off int64) *request {
	r := newRequest(op, f.fd, p, off)
	r.file = f
	r.mayWait = f.submissionMayWait(op)
	if op.isTransfer() {
		r.flags = uint8(f.rwFlags())
	}
	return r
}

// free returns a request to the pool. A canceled request is left to the garbage collector, because
// the shard may still have a cancel for it.
func (r *request) free() {
	if r.canceled.Load() {
		return
	}
	r.p, r.file, r.waiter, r.state, r.tries = nil, nil, &r.own, stateIdle, 0
	r.mayWait, r.flags, r.refused = false, 0, 0
	if !r.opcode.hasOneBuffer() {
		r.extra, r.chain = nil, unchained
	}
	requests.Put(r)
}

// isTransfer reports whether the operation reads or writes, and does not sync.
func (op opcode) isTransfer() bool { return op == opRead || op == opWrite || op == opWritev }

// hasOneBuffer reports whether the operation is no part of a commit, and has one buffer.
func (op opcode) hasOneBuffer() bool { return op == opRead || op == opWrite }

// count returns the number of operations: 2 with a linked one.
func (r *request) count() int {
	if r.linked() == nil {
		return 1
	}
	return 2
}

// maxRetries is how often a request is retried after EAGAIN, ECANCELED or EFAULT, before its
// goroutine makes a plain call.
const maxRetries = 8

// retry reports whether the kernel did not do the operation, so that it must be submitted again:
// after a signal, a shortage, or the end of the thread that submitted it, which ends what that
// thread had in flight (ECANCELED, or EFAULT if the kernel was about to go on in the thread's
// memory). Every other error is final, above all that of a sync. After some tries, the goroutine
// makes a plain call: if an address is really bad, it fails too.
func (r *request) retry() bool {
	if r.result >= 0 || r.chain != unchained || r.canceled.Load() {
		return false
	}
	switch errnoOf(r.result) {
	case syscall.EAGAIN, syscall.ECANCELED, syscall.EFAULT:
		if r.tries++; r.tries <= maxRetries {
			return true
		}
		r.result = unsupported
	case syscall.EINTR:
		return true
	default:
		errno := errnoOf(r.result)
		if r.flags&rwfDontCache != 0 && r.file.dontCache.mayRefuse(errno) {
			r.refused, r.flags = uint8(errno), r.flags&^rwfDontCache
			return true
		}
	}
	return false
}

// complete gives the request a result that does not come from the queue.
func (r *request) complete(result int32) {
	r.result = result
	if linked := r.linked(); linked != nil {
		linked.complete(result)
	}
	r.waiter.completeOne()
}

// notDone reports whether an error of a queue means that the kernel did not do the operation this
// time: a cancel, a signal, a shortage, or the end of the thread that submitted it.
func notDone(err error) bool {
	return err == syscall.ECANCELED || err == syscall.EINTR || err == syscall.EAGAIN ||
		err == syscall.EFAULT
}

// errnoOf returns the errno of a negative result.
func errnoOf(result int32) syscall.Errno { return syscall.Errno(-result) }
