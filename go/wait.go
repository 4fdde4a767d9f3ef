//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// How a goroutine waits for its operations.

import (
	"context"
	"syscall"
)

// always is the context of what has none.
var always = context.Background()

// fly takes one request through a shard and waits for it. A context that ends cancels it in the kernel; the answer is the
// kernel's in any case, and with it the buffer is the caller's again.
func (e *Engine) fly(ctx context.Context, r *request) (int32, error) {
	r.own.left.Store(1)
	s := e.shard()
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
	result, cancelled := r.result, r.cancelled.Load()
	r.free()
	if result >= 0 || result == cannotCarry && !cancelled {
		return result, nil
	}
	switch errno := errnoOf(result); {
	case cancelled && (errno == syscall.ECANCELED || errno == syscall.EINTR || errno == syscall.EAGAIN || result == cannotCarry):
		return 0, context.Cause(ctx)
	case errno == syscall.ECANCELED && e.closed.Load():
		return 0, ErrEngineClosed
	}
	return 0, errnoOf(result)
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
