//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Errors of syncs, and of writes that a sync covers.

package ringway

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// A failed sync, or a failed write that a sync covers, is an error of the caller. A second attempt
// would succeed, because Linux reports a failure once, and the data would be lost. Only operations
// that the kernel did not do are retried.
func TestSyncErrorsAreReported(t *testing.T) {
	for _, c := range []struct {
		op      opcode
		errno   syscall.Errno
		retried bool
	}{
		{opFdatasync, syscall.EIO, false}, {opFdatasync, syscall.ENOSPC, false},
		{opFdatasync, syscall.EDQUOT, false}, {opFdatasync, syscall.EINTR, true},
		{opFdatasync, syscall.EAGAIN, true}, {opFdatasync, syscall.ECANCELED, true},
		{opFsync, syscall.EIO, false}, {opFsync, syscall.EINTR, true},
		{opFsync, syscall.ECANCELED, true},
		{opWrite, syscall.EIO, false}, {opWrite, syscall.ENOSPC, false},
		{opWrite, syscall.EINTR, true}, {opWrite, syscall.ECANCELED, true},
		{opWritev, syscall.EIO, false}, {opWritev, syscall.ENOSPC, false},
		{opWritev, syscall.EINTR, true}, {opWritev, syscall.EAGAIN, true},
	} {
		shapes := map[opcode][]string{ // The calls that make such an operation.
			opFdatasync: {"range", "scattered", "alone"},
			opFsync:     {"range", "scattered", "alone", "large"},
			opWrite:     {"scattered", "alone", "large"},
			opWritev:    {"range"},
		}
		for _, shape := range shapes[c.op] {
			t.Run(fmt.Sprint(opcodeName(c.op), " ", c.errno, " ", shape), func(t *testing.T) {
				syncErrors(t, shape, c.op, c.errno, c.retried)
			})
		}
	}
}

func syncErrors(t *testing.T, shape string, op opcode, errno syscall.Errno, retried bool) {
	e, s := scriptedEngine(t, Options{})
	f := openIn(t, e, make([]byte, 8<<20), os.O_RDWR|Direct)
	failed, later := 0, 0
	s.onResult(func(r *request) bool {
		switch {
		case failed > 0 && !r.chained && (r.opcode == opFsync || r.opcode == opFdatasync):
			later++
		case r.opcode == op && failed == 0:
			failed++
			r.result = -int32(errno)
		}
		return false
	})
	var err error
	end := DataSync
	if op == opFsync {
		end = FullSync
	}
	page := func() []byte { return alignedSlice(pageSize, pageSize) }
	batch := []Transfer{{P: page()}, {P: page(), Off: pageSize}}
	switch shape {
	case "scattered":
		batch[1].Off = 1 << 20
		err = f.WriteBatch(batch, end)
	case "range":
		err = f.WriteBatch(batch, end)
	case "large":
		_, err = f.WriteAt(alignedSlice(4<<20, pageSize), 0)
		err = errors.Join(err, f.Sync())
	case "alone":
		_, err = f.WriteAt(batch[0].P, 0)
		if end == DataSync {
			err = errors.Join(err, f.Datasync())
		} else {
			err = errors.Join(err, f.Sync())
		}
	}
	if failed == 0 {
		t.Fatal("there was no such operation")
	}
	if retried && err != nil || !retried && !errors.Is(err, errno) {
		t.Errorf("%v (and %d syncs after it)", err, later)
	}
	isBatch := shape == "scattered" || shape == "range"
	if isBatch && (op == opWrite || op == opWritev) && !retried {
		if later > 0 {
			t.Error("a sync after a failed write")
		}
		if !errors.Is(firstError(batch), errno) {
			t.Error("no transfer of the batch has the error")
		}
	}
}

// A kernel that may start no thread cancels what it needs one for, however often it is repeated.
func TestKernelCancelsAgainAndAgain(t *testing.T) {
	for _, op := range []opcode{opRead, opWrite, opFsync} {
		e, s := scriptedEngine(t, Options{})
		f := openIn(t, e, make([]byte, 8<<20), os.O_RDWR|Direct)
		times := 0
		s.onResult(func(r *request) bool {
			if r.opcode == op && times < 100 {
				times++
				r.result = -int32(syscall.ECANCELED)
			}
			return false
		})
		page := alignedSlice(pageSize, pageSize)
		_, err := f.WriteAt(page, 0)
		_, err2 := f.ReadAt(page, 0)
		if err := errors.Join(err, err2, f.Sync()); err != nil || times != maxRetries+1 {
			t.Errorf("%s: %v after %d attempts", opcodeName(op), err, times)
		}
	}
}

// If the buffered write of a range fails, all transfers that are not written have the error, and
// nothing is synced.
func TestRangeWriteError(t *testing.T) {
	e := newOrSkip(t, Options{})
	f := openIn(t, e, make([]byte, 10), os.O_RDONLY)
	batch := []Transfer{{P: make([]byte, 10)}, {P: make([]byte, 10), Off: 10}}
	err := f.WriteBatch(batch, DataSync)
	if !errors.Is(err, syscall.EBADF) || !errors.Is(batch[1].Err, syscall.EBADF) {
		t.Error(err, batch)
	}
}

// A batch that is one range is one submission together with its sync, also if it has one transfer.
// After the engine is closed, it fails.
func TestCommitIsOneSubmission(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendURing, Rings: 1})
	name := filepath.Join(t.TempDir(), "file")
	for _, direct := range []int{Direct, 0} {
		f, err := e.OpenFile(name, os.O_RDWR|os.O_CREATE|direct, 0o600)
		if err != nil {
			skip.Test(t, "no direct I/O here: ", err)
		}
		batch := []Transfer{{P: alignedSlice(pageSize, pageSize)}}
		before := e.Stats().Pushed
		if err := f.WriteBatch(batch, DataSync); err != nil || batch[0].N != pageSize {
			t.Fatal(err, batch[0].N)
		}
		if n := e.Stats().Pushed - before; direct != 0 && n != 2 || direct == 0 && n != 0 {
			t.Errorf("%d operations went to the ring", n)
		}
	}
	closeAll(t, e)
	f, err := e.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	batch := []Transfer{{P: make([]byte, 1)}, {P: make([]byte, 1), Off: 1}}
	if err := f.WriteBatch(batch, NoSync); !errors.Is(err, ErrEngineClosed) || batch[0].N != 0 {
		t.Error(err, batch[0].N)
	}
}
