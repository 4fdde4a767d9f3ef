// Syncs. Linux reports an error of writeback once for each open file, to whatever sync asks first.
// So the syncs of a File share: one runs, one is queued for all callers who came later, and an
// error belongs to everyone who was waiting.

package ringway

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"syscall"
)

// syncs is the syncs of a File.
type syncs struct {
	mu   sync.Mutex
	busy bool       // A round has a goroutine, or a commit syncs.
	open *syncRound // The round that callers join: it has not started.
	lost error      // From the kernel, and not reported by a sync yet.
	// ranges is held for reading by SyncRange, which takes the kernel's report as a sync does.
	ranges sync.RWMutex
}

// syncRound is one sync, and the callers who wait for it.
type syncRound struct {
	full    bool // fsync, because one of the callers needs that.
	waiters int
	giveUp  context.CancelFunc // Ends the wait for admission; nil if nobody may end it.
	ended   bool
	err     error
	done    chan struct{} // Closed when the round has ended.
}

// sync makes the file durable, together with the syncs of other callers. It is repeated only if the
// kernel did not do it (EAGAIN and ECANCELED of a queue, and EINTR of a file system that is known
// not to report lost data so). If the context ends, the sync continues.
func (f *File) sync(ctx context.Context, op opcode) error {
	r, isFirst := f.syncs.join(op)
	switch {
	case isFirst && ctx.Done() == nil:
		f.runRound(background, r)
	case isFirst:
		f.startRound(r)
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return f.syncs.leave(ctx, r)
	}
}

// join adds a caller to the round that has not started. If isFirst, the caller has to run it.
func (s *syncs) join(op opcode) (r *syncRound, isFirst bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = &syncRound{done: make(chan struct{})}
	}
	r = s.open
	r.waiters++
	r.full = r.full || op == opFsync
	isFirst = !s.busy
	s.busy = true
	return r, isFirst
}

// leave removes a caller whose context has ended. A round without callers does not start.
func (s *syncs) leave(ctx context.Context, r *syncRound) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.ended {
		return r.err
	}
	if r.waiters--; r.waiters == 0 && s.open == r {
		s.open = nil
		if r.giveUp != nil {
			r.giveUp()
		}
	}
	return causeOf(ctx)
}

// startRound runs a round in a goroutine. The caller holds the file open, and is busy for it.
func (f *File) startRound(r *syncRound) {
	ctx, giveUp := context.WithCancel(background)
	s := &f.syncs
	s.mu.Lock()
	r.giveUp = giveUp
	if s.open != r { // All callers have left.
		giveUp()
	}
	s.mu.Unlock()
	f.refs.retain()
	go func() {
		defer f.end()
		defer giveUp()
		f.runRound(ctx, r)
	}()
}

// runRound runs a round, and starts the next one if callers wait for it.
func (f *File) runRound(ctx context.Context, r *syncRound) {
	done, err := false, error(nil)
	if f.queuesSyncs() {
		if op, wanted := f.syncs.start(r); wanted {
			f.syncs.ranges.Lock()
			done, err = f.queuedSync(background, op)
			f.syncs.ranges.Unlock()
		}
	}
	if !done {
		err = f.plainSync(ctx, r)
	}
	f.startNext(f.syncs.end(r, err))
}

// plainSync is the sync of a round by a blocking system call, when the number of those allows.
func (f *File) plainSync(ctx context.Context, r *syncRound) error {
	if err := f.engine.syncs.begin(ctx); err != nil {
		return err
	}
	defer f.engine.syncs.end()
	op, wanted := f.syncs.start(r)
	if !wanted {
		return nil
	}
	f.syncs.ranges.Lock()
	defer f.syncs.ranges.Unlock()
	return f.fsync(op)
}

func (f *File) startNext(r *syncRound) {
	if r != nil {
		f.startRound(r)
	}
}

// start ends the time in which callers join a round, and returns its operation. A round that all of
// them have left is not wanted.
func (s *syncs) start(r *syncRound) (op opcode, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == r {
		s.open = nil
	}
	if op = opFdatasync; r.full {
		op = opFsync
	}
	return op, r.waiters > 0
}

// end gives a round its result, and returns the round to run next, or nil. An error also belongs to
// the callers who wait for the next round: the data may be theirs.
func (s *syncs) end(r *syncRound, err error) (next *syncRound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == r {
		s.open = nil
	}
	err = s.report(err, r.waiters > 0)
	// What it inherited ends here. Otherwise, an error would last as long as callers keep coming.
	r.err = cmp.Or(err, r.err)
	r.ended = true
	close(r.done)
	return s.next(err)
}

// next returns the round to run next, or nil. It inherits an error of the kernel. The lock is held.
func (s *syncs) next(err error) *syncRound {
	s.busy = s.open != nil
	if s.open != nil && fromKernel(err) {
		s.open.err = err
	}
	return s.open
}

// report returns the result of a sync: its own error, or one that no sync has reported yet. Without
// a caller it keeps the error for the next sync. The lock is held.
func (s *syncs) report(err error, hasCaller bool) error {
	switch {
	case !hasCaller:
		if fromKernel(err) {
			s.lost = err
		}
	case err == nil || fromKernel(err):
		err = cmp.Or(err, s.lost)
		s.lost = nil
	}
	return err
}

// keep keeps an error of the kernel for the next sync.
func (s *syncs) keep(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fromKernel(err) {
		s.lost = err
	}
}

// beginCommit reports whether a commit may sync by itself: no other sync runs or waits. The caller
// then calls endCommit.
func (s *syncs) beginCommit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy || !s.ranges.TryLock() {
		return false
	}
	s.busy = true
	return true
}

// endCommit returns the round to run next, or nil, and the result of a commit whose sync ended with
// err. The error of a sync that did not run (ECANCELED, after a write that failed) is no result.
//
//lint:ignore U1000 Systems without rings do not use it.
func (s *syncs) endCommit(ran bool, err error) (next *syncRound, result error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ranges.Unlock()
	if ran {
		result = s.report(err, true)
	}
	return s.next(result), result
}

// fromKernel reports whether an error of a sync may be that of the data. Another sync would not
// report it again.
func fromKernel(err error) bool {
	var ended *endedError
	return err != nil && !errors.As(err, &ended) && err != ErrEngineClosed
}

// RangeSync is what [File.SyncRange] does with the dirty pages of a range, as for
// sync_file_range(2). The values can be combined.
type RangeSync int

// The parts of a SyncRange, in their order.
const (
	RangeWaitBefore RangeSync = 1 // Wait for writes of these pages that have started before.
	RangeWrite      RangeSync = 2 // Start to write the pages.
	RangeWaitAfter  RangeSync = 4 // Wait for the writes.
)

// SyncRange starts to write a range of the file to the device, or waits for that, as
// sync_file_range(2) does. It makes nothing durable: neither the metadata that is needed to find
// the data nor the cache of the device is written. A length of 0 means up to the end of the file.
//
// Linux reports an error of writeback once. One that SyncRange returns is also returned by the next
// sync of the File. On systems without rings SyncRange fails with [errors.ErrUnsupported].
func (f *File) SyncRange(off, n int64, what RangeSync) error {
	return f.use("sync", func() error {
		if err := f.engine.syncs.begin(background); err != nil {
			return err
		}
		defer f.engine.syncs.end()
		f.syncs.ranges.RLock()
		defer f.syncs.ranges.RUnlock()
		err := f.syncRange(off, n, what)
		if err != nil && !isRefusal(err) {
			f.syncs.keep(err)
		}
		return err
	})
}

// isRefusal reports whether the kernel refused a SyncRange, and looked at no data. (A missing
// permission is none: a server may have refused data with it that it had accepted before.)
func isRefusal(err error) bool {
	for _, refusal := range []error{errors.ErrUnsupported, syscall.EINVAL, syscall.EBADF,
		syscall.ESPIPE} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}
