//go:build linux

// Operations on open files.

package ring

import (
	"math"
	"syscall"
	"unsafe"
)

// CurrentPosition as an offset means the file's current position, which the transfer advances.
// Pipes, sockets and terminals require it.
const CurrentPosition int64 = -1

// Read is pread(2), or read(2) with [CurrentPosition]. The result is the number of bytes read, 0 at
// the end of the file. One request reads at most 2 GiB less one page.
func (q *Request) Read(fd int, p []byte, off int64) *Request {
	q.prepare(OpRead, fd).off = uint64(off)
	q.transfer(p)
	return q
}

// Write is pwrite(2), or write(2) with [CurrentPosition]. The result is the number of bytes
// written, which may be less than len(p). One request writes at most 2 GiB less one page.
func (q *Request) Write(fd int, p []byte, off int64) *Request {
	q.prepare(OpWrite, fd).off = uint64(off)
	q.transfer(p)
	return q
}

// RWFlags sets the flags of preadv2(2) or pwritev2(2) for a read or write of any kind: RWF_NOWAIT
// (0x8), RWF_DSYNC (0x2) and so on. An unsupported flag fails with EOPNOTSUPP or EINVAL.
func (q *Request) RWFlags(rwf uint32) *Request {
	q.modify(0).sqe.opFlags = rwf
	return q
}

// Readv is preadv(2), or readv(2) with [CurrentPosition]: it fills one buffer after the other. More
// than 1024 buffers fail with EINVAL. It copies the slice of buffers, not the buffers.
func (q *Request) Readv(fd int, buffers [][]byte, off int64) *Request {
	q.prepare(OpReadv, fd).off = uint64(off)
	q.vector(buffers)
	return q
}

// Writev is pwritev(2), or writev(2) with [CurrentPosition]: it writes one buffer after the other.
// More than 1024 buffers fail with EINVAL. It copies the slice of buffers, not the buffers.
func (q *Request) Writev(fd int, buffers [][]byte, off int64) *Request {
	q.prepare(OpWritev, fd).off = uint64(off)
	q.vector(buffers)
	return q
}

func (q *Request) vector(buffers [][]byte) {
	s := q.extras()
	s.fill(buffers)
	q.sqe.addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.vectors))))
	q.sqe.len = uint32(len(s.vectors))
}

// fill copies the slice of buffers: the caller may change its own.
func (s *extra) fill(buffers [][]byte) {
	s.buffers = append(s.buffers[:0], buffers...)
	s.vectors = s.vectors[:0]
	for _, b := range buffers {
		vector := syscall.Iovec{Base: unsafe.SliceData(b)}
		vector.SetLen(len(b))
		s.vectors = append(s.vectors, vector)
	}
}

// ReadFixed reads into p, which must be part of the registered buffer with this index
// ([Ring.RegisterBuffers]); otherwise the result is EFAULT.
func (q *Request) ReadFixed(fd int, p []byte, off int64, index int) *Request {
	q.fixed(OpReadFixed, fd, p, off, index)
	return q
}

// WriteFixed writes p, which must be part of the registered buffer with this index
// ([Ring.RegisterBuffers]); otherwise the result is EFAULT.
func (q *Request) WriteFixed(fd int, p []byte, off int64, index int) *Request {
	q.fixed(OpWriteFixed, fd, p, off, index)
	return q
}

func (q *Request) fixed(op Opcode, fd int, p []byte, off int64, index int) {
	e := q.prepare(op, fd)
	e.off = uint64(off)
	e.bufIndex = uint16(index)
	q.invalid = index < 0 || index > math.MaxUint16
	q.transfer(p)
}

// ReadSelect is [Request.Read] of at most n bytes into a buffer that the kernel selects from a
// group ([Ring.RegisterBufferRing]); 0 means the size of the buffer. [BufferRing.Buffer] returns
// the buffer.
func (q *Request) ReadSelect(fd int, group uint16, n int, off int64) *Request {
	e := q.prepare(OpRead, fd)
	e.off, e.len, e.bufIndex = uint64(off), length(n), group
	e.flags = sqeBufferSelect
	q.invalid = n < 0
	return q
}

// ReadMultishot reads a pipe, a terminal or the like repeatedly. It completes whenever data has
// arrived, with a buffer of a group, until the end of the file (0), an error, or until the group
// has no buffers (ENOBUFS). A regular file fails with EBADFD. Linux 6.7.
func (q *Request) ReadMultishot(fd int, group uint16) *Request {
	e := q.prepare(OpReadMultishot, fd)
	e.off, e.bufIndex = math.MaxUint64, group
	e.flags = sqeBufferSelect
	return q
}

// Fsync is fsync(2).
func (q *Request) Fsync(fd int) *Request {
	q.prepare(OpFsync, fd)
	return q
}

// Fdatasync is fdatasync(2).
func (q *Request) Fdatasync(fd int) *Request {
	q.prepare(OpFsync, fd).opFlags = fsyncDatasync
	return q
}

// SyncFileRange is sync_file_range(2). The kernel's interface has 32 bits for the length; 0 means
// to the end of the file.
func (q *Request) SyncFileRange(fd int, off int64, n uint32, flags uint32) *Request {
	e := q.prepare(OpSyncFileRange, fd)
	e.off, e.len, e.opFlags = uint64(off), n, flags
	return q
}

// Fallocate is fallocate(2). Mode 0 allocates blocks and extends the file to off+n; other modes
// punch holes, zero or collapse ranges.
func (q *Request) Fallocate(fd int, mode uint32, off, n int64) *Request {
	e := q.prepare(OpFallocate, fd)
	e.off, e.addr, e.len = uint64(off), uint64(n), mode
	return q
}

// Ftruncate is ftruncate(2). Linux 6.9.
func (q *Request) Ftruncate(fd int, size int64) *Request {
	q.prepare(OpFtruncate, fd).off = uint64(size)
	return q
}

// Fadvise is posix_fadvise(2). A length of 0 means to the end of the file. A length of 4 GiB or
// more requires Linux 6.10; older kernels return EINVAL.
func (q *Request) Fadvise(fd int, off, n int64, advice int) *Request {
	e := q.prepare(OpFadvise, fd)
	e.off, e.opFlags = uint64(off), uint32(advice)
	if uint64(n) <= math.MaxUint32 {
		e.len = uint32(n)
	} else {
		e.addr = uint64(n)
	}
	return q
}

// Madvise is madvise(2) on whole pages. Use it only on memory that the program mapped itself
// ([syscall.Mmap]): advice such as MADV_DONTNEED destroys the contents of pages, and pages of the
// Go heap hold other objects, too. A length of 4 GiB or more requires Linux 6.10; older kernels
// return EINVAL.
func (q *Request) Madvise(p []byte, advice int) *Request {
	e := q.prepare(OpMadvise, -1)
	q.buf = p
	e.addr, e.opFlags = address(p), uint32(advice)
	if uint64(len(p)) <= math.MaxUint32 {
		e.len = uint32(len(p))
	} else {
		e.off = uint64(len(p))
	}
	return q
}

// Close is close(2). The program must own the descriptor: an [os.File] would close its own a second
// time.
func (q *Request) Close(fd int) *Request {
	q.prepare(OpClose, fd)
	return q
}

// CloseDirect removes a file from the table of registered files, which closes it unless it is open
// elsewhere. An empty entry fails with EBADF. Linux 5.15.
func (q *Request) CloseDirect(index int) *Request {
	q.prepare(OpClose, 0)
	q.sqe.fileIndex = q.fileIndex(index)
	return q
}

// FixedFDInstall creates a descriptor (the result, close-on-exec) for a registered file, which
// stays registered. Linux 6.8.
func (q *Request) FixedFDInstall(index int) *Request {
	q.prepare(OpFixedFDInstall, index).flags = sqeFixedFile
	return q
}

// Splice is splice(2): it moves at most n bytes between two descriptors without copying them
// through the program. One must be a pipe, whose offset is [CurrentPosition]. The result is the
// number of bytes moved, 0 at the end. Linux 5.7.
func (q *Request) Splice(from int, fromOff int64, to int, toOff int64, n int,
	flags uint32) *Request {
	e := q.prepare(OpSplice, to)
	e.addr, e.off = uint64(fromOff), uint64(toOff)
	e.len, e.opFlags, e.fileIndex = length(n), flags, uint32(from)
	q.invalid = n < 0
	return q
}

// Tee is tee(2): it copies at most n bytes from one pipe to another and leaves them in the first.
// Linux 5.8.
func (q *Request) Tee(from, to int, n int, flags uint32) *Request {
	e := q.prepare(OpTee, to)
	e.len, e.opFlags, e.fileIndex = length(n), flags, uint32(from)
	q.invalid = n < 0
	return q
}
