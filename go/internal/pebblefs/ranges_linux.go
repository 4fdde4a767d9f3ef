// The operations on ranges of a file that only Linux has.

package pebblefs

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"github.com/ringway-io/ringway/go/ringway"
)

// rangeSync is whether sync_file_range works for a file.
type rangeSync struct {
	probe  sync.Once
	ranges bool
}

// Preallocate allocates blocks without changing the file's size: Pebble reads a log to its end.
func (f *File) Preallocate(offset, length int64) error {
	const keepSize = 1
	return f.call("preallocate",
		func(fd int) error { return syscall.Fallocate(fd, keepSize, offset, length) })
}

// SyncTo starts to write the dirty pages of the first length bytes, and waits for writes started
// before. It does not make them durable. An error is that of the next sync, too. Where
// sync_file_range does not work, it is SyncData.
func (f *File) SyncTo(length int64) (fullSync bool, err error) {
	f.probe.Do(func() { f.ranges = f.syncsRanges() })
	if !f.ranges {
		err = f.Datasync()
		return err == nil, err
	}
	return false, f.SyncRange(0, length, ringway.RangeWaitBefore|ringway.RangeWrite)
}

// call makes a system call on the descriptor, which stays open until it returns.
func (f *File) call(op string, do func(fd int) error) error {
	conn, err := f.File.OSFile().SyscallConn()
	if err == nil {
		var inner error
		closed := conn.Control(func(fd uintptr) {
			for inner = do(int(fd)); inner == syscall.EINTR; {
				inner = do(int(fd))
			}
		})
		if err = inner; closed != nil {
			err = os.ErrClosed // Control fails for no other reason.
		}
	}
	if _, wrapped := err.(*os.PathError); err != nil && !wrapped {
		err = &os.PathError{Op: op, Path: f.Name(), Err: err}
	}
	return err
}

// syncsRanges reports whether sync_file_range is known to work on this file system: ZFS accepts the
// call and does nothing. vfs.Default uses the same list.
func (f *File) syncsRanges() (known bool) {
	const ext = 0xef53
	_ = f.call("sync", func(fd int) error {
		var stat syscall.Statfs_t
		known = syscall.Fstatfs(fd, &stat) == nil && stat.Type == ext
		return nil
	})
	return known && !errors.Is(f.SyncRange(0, 0, 0), errors.ErrUnsupported)
}
