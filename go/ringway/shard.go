//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// How goroutines share a queue.

import (
	"errors"
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
	// submit gives the kernel what was pushed; false: it wants completions to be reaped first. light: this is as short as a
	// copy, and the Go scheduler need not be told of the system call.
	submit(light bool) bool
	// reap appends what is done.
	reap([]*request) []*request
	// why the kernel did not take requests; 0 if it took all.
	why() syscall.Errno
	// ready is told that the descriptor was readable.
	ready(fd uintptr)
	// close ends what is in flight, for a bounded time, and leaks what the kernel does not let go of.
	close() error
}

// faults are injected by tests, around a queue.
type faults = func(queue) queue

// shard is a queue that goroutines share.
//
// They put requests into its front, under a lock that is held for some tens of nanoseconds. If it is time to submit, one
// goes through the turnstile and has the queue to itself: it submits what waits, reaps what is done, and wakes whoever
// waited for that. Who finds the turnstile taken goes on; who has it goes round again. Nobody waits for anybody who is in
// the kernel.
type shard struct {
	queue  queue
	reaper *readable.Watch
	crowd  crowd
	_      [64]byte // What is read without the lock, and seldom written, shares no cache line with the lock.

	mu        sync.Mutex
	wait      requestList // Those that wait.
	kernel    []*request  // Those that the queue has, each at its place in it.
	waiting   int         // Operations among those that wait: a request with a linked one is two.
	cancels   []*request  // To be asked for.
	pace      pace
	room      int           // What the queue takes before the next submission, as of the last round.
	promised  bool          // The reaper has woken goroutines, and comes back after they have run.
	expected  int           // How many those are: they will have more to submit.
	turnstile bool          // Somebody is in it.
	again     bool          // Whoever is in it is to go round once more, and reap.
	flush     bool          // Submit whatever waits, however little it is.
	closing   bool          // Takes no more requests.
	left      chan struct{} // Told, while closing, whenever somebody leaves the turnstile.
	closed    bool          // The queue is not touched any more.
	timer     *time.Timer   // Runs while requests wait, and then calls look.
	timed     bool          // It runs.
	moved     bool          // Something has completed since the last look.
	still     int           // Looks since something has completed.
	stuck     bool          // There is no room, and nothing completes: requests are refused.
	stats     Stats

	taken, done []*request // Of whoever is in the turnstile.
}

// newShard takes over the queue. fd is readable when there is something to reap.
func newShard(q queue, fd, inFlight int) (*shard, error) {
	s := &shard{queue: q, pace: pace{cap: inFlight}, room: q.room(), left: make(chan struct{}, 1)}
	s.timer = time.AfterFunc(time.Hour, s.look)
	s.timer.Stop()
	var err error
	s.reaper, err = readable.Start(fd, s.reap)
	return s, err
}

// submit puts requests into the front, in their order, and takes them to the kernel if it is time. Their waiters are told of
// the completions. whole: this is a group by itself, which does not wait for others. False: the shard takes no more.
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
	s.crowd.seen(s.pace.inFlight + s.waiting)
	if s.stuck {
		s.refuse()
		return true
	}
	s.flush = s.flush || whole
	s.turn()
	return true
}

// refuse ends all that wait: their goroutines make plain calls. The lock is held, and free when it returns.
func (s *shard) refuse() {
	refused := s.unlinkAll()
	s.mu.Unlock()
	for _, r := range refused {
		r.end(cannotCarry)
	}
}

// unlinkAll takes out all that wait. Somebody has to end them. The lock is held.
func (s *shard) unlinkAll() (all []*request) {
	for r := s.wait.first; r != nil; r = s.wait.first {
		s.stats.Delivered += uint64(r.count())
		s.unlink(r)
		all = append(all, r)
	}
	return all
}

func (s *shard) enqueue(r *request) {
	r.place = waiting
	s.wait.add(r)
	s.waiting += r.count()
}

// requestList is in order.
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
	s.wait.remove(r)
	r.place = idle
	s.waiting -= r.count()
}

// due tells whether somebody should go through the turnstile. A queue that is full is no reason: it has room again with its
// completions, and the reaper hears of those.
func (s *shard) due() bool {
	if s.closed {
		return false // Somebody was in the turnstile for as long as closing may take.
	}
	ready := min(s.waiting, s.room)
	return s.again || len(s.cancels) > 0 || s.flush && ready > 0 && s.pace.room() > 0 || s.pace.due(ready, s.expected)
}

// maxRounds and maxMoved bound what one goroutine does for the others: rounds, and operations that it submits or reaps in them,
// some 200 us. A goroutine of the shard's own goes on from there.
const (
	maxRounds = 16
	maxMoved  = 256
)

// turn goes through the turnstile if it is time and nobody is in it. The lock is held when it is called, and free when it
// returns.
func (s *shard) turn() {
	if !s.turnstile && !s.closed {
		s.turnstile = true
		if s.rounds() {
			go s.takeOver()
		} else {
			s.leave()
		}
	}
	s.watch()
	s.mu.Unlock()
}

const (
	// lookEvery is for how long requests are held back at most while nothing completes. Where something does, the next look is
	// busyLook later.
	lookEvery = time.Millisecond
	busyLook  = 10 * time.Millisecond
	// stuckLooks without a completion, and requests do not wait for room any more.
	stuckLooks = int(stuckAfter / lookEvery)
)

// watch has somebody look at those that wait, in a while: what is in flight may never complete. The lock is held.
func (s *shard) watch() {
	if s.waiting > 0 && !s.timed && !s.closed {
		s.timed, s.moved, s.still = true, false, 0
		s.timer.Reset(lookEvery)
	}
}

// look reaps and submits what waits if nothing has been reaped for a while: the reaper may wait for a processor, among very
// many goroutines. What even then waits has no room, or somebody is in the kernel with the turnstile: after some time that is
// done by plain calls.
func (s *shard) look() {
	s.mu.Lock()
	if s.timed = s.waiting > 0 && !s.closed; !s.timed {
		s.mu.Unlock()
		return
	}
	if s.moved {
		s.moved, s.still = false, 0
		s.timer.Reset(busyLook)
		s.mu.Unlock()
		return
	}
	if s.still++; s.still > stuckLooks {
		s.timed, s.stuck = false, true
		s.refuse()
		return
	}
	s.flush, s.again = true, true
	s.timer.Reset(lookEvery)
	s.turn()
}

// rounds makes rounds while they are due, and no more than the bounds; true: the next one is due. The lock is held.
func (s *shard) rounds() bool {
	for moved, n := 0, 0; n < maxRounds && moved < maxMoved; n++ {
		if !s.due() {
			return false
		}
		moved += s.round()
	}
	return s.due()
}

// takeOver makes the rounds that are left, for a goroutine that has made as many as it should. The turnstile is its own.
func (s *shard) takeOver() {
	s.mu.Lock()
	for s.rounds() {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	s.leave()
	s.watch()
	s.mu.Unlock()
}

// leave is the way out of the turnstile. The lock is held.
func (s *shard) leave() {
	s.turnstile = false
	if s.closing {
		select {
		case s.left <- struct{}{}:
		default:
		}
	}
}

// round submits a group and reaps, and answers how many operations those were. The lock is held, but for the time in between.
func (s *shard) round() (moved int) {
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
	moved = count + len(done)
	if !submitted && len(done) == 0 {
		time.Sleep(100 * time.Microsecond) // The kernel is short of something, and has nothing to give back.
		moved = maxMoved                   // Who waits for that is not to be the one who happens to be here.
	}
	room := s.queue.room()

	s.mu.Lock()
	if s.closed {
		return moved // All that the queue has was abandoned meanwhile.
	}
	s.room = room
	s.pace.completed(len(done))
	s.moved = s.moved || len(done) > 0
	s.stuck = s.stuck && len(done) == 0 && min(s.pace.room(), s.room) == 0
	for _, r := range done {
		s.uncarry(r)
	}
	finished, retries := sift(done)
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
	s.crowd.round()
	s.mu.Unlock()

	for _, r := range finished {
		r.waiter.one()
	}
	clear(done)
	s.done = done[:0]
	s.mu.Lock()
	return moved
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
	room := min(s.pace.room(), s.room)
	bytes := 0
	light = true
	for r := s.wait.first; r != nil && count < room; r = s.wait.first {
		need := r.count()
		if count+need > room && count > 0 {
			break
		}
		count += need
		s.unlink(r)
		s.carry(r)
		if linked := r.linked(); linked != nil {
			s.carry(linked)
		}
		taken = append(taken, r)
		bytes += r.bytes()
		light = light && (r.kind == read || r.kind == write)
	}
	return taken, count, light && bytes <= lightBytes
}

// carry counts a request among those that the queue has.
func (s *shard) carry(r *request) {
	r.place, r.slot = carried, int32(len(s.kernel))
	s.kernel = append(s.kernel, r)
}

// uncarry has the last of them take its place.
func (s *shard) uncarry(r *request) {
	last := len(s.kernel) - 1
	s.kernel[r.slot] = s.kernel[last]
	s.kernel[r.slot].slot = r.slot
	s.kernel[last] = nil
	s.kernel = s.kernel[:last]
	r.place = idle
}

// patience is how often EAGAIN is tried again, before the goroutine does it by a plain call.
const patience = 8

// retry tells whether the kernel has not done it, and the request goes once more: because of a signal, a shortage, or the
// end of the thread that submitted it, which cancels what it had in flight. Any other errno is final, a sync's above all.
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

func (s *shard) snapshot() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.InFlight, stats.Waiting = s.pace.inFlight, s.waiting
	return stats
}

// close ends the shard. Those that wait are told ECANCELED. What the queue has may complete until the deadline, and is
// cancelled some time before; what is left then is abandoned.
func (s *shard) close(deadline time.Time, before time.Duration) error {
	s.mu.Lock()
	s.closing = true
	refused := s.unlinkAll()
	s.mu.Unlock()
	for _, r := range refused {
		r.end(-int32(syscall.ECANCELED))
	}
	if !s.quiet(deadline.Add(-before)) {
		s.cancelAll()
		if !s.quiet(deadline) {
			s.abandon()
			return errAbandoned
		}
	}
	return s.end()
}

var errAbandoned = errors.New("ringway: the engine was closed with operations in flight, whose memory is leaked")

// quiet waits until the queue has nothing and nobody is in the turnstile, and closes that; false: not in time.
func (s *shard) quiet(until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for {
		s.mu.Lock()
		if !s.turnstile && s.pace.inFlight == 0 && s.waiting == 0 {
			s.closed, s.turnstile = true, true
			s.mu.Unlock()
			return true
		}
		s.mu.Unlock()
		select {
		case <-s.left:
		case <-timer.C:
			return false
		}
	}
}

// cancelAll asks for an early end of all that the queue has, and does not wait for the kernel to hear of it.
func (s *shard) cancelAll() {
	s.mu.Lock()
	for _, r := range s.kernel {
		r.cancelled.Store(true)
		s.cancels = append(s.cancels, r)
	}
	s.mu.Unlock()
	go func() {
		s.mu.Lock()
		s.turn()
	}()
}

// abandon tells all that are left that nobody waits for the kernel any more. The queue is closed as soon as it can be: the
// kernel, or whoever is in the turnstile, may take as long as they like.
func (s *shard) abandon() {
	s.mu.Lock()
	s.closed = true
	given := s.kernel
	s.kernel = nil
	for _, r := range given {
		r.place = abandoned
	}
	refused := s.unlinkAll() // Those that were to go once more.
	s.stats.Delivered += uint64(s.pace.inFlight)
	s.pace.inFlight = 0
	s.mu.Unlock()
	for _, r := range given {
		r.waiter.one()
	}
	for _, r := range refused {
		r.end(-int32(syscall.ECANCELED))
	}
	go func() {
		s.mu.Lock()
		for s.turnstile {
			s.mu.Unlock()
			<-s.left
			s.mu.Lock()
		}
		s.turnstile = true
		s.mu.Unlock()
		_ = s.end()
	}()
}

// end closes the queue. The turnstile is closed.
func (s *shard) end() error {
	s.reaper.Close()
	return s.queue.close()
}
