//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Syncs: who runs, who waits, and who receives an error that the kernel reports once; and which
// failures are reported or repeated.

package ringway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
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
}

func isSync(r *request) bool { return r.opcode == opFsync || r.opcode == opFdatasync }

// scriptSyncs makes an engine with a file, on which the syncs fail with these errors, and the first
// one is held back.
func scriptSyncs(t *testing.T, errno ...syscall.Errno) (*File, *syncScript) {
	e, s := scriptedEngine(t, Options{})
	script := &syncScript{scripted: s}
	s.onResult(func(r *request) (hold bool) {
		script.mu.Lock()
		defer script.mu.Unlock()
		if !isSync(r) {
			return false
		}
		if script.syncs < len(errno) && errno[script.syncs] != 0 {
			r.result = -int32(errno[script.syncs])
		}
		script.syncs++
		return script.syncs == 1
	})
	return openIn(t, e, make([]byte, 2<<20), os.O_RDWR|Direct), script
}

func (s *syncScript) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.syncs
}

// letGo completes the sync that is held back.
func (s *syncScript) letGo() { s.complete(s.takeHeld()) }

// first waits until the first sync runs.
func (s *syncScript) first(t *testing.T) {
	t.Helper()
	eventually(t, "the first sync", func() bool { return s.count() == 1 })
}

// callersWait waits until so many callers wait for the sync that has not started.
func callersWait(t *testing.T, f *File, count int) {
	t.Helper()
	eventually(t, fmt.Sprint(count, " callers wait"), func() bool {
		f.syncs.mu.Lock()
		defer f.syncs.mu.Unlock()
		return f.syncs.open != nil && f.syncs.open.waiters == count
	})
}

// pages returns a batch of two pages.
func pages(second int64) []Transfer { return []Transfer{{P: page()}, {P: page(), Off: second}} }

// syncAll calls 16 syncs of different kinds, the first one alone, and returns their errors.
func syncAll(t *testing.T, f *File, s *syncScript, first func() error) []error {
	calls := []func() error{f.Datasync, f.Sync,
		func() error { return f.SyncContext(t.Context()) },
		func() error { return f.WriteBatch(pages(pageSize)[:1], DataSync) },
		func() error { return f.WriteBatchContext(t.Context(), pages(1<<20), FullSync) },
	}
	errs := make([]error, 16)
	var all sync.WaitGroup
	all.Go(func() { errs[0] = first() })
	s.first(t)
	for i := 1; i < len(errs); i++ {
		all.Go(func() { errs[i] = calls[i%len(calls)]() })
	}
	callersWait(t, f, len(errs)-1)
	s.letGo()
	returns(t, "a sync", all.Wait)
	return errs
}

// The kernel reports a lost write once. Everyone who was waiting for a sync receives the error.
func TestErrorOfSyncReachesAllWhoWait(t *testing.T) {
	for _, kind := range []string{"sync", "commit"} {
		f, s := scriptSyncs(t, syscall.EIO)
		first := f.Sync
		if kind == "commit" {
			first = func() error { return f.WriteBatch(pages(pageSize)[:1], DataSync) }
		}
		for i, err := range syncAll(t, f, s, first) {
			wantError(t, fmt.Sprint(kind, ": call ", i), err, syscall.EIO)
		}
		n := s.count()
		expect(t, n == 2, "%s: 16 calls made %d syncs", kind, n)
		wantError(t, "the next sync", f.Sync(), nil)
	}
}

// The error of the second sync belongs to those who came after the first began.
func TestErrorOfQueuedSync(t *testing.T) {
	f, s := scriptSyncs(t, 0, syscall.ENOSPC)
	for i, err := range syncAll(t, f, s, f.Datasync) {
		expect(t, (i > 0) == errors.Is(err, syscall.ENOSPC), "call %d: %v", i, err)
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

// A round is fsync if one of its callers needs that, in whatever order they come.
func TestRoundDoesWhatAllCallersNeed(t *testing.T) {
	for _, c := range []struct {
		callers []opcode
		want    opcode
	}{
		{[]opcode{opFsync}, opFsync},
		{[]opcode{opFdatasync, opFdatasync}, opFdatasync},
		{[]opcode{opFdatasync, opFsync}, opFsync},
		{[]opcode{opFsync, opFdatasync}, opFsync},
	} {
		var s syncs
		var r *syncRound
		for i, op := range c.callers {
			var isFirst bool
			r, isFirst = s.join(op)
			expect(t, isFirst == (i == 0), "caller %d is the first: %v", i, isFirst)
		}
		op, wanted := s.start(r)
		expect(t, op == c.want && wanted, "%v: %v, %v", c.callers, opcodeName(op), wanted)
	}
}

// A caller who comes after the sync that failed has ended does not receive its error, also if
// others who waited meanwhile are about to.
func TestErrorOfSyncEndsWithThoseWhoWaited(t *testing.T) {
	e, s := scriptedEngine(t, Options{})
	s.onResult(isSync)
	f := openIn(t, e, make([]byte, pageSize), os.O_RDWR|Direct)
	var held []*request
	next := func() {
		eventually(t, "a sync", func() bool { held = s.takeHeld(); return len(held) > 0 })
	}
	failed := begin(t, "the sync that fails", f.Sync)
	next()
	waited := begin(t, "a sync of who waited", f.Sync)
	waitForCaller(t, f)
	held[0].result = -int32(syscall.EIO)
	s.complete(held)
	next()
	late := begin(t, "a later sync", f.Sync)
	waitForCaller(t, f)
	s.complete(held)
	next()
	s.complete(held)
	failed(syscall.EIO)
	waited(syscall.EIO)
	late(nil)
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
		case isSync(r) && r.chain == chained:
			r.result = -int32(syscall.ECANCELED)
		}
		return r.chain == chained
	})
	f := openIn(t, e, make([]byte, pageSize), os.O_RDWR|Direct)
	commit := begin(t, "the commit", func() error {
		return f.WriteBatch(pages(pageSize)[:1], DataSync)
	})
	var held []*request
	eventually(t, "the commit", func() bool {
		held = append(held, s.takeHeld()...)
		return len(held) == 2
	})
	synced := begin(t, "a sync", f.Sync)
	waitForCaller(t, f)
	s.complete(held)
	commit(syscall.ENOSPC)
	synced(nil)
}

// A caller whose context ends leaves the sync to the others. If all have left, the next sync has
// its error.
func TestContextLeavesTheSyncToOthers(t *testing.T) {
	reason := errors.New("enough")
	for _, others := range []int{0, 3} {
		f, s := scriptSyncs(t, syscall.EIO)
		ctx, cancel := context.WithCancelCause(t.Context())
		first := begin(t, "the first", func() error { return f.SyncContext(ctx) })
		s.first(t)
		// It waits for the second sync, which is not needed then.
		second := begin(t, "the second", func() error { return f.SyncContext(ctx) })
		callersWait(t, f, 1)
		var ends []func(error)
		for range others {
			ends = append(ends, begin(t, "another", f.Sync))
		}
		callersWait(t, f, 1+others)
		cancel(reason)
		first(reason)
		second(reason)
		s.letGo()
		for _, end := range ends {
			end(syscall.EIO)
		}
		if err := f.Datasync(); others == 0 || err != nil {
			wantError(t, "the next sync", err, syscall.EIO)
		}
		wantError(t, "the sync after it", f.Sync(), nil)
		n := s.count()
		expect(t, n <= 4, "%d syncs", n)
	}
}

// The sync of a batch fails after its caller has left. The next sync has the error.
func TestContextOfBatchKeepsTheErrorOfItsSync(t *testing.T) {
	for what, off := range map[string]int64{"range": pageSize, "scattered": 1 << 20} {
		f, s := scriptSyncs(t, syscall.EDQUOT)
		ctx, cancel := context.WithCancel(t.Context())
		batch := begin(t, what, func() error {
			return f.WriteBatchContext(ctx, pages(off), DataSync)
		})
		s.first(t)
		cancel()
		batch(context.Canceled)
		s.letGo()
		eventually(t, "the batch ends", func() bool { return f.refs.count.Load() == 0 })
		wantError(t, what, f.Sync(), syscall.EDQUOT)
		wantError(t, what+", again", f.Sync(), nil)
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
		wantError(t, "a sync", f.SyncContext(ctx), context.DeadlineExceeded)
		cancel()
	}
	eventually(t, "nobody waits", func() bool { return f.refs.count.Load() == 0 })
	e.syncs.drain(largestLane)
	check(t, f.Sync())
}

// An error that SyncRange has taken from the kernel is that of the next sync.
func TestErrorOfSyncRangeIsKept(t *testing.T) {
	f := openIn(t, newOrSkip(t, Options{}), make([]byte, 10_000), os.O_RDWR)
	check(t, f.SyncRange(0, 0, RangeWaitBefore|RangeWrite|RangeWaitAfter))
	wantError(t, "a negative offset", f.SyncRange(-1, 1, RangeWrite), syscall.EINVAL)
	wantError(t, "a negative length", f.SyncRange(0, -1, RangeWrite), syscall.EINVAL)
	wantError(t, "an unknown flag", f.SyncRange(0, 0, 64), syscall.EINVAL)
	wantError(t, "a refused SyncRange says nothing about the data", f.Sync(), nil)
	f.syncs.keep(syscall.EIO)
	wantError(t, "batch", f.WriteBatch([]Transfer{{P: []byte("x")}}, DataSync), syscall.EIO)
	check(t, f.Sync())
}

// A failed sync, or a failed write that a sync covers, is an error of the caller. A second attempt
// would succeed, because Linux reports a failure once, and the data would be lost. Only operations
// that the kernel did not do are done again: by the queue, and at last by a plain call. (It ends
// what a thread has submitted, for any goroutine, with EFAULT when the thread ends, and with
// ECANCELED if it may start no thread for it.)
func TestErrorsAreReportedOrRepeated(t *testing.T) {
	shapes := map[opcode][]string{ // The calls that make such an operation.
		opFdatasync: {"range", "scattered", "alone"},
		opFsync:     {"range", "scattered", "alone", "large"},
		opWrite:     {"scattered", "alone", "large"},
		opWritev:    {"range"},
		opRead:      {"read"},
	}
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EDQUOT,
		syscall.EINTR, syscall.EAGAIN, syscall.ECANCELED, syscall.EFAULT} {
		for op, all := range shapes {
			for _, shape := range all {
				for _, times := range []int{1, 100} {
					if times == 1 || notDone(errno) {
						t.Run(fmt.Sprint(opcodeName(op), " ", errno, " ", shape, " ", times),
							func(t *testing.T) { operationFails(t, shape, op, errno, times) })
					}
				}
			}
		}
	}
}

// operationFails makes a call, of whose operations so many end with an error.
func operationFails(t *testing.T, shape string, op opcode, errno syscall.Errno, times int) {
	e, s := scriptedEngine(t, Options{})
	content := numbered(1, 1, 1024)
	f := openIn(t, e, content, os.O_RDWR|Direct)
	failed, later, retried := 0, 0, notDone(errno)
	s.onResult(func(r *request) bool {
		switch {
		case r.opcode == op && failed < times:
			failed++
			r.result = -int32(errno)
		case failed > 0 && r.chain == unchained && isSync(r):
			later++
		}
		return false
	})
	end, sync := DataSync, f.Datasync
	if op == opFsync {
		end, sync = FullSync, f.Sync
	}
	var err error
	batch := pages(pageSize)
	switch shape {
	case "scattered":
		batch[1].Off = 1 << 20
		err = f.WriteBatch(batch, end)
	case "range":
		err = f.WriteBatch(batch, end)
	case "large":
		err = errors.Join(errorOf(f.WriteAt(alignedSlice(4<<20, pageSize), 0)), f.Sync())
	case "alone":
		err = errors.Join(errorOf(f.WriteAt(batch[0].P, 0)), sync())
	case "read":
		_, err = f.ReadAt(batch[0].P, pageSize)
		expect(t, !retried || bytes.Equal(batch[0].P, content[pageSize:][:pageSize]), "other bytes")
	}
	require(t, failed != 0, "there was no such operation")
	if retried && err != nil || !retried && !errors.Is(err, errno) {
		t.Errorf("%v (and %d syncs after it)", err, later)
	}
	// A signal is no attempt. (A batch makes several operations, or others after the first.)
	if retried && shape != "range" && shape != "scattered" && errno != syscall.EINTR {
		expect(t, failed == min(times, maxRetries+1), "%d attempts", failed)
	}
	if (shape == "scattered" || shape == "range") && !retried {
		expect(t, later == 0, "a sync after the failure")
		if op.isTransfer() {
			wantError(t, "a transfer of the batch", firstError(batch), errno)
		}
	}
}

// A batch that is one range is one submission together with its sync, also if it has one transfer.
// After the engine is closed, it fails.
func TestCommitIsOneSubmission(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendURing, Rings: 1})
	var f *File
	for _, direct := range []int{Direct, 0} {
		f = openIn(t, e, nil, os.O_RDWR|direct)
		batch, before := pages(pageSize)[:1], e.Stats().Pushed
		must(t, f.WriteBatch(batch, DataSync))
		allWritten(t, batch)
		if n := e.Stats().Pushed - before; direct != 0 && n != 2 || direct == 0 && n != 0 {
			t.Errorf("%d operations went to the ring", n)
		}
	}
	closeAll(t, e)
	batch := pages(pageSize)
	wantError(t, "closed", f.WriteBatch(batch, NoSync), ErrEngineClosed)
	expect(t, batch[0].N == 0, "%v", batch[0].N)
}

// takesOne is a ring whose kernel takes one request alone, and then the others, as one that is
// short of memory may.
type takesOne struct{ *uring }

func (q takesOne) submit() bool {
	pushed := q.ring.Withdraw() // The last one first.
	for i, r := range slices.Backward(pushed) {
		if q.ring.Push(r) != nil {
			panic("there was room for it")
		}
		if i == len(pushed)-1 {
			_, _ = q.ring.Submit()
		}
	}
	return q.uring.submit()
}

// The kernel takes the write of a commit, and then the sync behind it on its own. Such a sync may
// run before the write does: its success is not the commit's, and its error is not lost.
func TestSyncThatTheKernelTakesAloneDoesNotCount(t *testing.T) {
	for _, c := range []struct {
		write, sync syscall.Errno
		want, next  error // Of the commit, and of the next sync.
		later       int   // Further syncs of the commit.
	}{
		{later: 1},
		{sync: syscall.EIO, want: syscall.EIO},
		{write: syscall.EAGAIN, later: 1},
		{write: syscall.EAGAIN, sync: syscall.EIO, want: syscall.EIO, later: 1},
		{write: syscall.ENOSPC, want: syscall.ENOSPC},
		{write: syscall.ENOSPC, sync: syscall.EIO, want: syscall.ENOSPC, next: syscall.EIO},
		{write: syscall.ENOSPC, sync: syscall.ECANCELED, want: syscall.ENOSPC},
	} {
		s := new(scripted)
		e := newOrSkip(t, Options{Backend: BackendURing, Rings: 1, AlwaysRing: true,
			wrap: func(q queue) queue {
				s.queue = takesOne{q.(*uring)}
				return s
			}})
		broken, later := 0, 0
		s.onResult(func(r *request) (hold bool) {
			switch {
			case r.opcode == opWritev && c.write != 0:
				r.result = -int32(c.write)
			case r.chain == brokenChain:
				broken++
				if c.sync != 0 {
					r.result = -int32(c.sync)
				}
			case isSync(r):
				later++
			}
			return false
		})
		f := openIn(t, e, make([]byte, 2*pageSize), os.O_RDWR|Direct)
		batch := pages(pageSize)
		err := f.WriteBatch(batch, DataSync)
		what := fmt.Sprint(c.write, ", ", c.sync)
		wantError(t, what, err, c.want)
		expect(t, broken == 1 && later == c.later, "%s: %d chains were broken, then %d syncs", what,
			broken, later)
		if c.write == syscall.ENOSPC {
			wantError(t, what+": the batch", firstError(batch), c.want)
		} else {
			allWritten(t, batch)
		}
		wantError(t, what+": the next sync", f.Sync(), c.next)
		wantError(t, what+": the sync after it", f.Sync(), nil)
	}
}

// A signal must not end a sync of a file system that may report lost data with EINTR.
func TestNoSignalInterruptsACall(t *testing.T) {
	blocked := func() (mask uint64) {
		status, err := os.ReadFile("/proc/thread-self/status")
		require(t, err == nil, "%v", err)
		_, rest, _ := strings.Cut(string(status), "SigBlk:")
		must(t, errorOf(fmt.Sscanf(rest, "%x", &mask)))
		return mask
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := blocked()
	var during uint64
	call := func() error { during = blocked(); return syscall.EIO }
	err := withoutSignals(call)
	require(t, err == syscall.EIO, "%v", err)
	const always = 1<<(syscall.SIGKILL-1) | 1<<(syscall.SIGSTOP-1)
	require(t, during|always == ^uint64(0) && blocked() == before,
		"blocked before %x, during the call %x, now %x", before, during, blocked())
}
