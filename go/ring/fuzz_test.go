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
	"syscall"
	"testing"
	"time"
)

const (
	places    = 8  // Blocks of the file. Each has at most one operation or chain in flight.
	placeSize = 96 // Bytes.
	noPlace   = -1
)

// modeled is a request in flight.
type modeled struct {
	q     *Request
	place int // Block of the file, or noPlace.
	// check compares the completion with the model.
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
	fed      byte
	unread   map[byte]bool // Bytes written to the pipe and not yet read.
	inFlight []*modeled    // In the order of their pushes.
	spare    []*Request

	pushed, delivered, orphaned int
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
func (m *machine) push(all ...*modeled) {
	for m.ring.SpaceLeft() < len(all) {
		m.submit()
		m.reap(8)
		if m.ring.params.sqEntries < uint32(len(all)) {
			return
		}
	}
	for _, f := range all {
		must(m.t, m.ring.Push(f.q))
		m.pushed++
		m.inFlight = append(m.inFlight, f)
		if f.place != noPlace {
			m.busy[f.place]++
		}
	}
}

func (m *machine) submit() {
	_, err := m.ring.Submit()
	require(m.t, err == nil || err == ErrReap, "%v", err)
}

// end removes a request from the model.
func (m *machine) end(q *Request) *modeled {
	at := slices.IndexFunc(m.inFlight, func(f *modeled) bool { return f.q == q })
	require(m.t, at >= 0 && !q.InFlight(), "it was not in flight, or still is")
	f := m.inFlight[at]
	m.inFlight = slices.Delete(m.inFlight, at, at+1)
	if f.place != noPlace {
		m.busy[f.place]--
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
		m.delivered++
		canceled := c.Err() == syscall.ECANCELED || c.Err() == syscall.EINTR
		m.end(c.Request).check(c, canceled)
	}
}

// reads is the model of a read of a block, which must have what want returns.
func (m *machine) reads(q *Request, place int, p []byte, want func() []byte) *modeled {
	return &modeled{q, place, func(c Completion, canceled bool) {
		require(m.t, canceled || c.Result == placeSize && bytes.Equal(p, want()),
			"read %d bytes: %x, not %x", c.Result, p, want())
	}}
}

// writes is the model of a write of a block.
func (m *machine) writes(q *Request, place int, data []byte) *modeled {
	return &modeled{q, place, func(c Completion, canceled bool) {
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
func (m *machine) readsPipe(q *Request, p []byte) *modeled {
	return &modeled{q.Read(m.pipe[0], p, CurrentPosition), noPlace,
		func(c Completion, canceled bool) {
			require(m.t, canceled || c.Result >= 1, "pipe: %d", c.Result)
			for _, b := range p[:max(c.Result, 0)] {
				require(m.t, m.unread[b], "read a byte that was not written, or was read before")
				delete(m.unread, b)
			}
		}}
}

// ends is the model of a request without data, which ends with one of these errors.
func (m *machine) ends(q *Request, errs ...error) *modeled {
	return &modeled{q, noPlace, func(c Completion, canceled bool) {
		require(m.t, canceled || c.Result <= 0 && slices.Contains(errs, c.Err()), "%d: %d",
			q.Opcode(), c.Result)
	}}
}

func (m *machine) step(step, arg byte) {
	place := int(arg) % places
	off, fd, span := int64(place*placeSize), int(m.file.Fd()), time.Duration(arg)*time.Microsecond
	p, data := make([]byte, placeSize), bytes.Repeat([]byte{arg ^ byte(m.pushed)}, placeSize)
	// What the block has when the request completes: nothing else writes to it.
	current := func() []byte { return m.content[place] }
	free := m.busy[place] == 0
	switch step % 14 {
	case 0:
		if free {
			m.push(m.reads(m.request().Read(fd, p, off), place, p, current))
		}
	case 1:
		if free {
			m.push(m.writes(m.request().Write(fd, data, off).Async(), place, data))
		}
	case 2: // The read returns what the write wrote, unless it is canceled.
		if free {
			written := func() []byte { return data }
			m.push(m.writes(m.request().Write(fd, data, off).Link(), place, data),
				m.reads(m.request().Read(fd, p, off), place, p, written))
		}
	case 3:
		m.push(m.readsPipe(m.request(), p[:1+arg%3]))
	case 4:
		m.push(m.ends(m.request().Nop(), nil))
	case 5:
		m.push(m.ends(m.request().Timeout(span), syscall.ETIME))
	case 6:
		if len(m.inFlight) > 0 {
			other := m.inFlight[int(arg)%len(m.inFlight)].q
			m.push(m.ends(m.request().Cancel(other), nil, syscall.ENOENT, syscall.EALREADY))
		}
	case 7: // A LinkTimeout that comes too late returns ENOENT or EALREADY.
		read := m.readsPipe(m.request(), p[:1])
		read.q.Link()
		m.push(read, m.ends(m.request().LinkTimeout(span), syscall.ETIME, syscall.ENOENT,
			syscall.EALREADY))
	case 8:
		if !m.unread[m.fed] {
			m.unread[m.fed] = true
			must(m.t, errorOf(syscall.Write(m.pipe[1], []byte{m.fed})))
			m.fed++
		}
	case 9:
		m.submit()
	case 10:
		_, err := m.ring.SubmitAndWait(int(arg)%5, span)
		require(m.t, err == nil || err == ErrTimeout || err == ErrReap, "%v", err)
	case 11:
		m.reap(1 + int(arg)%5)
	case 12:
		for _, q := range m.ring.Withdraw() {
			m.orphaned++
			m.end(q)
		}
	case 13:
		m.close()
		m.open(arg)
	}
	require(m.t, len(m.inFlight) == m.ring.InFlight() && m.ring.Overflow() == 0 &&
		m.pushed == m.delivered+m.orphaned+m.ring.InFlight(),
		"%d pushed, %d delivered, %d orphaned, %d in flight, in the model %d; %d lost", m.pushed,
		m.delivered, m.orphaned, m.ring.InFlight(), len(m.inFlight), m.ring.Overflow())
}

func (m *machine) open(options byte) {
	m.ring = newRing(m.t, Options{Entries: 1 << (options % 4), CQEntries: 1 << (options % 4),
		CoopTaskrun: options&16 != 0})
	m.pipe[0], m.pipe[1] = pipe(m.t)
	m.unread = map[byte]bool{}
}

// close closes the ring: requests in flight are orphaned.
func (m *machine) close() {
	must(m.t, m.ring.Close())
	for len(m.inFlight) > 0 {
		m.orphaned++
		m.end(m.inFlight[0].q)
	}
	for place := range places {
		m.look(place)
	}
}

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
		m := &machine{t: t, file: tempFile(t, string(make([]byte, places*placeSize)))}
		for place := range places {
			m.content[place] = make([]byte, placeSize)
		}
		m.open(sequence[0])
		for i := 1; i+1 < len(sequence); i += 2 {
			m.step(sequence[i], sequence[i+1])
		}
		m.close()
	})
}
