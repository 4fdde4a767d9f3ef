// What the tests of all systems use: engines, files, contents, and bounded waiting. Engines over
// queues that tests control are in queue_harness_test.go.

package ringway

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/internal/tests"
)

var must, require, expect = tests.Must, tests.Require, tests.Expect

// get returns the value of a call, and fails the test on an error.
func get[T any](value T, err error) func(testing.TB) T { return tests.Get(value, err) }

// tooLong is how long a test waits for something that should happen soon.
const tooLong = 60 * time.Second

// check fails the test on an error, and lets it go on.
func check(t testing.TB, err error) {
	t.Helper()
	expect(t, err == nil, "%v", err)
}

// wantError fails the test if an error is another one.
func wantError(t testing.TB, what string, err, want error) {
	t.Helper()
	expect(t, errors.Is(err, want), "%s: %v, not %v", what, err, want)
}

// moves returns a check of a transfer's results: so many bytes, and no error.
func moves[N int | int64](t testing.TB, want N) func(n N, err error) {
	return func(n N, err error) {
		t.Helper()
		require(t, n == want && err == nil, "%d bytes, not %d: %v", n, want, err)
	}
}

// reads fails the test unless a file has these bytes at an offset.
func reads(t testing.TB, f *File, off int64, want []byte) {
	t.Helper()
	p := make([]byte, len(want))
	moves(t, len(want))(f.ReadAt(p, off))
	require(t, bytes.Equal(p, want), "other bytes at %d", off)
}

// errorOf returns the error of a call with two results.
func errorOf[T any](_ T, err error) error { return err }

// returns calls do, and fails the test if it does not return.
func returns(t testing.TB, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(tooLong):
		t.Fatal(what + " does not return")
	}
}

// eventually waits until a condition holds, and fails the test if it never does.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(tooLong); !holds(); time.Sleep(100 * time.Microsecond) {
		require(t, !time.Now().After(deadline), "this never happens: %v", what)
	}
}

// closeAll closes files and an engine, and fails the test on an error.
func closeAll(t testing.TB, e *Engine, files ...*File) {
	t.Helper()
	for _, f := range files {
		err := f.Close()
		expect(t, err == nil || errors.Is(err, os.ErrClosed), "%v", err)
	}
	returns(t, "Engine.Close", func() { check(t, e.Close()) })
}

// newOrSkip makes an engine, which the end of the test closes, or skips the test if its backend is
// not available.
func newOrSkip(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := New(o)
	return cleanUp(t, e, err)
}

func cleanUp(t testing.TB, e *Engine, err error) *Engine {
	t.Helper()
	var refused *Refusal
	if errors.As(err, &refused) {
		skip.Test(t, err)
	}
	must(t, err)
	t.Cleanup(func() {
		if !e.closed.Load() {
			closeAll(t, e)
		}
		if s := e.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.Pushed != s.Delivered {
			t.Errorf("operations are left: %+v", s)
		}
	})
	return e
}

// each runs a test on every backend: direct, buffered through the queue, and with reads of the page
// cache. Linux AIO has direct transfers only.
func each(t *testing.T, test func(t *testing.T, e *Engine, direct int)) {
	for _, backend := range testBackends {
		for _, c := range []struct {
			name   string
			direct int
			o      Options
		}{
			{"direct", Direct, Options{AlwaysRing: true, Rings: 2}},
			{"buffered", 0, Options{AlwaysRing: true, Rings: 1}},
			{"cached", 0, Options{}},
		} {
			if c.o.Backend = backend; backend != BackendKAIO || c.direct != 0 {
				t.Run(fmt.Sprint(backend, "/", c.name), func(t *testing.T) {
					test(t, newOrSkip(t, c.o), c.direct)
				})
			}
		}
	}
}

// bytesOf returns random bytes, the same for each length.
func bytesOf(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// fileWith makes a file with some content, and returns its name.
func fileWith(t testing.TB, content []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(name, content, 0o600))
	return name
}

// open opens a file, which the end of the test closes.
func open(t testing.TB, e *Engine, name string, flag int) *File {
	t.Helper()
	f, err := e.OpenFile(name, flag, 0o600)
	if flag&Direct != 0 && errors.Is(err, syscall.EINVAL) {
		skip.Test(t, "no direct I/O here")
	}
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// openIn opens a new file with some content.
func openIn(t testing.TB, e *Engine, content []byte, flag int) *File {
	t.Helper()
	return open(t, e, fileWith(t, content), flag)
}

// content returns what a file holds.
func content(t testing.TB, f *File) []byte {
	t.Helper()
	p := get(os.ReadFile(f.Name()))(t)
	return p
}

// pipe returns both ends of a pipe, which the end of the test closes.
func pipe(t testing.TB, e *Engine) (reading, writing *File) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	reading = get(e.NewFile(r))(t)
	writing = get(e.NewFile(w))(t)
	t.Cleanup(func() { reading.Close(); writing.Close() })
	return reading, writing
}
