//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Random operations over queues that inject faults, compared with a model of each file: bursts of
// reads, writes, batches and syncs, of which some are canceled, while files and engines are closed.
// It takes a second for each configuration, or as long as RINGWAY_SOAK says: make -C go soak
// SOAK=10m.

package ringway

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	modelPlaces = 16
	modelPlace  = 4 * pageSize
)

// frequentFaults are faults that no caller may see.
var frequentFaults = faultRates{short: 4, unsent: 10, retryable: 4, late: 12, lateRounds: 1}

// visibleFaults are faults that callers see at times.
var visibleFaults = faultRates{
	short: 8, unsent: 50, retryable: 10, failed: 100, late: 8, lateRounds: 8,
}

// engineWithFaults makes the engine for conformance cases with faults.
func engineWithFaults(o Options, seed uint64) (*Engine, error) {
	e, _, err := faultyEngine(o, frequentFaults, seed)
	return e, err
}

// model is a file with what it may hold. Each place is filled with one byte value; after a write
// that failed or was canceled it may have the old value or the new one.
type model struct {
	t      *testing.T
	random *rand.Rand
	file   *File
	may    [modelPlaces][256]bool
	counts *modelCounts
}

// modelCounts is the summary. syncErrors counts calls that returned the error of a sync.
type modelCounts struct{ checked, canceled, closed, errors, syncErrors atomic.Int64 }

// check compares what was read from a place.
func (m *model) check(place int, p []byte) {
	for i, b := range p {
		if !m.may[place][b] {
			m.t.Errorf("place %d has %d at %d, which was not written there", place, b, i)
			return
		}
	}
	m.counts.checked.Add(int64(len(p)))
}

// wrote records a write of a place.
func (m *model) wrote(place int, value byte, err error) {
	if err == nil {
		clear(m.may[place][:])
	}
	m.may[place][value] = true
}

// note counts an error, which has to be one that was injected or asked for, and returns it.
func (m *model) note(err error) error {
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		m.counts.canceled.Add(1)
	case errors.Is(err, os.ErrClosed): // Of the file, or the engine.
		m.counts.closed.Add(1)
	case errors.Is(err, syscall.EDQUOT):
		m.counts.syncErrors.Add(1)
	case errors.Is(err, syscall.EIO):
		m.counts.errors.Add(1)
	default:
		m.t.Error("an error that was not injected: ", err)
	}
	return err
}

// operation returns a random operation on some places, which nothing else uses meanwhile.
func (m *model) operation(places []int) func(ctx context.Context) {
	value, end, f := byte(m.random.Uint32()), Durability(m.random.IntN(3)), m.file
	place, off := places[0], int64(places[0]*modelPlace)
	batch := make([]Transfer, len(places))
	for i, place := range places {
		batch[i] = Transfer{P: alignedSlice(modelPlace, pageSize), Off: int64(place * modelPlace)}
		copy(batch[i].P, bytes.Repeat([]byte{value + byte(i)}, modelPlace))
	}
	switch p := batch[0].P; m.random.IntN(6) {
	case 0:
		return func(ctx context.Context) {
			m.wrote(place, value, m.note(errorOf(f.WriteAtContext(ctx, p, off))))
		}
	case 1:
		return func(ctx context.Context) {
			if m.note(errorOf(f.ReadAtContext(ctx, p, off))) == nil {
				m.check(place, p)
			}
		}
	case 2:
		return func(ctx context.Context) {
			if b, err := f.ReadBuf(ctx, off, modelPlace); m.note(err) == nil {
				m.check(place, b.Bytes())
				b.Release()
			}
		}
	case 3:
		return func(ctx context.Context) {
			_ = m.note(f.ReadBatchContext(ctx, batch))
			for i, t := range batch {
				if t.Err == nil {
					m.check(places[i], t.P)
				}
			}
		}
	case 4:
		return func(ctx context.Context) {
			if ctx.Done() != nil { // The error of a sync that nobody waits for may get lost.
				end = NoSync
			}
			err := m.note(f.WriteBatchContext(ctx, batch, end))
			for i, t := range batch {
				expect(m.t, t.Err == nil || err != nil, "a transfer failed, but the batch did not")
				m.wrote(places[i], value+byte(i), t.Err)
			}
		}
	}
	return func(context.Context) { _ = m.note(f.Sync()) }
}

// burst makes some operations at once. Some are canceled, and the file may be closed meanwhile.
func (m *model) burst() {
	places, pause := m.random.Perm(modelPlaces), func() time.Duration {
		return time.Duration(m.random.IntN(400)) * time.Microsecond
	}
	var all sync.WaitGroup
	for i := range 1 + m.random.IntN(4) {
		do := m.operation(places[i*4:][:1+m.random.IntN(4)])
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if m.random.IntN(3) == 0 {
			ctx, cancel = context.WithTimeout(ctx, pause())
		}
		all.Go(func() {
			defer cancel()
			do(ctx)
		})
	}
	if m.random.IntN(10) == 0 {
		time.Sleep(pause())
		check(m.t, m.file.Close())
	}
	all.Wait()
	// What was canceled may go on.
	for end := time.Now().Add(tooLong); m.file.refs.count.Load()&math.MaxInt64 != 0; {
		if m.file.engine.closed.Load() || time.Now().After(end) {
			return
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func TestModel(t *testing.T) {
	span := time.Second
	if text := os.Getenv("RINGWAY_SOAK"); text != "" {
		var err error
		span, err = time.ParseDuration(text)
		must(t, err)
	}
	for name, c := range map[string]struct {
		o     Options
		rates faultRates
	}{
		"uring":            {Options{Backend: BackendURing, Rings: 2}, visibleFaults},
		"uring, hidden":    {Options{Backend: BackendURing, Rings: 1, InFlight: 8}, frequentFaults},
		"kaio":             {Options{Backend: BackendKAIO, Rings: 2}, visibleFaults},
		"threads":          {Options{Backend: BackendThreads, Threads: 8}, faultRates{}},
		"uring, no faults": {Options{Backend: BackendURing, FixedBuffers: 1 << 20}, faultRates{}},
	} {
		t.Run(name, func(t *testing.T) { soak(t, c.o, c.rates, span) })
	}
}

func soak(t *testing.T, o Options, rates faultRates, span time.Duration) {
	e, faults, err := faultyEngine(o, rates, 7)
	cleanUp(t, e, err)
	var counts modelCounts
	var all sync.WaitGroup
	for g := range 24 {
		name, flag := fileWith(t, make([]byte, modelPlaces*modelPlace)), os.O_RDWR|Direct*(g%2)
		open(t, e, name, flag) // It skips the test where there is no direct I/O.
		all.Go(func() {
			m := &model{t: t, random: rand.New(rand.NewPCG(uint64(g), 8)), counts: &counts}
			for i := range m.may {
				m.may[i][0] = true
			}
			for !e.closed.Load() && !t.Failed() {
				if m.file == nil || m.file.refs.closed() {
					var err error
					if m.file, err = e.OpenFile(name, flag, 0); err != nil {
						t.Error(err)
						return
					}
				}
				m.burst()
			}
			_ = m.file.Close()
		})
	}
	// Signals interrupt system calls.
	signals, over := make(chan os.Signal, 1), time.Now().Add(span)
	signal.Notify(signals, syscall.SIGUSR1)
	for time.Now().Before(over) {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGUSR1)
		time.Sleep(200 * time.Microsecond)
	}
	closeAll(t, e) // In the middle of it.
	all.Wait()
	signal.Stop(signals)
	signal.Ignore(syscall.SIGUSR1) // A signal may still arrive.
	t.Logf("%d bytes checked, %d canceled, %d closed, %d failed; injected: %v",
		counts.checked.Load(), counts.canceled.Load(), counts.closed.Load(),
		counts.errors.Load()+counts.syncErrors.Load(), faults)
	// No later sync makes up for a failed one: each failure has to reach its callers.
	reported := counts.syncErrors.Load()
	expect(t, reported >= faults.syncs.Load(),
		"%d syncs failed, and %d calls returned the error", faults.syncs.Load(), reported)
	if rates.failed > 0 && faults.failed.Load() == 0 ||
		rates.late > 0 && (faults.late.Load() == 0 || faults.total() < 50) ||
		counts.checked.Load() == 0 || counts.closed.Load() == 0 || counts.canceled.Load() == 0 {
		t.Error("too little happened")
	}
	expect(t, rates.failed != 0 || counts.errors.Load()+counts.syncErrors.Load() == 0,
		"a fault is seen that is to be hidden")
}
