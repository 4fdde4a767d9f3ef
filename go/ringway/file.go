// Files: opening, closing, syncing, and the methods of os.File that are not transfers.

package ringway

import (
	"context"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// File is an open file. It has the methods of an [os.File], with the same contracts and errors.
// Any number of goroutines may use it at once.
//
// Pipes, sockets and terminals are left to package os, whose poller suits them.
type File struct {
	engine *Engine
	file   *os.File
	fd     int // -1 on systems without rings.
	name   string

	storage     bool // A regular file, or a block device: the engine transfers its data.
	dir         bool // A directory: the engine syncs it.
	direct      bool // Open for direct I/O.
	append      bool // Open with O_APPEND.
	blockDevice bool

	refs     refs
	position sync.Mutex // Held while an operation uses the file's current position.
	syncs    syncs
	cache    cachePredictor

	dontCache dontCache

	factsOnce  sync.Once
	facts      facts       // After lookUp.
	needsPages atomic.Bool // Direct transfers have to be aligned, as was found out.
	//lint:ignore U1000 Systems without rings do not use it.
	warm atomic.Bool // A transfer has completed.
	//lint:ignore U1000 Systems without rings do not use it.
	waits atomic.Pointer[waits] // After lookUpWaits.
	//lint:ignore U1000 Systems without rings do not use it.
	waitsOnce sync.Once
	//lint:ignore U1000 Systems without rings do not use it.
	accessTime accessTime
}

var (
	_ io.ReaderAt     = (*File)(nil)
	_ io.WriterAt     = (*File)(nil)
	_ io.ReadWriter   = (*File)(nil)
	_ io.Seeker       = (*File)(nil)
	_ io.Closer       = (*File)(nil)
	_ io.ReaderFrom   = (*File)(nil)
	_ io.WriterTo     = (*File)(nil)
	_ io.StringWriter = (*File)(nil)
	_ syscall.Conn    = (*File)(nil)
	_ fs.ReadDirFile  = (*File)(nil)
)

// NewFile makes a File from an open os.File, on the default engine. The File owns it: closing the
// File closes both.
func NewFile(file *os.File) (*File, error) {
	if file == nil {
		return nil, os.ErrInvalid
	}
	e, err := Default()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: file.Name(), Err: err}
	}
	return e.NewFile(file)
}

// NewFile makes a File from an open os.File. The File owns it: closing the File closes both.
func (e *Engine) NewFile(file *os.File) (*File, error) {
	if file == nil {
		return nil, os.ErrInvalid
	}
	f := &File{engine: e, file: file, fd: -1, name: file.Name()}
	if err := f.identify(); err != nil {
		return nil, f.fail("open", err)
	}
	return f, nil
}

// begin holds the descriptor open until end, and reports whether the file is open. Only exported
// methods call it: a function that they call would find the file closed halfway.
func (f *File) begin() bool {
	if f.refs.acquire() {
		return true
	}
	f.end()
	return false
}

// end releases the descriptor. If Close was called, the last operation closes it.
func (f *File) end() {
	if f.refs.release() {
		_ = f.file.Close() // As with os.File, Close has returned, so nobody receives the error.
	}
}

// use calls do with the descriptor held open.
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

// change is use with a call that may change the file's times, as a write does.
func (f *File) change(op string, do func() error) error {
	return f.use(op, func() error {
		defer f.noteChange()
		return do()
	})
}

// Name returns the name that the file was opened with.
func (f *File) Name() string { return f.name }

// Fd returns the descriptor, as [os.File.Fd] does.
func (f *File) Fd() uintptr {
	if f == nil || f.refs.closed() {
		return ^uintptr(0)
	}
	return f.file.Fd()
}

// OSFile returns the os.File that f reads and writes. Do not close it.
func (f *File) OSFile() *os.File { return f.file }

// SyscallConn returns a raw connection to the descriptor, as [os.File.SyscallConn] does. Package
// net uses it to send a file with sendfile(2). It fails with EOPNOTSUPP for a file that is open
// for direct I/O, since a user of the raw descriptor does not know the required alignment, and for
// one whose transfers leave no pages ([File.SetDontCache]), since sendfile(2) would. [File.OSFile]
// has a raw connection in any case.
func (f *File) SyscallConn() (syscall.RawConn, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	if f.refs.closed() {
		return nil, f.fail("SyscallConn", os.ErrClosed)
	}
	if !f.kernelCopies() {
		return nil, f.fail("SyscallConn", syscall.EOPNOTSUPP)
	}
	return f.file.SyscallConn()
}

// Close closes the file. Like [os.File.Close], it does not wait for operations in progress: they
// run to completion, and the last one closes the descriptor. New operations fail with
// [os.ErrClosed]. [File.ReadFrom] and [File.WriteTo] fail with os.ErrClosed at their next step, and
// so do operations that wait in a pipe. A step of what the kernel copies is at most 16 MiB; a Unix
// socket or an http.ResponseWriter that sends a file by its descriptor sends it to the end, as with
// os.File.
func (f *File) Close() error {
	if f == nil {
		return os.ErrInvalid
	}
	switch first, last := f.refs.close(); {
	case !first:
		return f.fail("close", os.ErrClosed)
	case last || !f.storage && !f.dir: // Package os counts the users of all other files.
		return f.file.Close()
	}
	return nil
}

// Stat describes the file as [os.File.Stat] does.
func (f *File) Stat() (info fs.FileInfo, err error) {
	err = f.use("stat", func() (err error) { info, err = f.file.Stat(); return })
	return info, err
}

// ReadDir reads a directory as [os.File.ReadDir] does.
func (f *File) ReadDir(n int) (entries []fs.DirEntry, err error) {
	closed := f.use("readdir", func() error { entries, err = f.file.ReadDir(n); return nil })
	if closed != nil {
		return nil, closed
	}
	return entries, err
}

// Readdir reads a directory as [os.File.Readdir] does. It makes a File an http.File.
func (f *File) Readdir(n int) (infos []fs.FileInfo, err error) {
	closed := f.use("readdir", func() error { infos, err = f.file.Readdir(n); return nil })
	if closed != nil {
		return nil, closed
	}
	return infos, err
}

// Readdirnames reads a directory as [os.File.Readdirnames] does.
func (f *File) Readdirnames(n int) (names []string, err error) {
	closed := f.use("readdir", func() error { names, err = f.file.Readdirnames(n); return nil })
	if closed != nil {
		return nil, closed
	}
	return names, err
}

// Chmod changes the mode as [os.File.Chmod] does.
func (f *File) Chmod(mode fs.FileMode) error {
	return f.change("chmod", func() error { return f.file.Chmod(mode) })
}

// Chown changes the owner as [os.File.Chown] does.
func (f *File) Chown(uid, gid int) error {
	return f.change("chown", func() error { return f.file.Chown(uid, gid) })
}

// Chdir changes the working directory as [os.File.Chdir] does.
func (f *File) Chdir() error {
	return f.use("chdir", func() error { return f.file.Chdir() })
}

// Truncate changes the size as [os.File.Truncate] does.
func (f *File) Truncate(size int64) error {
	return f.change("truncate", func() error { return f.file.Truncate(size) })
}

// Seek sets the current position as [os.File.Seek] does.
func (f *File) Seek(offset int64, whence int) (position int64, err error) {
	err = f.use("seek", func() (err error) {
		f.position.Lock()
		defer f.position.Unlock()
		position, err = f.file.Seek(offset, whence)
		return err
	})
	return position, err
}

// SetDeadline sets the deadlines as [os.File.SetDeadline] does. Pipes and sockets have deadlines;
// for files on a disk the error is [os.ErrNoDeadline]. Use [File.ReadAtContext] and
// [File.WriteAtContext] for those.
func (f *File) SetDeadline(t time.Time) error {
	return f.setDeadline("SetDeadline", (*os.File).SetDeadline, t)
}

// SetReadDeadline sets the deadline of reads as [os.File.SetReadDeadline] does.
func (f *File) SetReadDeadline(t time.Time) error {
	return f.setDeadline("SetReadDeadline", (*os.File).SetReadDeadline, t)
}

// SetWriteDeadline sets the deadline of writes as [os.File.SetWriteDeadline] does.
func (f *File) SetWriteDeadline(t time.Time) error {
	return f.setDeadline("SetWriteDeadline", (*os.File).SetWriteDeadline, t)
}

func (f *File) setDeadline(op string, set func(*os.File, time.Time) error, t time.Time) error {
	if f == nil {
		return os.ErrInvalid
	}
	if f.refs.closed() {
		return f.fail(op, os.ErrClosed)
	}
	return set(f.file, t)
}

// Advice is a hint for [File.Advise], as for posix_fadvise(2).
type Advice int

// The hints.
const (
	AdviceNormal     Advice = 0 // No particular pattern.
	AdviceRandom     Advice = 1 // Random reads: do not read ahead.
	AdviceSequential Advice = 2 // Sequential reads: read ahead more.
	AdviceWillNeed   Advice = 3 // Soon needed: read it into the page cache.
	AdviceDontNeed   Advice = 4 // Not needed again: drop it from the page cache.
	AdviceNoReuse    Advice = 5 // Needed once.
)

// Advise gives the kernel a hint about a range. A length of 0 means up to the end of the file. On
// systems without rings it fails with [errors.ErrUnsupported].
func (f *File) Advise(off, n int64, advice Advice) error {
	return f.use("advise", func() error { return f.fadvise(off, n, advice) })
}

// Sync makes the file's data and metadata durable, as [os.File.Sync] and fsync(2) do.
//
// Linux reports an error of writeback once for each open file. So concurrent syncs of a File share:
// one runs, one is queued for all callers who came later, and an error is returned to everyone who
// was waiting.
func (f *File) Sync() error { return f.SyncContext(background) }

// SyncContext is like Sync, but returns the context's cause as soon as the context ends. The sync
// then continues, and the caller does not know what is on the disk. If it fails and nobody else
// waits for it, the next sync of the File returns the error.
func (f *File) SyncContext(ctx context.Context) error {
	return f.use("sync", func() error {
		if ctx.Err() != nil {
			return causeOf(ctx)
		}
		return f.sync(ctx, opFsync)
	})
}

// Datasync makes the file's data durable, as fdatasync(2) does: without metadata that is not
// needed to read the data, such as times. On systems without rings it is Sync.
func (f *File) Datasync() error {
	return f.use("datasync", func() error { return f.sync(background, opFdatasync) })
}
