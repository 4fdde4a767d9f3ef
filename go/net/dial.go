//go:build linux

package net

// Connecting.

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"
)

// DialContext connects, and ends early with the context. A context that ends later does not matter to the connection.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	e := sockets()
	switch {
	case e.err != nil:
		return nil, &net.OpError{Op: "dial", Net: network, Err: e.err}
	case !e.carries(network):
		return d.standard().DialContext(ctx, network, address)
	}
	if deadline := d.deadline(time.Now()); !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	all, err := d.resolve(ctx, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	// The error of the first address tells most.
	var first error
	for i, to := range all {
		c, err := d.one(ctx, e, network, to, len(all)-i)
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = &net.OpError{Op: "dial", Net: network, Source: d.LocalAddr, Addr: to, Err: err}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

func (d *Dialer) deadline(now time.Time) time.Time {
	at := d.Deadline
	if d.Timeout != 0 {
		if limit := now.Add(d.Timeout); at.IsZero() || limit.Before(at) {
			at = limit
		}
	}
	return at
}

var (
	errMissing    = errors.New("missing address")
	errUnsuitable = "no suitable address found"
)

// resolve gives what can be connected to, at least one.
func (d *Dialer) resolve(ctx context.Context, network, address string) ([]net.Addr, error) {
	if address == "" {
		return nil, errMissing
	}
	if network == "unix" {
		if d.LocalAddr != nil && d.LocalAddr.Network() != network {
			return nil, &net.AddrError{Err: "mismatched local address type", Addr: d.LocalAddr.String()}
		}
		return []net.Addr{&net.UnixAddr{Name: address, Net: network}}, nil
	}
	resolver := d.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := resolver.LookupPort(ctx, network, service)
	if err != nil {
		return nil, err
	}
	var ips []net.IPAddr
	if host == "" {
		ips = []net.IPAddr{{}} // This machine.
	} else if ips, err = resolver.LookupIPAddr(ctx, host); err != nil {
		return nil, err
	}
	if len(ips) == 1 && ips[0].IP.Equal(net.IPv6unspecified) {
		ips = append(ips, net.IPAddr{IP: net.IPv4zero}) // Who listens on all addresses may do so on those of IPv4 alone.
	}
	from, ok := d.LocalAddr.(*net.TCPAddr)
	if d.LocalAddr != nil && !ok {
		return nil, &net.AddrError{Err: "mismatched local address type", Addr: d.LocalAddr.String()}
	}
	var all []net.Addr
	unsuitable := host
	for _, ip := range ips {
		four := ip.IP.To4() != nil
		if ip.IP != nil && (network == "tcp4" && !four || network == "tcp6" && four) {
			continue
		}
		if from != nil && particular(from.IP) && particular(ip.IP) && four != (from.IP.To4() != nil) {
			unsuitable = d.LocalAddr.String()
			continue
		}
		all = append(all, &net.TCPAddr{IP: ip.IP, Port: port, Zone: ip.Zone})
	}
	if len(all) == 0 {
		return nil, &net.AddrError{Err: errUnsuitable, Addr: unsuitable}
	}
	return all, nil
}

// one connects to one of as many addresses as are left.
func (d *Dialer) one(ctx context.Context, e *engine, network string, to net.Addr, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		// An equal share of the time, but no less than is sane.
		const sane = 2 * time.Second
		rest := time.Until(deadline)
		share := max(rest/time.Duration(left), min(rest, sane))
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, share)
		defer cancel()
	}
	for tries := 0; ; tries++ {
		c, err := d.connect(ctx, e, network, to)
		// Where nobody listens on a port of this machine's own range, the kernel may choose that very port for this end, and
		// connect the socket to itself. Or it finds the port taken that it has chosen.
		again := errors.Is(err, syscall.EADDRNOTAVAIL) || err == nil && c.local != nil && c.local.String() == c.remote.String()
		from, ok := d.LocalAddr.(*net.TCPAddr)
		chosen := network != "unix" && (!ok || from.Port == 0)
		if !again || !chosen || tries == 2 {
			if err != nil {
				return nil, err
			}
			return c.whole(), nil
		}
		if err == nil {
			_ = c.Close()
		}
	}
}

// connect makes a socket and connects it.
func (d *Dialer) connect(ctx context.Context, e *engine, network string, to net.Addr) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, ended(err)
	}
	family := d.family(network, to)
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	// From here on it is closed by the connection's end.
	c := newConn(fd, network, e.shard(), nil, to)
	if err := d.join(ctx, c, family, to); err != nil {
		_ = c.Close()
		return nil, err
	}
	c.local = address(syscall.Getsockname(fd))
	if peer := address(syscall.Getpeername(fd)); peer != nil {
		c.remote = peer
	}
	if family != syscall.AF_UNIX {
		_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
		keepAlive(fd, d.KeepAlive, d.KeepAliveConfig)
	}
	return c, nil
}

// family of a socket that goes to an address: IPv4 only if both ends are.
func (d *Dialer) family(network string, to net.Addr) int {
	tcp, ok := to.(*net.TCPAddr)
	switch {
	case !ok:
		return syscall.AF_UNIX
	case network == "tcp4":
		return syscall.AF_INET
	case network == "tcp6":
		return syscall.AF_INET6
	}
	four := func(ip net.IP) bool { return len(ip) == 0 || ip.To4() != nil }
	from, ok := d.LocalAddr.(*net.TCPAddr)
	if four(tcp.IP) && (!ok || four(from.IP)) {
		return syscall.AF_INET
	}
	return syscall.AF_INET6
}

// join does what comes before and what is the connect.
func (d *Dialer) join(ctx context.Context, c *Conn, family int, to net.Addr) error {
	if family == syscall.AF_INET6 {
		if err := syscall.SetsockoptInt(c.fd, syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, number(c.network == "tcp6")); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if d.ControlContext != nil {
		network := c.network
		switch {
		case network != "tcp":
		case family == syscall.AF_INET:
			network = "tcp4"
		default:
			network = "tcp6"
		}
		conn, _ := c.SyscallConn()
		if err := d.ControlContext(ctx, network, to.String(), conn); err != nil {
			return err
		}
	}
	var from syscall.Sockaddr
	var peer netip.AddrPort
	var err error
	switch local := d.LocalAddr.(type) {
	case *net.TCPAddr:
		from, err = sockaddr(family, local)
	case *net.UnixAddr:
		from = &syscall.SockaddrUnix{Name: local.Name}
	}
	if tcp, ok := to.(*net.TCPAddr); ok && err == nil {
		peer, err = addrPort(family, tcp)
	}
	if err != nil {
		return err
	}
	if from != nil {
		if err := syscall.Bind(c.fd, from); err != nil {
			return os.NewSyscallError("bind", err)
		}
	}
	stop := context.AfterFunc(ctx, c.write.stop)
	if peer.IsValid() {
		err = c.connect(func() { c.write.request.Connect(c.fd, peer) })
	} else {
		err = c.connect(func() { c.write.request.ConnectUnix(c.fd, to.String()) })
	}
	if !stop() {
		// What was stopped writes no more, whether it was connected just before or not.
		return ended(ctx.Err())
	}
	return err
}

// connect does the operation until it has an answer.
func (c *Conn) connect(prepare func()) error {
	d := c.write
	d.turn.Lock()
	defer d.turn.Unlock()
	for {
		prepare()
		result, err := d.fly(&d.request)
		if err != nil {
			return err
		}
		switch errno := syscall.Errno(-result); errno {
		case 0, syscall.EISCONN:
			return nil
		case syscall.EINTR, syscall.ECANCELED:
			// Nobody asked for that, or the next one does not begin.
		case syscall.EINPROGRESS, syscall.EALREADY:
			// It goes on by itself. What comes of it is told by the socket, or by another connect.
			if err := d.poll(writeReady); err != nil {
				return err
			}
			failed, err := syscall.GetsockoptInt(c.fd, syscall.SOL_SOCKET, syscall.SO_ERROR)
			if err == nil && failed != 0 {
				err = syscall.Errno(failed)
			}
			if err != nil {
				return os.NewSyscallError("connect", err)
			}
		default:
			return os.NewSyscallError("connect", errno)
		}
	}
}

// dialError is the end of a context, in the standard package's words. A limit of time is there now the context's error and
// now that of a deadline; here it is both.
type dialError struct {
	text string
	is   []error
}

func (e *dialError) Error() string        { return e.text }
func (e *dialError) Is(target error) bool { return slices.Contains(e.is, target) }
func (e *dialError) Timeout() bool        { return e == errTimeout }
func (e *dialError) Temporary() bool      { return e.Timeout() }

var (
	errCanceled = &dialError{"operation was canceled", []error{context.Canceled}}
	errTimeout  = &dialError{"i/o timeout", []error{context.DeadlineExceeded, os.ErrDeadlineExceeded}}
)

func ended(err error) error {
	switch err {
	case context.Canceled:
		return errCanceled
	case context.DeadlineExceeded:
		return errTimeout
	}
	return err
}

// particular tells whether an address is one, rather than all.
func particular(ip net.IP) bool { return len(ip) > 0 && !ip.IsUnspecified() }
