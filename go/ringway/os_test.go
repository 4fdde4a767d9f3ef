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
	"testing"
	"time"
)

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
	if n, err := f.ReadAt(p, 9996); n != 4 || err != io.EOF || string(p[:n]) != "6789" {
		t.Error(n, err, string(p))
	}
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
	if matched, err := filepath.Match("a*.tmp", filepath.Base(f.Name())); !matched || err != nil {
		t.Error(f.Name(), err)
	}
	check(t, errors.Join(errorOf(f.WriteString("text")), f.Close()))
	if got := content(t, f); string(got) != "text" {
		t.Error(string(got))
	}
}
