//go:build linux

// Package pebblevfs is a vfs.FS for Pebble whose files are ringway's. Reads of tables that are not in the page cache share
// submissions and keep no thread waiting; with [DirectTables], so do all reads of tables. Cached reads, writes and syncs are plain
// system calls, as in vfs.Default; at most [ringway.Options].Threads calls that block are under way at once, and a quarter as many
// syncs.
//
//	engine, err := ringway.Default()
//	...
//	db, err := pebble.Open(dir, &pebble.Options{FS: pebblevfs.New(engine)})
//
// Each method does what that of vfs.Default does, with the same flags, effects and kinds of errors. Databases are
// interchangeable between the two.
package pebblevfs

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/vfs"

	"github.com/ringway-io/ringway/go/ringway"
)

// Option changes what New makes.
type Option func(*files)

// DirectTables has tables (files with the suffix .sst) read with O_DIRECT, past the page cache: memory then goes to Pebble's
// own block cache, and nothing is kept twice. A table is written before it is opened for reading and never changes, so
// that both ways read the same bytes.
//
// It is for a block cache that is large, and a working set that is much larger than memory; otherwise the page cache is
// the quicker one. What Pebble reads in sequence (vfs.SequentialReadsOption, as compactions may do) stays buffered, for the
// kernel reads ahead there. So does everything on a file system without direct I/O.
func DirectTables() Option { return func(s *files) { s.direct = true } }

// New is a file system over an engine, which has to be closed after the databases on it. Everything about names is
// vfs.Default's.
func New(engine *ringway.Engine, options ...Option) vfs.FS {
	s := &files{FS: vfs.Default, engine: engine}
	for _, option := range options {
		option(s)
	}
	return s
}

type files struct {
	vfs.FS
	engine *ringway.Engine
	direct bool
}

// Unwrap is for vfs.Root: the file system that does what is about names, and that sees the same files.
func (s *files) Unwrap() vfs.FS { return s.FS }

func (s *files) open(name string, flag int, options ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.engine.OpenFile(name, flag, 0o666)
	if err != nil {
		return nil, err
	}
	file := &file{File: f, direct: flag&syscall.O_DIRECT != 0}
	for _, option := range options {
		option.Apply(file)
	}
	return file, nil
}

// Create makes a file anew. One of that name is removed, not truncated: it may have other links, and readers.
func (s *files) Create(name string) (vfs.File, error) {
	const flags = os.O_RDWR | os.O_CREATE | os.O_EXCL
	f, err := s.open(name, flags)
	for os.IsExist(err) { // Again, if others make one meanwhile.
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		f, err = s.open(name, flags)
	}
	return f, err
}

// Open opens a file for reading.
func (s *files) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if s.direct && filepath.Ext(name) == ".sst" && !slices.Contains(options, vfs.SequentialReadsOption) {
		if f, err := s.open(name, os.O_RDONLY|syscall.O_DIRECT, options...); err == nil {
			return f, nil
		} // If it is not for want of direct I/O, the next one tells why.
	}
	return s.open(name, os.O_RDONLY, options...)
}

// OpenReadWrite opens a file for both, and makes it if there is none.
func (s *files) OpenReadWrite(name string, options ...vfs.OpenOption) (vfs.File, error) {
	return s.open(name, os.O_RDWR|os.O_CREATE, options...)
}

// OpenDir opens a directory, for its Sync.
func (s *files) OpenDir(name string) (vfs.File, error) {
	f, err := s.engine.Open(name)
	if err != nil {
		return nil, err
	}
	return &dir{f}, nil
}

// ReuseForWrite gives a file another name and opens it with its content, to be written over.
func (s *files) ReuseForWrite(oldname, newname string) (vfs.File, error) {
	if err := s.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return s.open(newname, os.O_RDWR|os.O_CREATE)
}

// file has what vfs.File wants beyond a ringway.File.
type file struct {
	*ringway.File
	direct bool
	asked  sync.Once
	ranges bool // Parts of it can be synced.
}

// Preallocate allocates blocks without a change of the size: Pebble reads a log to its end.
func (f *file) Preallocate(offset, length int64) error {
	const keepSize = 1
	return f.call("preallocate", func(fd int) error { return syscall.Fallocate(fd, keepSize, offset, length) })
}

// SyncData is fdatasync.
func (f *file) SyncData() error { return f.Datasync() }

// SyncTo queues what is dirty in the first bytes for writing, and waits for what was queued before; that promises nothing.
// Where it is not known to work, it is SyncData.
func (f *file) SyncTo(length int64) (fullSync bool, err error) {
	f.asked.Do(func() { f.ranges = f.syncsRanges() })
	if !f.ranges {
		err = f.Datasync()
		return err == nil, err
	}
	const waitBefore, write = 1, 2
	return false, f.call("sync", func(fd int) error { return syscall.SyncFileRange(fd, 0, length, waitBefore|write) })
}

// Prefetch asks for a range in the page cache, which direct reads have no use for.
func (f *file) Prefetch(offset, length int64) error {
	if f.direct {
		return nil
	}
	return f.Advise(offset, length, ringway.WillNeed)
}

// call makes a system call on the descriptor, which is not closed meanwhile.
func (f *file) call(op string, do func(fd int) error) error {
	conn, err := f.File.File().SyscallConn()
	if err == nil {
		var inner error
		err = conn.Control(func(fd uintptr) {
			for inner = do(int(fd)); inner == syscall.EINTR; {
				inner = do(int(fd))
			}
		})
		if err == nil {
			err = inner
		}
	}
	if _, wrapped := err.(*os.PathError); err != nil && !wrapped {
		err = &os.PathError{Op: op, Path: f.Name(), Err: err}
	}
	return err
}

// syncsRanges tells whether sync_file_range does what it says, as far as is known: there are file systems (ZFS) that accept
// it and do nothing. vfs.Default goes by the same list.
func (f *file) syncsRanges() (known bool) {
	const ext = 0xef53
	_ = f.call("sync", func(fd int) error {
		var stat syscall.Statfs_t
		known = syscall.Fstatfs(fd, &stat) == nil && stat.Type == ext && syscall.SyncFileRange(fd, 0, 0, 0) != syscall.ENOSYS
		return nil
	})
	return known
}

// dir is a directory: there is nothing to be done to one but to sync it.
type dir struct{ *ringway.File }

func (d *dir) Preallocate(int64, int64) error          { return nil }
func (d *dir) Prefetch(int64, int64) error             { return nil }
func (d *dir) SyncData() error                         { return d.Sync() }
func (d *dir) SyncTo(int64) (fullSync bool, err error) { return false, nil }
