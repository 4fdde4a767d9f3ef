//go:build linux

package ring

// More operations by their effect: pipes, advice to memory, zero-copy sends, messages, limits that are changed.

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSpliceAndTee(t *testing.T) {
	r := newRing(t, Options{})
	need(t, r, OpSplice, OpTee)
	f, g := tempFile(t, "0123456789"), tempFile(t, "abcdefgh")
	reading, writing := pipe(t)
	other, into := pipe(t)
	equal(t, one(t, r, new(Request).Splice(int(f.Fd()), 2, writing, CurrentPosition, 5, 0)), 5)
	equal(t, one(t, r, new(Request).Tee(reading, into, 3, 0)), 3)
	equal(t, one(t, r, new(Request).Splice(reading, CurrentPosition, int(g.Fd()), 1, 100, 0)), 5)
	equal(t, content(t, g), "a23456gh")
	p := make([]byte, 9)
	equal(t, one(t, r, new(Request).Read(other, p, CurrentPosition)), 3)
	equal(t, string(p[:3]), "234")
	// The written one may be in the table of files.
	if err := r.RegisterFiles([]int{into}); err != nil {
		t.Fatal(err)
	}
	equal(t, one(t, r, new(Request).Splice(int(f.Fd()), 0, 0, CurrentPosition, 2, 0).FixedFile()), 2)
	equal(t, one(t, r, new(Request).Read(other, p, CurrentPosition)), 2)
	equal(t, string(p[:2]), "01")
}

func TestMadvise(t *testing.T) {
	r := newRing(t, Options{})
	p, err := syscall.Mmap(-1, 0, 2*os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(p)
	half := len(p) / 2
	p[0], p[half] = 1, 2
	const dontNeed = 4
	equal(t, one(t, r, new(Request).Madvise(p[half:], dontNeed)), 0)
	equal(t, p[0], 1)
	equal(t, p[half], 0) // Of a private mapping it forgets the pages.
	equal(t, run(t, r, new(Request).Madvise(p, 9999))[0].Err(), error(syscall.EINVAL))
}

// Advice about more than 32 bits can tell: a page behind 4 GiB goes from the page cache.
func TestLongAdvice(t *testing.T) {
	r := newRing(t, Options{})
	need(t, r, OpBind) // 6.11: newer than what this is about.
	const far, dontNeed, noWait = 1<<32 + 4096, 4, 8
	f := tempFile(t, "")
	if _, err := f.WriteAt(make([]byte, 4096), far); err != nil {
		skip(t, err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	fd := int(f.Fd())
	cached := func() bool {
		return run(t, r, new(Request).Read(fd, make([]byte, 1), far).RWFlags(noWait))[0].Result == 1
	}
	for i, advice := range []*Request{
		new(Request).Fadvise(fd, far, 4096, dontNeed), new(Request).Fadvise(fd, 0, far+4096, dontNeed),
	} {
		equal(t, one(t, r, new(Request).Read(fd, make([]byte, 1), far)), 1)
		if !cached() {
			skip(t, "this file system does not keep or does not tell what is cached")
		}
		// A page that somebody looks at just now stays: so once more.
		deadline := time.Now().Add(patience)
		for equal(t, one(t, r, advice), 0); cached(); equal(t, one(t, r, advice), 0) {
			switch {
			case time.Now().Before(deadline):
			case i == 0:
				skip(t, "this file system takes no advice")
			default:
				t.Fatal("the length was cut")
			}
		}
	}
	equal(t, run(t, r, new(Request).Fadvise(fd, 0, 1<<33, 77))[0].Err(), error(syscall.EINVAL))
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
	equal(t, run(t, r, new(Request).Openat2(int(d.Fd()), "../x", uint64(os.O_RDONLY), 0, beneath))[0].Err(), error(syscall.EXDEV))
	// A mode without a file to be made: openat takes it, openat2 does not.
	equal(t, run(t, r, new(Request).Openat2(int(d.Fd()), "file", uint64(os.O_RDONLY), 0o600, 0))[0].Err(), error(syscall.EINVAL))
	syscall.Close(one(t, r, new(Request).Openat(int(d.Fd()), "file", os.O_RDONLY, 0o600)))
}

// A zero byte would make another path of it, and with AT_EMPTY_PATH the directory itself.
func TestPathsWithZeroBytes(t *testing.T) {
	r := newRing(t, Options{})
	const emptyPath = 0x1000
	for _, q := range []*Request{
		new(Request).Openat(AtFDCWD, "a\x00b", os.O_CREATE, 0o600), new(Request).Statx(AtFDCWD, "\x00", emptyPath, 0x7ff),
		new(Request).Unlinkat(AtFDCWD, "a\x00", 0), new(Request).Mkdirat(AtFDCWD, "a\x00", 0), new(Request).Symlinkat("a\x00", AtFDCWD, "b"),
		new(Request).Renameat(AtFDCWD, "a", AtFDCWD, "b\x00", 0), new(Request).Linkat(AtFDCWD, "a\x00", AtFDCWD, "b", 0),
	} {
		equal(t, r.Push(q), error(syscall.EINVAL))
		equal(t, r.InFlight(), 0)
		equal(t, one(t, r, q.Nop()), 0)
	}
}

func TestPriority(t *testing.T) {
	r := newRing(t, Options{})
	f := tempFile(t, "abc")
	const bestEffort, none = 2 << 13, 7 << 13
	equal(t, one(t, r, new(Request).Read(int(f.Fd()), make([]byte, 3), 0).Priority(bestEffort|4)), 3)
	equal(t, run(t, r, new(Request).Read(int(f.Fd()), make([]byte, 3), 0).Priority(none))[0].Err(), error(syscall.EINVAL))
}

func TestReadMultishot(t *testing.T) {
	r := newRing(t, Options{})
	need(t, r, OpReadMultishot)
	group, err := r.RegisterBufferRing(1, 4, 8)
	granted(t, err)
	reading, writing := pipe(t)
	multi := new(Request).ReadMultishot(reading, 1)
	if err := r.Push(multi); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		_, _ = syscall.Write(writing, []byte{byte(i), 'x'})
		c := collect(t, r, multi)[0]
		got, id, ok := group.Buffer(c)
		if !ok || !c.More() || !bytes.Equal(got, []byte{byte(i), 'x'}) {
			t.Fatalf("%d: %q %v %+v", i, got, ok, c)
		}
		group.Return(id)
	}
	if err := group.Close(); err == nil {
		t.Fatal("a group went from under a request in flight")
	}
	run(t, r, new(Request).Cancel(multi))
	for multi.InFlight() {
		collect(t, r, multi)
	}
	if err := group.Close(); err != nil {
		t.Fatal(err)
	}
	equal(t, group.Close(), ErrClosed)
	if _, _, ok := group.Buffer(Completion{Flags: FlagBuffer}); ok {
		t.Fatal("a closed group has buffers")
	}
}

func TestBufferRingsThatCannotBe(t *testing.T) {
	r := newRing(t, Options{})
	for _, c := range [][2]int{{0, 8}, {3, 8}, {4, 0}, {4, -1}, {1 << 16, 8}, {1 << 15, 1 << 20}} {
		if _, err := r.RegisterBufferRing(0, c[0], c[1]); err == nil {
			t.Fatal(c)
		}
	}
}

func tcp(t *testing.T) (client, server int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	a, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	fd := func(c net.Conn) int {
		defer c.Close()
		file, err := c.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		return int(file.Fd())
	}
	return fd(a), fd(b)
}

// Two completions: the result, and that the kernel has let go of the buffer.
func TestZeroCopy(t *testing.T) {
	r := newRing(t, Options{})
	need(t, r, OpSendZC, OpSendMsgZC)
	client, server := tcp(t)
	for name, q := range map[string]*Request{
		"SendZC":    new(Request).SendZC(client, []byte("hello"), 0),
		"SendMsgZC": new(Request).SendMsgZC(client, [][]byte{[]byte("he"), []byte("llo")}, netip.AddrPort{}, 0),
	} {
		if err := r.Push(q); err != nil {
			t.Fatal(err)
		}
		if _, err := r.SubmitAndWait(1, patience); err != nil {
			t.Fatal(err)
		}
		var done [2]Completion
		n := r.Reap(done[:])
		granted(t, done[0].Err()) // Pages of a buffer that is not copied are locked.
		p := make([]byte, 5)
		if n, err := syscall.Read(server, p); n != 5 || err != nil || string(p) != "hello" {
			t.Fatal(n, err)
		}
		for n < 2 {
			if _, err := r.SubmitAndWait(1, patience); err != nil {
				t.Fatal(name, err)
			}
			n += r.Reap(done[n:])
			equal(t, q.InFlight(), n < 2)
		}
		if first := done[0]; first.Request != q || first.Result != 5 || !first.More() || first.Flags&FlagNotification != 0 {
			t.Fatalf("%s: %+v", name, first)
		}
		if second := done[1]; second.Request != q || second.More() || second.Flags&FlagNotification == 0 {
			t.Fatalf("%s: %+v", name, second)
		}
	}
}

func TestMessageFlags(t *testing.T) {
	r := newRing(t, Options{})
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fds[0])
	defer syscall.Close(fds[1])
	for _, n := range []int{3, 4} {
		_, _ = syscall.Write(fds[0], make([]byte, n))
		q := new(Request).RecvMsg(fds[1], [][]byte{make([]byte, 3)}, 0)
		equal(t, one(t, r, q), 3)
		equal(t, q.MessageFlags()&syscall.MSG_TRUNC != 0, n > 3)
		equal(t, q.Peer(), netip.AddrPort{})
	}
}

// Word to another ring wakes who waits there.
func TestMsgRing(t *testing.T) {
	r := newRing(t, Options{})
	need(t, r, OpMsgRing)
	other := newRing(t, Options{})
	type woken struct {
		n   int
		c   Completion
		err error
	}
	answer := make(chan woken)
	go func() {
		var done [2]Completion
		_, err := other.SubmitAndWait(1, patience)
		n := other.Reap(done[:])
		answer <- woken{n, done[0], err}
	}()
	equal(t, one(t, r, new(Request).MsgRing(other, 7)), 0)
	w := <-answer
	if w.n != 1 || w.err != nil || w.c.Request != nil || w.c.Result != 7 {
		t.Fatalf("%+v", w)
	}
	equal(t, other.InFlight(), 0)
	equal(t, r.Push(new(Request).MsgRing(other, -1)), error(syscall.EINVAL))
	// And to oneself.
	ends := 0
	q := new(Request).MsgRing(r, 9)
	if err := r.Push(q); err != nil {
		t.Fatal(err)
	}
	for ends < 2 {
		if _, err := r.SubmitAndWait(1, patience); err != nil {
			t.Fatal(err)
		}
		var done [2]Completion
		for _, c := range done[:r.Reap(done[:])] {
			ends++
			equal(t, c.Result, map[bool]int32{true: 0, false: 9}[c.Request == q])
		}
	}
	// To a ring that is no more.
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := run(t, r, new(Request).MsgRing(other, 7))[0].Err(); err == nil {
		t.Fatal("a closed ring has been told")
	}
}

func TestUpdates(t *testing.T) {
	r := newRing(t, Options{})
	reading, writing := pipe(t)
	// A poll for what comes never, until it is changed.
	const pollIn, pollPri = 1, 2
	poll := new(Request).Poll(reading, pollPri)
	long := new(Request).Timeout(time.Hour)
	for _, q := range []*Request{poll, long} {
		if err := r.Push(q); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = syscall.Write(writing, []byte("x"))
	if _, err := r.SubmitAndWait(1, 20*time.Millisecond); err != ErrTimeout {
		t.Fatal(err)
	}
	update := new(Request).PollUpdate(poll, pollIn)
	if err := r.Push(update); err != nil {
		t.Fatal(err)
	}
	ends := collect(t, r, update, poll)
	if ends[0].Err() == syscall.EINVAL {
		skip(t, "this kernel is older than 5.13")
	}
	equal(t, ends[0].Result, 0)
	equal(t, ends[1].Result, pollIn)
	equal(t, run(t, r, new(Request).PollUpdate(poll, pollIn))[0].Err(), error(syscall.ENOENT))

	update = new(Request).TimeoutUpdate(long, time.Millisecond)
	if err := r.Push(update); err != nil {
		t.Fatal(err)
	}
	ends = collect(t, r, update, long)
	equal(t, ends[0].Result, 0)
	equal(t, ends[1].Err(), error(syscall.ETIME))
	equal(t, run(t, r, new(Request).TimeoutUpdate(long, time.Second))[0].Err(), error(syscall.ENOENT))

	_, _ = syscall.Read(reading, make([]byte, 1))
	read := new(Request).Read(reading, make([]byte, 1), CurrentPosition).Link()
	limit := new(Request).LinkTimeout(time.Hour)
	for _, q := range []*Request{read, limit} {
		if err := r.Push(q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Submit(); err != nil {
		t.Fatal(err)
	}
	equal(t, one(t, r, new(Request).TimeoutUpdate(limit, time.Millisecond)), 0)
	ends = collect(t, r, limit, read)
	equal(t, ends[0].Err(), error(syscall.ETIME))
}

func TestTimeoutAt(t *testing.T) {
	r := newRing(t, Options{})
	at := time.Now().Add(30 * time.Millisecond)
	if err := run(t, r, new(Request).TimeoutAt(at))[0].Err(); err == syscall.EINVAL {
		skip(t, "this kernel is older than 5.15")
	} else {
		equal(t, err, error(syscall.ETIME))
	}
	if now := time.Now(); now.Before(at) {
		t.Fatal("too early:", at.Sub(now))
	}
	// What has passed is over at once.
	equal(t, run(t, r, new(Request).TimeoutAt(time.Unix(1, 0)))[0].Err(), error(syscall.ETIME))
}

// An address that cannot be is refused, not taken for another.
func TestAddressesThatCannotBe(t *testing.T) {
	r := newRing(t, Options{})
	need(t, r, OpSocket)
	for domain, to := range map[int]netip.AddrPort{
		syscall.AF_INET: {}, syscall.AF_INET6: netip.AddrPortFrom(netip.MustParseAddr("fe80::1%no-such-link"), 1),
	} {
		fd := one(t, r, new(Request).Socket(domain, syscall.SOCK_STREAM, 0))
		defer syscall.Close(fd)
		equal(t, run(t, r, new(Request).Connect(fd, to))[0].Err(), error(syscall.EINVAL))
	}
	fd := one(t, r, new(Request).Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))
	defer syscall.Close(fd)
	for _, path := range []string{"", "a\x00b", strings.Repeat("x", 109)} {
		equal(t, run(t, r, new(Request).ConnectUnix(fd, path))[0].Err(), error(syscall.EINVAL))
	}
	// The name of an interface is its number.
	if link, err := net.InterfaceByName("lo"); err == nil {
		q := new(Request).Connect(fd, netip.AddrPortFrom(netip.MustParseAddr("fe80::1%lo"), 1))
		equal(t, q.extra.addr.Addr.Family, syscall.AF_INET6)
		equal(t, q.Peer().Addr().Zone(), map[bool]string{true: "1"}[link.Index == 1])
	}
}
