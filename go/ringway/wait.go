//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// How a goroutine waits for its operations.

import (
	"context"
	"syscall"
)

// always is the context of what has none.
var always = context.Background()

// fly takes one request through the shard and waits for it. A context that ends cancels it in the kernel; the answer is the
// kernel's in any case, and with it the buffer is the caller's again (but see ErrAbandoned). Who cannot wait for that calls
// detach.
func (e *Engine) fly(ctx context.Context, s *shard, r *request) (int32, error) {
	r.own.left.Store(1)
	if !s.submit(false, r) {
		r.free()
		return 0, ErrEngineClosed
	}
	if ctx.Done() == nil {
		<-r.own.done
	} else {
		select {
		case <-r.own.done:
		case <-ctx.Done():
			s.cancel(r)
			<-r.own.done
		}
	}
	return e.outcome(ctx, r)
}

// outcome is what became of a request, which is given back.
func (e *Engine) outcome(ctx context.Context, r *request) (int32, error) {
	if r.place == abandoned {
		// The file stays open: what has not been submitted yet would find another one at its number.
		r.hold.again()
		lost.add(r.p)
		if r.more != nil {
			for _, p := range r.more.many {
				lost.add(p)
			}
		}
		return 0, ErrAbandoned
	}
	result, cancelled := r.result, r.cancelled.Load()
	r.free()
	if result >= 0 || result == cannotCarry && !cancelled {
		return result, nil
	}
	errno := errnoOf(result)
	ended := result == cannotCarry || unrun(errno)
	switch {
	case ended && cancelled && ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case ended && e.closed.Load():
		return 0, ErrEngineClosed
	}
	return 0, errno
}

// unrun tells whether an error only says that the kernel did not do it this time: a cancel, a signal or a shortage.
func unrun(err error) bool {
	return err == syscall.ECANCELED || err == syscall.EINTR || err == syscall.EAGAIN
}

// detach gives what do gives, or the context's cause as soon as that ends. Then do goes on alone, with the file held open,
// and its memory has to be its own; late, if it is not nil, is called with what it gives. The file is held open by the caller.
func detach[T any](ctx context.Context, f *File, do func() (T, error), late func(T)) (T, error) {
	if ctx.Done() == nil {
		return do()
	}
	f.hold.again()
	return orAbandon(ctx, func() (T, error) {
		defer f.end()
		return do()
	}, late)
}

// flyAll takes several through one shard, together, and waits for all of them. Results stay in the requests.
func (e *Engine) flyAll(ctx context.Context, all []*request) error {
	return e.flyWith(ctx, &waiter{done: make(chan struct{}, 1)}, all)
}

func (e *Engine) flyWith(ctx context.Context, w *waiter, all []*request) error {
	n := 0
	for _, r := range all {
		r.waiter = w
		if linked := r.linked(); linked != nil {
			linked.waiter = w
		}
		n += r.count()
	}
	if n == 0 {
		return nil
	}
	w.left.Store(int32(n))
	s := e.shard()
	if !s.submit(true, all...) {
		return ErrEngineClosed
	}
	if ctx.Done() == nil {
		<-w.done
		return nil
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		for _, r := range all {
			s.cancel(r)
		}
		<-w.done
	}
	return nil
}
