//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Buffers that are registered with the rings.

package ringway

import (
	"bytes"
	"os"
	"testing"

	"github.com/ringway-io/ringway/go/ring"
)

// watching counts the operations that reach a ring.
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

// Transfers of registered memory use the fixed operations; others do not.
func TestFixedBuffers(t *testing.T) {
	ops := map[ring.Opcode]int{}
	e := newOrSkip(t, Options{Backend: BackendURing, Rings: 1, AlwaysRing: true,
		FixedBuffers: 1 << 20, wrap: func(q queue) queue { return &watching{q, ops} }})
	require(t, e.fixed != nil, "%v", e.Explain())
	f := openIn(t, e, nil, os.O_RDWR|Direct)
	ours, fresh := e.NewBuffer(8192), alignedSlice(8192, pageSize)
	defer ours.Release()
	for i := range ours.Bytes() {
		ours.Bytes()[i] = byte(i / 100)
	}
	moves(t, 8192)(f.WriteAt(ours.Bytes(), 4096))
	moves(t, 8192)(f.ReadAt(fresh, 4096))
	require(t, bytes.Equal(fresh, ours.Bytes()), "other bytes")
	moves(t, 8192)(f.WriteAt(fresh, 0))
	clear(ours.Bytes())
	moves(t, 8192)(f.ReadAt(ours.Bytes(), 0))
	require(t, bytes.Equal(fresh, ours.Bytes()), "other bytes")
	for _, op := range []ring.Opcode{ring.OpRead, ring.OpReadFixed, ring.OpWrite,
		ring.OpWriteFixed} {
		expect(t, ops[op] == 1, "operation %d: %d times", op, ops[op])
	}
	// A buffer larger than the registered memory comes from the pool.
	large := e.NewBuffer(2 << 20)
	defer large.Release()
	require(t, !within(large.Bytes(), e.fixed.only), "a 2 MiB buffer in 1 MiB of registered memory")
	// A buffer stays usable after the engine is closed.
	must(t, e.Close())
	ours.Bytes()[0]++
}
