//go:build linux

// The contestants: each opens the file and reads blocks of it. All of them read into memory outside
// Go's heap, so that the garbage collector and the page tables cost each the same.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/internal/null"
	"github.com/ringway-io/ringway/go/ring"
	"github.com/ringway-io/ringway/go/ringway"
)

// block is the size of a read.
const block = 4096

// subject is a contestant with its file open.
type subject interface {
	io.ReaderAt
	// buffer returns n bytes, aligned to a block, that stay valid as long as the process lives.
	buffer(n int) ([]byte, error)
	// submissions returns the counts so far.
	submissions() submissions
}

// submissions counts system calls, and the requests that they submitted. Every other request is a
// system call of its own.
type submissions struct{ calls, requests int64 }

// contestant is a row of the table for each of its workloads.
type contestant struct {
	name  string
	about string // For the legend.
	kinds []ioKind
	// rings is true if the kernel may refuse it, and may run threads for it.
	rings bool
	open  func(setup) (subject, error)
}

// setup is what a contestant needs to open its file.
type setup struct {
	file         string
	flag         int // Of open(2).
	goroutines   int // Each uses one buffer.
	bufferBlocks int
	fixedBuffers bool // For ringway.
}

var contestants = []contestant{
	{"ringway", "ringway.File", []ioKind{ioDirect, ioCached, ioBatch, ioCommit}, true, openRingway},
	{"os", "os.File", []ioKind{ioDirect, ioCached, ioBatch}, false, openOS},
	{"os-128", "os.File with at most 128 reads in flight", []ioKind{ioDirect}, false, openBounded},
	{"os-group", "os.File with the same gathering of records: one write and one fdatasync each",
		[]ioKind{ioCommit}, false, openOS},
	{"ringway-ctx", "ringway.File, each read with a context that has a deadline",
		[]ioKind{ioDirect, ioCached}, true, openWithDeadline},
	{"bare", "package ring in one goroutine, at most 192 reads in flight: the limit",
		[]ioKind{ioDirect}, true, openBare},
	{"null-queue",
		"ringway.File on a queue that completes every request at once: the engine's cost",
		[]ioKind{ioNull}, false, openNullQueue},
	{"floor", "goroutines that park and wake in groups of an eighth: the scheduler's cost",
		[]ioKind{ioNull}, false, openFloor},
}

func contestantNamed(name string) (contestant, error) {
	for _, c := range contestants {
		if c.name == name {
			return c, nil
		}
	}
	return contestant{}, fmt.Errorf("unknown contestant %q", name)
}

// ringwayFile is a file of an engine of its own.
type ringwayFile struct {
	*ringway.File
	engine  *ringway.Engine
	buffers []*ringway.Buffer // Keeps them reachable.
}

func openRingway(s setup) (subject, error) {
	options := ringway.Options{}
	if s.fixedBuffers {
		each := block
		for each < s.bufferBlocks*block {
			each *= 2 // The engine rounds buffers up to a power of two.
		}
		options.FixedBuffers = s.goroutines * each
	}
	engine, err := ringway.New(options)
	if err != nil {
		return nil, err
	}
	for _, refusal := range engine.Refusals() {
		if s.fixedBuffers && refusal.Feature == "fixed buffers" {
			return nil, refusal // Its row must not show unregistered buffers.
		}
	}
	return openIn(engine, s)
}

func openIn(engine *ringway.Engine, s setup) (subject, error) {
	f, err := engine.OpenFile(s.file, s.flag, 0)
	return &ringwayFile{File: f, engine: engine}, err
}

func (f *ringwayFile) buffer(n int) ([]byte, error) {
	f.buffers = append(f.buffers, f.engine.NewBuffer(n))
	return f.buffers[len(f.buffers)-1].Bytes(), nil
}

func (f *ringwayFile) submissions() submissions {
	stats := f.engine.Stats()
	return submissions{int64(stats.Submissions), int64(stats.Delivered)}
}

// deadlineFile reads with a context that can end, and does not.
type deadlineFile struct {
	*ringwayFile
	ctx    context.Context
	cancel context.CancelFunc // Not called: the context lives as long as the process.
}

func openWithDeadline(s setup) (subject, error) {
	opened, err := openRingway(s)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
	return &deadlineFile{opened.(*ringwayFile), ctx, cancel}, nil
}

func (f *deadlineFile) ReadAt(p []byte, off int64) (int, error) {
	return f.ReadAtContext(f.ctx, p, off)
}

// openNullQueue opens ringway without a device.
func openNullQueue(s setup) (subject, error) {
	if null.NewEngine == nil {
		return nil, errors.New("ringway has no rings on this architecture")
	}
	engine, err := null.NewEngine()
	if err != nil {
		return nil, err
	}
	return openIn(engine.(*ringway.Engine), s)
}

// osFile makes a system call for each read; a blocked one occupies a thread.
type osFile struct {
	*os.File
	memory
}

func openOS(s setup) (subject, error) {
	f, err := os.OpenFile(s.file, s.flag, 0)
	return &osFile{File: f}, err
}

func (*osFile) submissions() submissions { return submissions{} }

// boundedFile is os.File with a semaphore.
type boundedFile struct {
	osFile
	slots chan struct{}
}

func openBounded(s setup) (subject, error) {
	f, err := os.OpenFile(s.file, s.flag, 0)
	return &boundedFile{osFile{File: f}, make(chan struct{}, boundedReads)}, err
}

func (f *boundedFile) ReadAt(p []byte, off int64) (int, error) {
	f.slots <- struct{}{}
	n, err := f.File.ReadAt(p, off)
	<-f.slots
	return n, err
}

// bareRing keeps reads in flight on a ring, from one goroutine: what the kernel itself costs.
type bareRing struct {
	osFile
	fd                 int
	ring               *ring.Ring
	done               []ring.Completion // Reaped, not yet counted.
	space              [bareDepth]ring.Completion
	calls, completions atomic.Int64
}

// bareDepth is the most reads in flight, as many as ringway has.
const bareDepth = 192

func openBare(s setup) (subject, error) {
	f, err := os.OpenFile(s.file, s.flag, 0)
	if err != nil {
		return nil, err
	}
	r, err := ring.New(ring.Options{Entries: 256})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &bareRing{osFile: osFile{File: f}, fd: int(f.Fd()), ring: r}, nil
}

func (b *bareRing) submissions() submissions {
	return submissions{b.calls.Load(), b.completions.Load()}
}

// bareRead is the tag of a request.
type bareRead struct {
	p   []byte
	off int64
}

// prepare puts depth reads in flight. Each call of the function that it returns takes one
// completion and pushes the next read; the pushed reads are submitted when no completion is left.
func (b *bareRing) prepare(depth int, next func() int64, check checkFunc) (step, error) {
	push := func(q *ring.Request) error {
		read := q.UserData.(*bareRead)
		read.off = next()
		return b.ring.Push(q.Read(b.fd, read.p, read.off))
	}
	for range min(depth, bareDepth) {
		p, err := b.buffer(block)
		if err != nil {
			return nil, err
		}
		if err := push(&ring.Request{UserData: &bareRead{p: p}}); err != nil {
			return nil, err
		}
	}
	return func(ramp bool) error {
		for len(b.done) == 0 {
			if _, err := b.ring.SubmitAndWait(1, -1); err != nil {
				return err
			}
			b.calls.Add(1)
			b.done = b.space[:b.ring.Reap(b.space[:])]
		}
		c := b.done[0]
		b.done = b.done[1:]
		b.completions.Add(1)
		read := c.Request.UserData.(*bareRead)
		err := c.Err()
		if err == nil {
			err = check(int(c.Result), nil, read.p, read.off, ramp)
		}
		return errors.Join(err, push(c.Request))
	}, nil
}

// floorFile parks its readers, and wakes them in groups.
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
	go func() { // At the end of a run a group may be incomplete.
		for {
			time.Sleep(time.Millisecond)
			f.mu.Lock()
			f.wake()
		}
	}()
	return f, nil
}

// wake wakes all waiting readers. The caller holds the lock, and wake releases it.
func (f *floorFile) wake() {
	var space [64]chan struct{}
	group := append(space[:0], f.waiting...)
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
		f.wake()
	} else {
		f.mu.Unlock()
	}
	<-done
	f.spare.Put(done)
	return len(p), nil
}

func (*floorFile) submissions() submissions { return submissions{} }

// memory allocates buffers from regions as large as those of ringway's pool.
type memory struct{ rest []byte }

const regionSize = 32 << 20

func (m *memory) buffer(n int) ([]byte, error) {
	if len(m.rest) < n {
		region, err := syscall.Mmap(-1, 0, max(n, regionSize),
			syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			return nil, os.NewSyscallError("mmap", err)
		}
		m.rest = region
	}
	p := m.rest[:n:n]
	m.rest = m.rest[n:]
	return p, nil
}
