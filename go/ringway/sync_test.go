//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Concurrent syncs of a File: who runs, who waits, and who receives an error that the kernel
// reports once.

package ringway

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// syncScript holds back the result of the first sync, and counts the syncs.
type syncScript struct {
	*scripted
	mu    sync.Mutex
	syncs int
	errno []syscall.Errno // Of the first syncs.
}

func isSync(r *request) bool { return r.opcode == opFsync || r.opcode == opFdatasync }

// scriptSyncs makes an engine on which the syncs fail with these errors, and the first one is held
// back.
func scriptSyncs(t *testing.T, errno ...syscall.Errno) (*Engine, *syncScript) {
	e, s := scriptedEngine(t, Options{})
	script := &syncScript{scripted: s, errno: errno}
	s.onResult(func(r *request) (hold bool) {
		script.mu.Lock()
		defer script.mu.Unlock()
		if !isSync(r) {
			return false
		}
		if script.syncs < len(script.errno) && script.errno[script.syncs] != 0 {
			r.result = -int32(script.errno[script.syncs])
		}
		script.syncs++
		return script.syncs == 1
	})
	return e, script
}

func (s *syncScript) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.syncs
}

// letGo completes the sync that is held back.
func (s *syncScript) letGo() { s.complete(s.takeHeld()) }

// syncAll calls 16 syncs of different kinds, the first one alone, and returns their errors.
func syncAll(t *testing.T, f *File, s *syncScript, first func() error) []error {
	page := func() []byte { return alignedSlice(pageSize, pageSize) }
	calls := []func() error{f.Datasync, f.Sync,
		func() error { return f.SyncContext(t.Context()) },
		func() error { return f.WriteBatch([]Transfer{{P: page()}}, DataSync) },
		func() error {
			batch := []Transfer{{P: page()}, {P: page(), Off: 1 << 20}}
			return f.WriteBatchContext(t.Context(), batch, FullSync)
		},
	}
	errs := make([]error, 16)
	var all sync.WaitGroup
	all.Go(func() { errs[0] = first() })
	eventually(t, "the first sync", func() bool { return s.count() == 1 })
	for i := 1; i < len(errs); i++ {
		all.Go(func() { errs[i] = calls[i%len(calls)]() })
	}
	time.Sleep(100 * time.Millisecond) // They wait. If they do not, the result is the same.
	s.letGo()
	returns(t, "a sync", all.Wait)
	return errs
}

// The kernel reports a lost write once. Everyone who was waiting for a sync receives the error.
func TestErrorOfSyncReachesAllWhoWait(t *testing.T) {
	for _, kind := range []string{"sync", "commit"} {
		e, s := scriptSyncs(t, syscall.EIO)
		f := openIn(t, e, make([]byte, 2<<20), os.O_RDWR|Direct)
		first := f.Sync
		if kind == "commit" {
			first = func() error {
				batch := []Transfer{{P: alignedSlice(pageSize, pageSize)}}
				return f.WriteBatch(batch, DataSync)
			}
		}
		for i, err := range syncAll(t, f, s, first) {
			if !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: call %d: %v", kind, i, err)
			}
		}
		if n := s.count(); n != 2 {
			t.Errorf("%s: 16 calls made %d syncs", kind, n)
		}
		if err := f.Sync(); err != nil {
			t.Errorf("%s: the error is reported again: %v", kind, err)
		}
	}
}

// The error of the second sync belongs to those who came after the first began.
func TestErrorOfQueuedSync(t *testing.T) {
	e, s := scriptSyncs(t, 0, syscall.ENOSPC)
	f := openIn(t, e, make([]byte, 2<<20), os.O_RDWR|Direct)
	errs := syncAll(t, f, s, f.Datasync)
	for i, err := range errs {
		if (i > 0) != errors.Is(err, syscall.ENOSPC) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// waitForCaller waits until a caller has joined the next round.
func waitForCaller(t *testing.T, f *File) {
	t.Helper()
	eventually(t, "a caller waits", func() bool {
		f.syncs.mu.Lock()
		defer f.syncs.mu.Unlock()
		return f.syncs.open != nil
	})
}

// A caller who comes after the sync that failed has ended does not receive its error, also if
// others who waited meanwhile are about to.
func TestErrorOfSyncEndsWithThoseWhoWaited(t *testing.T) {
	e, s := scriptedEngine(t, Options{})
	s.onResult(func(r *request) (hold bool) { return isSync(r) })
	f := openIn(t, e, make([]byte, pageSize), os.O_RDWR|Direct)
	errs := make([]error, 3)
	var all sync.WaitGroup
	all.Go(func() { errs[0] = f.Sync() })
	var held []*request
	next := func() {
		eventually(t, "a sync", func() bool { held = s.takeHeld(); return len(held) > 0 })
	}
	next()
	all.Go(func() { errs[1] = f.Sync() })
	waitForCaller(t, f)
	held[0].result = -int32(syscall.EIO)
	s.complete(held)
	next()
	all.Go(func() { errs[2] = f.Sync() })
	waitForCaller(t, f)
	s.complete(held)
	next()
	s.complete(held)
	returns(t, "a sync", all.Wait)
	for i, err := range errs {
		if (i < 2) != errors.Is(err, syscall.EIO) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	s.release()
}

// The write of a group commit fails, so that the kernel cancels the sync behind it. That is no
// result of a sync: it is not the error of others who wait for one.
func TestCanceledSyncOfCommitIsNoError(t *testing.T) {
	e, s := scriptedEngine(t, Options{})
	s.onResult(func(r *request) (hold bool) {
		switch {
		case r.opcode == opWritev:
			r.result = -int32(syscall.ENOSPC)
		case isSync(r) && r.chained:
			r.result = -int32(syscall.ECANCELED)
		}
		return r.chained
	})
	f := openIn(t, e, make([]byte, pageSize), os.O_RDWR|Direct)
	var committed, synced error
	var all sync.WaitGroup
	all.Go(func() {
		committed = f.WriteBatch([]Transfer{{P: alignedSlice(pageSize, pageSize)}}, DataSync)
	})
	var held []*request
	eventually(t, "the commit", func() bool {
		held = append(held, s.takeHeld()...)
		return len(held) == 2
	})
	all.Go(func() { synced = f.Sync() })
	waitForCaller(t, f)
	s.complete(held)
	returns(t, "a sync", all.Wait)
	if !errors.Is(committed, syscall.ENOSPC) || synced != nil {
		t.Error(committed, synced)
	}
}

// A caller whose context ends leaves the sync to the others. If all have left, the next sync has
// its error.
func TestContextLeavesTheSyncToOthers(t *testing.T) {
	reason := errors.New("enough")
	for _, others := range []int{0, 3} {
		e, s := scriptSyncs(t, syscall.EIO)
		f := openIn(t, e, make([]byte, 2<<20), os.O_RDWR|Direct)
		var left, all sync.WaitGroup
		ctx, cancel := context.WithCancelCause(t.Context())
		left.Go(func() {
			if err := f.SyncContext(ctx); !errors.Is(err, reason) {
				t.Error("the first:", err)
			}
		})
		eventually(t, "the first sync", func() bool { return s.count() == 1 })
		left.Go(func() { // It waits for the second sync, which is not needed then.
			if err := f.SyncContext(ctx); !errors.Is(err, reason) {
				t.Error("the second:", err)
			}
		})
		time.Sleep(50 * time.Millisecond)
		for range others {
			all.Go(func() {
				if err := f.Sync(); !errors.Is(err, syscall.EIO) {
					t.Error("another:", err)
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		cancel(reason)
		returns(t, "a canceled sync", left.Wait)
		s.letGo()
		returns(t, "a sync", all.Wait)
		err := f.Datasync()
		if others == 0 && !errors.Is(err, syscall.EIO) {
			t.Error("nobody received the error, and the next sync has none")
		}
		if others > 0 && !errors.Is(err, syscall.EIO) && err != nil {
			t.Error(err)
		}
		if err := f.Sync(); err != nil {
			t.Error("the error is reported again:", err)
		}
		if n := s.count(); n > 4 {
			t.Errorf("%d syncs", n)
		}
	}
}

// The sync of a batch fails after its caller has left. The next sync has the error.
func TestContextOfBatchKeepsTheErrorOfItsSync(t *testing.T) {
	for what, off := range map[string]int64{"range": pageSize, "scattered": 1 << 20} {
		e, s := scriptSyncs(t, syscall.EDQUOT)
		f := openIn(t, e, make([]byte, 2<<20), os.O_RDWR|Direct)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			page := func() []byte { return alignedSlice(pageSize, pageSize) }
			batch := []Transfer{{P: page()}, {P: page(), Off: off}}
			done <- f.WriteBatchContext(ctx, batch, DataSync)
		}()
		eventually(t, "the sync", func() bool { return s.count() == 1 })
		cancel()
		returns(t, what, func() {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(what, err)
			}
		})
		s.letGo()
		eventually(t, "the batch ends", func() bool { return f.refs.count.Load() == 0 })
		if err := f.Sync(); !errors.Is(err, syscall.EDQUOT) {
			t.Errorf("%s: %v", what, err)
		}
		if err := f.Sync(); err != nil {
			t.Errorf("%s, again: %v", what, err)
		}
	}
}

// Calls that have nothing to wait for do not wait, and no context of a caller that left keeps a
// goroutine in the lane.
func TestSyncThatAllHaveLeftDoesNotStart(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendThreads, Threads: 4})
	f := openIn(t, e, []byte("x"), os.O_RDWR)
	e.syncs.fill()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := f.SyncContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
	}
	eventually(t, "nobody waits", func() bool { return f.refs.count.Load() == 0 })
	e.syncs.drain()
	check(t, f.Sync())
}

// An error that SyncRange has taken from the kernel is that of the next sync.
func TestErrorOfSyncRangeIsKept(t *testing.T) {
	e := newOrSkip(t, Options{})
	f := openIn(t, e, make([]byte, 10_000), os.O_RDWR)
	check(t, f.SyncRange(0, 0, RangeWaitBefore|RangeWrite|RangeWaitAfter))
	for _, refused := range []error{
		f.SyncRange(-1, 1, RangeWrite), f.SyncRange(0, -1, RangeWrite), f.SyncRange(0, 0, 64),
	} {
		if !errors.Is(refused, syscall.EINVAL) {
			t.Error(refused)
		}
	}
	if err := f.Sync(); err != nil {
		t.Error("a refused SyncRange says nothing about the data:", err)
	}
	f.syncs.keep(syscall.EIO)
	if err := f.WriteBatch([]Transfer{{P: []byte("x")}}, DataSync); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	check(t, f.Sync())
}
