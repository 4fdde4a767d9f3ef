//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// The engine: which backend there is, and why no other.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

// Engine is what files share: a few rings, or what stands in for them. Make one for a program, or use [Default].
type Engine struct {
	backend  Backend
	shards   []*shard
	rings    []*uring // Below the shards, if the backend is uring.
	next     atomic.Uint32
	calls    *lane // Of blocking calls.
	syncs    *lane // Of syncs, which take long and are not to be in the others' way.
	options  Options
	refusals []*Refusal
	granted  []string
	hints    sync.Pool
	fixed    *arena // nil: none.
	closed   atomic.Bool
	over     chan struct{} // Closed with the engine.
	plain    atomic.Int32  // Transfers that are plain calls because they are few.
}

// New makes an engine. Each ring or KAIO context has to pass a real read. Where a backend was forced, by the options or by
// RINGWAY_BACKEND, and is refused, the error is a *[Refusal].
func New(o Options) (*Engine, error) {
	ladder, err := o.ladder()
	if o.null {
		ladder, err = []Backend{nullBackend}, nil
	}
	if err != nil {
		return nil, err
	}
	if o.Rings <= 0 {
		o.Rings = min((runtime.GOMAXPROCS(0)+3)/4, 4)
	}
	o.Rings = min(o.Rings, runtime.GOMAXPROCS(0))
	if o.InFlight <= 0 {
		o.InFlight = 192
	}
	if o.Threads <= 0 {
		o.Threads = 64
	}
	o.closeWait = cmp.Or(o.closeWait, closeWait)
	over := make(chan struct{})
	e := &Engine{options: o, calls: newLane(o.Threads, over), syncs: newLane(max(o.Threads/4, 1), over), over: over}
	e.hints.New = func() any { return e.shards[int(e.next.Add(1))%len(e.shards)] }
	for _, backend := range ladder {
		if err = e.make(backend); err == nil {
			e.backend = backend
			if e.options.FixedBuffers > 0 {
				e.fix()
			}
			return e, nil
		}
		var refused *Refusal
		if !errors.As(err, &refused) {
			return nil, err
		}
		e.refusals = append(e.refusals, refused)
	}
	return nil, err
}

// make makes all shards of one backend, or none. A ring fewer than wanted is no refusal: memory may allow only some.
func (e *Engine) make(backend Backend) error {
	if backend == Threads {
		return nil
	}
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
	return nil
}

// fix has fixed buffers, or a refusal.
func (e *Engine) fix() {
	err := error(syscall.EOPNOTSUPP)
	if e.backend == Uring {
		err = e.register()
	}
	if err != nil {
		e.refusals = append(e.refusals, refusal.New(refusal.FixedBuffers, refusal.Errno(err)))
		return
	}
	e.granted = append(e.granted, refusal.FixedBuffers)
}

// register registers memory with all rings, or with none.
func (e *Engine) register() error {
	fixed, err := newFixedArena((min(e.options.FixedBuffers, mostFixed) + pageSize - 1) &^ (pageSize - 1))
	if err != nil {
		return err
	}
	for i, u := range e.rings {
		if err := u.fix(fixed.only); err != nil {
			for _, u := range e.rings[:i] {
				u.unfix()
			}
			fixed.retire()
			return err
		}
	}
	e.fixed = fixed
	return nil
}

// mostFixed is what the kernel takes as one registered buffer.
const mostFixed = 1 << 30

func (e *Engine) makeShard(backend Backend, inFlight int) (*shard, error) {
	var q queue
	var fd int
	var feature string
	switch backend {
	case Uring:
		u, err := newUring(uint32(e.options.IOWQWorkers))
		if err != nil {
			return nil, err
		}
		q, fd, feature = u, u.ring.Fd(), refusal.Uring
	case KAIO:
		k, err := newKaio(inFlight)
		if err != nil {
			return nil, err
		}
		q, fd, feature = k, k.eventfd, refusal.KAIO
	case nullBackend:
		n, err := newNull()
		if err != nil {
			return nil, err
		}
		return newShard(n, n.eventfd, inFlight)
	}
	if errno := realRead(q); errno != 0 {
		_ = q.close()
		return nil, refusal.New(feature, errno)
	}
	u, ring := q.(*uring)
	if e.options.wrap != nil {
		q = e.options.wrap(q)
	}
	s, err := newShard(q, fd, inFlight)
	if err != nil {
		_ = q.close()
		return nil, refusal.New(feature, refusal.Errno(err))
	}
	if ring {
		if len(e.rings) == 0 {
			e.granted, e.refusals = u.ring.SetupFlags(), append(e.refusals, u.ring.Refusals()...)
		}
		e.rings = append(e.rings, u)
	}
	return s, nil
}

// realRead reads something through a queue as it will be used: to have set one up proves nothing, since some sandboxes
// grant that and refuse every operation.
func realRead(q queue) syscall.Errno {
	sample, want, err := openSample()
	if err != nil {
		return refusal.Errno(err)
	}
	defer sample.Close()
	page := alignedSlice(len(want), len(want))
	r := newRequest(read, int(sample.Fd()), page, 0)
	q.push(r)
	deadline := time.Now().Add(5 * time.Second)
	for {
		q.submit(false)
		if done := q.reap(nil); len(done) > 0 {
			break
		}
		if time.Now().After(deadline) {
			return syscall.ETIMEDOUT // The queue's end keeps or frees the request.
		}
		time.Sleep(50 * time.Microsecond)
	}
	switch {
	case r.result == cannotCarry && q.why() != 0:
		return q.why()
	case r.result == cannotCarry:
		return syscall.EINVAL
	case r.result < 0:
		return errnoOf(r.result)
	case int(r.result) != len(want) || !bytes.Equal(page, want):
		return syscall.EIO
	}
	r.free()
	return 0
}

// openSample opens a file that a queue can be tried with: at least a page long, and what its first page holds. It is the
// program's own, so that nothing has to be written: under RLIMIT_FSIZE a write of one page may fail with EFBIG and send SIGXFSZ.
// A file in memory stands in where the program cannot be read (no /proc, or a program that may only be executed).
func openSample() (*os.File, []byte, error) {
	want := make([]byte, 4096)
	f, err := os.Open("/proc/self/exe")
	if err == nil {
		if _, err = f.ReadAt(want, 0); err == nil {
			return f, want, nil
		}
		f.Close()
	}
	if f, err = inMemory(); err != nil {
		return nil, nil, err
	}
	copy(want, bytes.Repeat([]byte("ringway "), len(want)/8)) // Bytes that no kernel would invent.
	if _, err := f.Write(want); err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, want, nil
}

func inMemory() (*os.File, error) {
	const closeOnExec = 1
	name := [...]byte{'r', 'i', 'n', 'g', 'w', 'a', 'y', 0}
	fd, _, errno := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(&name)), closeOnExec, 0)
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(fd, "sample"), nil
}

// Backend is the one that the engine has.
func (e *Engine) Backend() Backend { return e.backend }

// Refusals are what was tried first, or asked for, and not granted.
func (e *Engine) Refusals() []*Refusal { return e.refusals }

// Explain tells which backend the engine has, and what was refused, with reason and mend.
func (e *Engine) Explain() string {
	var detail string
	switch e.backend {
	case Uring:
		detail = fmt.Sprintf(", rings: %d", len(e.shards))
	case KAIO:
		detail = fmt.Sprintf(", contexts: %d", len(e.shards))
	}
	if len(e.granted) > 0 {
		detail += "; with " + strings.Join(e.granted, ", ")
	}
	return explain(e.backend, detail, e.refusals)
}

// Stats are counts over all shards.
func (e *Engine) Stats() Stats {
	var all Stats
	for _, s := range e.shards {
		stats := s.snapshot()
		all.Pushed += stats.Pushed
		all.Delivered += stats.Delivered
		all.Submissions += stats.Submissions
		all.Retries += stats.Retries
		all.InFlight += stats.InFlight
		all.Waiting += stats.Waiting
	}
	return all
}

// Close ends the engine, within five seconds. Operations that wait for room answer [ErrEngineClosed] at once. What the kernel
// has may complete for four seconds, and is then cancelled. What the kernel has not let go of after five seconds answers
// [ErrAbandoned]; its memory and its descriptor are leaked, and Close returns an error. Plain system calls are not waited for,
// and run to their ends in their goroutines. Files stay open, and answer ErrEngineClosed where they need the engine.
func (e *Engine) Close() error {
	if e.closed.Swap(true) {
		return ErrEngineClosed
	}
	close(e.over)
	deadline := time.Now().Add(e.options.closeWait)
	errs := make([]error, len(e.shards))
	var all sync.WaitGroup
	for i, s := range e.shards {
		all.Go(func() { errs[i] = s.close(deadline, e.options.closeWait/5) })
	}
	all.Wait()
	err := errors.Join(errs...)
	if err == nil && e.fixed != nil {
		e.fixed.retire()
	}
	return err
}

// closeWait is how long closing an engine takes at most.
const closeWait = 5 * time.Second

// shard for the next operation: mostly the one that this P has used before.
func (e *Engine) shard() *shard {
	if len(e.shards) == 1 {
		return e.shards[0]
	}
	s := e.hints.Get().(*shard)
	e.hints.Put(s)
	return s
}
