//go:build linux

// Operations on sockets.

package ring

import (
	"encoding/binary"
	"math/bits"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// Socket is socket(2), with SOCK_CLOEXEC added. The result is a descriptor. Linux 5.19.
func (q *Request) Socket(domain, kind, protocol int) *Request {
	e := q.prepare(OpSocket, domain)
	e.off, e.len = uint64(kind|syscall.SOCK_CLOEXEC), uint32(protocol)
	return q
}

// Bind is bind(2) to an IP address and port. Linux 6.11.
func (q *Request) Bind(fd int, to netip.AddrPort) *Request {
	q.prepare(OpBind, fd)
	q.setAddr(to)
	q.setAddress()
	return q
}

// Listen is listen(2). Linux 6.11.
func (q *Request) Listen(fd int, backlog int) *Request {
	q.prepare(OpListen, fd).len = uint32(backlog)
	return q
}

// Connect is connect(2) to an IP address and port. The zone of an IPv6 address is the number or
// name of an interface. The zero address and unknown interfaces fail with EINVAL.
func (q *Request) Connect(fd int, to netip.AddrPort) *Request {
	q.prepare(OpConnect, fd)
	q.setAddr(to)
	q.setAddress()
	return q
}

// ConnectUnix is connect(2) to a Unix domain socket. A leading @ stands for a zero byte, which
// makes the path an abstract name. A path of more than 108 bytes fails with EINVAL.
func (q *Request) ConnectUnix(fd int, path string) *Request {
	q.prepare(OpConnect, fd)
	q.setUnix(path)
	q.setAddress()
	return q
}

// setAddress passes the encoded address to the kernel.
func (q *Request) setAddress() {
	q.sqe.addr, q.sqe.off = uint64(uintptr(unsafe.Pointer(&q.extra.addr))), uint64(q.extra.addrLen)
}

// Accept is accept4(2), with SOCK_CLOEXEC added. The result is a descriptor; [Request.Peer] returns
// the remote address.
func (q *Request) Accept(fd int, flags int) *Request {
	e := q.prepare(OpAccept, fd)
	s := q.extras()
	s.addrLen = uint32(unsafe.Sizeof(s.addr))
	e.addr = uint64(uintptr(unsafe.Pointer(&s.addr)))
	e.off = uint64(uintptr(unsafe.Pointer(&s.addrLen)))
	e.opFlags = uint32(flags | syscall.SOCK_CLOEXEC)
	return q
}

// AcceptMultishot completes with a descriptor for each connection, until it is canceled or fails:
// the completion without [FlagMore] is the last. It does not report remote addresses;
// getpeername(2) does. Linux 5.19.
func (q *Request) AcceptMultishot(fd int, flags int) *Request {
	e := q.prepare(OpAccept, fd)
	e.ioprio = acceptMultishot
	e.opFlags = uint32(flags | syscall.SOCK_CLOEXEC)
	return q
}

// Send is send(2), with MSG_NOSIGNAL added. It may send less than p. With the flag MSG_WAITALL it
// continues until everything is sent (Linux 5.19).
func (q *Request) Send(fd int, p []byte, flags int) *Request {
	q.prepare(OpSend, fd).opFlags = uint32(flags | syscall.MSG_NOSIGNAL)
	q.transfer(p)
	return q
}

// SendZC is Send without copying p: the network card reads p itself. It completes twice. The first
// completion has the result, and [FlagMore] if a second one follows; the second has
// [FlagNotification], and only then may p be changed. Where zero copy is impossible, as on the
// loopback interface, the kernel copies. Linux 6.0; other sockets than IP fail with EOPNOTSUPP.
func (q *Request) SendZC(fd int, p []byte, flags int) *Request {
	q.prepare(OpSendZC, fd).opFlags = uint32(flags | syscall.MSG_NOSIGNAL)
	q.transfer(p)
	return q
}

// Recv is recv(2). The result is 0 at the end of the stream. With the flag MSG_WAITALL it continues
// until p is full.
func (q *Request) Recv(fd int, p []byte, flags int) *Request {
	q.prepare(OpRecv, fd).opFlags = uint32(flags)
	q.transfer(p)
	return q
}

// RecvSelect is recv(2) into a buffer that the kernel selects from a group
// ([Ring.RegisterBufferRing]) when data has arrived, so that idle connections need no buffers.
// [BufferRing.Buffer] returns the buffer.
func (q *Request) RecvSelect(fd int, group uint16, flags int) *Request {
	e := q.prepare(OpRecv, fd)
	e.opFlags, e.bufIndex = uint32(flags), group
	e.flags = sqeBufferSelect
	return q
}

// RecvMultishot completes for all data that arrives, each time with a buffer of a group, until the
// end of the stream (0), an error, or until the group has no buffers (ENOBUFS). The completion
// without [FlagMore] is the last. Linux 6.0.
func (q *Request) RecvMultishot(fd int, group uint16, flags int) *Request {
	q.RecvSelect(fd, group, flags)
	q.sqe.ioprio = recvMultishot
	return q
}

// SendMsg is sendmsg(2) of several buffers, with MSG_NOSIGNAL added. The zero address means the
// peer that the socket is connected to. Control data is not supported.
func (q *Request) SendMsg(fd int, buffers [][]byte, to netip.AddrPort, flags int) *Request {
	return q.sendMsg(OpSendMsg, fd, buffers, to, flags)
}

// SendMsgZC is SendMsg without copying, with the two completions of [Request.SendZC]. Linux 6.1.
func (q *Request) SendMsgZC(fd int, buffers [][]byte, to netip.AddrPort, flags int) *Request {
	return q.sendMsg(OpSendMsgZC, fd, buffers, to, flags)
}

func (q *Request) sendMsg(op Opcode, fd int, buffers [][]byte, to netip.AddrPort,
	flags int) *Request {
	q.prepare(op, fd).opFlags = uint32(flags | syscall.MSG_NOSIGNAL)
	q.extras()
	if to != (netip.AddrPort{}) {
		q.setAddr(to)
	}
	q.message(buffers)
	return q
}

// RecvMsg is recvmsg(2) into several buffers, one after the other. [Request.Peer] returns the
// sender, [Request.MessageFlags] whether the message was truncated. Control data is not supported.
func (q *Request) RecvMsg(fd int, buffers [][]byte, flags int) *Request {
	q.prepare(OpRecvMsg, fd).opFlags = uint32(flags)
	q.extras().addrLen = uint32(unsafe.Sizeof(q.extra.addr))
	q.message(buffers)
	return q
}

func (q *Request) message(buffers [][]byte) {
	s := q.extra
	s.fill(buffers)
	s.msg = syscall.Msghdr{Iov: unsafe.SliceData(s.vectors)}
	if s.addrLen > 0 {
		s.msg.Name = (*byte)(unsafe.Pointer(&s.addr))
		s.msg.Namelen = s.addrLen
	}
	setIovlen(&s.msg, len(s.vectors))
	q.sqe.addr = uint64(uintptr(unsafe.Pointer(&s.msg)))
	q.sqe.len = 1
}

// Shutdown is shutdown(2). Linux 5.11.
func (q *Request) Shutdown(fd int, how int) *Request {
	q.prepare(OpShutdown, fd).len = uint32(how)
	return q
}

// Peer returns the remote address of a completed Accept or RecvMsg, or the zero address if it is
// not IP. The zone of an IPv6 address is the number of the interface.
func (q *Request) Peer() netip.AddrPort {
	if q.InFlight() || q.extra == nil {
		return netip.AddrPort{}
	}
	switch s := q.extra; s.addr.Addr.Family {
	case syscall.AF_INET:
		in := (*syscall.RawSockaddrInet4)(unsafe.Pointer(&s.addr))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), bigEndian(in.Port))
	case syscall.AF_INET6:
		in := (*syscall.RawSockaddrInet6)(unsafe.Pointer(&s.addr))
		addr := netip.AddrFrom16(in.Addr)
		if in.Scope_id != 0 {
			addr = addr.WithZone(strconv.FormatUint(uint64(in.Scope_id), 10))
		}
		return netip.AddrPortFrom(addr, bigEndian(in.Port))
	}
	return netip.AddrPort{}
}

// MessageFlags returns the flags of a completed RecvMsg: MSG_TRUNC (0x20) if the message was longer
// than the buffers.
func (q *Request) MessageFlags() int {
	if q.InFlight() || q.extra == nil {
		return 0
	}
	return int(q.extra.msg.Flags)
}

// setAddr encodes an address. The kernel must see invalid ones as such: they get a length for which
// it returns EINVAL.
func (q *Request) setAddr(to netip.AddrPort) {
	s := q.extras()
	s.addrLen = uint32(unsafe.Offsetof(syscall.RawSockaddrInet4{}.Port))
	addr := to.Addr()
	if !addr.Is6() {
		in := (*syscall.RawSockaddrInet4)(unsafe.Pointer(&s.addr))
		in.Family = syscall.AF_INET
		if addr.Is4() {
			in.Port, in.Addr = bigEndian(to.Port()), addr.As4()
			s.addrLen = uint32(unsafe.Sizeof(*in))
		}
		return
	}
	in := (*syscall.RawSockaddrInet6)(unsafe.Pointer(&s.addr))
	in.Family = syscall.AF_INET6
	if scope, ok := scopeOf(addr.Zone()); ok {
		in.Port, in.Addr, in.Scope_id = bigEndian(to.Port()), addr.As16(), scope
		s.addrLen = uint32(unsafe.Sizeof(*in))
	}
}

// scopeOf returns the number of the interface that a zone names; false if there is none.
func scopeOf(zone string) (uint32, bool) {
	if zone == "" {
		return 0, true
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), true
	}
	link, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, false
	}
	return uint32(link.Index), true
}

// setUnix encodes a path. An invalid one is left out, so that the kernel returns EINVAL rather than
// connect to another socket.
func (q *Request) setUnix(path string) {
	s := q.extras()
	un := (*syscall.RawSockaddrUnix)(unsafe.Pointer(&s.addr))
	un.Family = syscall.AF_UNIX
	s.addrLen = uint32(unsafe.Offsetof(un.Path))
	if path == "" || len(path) > len(un.Path) || strings.IndexByte(path, 0) >= 0 {
		return
	}
	for i := range len(path) {
		un.Path[i] = int8(path[i])
	}
	if path[0] == '@' {
		un.Path[0] = 0
		s.addrLen += uint32(len(path))
		return
	}
	s.addrLen += uint32(min(len(path)+1, len(un.Path)))
}

// bigEndian converts a port between network and native byte order.
func bigEndian(port uint16) uint16 {
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return port
	}
	return bits.ReverseBytes16(port)
}
