//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Engines over queues that tests control: scripts, and injected faults.

package ringway

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// testBackends are those that tests run on.
var testBackends = []Backend{BackendURing, BackendKAIO, BackendThreads}

// isOpen reports whether a descriptor is open.
func isOpen(fd int) bool {
	_, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	return errno == 0
}

// wake makes a combiner reap.
func (s *shard) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again = true
	s.combine()
}

// scripted is a queue whose results a test changes, holds back or swallows.
type scripted struct {
	queue
	shard *shard
	count atomic.Int64 // Operations.
	new   int          // Operations since the last submission. Only the combiner uses it.

	mu       sync.Mutex
	pushed   func(*request) (swallow bool)
	finished func(*request) (hold bool)
	gate     chan struct{} // If it is not nil, submissions of operations wait for it.
	held     []*request    // Until release.
	late     []*request    // Held before; the next reap returns them.
}

// set changes or reads the script.
func (s *scripted) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// onPush sets a function that sees each request before the queue does. If it returns true, the
// queue does not receive the request.
func (s *scripted) onPush(pushed func(*request) (swallow bool)) {
	s.set(func() { s.pushed = pushed })
}

// onResult sets a function that sees each completed request. If it returns true, the result is held
// back.
func (s *scripted) onResult(finished func(*request) (hold bool)) {
	s.set(func() { s.finished = finished })
}

// holdResults holds back all results until release.
func (s *scripted) holdResults() { s.onResult(func(*request) bool { return true }) }

// setGate makes submissions of operations wait until the channel is closed; nil ends that.
func (s *scripted) setGate(gate chan struct{}) { s.set(func() { s.gate = gate }) }

func (s *scripted) push(r *request) {
	s.count.Add(int64(r.count()))
	s.new++
	var pushed func(*request) bool
	s.set(func() { pushed = s.pushed })
	if pushed != nil && pushed(r) {
		return
	}
	s.queue.push(r)
}

func (s *scripted) submit() bool {
	var gate chan struct{}
	s.set(func() { gate = s.gate })
	if gate != nil && s.new > 0 {
		<-gate
	}
	s.new = 0
	return s.queue.submit()
}

func (s *scripted) reap(done []*request) []*request {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.queue.reap(nil) {
		if s.finished != nil && s.finished(r) {
			s.held = append(s.held, r)
			continue
		}
		done = append(done, r)
	}
	if s.finished == nil {
		done = append(done, s.held...)
		s.held = nil
	}
	done = append(done, s.late...)
	s.late = nil
	return done
}

// complete completes requests that were held back or swallowed.
func (s *scripted) complete(all []*request) {
	s.set(func() { s.late = append(s.late, all...) })
	s.wake()
}

// takeHeld removes the results that are held back.
func (s *scripted) takeHeld() (held []*request) {
	s.set(func() { held, s.held = s.held, nil })
	return held
}

func (s *scripted) wake() {
	if s.shard != nil {
		s.shard.wake()
	}
}

// release completes what is held back, and ends the script of results.
func (s *scripted) release() {
	s.onResult(nil)
	s.wake()
}

// scriptedEngine makes an engine with one ring or Linux AIO context below a script. With the
// backend threads there is none.
func scriptedEngine(t *testing.T, o Options) (*Engine, *scripted) {
	t.Helper()
	s := new(scripted)
	o.Rings, o.AlwaysRing = 1, true
	o.wrap = func(q queue) queue {
		s.queue = q
		return s
	}
	if o.Backend == "" {
		o.Backend = BackendURing
	}
	e := newOrSkip(t, o)
	if e.backend != BackendThreads {
		s.shard = e.shards[0]
	}
	return e, s
}

// blockingPipe returns a pipe that Go's poller does not know.
func blockingPipe(t *testing.T, e *Engine) (*File, *os.File) {
	t.Helper()
	var fds [2]int
	must(t, syscall.Pipe2(fds[:], syscall.O_CLOEXEC))
	f := get(e.NewFile(os.NewFile(uintptr(fds[0]), "reading")))(t)
	w := os.NewFile(uintptr(fds[1]), "writing")
	t.Cleanup(func() { w.Close() })
	return f, w
}

// faultQueue wraps a queue and injects what a kernel does on bad days: short transfers, signals,
// shortages, errors, and results that arrive late or in another order. Only the combiner uses it.
type faultQueue struct {
	queue
	random *rand.Rand
	rates  faultRates
	counts *faultCounts
	shard  *shard
	held   []heldResult
	waking atomic.Bool // A timer that wakes the shard is running.
}

// faultRates has the rate of each fault: one in so many operations. 0 means never.
type faultRates struct {
	short      int // Transfers of at least two pages are cut in half.
	unsent     int // A submission is not accepted at first.
	retryable  int // EINTR, EAGAIN, ECANCELED or EFAULT, of anything but a sync.
	failed     int // EIO; EDQUOT of a sync, so that failures of syncs can be counted.
	late       int // The result arrives after some rounds; one in eight of these after 500.
	lateRounds int
}

// faultCounts counts the faults of all queues of an engine.
type faultCounts struct{ short, unsent, retryable, late, failed, syncs atomic.Int64 }

func (c *faultCounts) String() string {
	return fmt.Sprintf("%d short, %d unsent, %d retryable, %d late, %d failed, %d of them syncs",
		c.short.Load(), c.unsent.Load(), c.retryable.Load(), c.late.Load(), c.failed.Load(),
		c.syncs.Load())
}

func (c *faultCounts) total() int64 {
	return c.short.Load() + c.unsent.Load() + c.retryable.Load() + c.late.Load() + c.failed.Load()
}

// heldResult is a result that arrives after some rounds.
type heldResult struct {
	r      *request
	rounds int
}

// faultyEngine makes an engine whose queues inject faults.
func faultyEngine(o Options, rates faultRates, seed uint64) (*Engine, *faultCounts, error) {
	counts := new(faultCounts)
	var queues []*faultQueue
	o.AlwaysRing = true
	o.wrap = func(inner queue) queue {
		random := rand.New(rand.NewPCG(uint64(len(queues)), seed))
		q := &faultQueue{queue: inner, random: random, rates: rates, counts: counts}
		queues = append(queues, q)
		return q
	}
	e, err := New(o)
	if err == nil {
		for i, s := range e.shards {
			queues[i].shard = s
		}
	}
	return e, counts, err
}

func (q *faultQueue) hits(rate int) bool { return rate > 0 && q.random.IntN(rate) == 0 }

func (q *faultQueue) push(r *request) {
	if len(r.p) >= 2*pageSize && q.hits(q.rates.short) {
		q.counts.short.Add(1)
		r.p = r.p[:len(r.p)/2&^(pageSize-1)]
	}
	q.queue.push(r)
}

func (q *faultQueue) submit() bool {
	ok := q.queue.submit()
	if q.hits(q.rates.unsent) {
		q.counts.unsent.Add(1)
		return false
	}
	return ok
}

func (q *faultQueue) reap(done []*request) []*request {
	all := q.queue.reap(nil)
	q.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	waiting := q.held[:0]
	for _, h := range q.held {
		if h.rounds--; h.rounds > 0 {
			waiting = append(waiting, h)
		} else {
			done = append(done, h.r)
		}
	}
	q.held = waiting
	for _, r := range all {
		if r.result != unsupported {
			q.disturb(r)
			if q.hits(q.rates.late) {
				rounds := 1 + q.random.IntN(q.rates.lateRounds)
				if q.rates.lateRounds > 1 && q.hits(8) {
					rounds = 500
				}
				q.counts.late.Add(1)
				q.held = append(q.held, heldResult{r, rounds})
				continue
			}
		}
		done = append(done, r)
	}
	if len(q.held) > 0 && !q.waking.Swap(true) {
		time.AfterFunc(100*time.Microsecond, func() { // As a late completion of the kernel would.
			q.waking.Store(false)
			q.shard.wake()
		})
	}
	return done
}

// disturb changes a result. The operation was done in any case, which is worse than if it was not.
func (q *faultQueue) disturb(r *request) {
	switch sync := r.opcode == opFsync || r.opcode == opFdatasync; {
	case r.linked() != nil:
	case !sync && q.hits(q.rates.retryable):
		q.counts.retryable.Add(1)
		errnos := []syscall.Errno{syscall.EINTR, syscall.EAGAIN, syscall.ECANCELED, syscall.EFAULT}
		r.result = -int32(errnos[q.random.IntN(len(errnos))])
	case r.result >= 0 && q.hits(q.rates.failed):
		q.counts.failed.Add(1)
		if r.result = -int32(syscall.EIO); sync {
			q.counts.syncs.Add(1)
			r.result = -int32(syscall.EDQUOT)
		}
	}
}

// begin calls do in a goroutine. The function that it returns waits for the result, and fails the
// test if that is another one.
func begin(t testing.TB, what string, do func() error) (end func(want error)) {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return func(want error) {
		t.Helper()
		returns(t, what, func() { wantError(t, what, <-done, want) })
	}
}

// page returns an aligned page.
func page() []byte { return alignedSlice(pageSize, pageSize) }

// setLargestRequest replaces the size of the device's largest request.
func setLargestRequest(f *File, n int) {
	f.directLimits()
	f.facts.largest = n
}

// numbered returns blocks of a page, each with its number, and the numbers of its writer and round.
func numbered(writer, round, blocks int) []byte {
	p := alignedSlice(blocks*pageSize, pageSize)
	for i := range blocks {
		for _, at := range []int{0, pageSize - 12} {
			b := p[i*pageSize+at:]
			binary.LittleEndian.PutUint32(b, uint32(writer))
			binary.LittleEndian.PutUint32(b[4:], uint32(round))
			binary.LittleEndian.PutUint32(b[8:], uint32(i))
		}
	}
	return p
}

func opcodeName(op opcode) string {
	return [...]string{"read", "write", "writev", "fsync", "fdatasync"}[op]
}

// fillLanes leaves no slot for a plain call, until drainLanes.
func (e *Engine) fillLanes() {
	e.calls.fill()
	e.syncs.fill()
}

func (e *Engine) drainLanes() {
	e.calls.drain(largestLane)
	e.syncs.drain(largestLane)
}
