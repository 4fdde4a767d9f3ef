//go:build linux

package net_test

// One list of situations on both stacks: the same answers, the same errors, the same sockets.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	ringnet "github.com/ringway-io/ringway/go/net"
)

// told is all that a program can learn from an error.
func told(err error) string {
	if err == nil {
		return "nil"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s ", anonymous(err.Error()))
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch e := e.(type) {
		case *net.OpError:
			fmt.Fprintf(&b, "OpError(%s %s) ", e.Op, e.Net)
		case *os.SyscallError:
			fmt.Fprintf(&b, "SyscallError(%s) ", e.Syscall)
		case syscall.Errno:
			fmt.Fprintf(&b, "Errno(%d) ", int(e))
		case *net.AddrError, *net.DNSError, net.UnknownNetworkError:
			fmt.Fprintf(&b, "%T ", e)
		}
	}
	for _, known := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, os.ErrDeadlineExceeded, context.Canceled,
		context.DeadlineExceeded, os.ErrNotExist} {
		// Of a dial that runs out of time the standard package says now this, now that.
		var op *net.OpError
		dial := errors.As(err, &op) && op.Op == "dial" && op.Timeout()
		if errors.Is(err, known) && (!dial || known != os.ErrDeadlineExceeded && known != context.DeadlineExceeded) {
			fmt.Fprintf(&b, "Is(%v) ", known)
		}
	}
	var n net.Error
	if errors.As(err, &n) {
		fmt.Fprintf(&b, "Timeout=%v ", n.Timeout())
	}
	return b.String()
}

var places = []*regexp.Regexp{regexp.MustCompile(`/\S*/(\d+)`), regexp.MustCompile(`(\d\.0\.0\.\d|\[::\d?\]):\d+`)}

// anonymous takes out what differs from run to run: ports and folders.
func anonymous(s string) string {
	return places[1].ReplaceAllString(places[0].ReplaceAllString(s, "/tmp/$1"), "$1:port")
}

// kind of a value.
func kindOf(a net.Addr) string {
	if a == nil {
		return "nil"
	}
	return fmt.Sprintf("%T %s %q", a, a.Network(), anonymous(a.String()))
}

// notes is what a situation has shown, line by line.
type notes struct {
	t     *testing.T
	s     stack
	lines []string
}

func (n *notes) add(format string, args ...any) {
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

func (n *notes) read(c net.Conn, size int) {
	p := make([]byte, size)
	k, err := c.Read(p)
	n.add("read %d %q %s", k, p[:k], told(err))
}

func (n *notes) write(c net.Conn, text string) {
	k, err := c.Write([]byte(text))
	n.add("write %d %s", k, told(err))
}

func (n *notes) call(c any, method string, args ...any) {
	m := reflect.ValueOf(c).MethodByName(method)
	if !m.IsValid() {
		n.add("%s: no such method", method)
		return
	}
	var in []reflect.Value
	for _, a := range args {
		in = append(in, reflect.ValueOf(a))
	}
	var err error
	if out := m.Call(in); len(out) > 0 {
		err, _ = out[len(out)-1].Interface().(error)
	}
	n.add("%s: %s", method, told(err))
}

var past = time.Unix(1, 0)

// situations, each with both kinds of sockets.
var situations = []struct {
	name string
	run  func(n *notes, network string)
}{
	{"addresses", func(n *notes, network string) {
		a, b := n.s.pair(n.t, network)
		for _, addr := range []net.Addr{a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr()} {
			n.add("%s", kindOf(addr))
		}
		if network == "tcp" {
			n.add("%v %v", a.LocalAddr().String() == b.RemoteAddr().String(), b.LocalAddr().String() == a.RemoteAddr().String())
		}
		n.add("%s", kindOf(n.s.listener(n.t, network).Addr()))
	}},
	{"a peer that says goodbye", func(n *notes, network string) {
		a, b := n.s.pair(n.t, network)
		n.write(a, "goodbye")
		must(n.t, a.Close())
		n.read(b, 100)
		n.read(b, 100)
		n.read(b, 100)
		n.read(b, 0)
	}},
	{"a peer that is gone", func(n *notes, network string) {
		a, b := n.s.pair(n.t, network)
		must(n.t, a.Close())
		n.read(b, 100)
		for range 100 { // The first may still be taken.
			if _, err := b.Write(make([]byte, 1<<10)); err != nil {
				n.write(b, "x")
				n.write(b, "")
				return
			}
		}
		n.t.Error("all is taken by nobody")
	}},
	{"a peer that hangs up with bytes unread", func(n *notes, network string) {
		a, b := n.s.pair(n.t, network)
		n.write(b, "unread")
		n.read(a, 1)
		must(n.t, a.Close())
		n.read(b, 100)
		n.read(b, 100)
		n.write(b, "x")
		n.write(b, "")
	}},
	{"a reset", func(n *notes, network string) {
		if network == "unix" {
			return
		}
		a, b := n.s.pair(n.t, network)
		n.call(a, "SetLinger", 0)
		must(n.t, a.Close())
		n.read(b, 100)
		n.read(b, 100)
		n.write(b, "x")
		n.read(b, 0)
	}},
	{"closed", func(n *notes, network string) {
		a, _ := n.s.pair(n.t, network)
		raw, err := a.(syscall.Conn).SyscallConn()
		must(n.t, err)
		n.call(a, "Close")
		n.read(a, 100)
		n.read(a, 0)
		n.write(a, "x")
		n.write(a, "")
		n.call(a, "Close")
		n.call(a, "CloseRead")
		n.call(a, "CloseWrite")
		n.call(a, "SetDeadline", time.Now())
		n.call(a, "SetReadDeadline", time.Time{})
		n.call(a, "SetWriteDeadline", past)
		n.call(a, "SetReadBuffer", 100)
		n.call(a, "SetWriteBuffer", 100)
		n.call(a, "File")
		if network == "tcp" {
			n.call(a, "SetNoDelay", true)
			n.call(a, "SetKeepAlive", true)
			n.call(a, "SetKeepAlivePeriod", time.Second)
			n.call(a, "SetKeepAliveConfig", net.KeepAliveConfig{Enable: true})
			n.call(a, "SetLinger", 0)
		}
		n.add("%s", told(raw.Control(func(uintptr) {})))
		n.add("%s", told(raw.Read(func(uintptr) bool { return true })))
		n.add("%s", told(raw.Write(func(uintptr) bool { return true })))
		n.add("%s %s", kindOf(a.LocalAddr()), kindOf(a.RemoteAddr()))
	}},
	{"half closed", func(n *notes, network string) {
		a, b := n.s.pair(n.t, network)
		n.call(a, "CloseWrite")
		n.read(b, 100)
		n.write(a, "x")
		n.write(a, "")
		n.write(b, "still")
		n.read(a, 100)
		n.call(b, "CloseRead")
		n.read(b, 100)
		n.call(a, "CloseRead")
		n.read(a, 100)
		n.call(a, "CloseWrite")
		n.call(a, "Close")
	}},
	{"reading ends under a reader", func(n *notes, network string) {
		a, _ := n.s.pair(n.t, network)
		time.AfterFunc(10*time.Millisecond, func() { _ = a.(interface{ CloseRead() error }).CloseRead() })
		p := make([]byte, 10)
		k, err := a.Read(p)
		n.add("read %d %s", k, told(err))
	}},
	{"deadlines", func(n *notes, network string) {
		a, b := n.s.pair(n.t, network)
		n.write(b, "there")
		n.call(a, "SetReadDeadline", past)
		n.read(a, 100)
		n.read(a, 0)
		n.write(a, "w")
		n.call(a, "SetDeadline", past)
		n.write(a, "w")
		n.write(a, "")
		n.read(a, 100)
		n.call(a, "SetDeadline", time.Now().Add(time.Hour))
		n.read(a, 100)
		n.call(a, "SetReadDeadline", time.Now().Add(10*time.Millisecond))
		n.read(a, 100)
		n.read(a, 100)
		n.call(a, "SetReadDeadline", time.Time{})
		n.write(b, "again")
		n.read(a, 100)
		n.call(a, "SetWriteDeadline", time.Now().Add(50*time.Millisecond))
		for {
			k, err := a.Write(make([]byte, 1<<20))
			if err != nil {
				n.add("%v %s", k < 1<<20, told(err))
				break
			}
		}
		n.call(a, "SetDeadline", past)
		n.call(a, "CloseWrite")
		n.call(a, "Close")
	}},
	{"a deadline that moves under a reader", func(n *notes, network string) {
		a, b := n.s.pair(n.t, network)
		p := make([]byte, 10)
		must(n.t, a.SetReadDeadline(time.Now().Add(time.Hour)))
		time.AfterFunc(10*time.Millisecond, func() { must(n.t, a.SetReadDeadline(past)) })
		k, err := a.Read(p)
		n.add("read %d %s", k, told(err))
		must(n.t, a.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		must(n.t, a.SetReadDeadline(time.Time{}))
		time.AfterFunc(60*time.Millisecond, func() { _, _ = b.Write([]byte("late")) })
		k, err = a.Read(p)
		n.add("read %d %s", k, told(err))
	}},
	{"a raw connection", func(n *notes, network string) {
		a, b := n.s.pair(n.t, network)
		raw, err := a.(syscall.Conn).SyscallConn()
		must(n.t, err)
		peek := make([]byte, 10)
		time.AfterFunc(10*time.Millisecond, func() { _, _ = b.Write([]byte("peek")) })
		var k int
		err = raw.Read(func(fd uintptr) bool {
			k, _, err = syscall.Recvfrom(int(fd), peek, syscall.MSG_PEEK)
			return err != syscall.EAGAIN
		})
		n.add("peeked %q %s", peek[:k], told(err))
		n.read(a, 10)
		must(n.t, a.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
		n.add("%s", told(raw.Read(func(fd uintptr) bool { return false })))
		calls := 0
		n.add("%s %d", told(raw.Read(func(fd uintptr) bool { calls++; return true })), calls)
		n.add("%s", told(raw.Write(func(fd uintptr) bool { return true })))
		l := n.s.listener(n.t, network)
		raw, err = l.(syscall.Conn).SyscallConn()
		must(n.t, err)
		n.add("%s", told(raw.Control(func(uintptr) {})))
		n.add("%v", raw.Read(func(uintptr) bool { return true }) != nil)
		n.add("%v", raw.Write(func(uintptr) bool { return true }) != nil)
	}},
	{"a listener", func(n *notes, network string) {
		l := n.s.listener(n.t, network)
		deadline := l.(interface{ SetDeadline(time.Time) error })
		accept := func() {
			c, err := l.Accept()
			if err == nil {
				_ = c.Close()
			}
			n.add("accept %s", told(err))
		}
		must(n.t, deadline.SetDeadline(past))
		accept()
		must(n.t, deadline.SetDeadline(time.Now().Add(10*time.Millisecond)))
		accept()
		accept()
		must(n.t, deadline.SetDeadline(time.Time{}))
		n.s.connect(n.t, l)
		accept()
		closed := make(chan error)
		time.AfterFunc(10*time.Millisecond, func() { closed <- l.Close() })
		accept()
		accept()
		n.add("%s", told(<-closed))
		n.call(l, "Close")
		n.call(l, "File")
		n.add("%v", deadline.SetDeadline(past) != nil)
		if network == "unix" {
			_, err := os.Stat(l.Addr().String())
			n.add("%s", told(err))
		}
		_, err := n.s.dial(n.t.Context(), ringnet.Dialer{}, network, l.Addr().String())
		n.add("dial %s", told(err))
	}},
	{"an abandoned connection is accepted", func(n *notes, network string) {
		l := n.s.listener(n.t, network)
		a := n.s.connect(n.t, l)
		if network == "tcp" {
			n.call(a, "SetLinger", 0)
		}
		must(n.t, a.Close())
		b, err := l.Accept()
		n.add("accept %s", told(err))
		if err == nil {
			n.add("%s", kindOf(b.RemoteAddr()))
			n.read(b, 10)
			must(n.t, b.Close())
		}
	}},
	{"no descriptors left", func(n *notes, network string) {
		l := n.s.listener(n.t, network)
		var limit syscall.Rlimit
		must(n.t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
		low := limit
		low.Cur = 3
		must(n.t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low))
		_, accepted := l.Accept()
		_, dialled := n.s.dial(n.t.Context(), ringnet.Dialer{}, network, l.Addr().String())
		must(n.t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		n.add("accept %s", told(accepted))
		n.add("dial %s", told(dialled))
		n.s.connect(n.t, l)
		c, err := l.Accept()
		n.add("accept %s", told(err))
		if err == nil {
			must(n.t, c.Close())
		}
	}},
	{"sockets", func(n *notes, network string) {
		a, b := n.s.pair(n.t, network)
		l := n.s.listener(n.t, network)
		for _, c := range []any{a, b, l} {
			n.options(c.(syscall.Conn))
		}
		n.call(a, "SetNoDelay", false)
		n.call(a, "SetKeepAlivePeriod", 90*time.Second)
		n.options(a.(syscall.Conn))
		n.call(a, "SetKeepAliveConfig", net.KeepAliveConfig{Enable: true, Idle: 7 * time.Second, Interval: -1, Count: 3})
		n.call(a, "SetReadBuffer", 20000)
		n.call(a, "SetWriteBuffer", 20000)
		n.options(a.(syscall.Conn))
		n.call(a, "SetKeepAlive", false)
		n.call(a, "SetLinger", 3)
		n.options(a.(syscall.Conn))
		n.call(a, "SetLinger", -1)
		n.options(a.(syscall.Conn))
	}},
	{"keep-alive as asked for", func(n *notes, network string) {
		if network == "unix" {
			return
		}
		for _, period := range []time.Duration{-1, 0, 1500 * time.Millisecond} {
			for _, config := range []net.KeepAliveConfig{{}, {Enable: true, Idle: -1, Interval: 3 * time.Second}} {
				l, err := n.s.listen(n.t.Context(), net.ListenConfig{KeepAlive: period, KeepAliveConfig: config}, network, "127.0.0.1:0")
				must(n.t, err)
				a, err := n.s.dial(n.t.Context(), ringnet.Dialer{KeepAlive: period, KeepAliveConfig: config}, network, l.Addr().String())
				must(n.t, err)
				b, err := l.Accept()
				must(n.t, err)
				n.options(a.(syscall.Conn))
				n.options(b.(syscall.Conn))
				must(n.t, errors.Join(a.Close(), b.Close(), l.Close()))
			}
		}
	}},
	{"a name of its own", func(n *notes, network string) {
		l := n.s.listener(n.t, network)
		var local net.Addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
		if network == "unix" {
			local = &net.UnixAddr{Name: filepath.Join(n.t.TempDir(), "c"), Net: "unix"}
		}
		for range 2 { // The second time the file is there.
			a, err := n.s.dial(n.t.Context(), ringnet.Dialer{LocalAddr: local}, network, l.Addr().String())
			n.add("dial %s", told(err))
			if err == nil {
				b, err := l.Accept()
				must(n.t, err)
				n.add("%s %s", kindOf(a.LocalAddr()), kindOf(b.RemoteAddr()))
				must(n.t, errors.Join(a.Close(), b.Close()))
			}
		}
	}},
	{"a name without a file", func(n *notes, network string) {
		if network == "tcp" {
			return
		}
		l, err := n.s.listen(n.t.Context(), net.ListenConfig{}, network, fmt.Sprintf("@ringway-test-%d", os.Getpid()))
		must(n.t, err)
		a, err := n.s.dial(n.t.Context(), ringnet.Dialer{}, network, l.Addr().String())
		must(n.t, err)
		n.add("%s", kindOf(a.RemoteAddr()))
		must(n.t, errors.Join(a.Close(), l.Close()))
	}},
	{"a file that stays", func(n *notes, network string) {
		if network == "tcp" {
			return
		}
		l := n.s.listener(n.t, network)
		l.(interface{ SetUnlinkOnClose(bool) }).SetUnlinkOnClose(false)
		must(n.t, l.Close())
		_, err := os.Stat(l.Addr().String())
		n.add("%s", told(err))
		_, err = n.s.dial(n.t.Context(), ringnet.Dialer{}, network, l.Addr().String())
		n.add("dial %s", told(err))
		_, err = n.s.listen(n.t.Context(), net.ListenConfig{}, network, l.Addr().String())
		n.add("listen %s", told(err))
	}},
	{"a context that is over", func(n *notes, network string) {
		l := n.s.listener(n.t, network)
		ctx, cancel := context.WithCancel(n.t.Context())
		cancel()
		_, err := n.s.dial(ctx, ringnet.Dialer{}, network, l.Addr().String())
		n.add("%s", told(err))
		ctx, cancel = context.WithDeadline(n.t.Context(), past)
		_, err = n.s.dial(ctx, ringnet.Dialer{}, network, l.Addr().String())
		cancel()
		n.add("%s", told(err))
		_, err = n.s.dial(n.t.Context(), ringnet.Dialer{Timeout: -1}, network, l.Addr().String())
		n.add("%s", told(err))
		_, err = n.s.dial(n.t.Context(), ringnet.Dialer{Deadline: past}, network, l.Addr().String())
		n.add("%s", told(err))
		// One that ends after the connect does not matter.
		ctx, cancel = context.WithCancel(n.t.Context())
		a, err := n.s.dial(ctx, ringnet.Dialer{Timeout: time.Hour}, network, l.Addr().String())
		must(n.t, err)
		cancel()
		n.write(a, "x")
		must(n.t, a.Close())
	}},
	{"nobody answers", func(n *notes, network string) {
		address := n.full(network)
		_, err := n.s.dial(n.t.Context(), ringnet.Dialer{Timeout: 50 * time.Millisecond}, network, address)
		n.add("%s", told(err))
		ctx, cancel := context.WithCancel(n.t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		_, err = n.s.dial(ctx, ringnet.Dialer{}, network, address)
		n.add("%s", told(err))
	}},
	{"control", func(n *notes, network string) {
		l := n.s.listener(n.t, network)
		stop := errors.New("stopped")
		for _, answer := range []error{nil, stop} {
			c, err := n.s.dial(n.t.Context(), ringnet.Dialer{
				ControlContext: func(_ context.Context, network, address string, c syscall.RawConn) error {
					n.add("%s %s %s", network, anonymous(address), told(c.Control(func(fd uintptr) {})))
					return answer
				}}, network, l.Addr().String())
			n.add("%s %v", told(err), errors.Is(err, stop))
			if err == nil {
				must(n.t, c.Close())
			}
		}
		address := "127.0.0.1:0"
		if network == "unix" {
			address = filepath.Join(n.t.TempDir(), "s")
		}
		_, err := n.s.listen(n.t.Context(), net.ListenConfig{Control: func(string, string, syscall.RawConn) error { return stop }}, network, address)
		n.add("%s %v", told(err), errors.Is(err, stop))
	}},
	{"addresses that are none", func(n *notes, network string) {
		dial := func(network, address string, local net.Addr) {
			_, err := n.s.dial(n.t.Context(), ringnet.Dialer{LocalAddr: local}, network, address)
			n.add("dial %s %s: %s", network, address, told(err))
		}
		listen := func(network, address string) {
			_, err := n.s.listen(n.t.Context(), net.ListenConfig{}, network, address)
			n.add("listen %s %s: %s", network, address, told(err))
		}
		dial(network, "", nil)
		dial("nonsense", "127.0.0.1:1", nil)
		listen("nonsense", "127.0.0.1:1")
		if network == "unix" {
			dial(network, "/nowhere/at/all", nil)
			dial(network, "/"+strings.Repeat("x", 200), nil)
			dial(network, "/nowhere", &net.TCPAddr{})
			listen(network, "/nowhere/at/all")
			listen(network, "/"+strings.Repeat("x", 200))
			return
		}
		dial(network, "127.0.0.1:1", nil)
		dial(network, "[::1]:1", nil)
		dial(network, ":1", nil)
		dial("tcp6", ":1", nil)
		dial("tcp4", "0.0.0.0:1", nil)
		dial(network, "localhost:1", nil)
		dial("tcp4", "[::1]:1", nil)
		dial("tcp6", "127.0.0.1:1", nil)
		dial(network, "127.0.0.1", nil)
		dial(network, "127.0.0.1:99999", nil)
		dial(network, "127.0.0.1:nonsense", nil)
		dial(network, "127.0.0.1:http", &net.UnixAddr{Name: "x", Net: "unix"})
		dial(network, "127.0.0.1:1", &net.TCPAddr{IP: net.IPv6loopback})
		dial(network, "127.0.0.1:1", &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}) // Not of this machine.
		dial(network, "[::ffff:127.0.0.1]:1", nil)
		dial(network, "255.255.255.255:1", nil)
		listen(network, "192.0.2.1:0")
		listen(network, "127.0.0.1:nonsense")
		listen("tcp4", "[::1]:0")
		l := n.s.listener(n.t, network)
		_, err := n.s.listen(n.t.Context(), net.ListenConfig{}, network, l.Addr().String())
		n.add("listen twice: %s", told(err))
	}},
	{"all addresses", func(n *notes, network string) {
		if network == "unix" {
			return
		}
		for _, network := range []string{"tcp", "tcp4", "tcp6"} {
			l, err := n.s.listen(n.t.Context(), net.ListenConfig{}, network, ":0")
			must(n.t, err)
			n.add("%s", kindOf(l.Addr()))
			n.options(l.(syscall.Conn))
			_, port, _ := net.SplitHostPort(l.Addr().String())
			for _, to := range []struct{ network, host string }{{"tcp", ""}, {"tcp", "localhost"}, {"tcp4", "127.0.0.1"}, {"tcp6", "::1"}, {"tcp", "0.0.0.0"}, {"tcp", "::"}} {
				a, err := n.s.dial(n.t.Context(), ringnet.Dialer{}, to.network, net.JoinHostPort(to.host, port))
				n.add("%v: %v", to, err == nil)
				if err != nil {
					continue
				}
				b, err := l.Accept()
				must(n.t, err)
				for _, addr := range []net.Addr{a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr()} {
					n.add("%s %d", kindOf(addr), len(addr.(*net.TCPAddr).IP))
				}
				must(n.t, errors.Join(a.Close(), b.Close()))
			}
			must(n.t, l.Close())
		}
	}},
	{"a duplicate", func(n *notes, network string) {
		a, b := n.s.pair(n.t, network)
		f, err := a.(interface{ File() (*os.File, error) }).File()
		must(n.t, err)
		must(n.t, a.Close())
		_, err = f.WriteString("by the file")
		n.add("%s", told(err))
		must(n.t, f.Close())
		n.read(b, 100)
		n.read(b, 100)
	}},
}

// options of a socket.
func (n *notes) options(c syscall.Conn) {
	raw, err := c.SyscallConn()
	must(n.t, err)
	must(n.t, raw.Control(func(p uintptr) {
		fd := int(p)
		line := ""
		for _, o := range []struct {
			name          string
			level, option int
		}{
			{"nodelay", syscall.IPPROTO_TCP, syscall.TCP_NODELAY}, {"keepalive", syscall.SOL_SOCKET, syscall.SO_KEEPALIVE},
			{"idle", syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE}, {"interval", syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL},
			{"count", syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT}, {"reuse", syscall.SOL_SOCKET, syscall.SO_REUSEADDR},
			{"v6only", syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY}, {"type", syscall.SOL_SOCKET, syscall.SO_TYPE},
			{"domain", syscall.SOL_SOCKET, syscall.SO_DOMAIN}, {"protocol", syscall.SOL_SOCKET, syscall.SO_PROTOCOL},
			{"listening", syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN}, {"linger", syscall.SOL_SOCKET, syscall.SO_LINGER},
			{"broadcast", syscall.SOL_SOCKET, syscall.SO_BROADCAST},
			{"rcvbuf", syscall.SOL_SOCKET, syscall.SO_RCVBUF}, {"sndbuf", syscall.SOL_SOCKET, syscall.SO_SNDBUF},
		} {
			value, err := syscall.GetsockoptInt(fd, o.level, o.option)
			if strings.HasSuffix(o.name, "buf") && value > 1<<16 {
				value = -1 // The kernel tunes those that nobody has set.
			}
			line += fmt.Sprint(o.name, " ", value, " ", err, " ")
		}
		for _, get := range []uintptr{syscall.F_GETFD, syscall.F_GETFL} {
			flags, _, _ := syscall.Syscall(syscall.SYS_FCNTL, p, get, 0)
			line += fmt.Sprintf("%#x ", flags)
		}
		n.add("%s", line)
	}))
}

// full is where somebody listens and does not answer.
func (n *notes) full(network string) string {
	domain, at := syscall.AF_INET, syscall.Sockaddr(&syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	name := filepath.Join(n.t.TempDir(), "s")
	if network == "unix" {
		domain, at = syscall.AF_UNIX, &syscall.SockaddrUnix{Name: name}
	}
	fd, err := syscall.Socket(domain, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(n.t, err)
	n.t.Cleanup(func() { _ = syscall.Close(fd) })
	must(n.t, syscall.Bind(fd, at))
	must(n.t, syscall.Listen(fd, 0))
	at, err = syscall.Getsockname(fd)
	must(n.t, err)
	if in, ok := at.(*syscall.SockaddrInet4); ok {
		name = fmt.Sprintf("127.0.0.1:%d", in.Port)
	}
	for range 1 << 10 {
		c, err := syscall.Socket(domain, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
		must(n.t, err)
		n.t.Cleanup(func() { _ = syscall.Close(c) })
		if err := syscall.Connect(c, at); err == syscall.EAGAIN {
			return name
		}
		if network == "tcp" {
			// What the queue has no room for stays half open.
			time.Sleep(time.Millisecond)
			if peer, _ := syscall.Getpeername(c); peer == nil {
				return name
			}
		}
	}
	n.t.Fatal("everything is accepted")
	return ""
}

func TestAsTheStandardPackage(t *testing.T) {
	for _, situation := range situations {
		for _, network := range networks {
			t.Run(situation.name+"/"+network, func(t *testing.T) {
				noLeaks(t)
				var all [2][]string
				for i, s := range stacks {
					t.Run(s.name, func(t *testing.T) {
						n := &notes{t: t, s: s}
						if err := soon(func() { situation.run(n, network) }); err != nil {
							t.Fatal(err)
						}
						all[i] = n.lines
					})
				}
				for i := range max(len(all[0]), len(all[1])) {
					line := func(lines []string) string {
						if i < len(lines) {
							return lines[i]
						}
						return "(nothing)"
					}
					if ours, theirs := line(all[0]), line(all[1]); ours != theirs {
						t.Errorf("%d:\n ring:     %s\n standard: %s", i, ours, theirs)
					}
				}
				if testing.Verbose() && len(all[1]) > 0 {
					t.Log(strings.Join(all[1], "\n"))
				}
			})
		}
	}
}
