//go:build linux

package ringway

import (
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/internal/readable"
)

// queue is a backend: how requests reach the kernel. One goroutine at a time uses it, the one in the turnstile.
type queue interface {
	// room is how many can be pushed before the next submission.
	room() int
	// push takes a request, and keeps it and all that it points to until it is reaped.
	push(*request)
	// cancel asks for an early end of a request that was pushed, if it is still there.
	cancel(*request)
	// submit gives the kernel what was pushed; false: it wants completions to be reaped first. light: little to do.
	submit(light bool) bool
	// reap appends what is done.
	reap([]*request) []*request
	// why requests were refused without the kernel's having them; 0 if none were.
	why() syscall.Errno
	// ready is told that the descriptor was readable.
	ready(fd uintptr)
	close() error
}

// shard is a queue that goroutines share.
//
// They put requests into its front, under a lock that is held for some tens of nanoseconds. If it is time to submit, one
// goes through the turnstile and has the queue to itself: it submits what waits, reaps what is done, and wakes whoever
// waited for that. Who finds the turnstile taken goes on; who has it goes round again. Nobody waits for anybody who is in
// the kernel.
type shard struct {
	queue  queue
	reaper *readable.Watch

	mu          sync.Mutex
	first, last *request // Those that wait.
	waiting     int
	cancels     []*request
	pace        pace
	expected    int  // Goroutines that the reaper has woken and comes after.
	promised    bool // The reaper reaps, and comes back.
	turnstile   bool // Taken.
	again       bool // Word was left: who has the turnstile is to reap once more.
	flush       bool // And to submit whatever waits.
	closing     bool // Takes no more.
	closed      bool // Has no queue any more.
	stats       Stats

	taken, done []*request // These belong to who has the turnstile.
}

// newShard takes over the queue. fd is readable when there is something to reap.
func newShard(q queue, fd, inFlight int) (*shard, error) {
	s := &shard{queue: q, pace: pace{cap: inFlight}}
	var err error
	s.reaper, err = readable.Start(fd, s.reap)
	return s, err
}

// submit puts requests into the front, in their order, and takes them to the kernel if it is time. Their waiters are told.
// whole: no more of its kind are to come for now, so that it waits for no others. False: the shard is closed.
func (s *shard) submit(whole bool, all ...*request) bool {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return false
	}
	for _, r := range all {
		s.stats.Pushed += uint64(r.count())
		s.enqueue(r)
	}
	s.flush = s.flush || whole
	s.turn()
	return true
}

func (s *shard) enqueue(r *request) {
	r.place, r.prev, r.next = waiting, s.last, nil
	if s.last == nil {
		s.first = r
	} else {
		s.last.next = r
	}
	s.last = r
	s.waiting += r.count()
}

// cancel asks for an early end of a request. It has one in any case, and its waiter is told.
func (s *shard) cancel(r *request) {
	r.cancelled.Store(true)
	s.mu.Lock()
	switch r.place {
	case waiting:
		s.unlink(r)
		s.stats.Delivered += uint64(r.count())
		s.mu.Unlock()
		r.end(-int32(syscall.ECANCELED))
	case carried:
		s.cancels = append(s.cancels, r)
		s.turn()
	default:
		s.mu.Unlock()
	}
}

// unlink takes a request out of those that wait.
func (s *shard) unlink(r *request) {
	if r.prev == nil {
		s.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		s.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next, r.place = nil, nil, idle
	s.waiting -= r.count()
}

// due tells whether somebody should go through the turnstile.
func (s *shard) due() bool {
	return s.again || len(s.cancels) > 0 || s.flush && s.waiting > 0 && s.pace.room() > 0 ||
		s.pace.due(s.waiting, s.expected)
}

// turn goes through the turnstile if it is time and it is free. The lock is held, and is not afterwards.
func (s *shard) turn() {
	if !s.turnstile && !s.closed {
		s.turnstile = true
		for s.due() {
			s.round()
		}
		s.turnstile = false
	}
	s.mu.Unlock()
}

// round submits a group and reaps. The lock is held, but for the time in between.
func (s *shard) round() {
	s.again = false
	taken, count, light := s.take()
	s.pace.submitted(count)
	s.flush = s.flush && s.waiting > 0
	cancels := s.cancels
	s.cancels = nil
	s.mu.Unlock()

	for i, r := range taken {
		s.queue.push(r)
		taken[i] = nil
	}
	s.taken = taken
	for _, r := range cancels {
		s.queue.cancel(r)
	}
	submitted := s.queue.submit(light)
	done := s.queue.reap(s.done[:0])
	if !submitted && len(done) == 0 {
		time.Sleep(100 * time.Microsecond) // The kernel is short of something, and has nothing to give back.
	}
	over := len(done)
	finished, retries := sift(done)

	s.mu.Lock()
	s.pace.completed(over)
	s.stats.Submissions++
	s.stats.Retries += uint64(len(retries))
	s.stats.Delivered += uint64(len(finished))
	if s.promised {
		s.expected += len(finished) // Before they run.
	}
	s.again = s.again || !submitted
	for _, r := range retries {
		s.enqueue(r)
		s.flush = true
	}
	s.mu.Unlock()

	for _, r := range finished {
		r.waiter.one()
	}
	clear(done)
	s.done = done[:0]
	s.mu.Lock()
}

// sift puts those that go once more behind those that are finished.
func sift(done []*request) (finished, retries []*request) {
	n := len(done)
	for i := 0; i < n; {
		if done[i].retry() {
			n--
			done[i], done[n] = done[n], done[i]
		} else {
			i++
		}
	}
	return done[:n], done[n:]
}

// lightBytes is how much may be copied in one submission without telling the scheduler: no more than a goroutine might
// copy by itself at once.
const lightBytes = 256 << 10

// take is a group, as much as there is room for; how many requests that is with those linked, and whether they are light.
func (s *shard) take() (taken []*request, count int, light bool) {
	taken = s.taken[:0]
	room := min(s.pace.room(), s.queue.room())
	bytes := 0
	light = true
	for r := s.first; r != nil && count < room; r = s.first {
		need := r.count()
		if count+need > room && count > 0 {
			break
		}
		count += need
		s.unlink(r)
		r.place = carried
		taken = append(taken, r)
		bytes += r.bytes()
		light = light && (r.kind == read || r.kind == write)
	}
	return taken, count, light && bytes <= lightBytes
}

// patience is how often a request is tried again that the kernel will not do without blocking.
const patience = 8

// retry tells whether the kernel's answer is none, and the request goes once more. Nobody asked for these: a signal, a
// shortage, or the end of the thread that submitted.
func (r *request) retry() bool {
	if r.result >= 0 || r.chained || r.cancelled.Load() {
		return false
	}
	switch errnoOf(r.result) {
	case syscall.EAGAIN:
		if r.tries++; r.tries <= patience {
			return true
		}
		r.result = cannotCarry
	case syscall.EINTR, syscall.ECANCELED:
		return true
	}
	return false
}

// end gives a request a result without a backend.
func (r *request) end(result int32) {
	r.result = result
	if linked := r.linked(); linked != nil {
		linked.end(result)
	}
	r.waiter.one()
}

// reap is called when the queue's descriptor tells of completions; true: there will be no more.
func (s *shard) reap(fd uintptr) bool {
	s.queue.ready(fd)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return true
	}
	s.again = true
	if s.turnstile {
		s.mu.Unlock() // Who has it reaps once more.
		return false
	}
	s.promised = true
	s.turn()
	// After those that were just woken, which have more to submit: what they leave is taken along.
	runtime.Gosched()
	s.mu.Lock()
	s.promised, s.expected = false, 0
	s.flush = s.flush || s.waiting > 0
	s.turn()
	return false
}

// Stats are counts since the engine was made.
type Stats struct {
	// Pushed are operations that were given to a ring or a KAIO context; plain system calls are not counted. Delivered are
	// those of them whose goroutines have the answer. At any moment Pushed = Delivered + InFlight + Waiting.
	Pushed, Delivered uint64
	// InFlight is what the kernel has now; Waiting what waits for room or for a group.
	InFlight, Waiting int
	// Submissions are rounds that gave the kernel a group of operations, or picked completions up.
	Submissions uint64
	// Retries of operations that the kernel had not done (EINTR, EAGAIN, the end of a thread).
	Retries uint64
}

func (s *shard) snapshot() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.InFlight, stats.Waiting = s.pace.inFlight, s.waiting
	return stats
}

// close ends the shard. Those that wait are told ECANCELED; what the kernel has is waited for, at most for closeWait.
func (s *shard) close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil
	}
	s.closing = true
	var refused []*request
	for s.first != nil {
		refused = append(refused, s.first)
		s.stats.Delivered += uint64(s.first.count())
		s.unlink(s.first)
	}
	s.mu.Unlock()
	for _, r := range refused {
		r.end(-int32(syscall.ECANCELED))
	}
	deadline := time.Now().Add(closeWait)
	for {
		s.mu.Lock()
		free := !s.turnstile
		idle := s.pace.inFlight == 0 && s.waiting == 0
		if free && (idle || time.Now().After(deadline)) {
			s.closed, s.turnstile = true, true
			s.mu.Unlock()
			break
		}
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	s.reaper.Close()
	return s.queue.close()
}

// closeWait is how long closing an engine waits for what is in flight.
const closeWait = 5 * time.Second
