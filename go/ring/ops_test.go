//go:build linux

package ring

// Every operation by its effect: a wrong number would do something else, or nothing.

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const patience = 10 * time.Second

// skip ends a test that this machine cannot run. In CI that is a failure, unless io_uring itself is refused there.
func skip(t testing.TB, why ...any) {
	t.Helper()
	text := "skipped: " + strings.TrimSpace(fmt.Sprintln(why...))
	if err, ok := why[0].(error); os.Getenv("CI") == "" || ok && (errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS)) {
		t.Skip(text)
	}
	t.Fatal(text)
}

// granted ends a test for which too little memory may be locked.
func granted(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, syscall.ENOMEM) {
		skip(t, err)
	} else if err != nil {
		t.Fatal(err)
	}
}

func newRing(t testing.TB, o Options) *Ring {
	t.Helper()
	r, err := New(o)
	if err != nil {
		skip(t, err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil && err != ErrClosed {
			t.Error(err)
		}
	})
	return r
}

// need skips what this kernel is too old for.
func need(t testing.TB, r *Ring, ops ...Opcode) {
	t.Helper()
	probe, err := r.Probe()
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		if !probe.Supports(op) {
			skip(t, "this kernel does not know operation", op)
		}
	}
}

// run pushes requests together and gives their completions, in the order of the requests.
func run(t *testing.T, r *Ring, requests ...*Request) []Completion {
	t.Helper()
	for _, q := range requests {
		if err := r.Push(q); err != nil {
			t.Fatal(err)
		}
	}
	return collect(t, r, requests...)
}

func collect(t *testing.T, r *Ring, requests ...*Request) []Completion {
	t.Helper()
	ordered := make([]Completion, len(requests))
	for got := 0; got < len(requests); {
		if _, err := r.SubmitAndWait(1, patience); err != nil {
			t.Fatalf("%d of %d completions: %v", got, len(requests), err)
		}
		var done [8]Completion
		for _, c := range done[:r.Reap(done[:])] {
			for i, q := range requests {
				if c.Request == q {
					ordered[i] = c
					got++
				}
			}
		}
	}
	return ordered
}

// one is a request that must succeed; its result.
func one(t *testing.T, r *Ring, q *Request) int {
	t.Helper()
	c := run(t, r, q)[0]
	if c.Err() != nil {
		t.Fatalf("operation %d: %v", q.Opcode(), c.Err())
	}
	return int(c.Result)
}

func tempFile(t *testing.T, content string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	return f
}

func content(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestNop(t *testing.T) {
	r := newRing(t, Options{})
	equal(t, one(t, r, new(Request).Nop()), 0)
}

func TestReadAndWrite(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "0123456789")
	p := make([]byte, 4)
	q := new(Request)
	equal(t, one(t, r, q.Read(int(f.Fd()), p, 3)), 4)
	equal(t, string(p), "3456")
	equal(t, one(t, r, q.Read(int(f.Fd()), p, 8)), 2)
	equal(t, one(t, r, q.Read(int(f.Fd()), p, 10)), 0)
	equal(t, one(t, r, q.Write(int(f.Fd()), []byte("ab"), 1)), 2)
	equal(t, content(t, f), "0ab3456789")
}

func TestCurrentPosition(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "0123456789")
	if _, err := f.Seek(2, 0); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 3)
	equal(t, one(t, r, new(Request).Read(int(f.Fd()), p, CurrentPosition)), 3)
	equal(t, string(p), "234")
	equal(t, one(t, r, new(Request).Write(int(f.Fd()), []byte("X"), CurrentPosition)), 1)
	equal(t, content(t, f), "01234X6789")
}

func TestFlagsOfTransfers(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "x")
	const unknown = 1 << 30
	c := run(t, r, new(Request).Read(int(f.Fd()), make([]byte, 1), 0).RWFlags(unknown))[0]
	if c.Err() != syscall.EOPNOTSUPP && c.Err() != syscall.EINVAL {
		t.Fatalf("the flags did not arrive: %v", c.Err())
	}
}

func TestVectors(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "")
	equal(t, one(t, r, new(Request).Writev(int(f.Fd()), [][]byte{[]byte("abc"), nil, []byte("de")}, 1)), 5)
	equal(t, content(t, f), "\x00abcde")
	a, b := make([]byte, 2), make([]byte, 9)
	equal(t, one(t, r, new(Request).Readv(int(f.Fd()), [][]byte{a, b}, 1)), 5)
	equal(t, string(a)+string(b[:3]), "abcde")
}

func TestFixedBuffers(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "0123456789")
	a, b := make([]byte, 4096), make([]byte, 4096)
	granted(t, r.RegisterBuffers([][]byte{a, b}))
	equal(t, one(t, r, new(Request).ReadFixed(int(f.Fd()), b[5:8], 2, 1)), 3)
	equal(t, string(b[5:8]), "234")
	copy(a, "XY")
	equal(t, one(t, r, new(Request).WriteFixed(int(f.Fd()), a[:2], 0, 0)), 2)
	equal(t, content(t, f), "XY23456789")
	// What is not in the buffer with that index is refused, and so it is the index that counts.
	equal(t, run(t, r, new(Request).ReadFixed(int(f.Fd()), a[:1], 0, 1))[0].Err(), error(syscall.EFAULT))
	if err := r.RegisterBuffers([][]byte{a}); !errors.Is(err, syscall.EBUSY) {
		t.Fatal(err)
	}
	if err := r.UnregisterBuffers(); err != nil {
		t.Fatal(err)
	}
	if err := run(t, r, new(Request).ReadFixed(int(f.Fd()), b[:1], 0, 1))[0].Err(); err == nil {
		t.Fatal("unregistered buffers still work")
	}
}

func TestFixedFiles(t *testing.T) {
	r := newRing(t, Options{})
	f, g := tempFile(t, "first"), tempFile(t, "second")
	if err := r.RegisterFiles([]int{int(f.Fd()), -1}); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 6)
	equal(t, one(t, r, new(Request).Read(0, p, 0).FixedFile()), 5)
	equal(t, string(p[:5]), "first")
	equal(t, run(t, r, new(Request).Read(1, p, 0).FixedFile())[0].Err(), error(syscall.EBADF))
	if err := r.UpdateFiles(1, []int{int(g.Fd())}); err != nil {
		t.Fatal(err)
	}
	equal(t, one(t, r, new(Request).Read(1, p, 0).FixedFile()), 6)
	equal(t, string(p), "second")
	if err := r.UnregisterFiles(); err != nil {
		t.Fatal(err)
	}
	equal(t, run(t, r, new(Request).Read(1, p, 0).FixedFile())[0].Err(), error(syscall.EBADF))
}

func TestSyncs(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "0123456789")
	fd := int(f.Fd())
	equal(t, one(t, r, new(Request).Fsync(fd)), 0)
	equal(t, one(t, r, new(Request).Fdatasync(fd)), 0)
	equal(t, one(t, r, new(Request).SyncFileRange(fd, 0, 4096, 2)), 0)
	// A pipe can do none of them, which tells the three apart from a NOP.
	a, b := pipe(t)
	_ = a
	equal(t, run(t, r, new(Request).Fsync(b))[0].Err(), error(syscall.EINVAL))
	equal(t, run(t, r, new(Request).Fdatasync(b))[0].Err(), error(syscall.EINVAL))
	equal(t, run(t, r, new(Request).SyncFileRange(b, 0, 1, 2))[0].Err(), error(syscall.ESPIPE))
}

func pipe(t *testing.T) (reading, writing int) {
	t.Helper()
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fds[0]); syscall.Close(fds[1]) })
	return fds[0], fds[1]
}

func size(t *testing.T, f *os.File) int64 {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestSizes(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "0123456789")
	if err := run(t, r, new(Request).Fallocate(int(f.Fd()), 0, 4096, 8192))[0].Err(); err == syscall.EOPNOTSUPP {
		t.Log("skipped: this file system has no fallocate")
	} else if err != nil {
		t.Fatal(err)
	} else {
		equal(t, size(t, f), 12288)
	}
	need(t, r, OpFtruncate)
	equal(t, one(t, r, new(Request).Ftruncate(int(f.Fd()), 5)), 0)
	equal(t, content(t, f), "01234")
}

func TestFadvise(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "0123456789")
	equal(t, one(t, r, new(Request).Fadvise(int(f.Fd()), 0, 10, 3)), 0)
	equal(t, run(t, r, new(Request).Fadvise(int(f.Fd()), 0, 10, 77))[0].Err(), error(syscall.EINVAL))
}

func TestOpenStatClose(t *testing.T) {
	r := newRing(t, Options{})
	dir := t.TempDir()
	name := filepath.Join(dir, "new")
	fd := one(t, r, new(Request).Openat(AtFDCWD, name, os.O_CREATE|os.O_RDWR, 0o640))
	if flags, _, _ := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0); flags&syscall.FD_CLOEXEC == 0 {
		t.Error("the descriptor is inherited by programs")
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

func TestPaths(t *testing.T) {
	r := newRing(t, Options{})
	need(t, r, OpMkdirat, OpRenameat, OpUnlinkat, OpSymlinkat, OpLinkat)
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
	equal(t, run(t, r, new(Request).Renameat(AtFDCWD, at("c"), AtFDCWD, at("d/b"), noReplace))[0].Err(), error(syscall.EEXIST))
	equal(t, one(t, r, new(Request).Unlinkat(AtFDCWD, at("d/b"), 0)), 0)
	const removeDir = 0x200
	equal(t, one(t, r, new(Request).Unlinkat(AtFDCWD, at("d"), removeDir)), 0)
	if _, err := os.Stat(at("d")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestPolls(t *testing.T) {
	r := newRing(t, Options{})
	reading, writing := pipe(t)
	const pollIn = 1
	poll := new(Request).Poll(reading, pollIn)
	if err := r.Push(poll); err != nil {
		t.Fatal(err)
	}
	if _, err := r.SubmitAndWait(1, 20*time.Millisecond); err != ErrTimeout {
		t.Fatal("an empty pipe is readable:", err)
	}
	_, _ = syscall.Write(writing, []byte("x"))
	equal(t, collect(t, r, poll)[0].Result, pollIn)

	// One request, an answer for each event.
	multi := new(Request).PollMultishot(reading, pollIn)
	c := run(t, r, multi)[0]
	if !c.More() || c.Result != pollIn {
		t.Fatalf("%+v", c)
	}
	_, _ = syscall.Write(writing, []byte("y"))
	if c := collect(t, r, multi)[0]; !c.More() {
		t.Fatalf("%+v", c)
	}
	answers := run(t, r, new(Request).PollRemove(multi))
	equal(t, answers[0].Err(), nil)
	for multi.InFlight() {
		collect(t, r, multi)
	}
}

func TestTimeouts(t *testing.T) {
	r := newRing(t, Options{})
	begin := time.Now()
	equal(t, run(t, r, new(Request).Timeout(30*time.Millisecond))[0].Err(), error(syscall.ETIME))
	if took := time.Since(begin); took < 30*time.Millisecond {
		t.Fatal("too early:", took)
	}
	long := new(Request).Timeout(time.Hour)
	if err := r.Push(long); err != nil {
		t.Fatal(err)
	}
	answers := run(t, r, new(Request).TimeoutRemove(long))
	equal(t, answers[0].Err(), nil)
	if long.InFlight() {
		collect(t, r, long)
	}

	reading, _ := pipe(t)
	limited := run(t, r, new(Request).Read(reading, make([]byte, 1), CurrentPosition).Link(), new(Request).LinkTimeout(20*time.Millisecond))
	if err := limited[0].Err(); err != syscall.ECANCELED && err != syscall.EINTR {
		t.Fatal(err)
	}
	equal(t, limited[1].Err(), error(syscall.ETIME))
}

func TestTimeoutMultishot(t *testing.T) {
	r := newRing(t, Options{})
	tick := new(Request).TimeoutMultishot(5*time.Millisecond, 3)
	ticks := 0
	if err := r.Push(tick); err != nil {
		t.Fatal(err)
	}
	for tick.InFlight() {
		c := collect(t, r, tick)[0]
		if c.Err() == syscall.EINVAL {
			skip(t, "this kernel is older than 6.4")
		}
		ticks++
	}
	equal(t, ticks, 3)
}

func TestLinks(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "")
	fd := int(f.Fd())
	p := make([]byte, 3)
	ends := run(t, r, new(Request).Write(fd, []byte("abc"), 0).Link(), new(Request).Fsync(fd).Link(), new(Request).Read(fd, p, 0))
	for _, c := range ends {
		equal(t, c.Err(), nil)
	}
	equal(t, string(p), "abc")
	// A short read breaks the chain; a hard link does not mind.
	broken := run(t, r, new(Request).Read(fd, make([]byte, 9), 0).Link(), new(Request).Nop())
	equal(t, broken[1].Err(), error(syscall.ECANCELED))
	held := run(t, r, new(Request).Read(fd, make([]byte, 9), 0).Hardlink(), new(Request).Nop())
	equal(t, held[1].Err(), nil)
}

func TestDrain(t *testing.T) {
	r := newRing(t, Options{})
	slow, last := new(Request).Timeout(30*time.Millisecond), new(Request).Nop().Drain()
	for _, q := range []*Request{slow, last} {
		if err := r.Push(q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.SubmitAndWait(2, patience); err != nil {
		t.Fatal(err)
	}
	var done [4]Completion
	equal(t, r.Reap(done[:]), 2)
	equal(t, done[0].Request, slow)
	equal(t, done[1].Request, last)
}

func TestAsync(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "abc")
	p := make([]byte, 3)
	equal(t, one(t, r, new(Request).Read(int(f.Fd()), p, 0).Async()), 3)
	equal(t, string(p), "abc")
}

func TestCancels(t *testing.T) {
	r := newRing(t, Options{})
	reading, _ := pipe(t)
	read := func() *Request { return new(Request).Read(reading, make([]byte, 1), CurrentPosition) }
	a, b := read(), read()
	for _, q := range []*Request{a, b} {
		if err := r.Push(q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Submit(); err != nil {
		t.Fatal(err)
	}
	cancel := new(Request).Cancel(a)
	if err := r.Push(cancel); err != nil {
		t.Fatal(err)
	}
	ends := collect(t, r, cancel, a)
	equal(t, ends[0].Err(), nil)
	equal(t, ends[1].Err(), error(syscall.ECANCELED))
	if !b.InFlight() {
		t.Fatal("another request was cancelled")
	}
	equal(t, run(t, r, new(Request).Cancel(a))[0].Err(), error(syscall.ENOENT))

	byFile := new(Request).CancelFile(reading)
	if err := r.Push(byFile); err != nil {
		t.Fatal(err)
	}
	ends = collect(t, r, byFile, b)
	if ends[0].Err() == syscall.EINVAL {
		skip(t, "this kernel is older than 5.19")
	}
	equal(t, ends[0].Result, 1)
	equal(t, ends[1].Err(), error(syscall.ECANCELED))

	c, d := read(), read()
	all := new(Request).CancelAll()
	for _, q := range []*Request{c, d, all} {
		if err := r.Push(q); err != nil {
			t.Fatal(err)
		}
	}
	ends = collect(t, r, all, c, d)
	equal(t, ends[0].Result, 2)
}

func TestSockets(t *testing.T) {
	r := newRing(t, Options{})
	need(t, r, OpSocket, OpBind, OpListen, OpAccept, OpConnect, OpShutdown)
	loopback := netip.MustParseAddrPort("127.0.0.1:0")
	listener := one(t, r, new(Request).Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))
	defer syscall.Close(listener)
	equal(t, one(t, r, new(Request).Bind(listener, loopback)), 0)
	equal(t, one(t, r, new(Request).Listen(listener, 8)), 0)
	name, err := syscall.Getsockname(listener)
	if err != nil {
		t.Fatal(err)
	}
	port := name.(*syscall.SockaddrInet4).Port
	to := netip.AddrPortFrom(loopback.Addr(), uint16(port))

	client := one(t, r, new(Request).Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))
	defer syscall.Close(client)
	accept, connect := new(Request).Accept(listener, 0), new(Request).Connect(client, to)
	ends := run(t, r, accept, connect)
	equal(t, ends[1].Err(), nil)
	server := int(ends[0].Result)
	if server < 0 {
		t.Fatal(ends[0].Err())
	}
	defer syscall.Close(server)
	own, _ := syscall.Getsockname(client)
	equal(t, accept.Peer(), netip.AddrPortFrom(loopback.Addr(), uint16(own.(*syscall.SockaddrInet4).Port)))

	p := make([]byte, 8)
	ends = run(t, r, new(Request).Send(client, []byte("hello"), 0), new(Request).Recv(server, p, 0))
	equal(t, ends[0].Result, 5)
	equal(t, string(p[:ends[1].Result]), "hello")
	equal(t, one(t, r, new(Request).Shutdown(client, syscall.SHUT_WR)), 0)
	equal(t, one(t, r, new(Request).Recv(server, p, 0)), 0)

	// Several connections from one request.
	multi := new(Request).AcceptMultishot(listener, 0)
	if err := r.Push(multi); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		conn, err := net.Dial("tcp", to.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		c := collect(t, r, multi)[0]
		if c.Err() != nil || !c.More() {
			t.Fatalf("%+v", c)
		}
		syscall.Close(int(c.Result))
	}
	run(t, r, new(Request).Cancel(multi))
	for multi.InFlight() {
		collect(t, r, multi)
	}
}

func TestUnixSocket(t *testing.T) {
	r := newRing(t, Options{})
	need(t, r, OpSocket)
	for _, name := range []string{filepath.Join(t.TempDir(), "s"), fmt.Sprintf("@ringway-%d", os.Getpid())} {
		listener, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		fd := one(t, r, new(Request).Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))
		defer syscall.Close(fd)
		equal(t, one(t, r, new(Request).ConnectUnix(fd, name)), 0)
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		equal(t, one(t, r, new(Request).Send(fd, []byte("abc"), 0)), 3)
		p := make([]byte, 3)
		if n, err := conn.Read(p); n != 3 || err != nil {
			t.Fatal(n, err)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 200)} {
		fd := one(t, r, new(Request).Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))
		defer syscall.Close(fd)
		equal(t, run(t, r, new(Request).ConnectUnix(fd, name))[0].Err(), error(syscall.EINVAL))
	}
}

// Which interface a link-local address is on goes to the kernel and comes back.
func TestZones(t *testing.T) {
	for _, address := range []string{"[fe80::1%7]:80", "[::1]:80", "127.0.0.1:80"} {
		want := netip.MustParseAddrPort(address)
		q := new(Request).Connect(-1, want)
		equal(t, q.Peer(), want)
	}
}

func TestMessages(t *testing.T) {
	r := newRing(t, Options{})
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		a, err := net.ListenPacket("udp", address)
		if err != nil {
			t.Log("skipped:", err)
			continue
		}
		defer a.Close()
		b, err := net.ListenPacket("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		fd := func(c net.PacketConn) (fd int) {
			raw, err := c.(*net.UDPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			_ = raw.Control(func(n uintptr) { fd = int(n) })
			return
		}
		port := func(c net.PacketConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }
		p, q := make([]byte, 3), make([]byte, 10)
		receive := new(Request).RecvMsg(fd(b), [][]byte{p, q}, 0)
		ends := run(t, r, new(Request).SendMsg(fd(a), [][]byte{[]byte("ab"), []byte("cde")}, port(b), 0), receive)
		equal(t, ends[0].Result, 5)
		equal(t, ends[1].Result, 5)
		equal(t, string(p)+string(q[:2]), "abcde")
		equal(t, receive.Peer(), port(a))
	}
}

func TestBufferRing(t *testing.T) {
	r := newRing(t, Options{})
	group, err := r.RegisterBufferRing(7, 4, 16)
	if err != nil {
		skip(t, err)
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fds[0])
	defer syscall.Close(fds[1])
	multi := new(Request).RecvMultishot(fds[0], 7, 0)
	if err := r.Push(multi); err != nil {
		t.Fatal(err)
	}
	// More often than there are buffers: they come back.
	for i := range 20 {
		message := []byte{byte(i), 'a', 'b'}
		_, _ = syscall.Write(fds[1], message)
		c := collect(t, r, multi)[0]
		got, id, ok := group.Buffer(c)
		if !ok || !bytes.Equal(got, message) || !c.More() {
			t.Fatalf("%d: %q %v %+v", i, got, ok, c)
		}
		group.Return(id)
	}
	// Those that do not come back are missing.
	for range 5 {
		_, _ = syscall.Write(fds[1], []byte("x"))
		if c := collect(t, r, multi)[0]; !c.More() {
			equal(t, c.Err(), error(syscall.ENOBUFS))
			break
		}
	}
	if multi.InFlight() {
		t.Fatal("four buffers held five messages")
	}
	for id := range uint16(4) {
		group.Return(id)
	}
	c := run(t, r, new(Request).RecvSelect(fds[0], 7, 0))[0]
	if got, _, ok := group.Buffer(c); !ok || string(got) != "x" {
		t.Fatal(got, ok)
	}
	f := tempFile(t, "0123456789")
	c = run(t, r, new(Request).ReadSelect(int(f.Fd()), 7, 4, 2))[0]
	if got, _, ok := group.Buffer(c); !ok || string(got) != "2345" {
		t.Fatal(got, ok)
	}
	if err := group.Close(); err != nil {
		t.Fatal(err)
	}
	if err := run(t, r, new(Request).RecvSelect(fds[0], 7, syscall.MSG_DONTWAIT))[0].Err(); err == nil {
		t.Fatal("the group is still there")
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
	if err := r.RegisterEventfd(int(fd)); err != nil {
		t.Fatal(err)
	}
	one(t, r, new(Request).Nop())
	var ticks [8]byte
	if n, err := syscall.Read(int(fd), ticks[:]); n != 8 {
		t.Fatal("not told:", err)
	}
	if err := r.UnregisterEventfd(); err != nil {
		t.Fatal(err)
	}
	one(t, r, new(Request).Nop())
	if _, err := syscall.Read(int(fd), ticks[:]); err != syscall.EAGAIN {
		t.Fatal("still told:", err)
	}
}

func TestProbeAndWorkers(t *testing.T) {
	r := newRing(t, Options{})
	probe, err := r.Probe()
	if err != nil {
		t.Fatal(err)
	}
	if !probe.Supports(OpRead) || probe.Supports(255) {
		t.Fatal("the table is wrong")
	}
	if _, _, err := r.IOWQMaxWorkers(3, 5); err != nil {
		skip(t, err)
	}
	files, rest, err := r.IOWQMaxWorkers(0, 0)
	if err != nil || files != 3 || rest != 5 {
		t.Fatal(files, rest, err)
	}
}
