//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// Direct transfers that a ring would punt to io-wq workers: they are counted, and reads go to KAIO
// while that lasts, unless the backend is forced. A queue that fails them stands for the kernel.

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/refusal"
	"github.com/ringway-io/ringway/go/internal/skip"
)

// punting fails some of the transfers with RWF_NOWAIT. The kernel itself does not, or its answer
// is replaced.
type punting struct {
	queue
	random *rand.Rand
	share  int // Of 1000.
	errno  syscall.Errno
}

func (q *punting) reap(done []*request) []*request {
	first := len(done)
	done = q.queue.reap(done)
	for _, r := range done[first:] {
		if r.route != routeNowait && r.route != routeCheck {
			continue
		}
		if r.result >= 0 && q.random.IntN(1000) < q.share {
			r.result = -int32(q.errno)
			if r.opcode == opRead {
				clear(r.p)
			}
		}
	}
	return done
}

// puntingEngine makes an engine whose rings punt a share of the direct transfers. Unless it is
// forced to the rings, KAIO takes punted reads.
func puntingEngine(t *testing.T, o Options, forced bool, share int) *Engine {
	t.Helper()
	o.AlwaysRing = true
	o.wrap = func(q queue) queue {
		return &punting{queue: q, random: rand.New(rand.NewPCG(1, 2)), share: share,
			errno: syscall.EAGAIN}
	}
	return routingEngine(t, o, forced)
}

// routingEngine is New, regardless of RINGWAY_BACKEND.
func routingEngine(t *testing.T, o Options, forced bool) *Engine {
	t.Helper()
	if k, err := newKAIO(32); err != nil {
		skip.Test(t, err)
	} else if err := k.close(); err != nil {
		t.Fatal(err)
	}
	backends := []Backend{BackendURing, BackendKAIO, BackendThreads}
	if forced {
		backends = backends[:1]
	}
	e, err := newEngine(o, backends)
	if err != nil {
		skip.Test(t, err)
	}
	if e.Backend() != BackendURing {
		skip.Test(t, e.Explain())
	}
	e.routes.patience = patience // Also on kernels before 5.13.
	return e
}

const routingBlocks = 256

// openSynced opens a file of numbered blocks for direct I/O. Nothing of it is in the page cache,
// so that the kernel punts no read.
func openSynced(t *testing.T, e *Engine) *File {
	t.Helper()
	f := openIn(t, e, nil, os.O_RDWR|Direct)
	if _, err := f.OSFile().WriteAt(numbered(1, 1, routingBlocks), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	return f
}

// readBlocks reads blocks in several goroutines, and checks what they read.
func readBlocks(t *testing.T, f *File, count, depth int) {
	t.Helper()
	content := numbered(1, 1, routingBlocks)
	var next atomic.Int64
	var all sync.WaitGroup
	for range depth {
		all.Go(func() {
			p := alignedSlice(pageSize, pageSize)
			for n := next.Add(1); n <= int64(count); n = next.Add(1) {
				off := n % routingBlocks * pageSize
				clear(p)
				got, err := f.ReadAt(p, off)
				if got != len(p) || err != nil || !bytes.Equal(p, content[off:][:pageSize]) {
					t.Error("wrong bytes, or an error:", off, got, err)
					return
				}
			}
		})
	}
	returns(t, "a read", all.Wait)
	if s := f.engine.Stats(); s.Pushed != s.Delivered || s.InFlight != 0 || s.Waiting != 0 {
		t.Fatalf("the counts do not add up: %+v", s)
	}
}

// notAsynchronous returns the refusal of asynchronous direct I/O, or nil.
func notAsynchronous(e *Engine) *Refusal {
	for _, refused := range e.Refusals() {
		if refused.Feature == asyncDirect {
			return refused
		}
	}
	return nil
}

func TestPuntedReadsGoToKAIO(t *testing.T) {
	for _, depth := range []int{1, 8, 32} {
		e := puntingEngine(t, Options{Rings: 1}, false, 1000)
		f := openSynced(t, e)
		before := e.Stats()
		readBlocks(t, f, 1000, depth)
		s := e.Stats()
		if s.Routed < 900 || s.Punted <= before.Punted || s.Punted > before.Punted+100 {
			t.Errorf("depth %d: not most reads were routed, or too many tried again: %+v", depth, s)
		}
		refused := notAsynchronous(e)
		if refused == nil || !strings.Contains(refused.Meaning, "kaio did") ||
			refused.Fix == "" || !errors.Is(refused, syscall.EAGAIN) {
			t.Error(e.Explain())
		}
		if text := e.Explain(); !strings.Contains(text, asyncDirect+" refused: EAGAIN") {
			t.Error(text)
		}
		closeAll(t, e, f)
	}
}

// With a forced backend each punted read is counted. Few are submitted twice.
func TestForcedBackendRoutesNothing(t *testing.T) {
	e := puntingEngine(t, Options{}, true, 1000)
	f := openSynced(t, e)
	before := e.Stats()
	readBlocks(t, f, 500, 8)
	if s := e.Stats(); s.Punted != before.Punted+500 || s.Routed != 0 ||
		s.Retries > before.Retries+30 {
		t.Errorf("%+v", s)
	}
	if !strings.Contains(e.Explain(), "io-wq workers did them") {
		t.Error(e.Explain())
	}
	closeAll(t, e, f)
}

// After many punts some reads are routed, until a check finds that reads are not punted.
func TestFileReturnsToRing(t *testing.T) {
	e := puntingEngine(t, Options{Rings: 1}, false, 600)
	f := openSynced(t, e)
	readBlocks(t, f, 20_000, 8)
	s := e.Stats()
	if s.Punted < 2 || s.Routed < shortestRun {
		t.Errorf("%+v", s)
	}
	// Were it checks alone that the ring does, these would be about ten: the runs would get longer.
	if byRing := 20_000 - s.Punted - s.Routed; byRing <= 40 {
		t.Errorf("%+v", s)
	}
	closeAll(t, e, f)
}

func TestPuntNowAndThenRoutesNothing(t *testing.T) {
	for _, depth := range []int{1, 8} {
		e := puntingEngine(t, Options{}, false, 50)
		f := openSynced(t, e)
		readBlocks(t, f, 5000, depth)
		if s := e.Stats(); s.Punted <= 100 || s.Routed != 0 {
			t.Errorf("depth %d: %+v", depth, s)
		}
		closeAll(t, e, f)
	}
}

// The error of a check says nothing about punts: the next read is the check instead.
func TestCheckThatFailsIsRepeated(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.EINVAL} {
		s := new(scripted)
		e := routingEngine(t, Options{Rings: 1, AlwaysRing: true, wrap: func(q queue) queue {
			s.queue = q
			return s
		}}, false)
		s.shard = e.shards[0]
		f := openSynced(t, e)
		var fail atomic.Bool
		s.onResult(func(r *request) bool {
			if r.opcode == opRead && (r.route == routeNowait || r.route == routeCheck) {
				r.result = -int32(syscall.EAGAIN)
				if fail.Swap(false) {
					r.result = -int32(errno)
				}
			}
			return false
		})
		before := e.Stats()
		readBlocks(t, f, patience+shortestRun, 1)
		fail.Store(true)
		if _, err := f.ReadAt(alignedSlice(pageSize, pageSize), 0); !errors.Is(err, errno) {
			t.Error(err)
		}
		readBlocks(t, f, 1+2*shortestRun, 1)
		after := e.Stats()
		if punted := after.Punted - before.Punted; punted != patience+1 ||
			after.Routed != 1+shortestRun+1+2*shortestRun {
			t.Errorf("%v: %d punted, %+v", errno, punted, after)
		}
		closeAll(t, e, f)
	}
}

// A read that KAIO has no room for tries the ring.
func TestFullKAIO(t *testing.T) {
	var ring *routed
	e := routingEngine(t, Options{Rings: 1, AlwaysRing: true, wrap: func(q queue) queue {
		ring = q.(*routed)
		return &punting{queue: q, random: rand.New(rand.NewPCG(1, 2)), share: 1000,
			errno: syscall.EAGAIN}
	}}, false)
	f := openSynced(t, e)
	readBlocks(t, f, patience, 1)
	before := e.Stats()
	ring.kaio.limit = 0 // No operation is in flight.
	readBlocks(t, f, 10, 1)
	if s := e.Stats(); s.Punted != before.Punted+10 || s.Routed != before.Routed {
		t.Errorf("%+v, then %+v", before, s)
	}
	closeAll(t, e, f)
}

func TestNothingIsRoutedWithoutCause(t *testing.T) {
	e := puntingEngine(t, Options{}, false, 0)
	f := openSynced(t, e)
	before := e.Stats()
	readBlocks(t, f, 1000, 8)
	if s := e.Stats(); s.Punted != before.Punted || s.Routed != 0 {
		t.Errorf("%+v", s)
	}
	closeAll(t, e, f)
}

func TestWritesAreNeverRouted(t *testing.T) {
	e := puntingEngine(t, Options{}, false, 1000)
	f := openSynced(t, e)
	var content []byte
	for round := range 4 {
		content = numbered(2, round, routingBlocks)
		var batch []Transfer
		for i := range routingBlocks {
			p := content[i*pageSize:][:pageSize]
			if i%2 == 0 {
				batch = append(batch, Transfer{P: p, Off: int64(i * pageSize)})
			} else if n, err := f.WriteAt(p, int64(i*pageSize)); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := f.WriteBatch(batch, DataSync); err != nil {
			t.Fatal(err)
		}
	}
	if s := e.Stats(); s.Routed != 0 || s.Punted == 0 || s.Punted > 30 {
		t.Errorf("routed, or not checked now and then: %+v", s)
	}
	if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, content) {
		t.Error("wrong bytes", err)
	}
	closeAll(t, e, f)
}

// A file system without RWF_NOWAIT: all transfers do without it.
func TestFileSystemWithoutNowait(t *testing.T) {
	e := routingEngine(t, Options{AlwaysRing: true, wrap: func(q queue) queue {
		return &punting{queue: q, random: rand.New(rand.NewPCG(1, 2)), share: 1000,
			errno: syscall.EOPNOTSUPP}
	}}, false)
	f := openSynced(t, e)
	readBlocks(t, f, 200, 4)
	if s := e.Stats(); s.Punted < 200 || s.Routed != 0 || s.Retries > 8 {
		t.Errorf("%+v", s)
	}
	refused := notAsynchronous(e)
	if refused == nil || !errors.Is(refused, syscall.EOPNOTSUPP) {
		t.Error(e.Explain())
	}
	closeAll(t, e, f)
}

// KAIO is refused when it is first needed: the ring does the reads, and Explain has the reason.
func TestRefusedKAIO(t *testing.T) {
	e := puntingEngine(t, Options{Rings: 1}, false, 1000)
	f := openSynced(t, e)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	readBlocks(t, f, 200, 4)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if s := e.Stats(); s.Routed != 0 || s.Punted < 190 {
		t.Errorf("%+v", s)
	}
	if text := e.Explain(); !strings.Contains(text, refusal.KAIO+" refused: EMFILE") {
		t.Error(text)
	}
	closeAll(t, e, f)
}

// Short reads, the end of the file, and unaligned, long and vectored transfers give what they give
// elsewhere, whichever queue has them, also with registered buffers.
func TestResultsOfPuntedReads(t *testing.T) {
	for _, forced := range []bool{false, true} {
		e := puntingEngine(t, Options{FixedBuffers: 4 << 20}, forced, 500)
		f := openSynced(t, e)
		content := numbered(1, 1, routingBlocks)
		end := len(content)
		setLargestRequest(f, 64<<10)
		registered := e.NewBuffer(1 << 20)
		for i := range 300 {
			for _, c := range []struct{ off, length int }{
				{0, pageSize}, {end - pageSize, 4 * pageSize}, {end, pageSize},
				{pageSize, 300 << 10}, {100, 5000}, {end - 10, 100},
			} {
				p := registered.Bytes()[:c.length]
				if i%2 == 0 {
					p = alignedSlice(c.length, pageSize)
				}
				want := content[c.off:min(c.off+c.length, end)]
				n, err := f.ReadAt(p, int64(c.off))
				if n != len(want) || !bytes.Equal(p[:n], want) || (err == io.EOF) != (n < len(p)) {
					t.Fatalf("%d at %d: %d, %v", c.length, c.off, n, err)
				}
			}
			batch := make([]Transfer, 40)
			for j := range batch {
				batch[j] = Transfer{P: alignedSlice(2*pageSize, pageSize),
					Off: int64(end - j*pageSize)}
			}
			if err := f.ReadBatch(batch); err != nil {
				t.Fatal(err)
			}
			for j, b := range batch {
				want := content[end-j*pageSize:][:min(j, 2)*pageSize]
				if b.N != len(want) || !bytes.Equal(b.P[:b.N], want) ||
					(b.Err == io.EOF) != (j < 2) {
					t.Fatal(j, b.N, b.Err)
				}
			}
		}
		registered.Release()
		if s := e.Stats(); s.Punted == 0 || (s.Routed == 0) != forced {
			t.Errorf("%+v", s)
		}
		closeAll(t, e, f)
	}
}

// Contexts that end while a read moves from one queue to the other.
func TestContextEndsWhileReadsMove(t *testing.T) {
	for _, forced := range []bool{false, true} {
		e := puntingEngine(t, Options{}, forced, 600)
		f := openSynced(t, e)
		content := numbered(1, 1, routingBlocks)
		var all sync.WaitGroup
		var canceled atomic.Int64
		for g := range 32 {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(g), 3))
				for range 200 {
					ctx, cancel := context.WithTimeout(context.Background(),
						time.Duration(random.IntN(400))*time.Microsecond)
					off := random.IntN(routingBlocks) * pageSize
					b, err := f.ReadBuf(ctx, int64(off), pageSize)
					switch {
					case err == nil:
						if !bytes.Equal(b.Bytes(), content[off:][:pageSize]) {
							t.Error("wrong bytes at", off)
						}
						b.Release()
					case errors.Is(err, context.DeadlineExceeded):
						canceled.Add(1)
					default:
						t.Error(err)
					}
					cancel()
				}
			})
		}
		returns(t, "a read", all.Wait)
		if canceled.Load() == 0 {
			t.Error("no context ended in time")
		}
		closeAll(t, e, f)
		if s := e.Stats(); s.Pushed != s.Delivered || s.InFlight != 0 || s.Waiting != 0 ||
			(s.Routed == 0) != forced {
			t.Errorf("%+v", s)
		}
	}
}

// Appends are not checked: the rest of one that was cut short might not follow it.
func TestAppendsAreNotChecked(t *testing.T) {
	e := puntingEngine(t, Options{}, false, 1000)
	f := openIn(t, e, nil, os.O_RDWR|os.O_APPEND|Direct)
	content := numbered(1, 1, routingBlocks)
	for i := range routingBlocks {
		if _, err := f.Write(content[i*pageSize:][:pageSize]); err != nil {
			t.Fatal(err)
		}
	}
	if s := e.Stats(); s.Punted != 0 || s.Routed != 0 {
		t.Errorf("%+v", s)
	}
	if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, content) {
		t.Error("wrong bytes", err)
	}
	closeAll(t, e, f)
}

// A canceled read that would have been punted is not submitted again.
func TestCanceledReadDoesNotMove(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.EOPNOTSUPP} {
		s := new(scripted)
		e := routingEngine(t, Options{Rings: 1, AlwaysRing: true, wrap: func(q queue) queue {
			s.queue = q
			return s
		}}, false)
		s.shard = e.shards[0]
		f := openSynced(t, e)
		var pushes atomic.Int64
		s.onPush(func(r *request) bool { pushes.Add(1); return false })
		s.onResult(func(r *request) bool { r.result = -int32(errno); return true })
		ctx, cancel := context.WithCancelCause(context.Background())
		done := make(chan error, 1)
		r := f.request(opRead, alignedSlice(pageSize, pageSize), 0)
		go func() {
			_, err := e.do(ctx, e.shards[0], r)
			done <- err
		}()
		var held []*request
		eventually(t, "the read is complete", func() bool {
			held = append(held, s.takeHeld()...)
			return len(held) > 0
		})
		reason := errors.New("enough")
		cancel(reason)
		eventually(t, "the cancel", r.canceled.Load)
		s.complete(held)
		returns(t, "the read", func() {
			if err := <-done; err != reason {
				t.Error(err)
			}
		})
		if pushes.Load() != 1 {
			t.Error("pushes: ", pushes.Load())
		}
		s.release()
		closeAll(t, e, f)
	}
}

// Files and the engine are closed while reads are with both queues: each read returns.
func TestCloseWhileReadsMove(t *testing.T) {
	for round := range 20 {
		e := puntingEngine(t, Options{Rings: 2}, false, 500)
		f := openSynced(t, e)
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				p := alignedSlice(pageSize, pageSize)
				for {
					if _, err := f.ReadAt(p, 0); err != nil {
						if !errors.Is(err, os.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		eventually(t, "reads are routed", func() bool { return e.Stats().Routed > 100 })
		if round%2 == 0 {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		closeAll(t, e)
		returns(t, "a read", all.Wait)
		if s := e.Stats(); s.Pushed != s.Delivered || s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// untilOther counts the next transfers until one takes another route than to; at most 10,000.
func untilOther(r *routing, op opcode, to route, toKAIO bool) (n int, other route) {
	for n = range 10_000 {
		if other, _, _ = r.next(op, toKAIO); other != to {
			return n, other
		}
	}
	return 10_000, to
}

// expectRun checks the length of a run of transfers that take a route, and that a check follows.
func expectRun(t *testing.T, r *routing, op opcode, to route, toKAIO bool, want int) {
	t.Helper()
	if n, next := untilOther(r, op, to, toKAIO); n != want || next != routeCheck {
		t.Fatalf("a run of %d, not %d, and then route %d", n, want, next)
	}
}

// expectRoute checks how the next read is submitted.
func expectRoute(t *testing.T, r *routing, want route) {
	t.Helper()
	if to, isPunted, unsupported := r.next(opRead, true); to != want || isPunted || unsupported {
		t.Fatalf("route %d, not %d; %v, %v", to, want, isPunted, unsupported)
	}
}

// expectPunted punts a read and checks how it is submitted again.
func expectPunted(t *testing.T, r *routing, took route, patience int, want route) {
	t.Helper()
	if to := r.notePunted(opRead, took, true, patience); to != want {
		t.Fatalf("again by route %d, not %d", to, want)
	}
}

// The runs between checks double up to a limit, and begin anew after a check that is not punted.
// The first punt decides here, as on old kernels.
func TestRoutingRuns(t *testing.T) {
	var r routing
	expectRoute(t, &r, routeNowait)
	expectPunted(t, &r, routeNowait, 1, routeKAIO)
	for _, want := range []int{64, 128, 256, 512, 1024, 1024} {
		expectRun(t, &r, opRead, routeKAIO, true, want)
		expectPunted(t, &r, routeCheck, 1, routeKAIO)
	}
	expectRun(t, &r, opRead, routeKAIO, true, longestRun)
	r.noteNotPunted(opRead)
	if n, to := untilOther(&r, opRead, routeNowait, true); to != routeNowait {
		t.Fatal(n, to)
	}
	expectPunted(t, &r, routeNowait, 1, routeKAIO)
	expectRun(t, &r, opRead, routeKAIO, true, shortestRun)
}

// On kernels that do not punt reads only since pages are cached.
func TestRoutingOfFileThatIsMostlyPunted(t *testing.T) {
	var rare routing
	for i := range 10_000 {
		expectRoute(t, &rare, routeNowait)
		if i%3 == 0 {
			expectPunted(t, &rare, routeNowait, patience, routePlain)
		}
	}
	var r routing
	for range patience - 1 {
		expectRoute(t, &r, routeNowait)
		expectPunted(t, &r, routeNowait, patience, routePlain)
	}
	expectRoute(t, &r, routeNowait)
	expectPunted(t, &r, routeNowait, patience, routeKAIO)
	expectRun(t, &r, opRead, routeKAIO, true, shortestRun)
	// Punts before the run do not count after it.
	r.noteNotPunted(opRead)
	expectRoute(t, &r, routeNowait)
	expectPunted(t, &r, routeNowait, patience, routePlain)
}

// The reads of a burst are submitted before the first result is known.
func TestRoutingOfBurst(t *testing.T) {
	var r routing
	for range lately - 2 + 16 {
		expectRoute(t, &r, routeNowait)
	}
	for range patience {
		expectPunted(t, &r, routeNowait, patience, routePlain)
	}
}

func TestRecentReads(t *testing.T) {
	count, halved := 0, uint32(0)
	for all := range uint32(10_000) {
		if gotCount, gotHalved := recent(all); gotCount != count || gotHalved != halved {
			t.Fatalf("of %d: %d, halved %d times; want %d, %d",
				all, gotCount, gotHalved, count, halved)
		}
		if count == lately {
			count, halved = count/2, halved+1
		}
		count++
	}
}

// A check that never has a result, for example since the engine was closed.
func TestRoutingCheckWithoutResult(t *testing.T) {
	for _, op := range []opcode{opRead, opWrite} {
		var r routing
		away := routePlain
		if op == opRead {
			away = routeKAIO
			expectRoute(t, &r, routeNowait)
			expectPunted(t, &r, routeNowait, 1, routeKAIO)
		} else {
			expectRun(t, &r, op, away, true, 0)
		}
		for range 3 {
			expectRun(t, &r, op, away, true, shortestRun)
		}
	}
}

// A check that fails for another reason is repeated and changes nothing.
func TestRoutingCheckFails(t *testing.T) {
	var r routing
	expectRoute(t, &r, routeNowait)
	expectPunted(t, &r, routeNowait, 1, routeKAIO)
	expectRun(t, &r, opRead, routeKAIO, true, shortestRun)
	r.noteFailed(opRead)
	expectRun(t, &r, opRead, routeKAIO, true, 0)
	expectPunted(t, &r, routeCheck, 1, routeKAIO)
	expectRun(t, &r, opRead, routeKAIO, true, 2*shortestRun)
	r.noteNotPunted(opRead)
	r.noteFailed(opRead) // Of an older check: too late.
	expectRoute(t, &r, routeNowait)
}

// Without KAIO, the reads of a run do without the flag, and count as punted.
func TestRoutingWithoutKAIO(t *testing.T) {
	var r routing
	expectRoute(t, &r, routeNowait)
	if to := r.notePunted(opRead, routeNowait, false, 1); to != routePlain {
		t.Fatal(to)
	}
	for range shortestRun {
		if to, isPunted, unsupported := r.next(opRead, false); to != routePlain || !isPunted ||
			unsupported {
			t.Fatal(to, isPunted, unsupported)
		}
	}
	expectRun(t, &r, opRead, routePlain, false, 0)
}

// The transfers of a file without RWF_NOWAIT do without it, and one tries it now and then.
func TestRoutingWithoutNowait(t *testing.T) {
	for _, op := range []opcode{opRead, opWrite} {
		var r routing
		r.next(op, true)
		r.noteUnsupported(op)
		for range longestRun {
			if to, isPunted, unsupported := r.next(op, true); to != routePlain || !isPunted ||
				!unsupported {
				t.Fatal(to, isPunted, unsupported)
			}
		}
		expectRun(t, &r, op, routePlain, true, 0)
		r.noteNotPunted(op)
		if to, isPunted, _ := r.next(op, true); isPunted || (to == routeNowait) != (op == opRead) {
			t.Fatal(to, isPunted)
		}
	}
}

// The first write is a check, and the runs double in either case. Those of a run are not counted.
func TestRoutingOfWrites(t *testing.T) {
	var r routing
	for i, want := range []int{0, 128, 256, 512, 1024, 1024} {
		expectRun(t, &r, opWrite, routePlain, true, want)
		if i%2 == 0 {
			r.noteNotPunted(opWrite)
		} else if to := r.notePunted(opWrite, routeCheck, true, patience); to != routePlain {
			t.Fatal(to)
		}
		if to, isPunted, _ := r.next(opWrite, true); to != routePlain || isPunted {
			t.Fatal(to, isPunted)
		}
		r.writes.left++
	}
}
