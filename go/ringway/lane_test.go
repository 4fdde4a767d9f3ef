// The limit on blocking calls, when calls hang and when callers give up.

package ringway

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

// fill uses up all slots that a lane can have.
func (l *lane) fill() {
	l.mu.Lock()
	l.inUse, l.slots = largestLane, largestLane
	l.mu.Unlock()
}

// Calls that hang do not block the calls after them, and a lane that has grown shrinks when they
// return.
func TestHungCallsGrowLane(t *testing.T) {
	l := newLane(4, nil)
	for range 4 {
		must(t, l.begin(background))
	}
	for range 100 { // At most one of them waits: the new slots stay.
		must(t, l.begin(background))
		l.end()
	}
	require(t, l.slots == 4+growth && l.inUse == 4, "%d slots, %d in use", l.slots, l.inUse)
	for range 4 {
		l.end()
	}
	require(t, l.slots == 4 && l.inUse == 0, "%d slots, %d in use", l.slots, l.inUse)
}

// A lane in which no call returns grows once in each period, however many callers wait.
func TestLaneGrowsOncePerPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const base, waiters = 4, 64
		l := newLane(base, nil)
		hang := make(chan struct{})
		began := time.Now() // The clock of the test bubble, which only the sleeps below advance.
		for range base + waiters {
			go func() {
				check(t, l.begin(background))
				<-hang
				l.end()
			}()
			time.Sleep(hungAfter / waiters) // So that they do not wait since the same moment.
		}
		for range 6 {
			time.Sleep(hungAfter)
			synctest.Wait()
			l.mu.Lock()
			periods := int(time.Since(began) / hungAfter)
			if grown := (l.slots - base) / growth; grown < periods/2 || grown > periods ||
				l.inUse != min(l.slots, base+waiters) {
				t.Errorf("%d times in %d periods; %d in use", grown, periods, l.inUse)
			}
			l.mu.Unlock()
		}
		close(hang)
		synctest.Wait()
		expect(t, l.slots == base && l.inUse == 0, "%d slots, %d in use at the end", l.slots,
			l.inUse)
	})
}

// A lane whose calls return does not grow, however long callers wait.
func TestBusyLaneDoesNotGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane(4, nil)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				check(t, l.begin(background))
				time.Sleep(hungAfter / 2)
				l.end()
			})
		}
		time.Sleep(5 * hungAfter)
		synctest.Wait()
		l.mu.Lock()
		expect(t, l.slots == 4 && l.inUse == 4, "%d slots, %d in use", l.slots, l.inUse)
		l.mu.Unlock()
		all.Wait()
	})
}

// A lane never has more slots than the limit, and a caller whose context ends stops waiting.
func TestLaneIsBounded(t *testing.T) {
	l := newLane(4, nil)
	l.fill()
	ctx, cancel := context.WithTimeout(t.Context(), 3*hungAfter)
	defer cancel()
	err := l.begin(ctx)
	require(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
	require(t, l.slots == largestLane && l.inUse == largestLane && l.waiters.Len() == 0,
		"%d slots, %d in use, %d waiters", l.slots, l.inUse, l.waiters.Len())
}

// No slot is lost when contexts end at the moment when their callers get one.
func TestLaneCancelStorm(t *testing.T) {
	over := make(chan struct{})
	l := newLane(3, over)
	var now, most atomic.Int32
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 9))
			for range 200 {
				ctx, cancel := context.WithTimeout(context.Background(),
					time.Duration(random.IntN(200))*time.Microsecond)
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
	require(t, l.inUse == 0 && l.waiters.Len() == 0 && l.slots == 3,
		"%d in use, %d waiters, %d slots", l.inUse, l.waiters.Len(), l.slots)
	if n := int(most.Load()); n > 3+growth {
		t.Errorf("%d calls at once", n)
	}
	for range 3 {
		must(t, l.begin(background))
	}
	close(over)
	err := l.begin(background)
	require(t, errors.Is(err, ErrEngineClosed), "%v", err)
}
