//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Operations that hang, and operations that the kernel ends without doing them; garbage
// collections, and what engines leave behind.

package ringway

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
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

// readsPage returns a function that reads the first page of a file and checks it.
func readsPage(f *File, content []byte) func() error {
	return func() error {
		p := page()
		if n, err := f.ReadAt(p, 0); err != nil || !bytes.Equal(p[:n], content[:pageSize]) {
			return errors.Join(fmt.Errorf("%d bytes, or wrong ones", n), err)
		}
		return nil
	}
}

// However many reads of one file hang, reads of another file complete: single ones, and batches.
func TestHungTransfersDoNotBlockOthers(t *testing.T) {
	content := bytesOf(16 * pageSize)
	for _, backend := range queueBackends {
		for _, count := range []int{1, 15, 16, 50, 500} {
			e, s := scriptedEngine(t, Options{Backend: backend})
			hung, fine := openIn(t, e, content, os.O_RDONLY|Direct),
				openIn(t, e, content, os.O_RDONLY|Direct)
			var swallowed []*request
			s.onPush(func(r *request) bool { // As if the kernel had it and never completed it.
				if r.fd == hung.fd {
					swallowed = append(swallowed, r)
				}
				return r.fd == hung.fd
			})
			var ends []func(error)
			for range count {
				ends = append(ends, begin(t, "a read that hung", readsPage(hung, content)))
			}
			eventually(t, "the reads are submitted", func() bool {
				stats := e.Stats()
				return stats.InFlight+stats.Waiting == count || count > 192 && stats.InFlight == 192
			})
			for range 3 {
				begin(t, fmt.Sprint("a read of another file, ", backend, ", ", count),
					readsPage(fine, content))(nil)
			}
			batch := make([]Transfer, 8)
			for i := range batch {
				batch[i] = Transfer{P: page(), Off: int64(i) * pageSize}
			}
			begin(t, "a batch on another file", func() error { return fine.ReadBatch(batch) })(nil)
			s.onPush(nil)
			for _, r := range swallowed {
				r.result = -int32(syscall.EINTR)
			}
			s.complete(swallowed)
			for _, end := range ends {
				end(nil)
			}
		}
	}
}

// While a combiner hangs in the kernel, the operations of other goroutines complete.
func TestHungSubmissionDoesNotBlockOthers(t *testing.T) {
	e, s := scriptedEngine(t, Options{})
	content := bytesOf(16 * pageSize)
	read := readsPage(openIn(t, e, content, os.O_RDONLY|Direct), content)
	gate := make(chan struct{})
	s.setGate(gate)
	hung := begin(t, "the read that hung", read)
	submitted(t, e)
	for range 3 {
		begin(t, "a read during a submission that hangs", read)(nil)
	}
	s.setGate(nil)
	close(gate)
	hung(nil)
	before := s.count.Load()
	check(t, read())
	expect(t, s.count.Load() != before, "nothing is submitted any more")
}

// Goroutines lock their thread, read, and return. No other goroutine notices.
func TestThreadsEnd(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendURing, AlwaysRing: true, Rings: 1})
	content := numbered(3, 1, 8192)
	f := openIn(t, e, content, os.O_RDONLY)
	must(t, f.Sync())
	read := func() {
		p := make([]byte, pageSize)
		off := rand.Int64N(int64(len(content)/pageSize)) * pageSize
		n, err := f.ReadAt(p, off)
		expect(t, n == len(p) && err == nil && bytes.Equal(p, content[off:][:n]), "%v, %v", n, err)
	}
	end := time.Now().Add(2 * time.Second)
	var all sync.WaitGroup
	_ = f.Advise(0, 0, AdviceRandom)
	for range 64 {
		all.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				read()
			}
		})
	}
	all.Go(func() {
		for time.Now().Before(end) {
			_ = f.Advise(0, 0, AdviceDontNeed) // So that reads have to wait.
			time.Sleep(time.Millisecond)
		}
	})
	all.Go(func() {
		for time.Now().Before(end) {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				runtime.LockOSThread()
				for range 4 {
					read()
				}
			}()
			<-ended
		}
	})
	returns(t, "reads", all.Wait)
}

// refusing is a queue that refuses every request after all.
type refusing struct{ queue }

func (c *refusing) push(r *request) {
	r.result = unsupported
	switch q := c.queue.(type) {
	case *uring:
		q.refused = append(q.refused, r)
	case *kaio:
		q.refused = append(q.refused, r)
	}
	if r.linked() != nil {
		c.push(r.linked())
	}
}
