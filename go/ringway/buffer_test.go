// Pooled and registered buffers.

package ringway

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"
)

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

// A buffer that was read for a caller whose context has ended goes back to the pool.
func TestDiscardedBufferIsReleased(t *testing.T) {
	borrowed := func() int {
		pooled.mu.Lock()
		defer pooled.mu.Unlock()
		return pooled.borrowed
	}
	before := borrowed()
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
		if borrowed() == before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d buffers were borrowed before, %d now", before, borrowed())
}
