//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Every exported function and method in every bad situation: each call returns, with a result that
// the situation allows. `go test -v -run TestMatrix` prints the results.

package ringway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// functions has the functions of the package. Reflection finds the methods.
var functions = map[string]any{
	"New": New, "Default": Default, "Explain": Explain, "Open": Open, "Create": Create,
	"OpenFile": OpenFile, "CreateTemp": CreateTemp,
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
	} {
		kind := reflect.TypeOf(of(&fixture{}))
		for i := range kind.NumMethod() {
			all = append(all, apiCall{prefix + "." + kind.Method(i).Name,
				func(w *fixture) reflect.Value { return reflect.ValueOf(of(w)).Method(i) }})
		}
	}
	slices.SortFunc(all, func(a, b apiCall) int { return strings.Compare(a.name, b.name) })
	return all
}

// The calls include everything that the package exports.
func TestMatrixIsComplete(t *testing.T) {
	covered := map[string]bool{}
	for _, c := range apiCalls() {
		covered[c.name] = true
	}
	all, err := filepath.Glob("*.go")
	must(t, err)
	found := 0
	for _, name := range all {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		must(t, err)
		for _, declaration := range file.Decls {
			d, ok := declaration.(*ast.FuncDecl)
			if !ok || !d.Name.IsExported() {
				continue
			}
			at := d.Name.Name
			if d.Recv != nil {
				star, _ := d.Recv.List[0].Type.(*ast.StarExpr)
				if star == nil {
					continue // Exported types have their methods on a pointer.
				}
				receiver := star.X.(*ast.Ident)
				if !receiver.IsExported() {
					continue
				}
				at = receiver.Name + "." + at
			}
			found++
			if !covered[at] {
				t.Errorf("no call covers %s", at)
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d were found", found)
	}
}

// args returns valid arguments for a call.
func (c apiCall) args(t *testing.T, w *fixture) (args []reflect.Value) {
	kind := c.of(w).Type()
	_, method, _ := strings.Cut("."+c.name, ".")
	method = method[strings.LastIndex(method, ".")+1:]
	strs := []string{filepath.Join(w.dir, "file")}
	switch {
	case strings.HasPrefix(c.name, "FS."):
		strs = []string{"file"}
		if method == "ReadDir" || method == "Sub" {
			strs = []string{"."}
		}
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
			if (method == "Truncate" || method == "Preallocate") && i == kind.NumIn()-1 {
				arg = int64(matrixBytes)
			}
		case reflect.TypeFor[fs.FileMode]():
			arg = fs.FileMode(0o600)
		case reflect.TypeFor[[]Transfer]():
			arg = []Transfer{{P: alignedSlice(pageSize, pageSize)},
				{P: alignedSlice(pageSize, pageSize), Off: pageSize}}
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
		switch r := result.Interface().(type) {
		case *File:
			if r != nil {
				_ = r.Close()
			}
		case fs.File:
			_ = r.Close()
		case *Engine:
			if r != nil && strings.HasPrefix(c.name, "New") {
				_ = r.Close()
			}
		case error:
			err = r
		}
	}
	n := c.of(w).Type().NumOut()
	return err, n > 0 && c.of(w).Type().Out(n-1) == reflect.TypeFor[error]()
}

// situation describes the circumstances of a call. Its functions may be nil.
type situation struct {
	name   string
	queue  bool // It concerns the queue, so a backend without one is left out.
	before func(t *testing.T, w *fixture)
	during func(t *testing.T, w *fixture) // Called while the call runs, or shortly after it.
	after  func(c apiCall, w *fixture)    // Lets a blocked call continue.
	want   func(c apiCall, w *fixture, err error) bool
	// The situation needs a process of its own: it would break writes of the testing package.
	alone bool
}

// writes reports whether a call writes to a file.
func writes(c apiCall) bool {
	return strings.HasPrefix(c.name, "File.Write") && c.name != "File.WriteTo" ||
		c.name == "File.ReadFrom" ||
		strings.HasSuffix(c.name, "WriteFile")
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
	case "FS.ReadLink":
		return errors.Is(err, syscall.EINVAL)
	case "MisalignedError.Unwrap":
		return err == syscall.EINVAL
	}
	return err == nil
}

func usualOr(targets ...error) func(apiCall, *fixture, error) bool {
	return func(c apiCall, w *fixture, err error) bool {
		return usual(c, w, err) || slices.ContainsFunc(targets,
			func(target error) bool { return errors.Is(err, target) })
	}
}

// holdAll makes all operations wait: nothing completes, and no slot is free for a plain call.
func holdAll(_ *testing.T, w *fixture) {
	w.s.holdResults()
	w.e.calls.fill()
	w.e.syncs.fill()
}

func releaseAll(_ apiCall, w *fixture) {
	w.e.calls.drain()
	w.e.syncs.drain()
	w.s.release()
}

func takesContext(c apiCall, w *fixture) bool {
	kind := c.of(w).Type()
	return kind.NumIn() > 0 && kind.In(0) == reflect.TypeFor[context.Context]()
}

// ofFile reports whether a call is a method of File that fails when the file is closed.
func ofFile(c apiCall) bool {
	return strings.HasPrefix(c.name, "File.") && !slices.Contains([]string{"File.Name", "File.Fd",
		"File.File"}, c.name)
}

// limit lowers a resource limit until the test ends.
func limit(t *testing.T, resource int, to uint64) {
	t.Helper()
	var before syscall.Rlimit
	must(t, syscall.Getrlimit(resource, &before))
	must(t, syscall.Setrlimit(resource, &syscall.Rlimit{Cur: to, Max: before.Max}))
	t.Cleanup(func() { _ = syscall.Setrlimit(resource, &before) })
}

// Fork is not among them: a Go program forks only to exec.
var situations = []situation{
	{name: "ordinary", want: usual},
	{
		name:   "file closed before the call",
		before: func(t *testing.T, w *fixture) { _ = w.f.Close() },
		want: func(c apiCall, w *fixture, err error) bool {
			return ofFile(c) && errors.Is(err, os.ErrClosed) || !ofFile(c) && usual(c, w, err)
		},
	},
	{name: "file closed during the call", before: holdAll, during: func(t *testing.T, w *fixture) {
		if err := w.f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	}, after: releaseAll, want: usualOr(os.ErrClosed)},
	{
		name:   "canceled before the call",
		before: func(t *testing.T, w *fixture) { w.stop(errEnough) },
		want: func(c apiCall, w *fixture, err error) bool {
			return takesContext(c, w) && errors.Is(err, errEnough) ||
				!takesContext(c, w) && usual(c, w, err)
		},
	},
	{name: "canceled during the call", before: holdAll, during: func(t *testing.T, w *fixture) {
		w.stop(errEnough)
	}, after: func(c apiCall, w *fixture) {
		if !takesContext(c, w) { // A call with a context returns by itself.
			releaseAll(c, w)
		}
	}, want: func(c apiCall, w *fixture, err error) bool {
		return takesContext(c, w) && errors.Is(err, errEnough) ||
			!takesContext(c, w) && usual(c, w, err)
	}},
	{name: "engine closed before the call", before: func(t *testing.T,
		w *fixture) {
		_ = w.e.Close()
	},
		want: usualOr(ErrEngineClosed)},
	{name: "engine closed during the call", before: holdAll,
		during: func(t *testing.T, w *fixture) {
			returns(t, "Engine.Close", func() { _ = w.e.Close() })
		}, want: usualOr(ErrEngineClosed)},
	{name: "backend refuses everything", queue: true, before: func(t *testing.T, w *fixture) {
		w.s.onPush(func(r *request) bool {
			(&refusing{w.s.queue}).push(r)
			return true
		})
	}, want: usual},
	{name: "no descriptor left", before: func(t *testing.T, w *fixture) {
		limit(t, syscall.RLIMIT_NOFILE, 0)
	}, want: usualOr(syscall.EMFILE)},
	// The signal SIGXFSZ does not end a Go program.
	{name: "no file may be written", alone: true, before: func(t *testing.T, w *fixture) {
		limit(t, syscall.RLIMIT_FSIZE, 0)
	}, want: func(c apiCall, w *fixture, err error) bool {
		if writes(c) {
			return errors.Is(err, syscall.EFBIG)
		}
		return usualOr(syscall.EFBIG)(c, w, err)
	}},
	{name: "disk full", queue: true, before: func(t *testing.T, w *fixture) {
		w.s.onResult(func(r *request) bool {
			if r.opcode != opRead {
				r.result = -int32(syscall.ENOSPC)
			}
			return false
		})
	}, want: func(c apiCall, w *fixture, err error) bool {
		if w.f.direct && strings.HasPrefix(c.name, "File.Write") && c.name != "File.WriteTo" ||
			c.name == "File.Sync" {
			return errors.Is(err, syscall.ENOSPC)
		}
		return usualOr(syscall.ENOSPC)(c, w, err)
	}},
	{name: "interrupted and short of everything", before: func(t *testing.T, w *fixture) {
		random := rand.New(rand.NewPCG(1, 2))
		w.s.onResult(func(r *request) bool {
			if random.IntN(3) > 0 {
				r.result = -int32([]syscall.Errno{syscall.ECANCELED, syscall.EINTR,
					syscall.EAGAIN}[random.IntN(3)])
			}
			return false
		})
		// Signals, to the whole process.
		taken := make(chan os.Signal, 1)
		signal.Notify(taken, syscall.SIGUSR1)
		var over atomic.Bool
		go func() {
			for !over.Load() {
				_ = syscall.Kill(syscall.Getpid(), syscall.SIGUSR1)
				time.Sleep(50 * time.Microsecond)
			}
		}()
		t.Cleanup(func() {
			over.Store(true)
			time.Sleep(time.Millisecond)
			signal.Stop(taken)
			signal.Ignore(syscall.SIGUSR1) // A signal may still arrive.
		})
	}, want: usual},
	{name: "short results", queue: true, before: func(t *testing.T, w *fixture) {
		w.s.onPush(func(r *request) bool {
			if len(r.p) > pageSize {
				r.p = r.p[:pageSize]
			}
			return false
		})
	}, want: usual},
}

func TestMatrix(t *testing.T) {
	if _, err := Default(); err != nil { // Made once, before any bad situation.
		skip.Test(t, err)
	}
	results := 0
	for _, s := range situations {
		switch alone := os.Getenv("RINGWAY_TEST_SITUATION"); {
		case alone != "" && alone != s.name:
			continue
		case alone == "" && s.alone:
			t.Run(s.name, func(t *testing.T) {
				child := exec.Command(os.Args[0], "-test.run=^TestMatrix$", "-test.v")
				child.Env = append(os.Environ(), "RINGWAY_TEST_SITUATION="+s.name)
				out, err := child.CombinedOutput()
				if err != nil || !bytes.Contains(out, []byte(s.name)) {
					t.Errorf("%v: %s", err, out)
				}
			})
			continue
		}
		for i := range 6 {
			backend, direct := []Backend{BackendURing, BackendKAIO,
				BackendThreads}[i/2], i%2*syscall.O_DIRECT
			if s.queue && backend == BackendThreads || backend == BackendKAIO && direct == 0 {
				continue // There is no queue, or KAIO supports no transfer of such a file.
			}
			t.Run(fmt.Sprint(s.name, ", ", backend, ", direct ", direct != 0), func(t *testing.T) {
				for _, c := range apiCalls() {
					t.Run(c.name, func(t *testing.T) {
						w := newFixture(t, backend, direct)
						args := c.args(t, w)
						if s.before != nil {
							s.before(t, w)
						}
						done := make(chan error, 1)
						fallible := false
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
							select {
							case err = <-done:
							case <-time.After(tooLong):
								t.Fatal("the call does not return")
							}
						}
						results++
						t.Logf("%s, %s: %v", c.name, s.name, err)
						if fallible && !s.want(c, w, err) {
							t.Errorf("%s, %s: %v", c.name, s.name, err)
						}
						w.stop(nil)
						if c.name != "Buffer.Release" {
							w.b.Release()
						}
						_ = w.f.Close()
						_ = w.e.Close()
					})
				}
			})
		}
	}
	t.Log(results, "results")
}
