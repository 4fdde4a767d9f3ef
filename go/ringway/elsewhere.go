//go:build !linux || !(amd64 || arm64 || loong64 || riscv64)

package ringway

// The same package where there is no ring to be had: on systems other than Linux, and on processors that the rings have not
// been written for. Everything is package os, with the contracts that hold elsewhere too.

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

// Engine is what files share: here nothing but what they are told of it.
type Engine struct {
	fixed    *arena // Always nil.
	refusals []*Refusal
	closed   atomic.Bool
}

type faults struct{}

// New makes an engine. Where another backend than threads was forced, the error is a *[Refusal].
func New(o Options) (*Engine, error) {
	ladder, err := o.ladder()
	if err != nil {
		return nil, err
	}
	e := new(Engine)
	for _, backend := range ladder {
		switch backend {
		case Uring:
			e.refusals = append(e.refusals, refused(refusal.Uring))
		case KAIO:
			e.refusals = append(e.refusals, refused(refusal.KAIO))
		}
	}
	if len(e.refusals) == len(ladder) {
		return nil, e.refusals[0]
	}
	if o.FixedBuffers > 0 {
		e.refusals = append(e.refusals, refused(refusal.FixedBuffers))
	}
	return e, nil
}

func refused(feature string) *Refusal {
	return &Refusal{Feature: feature, Errno: syscall.ENOSYS, Meaning: "this package has rings on Linux alone, on amd64, arm64, loong64 and riscv64",
		Mend: "nothing to do: operations work without it"}
}

// Backend is the one that the engine has.
func (e *Engine) Backend() Backend { return Threads }

// Refusals are what was tried first, or asked for, and not granted.
func (e *Engine) Refusals() []*Refusal { return e.refusals }

// Explain tells which backend the engine has, and what was refused, with reason and mend.
func (e *Engine) Explain() string { return explain(Threads, "", e.refusals) }

// Stats are counts of what went through rings: none.
func (e *Engine) Stats() Stats { return Stats{} }

// Close ends the engine. Files stay open, and answer ErrEngineClosed.
func (e *Engine) Close() error {
	if e.closed.Swap(true) {
		return ErrEngineClosed
	}
	return nil
}

// File is an open file, with the methods of an [os.File].
type File struct {
	engine *Engine
	file   *os.File
}

// NewFile takes over an open file, which is closed with the new one.
func (e *Engine) NewFile(file *os.File) (*File, error) { return &File{e, file}, nil }

// ready tells whether an operation may begin.
func (f *File) ready(ctx context.Context, op string) error {
	var err error
	switch {
	case f == nil:
		return os.ErrInvalid
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case f.engine.closed.Load():
		err = ErrEngineClosed
	default:
		return nil
	}
	return f.fail(op, err)
}

var always = context.Background()

// Name is the name that the file was opened with.
func (f *File) Name() string { return f.file.Name() }

// Fd is the descriptor, as [os.File.Fd] gives it.
func (f *File) Fd() uintptr {
	if f == nil {
		return ^uintptr(0)
	}
	return f.file.Fd()
}

// File is the os.File below. Do not close it.
func (f *File) File() *os.File { return f.file }

// SyscallConn is [os.File.SyscallConn].
func (f *File) SyscallConn() (syscall.RawConn, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	return f.file.SyscallConn()
}

// Close is [os.File.Close].
func (f *File) Close() error {
	if f == nil {
		return os.ErrInvalid
	}
	return f.file.Close()
}

// Stat is [os.File.Stat].
func (f *File) Stat() (fs.FileInfo, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	return f.file.Stat()
}

// ReadDir is [os.File.ReadDir].
func (f *File) ReadDir(n int) ([]fs.DirEntry, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	return f.file.ReadDir(n)
}

// Readdir is [os.File.Readdir].
func (f *File) Readdir(n int) ([]fs.FileInfo, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	return f.file.Readdir(n)
}

// Readdirnames is [os.File.Readdirnames].
func (f *File) Readdirnames(n int) ([]string, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	return f.file.Readdirnames(n)
}

// Chmod is [os.File.Chmod].
func (f *File) Chmod(mode fs.FileMode) error {
	if f == nil {
		return os.ErrInvalid
	}
	return f.file.Chmod(mode)
}

// Chown is [os.File.Chown].
func (f *File) Chown(uid, gid int) error {
	if f == nil {
		return os.ErrInvalid
	}
	return f.file.Chown(uid, gid)
}

// Chdir is [os.File.Chdir].
func (f *File) Chdir() error {
	if f == nil {
		return os.ErrInvalid
	}
	return f.file.Chdir()
}

// Truncate is [os.File.Truncate].
func (f *File) Truncate(size int64) error {
	if f == nil {
		return os.ErrInvalid
	}
	return f.file.Truncate(size)
}

// Seek is [os.File.Seek].
func (f *File) Seek(offset int64, whence int) (int64, error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	return f.file.Seek(offset, whence)
}

// SetDeadline is [os.File.SetDeadline].
func (f *File) SetDeadline(t time.Time) error {
	if f == nil {
		return os.ErrInvalid
	}
	return f.file.SetDeadline(t)
}

// SetReadDeadline is [os.File.SetReadDeadline].
func (f *File) SetReadDeadline(t time.Time) error {
	if f == nil {
		return os.ErrInvalid
	}
	return f.file.SetReadDeadline(t)
}

// SetWriteDeadline is [os.File.SetWriteDeadline].
func (f *File) SetWriteDeadline(t time.Time) error {
	if f == nil {
		return os.ErrInvalid
	}
	return f.file.SetWriteDeadline(t)
}

// Preallocate answers EOPNOTSUPP: what it is on Linux, other systems do not have.
func (f *File) Preallocate(off, n int64) error {
	if err := f.ready(always, "preallocate"); err != nil {
		return err
	}
	return f.fail("preallocate", syscall.EOPNOTSUPP)
}

// Advise does nothing: it is advice.
func (f *File) Advise(off, n int64, advice Advice) error { return f.ready(always, "advise") }

// Sync is [os.File.Sync].
func (f *File) Sync() error { return f.SyncContext(always) }

// SyncContext is Sync, and returns the context's cause as soon as that ends. The sync goes on then.
func (f *File) SyncContext(ctx context.Context) error {
	if err := f.ready(ctx, "sync"); err != nil {
		return err
	}
	_, err := orAbandon(ctx, func() (struct{}, error) { return struct{}{}, f.file.Sync() }, nil)
	return f.fail("sync", err)
}

// Datasync is Sync.
func (f *File) Datasync() error { return f.SyncContext(always) }

// ReadAt is [os.File.ReadAt].
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.ReadAtContext(always, p, off) }

// ReadAtContext is ReadAt, and returns the context's cause as soon as that ends. A context that can end has its price: the read
// is one of memory of ringway's, and copied.
func (f *File) ReadAtContext(ctx context.Context, p []byte, off int64) (int, error) {
	if err := f.ready(ctx, "read"); err != nil {
		return 0, err
	}
	if ctx.Done() == nil {
		return f.file.ReadAt(p, off)
	}
	own := make([]byte, len(p))
	n, err := orAbandon(ctx, func() (int, error) { return f.file.ReadAt(own, off) }, nil)
	copy(p, own[:n])
	return n, f.fail("read", err)
}

// WriteAt is [os.File.WriteAt].
func (f *File) WriteAt(p []byte, off int64) (int, error) { return f.WriteAtContext(always, p, off) }

// WriteAtContext is WriteAt, and returns the context's cause as soon as that ends. A context that can end has its price: a copy
// of p is written, maybe also after the return.
func (f *File) WriteAtContext(ctx context.Context, p []byte, off int64) (int, error) {
	if err := f.ready(ctx, "write"); err != nil {
		return 0, err
	}
	if ctx.Done() == nil {
		return f.file.WriteAt(p, off)
	}
	own := bytes.Clone(p)
	n, err := orAbandon(ctx, func() (int, error) { return f.file.WriteAt(own, off) }, nil)
	return n, f.fail("write", err)
}

// Read is [os.File.Read].
func (f *File) Read(p []byte) (int, error) {
	if err := f.ready(always, "read"); err != nil {
		return 0, err
	}
	return f.file.Read(p)
}

// Write is [os.File.Write].
func (f *File) Write(p []byte) (int, error) {
	if err := f.ready(always, "write"); err != nil {
		return 0, err
	}
	return f.file.Write(p)
}

// WriteString is [os.File.WriteString].
func (f *File) WriteString(s string) (int, error) { return f.Write([]byte(s)) }

// ReadFrom is [os.File.ReadFrom].
func (f *File) ReadFrom(r io.Reader) (int64, error) {
	if err := f.ready(always, "write"); err != nil {
		return 0, err
	}
	return f.file.ReadFrom(r)
}

// WriteTo is [os.File.WriteTo].
func (f *File) WriteTo(w io.Writer) (int64, error) {
	if err := f.ready(always, "read"); err != nil {
		return 0, err
	}
	return f.file.WriteTo(w)
}

// ReadBuf reads n bytes at an offset, or fewer at the end of the file (with io.EOF), into a buffer of ringway's own. When the
// context ends it returns at once: the buffer stays ringway's until the read is done. Release what it gives. An n beyond the
// end of a file costs no memory.
func (f *File) ReadBuf(ctx context.Context, off int64, n int) (*Buffer, error) {
	if err := f.ready(ctx, "read"); err != nil {
		return nil, err
	}
	if off < 0 || n < 0 {
		return nil, f.fail("readat", errNegative)
	}
	b, err := orAbandon(ctx, func() (*Buffer, error) {
		length, err := readLength(f.file, off, n)
		if err != nil {
			return nil, err
		}
		buffer := f.engine.NewBuffer(length)
		got, err := f.file.ReadAt(buffer.p, off)
		if err != nil && err != io.EOF {
			buffer.Release()
			return nil, err
		}
		buffer.p = buffer.p[:got]
		if err == nil && length < n {
			err = io.EOF
		}
		return buffer, err
	}, releaseLate)
	return b, f.fail("read", err)
}

// ReadBatch reads several ranges, one after the other. Each has its own answer; the error is the first of theirs, the end of
// the file aside.
func (f *File) ReadBatch(batch []Transfer) error { return f.ReadBatchContext(always, batch) }

// ReadBatchContext is ReadBatch, until the context ends.
func (f *File) ReadBatchContext(ctx context.Context, batch []Transfer) error {
	if f == nil {
		return os.ErrInvalid
	}
	for i := range batch {
		t := &batch[i]
		t.N, t.Err = f.ReadAtContext(ctx, t.P, t.Off)
	}
	return first(batch)
}

// WriteBatch writes several ranges, one after the other, and makes them durable if that is asked for. If a write fails
// nothing is synced. To a file that was opened with O_APPEND they are appended, in their order and by one write.
func (f *File) WriteBatch(batch []Transfer, end Durability) error {
	return f.WriteBatchContext(always, batch, end)
}

// WriteBatchContext is WriteBatch, until the context ends.
func (f *File) WriteBatchContext(ctx context.Context, batch []Transfer, end Durability) error {
	if f == nil {
		return os.ErrInvalid
	}
	if _, err := f.file.WriteAt(nil, 0); err != nil { // It appends: package os says no more of it.
		if err := f.appendBatch(ctx, batch); err != nil {
			return err
		}
	} else {
		for i := range batch {
			t := &batch[i]
			t.N, t.Err = f.WriteAtContext(ctx, t.P, t.Off)
		}
	}
	if err := first(batch); err != nil || end == NoSync {
		return err
	}
	return f.SyncContext(ctx)
}

// appendBatch appends a batch by one write.
func (f *File) appendBatch(ctx context.Context, batch []Transfer) error {
	if err := f.ready(ctx, "write"); err != nil {
		return err
	}
	var all []byte
	for i := range batch {
		all = append(all, batch[i].P...)
	}
	n, err := orAbandon(ctx, func() (int, error) { return f.file.Write(all) }, nil)
	for i := range batch {
		t := &batch[i]
		t.N, t.Err = min(n, len(t.P)), nil
		if n -= t.N; t.N < len(t.P) {
			t.Err = f.fail("write", err)
		}
	}
	return f.fail("write", err)
}

func mapRegion(n int) ([]byte, error) { return alignedSlice(n, pageSize), nil }

func unmapRegion([]byte) {}
