// The engine: construction, backends, statistics and closing. How operations reach a queue is in
// queue.go and shard.go.

package ringway

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

// Engine submits the operations of files: it has a few rings, Linux AIO contexts, or only the
// limits on blocking system calls. One engine serves a whole program. Its methods may be called by
// any number of goroutines.
type Engine struct {
	queues
	options   Options
	backend   Backend
	forcedBy  string // What forced the backend, if something did.
	calls     *lane  // Of blocking system calls.
	syncs     *lane  // Of syncs, which take long and must not delay the other calls.
	refusals  []*Refusal
	available []string // Features of the backend.
	fixed     *arena   // Registered memory; nil if there is none.
	closed    atomic.Bool
	done      chan struct{} // Closed with the engine.
}

// closeWait is the longest time that Engine.Close takes.
const closeWait = 5 * time.Second

// Default returns the engine that the functions of the package use. The first call makes it. The
// error is that of [New], and every call returns the same: RINGWAY_BACKEND names a backend that
// does not exist or is not available. Do not close the default engine.
func Default() (*Engine, error) { return theDefault() }

var theDefault = sync.OnceValues(func() (*Engine, error) { return New(Options{}) })

// New makes an engine. Each ring or Linux AIO context has to pass a real read before it is used. If
// the options or RINGWAY_BACKEND force a backend that is not available, the error is a *[Refusal].
func New(o Options) (*Engine, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	backends, forcedBy, err := o.backends()
	if err != nil {
		return nil, err
	}
	e, err := newEngine(o, backends)
	if err != nil {
		return nil, err
	}
	e.forcedBy = forcedBy
	return e, nil
}

func newEngine(o Options, backends []Backend) (e *Engine, err error) {
	o.setDefaults()
	e = &Engine{options: o, done: make(chan struct{})}
	e.calls = newLane(o.Threads, e.done)
	e.syncs = newLane(max(o.Threads/4, 1), e.done)
	for _, backend := range backends {
		if err = e.open(backend); err == nil {
			e.backend = backend
			e.registerBuffers()
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

// registerBuffers makes the fixed buffers that the options ask for, or records why it cannot.
func (e *Engine) registerBuffers() {
	if e.options.FixedBuffers <= 0 {
		return
	}
	if err := e.register(); err != nil {
		e.refusals = append(e.refusals, unavailable(refusal.FixedBuffers, err))
		return
	}
	e.available = append(e.available, refusal.FixedBuffers)
}

// Backend returns the backend of the engine.
func (e *Engine) Backend() Backend { return e.backend }

// Refusals returns the backends and features that the engine tried and that are not available.
func (e *Engine) Refusals() []*Refusal { return slices.Clip(e.refusals) }

// Explain returns a text for operators: the backend, what forced it if it is not the best available
// one, its features, and a line with the reason and the fix for each one that is not available.
func (e *Engine) Explain() string {
	text := "backend " + string(e.backend)
	if e.forcedBy != "" {
		text += " (forced by " + e.forcedBy + ")"
	}
	text += e.describe()
	for i, feature := range e.available {
		if i == 0 {
			text += "; with " + feature
		} else {
			text += ", " + feature
		}
	}
	for _, refused := range e.Refusals() {
		text += "\n" + refused.Error()
	}
	return text
}

// Explain returns [Engine.Explain] of the default engine, or the text of the error if there is
// none.
func Explain() string {
	e, err := Default()
	if err != nil {
		return err.Error()
	}
	return e.Explain()
}

// Stats are counts of operations since the engine was made. Only operations that were given to a
// ring or a Linux AIO context are counted; plain system calls are not. At any moment, Pushed =
// Delivered + InFlight + Waiting.
type Stats struct {
	Pushed      uint64 // Pushed operations.
	Delivered   uint64 // Delivered results.
	InFlight    int    // InFlight operations are with the kernel.
	Waiting     int    // Waiting operations wait for capacity, or for their group.
	Submissions uint64 // Submissions are rounds that submitted a group, or reaped completions.
	// Retries of operations that the kernel did not do (EINTR, EAGAIN, ECANCELED, EFAULT).
	Retries uint64
}

// Stats returns the counts of all rings together.
func (e *Engine) Stats() Stats { return e.stats() }

// Close closes the engine within five seconds. Operations that wait for capacity fail with
// [ErrEngineClosed] at once. Operations that the kernel has may complete for four seconds and are
// then canceled. Those that the kernel still has after five seconds fail with [ErrAbandoned]:
// their memory and their descriptors are leaked, and Close returns an error. Close does not wait
// for plain system calls. Files stay open; their operations fail with ErrEngineClosed where they
// need the engine.
func (e *Engine) Close() error {
	if e.closed.Swap(true) {
		return ErrEngineClosed
	}
	close(e.done)
	err := e.closeQueues(time.Now().Add(e.options.closeWait), e.options.closeWait/5)
	if err == nil && e.fixed != nil {
		e.fixed.retire()
	}
	return err
}
