//go:build linux

package net_test

// Programs over it: HTTP, and TLS.

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	ringnet "github.com/ringway-io/ringway/go/net"
)

// serve hands back what it is sent.
func serve(t *testing.T, l net.Listener) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		all, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(all)
	})
	mux.HandleFunc("/wait", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
	over := make(chan error, 1)
	go func() { over <- server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-over; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	return server
}

func (s stack) client(t *testing.T, l net.Listener) *http.Client {
	transport := &http.Transport{
		MaxIdleConnsPerHost: 8,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.dial(ctx, ringnet.Dialer{}, l.Addr().Network(), l.Addr().String())
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// body is n bytes, others for each n.
func body(n int) []byte { return pattern()[n%97:][:n] }

var pattern = sync.OnceValue(func() []byte {
	p := make([]byte, 1<<20)
	text(p, 0)
	return p
})

func TestHTTP(t *testing.T) {
	each(t, func(t *testing.T, s stack, network string) {
		l := s.listener(t, network)
		serve(t, l)
		client := s.client(t, l)
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				for i := range 10 {
					want := body(g * i * 3000)
					answer, err := client.Post("http://server/echo", "application/octet-stream", bytes.NewReader(want))
					if err != nil {
						t.Error(err)
						return
					}
					got, err := io.ReadAll(answer.Body)
					_ = answer.Body.Close()
					if err != nil || !bytes.Equal(got, want) {
						t.Error("other bytes", err)
					}
				}
			})
			// The client gives up. The server hears of it, since it reads in the background; a deadline ends that in other cases.
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				defer cancel()
				request, err := http.NewRequestWithContext(ctx, "GET", "http://server/wait", nil)
				must(t, err)
				answer, err := client.Do(request)
				if err == nil {
					_ = answer.Body.Close()
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		if err := soon(wg.Wait); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTLS(t *testing.T) {
	certificate, pool := selfSigned(t)
	each(t, func(t *testing.T, s stack, network string) {
		l := s.listener(t, network)
		secure := tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}})
		var servers, clients sync.WaitGroup
		servers.Go(func() {
			for {
				c, err := secure.Accept()
				if err != nil {
					return
				}
				servers.Go(func() {
					defer c.Close()
					hash := sha256.New()
					if _, err := io.Copy(hash, c); err != nil {
						t.Error(err)
					}
					if _, err := c.Write(hash.Sum(nil)); err != nil {
						t.Error(err)
					}
				})
			}
		})
		for g := range 8 {
			clients.Go(func() {
				plain := s.connect(t, l)
				c := tls.Client(plain, &tls.Config{RootCAs: pool, ServerName: "server"})
				defer c.Close()
				want := body(g * 100_000)
				if _, err := c.Write(want); err != nil {
					t.Error(err)
				}
				if err := c.CloseWrite(); err != nil {
					t.Error(err)
				}
				got, err := io.ReadAll(c)
				if sum := sha256.Sum256(want); err != nil || !bytes.Equal(got, sum[:]) {
					t.Error("other bytes", err)
				}
			})
		}
		if err := soon(clients.Wait); err != nil {
			t.Fatal(err)
		}
		must(t, l.Close())
		if err := soon(servers.Wait); err != nil {
			t.Fatal(err)
		}
	})
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"server"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	must(t, err)
	parsed, err := x509.ParseCertificate(der)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// A name that has several addresses: the one that answers is found.
func TestSeveralAddresses(t *testing.T) {
	for _, s := range stacks {
		t.Run(s.name, func(t *testing.T) {
			l := s.listener(t, "tcp")
			_, port, err := net.SplitHostPort(l.Addr().String())
			must(t, err)
			// A resolver of our own: names are nobody's business here.
			resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				mine, theirs := net.Pipe()
				go answer(theirs)
				return mine, nil
			}}
			for _, network := range []string{"tcp", "tcp4"} {
				c, err := s.dial(t.Context(), ringnet.Dialer{Resolver: resolver, Timeout: patience}, network, net.JoinHostPort("several.test.", port))
				must(t, err)
				if got := c.RemoteAddr().String(); got != l.Addr().String() {
					t.Error(got)
				}
				must(t, c.Close())
			}
			_, err = s.dial(t.Context(), ringnet.Dialer{Resolver: resolver}, "tcp6", net.JoinHostPort("several.test.", port))
			t.Log(told(err))
			if err == nil {
				t.Error("::1 answers")
			}
		})
	}
}

// answer is a name server for one question: A has 127.0.0.3 and 127.0.0.1, AAAA has ::1.
func answer(c net.Conn) {
	defer c.Close()
	p := make([]byte, 1500)
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return
	}
	p = p[:int(size[0])<<8|int(size[1])]
	if _, err := io.ReadFull(c, p); err != nil {
		return
	}
	end := 12
	for p[end] != 0 {
		end += int(p[end]) + 1
	}
	end += 5
	records := [][]byte{{127, 0, 0, 3}, {127, 0, 0, 1}}
	kind := p[end-3]
	if kind == 28 {
		records = [][]byte{net.IPv6loopback}
	}
	out := append([]byte{}, p[:end]...)
	out[2], out[3] = 0x81, 0x80
	out[6], out[7] = 0, byte(len(records))
	out[8], out[9], out[10], out[11] = 0, 0, 0, 0
	for _, r := range records {
		out = append(out, 0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0, byte(len(r)))
		out = append(out, r...)
	}
	_, _ = c.Write(append([]byte{byte(len(out) >> 8), byte(len(out))}, out...))
}

func ExampleListen() {
	l, err := ringnet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, c) // Hands back what it is sent.
	}()

	c, err := ringnet.Dial("tcp", l.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	fmt.Fprint(c, "hello")
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	answer, err := io.ReadAll(c)
	fmt.Println(string(answer), err)
	// Output: hello <nil>
}
