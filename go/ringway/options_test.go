// Options that no engine can have, and arguments of the same kind.

package ringway

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestInvalidOptionsAreNamed(t *testing.T) {
	t.Setenv(BackendEnv, "")
	for field, options := range map[string][]Options{
		"Rings":        {{Rings: -1}, {Rings: 1 << 30}},
		"InFlight":     {{InFlight: -1}, {InFlight: 1 << 30}},
		"Threads":      {{Threads: -5}, {Threads: 1 << 30}},
		"IOWQWorkers":  {{IOWQWorkers: -1}, {IOWQWorkers: 1 << 30}},
		"FixedBuffers": {{FixedBuffers: -1}, {FixedBuffers: 1<<30 + 1}},
		"Backend":      {{Backend: "urin"}, {Backend: backendNullName}},
	} {
		for _, o := range options {
			e, err := New(o)
			if err == nil {
				closeAll(t, e)
			}
			if !errors.Is(err, syscall.EINVAL) ||
				!strings.Contains(err.Error(), "Options."+field) ||
				strings.Contains(err.Error(), BackendEnv) {
				t.Errorf("%s: %v", field, err)
			}
		}
	}
	t.Setenv(BackendEnv, "urin")
	if _, err := New(Options{}); err == nil || !strings.Contains(err.Error(), BackendEnv) {
		t.Error("the environment is not blamed:", err)
	}
	if _, err := New(Options{Backend: "kai"}); err == nil ||
		strings.Contains(err.Error(), BackendEnv) {
		t.Error("the environment is blamed:", err)
	}
}

// backendNullName is a backend of benchmarks, which no option selects.
const backendNullName = "null"

// The largest values make an engine.
func TestLargestOptions(t *testing.T) {
	for _, backend := range testBackends {
		e := newOrSkip(t, Options{Backend: backend, Rings: 1024, InFlight: 1 << 16, Threads: 4096,
			IOWQWorkers: 1 << 16})
		f := openIn(t, e, []byte("content"), os.O_RDONLY)
		if n, err := f.ReadAt(make([]byte, 7), 0); n != 7 || err != nil {
			t.Error(backend, n, err)
		}
		closeAll(t, e, f)
	}
	// A lane that is larger than what others grow to does not shrink when calls hang.
	l := newLane(2*largestLane, nil)
	l.waiters.PushBack(make(chan struct{}))
	l.inUse = 2 * largestLane
	l.check()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters.Init() // So that it is not checked again.
	if l.slots < 2*largestLane {
		t.Error("slots:", l.slots)
	}
}

func TestNegativeArgumentsAreNamed(t *testing.T) {
	e := newOrSkip(t, Options{})
	f := openIn(t, e, []byte("content"), os.O_RDWR)
	for what, at := range map[string][2]int{
		"negative offset": {-1, 1}, "negative length": {0, -1},
	} {
		_, err := f.ReadBuf(t.Context(), int64(at[0]), at[1])
		if err == nil || !strings.Contains(err.Error(), what) ||
			!strings.Contains(err.Error(), f.Name()) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := e.NewFile(nil); !errors.Is(err, os.ErrInvalid) {
		t.Error("NewFile:", err)
	}
	closeAll(t, e, f)
}
