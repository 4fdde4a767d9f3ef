//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// A soak: goroutines that read, write, batch, sync and cancel at random, over queues that fail in every way, each beside a model of
// its file. Two seconds for each backend, or as long as RINGWAY_SOAK says: make -C go soak SOAK=10m.

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

// hostile wraps a queue. Whoever has the turnstile alone calls it, but for poke.
type hostile struct {
	queue
	random *rand.Rand
	held   []held
	shard  *shard
	faults *soakFaults
}

// held is an answer that comes later: after so many rounds, for some of them after thousands of other answers.
type held struct {
	r      *request
	rounds int
}

// soakFaults counts what was injected.
type soakFaults struct{ short, retryable, late, failed, syncs atomic.Int64 }

func (q *hostile) hits(one int) bool { return q.random.IntN(one) == 0 }

func (q *hostile) push(r *request) {
	if len(r.p) >= 2*pageSize && q.hits(8) {
		q.faults.short.Add(1)
		r.p = r.p[:len(r.p)/2&^(pageSize-1)]
	}
	q.queue.push(r)
}

func (q *hostile) submit(light bool) bool { return q.queue.submit(light) && !q.hits(50) }

func (q *hostile) reap(done []*request) []*request {
	before := len(done)
	done = q.queue.reap(done)
	keep := done[:before]
	for _, r := range done[before:] {
		if r.result != cannotCarry {
			q.disturb(r)
			if q.hits(8) {
				rounds := 1 + q.random.IntN(8)
				if q.hits(8) {
					rounds = 500
				}
				q.faults.late.Add(1)
				q.held = append(q.held, held{r, rounds})
				continue
			}
		}
		keep = append(keep, r)
	}
	clear(done[len(keep):])
	rest := q.held[:0]
	for _, h := range q.held {
		if h.rounds--; h.rounds > 0 {
			rest = append(rest, h)
		} else {
			keep = append(keep, h.r)
		}
	}
	q.held = rest
	return keep
}

// disturb changes an answer. What fails here was carried out all the same, which is the worse case.
func (q *hostile) disturb(r *request) {
	switch sync := r.kind == fsync || r.kind == fdatasync; {
	case r.linked() != nil:
	case q.hits(10) && !sync:
		q.faults.retryable.Add(1)
		r.result = -int32([]syscall.Errno{syscall.EINTR, syscall.EAGAIN, syscall.ECANCELED}[q.random.IntN(3)])
	case q.hits(100) && r.result >= 0:
		q.faults.failed.Add(1)
		if r.result = -int32(syscall.EIO); sync {
			q.faults.syncs.Add(1)
			r.result = -int32(syscall.EDQUOT) // Which nothing else fails with, so that they can be counted.
		}
	}
}

// poke has the shard make a round, as a completion would: for what is held back.
func (q *hostile) poke() {
	q.shard.mu.Lock()
	q.shard.again = true
	q.shard.turn()
}

const (
	soakPlaces = 16
	soakPlace  = 4 * 4096
)

// soaker is a goroutine with a file of its own. Each place of the file is filled with one byte value, or, after a write that
// failed, with any of those that it may hold.
type soaker struct {
	t      *testing.T
	random *rand.Rand
	file   *File
	may    [soakPlaces][256]bool
	counts *soakCounts
}

// soakCounts is the summary. syncErrors are the calls that told of a failed sync.
type soakCounts struct {
	operations, checked, cancelled, errors, syncErrors atomic.Int64
}

func (s *soaker) check(place int, p []byte) {
	for i, b := range p {
		if !s.may[place][b] {
			s.t.Fatalf("place %d has %d at %d, which nobody wrote there", place, b, i)
		}
	}
	s.counts.checked.Add(int64(len(p)))
}

// wrote notes a write of a place; an error leaves what was there, or the new content, or some of both.
func (s *soaker) wrote(place int, value byte, err error) {
	if err == nil {
		clear(s.may[place][:])
	}
	s.may[place][value] = true
}

// injected tells whether an error is one that was asked for.
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
	case 3: // Cancelled at a random moment.
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.random.IntN(300))*time.Microsecond)
		defer cancel()
		b, err := s.file.ReadBuf(ctx, off, soakPlace)
		switch {
		case err == nil:
			s.check(place, b.Bytes())
			b.Release()
		case errors.Is(err, context.DeadlineExceeded):
			s.counts.cancelled.Add(1)
		default:
			s.injected(err)
		}
	case 4:
		var batch []Transfer
		for i := place; i < soakPlaces && len(batch) < 6; i += 1 + s.random.IntN(3) {
			batch = append(batch, Transfer{P: alignedSlice(soakPlace, pageSize), Off: int64(i * soakPlace)})
		}
		s.injected(s.file.ReadBatch(batch))
		for _, t := range batch {
			if t.Err == nil {
				s.check(int(t.Off/soakPlace), t.P)
			}
		}
	case 5: // Ranges that follow one another, as a log's do, or apart.
		var batch []Transfer
		stride := 1 + s.random.IntN(2)
		for i := place; i < soakPlaces && len(batch) < 4; i += stride {
			batch = append(batch, Transfer{P: s.filled(value + byte(i)), Off: int64(i * soakPlace)})
		}
		failed := s.injected(s.file.WriteBatch(batch, Durability(s.random.IntN(3))))
		for _, t := range batch {
			if t.Err != nil && !failed {
				s.t.Fatal("a range failed, and the batch did not")
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
	for _, backend := range []Backend{Uring, KAIO} {
		t.Run(string(backend), func(t *testing.T) { soak(t, backend, span) })
	}
}

func soak(t *testing.T, backend Backend, span time.Duration) {
	var faults soakFaults
	var counts soakCounts
	var queues []*hostile
	e, err := New(Options{Backend: backend, AlwaysRing: true, Rings: 2, wrap: func(inner queue) queue {
		q := &hostile{queue: inner, faults: &faults, random: rand.New(rand.NewPCG(uint64(len(queues)), 7))}
		queues = append(queues, q)
		return q
	}})
	if err != nil {
		skip.Test(t, err)
	}
	for i, s := range e.shards {
		queues[i].shard = s
	}
	poking := make(chan struct{})
	var poker, soakers sync.WaitGroup
	poker.Go(func() {
		for {
			select {
			case <-poking:
				return
			case <-time.After(time.Millisecond):
			}
			for _, q := range queues {
				q.poke()
			}
		}
	})
	dir, end := t.TempDir(), time.Now().Add(span)
	for g := range 24 {
		soakers.Go(func() {
			name := filepath.Join(dir, fmt.Sprint(g))
			if err := os.WriteFile(name, make([]byte, soakPlaces*soakPlace), 0o600); err != nil {
				t.Error(err)
				return
			}
			s := &soaker{t: t, random: rand.New(rand.NewPCG(uint64(g), 8)), counts: &counts}
			for i := range s.may {
				s.may[i][0] = true
			}
			for time.Now().Before(end) && !t.Failed() {
				file, err := e.OpenFile(name, os.O_RDWR|syscall.O_DIRECT*(g%2), 0)
				if err != nil {
					t.Error("no direct I/O here: ", err)
					return
				}
				s.file = file
				for range 100 {
					s.step()
				}
				if err := file.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	soakers.Wait()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	close(poking)
	poker.Wait()
	if stats := e.Stats(); stats.Pushed != stats.Delivered || stats.InFlight != 0 || stats.Waiting != 0 {
		t.Errorf("the books: %+v", stats)
	}
	t.Logf("%d operations, %d bytes checked, %d cancelled, %d failed; injected: %d short, %d retryable, %d late, %d failures, of which %d of syncs",
		counts.operations.Load(), counts.checked.Load(), counts.cancelled.Load(), counts.errors.Load(), faults.short.Load(),
		faults.retryable.Load(), faults.late.Load(), faults.failed.Load(), faults.syncs.Load())
	// A failure of a sync is never made good by another sync: each has to reach its caller.
	if reported := counts.syncErrors.Load(); reported != faults.syncs.Load() {
		t.Errorf("%d syncs failed, and %d callers were told", faults.syncs.Load(), reported)
	}
	if faults.failed.Load() == 0 || faults.late.Load() == 0 || counts.checked.Load() == 0 {
		t.Error("hardly a fault was injected")
	}
}
