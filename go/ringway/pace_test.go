//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The submission policy.

package ringway

import (
	"os"
	"testing"
)

func TestPace(t *testing.T) {
	p := pace{limit: 256}
	require(t, p.due(1, 0) && !p.due(0, 0), "a single request must be due, and none must not")
	p.submitted(128)
	require(t, !p.due(15, 0) && p.due(16, 0), "under load, an eighth of the requests must gather")
	p.completed(128)
	require(t, !p.due(15, 128), "requests of woken goroutines must gather too")
	p.submitted(256)
	require(t, p.capacity() == 0 && !p.due(1000, 0), "no capacity must be left")
	// Requests are held back only while completions are due.
	for inFlight := range 300 {
		for waiting := 1; waiting < 300; waiting++ {
			p := pace{limit: 192, inFlight: inFlight}
			require(t, p.due(waiting, 0) || inFlight != 0,
				"held back with no completion due: %v, %v", inFlight, waiting)
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
			n, err := f.ReadAt(p, 0)
			require(t, n == pageSize && err == nil, "%v, %v", n, err)
			return e.Stats().Pushed
		}
		for range 100 {
			n := pushed()
			require(t, n == 0 && e.plain.Load() == 0,
				"%s: one transfer: %d through the queue, %d plain", backend, n, e.plain.Load())
		}
		e.plain.Store(fewTransfers) // They hang.
		if n := pushed(); n != 1 || e.plain.Load() != fewTransfers {
			t.Fatalf("%s: next to plain calls that hang: %d through the queue, %d plain", backend,
				n, e.plain.Load())
		}
		e.plain.Store(0) // They have returned.
		n := pushed()
		require(t, n == 2, "%s: right after high load: %d through the queue", backend, n)
		for range loadRounds {
			n = pushed()
		}
		if again := pushed(); again != n {
			t.Errorf("%s: long after high load, one transfer goes through the queue", backend)
		}
	}
}
