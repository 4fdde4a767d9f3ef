// The API compared with package os.

package ringway

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// A File has every method of os.File, with the same parameters and results.
func TestMethodsOfFile(t *testing.T) {
	theirs, ours := reflect.TypeFor[*os.File](), reflect.TypeFor[*File]()
	for i := range theirs.NumMethod() {
		want := theirs.Method(i)
		got, ok := ours.MethodByName(want.Name)
		if !ok {
			t.Errorf("%s is missing", want.Name)
			continue
		}
		if signature(got.Type) != signature(want.Type) {
			t.Errorf("%s is %v, and %v in package os", want.Name, got.Type, want.Type)
		}
	}
	if theirs.NumMethod() < 20 {
		t.Fatal("too few methods were compared")
	}
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
	name := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(name, []byte(strings.Repeat("0123456789", 1000)), 0o600))
	f, err := OpenFile(name, os.O_RDONLY|Direct, 0)
	if err != nil && errors.Is(err, syscall.EINVAL) {
		skip.Test(t, "this file system does not support direct I/O")
	}
	must(t, err)
	defer f.Close()
	p := make([]byte, 7)
	if n, err := f.ReadAt(p, 9996); n != 4 || err != io.EOF || string(p[:n]) != "6789" {
		t.Error(n, err, string(p))
	}
	if n, err := f.ReadAt(p, 4093); n != 7 || err != nil || string(p) != "3456789" {
		t.Error(n, err, string(p))
	}
}

// The methods of a nil File return os.ErrInvalid, as in package os.
func TestNilFile(t *testing.T) {
	ours := reflect.ValueOf((*File)(nil))
	for i := range ours.NumMethod() {
		name, method := ours.Type().Method(i).Name, ours.Method(i)
		results := method.Type().NumOut()
		last := reflect.TypeFor[error]()
		if results == 0 || method.Type().Out(results-1) != last {
			continue // Name, Fd and OSFile return no error.
		}
		args := make([]reflect.Value, method.Type().NumIn())
		for j := range args {
			args[j] = reflect.Zero(method.Type().In(j))
		}
		out := method.Call(args)
		if err, _ := out[results-1].Interface().(error); !errors.Is(err, os.ErrInvalid) {
			t.Errorf("%s of no file: %v", name, err)
		}
	}
}

// Copies from and to a nil File return os.ErrInvalid and do not panic, as in package os.
func TestCopiesOfNilFile(t *testing.T) {
	f, err := Create(filepath.Join(t.TempDir(), "file"))
	must(t, err)
	defer f.Close()
	if _, err := f.WriteString("0123456789"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	var none *File
	if _, err := f.ReadFrom(none); !errors.Is(err, os.ErrInvalid) {
		t.Error(err)
	}
	if _, err := f.ReadFrom(io.LimitReader(none, 10)); !errors.Is(err, os.ErrInvalid) {
		t.Error(err)
	}
	if _, err := f.WriteTo(none); !errors.Is(err, os.ErrInvalid) {
		t.Error(err)
	}
	if none.Fd() != ^uintptr(0) {
		t.Error("a nil File has a descriptor")
	}
}

// Methods that are not transfers have the results of package os.
func TestOtherMethods(t *testing.T) {
	dir := t.TempDir()
	f, err := Create(filepath.Join(dir, "file"))
	must(t, err)
	defer f.Close()
	plain, err := os.Create(filepath.Join(dir, "plain"))
	must(t, err)
	defer plain.Close()
	same := func(what string, ours, theirs error) {
		t.Helper()
		if reason(ours) != reason(theirs) {
			t.Errorf("%s: %v, and %v in package os", what, ours, theirs)
		}
	}
	soon := time.Now().Add(time.Hour)
	same("deadline", f.SetDeadline(soon), plain.SetDeadline(soon))
	same("read deadline", f.SetReadDeadline(soon), plain.SetReadDeadline(soon))
	same("write deadline", f.SetWriteDeadline(soon), plain.SetWriteDeadline(soon))
	if err := f.SetReadDeadline(soon); !errors.Is(err, os.ErrNoDeadline) {
		t.Error(err)
	}
	same("chown", f.Chown(os.Getuid(), os.Getgid()), plain.Chown(os.Getuid(), os.Getgid()))
	same("chdir", f.Chdir(), plain.Chdir())

	old, err := os.Getwd()
	must(t, err)
	defer os.Chdir(old)
	folder, err := Open(dir)
	must(t, err)
	must(t, folder.Chdir())
	if _, err := os.Stat("plain"); err != nil {
		t.Error(err)
	}
	must(t, folder.Close())
	if err := folder.Chdir(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if err := folder.Chown(-1, -1); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}

	// A pipe has deadlines.
	read, write, err := os.Pipe()
	must(t, err)
	defer write.Close()
	e, err := Default()
	must(t, err)
	pipe, err := e.NewFile(read)
	must(t, err)
	defer pipe.Close()
	must(t, pipe.SetReadDeadline(time.Now()))
	if _, err := pipe.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
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

func TestWholeFiles(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	for _, content := range []string{"first, and longer", "second", ""} {
		must(t, WriteFile(name, []byte(content), 0o640))
		if got, err := ReadFile(name); string(got) != content || err != nil {
			t.Fatalf("%q %v", got, err)
		}
	}
	reference := filepath.Join(dir, "reference")
	must(t, os.WriteFile(reference, nil, 0o640))
	ours, err := os.Stat(name)
	must(t, err)
	if theirs, err := os.Stat(reference); err != nil || ours.Mode() != theirs.Mode() {
		t.Error(ours.Mode(), theirs.Mode(), err)
	}
	missing := filepath.Join(dir, "missing", "file")
	for what, pair := range map[string][2]error{
		"write": {WriteFile(missing, nil, 0o600), os.WriteFile(missing, nil, 0o600)},
		"read":  {errorOf(ReadFile(missing)), errorOf(os.ReadFile(missing))},
		"temp":  {errorOf(CreateTemp(missing, "x")), errorOf(os.CreateTemp(missing, "x"))},
		"name":  {errorOf(CreateTemp(dir, "a/b")), errorOf(os.CreateTemp(dir, "a/b"))},
	} {
		if reason(pair[0]) != reason(pair[1]) {
			t.Errorf("%s: %v, and %v in package os", what, pair[0], pair[1])
		}
	}
	f, err := CreateTemp(dir, "a*.tmp")
	must(t, err)
	if match, _ := filepath.Match(filepath.Join(dir, "a*.tmp"), f.Name()); !match {
		t.Error(f.Name())
	}
	if _, err := f.WriteString("text"); err != nil {
		t.Error(err)
	}
	check(t, f.Close())
	if got, err := os.ReadFile(f.Name()); string(got) != "text" || err != nil {
		t.Error(string(got), err)
	}
}
