//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The io_uring backend, over package ring.

package ringway

import (
	"errors"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/internal/refusal"
	"github.com/ringway-io/ringway/go/ring"
)

// The ring does not use IORING_SETUP_COOP_TASKRUN. A goroutine that computes on the thread that
// submitted would hold completions back until the next tick, and with groups of submissions the
// flag saves nothing that can be measured.

// ringEntries is the size of a ring. It is small, because ring memory is locked. A larger one only
// lets one system call submit more.
const ringEntries = 64

// uring is a queue over a ring.
type uring struct {
	ring    *ring.Ring
	spare   []*ring.Request // Used last in, first out: the newest is still in the CPU cache.
	refused []*request      // Complete without the kernel, until they are reaped.
	errno   syscall.Errno   // With which the kernel refused requests.
	short   shortage
	scratch [largestGroup]ring.Completion
	pushed  uint64       // How many requests were pushed, from the beginning.
	chains  []pushedLink // Those of which the kernel may not have taken all.
	fixed   []byte       // Registered memory, or nil.
}

// pushedLink is the end of a chain, and the value of pushed after it.
type pushedLink struct {
	end *request
	at  uint64
}

func newUring(workers uint32) (*uring, error) {
	r, err := ring.New(ring.Options{Entries: ringEntries})
	if err != nil {
		var refused *ring.Refusal
		if errors.As(err, &refused) {
			return nil, (*Refusal)(refused)
		}
		return nil, err
	}
	if workers > 0 {
		// Kernels before 5.15 refuse this, and their own limit applies.
		_, _, _ = r.IOWQMaxWorkers(workers, 0)
	}
	return &uring{ring: r}, nil
}

// register registers memory. Nothing is in flight yet.
func (u *uring) register(memory []byte) error {
	err := u.ring.RegisterBuffers([][]byte{memory})
	if err == nil {
		u.fixed = memory
	}
	return err
}

func (u *uring) unregister() {
	_ = u.ring.UnregisterBuffers()
	u.fixed = nil
}

func (u *uring) capacity() int { return u.ring.SpaceLeft() }

func (u *uring) push(r *request) {
	var q *ring.Request
	if n := len(u.spare); n > 0 {
		q, u.spare = u.spare[n-1], u.spare[:n-1]
	} else {
		q = new(ring.Request)
	}
	// The kernel takes no registered memory for an untorn write.
	fixed := u.fixed != nil && r.flags&rwfAtomic == 0 && within(r.p, u.fixed)
	switch r.opcode {
	case opRead:
		if fixed {
			q.ReadFixed(r.fd, r.p, r.off, 0)
		} else {
			q.Read(r.fd, r.p, r.off)
		}
	case opWrite:
		if fixed {
			q.WriteFixed(r.fd, r.p, r.off, 0)
		} else {
			q.Write(r.fd, r.p, r.off)
		}
	case opWritev:
		q.Writev(r.fd, r.extra.buffers, r.off)
	case opFsync:
		q.Fsync(r.fd)
	case opFdatasync:
		q.Fdatasync(r.fd)
	}
	if r.flags != 0 {
		q.RWFlags(uint32(r.flags))
	}
	if r.mayWait {
		q.Async()
	}
	if r.linked() != nil {
		q.Link()
	}
	q.UserData, r.inRing = r, q
	if err := u.ring.Push(q); err != nil {
		u.refuse(q)
	} else {
		u.pushed++
	}
	if linked := r.linked(); linked != nil {
		u.push(linked)
		if linked.inRing != nil {
			u.chains = append(u.chains, pushedLink{linked, u.pushed})
		}
	}
}

// finish takes a request back from the ring. It returns nil for a cancel, which belongs to no
// request.
func (u *uring) finish(q *ring.Request) *request {
	r, ok := q.UserData.(*request)
	if !ok {
		return nil
	}
	q.UserData, r.inRing = nil, nil
	q.Reset()
	u.spare = append(u.spare, q)
	return r
}

// refuse completes a request that the ring does not accept.
func (u *uring) refuse(q *ring.Request) {
	if r := u.finish(q); r != nil {
		r.result = unsupported
		u.refused = append(u.refused, r)
	}
}

func (u *uring) cancel(r *request) {
	q := r.inRing
	if q == nil {
		return
	}
	if u.ring.SpaceLeft() == 0 {
		u.submit()
	}
	// If there is no free slot even now, the request is not canceled and completes by itself.
	if u.ring.Push(new(ring.Request).Cancel(q)) == nil {
		u.pushed++
	}
}

// breakChains finds the chain of which the kernel has taken the beginning and not the end: it takes
// fewer requests than it was given if it is short of memory, for example. The end starts as a
// request of its own then, perhaps before the beginning is done.
func (u *uring) breakChains() {
	next := u.pushed - uint64(u.ring.Pending()) + 1
	for _, link := range u.chains {
		if link.at == next {
			link.end.chain = brokenChain
		}
	}
}

func (u *uring) submit() bool {
	for u.ring.Pending() > 0 {
		u.breakChains()
		n, err := u.ring.Submit()
		if err == nil && n > 0 {
			u.short.end()
			continue
		}
		if (err == nil || err == ring.ErrReap) && !u.short.isLong() {
			return false
		}
		// The kernel refuses all of it (a seccomp filter that was installed later, for example), or
		// has been short of memory for long. Plain system calls do it.
		u.errno = refusal.Errno(err)
		for _, q := range u.ring.Withdraw() {
			u.refuse(q)
		}
		u.short.end()
	}
	clear(u.chains)
	u.chains = u.chains[:0]
	return true
}

func (u *uring) reap(done []*request) []*request {
	done = append(done, u.refused...)
	clear(u.refused)
	u.refused = u.refused[:0]
	for {
		n := u.ring.Reap(u.scratch[:])
		for i, c := range u.scratch[:n] {
			u.scratch[i].Request = nil
			if r := u.finish(c.Request); r != nil {
				r.result = c.Result
				if r.chain == brokenChain && r.result >= 0 {
					r.result = unsupported
				}
				done = append(done, r)
			}
		}
		if n < len(u.scratch) {
			return done
		}
	}
}

func (u *uring) refusedWith() syscall.Errno { return u.errno }

func (u *uring) readable(uintptr) {}

func (u *uring) close() error { return u.ring.Close() }

// shortage is a time in which the kernel takes no submission for lack of memory, or because the
// results of others are to be reaped first.
type shortage struct{ since time.Time }

// isLong reports whether it lasts too long to wait for its end. The first call begins it.
func (s *shortage) isLong() bool {
	if s.since.IsZero() {
		s.since = time.Now()
	}
	return time.Since(s.since) > hungAfter
}

func (s *shortage) end() { s.since = time.Time{} }
