//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Garbage collections, and what engines leave behind.

package ringway

import (
	"bytes"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
)

// Reads into buffers on stacks that grow and shrink, while the garbage collector runs.
func TestStacksAndCollections(t *testing.T) {
	content := bytesOf(1 << 20)
	name := fileWith(t, content)
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, name, os.O_RDONLY|direct)
		stop := make(chan struct{})
		var collector, readers sync.WaitGroup
		collector.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.GC()
				}
			}
		})
		for g := range 32 {
			readers.Go(func() {
				random := rand.New(rand.NewPCG(uint64(g), 2))
				for range 60 {
					var p [3000]byte // As far as the compiler knows, this may be on the stack.
					off := random.Int64N(1<<20 - 3000)
					grow(random.IntN(200))
					n, err := f.ReadAt(p[:], off)
					grow(random.IntN(200))
					if n != len(p) || err != nil || !bytes.Equal(p[:], content[off:off+3000]) {
						t.Error("wrong bytes", n, err)
						return
					}
				}
			})
		}
		readers.Wait()
		close(stop)
		collector.Wait()
	})
}

//go:noinline
func grow(n int) byte {
	var frame [512]byte
	frame[n] = byte(n)
	if n > 0 {
		frame[0] = grow(n - 1)
	}
	return frame[n]
}

func descriptors(t *testing.T) int {
	t.Helper()
	all := get(os.ReadDir("/proc/self/fd"))(t)
	return len(all)
}

func TestNothingLeaks(t *testing.T) {
	name := fileWith(t, bytesOf(1<<16))
	for _, backend := range testBackends {
		once := func() {
			e := get(New(Options{Backend: backend, AlwaysRing: true, Rings: 2}))(t)
			f := get(e.Open(name))(t)
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() { _, _ = f.ReadAt(make([]byte, 5000), 100) })
			}
			wg.Wait()
			closeAll(t, e, f)
		}
		newOrSkip(t, Options{Backend: backend}) // It skips the test.
		once()
		fds, goroutines := descriptors(t), runtime.NumGoroutine()
		for range 30 {
			once()
		}
		eventually(t, "descriptors and goroutines end", func() bool {
			return descriptors(t) <= fds && runtime.NumGoroutine() <= goroutines
		})
	}
}
