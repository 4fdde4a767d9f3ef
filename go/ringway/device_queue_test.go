//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Transfers beyond what the queue of a device holds.

package ringway

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// smallQueue is a queue of which a single shard uses six places.
func smallQueue() *blockQueue { return &blockQueue{requests: 8} }

// manyReads starts reads of a file, and returns a function that waits for them.
func manyReads(f *File, count int, check func(int, error)) (wait func()) {
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			_, err := f.ReadAt(page(), int64(i)*pageSize)
			check(i, err)
		})
	}
	return all.Wait
}

// openOnSmallQueue opens a file of 64 pages, as on a disk with a small queue.
func openOnSmallQueue(t *testing.T, e *Engine) *File {
	f := openIn(t, e, make([]byte, 64*pageSize), os.O_RDWR|Direct)
	f.lookUp()
	f.facts.queue = smallQueue()
	return f
}

// No more transfers are in a device than its queue holds, and none is forgotten.
func TestDeviceQueueIsNotExceeded(t *testing.T) {
	for _, backend := range queueBackends {
		e, s := scriptedEngine(t, Options{Backend: backend})
		f := openOnSmallQueue(t, e)
		other := openIn(t, e, make([]byte, pageSize), os.O_RDWR|Direct)
		other.lookUp()
		other.facts.queue = smallQueue()
		if !f.facts.allows(e.backend) {
			t.Skip("skipped: the temporary folder is on a file system without queues")
		}
		f.warm.Store(true)
		other.warm.Store(true)
		f.facts.waits, other.facts.waits = waits{}, waits{}
		s.onResult(func(r *request) bool { return r.file == f })
		wait := manyReads(f, 40, func(i int, err error) {
			expect(t, err == nil, "%v, %v", i, err)
		})
		eventually(t, "all arrive", func() bool {
			stats := e.Stats()
			return stats.InFlight == 6 && stats.Waiting == 34
		})
		ctx, cancel := context.WithCancel(t.Context())
		left := begin(t, "a canceled read", func() error {
			return errorOf(f.ReadAtContext(ctx, page(), 0))
		})
		eventually(t, "another arrives", func() bool { return e.Stats().Waiting == 35 })
		cancel()
		left(context.Canceled)
		begin(t, "a read of another device", func() error {
			return errorOf(other.ReadAt(page(), 0))
		})(nil)
		var most int
		done := make(chan struct{})
		go func() { wait(); close(done) }()
		for running := true; running; {
			select {
			case <-done:
				running = false
			case <-time.After(100 * time.Microsecond):
				most = max(most, e.Stats().InFlight)
				s.complete(s.takeHeld())
			}
		}
		if stats := e.Stats(); most > 6 || stats.Waiting != 0 || stats.InFlight != 0 {
			t.Error(backend, most, stats)
		}
		s.release()
	}
}

// A device completes nothing. Plain calls make the transfers that wait for it.
func TestTransfersDoNotWaitForHungDevice(t *testing.T) {
	e, s := scriptedEngine(t, Options{})
	f := openOnSmallQueue(t, e)
	s.holdResults()
	done := make(chan int, 40)
	wait := manyReads(f, 40, func(i int, err error) {
		expect(t, err == nil, "%v, %v", i, err)
		done <- i
	})
	returns(t, "the reads that wait", func() {
		for range 34 {
			<-done
		}
	})
	s.release()
	returns(t, "the others", wait)
}

// Close ends the transfers that wait for a device.
func TestCloseEndsWhatWaitsForDevice(t *testing.T) {
	e, s := scriptedEngine(t, Options{closeWait: time.Second})
	f := openOnSmallQueue(t, e)
	s.holdResults()
	failed := make(chan error, 40)
	wait := manyReads(f, 40, func(_ int, err error) { failed <- err })
	eventually(t, "all arrive", func() bool { return e.Stats().Waiting == 34 })
	_ = e.Close()
	returns(t, "the reads", wait)
	for range 40 {
		err := <-failed
		expect(t, errors.Is(err, ErrEngineClosed) || errors.Is(err, ErrAbandoned), "%v", err)
	}
	_ = f.Close()
}

// The partitions and files of a disk have its queue, and share it.
func TestQueueOfDisk(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(name, []byte("x"), 0o600))
	f := get(os.Open(name))(t)
	defer f.Close()
	q := blockQueueOf(int(f.Fd()))
	if q == nil {
		t.Skip("skipped: the temporary folder is on no disk")
	}
	expect(t, q.requests >= 1 && blockQueueOf(int(f.Fd())) == q, "%v", q)
	for _, c := range [][3]int{{64, 1, 48}, {64, 2, 24}, {1, 8, 1}} {
		got := deviceLimit(c[0], c[1])
		expect(t, got == c[2], "%v, %v", c, got)
	}
}
