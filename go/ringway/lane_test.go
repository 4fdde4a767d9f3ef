//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// Blocking calls that hang, and those that come after them.

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fill takes all places that there can be, and drain gives them back.
func (l *lane) fill() {
	l.mu.Lock()
	l.inUse, l.slots = largestLane, largestLane
	l.mu.Unlock()
}

func (l *lane) drain() {
	for range largestLane {
		l.end()
	}
}

// Calls that hang do not keep others from their turn, and a lane that has grown is small again after them.
func TestStuckLane(t *testing.T) {
	l := newLane(4, nil)
	for range 4 {
		if err := l.begin(background); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 { // One wait at the most: the places that are new stay.
		if err := l.begin(background); err != nil {
			t.Fatal(err)
		}
		l.end()
	}
	if l.slots != 4+growth || l.inUse != 4 {
		t.Fatalf("%d places, %d in use", l.slots, l.inUse)
	}
	for range 4 {
		l.end()
	}
	if l.slots != 4 || l.inUse != 0 {
		t.Fatalf("%d places, %d in use", l.slots, l.inUse)
	}
}

// A lane in which nothing ends grows once in a period, however many wait.
func TestLaneGrowsOncePerPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const base, waiters = 4, 64
		l := newLane(base, nil)
		hang := make(chan struct{})
		began := time.Now() // Of the bubble's clock, which nothing but the sleeps below moves.
		for range base + waiters {
			go func() {
				if err := l.begin(background); err != nil {
					t.Error(err)
				}
				<-hang
				l.end()
			}()
			time.Sleep(stuckAfter / waiters) // They do not all look at the same moment.
		}
		for range 6 {
			time.Sleep(stuckAfter)
			synctest.Wait()
			l.mu.Lock()
			periods := int(time.Since(began) / stuckAfter)
			if grown := (l.slots - base) / growth; grown < periods/2 || grown > periods || l.inUse != min(l.slots, base+waiters) {
				t.Errorf("%d times in %d periods; %d in use", grown, periods, l.inUse)
			}
			l.mu.Unlock()
		}
		close(hang)
		synctest.Wait()
		if l.slots != base || l.inUse != 0 {
			t.Errorf("%d places, %d in use at the end", l.slots, l.inUse)
		}
	})
}

// However many hang, there are no more threads than the bound, and whoever waits then can give it up.
func TestLaneIsBounded(t *testing.T) {
	l := newLane(4, nil)
	l.fill()
	ctx, cancel := context.WithTimeout(t.Context(), 3*stuckAfter)
	defer cancel()
	if err := l.begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if l.slots != largestLane || l.inUse != largestLane || l.waiters.Len() != 0 {
		t.Fatalf("%d places, %d in use, %d wait", l.slots, l.inUse, l.waiters.Len())
	}
}

// Contexts that end while their turn comes lose no place.
func TestLaneStorm(t *testing.T) {
	over := make(chan struct{})
	l := newLane(3, over)
	var now, most atomic.Int32
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 9))
			for range 200 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(200))*time.Microsecond)
				if l.begin(ctx) == nil {
					n := now.Add(1)
					for most := &most; ; {
						old := most.Load()
						if n <= old || most.CompareAndSwap(old, n) {
							break
						}
					}
					time.Sleep(time.Duration(random.IntN(50)) * time.Microsecond)
					now.Add(-1)
					l.end()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if l.inUse != 0 || l.waiters.Len() != 0 || l.slots != 3 {
		t.Fatalf("%d in use, %d wait, %d places", l.inUse, l.waiters.Len(), l.slots)
	}
	if n := int(most.Load()); n > 3+growth {
		t.Errorf("%d at once", n)
	}
	for range 3 {
		if err := l.begin(background); err != nil {
			t.Fatal(err)
		}
	}
	close(over)
	if err := l.begin(background); !errors.Is(err, ErrEngineClosed) {
		t.Fatal(err)
	}
}
