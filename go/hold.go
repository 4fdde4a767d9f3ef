package ringway

// Closing waits for users.

import (
	"math"
	"sync/atomic"
)

// hold counts the users of a descriptor, so that it is closed when nobody uses it: its number may be another file's at
// once. Negative: closed for new users.
type hold struct {
	users atomic.Int64
	idle  atomic.Pointer[chan struct{}]
}

// begin counts a user in; false: closed.
func (h *hold) begin() bool {
	if h.users.Add(1) > 0 {
		return true
	}
	h.end()
	return false
}

// end counts a user out.
func (h *hold) end() {
	if h.users.Add(-1) == math.MinInt64 {
		if idle := h.idle.Load(); idle != nil {
			select {
			case *idle <- struct{}{}:
			default:
			}
		}
	}
}

// close lets no more users in and waits for those that are; false: somebody else has closed it.
func (h *hold) close() bool {
	idle := make(chan struct{}, 1)
	for {
		users := h.users.Load()
		if users < 0 {
			return false
		}
		h.idle.CompareAndSwap(nil, &idle)
		if h.users.CompareAndSwap(users, users+math.MinInt64) {
			break
		}
	}
	for idle := *h.idle.Load(); h.users.Load() != math.MinInt64; {
		<-idle
	}
	return true
}
