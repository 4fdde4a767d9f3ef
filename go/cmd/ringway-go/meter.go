//go:build linux

// The measured loop: goroutines that make one request after the other, and the window of time in
// which requests count.

package main

import (
	"cmp"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// meter counts the requests that complete while its window is open. The window closes with the
// first request that completes after its length, and that goroutine takes the final usage at once:
// another one would have to wait for a processor first. So at least one request counts.
type meter struct {
	subject subject
	epoch   time.Time
	length  time.Duration

	opened   atomic.Int64 // Nanoseconds since the epoch; 0: not yet; negative: a request failed.
	started  atomic.Int64 // Goroutines that have completed a request.
	closed   atomic.Bool
	duration time.Duration // That the window was open.

	opening, closing usage
	samples          []metrics.Sample
	histograms       []sharedHistogram

	mu  sync.Mutex
	err error
}

// sharedHistogram serves several goroutines.
type sharedHistogram struct {
	mu      sync.Mutex
	latency *hdrhistogram.Histogram
	_       [40]byte // One cache line each.
}

const (
	maxHistograms = 64
	maxLatency    = int64(100 * time.Second)
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxLatency, 3) }

func newMeter(s subject, goroutines int, length time.Duration) *meter {
	m := &meter{
		subject: s, epoch: time.Now(), length: length, samples: newSamples(),
		histograms: make([]sharedHistogram, min(goroutines, maxHistograms)),
	}
	for i := range m.histograms {
		m.histograms[i].latency = newHistogram()
	}
	return m
}

// usage returns the usage so far. It must not run concurrently with itself.
func (m *meter) usage() usage {
	u, err := usageNow(m.samples)
	if err != nil {
		m.fail(err)
	}
	u.submissions = m.subject.submissions()
	return u
}

func (m *meter) fail(err error) {
	m.mu.Lock()
	m.err = cmp.Or(m.err, err)
	m.mu.Unlock()
	m.opened.Store(-1)
}

// loop makes requests until the window closes.
func (m *meter) loop(number int, request step) {
	var latencies [32]int64 // Collected, to lock the histogram rarely.
	count := 0
	histogram := &m.histograms[number%len(m.histograms)]
	flush := func() {
		histogram.mu.Lock()
		for _, latency := range latencies[:count] {
			if err := histogram.latency.RecordValue(min(max(latency, 1), maxLatency)); err != nil {
				m.fail(err)
			}
		}
		histogram.mu.Unlock()
		count = 0
	}
	defer flush()
	record := func(latency int64) {
		latencies[count] = latency
		if count++; count == len(latencies) {
			flush()
		}
	}
	last := int64(time.Since(m.epoch))
	for first := true; ; first = false {
		if err := request(m.opened.Load() == 0); err != nil {
			m.fail(err)
		}
		if first {
			m.started.Add(1)
		}
		// One clock reading per request: the end of one is the start of the next.
		now := int64(time.Since(m.epoch))
		opened := m.opened.Load()
		switch {
		case opened < 0:
			return
		case opened == 0 || now < opened: // Still the ramp.
		case now < opened+int64(m.length):
			record(now - last)
		default:
			if m.closed.CompareAndSwap(false, true) {
				m.closing = m.usage() // Before anything that may block.
				m.duration = time.Duration(now - opened)
				record(now - last)
			}
			return
		}
		last = now
	}
}

// open takes the usage and opens the window at the same time. Where goroutines do not block, the
// scheduler may preempt this one in between, and resume it seconds later. Then it tries again, with
// a time slice of its own.
func (m *meter) open() {
	for {
		start := time.Since(m.epoch)
		m.opening = m.usage()
		now := time.Since(m.epoch)
		if now-start < 5*time.Millisecond || m.opened.Load() < 0 {
			m.opened.CompareAndSwap(0, int64(now))
			return
		}
	}
}

// maxRamp is how long the ramp waits for all goroutines.
const maxRamp = 20 * time.Second

// measure runs goroutines, each of which makes the requests that prepare returns for it. If all is
// true, the window opens only when each has completed a request.
func measure(s subject, goroutines int, all bool, ramp, length time.Duration,
	prepare func(goroutine int) (step, error)) (run, submissions, error) {
	m := newMeter(s, goroutines, length)
	requests := make([]step, goroutines)
	for i := range requests {
		var err error
		if requests[i], err = prepare(i); err != nil {
			return run{}, submissions{}, err
		}
	}
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for i, request := range requests {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-begin
			m.loop(i, request)
		})
	}
	ready.Wait()
	runtime.GC() // Every run starts with a clean heap.
	close(begin)
	time.Sleep(ramp)
	for end := time.Now().Add(maxRamp); all && m.started.Load() < int64(goroutines) &&
		m.opened.Load() == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	m.open()
	done.Wait()
	threads, workers, err := countThreads()
	m.err = cmp.Or(m.err, err)
	if m.err != nil {
		return run{}, submissions{}, m.err
	}
	latency := newHistogram()
	for i := range m.histograms {
		latency.Merge(m.histograms[i].latency)
	}
	percentile := func(p float64) time.Duration {
		return time.Duration(latency.ValueAtPercentile(p))
	}
	return run{
			Requests: latency.TotalCount(), Real: m.duration,
			User: m.closing.user - m.opening.user, System: m.closing.system - m.opening.system,
			ContextSwitches: m.closing.contextSwitches - m.opening.contextSwitches,
			Allocs:          m.closing.allocs - m.opening.allocs,
			Collections:     m.closing.collections - m.opening.collections,
			Threads:         threads, Workers: workers,
			P50: percentile(50), P99: percentile(99), P999: percentile(99.9),
			P9999: percentile(99.99),
			Max:   time.Duration(latency.Max()),
		}, submissions{
			m.closing.submissions.calls - m.opening.submissions.calls,
			m.closing.submissions.requests - m.opening.submissions.requests,
		}, nil
}
