//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// The submission policy.

func TestPace(t *testing.T) {
	p := pace{limit: 256}
	if !p.due(1, 0) || p.due(0, 0) {
		t.Fatal("one alone is submitted at once, and nothing is not")
	}
	p.submitted(128)
	if p.due(15, 0) || !p.due(16, 0) {
		t.Fatal("under load an eighth gathers")
	}
	p.completed(128)
	if p.due(15, 128) {
		t.Fatal("those who were woken gather too")
	}
	p.submitted(256)
	if p.capacity() != 0 || p.due(1000, 0) {
		t.Fatal("there is no room")
	}
	// Whatever is held back, it is never for want of completions.
	for inFlight := range 300 {
		for waiting := 1; waiting < 300; waiting++ {
			p := pace{limit: 192, inFlight: inFlight}
			if !p.due(waiting, 0) && inFlight == 0 {
				t.Fatal("held back, and nobody is to come:", inFlight, waiting)
			}
		}
	}
}

func TestLoad(t *testing.T) {
	var l load
	rounds := func(n int) {
		for i := range loadRounds {
			if i == loadRounds/2 { // The others have just been woken, and have not asked for more yet.
				l.observe(n)
			}
			l.endRound()
		}
	}
	l.set(true)
	for range 3 {
		if rounds(fewTransfers + 1); !l.high.Load() {
			t.Fatal("they are many still")
		}
	}
	if rounds(fewTransfers); l.high.Load() {
		t.Fatal("they are few")
	}
	if rounds(fewTransfers + 1); !l.high.Load() {
		t.Fatal("they are many")
	}
}

// A few transfers are plain calls, and no more of them than the bound, whether they end or hang. What is beyond goes by the
// ring, and so does everything until there are few again.
func TestFewArePlain(t *testing.T) {
	for _, backend := range []Backend{BackendURing, BackendKAIO} {
		e, err := New(Options{Backend: backend, Rings: 1})
		if err != nil {
			skip.Test(t, err)
		}
		name := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(name, make([]byte, pageSize), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := e.OpenFile(name, os.O_RDONLY|syscall.O_DIRECT, 0)
		if err != nil {
			skip.Test(t, "no direct I/O here: ", err)
		}
		p := alignedSlice(pageSize, pageSize)
		pushed := func() uint64 {
			if n, err := f.ReadAt(p, 0); n != pageSize || err != nil {
				t.Fatal(n, err)
			}
			return e.Stats().Pushed
		}
		for range 100 {
			if n := pushed(); n != 0 || e.plain.Load() != 0 {
				t.Fatalf("%s: one alone: %d by the ring, %d under way", backend, n, e.plain.Load())
			}
		}
		e.plain.Store(fewTransfers) // They hang.
		if n := pushed(); n != 1 || e.plain.Load() != fewTransfers {
			t.Fatalf("%s: beside a few that hang: %d by the ring, %d plain ones", backend, n, e.plain.Load())
		}
		e.plain.Store(0) // They have ended.
		n := pushed()
		if n != 2 {
			t.Fatalf("%s: just after a crowd: %d by the ring", backend, n)
		}
		for range loadRounds {
			n = pushed()
		}
		if again := pushed(); again != n {
			t.Errorf("%s: one alone, long after a crowd, goes by the ring", backend)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
