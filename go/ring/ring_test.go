//go:build linux

package ring

// The life of requests: full queues, partial submissions, overflow, counters that wrap, ends of all kinds.

import (
	"errors"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// fake is a ring in plain memory, whose kernel is the test's: it completes what it takes, in order.
type fake struct {
	*Ring
	take   func(submit uint32) (uint32, syscall.Errno)
	queued []cqe
}

func newFake(entries, completions, counters uint32) *fake {
	f := new(fake)
	r := &Ring{fd: -1, closeWait: time.Second}
	header := uint32(64)
	r.params = params{sqEntries: entries, cqEntries: completions, flags: setupNoSQArray, features: featExtArg | featNoDrop}
	r.params.sqOff = sqOffsets{head: 0, tail: 4, flags: 8, array: header}
	r.params.cqOff = cqOffsets{head: 16, tail: 20, overflow: 24, cqes: header}
	r.rings = unsafe.Slice((*byte)(unsafe.Pointer(&make([]uint64, (header+completions*16)/8)[0])), header+completions*16)
	r.entries = unsafe.Slice((*byte)(unsafe.Pointer(&make([]uint64, entries*8)[0])), entries*64)
	for _, offset := range []uint32{0, 4, 16, 20} {
		*(*uint32)(unsafe.Pointer(&r.rings[offset])) = counters
	}
	r.view()
	f.Ring = r
	r.kernel = f.enter
	return f
}

func (f *fake) enter(submit, wait, flags uint32, arg *geteventsArg) (int, syscall.Errno) {
	n := submit
	if f.take != nil {
		var errno syscall.Errno
		if n, errno = f.take(submit); errno != 0 {
			return 0, errno
		}
	}
	head := *f.sqHead
	for range n {
		e := f.sqes[head&f.sqMask]
		head++
		f.queued = append(f.queued, cqe{userData: e.userData, res: int32(e.len)})
	}
	atomic.StoreUint32(f.sqHead, head)
	f.flush()
	return int(n), 0
}

// flush posts what fits, and says in the flags that there is more.
func (f *fake) flush() {
	tail := *f.cqTail
	for len(f.queued) > 0 && tail-atomic.LoadUint32(f.cqHead) < f.params.cqEntries {
		f.cqes[tail&f.cqMask] = f.queued[0]
		f.queued = f.queued[1:]
		tail++
	}
	atomic.StoreUint32(f.cqTail, tail)
	var flags uint32
	if len(f.queued) > 0 {
		flags = sqCQOverflow
	}
	atomic.StoreUint32(f.sqFlags, flags)
}

func TestCountersWrap(t *testing.T) {
	f := newFake(8, 16, ^uint32(0)-20)
	before := f.tail
	for round := range 40 {
		var pushed []*Request
		for i := range 1 + round%8 {
			q := new(Request).Read(0, make([]byte, i), 0)
			if err := f.Push(q); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			pushed = append(pushed, q)
		}
		if n, err := f.SubmitAndWait(len(pushed), time.Second); n != len(pushed) || err != nil {
			t.Fatalf("round %d: %d, %v", round, n, err)
		}
		var done [16]Completion
		equal(t, f.Reap(done[:]), len(pushed))
		for i, q := range pushed {
			equal(t, done[i].Request, q)
			equal(t, int(done[i].Result), i)
		}
		equal(t, f.InFlight(), 0)
	}
	if f.tail >= before || f.head >= before {
		t.Fatal("the counters did not wrap")
	}
}

// The kernel's own counters cannot be set: to see them wrap takes some minutes.
func TestKernelCountersWrap(t *testing.T) {
	if os.Getenv("RINGWAY_LONG") == "" {
		t.Skip("skipped: RINGWAY_LONG is not set; it takes about ten minutes")
	}
	r := newRing(t, Options{Entries: 256, CQEntries: 256})
	var requests [256]Request
	var done [256]Completion
	for total := uint64(0); total < 1<<32+1<<20; total += uint64(len(requests)) {
		for i := range requests {
			if err := r.Push(&requests[i]); err != nil {
				t.Fatal(total, err)
			}
		}
		if n, err := r.SubmitRaw(); n != len(requests) || err != nil {
			t.Fatal(total, n, err)
		}
		if n := r.Reap(done[:]); n != len(requests) {
			t.Fatal(total, n)
		}
	}
	if r.tail > 1<<21 {
		t.Fatal("the counters did not wrap")
	}
}

func TestFull(t *testing.T) {
	f := newFake(4, 8, ^uint32(0)-1)
	for range 4 {
		if err := f.Push(new(Request)); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, f.Push(new(Request)), ErrFull)
	equal(t, f.Pending(), 4)
	if n, err := f.Submit(); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	equal(t, f.SpaceLeft(), 4)
}

func TestPartialSubmission(t *testing.T) {
	f := newFake(8, 16, 0)
	f.take = func(submit uint32) (uint32, syscall.Errno) { return min(submit, 3), 0 }
	var all [8]*Request
	for i := range all {
		all[i] = new(Request).Read(0, make([]byte, i), 0)
		if err := f.Push(all[i]); err != nil {
			t.Fatal(err)
		}
	}
	var done [16]Completion
	got := 0
	for _, want := range []int{3, 3, 2} {
		n, err := f.Submit()
		equal(t, err, nil)
		equal(t, n, want)
		got += f.Reap(done[got:])
	}
	equal(t, got, 8)
	for i, q := range all {
		equal(t, done[i].Request, q)
	}
}

func TestInterruptionsAndRefusals(t *testing.T) {
	f := newFake(8, 16, 0)
	answers := []syscall.Errno{syscall.EINTR, syscall.EINTR, 0}
	f.take = func(submit uint32) (uint32, syscall.Errno) {
		errno := answers[0]
		answers = answers[1:]
		return submit, errno
	}
	q := new(Request).Nop()
	if err := f.Push(q); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Submit(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.EBUSY} {
		answers = []syscall.Errno{errno, 0}
		if err := f.Push(new(Request)); err != nil {
			t.Fatal(err)
		}
		n, err := f.Submit()
		equal(t, n, 0)
		equal(t, err, ErrReap)
		equal(t, f.Pending(), 1)
		if n, err := f.Submit(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
}

func TestOverflow(t *testing.T) {
	r := newRing(t, Options{Entries: 4, CQEntries: 4})
	if r.params.features&featNoDrop == 0 {
		skip(t, "this kernel drops what overflows")
	}
	const count = 100
	pushed := map[*Request]bool{}
	for range count {
		q := new(Request)
		for r.Push(q) == ErrFull {
			if _, err := r.Submit(); err != nil && err != ErrReap {
				t.Fatal(err)
			}
			if r.SpaceLeft() == 0 { // The kernel wants some to be reaped.
				reapInto(t, r, pushed)
			}
		}
		pushed[q] = true
	}
	for deadline := time.Now().Add(patience); len(pushed) > 0; {
		if _, err := r.Submit(); err != nil && err != ErrReap {
			t.Fatal(err)
		}
		reapInto(t, r, pushed)
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d are lost", len(pushed), count)
		}
	}
	equal(t, r.Overflow(), 0)
}

func reapInto(t *testing.T, r *Ring, waiting map[*Request]bool) {
	t.Helper()
	var done [8]Completion
	for _, c := range done[:r.Reap(done[:])] {
		if !waiting[c.Request] {
			t.Fatal("an answer to nobody, or a second one")
		}
		delete(waiting, c.Request)
	}
}

func TestFakeOverflowIsFetched(t *testing.T) {
	f := newFake(8, 8, ^uint32(0)-3)
	for range 2 {
		for range 8 {
			if err := f.Push(new(Request)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.Submit(); err != nil {
			t.Fatal(err)
		}
	}
	var done [32]Completion
	equal(t, f.Reap(done[:]), 16)
}

func TestRequestInFlight(t *testing.T) {
	r := newRing(t, Options{})
	reading, writing := pipe(t)
	q := new(Request).Read(reading, make([]byte, 1), CurrentPosition)
	if err := r.Push(q); err != nil {
		t.Fatal(err)
	}
	equal(t, r.Push(q), ErrInFlight)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a request in flight was changed")
			}
		}()
		q.Nop()
	}()
	_, _ = syscall.Write(writing, []byte("x"))
	collect(t, r, q)
	equal(t, one(t, r, q.Nop()), 0)
}

// A buffer on a stack that is copied, and garbage that is collected, while the kernel has the request: the bytes arrive
// in the buffer that the program sees.
func TestBuffersStayWhereTheyAre(t *testing.T) {
	r := newRing(t, Options{})
	reading, writing := pipe(t)
	for range 50 {
		var p [64]byte
		q := new(Request)
		q.Read(reading, p[:], CurrentPosition)
		if err := r.Push(q); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Submit(); err != nil {
			t.Fatal(err)
		}
		equal(t, deep(500), 500)
		runtime.GC()
		churn()
		_, _ = syscall.Write(writing, []byte("0123456789"))
		equal(t, collect(t, r, q)[0].Result, 10)
		equal(t, string(p[:10]), "0123456789")
	}
}

// Nobody but the kernel and the ring know of these requests.
func TestForgottenRequestsLive(t *testing.T) {
	r := newRing(t, Options{})
	reading, writing := pipe(t)
	const count = 20
	func() {
		for range count {
			p := make([]byte, 8)
			q := new(Request).Readv(reading, [][]byte{p[:4], p[4:]}, CurrentPosition)
			q.UserData = p
			for r.Push(q) == ErrFull {
				if _, err := r.Submit(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := r.Submit(); err != nil {
			t.Fatal(err)
		}
	}()
	for range 3 {
		runtime.GC()
		churn()
	}
	for got := range count {
		_, _ = syscall.Write(writing, []byte{'0', '1', '2', '3', '4', '5', '6', byte(got)})
		if _, err := r.SubmitAndWait(1, patience); err != nil {
			t.Fatal(err)
		}
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

func TestCloseCancels(t *testing.T) {
	r := newRing(t, Options{})
	reading, _ := pipe(t)
	for range 100 {
		q := new(Request).Read(reading, make([]byte, 1), CurrentPosition)
		for r.Push(q) == ErrFull {
			if _, err := r.Submit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := r.Submit(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if time.Since(begin) > closeWait {
		t.Error("close waited for what it had cancelled")
	}
	equal(t, r.Close(), ErrClosed)
	equal(t, r.Push(new(Request)), ErrClosed)
	_, err := r.Submit()
	equal(t, err, ErrClosed)
	equal(t, r.Reap(make([]Completion, 1)), 0)
}

// A cancel that is submitted waits behind a barrier that waits, and Close must not.
func TestCloseBehindABarrier(t *testing.T) {
	r := newRing(t, Options{})
	reading, _ := pipe(t)
	for _, q := range []*Request{new(Request).Poll(reading, 1), new(Request).Drain(), new(Request), new(Request).Drain()} {
		if err := r.Push(q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Submit(); err != nil {
		t.Fatal(err)
	}
	if !r.cancelNow() {
		skip(t, "this kernel is older than 6.0")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// Kernels before 6.0 have no other cancel than by a request.
func TestCancelEach(t *testing.T) {
	r := newRing(t, Options{Entries: 4})
	reading, _ := pipe(t)
	const count = 50
	for range count {
		q := new(Request).Read(reading, make([]byte, 1), CurrentPosition)
		for r.Push(q) == ErrFull {
			if _, err := r.Submit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := r.Submit(); err != nil {
		t.Fatal(err)
	}
	var done [8]Completion
	r.cancelEach(done[:])
	for deadline := time.Now().Add(patience); r.InFlight() > 0; {
		if _, err := r.SubmitAndWait(1, time.Second); err != nil && err != ErrReap {
			t.Fatal(r.InFlight(), err)
		}
		for r.Reap(done[:]) > 0 {
		}
		if time.Now().After(deadline) {
			t.Fatal(r.InFlight())
		}
	}
}

func TestCloseBeginsNothing(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "before")
	if err := r.Push(new(Request).Write(int(f.Fd()), []byte("AFTER!"), 0)); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	equal(t, content(t, f), "before")
}

// What the kernel does not let go of stays pinned, and Close says so.
func TestCloseLeaksRatherThanFrees(t *testing.T) {
	f := newFake(8, 16, 0)
	stuck := new(Request).Read(0, make([]byte, 8), 0)
	if err := f.Push(stuck); err != nil {
		t.Fatal(err)
	}
	f.kernel = func(submit, _, _ uint32, _ *geteventsArg) (int, syscall.Errno) {
		atomic.StoreUint32(f.sqHead, *f.sqHead+submit) // Taken, and never answered.
		return int(submit), 0
	}
	if _, err := f.Submit(); err != nil {
		t.Fatal(err)
	}
	if err := f.CloseWithin(50 * time.Millisecond); err == nil {
		t.Fatal("nothing was leaked?")
	}
	if !stuck.InFlight() || f.rings == nil {
		t.Fatal("freed")
	}
	leaked.mu.Lock()
	defer leaked.mu.Unlock()
	if _, kept := leaked.all[f.Ring]; !kept {
		t.Fatal("nobody keeps it")
	}
}

func TestPeeling(t *testing.T) {
	w := Options{CoopTaskrun: true}.config()
	var names []string
	for {
		name := w.dropFlag(syscall.EINVAL)
		if name == "" {
			break
		}
		names = append(names, name)
	}
	if want := []string{"NO_SQARRAY", "COOP_TASKRUN", "SUBMIT_ALL", "CQSIZE", "CLAMP"}; !slices.Equal(names, want) {
		t.Fatal(names)
	}
	equal(t, w.flags, 0)
	for _, errno := range []syscall.Errno{syscall.ENOSYS, syscall.EPERM, syscall.EMFILE} {
		w := Options{}.config()
		equal(t, w.dropFlag(errno), "")
	}
	w = Options{}.config()
	for w.dropFlag(syscall.ENOMEM) != "" {
	}
	equal(t, w.entries, 8)
	w = Options{SQPoll: 10}.config()
	equal(t, w.dropFlag(syscall.EPERM), "SQPOLL")
}

func TestOptions(t *testing.T) {
	f := tempFile(t, "0123456789")
	base := newRing(t, Options{})
	for name, o := range map[string]Options{
		"coop": {CoopTaskrun: true}, "small": {Entries: 1}, "large": {Entries: 256, CQEntries: 256},
		"sqpoll": {SQPoll: 5}, "attached": {Attach: base}, "single thread": {DeferTaskrun: true},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			r := newRing(t, o)
			t.Log(r.SetupFlags(), r.Refusals())
			for range 100 {
				p := make([]byte, 3)
				equal(t, one(t, r, new(Request).Read(int(f.Fd()), p, 4)), 3)
				equal(t, string(p), "456")
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestRefusedRing(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, err := New(Options{})
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if errors.Is(err, syscall.ENOMEM) {
		skip(t, err)
	}
	var refusal *Refusal
	if !errors.As(err, &refusal) || !errors.Is(err, syscall.EMFILE) {
		t.Fatal(err)
	}
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

func BenchmarkNop(b *testing.B) {
	r := newRing(b, Options{})
	var done [64]Completion
	var requests [64]Request
	for b.Loop() {
		for i := range requests {
			_ = r.Push(&requests[i])
		}
		_, _ = r.Submit()
		r.Reap(done[:])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*64), "ns/nop")
}

// bare is a ring as an old kernel grants it: without flags, and so with the array of entries.
func bare(t *testing.T, change func(*config)) *Ring {
	t.Helper()
	w := Options{}.config()
	w.flags = 0
	if change != nil {
		change(&w)
	}
	r, err := open(w)
	if err != nil {
		skip(t, err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil && err != ErrClosed {
			t.Error(err)
		}
	})
	return r
}

func TestBareRing(t *testing.T) {
	r := bare(t, func(w *config) { w.entries = 4 })
	if len(r.SetupFlags()) != 0 {
		t.Fatal(r.SetupFlags())
	}
	f := tempFile(t, "0123456789")
	for i := range 50 { // Round and round.
		p, q := make([]byte, 3), make([]byte, 2)
		ends := run(t, r, new(Request).Read(int(f.Fd()), p, 4), new(Request).Read(int(f.Fd()), q, int64(i%8)))
		equal(t, ends[0].Result, 3)
		equal(t, ends[1].Result, 2)
		equal(t, string(p), "456")
		equal(t, string(q), "0123456789"[i%8:i%8+2])
	}
}

// Without SUBMIT_ALL the kernel stops behind a request that it finds wrong: what was behind it stays in the queue.
func TestPartialSubmissionOfTheKernel(t *testing.T) {
	r := bare(t, nil)
	unknown := new(Request)
	unknown.prepare(200, -1)
	all := []*Request{new(Request), unknown, new(Request), new(Request)}
	for _, q := range all {
		if err := r.Push(q); err != nil {
			t.Fatal(err)
		}
	}
	n, err := r.Submit()
	equal(t, err, nil)
	equal(t, n, 2)
	equal(t, r.Pending(), 2)
	equal(t, r.InFlight(), 4)
	n, err = r.Submit()
	equal(t, err, nil)
	equal(t, n, 2)
	for i, c := range collect(t, r, all...) {
		equal(t, c.Err(), map[bool]error{true: syscall.EINVAL, false: nil}[i == 1])
	}
	// What the kernel did not take can be taken back.
	unknown.prepare(200, -1)
	for _, q := range all {
		if err := r.Push(q); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := r.Submit(); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if back := r.Withdraw(); !slices.Equal(back, []*Request{all[3], all[2]}) {
		t.Fatal(back)
	}
	collect(t, r, all[0], all[1])
	equal(t, r.InFlight(), 0)
}

// A thread that is blocked in the kernel is sent signals: the wait goes on, and with a timeout no longer than that.
func TestSignalsWhileWaiting(t *testing.T) {
	r := newRing(t, Options{})
	reading, writing := pipe(t)
	signals := make(chan os.Signal, 100)
	signal.Notify(signals, syscall.SIGUSR1)
	defer signal.Stop(signals)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := syscall.Gettid()
	waiting := func(wait func(over func())) {
		end, ended := make(chan bool), make(chan bool)
		go func() {
			defer close(ended)
			for {
				select {
				case <-end:
					return
				case <-time.After(time.Millisecond):
					_, _, _ = syscall.Syscall(syscall.SYS_TGKILL, uintptr(syscall.Getpid()), uintptr(thread), uintptr(syscall.SIGUSR1))
				}
			}
		}()
		wait(func() { close(end); <-ended })
	}
	waiting(func(over func()) {
		defer over()
		begin := time.Now()
		_, err := r.SubmitAndWait(1, 50*time.Millisecond)
		equal(t, err, ErrTimeout)
		if took := time.Since(begin); took < 50*time.Millisecond {
			t.Fatal("too early:", took)
		}
	})
	q := new(Request).Read(reading, make([]byte, 1), CurrentPosition)
	if err := r.Push(q); err != nil {
		t.Fatal(err)
	}
	waiting(func(over func()) {
		defer over()
		go func() {
			for range 20 { // After so many signals.
				<-signals
			}
			_, _ = syscall.Write(writing, []byte("x"))
		}()
		n, err := r.SubmitAndWait(1, -1)
		equal(t, n, 1)
		equal(t, err, nil)
	})
	equal(t, collect(t, r, q)[0].Result, 1)
}

// A kernel before 5.11 has no wait with a timeout.
func TestWaitBefore511(t *testing.T) {
	r := newRing(t, Options{})
	r.params.features &^= featExtArg
	reading, writing := pipe(t)
	begin := time.Now()
	_, err := r.SubmitAndWait(1, 30*time.Millisecond)
	equal(t, err, ErrTimeout)
	if took := time.Since(begin); took < 30*time.Millisecond {
		t.Fatal("too early:", took)
	}
	q := new(Request).Read(reading, make([]byte, 1), CurrentPosition)
	go func() {
		time.Sleep(10 * time.Millisecond)
		_, _ = syscall.Write(writing, []byte("x"))
	}()
	equal(t, run(t, r, q)[0].Result, 1)
	// Two, of which one comes.
	nop := new(Request)
	if err := r.Push(nop); err != nil {
		t.Fatal(err)
	}
	n, err := r.SubmitAndWait(2, 10*time.Millisecond)
	equal(t, n, 1)
	equal(t, err, ErrTimeout)
	collect(t, r, nop)
	equal(t, one(t, r, nop), 0)
}

// More than the completion queue holds cannot be there at once, and is not waited for.
func TestWaitForMoreThanFits(t *testing.T) {
	r := newRing(t, Options{Entries: 4, CQEntries: 4})
	var all [12]Request
	for i := range all {
		for r.Push(&all[i]) == ErrFull {
			if _, err := r.Submit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := r.SubmitAndWait(len(all), -1); err != nil {
		t.Fatal(err)
	}
	var done [12]Completion
	equal(t, r.Reap(done[:]), len(all))
}

// With a kernel thread that takes them, a queue that is full is waited for.
func TestFullSQPoll(t *testing.T) {
	r := newRing(t, Options{Entries: 4, CQEntries: 512, SQPoll: 1})
	if !slices.Contains(r.SetupFlags(), "SQPOLL") {
		skip(t, r.Refusals())
	}
	const count = 200
	for i := range count {
		if i%50 == 0 {
			time.Sleep(5 * time.Millisecond) // The kernel's thread falls asleep.
		}
		for q := new(Request); r.Push(q) != nil; {
			equal(t, r.SpaceLeft(), 0)
			if _, err := r.Submit(); err != nil {
				t.Fatal(err)
			}
			if r.SpaceLeft() == 0 {
				t.Fatal("no room was waited for")
			}
		}
	}
	var done [count]Completion
	for n := 0; n < count; {
		if _, err := r.SubmitAndWait(1, patience); err != nil {
			t.Fatal(n, err)
		}
		n += r.Reap(done[n:])
	}
	equal(t, r.InFlight(), 0)
}

// The memory of a group is the kernel's for as long as the ring that was closed too early.
func TestGroupOutlivesALeakedRing(t *testing.T) {
	f := newFake(8, 16, 0)
	memory := make([]byte, 8192)
	b := &BufferRing{ring: f.Ring, memory: memory, size: 1}
	f.groups = []*BufferRing{b}
	f.kernel = func(submit, _, _ uint32, _ *geteventsArg) (int, syscall.Errno) {
		atomic.StoreUint32(f.sqHead, *f.sqHead+submit)
		return int(submit), 0
	}
	if err := f.Push(new(Request).RecvSelect(0, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Submit(); err != nil {
		t.Fatal(err)
	}
	if err := f.CloseWithin(time.Millisecond); err == nil {
		t.Fatal("nothing was leaked?")
	}
	equal(t, b.Close(), ErrClosed)
	if b.memory == nil {
		t.Fatal("freed")
	}
}

// What is asked of a ring that was closed.
func TestClosed(t *testing.T) {
	r := newRing(t, Options{})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	equal(t, r.Fd(), -1)
	equal(t, r.SpaceLeft()+r.Ready()+r.Pending()+r.InFlight()+int(r.Overflow())+len(r.Withdraw()), 0)
	_, wait := r.SubmitAndWait(1, 0)
	_, probe := r.Probe()
	_, group := r.RegisterBufferRing(0, 4, 4)
	for _, err := range []error{wait, probe, group, r.RegisterFiles([]int{0}), r.RegisterBuffers([][]byte{{1}}), r.UnregisterEventfd()} {
		equal(t, err, ErrClosed)
	}
}

// An overflow that the kernel keeps: more than four times what its queue holds, of polls that become ready together, so that
// nobody can hold them back.
func TestOverflowOfPolls(t *testing.T) {
	r := newRing(t, Options{Entries: 8, CQEntries: 8})
	if r.params.features&featNoDrop == 0 {
		skip(t, "this kernel drops what overflows")
	}
	reading, writing := pipe(t)
	waiting := map[*Request]bool{}
	for range 300 {
		q := new(Request).Poll(reading, 1)
		for r.Push(q) == ErrFull {
			if _, err := r.Submit(); err != nil {
				t.Fatal(err)
			}
		}
		waiting[q] = true
	}
	if _, err := r.Submit(); err != nil {
		t.Fatal(err)
	}
	_, _ = syscall.Write(writing, []byte("x"))
	for deadline := time.Now().Add(patience); len(waiting) > 0; {
		if _, err := r.SubmitAndWait(1, patience); err != nil && err != ErrReap {
			t.Fatal(len(waiting), err)
		}
		reapInto(t, r, waiting)
		if time.Now().After(deadline) {
			t.Fatal(len(waiting), "are lost")
		}
	}
	equal(t, r.Overflow(), 0)
	equal(t, r.InFlight(), 0)
}

// A cancel is of its own ring: another's request may have the same name there.
func TestCancelOfAnotherRing(t *testing.T) {
	r, other := newRing(t, Options{}), newRing(t, Options{})
	reading, writing := pipe(t)
	a, b := new(Request).Read(reading, make([]byte, 1), CurrentPosition), new(Request).Read(reading, make([]byte, 1), CurrentPosition)
	for q, r := range map[*Request]*Ring{a: r, b: other} {
		if err := r.Push(q); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Submit(); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, a.userData, b.userData)
	equal(t, run(t, r, new(Request).Cancel(b))[0].Err(), error(syscall.ENOENT))
	// One that was prepared before is about what is in flight when it is pushed.
	early := new(Request)
	cancel := new(Request).Cancel(early)
	if err := r.Push(early.Read(reading, make([]byte, 1), CurrentPosition)); err != nil {
		t.Fatal(err)
	}
	if err := r.Push(cancel); err != nil {
		t.Fatal(err)
	}
	ends := collect(t, r, early, cancel)
	equal(t, ends[0].Err(), error(syscall.ECANCELED))
	equal(t, ends[1].Err(), nil)
	// Once it has completed it knows of nobody, and keeps nobody alive.
	equal(t, cancel.other, nil)
	equal(t, run(t, r, cancel)[0].Err(), error(syscall.ENOENT))
	_, _ = syscall.Write(writing, []byte("xy"))
	equal(t, collect(t, r, a)[0].Result, 1)
	equal(t, collect(t, other, b)[0].Result, 1)
}

// To reap is not to submit, also when the kernel has to be entered for what did not fit.
func TestReapSubmitsNothing(t *testing.T) {
	r := newRing(t, Options{Entries: 8, CQEntries: 8})
	reading, writing := pipe(t)
	for range 20 {
		q := new(Request).Poll(reading, 1)
		for r.Push(q) == ErrFull {
			if _, err := r.Submit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := r.Submit(); err != nil {
		t.Fatal(err)
	}
	chain := []*Request{new(Request).Nop().Link(), new(Request)}
	for _, q := range chain {
		if err := r.Push(q); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = syscall.Write(writing, []byte("x"))
	var done [32]Completion
	for n, deadline := 0, time.Now().Add(patience); n < 20; n += r.Reap(done[:]) {
		if time.Now().After(deadline) {
			t.Fatal(n)
		}
	}
	equal(t, r.Pending(), 2)
	collect(t, r, chain...)
}

func TestRingIsCloseOnExec(t *testing.T) {
	r := newRing(t, Options{})
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(r.Fd()), syscall.F_GETFD, 0)
	if errno != 0 || flags&syscall.FD_CLOEXEC == 0 {
		t.Fatal("programs inherit the ring:", errno)
	}
}

// A completion under a name of before: its place is another request's now.
func TestLateCompletionFindsNobody(t *testing.T) {
	f := newFake(8, 16, 0)
	var done [4]Completion
	q := new(Request)
	push := func() {
		t.Helper()
		if err := f.Push(q); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Submit(); err != nil {
			t.Fatal(err)
		}
	}
	push()
	before := q.userData
	equal(t, f.Reap(done[:]), 1)
	f.take = func(submit uint32) (uint32, syscall.Errno) { return 0, 0 } // The kernel takes its time.
	push()
	f.queued = append(f.queued, cqe{userData: before})
	f.flush()
	equal(t, f.Reap(done[:]), 0)
	if !q.InFlight() || q.userData == before {
		t.Fatal("one got another's completion")
	}
	f.take = nil
	if _, err := f.Submit(); err != nil {
		t.Fatal(err)
	}
	equal(t, f.Reap(done[:]), 1)
	equal(t, f.InFlight(), 0)
}

// Descriptors that nobody learns of are closed with the ring; places in its table go with it.
func TestCloseClosesDescriptors(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	before := count()
	r := newRing(t, Options{})
	sparse(t, r, 2)
	requests := []*Request{
		new(Request).Openat(AtFDCWD, "/", os.O_RDONLY, 0), new(Request).Openat(AtFDCWD, "/", os.O_RDONLY, 0).Async(),
		new(Request).Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0), new(Request).AcceptMultishot(int(file.Fd()), 0),
		new(Request).Openat(AtFDCWD, "/", os.O_RDONLY, 0).Direct(0), new(Request).Openat(AtFDCWD, "/none", os.O_RDONLY, 0),
	}
	for _, q := range requests {
		if err := r.Push(q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.SubmitAndWait(len(requests)-1, patience); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if _, err := r.SubmitAndWait(len(requests)-1+3, patience); err != nil {
		t.Fatal(err)
	}
	if count() < before+1+3+3 {
		t.Fatal("there is nothing to close")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	const connections = 3 // Of the test.
	if n := count(); n > before+connections {
		t.Fatalf("%d descriptors are left of %d", n, before+connections)
	}
}
