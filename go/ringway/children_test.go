//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Engines in child processes: under limits, and without system calls that a sandbox refuses.

package ringway

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
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
	"github.com/ringway-io/ringway/go/internal/tests"
	"github.com/ringway-io/ringway/go/ring"
)

// children are what the test program does as its own child process. Each fails with fail.
var children = map[string]func(){
	"default": defaultRefused, "filtered": filtered, "filteredLater": filteredLater,
	"goroutines": manyGoroutines, "rings": manyRings, "shortage": shortOfMemory,
	"smallFiles": smallFiles, "unwatched": unwatchedQueues,
}

func TestMain(m *testing.M) {
	if child := os.Getenv("RINGWAY_TEST_CHILD"); child != "" {
		children[child]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fail ends a child process with an error, or does nothing without one.
func fail(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// value is the value of a call in a child process, which an error ends.
func value[T any](v T, err error) T {
	fail(err)
	return v
}

// runChild runs a child process, as an ordinary user if dir is not empty, and returns its output.
func runChild(t *testing.T, child, dir string, env ...string) string {
	t.Helper()
	self := get(os.Executable())(t)
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), "RINGWAY_TEST_CHILD="+child), env...)
	if dir != "" && os.Getuid() == 0 {
		runAsNobody(t, dir, cmd)
	}
	out, err := cmd.CombinedOutput()
	require(t, err == nil, "%v: %s", err, out)
	return string(out)
}

// runAsNobody makes a child process run as an ordinary user, and gives that user access to the
// program and the directory.
func runAsNobody(t *testing.T, dir string, cmd *exec.Cmd) {
	t.Helper()
	binary := filepath.Join(dir, "child")
	program := get(os.ReadFile(cmd.Path))(t)
	must(t, os.WriteFile(binary, program, 0o755))
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		must(t, os.Chmod(at, 0o755))
	}
	cmd.Path, cmd.Args[0] = binary, binary
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

// refuseCalls refuses the system calls that the environment names.
func refuseCalls() {
	var refused []uint32
	for _, call := range strings.Fields(os.Getenv("REFUSED")) {
		refused = append(refused, map[string]uint32{
			"io_uring_setup": 425,
			"io_uring_enter": 426,
			"io_setup":       uint32(syscall.SYS_IO_SETUP),
			"io_submit":      uint32(syscall.SYS_IO_SUBMIT),
			"io_destroy":     uint32(syscall.SYS_IO_DESTROY),
			"io_getevents":   uint32(syscall.SYS_IO_GETEVENTS),
		}[call])
	}
	fail(filter.Refuse(refused...))
}

// filtered reads while a seccomp filter refuses some system calls.
func filtered() {
	refuseCalls()
	e := value(New(Options{}))
	fmt.Println(e.Explain())
	name := os.Getenv("FILE")
	want := value(os.ReadFile(name))
	for _, flag := range []int{0, Direct} {
		f := value(e.OpenFile(name, os.O_RDONLY|flag, 0))
		tests.Together(50, func(g int) {
			p := make([]byte, 5000)
			n := value(f.ReadAt(p, int64(g)*100))
			if !bytes.Equal(p[:n], want[g*100:][:5000]) {
				fail(fmt.Errorf("wrong bytes: %d", n))
			}
		})
		fail(f.Close())
	}
	fail(e.Close())
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
		out := runChild(t, "filtered", "", "REFUSED="+refused, "FILE="+name, BackendEnv+"=")
		if !strings.HasPrefix(out, want) || refused != "" && !strings.Contains(out, "seccomp") {
			t.Errorf("without %s: wanted %s, explained: %s", refused, want, out)
		}
	}
}

// filteredLater reads, and refuses system calls in the middle of that.
func filteredLater() {
	time.AfterFunc(20*time.Second, func() { fail(errors.New("an operation never ends")) })
	e := value(New(Options{}))
	name := os.Getenv("FILE")
	want := value(os.ReadFile(name))
	f := value(e.OpenFile(name, os.O_RDONLY|Direct, 0))
	var all sync.WaitGroup
	var reads atomic.Int64
	var end atomic.Bool
	for g := range int64(32) {
		all.Go(func() {
			p := make([]byte, pageSize)
			for !end.Load() {
				n := value(f.ReadAt(p, g*pageSize))
				if !bytes.Equal(p[:n], want[g*pageSize:][:pageSize]) {
					fail(fmt.Errorf("wrong bytes: %d", n))
				}
				reads.Add(1)
			}
		})
	}
	await := func(more int64) {
		for until := reads.Load() + more; reads.Load() < until; {
			time.Sleep(time.Millisecond)
		}
	}
	await(500)
	refuseCalls()
	await(500)
	end.Store(true)
	all.Wait()
	fail(f.Close())
	_ = e.Close() // io_destroy may be refused.
}

// What is in flight when a program forbids system calls completes, and later reads do too.
func TestFiltersInstalledLater(t *testing.T) {
	name := fileWith(t, bytesOf(32*pageSize))
	for _, refused := range []string{
		"io_getevents", "io_submit", "io_uring_enter", "io_submit io_getevents io_uring_enter",
		"io_setup io_submit io_getevents io_destroy io_uring_setup io_uring_enter",
	} {
		for _, backend := range []Backend{BackendURing, BackendKAIO, BackendThreads} {
			runChild(t, "filteredLater", "", "REFUSED="+refused, "FILE="+name,
				BackendEnv+"="+string(backend))
		}
	}
}

// unwatchedQueues reads while the kernel lets Go's poller watch no more descriptors.
func unwatchedQueues() {
	r, _, err := os.Pipe() // The poller runs.
	fail(err)
	fail(r.Close())
	fail(filter.FailWith(syscall.ENOSPC, uint32(syscall.SYS_EPOLL_CTL)))
	time.AfterFunc(40*time.Second, func() { fail(errors.New("an operation never ends")) })
	e := value(New(Options{}))
	fmt.Println(e.Explain())
	f := value(e.OpenFile(os.Getenv("FILE"), os.O_RDONLY|Direct, 0))
	var all sync.WaitGroup
	for g := range int64(50) {
		all.Go(func() {
			for range 10 {
				value(f.ReadAt(make([]byte, pageSize), g*pageSize))
			}
		})
	}
	all.Wait()
}

// A queue whose completions nobody would learn of is not used: operations would never end.
func TestQueuesThatThePollerDoesNotWatch(t *testing.T) {
	name := fileWith(t, make([]byte, 1<<20))
	out := runChild(t, "unwatched", "", "FILE="+name, BackendEnv+"=")
	if !strings.HasPrefix(out, "backend threads") ||
		!strings.Contains(out, "io_uring refused: ENOSPC") ||
		!strings.Contains(out, "fs.epoll.max_user_watches") {
		t.Error(out)
	}
}

// defaultRefused has a RINGWAY_BACKEND that names no backend. Every function returns an error, and
// nothing panics.
func defaultRefused() {
	for what, err := range map[string]error{
		"Default": errorOf(Default()), "Open": errorOf(Open("/etc/passwd")),
		"DirFS": errorOf(DirFS("/etc").Open("passwd")), "NewFile": errorOf(NewFile(os.Stdin)),
		"Explain": errors.New(Explain()),
	} {
		if err == nil || !strings.Contains(err.Error(), "no backend is called") {
			fail(fmt.Errorf("%s: %w", what, err))
		}
	}
	NewBuffer(10).Release()
}

// The environment cannot select the queues of tests and benchmarks: with those, writes would be
// lost.
func TestDefaultRefused(t *testing.T) {
	for _, name := range []string{"nonsense", "null", "faulty", "Uring"} {
		runChild(t, "default", "", BackendEnv+"="+name)
	}
}

const (
	rlimitMemlock = 8
	memlock       = 8 << 20
)

// manyGoroutines may lock little memory. 100,000 goroutines read there.
func manyGoroutines() {
	fail(syscall.Setrlimit(rlimitMemlock, &syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10}))
	e := value(New(Options{AlwaysRing: true, FixedBuffers: 1 << 20}))
	fmt.Println(e.Explain())
	if e.Backend() == BackendURing && !strings.Contains(e.Explain(),
		"fixed buffers refused: ENOMEM") {
		fail(errors.New("1 MiB was registered, of 64 KiB that may be locked"))
	}
	want := value(os.ReadFile(os.Getenv("FILE")))
	f := value(e.Open(os.Getenv("FILE")))
	const count = 100_000
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
				if value(f.ReadAt(p, int64(off))); !bytes.Equal(p, want[off:][:512]) {
					fail(errors.New("wrong bytes"))
				}
			}
		})
	}
	ready.Wait()
	close(begin)
	most, over := 0, atomic.Bool{}
	go func() { done.Wait(); over.Store(true) }()
	for ; !over.Load(); time.Sleep(5 * time.Millisecond) {
		threads, _ := os.ReadDir("/proc/self/task")
		most = max(most, len(threads))
	}
	if fmt.Println("threads:", most); most > runtime.GOMAXPROCS(0)+16 {
		fail(errors.New("too many"))
	}
}

func TestManyGoroutines(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("skipped: the race detector takes 8128 goroutines at most, and -short is for less")
	}
	name := fileWith(t, bytesOf(1<<20))
	must(t, os.Chmod(name, 0o644))
	// Root may lock any amount of memory.
	t.Log(runChild(t, "goroutines", filepath.Dir(name), "FILE="+name))
}

// While the kernel takes no submissions, for lack of memory for example, plain calls do them after
// a while: nothing is lost, and nothing fails.
func TestShortage(t *testing.T) {
	name := fileWith(t, make([]byte, 1<<20))
	for _, backend := range queueBackends {
		for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.EBUSY, syscall.ENOMEM} {
			runChild(t, "shortage", "", "FILE="+name, "BACKEND="+string(backend),
				"ERRNO="+strconv.Itoa(int(errno)))
		}
	}
}

func shortOfMemory() {
	e := value(New(Options{Backend: Backend(os.Getenv("BACKEND")), AlwaysRing: true}))
	f := value(e.OpenFile(os.Getenv("FILE"), os.O_RDWR|Direct, 0))
	const enter = 426
	fail(filter.FailWith(syscall.Errno(value(strconv.Atoi(os.Getenv("ERRNO")))), enter,
		uint32(syscall.SYS_IO_SUBMIT)))
	time.AfterFunc(40*time.Second, func() { fail(errors.New("an operation never ends")) })
	var all sync.WaitGroup
	for g := range int64(50) {
		all.Go(func() {
			p := make([]byte, pageSize)
			value(f.ReadAt(p, g*pageSize))
			fail(f.WriteBatch([]Transfer{{P: p, Off: g * pageSize}}, DataSync))
		})
	}
	all.Wait()
}

// smallFiles may not write files, with SIGXFSZ ignored or as Go handles it.
func smallFiles() {
	if os.Getenv("IGNORED") != "" {
		signal.Ignore(syscall.SIGXFSZ)
	}
	fail(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{}))
	for _, backend := range testBackends {
		e := value(New(Options{Backend: backend}))
		f := value(e.Open("/proc/self/exe"))
		value(f.ReadAt(make([]byte, 5000), 100))
		fail(errors.Join(f.Close(), e.Close()))
		fmt.Println(backend)
	}
}

// No backend needs to write a file, so the limit makes none of them unavailable.
func TestBackendsWriteNoFile(t *testing.T) {
	for _, ignored := range []string{"", "yes"} {
		for _, dir := range []string{"", t.TempDir()} {
			out := runChild(t, "smallFiles", dir, "IGNORED="+ignored, BackendEnv+"=")
			if want := "uring\nkaio\nthreads\n"; !strings.HasSuffix(out, want) {
				t.Errorf("SIGXFSZ ignored %q, ordinary user %v: %s", ignored, dir != "", out)
			}
		}
	}
}

// manyRings makes rings as fast as it closes them. The kernel gives the memory of a closed ring
// back some milliseconds later.
func manyRings() {
	fail(syscall.Setrlimit(rlimitMemlock, &syscall.Rlimit{Cur: memlock, Max: memlock}))
	for range 100 {
		r := value(ring.New(ring.Options{Entries: 4096}))
		for _, refusal := range r.Refusals() {
			if refusal.Errno == syscall.ENOMEM {
				fail(refusal)
			}
		}
		fail(r.Close())
	}
}

func TestRingsOfAnOrdinaryUser(t *testing.T) {
	if r, err := ring.New(ring.Options{}); err != nil {
		skip.Test(t, "no io_uring: ", err)
	} else {
		must(t, r.Close())
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(rlimitMemlock, &limit); err != nil || limit.Max < memlock {
		skip.Test(t, "8 MiB of memory may not be locked here: ", limit, err)
	}
	runChild(t, "rings", t.TempDir())
}
