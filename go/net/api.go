package net

// What the package has on every system.

import (
	"context"
	"net"
	"syscall"
	"time"
)

// Dialer has the options of a connection. They mean what the same fields of net.Dialer do; the zero value is good.
//
// Where a name has several addresses they are tried one after the other, in the resolver's order, until one answers. What
// time there is, is divided among them. (There is no racing of IPv6 and IPv4.)
type Dialer struct {
	// Timeout is the most that a dial may take, name resolution included; 0 is no limit of ours.
	Timeout time.Duration
	// Deadline is when a dial ends at the latest; the zero time is none.
	Deadline time.Time
	// LocalAddr is this end's address, a *net.TCPAddr or *net.UnixAddr; nil leaves it to the kernel.
	LocalAddr net.Addr
	// KeepAlive is how long a connection is idle before the kernel probes it: 0 is 15 seconds, negative is never. It counts
	// where KeepAliveConfig.Enable is false.
	KeepAlive time.Duration
	// KeepAliveConfig is how the kernel probes an idle connection.
	KeepAliveConfig net.KeepAliveConfig
	// Resolver resolves names; nil is net.DefaultResolver.
	Resolver *net.Resolver
	// ControlContext is called with each socket before it is connected.
	ControlContext func(ctx context.Context, network, address string, c syscall.RawConn) error
}

// Dial is net.Dial: for tcp, tcp4, tcp6 and unix with a connection on a ring, a *[TCPConn] or *[Conn].
func Dial(network, address string) (net.Conn, error) {
	return new(Dialer).Dial(network, address)
}

// DialTimeout is Dial with a limit of time, name resolution included.
func DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	return (&Dialer{Timeout: timeout}).Dial(network, address)
}

// DialContext is Dial that ends early with the context; it fits http.Transport. A context that ends later does not matter
// to the connection.
func DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return new(Dialer).DialContext(ctx, network, address)
}

// Dial connects.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// standard is the same dialer of the standard package.
func (d *Dialer) standard() *net.Dialer {
	return &net.Dialer{Timeout: d.Timeout, Deadline: d.Deadline, LocalAddr: d.LocalAddr, KeepAlive: d.KeepAlive,
		KeepAliveConfig: d.KeepAliveConfig, Resolver: d.Resolver, ControlContext: d.ControlContext}
}

// ListenConfig is net.ListenConfig, with the same fields: Control, KeepAlive, KeepAliveConfig.
type ListenConfig net.ListenConfig

// Listen is net.Listen: for tcp, tcp4, tcp6 and unix with a listener on a ring, a *[Listener].
func Listen(network, address string) (net.Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}
