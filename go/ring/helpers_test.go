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
)

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
	} else if err != nil {
		t.Fatal(err)
	}
}

func newRing(t testing.TB, o Options) *Ring {
	t.Helper()
	r, err := New(o)
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

// needOps skips a test if the kernel does not support all operations.
func needOps(t testing.TB, r *Ring, ops ...Opcode) {
	t.Helper()
	probe, err := r.Probe()
	if err != nil {
		t.Fatal(err)
	}
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
	t.Cleanup(func() {
		if err := r.Close(); err != nil && err != ErrClosed {
			t.Error(err)
		}
	})
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
		if err != nil {
			t.Fatal(err)
		}
	}
}

func submit(t testing.TB, r *Ring) {
	t.Helper()
	if _, err := r.Submit(); err != nil {
		t.Fatal(err)
	}
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
		if _, err := r.SubmitAndWait(1, testTimeout); err != nil {
			t.Fatalf("%d of %d completions: %v", got, len(requests), err)
		}
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

// one runs a request that must succeed, and returns its result.
func one(t *testing.T, r *Ring, q *Request) int {
	t.Helper()
	c := run(t, r, q)[0]
	if c.Err() != nil {
		t.Fatalf("operation %d: %v", q.Opcode(), c.Err())
	}
	return int(c.Result)
}

// failure runs a request, and returns its error.
func failure(t *testing.T, r *Ring, q *Request) error {
	t.Helper()
	return run(t, r, q)[0].Err()
}

func reapInto(t *testing.T, r *Ring, waiting map[*Request]bool) {
	t.Helper()
	var done [8]Completion
	for _, c := range done[:r.Reap(done[:])] {
		if !waiting[c.Request] {
			t.Fatal("a completion of an unknown request, or a second one")
		}
		delete(waiting, c.Request)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func tempFile(t *testing.T, content string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	return f
}

func content(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func pipe(t *testing.T) (reading, writing int) {
	t.Helper()
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fds[0]); syscall.Close(fds[1]) })
	return fds[0], fds[1]
}

func socketpair(t *testing.T, kind int) (a, b int) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, kind|syscall.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { syscall.Close(fds[0]); syscall.Close(fds[1]) })
	return fds[0], fds[1]
}

func tcp(t *testing.T) (client, server int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	a, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	b, err := listener.Accept()
	must(t, err)
	fd := func(c net.Conn) int {
		defer c.Close()
		file, err := c.(*net.TCPConn).File()
		must(t, err)
		t.Cleanup(func() { file.Close() })
		return int(file.Fd())
	}
	return fd(a), fd(b)
}

func sparse(t *testing.T, r *Ring, n int) {
	t.Helper()
	if err := r.RegisterFilesSparse(n); errors.Is(err, syscall.EINVAL) {
		skip(t, "this kernel is older than 5.19")
	} else if err != nil {
		t.Fatal(err)
	}
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
