//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

import (
	"syscall"

	"github.com/ringway-io/ringway/go/internal/refusal"
	"github.com/ringway-io/ringway/go/ring"
)

// There is no COOP_TASKRUN: a goroutine that computes on the thread that submitted would hold completions back until the
// next tick, and with gathered submissions it saves nothing that can be measured.

// entries of a ring: small, since rings are locked memory. More only make one system call submit more.
const entries = 64

// uring carries requests by a ring.
type uring struct {
	ring    *ring.Ring
	spare   []*ring.Request // The last one used first: it is still in the processor's cache.
	refused []*request      // Answered without the kernel.
	errno   syscall.Errno
	scratch [largest]ring.Completion
	fixed   []byte // Registered memory, or nil.
}

func newUring(workers uint32) (*uring, error) {
	r, err := ring.New(ring.Options{Entries: entries})
	if err != nil {
		return nil, err
	}
	if workers > 0 {
		// Refused before 5.15, where the kernel's own limit holds.
		_, _, _ = r.IOWQMaxWorkers(workers, 0)
	}
	return &uring{ring: r}, nil
}

// fix registers memory. Nothing is in flight yet.
func (u *uring) fix(memory []byte) error {
	err := u.ring.RegisterBuffers([][]byte{memory})
	if err == nil {
		u.fixed = memory
	}
	return err
}

func (u *uring) unfix() {
	_ = u.ring.UnregisterBuffers()
	u.fixed = nil
}

func (u *uring) room() int { return u.ring.SpaceLeft() }

func (u *uring) push(r *request) {
	var q *ring.Request
	if n := len(u.spare); n > 0 {
		q, u.spare = u.spare[n-1], u.spare[:n-1]
	} else {
		q = new(ring.Request)
	}
	fixed := u.fixed != nil && within(r.p, u.fixed)
	switch r.kind {
	case read:
		if fixed {
			q.ReadFixed(r.fd, r.p, r.off, 0)
		} else {
			q.Read(r.fd, r.p, r.off)
		}
	case write:
		if fixed {
			q.WriteFixed(r.fd, r.p, r.off, 0)
		} else {
			q.Write(r.fd, r.p, r.off)
		}
	case writev:
		q.Writev(r.fd, r.more.many, r.off)
	case fsync:
		q.Fsync(r.fd)
	case fdatasync:
		q.Fdatasync(r.fd)
	}
	if r.linked() != nil {
		q.Link()
	}
	q.UserData, r.flight = r, q
	if err := u.ring.Push(q); err != nil {
		u.refuse(q)
	}
	if linked := r.linked(); linked != nil {
		u.push(linked)
	}
}

// landed is the end of a flight: whose it was, or nobody's for a cancel.
func (u *uring) landed(q *ring.Request) *request {
	r, ok := q.UserData.(*request)
	if !ok {
		return nil
	}
	q.UserData, r.flight = nil, nil
	q.Reset()
	u.spare = append(u.spare, q)
	return r
}

func (u *uring) refuse(q *ring.Request) {
	if r := u.landed(q); r != nil {
		r.result = cannotCarry
		u.refused = append(u.refused, r)
	}
}

func (u *uring) cancel(r *request) {
	q := r.flight
	if q == nil {
		return
	}
	if u.ring.SpaceLeft() == 0 {
		u.submit(false)
	}
	// Without room even now the request ends by itself.
	_ = u.ring.Push(new(ring.Request).Cancel(q))
}

func (u *uring) submit(light bool) bool {
	for u.ring.Pending() > 0 {
		var n int
		var err error
		if light {
			n, err = u.ring.SubmitRaw()
		} else {
			n, err = u.ring.Submit()
		}
		switch {
		case err == ring.ErrReap || err == nil && n == 0:
			return false
		case err != nil:
			// The kernel takes none of it (a filter that came later, say): plain system calls do.
			u.errno = refusal.Errno(err)
			for _, q := range u.ring.Withdraw() {
				u.refuse(q)
			}
		}
	}
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
			if r := u.landed(c.Request); r != nil {
				r.result = c.Result
				done = append(done, r)
			}
		}
		if n < len(u.scratch) {
			return done
		}
	}
}

func (u *uring) why() syscall.Errno { return u.errno }

func (u *uring) ready(uintptr) {}

func (u *uring) close() error { return u.ring.Close() }
