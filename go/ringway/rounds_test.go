//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// How many rounds a goroutine makes for others, and how many an operation takes. Counted, on queues without a kernel.

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// goroutine is what the runtime calls the one that asks.
func goroutine() string {
	var stack [64]byte
	return string(bytes.Fields(stack[:runtime.Stack(stack[:], false)])[1])
}

// instant completes everything as soon as it is submitted.
type instant struct {
	pushed []*request
	after  func() // Of each submission.
	short  int    // So many submissions are not taken first.
}

func (q *instant) room() int       { return largest }
func (q *instant) push(r *request) { q.pushed = append(q.pushed, r) }
func (q *instant) cancel(*request) {}
func (q *instant) submit(bool) bool {
	q.after()
	q.short--
	return q.short < 0
}
func (q *instant) reap(done []*request) []*request {
	if q.short >= 0 {
		return done
	}
	done = append(done, q.pushed...)
	q.pushed = q.pushed[:0]
	return done
}
func (q *instant) why() syscall.Errno { return 0 }
func (q *instant) ready(uintptr)      {}
func (q *instant) close() error       { return nil }

// Others submit without end while a goroutine is in the turnstile: it makes a bounded number of rounds for them, in which it
// moves a bounded number of operations, and another goes on from there. It does not wait for a kernel that is short of something.
func TestRoundsAreBounded(t *testing.T) {
	for _, c := range []struct {
		name        string
		group, most int
		short       int // Submissions that the kernel does not take.
	}{
		{"one by one", 1, maxRounds, 0},
		{"in large groups", largest, maxMoved / (2 * largest), 0}, // Each operation is submitted and reaped.
		{"a kernel short of memory", 1, 1, 5},
	} {
		t.Run(c.name, func(t *testing.T) { roundsAreBounded(t, c.group, c.most, c.short) })
	}
}

func roundsAreBounded(t *testing.T, group, most, short int) {
	const total = 5000
	var s *shard
	var mu sync.Mutex
	rounds := map[string]int{}
	left := total
	over := make(chan struct{})
	submit := func() { // As another goroutine does meanwhile.
		all := make([]*request, group)
		for i := range all {
			all[i] = newRequest(read, 0, nil, 0)
		}
		s.submit(true, all...)
	}
	q := &instant{short: short, after: func() {
		mu.Lock()
		rounds[goroutine()]++
		left--
		now := left
		mu.Unlock()
		if now == 0 {
			close(over)
		}
		if now > 0 {
			submit()
		}
	}}
	fds := make([]int, 2)
	if err := syscall.Pipe(fds); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fds[1])
	defer syscall.Close(fds[0])
	s, err := newShard(q, fds[0], 256)
	if err != nil {
		t.Fatal(err)
	}
	submit()
	mu.Lock()
	mine := rounds[goroutine()]
	mu.Unlock()
	if mine == 0 || mine > most {
		t.Errorf("%d rounds for others, where %d are the most", mine, most)
	}
	select {
	case <-over:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody went on")
	}
	if err := s.close(time.Now().Add(closeWait), closeWait/5); err != nil {
		t.Fatal(err)
	}
}

// narrow is a queue that has less room than was asked for, as a KAIO context where fs.aio-max-nr is short.
type narrow struct {
	queue
	inFlight, most int
	submissions    atomic.Int64
}

func (q *narrow) room() int { return min(q.queue.room(), q.most-q.inFlight) }

func (q *narrow) push(r *request) {
	q.inFlight += r.count()
	q.queue.push(r)
}

func (q *narrow) submit(light bool) bool {
	q.submissions.Add(1)
	return q.queue.submit(light)
}

func (q *narrow) reap(done []*request) []*request {
	before := len(done)
	done = q.queue.reap(done)
	q.inFlight -= len(done) - before
	return done
}

// A queue smaller than the pace would have it: those that wait for room wait, and nobody spins.
func TestNarrowQueue(t *testing.T) {
	for _, backend := range []Backend{Uring, KAIO} {
		q := &narrow{most: 32}
		e, err := New(Options{Backend: backend, AlwaysRing: true, Rings: 1, InFlight: 192, wrap: func(inner queue) queue {
			q.queue = inner
			return q
		}})
		if err != nil {
			skip.Test(t, err)
		}
		name := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(name, make([]byte, 4<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := e.OpenFile(name, os.O_RDONLY|syscall.O_DIRECT, 0)
		if err != nil {
			skip.Test(t, "no direct I/O here: ", err)
		}
		const readers, each = 128, 50
		var wg sync.WaitGroup
		for g := range readers {
			wg.Go(func() {
				p := alignedSlice(pageSize, pageSize)
				for i := range each {
					if n, err := f.ReadAt(p, int64((g*each+i)%1024)*pageSize); n != pageSize || err != nil {
						t.Error(n, err)
					}
				}
			})
		}
		wg.Wait()
		n := q.submissions.Load()
		t.Logf("%s: %.2f rounds an operation", backend, float64(n)/(readers*each))
		if n > 2*readers*each {
			t.Errorf("%s: %d rounds for %d operations", backend, n, readers*each)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCrowdOfTransfers(t *testing.T) {
	var c crowd
	rounds := func(n int) {
		for i := range crowdRounds {
			if i == crowdRounds/2 { // The others have just been woken, and have not asked for more yet.
				c.seen(n)
			}
			c.round()
		}
	}
	c.set(true)
	for range 3 {
		if rounds(fewest + 1); !c.many.Load() {
			t.Fatal("they are many still")
		}
	}
	if rounds(fewest); c.many.Load() {
		t.Fatal("they are few")
	}
	if rounds(fewest + 1); !c.many.Load() {
		t.Fatal("they are many")
	}
}

// A few transfers are plain calls, and no more of them than the bound, whether they end or hang. What is beyond goes by the
// ring, and so does everything until there are few again.
func TestFewArePlain(t *testing.T) {
	for _, backend := range []Backend{Uring, KAIO} {
		e, err := New(Options{Backend: backend, Rings: 1})
		if err != nil {
			skip.Test(t, err)
		}
		name := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(name, make([]byte, pageSize), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := e.OpenFile(name, os.O_RDONLY|syscall.O_DIRECT, 0)
		if err != nil {
			skip.Test(t, "no direct I/O here: ", err)
		}
		p := alignedSlice(pageSize, pageSize)
		pushed := func() uint64 {
			if n, err := f.ReadAt(p, 0); n != pageSize || err != nil {
				t.Fatal(n, err)
			}
			return e.Stats().Pushed
		}
		for range 100 {
			if n := pushed(); n != 0 || e.plain.Load() != 0 {
				t.Fatalf("%s: one alone: %d by the ring, %d under way", backend, n, e.plain.Load())
			}
		}
		e.plain.Store(fewest) // They hang.
		if n := pushed(); n != 1 || e.plain.Load() != fewest {
			t.Fatalf("%s: beside a few that hang: %d by the ring, %d plain ones", backend, n, e.plain.Load())
		}
		e.plain.Store(0) // They have ended.
		n := pushed()
		if n != 2 {
			t.Fatalf("%s: just after a crowd: %d by the ring", backend, n)
		}
		for range crowdRounds {
			n = pushed()
		}
		if again := pushed(); again != n {
			t.Errorf("%s: one alone, long after a crowd, goes by the ring", backend)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// quietQueue completes everything that it is given, and nobody is told: its descriptor never becomes readable.
type quietQueue struct {
	instant
	inFlight []*request
}

func (q *quietQueue) room() int { return 4 - len(q.inFlight) - len(q.pushed) }

func (q *quietQueue) submit(bool) bool { return true }

func (q *quietQueue) reap(done []*request) []*request {
	done = append(done, q.inFlight...)
	q.inFlight, q.pushed = q.pushed, q.inFlight[:0]
	return done
}

// The reaper may wait for a processor for long, behind very many goroutines. What has completed meanwhile is reaped all the
// same, and those that wait for room are not taken for stuck.
func TestLateReaper(t *testing.T) {
	fds := make([]int, 2)
	if err := syscall.Pipe(fds); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fds[1])
	defer syscall.Close(fds[0])
	s, err := newShard(&quietQueue{}, fds[0], 256)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*request, 40)
	for i := range all {
		all[i] = newRequest(read, 0, nil, 0)
		all[i].own.left.Store(1)
	}
	s.submit(true, all...)
	for i, r := range all {
		if i == len(all)-4 { // The last ones have nobody behind them, who would wait for room.
			if _, err := syscall.Write(fds[1], []byte{0}); err != nil {
				t.Fatal(err)
			}
		}
		<-r.own.done
		if r.result == cannotCarry {
			t.Fatalf("request %d was refused", i)
		}
	}
	if err := s.close(time.Now().Add(closeWait), closeWait/5); err != nil {
		t.Fatal(err)
	}
}
