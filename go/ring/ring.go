//go:build linux

// The two queues: push, submit, wait, reap, and an end that never frees what the kernel still holds.

package ring

import (
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

var (
	// ErrFull is the error of a push for which the submission queue has no room. Submit, and push again.
	ErrFull = errors.New("ring: the submission queue is full")
	// ErrInFlight is the error of a push of a request that was pushed before and has not completed.
	ErrInFlight = errors.New("ring: the request is in flight")
	// ErrReap is the error of a submission that the kernel does not take before completions have been reaped (EBUSY, EAGAIN).
	// What it did not take stays in the queue. Reap, and submit again.
	ErrReap = errors.New("ring: completions must be reaped first")
	// ErrTimeout is the error of a wait whose time was up before the completions came.
	ErrTimeout = os.ErrDeadlineExceeded
	// ErrClosed is the error of everything asked of a ring that was closed.
	ErrClosed = os.ErrClosed
)

// closeWait is how long Close waits for what is in flight.
const closeWait = 5 * time.Second

// Ring is an io_uring instance: a submission queue and a completion queue, shared with the kernel. [New] makes one, and it
// has to be closed. It is for one goroutine at a time, without a lock of its own.
type Ring struct {
	fd             int
	params         params
	rings, entries []byte // The mappings; all pointers below go into them.

	sqHead, sqTail, sqFlags    *uint32
	cqHead, cqTail, cqOverflow *uint32
	sqes                       []sqe
	cqes                       []cqe
	sqMask, cqMask             uint32

	// tail is ours of the submission queue, ahead of what the kernel was told; head is ours of the completion queue.
	// Both wrap around at 2^32: only differences of them mean anything.
	tail, head uint32

	slots    []slot
	free     []uint32
	inFlight int

	arg      geteventsArg // Of the wait under way: on the heap, since the kernel reads it.
	wait     timespec
	kernel   func(submit, wait, flags uint32, arg *geteventsArg) (int, syscall.Errno)
	buffers  []fixed
	groups   []*BufferRing
	refusals []*Refusal

	closeWait time.Duration
	brief     bool
	closed    bool
}

// slot keeps a request in flight reachable. A completion finds it by its place and generation.
type slot struct {
	request    *Request
	generation uint32
}

// Completion is the answer to a request, or one of several.
type Completion struct {
	// Request is the one that was pushed, nil for a message of another ring ([Request.MsgRing]). It is the program's again
	// unless [Completion.More] says that more is to come.
	Request *Request
	// Result is what the system call of the same name returns, with minus the errno where that failed.
	Result int32
	// Flags of the completion: FlagMore, FlagBuffer and so on.
	Flags uint32
}

// Err is the [syscall.Errno] of the completion, or nil.
func (c Completion) Err() error {
	if c.Result < 0 {
		return syscall.Errno(-c.Result)
	}
	return nil
}

// More reports whether the same request completes again. The next completion may have been reaped already, in the same batch.
func (c Completion) More() bool { return c.Flags&FlagMore != 0 }

// Push puts a request into the submission queue; the kernel gets it with the next [Ring.Submit] or [Ring.SubmitAndWait]. It does not
// block. If it fails nothing is taken: [ErrFull], [ErrInFlight], [ErrClosed], or EINVAL for a request that no kernel could be
// told of, with a zero byte in a path, say.
func (r *Ring) Push(q *Request) error {
	switch {
	case r.closed:
		return ErrClosed
	case q.InFlight():
		return ErrInFlight
	case q.invalid:
		return syscall.EINVAL
	case r.SpaceLeft() == 0:
		return ErrFull
	}
	var place uint32
	if n := len(r.free); n > 0 {
		place = r.free[n-1]
		r.free = r.free[:n-1]
	} else {
		place = uint32(len(r.slots))
		r.slots = append(r.slots, slot{})
	}
	s := &r.slots[place]
	s.request = q
	q.ring = r
	q.userData = uint64(s.generation)<<32 | uint64(place)
	q.pin()
	entry := &r.sqes[r.tail&r.sqMask]
	*entry = q.sqe
	entry.userData = q.userData
	if q.other != nil {
		entry.addr = q.other.name(r)
	}
	r.tail++
	r.inFlight++
	return nil
}

// SpaceLeft is how many requests can be pushed before the next submission. It is 0 for a ring that was closed.
func (r *Ring) SpaceLeft() int {
	if r.closed {
		return 0
	}
	return int(r.params.sqEntries - (r.tail - atomic.LoadUint32(r.sqHead)))
}

// InFlight is how many requests have been pushed and have not had their last completion reaped.
func (r *Ring) InFlight() int { return r.inFlight }

// Pending is how many requests have been pushed and not yet been taken by the kernel.
func (r *Ring) Pending() int {
	if r.closed {
		return 0
	}
	return int(r.tail - atomic.LoadUint32(r.sqHead))
}

// SubmitRaw is Submit for work that takes the kernel some microseconds, such as a few small transfers. Go's scheduler is
// not told of the system call, which costs less; but until it returns, the scheduler cannot give this processor to another
// goroutine.
func (r *Ring) SubmitRaw() (int, error) {
	r.brief = true
	n, err := r.enter(0, 0)
	r.brief = false
	return n, err
}

// Submit gives the kernel what was pushed and does not wait for completions. It returns how many requests the kernel took;
// it stops early behind one that it finds wrong, and the rest goes with the next call. The error is [ErrReap], [ErrClosed] or
// an errno, and then none was taken.
//
// A submission can take as long as the kernel's attempt at the operations: a buffered read that is cached is done here. With
// [Options.SQPoll] it only wakes the kernel's thread if that sleeps, and returns how many are there to be taken; if the queue
// is full it blocks until one has been.
func (r *Ring) Submit() (int, error) { return r.enter(0, 0) }

// SubmitAndWait submits what was pushed, and blocks until that many completions can be reaped, for at most the timeout; a negative one
// is for ever. It returns how many requests the kernel took. No more completions are waited for than the completion queue
// holds; to wait for more than are to come never ends.
//
// The error is [ErrTimeout] if the completions did not come in time, or one of [Ring.Submit]. The thread is blocked in the
// kernel, and Go's scheduler goes on with another; to wait in Go's own poller watch [Ring.Fd].
func (r *Ring) SubmitAndWait(completions int, timeout time.Duration) (int, error) {
	deadline := time.Now().Add(timeout)
	completions = min(completions, int(r.params.cqEntries))
	submitted := 0
	for {
		want := completions - r.Ready()
		var n int
		var err error
		if want > 0 && timeout >= 0 && r.params.features&featExtArg == 0 {
			n, err = r.poll(timeout)
		} else {
			n, err = r.enter(max(want, 0), timeout)
		}
		submitted += n
		if want <= 0 || err != nil || r.Ready() >= completions {
			return submitted, err
		}
		if timeout >= 0 {
			if timeout = time.Until(deadline); timeout <= 0 {
				return submitted, ErrTimeout
			}
		}
	}
}

// poll is a wait with a timeout where the kernel has none for io_uring_enter (before 5.11): on the ring's descriptor, for one
// completion, or in small steps for several.
func (r *Ring) poll(timeout time.Duration) (int, error) {
	n, err := r.enter(0, 0)
	if err != nil {
		return n, err
	}
	if r.Ready() > 0 {
		time.Sleep(min(timeout, time.Millisecond))
		return n, nil
	}
	const in = 1
	descriptor := struct {
		fd              int32
		events, revents int16
	}{int32(r.fd), in, 0}
	span := syscall.NsecToTimespec(int64(timeout))
	_, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&descriptor)), 1, uintptr(unsafe.Pointer(&span)), 0, 0, 0)
	if errno != 0 && errno != syscall.EINTR {
		return n, errno
	}
	return n, nil
}

// Ready is how many completions lie in the completion queue. [Ring.Reap] may find more, if the kernel holds some back.
func (r *Ring) Ready() int {
	if r.closed {
		return 0
	}
	return int(atomic.LoadUint32(r.cqTail) - r.head)
}

// enter is one io_uring_enter that went through, or its error.
func (r *Ring) enter(want int, timeout time.Duration) (int, error) {
	if r.closed {
		return 0, ErrClosed
	}
	atomic.StoreUint32(r.sqTail, r.tail)
	submit := r.tail - atomic.LoadUint32(r.sqHead)
	var flags uint32
	if r.params.flags&setupSQPoll != 0 {
		taken := int(submit)
		if atomic.LoadUint32(r.sqFlags)&sqNeedWakeup != 0 {
			flags |= enterSQWakeup
		}
		if r.SpaceLeft() == 0 && !r.brief {
			flags |= enterSQWait
		}
		if want == 0 && flags == 0 && !r.mustEnter() {
			return taken, nil
		}
	}
	if want > 0 || r.mustEnter() || r.params.flags&setupIOPoll != 0 {
		flags |= enterGetEvents
	}
	if submit == 0 && flags == 0 {
		return 0, nil
	}
	var arg *geteventsArg
	if want > 0 && timeout >= 0 {
		r.wait = timespec{int64(timeout / time.Second), int64(timeout % time.Second)}
		r.arg = geteventsArg{ts: uint64(uintptr(unsafe.Pointer(&r.wait)))}
		arg = &r.arg
		flags |= enterExtArg
	}
	for {
		n, errno := r.kernel(submit, uint32(want), flags, arg)
		switch errno {
		case 0:
			if flags&enterSQWait != 0 && r.SpaceLeft() == 0 {
				continue // A signal ended the wait for room.
			}
			return n, nil
		case syscall.EINTR:
			if want > 0 && timeout >= 0 {
				return 0, nil // The caller knows how long is left.
			}
		case syscall.ETIME:
			return 0, ErrTimeout
		case syscall.EAGAIN, syscall.EBUSY:
			return 0, ErrReap
		default:
			return 0, errno
		}
	}
}

// enterKernel is the system call.
func (r *Ring) enterKernel(submit, wait, flags uint32, arg *geteventsArg) (int, syscall.Errno) {
	var size uintptr
	if arg != nil {
		size = unsafe.Sizeof(*arg)
	}
	if r.brief {
		n, _, errno := syscall.RawSyscall6(sysEnter, uintptr(r.fd), uintptr(submit), uintptr(wait), uintptr(flags),
			uintptr(unsafe.Pointer(arg)), size)
		return int(n), errno
	}
	n, _, errno := syscall.Syscall6(sysEnter, uintptr(r.fd), uintptr(submit), uintptr(wait), uintptr(flags),
		uintptr(unsafe.Pointer(arg)), size)
	return int(n), errno
}

// mustEnter reports whether the kernel holds completions back until it is entered.
func (r *Ring) mustEnter() bool {
	return atomic.LoadUint32(r.sqFlags)&(sqCQOverflow|sqTaskrun) != 0
}

// Reap takes completions out of the queue, as many as are there and as done has room for, and returns how many. It does not
// wait. It enters the kernel only if that holds completions back: those that did not fit into the queue, and those that it
// posts when it is entered ([Options.CoopTaskrun], [Options.DeferTaskrun]). It submits nothing.
func (r *Ring) Reap(done []Completion) int {
	n := r.reap(done)
	for n < len(done) && !r.closed && r.mustEnter() {
		// Nothing is submitted: a chain may be half pushed.
		if _, errno := r.kernel(0, 0, enterGetEvents, nil); errno != 0 && errno != syscall.EINTR && errno != syscall.EBUSY {
			break
		}
		more := r.reap(done[n:])
		if more == 0 {
			break
		}
		n += more
	}
	return n
}

func (r *Ring) reap(done []Completion) int {
	if r.closed {
		return 0
	}
	n := 0
	tail := atomic.LoadUint32(r.cqTail)
	for ; n < len(done) && r.head != tail; r.head++ {
		c := r.cqes[r.head&r.cqMask]
		place, generation := uint32(c.userData), uint32(c.userData>>32)
		if place == message {
			done[n] = Completion{nil, c.res, c.flags}
			n++
			continue
		}
		if int(place) >= len(r.slots) || r.slots[place].generation != generation || r.slots[place].request == nil {
			continue
		}
		s := &r.slots[place]
		done[n] = Completion{s.request, c.res, c.flags}
		n++
		if c.flags&FlagMore == 0 {
			r.vacate(place)
		}
	}
	atomic.StoreUint32(r.cqHead, r.head)
	return n
}

// Overflow is how many completions the kernel has lost because the queue was full. Kernel 5.5 and newer loses none: they wait,
// and [Ring.Reap] fetches them.
func (r *Ring) Overflow() uint32 {
	if r.closed {
		return 0
	}
	return atomic.LoadUint32(r.cqOverflow)
}

// Fd is the ring's descriptor, which is readable when completions are there: to be watched by poll(2) or Go's poller. It
// belongs to the ring; -1 after Close.
func (r *Ring) Fd() int { return r.fd }

// Close takes back what was pushed and not submitted, cancels what is in flight, waits until the kernel has let go of it, for
// at most five seconds, and closes the ring. Completions that nobody has reaped are lost; a descriptor that one of them has
// as its result is closed, since nobody will.
//
// If the kernel does not let go of everything, the memory of those requests stays pinned for ever, and an error says so.
func (r *Ring) Close() error {
	if r.closed {
		return ErrClosed
	}
	r.Withdraw()
	stuck := r.quiesce()
	r.closed = true
	rings.remove(r)
	if stuck > 0 {
		// The ring goes as well: nothing that the kernel may still write to is unmapped.
		leaked.add(r)
		_ = syscall.Close(r.fd)
		r.fd = -1
		return errors.New("ring: closed with operations in flight, whose memory is leaked")
	}
	for _, g := range slices.Clone(r.groups) {
		_ = g.unmap()
	}
	r.unmap()
	err := syscall.Close(r.fd)
	r.fd = -1
	r.unpinBuffers()
	return os.NewSyscallError("close", err)
}

// Withdraw takes back what was pushed and the kernel has not taken, and returns it, the last pushed first. These requests
// have no completion and are the program's again.
func (r *Ring) Withdraw() []*Request {
	if r.closed {
		return nil
	}
	told := atomic.LoadUint32(r.sqHead)
	if r.params.flags&setupSQPoll != 0 {
		told = *r.sqTail // The kernel takes those by itself.
	}
	var back []*Request
	for r.tail != told {
		r.tail--
		place := uint32(r.sqes[r.tail&r.sqMask].userData)
		back = append(back, r.slots[place].request)
		r.vacate(place)
	}
	return back
}

// vacate is the end of a request's flight.
func (r *Ring) vacate(place uint32) {
	s := &r.slots[place]
	s.request.release()
	s.request = nil
	s.generation++
	r.free = append(r.free, place)
	r.inFlight--
}

// quiesce cancels everything; how many requests would not go.
func (r *Ring) quiesce() int {
	var done [32]Completion
	deadline := time.Now().Add(r.closeWait)
	var asked time.Time
	now := true
	for {
		if r.discard(done[:]) && now {
			asked = time.Time{} // What waited for these may have begun.
		}
		if r.inFlight == 0 {
			return 0
		}
		left := time.Until(deadline)
		if left <= 0 {
			return r.inFlight
		}
		// Once more now and then: a request may not have been where a cancel looked for it.
		if time.Since(asked) > 50*time.Millisecond {
			asked = time.Now()
			if now = now && r.cancelNow(); !now {
				r.cancelEach(done[:])
			}
		}
		step := min(left, 10*time.Millisecond)
		if _, err := r.SubmitAndWait(1, step); err != nil && err != ErrTimeout && err != ErrReap {
			time.Sleep(step)
		}
	}
}

// discard takes all completions that are there, and closes the descriptors that nobody learns of; whether there were any.
func (r *Ring) discard(done []Completion) (any bool) {
	for {
		n := r.Reap(done)
		if n == 0 {
			return any
		}
		any = true
		for _, c := range done[:n] {
			if c.Request != nil && c.Request.yieldsDescriptor() && c.Result >= 0 {
				_ = syscall.Close(int(c.Result))
			}
		}
	}
}

// cancelNow cancels everything without a request for it, which would wait behind a barrier. False: the kernel cannot; 6.0 can.
func (r *Ring) cancelNow() bool {
	if r.fd < 0 {
		return false
	}
	all := syncCancel{fd: -1, flags: cancelAny | cancelAll}
	_, err := r.register(registerSyncCancel, unsafe.Pointer(&all), 1)
	return !errors.Is(err, syscall.EINVAL)
}

// cancelEach has a cancel for each request in flight.
func (r *Ring) cancelEach(done []Completion) {
	for _, s := range r.slots {
		if s.request == nil || s.request.sqe.opcode == OpAsyncCancel {
			continue
		}
		if r.SpaceLeft() == 0 {
			_, _ = r.Submit()
			r.discard(done)
		}
		if r.Push(new(Request).Cancel(s.request)) != nil {
			return
		}
	}
}

// CloseWithin is [Ring.Close] with another bound than five seconds.
func (r *Ring) CloseWithin(d time.Duration) error {
	r.closeWait = d
	return r.Close()
}

// registry keeps rings reachable, and through them all that the kernel may touch.
type registry struct {
	mu  sync.Mutex
	all map[*Ring]struct{}
}

var (
	rings  registry // The open ones: a ring that its owner forgets still has requests in flight.
	leaked registry // Those closed too early.
)

func (g *registry) add(r *Ring) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all = make(map[*Ring]struct{})
	}
	g.all[r] = struct{}{}
}

func (g *registry) remove(r *Ring) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.all, r)
}

// length is what the kernel takes at once.
func length(n int) uint32 { return uint32(min(n, math.MaxInt32&^4095)) }
