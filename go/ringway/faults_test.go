//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The engine over queues that fail in the ways in which the kernel may.

package ringway

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// frequentFaults are faults that no caller may see.
var frequentFaults = faultRates{short: 4, unsent: 10, retryable: 4, late: 12, lateRounds: 1}

// engineWithFaults makes the engine for conformance cases with faults.
func engineWithFaults(o Options, seed uint64) (*Engine, error) {
	e, _, err := faultyEngine(o, frequentFaults, seed)
	return e, err
}

// Callers see no fault: the bytes are right, there is no error, and every read returns.
func TestFaultsAreHidden(t *testing.T) {
	e, faults, err := faultyEngine(Options{Backend: BackendURing, Rings: 1}, frequentFaults, 4)
	if err != nil {
		skip.Test(t, err)
	}
	content := make([]byte, 1<<20)
	for i := range content {
		content[i] = byte(i * 7 >> 3)
	}
	file := openIn(t, e, content, os.O_RDONLY)
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 5))
			for range 200 {
				p := make([]byte, random.IntN(100_000))
				off := random.IntN(len(content) - len(p))
				n, err := file.ReadAt(p, int64(off))
				if n != len(p) || err != nil || !bytes.Equal(p, content[off:off+n]) {
					t.Error("wrong bytes, or an error:", n, len(p), err)
					return
				}
			}
		})
	}
	wg.Wait()
	if faults.total() < 100 || e.Stats().Retries == 0 {
		t.Fatal("too few faults were injected:", faults.total())
	}
	closeAll(t, e, file)
	if s := e.Stats(); s.InFlight != 0 || s.Waiting != 0 {
		t.Fatalf("operations are left: %+v", s)
	}
}

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
	name := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(name, []byte("0123456789"), 0o600))
	f, err := e.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
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
	if got, _ := os.ReadFile(name); string(got) != "abcd456789" {
		t.Fatal(string(got))
	}
	closeAll(t, e, f)
}
