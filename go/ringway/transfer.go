// Steps of transfers: what is asked before a plan is made (plan.go), and how plans are carried out.
// Transfers through queues are in submit.go, syncs in sync.go. Systems differ in the system calls
// alone: syscalls_linux.go, syscalls_os.go.

package ringway

import (
	"context"
	"io"
	"sync"
	"syscall"
)

// source is what a result comes from. The result of one system call is what package os has, also if
// it is short. A short one of a queue or of the page cache need not be.
type source uint8

const (
	noResult source = iota // Nothing has been tried, or the queue does not support the transfer.
	fromCall
	fromQueue
	fromCache
)

// work is what is left to read or to write. A pointer to it takes little of the stack, which a
// goroutine keeps while it waits.
type work struct {
	ctx      context.Context
	op       opcode
	inBuffer bool // A part of a step that goes through a buffer.
	p        []byte
	off      int64 // Or atCurrent.
}

// all does the work, one step after the other, until there is an error.
func (f *File) all(w *work) (n int, err error) {
	for len(w.p) > 0 && err == nil {
		var m int
		m, _, err = f.step(w)
		n += m
		w.p = w.p[m:]
		if w.off != atCurrent {
			w.off += int64(m)
		}
	}
	return n, err
}

// step makes one step. The error of a read is io.EOF if it is known that the file ends behind the n
// bytes.
func (f *File) step(w *work) (n int, from source, err error) {
	if w.ctx.Err() != nil {
		return 0, noResult, causeOf(w.ctx)
	}
	use := skipCache
	if w.op == opRead {
		use = f.nextCacheUse()
	}
	plan := f.plan(w, use)
	if plan.way == wayCache {
		n, ok := f.readCache(use, w.p[:plan.n], w.off)
		if n > 0 {
			return n, fromCache, nil
		}
		if ok {
			return 0, fromCache, io.EOF
		}
		plan = f.plan(w, skipCache)
	}
	switch plan.way {
	case wayCall:
	case wayQueue, wayFew:
		n, from, err = f.queued(w, plan.n, plan.way == wayFew)
	default:
		n, from, err = f.rareStep(w, plan)
	}
	if from == noResult {
		from = fromCall
		n, err = f.plainTransfer(w.ctx, w.op, w.p[:plan.n], w.off)
	}
	switch {
	case n == plan.n:
	case err == syscall.EINVAL && plan.unsure:
		f.needsPages.Store(true)
		return f.step(w)
	case err == nil && w.op == opWrite && n == 0:
		err = io.ErrUnexpectedEOF
	case err == nil && w.op == opRead && (n == 0 || f.direct && f.directLimits().tellsEnd(n)):
		err = io.EOF
	}
	return n, from, err
}

// rareStep makes a step in a way that few steps are made in. There is no result if a plain call has
// to make it.
func (f *File) rareStep(w *work, plan plan) (n int, from source, err error) {
	p := w.p[:plan.n]
	switch plan.way {
	case wayOS:
		if w.op == opRead {
			n, err = f.file.ReadAt(p, w.off)
		} else {
			n, err = f.file.WriteAt(p, w.off)
		}
		return n, fromCall, err
	case wayClosed:
		return 0, fromCall, ErrEngineClosed
	case wayBuffer:
		n, err = f.throughBuffer(w, plan)
		return n, fromQueue, err
	case waySplit:
		return f.readSplit(w.ctx, p, w.off, plan.span.size)
	}
	// wayLastBlock: the kernel has the error, if the file reaches the block.
	if info, err := f.file.Stat(); err != nil || info.Size() <= w.off {
		return 0, fromCall, err
	}
	return 0, noResult, nil
}

// plan returns how to make a step.
func (f *File) plan(w *work, use cacheUse) plan {
	c := conditions{op: w.op, storage: f.storage, direct: f.direct, cache: use, off: w.off,
		n: len(w.p), inBuffer: w.inBuffer}
	// What a server may have to be asked for is not known before the page cache was tried.
	if f.storage && use == skipCache {
		if f.direct {
			c.limits, c.address = f.directLimits(), addressOf(w.p)
		}
		c.closed = f.engine.closed.Load()
		c.queue = !c.closed && f.engine.supports(f, w.op, w.off)
		c.few = !f.engine.options.AlwaysRing
	}
	return c.plan()
}

// plainTransfer is one read or write by a blocking system call, when the number of those allows.
func (f *File) plainTransfer(ctx context.Context, op opcode, p []byte, off int64) (int, error) {
	if err := f.engine.calls.begin(ctx); err != nil {
		return 0, err
	}
	defer f.engine.calls.end()
	n, err := f.blocking(ctx, op, p, off)
	if err == nil {
		f.noteDone(op)
	}
	return n, err
}

// writeTogether writes as much of a batch as possible with one submission or system call. done
// reports that nothing is left to do: the batch is written and synced, or has failed.
func (f *File) writeTogether(ctx context.Context, batch []Transfer,
	end Durability) (done bool, err, syncErr error) {
	e := f.engine
	adjacent := f.adjacent(batch) && !e.closed.Load()
	queued := f.supportsBatch(opWrite)
	switch {
	case adjacent && !queued:
		f.writeRange(ctx, batch, batch[0].Off)
	case adjacent && end != NoSync && e.backend == BackendURing && f.syncs.beginCommit():
		return f.commit(ctx, batch, end)
	case queued:
		f.submitBatch(ctx, opWrite, batch)
	}
	return false, nil, nil
}

// maxVectors is how many buffers one system call accepts.
const maxVectors = 1024

// adjacent reports whether the transfers of a batch are one range, in order, that one vectored
// write can do.
func (f *File) adjacent(batch []Transfer) bool {
	if !vectoredWrites || !f.storage || len(batch) == 0 || len(batch) > maxVectors ||
		batch[0].Off < 0 {
		return false
	}
	at := batch[0].Off
	for i := range batch {
		t := &batch[i]
		if t.Off != at || len(t.P) == 0 {
			return false
		}
		if f.direct && !f.isAligned(t.P, t.Off) {
			return false
		}
		at += int64(len(t.P))
	}
	return at-batch[0].Off <= maxTransfer
}

// appendVectored appends a batch with one vectored write. It returns false if the kernel would not
// accept the batch as it is.
func (f *File) appendVectored(ctx context.Context, batch []Transfer) bool {
	if !vectoredWrites || !f.storage || len(batch) > maxVectors {
		return false
	}
	for i := range batch {
		if p := batch[i].P; f.direct && len(p) > 0 && !f.isAligned(p, 0) {
			return false
		}
	}
	f.writeRange(ctx, batch, atCurrent)
	return true
}

// vectors pools the arguments of vectored writes.
var vectors = sync.Pool{New: func() any { return new([]vector) }}

// writeRange writes a batch that is one range with one plain call, and continues after a short
// write. What is not written has the error.
func (f *File) writeRange(ctx context.Context, batch []Transfer, off int64) {
	total := 0
	for i := range batch {
		total += len(batch[i].P)
	}
	v := vectors.Get().(*[]vector)
	for written := 0; written < total; {
		for i := range batch {
			if left := batch[i].P[batch[i].N:]; len(left) > 0 {
				kernelReads(left)
				*v = append(*v, newVector(left))
			}
		}
		n, err := 0, f.engine.calls.begin(ctx)
		if err == nil {
			at := off
			if off != atCurrent {
				at += int64(written)
			}
			n, err = f.writeVectors(ctx, *v, at)
			if off == atCurrent {
				err = f.explainAppend(total-written-n, err)
			}
			f.engine.calls.end()
			if n > 0 {
				f.noteDone(opWrite)
			} else if err == nil {
				err = io.ErrUnexpectedEOF
			}
		}
		clear(*v)
		*v = (*v)[:0]
		written += n
		setWritten(batch, written)
		if err != nil {
			f.failRest(opWrite, batch, err)
			break
		}
	}
	vectors.Put(v)
}
