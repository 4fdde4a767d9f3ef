//go:build !linux || !(amd64 || arm64 || loong64 || riscv64)

// Systems without rings: engines have no queues, so that every transfer is a plain system call.
// Queues are in queue.go, and transfers through them in submit.go.

package ringway

import (
	"context"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

// queues are the rings of an engine: there are none.
type queues struct{}

type wrapQueue struct{}

// placement is for files of rings.
//
//lint:ignore U1000 It is a field of the facts of every system.
type placement struct{}

// waits and accessTime are for submissions to rings, and for tries to read from the page cache.
//
//lint:ignore U1000 It is a field of the files of every system.
type waits struct{}

//lint:ignore U1000 It is a field of the files of every system.
type accessTime struct{}

// blockQueue is for submissions to rings.
//
//lint:ignore U1000 It is a field of the facts of every system.
type blockQueue struct{}

func (e *Engine) open(backend Backend) error {
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

func (f *File) noteDone(opcode) {}

func (f *File) noteChange() {}

func (f *File) lookUpWaits() *waits { return nil }

// tryMayWait is not called: there are no tries.
func (f *File) tryMayWait() bool { return false }

func (queues) stats() Stats { return Stats{} }

func (queues) closeQueues(time.Time, time.Duration) error { return nil }

func (e *Engine) supports(*File, opcode, int64) bool { return false }

// Nothing is supported, so that none of these is called, or each leaves its work to plain calls.

func (f *File) queued(*work, int, bool) (n int, from source, err error) { return 0, noResult, nil }

func (f *File) readSplit(context.Context, []byte, int64, int) (n int, from source, err error) {
	return 0, noResult, nil
}

func (f *File) submitBatch(context.Context, opcode, []Transfer) {}

func (f *File) commit(context.Context, []Transfer, Durability) (done bool, err, syncErr error) {
	return false, nil, nil
}

func (f *File) queuesSyncs() bool { return false }

func (f *File) queuedSync(context.Context, opcode) (done bool, err error) { return false, nil }
