//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// A soak test: goroutines read, write, batch, sync and cancel at random, over queues that inject
// faults. Each checks its file against a model. It takes two seconds for each backend, or as long
// as RINGWAY_SOAK says: make -C go soak SOAK=10m.

package ringway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
)

const (
	soakPlaces = 16
	soakPlace  = 4 * 4096
)

// soaker is a goroutine with a file of its own. Each place of the file is filled with one byte
// value. After a failed write it may hold several.
type soaker struct {
	t      *testing.T
	random *rand.Rand
	file   *File
	may    [soakPlaces][256]bool // The values that a place may hold.
	counts *soakCounts
}

// soakCounts is the summary. syncErrors counts calls that returned the error of a sync.
type soakCounts struct {
	operations, checked, canceled, errors, syncErrors atomic.Int64
}

func (s *soaker) check(place int, p []byte) {
	for i, b := range p {
		if !s.may[place][b] {
			s.t.Fatalf("place %d has %d at %d, which was not written there", place, b, i)
		}
	}
	s.counts.checked.Add(int64(len(p)))
}

// wrote records a write of a place. After an error the place may hold the old and the new value.
func (s *soaker) wrote(place int, value byte, err error) {
	if err == nil {
		clear(s.may[place][:])
	}
	s.may[place][value] = true
}

// injected reports whether an error was injected.
func (s *soaker) injected(err error) bool {
	if err == nil || errors.Is(err, io.EOF) {
		return false
	}
	s.counts.errors.Add(1)
	if errors.Is(err, syscall.EDQUOT) {
		s.counts.syncErrors.Add(1)
	} else if !errors.Is(err, syscall.EIO) {
		s.t.Fatal("an error that was not injected: ", err)
	}
	return true
}

func (s *soaker) filled(value byte) []byte {
	p := alignedSlice(soakPlace, pageSize)
	for i := range p {
		p[i] = value
	}
	return p
}

func (s *soaker) step() {
	s.counts.operations.Add(1)
	place, value := s.random.IntN(soakPlaces), byte(s.random.Uint32())
	off := int64(place * soakPlace)
	switch s.random.IntN(7) {
	case 0, 1:
		p := s.filled(value)
		_, err := s.file.WriteAt(p, off)
		s.injected(err)
		s.wrote(place, value, err)
	case 2:
		p := alignedSlice(soakPlace, pageSize)
		if _, err := s.file.ReadAt(p, off); !s.injected(err) {
			s.check(place, p)
		}
	case 3: // Canceled at a random moment.
		ctx, cancel := context.WithTimeout(context.Background(),
			time.Duration(s.random.IntN(300))*time.Microsecond)
		defer cancel()
		b, err := s.file.ReadBuf(ctx, off, soakPlace)
		switch {
		case err == nil:
			s.check(place, b.Bytes())
			b.Release()
		case errors.Is(err, context.DeadlineExceeded):
			s.counts.canceled.Add(1)
		default:
			s.injected(err)
		}
	case 4:
		var batch []Transfer
		for i := place; i < soakPlaces && len(batch) < 6; i += 1 + s.random.IntN(3) {
			batch = append(batch, Transfer{P: alignedSlice(soakPlace, pageSize),
				Off: int64(i * soakPlace)})
		}
		s.injected(s.file.ReadBatch(batch))
		for _, t := range batch {
			if t.Err == nil {
				s.check(int(t.Off/soakPlace), t.P)
			}
		}
	case 5: // Adjacent ranges, as of a log, or scattered ones.
		var batch []Transfer
		stride := 1 + s.random.IntN(2)
		for i := place; i < soakPlaces && len(batch) < 4; i += stride {
			batch = append(batch, Transfer{P: s.filled(value + byte(i)), Off: int64(i * soakPlace)})
		}
		failed := s.injected(s.file.WriteBatch(batch, Durability(s.random.IntN(3))))
		for _, t := range batch {
			if t.Err != nil && !failed {
				s.t.Fatal("a range failed, but the batch did not")
			}
			s.wrote(int(t.Off/soakPlace), t.P[0], t.Err)
		}
	case 6:
		s.injected(s.file.Sync())
	}
}

func TestSoak(t *testing.T) {
	span := 2 * time.Second
	if text := os.Getenv("RINGWAY_SOAK"); text != "" {
		var err error
		if span, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, backend := range []Backend{BackendURing, BackendKAIO} {
		t.Run(string(backend), func(t *testing.T) { soak(t, backend, span) })
	}
}

// soakFaults are faults that callers see at times.
var soakFaults = faultRates{
	short: 8, unsent: 50, retryable: 10, failed: 100, late: 8, lateRounds: 8,
}

func soak(t *testing.T, backend Backend, span time.Duration) {
	e, faults, err := faultyEngine(Options{Backend: backend, Rings: 2}, soakFaults, 7)
	if err != nil {
		skip.Test(t, err)
	}
	var counts soakCounts
	var soakers sync.WaitGroup
	dir, names := t.TempDir(), make([]string, 24)
	for g := range names {
		names[g] = filepath.Join(dir, fmt.Sprint(g))
		must(t, os.WriteFile(names[g], make([]byte, soakPlaces*soakPlace), 0o600))
	}
	end := time.Now().Add(span)
	for g, name := range names {
		soakers.Go(func() {
			s := &soaker{t: t, random: rand.New(rand.NewPCG(uint64(g), 8)), counts: &counts}
			for i := range s.may {
				s.may[i][0] = true
			}
			for time.Now().Before(end) && !t.Failed() {
				file, err := e.OpenFile(name, os.O_RDWR|Direct*(g%2), 0)
				if err != nil {
					t.Error("no direct I/O here: ", err)
					return
				}
				s.file = file
				for range 100 {
					s.step()
				}
				check(t, file.Close())
			}
		})
	}
	soakers.Wait()
	closeAll(t, e)
	if stats := e.Stats(); stats.Pushed != stats.Delivered || stats.InFlight != 0 ||
		stats.Waiting != 0 {
		t.Errorf("the counts do not add up: %+v", stats)
	}
	t.Logf("%d operations, %d bytes checked, %d canceled, %d failed; "+
		"injected: %d short, %d retryable, %d late, %d failures, %d of them of syncs",
		counts.operations.Load(), counts.checked.Load(), counts.canceled.Load(),
		counts.errors.Load(), faults.short.Load(), faults.retryable.Load(), faults.late.Load(),
		faults.failed.Load(), faults.syncs.Load())
	// No later sync makes up for a failed one: each failure has to reach its callers.
	if reported := counts.syncErrors.Load(); reported < faults.syncs.Load() {
		t.Errorf("%d syncs failed, and %d calls returned the error", faults.syncs.Load(), reported)
	}
	if faults.failed.Load() == 0 || faults.late.Load() == 0 || counts.checked.Load() == 0 {
		t.Error("too few faults were injected")
	}
}
