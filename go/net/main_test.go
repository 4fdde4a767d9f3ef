//go:build linux

package net_test

// What the tests share: two stacks that have to behave alike, and a program that can be its own child.

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/filter"
	ringnet "github.com/ringway-io/ringway/go/net"
	"github.com/ringway-io/ringway/go/ringway"
)

// patience is for what has to come. Nothing is concluded from how long it takes.
const patience = 30 * time.Second

// TestMain lets this program run its tests as a child that a filter keeps from io_uring.
func TestMain(m *testing.M) {
	if os.Getenv("RINGWAY_TEST_FILTER") != "" {
		if err := filter.Refuse(425); err != nil { // io_uring_setup
			fmt.Println(err)
			os.Exit(1)
		}
	}
	if os.Getenv("RINGWAY_TEST_EXPLAIN") != "" {
		fmt.Println(ringnet.Explain())
		_, err := ringnet.Listen("tcp", "127.0.0.1:0")
		fmt.Println("listen:", err)
		_, err = ringnet.Dial("tcp", "127.0.0.1:1")
		fmt.Println("dial:", err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child runs this program again.
func child(t *testing.T, arguments []string, env ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, arguments...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// A stack is a package of sockets: the one that is tested, or the one that it has to be like.
type stack struct {
	name   string
	listen func(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error)
	dial   func(ctx context.Context, d ringnet.Dialer, network, address string) (net.Conn, error)
}

var stacks = []stack{
	{
		"ring",
		func(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error) {
			return (*ringnet.ListenConfig)(&lc).Listen(ctx, network, address)
		},
		func(ctx context.Context, d ringnet.Dialer, network, address string) (net.Conn, error) {
			return d.DialContext(ctx, network, address)
		},
	},
	{
		"standard",
		func(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error) {
			return lc.Listen(ctx, network, address)
		},
		func(ctx context.Context, d ringnet.Dialer, network, address string) (net.Conn, error) {
			standard := net.Dialer{Timeout: d.Timeout, Deadline: d.Deadline, LocalAddr: d.LocalAddr, KeepAlive: d.KeepAlive,
				KeepAliveConfig: d.KeepAliveConfig, Resolver: d.Resolver, ControlContext: d.ControlContext}
			return standard.DialContext(ctx, network, address)
		},
	},
}

var networks = []string{"tcp", "unix"}

// each runs a test on both stacks and both kinds of sockets, and looks whether it has left something behind.
func each(t *testing.T, test func(t *testing.T, s stack, network string)) {
	for _, s := range stacks {
		for _, network := range networks {
			t.Run(s.name+"/"+network, func(t *testing.T) {
				noLeaks(t)
				test(t, s, network)
			})
		}
	}
}

// noLeaks looks at the end of a test whether descriptors and goroutines are as many as before.
func noLeaks(t *testing.T) {
	ringnet.Explain() // The rings are made once, and stay.
	runtime.GC()      // What others have forgotten.
	fds, goroutines := descriptors(t), runtime.NumGoroutine()
	t.Cleanup(func() {
		deadline := time.Now().Add(patience)
		for (descriptors(t) > fds || runtime.NumGoroutine() > goroutines) && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if d, g := descriptors(t), runtime.NumGoroutine(); d > fds || g > goroutines {
			stacks := make([]byte, 1<<16)
			t.Errorf("%d descriptors before, %d after; %d goroutines before, %d after\n%s", fds, d, goroutines, g,
				stacks[:runtime.Stack(stacks, true)])
		}
	})
}

func descriptors(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func (s stack) listener(t testing.TB, network string) net.Listener {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := s.listen(t.Context(), net.ListenConfig{}, network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func (s stack) connect(t testing.TB, l net.Listener) net.Conn {
	t.Helper()
	c, err := s.dial(t.Context(), ringnet.Dialer{}, l.Addr().Network(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// pair is the two ends of a connection: who has dialled, and who has accepted.
func (s stack) pair(t testing.TB, network string) (dialled, accepted net.Conn) {
	t.Helper()
	l := s.listener(t, network)
	dialled = s.connect(t, l)
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dialled, accepted
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// soon is nil, or that f did not return.
func soon(f func()) error {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("it still waits")
	}
}

// The rings are what the tests are for: without them they would look at the standard package twice.
func TestBackend(t *testing.T) {
	t.Log(ringnet.Explain())
	ring := strings.HasPrefix(ringnet.Explain(), "backend uring")
	wanted := os.Getenv(ringway.BackendEnv)
	switch {
	case wanted == "kaio" || wanted == "threads" || os.Getenv("RINGWAY_TEST_FILTER") != "":
		if ring {
			t.Fatal("a ring nevertheless")
		}
	case !ring:
		if os.Getenv("CI") != "" {
			t.Fatal("no ring")
		}
		t.Skip("skipped: no ring, only the standard package")
	}
	l := stacks[0].listener(t, "tcp")
	if _, ok := l.(*ringnet.Listener); ok != ring {
		t.Fatalf("%T", l)
	}
	c := stacks[0].connect(t, l)
	if _, ok := c.(*ringnet.TCPConn); ok != ring {
		t.Fatalf("%T", c)
	}
}

func TestForcedBackends(t *testing.T) {
	explain := func(env ...string) string { return child(t, nil, append(env, "RINGWAY_TEST_EXPLAIN=1")...) }
	for _, backend := range []string{"kaio", "threads"} {
		out := explain(ringway.BackendEnv + "=" + backend)
		if !strings.HasPrefix(out, "package net, since RINGWAY_BACKEND is "+backend) || !strings.Contains(out, "listen: <nil>") {
			t.Error(out)
		}
	}
	for _, env := range [][]string{
		{ringway.BackendEnv + "=nonsense"},
		{ringway.BackendEnv + "=uring", "RINGWAY_TEST_FILTER=1"},
	} {
		out := explain(env...)
		if strings.Contains(out, "<nil>") || strings.Contains(out, "refused: connection") ||
			!strings.Contains(out, "nonsense") && !strings.Contains(out, "seccomp") {
			t.Error(out)
		}
	}
}

// Where a filter keeps io_uring away, the same tests pass.
func TestFiltered(t *testing.T) {
	if os.Getenv("RINGWAY_TEST_FILTER") != "" {
		return
	}
	out := child(t, []string{"-test.v", "-test.run", "^(TestBackend|TestAsTheStandardPackage|TestHTTP|TestTLS)$"},
		"RINGWAY_TEST_FILTER=1", ringway.BackendEnv+"=")
	if !strings.Contains(out, "seccomp") || strings.Contains(out, "backend uring") || !strings.Contains(out, "--- PASS: TestHTTP") {
		t.Fatal(out)
	}
}

// readAll reads until the end.
func readAll(t testing.TB, c net.Conn) string {
	t.Helper()
	all, err := io.ReadAll(c)
	if err != nil {
		t.Error(err)
	}
	return string(all)
}
