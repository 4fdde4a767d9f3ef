//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// How many blocking system calls are under way at once.

import (
	"container/list"
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
	places  int       // Between base and largestLane.
	ended   int       // Calls so far.
	waiters list.List // Of channels, each closed when its turn has come.
	watched bool      // look is called in a while.
	seen    int       // Calls that had ended when it was called last.
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
	waiter := l.waiters.PushBack(turn)
	if !l.watched {
		l.watched, l.seen = true, l.ended
		time.AfterFunc(stuckAfter, l.look)
	}
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		l.leave(waiter, turn)
		return context.Cause(ctx)
	case <-l.over:
		l.leave(waiter, turn)
		return ErrEngineClosed
	}
}

// look lets the lane grow if no call has ended since it looked last. It is one timer for all that wait: a hundred thousand
// with a timer each would do nothing else.
func (l *lane) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watched = l.waiters.Len() > 0; !l.watched {
		return
	}
	if l.ended == l.seen {
		l.places = min(l.places+growth, largestLane)
		l.admit()
	}
	l.seen = l.ended
	time.AfterFunc(stuckAfter, l.look)
}

// leave gives up a place in the order, or the turn that has just come.
func (l *lane) leave(waiter *list.Element, turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-turn:
		l.inUse--
		l.admit()
	default:
		l.waiters.Remove(waiter)
	}
}

// admit lets in those that there are places for. The lock is held.
func (l *lane) admit() {
	for l.inUse < l.places && l.waiters.Len() > 0 {
		l.inUse++
		close(l.waiters.Remove(l.waiters.Front()).(chan struct{}))
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
