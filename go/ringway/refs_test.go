// The reference count of a descriptor.

package ringway

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestRefs(t *testing.T) {
	for range 200 {
		var r refs
		var users, lasts atomic.Int32
		var wg sync.WaitGroup
		out := func(last bool) {
			if last {
				lasts.Add(1)
				expect(t, users.Load() == 0, "the last release, while there are users")
			}
		}
		for range 8 {
			wg.Go(func() {
				for r.acquire() {
					users.Add(1)
					r.retain()
					users.Add(-1)
					out(r.release())
					users.Add(1)
					users.Add(-1)
					out(r.release())
				}
				out(r.release())
			})
		}
		var firsts atomic.Int32
		for range 2 {
			wg.Go(func() {
				first, last := r.close()
				if first {
					firsts.Add(1)
				}
				out(last)
			})
		}
		wg.Wait()
		require(t, firsts.Load() == 1 && lasts.Load() == 1, "%d first closes, %d last releases",
			firsts.Load(), lasts.Load())
	}
}
