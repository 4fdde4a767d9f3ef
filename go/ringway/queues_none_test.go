//go:build !linux || !(amd64 || arm64 || loong64 || riscv64)

// Systems without rings: what the tests of all systems need there, and what is refused.

package ringway

import (
	"errors"
	"strings"
	"testing"
)

// testBackends are those that tests run on.
var testBackends = []Backend{BackendThreads}

// What needs rings is refused, with the reason.
func TestSystemWithoutRings(t *testing.T) {
	e, err := New(Options{FixedBuffers: 1 << 20})
	require(t, err == nil && e.Backend() == BackendThreads &&
		strings.Contains(e.Explain(), "io_uring refused") &&
		strings.Contains(e.Explain(), "fixed buffers refused"), "%v, %v", e, err)
	closeAll(t, e)
	for _, backend := range []Backend{BackendURing, BackendKAIO} {
		_, err := New(Options{Backend: backend})
		var refused *Refusal
		expect(t, errors.As(err, &refused) && errors.Is(err, errors.ErrUnsupported), "%v, %v",
			backend, err)
	}
}

// What the system lacks is unsupported, with the name of the operation.
func TestUnsupported(t *testing.T) {
	e := newOrSkip(t, Options{})
	f := openIn(t, e, []byte("0123456789"), 0)
	for _, err := range []error{f.Preallocate(0, 10), f.Advise(0, 0, AdviceWillNeed)} {
		expect(t, errors.Is(err, errors.ErrUnsupported) && strings.Contains(err.Error(), f.Name()),
			"%v", err)
	}
}
