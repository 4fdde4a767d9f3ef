package ringway

// Memory that ringway lends: aligned for direct I/O, and outside Go's heap, where the kernel needs nothing pinned.

import (
	"context"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"
)

// pageSize is an alignment that direct I/O accepts everywhere.
const pageSize = 4096

// Buffer is memory that ringway lends until [Buffer.Release]. It lies outside Go's heap, so the collector does not know who
// uses it: one that is forgotten is not lent again, and its memory is lost to the process.
type Buffer struct {
	p    []byte
	lent block
}

// Bytes is the memory. It is the caller's until Release, whether or not the Buffer is still referred to.
func (b *Buffer) Bytes() []byte { return b.p }

// Len is how many bytes there are.
func (b *Buffer) Len() int { return len(b.p) }

// Release gives the memory back; nobody may use it any more. To release a buffer twice panics.
func (b *Buffer) Release() {
	if b.lent.memory == nil {
		panic("ringway: a buffer was released twice")
	}
	lent := b.lent
	b.p, b.lent = nil, block{}
	lent.giveBack()
}

// NewBuffer lends n bytes, which begin at a multiple of 4096. What is in them is not defined. It panics if n is negative or
// memory is exhausted, as make does.
func NewBuffer(n int) *Buffer {
	lent, _ := unfixed.take(n)
	return newBuffer(lent, n)
}

// NewBuffer is the function of that name, and takes from the engine's fixed buffers ([Options.FixedBuffers]) as long as
// there is room.
func (e *Engine) NewBuffer(n int) *Buffer { return newBuffer(e.lend(n), n) }

func newBuffer(lent block, n int) *Buffer { return &Buffer{p: lent.memory[:n:n], lent: lent} }

// readLength is how many bytes of memory a read of n bytes at an offset is given: not many more than the file has there. A long
// n may come from the file itself, and memory that there is not ends a Go program. What is less than n meets the end of the
// file, unless that has grown meanwhile.
func readLength(file *os.File, off int64, n int) (int, error) {
	if n <= largestBlock {
		return n, nil
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return n, err
	}
	// Whole pages, which direct I/O takes as they are.
	there := max(info.Size()-off, 0)&^(pageSize-1) + pageSize
	return int(min(int64(n), there)), nil
}

// orAbandon gives what get does, or the context's cause as soon as it ends: then get goes on alone, and late, if it is not
// nil, is called with what it gives.
func orAbandon[T any](ctx context.Context, get func() (T, error), late func(T)) (T, error) {
	if ctx.Done() == nil {
		return get()
	}
	type answer struct {
		got T
		err error
	}
	answers := make(chan answer, 1)
	var over atomic.Bool // One of the two has ended.
	go func() {
		got, err := get()
		switch {
		case !over.Swap(true):
			answers <- answer{got, err}
		case late != nil:
			late(got)
		}
	}()
	select {
	case a := <-answers:
		return a.got, a.err
	case <-ctx.Done():
		if over.Swap(true) {
			a := <-answers
			return a.got, a.err
		}
		var none T
		return none, context.Cause(ctx)
	}
}

// releaseLate is for a buffer that nobody waits for any more.
func releaseLate(b *Buffer) {
	if b != nil {
		b.Release()
	}
}

// lend is NewBuffer for those who surely give the block back.
func (e *Engine) lend(n int) block {
	if e.fixed != nil {
		if lent, ok := e.fixed.take(n); ok {
			return lent
		}
	}
	lent, _ := unfixed.take(n)
	return lent
}

// block is a part of an arena.
type block struct {
	memory []byte
	of     *arena // nil: of Go's heap.
}

func (b block) giveBack() {
	if b.of != nil && !lost.has(b.memory) {
		b.of.put(b.memory)
	}
}

// lost is memory that the kernel may use at any time, since its engine was closed before the kernel had let go of it. It is
// never lent again and never collected.
var lost lostMemory

type lostMemory struct {
	any atomic.Bool
	mu  sync.Mutex
	all [][]byte
}

func (l *lostMemory) add(p []byte) {
	if len(p) == 0 {
		return
	}
	l.mu.Lock()
	l.all = append(l.all, p)
	l.mu.Unlock()
	l.any.Store(true)
}

// has tells whether some of whole is lost.
func (l *lostMemory) has(whole []byte) bool {
	if !l.any.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.all {
		if within(p[:1], whole) || within(whole[:1], p) {
			return true
		}
	}
	return false
}

// An arena has blocks of 4 KiB and its doubles, up to 8 MiB. What was given back is lent again; the system gets nothing
// back before the arena is retired.
type arena struct {
	mu      sync.Mutex
	free    [blockClasses][][]byte
	rest    []byte // Of the newest region: not lent yet.
	only    []byte // The one region of an arena that does not grow.
	lent    int    // Blocks.
	retired bool
}

const (
	blockClasses = 12
	largestBlock = pageSize << (blockClasses - 1)
	// regionSize is what is taken from the system at once. It is used page by page.
	regionSize = 4 * largestBlock
)

// unfixed lends whatever is not fixed, to all engines.
var unfixed arena

// newFixedArena has one region of n bytes. The error is an errno.
func newFixedArena(n int) (*arena, error) {
	region, err := mapRegion(n)
	if err != nil {
		return nil, err
	}
	return &arena{rest: region, only: region}, nil
}

// blockClass is the least class that holds n bytes.
func blockClass(n int) int { return bits.Len(uint(max(n-1, 0) / pageSize)) }

// take lends at least n bytes; false: an arena that does not grow has no room.
func (a *arena) take(n int) (block, bool) {
	class := blockClass(n)
	if class >= blockClasses {
		if a.only != nil {
			return block{}, false
		}
		return block{memory: alignedSlice((n+pageSize-1)&^(pageSize-1), pageSize)}, true
	}
	size := pageSize << class
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.retired {
		return block{}, false
	}
	free := &a.free[class]
	if n := len(*free); n > 0 {
		memory := (*free)[n-1]
		(*free)[n-1] = nil
		*free = (*free)[:n-1]
		a.lent++
		return block{memory, a}, true
	}
	if len(a.rest) < size {
		if a.only != nil {
			return block{}, false
		}
		a.shelve(a.rest)
		region, err := mapRegion(regionSize)
		if err != nil {
			panic("ringway: no memory for a buffer: " + err.Error())
		}
		a.rest = region
	}
	memory := a.rest[:size:size]
	a.rest = a.rest[size:]
	a.lent++
	return block{memory, a}, true
}

// shelve makes blocks of what is left of a region.
func (a *arena) shelve(rest []byte) {
	for len(rest) >= pageSize {
		class := min(bits.Len(uint(len(rest)/pageSize))-1, blockClasses-1)
		size := pageSize << class
		a.free[class] = append(a.free[class], rest[:size:size])
		rest = rest[size:]
	}
}

func (a *arena) put(memory []byte) {
	a.mu.Lock()
	class := blockClass(len(memory))
	a.free[class] = append(a.free[class], memory)
	a.lent--
	a.unmapIdle()
	a.mu.Unlock()
}

// retire gives the region of a fixed arena back to the system, once nobody has a block of it. Nothing is lent any more.
func (a *arena) retire() {
	a.mu.Lock()
	a.retired = true
	a.unmapIdle()
	a.mu.Unlock()
}

// unmapIdle: the lock is held.
func (a *arena) unmapIdle() {
	if !a.retired || a.lent > 0 || a.only == nil {
		return
	}
	unmapRegion(a.only)
	a.free, a.rest, a.only = [blockClasses][][]byte{}, nil, nil
}

// within tells whether p is a part of whole.
func within(p, whole []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p))) - uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	return at < uintptr(len(whole)) && uintptr(len(p)) <= uintptr(len(whole))-at
}

// alignedSlice is fresh memory of Go's heap at a multiple of align, a power of two.
func alignedSlice(n, align int) []byte {
	whole := make([]byte, n+align-1)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(whole)))) & (align - 1)
	return whole[skip : skip+n : skip+n]
}
