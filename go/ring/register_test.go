//go:build linux

// Registered files and buffers, buffer rings, files without a descriptor, eventfds.

package ring

import (
	"bytes"
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
	gives(t, r, new(Request).Read(0, p, 0).FixedFile(), 5)
	equal(t, string(p[:5]), "first")
	fails(t, r, new(Request).Read(1, p, 0).FixedFile(), syscall.EBADF)
	must(t, r.UpdateFiles(1, []int{int(g.Fd())}))
	gives(t, r, new(Request).Read(1, p, 0).FixedFile(), 6)
	equal(t, string(p), "second")
	must(t, r.UnregisterFiles())
	fails(t, r, new(Request).Read(1, p, 0).FixedFile(), syscall.EBADF)
}

func TestUpdateFiles(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "abc")
	must(t, r.RegisterFiles([]int{int(f.Fd()), int(f.Fd())}))
	wantError(t, r.RegisterFiles([]int{int(f.Fd())}), syscall.EBUSY)
	for _, bad := range []error{r.UpdateFiles(-1, []int{-1}), r.UpdateFiles(1, []int{-1, -1})} {
		wantError(t, bad, syscall.EINVAL)
	}
	// Entries before an invalid descriptor are replaced.
	wantError(t, r.UpdateFiles(0, []int{-1, 1 << 20}), syscall.EBADF)
	must(t, r.UpdateFiles(0, []int{-1}))
	fails(t, r, new(Request).Fsync(0).FixedFile(), syscall.EBADF)
	must(t, r.UnregisterFiles())
	wantError(t, r.UnregisterFiles(), syscall.ENXIO)
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
	fails(t, r, new(Request).Read(2, p, 3).FixedFile(), syscall.EBADF)
	fails(t, r, new(Request).CloseDirect(2), syscall.EBADF)
	// The kernel chooses a free entry.
	a := one(t, r, new(Request).Openat(AtFDCWD, name, os.O_RDONLY, 0).Direct(AnyIndex))
	b := one(t, r, new(Request).Openat2(AtFDCWD, name, uint64(os.O_RDONLY), 0, 0).Direct(AnyIndex))
	require(t, a != b, "two files at one index: %v", a)
	gives(t, r, new(Request).Read(b, p, 6).FixedFile(), 4)
	equal(t, string(p), "6789")
	// It chooses only within the range.
	must(t, r.UpdateFiles(0, []int{-1}))
	must(t, r.RegisterFileAllocRange(0, 1))
	gives(t, r, new(Request).Openat(AtFDCWD, name, os.O_RDONLY, 0).Direct(AnyIndex), 0)
	fails(t, r, new(Request).Openat(AtFDCWD, name, os.O_RDONLY, 0).Direct(AnyIndex), syscall.ENFILE)
	// Beyond the table.
	fails(t, r, new(Request).Openat(AtFDCWD, name, os.O_RDONLY, 0).Direct(4), syscall.EINVAL)
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
	equal(t, string(p[:get(syscall.Pread(fd, p, 0))(t)]), "abc")
	fails(t, r, new(Request).FixedFDInstall(0), syscall.EBADF)
}

func TestDirectSockets(t *testing.T) {
	r := newRing(t, Options{})
	needOps(t, r, OpSocket, OpBind, OpListen)
	sparse(t, r, 4)
	const listener, client, server = 0, 1, 2
	gives(t, r, new(Request).Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0).Direct(listener), 0)
	gives(t, r, new(Request).Bind(listener, netip.MustParseAddrPort("127.0.0.1:0")).FixedFile(), 0)
	gives(t, r, new(Request).Listen(listener, 4).FixedFile(), 0)
	needOps(t, r, OpFixedFDInstall)
	fd := one(t, r, new(Request).FixedFDInstall(listener))
	name := get(syscall.Getsockname(fd))(t)
	syscall.Close(fd)
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"),
		uint16(name.(*syscall.SockaddrInet4).Port))
	gives(t, r, new(Request).Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0).Direct(client), 0)
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
	finish(t, r, multi)
}

func TestDirectPanicsForOtherOperations(t *testing.T) {
	defer func() { require(t, recover() != nil, "Direct accepted a read") }()
	new(Request).Read(0, nil, 0).Direct(1)
}

func TestFixedBuffers(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "0123456789")
	a, b := make([]byte, 4096), make([]byte, 4096)
	checkMemlock(t, r.RegisterBuffers([][]byte{a, b}))
	gives(t, r, new(Request).ReadFixed(int(f.Fd()), b[5:8], 2, 1), 3)
	equal(t, string(b[5:8]), "234")
	copy(a, "XY")
	gives(t, r, new(Request).WriteFixed(int(f.Fd()), a[:2], 0, 0), 2)
	equal(t, content(t, f), "XY23456789")
	// The memory must lie in the buffer of that index.
	fails(t, r, new(Request).ReadFixed(int(f.Fd()), a[:1], 0, 1), syscall.EFAULT)
	wantError(t, r.RegisterBuffers([][]byte{a}), syscall.EBUSY)
	must(t, r.UnregisterBuffers())
	err := failure(t, r, new(Request).ReadFixed(int(f.Fd()), b[:1], 0, 1))
	require(t, err != nil, "unregistered buffers still work")
}

func TestUpdateBuffers(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "0123456789")
	fd := int(f.Fd())
	since519(t, r.RegisterBuffersSparse(3))
	a, b, c := make([]byte, 4096), make([]byte, 4096), make([]byte, 4096)
	fails(t, r, new(Request).ReadFixed(fd, a[:1], 0, 1), syscall.EFAULT)
	checkMemlock(t, r.UpdateBuffers(1, [][]byte{a, b}))
	gives(t, r, new(Request).ReadFixed(fd, a[7:10], 2, 1), 3)
	gives(t, r, new(Request).ReadFixed(fd, b[:2], 4, 2), 2)
	equal(t, string(a[7:10])+string(b[:2]), "23445")
	require(t, &r.buffers[1].p[0] == &a[0] && &r.buffers[2].p[0] == &b[0], // They pin the memory.
		"the ring does not keep the buffers")
	// Replace one buffer, and empty another entry.
	checkMemlock(t, r.UpdateBuffers(1, [][]byte{c, nil}))
	fails(t, r, new(Request).ReadFixed(fd, a[:1], 0, 1), syscall.EFAULT)
	fails(t, r, new(Request).ReadFixed(fd, b[:1], 0, 2), syscall.EFAULT)
	gives(t, r, new(Request).ReadFixed(fd, c[:1], 9, 1), 1)
	equal(t, string(c[:1]), "9")
	// Entries of a request in flight cannot change; others can.
	reading, writing := pipe(t)
	waits := new(Request).ReadFixed(reading, c[:1], CurrentPosition, 1)
	push(t, r, waits)
	submit(t, r)
	for _, err := range []error{r.UpdateBuffers(1, [][]byte{a}), r.UnregisterBuffers()} {
		wantError(t, err, syscall.EBUSY)
	}
	checkMemlock(t, r.UpdateBuffers(2, [][]byte{b}))
	_, _ = syscall.Write(writing, []byte("z"))
	equal(t, collect(t, r, waits)[0].Result, 1)
	equal(t, c[0], 'z')
	for _, err := range []error{r.UpdateBuffers(3, [][]byte{a}), r.UpdateBuffers(-1, [][]byte{a}),
		r.UpdateBuffers(2, [][]byte{a, b})} {
		wantError(t, err, syscall.EINVAL)
	}
	for _, index := range []int{-1, 1 << 16} { // Not 16-bit numbers.
		equal(t, r.Push(new(Request).ReadFixed(fd, c[:1], 0, index)), error(syscall.EINVAL))
	}
}

func TestEventfd(t *testing.T) {
	r := newRing(t, Options{})
	const sysEventfd2 = syscall.SYS_EVENTFD2
	fd, _, errno := syscall.Syscall(sysEventfd2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	require(t, errno == 0, "%v", errno)
	defer syscall.Close(int(fd))
	must(t, r.RegisterEventfd(int(fd)))
	one(t, r, new(Request).Nop())
	var ticks [8]byte
	equal(t, get(syscall.Read(int(fd), ticks[:]))(t), 8)
	must(t, r.UnregisterEventfd())
	one(t, r, new(Request).Nop())
	wantError(t, errorOf(syscall.Read(int(fd), ticks[:])), syscall.EAGAIN)
}

func TestBufferRing(t *testing.T) {
	r := newRing(t, Options{})
	group, err := r.RegisterBufferRing(7, 4, 16)
	if err != nil {
		skip(t, err)
	}
	reading, writing := socketpair(t, syscall.SOCK_STREAM)
	multi := new(Request).RecvMultishot(reading, 7, 0)
	push(t, r, multi)
	// More messages than buffers: each buffer is returned.
	for i := range 20 {
		message := []byte{byte(i), 'a', 'b'}
		_, _ = syscall.Write(writing, message)
		c := collect(t, r, multi)[0]
		got, id, ok := group.Buffer(c)
		require(t, ok && bytes.Equal(got, message) && c.More(), "%d: %q %v %+v", i, got, ok, c)
		group.Return(id)
	}
	// Without returned buffers, the group becomes empty. The request ends with the next message, or
	// at once: kernels differ in whether they select a buffer before they look for data.
	for range 5 {
		_, _ = syscall.Write(writing, []byte("x"))
		if c := collect(t, r, multi)[0]; !c.More() {
			equal(t, c.Err(), error(syscall.ENOBUFS))
			break
		}
	}
	require(t, !multi.InFlight(), "four buffers held five messages")
	for id := range uint16(4) {
		group.Return(id)
	}
	var rest [16]byte
	_, _, _ = syscall.Recvfrom(reading, rest[:], syscall.MSG_DONTWAIT)
	_, _ = syscall.Write(writing, []byte("x"))
	f := tempFile(t, "0123456789")
	for want, q := range map[string]*Request{
		"x":    new(Request).RecvSelect(reading, 7, 0),
		"2345": new(Request).ReadSelect(int(f.Fd()), 7, 4, 2),
	} {
		got, _, ok := group.Buffer(run(t, r, q)[0])
		require(t, ok && string(got) == want, "%q, not %q: %v", got, want, ok)
	}
	must(t, group.Close())
	err = failure(t, r, new(Request).RecvSelect(reading, 7, syscall.MSG_DONTWAIT))
	require(t, err != nil, "a receive used a closed group")
}

func TestReadMultishot(t *testing.T) {
	r := newRing(t, Options{})
	needOps(t, r, OpReadMultishot)
	group, err := r.RegisterBufferRing(1, 4, 8)
	checkMemlock(t, err)
	reading, writing := pipe(t)
	multi := new(Request).ReadMultishot(reading, 1)
	push(t, r, multi)
	for i := range 10 {
		_, _ = syscall.Write(writing, []byte{byte(i), 'x'})
		c := collect(t, r, multi)[0]
		got, id, ok := group.Buffer(c)
		require(t, ok && c.More() && bytes.Equal(got, []byte{byte(i), 'x'}), "%d: %q %v %+v", i,
			got, ok, c)
		group.Return(id)
	}
	require(t, group.Close() != nil, "Close succeeded with a request in flight")
	run(t, r, new(Request).Cancel(multi))
	finish(t, r, multi)
	must(t, group.Close())
	equal(t, group.Close(), ErrClosed)
	_, _, ok := group.Buffer(Completion{Flags: FlagBuffer})
	require(t, !ok, "a closed group has buffers")
}

func TestInvalidBufferRings(t *testing.T) {
	r := newRing(t, Options{})
	for _, c := range [][2]int{{0, 8}, {3, 8}, {4, 0}, {4, -1}, {1 << 16, 8}, {1 << 15, 1 << 20}} {
		_, err := r.RegisterBufferRing(0, c[0], c[1])
		require(t, err != nil, "%v", c)
	}
}
