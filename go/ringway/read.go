// Reads: ranges, pooled buffers, and reads at the current position. How each step of a read is made
// is in plan.go.

package ringway

import (
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
	defer f.end()
	n, err = f.readAt(background, p, off)
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
// and then copied. So is cached data where the kernel may wait for the device: in the first read of
// f, and on ext4 in a read that changes the access time. [File.ReadBuf] saves the copy.
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
		err = causeOf(ctx)
	} else if endsBeyondRange(len(p), off) {
		n, err = f.file.ReadAt(p, off)
	}
	for n < len(p) && err == nil {
		if m := f.tryCached(ctx, p[n:], off+int64(n)); m > 0 {
			n += m
			if ctx.Err() != nil && n < len(p) {
				err = causeOf(ctx)
			}
			continue
		}
		var buffer *Buffer
		buffer, err = f.engine.newBuffer(min(len(p)-n, maxPooled))
		if err == nil {
			buffer, err = f.readPooled(ctx, buffer, off+int64(n))
		}
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
	if off < 0 {
		return nil, f.fail("readat", errNegative)
	}
	if n < 0 {
		return nil, f.fail("readat", errLength)
	}
	if !f.begin() {
		return nil, f.fail("read", os.ErrClosed)
	}
	defer f.end()
	if ctx.Err() != nil {
		return nil, f.fail("read", causeOf(ctx))
	}
	if n > largestBlock {
		read := func() (*Buffer, error) { return f.readLong(ctx, off, n) }
		buffer, err := detach(ctx, f, read, discardBuffer)
		return buffer, f.fail("read", err)
	}
	buffer, err := f.engine.newBuffer(n)
	if err != nil {
		return nil, f.fail("read", err)
	}
	if f.tryCached(ctx, buffer.p, off) == n {
		return buffer, nil
	}
	buffer, err = f.readPooled(ctx, buffer, off)
	return buffer, f.fail("read", err)
}

// readPooled fills a buffer, or releases it. The file is held open.
func (f *File) readPooled(ctx context.Context, buffer *Buffer, off int64) (*Buffer, error) {
	fill := func() (*Buffer, error) { return f.fillBuffer(ctx, buffer, off) }
	return detach(ctx, f, fill, discardBuffer)
}

// fillBuffer fills a buffer, or releases it, while the caller waits.
func (f *File) fillBuffer(ctx context.Context, buffer *Buffer, off int64) (*Buffer, error) {
	if ctx.Done() != nil {
		f.prepareTries()
	}
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
	buffer, err := f.engine.newBuffer(length)
	if err != nil {
		return nil, err
	}
	buffer, err = f.fillBuffer(ctx, buffer, off)
	for err == nil && length < n { // The size was a guess of the file system, or is not the last.
		length += min(n-length, length)
		larger, failed := f.engine.newBuffer(length)
		if failed != nil {
			buffer.Release()
			return nil, failed
		}
		have := copy(larger.p, buffer.p)
		buffer.Release()
		buffer = larger
		var more int
		more, err = f.readAt(ctx, buffer.p[have:], off+int64(have))
		buffer.p = buffer.p[:have+more]
		if err != nil && err != io.EOF {
			buffer.Release()
			return nil, err
		}
	}
	return buffer, err
}

// readableLength returns how much memory to allocate for a read of n bytes: not much more than the
// file has there. n may come from the content of the file, and a program that allocates too much
// is ended. The file may go on behind a result below n: it grows, or its size is a guess of the
// file system.
func (f *File) readableLength(off int64, n int) (int, error) {
	info, err := f.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return n, err
	}
	// Whole pages, as direct I/O needs them.
	left := max(info.Size()-off, 0) &^ (pageSize - 1)
	return int(left + min(pageSize, int64(n)-left)), nil
}

// readAt is ReadAt in a file that is held open.
func (f *File) readAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	return f.all(&work{ctx: ctx, op: opRead, p: p, off: off})
}

// Read reads at the current position, as [os.File.Read] does: it returns fewer bytes than p holds
// only where the system call does, whatever the page cache has.
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
	if f.direct {
		n, err = f.readHereDirect(p)
	} else {
		n, err = f.readHere(p)
	}
	return n, f.fail("read", err)
}

// readHere reads at the current position until p is full, or a system call reads less. As with the
// system call, an error after a part is left to the next Read.
func (f *File) readHere(p []byte) (n int, err error) {
	w := work{ctx: background, op: opRead, p: p, off: atCurrent}
	for from := noResult; len(w.p) > 0 && err == nil && from != fromCall; w.p = p[n:] {
		var m int
		m, from, err = f.step(&w)
		n += m
	}
	if n > 0 {
		err = nil
	}
	return n, err
}

// readHereDirect is readHere for direct I/O: a ring does not move the current position after a
// direct read.
func (f *File) readHereDirect(p []byte) (n int, err error) {
	at, err := f.file.Seek(0, io.SeekCurrent)
	if err == nil {
		n, err = f.readAt(background, p, at)
	}
	if n > 0 {
		_, err = f.file.Seek(at+int64(n), io.SeekStart)
	}
	return n, err
}
