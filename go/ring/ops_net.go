//go:build linux

// Operations on sockets.

package ring

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"
)

// Socket is socket(2); SOCK_CLOEXEC is added. The result is a descriptor. Kernel 5.19.
func (q *Request) Socket(domain, kind, protocol int) *Request {
	e := q.prepare(OpSocket, domain)
	e.off, e.len = uint64(kind|syscall.SOCK_CLOEXEC), uint32(protocol)
	return q
}

// Bind is bind(2). Kernel 6.11.
func (q *Request) Bind(fd int, to netip.AddrPort) *Request {
	e := q.prepare(OpBind, fd)
	s := q.aside()
	s.setAddr(to)
	e.addr, e.off = s.addrAddress(), uint64(s.addrLen)
	return q
}

// Listen is listen(2). Kernel 6.11.
func (q *Request) Listen(fd int, backlog int) *Request {
	q.prepare(OpListen, fd).len = uint32(backlog)
	return q
}

// Connect is connect(2). The zone of an IPv6 address is the number of an interface, not its name.
func (q *Request) Connect(fd int, to netip.AddrPort) *Request {
	e := q.prepare(OpConnect, fd)
	s := q.aside()
	s.setAddr(to)
	e.addr, e.off = s.addrAddress(), uint64(s.addrLen)
	return q
}

// ConnectUnix is connect(2) to a socket with a path. A leading @ stands for a zero byte: a name without a file.
func (q *Request) ConnectUnix(fd int, path string) *Request {
	e := q.prepare(OpConnect, fd)
	s := q.aside()
	s.setUnix(path)
	e.addr, e.off = s.addrAddress(), uint64(s.addrLen)
	return q
}

// Accept is accept4(2); SOCK_CLOEXEC is added. The result is a descriptor, and [Request.Peer] who it is.
func (q *Request) Accept(fd int, flags int) *Request {
	e := q.prepare(OpAccept, fd)
	s := q.aside()
	s.addrLen = uint32(unsafe.Sizeof(s.addr))
	e.addr = s.addrAddress()
	e.off = uint64(uintptr(unsafe.Pointer(&s.addrLen)))
	e.opFlags = uint32(flags | syscall.SOCK_CLOEXEC)
	return q
}

// AcceptMulti completes with a descriptor for each connection, until it is cancelled. Kernel 5.19.
func (q *Request) AcceptMulti(fd int, flags int) *Request {
	e := q.prepare(OpAccept, fd)
	e.ioprio = acceptMultishot
	e.opFlags = uint32(flags | syscall.SOCK_CLOEXEC)
	return q
}

// Send is send(2).
func (q *Request) Send(fd int, p []byte, flags int) *Request {
	q.prepare(OpSend, fd).opFlags = uint32(flags | syscall.MSG_NOSIGNAL)
	q.transfer(p)
	return q
}

// Recv is recv(2).
func (q *Request) Recv(fd int, p []byte, flags int) *Request {
	q.prepare(OpRecv, fd).opFlags = uint32(flags)
	q.transfer(p)
	return q
}

// RecvSelect is recv(2) into a buffer of a group, which the kernel chooses ([Ring.RegisterBufferRing]).
func (q *Request) RecvSelect(fd int, group uint16, flags int) *Request {
	e := q.prepare(OpRecv, fd)
	e.opFlags, e.bufIndex = uint32(flags), group
	e.flags = sqeBufferSelect
	return q
}

// RecvMulti completes for everything that arrives, each time with a buffer of a group, until the end, an error, or until
// the group is empty (ENOBUFS). Kernel 6.0.
func (q *Request) RecvMulti(fd int, group uint16, flags int) *Request {
	q.RecvSelect(fd, group, flags)
	q.sqe.ioprio = recvMultishot
	return q
}

// ReadSelect is [Request.Read] into a buffer of a group, at most n bytes.
func (q *Request) ReadSelect(fd int, group uint16, n int, off int64) *Request {
	e := q.prepare(OpRead, fd)
	e.off, e.len, e.bufIndex = uint64(off), length(n), group
	e.flags = sqeBufferSelect
	return q
}

// SendMsg is sendmsg(2) of several buffers; to the zero address means to whom the socket is connected.
func (q *Request) SendMsg(fd int, buffers [][]byte, to netip.AddrPort, flags int) *Request {
	q.prepare(OpSendMsg, fd).opFlags = uint32(flags | syscall.MSG_NOSIGNAL)
	s := q.aside()
	if to.IsValid() {
		s.setAddr(to)
	}
	q.message(buffers)
	return q
}

// RecvMsg is recvmsg(2) into several buffers; [Request.Peer] is who sent it.
func (q *Request) RecvMsg(fd int, buffers [][]byte, flags int) *Request {
	q.prepare(OpRecvMsg, fd).opFlags = uint32(flags)
	q.aside().addrLen = uint32(unsafe.Sizeof(q.side.addr))
	q.message(buffers)
	return q
}

func (q *Request) message(buffers [][]byte) {
	s := q.side
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

// Shutdown is shutdown(2). Kernel 5.11.
func (q *Request) Shutdown(fd int, how int) *Request {
	q.prepare(OpShutdown, fd).len = uint32(how)
	return q
}

// Peer is who a completed Accept or RecvMsg has to do with; the zero address for what is not IP. A zone is the number of
// an interface.
func (q *Request) Peer() netip.AddrPort {
	if q.inFlight || q.side == nil {
		return netip.AddrPort{}
	}
	switch s := q.side; s.addr.Addr.Family {
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

func (s *side) addrAddress() uint64 { return uint64(uintptr(unsafe.Pointer(&s.addr))) }

func (s *side) setAddr(to netip.AddrPort) {
	if to.Addr().Is4() {
		in := (*syscall.RawSockaddrInet4)(unsafe.Pointer(&s.addr))
		*in = syscall.RawSockaddrInet4{Family: syscall.AF_INET, Port: bigEndian(to.Port()), Addr: to.Addr().As4()}
		s.addrLen = uint32(unsafe.Sizeof(*in))
		return
	}
	in := (*syscall.RawSockaddrInet6)(unsafe.Pointer(&s.addr))
	*in = syscall.RawSockaddrInet6{Family: syscall.AF_INET6, Port: bigEndian(to.Port()), Addr: to.Addr().As16()}
	if scope, err := strconv.ParseUint(to.Addr().Zone(), 10, 32); err == nil {
		in.Scope_id = uint32(scope)
	}
	s.addrLen = uint32(unsafe.Sizeof(*in))
}

func (s *side) setUnix(path string) {
	un := (*syscall.RawSockaddrUnix)(unsafe.Pointer(&s.addr))
	*un = syscall.RawSockaddrUnix{Family: syscall.AF_UNIX}
	s.addrLen = uint32(unsafe.Offsetof(un.Path))
	if path == "" || len(path) > len(un.Path) {
		return // Without a path it is EINVAL.
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

// bigEndian turns a port from the network's order into the machine's, or back.
func bigEndian(port uint16) uint16 {
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return port
	}
	return bits.ReverseBytes16(port)
}
