// The options of an engine, and the choice of a backend.

package ringway

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"syscall"
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

// Options configures an engine. The zero value of each field selects its default. A value that is
// negative or above the maximum is an error of New, which names the field and is [syscall.EINVAL]
// to errors.Is.
type Options struct {
	// Backend forces a backend. If it is not available, New fails. The default is the first
	// available backend, or the one that RINGWAY_BACKEND names. [Engine.Explain] shows which of
	// them forces it.
	Backend Backend
	// Rings is the number of rings, or Linux AIO contexts, that goroutines share. Fewer rings
	// submit larger groups, which cost less for each operation. The default is one ring for every
	// four Ps (GOMAXPROCS), at most four. The maximum is 1024; an engine has no more rings than Ps.
	Rings int
	// InFlight is the maximum number of transfers that the kernel has at once, over all rings.
	// Others wait in order. Transfers beyond the device's queue (usually 256) cost many times as
	// much. The default is 192, the maximum 65,536.
	InFlight int
	// Threads is the maximum number of blocking system calls at once, for operations that the
	// backend does not support, such as buffered writes. A quarter as many syncs may run in
	// addition. If none of these calls returns for 100 ms, because a file system hangs, the limit
	// grows in steps, up to 1024, so that other files make progress. The default is 64, the maximum
	// 4096: each call has a thread, and Go ends a program with 10,000.
	Threads int
	// IOWQWorkers limits the kernel threads that run transfers and syncs of files which a ring
	// could not start without waiting. Each thread that submits has as many. The default is the
	// kernel's own limit, the maximum 65,536.
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

// maxFixed is the most that the kernel accepts as one registered buffer.
const maxFixed = 1 << 30

// setDefaults replaces zero values, except those that mean "none".
func (o *Options) setDefaults() {
	if o.Rings == 0 {
		o.Rings = min((runtime.GOMAXPROCS(0)+3)/4, 4)
	}
	o.Rings = min(o.Rings, runtime.GOMAXPROCS(0))
	if o.InFlight == 0 {
		o.InFlight = 192
	}
	if o.Threads == 0 {
		o.Threads = 64
	}
	o.closeWait = cmp.Or(o.closeWait, closeWait)
}

// check returns an error for a value that no engine can have.
func (o *Options) check() error {
	for _, field := range []struct {
		name        string
		value, most int
	}{
		{"Rings", o.Rings, 1024}, {"InFlight", o.InFlight, 1 << 16}, {"Threads", o.Threads, 4096},
		{"IOWQWorkers", o.IOWQWorkers, 1 << 16}, {"FixedBuffers", o.FixedBuffers, maxFixed},
	} {
		if field.value < 0 || field.value > field.most {
			return fmt.Errorf("ringway: Options.%s is %d; it must be 0 (the default) to %d: %w",
				field.name, field.value, field.most, syscall.EINVAL)
		}
	}
	return nil
}

// backends returns the backends to try: all of them, or the forced one and what forces it.
func (o *Options) backends() (candidates []Backend, forcedBy string, err error) {
	source, forcedBy := "Options.Backend", "the option backend"
	if o.Backend == "" {
		source, forcedBy, o.Backend = BackendEnv, BackendEnv, Backend(os.Getenv(BackendEnv))
	}
	switch o.Backend {
	case "":
		return []Backend{BackendURing, BackendKAIO, BackendThreads}, "", nil
	case BackendURing, BackendKAIO, BackendThreads:
		return []Backend{o.Backend}, forcedBy, nil
	}
	return nil, "", refusal.NoBackend(source, string(o.Backend))
}
