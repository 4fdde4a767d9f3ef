//go:build linux

// Operations on paths, each tested by its effect.

package ring

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestOpenStatClose(t *testing.T) {
	r := newRing(t, Options{})
	dir := t.TempDir()
	name := filepath.Join(dir, "new")
	fd := one(t, r, new(Request).Openat(AtFDCWD, name, os.O_CREATE|os.O_RDWR, 0o640))
	if flags, _, _ := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD,
		0); flags&syscall.FD_CLOEXEC == 0 {
		t.Error("child processes inherit the descriptor")
	}
	if n, err := syscall.Write(fd, []byte("abc")); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode() != 0o640 {
		t.Fatal(info, err)
	}
	q := new(Request)
	const basicStats = 0x7ff
	equal(t, one(t, r, q.Statx(AtFDCWD, name, 0, basicStats)), 0)
	stat := q.Stat()
	equal(t, stat.Size, 3)
	equal(t, int64(stat.Mode)&0o777, 0o640)
	equal(t, stat.Modified.Sec, info.ModTime().Unix())
	equal(t, stat.Inode, info.Sys().(*syscall.Stat_t).Ino)
	equal(t, one(t, r, new(Request).Close(fd)), 0)
	equal(t, syscall.Close(fd), error(syscall.EBADF))
}

func TestOpenat2(t *testing.T) {
	r := newRing(t, Options{})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const beneath = 8
	fd := one(t, r, new(Request).Openat2(int(d.Fd()), "file", uint64(os.O_RDONLY), 0, beneath))
	defer syscall.Close(fd)
	equal(t, run(t, r, new(Request).Openat2(int(d.Fd()), "../x", uint64(os.O_RDONLY), 0,
		beneath))[0].Err(), error(syscall.EXDEV))
	// A mode without O_CREAT: openat ignores it, openat2 rejects it.
	equal(t, run(t, r, new(Request).Openat2(int(d.Fd()), "file", uint64(os.O_RDONLY), 0o600,
		0))[0].Err(), error(syscall.EINVAL))
	syscall.Close(one(t, r, new(Request).Openat(int(d.Fd()), "file", os.O_RDONLY, 0o600)))
}

func TestPaths(t *testing.T) {
	r := newRing(t, Options{})
	needOps(t, r, OpMkdirat, OpRenameat, OpUnlinkat, OpSymlinkat, OpLinkat)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	equal(t, one(t, r, new(Request).Mkdirat(AtFDCWD, at("d"), 0o700)), 0)
	if info, err := os.Stat(at("d")); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		t.Fatal(info, err)
	}
	if err := os.WriteFile(at("a"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	equal(t, one(t, r, new(Request).Renameat(AtFDCWD, at("a"), AtFDCWD, at("d/b"), 0)), 0)
	equal(t, one(t, r, new(Request).Linkat(AtFDCWD, at("d/b"), AtFDCWD, at("c"), 0)), 0)
	equal(t, one(t, r, new(Request).Symlinkat("d/b", AtFDCWD, at("s"))), 0)
	for _, name := range []string{"d/b", "c", "s"} {
		if b, err := os.ReadFile(at(name)); err != nil || string(b) != "content" {
			t.Fatal(name, string(b), err)
		}
	}
	if target, err := os.Readlink(at("s")); target != "d/b" {
		t.Fatal(target, err)
	}
	const noReplace = 1
	equal(t, run(t, r, new(Request).Renameat(AtFDCWD, at("c"), AtFDCWD, at("d/b"),
		noReplace))[0].Err(), error(syscall.EEXIST))
	equal(t, one(t, r, new(Request).Unlinkat(AtFDCWD, at("d/b"), 0)), 0)
	const removeDir = 0x200
	equal(t, one(t, r, new(Request).Unlinkat(AtFDCWD, at("d"), removeDir)), 0)
	if _, err := os.Stat(at("d")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// The kernel would use the path before the zero byte; with AT_EMPTY_PATH that may be the directory.
func TestPathsWithZeroBytes(t *testing.T) {
	r := newRing(t, Options{})
	const emptyPath = 0x1000
	for _, q := range []*Request{
		new(Request).Openat(AtFDCWD, "a\x00b", os.O_CREATE, 0o600), new(Request).Statx(AtFDCWD,
			"\x00", emptyPath, 0x7ff),
		new(Request).Unlinkat(AtFDCWD, "a\x00", 0), new(Request).Mkdirat(AtFDCWD, "a\x00",
			0), new(Request).Symlinkat("a\x00", AtFDCWD, "b"),
		new(Request).Renameat(AtFDCWD, "a", AtFDCWD, "b\x00", 0), new(Request).Linkat(AtFDCWD,
			"a\x00", AtFDCWD, "b", 0),
	} {
		equal(t, r.Push(q), error(syscall.EINVAL))
		equal(t, r.InFlight(), 0)
		equal(t, one(t, r, q.Nop()), 0)
	}
}
