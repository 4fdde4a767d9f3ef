// Package net is TCP and unix stream sockets on io_uring: connections and listeners with the contracts and errors of the
// standard package of the same name. Import it beside that one:
//
//	import (
//		"net"
//
//		ringnet "github.com/ringway-io/ringway/go/net"
//	)
//
//	listener, err := ringnet.Listen("tcp", ":8080") // a net.Listener
//	...
//	err = http.Serve(listener, handler)
//
//	conn, err := ringnet.Dial("tcp", "example.org:80") // a net.Conn
//
// To accept, to connect, to send and to receive are operations on a ring; a goroutine that waits for one parks, and no thread
// waits with it. The rings are of this package alone, since an operation on a socket may stay in flight for ever; they are
// made when the first socket is, and stay.
//
// It is not faster than the standard package: Go's own poller is good at sockets, and an exchange of small messages costs up
// to twice the CPU time here. It is for programs that want one way of doing I/O, and for trying io_uring out.
//
// # Where there is no ring
//
// If io_uring is refused, or RINGWAY_BACKEND is kaio or threads, everything here is the standard package itself: what
// [Listen] and [Dial] return are then its types. So use the interfaces net.Listener and net.Conn, and beyond those ask for
// the method that is needed:
//
//	if c, ok := conn.(interface{ CloseWrite() error }); ok { ... }
//
// [Explain] tells which it is, and why. Networks other than tcp, tcp4, tcp6 and unix are always left to the standard
// package.
//
// # Buffers
//
// As everywhere in ringway, a buffer belongs to the kernel until the method that was given it returns. When a deadline
// passes, or the connection is closed, the operation is cancelled in the kernel, and the method returns when the kernel has let go
// of the buffer; what arrived just before is returned, without an error, and never lost.
package net
