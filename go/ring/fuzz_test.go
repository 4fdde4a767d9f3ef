//go:build linux

// Random sequences of pushes, submissions, waits, reaps, cancels, withdrawals and closes, compared
// with a model of the file's contents and the requests in flight. After every step, pushed =
// delivered + orphaned + in flight. Ordinary test runs use the seed corpus.

package ring

import (
	"bytes"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/kernel"
)

const (
	places    = 8  // Blocks of the file. Each has at most one operation or chain in flight.
	placeSize = 96 // Bytes.
)

// inFlight is the model of a request in flight.
type inFlight struct {
	q     *Request
	place int  // Block of the file; -1: none.
	pipe  bool // It reads the pipe.
	multi bool // It has a completion for each event.
	// check compares the last completion with the model.
	check func(c Completion, canceled bool)
}

// machine is a ring and its model.
type machine struct {
	t        *testing.T
	ring     *Ring
	file     *os.File
	content  [places][]byte
	busy     [places]int
	pipe     [2]int
	fed      int
	unread   map[byte]bool // Bytes written to the pipe and not yet read.
	inFlight map[*Request]*inFlight
	order    []*Request // In flight, in the order of their pushes.
	spare    []*Request
	barriers bool // From Linux 6.0 on, Close can cancel requests although a barrier waits.
	multi    bool // On Linux 6.12, a barrier with multishot requests may never start.

	pushed, delivered, orphaned int
}

// Steps.
const (
	stepRead = iota
	stepWrite
	stepReadv
	stepWritev
	stepPipe
	stepNop
	stepChain
	stepTimeout
	stepCancel
	stepFsync
	stepLimit
	stepMulti
	stepFeed
	stepSubmit
	stepWait
	stepReap
	stepWithdraw
	stepClose
	steps
)

func (m *machine) open(options byte) {
	o := Options{Entries: 1 << (options % 4), CQEntries: 1 << (options % 4),
		CoopTaskrun: options&16 != 0}
	r, err := New(o)
	if err != nil {
		skip(m.t, err)
	}
	m.ring = r
	m.barriers, m.multi = r.cancelNow(), true
	if !kernel.AtLeast(6, 18) {
		// One kind of requests or the other.
		m.barriers = m.barriers && options&32 != 0
		m.multi = !m.barriers
	}
}

func (m *machine) request() *Request {
	if n := len(m.spare); n > 0 {
		q := m.spare[n-1]
		m.spare = m.spare[:n-1]
		return q
	}
	return new(Request)
}

// push pushes requests together. They must not conflict with others in flight.
func (m *machine) push(all ...*inFlight) {
	for m.ring.SpaceLeft() < len(all) {
		if _, err := m.ring.Submit(); err != nil && err != ErrReap {
			m.t.Fatal(err)
		}
		m.reap(8)
		if m.ring.params.sqEntries < uint32(len(all)) {
			for _, f := range all {
				m.spare = append(m.spare, f.q)
			}
			return
		}
	}
	for _, f := range all {
		must(m.t, m.ring.Push(f.q))
		m.pushed++
		m.inFlight[f.q] = f
		m.order = append(m.order, f.q)
		if f.place >= 0 {
			m.busy[f.place]++
		}
	}
}

// end removes a request from the model.
func (m *machine) end(q *Request) *inFlight {
	f := m.inFlight[q]
	if f == nil {
		m.t.Fatal("a completion of a request that is not in flight")
	}
	delete(m.inFlight, q)
	m.order = slices.DeleteFunc(m.order, func(other *Request) bool { return other == q })
	if f.place >= 0 {
		m.busy[f.place]--
	}
	if q.InFlight() {
		m.t.Fatal("the request is in flight after its completion")
	}
	m.spare = append(m.spare, q)
	return f
}

// look updates the model from the file, after a write with an unknown outcome.
func (m *machine) look(place int) {
	must(m.t, errorOf(m.file.ReadAt(m.content[place], int64(place*placeSize))))
}

func (m *machine) reap(most int) {
	done := make([]Completion, most)
	for _, c := range done[:m.ring.Reap(done)] {
		if c.More() {
			if f := m.inFlight[c.Request]; f == nil || !f.multi || c.Result != 1 {
				m.t.Fatalf("unexpected FlagMore: %+v", c)
			}
			continue
		}
		m.delivered++
		canceled := c.Err() == syscall.ECANCELED || c.Err() == syscall.EINTR
		m.end(c.Request).check(c, canceled)
	}
}

// reads is the model of a read of a block into parts, which must have what want returns.
func (m *machine) reads(q *Request, place int, want func() []byte, parts ...[]byte) *inFlight {
	return &inFlight{q: q, place: place, check: func(c Completion, canceled bool) {
		require(m.t, canceled || c.Result == placeSize, "read: %d", c.Result)
		require(m.t, canceled || bytes.Equal(bytes.Join(parts, nil), want()),
			"read wrong bytes: %x instead of %x", parts, want())
	}}
}

// writes is the model of a write of a block.
func (m *machine) writes(q *Request, place int, data []byte) *inFlight {
	return &inFlight{q: q, place: place, check: func(c Completion, canceled bool) {
		require(m.t, canceled || c.Result == placeSize, "write: %d", c.Result)
		if !canceled {
			copy(m.content[place], data)
		}
		if m.busy[place] == 0 {
			before := bytes.Clone(m.content[place])
			m.look(place)
			require(m.t, bytes.Equal(before, m.content[place]), "the file has wrong bytes")
		}
	}}
}

// readsPipe is the model of a read of the pipe.
func (m *machine) readsPipe(q *Request, p []byte) *inFlight {
	return &inFlight{q: q, place: -1, pipe: true, check: func(c Completion, canceled bool) {
		if canceled {
			return
		}
		require(m.t, c.Result >= 1, "pipe: %d", c.Result)
		for _, b := range p[:c.Result] {
			require(m.t, m.unread[b], "read a byte that was not written, or was read before")
			delete(m.unread, b)
		}
	}}
}

// ends is the model of a request without data, which ends with one of these errors.
func (m *machine) ends(q *Request, errs ...error) *inFlight {
	return &inFlight{q: q, place: -1, check: func(c Completion, canceled bool) {
		require(m.t, canceled || c.Result <= 0 && slices.Contains(errs, c.Err()), "%d: %d",
			q.Opcode(), c.Result)
	}}
}

func (m *machine) step(step, arg byte) {
	place := int(arg) % places
	free := m.busy[place] == 0
	off := int64(place * placeSize)
	fd := int(m.file.Fd())
	p, data := make([]byte, placeSize), bytes.Repeat([]byte{arg ^ byte(m.pushed)}, placeSize)
	cut := int(arg) % placeSize
	// What the block has when the request completes: nothing else writes to it.
	current := func() []byte { return m.content[place] }
	modify := func(q *Request) *Request {
		if arg&0xc0 == 0xc0 {
			q.Async()
		}
		return q
	}
	switch kind := int(step) % steps; kind {
	case stepRead, stepReadv, stepWrite, stepWritev, stepChain:
		if !free {
			return
		}
		q := m.request()
		switch kind {
		case stepRead:
			m.push(m.reads(modify(q.Read(fd, p, off)), place, current, p))
		case stepReadv:
			parts := [][]byte{p[:cut], p[cut:]}
			m.push(m.reads(modify(q.Readv(fd, parts, off)), place, current, p))
		case stepWrite:
			m.push(m.writes(modify(q.Write(fd, data, off)), place, data))
		case stepWritev:
			parts := [][]byte{data[:cut], data[cut:]}
			m.push(m.writes(modify(q.Writev(fd, parts, off)), place, data))
		case stepChain:
			// The read returns what the write wrote, unless it is canceled. Linux 5.10 may deliver
			// the write later, if the completion queue was full.
			written := func() []byte { return data }
			m.push(m.writes(q.Write(fd, data, off).Link(), place, data),
				m.reads(m.request().Read(fd, p, off), place, written, p))
		}
	case stepPipe:
		p = p[:1+arg%3]
		q := m.request().Read(m.pipe[0], p, CurrentPosition)
		if arg&8 != 0 {
			q.Readv(m.pipe[0], [][]byte{p[:1], p[1:]}, CurrentPosition)
		}
		m.push(m.readsPipe(q, p))
	case stepNop:
		q := m.request().Nop()
		if arg&1 != 0 && m.barriers {
			q.Drain()
		}
		m.push(m.ends(q, nil))
	case stepTimeout:
		m.push(m.ends(m.request().Timeout(time.Duration(arg)*time.Microsecond), syscall.ETIME))
	case stepFsync:
		m.push(m.ends(modify(m.request().Fdatasync(fd)), nil))
	case stepCancel:
		if len(m.order) == 0 {
			return
		}
		other := m.order[int(arg)%len(m.order)]
		m.push(m.ends(m.request().Cancel(other), nil, syscall.ENOENT, syscall.EALREADY))
	case stepLimit:
		// A LinkTimeout that comes too late returns ENOENT or EALREADY.
		m.push(m.readsPipe(m.request().Read(m.pipe[0], p[:1], CurrentPosition).Link(), p[:1]),
			m.ends(m.request().LinkTimeout(time.Duration(arg)*time.Microsecond), syscall.ETIME,
				syscall.ENOENT, syscall.EALREADY))
	case stepMulti:
		if !m.multi {
			return
		}
		m.push(&inFlight{q: m.request().PollMultishot(m.pipe[0], 1), place: -1, multi: true,
			check: func(c Completion, canceled bool) {
				require(m.t, canceled || c.Result == 1, "poll: %d", c.Result)
			}})
	case stepFeed:
		if b := byte(m.fed); !m.unread[b] {
			m.fed++
			m.unread[b] = true
			must(m.t, errorOf(syscall.Write(m.pipe[1], []byte{b})))
		}
	case stepSubmit:
		if _, err := m.ring.Submit(); err != nil && err != ErrReap {
			m.t.Fatal(err)
		}
	case stepWait:
		if _, err := m.ring.SubmitAndWait(int(arg)%5,
			time.Duration(arg)*time.Microsecond); err != nil && err != ErrTimeout &&
			err != ErrReap {
			m.t.Fatal(err)
		}
	case stepReap:
		m.reap(1 + int(arg)%5)
	case stepWithdraw:
		for _, q := range m.ring.Withdraw() {
			m.orphaned++
			m.end(q)
		}
	case stepClose:
		m.close()
		m.open(arg)
	}
}

// close closes the ring: requests in flight are orphaned.
func (m *machine) close() {
	must(m.t, m.ring.Close())
	for _, q := range slices.Clone(m.order) {
		m.orphaned++
		if m.end(q).pipe {
			m.unread = nil // It may have read any bytes.
		}
	}
	for place := range places {
		m.look(place)
	}
	if m.unread == nil {
		m.refill()
	}
}

// refill replaces the pipe by an empty one.
func (m *machine) refill() {
	m.unread = map[byte]bool{}
	if m.pipe[0] > 0 {
		_ = syscall.Close(m.pipe[0])
		_ = syscall.Close(m.pipe[1])
	}
	must(m.t, syscall.Pipe2(m.pipe[:], syscall.O_CLOEXEC))
}

// checkCounts checks the conservation of requests.
func (m *machine) checkCounts() {
	if len(m.inFlight) != m.ring.InFlight() ||
		m.pushed != m.delivered+m.orphaned+m.ring.InFlight() {
		m.t.Fatalf("%d pushed, %d delivered, %d orphaned, %d in flight, in the model %d", m.pushed,
			m.delivered, m.orphaned, m.ring.InFlight(), len(m.inFlight))
	}
	if n := m.ring.Overflow(); n != 0 {
		m.t.Fatal("completions are lost: ", n)
	}
}

// shared is one file for all runs of a process: a directory per run would cost more than the run.
var shared = sync.OnceValues(func() (*os.File, error) {
	f, err := os.CreateTemp("", "ringway-fuzz-")
	if err == nil {
		err = os.Remove(f.Name())
	}
	return f, err
})

func FuzzSequence(f *testing.F) {
	for seed := range uint64(48) {
		random := rand.New(rand.NewPCG(seed, 5))
		sequence := make([]byte, 40+10*seed)
		for i := range sequence {
			sequence[i] = byte(random.Uint32())
		}
		f.Add(sequence)
	}
	f.Fuzz(func(t *testing.T, sequence []byte) {
		if len(sequence) == 0 || len(sequence) > 2000 {
			return
		}
		file := get(shared())(t)
		m := &machine{t: t, file: file, inFlight: map[*Request]*inFlight{}}
		for place := range places {
			m.content[place] = make([]byte, placeSize)
		}
		must(t, errorOf(file.WriteAt(make([]byte, places*placeSize), 0)))
		m.refill()
		defer func() {
			_ = syscall.Close(m.pipe[0])
			_ = syscall.Close(m.pipe[1])
		}()
		m.open(sequence[0])
		defer func() { _ = m.ring.Close() }()
		for i := 1; i+1 < len(sequence); i += 2 {
			m.step(sequence[i], sequence[i+1])
			m.checkCounts()
		}
		m.close()
		m.checkCounts()
	})
}
