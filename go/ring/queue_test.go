//go:build linux

// The two queues: pushing, submitting, waiting, reaping, overflow; memory of requests. Chains and
// barriers are in the conformance cases (go/ringway/conformance_test.go), which run on rings too.

package ring

import (
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// wantSubmitted submits, and fails the test if the kernel takes another number of requests.
func wantSubmitted(t *testing.T, r *Ring, want int, wantErr error) {
	t.Helper()
	n, err := r.Submit()
	equal(t, n, want)
	equal(t, err, wantErr)
}

func TestPushToAFullQueue(t *testing.T) {
	f := newFake(4, 8, ^uint32(0)-1)
	for range 4 {
		push(t, f.Ring, new(Request))
	}
	equal(t, f.Push(new(Request)), ErrFull)
	equal(t, f.Pending(), 4)
	wantSubmitted(t, f.Ring, 4, nil)
	equal(t, f.SpaceLeft(), 4)
}

func TestPartialSubmission(t *testing.T) {
	f := newFake(8, 16, 0)
	f.take = func(submit uint32) (uint32, syscall.Errno) { return min(submit, 3), 0 }
	var all [8]*Request
	for i := range all {
		all[i] = new(Request).Read(0, make([]byte, i), 0)
		push(t, f.Ring, all[i])
	}
	var done [16]Completion
	got := 0
	for _, want := range []int{3, 3, 2} {
		wantSubmitted(t, f.Ring, want, nil)
		got += f.Reap(done[got:])
	}
	equal(t, got, 8)
	for i, q := range all {
		equal(t, done[i].Request, q)
	}
}

// Without SUBMIT_ALL the kernel stops after an invalid request. Later ones stay in the queue.
func TestPartialSubmissionByTheKernel(t *testing.T) {
	r := ringWithoutFlags(t, nil)
	unknown := new(Request)
	unknown.prepare(200, -1)
	all := []*Request{new(Request), unknown, new(Request), new(Request)}
	push(t, r, all...)
	wantSubmitted(t, r, 2, nil)
	equal(t, r.Pending(), 2)
	equal(t, r.InFlight(), 4)
	wantSubmitted(t, r, 2, nil)
	for i, c := range collect(t, r, all...) {
		equal(t, c.Err(), map[bool]error{true: syscall.EINVAL, false: nil}[i == 1])
	}
	// They can be withdrawn.
	unknown.prepare(200, -1)
	push(t, r, all...)
	wantSubmitted(t, r, 2, nil)
	back := r.Withdraw()
	require(t, slices.Equal(back, []*Request{all[3], all[2]}), "%v", back)
	collect(t, r, all[0], all[1])
	equal(t, r.InFlight(), 0)
}

func TestSubmitRetriesEINTRAndReturnsErrReap(t *testing.T) {
	f := newFake(8, 16, 0)
	results := []syscall.Errno{syscall.EINTR, syscall.EINTR, 0}
	f.take = func(submit uint32) (uint32, syscall.Errno) {
		errno := results[0]
		results = results[1:]
		return submit, errno
	}
	q := new(Request).Nop()
	push(t, f.Ring, q)
	wantSubmitted(t, f.Ring, 1, nil)
	for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.EBUSY} {
		results = []syscall.Errno{errno, 0}
		push(t, f.Ring, new(Request))
		wantSubmitted(t, f.Ring, 0, ErrReap)
		equal(t, f.Pending(), 1)
		wantSubmitted(t, f.Ring, 1, nil)
	}
}

func TestCountersWrap(t *testing.T) {
	f := newFake(8, 16, ^uint32(0)-20)
	before := f.tail
	for round := range 40 {
		var pushed []*Request
		for i := range 1 + round%8 {
			q := new(Request).Read(0, make([]byte, i), 0)
			err := f.Push(q)
			require(t, err == nil, "round %d: %v", round, err)
			pushed = append(pushed, q)
		}
		n, err := f.SubmitAndWait(len(pushed), time.Second)
		require(t, n == len(pushed) && err == nil, "round %d: %d, %v", round, n, err)
		var done [16]Completion
		equal(t, f.Reap(done[:]), len(pushed))
		for i, q := range pushed {
			equal(t, done[i].Request, q)
			equal(t, int(done[i].Result), i)
		}
		equal(t, f.InFlight(), 0)
	}
	require(t, f.tail < before && f.head < before, "the counters did not wrap")
}

// Negative lengths and counts do not become large ones.
func TestNegativeArgumentsAreInvalid(t *testing.T) {
	r := newRing(t, Options{})
	for what, q := range map[string]*Request{
		"ReadSelect":       new(Request).ReadSelect(0, 0, -1, 0),
		"Splice":           new(Request).Splice(0, CurrentPosition, 0, CurrentPosition, -1, 0),
		"Tee":              new(Request).Tee(0, 0, -1, 0),
		"TimeoutMultishot": new(Request).TimeoutMultishot(time.Second, -1),
	} {
		err := r.Push(q)
		expect(t, err == syscall.EINVAL, "%s: %v", what, err)
		if err := r.Push(q.Nop()); err != nil {
			t.Errorf("%s, prepared anew: %v", what, err)
		}
		submit(t, r)
		collect(t, r, q)
	}
}

// Kernels accept any number of requests without a reap. The package does not.
func TestRequestsWithoutReapAreBounded(t *testing.T) {
	for _, o := range []Options{{Entries: 16}, {Entries: 16, SQPoll: time.Millisecond}} {
		r := newRing(t, o)
		if r.params.features&featNoDrop == 0 {
			skip(t, "this kernel drops what overflows")
		}
		bound := overflowFactor * int(r.params.cqEntries)
		pushed := map[*Request]bool{}
		for full := false; !full && len(pushed) < 4*bound; {
			q := new(Request).Nop()
			switch err := r.Push(q); err {
			case nil:
				pushed[q] = true
				continue
			case ErrFull:
			default:
				t.Fatal(err)
			}
			_, err := r.Submit()
			full = err == ErrReap
			require(t, err == nil || full, "%v", err)
		}
		if n := len(pushed); n > bound+2*int(r.params.sqEntries) {
			t.Errorf("%d requests are in flight, and the bound is %d", n, bound)
		}
		drain(t, r, pushed)
	}
}

func TestReapFetchesOverflow(t *testing.T) {
	f := newFake(8, 8, ^uint32(0)-3)
	for range 2 {
		for range 8 {
			push(t, f.Ring, new(Request))
		}
		submit(t, f.Ring)
	}
	var done [32]Completion
	equal(t, f.Reap(done[:]), 16)
}

// Reap submits nothing, even if it enters the kernel to fetch an overflow.
func TestReapSubmitsNothing(t *testing.T) {
	r := newRing(t, Options{Entries: 8, CQEntries: 8})
	reading, writing := pipe(t)
	for range 20 {
		push(t, r, new(Request).Poll(reading, 1))
	}
	submit(t, r)
	chain := []*Request{new(Request).Nop().Link(), new(Request)}
	push(t, r, chain...)
	_, _ = syscall.Write(writing, []byte("x"))
	var done [32]Completion
	for n, deadline := 0, time.Now().Add(testTimeout); n < 20; n += r.Reap(done[:]) {
		require(t, !time.Now().After(deadline), "%v", n)
	}
	equal(t, r.Pending(), 2)
	collect(t, r, chain...)
}

// A completion with an old generation: its slot now belongs to another request.
func TestStaleCompletionIsDropped(t *testing.T) {
	f := newFake(8, 16, 0)
	var done [4]Completion
	q := new(Request)
	push(t, f.Ring, q)
	submit(t, f.Ring)
	before := q.userData
	equal(t, f.Reap(done[:]), 1)
	// The kernel takes none yet.
	f.take = func(submit uint32) (uint32, syscall.Errno) { return 0, 0 }
	push(t, f.Ring, q)
	submit(t, f.Ring)
	f.queued = append(f.queued, cqe{userData: before})
	f.flush()
	equal(t, f.Reap(done[:]), 0)
	require(t, q.InFlight() && q.userData != before,
		"the stale completion was attributed to another request")
	f.take = nil
	submit(t, f.Ring)
	equal(t, f.Reap(done[:]), 1)
	equal(t, f.InFlight(), 0)
}

func TestSubmitAndWaitForMoreThanTheQueueHolds(t *testing.T) {
	r := newRing(t, Options{Entries: 4, CQEntries: 4})
	var all [12]Request
	for i := range all {
		push(t, r, &all[i])
	}
	must(t, errorOf(r.SubmitAndWait(len(all), -1)))
	var done [12]Completion
	equal(t, r.Reap(done[:]), len(all))
}

// These kernels have no wait with a timeout.
func TestSubmitAndWaitBeforeLinux511(t *testing.T) {
	r := newRing(t, Options{})
	r.params.features &^= featExtArg
	reading, writing := pipe(t)
	begin := time.Now()
	_, err := r.SubmitAndWait(1, 30*time.Millisecond)
	equal(t, err, ErrTimeout)
	took := time.Since(begin)
	require(t, took >= 30*time.Millisecond, "too early: %v", took)
	q := readByte(reading)
	go func() {
		time.Sleep(10 * time.Millisecond)
		_, _ = syscall.Write(writing, []byte("x"))
	}()
	equal(t, run(t, r, q)[0].Result, 1)
	// A wait for two completions, of which one arrives.
	nop := new(Request)
	push(t, r, nop)
	n, err := r.SubmitAndWait(2, 10*time.Millisecond)
	equal(t, n, 1)
	equal(t, err, ErrTimeout)
	collect(t, r, nop)
	gives(t, r, nop, 0)
}

// The descriptor of a ring with IOPOLL does not become readable: the wait polls the device itself.
func TestSubmitAndWaitWithIOPollBeforeLinux511(t *testing.T) {
	f := newFake(4, 8, 0)
	f.params.features &^= featExtArg
	f.params.flags |= setupIOPoll
	calls := 0
	f.kernel = func(submit, wait, flags uint32, arg *geteventsArg) (int, syscall.Errno) {
		expect(t, flags&enterGetEvents != 0 && arg == nil, "%v, %v", flags, arg)
		if calls++; calls < 4 {
			return 0, 0
		}
		return f.enter(submit, wait, flags, arg)
	}
	push(t, f.Ring, new(Request))
	n, err := f.SubmitAndWait(1, 2*time.Second)
	equal(t, n, 1)
	equal(t, err, nil)
	equal(t, f.Ready(), 1)
}

// Signals interrupt the wait in the kernel. It continues, and keeps its timeout.
func TestSubmitAndWaitWithSignals(t *testing.T) {
	r := newRing(t, Options{})
	reading, writing := pipe(t)
	signals := make(chan os.Signal, 100)
	signal.Notify(signals, syscall.SIGUSR1)
	defer signal.Stop(signals)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := syscall.Gettid()
	interrupted := func(wait func()) {
		end, ended := make(chan bool), make(chan bool)
		go func() {
			defer close(ended)
			for {
				select {
				case <-end:
					return
				case <-time.After(time.Millisecond):
					_, _, _ = syscall.Syscall(syscall.SYS_TGKILL, uintptr(syscall.Getpid()),
						uintptr(thread), uintptr(syscall.SIGUSR1))
				}
			}
		}()
		defer func() { close(end); <-ended }()
		wait()
	}
	interrupted(func() {
		begin := time.Now()
		_, err := r.SubmitAndWait(1, 50*time.Millisecond)
		equal(t, err, ErrTimeout)
		took := time.Since(begin)
		require(t, took >= 50*time.Millisecond, "too early: %v", took)
	})
	written := make(chan bool)
	for round := 0; ; round++ {
		q := readByte(reading)
		push(t, r, q)
		interrupted(func() {
			if round == 0 {
				go func() {
					defer close(written)
					for range 20 { // Complete after 20 signals.
						<-signals
					}
					_, _ = syscall.Write(writing, []byte("x"))
				}()
			}
			n, err := r.SubmitAndWait(1, -1)
			equal(t, n, 1)
			equal(t, err, nil)
		})
		result := collect(t, r, q)[0].Result
		if result == -int32(syscall.ECANCELED) && round < 100 {
			// Before kernel 6.5 a worker reads the pipe. If signals keep the kernel from starting
			// one, it cancels the read (seen on 5.10).
			t.Log("canceled by the kernel")
			continue
		}
		equal(t, result, 1)
		break
	}
	<-written
}

// A wait that a signal has interrupted goes on for the rest of its time, or without a limit if it
// has none.
func TestInterruptedWaitHasTheRestOfItsTime(t *testing.T) {
	f := newFake(4, 8, 0)
	var waits []time.Duration
	f.kernel = func(submit, wait, flags uint32, arg *geteventsArg) (int, syscall.Errno) {
		if arg != nil {
			waits = append(waits, time.Duration(f.wait.sec)*time.Second+
				time.Duration(f.wait.nsec))
		}
		time.Sleep(5 * time.Millisecond)
		if len(waits) == 3 {
			return 0, syscall.ETIME
		}
		return 0, syscall.EINTR
	}
	equal(t, errorOf(f.SubmitAndWait(1, time.Minute)), ErrTimeout)
	const step = 5 * time.Millisecond
	require(t, len(waits) == 3 && waits[0] <= time.Minute && waits[1] <= waits[0]-step &&
		waits[2] <= waits[1]-step, "%v", waits)
	calls := 0
	f.kernel = func(submit, wait, flags uint32, arg *geteventsArg) (int, syscall.Errno) {
		expect(t, arg == nil, "a timeout")
		if calls++; calls < 4 {
			return 0, syscall.EINTR
		}
		return f.enter(submit, wait, flags, arg)
	}
	push(t, f.Ring, new(Request))
	n, err := f.SubmitAndWait(1, -1)
	require(t, n == 1 && err == nil && calls == 4, "%v, %v, %v", n, err, calls)
}

// With SQPOLL the kernel thread may take what was submitted at any time: only what was pushed after
// that is withdrawn.
func TestWithdrawWithSQPoll(t *testing.T) {
	f := newFake(8, 16, ^uint32(0)-2)
	f.params.flags |= setupSQPoll
	submitted, pushed := []*Request{new(Request), new(Request)}, []*Request{new(Request)}
	push(t, f.Ring, submitted...)
	wantSubmitted(t, f.Ring, 2, nil)
	push(t, f.Ring, pushed...)
	back := f.Withdraw()
	require(t, slices.Equal(back, pushed), "%v", back)
	require(t, f.InFlight() == 2 && submitted[0].InFlight() && submitted[1].InFlight(), "%v",
		f.InFlight())
}

// With SQPOLL, Submit waits until a full queue has space.
func TestSubmitWaitsForTheSQPollThread(t *testing.T) {
	r := newRing(t, Options{Entries: 4, CQEntries: 512, SQPoll: time.Millisecond})
	if !slices.Contains(r.SetupFlags(), "SQPOLL") {
		skip(t, r.Refusals())
	}
	const count = 200
	for i := range count {
		if i%50 == 0 {
			time.Sleep(5 * time.Millisecond) // The kernel thread falls asleep.
		}
		for q := new(Request); r.Push(q) != nil; {
			equal(t, r.SpaceLeft(), 0)
			submit(t, r)
			require(t, r.SpaceLeft() != 0, "Submit did not wait for space")
		}
	}
	var done [count]Completion
	for n := 0; n < count; {
		_, err := r.SubmitAndWait(1, testTimeout)
		require(t, err == nil, "%v, %v", n, err)
		n += r.Reap(done[n:])
	}
	equal(t, r.InFlight(), 0)
}

func TestRequestInFlightCannotBeChanged(t *testing.T) {
	r := newRing(t, Options{})
	reading, writing := pipe(t)
	q := readByte(reading)
	push(t, r, q)
	equal(t, r.Push(q), ErrInFlight)
	func() {
		defer func() { expect(t, recover() != nil, "a request in flight was changed") }()
		q.Nop()
	}()
	_, _ = syscall.Write(writing, []byte("x"))
	collect(t, r, q)
	gives(t, r, q.Nop(), 0)
}

// A request that was reset is a NOP: pushed again, it has no effect on the memory and the file of
// the operation that it was.
func TestResetLeavesNoOperation(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "0123456789")
	fd, p := int(f.Fd()), make([]byte, 4)
	q := &Request{UserData: "kept"}
	for what, prepare := range map[string]func(){
		"Read":  func() { q.Read(fd, p, 0) },
		"Readv": func() { q.Readv(fd, [][]byte{p[:2], p[2:]}, 0) },
		"Write": func() { q.Write(fd, p, 4) },
		"Link":  func() { q.Read(fd, p, 0).Link() },
	} {
		for _, push := range []bool{true, false} {
			prepare()
			if push {
				gives(t, r, q, len(p))
			}
			q.Reset()
			copy(p, "mine")
			want := content(t, f)
			if result := one(t, r, q); result != 0 || q.Opcode() != OpNop {
				t.Errorf("%s: opcode %d, result %d", what, q.Opcode(), result)
			}
			equal(t, string(p), "mine")
			equal(t, content(t, f), want)
			equal(t, q.UserData, any("kept"))
		}
	}
	q.TimeoutMultishot(time.Second, -1) // Invalid.
	q.Reset()
	gives(t, r, q, 0)
}

// The stack grows and garbage is collected while the kernel writes to a buffer declared on the
// stack: the data arrives in the buffer that the program sees.
func TestBuffersDoNotMove(t *testing.T) {
	r := newRing(t, Options{})
	// (Not a pipe: before kernel 6.5 a worker of the kernel reads it, not always successfully.)
	reading, writing := socketpair(t, syscall.SOCK_STREAM)
	for range 50 {
		var p [64]byte
		q := new(Request)
		q.Read(reading, p[:], CurrentPosition)
		push(t, r, q)
		submit(t, r)
		equal(t, deep(500), 500)
		runtime.GC()
		churn()
		_, _ = syscall.Write(writing, []byte("0123456789"))
		equal(t, collect(t, r, q)[0].Result, 10)
		equal(t, string(p[:10]), "0123456789")
	}
}

// Only the ring refers to these requests.
func TestUnreferencedRequestsStayReachable(t *testing.T) {
	r := newRing(t, Options{})
	reading, writing := pipe(t)
	const count = 20
	func() {
		for range count {
			p := make([]byte, 8)
			q := new(Request).Readv(reading, [][]byte{p[:4], p[4:]}, CurrentPosition)
			q.UserData = p
			push(t, r, q)
		}
		submit(t, r)
	}()
	for range 3 {
		runtime.GC()
		churn()
	}
	for got := range count {
		_, _ = syscall.Write(writing, []byte{'0', '1', '2', '3', '4', '5', '6', byte(got)})
		must(t, errorOf(r.SubmitAndWait(1, testTimeout)))
		var done [1]Completion
		equal(t, r.Reap(done[:]), 1)
		equal(t, string(done[0].Request.UserData.([]byte)), "0123456"+string(byte(got)))
	}
}

//go:noinline
func deep(n int) int {
	var frame [256]byte
	frame[n%256] = 1
	if n == 0 {
		return int(frame[0]) - 1
	}
	return deep(n-1) + int(frame[n%256])
}

var sink [][]byte

func churn() {
	for range 200 {
		sink = append(sink, make([]byte, 64))
	}
	for _, b := range sink {
		for i := range b {
			b[i] = 0xee
		}
	}
	sink = sink[:0]
}

func TestNoAllocations(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "0123456789")
	fd := int(f.Fd())
	p := make([]byte, 4)
	q := new(Request)
	var done [1]Completion
	allocations := testing.AllocsPerRun(200, func() {
		_ = r.Push(q.Read(fd, p, 0))
		_, _ = r.SubmitAndWait(1, -1)
		r.Reap(done[:])
	})
	equal(t, allocations, 0)
}
