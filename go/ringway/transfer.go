// Transfers: through a queue of the engine (submit.go), or by plain system calls, whose number is
// limited. Syncs are in sync.go. Systems differ in the system calls alone: syscalls_linux.go,
// syscalls_os.go.

package ringway

import (
	"context"
	"io"
	"sync"
)

// source is what a result comes from. The result of one system call is what package os has, also if
// it is short. A short one of a queue or of the page cache need not be.
type source uint8

const (
	noResult source = iota // The queue does not support the transfer.
	fromCall
	fromQueue
	fromCache
)

// transfer is one read or write through a queue, or by a plain system call if no queue supports it
// or only a few transfers run.
func (f *File) transfer(ctx context.Context, op opcode, p []byte, off int64) (int, error) {
	n, _, err := f.transferFrom(ctx, op, p, off)
	return n, err
}

// transferFrom is transfer, with the source of the result.
func (f *File) transferFrom(ctx context.Context, op opcode, p []byte,
	off int64) (int, source, error) {
	if len(p) > maxTransfer {
		p = p[:maxTransfer]
	}
	if f.engine.closed.Load() {
		return 0, noResult, ErrEngineClosed
	}
	if f.engine.supports(f, op, off) {
		if n, from, err := f.queued(ctx, op, p, off); from != noResult {
			return n, from, err
		}
	}
	n, err := f.plainTransfer(ctx, op, p, off)
	return n, fromCall, err
}

// plainTransfer is one read or write by a blocking system call, when the number of those allows.
func (f *File) plainTransfer(ctx context.Context, op opcode, p []byte, off int64) (int, error) {
	if err := f.engine.calls.begin(ctx); err != nil {
		return 0, err
	}
	defer f.engine.calls.end()
	n, err := f.blocking(op, p, off)
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
			n, err = writeVectors(f.fd, *v, at)
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
			f.failRest(batch, err)
			break
		}
	}
	vectors.Put(v)
}
