//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Storms of cancels, garbage collections, limits, and system calls that a sandbox refuses.

package ringway

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/filter"
	"github.com/ringway-io/ringway/go/internal/race"
	"github.com/ringway-io/ringway/go/internal/skip"
)

// TestMain lets the test program run as its own child process, under limits and filters.
func TestMain(m *testing.M) {
	if child := os.Getenv("RINGWAY_TEST_CHILD"); child != "" {
		if err := children[child](); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var children = map[string]func() error{
	"default":    defaultRefused,
	"filtered":   filtered,
	"goroutines": manyGoroutines,
	"rings":      manyRings,
	"shortage":   shortOfMemory,

	"smallFiles": smallFiles,
}

// runChild runs a child process and returns its output.
func runChild(t *testing.T, child string, change func(*exec.Cmd), env ...string) string {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), "RINGWAY_TEST_CHILD="+child), env...)
	if change != nil {
		change(cmd)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// Reads into buffers on stacks that grow and shrink, while the garbage collector runs.
func TestStacksAndCollections(t *testing.T) {
	content := bytesOf(1 << 20)
	name := fileWith(t, content)
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, name, os.O_RDONLY|direct)
		stop := make(chan struct{})
		var collector, readers sync.WaitGroup
		collector.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.GC()
				}
			}
		})
		for g := range 32 {
			readers.Go(func() {
				random := rand.New(rand.NewPCG(uint64(g), 2))
				for range 60 {
					var p [3000]byte // As far as the compiler knows, this may be on the stack.
					off := random.Int64N(1<<20 - 3000)
					grow(random.IntN(200))
					n, err := f.ReadAt(p[:], off)
					grow(random.IntN(200))
					if n != len(p) || err != nil || !bytes.Equal(p[:], content[off:off+3000]) {
						t.Error("wrong bytes", n, err)
						return
					}
				}
			})
		}
		readers.Wait()
		close(stop)
		collector.Wait()
	})
}

//go:noinline
func grow(n int) byte {
	var frame [512]byte
	frame[n] = byte(n)
	if n > 0 {
		frame[0] = grow(n - 1)
	}
	return frame[n]
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(all)
}

func TestNothingLeaks(t *testing.T) {
	name := fileWith(t, bytesOf(1<<16))
	for _, backend := range testBackends {
		t.Run(string(backend), func(t *testing.T) {
			once := func() {
				e, err := New(Options{Backend: backend, AlwaysRing: true, Rings: 2})
				if err != nil {
					skip.Test(t, err)
				}
				f, err := e.Open(name)
				must(t, err)
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() { _, _ = f.ReadAt(make([]byte, 5000), 100) })
				}
				wg.Wait()
				f.Close()
				must(t, e.Close())
			}
			once()
			fds, goroutines := descriptors(t), runtime.NumGoroutine()
			for range 30 {
				once()
			}
			deadline := time.Now().Add(5 * time.Second)
			for (descriptors(t) > fds || runtime.NumGoroutine() > goroutines) &&
				time.Now().Before(deadline) {
				time.Sleep(time.Millisecond)
			}
			if d, g := descriptors(t), runtime.NumGoroutine(); d > fds || g > goroutines {
				t.Fatalf("%d descriptors before, %d after; %d goroutines before, %d after", fds, d,
					goroutines, g)
			}
		})
	}
}

// filtered runs in a child process. A seccomp filter refuses some system calls there, and the child
// reads.
func filtered() error {
	var refused []uint32
	for _, call := range strings.Fields(os.Getenv("REFUSED")) {
		refused = append(refused, map[string]uint32{
			"io_uring_setup": 425, "io_uring_enter": 426, "io_setup": uint32(syscall.SYS_IO_SETUP),
			"io_submit": uint32(syscall.SYS_IO_SUBMIT),
		}[call])
	}
	if err := filter.Refuse(refused...); err != nil {
		return err
	}
	e, err := New(Options{})
	if err != nil {
		return err
	}
	fmt.Println(e.Explain())
	name := os.Getenv("FILE")
	want, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for _, flag := range []int{0, Direct} {
		f, err := e.OpenFile(name, os.O_RDONLY|flag, 0)
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		var failed atomic.Pointer[error]
		for g := range 50 {
			wg.Go(func() {
				p := make([]byte, 5000)
				if n, err := f.ReadAt(p, int64(g)*100); err != nil ||
					!bytes.Equal(p[:n], want[g*100:][:5000]) {
					err := fmt.Errorf("reading: %d, %w", n, err)
					failed.Store(&err)
				}
			})
		}
		wg.Wait()
		if err := failed.Load(); err != nil {
			return *err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return e.Close()
}

func TestSeccompFilters(t *testing.T) {
	name := fileWith(t, bytesOf(20_000))
	for refused, want := range map[string]string{
		"":               "backend uring",
		"io_uring_setup": "backend kaio",
		// A ring can be set up, but every operation on it is refused.
		"io_uring_enter":           "backend kaio",
		"io_uring_setup io_setup":  "backend threads",
		"io_uring_setup io_submit": "backend threads",
	} {
		t.Run("without "+refused, func(t *testing.T) {
			out := runChild(t, "filtered", nil, "REFUSED="+refused, "FILE="+name,
				BackendEnv+"=")
			if !strings.HasPrefix(out, want) {
				t.Fatalf("wanted %s: %s", want, out)
			}
			if refused != "" && !strings.Contains(out, "seccomp") {
				t.Fatalf("not explained: %s", out)
			}
		})
	}
}

// defaultRefused runs in a child process whose RINGWAY_BACKEND names no backend. Every function
// returns an error, and nothing panics.
func defaultRefused() error {
	if _, err := Default(); err == nil {
		return errors.New("there is a default engine")
	}
	if _, err := Open("/etc/passwd"); err == nil ||
		!strings.Contains(err.Error(), "no backend is called") {
		return fmt.Errorf("open: %v", err)
	}
	if _, err := DirFS("/etc").Open("passwd"); err == nil ||
		!strings.Contains(err.Error(), "no backend is called") {
		return fmt.Errorf("open of an FS: %v", err)
	}
	if text := Explain(); !strings.Contains(text, "no backend is called") {
		return errors.New(text)
	}
	NewBuffer(10).Release()
	return nil
}

// The environment cannot select the queues of tests and benchmarks: with those, writes would be
// lost.
func TestDefaultRefused(t *testing.T) {
	for _, name := range []string{"nonsense", "null", "faulty", "Uring"} {
		runChild(t, "default", nil, BackendEnv+"="+name)
	}
}

// manyGoroutines runs in a child process that may lock little memory. 100,000 goroutines read
// there.
func manyGoroutines() error {
	limit := syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10}
	const memlock = 8
	if err := syscall.Setrlimit(memlock, &limit); err != nil {
		return err
	}
	e, err := New(Options{AlwaysRing: true, FixedBuffers: 1 << 20})
	if err != nil {
		return err
	}
	fmt.Println(e.Explain())
	if e.Backend() == BackendURing && !strings.Contains(e.Explain(),
		"fixed buffers refused: ENOMEM") {
		return errors.New("1 MiB was registered, of 64 KiB that may be locked")
	}
	name := os.Getenv("FILE")
	want, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	f, err := e.Open(name)
	if err != nil {
		return err
	}
	const count = 100_000
	var wrong atomic.Int64
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for g := range count {
		ready.Add(1)
		done.Go(func() {
			p := make([]byte, 512)
			ready.Done()
			<-begin
			for i := range 3 {
				off := (g*7 + i*1000) % (len(want) - 512)
				if n, err := f.ReadAt(p, int64(off)); n != 512 || err != nil ||
					!bytes.Equal(p, want[off:][:512]) {
					wrong.Add(1)
				}
			}
		})
	}
	ready.Wait()
	close(begin)
	most := 0
	finished := make(chan struct{})
	go func() { done.Wait(); close(finished) }()
	for {
		threads, _ := os.ReadDir("/proc/self/task")
		most = max(most, len(threads))
		select {
		case <-finished:
			if n := wrong.Load(); n > 0 {
				return fmt.Errorf("%d wrong results", n)
			}
			if most > runtime.GOMAXPROCS(0)+16 {
				return fmt.Errorf("%d threads", most)
			}
			fmt.Println("threads:", most)
			return nil
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestManyGoroutines(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("skipped: the race detector takes 8128 goroutines at most, and -short is for less")
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	must(t, os.WriteFile(name, bytesOf(1<<20), 0o644))
	out := runChild(t, "goroutines", func(cmd *exec.Cmd) {
		if os.Getuid() == 0 {
			runAsNobody(t, dir, cmd) // Root may lock any amount of memory.
		}
	}, "FILE="+name)
	t.Log(out)
}

// runAsNobody makes a child process run as an ordinary user, and gives that user access to the
// program and the directory.
func runAsNobody(t *testing.T, dir string, cmd *exec.Cmd) {
	t.Helper()
	binary := filepath.Join(dir, "child")
	program, err := os.ReadFile(cmd.Path)
	must(t, err)
	must(t, os.WriteFile(binary, program, 0o755))
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		must(t, os.Chmod(at, 0o755))
	}
	cmd.Path, cmd.Args[0] = binary, binary
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

// While the kernel takes no submissions, for lack of memory for example, plain calls do them after
// a while: nothing is lost, and nothing fails.
func TestShortage(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(name, make([]byte, 1<<20), 0o600))
	for _, backend := range []Backend{BackendURing, BackendKAIO} {
		for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.EBUSY, syscall.ENOMEM} {
			t.Run(fmt.Sprint(backend, ", ", errno), func(t *testing.T) {
				runChild(t, "shortage", nil, "FILE="+name, "BACKEND="+string(backend),
					"ERRNO="+strconv.Itoa(int(errno)))
			})
		}
	}
}

func shortOfMemory() error {
	e, err := New(Options{
		Backend: Backend(os.Getenv("BACKEND")), AlwaysRing: true,
	})
	if err != nil {
		return err
	}
	f, err := e.OpenFile(os.Getenv("FILE"), os.O_RDWR|Direct, 0)
	if err != nil {
		return err
	}
	errno, err := strconv.Atoi(os.Getenv("ERRNO"))
	if err != nil {
		return err
	}
	const enter = 426
	err = filter.FailWith(syscall.Errno(errno), enter, uint32(syscall.SYS_IO_SUBMIT))
	if err != nil {
		return err
	}
	results := make(chan error)
	for g := range 50 {
		go func() {
			p := make([]byte, 4096)
			_, err := f.ReadAt(p, int64(g)*4096)
			if err == nil {
				batch := []Transfer{{P: p, Off: int64(g) * 4096}}
				err = f.WriteBatch(batch, DataSync)
			}
			results <- err
		}()
	}
	end := time.After(40 * time.Second)
	for range 50 {
		select {
		case err := <-results:
			if err != nil {
				return err
			}
		case <-end:
			return errors.New("an operation never ends")
		}
	}
	return nil
}
