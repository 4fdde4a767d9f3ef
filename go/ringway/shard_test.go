//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The work of combiners and of the reaper, counted on queues without a kernel.

package ringway

import (
	"bytes"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/tests"
)

// goroutine returns the runtime's number of the calling goroutine.
func goroutine() string {
	var stack [64]byte
	return string(bytes.Fields(stack[:runtime.Stack(stack[:], false)])[1])
}

// instant is a queue that completes each request when it is submitted.
type instant struct {
	pushed []*request
	after  func() // Called in each submission of requests.
	short  int    // How many submissions are refused first.
}

func (q *instant) capacity() int { return largestGroup }

func (q *instant) push(r *request) { q.pushed = append(q.pushed, r) }

func (q *instant) cancel(*request) {}

func (q *instant) submit() bool {
	if len(q.pushed) == 0 {
		return true // The first round of the reaper.
	}
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

func (q *instant) refusedWith() syscall.Errno { return 0 }

func (q *instant) readable(uintptr) {}

func (q *instant) close() error { return nil }

// pipeShard makes a shard over a queue whose descriptor is a pipe. Its reaper is idle.
func pipeShard(t *testing.T, q queue) (s *shard, becomeReadable func()) {
	t.Helper()
	var fds [2]int
	must(t, syscall.Pipe2(fds[:], syscall.O_CLOEXEC))
	t.Cleanup(func() {
		_ = syscall.Close(fds[0])
		_ = syscall.Close(fds[1])
	})
	s = get(newShard(q, fds[0], 256))(t)
	// The reaper must not be the combiner when the test begins.
	eventually(t, "the first round of the reaper", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.counts.Submissions > 0 && !s.combining && !s.reaperActive
	})
	return s, func() {
		check(t, errorOf(syscall.Write(fds[1], []byte{0})))
	}
}

// While other goroutines submit without end, a combiner makes a bounded number of rounds, in which
// it moves a bounded number of operations. Another goroutine takes over from there. The combiner
// does not wait for a kernel that is short of memory.
func TestCombinerIsBounded(t *testing.T) {
	for _, c := range []struct {
		name        string
		group, most int
		short       int // How many submissions are refused first.
	}{
		{"one by one", 1, maxRounds, 0},
		// Each operation is submitted and reaped.
		{"in large groups", largestGroup, maxMoved / (2 * largestGroup), 0},
		{"a kernel short of memory", 1, 1, 5},
	} {
		t.Run(c.name, func(t *testing.T) { combinerIsBounded(t, c.group, c.most, c.short) })
	}
}

func combinerIsBounded(t *testing.T, group, most, short int) {
	const total = 5000
	var s *shard
	var mu sync.Mutex
	rounds := map[string]int{}
	left := total
	over := make(chan struct{})
	submit := func() { // As another goroutine does at the same time.
		all := make([]*request, group)
		for i := range all {
			all[i] = newRequest(opRead, 0, nil, 0)
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
	s, _ = pipeShard(t, q)
	submit()
	mu.Lock()
	mine := rounds[goroutine()]
	mu.Unlock()
	expect(t, mine != 0 && mine <= most, "%d rounds for others; the limit is %d", mine, most)
	select {
	case <-over:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody took over")
	}
	must(t, s.close(time.Now().Add(closeWait), closeWait/5))
}

// narrow is a queue with less capacity than was asked for, like a Linux AIO context when
// fs.aio-max-nr is almost used up.
type narrow struct {
	queue
	inFlight, most int
	submissions    atomic.Int64
}

func (q *narrow) capacity() int { return min(q.queue.capacity(), q.most-q.inFlight) }

func (q *narrow) push(r *request) {
	q.inFlight += r.count()
	q.queue.push(r)
}

func (q *narrow) submit() bool {
	q.submissions.Add(1)
	return q.queue.submit()
}

func (q *narrow) reap(done []*request) []*request {
	before := len(done)
	done = q.queue.reap(done)
	q.inFlight -= len(done) - before
	return done
}

// With a queue smaller than the limit of operations in flight, operations wait for capacity, and no
// goroutine spins.
func TestSmallQueue(t *testing.T) {
	for _, backend := range queueBackends {
		q := &narrow{most: 32}
		e := newOrSkip(t, Options{Backend: backend, AlwaysRing: true, Rings: 1, InFlight: 192,
			wrap: func(inner queue) queue {
				q.queue = inner
				return q
			}})
		f := openIn(t, e, make([]byte, 4<<20), os.O_RDONLY|Direct)
		const readers, each = 128, 50
		tests.Together(readers, func(g int) {
			p := page()
			for i := range each {
				n, err := f.ReadAt(p, int64((g*each+i)%1024)*pageSize)
				expect(t, n == pageSize && err == nil, "%v, %v", n, err)
			}
		})
		n := q.submissions.Load()
		t.Logf("%s: %.2f rounds per operation", backend, float64(n)/(readers*each))
		expect(t, n <= 2*readers*each, "%s: %d rounds for %d operations", backend, n, readers*each)
	}
}

// quietQueue completes every request, but its descriptor never becomes readable.
type quietQueue struct {
	instant
	inFlight []*request
}

func (q *quietQueue) capacity() int { return 4 - len(q.inFlight) - len(q.pushed) }

func (q *quietQueue) submit() bool { return true }

func (q *quietQueue) reap(done []*request) []*request {
	done = append(done, q.inFlight...)
	q.inFlight, q.pushed = q.pushed, q.inFlight[:0]
	return done
}

// With very many goroutines, the reaper may wait long for a processor. Completions are reaped all
// the same, and requests that wait for capacity do not count as hung.
func TestLateReaper(t *testing.T) {
	s, becomeReadable := pipeShard(t, &quietQueue{})
	all := make([]*request, 40)
	for i := range all {
		all[i] = newRequest(opRead, 0, nil, 0)
		all[i].own.left.Store(1)
		all[i].result = 0 // It may be an old one of the pool, and the queue sets none.
	}
	s.submit(true, all...)
	for i, r := range all {
		if i == len(all)-4 { // No request waits for capacity behind the last ones.
			becomeReadable()
		}
		<-r.own.done
		require(t, r.result != unsupported, "request %d was refused", i)
	}
	must(t, s.close(time.Now().Add(closeWait), closeWait/5))
}

// A group has no more operations than there is capacity for, unless it is one chain.
func TestGroupFitsTheCapacity(t *testing.T) {
	for _, c := range []struct {
		limit, capacity int   // Of operations in flight, and of the queue.
		pending         []int // Operations of each request.
		want            int   // Requests of the group.
	}{
		{8, 8, []int{1, 1, 1}, 3},
		{8, 2, []int{1, 1, 1}, 2},
		{2, 8, []int{1, 1, 1}, 2},
		{8, 2, []int{1, 2, 1}, 1},
		{8, 3, []int{1, 2, 1}, 2},
		{8, 1, []int{2, 1}, 1},
		{8, 0, []int{1}, 0},
	} {
		s := &shard{pace: pace{limit: c.limit}, capacity: c.capacity}
		for _, operations := range c.pending {
			r := newRequest(opRead, 0, nil, 0)
			if operations == 2 {
				r = newRequest(opWritev, 0, nil, 0)
				r.extra = &writevRequest{linked: newRequest(opFsync, 0, nil, 0)}
			}
			s.append(r)
		}
		taken, count := s.take()
		operations := 0
		for _, n := range c.pending[:len(taken)] {
			operations += n
		}
		expect(t, len(taken) == c.want && count == operations && len(s.inQueue) == count,
			"%+v: %d requests, %d operations", c, len(taken), count)
	}
}

// A request that the kernel never does is made by a plain call after some tries. A signal is no
// such try, and an error is none at all.
func TestRetriesAreBounded(t *testing.T) {
	for errno, want := range map[syscall.Errno]int{syscall.EAGAIN: maxRetries,
		syscall.ECANCELED: maxRetries, syscall.EFAULT: maxRetries, syscall.EINTR: 100,
		syscall.EIO: 0} {
		r, tries := new(request), 0
		for r.result = -int32(errno); tries < 100 && r.retry(); r.result = -int32(errno) {
			tries++
		}
		if tries != want || tries == maxRetries && r.result != unsupported {
			t.Errorf("%v: %d tries, not %d; %d", errno, tries, want, r.result)
		}
	}
}
