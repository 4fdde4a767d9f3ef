//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The engine over queues that fail in the ways in which the kernel may.

package ringway

import (
	"os"
	"testing"
)

// refusing is a queue that refuses every request after all.
type refusing struct{ queue }

func (c *refusing) push(r *request) {
	r.result = unsupported
	switch q := c.queue.(type) {
	case *uring:
		q.refused = append(q.refused, r)
	case *kaio:
		q.refused = append(q.refused, r)
	}
	if r.linked() != nil {
		c.push(r.linked())
	}
}

// If the kernel refuses operations that it accepted before, goroutines make plain calls.
func TestKernelRefusesLater(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendURing, AlwaysRing: true, Rings: 1,
		wrap: func(q queue) queue { return &refusing{q} }})
	f := openIn(t, e, []byte("0123456789"), os.O_RDWR)
	p := make([]byte, 4)
	if n, err := f.ReadAt(p, 3); n != 4 || err != nil || string(p) != "3456" {
		t.Fatal(n, err)
	}
	must(t, f.Sync())
	batch := []Transfer{{P: make([]byte, 2)}, {P: make([]byte, 2), Off: 8}}
	if err := f.ReadBatch(batch); err != nil || string(batch[1].P) != "89" {
		t.Fatal(err)
	}
	writes := []Transfer{{P: []byte("ab")}, {P: []byte("cd"), Off: 2}}
	must(t, f.WriteBatch(writes, FullSync))
	if got := content(t, f); string(got) != "abcd456789" {
		t.Fatal(string(got))
	}
}
