// Writes. A write of a File is never split into concurrent pieces: nothing after a failed part is
// written, and appends stay in order.

package ringway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"unsafe"
)

// WriteAt writes as [os.File.WriteAt] does: it writes all of p, or returns an error. The offset and
// the length of a direct write must be aligned, else the error is a [*MisalignedError]; the buffer
// need not be.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	return f.WriteAtContext(background, p, off)
}

// WriteAtContext is like WriteAt, but returns the context's cause as soon as the context ends.
// Parts that were in progress then may be written or not, also after the return. A context that can
// end has a price: another goroutine writes a copy of p.
func (f *File) WriteAtContext(ctx context.Context, p []byte, off int64) (n int, err error) {
	switch {
	case f == nil:
		return 0, os.ErrInvalid
	case off < 0:
		return 0, f.fail("writeat", errNegative)
	case !f.begin():
		return 0, f.fail("write", os.ErrClosed)
	}
	defer f.end()
	if f.append {
		return 0, errAppendWrite
	}
	if ctx.Done() == nil {
		n, err = f.writeAt(ctx, p, off)
		return n, f.fail("write", err)
	}
	if ctx.Err() != nil {
		return 0, f.fail("write", causeOf(ctx))
	}
	_, err = detach(ctx, f, func() (struct{}, error) {
		return struct{}{}, f.checkAligned(len(p), off)
	}, nil)
	for n < len(p) && err == nil {
		block, failed := f.engine.borrow(min(len(p)-n, maxPooled))
		if failed != nil {
			err = failed
			break
		}
		piece, at := block.memory[:copy(block.memory, p[n:])], off+int64(n)
		var m int
		m, err = detach(ctx, f, func() (int, error) {
			defer block.release()
			return f.writeAt(ctx, piece, at)
		}, nil)
		n += m
	}
	return n, f.fail("write", err)
}

// writeAt is WriteAt in a file that is held open.
func (f *File) writeAt(ctx context.Context, p []byte, off int64) (int, error) {
	if err := f.checkAligned(len(p), off); err != nil {
		return 0, err
	}
	return f.writeAll(ctx, p, off)
}

// checkAligned returns a MisalignedError for a direct write of n bytes that the device cannot do. A
// write of no bytes is none.
func (f *File) checkAligned(n int, off int64) error {
	if f.direct && f.storage && n > 0 {
		// Not by pages, because an unaligned transfer was refused once: that only makes later ones
		// use an aligned buffer.
		if l := &f.lookUp().directLimits; (int(off)|n)&(l.offset-1) != 0 {
			return &MisalignedError{off, n, l.offset}
		}
	}
	return nil
}

// explainAppend returns the error of an append of n bytes: a MisalignedError if it was refused
// because of its length, or because the file does not end at a multiple of the block size.
func (f *File) explainAppend(n int, err error) error {
	if f.direct && errors.Is(err, syscall.EINVAL) {
		if info, failed := f.file.Stat(); failed == nil {
			return cmp.Or(f.checkAligned(n, info.Size()), err)
		}
	}
	return err
}

// writeAll writes all of p, one step after the other.
func (f *File) writeAll(ctx context.Context, p []byte, off int64) (n int, err error) {
	return f.all(&work{ctx: ctx, op: opWrite, p: p, off: off})
}

// Write writes at the current position, as [os.File.Write] does.
func (f *File) Write(p []byte) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	if !f.begin() {
		return 0, f.fail("write", os.ErrClosed)
	}
	defer f.end()
	if !f.storage || len(p) == 0 {
		return f.file.Write(p)
	}
	f.position.Lock()
	defer f.position.Unlock()
	if !f.direct || f.append {
		n, err = f.writeHere(background, p)
		return n, f.fail("write", err)
	}
	at, err := f.file.Seek(0, io.SeekCurrent)
	if err == nil {
		err = f.checkAligned(len(p), at)
	}
	if err == nil {
		n, err = f.writeAll(background, p, at)
	}
	if n > 0 {
		_, moved := f.file.Seek(at+int64(n), io.SeekStart)
		err = cmp.Or(err, moved)
	}
	return n, f.fail("write", err)
}

// writeHere writes at the current position, which only the kernel knows if the file is open for
// appending. One that is not is not direct.
func (f *File) writeHere(ctx context.Context, p []byte) (n int, err error) {
	if err = f.checkAligned(len(p), 0); err == nil {
		n, err = f.writeAll(ctx, p, atCurrent)
	}
	return n, f.explainAppend(len(p)-n, err)
}

// WriteString writes a string at the current position, as [os.File.WriteString] does.
func (f *File) WriteString(s string) (int, error) {
	return f.Write(unsafe.Slice(unsafe.StringData(s), len(s)))
}
