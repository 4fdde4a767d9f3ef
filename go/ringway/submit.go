//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Transfers through the engine's queues: single ones, split reads, batches and syncs. Those by
// plain system calls are in transfer.go.

package ringway

import (
	"context"
	"sync"
	"syscall"
)

// supports reports whether the engine's queues transfer such data without blocking the goroutine
// that submits. Linux AIO supports direct transfers only. A buffered write is a copy, which
// io_uring would give to a kernel thread, at many times the cost. A ring does not move the current
// position after a direct transfer. The first call for a file may wait for a server.
func (e *Engine) supports(f *File, op opcode, off int64) bool {
	if len(e.shards) == 0 || f.direct && off == atCurrent || !f.direct && op != opRead {
		return false
	}
	return f.lookUp().allows(e.backend)
}

// queued transfers the beginning of the work through a queue, or, with few, by a plain call if only
// a few run. There is no result if the queue turned out not to support it.
func (f *File) queued(w *work, size int, few bool) (n int, from source, err error) {
	e, op, p := f.engine, w.op, w.p[:size]
	if op == opWrite {
		kernelReads(p)
	}
	s := e.shard()
	if few && e.beginPlain(s) {
		n, err = f.blocking(w.ctx, op, p, w.off)
		e.plain.Add(-1)
		if err == nil {
			f.noteDone(op)
		}
		return n, fromCall, err
	}
	result, err := e.do(w.ctx, s, f.request(op, p, w.off))
	if err != nil {
		return 0, fromQueue, err
	}
	if result == unsupported {
		return 0, noResult, nil
	}
	if op == opRead {
		kernelWrote(p[:result])
	}
	return int(result), fromQueue, nil
}

// untornWrite makes one write with RWF_ATOMIC, through a queue or by a plain call.
func (f *File) untornWrite(p []byte, off int64) (n int, err error) {
	e := f.engine
	if e.closed.Load() {
		return 0, ErrEngineClosed
	}
	kernelReads(p)
	if e.supports(f, opWrite, off) {
		r := f.request(opWrite, p, off)
		r.flags |= rwfAtomic
		if result, err := e.do(background, e.shard(), r); err != nil || result != unsupported {
			return int(result), err
		}
	}
	if err := e.calls.begin(background); err != nil {
		return 0, err
	}
	defer e.calls.end()
	n, err = whileBusy(func() (int, error) {
		all := []vector{newVector(p)}
		return transferVectors(background, sysPwritev2, f.fd, all, off, rwfAtomic)
	})
	if err == nil {
		f.noteDone(opWrite)
	}
	return n, err
}

// whileBusy repeats a call as a queue repeats a request: EAGAIN means that the range has cached
// pages that are being dirtied.
func whileBusy(call func() (int, error)) (n int, err error) {
	for range 1 + maxRetries {
		if n, err = call(); err != syscall.EAGAIN {
			break
		}
	}
	return n, err
}

// beginPlain reports whether a transfer should run as a plain call because only a few run. The
// caller ends it with plain.Add(-1).
func (e *Engine) beginPlain(s *shard) bool {
	if s.load.high.Load() {
		return false
	}
	for n := e.plain.Load(); n < fewTransfers; n = e.plain.Load() {
		if e.plain.CompareAndSwap(n, n+1) {
			return true
		}
	}
	s.load.set(true)
	return false
}

// do submits one request and waits for its result. If the context ends, the request is canceled in
// the kernel; do still waits for the kernel, so that the caller may use the buffer again (except
// after ErrAbandoned). A caller that cannot wait for that uses detach.
func (e *Engine) do(ctx context.Context, s *shard, r *request) (int32, error) {
	r.own.left.Store(1)
	if !s.submit(false, r) {
		r.free()
		return 0, ErrEngineClosed
	}
	if ctx.Done() == nil {
		<-r.own.done
	} else {
		s.wait(ctx, &r.own, r)
	}
	return e.takeResult(ctx, r)
}

// doAll submits several requests to one shard, as a group, and waits for all of them. The results
// stay in the requests.
func (e *Engine) doAll(ctx context.Context, w *waiter, all []*request) error {
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
	s.wait(ctx, w, all...)
	return nil
}

// wait waits for requests, and cancels them if the context ends.
func (s *shard) wait(ctx context.Context, w *waiter, all ...*request) {
	select {
	case <-w.done:
	case <-ctx.Done():
		for _, r := range all {
			s.cancel(r)
		}
		<-w.done
	}
}

// takeResult returns the result of a request, and frees the request.
func (e *Engine) takeResult(ctx context.Context, r *request) (int32, error) {
	if r.state == stateAbandoned {
		// The file stays open: a request that is submitted later would find another file under
		// its descriptor.
		r.file.refs.retain()
		abandoned.add(r.p)
		if r.extra != nil {
			for _, p := range r.extra.buffers {
				abandoned.add(p)
			}
		}
		return 0, ErrAbandoned
	}
	result, canceled := r.result, r.canceled.Load()
	if result >= 0 {
		r.file.noteDone(r.opcode)
		switch {
		case r.refused != 0:
			r.file.dontCache.refused(syscall.Errno(r.refused))
		case r.flags&rwfDontCache != 0:
			r.file.dontCache.succeeded()
		}
	}
	r.free()
	if result >= 0 || result == unsupported && !canceled {
		return result, nil
	}
	errno := errnoOf(result)
	ended := result == unsupported || notDone(errno)
	switch {
	case ended && canceled && ctx.Err() != nil:
		return 0, causeOf(ctx)
	case ended && e.closed.Load():
		return 0, ErrEngineClosed
	}
	return 0, errno
}

// readSplit reads a range with several requests at once, for pieces of one size. The result counts
// the unbroken prefix, and has the error of the first piece that failed. There is none if the queue
// turned out not to support the first piece.
func (f *File) readSplit(ctx context.Context, p []byte, off int64, size int) (n int, from source,
	err error) {
	all := make([]*request, 0, maxPieces)
	for at := 0; at < len(p); at += size {
		piece := p[at:min(at+size, len(p))]
		all = append(all, f.request(opRead, piece, off+int64(at)))
	}
	if err := f.engine.doAll(ctx, &waiter{done: make(chan struct{}, 1)}, all); err != nil {
		return 0, fromQueue, err
	}
	from, unbroken := fromQueue, true
	for _, r := range all {
		want := len(r.p)
		result, failed := f.engine.takeResult(ctx, r)
		if !unbroken {
			continue
		}
		switch {
		case failed != nil:
			err = failed
		case result != unsupported:
			n += int(result)
		case n == 0:
			from = noResult
		}
		unbroken = int(result) == want
	}
	kernelWrote(p[:n])
	return n, from, err
}

// requestGroup is the requests of a batch that one goroutine waits for.
type requestGroup struct {
	waiter waiter
	all    []*request
}

// groups pools request groups: a batch allocates nothing in the steady state.
var groups = sync.Pool{New: func() any {
	return &requestGroup{waiter: waiter{done: make(chan struct{}, 1)}}
}}

// submitBatch transfers a batch through one shard. Transfers that are not one request of a queue
// are left as they are, without an error: those that are empty or not aligned, for example, and
// those that the backend turns out not to support.
func (f *File) submitBatch(ctx context.Context, op opcode, batch []Transfer) {
	group := groups.Get().(*requestGroup)
	all := group.all[:0]
	for i := range batch {
		t := &batch[i]
		if t.N == len(t.P) || t.Off < 0 {
			continue
		}
		w := work{ctx: ctx, op: op, p: t.P[t.N:], off: t.Off + int64(t.N)}
		plan := f.plan(&w, skipCache)
		if plan.way != wayQueue && plan.way != wayFew || plan.n < len(w.p) || plan.unsure {
			continue
		}
		if op == opWrite {
			if f.checkAligned(len(w.p), w.off) != nil {
				continue
			}
			kernelReads(w.p)
		}
		r := f.request(op, w.p, w.off)
		r.index = int32(i)
		all = append(all, r)
	}
	err := f.engine.doAll(ctx, &group.waiter, all)
	for i, r := range all {
		all[i] = nil
		t := &batch[r.index]
		if err != nil {
			r.free()
			t.Err = f.fail(op.pathOp(), err)
			continue
		}
		result, failed := f.engine.takeResult(ctx, r)
		switch {
		case failed != nil:
			t.Err = f.fail(op.pathOp(), failed)
		case result > 0:
			if op == opRead {
				kernelWrote(t.P[t.N:][:result])
			}
			t.N += int(result)
		}
	}
	group.all = all[:0]
	groups.Put(group)
}

// commit writes a batch that is one range with a vectored write and links the sync behind it: one
// submission. It returns false if a part was not done: the batch then tells how much was written,
// and a sync has to follow. No other sync of the file runs in the meantime.
func (f *File) commit(ctx context.Context, batch []Transfer,
	end Durability) (done bool, err, syncErr error) {
	r := f.request(opWritev, nil, batch[0].Off)
	r.extra = new(writevRequest)
	total := 0
	for i := range batch {
		kernelReads(batch[i].P)
		r.extra.buffers = append(r.extra.buffers, batch[i].P)
		total += len(batch[i].P)
	}
	sync := f.request(end.opcode(), nil, 0)
	r.extra.linked, r.chain, sync.chain = sync, chained, chained
	w := &waiter{done: make(chan struct{}, 1)}
	if err := f.engine.doAll(ctx, w, []*request{r}); err != nil {
		f.endCommit(false, nil)
		f.failRest(opWrite, batch, err)
		return true, err, nil
	}
	n, err := f.engine.takeResult(ctx, r)
	synced, syncErr := f.engine.takeResult(ctx, sync)
	setWritten(batch, max(int(n), 0))
	written, failed := err == nil && int(n) == total, err != nil && !notDone(err)
	ran := synced == 0 && !notDone(syncErr)
	if ran && !written && syncErr != ErrAbandoned {
		// The chain was broken. The error belongs to the next sync: the one that follows, unless
		// the write has failed.
		f.syncs.keep(syncErr)
		ran = false
	}
	syncErr = f.endCommit(ran, syncErr)
	switch {
	case failed:
		f.failRest(opWrite, batch, err)
		return true, firstError(batch), nil
	case ran && syncErr != nil: // Linux reports it only once.
		return true, nil, syncErr
	}
	return written && ran, nil, nil
}

// endCommit ends the sync of a commit, and starts the round of the callers who wait.
func (f *File) endCommit(ran bool, err error) error {
	next, result := f.syncs.endCommit(ran, err)
	f.startNext(next)
	return result
}

// queuesSyncs reports whether syncs go through a queue. A ring or Linux AIO would use a kernel
// thread, which costs more than one of the program's.
func (f *File) queuesSyncs() bool {
	e := f.engine
	if !e.options.AlwaysRing || len(e.shards) == 0 || e.closed.Load() {
		return false
	}
	return (f.storage || f.dir) && f.lookUp().allows(e.backend)
}

// queuedSync is a sync through a queue. done is false if it has to be a plain call.
func (f *File) queuedSync(ctx context.Context, op opcode) (done bool, err error) {
	e := f.engine
	result, err := e.do(ctx, e.shard(), f.request(op, nil, 0))
	return err != nil || result != unsupported, err
}

func (a *abandonedMemory) add(p []byte) {
	if len(p) == 0 {
		return
	}
	a.mu.Lock()
	a.all = append(a.all, p)
	a.mu.Unlock()
	a.any.Store(true)
}
