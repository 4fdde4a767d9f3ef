//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// How many blocking system calls are under way at once.

import (
	"context"
	"sync"
	"time"
)

const (
	// stuckAfter is for how long no call of a full lane has to end before the lane grows. A disk that is merely busy ends one in
	// that time.
	stuckAfter = 100 * time.Millisecond
	// growth is how many more places there are after each such time, however many wait; largestLane bounds all of them: a
	// place is a thread.
	growth      = 8
	largestLane = 1024
)

// lane bounds the blocking system calls of one kind. They wait for a place in their order. A lane in which nothing moves grows:
// calls that hang (a frozen file system, a server that has gone) do not keep those on other files from their turn.
type lane struct {
	over <-chan struct{} // The engine has ended.
	base int

	mu      sync.Mutex
	inUse   int
	places  int // Between base and largestLane.
	ended   int // Calls so far.
	waiters []chan struct{}
	grown   time.Time // When it has grown last.
}

func newLane(places int, over <-chan struct{}) *lane {
	return &lane{over: over, base: places, places: places}
}

// begin waits for a place. The error is the context's cause or ErrEngineClosed.
func (l *lane) begin(ctx context.Context) error {
	l.mu.Lock()
	if l.inUse < l.places {
		l.inUse++
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	l.waiters = append(l.waiters, turn)
	ended := l.ended
	l.mu.Unlock()
	timer := time.NewTicker(stuckAfter)
	defer timer.Stop()
	for {
		select {
		case <-turn:
			return nil
		case now := <-timer.C:
			l.mu.Lock()
			if l.ended == ended && l.inUse >= l.places && now.Sub(l.grown) >= stuckAfter {
				l.places, l.grown = min(l.places+growth, largestLane), now
				l.admit()
			}
			ended = l.ended
			l.mu.Unlock()
		case <-ctx.Done():
			l.leave(turn)
			return context.Cause(ctx)
		case <-l.over:
			l.leave(turn)
			return ErrEngineClosed
		}
	}
}

// leave gives up a place in the order, or the turn that has just come.
func (l *lane) leave(turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, waiter := range l.waiters {
		if waiter == turn {
			l.waiters = append(l.waiters[:i], l.waiters[i+1:]...)
			return
		}
	}
	l.inUse--
	l.admit()
}

// admit lets in those that there are places for. The lock is held.
func (l *lane) admit() {
	for l.inUse < l.places && len(l.waiters) > 0 {
		l.inUse++
		close(l.waiters[0])
		l.waiters = l.waiters[1:]
	}
}

// end gives a place back. A lane that has grown is as it was when half of its first places are free.
func (l *lane) end() {
	l.mu.Lock()
	l.inUse--
	l.ended++
	if l.inUse <= l.base/2 {
		l.places = l.base
	}
	l.admit()
	l.mu.Unlock()
}
