//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// Pooled and registered buffers.

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/refusal"
	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/ring"
)

// Blocks are aligned, large enough and never shared, in any order of take and release.
func TestArena(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	fixed, err := newFixedArena(3<<20 + 5*pageSize)
	if err != nil {
		t.Fatal(err)
	}
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
				if bytes.Count(h.memory, []byte{h.mark}) != len(h.memory) {
					t.Fatalf("%s: a block of %d bytes was shared", name, len(h.memory))
				}
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
			if len(b.memory) < n || len(b.memory) > max(2*n, pageSize)+pageSize {
				t.Fatalf("%s: %d bytes for %d", name, len(b.memory), n)
			}
			if at := uintptr(unsafe.Pointer(unsafe.SliceData(b.memory))); at%pageSize != 0 {
				t.Fatalf("%s: at %x", name, at)
			}
			if a.only != nil && !within(b.memory, a.only) {
				t.Fatalf("%s: outside of its region", name)
			}
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
		if a.only != nil {
			t.Fatal("a retired arena stays mapped after all blocks were released")
		}
	}
}

func TestBufferReleases(t *testing.T) {
	b := NewBuffer(10)
	at := unsafe.SliceData(b.Bytes())
	if b.Len() != 10 {
		t.Fatal(b.Len())
	}
	b.Release()
	if again := NewBuffer(4000); unsafe.SliceData(again.Bytes()) != at {
		t.Fatal("a released block is not reused")
	} else {
		again.Release()
		defer func() {
			if recover() == nil {
				t.Fatal("releasing a buffer twice does not panic")
			}
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
		if b != nil || err != context.Canceled {
			t.Fatal(b, err)
		}
	}
	for range 500 {
		if borrowed() == before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d buffers were borrowed before, %d now", before, borrowed())
}

// watching counts the operations that reach a ring.
type watching struct {
	queue
	ops map[ring.Opcode]int
}

func (w *watching) push(r *request) {
	first := r.route == routeUndecided
	w.queue.push(r)
	if r.inRing != nil && first {
		w.ops[r.inRing.Opcode()]++
	}
}

// Transfers of registered memory use the fixed operations; others do not.
func TestFixedBuffers(t *testing.T) {
	ops := map[ring.Opcode]int{}
	e, err := New(Options{Backend: BackendURing, Rings: 1, AlwaysRing: true, FixedBuffers: 1 << 20,
		wrap: func(q queue) queue {
			return &watching{q, ops}
		}})
	if err != nil {
		skip.Test(t, err)
	}
	defer e.Close()
	if e.fixed == nil {
		t.Fatal(e.Explain())
	}
	name := filepath.Join(t.TempDir(), "file")
	f, err := e.OpenFile(name, os.O_RDWR|os.O_CREATE|Direct, 0o600)
	if err != nil {
		skip.Test(t, "this file system has no direct I/O: ", err)
	}
	defer f.Close()
	ours, fresh := e.NewBuffer(8192), alignedSlice(8192, pageSize)
	defer ours.Release()
	for i := range ours.Bytes() {
		ours.Bytes()[i] = byte(i / 100)
	}
	if n, err := f.WriteAt(ours.Bytes(), 4096); n != 8192 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := f.ReadAt(fresh, 4096); n != 8192 || err != nil ||
		!bytes.Equal(fresh, ours.Bytes()) {
		t.Fatal(n, err)
	}
	if n, err := f.WriteAt(fresh, 0); n != 8192 || err != nil {
		t.Fatal(n, err)
	}
	clear(ours.Bytes())
	if n, err := f.ReadAt(ours.Bytes(), 0); n != 8192 || err != nil ||
		!bytes.Equal(fresh, ours.Bytes()) {
		t.Fatal(n, err)
	}
	for _, op := range []ring.Opcode{ring.OpRead, ring.OpReadFixed, ring.OpWrite,
		ring.OpWriteFixed} {
		if ops[op] != 1 {
			t.Errorf("operation %d: %d times", op, ops[op])
		}
	}
	// A buffer larger than the registered memory comes from the pool.
	large := e.NewBuffer(2 << 20)
	defer large.Release()
	if within(large.Bytes(), e.fixed.only) {
		t.Fatal("a 2 MiB buffer in 1 MiB of registered memory")
	}
	// A buffer stays usable after the engine is closed.
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	ours.Bytes()[0]++
}

// A backend without registered buffers reports that, and works.
func TestFixedBuffersRefused(t *testing.T) {
	e, err := New(Options{Backend: BackendThreads, FixedBuffers: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if len(e.Refusals()) != 1 || e.Refusals()[0].Feature != refusal.FixedBuffers {
		t.Fatal(e.Explain())
	}
	b := e.NewBuffer(100)
	b.Release()
}
