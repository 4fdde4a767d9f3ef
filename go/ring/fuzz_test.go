//go:build linux

// Random sequences of pushes, submissions, waits, reaps, cancels, withdrawals and closes, compared
// with a model of the file's contents and the requests in flight. After every step, pushed =
// delivered + orphaned + in flight. Ordinary test runs use the seed corpus.

package ring

import (
	"bytes"
	"math/rand/v2"
	"os"
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
	kind  int    // A step that pushes requests.
	place int    // Block of the file; -1: none.
	data  []byte // What is written; for a read with after set, by the request before it.
	parts [][]byte
	other *Request // The target of a cancel, or the previous request of a chain.
	after bool     // Linked to the previous request.
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
func (m *machine) push(all []*Request, fs []*inFlight) {
	for m.ring.SpaceLeft() < len(all) {
		if _, err := m.ring.Submit(); err != nil && err != ErrReap {
			m.t.Fatal(err)
		}
		m.reap(8)
		if m.ring.params.sqEntries < uint32(len(all)) {
			m.spare = append(m.spare, all...)
			return
		}
	}
	for i, q := range all {
		if err := m.ring.Push(q); err != nil {
			m.t.Fatal(err)
		}
		m.pushed++
		m.inFlight[q] = fs[i]
		m.order = append(m.order, q)
		if place := fs[i].place; place >= 0 {
			m.busy[place]++
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
	for i, other := range m.order {
		if other == q {
			m.order = append(m.order[:i], m.order[i+1:]...)
			break
		}
	}
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
	if _, err := m.file.ReadAt(m.content[place], int64(place*placeSize)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) reap(most int) {
	done := make([]Completion, most)
	for _, c := range done[:m.ring.Reap(done)] {
		if c.More() {
			if f := m.inFlight[c.Request]; f == nil || f.kind != stepMulti || c.Result != 1 {
				m.t.Fatalf("unexpected FlagMore: %+v", c)
			}
			continue
		}
		m.delivered++
		m.check(c, m.end(c.Request))
	}
}

func (m *machine) check(c Completion, f *inFlight) {
	canceled := c.Err() == syscall.ECANCELED || c.Err() == syscall.EINTR
	switch f.kind {
	case stepRead, stepReadv:
		want := m.content[f.place]
		if f.after {
			// What the request before it wrote. Linux 5.10 may deliver that one later, if the
			// completion queue was full.
			want = f.data
		}
		got := bytes.Join(f.parts, nil)
		switch {
		case canceled:
		case c.Result != placeSize:
			m.t.Fatal("read: ", c.Result)
		case !bytes.Equal(got, want):
			m.t.Fatalf("read wrong bytes: %x instead of %x, in a chain: %v", got, want, f.after)
		}
	case stepWrite, stepWritev:
		switch {
		case canceled: // Nothing was written.
		case c.Result != placeSize:
			m.t.Fatal("write: ", c.Result)
		default:
			copy(m.content[f.place], f.data)
		}
		if m.busy[f.place] == 0 {
			before := bytes.Clone(m.content[f.place])
			if m.look(f.place); !bytes.Equal(before, m.content[f.place]) {
				m.t.Fatal("the file has wrong bytes")
			}
		}
	case stepPipe:
		if canceled {
			return
		}
		if c.Result < 1 {
			m.t.Fatal("pipe: ", c.Result)
		}
		for _, b := range f.data[:c.Result] {
			if !m.unread[b] {
				m.t.Fatal("read a byte that was not written, or was read before")
			}
			delete(m.unread, b)
		}
	case stepNop, stepFsync:
		if c.Result != 0 && !canceled {
			m.t.Fatal("nop, fsync: ", c.Result)
		}
	case stepTimeout, stepLimit:
		// A LinkTimeout that comes too late returns ENOENT or EALREADY.
		if c.Err() != syscall.ETIME && !canceled &&
			!(f.kind == stepLimit && (c.Err() == syscall.ENOENT || c.Err() == syscall.EALREADY)) {
			m.t.Fatal("timeout: ", c.Result)
		}
	case stepMulti:
		if c.Result != 1 && !canceled {
			m.t.Fatal("poll: ", c.Result)
		}
	case stepCancel:
		if err := c.Err(); err != nil && err != syscall.ENOENT && err != syscall.EALREADY &&
			!canceled {
			m.t.Fatal("cancel: ", err)
		}
	}
}

func (m *machine) step(step, arg byte) {
	place := int(arg) % places
	free := m.busy[place] == 0
	off := int64(place * placeSize)
	fd := int(m.file.Fd())
	data := bytes.Repeat([]byte{arg ^ byte(m.pushed)}, placeSize)
	one := func(q *Request, f *inFlight) { m.push([]*Request{q}, []*inFlight{f}) }
	cut := int(arg) % placeSize
	modify := func(q *Request) *Request {
		if arg&0xc0 == 0xc0 {
			q.Async()
		}
		return q
	}
	switch kind := int(step) % steps; kind {
	case stepRead, stepReadv:
		if !free {
			return
		}
		f := &inFlight{kind: kind, place: place, parts: [][]byte{make([]byte, cut),
			make([]byte, placeSize-cut)}}
		if kind == stepRead {
			f.parts = [][]byte{make([]byte, placeSize)}
			one(modify(m.request().Read(fd, f.parts[0], off)), f)
			return
		}
		one(modify(m.request().Readv(fd, f.parts, off)), f)
	case stepWrite:
		if free {
			one(modify(m.request().Write(fd, data, off)), &inFlight{kind: kind, place: place,
				data: data})
		}
	case stepWritev:
		if free {
			one(modify(m.request().Writev(fd, [][]byte{data[:cut], data[cut:]}, off)),
				&inFlight{kind: kind, place: place, data: data})
		}
	case stepChain:
		if !free {
			return
		}
		// The read returns what the write wrote, unless it is canceled.
		p := make([]byte, placeSize)
		write, read := m.request().Write(fd, data, off).Link(), m.request().Read(fd, p, off)
		m.push([]*Request{write, read}, []*inFlight{
			{kind: stepWrite, place: place, data: data}, {kind: stepRead, place: place,
				data: data, parts: [][]byte{p}, after: true}})
	case stepPipe:
		p := make([]byte, 1+arg%3)
		q := m.request().Read(m.pipe[0], p, CurrentPosition)
		if arg&8 != 0 {
			q.Readv(m.pipe[0], [][]byte{p[:1], p[1:]}, CurrentPosition)
		}
		one(q, &inFlight{kind: kind, place: -1, data: p})
	case stepNop:
		q := m.request().Nop()
		if arg&1 != 0 && m.barriers {
			q.Drain()
		}
		one(q, &inFlight{kind: kind, place: -1})
	case stepTimeout:
		one(m.request().Timeout(time.Duration(arg)*time.Microsecond),
			&inFlight{kind: kind, place: -1})
	case stepFsync:
		one(modify(m.request().Fdatasync(fd)), &inFlight{kind: kind, place: -1})
	case stepCancel:
		if len(m.order) == 0 {
			return
		}
		other := m.order[int(arg)%len(m.order)]
		one(m.request().Cancel(other), &inFlight{kind: kind, place: -1, other: other})
	case stepLimit:
		p := make([]byte, 1)
		m.push([]*Request{m.request().Read(m.pipe[0], p, CurrentPosition).Link(),
			m.request().LinkTimeout(time.Duration(arg) * time.Microsecond)},
			[]*inFlight{{kind: stepPipe, place: -1, data: p}, {kind: stepLimit, place: -1}})
	case stepMulti:
		if !m.multi {
			return
		}
		one(m.request().PollMultishot(m.pipe[0], 1), &inFlight{kind: kind, place: -1})
	case stepFeed:
		if b := byte(m.fed); !m.unread[b] {
			m.fed++
			m.unread[b] = true
			if _, err := syscall.Write(m.pipe[1], []byte{b}); err != nil {
				m.t.Fatal(err)
			}
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
	if err := m.ring.Close(); err != nil {
		m.t.Fatal(err)
	}
	for _, q := range append([]*Request(nil), m.order...) {
		m.orphaned++
		if f := m.end(q); f.kind == stepPipe {
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
	if err := syscall.Pipe2(m.pipe[:], syscall.O_CLOEXEC); err != nil {
		m.t.Fatal(err)
	}
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
		file, err := shared()
		must(t, err)
		m := &machine{t: t, file: file, inFlight: map[*Request]*inFlight{}}
		for place := range places {
			m.content[place] = make([]byte, placeSize)
		}
		if _, err := file.WriteAt(make([]byte, places*placeSize), 0); err != nil {
			t.Fatal(err)
		}
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
