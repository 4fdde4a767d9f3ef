//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

import (
	"context"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// ReadBatch reads several ranges together: one submission, and one wait for all of them. Each has its own answer; the error
// is the first of theirs, the end of the file aside.
func (f *File) ReadBatch(batch []Transfer) error { return f.ReadBatchContext(always, batch) }

// ReadBatchContext is ReadBatch with a context, as [File.ReadAtContext].
func (f *File) ReadBatchContext(ctx context.Context, batch []Transfer) error {
	return f.batch("read", func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !f.engine.carriesBatch(f, read) {
			for i := range batch {
				t := &batch[i]
				t.N, t.Err = f.readAt(ctx, t.P, t.Off)
			}
			return first(batch)
		}
		for i := range batch {
			batch[i].N, batch[i].Err = 0, nil
		}
		if !f.direct {
			f.cachedBatch(batch)
		}
		f.together(ctx, read, batch)
		for i := range batch {
			// What is short goes on alone: to the end, or to the end of the file.
			if t := &batch[i]; t.Err == nil && t.N < len(t.P) {
				n, err := f.readAt(ctx, t.P[t.N:], t.Off+int64(t.N))
				t.N, t.Err = t.N+n, err
			}
		}
		return first(batch)
	})
}

// WriteBatch writes several ranges together, and makes them durable if that is asked for: a group commit. Without an order
// among them; the sync is after all of them, in the same submission where the ranges follow one another. If a write fails
// nothing is synced. The error is the first of theirs, or of the sync.
func (f *File) WriteBatch(batch []Transfer, end Durability) error {
	return f.WriteBatchContext(always, batch, end)
}

// WriteBatchContext is WriteBatch with a context, as [File.WriteAtContext].
func (f *File) WriteBatchContext(ctx context.Context, batch []Transfer, end Durability) error {
	return f.batch("write", func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for i := range batch {
			batch[i].N, batch[i].Err = 0, nil
		}
		if f.append {
			_, err := f.file.WriteAt(nil, 0)
			return err
		}
		switch follow := f.follow(batch) && !f.engine.closed.Load(); {
		case follow && !f.direct:
			f.writeOne(batch)
		case follow && end != NoSync && f.engine.backend == Uring:
			if done, err := f.commit(ctx, batch, end); done {
				return err
			}
		}
		if f.engine.carriesBatch(f, write) {
			f.together(ctx, write, batch)
		}
		for i := range batch {
			if t := &batch[i]; t.Err == nil && t.N < len(t.P) {
				n, err := f.writeAt(ctx, t.P[t.N:], t.Off+int64(t.N))
				t.N, t.Err = t.N+n, err
			}
		}
		if err := first(batch); err != nil || end == NoSync {
			return err
		}
		return f.sync(ctx, end.kind())
	})
}

func (d Durability) kind() kind {
	if d == DataSync {
		return fdatasync
	}
	return fsync
}

func (f *File) batch(op string, do func() error) error {
	if f == nil {
		return os.ErrInvalid
	}
	return f.use(op, do)
}

func (e *Engine) carriesBatch(f *File, kind kind) bool {
	return f.storage && !e.closed.Load() && e.carries(f, kind, 0)
}

// cachedBatch reads what the page cache has of each: the beginning, or all of it. A submission would save the entry into the
// kernel, which is a tenth of what a cached read costs, and has costs of its own. So would another processor's help: to wake
// one takes as long as the batch.
func (f *File) cachedBatch(batch []Transfer) {
	for i := range batch {
		if t := &batch[i]; len(t.P) > 0 && t.Off >= 0 {
			t.N, _ = f.tryCached(t.P, t.Off)
		}
	}
}

// flights are used again: a batch allocates nothing in the steady state.
var flights = sync.Pool{New: func() any { return &flight{w: waiter{done: make(chan struct{}, 1)}} }}

// flight is several requests that one goroutine waits for.
type flight struct {
	w   waiter
	all []*request
}

// together takes what fits of a batch through one shard. What does not fit, is empty or went wrong for the backend alone is
// left with nothing done and no error.
func (f *File) together(ctx context.Context, kind kind, batch []Transfer) {
	group := flights.Get().(*flight)
	all := group.all[:0]
	for i := range batch {
		t := &batch[i]
		if t.N == len(t.P) || t.Off < 0 || len(t.P) > maxTransfer {
			continue
		}
		if f.direct {
			if a := f.alignment(); !a.fits(t.P, t.Off) || len(t.P) > a.largest { // (N is 0.)
				continue
			}
		}
		if kind == write {
			looked(t.P)
		}
		r := newRequest(kind, f.fd, t.P[t.N:], t.Off+int64(t.N))
		r.index = int32(i)
		all = append(all, r)
	}
	err := f.engine.flyWith(ctx, &group.w, all)
	for i, r := range all {
		all[i] = nil
		t := &batch[r.index]
		if err != nil {
			r.free()
			t.Err = f.fail("read", err)
			continue
		}
		result, failed := f.engine.outcome(ctx, r)
		switch {
		case failed != nil:
			t.Err = f.fail([]string{"read", "write"}[kind], failed)
		case result > 0:
			if kind == read {
				written(t.P[t.N:][:result])
			}
			t.N += int(result)
		}
	}
	group.all = all[:0]
	flights.Put(group)
}

// mostVectors is what one system call takes.
const mostVectors = 1024

// follow tells whether a batch is one range.
func (f *File) follow(batch []Transfer) bool {
	if !f.storage || len(batch) == 0 || len(batch) > mostVectors || batch[0].Off < 0 {
		return false
	}
	at := batch[0].Off
	for i := range batch {
		t := &batch[i]
		if t.Off != at || len(t.P) == 0 {
			return false
		}
		if f.direct && !f.alignment().fits(t.P, t.Off) {
			return false
		}
		at += int64(len(t.P))
	}
	return at-batch[0].Off <= maxTransfer
}

// writeOne writes a batch that is one range by one plain call, as far as that goes: a copy into the page cache.
func (f *File) writeOne(batch []Transfer) {
	v := vectors.Get().(*[]syscall.Iovec)
	for i := range batch {
		looked(batch[i].P)
		*v = append(*v, syscall.Iovec{Base: unsafe.SliceData(batch[i].P)})
		(*v)[i].SetLen(len(batch[i].P))
	}
	f.engine.call()
	n, _ := writeVectors(f.fd, *v, batch[0].Off) // What is left over is written one by one, and has its own error.
	f.engine.done()
	clear(*v)
	*v = (*v)[:0]
	vectors.Put(v)
	divide(batch, n)
}

// divide tells the parts of a batch that is one range how much of each was written, of n bytes in all.
func divide(batch []Transfer, n int) {
	for i := range batch {
		batch[i].N = min(n, len(batch[i].P))
		n -= batch[i].N
	}
}

// vectors are used again.
var vectors = sync.Pool{New: func() any { return new([]syscall.Iovec) }}

// commit is a vectored write with the sync linked behind it: one submission. False: it did not come about as a whole, and
// batch tells how far the write went.
func (f *File) commit(ctx context.Context, batch []Transfer, end Durability) (bool, error) {
	all := newRequest(writev, f.fd, nil, batch[0].Off)
	all.more = new(more)
	total := 0
	for i := range batch {
		looked(batch[i].P)
		all.more.many = append(all.more.many, batch[i].P)
		total += len(batch[i].P)
	}
	sync := newRequest(end.kind(), f.fd, nil, 0)
	all.more.linked, all.chained, sync.chained = sync, true, true
	if err := f.engine.flyAll(ctx, []*request{all}); err != nil {
		return true, err
	}
	n, err := f.engine.outcome(ctx, all)
	synced, syncErr := f.engine.outcome(ctx, sync)
	if err != nil {
		return false, nil // Once more, one by one: each has its own error.
	}
	divide(batch, max(int(n), 0))
	return int(n) == total && syncErr == nil && synced == 0, nil
}
