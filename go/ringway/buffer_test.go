// Pooled and registered buffers.

package ringway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// Blocks are aligned, large enough and never shared, in any order of take and release.
func TestArena(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	fixed, err := newFixedArena(3<<20 + 5*pageSize)
	must(t, err)
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
			if at := uintptr(unsafe.Pointer(unsafe.SliceData(b.memory))); at%pageSize != 0 {
				t.Fatalf("%s: at %x", name, at)
			}
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
	if again := NewBuffer(4000); unsafe.SliceData(again.Bytes()) != at {
		t.Fatal("a released block is not reused")
	} else {
		again.Release()
		defer func() {
			require(t, recover() != nil, "releasing a buffer twice does not panic")
		}()
		again.Release()
	}
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

// A buffer that was read for a caller whose context has ended goes back to the pool.
func TestDiscardedBufferIsReleased(t *testing.T) {
	before := borrowedBlocks()
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		reading, gone := make(chan struct{}), make(chan struct{})
		go func() {
			<-reading
			cancel()
		}()
		b, err := untilDone(ctx, func() (*Buffer, error) {
			b := NewBuffer(5000)
			close(reading)
			<-gone
			return b, nil
		}, discardBuffer)
		close(gone)
		require(t, b == nil && errors.Is(err, context.Canceled), "%v, %v", b, err)
	}
	for range 500 {
		if borrowedBlocks() == before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d buffers were borrowed before, %d now", before, borrowedBlocks())
}

// Where the system has no memory for another region, an arena hands out what it has, and no block
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
