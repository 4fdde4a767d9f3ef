package ringway

// Reads. A read takes one of three ways: a copy from the page cache (cached.go), a queue of the
// engine, or a plain system call. Direct reads that are not aligned are in direct.go.

import (
	"cmp"
	"context"
	"io"
	"os"
)

// ReadAt reads as [os.File.ReadAt] does: if n < len(p), the error says why; at the end of the file
// it is io.EOF. With direct I/O, neither the offset nor the buffer needs to be aligned: ringway
// reads the enclosing blocks and copies.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	if off < 0 {
		return 0, f.fail("readat", errNegative)
	}
	if !f.begin() {
		return 0, f.fail("read", os.ErrClosed)
	}
	n, err = f.readAt(background, p, off)
	f.end()
	if err != nil {
		err = f.fail("read", err)
	}
	return n, err
}

// ReadAtContext is like ReadAt, but returns the context's cause as soon as the context ends. When
// it returns, p belongs to the caller again.
//
// A context that can end has a price. The kernel may write to the buffer after the context ends,
// so data that is not in the page cache is read into memory of the package by another goroutine,
// and then copied. [File.ReadBuf] saves the copy.
func (f *File) ReadAtContext(ctx context.Context, p []byte, off int64) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	if ctx.Done() == nil {
		return f.ReadAt(p, off)
	}
	if off < 0 {
		return 0, f.fail("readat", errNegative)
	}
	if !f.begin() {
		return 0, f.fail("read", os.ErrClosed)
	}
	defer f.end()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	for n < len(p) && err == nil {
		if m := f.tryCachedNow(p[n:], off+int64(n)); m > 0 {
			n += m
			if ctx.Err() != nil && n < len(p) {
				err = context.Cause(ctx)
			}
			continue
		}
		var buffer *Buffer
		buffer, err = f.readPooled(ctx, f.engine.NewBuffer(min(len(p)-n, maxPooled)), off+int64(n))
		if buffer != nil {
			n += copy(p[n:], buffer.p)
			buffer.Release()
		}
	}
	return n, f.fail("read", err)
}

// maxPooled is the most that a transfer with a context moves at once through pooled memory.
const maxPooled = 4 << 20

// ReadBuf reads n bytes at an offset into a pooled buffer; at the end of the file it returns fewer
// bytes, with io.EOF. It returns the context's cause as soon as the context ends: the buffer goes
// back to the pool when the kernel has completed the read. The caller releases the buffer, also one
// that comes with io.EOF. A range beyond the end of a file costs no memory; a range that does not
// fit into the program's memory ends the program, as with make.
func (f *File) ReadBuf(ctx context.Context, off int64, n int) (*Buffer, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	if off < 0 || n < 0 {
		return nil, f.fail("readat", errNegative)
	}
	if !f.begin() {
		return nil, f.fail("read", os.ErrClosed)
	}
	defer f.end()
	if ctx.Err() != nil {
		return nil, f.fail("read", context.Cause(ctx))
	}
	if n > largestBlock {
		read := func() (*Buffer, error) { return f.readLong(ctx, off, n) }
		buffer, err := detach(ctx, f, read, discardBuffer)
		return buffer, f.fail("read", err)
	}
	buffer := f.engine.NewBuffer(n)
	if f.tryCachedNow(buffer.p, off) == n {
		return buffer, nil
	}
	buffer, err := f.readPooled(ctx, buffer, off)
	return buffer, f.fail("read", err)
}

// readPooled fills a buffer, or releases it. The file is held open.
func (f *File) readPooled(ctx context.Context, buffer *Buffer, off int64) (*Buffer, error) {
	fill := func() (*Buffer, error) { return f.fillBuffer(ctx, buffer, off) }
	return detach(ctx, f, fill, discardBuffer)
}

// fillBuffer fills a buffer, or releases it, while the caller waits.
func (f *File) fillBuffer(ctx context.Context, buffer *Buffer, off int64) (*Buffer, error) {
	n, err := f.readAt(ctx, buffer.p, off)
	if err != nil && err != io.EOF {
		buffer.Release()
		return nil, err
	}
	buffer.p = buffer.p[:n]
	return buffer, err
}

// readLong reads n bytes, or fewer at the end of the file, into no more memory than the file can
// fill.
func (f *File) readLong(ctx context.Context, off int64, n int) (*Buffer, error) {
	length, err := f.readableLength(off, n)
	if err != nil {
		return nil, err
	}
	buffer, err := f.fillBuffer(ctx, f.engine.NewBuffer(length), off)
	if err == nil && length < n {
		err = io.EOF
	}
	return buffer, err
}

// readableLength returns how much memory to allocate for a read of n bytes: not much more than the
// file has there. n may come from the content of the file, and a program that allocates too much
// is ended. A result below n meets the end of the file, unless the file has grown in the meantime.
func (f *File) readableLength(off int64, n int) (int, error) {
	info, err := f.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return n, err
	}
	// Whole pages, as direct I/O needs them.
	length := max(info.Size()-off, 0)&^(pageSize-1) + pageSize
	return int(min(int64(n), length)), nil
}

// readAt is ReadAt in a file that is held open.
func (f *File) readAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	switch {
	case len(p) == 0:
		return 0, nil
	case !f.storage:
		return f.file.ReadAt(p, off)
	case f.direct && f.fits(p, off) && ctx.Err() == nil:
		// The common case takes few stack frames: a goroutine keeps its stack while it waits.
		if n, err = f.transfer(ctx, opRead, p, off); err == nil && n < len(p) {
			var more int
			more, err = f.readFull(ctx, p[n:], off+int64(n))
			n += more
		}
		return n, err
	}
	return f.readFull(ctx, p, off)
}

// readFull reads until p is full, or the file ends.
func (f *File) readFull(ctx context.Context, p []byte, off int64) (n int, err error) {
	for n < len(p) {
		m, err := f.readSome(ctx, p[n:], off+int64(n))
		n += m
		if err != nil {
			return n, err
		}
		if m == 0 {
			return n, io.EOF
		}
	}
	return n, nil
}

// readSome reads once; 0 bytes mean the end of the file.
func (f *File) readSome(ctx context.Context, p []byte, off int64) (int, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if f.direct {
		return f.readDirect(ctx, p, off)
	}
	if n, ok := f.tryCached(p, off); ok {
		return n, nil
	}
	return f.transfer(ctx, opRead, p, off)
}

// Read reads at the current position, as [os.File.Read] does.
func (f *File) Read(p []byte) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	if !f.begin() {
		return 0, f.fail("read", os.ErrClosed)
	}
	defer f.end()
	if !f.storage {
		return f.file.Read(p)
	}
	if len(p) == 0 {
		return 0, nil
	}
	f.position.Lock()
	defer f.position.Unlock()
	if !f.direct {
		n, err = f.readSome(background, p, atCurrent)
	} else {
		// A ring does not move the current position after a direct read.
		var at int64
		if at, err = f.file.Seek(0, io.SeekCurrent); err == nil {
			n, err = f.readDirect(background, p, at)
			if n > 0 {
				_, moved := f.file.Seek(at+int64(n), io.SeekStart)
				if err == io.EOF {
					err = nil
				}
				err = cmp.Or(err, moved)
			}
		}
	}
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, f.fail("read", err)
}
