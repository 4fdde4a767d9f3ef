// The API: compared between systems and with package os, and options and arguments that are
// refused.

package ringway

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
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

	"github.com/ringway-io/ringway/go/internal/refusal"
)

// The package exports the same names on every system, so that a program for Linux compiles on the
// machine it is written on.
func TestSameAPIOnAllSystems(t *testing.T) {
	here := exported(t, "linux", "amd64")
	require(t, len(here) >= 50, "only %d names were found: %v", len(here), here)
	for _, system := range []string{"darwin/arm64", "windows/amd64", "freebsd/amd64", "linux/386"} {
		os, arch, _ := strings.Cut(system, "/")
		there := exported(t, os, arch)
		for _, name := range here {
			expect(t, slices.Contains(there, name), "%s lacks %s", system, name)
		}
		for _, name := range there {
			expect(t, slices.Contains(here, name), "%s alone has %s", system, name)
		}
	}
}

// exported returns functions, methods, types, constants and variables, with signatures.
func exported(t *testing.T, os, arch string) (names []string) {
	system := build.Default
	system.GOOS, system.GOARCH, system.CgoEnabled = os, arch, false
	dir := get(system.ImportDir(".", 0))(t)
	for _, name := range dir.GoFiles {
		file := get(parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution))(t)
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				receiver := ""
				if d.Recv != nil {
					receiver = types.ExprString(d.Recv.List[0].Type) + "."
				}
				if d.Name.IsExported() && ast.IsExported(strings.Trim(receiver, "*.")+"A") {
					names = append(names, fmt.Sprintf("%s%s(%s) (%s)", receiver, d.Name.Name,
						fields(d.Type.Params), fields(d.Type.Results)))
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						if s.Name.IsExported() {
							names = append(names, "type "+s.Name.Name)
						}
					case *ast.ValueSpec:
						for _, name := range s.Names {
							if name.IsExported() {
								names = append(names, d.Tok.String()+" "+name.Name)
							}
						}
					}
				}
			}
		}
	}
	return names
}

// fields returns the types of parameters, without their names.
func fields(list *ast.FieldList) string {
	var all []string
	if list != nil {
		for _, field := range list.List {
			for range max(len(field.Names), 1) {
				all = append(all, types.ExprString(field.Type))
			}
		}
	}
	return strings.Join(all, ", ")
}

// Documentation shows no fields and no methods of a type that is an alias of an internal one.
func TestNoAliasOfAnInternalType(t *testing.T) {
	for _, dir := range []string{".", "../ring"} {
		names := get(filepath.Glob(filepath.Join(dir, "*.go")))(t)
		require(t, len(names) > 10, "%v", names)
		for _, name := range names {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil,
				parser.SkipObjectResolution)
			must(t, err)
			internal := map[string]bool{}
			for _, one := range file.Imports {
				if path := strings.Trim(one.Path.Value, `"`); strings.Contains(path, "/internal/") {
					internal[filepath.Base(path)] = true
				}
			}
			ast.Inspect(file, func(node ast.Node) bool {
				spec, isType := node.(*ast.TypeSpec)
				if isType && spec.Assign.IsValid() && spec.Name.IsExported() {
					of, _, _ := strings.Cut(types.ExprString(spec.Type), ".")
					expect(t, !internal[of], "%s: %s is an alias", name, spec.Name.Name)
				}
				return true
			})
		}
	}
}

// A File has every method of os.File, with the same parameters and results.
func TestMethodsOfFile(t *testing.T) {
	theirs, ours := reflect.TypeFor[*os.File](), reflect.TypeFor[*File]()
	for i := range theirs.NumMethod() {
		want := theirs.Method(i)
		got, ok := ours.MethodByName(want.Name)
		expect(t, ok && signature(got.Type) == signature(want.Type),
			"%s is %v, and %v in package os", want.Name, got.Type, want.Type)
	}
	require(t, theirs.NumMethod() >= 20, "too few methods were compared")
}

// signature returns the type of a method without its receiver.
func signature(method reflect.Type) string {
	var in, out []reflect.Type
	for i := 1; i < method.NumIn(); i++ {
		in = append(in, method.In(i))
	}
	for i := range method.NumOut() {
		out = append(out, method.Out(i))
	}
	return reflect.FuncOf(in, out, false).String()
}

// Direct is a flag of OpenFile on every system, and reads need no alignment with it.
func TestDirectFlag(t *testing.T) {
	e := get(Default())(t)
	f := openIn(t, e, []byte(strings.Repeat("0123456789", 1000)), os.O_RDONLY|Direct)
	p := make([]byte, 7)
	n, err := f.ReadAt(p, 9996)
	expect(t, n == 4 && err == io.EOF && string(p[:n]) == "6789", "%v, %v, %v", n, err, string(p))
	reads(t, f, 4093, []byte("3456789"))
}

// The methods of a nil File, and copies from and to one, return os.ErrInvalid, as in package os.
func TestNilFile(t *testing.T) {
	var none *File
	ours := reflect.ValueOf(none)
	for i := range ours.NumMethod() {
		name, method := ours.Type().Method(i).Name, ours.Method(i)
		results := method.Type().NumOut()
		if results == 0 || method.Type().Out(results-1) != reflect.TypeFor[error]() {
			continue // Name, Fd and OSFile return no error.
		}
		args := make([]reflect.Value, method.Type().NumIn())
		for j := range args {
			args[j] = reflect.Zero(method.Type().In(j))
		}
		err, _ := method.Call(args)[results-1].Interface().(error)
		wantError(t, name, err, os.ErrInvalid)
	}
	expect(t, none.Fd() == ^uintptr(0), "a nil File has a descriptor")
	f := get(Create(filepath.Join(t.TempDir(), "file")))(t)
	defer f.Close()
	must(t, errorOf(f.WriteString("0123456789")))
	must(t, errorOf(f.Seek(0, io.SeekStart)))
	wantError(t, "ReadFrom", errorOf(f.ReadFrom(none)), os.ErrInvalid)
	wantError(t, "limited", errorOf(f.ReadFrom(io.LimitReader(none, 10))), os.ErrInvalid)
	wantError(t, "WriteTo", errorOf(f.WriteTo(none)), os.ErrInvalid)
}

// reason returns the text of an error without the path.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Op + ": " + path.Err.Error()
	}
	if err == nil {
		return "none"
	}
	return err.Error()
}

// sameReason fails the test if two errors differ in more than the path.
func sameReason(t *testing.T, what string, ours, theirs error) {
	t.Helper()
	expect(t, reason(ours) == reason(theirs), "%s: %v, and %v in package os", what, ours, theirs)
}

// Methods that are not transfers have the results of package os.
func TestOtherMethods(t *testing.T) {
	dir := t.TempDir()
	f := get(Create(filepath.Join(dir, "file")))(t)
	defer f.Close()
	plain := get(os.Create(filepath.Join(dir, "plain")))(t)
	defer plain.Close()
	soon := time.Now().Add(time.Hour)
	sameReason(t, "deadline", f.SetDeadline(soon), plain.SetDeadline(soon))
	sameReason(t, "read deadline", f.SetReadDeadline(soon), plain.SetReadDeadline(soon))
	sameReason(t, "write deadline", f.SetWriteDeadline(soon), plain.SetWriteDeadline(soon))
	wantError(t, "read deadline", f.SetReadDeadline(soon), os.ErrNoDeadline)
	uid, gid := os.Getuid(), os.Getgid()
	sameReason(t, "chown", f.Chown(uid, gid), plain.Chown(uid, gid))
	sameReason(t, "chdir", f.Chdir(), plain.Chdir())

	old := get(os.Getwd())(t)
	defer os.Chdir(old)
	folder := get(Open(dir))(t)
	must(t, folder.Chdir())
	check(t, errorOf(os.Stat("plain")))
	must(t, folder.Close())
	wantError(t, "Chdir", folder.Chdir(), os.ErrClosed)
	wantError(t, "Chown", folder.Chown(-1, -1), os.ErrClosed)

	// A pipe has deadlines.
	e := get(Default())(t)
	reading, _ := pipe(t, e)
	must(t, reading.SetReadDeadline(time.Now()))
	wantError(t, "Read", errorOf(reading.Read(make([]byte, 1))), os.ErrDeadlineExceeded)
}

func TestWholeFiles(t *testing.T) {
	dir := t.TempDir()
	name, reference := filepath.Join(dir, "file"), filepath.Join(dir, "reference")
	for _, content := range []string{"first, and longer", "second", ""} {
		must(t, WriteFile(name, []byte(content), 0o640))
		got, err := ReadFile(name)
		require(t, string(got) == content && err == nil, "%q %v", got, err)
	}
	must(t, os.WriteFile(reference, nil, 0o640))
	ours := get(os.Stat(name))(t)
	if theirs, err := os.Stat(reference); err != nil || ours.Mode() != theirs.Mode() {
		t.Error(ours.Mode(), theirs.Mode(), err)
	}
	missing := filepath.Join(dir, "missing", "file")
	sameReason(t, "write", WriteFile(missing, nil, 0o600), os.WriteFile(missing, nil, 0o600))
	sameReason(t, "read", errorOf(ReadFile(missing)), errorOf(os.ReadFile(missing)))
	sameReason(t, "temp", errorOf(CreateTemp(missing, "x")), errorOf(os.CreateTemp(missing, "x")))
	sameReason(t, "name", errorOf(CreateTemp(dir, "a/b")), errorOf(os.CreateTemp(dir, "a/b")))
	f := get(CreateTemp(dir, "a*.tmp"))(t)
	matched, err := filepath.Match("a*.tmp", filepath.Base(f.Name()))
	expect(t, matched && err == nil, "%v, %v", f.Name(), err)
	check(t, errors.Join(errorOf(f.WriteString("text")), f.Close()))
	got := content(t, f)
	expect(t, string(got) == "text", "%v", string(got))
}

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
	_, err := New(Options{Backend: "kai"})
	expect(t, err != nil && !strings.Contains(err.Error(), BackendEnv) &&
		strings.Contains(err.Error(), "kai"), "the environment is blamed: %v", err)
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
		t.Run(string(backend), func(t *testing.T) {
			e := newOrSkip(t, Options{Backend: backend, Rings: 1024, InFlight: 1 << 16,
				Threads: 4096, IOWQWorkers: 1 << 16})
			reads(t, openIn(t, e, []byte("content"), os.O_RDONLY), 0, []byte("content"))
		})
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

func TestInvalidArgumentsAreNamed(t *testing.T) {
	e := newOrSkip(t, Options{})
	f := openIn(t, e, []byte("content"), os.O_RDWR)
	for what, at := range map[string][2]int{
		"negative offset": {-1, 1}, "negative length": {0, -1},
	} {
		_, err := f.ReadBuf(t.Context(), int64(at[0]), at[1])
		expect(t, err != nil && strings.Contains(err.Error(), what) &&
			strings.Contains(err.Error(), f.Name()), "%s: %v", what, err)
	}
	err := f.WriteBatch([]Transfer{{P: []byte("x")}}, 3)
	expect(t, strings.Contains(err.Error(), "durability 3"), "%v", err)
	wantError(t, "WriteBatch", err, syscall.EINVAL)
	wantError(t, "NewFile", errorOf(NewFile(nil)), os.ErrInvalid)
	wantError(t, "Engine.NewFile", errorOf(e.NewFile(nil)), os.ErrInvalid)
	closed := get(os.Open(f.Name()))(t)
	must(t, closed.Close())
	wantError(t, "NewFile of a closed file", errorOf(e.NewFile(closed)), os.ErrClosed)
}

// The errors of a closed file name the operation by the words of package os.
func TestOperationsOfAClosedFile(t *testing.T) {
	f, err := Create(filepath.Join(t.TempDir(), "file"))
	must(t, err)
	must(t, f.Close())
	for want, err := range map[string]error{
		"SetDeadline":      f.SetDeadline(time.Time{}),
		"SetReadDeadline":  f.SetReadDeadline(time.Time{}),
		"SetWriteDeadline": f.SetWriteDeadline(time.Time{}),
		"SyscallConn":      errorOf(f.SyscallConn()),
	} {
		var path *os.PathError
		expect(t, errors.As(err, &path) && path.Op == want && errors.Is(err, os.ErrClosed),
			"%s: %v", want, err)
	}
}
