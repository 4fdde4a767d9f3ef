//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// Lent and fixed buffers.

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/refusal"
	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/ring"
)

// Blocks are aligned, large enough, and nobody else's, whatever is lent and given back in between.
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
					t.Fatalf("%s: somebody else wrote to a block of %d bytes", name, len(h.memory))
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
			t.Fatal("a retired arena lends, or is gone while it has lent something")
		}
		for _, h := range all {
			h.memory[0] = 1 // Still there.
			h.release()
		}
		if a.only != nil {
			t.Fatal("a retired arena stays though all is back")
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
		t.Fatal("what was released is not lent again")
	} else {
		again.Release()
		defer func() {
			if recover() == nil {
				t.Fatal("to release a buffer twice goes unnoticed")
			}
		}()
		again.Release()
	}
}

// What is read for somebody who has gone goes back.
func TestBufferAbandoned(t *testing.T) {
	lent := func() int {
		pooled.mu.Lock()
		defer pooled.mu.Unlock()
		return pooled.borrowed
	}
	before := lent()
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
		if lent() == before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d buffers were lent before, and %d are now", before, lent())
}

// watching notes what becomes of requests in a ring.
type watching struct {
	queue
	ops map[ring.Opcode]int
}

func (w *watching) push(r *request) {
	w.queue.push(r)
	if r.inRing != nil {
		w.ops[r.inRing.Opcode()]++
	}
}

// What lies in fixed buffers goes as such, and the rest as ever.
func TestFixedBuffers(t *testing.T) {
	ops := map[ring.Opcode]int{}
	e, err := New(Options{Backend: BackendURing, Rings: 1, AlwaysRing: true, FixedBuffers: 1 << 20, wrap: func(q queue) queue {
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
	f, err := e.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_DIRECT, 0o600)
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
	if n, err := f.ReadAt(fresh, 4096); n != 8192 || err != nil || !bytes.Equal(fresh, ours.Bytes()) {
		t.Fatal(n, err)
	}
	if n, err := f.WriteAt(fresh, 0); n != 8192 || err != nil {
		t.Fatal(n, err)
	}
	clear(ours.Bytes())
	if n, err := f.ReadAt(ours.Bytes(), 0); n != 8192 || err != nil || !bytes.Equal(fresh, ours.Bytes()) {
		t.Fatal(n, err)
	}
	for _, op := range []ring.Opcode{ring.OpRead, ring.OpReadFixed, ring.OpWrite, ring.OpWriteFixed} {
		if ops[op] != 1 {
			t.Errorf("operation %d: %d times", op, ops[op])
		}
	}
	// More than there is of fixed memory is lent from elsewhere.
	large := e.NewBuffer(2 << 20)
	defer large.Release()
	if within(large.Bytes(), e.fixed.only) {
		t.Fatal("2 MiB of 1")
	}
	// Who has a buffer when the engine ends keeps it.
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	ours.Bytes()[0]++
}

// A backend without fixed buffers says so, and works.
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
