// Options: those that no engine can have, the choice of a backend, and arguments of the same kind.

package ringway

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

func TestInvalidOptionsAreNamed(t *testing.T) {
	t.Setenv(BackendEnv, "")
	for field, options := range map[string][]Options{
		"Rings":        {{Rings: -1}, {Rings: 1 << 30}},
		"InFlight":     {{InFlight: -1}, {InFlight: 1 << 30}},
		"Threads":      {{Threads: -5}, {Threads: 1 << 30}},
		"IOWQWorkers":  {{IOWQWorkers: -1}, {IOWQWorkers: 1 << 30}},
		"FixedBuffers": {{FixedBuffers: -1}, {FixedBuffers: 1<<30 + 1}},
		"Backend":      {{Backend: "urin"}, {Backend: "null"}}, // null is for benchmarks.
	} {
		for _, o := range options {
			_, err := New(o)
			expect(t, errors.Is(err, syscall.EINVAL) &&
				strings.Contains(err.Error(), "Options."+field) &&
				!strings.Contains(err.Error(), BackendEnv), "%s: %v", field, err)
		}
	}
	t.Setenv(BackendEnv, "urin")
	if _, err := New(Options{}); err == nil || !strings.Contains(err.Error(), BackendEnv) {
		t.Error("the environment is not blamed:", err)
	}
	if _, err := New(Options{Backend: "kai"}); err == nil ||
		strings.Contains(err.Error(), BackendEnv) || !strings.Contains(err.Error(), "kai") {
		t.Error("the environment is blamed:", err)
	}
}

// The option selects the backend, and without it the environment does.
func TestBackendIsThatOfTheOptions(t *testing.T) {
	t.Setenv(BackendEnv, "threads")
	for _, backend := range append(testBackends, "") {
		e := newOrSkip(t, Options{Backend: backend})
		forced := " (forced by the option backend)"
		if backend == "" {
			backend, forced = BackendThreads, " (forced by RINGWAY_BACKEND)"
		}
		text := e.Explain()
		expect(t, strings.HasPrefix(text, "backend "+string(backend)+forced) &&
			e.Backend() == backend, "%v", text)
	}
	t.Setenv(BackendEnv, "")
	expect(t, !strings.Contains(newOrSkip(t, Options{}).Explain(), "forced"),
		"the best backend is forced")
}

// A backend without registered buffers reports that, and works.
func TestFixedBuffersRefused(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendThreads, FixedBuffers: 1 << 20})
	require(t, len(e.Refusals()) == 1 && e.Refusals()[0].Feature == refusal.FixedBuffers &&
		strings.Contains(e.Explain(), "\n"+e.Refusals()[0].Error()), "%v", e.Explain())
	e.NewBuffer(100).Release()
}

// The largest values make an engine.
func TestLargestOptions(t *testing.T) {
	for _, backend := range testBackends {
		e := newOrSkip(t, Options{Backend: backend, Rings: 1024, InFlight: 1 << 16, Threads: 4096,
			IOWQWorkers: 1 << 16})
		f := openIn(t, e, []byte("content"), os.O_RDONLY)
		n, err := f.ReadAt(make([]byte, 7), 0)
		expect(t, n == 7 && err == nil, "%v, %v, %v", backend, n, err)
	}
	// A lane that is larger than what others grow to does not shrink when calls hang.
	l := newLane(2*largestLane, nil)
	l.waiters.PushBack(make(chan struct{}))
	l.inUse = 2 * largestLane
	l.check()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters.Init() // So that it is not checked again.
	expect(t, l.slots >= 2*largestLane, "slots: %v", l.slots)
}

func TestNegativeArgumentsAreNamed(t *testing.T) {
	e := newOrSkip(t, Options{})
	f := openIn(t, e, []byte("content"), os.O_RDWR)
	for what, at := range map[string][2]int{
		"negative offset": {-1, 1}, "negative length": {0, -1},
	} {
		_, err := f.ReadBuf(t.Context(), int64(at[0]), at[1])
		expect(t, err != nil && strings.Contains(err.Error(), what) &&
			strings.Contains(err.Error(), f.Name()), "%s: %v", what, err)
	}
	wantError(t, "NewFile", errorOf(e.NewFile(nil)), os.ErrInvalid)
	closed := get(os.Open(f.Name()))(t)
	must(t, closed.Close())
	wantError(t, "NewFile of a closed file", errorOf(e.NewFile(closed)), os.ErrClosed)
}
