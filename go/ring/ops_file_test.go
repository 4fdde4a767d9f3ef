//go:build linux

// Operations on open files and on paths: what the conformance cases
// (go/ringway/conformance_test.go), which run on rings too, do not have.

package ring

import (
	"os"
	"syscall"
	"testing"
	"time"
)

func TestRWFlags(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "x")
	const unknown = 1 << 30
	c := run(t, r, new(Request).Read(int(f.Fd()), make([]byte, 1), 0).RWFlags(unknown))[0]
	require(t, c.Err() == syscall.EOPNOTSUPP || c.Err() == syscall.EINVAL,
		"the kernel ignored the flags: %v", c.Err())
}

func TestPriority(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "abc")
	const bestEffort, none = 2 << 13, 7 << 13
	gives(t, r, new(Request).Read(int(f.Fd()), make([]byte, 3), 0).Priority(bestEffort|4), 3)
	fails(t, r, new(Request).Read(int(f.Fd()), make([]byte, 3), 0).Priority(none), syscall.EINVAL)
}

// Offsets and lengths beyond 32 bits: advice drops a page beyond 4 GiB from the page cache.
func TestFadviseBeyond4GiB(t *testing.T) {
	r := newRing(t, Options{})
	needOps(t, r, OpBind) // Linux 6.11, later than the change tested here.
	const far, dontNeed, noWait = 1<<32 + 4096, 4, 8
	f := tempFile(t, "")
	if _, err := f.WriteAt(make([]byte, 4096), far); err != nil {
		skip(t, err)
	}
	must(t, f.Sync())
	fd := int(f.Fd())
	cached := func() bool {
		return run(t, r, new(Request).Read(fd, make([]byte, 1), far).RWFlags(noWait))[0].Result == 1
	}
	for i, advice := range []*Request{
		new(Request).Fadvise(fd, far, 4096, dontNeed), new(Request).Fadvise(fd, 0, far+4096,
			dontNeed),
	} {
		gives(t, r, new(Request).Read(fd, make([]byte, 1), far), 1)
		if !cached() {
			skip(t, "this file system does not cache, or does not support RWF_NOWAIT")
		}
		// The kernel keeps a page that is in use: repeat.
		deadline := time.Now().Add(testTimeout)
		for equal(t, one(t, r, advice), 0); cached(); equal(t, one(t, r, advice), 0) {
			switch {
			case time.Now().Before(deadline):
			case i == 0:
				skip(t, "this file system ignores the advice")
			default:
				t.Fatal("the length was truncated")
			}
		}
	}
	fails(t, r, new(Request).Fadvise(fd, 0, 1<<33, 77), syscall.EINVAL)
}

func TestMadvise(t *testing.T) {
	r := newRing(t, Options{})
	p, err := syscall.Mmap(-1, 0, 2*os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	must(t, err)
	defer syscall.Munmap(p)
	half := len(p) / 2
	p[0], p[half] = 1, 2
	const dontNeed = 4
	gives(t, r, new(Request).Madvise(p[half:], dontNeed), 0)
	equal(t, p[0], 1)
	equal(t, p[half], 0) // The pages of a private mapping are zeroed.
	fails(t, r, new(Request).Madvise(p, 9999), syscall.EINVAL)
}

func TestSpliceAndTee(t *testing.T) {
	r := newRing(t, Options{})
	needOps(t, r, OpSplice, OpTee)
	f, g := tempFile(t, "0123456789"), tempFile(t, "abcdefgh")
	reading, writing := pipe(t)
	other, into := pipe(t)
	gives(t, r, new(Request).Splice(int(f.Fd()), 2, writing, CurrentPosition, 5, 0), 5)
	gives(t, r, new(Request).Tee(reading, into, 3, 0), 3)
	gives(t, r, new(Request).Splice(reading, CurrentPosition, int(g.Fd()), 1, 100, 0), 5)
	equal(t, content(t, g), "a23456gh")
	p := make([]byte, 9)
	gives(t, r, new(Request).Read(other, p, CurrentPosition), 3)
	equal(t, string(p[:3]), "234")
	// The target may be a registered file.
	must(t, r.RegisterFiles([]int{into}))
	gives(t, r, new(Request).Splice(int(f.Fd()), 0, 0, CurrentPosition, 2, 0).FixedFile(), 2)
	gives(t, r, new(Request).Read(other, p, CurrentPosition), 2)
	equal(t, string(p[:2]), "01")
}

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
