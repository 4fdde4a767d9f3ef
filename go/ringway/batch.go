//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

import (
	"context"
	"io"
	"sync"
	"syscall"
	"unsafe"
)

// ReadBatch reads several ranges together: one submission, and one wait for all of them. Each has its own answer; the error
// is the first of theirs, the end of the file aside.
func (f *File) ReadBatch(batch []Transfer) error { return f.ReadBatchContext(always, batch) }

// ReadBatchContext is ReadBatch with a context, as [File.ReadAtContext]. When that ends, what has no answer yet has its cause.
func (f *File) ReadBatchContext(ctx context.Context, batch []Transfer) error {
	return f.batch(ctx, read, batch, func() error {
		// What the page cache has is read one by one. A submission would save the entry into the kernel, which is a tenth of what a
		// cached read costs, and has costs of its own. So would another processor's help: to wake one takes as long as the batch.
		for i := range batch {
			if t := &batch[i]; len(t.P) > 0 && t.Off >= 0 && (ctx.Done() != nil || f.engine.carriesBatch(f, read)) {
				t.N = f.cachedFirst(ctx, t.P, t.Off)
			}
		}
		return f.detachBatch(ctx, read, batch, func(batch []Transfer) error { return f.readBatch(ctx, batch) })
	})
}

// readBatch reads what is left of a batch. The file is held open.
func (f *File) readBatch(ctx context.Context, batch []Transfer) error {
	if f.engine.carriesBatch(f, read) {
		f.together(ctx, read, batch)
	}
	for i := range batch {
		t := &batch[i]
		switch {
		case t.Off < 0:
			t.Err = f.fail("readat", errNegative)
		case t.Err == nil && t.N < len(t.P):
			// What is short goes on alone: to the end, or to the end of the file.
			n, err := f.readAt(ctx, t.P[t.N:], t.Off+int64(t.N))
			t.N, t.Err = t.N+n, f.fail("read", err)
		}
	}
	return first(batch)
}

// WriteBatch writes several ranges together, and makes them durable if that is asked for: a group commit. Without an order
// among them; the sync is after all of them, in the same submission where the ranges follow one another. If a write fails
// nothing is synced. The error is the first of theirs, or of the sync. An error is never made good by a second attempt, for
// nobody knows what is on the disk then.
//
// To a file that was opened with O_APPEND they are appended, in their order and by one write, so that nothing of others comes
// in between (unless that write is short, on a full disk say); their offsets say nothing.
func (f *File) WriteBatch(batch []Transfer, end Durability) error {
	return f.WriteBatchContext(always, batch, end)
}

// WriteBatchContext is WriteBatch with a context, as [File.WriteAtContext]. When that ends all of the batch have its cause, and
// may be written or not, and durable or not, also after the return.
func (f *File) WriteBatchContext(ctx context.Context, batch []Transfer, end Durability) error {
	return f.batch(ctx, write, batch, func() error {
		return f.detachBatch(ctx, write, batch, func(batch []Transfer) error { return f.writeBatch(ctx, batch, end) })
	})
}

// writeBatch is WriteBatch in a file that is held open.
func (f *File) writeBatch(ctx context.Context, batch []Transfer, end Durability) error {
	switch follow := !f.append && f.follow(batch) && !f.engine.closed.Load(); {
	case f.append:
		f.appendBatch(ctx, batch)
	case follow && (!f.direct || f.engine.backend == Threads):
		f.writeRange(ctx, batch, batch[0].Off)
	case follow && end != NoSync && f.engine.backend == Uring:
		if done, err := f.commit(ctx, batch, end); done {
			return err
		}
		f.writeRest(ctx, batch)
	default:
		if f.engine.carriesBatch(f, write) {
			f.together(ctx, write, batch)
		}
		f.writeRest(ctx, batch)
	}
	if err := first(batch); err != nil || end == NoSync {
		return err
	}
	return f.sync(ctx, end.kind())
}

// writeRest writes what is left of a batch, one by one.
func (f *File) writeRest(ctx context.Context, batch []Transfer) {
	for i := range batch {
		t := &batch[i]
		switch {
		case t.Off < 0:
			t.Err = f.fail("writeat", errNegative)
		case t.Err == nil && t.N < len(t.P):
			n, err := f.writeAt(ctx, t.P[t.N:], t.Off+int64(t.N))
			t.N, t.Err = t.N+n, f.fail("write", err)
		}
	}
}

func (d Durability) kind() kind {
	if d == DataSync {
		return fdatasync
	}
	return fsync
}

// batch runs something with the file held open, on a batch without answers.
func (f *File) batch(ctx context.Context, kind kind, batch []Transfer, do func() error) error {
	return f.use(kind.op(), func() error {
		for i := range batch {
			batch[i].N, batch[i].Err = 0, nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return do()
	})
}

// detachBatch does something to a batch: to a copy of what is left of it, if the context can end.
func (f *File) detachBatch(ctx context.Context, kind kind, batch []Transfer, do func(batch []Transfer) error) error {
	if ctx.Done() == nil {
		return do(batch)
	}
	size := 0
	for i := range batch {
		size += pages(len(batch[i].P) - batch[i].N)
	}
	memory := f.engine.lend(size)
	owned, rest := make([]Transfer, len(batch)), memory.memory
	for i := range batch {
		left := batch[i].P[batch[i].N:]
		owned[i] = Transfer{P: rest[:len(left)], Off: batch[i].Off + int64(batch[i].N)}
		rest = rest[pages(len(left)):]
		if kind == write {
			copy(owned[i].P, left)
		}
	}
	over, err := detach(ctx, f, func() (bool, error) { return true, do(owned) }, func(bool) { memory.giveBack() })
	for i := range batch {
		t := &batch[i]
		switch {
		case !over && t.N < len(t.P):
			t.Err = f.fail(kind.op(), err)
		case over:
			if kind == read {
				copy(t.P[t.N:], owned[i].P[:owned[i].N])
			}
			t.N, t.Err = t.N+owned[i].N, owned[i].Err
		}
	}
	if over {
		memory.giveBack()
	}
	return err
}

// pages is n, in whole pages.
func pages(n int) int { return (n + pageSize - 1) &^ (pageSize - 1) }

func (e *Engine) carriesBatch(f *File, kind kind) bool {
	return f.storage && !e.closed.Load() && e.carries(f, kind, 0)
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
		if f.direct && !f.fits(t.P, t.Off) { // (N is 0.)
			continue
		}
		if kind == write {
			looked(t.P)
		}
		r := f.request(kind, t.P[t.N:], t.Off+int64(t.N))
		r.index = int32(i)
		all = append(all, r)
	}
	err := f.engine.flyWith(ctx, &group.w, all)
	for i, r := range all {
		all[i] = nil
		t := &batch[r.index]
		if err != nil {
			r.free()
			t.Err = f.fail(kind.op(), err)
			continue
		}
		result, failed := f.engine.outcome(ctx, r)
		switch {
		case failed != nil:
			t.Err = f.fail(kind.op(), failed)
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

// writeRange writes a batch that is one range, from an offset on or at the file's own position, by one plain call if that is not
// short. What is not written has the error.
func (f *File) writeRange(ctx context.Context, batch []Transfer, off int64) {
	total := 0
	for i := range batch {
		total += len(batch[i].P)
	}
	v := vectors.Get().(*[]syscall.Iovec)
	for done := 0; done < total; {
		for i := range batch {
			if left := batch[i].P[batch[i].N:]; len(left) > 0 {
				looked(left)
				*v = append(*v, syscall.Iovec{Base: unsafe.SliceData(left)})
				(*v)[len(*v)-1].SetLen(len(left))
			}
		}
		n, err := 0, f.engine.calls.begin(ctx)
		if err == nil {
			at := off
			if off != atCursor {
				at += int64(done)
			}
			n, err = writeVectors(f.fd, *v, at)
			f.engine.calls.end()
			if n == 0 && err == nil {
				err = io.ErrUnexpectedEOF
			}
		}
		clear(*v)
		*v = (*v)[:0]
		done += n
		divide(batch, done)
		if err != nil {
			f.failRest(batch, err)
			break
		}
	}
	vectors.Put(v)
}

// failRest gives those of a batch that are not whole an error.
func (f *File) failRest(batch []Transfer, err error) {
	for i := range batch {
		if t := &batch[i]; t.N < len(t.P) {
			t.Err = f.fail("write", err)
		}
	}
}

// appendBatch appends a batch by one write: as it is, or where the kernel would not take that, from one buffer.
func (f *File) appendBatch(ctx context.Context, batch []Transfer) {
	total, asItIs := 0, f.storage && len(batch) <= mostVectors
	for i := range batch {
		p := batch[i].P
		total += len(p)
		asItIs = asItIs && (!f.direct || len(p) == 0 || f.alignment().fits(p, 0))
	}
	f.cursor.Lock()
	defer f.cursor.Unlock()
	if f.storage && f.engine.closed.Load() {
		f.failRest(batch, ErrEngineClosed)
		return
	}
	if asItIs {
		f.writeRange(ctx, batch, atCursor)
		return
	}
	memory := f.engine.lend(total)
	defer memory.giveBack()
	at := 0
	for i := range batch {
		at += copy(memory.memory[at:], batch[i].P)
	}
	n, err := 0, error(nil)
	if f.storage {
		n, err = f.writeAll(ctx, memory.memory[:total], atCursor)
	} else {
		n, err = f.file.Write(memory.memory[:total])
	}
	divide(batch, n)
	if err != nil {
		f.failRest(batch, err)
	}
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

// commit is a vectored write with the sync linked behind it: one submission. True: it is over, or failed. False: some of it was
// never done, and batch tells how far the write went; a sync has to follow.
func (f *File) commit(ctx context.Context, batch []Transfer, end Durability) (bool, error) {
	all := f.request(writev, nil, batch[0].Off)
	all.more = new(more)
	total := 0
	for i := range batch {
		looked(batch[i].P)
		all.more.many = append(all.more.many, batch[i].P)
		total += len(batch[i].P)
	}
	sync := f.request(end.kind(), nil, 0)
	all.more.linked, all.chained, sync.chained = sync, true, true
	if err := f.engine.flyAll(ctx, []*request{all}); err != nil {
		f.failRest(batch, err)
		return true, err
	}
	n, err := f.engine.outcome(ctx, all)
	synced, syncErr := f.engine.outcome(ctx, sync)
	divide(batch, max(int(n), 0))
	if err != nil && !unrun(err) {
		f.failRest(batch, err)
		return true, first(batch)
	}
	if syncErr != nil && !unrun(syncErr) { // It ran, and what it answered is never said again.
		return true, syncErr
	}
	return int(n) == total && syncErr == nil && synced == 0, nil
}
