//go:build linux

// A ring of buffers: the kernel chooses one when there is data for it.

package ring

import (
	"math"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// BufferRing is a group of buffers of one size, from which the kernel takes one when data has arrived: many requests can wait
// with few buffers. [Request.RecvSelect], [Request.RecvMultishot], [Request.ReadSelect] and [Request.ReadMultishot] name it by its
// number. The memory is outside Go's heap. Like its ring, it is for one goroutine at a time.
type BufferRing struct {
	ring    *Ring
	group   uint16
	size    int
	tail    uint16
	entries []bufferEntry
	memory  []byte // The entries, then the buffers.
	buffers []byte
}

// RegisterBufferRing makes a group of count buffers (a power of two, at most 32768) of size bytes each. A group of this number
// that exists already is EEXIST. Kernel 5.19.
func (r *Ring) RegisterBufferRing(group uint16, count, size int) (*BufferRing, error) {
	if r.closed {
		return nil, ErrClosed
	}
	if count <= 0 || count > maxBufferEntries || count&(count-1) != 0 || size <= 0 || size > math.MaxInt32/count {
		return nil, refused(syscall.EINVAL)
	}
	page := os.Getpagesize()
	table := (count*int(unsafe.Sizeof(bufferEntry{})) + page - 1) &^ (page - 1)
	memory, err := syscall.Mmap(-1, 0, table+count*size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	b := &BufferRing{ring: r, group: group, size: size, memory: memory, buffers: memory[table:]}
	b.entries = unsafe.Slice((*bufferEntry)(unsafe.Pointer(&memory[0])), count)
	registration := bufferRegistration{addr: address(memory), entries: uint32(count), group: group}
	if _, err := r.register(registerPbufRing, unsafe.Pointer(&registration), 1); err != nil {
		_ = syscall.Munmap(memory)
		return nil, err
	}
	r.groups = append(r.groups, b)
	for id := range count {
		b.put(uint16(id))
	}
	b.publish()
	return b, nil
}

// Buffer is the data of a completion, and the number of the buffer that it lies in; false if the completion has none. The
// buffer is the program's until it goes back by [BufferRing.Return]. A completion can have a buffer and no data: at the end of
// a stream, with some kernels.
func (b *BufferRing) Buffer(c Completion) (data []byte, id uint16, ok bool) {
	if c.Flags&FlagBuffer == 0 || b.memory == nil {
		return nil, 0, false
	}
	id = uint16(c.Flags >> bufferShift)
	whole := b.buffers[int(id)*b.size : (int(id)+1)*b.size : (int(id)+1)*b.size]
	return whole[:min(max(int(c.Result), 0), b.size)], id, true
}

// Return gives a buffer back to the kernel, which may write to it from then on. Each buffer goes back once.
func (b *BufferRing) Return(id uint16) {
	if b.memory == nil || int(id) >= len(b.entries) {
		return
	}
	b.put(id)
	b.publish()
}

func (b *BufferRing) put(id uint16) {
	e := &b.entries[int(b.tail)&(len(b.entries)-1)]
	e.addr = address(b.buffers[int(id)*b.size:])
	e.len = uint32(b.size)
	e.id = id
	b.tail++
}

// publish tells the kernel of what was put. The tail is 16 bits wide, and there is no atomic store of that width: so it is
// stored together with the number beside it, which is ours as well.
func (b *BufferRing) publish() {
	first := &b.entries[0]
	word := [2]uint16{first.id, b.tail}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&first.id)), *(*uint32)(unsafe.Pointer(&word)))
}

// Close drops the group and frees its memory, which slices from [BufferRing.Buffer] must not outlive. Requests in flight must
// not use it: EBUSY. The ring's Close does the same for groups that are left; then this answers [ErrClosed].
func (b *BufferRing) Close() error {
	if b.memory == nil || b.ring.closed {
		return ErrClosed // A ring that was closed too early keeps the memory: the kernel may still write to it.
	}
	for _, s := range b.ring.slots {
		if s.request != nil && s.request.sqe.flags&sqeBufferSelect != 0 && s.request.sqe.bufIndex == b.group {
			return refused(syscall.EBUSY)
		}
	}
	registration := bufferRegistration{group: b.group}
	if _, err := b.ring.register(unregisterPbufRing, unsafe.Pointer(&registration), 1); err != nil {
		return err
	}
	return b.unmap()
}

func (b *BufferRing) unmap() error {
	b.ring.groups = slices.DeleteFunc(b.ring.groups, func(g *BufferRing) bool { return g == b })
	memory := b.memory
	b.memory, b.buffers, b.entries = nil, nil, nil
	return os.NewSyscallError("munmap", syscall.Munmap(memory))
}
