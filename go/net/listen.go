//go:build linux

package net

// Listening and accepting.

import (
	"context"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Listen is Listen of net.ListenConfig. The context is for the resolution of the address alone.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	e := sockets()
	if e.err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: e.err}
	}
	// To set it up is the standard package's in any case: nothing of it waits.
	standard, err := (*net.ListenConfig)(lc).Listen(ctx, network, address)
	if err != nil || !e.carries(network) {
		return standard, err
	}
	l := &Listener{addr: standard.Addr(), period: lc.KeepAlive, config: lc.KeepAliveConfig}
	l.network = network
	if err := l.takeOver(standard); err != nil {
		_ = standard.Close()
		return nil, &net.OpError{Op: "listen", Net: network, Addr: l.addr, Err: err}
	}
	l.shards = e
	l.accept = newDirection(l.fd, e.shard())
	runtime.SetFinalizer(l, func(l *Listener) { _ = l.close(l.accept) })
	return l, nil
}

// Listener accepts connections on a ring. It has the methods of a net.TCPListener or net.UnixListener, with their contracts
// and errors.
type Listener struct {
	socket
	addr   net.Addr
	shards *engine
	accept *direction
	period time.Duration // Of keep-alive, as asked for.
	config net.KeepAliveConfig

	unlink     bool
	unlinkOnce sync.Once
}

var (
	_ net.Listener = (*Listener)(nil)
	_ syscall.Conn = (*Listener)(nil)
)

// takeOver has a descriptor of its own, and closes the other.
func (l *Listener) takeOver(standard net.Listener) error {
	conn, err := standard.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { l.fd, inner = duplicate(int(fd)) }); err != nil {
		return err
	}
	if inner != nil {
		return os.NewSyscallError("fcntl", inner)
	}
	if unix, ok := standard.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false)
		l.unlink = true
	}
	return standard.Close()
}

func (l *Listener) fail(op string, err error) error { return l.wrap(op, nil, l.addr, err) }

// Accept waits for the next connection, a *[TCPConn] or *[Conn]. Concurrent calls take turns.
func (l *Listener) Accept() (net.Conn, error) {
	if err := l.begin(); err != nil {
		return nil, l.fail("accept", err)
	}
	defer l.end()
	c, err := l.next()
	if err != nil {
		return nil, l.fail("accept", named("accept4", err))
	}
	return c, nil
}

func (l *Listener) next() (net.Conn, error) {
	d := l.accept
	d.turn.Lock()
	defer d.turn.Unlock()
	for {
		d.request.Accept(l.fd, syscall.SOCK_NONBLOCK)
		fd, err := d.run(readReady)
		switch err {
		case nil:
			return l.accepted(fd), nil
		case syscall.ECONNABORTED: // It was over before anybody took it.
		default:
			return nil, err
		}
	}
}

// accepted makes a connection of the descriptor that the request has yielded.
func (l *Listener) accepted(fd int) net.Conn {
	remote := peerAddress(l.accept.request.Peer())
	if remote == nil {
		remote = address(syscall.Getpeername(fd))
	}
	if _, ok := l.addr.(*net.TCPAddr); ok {
		_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
		keepAlive(fd, l.period, l.config)
	}
	return newConn(fd, l.network, l.shards.shard(), address(syscall.Getsockname(fd)), remote).whole()
}

// Close stops listening. Who waits in Accept is told net.ErrClosed, unless a connection came just before. The file of a
// unix listener is removed.
func (l *Listener) Close() error {
	runtime.SetFinalizer(l, nil)
	l.unlinkOnce.Do(func() {
		if name := l.addr.String(); l.unlink && !strings.HasPrefix(name, "@") {
			_ = syscall.Unlink(name)
		}
	})
	return l.fail("close", l.close(l.accept))
}

// Addr is the address that it listens on. Do not change it.
func (l *Listener) Addr() net.Addr { return l.addr }

// SetDeadline has Accept end with os.ErrDeadlineExceeded from t on. The zero time is none.
func (l *Listener) SetDeadline(t time.Time) error {
	if err := l.begin(); err != nil {
		return l.fail("set", err)
	}
	defer l.end()
	l.accept.setDeadline(t)
	return nil
}

// SetUnlinkOnClose tells whether Close removes the file of a unix listener. It does unless told otherwise.
func (l *Listener) SetUnlinkOnClose(unlink bool) { l.unlink = unlink }

// SyscallConn gives the descriptor to Control. Read and Write are EINVAL, as in the standard package.
func (l *Listener) SyscallConn() (syscall.RawConn, error) {
	return raw{socket: &l.socket, local: l.addr}, nil
}

// File is a duplicate of the descriptor, which the caller closes.
func (l *Listener) File() (*os.File, error) {
	f, err := l.file(l.network)
	return f, l.fail("file", err)
}
