//go:build linux

// Operations on paths: what the conformance cases (go/ringway/conformance_test.go), which run on
// rings too, cannot see.

package ring

import (
	"os"
	"syscall"
	"testing"
)

// wantCloexec fails the test if child processes inherit a descriptor.
func wantCloexec(t *testing.T, fd int) {
	t.Helper()
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	expect(t, errno == 0 && flags&syscall.FD_CLOEXEC != 0,
		"child processes inherit the descriptor: %v", errno)
}

// openat ignores a mode without O_CREAT, which openat2 rejects. Both are OPENAT2 in the kernel.
func TestOpenatIsNotOpenat2(t *testing.T) {
	r := newRing(t, Options{})
	name := tempFile(t, "").Name()
	fd := one(t, r, new(Request).Openat(AtFDCWD, name, os.O_RDONLY, 0o600))
	wantCloexec(t, fd)
	gives(t, r, new(Request).Close(fd), 0)
	equal(t, syscall.Close(fd), error(syscall.EBADF))
	fails(t, r, new(Request).Openat2(AtFDCWD, name, uint64(os.O_RDONLY), 0o600, 0), syscall.EINVAL)
}

// The kernel would use the path before the zero byte; with AT_EMPTY_PATH that may be the directory.
func TestPathsWithZeroBytes(t *testing.T) {
	r := newRing(t, Options{})
	const emptyPath = 0x1000
	for _, q := range []*Request{
		new(Request).Openat(AtFDCWD, "a\x00b", os.O_CREATE, 0o600),
		new(Request).Statx(AtFDCWD, "\x00", emptyPath, 0x7ff),
		new(Request).Unlinkat(AtFDCWD, "a\x00", 0),
		new(Request).Mkdirat(AtFDCWD, "a\x00", 0),
		new(Request).Symlinkat("a\x00", AtFDCWD, "b"),
		new(Request).Renameat(AtFDCWD, "a", AtFDCWD, "b\x00", 0),
		new(Request).Linkat(AtFDCWD, "a\x00", AtFDCWD, "b", 0),
	} {
		equal(t, r.Push(q), error(syscall.EINVAL))
		equal(t, r.InFlight(), 0)
		gives(t, r, q.Nop(), 0)
	}
}
