//go:build linux

// Registration: files, buffers, an eventfd, the limit on io-wq workers; and the probe. Buffer rings
// are in bufring.go.

package ring

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// registeredBuffer is an entry of the table of buffers.
type registeredBuffer struct {
	p      []byte
	pinner runtime.Pinner
}

func (f *registeredBuffer) pin() {
	if len(f.p) > 0 {
		f.pinner.Pin(unsafe.SliceData(f.p))
	}
}

func (r *Ring) register(what uintptr, arg unsafe.Pointer, n int) (int, error) {
	if r.closed {
		return 0, ErrClosed
	}
	for {
		got, _, errno := syscall.Syscall6(sysRegister, uintptr(r.fd), what, uintptr(arg),
			uintptr(n), 0, 0)
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

// RegisterFiles creates the table of files that [Request.FixedFile] refers to, which saves the
// kernel the lookup of a descriptor per request. -1 leaves an entry empty. The kernel keeps the
// files open until they are replaced, or until UnregisterFiles or Close, even if their descriptors
// are closed. A second table fails with EBUSY. The table may have at most as many entries as
// RLIMIT_NOFILE.
func (r *Ring) RegisterFiles(fds []int) error {
	table := descriptors(fds)
	_, err := r.register(registerFiles, unsafe.Pointer(unsafe.SliceData(table)), len(table))
	return err
}

// RegisterFilesSparse creates a table of n empty entries, for [Ring.UpdateFiles] and
// [Request.Direct]. Linux 5.19.
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

// RegisterFileAllocRange limits the entries that the kernel may choose for [AnyIndex] to n entries
// from first on. The default is the whole table. Linux 6.0.
func (r *Ring) RegisterFileAllocRange(first, n int) error {
	if first < 0 || n < 0 {
		return refused(syscall.EINVAL)
	}
	span := indexRange{off: uint32(first), len: uint32(n)}
	_, err := r.register(registerFileAllocRange, unsafe.Pointer(&span), 0)
	return err
}

// UpdateFiles replaces entries of the table, from the index first on; -1 empties an entry. Requests
// in flight keep the file that they started with. If the kernel rejects a descriptor (EBADF), the
// entries before it have been replaced.
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
	update := filesUpdate{offset: uint32(first),
		fds: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(table))))}
	n, err := r.register(registerFilesUpdate, unsafe.Pointer(&update), len(table))
	if err == nil && 0 < n && n < len(table) {
		return r.UpdateFiles(first+n, fds[n:]) // The error of the entry where the kernel stopped.
	}
	return err
}

// UnregisterFiles removes the table.
func (r *Ring) UnregisterFiles() error {
	_, err := r.register(unregisterFiles, nil, 0)
	return err
}

// RegisterBuffers creates the table of buffers that [Request.ReadFixed] and [Request.WriteFixed]
// refer to, which saves the kernel the lookup of their pages per transfer. nil leaves an entry
// empty (Linux 5.13). The buffers stay pinned until they are replaced, or until UnregisterBuffers
// or Close. Their memory counts against RLIMIT_MEMLOCK (ENOMEM). A second table fails with EBUSY.
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

// describe pins the buffers and builds their iovecs. The caller unpins the iovecs with the pinner.
func describe(buffers [][]byte) (vectors []syscall.Iovec, pinned []registeredBuffer,
	pinner *runtime.Pinner) {
	vectors, pinned, pinner = make([]syscall.Iovec, len(buffers)), make([]registeredBuffer,
		len(buffers)), new(runtime.Pinner)
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

// RegisterBuffersSparse creates a table of n empty entries, for [Ring.UpdateBuffers]. Linux 5.19.
func (r *Ring) RegisterBuffersSparse(n int) error {
	if r.buffers != nil {
		return refused(syscall.EBUSY)
	}
	if err := r.sparse(registerBuffers2, n); err != nil {
		return err
	}
	r.buffers = make([]registeredBuffer, n)
	return nil
}

// UpdateBuffers replaces entries of the table, from the index first on; nil empties an entry. It
// fails with EBUSY if requests in flight use them. If the kernel rejects a buffer (ENOMEM), the
// entries before it have been replaced. Linux 5.13.
func (r *Ring) UpdateBuffers(first int, buffers [][]byte) error {
	if first < 0 || first > len(r.buffers) || len(buffers) > len(r.buffers)-first ||
		len(buffers) == 0 {
		return refused(syscall.EINVAL)
	}
	if r.usesBuffers(first, first+len(buffers)) {
		return refused(syscall.EBUSY)
	}
	vectors, pinned, pinner := describe(buffers)
	defer pinner.Unpin()
	update := rsrcUpdate{offset: uint32(first), nr: uint32(len(vectors)),
		data: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(vectors))))}
	n, err := r.register(registerBuffersUpdate, unsafe.Pointer(&update), int(unsafe.Sizeof(update)))
	for i := range pinned {
		if i >= n {
			pinned[i].pinner.Unpin() // Not registered.
			continue
		}
		old := &r.buffers[first+i]
		old.pinner.Unpin()
		old.p = buffers[i]
		old.pin()
		pinned[i].pinner.Unpin()
	}
	if err == nil && 0 < n && n < len(buffers) {
		// The error of the entry where the kernel stopped.
		return r.UpdateBuffers(first+n, buffers[n:])
	}
	return err
}

// usesBuffers reports whether a request in flight uses one of these entries.
func (r *Ring) usesBuffers(from, to int) bool {
	for _, s := range r.slots {
		if s.request == nil {
			continue
		}
		e := &s.request.sqe
		if (e.opcode == OpReadFixed || e.opcode == OpWriteFixed) && from <= int(e.bufIndex) &&
			int(e.bufIndex) < to {
			return true
		}
	}
	return false
}

// UnregisterBuffers removes the table. It fails with EBUSY if requests in flight use it.
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

// RegisterEventfd makes the kernel increment an eventfd when it posts completions, for programs
// with an event loop of their own. One increment may stand for several completions, and there may
// be increments without a completion.
func (r *Ring) RegisterEventfd(fd int) error {
	table := int32(fd)
	_, err := r.register(registerEventfd, unsafe.Pointer(&table), 1)
	return err
}

// UnregisterEventfd removes the eventfd.
func (r *Ring) UnregisterEventfd() error {
	_, err := r.register(unregisterEventfd, nil, 0)
	return err
}

// IOWQMaxWorkers limits the io-wq workers, the kernel threads that execute blocking operations:
// those for regular files and block devices, and those for everything else. A transfer with
// [Request.Async] is of the second kind, whatever its file. Each thread that submits has as many
// workers of its own. 0 leaves a limit unchanged. It returns the previous limits. Linux 5.15.
func (r *Ring) IOWQMaxWorkers(files, rest uint32) (oldFiles, oldRest uint32, err error) {
	workers := [2]uint32{files, rest}
	if _, err = r.register(registerIOWQMaxWorkers, unsafe.Pointer(&workers), 2); err != nil {
		return 0, 0, err
	}
	return workers[0], workers[1], nil
}

// Probe is the set of operations that a kernel supports.
type Probe struct {
	supported [probeOps]bool
}

// Supports reports whether the kernel supports an operation. It may still reject newer flags of it.
func (p *Probe) Supports(op Opcode) bool { return p.supported[op] }

// Probe asks the kernel which operations it supports. Linux 5.6.
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
