//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Every exported function and method in every bad situation: each call returns, with a result that
// the situation allows. `go test -v -run TestMatrix` prints the results.

package ringway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// functions has the functions of the package. Reflection finds the methods.
var functions = map[string]any{
	"New": New, "Default": Default, "Explain": Explain, "Open": Open, "Create": Create,
	"OpenFile": OpenFile, "CreateTemp": CreateTemp, "NewFile": NewFile,
	"ReadFile": ReadFile, "WriteFile": WriteFile, "DirFS": DirFS, "NewBuffer": NewBuffer,
}

// fixture is what a call works on.
type fixture struct {
	e    *Engine
	s    *scripted
	f    *File
	fs   *FS
	b    *Buffer
	dir  string
	ctx  context.Context
	stop context.CancelCauseFunc
}

var errEnough = errors.New("enough")

// matrixBytes is how much a call reads or writes.
const matrixBytes = 2 * pageSize

func newFixture(t *testing.T, backend Backend, direct int) *fixture {
	t.Helper()
	w := &fixture{}
	w.e, w.s = scriptedEngine(t, Options{Backend: backend, Threads: 4,
		closeWait: 20 * time.Millisecond})
	w.f = openIn(t, w.e, bytes.Repeat([]byte("x"), 4*matrixBytes), os.O_RDWR|direct)
	w.dir = filepath.Dir(w.f.Name())
	w.fs = w.e.DirFS(w.dir)
	w.b = w.e.NewBuffer(10)
	w.ctx, w.stop = context.WithCancelCause(context.Background())
	return w
}

// apiCall is a call of a function or a method.
type apiCall struct {
	name string
	of   func(*fixture) reflect.Value
}

func apiCalls() (all []apiCall) {
	for name, function := range functions {
		all = append(all, apiCall{name,
			func(*fixture) reflect.Value { return reflect.ValueOf(function) }})
	}
	for prefix, of := range map[string]func(*fixture) any{
		"Engine": func(w *fixture) any { return w.e }, "File": func(w *fixture) any { return w.f },
		"FS": func(w *fixture) any { return w.fs }, "Buffer": func(w *fixture) any { return w.b },
		"MisalignedError": func(*fixture) any { return &MisalignedError{} },
		"Refusal":         func(*fixture) any { return &Refusal{Errno: syscall.EINVAL} },
	} {
		kind := reflect.TypeOf(of(&fixture{}))
		for i := range kind.NumMethod() {
			all = append(all, apiCall{prefix + "." + kind.Method(i).Name,
				func(w *fixture) reflect.Value { return reflect.ValueOf(of(w)).Method(i) }})
		}
	}
	return all
}

// The calls include everything that the package exports.
func TestMatrixIsComplete(t *testing.T) {
	covered := map[string]bool{}
	for _, c := range apiCalls() {
		covered[c.name] = true
	}
	for _, name := range exported(t, "linux", "amd64") {
		call, _, isFunction := strings.Cut(strings.TrimPrefix(name, "*"), "(")
		expect(t, !isFunction || covered[call], "no call covers %s", call)
	}
}

// args returns valid arguments for a call.
func (c apiCall) args(t *testing.T, w *fixture) (args []reflect.Value) {
	kind := c.of(w).Type()
	method := c.name[strings.LastIndex(c.name, ".")+1:]
	strs := []string{filepath.Join(w.dir, "file")}
	switch {
	case c.name == "FS.ReadDir" || c.name == "FS.Sub":
		strs = []string{"."}
	case strings.HasPrefix(c.name, "FS."):
		strs = []string{"file"}
	case method == "CreateTemp":
		strs = []string{w.dir, "temporary"}
	case method == "DirFS":
		strs = []string{w.dir}
	case method == "WriteFile" || method == "Create":
		strs = []string{filepath.Join(w.dir, "other")}
	case method == "WriteString":
		strs = []string{strings.Repeat("s", matrixBytes)}
	}
	ints := map[string]int{"Chown": -1, "Readdir": -1, "ReadDir": -1, "Readdirnames": -1,
		"ReadBuf": matrixBytes, "NewBuffer": 10}
	for i := range kind.NumIn() {
		var arg any
		switch in := kind.In(i); in {
		case reflect.TypeFor[context.Context]():
			arg = w.ctx
		case reflect.TypeFor[[]byte]():
			arg = alignedSlice(matrixBytes, pageSize)
		case reflect.TypeFor[string]():
			arg, strs = strs[0], strs[1:]
		case reflect.TypeFor[int]():
			arg = ints[method]
		case reflect.TypeFor[int64]():
			arg = int64(0)
			switch last := i == kind.NumIn()-1; {
			case last && (method == "Truncate" || method == "Preallocate"):
				arg = int64(matrixBytes)
			case last && method == "PreallocateWritten":
				arg = int64(pageSize)
			case method == "PreallocateWritten":
				arg = int64(4 * matrixBytes)
			}
		case reflect.TypeFor[fs.FileMode]():
			arg = fs.FileMode(0o600)
		case reflect.TypeFor[[]Transfer]():
			arg = []Transfer{{P: page()}, {P: page(), Off: pageSize}}
		case reflect.TypeFor[[]Range]():
			arg = []Range{{0, matrixBytes}}
		case reflect.TypeFor[bool]():
			arg = true
		case reflect.TypeFor[Durability]():
			arg = FullSync
		case reflect.TypeFor[io.Reader]():
			arg = io.Reader(struct{ io.Reader }{bytes.NewReader(make([]byte, matrixBytes))})
		case reflect.TypeFor[io.Writer]():
			arg = io.Writer(struct{ io.Writer }{io.Discard})
		case reflect.TypeFor[*os.File]():
			file, err := os.Open("/dev/null")
			if err != nil { // No descriptor is left.
				file = os.Stdin
			}
			arg = file
		case reflect.TypeFor[Options]():
			arg = Options{Rings: 1}
		case reflect.TypeFor[time.Time](), reflect.TypeFor[Advice](), reflect.TypeFor[RangeSync]():
			arg = reflect.Zero(in).Interface()
		default:
			t.Fatalf("%s: no value of type %v", c.name, in)
		}
		args = append(args, reflect.ValueOf(arg))
	}
	return args
}

// do makes the call, closes what it opens, and returns its error. fallible reports whether the call
// returns one.
func (c apiCall) do(w *fixture, args []reflect.Value) (err error, fallible bool) {
	for _, result := range c.of(w).Call(args) {
		fallible = result.Type() == reflect.TypeFor[error]()
		switch r := result.Interface().(type) {
		case *File:
			if r != nil {
				_ = r.Close()
			}
		case fs.File:
			_ = r.Close()
		case *Engine:
			if r != nil && c.name == "New" {
				_ = r.Close()
			}
		case error:
			err = r
		}
	}
	return err, fallible
}

// situation describes the circumstances of a call. Its functions may be nil.
type situation struct {
	name   string
	queue  bool // It concerns the queue, so a backend without one is left out.
	before func(t *testing.T, w *fixture)
	during func(t *testing.T, w *fixture) // Called while the call runs, or shortly after it.
	after  func(c apiCall, w *fixture)    // Lets a blocked call continue.
	want   func(c apiCall, w *fixture, err error) bool
}

// usual accepts the results that do not depend on the situation.
func usual(c apiCall, w *fixture, err error) bool {
	switch c.name {
	case "File.ReadDir", "File.Readdir", "File.Readdirnames", "File.Chdir":
		return errors.Is(err, syscall.ENOTDIR)
	case "File.SetDeadline", "File.SetReadDeadline", "File.SetWriteDeadline":
		return errors.Is(err, os.ErrNoDeadline)
	case "File.SyscallConn":
		return err == nil || w.f.direct && errors.Is(err, syscall.EOPNOTSUPP)
	case "File.AtomicWriteUnit", "File.WriteUntornAt": // Few disks have it.
		return err == nil || errors.Is(err, errors.ErrUnsupported)
	case "FS.ReadLink", "MisalignedError.Unwrap", "Refusal.Unwrap":
		return errors.Is(err, syscall.EINVAL)
	}
	return err == nil
}

func usualOr(target error) func(apiCall, *fixture, error) bool {
	return func(c apiCall, w *fixture, err error) bool {
		return usual(c, w, err) || errors.Is(err, target)
	}
}

// endsWith accepts an error of the calls that a situation ends, and the usual results of others.
func endsWith(target error, which func(apiCall, *fixture) bool) func(apiCall, *fixture,
	error) bool {
	return func(c apiCall, w *fixture, err error) bool {
		if which(c, w) {
			return errors.Is(err, target)
		}
		return usual(c, w, err)
	}
}

// holdAll makes all operations wait: nothing completes, and no slot is free for a plain call.
func holdAll(_ *testing.T, w *fixture) {
	w.s.holdResults()
	w.e.fillLanes()
}

func releaseAll(_ apiCall, w *fixture) {
	w.e.drainLanes()
	w.s.release()
}

func takesContext(c apiCall, w *fixture) bool {
	kind := c.of(w).Type()
	return kind.NumIn() > 0 && kind.In(0) == reflect.TypeFor[context.Context]()
}

// ofFile reports whether a call is a method of File that fails when the file is closed.
func ofFile(c apiCall, _ *fixture) bool {
	return strings.HasPrefix(c.name, "File.") && !slices.Contains([]string{"File.Name", "File.Fd",
		"File.File"}, c.name)
}

func closeTheFile(_ *testing.T, w *fixture) { _ = w.f.Close() }

func closeTheEngine(t *testing.T, w *fixture) {
	returns(t, "Engine.Close", func() { _ = w.e.Close() })
}

func endTheContext(_ *testing.T, w *fixture) { w.stop(errEnough) }

// Fork is not among them: a Go program forks only to exec.
var situations = []situation{
	{name: "ordinary", want: usual},
	{name: "file closed before the call", before: closeTheFile,
		want: endsWith(os.ErrClosed, ofFile)},
	{name: "file closed during the call", before: holdAll, during: closeTheFile,
		after: releaseAll, want: usualOr(os.ErrClosed)},
	{name: "canceled before the call", before: endTheContext,
		want: endsWith(errEnough, takesContext)},
	{name: "canceled during the call", before: holdAll, during: endTheContext,
		after: func(c apiCall, w *fixture) {
			if !takesContext(c, w) { // A call with a context returns by itself.
				releaseAll(c, w)
			}
		}, want: endsWith(errEnough, takesContext)},
	{name: "engine closed before the call", before: closeTheEngine, want: usualOr(ErrEngineClosed)},
	{name: "engine closed during the call", before: holdAll, during: closeTheEngine,
		want: usualOr(ErrEngineClosed)},
	{name: "backend refuses everything", queue: true, before: func(t *testing.T, w *fixture) {
		w.s.onPush(func(r *request) bool {
			(&refusing{w.s.queue}).push(r)
			return true
		})
	}, want: usual},
	{name: "no descriptor left", before: func(t *testing.T, w *fixture) {
		var before syscall.Rlimit
		must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: before.Max}))
		t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) })
	}, want: usualOr(syscall.EMFILE)},
}

func TestMatrix(t *testing.T) {
	if _, err := Default(); err != nil { // Made once, before any bad situation.
		skip.Test(t, err)
	}
	for _, s := range situations {
		for _, c := range []struct {
			backend Backend
			direct  int
		}{{BackendURing, 0}, {BackendURing, Direct}, {BackendKAIO, Direct}, {BackendThreads, 0}} {
			if s.queue && c.backend == BackendThreads {
				continue
			}
			t.Run(fmt.Sprint(s.name, ", ", c.backend, ", direct ", c.direct != 0),
				func(t *testing.T) {
					for _, call := range apiCalls() {
						// Close and Fd of an os.File race, and Fd is only that.
						if s.during != nil && call.name == "File.Fd" {
							continue
						}
						t.Run(call.name, func(t *testing.T) { s.run(t, call, c.backend, c.direct) })
					}
				})
		}
	}
}

// run makes a call in a situation.
func (s *situation) run(t *testing.T, c apiCall, backend Backend, direct int) {
	w := newFixture(t, backend, direct)
	args := c.args(t, w)
	if s.before != nil {
		s.before(t, w)
	}
	done, fallible := make(chan error, 1), false
	go func() {
		var err error
		err, fallible = c.do(w, args)
		done <- err
	}()
	var err error
	over := false // The call has returned.
	if s.during != nil {
		select {
		case err = <-done:
			over = true
		case <-time.After(5 * time.Millisecond):
			s.during(t, w)
		}
	}
	if s.after != nil {
		s.after(c, w)
	}
	if !over {
		returns(t, "the call", func() { err = <-done })
	}
	t.Logf("%s, %s: %v", c.name, s.name, err)
	// Warming is for the page cache, and is over at once where that has everything.
	warmed := c.name == "File.Warm" &&
		(direct != 0 && errors.Is(err, errWarmDirect) || s.during != nil && err == nil)
	if fallible && !warmed && !s.want(c, w, err) {
		t.Errorf("%s, %s: %v", c.name, s.name, err)
	}
	w.stop(nil)
	if c.name != "Buffer.Release" {
		w.b.Release()
	}
	_ = w.f.Close()
	_ = w.e.Close()
}
