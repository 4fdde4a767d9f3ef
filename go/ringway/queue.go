//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The queues of an engine: their interface, their construction, and the read that each has to pass.

package ringway

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

// queue is a backend: how requests reach the kernel. Only the goroutine that holds the shard's
// combining lock calls it.
type queue interface {
	// capacity returns how many requests can be pushed before the next submission.
	capacity() int
	// push takes a request, and keeps everything that it points to alive until it is reaped.
	push(*request)
	// cancel asks the kernel to end a request that was pushed, if it is still there.
	cancel(*request)
	// submit passes pushed requests to the kernel, which may take long: even a direct read waits
	// for the file system's journal or for a full device. So Go's scheduler has to know of the
	// system call. submit returns false if the kernel did not take them all now (it is short of
	// memory, or completions have to be reaped first).
	submit() bool
	// reap appends the requests that are complete.
	reap([]*request) []*request
	// refusedWith returns the error with which the kernel refused requests, or 0.
	refusedWith() syscall.Errno
	// readable is called when the queue's descriptor became readable.
	readable(fd uintptr)
	// close ends what is in flight within a bounded time, and leaks what the kernel still has.
	close() error
}

// wrapQueue wraps a queue, in tests that inject faults.
type wrapQueue = func(queue) queue

// queues are the shards of an engine. There are none with the backend threads.
type queues struct {
	shards []*shard
	rings  []*uring     // Below the shards, if the backend is io_uring.
	plain  atomic.Int32 // Transfers that run as plain calls because there are only a few.
	next   atomic.Uint32
	hints  sync.Pool // Of *shard: the one that a P used before.
}

// open makes the shards of one backend, or none. Fewer rings than asked for are not an error,
// because the limit on locked memory may allow only some.
func (e *Engine) open(backend Backend) error {
	if backend == BackendThreads {
		return nil
	}
	e.hints.New = func() any { return e.shards[int(e.next.Add(1))%len(e.shards)] }
	each := max(e.options.InFlight/e.options.Rings, 1)
	for range e.options.Rings {
		s, err := e.makeShard(backend, each)
		if err != nil {
			if len(e.shards) > 0 {
				break
			}
			return err
		}
		e.shards = append(e.shards, s)
	}
	for _, s := range e.shards {
		if backend != backendNull {
			s.devices.shards = len(e.shards)
		}
	}
	return nil
}

func (e *Engine) makeShard(backend Backend, inFlight int) (*shard, error) {
	var q queue
	var fd int
	var feature string
	var ring *uring
	switch backend {
	case BackendURing:
		u, err := newUring(uint32(e.options.IOWQWorkers))
		if err != nil {
			return nil, err
		}
		ring = u
		q, fd, feature = ring, u.ring.Fd(), refusal.Uring
	case BackendKAIO:
		k, err := newKAIO(inFlight)
		if err != nil {
			return nil, err
		}
		q, fd, feature = k, k.eventfd, refusal.KAIO
	case backendNull:
		n, err := newNull()
		if err != nil {
			return nil, err
		}
		return newShard(n, n.eventfd, inFlight)
	}
	if errno := realRead(q); errno != 0 {
		_ = q.close()
		return nil, unavailable(feature, errno)
	}
	if e.options.wrap != nil {
		q = e.options.wrap(q)
	}
	s, err := newShard(q, fd, inFlight)
	if err != nil {
		_ = q.close()
		return nil, unwatched(feature, err)
	}
	if ring != nil {
		if len(e.rings) == 0 {
			e.available = ring.ring.SetupFlags()
			for _, refused := range ring.ring.Refusals() {
				e.refusals = append(e.refusals, (*Refusal)(refused))
			}
		}
		e.rings = append(e.rings, ring)
	}
	return s, nil
}

// unavailable explains why the kernel refused a feature.
func unavailable(feature string, err error) *Refusal {
	return (*Refusal)(refusal.New(feature, refusal.Errno(err)))
}

// unwatched explains why nobody would learn of the completions of a queue.
func unwatched(feature string, err error) *Refusal {
	if err != syscall.ENOSPC {
		return unavailable(feature, err)
	}
	return &Refusal{Feature: feature, Errno: syscall.ENOSPC,
		Meaning: "Go's poller would watch it, but the programs of this user watch as many " +
			"descriptors with epoll as they may",
		Fix: "raise the limit (sysctl fs.epoll.max_user_watches)"}
}

// register registers memory with all rings, or with none.
func (e *Engine) register() error {
	if e.backend != BackendURing {
		return syscall.EOPNOTSUPP
	}
	fixed, err := newFixedArena(wholePages(e.options.FixedBuffers))
	if err != nil {
		return err
	}
	for i, u := range e.rings {
		if err := u.register(fixed.only); err != nil {
			for _, u := range e.rings[:i] {
				u.unregister()
			}
			fixed.retire()
			return err
		}
	}
	e.fixed = fixed
	return nil
}

// realRead reads a page through a queue in the way in which the engine will use it. To set up a
// queue proves nothing: some sandboxes allow that and refuse every operation.
func realRead(q queue) syscall.Errno {
	sample, want, err := openSample()
	if err != nil {
		return refusal.Errno(err)
	}
	defer sample.Close()
	page := alignedSlice(len(want), len(want))
	r := newRequest(opRead, int(sample.Fd()), page, 0)
	q.push(r)
	deadline := time.Now().Add(5 * time.Second)
	for {
		q.submit()
		if done := q.reap(nil); len(done) > 0 {
			break
		}
		if time.Now().After(deadline) {
			return syscall.ETIMEDOUT // Closing the queue leaks or frees the request.
		}
		time.Sleep(50 * time.Microsecond)
	}
	switch {
	case r.result == unsupported && q.refusedWith() != 0:
		return q.refusedWith()
	case r.result == unsupported:
		return syscall.EINVAL
	case r.result < 0:
		return errnoOf(r.result)
	case int(r.result) != len(want) || !bytes.Equal(page, want):
		return syscall.EIO
	}
	r.free()
	return 0
}

// openSample opens a file of at least a page for realRead, and returns the content of its first
// page. The file is the program itself, so that nothing has to be written: under RLIMIT_FSIZE, a
// write of a single page may fail with EFBIG and raise SIGXFSZ. If the program cannot be read (no
// /proc, or an execute-only file), a file in memory takes its place.
func openSample() (*os.File, []byte, error) {
	want := make([]byte, 4096)
	f, err := os.Open("/proc/self/exe")
	if err == nil {
		if _, err = f.ReadAt(want, 0); err == nil {
			return f, want, nil
		}
		f.Close()
	}
	if f, err = createInMemory(); err != nil {
		return nil, nil, err
	}
	copy(want, bytes.Repeat([]byte("ringway "), len(want)/8)) // No kernel makes up these bytes.
	if _, err := f.Write(want); err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, want, nil
}

func createInMemory() (*os.File, error) {
	const closeOnExec = 1
	name := [...]byte{'r', 'i', 'n', 'g', 'w', 'a', 'y', 0}
	fd, _, errno := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(&name)), closeOnExec, 0)
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(fd, "sample"), nil
}

// shard returns the shard for the next operation: usually the one that this P used before.
func (e *Engine) shard() *shard {
	if len(e.shards) == 1 {
		return e.shards[0]
	}
	s := e.hints.Get().(*shard)
	e.hints.Put(s)
	return s
}

// describe returns the number of queues, for Explain.
func (e *Engine) describe() string {
	switch e.backend {
	case BackendURing:
		return fmt.Sprintf(", rings: %d", len(e.shards))
	case BackendKAIO:
		return fmt.Sprintf(", contexts: %d", len(e.shards))
	}
	return ""
}

func (q *queues) stats() (sum Stats) {
	for _, s := range q.shards {
		stats := s.snapshot()
		sum.Pushed += stats.Pushed
		sum.Delivered += stats.Delivered
		sum.Submissions += stats.Submissions
		sum.Retries += stats.Retries
		sum.InFlight += stats.InFlight
		sum.Waiting += stats.Waiting
	}
	return sum
}

// closeQueues closes all shards at the same time, until the deadline.
func (q *queues) closeQueues(deadline time.Time, before time.Duration) error {
	errs := make([]error, len(q.shards))
	var all sync.WaitGroup
	for i, s := range q.shards {
		all.Go(func() { errs[i] = s.close(deadline, before) })
	}
	all.Wait()
	return errors.Join(errs...)
}
