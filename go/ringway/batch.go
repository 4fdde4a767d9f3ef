// Batches: several transfers with one wait, and group commits.

package ringway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// Transfer is a read or a write in a batch.
type Transfer struct {
	P   []byte // P is the buffer.
	Off int64  // Off is the offset in the file.
	N   int    // N is the result: the number of bytes, as ReadAt and WriteAt return it.
	Err error  // Err is the result: the error, as ReadAt and WriteAt return it.
}

// Durability is how a batch of writes ends.
type Durability int

// The degrees of durability. The zero value is NoSync.
const (
	NoSync   Durability = iota // Do not sync.
	DataSync                   // Sync as File.Datasync does.
	FullSync                   // Sync as File.Sync does.
)

// check returns an error for a value that is none of the constants.
func (d Durability) check() error {
	if d < NoSync || d > FullSync {
		return fmt.Errorf("durability %d is none of NoSync, DataSync and FullSync: %w", d,
			syscall.EINVAL)
	}
	return nil
}

func (d Durability) opcode() opcode {
	if d == DataSync {
		return opFdatasync
	}
	return opFsync
}

// firstError returns the first error of a batch that is not io.EOF.
func firstError(batch []Transfer) error {
	for i := range batch {
		if err := batch[i].Err; err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

// ReadBatch reads several ranges with one submission and one wait. Each transfer has its own
// result. ReadBatch returns the first of their errors that is not io.EOF.
func (f *File) ReadBatch(batch []Transfer) error { return f.ReadBatchContext(background, batch) }

// ReadBatchContext is like ReadBatch, with a context as for [File.ReadAtContext]. When the context
// ends, transfers without a result have its cause as their error.
func (f *File) ReadBatchContext(ctx context.Context, batch []Transfer) error {
	return f.useBatch(ctx, opRead, batch, nil, func() error {
		// Cached data is read range by range. One submission would save the entries into the
		// kernel, a tenth of the cost of a cached read, and has costs of its own. A second
		// processor does not help either: waking one takes as long as the batch.
		for i := range batch {
			t := &batch[i]
			if ctx.Err() != nil {
				err := f.fail("read", causeOf(ctx))
				f.failRest(opRead, batch, err)
				return err
			}
			if len(t.P) > 0 && t.Off >= 0 && (ctx.Done() != nil || f.supportsBatch(opRead)) {
				t.N = f.tryCached(ctx, t.P, t.Off)
			}
		}
		return f.detachBatch(ctx, opRead, batch, func(batch []Transfer) error {
			if ctx.Done() != nil {
				f.prepareTries()
			}
			return f.readBatch(ctx, batch)
		}, nil)
	})
}

// readBatch reads the rest of a batch. The file is held open.
func (f *File) readBatch(ctx context.Context, batch []Transfer) error {
	if f.supportsBatch(opRead) {
		f.submitBatch(ctx, opRead, batch)
	}
	for i := range batch {
		t := &batch[i]
		switch {
		case t.Off < 0:
			t.Err = f.fail("readat", errNegative)
		case t.Err == nil && t.N < len(t.P):
			// A short read continues by itself, up to the end of the range or of the file.
			n, err := f.readAt(ctx, t.P[t.N:], t.Off+int64(t.N))
			t.N, t.Err = t.N+n, f.fail("read", err)
		}
	}
	return firstError(batch)
}

// WriteBatch writes several ranges and then makes them durable if end asks for it: a group commit.
// The ranges are written in no particular order. The sync follows all writes; if the ranges are
// adjacent and in order, it is part of the same submission. If a write fails, nothing is synced.
// WriteBatch returns the first error of a write, or the error of the sync. It never tries to make
// up for an error with a second attempt: after an error, nobody knows what is on the disk. An end
// that is not one of the constants is EINVAL, and nothing is written.
//
// If the file is open with O_APPEND, one write appends all ranges in their order, so that no other
// write comes between them (unless that write is short, on a full disk for example). Their offsets
// are ignored.
func (f *File) WriteBatch(batch []Transfer, end Durability) error {
	return f.WriteBatchContext(background, batch, end)
}

// WriteBatchContext is like WriteBatch, with a context as for [File.WriteAtContext]. When the
// context ends, all transfers have its cause as their error. They may be written or not, and
// durable or not, also after the return.
func (f *File) WriteBatchContext(ctx context.Context, batch []Transfer, end Durability) error {
	return f.useBatch(ctx, opWrite, batch, end.check(), func() error {
		var syncErr error
		return f.detachBatch(ctx, opWrite, batch, func(batch []Transfer) (err error) {
			err, syncErr = f.writeBatch(ctx, batch, end)
			return cmp.Or(err, syncErr)
		}, func() { f.syncs.keep(syncErr) })
	})
}

// writeBatch is WriteBatch in a file that is held open.
func (f *File) writeBatch(ctx context.Context, batch []Transfer,
	end Durability) (err, syncErr error) {
	if f.append {
		f.appendBatch(ctx, batch)
	} else {
		if done, err, syncErr := f.writeTogether(ctx, batch, end); done {
			return err, syncErr
		}
		f.writeRest(ctx, batch)
	}
	if err := firstError(batch); err != nil || end == NoSync {
		return err, nil
	}
	return nil, f.sync(ctx, end.opcode())
}

// writeRest writes the rest of a batch, one range after the other.
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

// appendBatch appends a batch with one write: of the ranges as they are if the kernel accepts that,
// else of a buffer with all of them.
func (f *File) appendBatch(ctx context.Context, batch []Transfer) {
	f.position.Lock()
	defer f.position.Unlock()
	if f.storage && f.engine.closed.Load() {
		f.failRest(opWrite, batch, ErrEngineClosed)
		return
	}
	if f.appendVectored(ctx, batch) {
		return
	}
	total := 0
	for i := range batch {
		total += len(batch[i].P)
	}
	buffer, err := f.engine.borrow(total)
	if err != nil {
		f.failRest(opWrite, batch, err)
		return
	}
	defer buffer.release()
	at := 0
	for i := range batch {
		at += copy(buffer.memory[at:], batch[i].P)
	}
	n := 0
	if f.storage {
		n, err = f.writeHere(ctx, buffer.memory[:total])
	} else {
		n, err = f.file.Write(buffer.memory[:total])
	}
	setWritten(batch, n)
	if err != nil {
		f.failRest(opWrite, batch, err)
	}
}

// setWritten distributes the result of one write of a whole batch: n bytes from the beginning.
func setWritten(batch []Transfer, n int) {
	for i := range batch {
		batch[i].N = min(n, len(batch[i].P))
		n -= batch[i].N
	}
}

// failRest sets the error of the transfers that are not complete.
func (f *File) failRest(op opcode, batch []Transfer, err error) {
	for i := range batch {
		if t := &batch[i]; t.N < len(t.P) {
			t.Err = f.fail(op.pathOp(), err)
		}
	}
}

// useBatch calls do with the file held open and the results of the batch cleared. If do is not
// called (invalid is an error, the file is closed, or the context has ended), each transfer has the
// error.
func (f *File) useBatch(ctx context.Context, op opcode, batch []Transfer, invalid error,
	do func() error) error {
	for i := range batch {
		batch[i].N, batch[i].Err = 0, nil
	}
	called := false
	err := f.use(op.pathOp(), func() error {
		if invalid != nil {
			return invalid
		}
		if ctx.Err() != nil {
			return causeOf(ctx)
		}
		called = true
		return do()
	})
	if !called {
		for i := range batch {
			batch[i].Err = err
		}
	}
	return err
}

// detachBatch calls do with the batch, or with a copy of its rest in pooled memory if the context
// can end. If it ends before do does, discard is called after do, unless it is nil.
func (f *File) detachBatch(ctx context.Context, op opcode, batch []Transfer,
	do func(batch []Transfer) error, discard func()) error {
	if ctx.Done() == nil {
		return do(batch)
	}
	size := 0
	for i := range batch {
		size += wholePages(len(batch[i].P) - batch[i].N)
	}
	buffer, err := f.engine.borrow(size)
	if err != nil {
		f.failRest(op, batch, err)
		// (A batch of nothing may have a sync behind it.)
		if first := firstError(batch); first != nil || op == opRead {
			return first
		}
		return err
	}
	pooled, rest := make([]Transfer, len(batch)), buffer.memory
	for i := range batch {
		left := batch[i].P[batch[i].N:]
		pooled[i] = Transfer{P: rest[:len(left)], Off: batch[i].Off + int64(batch[i].N)}
		rest = rest[wholePages(len(left)):]
		if op == opWrite {
			copy(pooled[i].P, left)
		}
	}
	done, err := detach(ctx, f,
		func() (bool, error) { return true, do(pooled) }, func(bool) {
			buffer.release()
			if discard != nil {
				discard()
			}
		})
	var ended *endedError // Noticed here or by do: which of them depends on the scheduler.
	unknown := op == opWrite && errors.As(err, &ended)
	for i := range batch {
		t := &batch[i]
		if done {
			if op == opRead {
				copy(t.P[t.N:], pooled[i].P[:pooled[i].N])
			}
			t.N, t.Err = t.N+pooled[i].N, pooled[i].Err
		}
		if t.Err == nil && (unknown || !done && t.N < len(t.P)) {
			t.Err = f.fail(op.pathOp(), err)
		}
	}
	if done {
		buffer.release()
	}
	return err
}

// wholePages rounds n up to a multiple of the page size.
func wholePages(n int) int { return (n + pageSize - 1) &^ (pageSize - 1) }

// supportsBatch reports whether a queue of the engine supports the transfers of a batch.
func (f *File) supportsBatch(op opcode) bool {
	return f.storage && !f.engine.closed.Load() && f.engine.supports(f, op, 0)
}
