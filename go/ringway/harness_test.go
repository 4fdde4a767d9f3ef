// What several tests use: engines, files, and bounded waiting. Engines over queues that tests
// control are in queue_harness_test.go.

package ringway

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// tooLong is how long a test waits for something that should happen soon.
const tooLong = 60 * time.Second

// must fails the test, and ends it, on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// check fails the test on an error, and lets it go on.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// errorOf returns the error of a call with two results.
func errorOf[T any](_ T, err error) error { return err }

// returns calls do, and fails the test if it does not return.
func returns(t *testing.T, what string, do func()) {
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

// closeAll closes files and an engine, and fails the test on an error.
func closeAll(t *testing.T, e *Engine, files ...*File) {
	t.Helper()
	for _, f := range files {
		if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	}
	returns(t, "Engine.Close", func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// newOrSkip makes an engine, or skips the test if its backend is not available.
func newOrSkip(t *testing.T, o Options) *Engine {
	t.Helper()
	e, err := New(o)
	if err != nil {
		skip.Test(t, err)
	}
	return e
}

// openIn opens a new file with the given content.
func openIn(t *testing.T, e *Engine, content []byte, flag int) *File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := e.OpenFile(name, flag, 0)
	if err != nil {
		if flag&Direct != 0 && errors.Is(err, syscall.EINVAL) {
			skip.Test(t, "no direct I/O here")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
