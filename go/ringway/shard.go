//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Shards: how goroutines share a queue through a combining lock.

package ringway

import (
	"errors"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/internal/readable"
)

// shard is a queue that goroutines share.
//
// Goroutines append requests to a submission queue, under a mutex that is held for some tens of
// nanoseconds. When it is time to submit, one of them becomes the combiner: it has the backend to
// itself, submits what is pending, reaps what is complete, and wakes the goroutines that wait for
// it. A goroutine that finds a combiner at work continues; the combiner checks again before it
// stops. Nobody waits for a goroutine that is in the kernel.
type shard struct {
	queue  queue
	reaper *readable.Watch
	load   load
	_      [64]byte // Fields that are read without the lock share no cache line with it.

	mu           sync.Mutex
	pending      requestList   // The submission queue.
	waiting      int           // Operations in it: a request with a linked one counts twice.
	devices      deviceQueues  // Requests that wait for room in their devices, before that.
	inQueue      []*request    // What the backend has. A request's slot is its index here.
	cancels      []*request    // To be passed to the backend.
	pace         pace          // When to submit.
	capacity     int           // What the backend accepts before the next submission.
	reaperActive bool          // The reaper has woken goroutines, and runs again after them.
	expected     int           // How many it has woken: they will have more to submit.
	combining    bool          // There is a combiner.
	again        bool          // The combiner has to make another round, and reap.
	flush        bool          // Submit whatever is pending, however little.
	closing      bool          // The shard accepts no more requests.
	combinerLeft chan struct{} // Receives a value, while closing, when a combiner stops.
	closed       bool          // The backend is not used any more.
	timer        *time.Timer   // Calls check while requests are pending.
	timed        bool          // The timer runs.
	progress     bool          // A request has completed since the last check.
	idleChecks   int           // Checks since a request completed.
	hung         bool          // No capacity, and nothing completes: requests are refused.
	counts       Stats

	taken, done []*request    // Scratch memory of the combiner.
	pause       time.Duration // Of the combiner, before it submits again.
}

// newShard makes a shard, which owns the queue. fd is readable when there are completions.
func newShard(q queue, fd, inFlight int) (*shard, error) {
	s := &shard{
		queue: q, pace: pace{limit: inFlight}, capacity: q.capacity(),
		combinerLeft: make(chan struct{}, 1),
	}
	s.timer = time.AfterFunc(time.Hour, s.check)
	s.timer.Stop()
	var err error
	s.reaper, err = readable.Start(fd, s.reap)
	return s, err
}

// submit appends requests to the submission queue, in order, and submits them if it is time.
// group means that the requests are a group, which does not wait for others. submit returns false
// if the shard accepts no more requests.
func (s *shard) submit(group bool, all ...*request) bool {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return false
	}
	for _, r := range all {
		s.counts.Pushed += uint64(r.count())
		s.enqueue(r)
	}
	s.load.observe(s.pace.inFlight + s.waiting + s.devices.held)
	var refused []*request
	if s.hung {
		refused = s.dequeueAll()
	} else {
		s.flush = s.flush || group
		s.combine()
	}
	s.mu.Unlock()
	completeAll(refused, unsupported)
	return true
}

// completeAll gives requests that the queue does not have a result. If it is unsupported, their
// goroutines make plain calls. The lock is not held.
func completeAll(all []*request, result int32) {
	for _, r := range all {
		r.complete(result)
	}
}

// dequeueAll removes all requests that the queue does not have. The caller has to complete them.
// The lock is held.
func (s *shard) dequeueAll() (all []*request) {
	all = s.takeHeld(true)
	for r := s.pending.first; r != nil; r = s.pending.first {
		s.counts.Delivered += uint64(r.count())
		s.dequeue(r)
		s.release(r)
		all = append(all, r)
	}
	return all
}

// takeHeld removes requests that wait for devices: for those that complete nothing, or all. The
// caller has to complete them. The lock is held.
func (s *shard) takeHeld(everything bool) []*request {
	if s.devices.held == 0 {
		return nil
	}
	all := s.devices.takeHeld(time.Now(), everything)
	for _, r := range all {
		s.counts.Delivered += uint64(r.count())
	}
	return all
}

// release makes room in the device of a request that has left the queue.
func (s *shard) release(r *request) {
	if next := s.devices.release(r); next != nil {
		s.append(next)
		s.flush = true
	}
}

// enqueue appends a request to the submission queue as soon as its device has room.
func (s *shard) enqueue(r *request) {
	if s.devices.admit(r) {
		s.append(r)
	}
}

func (s *shard) append(r *request) {
	r.state = statePending
	s.pending.add(r)
	s.waiting += r.count()
}

func (s *shard) dequeue(r *request) {
	s.pending.remove(r)
	r.state = stateIdle
	s.waiting -= r.count()
}

// requestList is a list of requests in order.
type requestList struct{ first, last *request }

func (l *requestList) add(r *request) {
	r.prev, r.next = l.last, nil
	if l.last == nil {
		l.first = r
	} else {
		l.last.next = r
	}
	l.last = r
}

func (l *requestList) remove(r *request) {
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
}

// cancel asks for an early end of a request. The request completes in any case.
func (s *shard) cancel(r *request) {
	r.canceled.Store(true)
	s.mu.Lock()
	waits := r.state == statePending || r.state == stateHeld
	switch r.state {
	case stateHeld:
		s.devices.remove(r)
	case statePending:
		s.dequeue(r)
		s.release(r)
	case stateQueued:
		s.cancels = append(s.cancels, r)
	}
	if waits {
		s.counts.Delivered += uint64(r.count())
	}
	if waits || r.state == stateQueued {
		s.combine()
	}
	s.mu.Unlock()
	if waits {
		r.complete(-int32(syscall.ECANCELED))
	}
}

// due reports whether a round is due. A full queue is not a reason: it has capacity again after
// completions, of which the reaper learns.
func (s *shard) due() bool {
	if s.closed {
		return false // A combiner was at work for longer than closing may take.
	}
	ready := min(s.waiting, s.capacity)
	return s.again || len(s.cancels) > 0 ||
		s.flush && ready > 0 && s.pace.capacity() > 0 || s.pace.due(ready, s.expected)
}

// maxRounds and maxMoved bound what a combiner does for other goroutines: rounds, and operations
// that it submits or reaps in them, about 200 us. A goroutine of the shard takes over from there.
const (
	maxRounds = 16
	maxMoved  = 256
)

// combine becomes the combiner if a round is due and there is none. The lock is held, and released
// during the rounds.
func (s *shard) combine() {
	if !s.combining && !s.closed {
		s.combining = true
		if s.rounds() {
			go s.takeOver()
		} else {
			s.stopCombining()
		}
	}
	s.startTimer()
}

const (
	// checkInterval is how long requests are held back at most while nothing completes. If
	// something completes, the next check is busyCheckInterval later.
	checkInterval     = time.Millisecond
	busyCheckInterval = 10 * time.Millisecond
	// hungChecks without a completion, and requests no longer wait for capacity.
	hungChecks = int(hungAfter / checkInterval)
)

// startTimer schedules a check of the pending requests, because what is in flight may never
// complete. The lock is held.
func (s *shard) startTimer() {
	if s.waiting+s.devices.held > 0 && !s.timed && !s.closed {
		s.timed, s.progress, s.idleChecks = true, false, 0
		s.timer.Reset(checkInterval)
	}
}

// check reaps, and submits what is pending, if nothing was reaped for a while: with very many
// goroutines, the reaper may wait for a processor. Requests that are pending even then have no
// capacity, or the combiner hangs in the kernel. After a while plain calls do them.
func (s *shard) check() {
	s.mu.Lock()
	refused := s.checkPending()
	s.mu.Unlock()
	completeAll(refused, unsupported)
}

// checkPending is check with the lock held. It returns the requests that plain calls have to do.
func (s *shard) checkPending() (refused []*request) {
	if s.timed = s.waiting+s.devices.held > 0 && !s.closed; !s.timed {
		return nil
	}
	if hung := s.takeHeld(false); len(hung) > 0 {
		s.timer.Reset(checkInterval)
		return hung
	}
	if s.progress {
		s.progress, s.idleChecks = false, 0
		s.timer.Reset(busyCheckInterval)
		return nil
	}
	if s.waiting == 0 { // A device has no room. The queue does not hang.
		s.again = true
		s.timer.Reset(busyCheckInterval)
		s.combine()
		return nil
	}
	if s.idleChecks++; s.idleChecks > hungChecks {
		s.timed, s.hung = false, true
		return s.dequeueAll()
	}
	s.flush, s.again = true, true
	s.timer.Reset(checkInterval)
	s.combine()
	return nil
}

// rounds makes rounds while they are due, within the bounds. It reports whether another one is
// due. The lock is held.
func (s *shard) rounds() (more bool) {
	for moved, n := 0, 0; n < maxRounds && moved < maxMoved; n++ {
		if !s.due() {
			return false
		}
		moved += s.round()
	}
	return s.due()
}

// takeOver continues the rounds of a combiner that has reached its bounds. It is the combiner now.
func (s *shard) takeOver() {
	s.mu.Lock()
	for s.rounds() {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	s.stopCombining()
	s.startTimer()
	s.mu.Unlock()
}

// stopCombining is called with the lock held.
func (s *shard) stopCombining() {
	s.combining = false
	if s.closing {
		select {
		case s.combinerLeft <- struct{}{}:
		default:
		}
	}
}

// round submits a group and reaps. It returns the number of operations that it moved. The lock is
// held on entry and on return, and released while the round uses the queue or wakes goroutines.
func (s *shard) round() (moved int) {
	s.again = false
	taken, count := s.take()
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
	submitted := s.queue.submit()
	done := s.queue.reap(s.done[:0])
	moved = count + len(done)
	if !submitted && len(done) == 0 {
		// The kernel is short of something, and has nothing to return. A goroutine of the shard,
		// not this one, waits for that.
		s.pause = min(max(2*s.pause, 100*time.Microsecond), 5*time.Millisecond)
		time.Sleep(s.pause)
		moved = maxMoved
	} else {
		s.pause = 0
	}
	capacity := s.queue.capacity()

	s.mu.Lock()
	if s.closed {
		return moved // Everything in the queue was abandoned in the meantime.
	}
	s.capacity = capacity
	s.pace.completed(len(done))
	s.progress = s.progress || len(done) > 0
	s.hung = s.hung && len(done) == 0 && min(s.pace.capacity(), s.capacity) == 0
	for _, r := range done {
		s.leaveQueue(r)
		s.release(r)
	}
	finished, retries := partition(done)
	s.counts.Submissions++
	s.counts.Retries += uint64(len(retries))
	s.counts.Delivered += uint64(len(finished))
	if s.reaperActive {
		s.expected += len(finished) // Before they run.
	}
	s.again = s.again || !submitted
	for _, r := range retries {
		s.enqueue(r)
		s.flush = true
	}
	s.load.endRound()
	s.mu.Unlock()

	for _, r := range finished {
		r.waiter.completeOne()
	}
	clear(done)
	s.done = done[:0]
	s.mu.Lock()
	return moved
}

// partition separates finished requests from those to retry.
func partition(done []*request) (finished, retries []*request) {
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

// take removes a group from the submission queue, as much as there is capacity for. count includes
// linked requests.
func (s *shard) take() (taken []*request, count int) {
	taken = s.taken[:0]
	capacity := min(s.pace.capacity(), s.capacity)
	for r := s.pending.first; r != nil && count < capacity; r = s.pending.first {
		need := r.count()
		if count+need > capacity && count > 0 {
			break
		}
		count += need
		s.dequeue(r)
		s.enterQueue(r)
		if linked := r.linked(); linked != nil {
			s.enterQueue(linked)
		}
		taken = append(taken, r)
	}
	return taken, count
}

func (s *shard) enterQueue(r *request) {
	r.state, r.slot = stateQueued, int32(len(s.inQueue))
	s.inQueue = append(s.inQueue, r)
}

// leaveQueue moves the last request to the free slot.
func (s *shard) leaveQueue(r *request) {
	last := len(s.inQueue) - 1
	s.inQueue[r.slot] = s.inQueue[last]
	s.inQueue[r.slot].slot = r.slot
	s.inQueue[last] = nil
	s.inQueue = s.inQueue[:last]
	r.state = stateIdle
}

// reap is called by the reaper, a goroutine of internal/readable, when the queue's descriptor
// became readable. It returns true if it must not be called again.
func (s *shard) reap(fd uintptr) (last bool) {
	s.queue.readable(fd)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return true
	}
	s.again = true
	if s.combining {
		return false // The combiner reaps once more.
	}
	s.reaperActive = true
	s.combine()
	// The goroutines that were just woken run first, and have more to submit. What they leave
	// pending is submitted now.
	s.mu.Unlock()
	runtime.Gosched()
	s.mu.Lock()
	s.reaperActive, s.expected = false, 0
	s.flush = s.flush || s.waiting > 0
	s.combine()
	return false
}

func (s *shard) snapshot() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.counts
	stats.InFlight, stats.Waiting = s.pace.inFlight, s.waiting+s.devices.held
	return stats
}

// close closes the shard. Pending requests complete with ECANCELED. What the queue has may complete
// until the deadline, and is canceled before that; what is left at the deadline is abandoned.
func (s *shard) close(deadline time.Time, before time.Duration) error {
	s.mu.Lock()
	s.closing = true
	refused := s.dequeueAll()
	s.mu.Unlock()
	completeAll(refused, -int32(syscall.ECANCELED))
	if !s.waitIdle(deadline.Add(-before)) {
		s.cancelAll()
		if !s.waitIdle(deadline) {
			s.abandon()
			return errLeaked
		}
	}
	return s.closeQueue()
}

var errLeaked = errors.New(
	"ringway: the engine was closed with operations in flight; their memory is leaked")

// waitIdle waits until the queue is empty and there is no combiner, and then prevents further
// combiners. It returns false if that takes longer than until.
func (s *shard) waitIdle(until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for {
		s.mu.Lock()
		if !s.combining && s.pace.inFlight == 0 && s.waiting+s.devices.held == 0 {
			s.closed, s.combining = true, true
			s.mu.Unlock()
			return true
		}
		s.mu.Unlock()
		select {
		case <-s.combinerLeft:
		case <-timer.C:
			return false
		}
	}
}

// cancelAll cancels everything that the queue has. It does not wait for the kernel.
func (s *shard) cancelAll() {
	s.mu.Lock()
	for _, r := range s.inQueue {
		r.canceled.Store(true)
		s.cancels = append(s.cancels, r)
	}
	s.mu.Unlock()
	go func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.combine()
	}()
}

// abandon wakes everyone who still waits for the kernel. The queue is closed as soon as there is no
// combiner; the kernel, or a combiner in it, may take any time.
func (s *shard) abandon() {
	s.mu.Lock()
	s.closed = true
	left := s.inQueue
	s.inQueue = nil
	for _, r := range left {
		r.state = stateAbandoned
	}
	refused := s.dequeueAll() // Retries.
	s.counts.Delivered += uint64(s.pace.inFlight)
	s.pace.inFlight = 0
	s.mu.Unlock()
	for _, r := range left {
		r.waiter.completeOne()
	}
	completeAll(refused, -int32(syscall.ECANCELED))
	go func() {
		s.mu.Lock()
		for s.combining {
			s.mu.Unlock()
			<-s.combinerLeft
			s.mu.Lock()
		}
		s.combining = true
		s.mu.Unlock()
		_ = s.closeQueue()
	}()
}

// closeQueue closes the queue. There is no combiner, and there will be none.
func (s *shard) closeQueue() error {
	s.reaper.Close()
	return s.queue.close()
}
