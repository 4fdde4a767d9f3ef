//go:build linux

package main

// Who competes: each opens the file and reads blocks, with memory of its own outside Go's heap, so that all have the
// same pages and the collector has the same heap.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/internal/null"
	"github.com/ringway-io/ringway/go/ringway"
)

// block is what is read at a time.
const block = 4096

// subject is a contestant with an open file.
type subject interface {
	io.ReaderAt
	// buffer lends n bytes at a multiple of the block, as long as the process lives.
	buffer(n int) ([]byte, error)
	// trips so far; false: it cannot tell.
	trips() (trips, bool)
}

// trips to the kernel: system calls counted, and the reads that went with them. Each other read is a system call of its own.
type trips struct{ calls, carried int64 }

// contestant opens files for runs.
type contestant struct {
	name  string
	what  string // For the legend.
	kinds []ioKind
	// helped: the kernel may have threads that work for it.
	helped bool
	open   func(setup) (subject, error)
}

// setup is what a contestant may know beforehand.
type setup struct {
	file string
	flag int // Of open(2).
	// goroutines will each have a buffer of this many blocks.
	goroutines, blocks int
}

var reads = []ioKind{ioDirect, ioCached, ioBatch}

var contestants = []contestant{
	{"ringway", "ringway.File, as it comes", []ioKind{ioDirect, ioCached, ioBatch, ioCommit}, true, openRingway},
	{"ringway-fixed", "the same with its buffers registered (Options.FixedBuffers)", reads, true, openRingwayFixed},
	{"os", "os.File", []ioKind{ioDirect, ioCached, ioBatch, ioCommit}, false, openOS},
	{"os-128", "os.File with at most 128 reads at once", []ioKind{ioDirect}, false, openBounded},
	{"os-group", "os.File, the records of many goroutines gathered for one fdatasync, as with ringway", []ioKind{ioCommit}, false, openOS},
	{"seed", "the older design: a ring for each processor, each read entered by itself, a thread blocked for each ring", []ioKind{ioDirect, ioCached}, true, openSeed},
	{"bare", "one goroutine that keeps as many reads in flight on a ring of its own, at most 192: what the kernel itself costs (its latency is from one completion to the next)", []ioKind{ioDirect}, true, openBare},
	{"null-queue", "ringway.File on a queue without a device, which completes what is submitted: what the engine itself costs", []ioKind{ioNull}, false, openNullQueue},
	{"floor", "goroutines that park, and are readied an eighth of them at a time: what Go's scheduler itself costs", []ioKind{ioNull}, false, openFloor},
	{"null", "reads nothing: what the harness itself costs", []ioKind{ioDirect, ioCached, ioBatch, ioNull}, false, openNull},
}

func contestantNames() []string {
	var all []string
	for _, c := range contestants {
		all = append(all, c.name)
	}
	return all
}

func contestantNamed(name string) (contestant, error) {
	for _, c := range contestants {
		if c.name == name {
			return c, nil
		}
	}
	return contestant{}, fmt.Errorf("no contestant is called %q", name)
}

// ringwayFile reads through an engine of its own.
type ringwayFile struct {
	*ringway.File
	engine *ringway.Engine
	lent   []*ringway.Buffer // Kept: what is forgotten is lent again.
}

func openRingway(s setup) (subject, error) { return openEngine(s, ringway.Options{}) }

func openRingwayFixed(s setup) (subject, error) {
	each := block
	for each < s.blocks*block {
		each *= 2 // As buffers are lent.
	}
	f, err := openEngine(s, ringway.Options{FixedBuffers: s.goroutines * each})
	if err != nil {
		return nil, err
	}
	// Otherwise it would run as plain ringway, under another name.
	for _, refused := range f.engine.Refusals() {
		if refused.Feature == "fixed buffers" {
			return nil, refused
		}
	}
	return f, nil
}

func openEngine(s setup, options ringway.Options) (*ringwayFile, error) {
	engine, err := ringway.New(options)
	if err != nil {
		return nil, err
	}
	return openIn(engine, s)
}

func openIn(engine *ringway.Engine, s setup) (*ringwayFile, error) {
	f, err := engine.OpenFile(s.file, s.flag, 0)
	return &ringwayFile{File: f, engine: engine}, err
}

func (f *ringwayFile) buffer(n int) ([]byte, error) {
	f.lent = append(f.lent, f.engine.NewBuffer(n))
	return f.lent[len(f.lent)-1].Bytes(), nil
}

func (f *ringwayFile) trips() (trips, bool) {
	stats := f.engine.Stats()
	return trips{int64(stats.Submissions), int64(stats.Delivered)}, true
}

// osFile is package os: a system call for each read, and a thread for each that is blocked.
type osFile struct {
	*os.File
	memory
}

func openOS(s setup) (subject, error) {
	f, err := os.OpenFile(s.file, s.flag, 0)
	return &osFile{File: f}, err
}

func (*osFile) trips() (trips, bool) { return trips{}, true }

// boundedFile is os.File with so many reads at once: more threads than that help no device.
type boundedFile struct {
	osFile
	room chan struct{}
}

func openBounded(s setup) (subject, error) {
	f, err := os.OpenFile(s.file, s.flag, 0)
	return &boundedFile{osFile{File: f}, make(chan struct{}, bounded)}, err
}

func (f *boundedFile) ReadAt(p []byte, off int64) (int, error) {
	f.room <- struct{}{}
	n, err := f.File.ReadAt(p, off)
	<-f.room
	return n, err
}

// nullFile does nothing.
type nullFile struct{ memory }

func openNull(setup) (subject, error)                   { return &nullFile{}, nil }
func (*nullFile) ReadAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (*nullFile) trips() (trips, bool)                  { return trips{}, false }

// openNullQueue is ringway without a device.
func openNullQueue(s setup) (subject, error) {
	if null.NewEngine == nil {
		return nil, errors.New("there is no ring on this kind of processor")
	}
	engine, err := null.NewEngine()
	if err != nil {
		return nil, err
	}
	return openIn(engine.(*ringway.Engine), s)
}

// floorFile parks its readers, and readies them together.
type floorFile struct {
	memory
	group   int
	mu      sync.Mutex
	waiting []chan struct{}
	spare   sync.Pool
}

func openFloor(s setup) (subject, error) {
	f := &floorFile{group: max(s.goroutines/8, 1)}
	f.spare.New = func() any { return make(chan struct{}, 1) }
	go func() { // Those that wait for others, which have gone by the end of a run.
		for {
			time.Sleep(time.Millisecond)
			f.mu.Lock()
			f.ready()
		}
	}()
	return f, nil
}

// ready readies all that wait. The lock is held when it is called, and free when it returns.
func (f *floorFile) ready() {
	var few [64]chan struct{}
	group := append(few[:0], f.waiting...)
	f.waiting = f.waiting[:0]
	f.mu.Unlock()
	for _, waiting := range group {
		waiting <- struct{}{}
	}
}

func (f *floorFile) ReadAt(p []byte, _ int64) (int, error) {
	done := f.spare.Get().(chan struct{})
	f.mu.Lock()
	if f.waiting = append(f.waiting, done); len(f.waiting) >= f.group {
		f.ready()
	} else {
		f.mu.Unlock()
	}
	<-done
	f.spare.Put(done)
	return len(p), nil
}

func (*floorFile) trips() (trips, bool) { return trips{}, false }

// memory lends from regions as large as those of ringway's buffers.
type memory struct{ rest []byte }

const regionSize = 32 << 20

func (m *memory) buffer(n int) ([]byte, error) {
	if len(m.rest) < n {
		region, err := syscall.Mmap(-1, 0, max(n, regionSize), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			return nil, fmt.Errorf("mmap: %w", err)
		}
		m.rest = region
	}
	p := m.rest[:n:n]
	m.rest = m.rest[n:]
	return p, nil
}
