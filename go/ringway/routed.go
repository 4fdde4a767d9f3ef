//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// A ring, and a KAIO context for the direct reads that the ring would punt. Which these are is
// decided in routing.go.

import (
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/ringway-io/ringway/go/internal/readable"
	"github.com/ringway-io/ringway/go/internal/refusal"
)

// routes is what the routed queues of an engine share.
type routes struct {
	toKAIO      atomic.Bool // KAIO takes punted reads: no backend was forced, and it works.
	patience    int         // The punts that decide. Set before the first transfer.
	kaioRefused atomic.Pointer[Refusal]
	punts       puntCounts
}

// refusals returns a refused KAIO, and what was not asynchronous.
func (s *routes) refusals() (all []*Refusal) {
	if refused := s.kaioRefused.Load(); refused != nil {
		all = append(all, refused)
	}
	if refused := s.punts.refusal(); refused != nil {
		all = append(all, refused)
	}
	return all
}

// routed is a queue over a ring and, once a read is routed, a KAIO context. A request is with one
// of them at a time: the shard submits one that has to move as it submits a retry.
type routed struct {
	*uring
	routes *routes
	size   int                          // Of the context, in requests.
	reaped func(fd uintptr) (last bool) // Tells the shard that the context has completions.
	kaio   *kaio                        // nil until it is needed.
	watch  *readable.Watch              // Of kaio.
}

func (q *routed) push(r *request) {
	isNew := r.route == routeUndecided
	if isNew {
		r.route = q.choose(r)
	}
	if r.route == routeKAIO && !q.pushToKAIO(r) {
		r.route = routePlain
		if isNew {
			r.route = routeNowait // The ring was not tried yet.
		}
	}
	if r.route != routeKAIO {
		q.uring.push(r)
	}
}

// choose decides how a request is submitted.
func (q *routed) choose(r *request) route {
	f := r.file
	if f == nil || !f.direct || !f.storage || r.opcode > opWrite {
		return routePlain
	}
	to, isPunted, unsupported := f.routing.next(r.opcode, q.routes.toKAIO.Load())
	if isPunted {
		q.routes.punts.add(r.opcode)
	}
	if unsupported {
		q.routes.punts.unsupported.Add(1)
	}
	return to
}

// pushToKAIO passes a read to the KAIO context. It returns false if the context does not exist or
// is full.
func (q *routed) pushToKAIO(r *request) bool {
	if q.kaio == nil && q.routes.toKAIO.Load() {
		if err := q.makeKAIO(); err != nil {
			q.routes.toKAIO.Store(false)
			var refused *Refusal
			if !errors.As(err, &refused) {
				refused = unavailable(refusal.KAIO, err)
			}
			q.routes.kaioRefused.CompareAndSwap(nil, refused)
		}
	}
	if q.kaio == nil || len(q.kaio.inFlight) >= q.kaio.limit {
		return false
	}
	q.routes.punts.routed.Add(1)
	q.kaio.push(r)
	return true
}

func (q *routed) makeKAIO() error {
	k, err := newKAIO(q.size)
	if err != nil {
		return err
	}
	q.watch, err = readable.Start(k.eventfd, func(fd uintptr) bool {
		k.readable(fd)
		return q.reaped(fd)
	})
	if err != nil {
		return errors.Join(err, k.close())
	}
	q.kaio = k
	return nil
}

func (q *routed) submit(brief bool) bool {
	done := q.uring.submit(brief)
	if q.kaio != nil {
		done = q.kaio.submit(brief) && done
	}
	return done
}

func (q *routed) reap(done []*request) []*request {
	done = q.uring.reap(done)
	if q.kaio != nil {
		done = q.kaio.reap(done)
	}
	return done
}

func (q *routed) close() error {
	err := q.uring.close()
	if q.kaio != nil {
		q.watch.Close()
		err = errors.Join(err, q.kaio.close())
	}
	return err
}

// settleRoute is called with the result of a transfer. It reports whether the transfer has to be
// submitted again because the ring would have punted it.
func (r *request) settleRoute() (again bool) {
	took := r.route
	if took != routeNowait && took != routeCheck {
		return false
	}
	t, shared := &r.file.routing, &r.file.engine.routes
	switch errnoOf(r.result) {
	case syscall.EAGAIN:
		shared.punts.add(r.opcode)
		r.route = t.notePunted(r.opcode, took, shared.toKAIO.Load(), shared.patience)
	case syscall.EOPNOTSUPP:
		shared.punts.add(r.opcode)
		shared.punts.unsupported.Add(1)
		t.noteUnsupported(r.opcode)
		r.route = routePlain
	default:
		if took == routeCheck {
			if r.result >= 0 {
				t.noteNotPunted(r.opcode)
			} else {
				t.noteFailed(r.opcode)
			}
			r.route = routePlain
		}
		return false
	}
	if r.canceled.Load() {
		r.result = -int32(syscall.ECANCELED)
		return false
	}
	return true
}
