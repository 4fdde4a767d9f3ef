//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Warming: afterwards the page cache has the ranges.

package ringway

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/ringway-io/ringway/go/internal/skip"
)

const warmSize = 600*4096 + 100

// warmBackends runs a test on every backend, with a file that the page cache does not have.
func warmBackends(t *testing.T, test func(t *testing.T, e *Engine, f *File)) {
	for _, backend := range testBackends {
		t.Run(string(backend), func(t *testing.T) {
			e := newOrSkip(t, Options{Backend: backend})
			f := openIn(t, e, bytesOf(warmSize), os.O_RDWR)
			evictOrSkip(t, f)
			test(t, e, f)
		})
	}
}

// evictOrSkip drops the pages of a file from the page cache.
func evictOrSkip(t *testing.T, f *File) {
	t.Helper()
	must(t, f.Sync())
	must(t, f.Advise(0, 0, AdviceDontNeed))
	if cachedPages(t, f.Name()) > 0 {
		skip.Test(t, "this file system keeps its pages")
	}
}

func TestWarm(t *testing.T) {
	warmBackends(t, func(t *testing.T, _ *Engine, f *File) {
		const page = 4096
		ctx := t.Context()
		some := []Range{{40*page + 5, 1}, {7 * page, 2 * page}, {600 * page, math.MaxInt64}}
		w, err := f.Warm(ctx, some)
		// (How many of them were read is the device's matter: a look that misses makes the kernel
		// read ahead, and a fast device answers before the look ends.)
		expect(t, err == nil && w.Cached+w.Read == 3*page+100 && w.Failed == nil, "%v, %v", w, err)
		pages := residentPages(t, f.Name())
		for _, n := range []int{7, 8, 40, 600} {
			expect(t, pages[n], "page %v is missing", n)
		}
		expect(t, !pages[300], "a page is there that nobody asked for")
		if w, err = f.Warm(ctx, some); err != nil || w.Cached != 3*page+100 || w.Read != 0 {
			t.Error("again:", w, err)
		}
		// Many ranges, of all pages and in no order.
		var many []Range
		for i := range int64(20_000) {
			many = append(many, Range{i * 7919 % warmSize, 1})
		}
		for _, ranges := range [][]Range{many, {{0, math.MaxInt64}}} {
			evictOrSkip(t, f)
			w, err := f.Warm(ctx, ranges)
			expect(t, err == nil && w.Cached+w.Read == warmSize, "%v, %v", w, err)
			expect(t, !slices.Contains(residentPages(t, f.Name()), false), "a page is missing")
		}
		for _, ranges := range [][]Range{nil, {{5, 0}}, {{warmSize, 10}}, {{math.MaxInt64, 1}}} {
			w, err := f.Warm(ctx, ranges)
			expect(t, err == nil && w.Cached+w.Read == 0, "%v, %v, %v", ranges, w, err)
		}
	})
}

// Calls at once, with a context that can end, while the file becomes shorter and longer.
func TestWarmTogether(t *testing.T) {
	warmBackends(t, func(t *testing.T, _ *Engine, f *File) {
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for i := range int64(16) {
			calls.Go(func() {
				check(t, errorOf(f.Warm(ctx, []Range{{i * 4096, math.MaxInt64}})))
			})
		}
		check(t, f.Truncate(warmSize/2))
		check(t, f.Truncate(2*warmSize))
		calls.Wait()
		check(t, errorOf(f.Warm(ctx, []Range{{0, math.MaxInt64}})))
		expect(t, !slices.Contains(residentPages(t, f.Name()), false), "a page is missing")
		evictOrSkip(t, f)
		done := make(chan error)
		go func() { done <- errorOf(f.Warm(ctx, []Range{{0, math.MaxInt64}})) }()
		cancel()
		if err := <-done; err != nil {
			wantError(t, "canceled", err, context.Canceled)
		}
		wantError(t, "ended", errorOf(f.Warm(ctx, nil)), context.Canceled)
	})
}

// Where the file system does not tell what is cached, all of it is read.
func TestWarmInMemory(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "ringway")
	if err != nil {
		skip.Test(t, err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "file")
	must(t, os.WriteFile(name, bytesOf(warmSize), 0o600))
	for _, backend := range testBackends {
		f := open(t, newOrSkip(t, Options{Backend: backend}), name, os.O_RDONLY)
		w, err := f.Warm(t.Context(), []Range{{0, warmSize}})
		expect(t, err == nil && w.Cached+w.Read == warmSize, "%v, %v, %v", backend, w, err)
	}
}

func TestWarmRefusals(t *testing.T) {
	warmBackends(t, func(t *testing.T, e *Engine, f *File) {
		ctx := t.Context()
		for _, r := range []Range{{-1, 1}, {1, -1}} {
			var path *fs.PathError
			err := errorOf(f.Warm(ctx, []Range{{0, 1}, r}))
			expect(t, errors.As(err, &path), "%v, %v", r, err)
		}
		one := []Range{{0, 1}}
		wantError(t, "a device", errorOf(open(t, e, "/dev/null", os.O_RDONLY).Warm(ctx, one)),
			errNotRegular)
		wantError(t, "a directory", errorOf(open(t, e, t.TempDir(), os.O_RDONLY).Warm(ctx, one)),
			errNotRegular)
		w, err := open(t, e, f.Name(), os.O_WRONLY).Warm(ctx, one)
		wantError(t, "no reading", err, syscall.EBADF)
		expect(t, len(w.Failed) == 1 && w.Failed[0].Range == (Range{0, 4096}), "%v", w)
		must(t, f.Close())
		wantError(t, "closed", errorOf(f.Warm(ctx, one)), os.ErrClosed)
		wantError(t, "nil", errorOf((*File)(nil).Warm(ctx, one)), os.ErrInvalid)
		direct := open(t, e, f.Name(), os.O_RDONLY|Direct)
		wantError(t, "direct", errorOf(direct.Warm(ctx, one)), errWarmDirect)
		drops := open(t, e, f.Name(), os.O_RDONLY)
		drops.SetDontCache(true)
		wantError(t, "no pages", errorOf(drops.Warm(ctx, one)), errWarmDrops)
	})
}
