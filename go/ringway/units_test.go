// Parts that need no file: reference counts, lanes of blocking calls, scans for pages that the page
// cache lacks, pooled and registered buffers.

package ringway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/tests"
)

func TestRefs(t *testing.T) {
	for range 200 {
		var r refs
		var users, lasts atomic.Int32
		var wg sync.WaitGroup
		out := func(last bool) {
			if last {
				lasts.Add(1)
				expect(t, users.Load() == 0, "the last release, while there are users")
			}
		}
		for range 8 {
			wg.Go(func() {
				for r.acquire() {
					users.Add(1)
					r.retain()
					users.Add(-1)
					out(r.release())
					users.Add(1)
					users.Add(-1)
					out(r.release())
				}
				out(r.release())
			})
		}
		var firsts atomic.Int32
		for range 2 {
			wg.Go(func() {
				first, last := r.close()
				if first {
					firsts.Add(1)
				}
				out(last)
			})
		}
		wg.Wait()
		require(t, firsts.Load() == 1 && lasts.Load() == 1, "%d first closes, %d last releases",
			firsts.Load(), lasts.Load())
	}
}

// fill uses up all slots that a lane can have.
func (l *lane) fill() {
	l.mu.Lock()
	l.inUse, l.slots = largestLane, largestLane
	l.mu.Unlock()
}

// has checks a lane in which nobody waits.
func (l *lane) has(t *testing.T, slots, inUse int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require(t, l.slots == slots && l.inUse == inUse, "%d slots, %d in use", l.slots, l.inUse)
}

func (l *lane) drain(calls int) {
	for range calls {
		l.end()
	}
}

// Calls that hang do not block the calls after them, and a lane that has grown shrinks when they
// return.
func TestHungCallsGrowLane(t *testing.T) {
	l := newLane(4, nil)
	for range 4 {
		must(t, l.begin(background))
	}
	for range 100 { // At most one of them waits: the new slots stay.
		must(t, l.begin(background))
		l.end()
	}
	l.has(t, 4+growth, 4)
	l.drain(4)
	l.has(t, 4, 0)
}

// A lane in which no call returns grows once in each period, however many callers wait.
func TestLaneGrowsOncePerPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const base, waiters = 4, 64
		l := newLane(base, nil)
		hang := make(chan struct{})
		began := time.Now() // The clock of the test bubble, which only the sleeps below advance.
		for range base + waiters {
			go func() {
				check(t, l.begin(background))
				<-hang
				l.end()
			}()
			time.Sleep(hungAfter / waiters) // So that they do not wait since the same moment.
		}
		for range 6 {
			time.Sleep(hungAfter)
			synctest.Wait()
			l.mu.Lock()
			periods := int(time.Since(began) / hungAfter)
			grown := (l.slots - base) / growth
			expect(t, grown >= periods/2 && grown <= periods && l.inUse == min(l.slots,
				base+waiters), "%d times in %d periods; %d in use", grown, periods, l.inUse)
			l.mu.Unlock()
		}
		close(hang)
		synctest.Wait()
		l.has(t, base, 0)
	})
}

// A lane whose calls return does not grow, however long callers wait.
func TestBusyLaneDoesNotGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane(4, nil)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				check(t, l.begin(background))
				time.Sleep(hungAfter / 2)
				l.end()
			})
		}
		time.Sleep(5 * hungAfter)
		synctest.Wait()
		l.has(t, 4, 4)
		all.Wait()
	})
}

// A lane never has more slots than the limit, and a caller whose context ends stops waiting.
func TestLaneIsBounded(t *testing.T) {
	l := newLane(4, nil)
	l.fill()
	ctx, cancel := context.WithTimeout(t.Context(), 3*hungAfter)
	defer cancel()
	wantError(t, "begin", l.begin(ctx), context.DeadlineExceeded)
	l.has(t, largestLane, largestLane)
	expect(t, l.waiters.Len() == 0, "%d waiters", l.waiters.Len())
}

// No slot is lost when contexts end at the moment when their callers get one.
func TestLaneCancelStorm(t *testing.T) {
	over := make(chan struct{})
	l := newLane(3, over)
	var now atomic.Int32
	tests.Together(32, func(g int) {
		random := rand.New(rand.NewPCG(uint64(g), 9))
		for range 200 {
			ctx, cancel := context.WithTimeout(context.Background(),
				time.Duration(random.IntN(200))*time.Microsecond)
			if l.begin(ctx) == nil {
				n := now.Add(1)
				expect(t, n <= 3+growth, "%d calls at once", n)
				time.Sleep(time.Duration(random.IntN(50)) * time.Microsecond)
				now.Add(-1)
				l.end()
			}
			cancel()
		}
	})
	l.has(t, 3, 0)
	expect(t, l.waiters.Len() == 0, "%d waiters", l.waiters.Len())
	for range 3 {
		must(t, l.begin(background))
	}
	close(over)
	wantError(t, "begin", l.begin(background), ErrEngineClosed)
}

// scanned carries a scan out, with a page cache that has some pages. It returns what is read.
func scanned(s *pageScan, has func(page int64) bool) (read []extent, calls int) {
	for {
		off, n := s.next()
		if n == 0 {
			return read, calls
		}
		calls++
		cached := 0
		for cached < n && has((off+int64(cached))/s.page) {
			cached++
		}
		first, rest := s.advance(cached)
		if first.start < first.end {
			read = append(read, extent{first.start, max(first.end, rest.end)})
		}
	}
}

func TestPageScan(t *testing.T) {
	const page = 4096
	all := func(int64) bool { return true }
	none := func(int64) bool { return false }
	s := newPageScan([]Range{{0, 64 * page}}, 64*page, page)
	if read, calls := scanned(&s, all); read != nil || calls != 32 || s.cached != 64*page {
		t.Error("one call tells of two pages:", read, calls, s.cached)
	}
	s = newPageScan([]Range{{10, 1}, {9 * page, 1}}, 100*page, page)
	apart := []extent{{0, page}, {9 * page, 10 * page}}
	if read, _ := scanned(&s, none); !slices.Equal(read, apart) {
		t.Error("no more than was asked for:", read)
	}
	s = newPageScan([]Range{{0, 100*page + 5}}, 100*page+5, page)
	want := []extent{{3 * page, 35 * page}, {35 * page, 67 * page}, {67 * page, 99 * page},
		{99 * page, 100*page + 5}}
	read, _ := scanned(&s, func(n int64) bool { return n < 3 })
	expect(t, slices.Equal(read, want) && s.cached == 3*page,
		"a missing page is read with those after it: %v, %v", read, s.cached)
	const most = math.MaxInt64
	for _, c := range []struct {
		ranges []Range
		n      int64
		want   []extent
	}{
		{[]Range{{5000, 1}, {1, 1}, {4095, 2}}, 1 << 20, []extent{{0, 8192}}},
		{[]Range{{9000, 1}, {0, 1}}, 1 << 20, []extent{{0, 4096}, {8192, 12288}}},
		{[]Range{{0, most}, {7, 0}}, 5000, []extent{{0, 5000}}},
		{[]Range{{5000, 1000}, {most, most}}, 5000, nil},
		{[]Range{{most - 1, most}}, most, []extent{{most - 4095, most}}},
	} {
		if s := newPageScan(c.ranges, c.n, page); !slices.Equal(s.extents, c.want) {
			t.Errorf("%v of %d: %v, not %v", c.ranges, c.n, s.extents, c.want)
		}
	}
}

// Each page of the ranges is found or read, and each once.
func TestPageScanCountsPagesOnce(t *testing.T) {
	const page = 4096
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		size := r.Int64N(500_000)
		var ranges []Range
		wanted := make(map[int64]bool)
		for range r.IntN(20) {
			one := Range{r.Int64N(400_000), r.Int64N(200_000)}
			ranges = append(ranges, one)
			for at := one.Off; at < min(one.Off+one.N, size); at = at/page*page + page {
				wanted[at/page] = true
			}
		}
		cached := make(map[int64]bool)
		for range r.IntN(200) {
			cached[r.Int64N(130)] = true
		}
		s := newPageScan(ranges, size, page)
		read, _ := scanned(&s, func(n int64) bool { return cached[n] })
		for _, e := range read {
			for at := e.start; at < e.end; at += page {
				require(t, wanted[at/page], "read twice, or for nobody: %v, %v, %v", ranges, size,
					e)
				delete(wanted, at/page)
			}
		}
		var found int64
		for n := range wanted {
			require(t, cached[n], "missing, and not read: %v, %v, %v", ranges, size, n)
			found += min(page, size-n*page)
		}
		require(t, s.cached == found, "cached: %v not %v", s.cached, found)
	}
}

// Blocks are aligned, large enough and never shared, in any order of take and release.
func TestArena(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	fixed := get(newFixedArena(3<<20 + 5*pageSize))(t)
	for name, a := range map[string]*arena{"growing": new(arena), "fixed": fixed} {
		type held struct {
			block
			mark byte
		}
		var all []held
		refused := 0
		for i := range 3000 {
			if len(all) > 0 && random.IntN(5) < 2 || len(all) > 40 {
				at := random.IntN(len(all))
				h := all[at]
				require(t, bytes.Count(h.memory, []byte{h.mark}) == len(h.memory),
					"%s: a block of %d bytes was shared", name, len(h.memory))
				h.release()
				all[at] = all[len(all)-1]
				all = all[:len(all)-1]
				continue
			}
			n := random.IntN(1 << random.IntN(21))
			b, ok := a.take(n)
			if !ok {
				refused++
				continue
			}
			require(t, len(b.memory) >= n && len(b.memory) <= max(2*n, pageSize)+pageSize,
				"%s: %d bytes for %d", name, len(b.memory), n)
			at := uintptr(unsafe.Pointer(unsafe.SliceData(b.memory)))
			require(t, at%pageSize == 0, "%s: at %x", name, at)
			require(t, a.only == nil || within(b.memory, a.only), "%s: outside of its region", name)
			for j := range b.memory {
				b.memory[j] = byte(i)
			}
			all = append(all, held{b, byte(i)})
		}
		if a.only == nil && refused > 0 || a.only != nil && refused == 0 {
			t.Fatalf("%s: refused %d times", name, refused)
		}
		if a.only == nil {
			continue
		}
		a.retire()
		if _, ok := a.take(1); ok || a.only == nil {
			t.Fatal("a retired arena allocates blocks, or is unmapped while blocks are borrowed")
		}
		for _, h := range all {
			h.memory[0] = 1 // Not unmapped yet.
			h.release()
		}
		require(t, a.only == nil, "a retired arena stays mapped after all blocks were released")
	}
}

func TestBufferReleases(t *testing.T) {
	b := NewBuffer(10)
	at := unsafe.SliceData(b.Bytes())
	require(t, b.Len() == 10, "%v", b.Len())
	b.Release()
	again := NewBuffer(4000)
	require(t, unsafe.SliceData(again.Bytes()) == at, "a released block is not reused")
	again.Release()
	defer func() { require(t, recover() != nil, "releasing a buffer twice does not panic") }()
	again.Release()
}

// A buffer that was read for a caller whose context has ended goes back to the pool.
func TestDiscardedBufferIsReleased(t *testing.T) {
	before := borrowedBlocks()
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		b, err := untilDone(ctx, func() (*Buffer, error) {
			b := NewBuffer(5000)
			cancel()
			<-gone
			return b, nil
		}, discardBuffer)
		close(gone)
		require(t, b == nil && errors.Is(err, context.Canceled), "%v, %v", b, err)
	}
	eventually(t, "the buffers are released", func() bool { return borrowedBlocks() == before })
}

// A negative length panics, and takes nothing from the pool.
func TestNegativeLength(t *testing.T) {
	before := borrowedBlocks()
	defer func() {
		require(t, recover() != nil, "NewBuffer(-1) does not panic")
		expect(t, borrowedBlocks() == before, "a block is lost")
	}()
	NewBuffer(-1)
}

func borrowedBlocks() int {
	pooled.mu.Lock()
	defer pooled.mu.Unlock()
	return pooled.borrowed
}

// Where the system has no memory for another region, an arena lends what it has, and no block
// twice.
func TestArenaWithoutMemory(t *testing.T) {
	var all [][]byte
	a := new(arena)
	take := func(n int) (ok bool) {
		b, ok := a.take(n)
		if ok {
			all = append(all, b.memory)
		}
		return ok
	}
	require(t, take(1), "no first block")
	memory := newRegion
	newRegion = func(int) ([]byte, error) { return nil, syscall.ENOMEM }
	defer func() { newRegion = memory }()
	for take(largestBlock) {
	}
	for range 3 {
		require(t, !take(largestBlock), "a block without memory")
	}
	for range 100 {
		require(t, take(1), "what is left of the region is not used")
	}
	newRegion = memory
	for i := range 2000 {
		require(t, take(pageSize<<(i%4)), "no block of a new region")
	}
	slices.SortFunc(all, func(p, q []byte) int { return cmp.Compare(addressOf(p), addressOf(q)) })
	for i, p := range all[1:] {
		require(t, addressOf(p)-addressOf(all[i]) >= uintptr(len(all[i])),
			"two blocks have the same memory")
	}
}

// Without memory for pooled buffers, methods fail with ENOMEM, and hold neither the descriptor nor
// a slot afterwards. NewBuffer panics.
func TestNoMemoryIsAnError(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := openIn(t, e, make([]byte, 4*pageSize), os.O_RDWR|direct)
		appending := open(t, e, fileWith(t, nil), os.O_WRONLY|os.O_APPEND)
		memory := alignedSlice(4*pageSize, pageSize)
		calls := map[string]func() error{
			"ReadBuf": func() error { return errorOf(f.ReadBuf(t.Context(), 0, pageSize)) },
			"ReadBuf, long": func() error {
				return errorOf(f.ReadBuf(t.Context(), 0, 2*largestBlock))
			},
			"WriteAtContext": func() error {
				return errorOf(f.WriteAtContext(t.Context(), memory, 0))
			},
			"WriteBatchContext": func() error {
				return f.WriteBatchContext(t.Context(), []Transfer{{P: memory}}, DataSync)
			},
			"WriteBatch, appending": func() error {
				many := slices.Repeat([]Transfer{{P: memory[:1]}}, 2*maxVectors)
				return appending.WriteBatch(many, NoSync)
			},
			"WriteTo": func() error { return errorOf(f.WriteTo(new(bytes.Buffer))) },
		}
		if direct != 0 && f.directLimits().offset > 1 {
			calls["ReadAt"] = func() error { return errorOf(f.ReadAt(memory[:10], 1)) }
			calls["ReadAtContext"] = func() error {
				return errorOf(f.ReadAtContext(t.Context(), memory, 0))
			}
			calls["ReadBatch"] = func() error { return f.ReadBatch([]Transfer{{P: memory[:10]}}) }
			calls["ReadBatchContext"] = func() error {
				return f.ReadBatchContext(t.Context(), []Transfer{{P: memory}})
			}
			calls["ReadFrom"] = func() error { return errorOf(f.ReadFrom(new(bytes.Buffer))) }
		} else {
			calls["Warm"] = func() error {
				return errorOf(f.Warm(t.Context(), []Range{{N: pageSize}}))
			}
		}
		pooled.mu.Lock()
		pooled.retired = true // It allocates nothing.
		pooled.mu.Unlock()
		defer func() {
			pooled.mu.Lock()
			pooled.retired = false
			pooled.mu.Unlock()
		}()
		for what, do := range calls {
			returns(t, what, func() {
				err := do()
				expect(t, errors.Is(err, syscall.ENOMEM), "%s: %v", what, err)
			})
		}
		func() {
			defer func() {
				err, _ := recover().(error)
				wantError(t, "NewBuffer", err, syscall.ENOMEM)
			}()
			NewBuffer(1)
		}()
		for range 500 {
			if f.refs.count.Load() == 0 && appending.refs.count.Load() == 0 {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Error("the descriptors are still in use")
	})
}
