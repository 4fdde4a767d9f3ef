package ringway

// The options of an engine, and the choice of a backend.

import (
	"cmp"
	"os"
	"runtime"
	"time"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

// Backend names the way in which an engine submits operations to the kernel.
type Backend string

// The backends, in the order in which an engine tries them.
const (
	BackendURing   Backend = "uring"   // io_uring.
	BackendKAIO    Backend = "kaio"    // Linux AIO: direct I/O only.
	BackendThreads Backend = "threads" // Blocking system calls.
)

// BackendEnv is the environment variable that forces a backend for every engine whose options do
// not name one.
const BackendEnv = "RINGWAY_BACKEND"

// Options configures an engine. The zero value of each field selects its default.
type Options struct {
	// Backend forces a backend. If it is not available, New fails. The default is the first
	// available backend, or the one that RINGWAY_BACKEND names.
	Backend Backend
	// Rings is the number of rings, or KAIO contexts, that goroutines share. Fewer rings submit
	// larger groups, which cost less for each operation. The default is one ring for every four
	// Ps (GOMAXPROCS), at most four.
	Rings int
	// InFlight is the maximum number of transfers that the kernel has at once, over all rings.
	// Others wait in order. Transfers beyond the device's queue (usually 256) cost many times as
	// much. The default is 192.
	InFlight int
	// Threads is the maximum number of blocking system calls at once, for operations that the
	// backend does not support, such as buffered writes. A quarter as many syncs may run in
	// addition. If none of these calls returns for 100 ms, because a file system hangs, the limit
	// grows in steps, up to 1024, so that other files make progress. The default is 64.
	Threads int
	// IOWQWorkers limits the kernel threads of each ring that run operations which would block,
	// such as fsync. The default is the kernel's own limit.
	IOWQWorkers int
	// FixedBuffers is the number of bytes to register with each ring, at most 1 GiB. The kernel
	// does not have to look up registered pages for each operation. Engine.NewBuffer allocates
	// this memory. It counts against RLIMIT_MEMLOCK, once for each ring. If registration fails,
	// the engine works without it, and Engine.Refusals has the reason. The default is none.
	FixedBuffers int
	// AlwaysRing sends every operation that the backend supports to it, without trying the page
	// cache first and without plain calls at low concurrency. It is for tests and measurements.
	// The default is false.
	AlwaysRing bool

	// For tests.
	//lint:ignore U1000 Systems without rings do not use it.
	wrap      wrapQueue
	closeWait time.Duration // The default is closeWait.
}

// setDefaults replaces zero values, except those that mean "none".
func (o *Options) setDefaults() {
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
}

// backends returns the backends to try: all of them, or the forced one.
func (o *Options) backends() ([]Backend, error) {
	switch o.Backend = cmp.Or(o.Backend, Backend(os.Getenv(BackendEnv))); o.Backend {
	case "":
		return []Backend{BackendURing, BackendKAIO, BackendThreads}, nil
	case BackendURing, BackendKAIO, BackendThreads:
		return []Backend{o.Backend}, nil
	}
	return nil, refusal.NoBackend(BackendEnv, string(o.Backend))
}
