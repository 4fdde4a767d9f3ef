//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The submission policy.

package ringway

import (
	"os"
	"testing"
)

func TestPace(t *testing.T) {
	p := pace{limit: 256}
	if !p.due(1, 0) || p.due(0, 0) {
		t.Fatal("a single request must be due, and none must not")
	}
	p.submitted(128)
	if p.due(15, 0) || !p.due(16, 0) {
		t.Fatal("under load, an eighth of the requests must gather")
	}
	p.completed(128)
	if p.due(15, 128) {
		t.Fatal("requests of woken goroutines must gather too")
	}
	p.submitted(256)
	if p.capacity() != 0 || p.due(1000, 0) {
		t.Fatal("no capacity must be left")
	}
	// Requests are held back only while completions are due.
	for inFlight := range 300 {
		for waiting := 1; waiting < 300; waiting++ {
			p := pace{limit: 192, inFlight: inFlight}
			if !p.due(waiting, 0) && inFlight == 0 {
				t.Fatal("held back with no completion due:", inFlight, waiting)
			}
		}
	}
}

func TestLoad(t *testing.T) {
	var l load
	rounds := func(n int) {
		for i := range loadRounds {
			// The other goroutines were just woken and have not submitted yet.
			if i == loadRounds/2 {
				l.observe(n)
			}
			l.endRound()
		}
	}
	l.set(true)
	for range 3 {
		if rounds(fewTransfers + 1); !l.high.Load() {
			t.Fatal("the load must stay high")
		}
	}
	if rounds(fewTransfers); l.high.Load() {
		t.Fatal("the load must be low")
	}
	if rounds(fewTransfers + 1); !l.high.Load() {
		t.Fatal("the load must be high")
	}
}

// Up to a limit, transfers are plain calls, whether they return or hang. Transfers beyond the limit
// go to the queue, and so do all others until only a few run again.
func TestFewTransfersArePlainCalls(t *testing.T) {
	for _, backend := range queueBackends {
		e := newOrSkip(t, Options{Backend: backend, Rings: 1})
		f := openIn(t, e, page(), os.O_RDONLY|Direct)
		p := page()
		pushed := func() uint64 {
			if n, err := f.ReadAt(p, 0); n != pageSize || err != nil {
				t.Fatal(n, err)
			}
			return e.Stats().Pushed
		}
		for range 100 {
			if n := pushed(); n != 0 || e.plain.Load() != 0 {
				t.Fatalf("%s: one transfer: %d through the queue, %d plain", backend, n,
					e.plain.Load())
			}
		}
		e.plain.Store(fewTransfers) // They hang.
		if n := pushed(); n != 1 || e.plain.Load() != fewTransfers {
			t.Fatalf("%s: next to plain calls that hang: %d through the queue, %d plain", backend,
				n, e.plain.Load())
		}
		e.plain.Store(0) // They have returned.
		n := pushed()
		if n != 2 {
			t.Fatalf("%s: right after high load: %d through the queue", backend, n)
		}
		for range loadRounds {
			n = pushed()
		}
		if again := pushed(); again != n {
			t.Errorf("%s: long after high load, one transfer goes through the queue", backend)
		}
	}
}
