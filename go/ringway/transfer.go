package ringway

// Transfers and syncs: through a queue of the engine (submit.go), or by plain system calls, whose
// number is limited. Systems differ in the system calls alone: syscalls_linux.go, syscalls_os.go.

import (
	"context"
	"io"
	"sync"
)

// transfer is one read or write through a queue, or by a plain system call if no queue supports it
// or only a few transfers run.
func (f *File) transfer(ctx context.Context, op opcode, p []byte, off int64) (int, error) {
	if len(p) > maxTransfer {
		p = p[:maxTransfer]
	}
	if f.engine.closed.Load() {
		return 0, ErrEngineClosed
	}
	if f.engine.supports(f, op, off) {
		if n, done, err := f.queued(ctx, op, p, off); done {
			return n, err
		}
	}
	return f.plainTransfer(ctx, op, p, off)
}

// plainTransfer is one read or write by a blocking system call, when the number of those allows.
func (f *File) plainTransfer(ctx context.Context, op opcode, p []byte, off int64) (int, error) {
	if err := f.engine.calls.begin(ctx); err != nil {
		return 0, err
	}
	defer f.engine.calls.end()
	return f.blocking(op, p, off)
}

// writeTogether writes as much of a batch as possible with one submission or system call. done
// reports that nothing is left to do: the batch is written and synced, or has failed.
func (f *File) writeTogether(ctx context.Context, batch []Transfer,
	end Durability) (done bool, err error) {
	e := f.engine
	adjacent := f.adjacent(batch) && !e.closed.Load()
	switch {
	case adjacent && (!f.direct || e.backend == BackendThreads):
		f.writeRange(ctx, batch, batch[0].Off)
	case adjacent && end != NoSync && e.backend == BackendURing:
		return f.commit(ctx, batch, end)
	case f.supportsBatch(opWrite):
		f.submitBatch(ctx, opWrite, batch)
	}
	return false, nil
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
		if f.direct && !f.directLimits().aligned(t.P, t.Off) {
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
		if p := batch[i].P; f.direct && len(p) > 0 && !f.directLimits().aligned(p, 0) {
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
			if n == 0 && err == nil {
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

// sync is one sync. It is repeated only if the kernel did not do it (EINTR, EAGAIN, ECANCELED):
// Linux reports a writeback error once, and the next sync would succeed.
func (f *File) sync(ctx context.Context, op opcode) error {
	if done, err := f.queuedSync(ctx, op); done {
		return err
	}
	if err := f.engine.syncs.begin(ctx); err != nil {
		return err
	}
	defer f.engine.syncs.end()
	return f.fsync(op)
}
