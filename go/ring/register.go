//go:build linux

// What is registered with a ring once it is there.

package ring

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// registered is a table of buffers that the kernel holds.
type registered struct {
	buffers [][]byte
	vectors []syscall.Iovec
	pinner  runtime.Pinner
}

func (r *Ring) register(what uintptr, arg unsafe.Pointer, n int) (int, error) {
	if r.closed {
		return 0, ErrClosed
	}
	for {
		got, _, errno := syscall.Syscall6(sysRegister, uintptr(r.fd), what, uintptr(arg), uintptr(n), 0, 0)
		switch errno {
		case 0:
			return int(got), nil
		case syscall.EINTR:
		default:
			return 0, os.NewSyscallError("io_uring_register", errno)
		}
	}
}

func descriptors(fds []int) []int32 {
	table := make([]int32, len(fds))
	for i, fd := range fds {
		table[i] = int32(fd)
	}
	return table
}

// RegisterFiles makes a table of files for [Request.FixedFile]; -1 leaves a place empty. The kernel holds the files until
// UnregisterFiles or Close, even if their descriptors are closed.
func (r *Ring) RegisterFiles(fds []int) error {
	table := descriptors(fds)
	_, err := r.register(registerFiles, unsafe.Pointer(unsafe.SliceData(table)), len(table))
	return err
}

// UpdateFiles replaces a part of the table from first on.
func (r *Ring) UpdateFiles(first int, fds []int) error {
	table := descriptors(fds)
	var pinner runtime.Pinner
	defer pinner.Unpin()
	if len(table) > 0 {
		pinner.Pin(unsafe.SliceData(table))
	}
	update := struct {
		offset, _ uint32
		fds       uint64
	}{offset: uint32(first), fds: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(table))))}
	n, err := r.register(registerFilesUpdate, unsafe.Pointer(&update), len(table))
	if err == nil && n < len(table) {
		return os.NewSyscallError("io_uring_register", syscall.EBADF)
	}
	return err
}

// UnregisterFiles drops the table.
func (r *Ring) UnregisterFiles() error {
	_, err := r.register(unregisterFiles, nil, 0)
	return err
}

// RegisterBuffers makes a table of buffers for [Request.ReadFixed] and [Request.WriteFixed]. They stay pinned until
// UnregisterBuffers or Close, and count against RLIMIT_MEMLOCK.
func (r *Ring) RegisterBuffers(buffers [][]byte) error {
	if r.buffers != nil {
		return os.NewSyscallError("io_uring_register", syscall.EBUSY)
	}
	table := &registered{buffers: append([][]byte(nil), buffers...)}
	for _, b := range buffers {
		vector := syscall.Iovec{Base: unsafe.SliceData(b)}
		vector.SetLen(len(b))
		table.vectors = append(table.vectors, vector)
		if len(b) > 0 {
			table.pinner.Pin(unsafe.SliceData(b))
		}
	}
	_, err := r.register(registerBuffers, unsafe.Pointer(unsafe.SliceData(table.vectors)), len(table.vectors))
	if err != nil {
		table.pinner.Unpin()
		return err
	}
	r.buffers = table
	return nil
}

// UnregisterBuffers drops the table. Requests with its buffers must not be in flight: EBUSY.
func (r *Ring) UnregisterBuffers() error {
	for _, s := range r.slots {
		if s.request != nil && (s.request.sqe.opcode == OpReadFixed || s.request.sqe.opcode == OpWriteFixed) {
			return os.NewSyscallError("io_uring_register", syscall.EBUSY)
		}
	}
	if _, err := r.register(unregisterBuffers, nil, 0); err != nil {
		return err
	}
	r.buffers.pinner.Unpin()
	r.buffers = nil
	return nil
}

// RegisterEventfd has an eventfd told of completions. It is a hint: one tick may stand for many of them.
func (r *Ring) RegisterEventfd(fd int) error {
	table := int32(fd)
	_, err := r.register(registerEventfd, unsafe.Pointer(&table), 1)
	return err
}

// UnregisterEventfd ends that.
func (r *Ring) UnregisterEventfd() error {
	_, err := r.register(unregisterEventfd, nil, 0)
	return err
}

// IOWQMaxWorkers caps the kernel threads that do what cannot be done without blocking: for files, and for everything else.
// 0 leaves a cap as it is; the answer is what they were. Kernel 5.15.
func (r *Ring) IOWQMaxWorkers(files, rest uint32) (oldFiles, oldRest uint32, err error) {
	workers := [2]uint32{files, rest}
	_, err = r.register(registerIOWQMaxWorkers, unsafe.Pointer(&workers), 2)
	return workers[0], workers[1], err
}

// Probe is the table of operations that the kernel knows.
type Probe struct {
	supported [probeOps]bool
}

// Supports tells whether the kernel knows an operation.
func (p *Probe) Supports(op Op) bool { return p.supported[op] }

// Probe asks for the table. Kernel 5.6.
func (r *Ring) Probe() (*Probe, error) {
	var table struct {
		last, ops uint8
		_         uint16
		_         [3]uint32
		entries   [probeOps]struct {
			op, _ uint8
			flags uint16
			_     uint32
		}
	}
	if _, err := r.register(registerProbe, unsafe.Pointer(&table), probeOps); err != nil {
		return nil, err
	}
	probe := new(Probe)
	for i := range table.ops {
		probe.supported[table.entries[i].op] = table.entries[i].flags&probeSupported != 0
	}
	return probe, nil
}

// BufferRing is a group of buffers that the kernel chooses from, when data is there ([Request.RecvSelect]). Its memory is
// outside Go's heap.
type BufferRing struct {
	ring    *Ring
	group   uint16
	size    int
	tail    uint16
	entries []bufferEntry
	memory  []byte // The entries, then the buffers.
	buffers []byte
}

// bufferEntry is struct io_uring_buf. The reserved field of the first one is the tail of the ring.
type bufferEntry struct {
	addr    uint64
	len     uint32
	id, res uint16
}

// RegisterBufferRing makes a group of count buffers (a power of two, at most 32768) of size bytes. Kernel 5.19.
func (r *Ring) RegisterBufferRing(group uint16, count, size int) (*BufferRing, error) {
	if count <= 0 || count > 32768 || count&(count-1) != 0 || size <= 0 {
		return nil, syscall.EINVAL
	}
	table := (count*int(unsafe.Sizeof(bufferEntry{})) + 4095) &^ 4095
	memory, err := syscall.Mmap(-1, 0, table+count*size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	b := &BufferRing{ring: r, group: group, size: size, memory: memory, buffers: memory[table:]}
	b.entries = unsafe.Slice((*bufferEntry)(unsafe.Pointer(&memory[0])), count)
	registration := struct {
		addr         uint64
		entries      uint32
		group, flags uint16
		_            [3]uint64
	}{addr: address(memory), entries: uint32(count), group: group}
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

// Buffer is what a completion was received into, and its number for [BufferRing.Return]; false if it has no buffer.
func (b *BufferRing) Buffer(c Completion) ([]byte, uint16, bool) {
	if c.Flags&FlagBuffer == 0 {
		return nil, 0, false
	}
	id := uint16(c.Flags >> bufferShift)
	whole := b.buffers[int(id)*b.size : (int(id)+1)*b.size : (int(id)+1)*b.size]
	return whole[:min(max(int(c.Result), 0), b.size)], id, true
}

// Return gives a buffer back to the kernel. Do not touch it afterwards.
func (b *BufferRing) Return(id uint16) {
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

// Close drops the group. Requests with it must not be in flight.
func (b *BufferRing) Close() error {
	registration := struct {
		addr         uint64
		entries      uint32
		group, flags uint16
		_            [3]uint64
	}{group: b.group}
	if b.memory == nil {
		return ErrClosed
	}
	_, err := b.ring.register(unregisterPbufRing, unsafe.Pointer(&registration), 1)
	if err != nil && !errors.Is(err, ErrClosed) {
		return err
	}
	return b.unmap()
}

func (b *BufferRing) unmap() error {
	for i, g := range b.ring.groups {
		if g == b {
			b.ring.groups = append(b.ring.groups[:i], b.ring.groups[i+1:]...)
			break
		}
	}
	memory := b.memory
	b.memory, b.buffers, b.entries = nil, nil, nil
	return os.NewSyscallError("munmap", syscall.Munmap(memory))
}
