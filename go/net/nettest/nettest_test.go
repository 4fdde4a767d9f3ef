//go:build linux

// Package nettest has the connections of package net pass the conformance test of golang.org/x/net. It is a module of its own,
// so that ringway depends on nothing.
package nettest

import (
	"net"
	"path/filepath"
	"testing"

	ringnet "github.com/ringway-io/ringway/go/net"
	"golang.org/x/net/nettest"
)

func TestConn(t *testing.T) {
	t.Log(ringnet.Explain())
	for _, network := range []string{"tcp", "tcp6", "unix"} {
		address := map[string]string{"tcp": "127.0.0.1:0", "tcp6": "[::1]:0"}[network]
		t.Run(network, func(t *testing.T) {
			if !nettest.TestableNetwork(network) {
				t.Skipf("skipped: this machine has no %s", network)
			}
			nettest.TestConn(t, func() (a, b net.Conn, stop func(), err error) {
				if network == "unix" {
					address = filepath.Join(t.TempDir(), "s")
				}
				listener, err := ringnet.Listen(network, address)
				if err != nil {
					return nil, nil, nil, err
				}
				defer listener.Close()
				dialled := make(chan error, 1)
				go func() {
					var err error
					a, err = ringnet.Dial(network, listener.Addr().String())
					dialled <- err
				}()
				if b, err = listener.Accept(); err != nil {
					return nil, nil, nil, err
				}
				if err = <-dialled; err != nil {
					return nil, nil, nil, err
				}
				return a, b, func() {
					_ = a.Close()
					_ = b.Close()
				}, nil
			})
		})
	}
}
