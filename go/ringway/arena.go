// The memory of pooled buffers: a buddy-like allocator of page-aligned blocks.

package ringway

import (
	"math/bits"
	"sync"
	"unsafe"
)

// pageSize is the unit of pooled memory, and the alignment that is assumed of direct I/O where the
// kernel does not report it (before 6.1): devices had blocks of 512 or 4096 bytes then. It is not
// the page size of the machine, which may be 16 or 64 KiB. Only mapped regions depend on that one,
// and the kernel rounds their lengths up.
const pageSize = 4096

// arena allocates blocks of 4 KiB, 8 KiB, and so on up to 8 MiB. Released blocks are reused.
// Memory returns to the system only when an arena of fixed size is retired.
type arena struct {
	mu       sync.Mutex
	free     [blockClasses][][]byte
	rest     []byte // The part of the newest region that was never handed out.
	only     []byte // The one region of an arena of fixed size.
	borrowed int    // Blocks.
	retired  bool
}

const (
	blockClasses = 12
	largestBlock = pageSize << (blockClasses - 1)
	// regionSize is how much address space is taken from the system at once. The kernel provides
	// its pages when they are first used.
	regionSize = 4 * largestBlock
)

// pooled is the arena of all engines, for memory that is not registered.
var pooled arena

// newRegion is mapRegion, unless a test has replaced it.
var newRegion = mapRegion

// newFixedArena returns an arena with one region of n bytes. The error is an errno.
func newFixedArena(n int) (*arena, error) {
	region, err := mapRegion(n)
	if err != nil {
		return nil, err
	}
	return &arena{rest: region, only: region}, nil
}

// block is memory of an arena, or of Go's heap if it is larger than the largest block.
type block struct {
	memory []byte
	arena  *arena // nil: Go's heap.
}

// release returns the block to its arena, unless the kernel may still use it.
func (b block) release() {
	if b.arena != nil && !abandoned.overlaps(b.memory) {
		b.arena.put(b.memory)
	}
}

// blockClass is the smallest class that holds n bytes.
func blockClass(n int) int { return bits.Len(uint(max(n-1, 0) / pageSize)) }

// take returns a block of at least n bytes. ok is false if an arena of fixed size has no free
// block, or the system has no memory for another region.
func (a *arena) take(n int) (b block, ok bool) {
	class := blockClass(n)
	if class >= blockClasses {
		if a.only != nil {
			return block{}, false
		}
		return block{memory: alignedSlice(wholePages(n), pageSize)}, true
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
		a.borrowed++
		return block{memory, a}, true
	}
	if len(a.rest) < size {
		if a.only != nil {
			return block{}, false
		}
		region, err := newRegion(regionSize)
		if err != nil {
			return block{}, false
		}
		a.addFree(a.rest)
		a.rest = region
	}
	memory := a.rest[:size:size]
	a.rest = a.rest[size:]
	a.borrowed++
	return block{memory, a}, true
}

// addFree divides the rest of a region into free blocks.
func (a *arena) addFree(rest []byte) {
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
	a.borrowed--
	a.unmapIfUnused()
	a.mu.Unlock()
}

// retire returns the region of an arena of fixed size to the system as soon as all blocks are
// released. The arena allocates no more blocks.
func (a *arena) retire() {
	a.mu.Lock()
	a.retired = true
	a.unmapIfUnused()
	a.mu.Unlock()
}

// unmapIfUnused is called with the lock held.
func (a *arena) unmapIfUnused() {
	if !a.retired || a.borrowed > 0 || a.only == nil {
		return
	}
	unmapRegion(a.only)
	a.free, a.rest, a.only = [blockClasses][][]byte{}, nil, nil
}

// within reports whether p is a part of whole.
func within(p, whole []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p))) -
		uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	return at < uintptr(len(whole)) && uintptr(len(p)) <= uintptr(len(whole))-at
}

// alignedSlice returns new memory of Go's heap at a multiple of align, a power of two.
func alignedSlice(n, align int) []byte {
	whole := make([]byte, n+align-1)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(whole)))) & (align - 1)
	return whole[skip : skip+n : skip+n]
}
