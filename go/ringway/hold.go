package ringway

// Who uses a descriptor, and who closes it.

import (
	"math"
	"sync/atomic"
)

// hold counts the users of a descriptor. It is closed when it has none, since its number may be another file's at once.
// Nobody waits for that: whoever is the last one closes it. The count is negative once it is closed for new users.
type hold struct {
	users atomic.Int64
	over  atomic.Bool // The last user has been told.
}

// begin counts a user in; false: closed. Either way end has to follow.
func (h *hold) begin() bool { return h.users.Add(1) > 0 }

// again counts one more in for somebody who is in: closed meanwhile or not.
func (h *hold) again() { h.users.Add(1) }

// end counts a user out. True, once: it is closed and has no users.
func (h *hold) end() (last bool) { return h.users.Add(-1) == math.MinInt64 && !h.over.Swap(true) }

// close lets no more users in. first: nobody has closed it before. last: it has no users.
func (h *hold) close() (first, last bool) {
	for {
		users := h.users.Load()
		if users < 0 {
			return false, false
		}
		if h.users.CompareAndSwap(users, users+math.MinInt64) {
			return true, users == 0 && !h.over.Swap(true)
		}
	}
}

// closed tells whether it is closed for new users.
func (h *hold) closed() bool { return h.users.Load() < 0 }
