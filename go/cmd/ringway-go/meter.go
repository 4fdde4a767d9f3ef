//go:build linux

package main

// The measured loop: goroutines that ask for one thing after the other, and the window of time in which that counts.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// meter counts what is done in its window. Whoever sees first that the window is over takes the closing figures at that
// moment: another goroutine would be late by as long as it takes to get a processor.
type meter struct {
	epoch  time.Time
	length time.Duration
	trips  func() (trips, bool)

	opens  atomic.Int64 // Nanoseconds since the epoch; 0: not yet; negative: it came to nothing.
	begun  atomic.Int64 // Goroutines that have done something.
	some   atomic.Bool  // Something was done in the window.
	longer atomic.Int64 // Nanoseconds that it was open, if nothing was done in time.
	closed atomic.Bool

	opening, closing moment
	samples          []metrics.Sample
	shards           []shard

	mu  sync.Mutex
	err error
}

// shard is a histogram that some goroutines share.
type shard struct {
	mu      sync.Mutex
	latency *hdrhistogram.Histogram
	_       [40]byte
}

const mostShards = 64

// Latencies are kept from 1 ns to 100 s, with three digits.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(100*time.Second), 3)
}

func newMeter(goroutines int, length time.Duration, trips func() (trips, bool)) *meter {
	m := &meter{epoch: time.Now(), length: length, trips: trips, samples: samples(), shards: make([]shard, min(goroutines, mostShards))}
	for i := range m.shards {
		m.shards[i].latency = newHistogram()
	}
	return m
}

// figures of this moment. One at a time.
func (m *meter) figures() moment {
	now, err := now(m.samples)
	if err != nil {
		m.fail(err)
	}
	now.trips, _ = m.trips()
	return now
}

func (m *meter) fail(err error) {
	m.mu.Lock()
	if m.err == nil {
		m.err = err
	}
	m.mu.Unlock()
	m.opens.Store(-1)
}

// loop does one thing after the other until the window is over. do is told whether this is still the ramp.
func (m *meter) loop(number int, do func(ramp bool) error) {
	var kept [32]int64 // So that the shard is rarely asked for.
	count := 0
	shard := &m.shards[number%len(m.shards)]
	flush := func() {
		shard.mu.Lock()
		for _, latency := range kept[:count] {
			if err := shard.latency.RecordValue(min(max(latency, 1), int64(100*time.Second))); err != nil {
				m.fail(err)
			}
		}
		shard.mu.Unlock()
		count = 0
	}
	keep := func(latency int64) {
		kept[count] = latency
		if count++; count == len(kept) {
			flush()
		}
	}
	last := int64(time.Since(m.epoch))
	for first := true; ; first = false {
		err := do(m.opens.Load() == 0)
		now := int64(time.Since(m.epoch))
		if err != nil {
			m.fail(err)
		}
		if first {
			m.begun.Add(1)
		}
		// (One look at the clock for each operation: the end of one is the beginning of the next.)
		if opens := m.opens.Load(); opens < 0 {
			return
		} else if opens > 0 && now >= opens {
			if now >= opens+int64(m.length) {
				if m.some.CompareAndSwap(false, true) {
					// It stays open for one: a machine may be so busy, or a disk so slow.
					keep(now - last)
					m.longer.Store(now - opens)
				}
				if m.closed.CompareAndSwap(false, true) {
					m.closing = m.figures()
				}
				flush()
				return
			}
			if !m.some.Load() {
				m.some.Store(true)
			}
			keep(now - last)
		}
		last = now
	}
}

// longestRamp is how long a ramp waits for all.
const longestRamp = 20 * time.Second

// measure has so many goroutines do something, each with what prepare gives it. The ramp lasts until all have done it once, if
// they are to: where they do not block, a thousand take their turns of ten milliseconds for seconds.
func measure(c contestant, s subject, goroutines int, all bool, ramp, length time.Duration, prepare func(number int) (func(ramp bool) error, error)) (run, error) {
	m := newMeter(goroutines, length, s.trips)
	loops := make([]func(bool) error, goroutines)
	for i := range loops {
		var err error
		if loops[i], err = prepare(i); err != nil {
			return run{}, err
		}
	}
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for i, do := range loops {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-begin
			m.loop(i, do)
		})
	}
	ready.Wait()
	runtime.GC() // All begin with the same heap.
	watch, err := startWatch(c.helped)
	if err != nil {
		m.fail(err) // They begin, and end at once.
	}
	close(begin)
	time.Sleep(ramp)
	for deadline := time.Now().Add(longestRamp); all && m.begun.Load() < int64(goroutines) && m.opens.Load() == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	m.opening = m.figures()
	m.opens.CompareAndSwap(0, int64(time.Since(m.epoch)))
	done.Wait()
	if watch != nil {
		m.err = cmp.Or(m.err, watch.end())
	}
	if m.err != nil {
		return run{}, m.err
	}
	return m.result(watch), nil
}

func (m *meter) result(w *watch) run {
	latency := newHistogram()
	for i := range m.shards {
		latency.Merge(m.shards[i].latency)
	}
	at := func(percent float64) time.Duration { return time.Duration(latency.ValueAtPercentile(percent)) }
	r := run{
		Requests: latency.TotalCount(), Real: max(m.length, time.Duration(m.longer.Load())),
		User: m.closing.user - m.opening.user, System: m.closing.system - m.opening.system,
		ContextSwitches: m.closing.contextSwitches - m.opening.contextSwitches,
		Allocs:          m.closing.allocs - m.opening.allocs,
		Collections:     m.closing.collections - m.opening.collections,
		Threads:         w.threads, Workers: w.workers,
		P50: at(50), P99: at(99), P999: at(99.9), P9999: at(99.99), Max: time.Duration(latency.Max()),
	}
	if _, known := m.trips(); known {
		calls := m.closing.trips.calls - m.opening.trips.calls
		r.trips = &trips{calls, m.closing.trips.carried - m.opening.trips.carried}
	}
	return r
}

// whole is nil if a read has got all it asked for.
func whole(n int, err error, p []byte) error {
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case n < len(p):
		return fmt.Errorf("a read of %d bytes got %d", len(p), n)
	}
	return nil
}
