// Returning when a context ends, while the operation continues.

package ringway

import (
	"context"
	"sync/atomic"
)

// background is the context of operations without one. It never ends.
var background = context.Background()

// detach returns the result of do, or the context's cause as soon as the context ends. In the
// latter case do continues on its own, with the file held open; discard, if it is not nil, then
// receives its result. do must work on memory of its own. The caller holds the file open.
func detach[T any](ctx context.Context, f *File, do func() (T, error), discard func(T)) (T, error) {
	if ctx.Done() == nil {
		return do()
	}
	f.refs.retain()
	return untilDone(ctx, func() (T, error) {
		defer f.end()
		return do()
	}, discard)
}

// untilDone is detach without a file. It runs do in a goroutine.
func untilDone[T any](ctx context.Context, do func() (T, error), discard func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	results := make(chan result, 1)
	var over atomic.Bool // Set by whichever ends first: do, or the wait.
	go func() {
		value, err := do()
		switch {
		case !over.Swap(true):
			results <- result{value, err}
		case discard != nil:
			discard(value)
		}
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		if over.Swap(true) {
			r := <-results
			return r.value, r.err
		}
		var none T
		return none, causeOf(ctx)
	}
}
