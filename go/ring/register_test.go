//go:build linux

// Registered files and buffers, files without a descriptor, eventfds.

package ring

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestFixedFiles(t *testing.T) {
	r := newRing(t, Options{})
	f, g := tempFile(t, "first"), tempFile(t, "second")
	must(t, r.RegisterFiles([]int{int(f.Fd()), -1}))
	p := make([]byte, 6)
	equal(t, one(t, r, new(Request).Read(0, p, 0).FixedFile()), 5)
	equal(t, string(p[:5]), "first")
	equal(t, failure(t, r, new(Request).Read(1, p, 0).FixedFile()), error(syscall.EBADF))
	must(t, r.UpdateFiles(1, []int{int(g.Fd())}))
	equal(t, one(t, r, new(Request).Read(1, p, 0).FixedFile()), 6)
	equal(t, string(p), "second")
	must(t, r.UnregisterFiles())
	equal(t, failure(t, r, new(Request).Read(1, p, 0).FixedFile()), error(syscall.EBADF))
}

func TestUpdateFiles(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "abc")
	must(t, r.RegisterFiles([]int{int(f.Fd()), int(f.Fd())}))
	if err := r.RegisterFiles([]int{int(f.Fd())}); !errors.Is(err, syscall.EBUSY) {
		t.Fatal(err)
	}
	for _, bad := range []error{r.UpdateFiles(-1, []int{-1}), r.UpdateFiles(1, []int{-1, -1})} {
		if !errors.Is(bad, syscall.EINVAL) {
			t.Fatal(bad)
		}
	}
	// Entries before an invalid descriptor are replaced.
	if err := r.UpdateFiles(0, []int{-1, 1 << 20}); !errors.Is(err, syscall.EBADF) {
		t.Fatal(err)
	}
	must(t, r.UpdateFiles(0, []int{-1}))
	equal(t, failure(t, r, new(Request).Fsync(0).FixedFile()), error(syscall.EBADF))
	must(t, r.UnregisterFiles())
	if err := r.UnregisterFiles(); !errors.Is(err, syscall.ENXIO) {
		t.Fatal(err)
	}
}

func TestDirectOpen(t *testing.T) {
	r := newRing(t, Options{})
	sparse(t, r, 4)
	name := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(name, []byte("0123456789"), 0o600))
	// Open, read and close in one chain, without a descriptor.
	p := make([]byte, 4)
	ends := run(t, r, new(Request).Openat(AtFDCWD, name, os.O_RDONLY, 0).Direct(2).Link(),
		new(Request).Read(2, p, 3).FixedFile().Link(), new(Request).CloseDirect(2))
	for _, c := range ends {
		equal(t, c.Err(), nil)
	}
	equal(t, string(p), "3456")
	equal(t, failure(t, r, new(Request).Read(2, p, 3).FixedFile()), error(syscall.EBADF))
	equal(t, failure(t, r, new(Request).CloseDirect(2)), error(syscall.EBADF))
	// The kernel chooses a free entry.
	a := one(t, r, new(Request).Openat(AtFDCWD, name, os.O_RDONLY, 0).Direct(AnyIndex))
	b := one(t, r, new(Request).Openat2(AtFDCWD, name, uint64(os.O_RDONLY), 0, 0).Direct(AnyIndex))
	if a == b {
		t.Fatal("two files at one index:", a)
	}
	equal(t, one(t, r, new(Request).Read(b, p, 6).FixedFile()), 4)
	equal(t, string(p), "6789")
	// It chooses only within the range.
	must(t, r.UpdateFiles(0, []int{-1}))
	must(t, r.RegisterFileAllocRange(0, 1))
	equal(t, one(t, r, new(Request).Openat(AtFDCWD, name, os.O_RDONLY, 0).Direct(AnyIndex)), 0)
	equal(t, failure(t, r, new(Request).Openat(AtFDCWD, name, os.O_RDONLY,
		0).Direct(AnyIndex)), error(syscall.ENFILE))
	// Beyond the table.
	equal(t, failure(t, r, new(Request).Openat(AtFDCWD, name, os.O_RDONLY, 0).Direct(4)),
		error(syscall.EINVAL))
	equal(t, r.Push(new(Request).Openat(AtFDCWD, name, os.O_RDONLY, 0).Direct(-2)),
		error(syscall.EINVAL))
}

func TestFixedFDInstall(t *testing.T) {
	r := newRing(t, Options{})
	needOps(t, r, OpFixedFDInstall)
	sparse(t, r, 2)
	f := tempFile(t, "abc")
	must(t, r.UpdateFiles(1, []int{int(f.Fd())}))
	fd := one(t, r, new(Request).FixedFDInstall(1))
	defer syscall.Close(fd)
	wantCloexec(t, fd)
	p := make([]byte, 3)
	if n, err := syscall.Pread(fd, p, 0); n != 3 || err != nil || string(p) != "abc" {
		t.Fatal(n, err)
	}
	equal(t, failure(t, r, new(Request).FixedFDInstall(0)), error(syscall.EBADF))
}

func TestDirectSockets(t *testing.T) {
	r := newRing(t, Options{})
	needOps(t, r, OpSocket, OpBind, OpListen)
	sparse(t, r, 4)
	const listener, client, server = 0, 1, 2
	equal(t, one(t, r, new(Request).Socket(syscall.AF_INET, syscall.SOCK_STREAM,
		0).Direct(listener)), 0)
	equal(t, one(t, r, new(Request).Bind(listener,
		netip.MustParseAddrPort("127.0.0.1:0")).FixedFile()), 0)
	equal(t, one(t, r, new(Request).Listen(listener, 4).FixedFile()), 0)
	needOps(t, r, OpFixedFDInstall)
	fd := one(t, r, new(Request).FixedFDInstall(listener))
	name, err := syscall.Getsockname(fd)
	must(t, err)
	syscall.Close(fd)
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"),
		uint16(name.(*syscall.SockaddrInet4).Port))
	equal(t, one(t, r, new(Request).Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0).Direct(client)),
		0)
	ends := run(t, r, new(Request).Accept(listener, 0).FixedFile().Direct(server),
		new(Request).Connect(client, to).FixedFile())
	equal(t, ends[0].Err(), nil)
	equal(t, ends[0].Result, 0)
	equal(t, ends[1].Err(), nil)
	p := make([]byte, 5)
	ends = run(t, r, new(Request).Send(client, []byte("hello"), 0).FixedFile(),
		new(Request).Recv(server, p, 0).FixedFile())
	equal(t, ends[1].Result, 5)
	equal(t, string(p), "hello")
	// Multishot accept into entries that the kernel chooses.
	multi := new(Request).AcceptMultishot(listener, 0).FixedFile().Direct(AnyIndex)
	fd = one(t, r, new(Request).Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))
	defer syscall.Close(fd)
	ends = run(t, r, multi, new(Request).Connect(fd, to))
	equal(t, ends[0].Result, 3)
	equal(t, ends[1].Result, 0)
	run(t, r, new(Request).CancelFile(listener).FixedFile())
	for multi.InFlight() {
		collect(t, r, multi)
	}
}

func TestDirectPanicsForOtherOperations(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("Direct accepted a read")
		}
	}()
	new(Request).Read(0, nil, 0).Direct(1)
}

func TestFixedBuffers(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "0123456789")
	a, b := make([]byte, 4096), make([]byte, 4096)
	checkMemlock(t, r.RegisterBuffers([][]byte{a, b}))
	equal(t, one(t, r, new(Request).ReadFixed(int(f.Fd()), b[5:8], 2, 1)), 3)
	equal(t, string(b[5:8]), "234")
	copy(a, "XY")
	equal(t, one(t, r, new(Request).WriteFixed(int(f.Fd()), a[:2], 0, 0)), 2)
	equal(t, content(t, f), "XY23456789")
	// The memory must lie in the buffer of that index.
	equal(t, failure(t, r, new(Request).ReadFixed(int(f.Fd()), a[:1], 0, 1)),
		error(syscall.EFAULT))
	if err := r.RegisterBuffers([][]byte{a}); !errors.Is(err, syscall.EBUSY) {
		t.Fatal(err)
	}
	must(t, r.UnregisterBuffers())
	if err := failure(t, r, new(Request).ReadFixed(int(f.Fd()), b[:1], 0, 1)); err == nil {
		t.Fatal("unregistered buffers still work")
	}
}

func TestUpdateBuffers(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "0123456789")
	fd := int(f.Fd())
	if err := r.RegisterBuffersSparse(3); errors.Is(err, syscall.EINVAL) {
		skip(t, "this kernel is older than 5.19")
	} else if err != nil {
		t.Fatal(err)
	}
	a, b, c := make([]byte, 4096), make([]byte, 4096), make([]byte, 4096)
	equal(t, failure(t, r, new(Request).ReadFixed(fd, a[:1], 0, 1)), error(syscall.EFAULT))
	checkMemlock(t, r.UpdateBuffers(1, [][]byte{a, b}))
	equal(t, one(t, r, new(Request).ReadFixed(fd, a[7:10], 2, 1)), 3)
	equal(t, one(t, r, new(Request).ReadFixed(fd, b[:2], 4, 2)), 2)
	equal(t, string(a[7:10])+string(b[:2]), "23445")
	if &r.buffers[1].p[0] != &a[0] || &r.buffers[2].p[0] != &b[0] { // They pin the memory.
		t.Fatal("the ring does not keep the buffers")
	}
	// Replace one buffer, and empty another entry.
	checkMemlock(t, r.UpdateBuffers(1, [][]byte{c, nil}))
	equal(t, failure(t, r, new(Request).ReadFixed(fd, a[:1], 0, 1)), error(syscall.EFAULT))
	equal(t, failure(t, r, new(Request).ReadFixed(fd, b[:1], 0, 2)), error(syscall.EFAULT))
	equal(t, one(t, r, new(Request).ReadFixed(fd, c[:1], 9, 1)), 1)
	equal(t, string(c[:1]), "9")
	// Entries of a request in flight cannot change; others can.
	reading, writing := pipe(t)
	waits := new(Request).ReadFixed(reading, c[:1], CurrentPosition, 1)
	push(t, r, waits)
	submit(t, r)
	for _, err := range []error{r.UpdateBuffers(1, [][]byte{a}), r.UnregisterBuffers()} {
		if !errors.Is(err, syscall.EBUSY) {
			t.Fatal(err)
		}
	}
	checkMemlock(t, r.UpdateBuffers(2, [][]byte{b}))
	_, _ = syscall.Write(writing, []byte("z"))
	equal(t, collect(t, r, waits)[0].Result, 1)
	equal(t, c[0], 'z')
	for _, err := range []error{r.UpdateBuffers(3, [][]byte{a}), r.UpdateBuffers(-1, [][]byte{a}),
		r.UpdateBuffers(2, [][]byte{a, b})} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Fatal(err)
		}
	}
	for _, index := range []int{-1, 1 << 16} { // Not 16-bit numbers.
		equal(t, r.Push(new(Request).ReadFixed(fd, c[:1], 0, index)), error(syscall.EINVAL))
	}
}

func TestEventfd(t *testing.T) {
	r := newRing(t, Options{})
	const sysEventfd2 = syscall.SYS_EVENTFD2
	fd, _, errno := syscall.Syscall(sysEventfd2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer syscall.Close(int(fd))
	must(t, r.RegisterEventfd(int(fd)))
	one(t, r, new(Request).Nop())
	var ticks [8]byte
	if n, err := syscall.Read(int(fd), ticks[:]); n != 8 {
		t.Fatal("the eventfd was not incremented:", err)
	}
	must(t, r.UnregisterEventfd())
	one(t, r, new(Request).Nop())
	if _, err := syscall.Read(int(fd), ticks[:]); err != syscall.EAGAIN {
		t.Fatal("incremented after UnregisterEventfd:", err)
	}
}
