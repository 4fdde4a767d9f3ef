//go:build linux

package net

// What only shows from inside: small rings, late timers, cancels that find nothing, kernels that do not wait, and what an operation
// costs.

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/race"
	"github.com/ringway-io/ringway/go/internal/readable"
	"github.com/ringway-io/ringway/go/ring"
)

func need(t testing.TB) {
	t.Helper()
	if !strings.HasPrefix(Explain(), "backend uring") {
		if os.Getenv("CI") != "" && os.Getenv("RINGWAY_BACKEND") == "" {
			t.Fatal(Explain())
		}
		t.Skip("skipped: ", Explain())
	}
}

// small is a shard with little room. Without a reaper it is picked up by who submits, or by the test.
func small(t *testing.T, o ring.Options, reaper bool) *shard {
	t.Helper()
	need(t)
	r, err := ring.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &shard{ring: r}
	if reaper {
		w, err := readable.Start(r.Fd(), s.reap)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
	}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// pair is two connections of a shard that are each other's ends.
func (s *shard) pair(t testing.TB) (a, b *Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b = newConn(fds[0], "unix", s, nil, nil), newConn(fds[1], "unix", s, nil, nil)
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
	})
	return a, b
}

// waits until the kernel has something of a direction.
func (d *direction) waits(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Microsecond) {
		d.shard.mu.Lock()
		flying := d.flying != nil
		d.shard.mu.Unlock()
		if flying {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is in flight")
		}
	}
}

// comes is what a channel gives, in time.
func comes[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(30 * time.Second):
		t.Fatal("it still waits")
	}
	return got
}

// A ring with room for two, and completions for four: the kernel keeps what does not fit.
func TestOverflow(t *testing.T) {
	s := small(t, ring.Options{Entries: 2, CompletionEntries: 4}, true)
	const count = 100
	var readers sync.WaitGroup
	var writers []*Conn
	for i := range count {
		a, b := s.pair(t)
		writers = append(writers, a)
		readers.Go(func() {
			var p [3]byte
			if _, err := io.ReadFull(b, p[:2]); err != nil || p != [3]byte{byte(i), 1} {
				t.Error(err, p)
			}
			if n, err := b.Read(p[:]); n != 0 || err != io.EOF {
				t.Error(n, err)
			}
		})
		b.read.waits(t)
	}
	for i, a := range writers {
		if _, err := a.Write([]byte{byte(i), 1}); err != nil {
			t.Error(err)
		}
	}
	// Everything at once, while nobody can reap.
	s.mu.Lock()
	for _, a := range writers {
		if err := syscall.Shutdown(a.fd, syscall.SHUT_RDWR); err != nil {
			t.Error(err)
		}
	}
	s.mu.Unlock()
	readers.Wait()
}

// A timer that fires late finds another deadline, and touches nothing.
func TestLateTimer(t *testing.T) {
	s := small(t, ring.Options{}, true)
	a, b := s.pair(t)
	got := make(chan error, 1)
	read := func() {
		_, err := b.Read(make([]byte, 1))
		got <- err
	}
	for _, deadline := range []time.Time{{}, time.Now().Add(time.Hour)} {
		if err := b.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // It has passed, and its timer has fired, or is about to.
		if err := b.SetReadDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		go read()
		b.read.waits(t)
		b.read.expire() // Late.
		if _, err := a.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := comes(t, got); err != nil {
			t.Fatal(err)
		}
	}
	// One that is on time.
	if err := b.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	go read()
	if err := comes(t, got); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
}

// A deadline that has passed, and is moved before the cancelled operation has come back: the operation goes on.
func TestDeadlineTakenBack(t *testing.T) {
	s := small(t, ring.Options{}, false)
	a, b := s.pair(t)
	got := make(chan error, 1)
	go func() {
		_, err := b.Read(make([]byte, 1))
		got <- err
	}()
	b.read.waits(t)
	// The cancel's completions are picked up by the cancel itself, but the reader runs only afterwards.
	b.read.mu.Lock()
	b.read.expired.Store(true)
	b.read.cancel()
	b.read.expired.Store(false)
	b.read.mu.Unlock()
	for range 100 {
		s.reap(0)
		time.Sleep(100 * time.Microsecond)
	}
	select {
	case err := <-got:
		// It may have run in between.
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		return
	default:
	}
	if _, err := a.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for {
		s.reap(0)
		select {
		case err := <-got:
			if err != nil {
				t.Fatal(err)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// A cancel that the kernel has not found its operation for looks again.
func TestCancelThatFindsNothing(t *testing.T) {
	s := small(t, ring.Options{}, true)
	_, b := s.pair(t)
	got := make(chan error, 1)
	go func() {
		_, err := b.Read(make([]byte, 1))
		got <- err
	}()
	b.read.waits(t)
	b.read.closed.Store(true) // As Close does, but for the cancel.
	s.mu.Lock()
	s.land(ring.Completion{Request: &ring.Request{Tag: cancelled{b.read}}, Result: -int32(syscall.ENOENT)})
	s.mu.Unlock()
	if err := comes(t, got); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

// Kernels that answer EAGAIN for a non-blocking descriptor, and answers that nobody asked for.
func TestAnswersThatAreNone(t *testing.T) {
	s := small(t, ring.Options{}, true)
	a, b := s.pair(t)
	type result struct {
		n   int
		err error
	}
	got := make(chan result, 1)
	for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.EINTR, syscall.ECANCELED} {
		go func() {
			n, err := b.Read(make([]byte, 10))
			got <- result{n, err}
		}()
		b.read.waits(t)
		// In the kernel's place. What it has, comes to an end that nobody hears of.
		s.mu.Lock()
		request := b.read.flying
		_ = s.ring.Push(new(ring.Request).Cancel(request))
		for request.InFlight() {
			_, _ = s.ring.Submit()
			var done [2]ring.Completion
			s.ring.Reap(done[:])
		}
		s.land(ring.Completion{Request: request, Result: -int32(errno)})
		s.mu.Unlock()
		b.read.waits(t)
		if _, err := a.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
		if r := comes(t, got); r.n != 6 || r.err != nil {
			t.Fatal(errno, r)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("skipped: the race detector allocates")
	}
	need(t)
	for _, network := range []string{"tcp", "unix"} {
		address := map[string]string{"tcp": "127.0.0.1:0", "unix": t.TempDir() + "/s"}[network]
		l, err := Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		a, err := Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		b, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = io.Copy(struct{ io.Writer }{b}, struct{ io.Reader }{b})
			_ = b.Close()
		}()
		p := make([]byte, 100)
		if got := testing.AllocsPerRun(1000, func() {
			if err := a.SetDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
			if _, err := a.Write(p); err != nil {
				t.Error(err)
			}
			if _, err := io.ReadFull(a, p); err != nil {
				t.Error(err)
			}
		}); got >= 1 {
			t.Errorf("%s: %v allocations an exchange", network, got)
		}
	}
}

// A zone is known to the kernel by its number, and to people by its name.
func TestZones(t *testing.T) {
	all, err := net.Interfaces()
	if err != nil || len(all) == 0 {
		t.Skip("skipped: no interfaces", err)
	}
	to, err := addrPort(syscall.AF_INET6, &net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 80, Zone: all[0].Name})
	if err != nil {
		t.Fatal(err)
	}
	back := peerAddress(to).(*net.TCPAddr)
	if back.Zone != all[0].Name || back.Port != 80 || !back.IP.Equal(net.ParseIP("fe80::1")) {
		t.Fatal(to, back)
	}
	if got := zoneName(1 << 30); got != "1073741824" || zoneNumber(got) != 1<<30 {
		t.Fatal(got)
	}
}

// A connect that goes on by itself, as after a signal: it is waited for.
func TestConnectUnderWay(t *testing.T) {
	s := small(t, ring.Options{}, true)
	server, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if server >= 0 {
			_ = syscall.Close(server)
		}
	}()
	to := &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if err := errors.Join(syscall.Bind(server, to), syscall.Listen(server, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(server)
	if err != nil {
		t.Fatal(err)
	}
	to = name.(*syscall.SockaddrInet4)
	client := func() *Conn {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		c := newConn(fd, "tcp", s, nil, nil)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	begin := func() *Conn {
		c := client()
		if err := syscall.Connect(c.fd, to); err != syscall.EINPROGRESS {
			t.Fatal(err)
		}
		return c
	}
	peer := netip.AddrPortFrom(netip.AddrFrom4(to.Addr), uint16(to.Port))
	connect := func(c *Conn) error {
		return c.connect(func() { c.write.request.Connect(c.fd, peer) })
	}
	// The first has its place in the queue; the next one waits until there is room again.
	if err := connect(begin()); err != nil {
		t.Fatal(err)
	}
	var late *Conn
	for late == nil {
		c := begin()
		time.Sleep(time.Millisecond)
		if _, err := syscall.Getpeername(c.fd); err != nil {
			late = c
		}
	}
	got := make(chan error, 1)
	go func() { got <- connect(late) }()
	late.write.waits(t)
	fd, _, err := syscall.Accept4(server, syscall.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := comes(t, got); err != nil {
		t.Fatal(err)
	}
	if _, err := late.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	// And one that nobody will answer.
	if err := syscall.Close(server); err != nil {
		t.Fatal(err)
	}
	server = -1
	if err := connect(client()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatal(err)
	}
}
