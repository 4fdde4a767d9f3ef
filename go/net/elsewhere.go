//go:build !linux

package net

// Where there is no ring to be had everything is the standard package.

import (
	"context"
	"net"
)

// DialContext connects, and ends early with the context. A context that ends later does not matter to the connection.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.standard().DialContext(ctx, network, address)
}

// Listen is Listen of net.ListenConfig.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	return (*net.ListenConfig)(lc).Listen(ctx, network, address)
}

// Explain tells whether sockets are on io_uring or the standard package's, and why.
func Explain() string { return "package net, since this system is not Linux" }
