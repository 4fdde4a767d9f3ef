//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// A queue without a device, for benchmarks: what remains is the cost of the engine itself.

package ringway

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/null"
)

func init() {
	null.NewEngine = func() (any, error) {
		return newEngine(Options{AlwaysRing: true}, []Backend{backendNull})
	}
}

// backendNull is not a backend that options or the environment can select.
const backendNull Backend = "null"

// nullQueue completes each request in full as soon as it is submitted. As with a device, goroutines
// park in the meantime: the reaper finds the completions, not the round that submits.
type nullQueue struct {
	eventfd   int
	pushed    []*request
	signalled bool        // The descriptor is readable.
	found     atomic.Bool // The reaper knows that.
}

func newNull() (*nullQueue, error) {
	fd, _, errno := syscall.Syscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK,
		0)
	if errno != 0 {
		return nil, errno
	}
	return &nullQueue{eventfd: int(fd)}, nil
}

func (q *nullQueue) capacity() int { return largestGroup }

func (q *nullQueue) push(r *request) {
	r.result = int32(len(r.p))
	q.pushed = append(q.pushed, r)
}

func (q *nullQueue) cancel(*request) {}

func (q *nullQueue) submit() bool {
	if len(q.pushed) > 0 && !q.signalled {
		q.signalled = true
		one := uint64(1)
		_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, uintptr(q.eventfd),
			uintptr(unsafe.Pointer(&one)), 8)
	}
	return true
}

func (q *nullQueue) reap(done []*request) []*request {
	if !q.found.Swap(false) {
		return done
	}
	q.signalled = false
	done = append(done, q.pushed...)
	clear(q.pushed)
	q.pushed = q.pushed[:0]
	return done
}

func (q *nullQueue) refusedWith() syscall.Errno { return 0 }

func (q *nullQueue) readable(fd uintptr) {
	var ticks [8]byte
	_, _ = syscall.Read(int(fd), ticks[:])
	q.found.Store(true)
}

func (q *nullQueue) close() error { return syscall.Close(q.eventfd) }
