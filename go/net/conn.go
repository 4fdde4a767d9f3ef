//go:build linux

package net

import (
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"
)

// Conn is a connection on a ring: of a unix socket as it is, of TCP as part of a [TCPConn]. Its methods are those of the
// standard package's connections, with their contracts and errors; any number of goroutines may use it. Errors are
// *net.OpError; below them are an os.SyscallError, os.ErrDeadlineExceeded, or net.ErrClosed.
type Conn struct {
	socket
	local, remote net.Addr
	read, write   *direction
}

// TCPConn is a TCP connection on a ring.
type TCPConn struct{ *Conn }

var (
	_ net.Conn     = (*TCPConn)(nil)
	_ syscall.Conn = (*TCPConn)(nil)
)

// largest transfer at once: others that share the ring wait for the copy.
const largest = 256 << 10

// newConn takes over a connected descriptor. It is closed with the connection, at the latest when that is forgotten.
func newConn(fd int, network string, s *shard, local, remote net.Addr) *Conn {
	c := &Conn{local: local, remote: remote, read: newDirection(fd, s), write: newDirection(fd, s)}
	c.fd, c.network = fd, network
	runtime.SetFinalizer(c, (*Conn).Close)
	return c
}

// whole is the connection as programs see it.
func (c *Conn) whole() net.Conn {
	if c.network == "unix" {
		return c
	}
	return &TCPConn{c}
}

func (c *Conn) fail(op string, err error) error { return c.wrap(op, c.local, c.remote, err) }

// failSet is the error of a method that sets something.
func (c *Conn) failSet(err error) error { return c.wrap("set", nil, c.local, err) }

// Read reads what has arrived, and waits for the first byte. The end is io.EOF. Concurrent reads take turns.
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.begin(); err != nil {
		return 0, c.fail("read", err)
	}
	n, err := c.recv(p)
	c.end()
	if err != nil && err != io.EOF {
		err = c.fail("read", named("read", err))
	}
	return n, err
}

func (c *Conn) recv(p []byte) (int, error) {
	d := c.read
	d.turn.Lock()
	defer d.turn.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	d.request.Recv(c.fd, p[:min(len(p), largest)], 0)
	n, err := d.run(readReady)
	d.request.Drop()
	if err != nil {
		return 0, err
	}
	received(p[:n])
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Write writes all of p, or tells with an error how much of it was written. Concurrent writes take turns.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.begin(); err != nil {
		return 0, c.fail("write", err)
	}
	n, err := c.send(p)
	c.end()
	if err != nil {
		err = c.fail("write", named("write", err))
	}
	return n, err
}

func (c *Conn) send(p []byte) (n int, err error) {
	d := c.write
	d.turn.Lock()
	defer d.turn.Unlock()
	sending(p)
	// Nothing is sent as well: it tells whether the connection still stands.
	for {
		d.request.Send(c.fd, p[n:min(len(p), n+largest)], 0)
		m, err := d.run(writeReady)
		d.request.Drop()
		n += m
		switch {
		case err != nil || n == len(p):
			return n, err
		case m == 0:
			return n, io.ErrUnexpectedEOF
		}
	}
}

// Close closes the connection. Operations under way end with net.ErrClosed, and Close returns when the kernel has let go of
// their buffers.
func (c *Conn) Close() error {
	runtime.SetFinalizer(c, nil)
	return c.fail("close", c.close(c.read, c.write))
}

// CloseRead shuts down the reading side: reads end with io.EOF.
func (c *Conn) CloseRead() error { return c.shutdown(syscall.SHUT_RD) }

// CloseWrite shuts down the writing side: the peer reads to the end.
func (c *Conn) CloseWrite() error { return c.shutdown(syscall.SHUT_WR) }

func (c *Conn) shutdown(how int) error {
	return c.fail("close", c.with("shutdown", func(fd int) error { return syscall.Shutdown(fd, how) }))
}

// LocalAddr is this end's address, a *net.TCPAddr or *net.UnixAddr. Do not change it.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the peer's address, a *net.TCPAddr or *net.UnixAddr. Do not change it.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadline(t, c.read, c.write) }

// SetReadDeadline has reads end with os.ErrDeadlineExceeded from t on: those to come and those that wait now. The zero time
// is none. A read that waits returns when the kernel has let go of its buffer; bytes that came before that are returned.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(t, c.read, nil) }

// SetWriteDeadline has writes end with os.ErrDeadlineExceeded from t on: those to come and those that wait now. The zero
// time is none. What a write has written before that is counted.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, nil, c.write) }

func (c *Conn) setDeadline(t time.Time, read, write *direction) error {
	if err := c.begin(); err != nil {
		return c.failSet(err)
	}
	defer c.end()
	if read != nil {
		read.setDeadline(t)
	}
	if write != nil {
		write.setDeadline(t)
	}
	return nil
}

// SyscallConn gives the descriptor to functions. It is non-blocking, as the standard package's is.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	return raw{&c.socket, c.read, c.write, c.local, c.remote}, nil
}

// File is a duplicate of the descriptor, which the caller closes.
func (c *Conn) File() (*os.File, error) {
	f, err := c.file(c.network)
	return f, c.fail("file", err)
}

// SetReadBuffer sets the size of the kernel's receive buffer.
func (c *Conn) SetReadBuffer(bytes int) error {
	return c.failSet(c.setInt(syscall.SOL_SOCKET, syscall.SO_RCVBUF, bytes))
}

// SetWriteBuffer sets the size of the kernel's send buffer.
func (c *Conn) SetWriteBuffer(bytes int) error {
	return c.failSet(c.setInt(syscall.SOL_SOCKET, syscall.SO_SNDBUF, bytes))
}

// SetNoDelay tells whether to send at once rather than to gather (Nagle's algorithm). It is set from the beginning.
func (c *TCPConn) SetNoDelay(noDelay bool) error {
	return c.fail("set", c.setInt(syscall.IPPROTO_TCP, syscall.TCP_NODELAY, number(noDelay)))
}

// SetLinger tells what Close does with bytes that were not sent: negative, they are sent in the background; 0, they are
// dropped, and the peer sees ECONNRESET; else Close may block for so many seconds.
func (c *TCPConn) SetLinger(seconds int) error {
	return c.fail("set", c.with("setsockopt", func(fd int) error {
		linger := syscall.Linger{Onoff: int32(number(seconds >= 0)), Linger: int32(max(seconds, 0))}
		return syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &linger)
	}))
}

// SetKeepAlive tells whether the kernel probes an idle connection. It is set from the beginning.
func (c *TCPConn) SetKeepAlive(keep bool) error {
	return c.fail("set", c.setInt(syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, number(keep)))
}

// SetKeepAlivePeriod sets how long a connection is idle before it is probed; 0 is 15 seconds, negative changes nothing.
func (c *TCPConn) SetKeepAlivePeriod(d time.Duration) error {
	return c.fail("set", c.with("setsockopt", func(fd int) error {
		return keepAliveTimes(fd, net.KeepAliveConfig{Idle: d, Interval: -1, Count: -1})
	}))
}

// SetKeepAliveConfig sets how the kernel probes an idle connection.
func (c *TCPConn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	if err := c.SetKeepAlive(config.Enable); err != nil {
		return err
	}
	return c.fail("set", c.with("setsockopt", func(fd int) error { return keepAliveTimes(fd, config) }))
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
