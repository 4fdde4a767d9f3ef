//go:build linux

package ringway

import (
	"cmp"
	"errors"
	"fmt"
	"io"
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

// Refusal is a backend, or a part of one, that was not granted: the errno, its meaning on this machine, and the mend.
type Refusal = refusal.Refusal

const featureKAIO = refusal.KAIO

var newRefusal = refusal.New

// Backend is how operations reach the kernel.
type Backend string

// The backends, in the order in which they are tried.
const (
	Uring   Backend = "uring"
	KAIO    Backend = "kaio"
	Threads Backend = "threads"
)

// Variable names the environment variable that forces a backend for every engine that does not say itself.
const Variable = "RINGWAY_BACKEND"

// Options of an engine. The zero value is a good engine.
type Options struct {
	// Backend forces one; one that is refused is then an error.
	Backend Backend
	// Rings is how many goroutines share; 0 means one for every four Ps, at most four. Fewer make larger groups, and larger
	// groups cost less.
	Rings int
	// InFlight is the most transfers that the kernel has at once, over all rings; the others wait in order. What is beyond the
	// device's queue (usually 256) costs many times as much. 0 means 192.
	InFlight int
	// Threads is the most blocking system calls at once, of what no ring or KAIO context carries; 0 means 64.
	Threads int
	// IOWQWorkers caps the kernel threads of each ring that do what cannot be done without blocking, as an fsync; 0 leaves
	// the kernel's own limit.
	IOWQWorkers int
	// FixedBuffers is how many bytes of memory are registered with each ring, so that the kernel need not look their pages up
	// for each operation; [Engine.NewBuffer] lends them. They count against RLIMIT_MEMLOCK, once for each ring. At most 1 GiB;
	// 0 means none. Where they are refused the engine has none, and [Engine.Refusals] tells why.
	FixedBuffers int
	// AlwaysRing takes everything that a ring or a KAIO context carries there: without a look into the page cache first, and
	// without a plain call for an operation that is alone. For tests and measurements.
	AlwaysRing bool

	wrap func(queue) queue // Injects faults, in tests.
}

// Engine is what files share: a few rings, or what stands in for them. Make one for a program, or use [Default].
type Engine struct {
	backend  Backend
	shards   []*shard
	rings    []*uring // Below the shards, if the backend is uring.
	next     atomic.Uint32
	calls    chan struct{} // A token for each blocking call under way.
	options  Options
	refusals []*Refusal
	granted  []string
	hints    sync.Pool
	fixed    *arena // nil: none.
	closed   atomic.Bool
	active   atomic.Int32 // Transfers of storage under way, in shards or alone.
}

// ErrEngineClosed is what operations answer after [Engine.Close].
var ErrEngineClosed = fmt.Errorf("ringway: the engine is closed: %w", os.ErrClosed)

// Default is the engine of the package's functions, made when it is first asked for. The error is the one of [New], each
// time: RINGWAY_BACKEND names a backend that does not exist or is refused. Do not close it.
func Default() (*Engine, error) { return theDefault() }

var theDefault = sync.OnceValues(func() (*Engine, error) { return New(Options{}) })

// Explain tells which backend the default engine has, and what was refused, with reason and mend.
func Explain() string {
	e, err := Default()
	if err != nil {
		return err.Error()
	}
	return e.Explain()
}

// New makes an engine. Each ring or KAIO context has to pass a real read. Where a backend was forced, by the options or by
// RINGWAY_BACKEND, and is refused, the error is a *[Refusal].
func New(o Options) (*Engine, error) {
	if o.Backend == "" {
		o.Backend = Backend(os.Getenv(Variable))
	}
	ladder := []Backend{Uring, KAIO, Threads}
	switch o.Backend {
	case "":
	case Uring, KAIO, Threads:
		ladder = []Backend{o.Backend}
	default:
		return nil, fmt.Errorf("ringway: %s: no backend is called %q; there are uring, kaio and threads", Variable, o.Backend)
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
	e := &Engine{options: o, calls: make(chan struct{}, o.Threads)}
	e.hints.New = func() any { return e.shards[int(e.next.Add(1))%len(e.shards)] }
	var err error
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

// fix registers memory with all rings, or with none.
func (e *Engine) fix() {
	err := error(syscall.EOPNOTSUPP)
	if e.backend == Uring {
		var fixed *arena
		if fixed, err = newFixedArena((min(e.options.FixedBuffers, mostFixed) + pageSize - 1) &^ (pageSize - 1)); err == nil {
			for _, u := range e.rings {
				err = cmp.Or(err, u.fix(fixed.only))
			}
			if err == nil {
				e.fixed = fixed
				e.granted = append(e.granted, refusal.FixedBuffers)
				return
			}
			for _, u := range e.rings {
				u.unfix()
			}
			fixed.retire()
		}
	}
	e.refusals = append(e.refusals, refusal.New(refusal.FixedBuffers, errnoIn(err)))
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
	}
	if errno := realRead(q); errno != 0 {
		_ = q.close()
		return nil, refusal.New(feature, errno)
	}
	if u, ok := q.(*uring); ok {
		if len(e.rings) == 0 {
			e.granted, e.refusals = u.ring.Granted(), append(e.refusals, u.ring.Refusals()...)
		}
		e.rings = append(e.rings, u)
	}
	if e.options.wrap != nil {
		q = e.options.wrap(q)
	}
	s, err := newShard(q, fd, inFlight)
	if err != nil {
		_ = q.close()
		return nil, refusal.New(feature, errnoIn(err))
	}
	return s, nil
}

// errnoIn is the errno below an error, or EIO.
func errnoIn(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}

// realRead reads something through a queue as it will be used: to have set one up proves nothing, since some sandboxes
// grant that and refuse every operation.
func realRead(q queue) syscall.Errno {
	sample, err := sampleFile()
	if err != nil {
		return errnoIn(err)
	}
	defer sample.Close()
	const size = 4096
	page := alignedSlice(size, size)
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
	case r.result != size || string(page) != sampleText:
		return syscall.EIO
	}
	r.free()
	return 0
}

// sampleText is a page with bytes that no kernel would invent.
var sampleText = strings.Repeat("ringway ", 512)

// sampleFile has no name, so nothing is left behind.
func sampleFile() (*os.File, error) {
	f, err := inMemory()
	if err != nil {
		// A sandbox may lack memfd_create.
		if f, err = os.CreateTemp("", "ringway-sample-"); err != nil {
			return nil, err
		}
		_ = os.Remove(f.Name())
	}
	if _, err := io.WriteString(f, sampleText); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
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
	var b strings.Builder
	fmt.Fprintf(&b, "backend %s", e.backend)
	switch e.backend {
	case Uring:
		fmt.Fprintf(&b, ", rings: %d", len(e.shards))
	case KAIO:
		fmt.Fprintf(&b, ", contexts: %d", len(e.shards))
	}
	for i, name := range e.granted {
		b.WriteString([]string{"; with ", ", "}[min(i, 1)])
		b.WriteString(name)
	}
	for _, refused := range e.refusals {
		b.WriteString("\n")
		b.WriteString(refused.Error())
	}
	return b.String()
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

// Close ends the engine. Operations that wait for room answer ErrEngineClosed; what the kernel has is waited for, at most
// five seconds. Files stay open, and answer ErrEngineClosed where they need the engine.
func (e *Engine) Close() error {
	if e.closed.Swap(true) {
		return ErrEngineClosed
	}
	var err error
	for _, s := range e.shards {
		err = errors.Join(err, s.close())
	}
	if err == nil && e.fixed != nil {
		e.fixed.retire()
	}
	return err
}

// shard for the next operation: mostly the one that this P has used before.
func (e *Engine) shard() *shard {
	if len(e.shards) == 1 {
		return e.shards[0]
	}
	s := e.hints.Get().(*shard)
	e.hints.Put(s)
	return s
}

// call has room for one more blocking system call, and done gives it back.
func (e *Engine) call() { e.calls <- struct{}{} }
func (e *Engine) done() { <-e.calls }
