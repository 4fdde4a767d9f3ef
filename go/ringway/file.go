//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// Files: opening, closing, and all that is not a transfer.

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// File is an open file. Its methods are those of an [os.File], with the same contracts and errors; any number of
// goroutines may use it.
//
// Pipes, sockets and terminals are left to package os, whose poller is right for them.
type File struct {
	engine *Engine
	file   *os.File
	fd     int
	name   string

	storage bool // A regular file or a block device: what the engine is for.
	dir     bool // A directory, of which the engine does the sync.
	direct  bool // Open with O_DIRECT.
	append  bool // Open with O_APPEND.

	hold   hold
	cursor sync.Mutex // Of the file's own position.
	cache  guess
	device sync.Once
	needs  alignment
}

// NewFile takes over an open file, which is closed with the new one.
func (e *Engine) NewFile(file *os.File) (*File, error) {
	f := &File{engine: e, file: file, fd: -1, name: file.Name()}
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	var inner error
	err = conn.Control(func(fd uintptr) {
		var stat syscall.Stat_t
		if inner = syscall.Fstat(int(fd), &stat); inner != nil {
			return
		}
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
		if errno != 0 {
			inner = errno
			return
		}
		kind := stat.Mode & syscall.S_IFMT
		f.storage = kind == syscall.S_IFREG || kind == syscall.S_IFBLK
		f.dir = kind == syscall.S_IFDIR
		f.direct = flags&syscall.O_DIRECT != 0
		f.append = flags&syscall.O_APPEND != 0
		f.fd = int(fd)
	})
	if err = errors.Join(err, inner); err != nil {
		return nil, &fs.PathError{Op: "open", Path: f.name, Err: err}
	}
	return f, nil
}

// begin holds the descriptor open until end; false: the file is closed. Only exported methods call it: what they call would
// find the file closed half-way.
func (f *File) begin() bool {
	if f.hold.begin() {
		return true
	}
	f.end()
	return false
}

// end lets go of the descriptor. The last one closes it, if Close was called meanwhile.
func (f *File) end() {
	if f.hold.end() {
		_ = f.file.Close() // As with os.File, Close has returned and nobody is left to be told.
	}
}

// use runs something with the descriptor held open.
func (f *File) use(op string, do func() error) error {
	if f == nil {
		return os.ErrInvalid
	}
	if !f.begin() {
		return f.fail(op, os.ErrClosed)
	}
	defer f.end()
	return f.fail(op, do())
}

// descriptor runs something on the descriptor, within use. What others do to end a wait in a pipe is to close it, so there
// package os has to hold it open.
func (f *File) descriptor(do func(fd int) error) error {
	if f.storage || f.dir {
		return do(f.fd)
	}
	conn, err := f.file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if conn.Control(func(fd uintptr) { inner = do(int(fd)) }) != nil {
		return os.ErrClosed // There is no other reason.
	}
	return inner
}

// Name is the name that the file was opened with.
func (f *File) Name() string { return f.name }

// Fd is the descriptor, as [os.File.Fd] gives it.
func (f *File) Fd() uintptr {
	if f == nil || f.hold.closed() {
		return ^uintptr(0)
	}
	return f.file.Fd()
}

// File is the os.File below. Do not close it.
func (f *File) File() *os.File { return f.file }

// SyscallConn is [os.File.SyscallConn]: by it package net sends a file by sendfile(2). What is opened for direct I/O has none,
// since whoever knows the descriptor alone does not know what has to be aligned.
func (f *File) SyscallConn() (syscall.RawConn, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	if f.hold.closed() {
		return nil, f.fail("syscallconn", os.ErrClosed)
	}
	if f.direct {
		return nil, f.fail("syscallconn", syscall.EOPNOTSUPP)
	}
	return f.file.SyscallConn()
}

// Close closes the file, and waits for nobody, as [os.File.Close]. New operations answer [os.ErrClosed]. Those under way run to
// their ends, and the last of them closes the descriptor. [File.ReadFrom] and [File.WriteTo] end with os.ErrClosed at their next
// step; so does what waits in a pipe.
func (f *File) Close() error {
	if f == nil {
		return os.ErrInvalid
	}
	switch first, last := f.hold.close(); {
	case !first:
		return f.fail("close", os.ErrClosed)
	case last || !f.storage && !f.dir: // What is no storage is used by way of package os, which does the same.
		return f.file.Close()
	}
	return nil
}

// Stat is [os.File.Stat].
func (f *File) Stat() (info fs.FileInfo, err error) {
	err = f.use("stat", func() (err error) { info, err = f.file.Stat(); return })
	return info, err
}

// ReadDir is [os.File.ReadDir].
func (f *File) ReadDir(n int) (entries []fs.DirEntry, err error) {
	closed := f.use("readdir", func() error { entries, err = f.file.ReadDir(n); return nil })
	if closed != nil {
		return nil, closed
	}
	return entries, err
}

// Readdir is [os.File.Readdir]: with it a File is an http.File.
func (f *File) Readdir(n int) (infos []fs.FileInfo, err error) {
	closed := f.use("readdir", func() error { infos, err = f.file.Readdir(n); return nil })
	if closed != nil {
		return nil, closed
	}
	return infos, err
}

// Readdirnames is [os.File.Readdirnames].
func (f *File) Readdirnames(n int) (names []string, err error) {
	closed := f.use("readdir", func() error { names, err = f.file.Readdirnames(n); return nil })
	if closed != nil {
		return nil, closed
	}
	return names, err
}

// Chmod is [os.File.Chmod].
func (f *File) Chmod(mode fs.FileMode) error {
	return f.use("chmod", func() error { return f.file.Chmod(mode) })
}

// Chown is [os.File.Chown].
func (f *File) Chown(uid, gid int) error {
	return f.use("chown", func() error { return f.file.Chown(uid, gid) })
}

// Chdir is [os.File.Chdir].
func (f *File) Chdir() error {
	return f.use("chdir", func() error { return f.file.Chdir() })
}

// Truncate is [os.File.Truncate].
func (f *File) Truncate(size int64) error {
	return f.use("truncate", func() error { return f.file.Truncate(size) })
}

// Seek is [os.File.Seek].
func (f *File) Seek(offset int64, whence int) (at int64, err error) {
	err = f.use("seek", func() (err error) {
		f.cursor.Lock()
		defer f.cursor.Unlock()
		at, err = f.file.Seek(offset, whence)
		return err
	})
	return at, err
}

// SetDeadline is [os.File.SetDeadline]: pipes and sockets have deadlines, and files on disk answer [os.ErrNoDeadline].
// [File.ReadAtContext] and [File.WriteAtContext] have a context for each operation.
func (f *File) SetDeadline(t time.Time) error {
	if f == nil {
		return os.ErrInvalid
	}
	if f.hold.closed() {
		return f.fail("set", os.ErrClosed)
	}
	return f.file.SetDeadline(t)
}

// SetReadDeadline is [os.File.SetReadDeadline].
func (f *File) SetReadDeadline(t time.Time) error {
	if f == nil {
		return os.ErrInvalid
	}
	if f.hold.closed() {
		return f.fail("set", os.ErrClosed)
	}
	return f.file.SetReadDeadline(t)
}

// SetWriteDeadline is [os.File.SetWriteDeadline].
func (f *File) SetWriteDeadline(t time.Time) error {
	if f == nil {
		return os.ErrInvalid
	}
	if f.hold.closed() {
		return f.fail("set", os.ErrClosed)
	}
	return f.file.SetWriteDeadline(t)
}

// Preallocate has the disk's blocks for a range allocated, without a change of its content, and the file grow if it ends
// before. A file system that cannot answers EOPNOTSUPP.
func (f *File) Preallocate(off, n int64) error {
	return f.use("preallocate", func() error {
		if err := f.engine.calls.begin(always); err != nil {
			return err
		}
		defer f.engine.calls.end()
		return f.descriptor(func(fd int) error {
			for {
				if err := syscall.Fallocate(fd, 0, off, n); err != syscall.EINTR {
					return err
				}
			}
		})
	})
}

// Advise tells the kernel of a range; a length of 0 is up to the end.
func (f *File) Advise(off, n int64, advice Advice) error {
	return f.use("advise", func() error {
		return f.descriptor(func(fd int) error {
			_, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, uintptr(fd), uintptr(off), uintptr(n), uintptr(advice), 0, 0)
			if errno != 0 {
				return errno
			}
			return nil
		})
	})
}

// Sync is fsync(2).
func (f *File) Sync() error { return f.SyncContext(context.Background()) }

// SyncContext is Sync, and returns the context's cause when that ends. The sync goes on then, and nobody knows what is on the
// disk.
func (f *File) SyncContext(ctx context.Context) error {
	return f.use("sync", func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		_, err := detach(ctx, f, func() (struct{}, error) { return struct{}{}, f.sync(ctx, fsync) }, nil)
		return err
	})
}

// Datasync is fdatasync(2): without what is only about the file, such as its times.
func (f *File) Datasync() error {
	return f.use("datasync", func() error { return f.sync(always, fdatasync) })
}

// sync is one sync. It is repeated only if the kernel says that it was not done (EINTR, EAGAIN, ECANCELED): Linux reports an
// error of what was written once, and the next sync would know nothing of it.
func (f *File) sync(ctx context.Context, kind kind) error {
	e := f.engine
	// A ring or KAIO has a thread of the kernel's do it, which costs more than one of ours.
	if e.options.AlwaysRing && len(e.shards) > 0 && (f.storage || f.dir) && !e.closed.Load() {
		result, err := e.fly(ctx, e.shard(), f.request(kind, nil, 0))
		if err != nil || result != cannotCarry {
			return err
		}
	}
	if err := e.syncs.begin(ctx); err != nil {
		return err
	}
	defer e.syncs.end()
	return f.descriptor(func(fd int) error {
		for {
			var err error
			if kind == fsync {
				err = syscall.Fsync(fd)
			} else {
				err = syscall.Fdatasync(fd)
			}
			if err != syscall.EINTR {
				return err
			}
		}
	})
}
