//go:build linux

// The two queues: push, submit, wait, reap, and close. Setup is in setup.go, operations are in
// ops_*.go.

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
	// ErrFull means that the submission queue is full. Submit, and push again.
	ErrFull = errors.New("ring: the submission queue is full")
	// ErrInFlight means that the request was pushed before and has not completed.
	ErrInFlight = errors.New("ring: the request is in flight")
	// ErrReap means that completions must be reaped before more is submitted. The requests stay in
	// the submission queue. Reap, and submit again. It is the answer of a kernel that is short of
	// memory or of space for completions (EBUSY, EAGAIN), and a bound of this package: kernels from
	// 5.10 on accept any number of requests without a reap, and keep each completion that does not
	// fit into the queue in memory of their own. So once completions have overflowed, nothing is
	// submitted while 16 times as many requests are in flight as the completion queue holds.
	ErrReap = errors.New("ring: completions must be reaped first")
	// ErrTimeout means that the timeout of a wait expired before the completions arrived.
	ErrTimeout = os.ErrDeadlineExceeded
	// ErrClosed means that the ring is closed.
	ErrClosed = os.ErrClosed
)

// overflowFactor bounds the requests in flight after an overflow, in sizes of the completion queue.
const overflowFactor = 16

// closeWait is how long Close waits for requests in flight.
const closeWait = 5 * time.Second

// Ring is an io_uring instance: a submission queue and a completion queue, both shared with the
// kernel. [New] creates one; it must be closed. It has no lock: use it from one goroutine at a
// time.
type Ring struct {
	fd             int
	params         params
	rings, entries []byte // Memory mappings. The pointers below point into them.

	sqHead, sqTail, sqFlags    *uint32
	cqHead, cqTail, cqOverflow *uint32
	sqes                       []sqe
	cqes                       []cqe
	sqMask, cqMask             uint32

	// tail is the end of the submission queue including requests that the kernel does not know of
	// yet; head is the start of the completion queue. Both wrap around: only their differences are
	// meaningful.
	tail, head uint32

	slots    []slot
	free     []uint32
	inFlight int

	arg      geteventsArg // Of the current wait. On the heap, since the kernel reads it.
	wait     timespec
	kernel   func(submit, wait, flags uint32, arg *geteventsArg) (int, syscall.Errno)
	buffers  []registeredBuffer
	groups   []*BufferRing
	refusals []*Refusal

	closeWait time.Duration
	closed    bool

	seenClosed   int64            // The value of lastClosed for which nothing is left to do.
	submitters   map[int]struct{} // Threads whose workers do not exit while the ring is open.
	startsWorker bool             // It only starts a worker.
}

// slot keeps a request in flight reachable. The user data of a completion names its index and
// generation.
type slot struct {
	request    *Request
	generation uint32
}

// Completion is the result of a request, or one of its results.
type Completion struct {
	// Request is the pushed request, or nil for a message from another ring ([Request.MsgRing]).
	// The program may use it again unless [Completion.More] reports true.
	Request *Request
	// Result is the return value of the system call of the same name, or the negative errno.
	Result int32
	// Flags are FlagMore, FlagBuffer and so on.
	Flags uint32
}

// Err returns the [syscall.Errno] of a failed request, or nil.
func (c Completion) Err() error {
	if c.Result < 0 {
		return syscall.Errno(-c.Result)
	}
	return nil
}

// More reports whether the request will complete again. That completion may be in the same batch.
func (c Completion) More() bool { return c.Flags&FlagMore != 0 }

// Push puts a request into the submission queue, without blocking. The kernel receives it with the
// next [Ring.Submit] or [Ring.SubmitAndWait]. The error is [ErrFull], [ErrInFlight], [ErrClosed],
// or EINVAL for a request that cannot be expressed, such as a path with a zero byte or a negative
// length; then the request was not pushed.
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
	var index uint32
	if n := len(r.free); n > 0 {
		index = r.free[n-1]
		r.free = r.free[:n-1]
	} else {
		index = uint32(len(r.slots))
		r.slots = append(r.slots, slot{})
	}
	s := &r.slots[index]
	s.request = q
	q.ring = r
	q.userData = uint64(s.generation)<<32 | uint64(index)
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

// SpaceLeft returns how many requests can be pushed before the next submission; 0 after Close.
func (r *Ring) SpaceLeft() int {
	if r.closed {
		return 0
	}
	return int(r.params.sqEntries - (r.tail - atomic.LoadUint32(r.sqHead)))
}

// InFlight returns the number of requests that were pushed and whose last completion was not
// reaped.
func (r *Ring) InFlight() int { return r.inFlight }

// Pending returns the number of requests that were pushed and not yet submitted.
func (r *Ring) Pending() int {
	if r.closed {
		return 0
	}
	return int(r.tail - atomic.LoadUint32(r.sqHead))
}

// Submit hands the pushed requests to the kernel and does not wait for completions. (Soon after
// another ring was closed it may wait for a worker thread: see Kernels above.) It returns how
// many the kernel took. The kernel stops after a request that it finds invalid, or when it is short
// of memory, also within a chain; the next call submits the rest. With an error, which is
// [ErrReap], [ErrClosed] or an errno, it took none.
//
// The kernel tries each operation during the submission, so a buffered read of cached data is done
// when Submit returns. A transfer may also wait there: for the journal of ext4, for a full device,
// for blocks of the file system that are not in memory, or for the server of a FUSE file system.
// [Request.Async] leaves that to a worker. With [Options.SQPoll], Submit only wakes the kernel
// thread if it sleeps, and returns how many requests are in the queue; if the queue is full, it
// blocks until the kernel thread has taken one.
func (r *Ring) Submit() (int, error) { return r.enter(0, 0) }

// SubmitAndWait submits the pushed requests and blocks until at least the given number of
// completions can be reaped, or the timeout expires; a negative timeout never does. It returns how
// many requests the kernel took. It waits for at most as many completions as the completion queue
// holds. With no timeout, it never returns if fewer requests are in flight.
//
// The error is [ErrTimeout] if the timeout expired, or one of [Ring.Submit]. The calling thread
// blocks in the kernel, while Go runs other goroutines on another thread. To wait in the Go poller
// instead, watch [Ring.Fd].
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

// poll waits with a timeout on kernels before 5.11, where io_uring_enter has none: on the ring's
// descriptor for the first completion, and in steps of a millisecond for more.
func (r *Ring) poll(timeout time.Duration) (int, error) {
	n, err := r.enter(0, 0)
	if err != nil {
		return n, err
	}
	if r.params.flags&setupIOPoll != 0 {
		// The descriptor does not become readable, because nobody but this thread polls the device.
		// enter has polled it once.
		return n, nil
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
	_, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&descriptor)), 1,
		uintptr(unsafe.Pointer(&span)), 0, 0, 0)
	if errno != 0 && errno != syscall.EINTR {
		return n, errno
	}
	return n, nil
}

// Ready returns the number of completions in the completion queue. [Ring.Reap] may return more, if
// the kernel holds some back.
func (r *Ring) Ready() int {
	if r.closed {
		return 0
	}
	return int(atomic.LoadUint32(r.cqTail) - r.head)
}

// enter calls io_uring_enter until it succeeds or fails for good.
func (r *Ring) enter(want int, timeout time.Duration) (int, error) {
	if r.closed {
		return 0, ErrClosed
	}
	if r.mustReap() {
		return 0, ErrReap
	}
	atomic.StoreUint32(r.sqTail, r.tail)
	submit := r.tail - atomic.LoadUint32(r.sqHead)
	var flags uint32
	if r.params.flags&setupSQPoll != 0 {
		taken := int(submit)
		if atomic.LoadUint32(r.sqFlags)&sqNeedWakeup != 0 {
			flags |= enterSQWakeup
		}
		if r.SpaceLeft() == 0 {
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
				continue // A signal ended the wait for space in the queue.
			}
			return n, nil
		case syscall.EINTR:
			if want > 0 {
				return 0, nil // The caller computes the remaining time.
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

// mustReap reports whether the requests in the submission queue have to wait: the kernel keeps
// completions that did not fit into the queue, and may soon have to keep many more.
func (r *Ring) mustReap() bool {
	return r.Pending() > 0 && atomic.LoadUint32(r.sqFlags)&sqCQOverflow != 0 &&
		r.inFlight > overflowFactor*int(r.params.cqEntries)
}

// enterKernel makes the system call. If necessary it starts a worker of this thread first.
func (r *Ring) enterKernel(submit, wait, flags uint32, arg *geteventsArg) (int, syscall.Errno) {
	if submit > 0 && r.needsWorker() {
		return r.callWithWorker(submit, wait, flags, arg)
	}
	return r.call(submit, wait, flags, arg)
}

// call makes the system call.
func (r *Ring) call(submit, wait, flags uint32, arg *geteventsArg) (int, syscall.Errno) {
	var size uintptr
	if arg != nil {
		size = unsafe.Sizeof(*arg)
	}
	n, _, errno := syscall.Syscall6(sysEnter, uintptr(r.fd), uintptr(submit), uintptr(wait),
		uintptr(flags), uintptr(unsafe.Pointer(arg)), size)
	return int(n), errno
}

// mustEnter reports whether the kernel holds completions back until it is entered.
func (r *Ring) mustEnter() bool {
	return atomic.LoadUint32(r.sqFlags)&(sqCQOverflow|sqTaskrun) != 0
}

// Reap moves completions from the completion queue into done, and returns how many. It does not
// wait. It enters the kernel only if the kernel holds completions back: after an overflow of the
// queue, and with [Options.CoopTaskrun] or [Options.DeferTaskrun]. It submits nothing.
func (r *Ring) Reap(done []Completion) int {
	n := r.reap(done)
	for n < len(done) && !r.closed && r.mustEnter() {
		// Submit nothing: a chain may be incomplete.
		if _, errno := r.kernel(0, 0, enterGetEvents, nil); errno != 0 && errno != syscall.EINTR &&
			errno != syscall.EBUSY {
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
		index, generation := uint32(c.userData), uint32(c.userData>>32)
		if index == msgRingIndex {
			done[n] = Completion{nil, c.res, c.flags}
			n++
			continue
		}
		if int(index) >= len(r.slots) || r.slots[index].generation != generation ||
			r.slots[index].request == nil {
			continue
		}
		s := &r.slots[index]
		done[n] = Completion{s.request, c.res, c.flags}
		n++
		if c.flags&FlagMore == 0 {
			r.freeSlot(index)
		}
	}
	atomic.StoreUint32(r.cqHead, r.head)
	return n
}

// Overflow returns how many completions the kernel dropped because the queue was full. From Linux
// 5.5 on it drops none: [Ring.Reap] fetches those that did not fit.
func (r *Ring) Overflow() uint32 {
	if r.closed {
		return 0
	}
	return atomic.LoadUint32(r.cqOverflow)
}

// Fd returns the ring's descriptor, or -1 after Close. It is readable when there are completions,
// for poll(2) or the Go poller. The ring owns it.
func (r *Ring) Fd() int { return r.fd }

// Close withdraws requests that were not submitted, cancels those in flight, waits at most five
// seconds until the kernel no longer uses their memory, and closes the ring. Completions that were
// not reaped are lost; if the result of one is a descriptor, Close closes it.
//
// If requests are still in flight after that, Close returns an error, and their memory stays pinned
// for the life of the process.
func (r *Ring) Close() error {
	if r.closed {
		return ErrClosed
	}
	r.Withdraw()
	hung := r.quiesce()
	r.closed = true
	rings.remove(r)
	if hung > 0 {
		// The descriptor is closed; memory that the kernel may still write to stays mapped.
		leaked.add(r)
		_ = syscall.Close(r.fd)
		r.noteClosed()
		r.fd = -1
		return errors.New("ring: closed with operations in flight, whose memory is leaked")
	}
	for _, g := range slices.Clone(r.groups) {
		_ = g.unmap()
	}
	r.unmap()
	err := syscall.Close(r.fd)
	r.noteClosed()
	r.fd = -1
	r.unpinBuffers()
	return os.NewSyscallError("close", err)
}

// Withdraw takes pushed requests that the kernel has not taken out of the submission queue, and
// returns them, the last one first. They do not complete, and the program may use them again.
func (r *Ring) Withdraw() []*Request {
	if r.closed {
		return nil
	}
	submitted := atomic.LoadUint32(r.sqHead)
	if r.params.flags&setupSQPoll != 0 {
		submitted = *r.sqTail // The kernel thread may take these at any time.
	}
	var back []*Request
	for r.tail != submitted {
		r.tail--
		index := uint32(r.sqes[r.tail&r.sqMask].userData)
		back = append(back, r.slots[index].request)
		r.freeSlot(index)
	}
	return back
}

// freeSlot ends a request: its memory is the program's again.
func (r *Ring) freeSlot(index uint32) {
	s := &r.slots[index]
	s.request.release()
	s.request = nil
	s.generation++
	r.free = append(r.free, index)
	r.inFlight--
}

// quiesce cancels all requests and waits until r.closeWait has passed. It returns how many are
// still in flight.
func (r *Ring) quiesce() int {
	var done [32]Completion
	deadline := time.Now().Add(r.closeWait)
	var canceled time.Time
	now := true
	for {
		if r.discard(done[:]) && now {
			canceled = time.Time{} // Requests linked to these may have started: cancel at once.
		}
		if r.inFlight == 0 {
			return 0
		}
		left := time.Until(deadline)
		if left <= 0 {
			return r.inFlight
		}
		// Repeat: a cancel misses a request that is between two states.
		if time.Since(canceled) > 50*time.Millisecond {
			canceled = time.Now()
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

// discard reaps all completions and closes the descriptors among their results. It reports whether
// there were any.
func (r *Ring) discard(done []Completion) (any bool) {
	for {
		n := r.Reap(done)
		if n == 0 {
			return any
		}
		any = true
		for _, c := range done[:n] {
			if c.Request != nil && c.Request.returnsDescriptor() && c.Result >= 0 {
				_ = syscall.Close(int(c.Result))
			}
		}
	}
}

// cancelNow cancels all requests without pushing one, which would wait behind a barrier. It returns
// false before Linux 6.0.
func (r *Ring) cancelNow() bool {
	if r.fd < 0 {
		return false
	}
	all := syncCancel{fd: -1, flags: cancelAny | cancelAll}
	_, err := r.register(registerSyncCancel, unsafe.Pointer(&all), 1)
	return !errors.Is(err, syscall.EINVAL)
}

// cancelEach pushes a cancel for each request in flight.
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

// CloseWithin is [Ring.Close] with a bound other than five seconds.
func (r *Ring) CloseWithin(d time.Duration) error {
	r.closeWait = d
	return r.Close()
}

// registry keeps rings reachable, and with them all memory that the kernel may access.
type registry struct {
	mu  sync.Mutex
	all map[*Ring]struct{}
}

var (
	rings  registry // Open rings: one that the program has dropped may have requests in flight.
	leaked registry // Rings closed with requests in flight.
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

// length limits n to what the kernel transfers in one request.
func length(n int) uint32 { return uint32(min(n, math.MaxInt32&^4095)) }
