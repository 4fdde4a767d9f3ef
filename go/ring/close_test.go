//go:build linux

// Closing a ring: what is canceled, closed, or leaked.

package ring

import (
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestCloseCancels(t *testing.T) {
	r := newRing(t, Options{})
	reading, _ := pipe(t)
	for range 100 {
		push(t, r, readByte(reading))
	}
	submit(t, r)
	const long = time.Minute
	begin := time.Now()
	must(t, r.CloseWithin(long))
	expect(t, time.Since(begin) < long/2, "Close waited for canceled requests")
	equal(t, r.Close(), ErrClosed)
	equal(t, r.Push(new(Request)), ErrClosed)
	_, err := r.Submit()
	equal(t, err, ErrClosed)
	equal(t, r.Reap(make([]Completion, 1)), 0)
}

// A cancel request waits behind a barrier. Close must not.
func TestCloseWithABarrier(t *testing.T) {
	r := newRing(t, Options{})
	reading, _ := pipe(t)
	push(t, r, new(Request).Poll(reading, 1), new(Request).Drain(), new(Request),
		new(Request).Drain())
	submit(t, r)
	if !r.cancelNow() {
		skip(t, "this kernel is older than 6.0")
	}
	must(t, r.Close())
}

// Before Linux 6.0, Close cancels by requests.
func TestCancelByRequests(t *testing.T) {
	r := newRing(t, Options{Entries: 4})
	reading, _ := pipe(t)
	const count = 50
	for range count {
		push(t, r, readByte(reading))
	}
	submit(t, r)
	var done [8]Completion
	r.cancelEach(done[:])
	for deadline := time.Now().Add(testTimeout); r.InFlight() > 0; {
		_, err := r.SubmitAndWait(1, time.Second)
		require(t, err == nil || err == ErrReap, "%v, %v", r.InFlight(), err)
		for r.Reap(done[:]) > 0 {
		}
		require(t, !time.Now().After(deadline), "%v", r.InFlight())
	}
}

func TestCloseDoesNotStartPendingRequests(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "before")
	push(t, r, new(Request).Write(int(f.Fd()), []byte("AFTER!"), 0))
	must(t, r.Close())
	equal(t, content(t, f), "before")
}

// Close closes descriptors in completions that were not reaped, and the files in the table.
func TestCloseClosesDescriptors(t *testing.T) {
	listener := get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	file := get(listener.(*net.TCPListener).File())(t)
	defer file.Close()
	before := openDescriptors(t)
	r := newRing(t, Options{})
	sparse(t, r, 2)
	open := func(name string) *Request { return new(Request).Openat(AtFDCWD, name, os.O_RDONLY, 0) }
	requests := []*Request{
		open("/"), open("/").Async(), open("/").Direct(0), open("/none"),
		new(Request).Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0),
		new(Request).AcceptMultishot(int(file.Fd()), 0),
	}
	push(t, r, requests...)
	must(t, errorOf(r.SubmitAndWait(len(requests)-1, testTimeout)))
	for range 3 {
		conn := get(net.Dial("tcp", listener.Addr().String()))(t)
		defer conn.Close()
	}
	must(t, errorOf(r.SubmitAndWait(len(requests)-1+3, testTimeout)))
	require(t, openDescriptors(t) >= before+1+3+3, "too few descriptors for the test")
	must(t, r.Close())
	const connections = 3 // Of the test itself.
	n := openDescriptors(t)
	require(t, n <= before+connections, "%d descriptors are left of %d", n, before+connections)
}

// Memory in flight stays pinned, that of buffer rings too, and Close returns an error.
func TestCloseLeaksMemoryInFlight(t *testing.T) {
	f := newFake(8, 16, 0)
	b := &BufferRing{ring: f.Ring, memory: make([]byte, 8192), size: 1}
	f.groups = []*BufferRing{b}
	hung := new(Request).Read(0, make([]byte, 8), 0)
	push(t, f.Ring, hung, new(Request).RecvSelect(0, 0, 0))
	f.kernel = func(submit, _, _ uint32, _ *geteventsArg) (int, syscall.Errno) {
		atomic.StoreUint32(f.sqHead, *f.sqHead+submit) // Taken, and never completed.
		return int(submit), 0
	}
	submit(t, f.Ring)
	err := f.CloseWithin(50 * time.Millisecond)
	require(t, err != nil, "Close returned no error")
	equal(t, b.Close(), ErrClosed)
	require(t, hung.InFlight() && f.rings != nil && b.memory != nil, "the memory was freed")
	leaked.mu.Lock()
	defer leaked.mu.Unlock()
	_, kept := leaked.all[f.Ring]
	require(t, kept, "the ring is not kept reachable")
}

func TestMethodsOfAClosedRing(t *testing.T) {
	r := newRing(t, Options{})
	must(t, r.Close())
	equal(t, r.Fd(), -1)
	equal(t, r.SpaceLeft()+r.Ready()+r.Pending()+r.InFlight()+int(r.Overflow())+len(r.Withdraw()),
		0)
	_, wait := r.SubmitAndWait(1, 0)
	_, probe := r.Probe()
	_, group := r.RegisterBufferRing(0, 4, 4)
	for _, err := range []error{wait, probe, group, r.RegisterFiles([]int{0}),
		r.RegisterBuffers([][]byte{{1}}), r.UnregisterEventfd()} {
		equal(t, err, ErrClosed)
	}
}
