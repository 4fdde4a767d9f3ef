//go:build linux

// What is registered with a ring once it is there: files, buffers, an eventfd, a cap on kernel threads.

package ring

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// fixed is a buffer that the kernel holds under an index.
type fixed struct {
	p      []byte
	pinner runtime.Pinner
}

func (f *fixed) pin() {
	if len(f.p) > 0 {
		f.pinner.Pin(unsafe.SliceData(f.p))
	}
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
			return 0, refused(errno)
		}
	}
}

func refused(errno syscall.Errno) error { return os.NewSyscallError("io_uring_register", errno) }

func descriptors(fds []int) []int32 {
	table := make([]int32, len(fds))
	for i, fd := range fds {
		table[i] = int32(fd)
	}
	return table
}

// RegisterFiles makes a table of files, which requests name by their index ([Request.FixedFile]): the kernel need not look a
// descriptor up for each of them. -1 leaves a place empty. The kernel holds the files until they are replaced, or until
// UnregisterFiles or Close, even if their descriptors are closed. A second table is EBUSY. Files are not counted against
// RLIMIT_NOFILE twice, but the table may have no more places than that limit.
func (r *Ring) RegisterFiles(fds []int) error {
	table := descriptors(fds)
	_, err := r.register(registerFiles, unsafe.Pointer(unsafe.SliceData(table)), len(table))
	return err
}

// RegisterFilesSparse makes a table of n empty places, for [Ring.UpdateFiles] and [Request.Direct]. Kernel 5.19.
func (r *Ring) RegisterFilesSparse(n int) error {
	return r.sparse(registerFiles2, n)
}

func (r *Ring) sparse(what uintptr, n int) error {
	if n <= 0 {
		return refused(syscall.EINVAL)
	}
	table := rsrcRegister{nr: uint32(n), flags: registerSparse}
	_, err := r.register(what, unsafe.Pointer(&table), int(unsafe.Sizeof(table)))
	return err
}

// RegisterFileAllocRange says from which n places, from first on, the kernel may choose one for [AnyIndex]; the others are the
// program's. Without it the kernel chooses from all. Kernel 6.0.
func (r *Ring) RegisterFileAllocRange(first, n int) error {
	if first < 0 || n < 0 {
		return refused(syscall.EINVAL)
	}
	span := indexRange{off: uint32(first), len: uint32(n)}
	_, err := r.register(registerFileAllocRange, unsafe.Pointer(&span), 0)
	return err
}

// UpdateFiles replaces a part of the table, from the index first on; -1 empties a place. Requests in flight keep the file that
// they began with. If one of the descriptors is refused (EBADF), those before it have been replaced.
func (r *Ring) UpdateFiles(first int, fds []int) error {
	if first < 0 {
		return refused(syscall.EINVAL)
	}
	table := descriptors(fds)
	var pinner runtime.Pinner
	defer pinner.Unpin()
	if len(table) > 0 {
		pinner.Pin(unsafe.SliceData(table))
	}
	update := filesUpdate{offset: uint32(first), fds: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(table))))}
	n, err := r.register(registerFilesUpdate, unsafe.Pointer(&update), len(table))
	if err == nil && 0 < n && n < len(table) {
		return r.UpdateFiles(first+n, fds[n:]) // The kernel stopped at one that it refuses, and now says why.
	}
	return err
}

// UnregisterFiles drops the table.
func (r *Ring) UnregisterFiles() error {
	_, err := r.register(unregisterFiles, nil, 0)
	return err
}

// RegisterBuffers makes a table of buffers, which [Request.ReadFixed] and [Request.WriteFixed] name by their index: the kernel
// need not look their pages up for each transfer. nil leaves a place empty (kernel 5.13). The buffers stay pinned until they
// are replaced, or until UnregisterBuffers or Close, and their memory counts against RLIMIT_MEMLOCK (ENOMEM). A second table
// is EBUSY.
func (r *Ring) RegisterBuffers(buffers [][]byte) error {
	if r.buffers != nil {
		return refused(syscall.EBUSY)
	}
	vectors, pinned, pinner := describe(buffers)
	defer pinner.Unpin()
	_, err := r.register(registerBuffers, unsafe.Pointer(unsafe.SliceData(vectors)), len(vectors))
	if err != nil {
		for i := range pinned {
			pinned[i].pinner.Unpin()
		}
		return err
	}
	r.buffers = pinned
	return nil
}

// describe pins buffers, and their description for as long as the pinner holds it.
func describe(buffers [][]byte) (vectors []syscall.Iovec, pinned []fixed, pinner *runtime.Pinner) {
	vectors, pinned, pinner = make([]syscall.Iovec, len(buffers)), make([]fixed, len(buffers)), new(runtime.Pinner)
	for i, b := range buffers {
		if len(b) > 0 {
			vectors[i].Base = unsafe.SliceData(b)
			vectors[i].SetLen(len(b))
		}
		pinned[i].p = b
		pinned[i].pin()
	}
	if len(vectors) > 0 {
		pinner.Pin(unsafe.SliceData(vectors))
	}
	return vectors, pinned, pinner
}

// RegisterBuffersSparse makes a table of n empty places, for [Ring.UpdateBuffers]. Kernel 5.19.
func (r *Ring) RegisterBuffersSparse(n int) error {
	if r.buffers != nil {
		return refused(syscall.EBUSY)
	}
	if err := r.sparse(registerBuffers2, n); err != nil {
		return err
	}
	r.buffers = make([]fixed, n)
	return nil
}

// UpdateBuffers replaces a part of the table, from the index first on; nil empties a place. Requests in flight must not use
// these places: EBUSY. If one of the buffers is refused (ENOMEM), those before it have been replaced. Kernel 5.13.
func (r *Ring) UpdateBuffers(first int, buffers [][]byte) error {
	if first < 0 || first > len(r.buffers) || len(buffers) > len(r.buffers)-first || len(buffers) == 0 {
		return refused(syscall.EINVAL)
	}
	if r.usesBuffers(first, first+len(buffers)) {
		return refused(syscall.EBUSY)
	}
	vectors, pinned, pinner := describe(buffers)
	defer pinner.Unpin()
	update := rsrcUpdate{offset: uint32(first), nr: uint32(len(vectors)), data: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(vectors))))}
	n, err := r.register(registerBuffersUpdate, unsafe.Pointer(&update), int(unsafe.Sizeof(update)))
	for i := range pinned {
		if i >= n {
			pinned[i].pinner.Unpin() // The kernel stopped before it.
			continue
		}
		old := &r.buffers[first+i]
		old.pinner.Unpin()
		old.p = buffers[i]
		old.pin()
		pinned[i].pinner.Unpin()
	}
	if err == nil && 0 < n && n < len(buffers) {
		return r.UpdateBuffers(first+n, buffers[n:]) // The kernel stopped at one that it refuses, and now says why.
	}
	return err
}

// usesBuffers tells whether a request in flight has one of these registered buffers.
func (r *Ring) usesBuffers(from, to int) bool {
	for _, s := range r.slots {
		if s.request == nil {
			continue
		}
		e := &s.request.sqe
		if (e.opcode == OpReadFixed || e.opcode == OpWriteFixed) && from <= int(e.bufIndex) && int(e.bufIndex) < to {
			return true
		}
	}
	return false
}

// UnregisterBuffers drops the table. Requests in flight must not use it: EBUSY.
func (r *Ring) UnregisterBuffers() error {
	if r.usesBuffers(0, len(r.buffers)) {
		return refused(syscall.EBUSY)
	}
	if _, err := r.register(unregisterBuffers, nil, 0); err != nil {
		return err
	}
	r.unpinBuffers()
	return nil
}

func (r *Ring) unpinBuffers() {
	for i := range r.buffers {
		r.buffers[i].pinner.Unpin()
	}
	r.buffers = nil
}

// RegisterEventfd has an eventfd count up when completions are posted, for programs with an event loop of their own. It is a
// hint: one tick may stand for many completions, and there may be a tick for none.
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

// IOWQMaxWorkers caps the kernel threads (io-wq) that carry out what blocks: those for regular files and block devices, and
// those for everything else. 0 leaves a cap as it is. It returns what the caps were before. Kernel 5.15.
func (r *Ring) IOWQMaxWorkers(files, rest uint32) (oldFiles, oldRest uint32, err error) {
	workers := [2]uint32{files, rest}
	if _, err = r.register(registerIOWQMaxWorkers, unsafe.Pointer(&workers), 2); err != nil {
		return 0, 0, err
	}
	return workers[0], workers[1], nil
}

// Probe is the table of operations that a kernel knows.
type Probe struct {
	supported [probeOps]bool
}

// Supports reports whether the kernel knows an operation. It may still refuse a flag of it that is newer.
func (p *Probe) Supports(op Opcode) bool { return p.supported[op] }

// Probe asks the kernel for its table. Kernel 5.6.
func (r *Ring) Probe() (*Probe, error) {
	table := new(probeTable)
	if _, err := r.register(registerProbe, unsafe.Pointer(table), probeOps); err != nil {
		return nil, err
	}
	probe := new(Probe)
	for i := range table.ops {
		probe.supported[table.entries[i].op] = table.entries[i].flags&probeSupported != 0
	}
	return probe, nil
}
