//go:build linux

// Test helpers: rings, files and descriptors, and a ring with a simulated kernel.

package ring

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/tests"
)

var must, require, expect = tests.Must, tests.Require, tests.Expect

// get returns the value of a call, and fails the test on an error.
func get[T any](value T, err error) func(testing.TB) T { return tests.Get(value, err) }

const testTimeout = 10 * time.Second

// skip skips a test that this machine cannot run. Where CI is set it fails the test, unless
// io_uring itself is refused.
func skip(t testing.TB, why ...any) {
	t.Helper()
	text := "skipped: " + strings.TrimSpace(fmt.Sprintln(why...))
	if err, ok := why[0].(error); os.Getenv("CI") == "" || ok &&
		(errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS)) {
		t.Skip(text)
	}
	t.Fatal(text)
}

// checkMemlock skips a test if RLIMIT_MEMLOCK is too low for it.
func checkMemlock(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, syscall.ENOMEM) {
		skip(t, err)
	}
	must(t, err)
}

func newRing(t testing.TB, o Options) *Ring {
	t.Helper()
	r, err := New(o)
	if err != nil {
		skip(t, err)
	}
	t.Cleanup(func() { closeRing(t, r) })
	return r
}

// closeRing closes a ring, if it is not closed already.
func closeRing(t testing.TB, r *Ring) {
	t.Helper()
	err := r.Close()
	expect(t, err == nil || err == ErrClosed, "%v", err)
}

// needOps skips a test if the kernel does not support all operations.
func needOps(t testing.TB, r *Ring, ops ...Opcode) {
	t.Helper()
	probe := get(r.Probe())(t)
	for _, op := range ops {
		if !probe.Supports(op) {
			skip(t, "this kernel does not support opcode", op)
		}
	}
}

// ringWithoutFlags returns a ring as on an old kernel: without setup flags, and thus with the array
// of entries.
func ringWithoutFlags(t *testing.T, change func(*config)) *Ring {
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
	t.Cleanup(func() { closeRing(t, r) })
	return r
}

// push pushes requests, and submits when the queue is full.
func push(t testing.TB, r *Ring, requests ...*Request) {
	t.Helper()
	for _, q := range requests {
		err := r.Push(q)
		for ; err == ErrFull; err = r.Push(q) {
			submit(t, r)
		}
		must(t, err)
	}
}

func submit(t testing.TB, r *Ring) {
	t.Helper()
	must(t, errorOf(r.Submit()))
}

// run pushes requests together and returns their completions in the order of the requests.
func run(t *testing.T, r *Ring, requests ...*Request) []Completion {
	t.Helper()
	push(t, r, requests...)
	return collect(t, r, requests...)
}

func collect(t *testing.T, r *Ring, requests ...*Request) []Completion {
	t.Helper()
	ordered := make([]Completion, len(requests))
	for got := 0; got < len(requests); {
		_, err := r.SubmitAndWait(1, testTimeout)
		require(t, err == nil, "%d of %d completions: %v", got, len(requests), err)
		var done [8]Completion
		for _, c := range done[:r.Reap(done[:])] {
			for i, q := range requests {
				if c.Request == q {
					ordered[i] = c
					got++
				}
			}
		}
	}
	return ordered
}

// finish waits for the last completion of a request that was canceled or removed.
func finish(t *testing.T, r *Ring, q *Request) {
	t.Helper()
	for q.InFlight() {
		collect(t, r, q)
	}
}

// readByte prepares a read of one byte of a pipe.
func readByte(fd int) *Request {
	return new(Request).Read(fd, make([]byte, 1), CurrentPosition)
}

// one runs a request that must succeed, and returns its result.
func one(t *testing.T, r *Ring, q *Request) int {
	t.Helper()
	c := run(t, r, q)[0]
	require(t, c.Err() == nil, "operation %d: %v", q.Opcode(), c.Err())
	return int(c.Result)
}

// failure runs a request, and returns its error.
func failure(t *testing.T, r *Ring, q *Request) error {
	t.Helper()
	return run(t, r, q)[0].Err()
}

// drain waits until each of these requests has completed, once.
func drain(t *testing.T, r *Ring, waiting map[*Request]bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); len(waiting) > 0; {
		require(t, !time.Now().After(deadline), "%d are lost", len(waiting))
		if _, err := r.SubmitAndWait(1, testTimeout); err != nil && err != ErrReap {
			t.Fatal(len(waiting), err)
		}
		var done [8]Completion
		for _, c := range done[:r.Reap(done[:])] {
			require(t, waiting[c.Request], "a completion of an unknown request, or a second one")
			delete(waiting, c.Request)
		}
	}
}

// errorOf returns the error of a call with two results.
func errorOf[T any](_ T, err error) error { return err }

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	require(t, got == want, "got %v, want %v", got, want)
}

// gives runs a request, which must have this result.
func gives(t *testing.T, r *Ring, q *Request, want int) {
	t.Helper()
	equal(t, one(t, r, q), want)
}

// fails runs a request, which must have this error.
func fails(t *testing.T, r *Ring, q *Request, want error) {
	t.Helper()
	equal(t, failure(t, r, q), want)
}

// wantError fails the test if an error is another one.
func wantError(t *testing.T, err, want error) {
	t.Helper()
	require(t, errors.Is(err, want), "%v, not %v", err, want)
}

func tempFile(t *testing.T, content string) *os.File {
	t.Helper()
	f := get(os.Create(filepath.Join(t.TempDir(), "file")))(t)
	t.Cleanup(func() { f.Close() })
	must(t, errorOf(f.WriteString(content)))
	return f
}

func content(t *testing.T, f *os.File) string {
	t.Helper()
	b := get(os.ReadFile(f.Name()))(t)
	return string(b)
}

// openDescriptors returns how many descriptors the process has.
func openDescriptors(t *testing.T) int {
	t.Helper()
	return len(get(os.ReadDir("/proc/self/fd"))(t))
}

func pipe(t *testing.T) (reading, writing int) {
	t.Helper()
	var fds [2]int
	must(t, syscall.Pipe2(fds[:], syscall.O_CLOEXEC))
	t.Cleanup(func() { syscall.Close(fds[0]); syscall.Close(fds[1]) })
	return fds[0], fds[1]
}

func socketpair(t *testing.T, kind int) (a, b int) {
	t.Helper()
	fds := get(syscall.Socketpair(syscall.AF_UNIX, kind|syscall.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { syscall.Close(fds[0]); syscall.Close(fds[1]) })
	return fds[0], fds[1]
}

func tcp(t *testing.T) (client, server int) {
	t.Helper()
	listener := get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	a := get(net.Dial("tcp", listener.Addr().String()))(t)
	b := get(listener.Accept())(t)
	fd := func(c net.Conn) int {
		defer c.Close()
		file := get(c.(*net.TCPConn).File())(t)
		t.Cleanup(func() { file.Close() })
		return int(file.Fd())
	}
	return fd(a), fd(b)
}

func sparse(t *testing.T, r *Ring, n int) {
	t.Helper()
	since519(t, r.RegisterFilesSparse(n))
}

// since519 checks a call that Linux has since 5.19, and skips the test on an older kernel.
func since519(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, syscall.EINVAL) {
		skip(t, "this kernel is older than 5.19")
	}
	must(t, err)
}

// fake is a ring in ordinary memory with a simulated kernel, which completes requests in order.
type fake struct {
	*Ring
	take   func(submit uint32) (uint32, syscall.Errno)
	queued []cqe
}

func newFake(entries, completions, counters uint32) *fake {
	f := new(fake)
	r := &Ring{fd: -1, closeWait: time.Second}
	header := uint32(64)
	r.params = params{sqEntries: entries, cqEntries: completions, flags: setupNoSQArray,
		features: featExtArg | featNoDrop}
	r.params.sqOff = sqOffsets{head: 0, tail: 4, flags: 8, array: header}
	r.params.cqOff = cqOffsets{head: 16, tail: 20, overflow: 24, cqes: header}
	r.rings = unsafe.Slice((*byte)(unsafe.Pointer(&make([]uint64, (header+completions*16)/8)[0])),
		header+completions*16)
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

// flush posts the completions that fit, and sets the overflow flag if some remain.
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
