//go:build linux

// Operations on open files.

package ring

import (
	"syscall"
	"unsafe"
)

// AtCursor as an offset means the file's own position, which moves.
const AtCursor int64 = -1

// Read is pread(2); with [AtCursor], read(2). At most 2 GiB less a page at once.
func (q *Request) Read(fd int, p []byte, off int64) *Request {
	q.prepare(OpRead, fd).off = uint64(off)
	q.transfer(p)
	return q
}

// Write is pwrite(2); with [AtCursor], write(2). At most 2 GiB less a page at once.
func (q *Request) Write(fd int, p []byte, off int64) *Request {
	q.prepare(OpWrite, fd).off = uint64(off)
	q.transfer(p)
	return q
}

// WithFlags sets flags as of preadv2(2) for a read or a write: RWF_NOWAIT, RWF_DSYNC and so on.
func (q *Request) WithFlags(rwf uint32) *Request {
	q.modify(0).sqe.opFlags = rwf
	return q
}

// Readv is preadv(2).
func (q *Request) Readv(fd int, buffers [][]byte, off int64) *Request {
	q.prepare(OpReadv, fd).off = uint64(off)
	q.vector(buffers)
	return q
}

// Writev is pwritev(2).
func (q *Request) Writev(fd int, buffers [][]byte, off int64) *Request {
	q.prepare(OpWritev, fd).off = uint64(off)
	q.vector(buffers)
	return q
}

func (q *Request) vector(buffers [][]byte) {
	s := q.aside()
	s.fill(buffers)
	q.sqe.addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.vectors))))
	q.sqe.len = uint32(len(s.vectors))
}

// fill copies the list of buffers: the caller may change its own.
func (s *side) fill(buffers [][]byte) {
	s.buffers = append(s.buffers[:0], buffers...)
	s.vectors = s.vectors[:0]
	for _, b := range buffers {
		vector := syscall.Iovec{Base: unsafe.SliceData(b)}
		vector.SetLen(len(b))
		s.vectors = append(s.vectors, vector)
	}
}

// ReadFixed reads into p, a part of the registered buffer with this index.
func (q *Request) ReadFixed(fd int, p []byte, off int64, index int) *Request {
	q.fixed(OpReadFixed, fd, p, off, index)
	return q
}

// WriteFixed writes p, a part of the registered buffer with this index.
func (q *Request) WriteFixed(fd int, p []byte, off int64, index int) *Request {
	q.fixed(OpWriteFixed, fd, p, off, index)
	return q
}

func (q *Request) fixed(op Op, fd int, p []byte, off int64, index int) {
	e := q.prepare(op, fd)
	e.off = uint64(off)
	e.bufIndex = uint16(index)
	q.transfer(p)
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

// SyncRange is sync_file_range(2). A length of 0 is up to the end.
func (q *Request) SyncRange(fd int, off int64, n uint32, flags uint32) *Request {
	e := q.prepare(OpSyncFileRange, fd)
	e.off, e.len, e.opFlags = uint64(off), n, flags
	return q
}

// Fallocate is fallocate(2).
func (q *Request) Fallocate(fd int, mode uint32, off, n int64) *Request {
	e := q.prepare(OpFallocate, fd)
	e.off, e.addr, e.len = uint64(off), uint64(n), mode
	return q
}

// Ftruncate is ftruncate(2). Kernel 6.9.
func (q *Request) Ftruncate(fd int, size int64) *Request {
	q.prepare(OpFtruncate, fd).off = uint64(size)
	return q
}

// Fadvise is posix_fadvise(2).
func (q *Request) Fadvise(fd int, off int64, n uint32, advice int) *Request {
	e := q.prepare(OpFadvise, fd)
	e.off, e.len, e.opFlags = uint64(off), n, uint32(advice)
	return q
}

// Close is close(2). The descriptor must be the program's own, and not of an os.File.
func (q *Request) Close(fd int) *Request {
	q.prepare(OpClose, fd)
	return q
}
