// Copies from and to files, by the kernel alone (sendfile, splice, copy_file_range) where possible.

package ringway

import (
	"io"
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
// total length must be aligned.
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
	switch from := r.(type) {
	case *File:
		if from != nil && from.kernelCopies() && !from.refs.closed() {
			r = from.file
		}
	case *io.LimitedReader: // io.CopyN makes one.
		under, ok := from.R.(*File)
		if ok && under != nil && under.kernelCopies() && !under.refs.closed() {
			limited := &io.LimitedReader{R: under.file, N: from.N}
			defer func() { from.N = limited.N }()
			r = limited
		}
	}
	if f.storage && !hasDescriptor(r) {
		return io.Copy(writerOnly{f}, r)
	}
	return f.file.ReadFrom(r)
}

// hasDescriptor reports whether the kernel may be able to copy from r.
func hasDescriptor(r io.Reader) bool {
	if limited, ok := r.(*io.LimitedReader); ok {
		r = limited.R
	}
	_, ok := r.(syscall.Conn)
	return ok
}

// kernelCopies reports whether the kernel alone may copy from or to the file: not past the page
// cache, and not without leaving pages there.
func (f *File) kernelCopies() bool { return !f.direct && !f.dropsPages() }

// readInto copies from r in full buffers.
func (f *File) readInto(r io.Reader) (n int64, err error) {
	buffer := f.engine.borrow(copyBuffer)
	defer buffer.release()
	p := buffer.memory
	for err == nil {
		filled := 0
		for filled < len(p) && err == nil {
			var m int
			m, err = r.Read(p[filled:])
			filled += m
		}
		m, failed := f.Write(p[:filled])
		n += int64(m)
		if failed != nil {
			return n, failed
		}
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
	if to, ok := w.(*File); ok && to != nil && to.kernelCopies() && !to.refs.closed() {
		w = to.file
	}
	if _, descriptor := w.(syscall.Conn); descriptor && f.kernelCopies() {
		return f.file.WriteTo(w)
	}
	buffer := f.engine.borrow(copyBuffer)
	defer buffer.release()
	return io.CopyBuffer(w, readerOnly{f}, buffer.memory)
}
