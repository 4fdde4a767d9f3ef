//go:build linux

// Operations on sockets, each tested by its effect.

package ring

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestSockets(t *testing.T) {
	r := newRing(t, Options{})
	needOps(t, r, OpSocket, OpBind, OpListen, OpAccept, OpConnect, OpShutdown)
	loopback := netip.MustParseAddrPort("127.0.0.1:0")
	listener := one(t, r, new(Request).Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))
	defer syscall.Close(listener)
	gives(t, r, new(Request).Bind(listener, loopback), 0)
	gives(t, r, new(Request).Listen(listener, 8), 0)
	name := get(syscall.Getsockname(listener))(t)
	port := name.(*syscall.SockaddrInet4).Port
	to := netip.AddrPortFrom(loopback.Addr(), uint16(port))

	client := one(t, r, new(Request).Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))
	defer syscall.Close(client)
	accept, connect := new(Request).Accept(listener, 0), new(Request).Connect(client, to)
	ends := run(t, r, accept, connect)
	equal(t, ends[1].Err(), nil)
	server := int(ends[0].Result)
	require(t, server >= 0, "%v", ends[0].Err())
	defer syscall.Close(server)
	own, _ := syscall.Getsockname(client)
	equal(t, accept.Peer(), netip.AddrPortFrom(loopback.Addr(),
		uint16(own.(*syscall.SockaddrInet4).Port)))

	p := make([]byte, 8)
	ends = run(t, r, new(Request).Send(client, []byte("hello"), 0), new(Request).Recv(server, p, 0))
	equal(t, ends[0].Result, 5)
	equal(t, string(p[:ends[1].Result]), "hello")
	gives(t, r, new(Request).Shutdown(client, syscall.SHUT_WR), 0)
	gives(t, r, new(Request).Recv(server, p, 0), 0)

	// Several connections from one request.
	multi := new(Request).AcceptMultishot(listener, 0)
	push(t, r, multi)
	for range 3 {
		conn := get(net.Dial("tcp", to.String()))(t)
		defer conn.Close()
		c := collect(t, r, multi)[0]
		require(t, c.Err() == nil && c.More(), "%+v", c)
		syscall.Close(int(c.Result))
	}
	run(t, r, new(Request).Cancel(multi))
	finish(t, r, multi)
}

func TestUnixSocket(t *testing.T) {
	r := newRing(t, Options{})
	needOps(t, r, OpSocket)
	for _, name := range []string{filepath.Join(t.TempDir(), "s"),
		fmt.Sprintf("@ringway-%d", os.Getpid())} {
		listener := get(net.Listen("unix", name))(t)
		defer listener.Close()
		fd := one(t, r, new(Request).Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))
		defer syscall.Close(fd)
		gives(t, r, new(Request).ConnectUnix(fd, name), 0)
		conn := get(listener.Accept())(t)
		defer conn.Close()
		gives(t, r, new(Request).Send(fd, []byte("abc"), 0), 3)
		p := make([]byte, 3)
		equal(t, get(conn.Read(p))(t), 3)
	}
}

// Invalid addresses fail, rather than refer to another socket.
func TestInvalidAddresses(t *testing.T) {
	r := newRing(t, Options{})
	needOps(t, r, OpSocket)
	for domain, to := range map[int]netip.AddrPort{
		syscall.AF_INET:  {},
		syscall.AF_INET6: netip.AddrPortFrom(netip.MustParseAddr("fe80::1%no-such-link"), 1),
	} {
		fd := one(t, r, new(Request).Socket(domain, syscall.SOCK_STREAM, 0))
		defer syscall.Close(fd)
		fails(t, r, new(Request).Connect(fd, to), syscall.EINVAL)
	}
	fd := one(t, r, new(Request).Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))
	defer syscall.Close(fd)
	for _, path := range []string{"", "a\x00b", strings.Repeat("x", 109),
		strings.Repeat("x", 200)} {
		fails(t, r, new(Request).ConnectUnix(fd, path), syscall.EINVAL)
	}
	// The name of an interface becomes its number.
	if link, err := net.InterfaceByName("lo"); err == nil {
		q := new(Request).Connect(fd, netip.AddrPortFrom(netip.MustParseAddr("fe80::1%lo"), 1))
		equal(t, q.extra.addr.Addr.Family, syscall.AF_INET6)
		equal(t, q.Peer().Addr().Zone(), map[bool]string{true: "1"}[link.Index == 1])
	}
}

// Encoding and decoding keep address, port and zone.
func TestAddressesRoundTrip(t *testing.T) {
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
		b := get(net.ListenPacket("udp", address))(t)
		defer b.Close()
		fd := func(c net.PacketConn) (fd int) {
			raw := get(c.(*net.UDPConn).SyscallConn())(t)
			_ = raw.Control(func(n uintptr) { fd = int(n) })
			return
		}
		port := func(c net.PacketConn) netip.AddrPort {
			return c.LocalAddr().(*net.UDPAddr).AddrPort()
		}
		p, q := make([]byte, 3), make([]byte, 10)
		receive := new(Request).RecvMsg(fd(b), [][]byte{p, q}, 0)
		ends := run(t, r, new(Request).SendMsg(fd(a), [][]byte{[]byte("ab"), []byte("cde")},
			port(b), 0), receive)
		equal(t, ends[0].Result, 5)
		equal(t, ends[1].Result, 5)
		equal(t, string(p)+string(q[:2]), "abcde")
		equal(t, receive.Peer(), port(a))
	}
}

func TestMessageFlags(t *testing.T) {
	r := newRing(t, Options{})
	a, b := socketpair(t, syscall.SOCK_DGRAM)
	for _, n := range []int{3, 4} {
		_, _ = syscall.Write(a, make([]byte, n))
		q := new(Request).RecvMsg(b, [][]byte{make([]byte, 3)}, 0)
		gives(t, r, q, 3)
		equal(t, q.MessageFlags()&syscall.MSG_TRUNC != 0, n > 3)
		equal(t, q.Peer(), netip.AddrPort{})
	}
}

// There are two completions: the result, and the end of the use of the buffer.
func TestZeroCopy(t *testing.T) {
	r := newRing(t, Options{})
	needOps(t, r, OpSendZC, OpSendMsgZC)
	client, server := tcp(t)
	for name, q := range map[string]*Request{
		"SendZC": new(Request).SendZC(client, []byte("hello"), 0),
		"SendMsgZC": new(Request).SendMsgZC(client, [][]byte{[]byte("he"), []byte("llo")},
			netip.AddrPort{}, 0),
	} {
		push(t, r, q)
		must(t, errorOf(r.SubmitAndWait(1, testTimeout)))
		var done [2]Completion
		n := r.Reap(done[:])
		checkMemlock(t, done[0].Err()) // The kernel locks the pages.
		p := make([]byte, 5)
		equal(t, string(p[:get(syscall.Read(server, p))(t)]), "hello")
		for n < 2 {
			_, err := r.SubmitAndWait(1, testTimeout)
			require(t, err == nil, "%v, %v", name, err)
			n += r.Reap(done[n:])
			equal(t, q.InFlight(), n < 2)
		}
		first := done[0]
		require(t, first.Request == q && first.Result == 5 && first.More() &&
			first.Flags&FlagNotification == 0, "%s: %+v", name, first)
		second := done[1]
		require(t, second.Request == q && !second.More() && second.Flags&FlagNotification != 0,
			"%s: %+v", name, second)
	}
}
