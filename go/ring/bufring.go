//go:build linux

// Buffer rings: groups of buffers from which the kernel selects one when data has arrived.

package ring

import (
	"math"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// BufferRing is a group of buffers of one size. The kernel selects one when data has arrived, so
// that many requests can wait with few buffers. [Request.RecvSelect], [Request.RecvMultishot],
// [Request.ReadSelect] and [Request.ReadMultishot] refer to it by its number. The memory is outside
// the Go heap. Like its ring, it is not safe for concurrent use.
type BufferRing struct {
	ring    *Ring
	group   uint16
	size    int
	tail    uint16
	entries []bufferEntry
	memory  []byte // The entries, then the buffers.
	buffers []byte
}

// RegisterBufferRing creates a group of count buffers (a power of two, at most 32768) of size bytes
// each. An existing group with this number fails with EEXIST. Linux 5.19.
func (r *Ring) RegisterBufferRing(group uint16, count, size int) (*BufferRing, error) {
	if r.closed {
		return nil, ErrClosed
	}
	if count <= 0 || count > maxBufferEntries || count&(count-1) != 0 || size <= 0 ||
		size > math.MaxInt32/count {
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

// Buffer returns the data of a completion and the number of its buffer; false if the completion has
// no buffer. The program owns the buffer until [BufferRing.Return]. The data may be empty: some
// kernels attach a buffer to the end of a stream.
func (b *BufferRing) Buffer(c Completion) (data []byte, id uint16, ok bool) {
	if c.Flags&FlagBuffer == 0 || b.memory == nil {
		return nil, 0, false
	}
	id = uint16(c.Flags >> bufferShift)
	whole := b.buffers[int(id)*b.size : (int(id)+1)*b.size : (int(id)+1)*b.size]
	return whole[:min(max(int(c.Result), 0), b.size)], id, true
}

// Return gives a buffer back to the kernel, which may then write to it. Return each buffer once.
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

// publish makes the returned buffers visible to the kernel. The tail has 16 bits, and Go has no
// atomic store of that width; so this stores the adjacent buffer number with it, which only the
// program writes.
func (b *BufferRing) publish() {
	first := &b.entries[0]
	word := [2]uint16{first.id, b.tail}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&first.id)), *(*uint32)(unsafe.Pointer(&word)))
}

// Close removes the group and frees its memory: slices from [BufferRing.Buffer] become invalid. It
// fails with EBUSY if requests in flight use the group. Closing the ring closes its groups; Close
// then returns [ErrClosed].
func (b *BufferRing) Close() error {
	if b.memory == nil || b.ring.closed {
		return ErrClosed // A ring closed with requests in flight keeps the memory.
	}
	for _, s := range b.ring.slots {
		if s.request != nil && s.request.sqe.flags&sqeBufferSelect != 0 &&
			s.request.sqe.bufIndex == b.group {
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
