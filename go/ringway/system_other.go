//go:build !linux || !(amd64 || arm64 || loong64 || riscv64)

package ringway

// Systems without rings: all operations are those of package os. syscalls.go, queue.go and
// submit.go are the counterparts for Linux.

import (
	"context"
	"io"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

// Direct is a flag of [OpenFile] that opens a file for direct I/O: transfers bypass the page cache.
// On Linux it is O_DIRECT. On systems without rings it is 0, and transfers use the page cache.
const Direct = 0

// queues are the rings of an engine: there are none.
type queues struct{}

type wrapQueue struct{}

// routing is for files of rings.
type routing struct{}

func (queues) lateRefusals() []*Refusal { return nil }

func (e *Engine) open(backend Backend, _ bool) error {
	switch backend {
	case BackendURing:
		return unavailable(refusal.Uring, nil)
	case BackendKAIO:
		return unavailable(refusal.KAIO, nil)
	}
	return nil
}

func (e *Engine) register() error { return syscall.ENOSYS }

func unavailable(feature string, _ error) *Refusal {
	return &Refusal{
		Feature: feature, Errno: syscall.ENOSYS,
		Meaning: "ringway has rings only on Linux, on amd64, arm64, loong64 and riscv64",
		Fix:     "nothing to do: operations work without it",
	}
}

func (e *Engine) describe() string { return "" }

func (queues) stats() Stats { return Stats{} }

func (queues) closeQueues(time.Time, time.Duration) error { return nil }

func (e *Engine) supports(*File, opcode, int64) bool { return false }

// identify finds out what kind of file this is.
func (f *File) identify() error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	f.storage = info.Mode().IsRegular()
	f.dir = info.IsDir()
	_, err = f.file.WriteAt(nil, 0)
	f.append = err != nil // Package os refuses WriteAt only for files that are open with O_APPEND.
	return nil
}

func (f *File) transfer(ctx context.Context, op opcode, p []byte, off int64) (int, error) {
	if f.engine.closed.Load() {
		return 0, ErrEngineClosed
	}
	return f.plainTransfer(ctx, op, p, off)
}

// blocking is a transfer by package os. A read that returns 0 bytes is at the end of the file.
func (f *File) blocking(op opcode, p []byte, off int64) (n int, err error) {
	switch {
	case op == opRead && off == atCurrent:
		n, err = f.file.Read(p)
	case op == opRead:
		n, err = f.file.ReadAt(p, off)
	case off == atCurrent:
		n, err = f.file.Write(p)
	default:
		n, err = f.file.WriteAt(p, off)
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}

func (f *File) sync(ctx context.Context, _ opcode) error {
	if err := f.engine.syncs.begin(ctx); err != nil {
		return err
	}
	defer f.engine.syncs.end()
	return f.file.Sync()
}

func (f *File) fallocate(off, n int64) error { return syscall.EOPNOTSUPP }

func (f *File) fadvise(off, n int64, advice Advice) error { return nil }

// No batch is written with one call, so each function leaves it as it is.

func (f *File) submitBatch(context.Context, opcode, []Transfer) {}

func (f *File) writeTogether(context.Context, []Transfer, Durability) (done bool, err error) {
	return false, nil
}

func (f *File) appendVectored(context.Context, []Transfer) bool { return false }

// The page cache cannot be probed.

const cachedReads = false

func readCached(fd int, p []byte, off int64) (n int, ok bool) { return 0, false }

// No file is open for direct I/O.

func deviceLimits(int) directLimits { return directLimits{pageSize, pageSize, maxTransfer} }

func (f *File) readSplit(ctx context.Context, _ directLimits, p []byte, off int64) (int, error) {
	return f.transfer(ctx, opRead, p, off)
}

// Pooled memory is part of Go's heap.

func mapRegion(n int) ([]byte, error) { return alignedSlice(n, pageSize), nil }

func unmapRegion([]byte) {}
