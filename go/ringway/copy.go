// Copies from and to files, by the kernel alone (sendfile, splice, copy_file_range) where possible.

package ringway

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"syscall"
)

// copyBuffer is the size of the buffer of a copy through the program.
const copyBuffer = 256 << 10

// readerOnly is a file without WriteTo, which would be called again. Package net finds its
// descriptor.
type readerOnly struct{ f *File }

func (r readerOnly) Read(p []byte) (int, error)            { return r.f.Read(p) }
func (r readerOnly) SyscallConn() (syscall.RawConn, error) { return r.f.SyscallConn() }

// writerOnly is a file without ReadFrom, which would be called again.
type writerOnly struct{ f *File }

func (w writerOnly) Write(p []byte) (int, error) { return w.f.Write(p) }

// ReadFrom copies from r as [os.File.ReadFrom] does: by the kernel alone if it can. It writes full
// buffers to a file that is open for direct I/O, however little r returns at once, so that only the
// total length must be aligned. If r fails before that, the error has both errors.
func (f *File) ReadFrom(r io.Reader) (n int64, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	if f.refs.closed() {
		return 0, f.fail("write", os.ErrClosed)
	}
	// The file is not held open, because r may take forever: each write finds out whether the file
	// is closed. Errors of r are returned as they are, so nothing is wrapped here.
	if f.direct || f.dropsPages() {
		return f.readInto(r)
	}
	limited, ok := r.(*io.LimitedReader) // io.CopyN makes one.
	if !ok {
		limited = &io.LimitedReader{R: r, N: math.MaxInt64}
	}
	under := limited.R
	from, isFile := under.(*File)
	if isFile && from != nil && from.kernelCopies() && !from.refs.closed() {
		under, isFile = from.file, false
	}
	switch _, hasDescriptor := under.(syscall.Conn); {
	case isFile || !hasDescriptor:
		return io.Copy(writerOnly{f}, r)
	case !isByteStream(under):
		// A message may be longer than the buffer of io.Copy, and of WriteTo of package os.
		buffer, err := f.engine.borrow(copyBuffer)
		if err != nil {
			return 0, f.fail("write", err)
		}
		defer buffer.release()
		return io.CopyBuffer(writerOnly{f}, struct{ io.Reader }{r}, buffer.memory)
	}
	// Package os has the kernel copy, if that can.
	pieces := &io.LimitedReader{R: under, N: limited.N}
	n, err = copyPieces(f.file, pieces, from, f)
	limited.N = pieces.N
	return n, err
}

// isByteStream reports whether r has a descriptor that the kernel may copy from in pieces of any
// length: a message of a datagram socket, or an event of inotify, has to be read as a whole. So has
// what was written to a pipe with O_DIRECT, which the end that reads does not show; package os has
// no kernel copy from pipes.
func isByteStream(r io.Reader) bool {
	switch r := r.(type) {
	case interface{ LocalAddr() net.Addr }: // Also what embeds a connection.
		address := r.LocalAddr()
		return address != nil && (address.Network() == "tcp" || address.Network() == "unix")
	case *os.File:
		info, err := r.Stat()
		return err == nil && info.Mode().IsRegular()
	}
	return false
}

// copyPiece is the most that the kernel copies before the next look whether a file was closed.
const copyPiece = 16 << 20

// copyPieces copies from r to w in pieces, as long as the Files of both sides are open. A side that
// is no File has nil.
func copyPieces(w io.ReaderFrom, r *io.LimitedReader, from, to *File) (n int64, err error) {
	for r.N > 0 {
		if from != nil && from.refs.closed() {
			return n, from.fail("read", os.ErrClosed)
		}
		if to != nil && to.refs.closed() {
			return n, to.fail("write", os.ErrClosed)
		}
		size := min(r.N, copyPiece)
		piece := &io.LimitedReader{R: r.R, N: size}
		m, err := w.ReadFrom(piece)
		if to != nil {
			to.noteChange()
		}
		n += m
		r.N -= size - piece.N
		if m < size || err != nil {
			return n, err
		}
	}
	return n, nil
}

// kernelCopies reports whether the kernel alone may copy from or to the file: not past the page
// cache, and not without leaving pages there.
func (f *File) kernelCopies() bool { return !f.direct && !f.dropsPages() }

// readInto copies from r in full buffers. Each read has room for as much, so that it does not cut a
// message.
func (f *File) readInto(r io.Reader) (n int64, err error) {
	buffer, err := f.engine.borrow(2 * copyBuffer)
	if err != nil {
		return 0, f.fail("write", err)
	}
	defer buffer.release()
	p := buffer.memory
	for filled := 0; err == nil || filled > 0; {
		for filled < copyBuffer && err == nil {
			var m int
			m, err = r.Read(p[filled : filled+copyBuffer])
			filled += m
		}
		full := min(filled, copyBuffer)
		m, failed := f.Write(p[:full])
		n += int64(m)
		if failed != nil {
			if err != nil && err != io.EOF {
				failed = errors.Join(err, failed) // It may be why the rest is no whole block.
			}
			return n, failed
		}
		filled = copy(p, p[full:filled])
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// WriteTo copies to w as [os.File.WriteTo] does: by the kernel alone if it can. A writer with a
// ReadFrom method (a connection, an http.ResponseWriter) receives a reader with the descriptor of
// the file, and may send it with sendfile(2), unless [File.SyscallConn] refuses that.
func (f *File) WriteTo(w io.Writer) (n int64, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	if f.refs.closed() {
		return 0, f.fail("read", os.ErrClosed)
	}
	// The file is not held open, because w may take forever: each read finds out whether the file
	// is closed.
	// A pipe or a socket may have messages, which a piece would cut.
	kernel := f.storage && f.kernelCopies()
	to, isFile := w.(*File)
	if kernel && isFile && to != nil && to.kernelCopies() && !to.refs.closed() {
		w, isFile = to.file, false
	}
	if _, hasDescriptor := w.(syscall.Conn); hasDescriptor && !isFile && kernel {
		if w, ok := w.(io.ReaderFrom); ok {
			return copyPieces(w, &io.LimitedReader{R: f.file, N: math.MaxInt64}, f, to)
		}
		return f.file.WriteTo(w)
	}
	buffer, err := f.engine.borrow(copyBuffer)
	if err != nil {
		return 0, f.fail("read", err)
	}
	defer buffer.release()
	if !f.storage && !isFile {
		// A ReadFrom of w would read with a buffer of its own, which may be less than a message.
		// (The kernel copies nothing from what is no file of package os.)
		w = struct{ io.Writer }{w}
	}
	return io.CopyBuffer(w, readerOnly{f}, buffer.memory)
}
