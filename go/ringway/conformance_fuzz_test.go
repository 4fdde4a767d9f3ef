//go:build linux

// Random sequences of reads, writes, batches, syncs, cancels and closes by many goroutines, on each
// backend, compared with a model of the file. After every step, pushed = delivered + in flight +
// waiting. An ordinary test run uses the seeds.

package ringway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// filePlaces is the number of places in the file. Each has at most one transfer at a time.
const filePlaces = 8

// fileModel is a file with its engine and the expected content.
type fileModel struct {
	t       *testing.T
	options Options
	name    string
	flag    int
	size    int // Of a place.
	engine  *Engine
	file    *File
	content [filePlaces][]byte
	busy    [filePlaces]bool
	running []*call
	unsure  []int   // Places whose write was canceled: it may continue.
	files   []*File // All that were opened.
}

// call is a method that a goroutine is in.
type call struct {
	places []int
	write  bool
	p      [][]byte
	cancel context.CancelFunc
	ended  bool // The engine or the file was closed during the call.
	done   chan error
}

func (m *fileModel) open() {
	var err error
	if m.engine == nil {
		if m.engine, err = New(m.options); err != nil {
			m.t.Skip("skipped:", err)
		}
	}
	if m.file, err = m.engine.OpenFile(m.name, m.flag, 0o600); err != nil {
		if m.flag&syscall.O_DIRECT != 0 && errors.Is(err, syscall.EINVAL) {
			m.t.Skip("skipped: no direct I/O on this file system")
		}
		m.t.Fatal(err)
	}
	m.files = append(m.files, m.file)
}

func (m *fileModel) buffer(fill byte) []byte {
	return append(alignedSlice(m.size, 4096)[:0], bytes.Repeat([]byte{fill}, m.size)...)
}

// begin starts a goroutine that calls a method on some free places.
func (m *fileModel) begin(places []int, write, batch bool, fill byte, end Durability) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &call{places: places, write: write, cancel: cancel, done: make(chan error, 1)}
	transfers := make([]Transfer, len(places))
	for i, place := range places {
		m.busy[place] = true
		c.p = append(c.p, m.buffer(fill+byte(i)))
		transfers[i] = Transfer{P: c.p[i], Off: int64(place * m.size)}
	}
	m.running = append(m.running, c)
	f := m.file
	go func() {
		var err error
		switch {
		case batch && write:
			err = f.WriteBatchContext(ctx, transfers, end)
		case batch:
			err = f.ReadBatchContext(ctx, transfers)
		case len(places) == 0:
			err = f.SyncContext(ctx)
		case write:
			transfers[0].N, err = f.WriteAtContext(ctx, c.p[0], transfers[0].Off)
		default:
			transfers[0].N, err = f.ReadAtContext(ctx, c.p[0], transfers[0].Off)
		}
		for i := range transfers {
			if err == nil && transfers[i].N < m.size {
				err = io.ErrUnexpectedEOF
			}
		}
		c.done <- err
	}()
}

// end waits for a call and checks its result.
func (m *fileModel) end(i int) {
	c := m.running[i]
	m.running = append(m.running[:i], m.running[i+1:]...)
	err := <-c.done
	canceled := c.ended && errors.Is(err, os.ErrClosed) || errors.Is(err, context.Canceled)
	if err != nil && !canceled {
		m.t.Fatal(err)
	}
	c.cancel()
	for i, place := range c.places {
		m.busy[place] = false
		switch {
		case c.write && canceled: // It may be partly written, and may continue.
			m.busy[place] = true
			m.unsure = append(m.unsure, place)
		case c.write:
			copy(m.content[place], c.p[i])
		case !canceled && !bytes.Equal(c.p[i], m.content[place]):
			m.t.Fatal("wrong bytes are read than were written")
		}
	}
}

// endAll waits for all calls, and for operations that continue after their calls were canceled.
func (m *fileModel) endAll() {
	for len(m.running) > 0 {
		m.end(0)
	}
	deadline := time.Now().Add(tooLong)
	for _, f := range m.files {
		for f.refs.count.Load()&math.MaxInt64 != 0 {
			if time.Now().After(deadline) {
				m.t.Fatal("a canceled call does not end")
			}
			time.Sleep(50 * time.Microsecond)
		}
	}
	m.files = m.files[len(m.files)-1:]
	// The file itself shows how much of the canceled writes was done.
	for _, place := range m.unsure {
		m.busy[place] = false
		f, err := os.Open(m.name)
		if err == nil {
			_, err = f.ReadAt(m.content[place], int64(place*m.size))
			f.Close()
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
	m.unsure = nil
}

func (m *fileModel) books() {
	if s := m.engine.Stats(); s.Pushed != s.Delivered+uint64(s.InFlight+s.Waiting) {
		m.t.Fatalf("the counts do not add up: %+v", s)
	}
}

func (m *fileModel) step(step, arg byte) {
	var free []int
	for place, busy := range m.busy {
		if !busy && (arg>>(place%8)&1 != 0 || len(free) == 0) {
			free = append(free, place)
		}
	}
	switch step % 11 {
	case 0, 1, 2, 3:
		if len(free) > 0 {
			m.begin(free[len(free)-1:], step%2 != 0, false, arg, NoSync)
		}
	case 4, 5:
		if len(free) > 0 {
			m.begin(free, step%11 == 4, true, arg, Durability(arg%3))
		}
	case 6:
		m.begin(nil, false, false, 0, NoSync)
	case 7:
		if len(m.running) > 0 {
			m.running[int(arg)%len(m.running)].cancel()
		}
	case 8:
		if len(m.running) > 0 {
			m.end(int(arg) % len(m.running))
		}
	case 9:
		for _, c := range m.running {
			c.ended = true
		}
		if arg%4 == 0 {
			if err := m.engine.Close(); err != nil {
				m.t.Fatal(err)
			}
		}
		if err := m.file.Close(); err != nil {
			m.t.Fatal(err)
		}
		m.endAll()
		if arg%4 == 0 {
			m.books()
			m.engine = nil
		}
		m.open()
	case 10:
		m.endAll()
	}
}

func FuzzFile(f *testing.F) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 6))
		sequence := make([]byte, 40+4*seed)
		for i := range sequence {
			sequence[i] = byte(random.Uint32())
		}
		sequence[0] = byte(seed)
		f.Add(sequence)
	}
	f.Fuzz(func(t *testing.T, sequence []byte) {
		if len(sequence) == 0 || len(sequence) > 500 {
			return
		}
		kind := sequence[0]
		m := &fileModel{t: t, name: filepath.Join(t.TempDir(), "file"),
			flag: os.O_RDWR | os.O_CREATE, size: 96}
		m.options = Options{Backend: testBackends[int(kind)%len(testBackends)],
			AlwaysRing: kind&16 != 0, InFlight: 1 + int(kind>>5)*4}
		if kind&8 != 0 {
			m.flag, m.size = m.flag|Direct, 8192
		}
		must(t, os.WriteFile(m.name, make([]byte, filePlaces*m.size), 0o600))
		for place := range filePlaces {
			m.content[place] = make([]byte, m.size)
		}
		m.open()
		defer func() {
			_ = m.file.Close()
			_ = m.engine.Close()
		}()
		for i := 1; i+1 < len(sequence); i += 2 {
			m.step(sequence[i], sequence[i+1])
			m.books()
		}
		m.endAll()
		m.books()
		if s := m.engine.Stats(); s.InFlight != 0 || s.Waiting != 0 {
			t.Fatalf("operations are left: %+v", s)
		}
		for place := range filePlaces {
			if got, err := os.ReadFile(m.name); err != nil ||
				!bytes.Equal(got[place*m.size:][:m.size], m.content[place]) {
				t.Fatal("the file does not hold what was written: ", err)
			}
		}
	})
}
