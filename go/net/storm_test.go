//go:build linux

package net_test

// Deadlines, closes and crowds, at any moment. What is asked is always the same: every byte arrives once and in its order,
// nobody waits for ever, and nothing is left behind.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/race"
	ringnet "github.com/ringway-io/ringway/go/net"
)

// text is what the byte at a place of a stream is.
func text(p []byte, at int) {
	for i := range p {
		p[i] = byte(uint32(at+i)*2654435761>>13) ^ byte(at+i)
	}
}

// Reads and writes whose deadlines pass, move and vanish at any moment, while data arrive.
func TestDeadlineStorm(t *testing.T) {
	each(t, func(t *testing.T, s stack, network string) {
		var wg sync.WaitGroup
		var expired, reads atomic.Int64
		for g := range 24 {
			a, b := s.pair(t, network)
			const total = 400_000
			stop := make(chan struct{})
			random := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(uint64(g), n)) }
			moment := func(r *rand.Rand) time.Time {
				switch r.IntN(5) {
				case 0:
					return time.Time{}
				case 1:
					return past
				}
				return time.Now().Add(time.Duration(r.IntN(400)-20) * time.Microsecond)
			}
			// Somebody else moves the deadlines.
			wg.Go(func() {
				r := random(1)
				for {
					select {
					case <-stop:
						return
					default:
					}
					switch r.IntN(3) {
					case 0:
						must(t, a.SetWriteDeadline(moment(r)))
					case 1:
						must(t, b.SetReadDeadline(moment(r)))
					case 2:
						time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
					}
				}
			})
			wg.Go(func() {
				r := random(2)
				p := make([]byte, 9000)
				for at := 0; at < total; {
					part := p[:min(1+r.IntN(len(p)), total-at)]
					text(part, at)
					if r.IntN(2) == 0 {
						must(t, a.SetWriteDeadline(moment(r)))
					}
					n, err := a.Write(part)
					at += n
					switch {
					case err == nil && n != len(part):
						t.Error("less was written, without an error")
					case errors.Is(err, os.ErrDeadlineExceeded):
						expired.Add(1)
						must(t, a.SetWriteDeadline(time.Time{}))
					case err != nil:
						t.Error(err)
						at = total
					}
					if r.IntN(4) == 0 {
						time.Sleep(time.Duration(r.IntN(200)) * time.Microsecond)
					}
				}
				if err := a.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				defer close(stop)
				r := random(3)
				p, want := make([]byte, 7000), make([]byte, 7000)
				for at := 0; ; {
					if r.IntN(2) == 0 {
						must(t, b.SetReadDeadline(moment(r)))
					}
					part := p[:1+r.IntN(len(p))]
					n, err := b.Read(part)
					reads.Add(1)
					if text(want[:n], at); !bytes.Equal(part[:n], want[:n]) {
						t.Errorf("other bytes at %d", at)
						return
					}
					at += n
					// It is ours again: what the kernel wrote now would be seen.
					clear(part)
					runtime.Gosched()
					if len(bytes.Trim(part, "\x00")) > 0 {
						t.Error("the kernel wrote to a buffer that it had given back")
					}
					switch {
					case err == io.EOF:
						if at != total {
							t.Errorf("%d of %d bytes", at, total)
						}
						return
					case errors.Is(err, os.ErrDeadlineExceeded):
						if n > 0 {
							t.Error("bytes and an error")
						}
						expired.Add(1)
						if r.IntN(3) == 0 {
							must(t, b.SetReadDeadline(time.Time{}))
						}
					case err != nil:
						t.Error(err)
						return
					}
				}
			})
		}
		if err := soon(wg.Wait); err != nil {
			t.Fatal(err)
		}
		t.Log(reads.Load(), "reads;", expired.Load(), "deadlines passed")
		if expired.Load() == 0 {
			t.Error("no deadline has passed")
		}
	})
}

// Connections that are closed at any moment, by either end, under those who read and write.
func TestCloseStorm(t *testing.T) {
	each(t, func(t *testing.T, s stack, network string) {
		l := s.listener(t, network)
		var clients, server sync.WaitGroup
		server.Go(func() {
			var conns sync.WaitGroup
			defer conns.Wait()
			for {
				c, err := l.Accept()
				if err != nil {
					if !errors.Is(err, net.ErrClosed) {
						t.Error(err)
					}
					return
				}
				conns.Go(func() { mistreat(t, c, 1) })
			}
		})
		for g := range 200 {
			c := s.connect(t, l)
			clients.Go(func() { mistreat(t, c, uint64(g)) })
		}
		if err := soon(clients.Wait); err != nil {
			t.Fatal(err)
		}
		must(t, l.Close())
		if err := soon(server.Wait); err != nil {
			t.Fatal(err)
		}
	})
}

// mistreat reads and writes until somebody closes the connection.
func mistreat(t *testing.T, c net.Conn, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 4))
	var wg sync.WaitGroup
	use := func(f func(p []byte) (int, error)) {
		wg.Go(func() {
			p := make([]byte, 1<<16)
			for {
				if _, err := f(p); err != nil {
					if err != io.EOF && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	for range 1 + r.IntN(3) {
		use(c.Read)
		use(c.Write)
	}
	for range 1 + r.IntN(2) {
		pause := time.Duration(r.IntN(3000)) * time.Microsecond
		wg.Go(func() {
			time.Sleep(pause)
			if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// Accepts whose deadlines pass while others connect: no connection is lost, though an accept was given up.
func TestAcceptStorm(t *testing.T) {
	each(t, func(t *testing.T, s stack, network string) {
		l := s.listener(t, network)
		const count = 400
		var servers, clients sync.WaitGroup
		var accepted, expired atomic.Int64
		for g := range 3 {
			servers.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 5))
				for {
					must(t, l.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(time.Duration(r.IntN(200)-10)*time.Microsecond)))
					c, err := l.Accept()
					switch {
					case err == nil:
						if _, err := c.Write([]byte{1}); err != nil {
							t.Error(err)
						}
						must(t, c.Close())
						if accepted.Add(1) == count {
							return
						}
					case errors.Is(err, os.ErrDeadlineExceeded):
						expired.Add(1)
						if accepted.Load() == count {
							return
						}
					default:
						t.Error(err)
						return
					}
				}
			})
		}
		for range 8 {
			clients.Go(func() {
				for range count / 8 {
					c, err := s.dial(t.Context(), ringnet.Dialer{}, network, l.Addr().String())
					if errors.Is(err, syscall.EAGAIN) {
						t.Error("the queue is full") // It is much longer.
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					if got := readAll(t, c); got != "\x01" {
						t.Errorf("%q", got)
					}
					must(t, c.Close())
				}
			})
		}
		if err := soon(func() { clients.Wait(); servers.Wait() }); err != nil {
			t.Fatal(err)
		}
		t.Log(accepted.Load(), "accepted;", expired.Load(), "deadlines passed")
	})
}

// Closing a listener, or stopping a dial, under those who wait, again and again.
func TestListenersAndDialsThatEnd(t *testing.T) {
	each(t, func(t *testing.T, s stack, network string) {
		for range 50 {
			l := s.listener(t, network)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					for {
						c, err := l.Accept()
						if err != nil {
							if !errors.Is(err, net.ErrClosed) {
								t.Error(err)
							}
							return
						}
						must(t, c.Close())
					}
				})
			}
			for i := range 4 {
				wg.Go(func() {
					c, err := s.dial(t.Context(), ringnet.Dialer{Timeout: time.Duration(50+i*50) * time.Microsecond}, network, l.Addr().String())
					if err == nil {
						must(t, c.Close())
					}
				})
			}
			runtime.Gosched()
			must(t, l.Close())
			if err := soon(wg.Wait); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Thousands of connections, all waiting, then all busy at once.
func TestCrowd(t *testing.T) {
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Cur < limit.Max {
		limit.Cur = limit.Max
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	}
	count := 4000
	if testing.Short() || race.Enabled {
		count = 800
	}
	if room := int(min(limit.Cur, 1<<20)) - 200; 2*count > room {
		t.Logf("skipped: all but %d, since RLIMIT_NOFILE is %d", room/2, limit.Cur)
		count = room / 2
	}
	each(t, func(t *testing.T, s stack, network string) {
		l := s.listener(t, network)
		clients, servers := make([]net.Conn, count), make([]net.Conn, count)
		for i := range count {
			clients[i] = s.connect(t, l)
			c, err := l.Accept()
			must(t, err)
			servers[i] = c
			t.Cleanup(func() { _ = c.Close() })
		}
		var wg sync.WaitGroup
		var ready sync.WaitGroup
		for i := range count {
			ready.Add(1)
			wg.Go(func() {
				ready.Done()
				var p [8]byte
				for round := range 3 {
					if _, err := io.ReadFull(servers[i], p[:]); err != nil || binary.BigEndian.Uint64(p[:]) != uint64(i*10+round) {
						t.Error(i, round, p, err)
						return
					}
					if _, err := servers[i].Write(p[:]); err != nil {
						t.Error(err)
						return
					}
				}
				if n, err := servers[i].Read(p[:]); n != 0 || err != io.EOF {
					t.Error(n, err)
				}
			})
		}
		ready.Wait()
		for i := range count {
			wg.Go(func() {
				var p [8]byte
				for round := range 3 {
					binary.BigEndian.PutUint64(p[:], uint64(i*10+round))
					if _, err := clients[i].Write(p[:]); err != nil {
						t.Error(err)
						return
					}
					clear(p[:])
					if _, err := io.ReadFull(clients[i], p[:]); err != nil || binary.BigEndian.Uint64(p[:]) != uint64(i*10+round) {
						t.Error(i, round, p, err)
						return
					}
				}
				must(t, clients[i].Close())
			})
		}
		if err := soon(wg.Wait); err != nil {
			t.Fatal(err)
		}
		threads, err := os.ReadDir("/proc/self/task")
		must(t, err)
		if len(threads) > runtime.GOMAXPROCS(0)+32 {
			t.Errorf("%d threads", len(threads))
		}
	})
}

// A thread that ends takes what it has submitted with it. Nobody who waits notices.
func TestThreadsThatEnd(t *testing.T) {
	each(t, func(t *testing.T, s stack, network string) {
		const count = 64
		var readers, enders sync.WaitGroup
		var writers []net.Conn
		threads := make(chan int, count)
		for range count {
			a, b := s.pair(t, network)
			writers = append(writers, a)
			// What is begun last runs first. So the one that ends, and its thread with it, comes on the thread on which the
			// reader has submitted.
			enders.Go(func() {
				runtime.LockOSThread()
				threads <- syscall.Gettid()
			})
			readers.Go(func() {
				if got := readAll(t, b); got != "x" {
					t.Errorf("%q", got)
				}
			})
			runtime.Gosched()
		}
		enders.Wait()
		for range count {
			thread := fmt.Sprint("/proc/self/task/", <-threads)
			for range 100 { // The main thread stays.
				if _, err := os.Stat(thread); err != nil {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
		for _, a := range writers {
			_, err := a.Write([]byte("x"))
			must(t, err)
			must(t, a.Close())
		}
		if err := soon(readers.Wait); err != nil {
			t.Fatal(err)
		}
	})
}

// A connection that the program has forgotten is closed.
func TestForgotten(t *testing.T) {
	each(t, func(t *testing.T, s stack, network string) {
		l, err := s.listen(t.Context(), net.ListenConfig{}, network, map[string]string{"tcp": "127.0.0.1:0", "unix": fmt.Sprintf("@%s-%d", t.Name(), os.Getpid())}[network])
		must(t, err)
		forget(t, s, l)
		c, err := l.Accept()
		must(t, err)
		over := make(chan struct{})
		go func() {
			if got := readAll(t, c); got != "x" {
				t.Errorf("%q", got)
			}
			close(over)
		}()
		deadline := time.After(patience)
		for waiting := true; waiting; {
			runtime.GC()
			select {
			case <-over:
				waiting = false
			case <-deadline:
				t.Fatal("it is still open")
			case <-time.After(time.Millisecond):
			}
		}
		must(t, c.Close())
		must(t, l.Close())
	})
}

//go:noinline
func forget(t *testing.T, s stack, l net.Listener) {
	c, err := s.dial(t.Context(), ringnet.Dialer{}, l.Addr().Network(), l.Addr().String())
	must(t, err)
	_, err = c.Write([]byte("x"))
	must(t, err)
	must(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err = c.Read(make([]byte, 1))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// Two goroutines that write, and two that read: each write stays in one piece.
func TestTurns(t *testing.T) {
	each(t, func(t *testing.T, s stack, network string) {
		a, b := s.pair(t, network)
		const size, each = 300_000, 20
		var writers sync.WaitGroup
		for _, letter := range []byte("ab") {
			writers.Go(func() {
				p := bytes.Repeat([]byte{letter}, size)
				for range each {
					if n, err := a.Write(p); n != size || err != nil {
						t.Error(n, err)
					}
				}
			})
		}
		go func() { writers.Wait(); _ = a.Close() }()
		all := readAll(t, b)
		if len(all) != 2*size*each {
			t.Fatalf("%d bytes", len(all))
		}
		for at := 0; at < len(all); at += size {
			if piece := all[at:][:size]; bytes.Count([]byte(piece), []byte{piece[0]}) != size {
				t.Fatal("a write was broken up")
			}
		}
	})
}

// Close waits for those who use the descriptor, whose number may be another file's afterwards.
func TestCloseWaits(t *testing.T) {
	each(t, func(t *testing.T, s stack, network string) {
		a, _ := s.pair(t, network)
		raw, err := a.(syscall.Conn).SyscallConn()
		must(t, err)
		closed := make(chan error, 1)
		must(t, raw.Control(func(fd uintptr) {
			go func() { closed <- a.Close() }()
			for { // Until it has begun.
				if _, err := a.Write(nil); err != nil {
					break
				}
				runtime.Gosched()
			}
			time.Sleep(10 * time.Millisecond)
			select {
			case err := <-closed:
				t.Error("closed under a user", err)
				closed <- err
			default:
			}
			if _, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_TYPE); err != nil {
				t.Error(err)
			}
		}))
		must(t, <-closed)
	})
}

// What Close has closed is closed when it returns, though the kernel had an operation of it a moment ago.
func TestCloseIsDone(t *testing.T) {
	each(t, func(t *testing.T, s stack, network string) {
		for range 300 {
			l := s.listener(t, network)
			over := make(chan error, 1)
			go func() {
				_, err := l.Accept()
				over <- err
			}()
			if rand.IntN(2) == 0 {
				time.Sleep(50 * time.Microsecond)
			}
			must(t, l.Close())
			c, err := s.dial(t.Context(), ringnet.Dialer{}, network, l.Addr().String())
			if err == nil {
				t.Errorf("%v answers %v", c.RemoteAddr(), c.LocalAddr())
				must(t, c.Close())
			}
			if err := <-over; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			again, err := s.listen(t.Context(), net.ListenConfig{}, network, l.Addr().String())
			must(t, err)
			must(t, again.Close())
		}
	})
}
