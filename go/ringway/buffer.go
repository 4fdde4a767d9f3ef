// Pooled buffers: aligned for direct I/O, and outside Go's heap, so that nothing has to be pinned
// while the kernel uses them. The pool itself is in arena.go.

package ringway

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
)

// Buffer is pooled memory that the caller owns until [Buffer.Release]. It lies outside Go's heap,
// so the garbage collector does not know who uses it: the memory of a Buffer that is never released
// is never reused.
type Buffer struct {
	p     []byte
	block block
}

// Bytes returns the memory. The caller may use it until Release, even if the Buffer itself is no
// longer referenced.
func (b *Buffer) Bytes() []byte { return b.p }

// Len returns the number of bytes.
func (b *Buffer) Len() int { return len(b.p) }

// Release returns the memory to the pool. Nothing may use it afterwards. Release panics if the
// buffer was released before.
func (b *Buffer) Release() {
	if b.block.memory == nil {
		panic("ringway: Buffer.Release was called twice")
	}
	block := b.block
	*b = Buffer{}
	block.release()
}

// NewBuffer returns a buffer of n bytes that begins at a multiple of 4096. Its content is
// undefined. NewBuffer panics if n is negative, or with ENOMEM if the system has no memory for the
// pool. (Methods that return errors return ENOMEM instead.) More than 8 MiB come from make, which
// ends the program if memory is exhausted.
func NewBuffer(n int) *Buffer { return mustBuffer(n, borrow) }

// NewBuffer is like the function [NewBuffer], but takes the memory from the engine's registered
// buffers ([Options.FixedBuffers]) while those last.
func (e *Engine) NewBuffer(n int) *Buffer { return mustBuffer(n, e.borrow) }

func mustBuffer(n int, borrow func(int) (block, error)) *Buffer {
	if n < 0 {
		panic("ringway: NewBuffer of a negative length")
	}
	block, err := borrow(n)
	if err != nil {
		panic(fmt.Errorf("ringway: NewBuffer of %d bytes: %w", n, err))
	}
	return &Buffer{p: block.memory[:n:n], block: block}
}

// newBuffer is NewBuffer for functions that return errors.
func (e *Engine) newBuffer(n int) (*Buffer, error) {
	block, err := e.borrow(n)
	if err != nil {
		return nil, err
	}
	return &Buffer{p: block.memory[:n:n], block: block}, nil
}

// discardBuffer releases a buffer that nobody waits for any more.
func discardBuffer(b *Buffer) {
	if b != nil {
		b.Release()
	}
}

// borrow returns a block of at least n bytes that the caller releases. The error is ENOMEM.
func (e *Engine) borrow(n int) (block, error) {
	if e.fixed != nil {
		if block, ok := e.fixed.take(n); ok {
			return block, nil
		}
	}
	return borrow(n)
}

// borrow is Engine.borrow without registered buffers.
func borrow(n int) (block, error) {
	if block, ok := pooled.take(n); ok {
		return block, nil
	}
	return block{}, syscall.ENOMEM
}

// abandoned is memory that the kernel may use at any time, because its engine was closed before
// the kernel completed the operation. It is never reused and never collected.
var abandoned abandonedMemory

type abandonedMemory struct {
	any atomic.Bool
	mu  sync.Mutex
	all [][]byte
}

// overlaps reports whether a part of p is abandoned.
func (a *abandonedMemory) overlaps(p []byte) bool {
	if !a.any.Load() {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.all {
		if within(q[:1], p) || within(p[:1], q) {
			return true
		}
	}
	return false
}
