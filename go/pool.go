package ringway

import (
	"math/bits"
	"sync"
	"unsafe"
)

// alignedSlice is fresh memory at a multiple of align, a power of two.
func alignedSlice(n, align int) []byte {
	whole := make([]byte, n+align-1)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(whole)))) & (align - 1)
	return whole[skip : skip+n : skip+n]
}

// pageSize is an alignment that direct I/O accepts everywhere.
const pageSize = 4096

// Buffer is memory that ringway lends: aligned for direct I/O, and used again after [Buffer.Release].
type Buffer struct {
	p     []byte
	whole []byte
	class int
}

// Bytes is the memory. It is the caller's until Release.
func (b *Buffer) Bytes() []byte { return b.p }

// Len is how many bytes there are.
func (b *Buffer) Len() int { return len(b.p) }

// Release gives the memory back; nobody may use it any more. To forget it is no leak: it is then collected.
func (b *Buffer) Release() {
	if b.whole == nil {
		panic("ringway: a buffer was released twice")
	}
	whole, class := b.whole, b.class
	b.p, b.whole = nil, nil
	if class < len(shelves) {
		shelves[class].Put(&lent{whole})
	}
}

type lent struct{ p []byte }

// shelves of buffers of 4 KiB and its doubles, up to 8 MiB.
var shelves [12]sync.Pool

// NewBuffer lends n bytes, at a page's boundary and with whole pages behind. What is in them is not defined.
func NewBuffer(n int) *Buffer {
	pages := max((n+pageSize-1)/pageSize, 1)
	class := bits.Len(uint(pages - 1))
	b := &Buffer{class: class}
	if class < len(shelves) {
		if l, ok := shelves[class].Get().(*lent); ok {
			b.whole = l.p
		} else {
			b.whole = alignedSlice(pageSize<<class, pageSize)
		}
	} else {
		b.whole = alignedSlice(pages*pageSize, pageSize)
	}
	b.p = b.whole[:n]
	return b
}
