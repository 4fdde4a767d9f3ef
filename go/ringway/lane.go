// The limit on blocking system calls.

package ringway

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	// hungAfter is how long a full lane waits for a call to return before it grows. A disk that
	// is merely busy completes a call in that time.
	hungAfter = 100 * time.Millisecond
	// growth is the number of slots that a lane gains after each such time, however many callers
	// wait. largestLane bounds them, because each slot is a thread.
	growth      = 8
	largestLane = 1024
)

// lane is a semaphore that limits the blocking system calls of one kind. Callers wait for a slot in
// order. A lane in which no call returns grows: calls that hang (a frozen file system, a server
// that does not answer) must not block those on other files.
type lane struct {
	done <-chan struct{} // Closed with the engine.
	base int

	mu      sync.Mutex
	inUse   int
	slots   int       // Between base and largestLane.
	ended   int       // Calls so far.
	waiters list.List // Of channels. A channel is closed when its waiter has a slot.
	watched bool      // A timer for check is running.
	seen    int       // The value of ended at the previous check.
}

func newLane(slots int, done <-chan struct{}) *lane {
	return &lane{done: done, base: slots, slots: slots}
}

// begin waits for a slot. The error is the context's cause, or ErrEngineClosed.
func (l *lane) begin(ctx context.Context) error {
	l.mu.Lock()
	if l.inUse < l.slots {
		l.inUse++
		l.mu.Unlock()
		return nil
	}
	admitted := make(chan struct{})
	waiter := l.waiters.PushBack(admitted)
	if !l.watched {
		l.watched, l.seen = true, l.ended
		time.AfterFunc(hungAfter, l.check)
	}
	l.mu.Unlock()
	select {
	case <-admitted:
		return nil
	case <-ctx.Done():
		l.leave(waiter, admitted)
		return causeOf(ctx)
	case <-l.done:
		l.leave(waiter, admitted)
		return ErrEngineClosed
	}
}

// check lets the lane grow if no call has ended since the previous check. One timer serves all
// waiters: with a hundred thousand waiters, a timer for each would be all that the program does.
func (l *lane) check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watched = l.waiters.Len() > 0; !l.watched {
		return
	}
	if l.ended == l.seen {
		l.slots = max(l.slots, min(l.slots+growth, largestLane))
		l.admit()
	}
	l.seen = l.ended
	time.AfterFunc(hungAfter, l.check)
}

// leave stops waiting, and returns a slot that the waiter may have received in the meantime.
func (l *lane) leave(waiter *list.Element, admitted chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-admitted:
		l.inUse--
		l.admit()
	default:
		l.waiters.Remove(waiter)
	}
}

// admit gives free slots to waiters. The lock is held.
func (l *lane) admit() {
	for l.inUse < l.slots && l.waiters.Len() > 0 {
		l.inUse++
		close(l.waiters.Remove(l.waiters.Front()).(chan struct{}))
	}
}

// end returns a slot. A lane that has grown shrinks to its base when half of the base is free.
func (l *lane) end() {
	l.mu.Lock()
	l.inUse--
	l.ended++
	if l.inUse <= l.base/2 {
		l.slots = l.base
	}
	l.admit()
	l.mu.Unlock()
}
