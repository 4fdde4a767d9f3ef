// The reference count of a descriptor.

package ringway

import (
	"math"
	"sync/atomic"
)

// refs counts the operations that use a descriptor. The descriptor must stay open while they run,
// because its number may belong to another file as soon as it is closed. Close does not wait for
// them: the last operation closes the descriptor. The count is negative after close.
type refs struct {
	count    atomic.Int64
	released atomic.Bool // The last user has been told to close the descriptor.
}

// acquire adds a user and reports whether the descriptor is open. In either case, the caller must
// call release.
func (r *refs) acquire() bool { return r.count.Add(1) > 0 }

// retain adds a user on behalf of one that exists, also after close.
func (r *refs) retain() { r.count.Add(1) }

// release removes a user. It returns true once: after close, for the last user.
func (r *refs) release() (last bool) {
	return r.count.Add(-1) == math.MinInt64 && !r.released.Swap(true)
}

// close refuses new users. first reports whether this is the first close, last whether the
// descriptor has no users, so that the caller must close it.
func (r *refs) close() (first, last bool) {
	for {
		count := r.count.Load()
		if count < 0 {
			return false, false
		}
		if r.count.CompareAndSwap(count, count+math.MinInt64) {
			return true, count == 0 && !r.released.Swap(true)
		}
	}
}

// closed reports whether close was called.
func (r *refs) closed() bool { return r.count.Load() < 0 }
