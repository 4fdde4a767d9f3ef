//go:build linux

// Package pebblevfs is a vfs.FS for Pebble on ringway's files.
//
//	engine, err := ringway.Default()
//	if err != nil {
//		return err
//	}
//	db, err := pebble.Open(dir, &pebble.Options{FS: pebblevfs.New(engine)})
//
// Table reads that miss the page cache share submissions and block no thread. With [DirectTables],
// that holds for all table reads. Cached reads, writes and syncs are plain system calls, as with
// vfs.Default. [ringway.Options].Threads limits how many of them block at
// once.
//
// Each method has the flags, effects and kinds of errors of vfs.Default. A database written with
// one can be opened with the other.
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

// Option configures New.
type Option func(*files)

// DirectTables makes tables (files with the suffix .sst) be read with O_DIRECT. Their data is then
// cached in Pebble's block cache only, and not in the page cache as well. Tables are complete
// before they are opened for reading and never change, so both kinds of reads return the same
// bytes.
//
// Use it with a large block cache and a working set much larger than memory; otherwise the page
// cache is faster. Files that Pebble reads sequentially (vfs.SequentialReadsOption, in compactions)
// stay buffered, since the kernel reads ahead there. So do files on a file system without direct
// I/O.
func DirectTables() Option { return func(s *files) { s.direct = true } }

// New returns a file system on an engine. Close the engine after the databases. Operations on names
// are those of vfs.Default.
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

// Unwrap returns the file system for operations on names, which sees the same files; vfs.Root uses
// it.
func (s *files) Unwrap() vfs.FS { return s.FS }

func (s *files) open(name string, flag int, options ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.engine.OpenFile(name, flag, 0o666)
	if err != nil {
		return nil, err
	}
	file := &file{File: f, direct: flag&ringway.Direct != 0}
	for _, option := range options {
		option.Apply(file)
	}
	return file, nil
}

// Create creates a file. It removes an existing file rather than truncating it, since that may have
// other links and readers.
func (s *files) Create(name string) (vfs.File, error) {
	const flags = os.O_RDWR | os.O_CREATE | os.O_EXCL
	f, err := s.open(name, flags)
	for os.IsExist(err) { // Another process may create it again.
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		f, err = s.open(name, flags)
	}
	return f, err
}

// Open opens a file for reading.
func (s *files) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if s.direct && filepath.Ext(name) == ".sst" &&
		!slices.Contains(options, vfs.SequentialReadsOption) {
		if f, err := s.open(name, os.O_RDONLY|ringway.Direct, options...); err == nil {
			return f, nil
		} // The buffered open returns every error that is not about direct I/O.
	}
	return s.open(name, os.O_RDONLY, options...)
}

// OpenReadWrite opens a file for reading and writing, and creates it if necessary.
func (s *files) OpenReadWrite(name string, options ...vfs.OpenOption) (vfs.File, error) {
	return s.open(name, os.O_RDWR|os.O_CREATE, options...)
}

// OpenDir opens a directory, to sync it.
func (s *files) OpenDir(name string) (vfs.File, error) {
	f, err := s.engine.Open(name)
	if err != nil {
		return nil, err
	}
	return &dir{f}, nil
}

// ReuseForWrite renames a file and opens it with its contents, to overwrite them.
func (s *files) ReuseForWrite(oldname, newname string) (vfs.File, error) {
	if err := s.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return s.open(newname, os.O_RDWR|os.O_CREATE)
}

// file adds the methods of vfs.File that ringway.File does not have.
type file struct {
	*ringway.File
	direct bool
	probe  sync.Once
	ranges bool // sync_file_range works.
}

// Preallocate allocates blocks without changing the file's size: Pebble reads a log to its end.
func (f *file) Preallocate(offset, length int64) error {
	const keepSize = 1
	return f.call("preallocate",
		func(fd int) error { return syscall.Fallocate(fd, keepSize, offset, length) })
}

// SyncData is fdatasync.
func (f *file) SyncData() error { return f.Datasync() }

// SyncTo starts to write the dirty pages of the first length bytes, and waits for writes started
// before. It does not make them durable. Where sync_file_range does not work, it is SyncData.
func (f *file) SyncTo(length int64) (fullSync bool, err error) {
	f.probe.Do(func() { f.ranges = f.syncsRanges() })
	if !f.ranges {
		err = f.Datasync()
		return err == nil, err
	}
	const waitBefore, write = 1, 2
	return false, f.call("sync",
		func(fd int) error { return syscall.SyncFileRange(fd, 0, length, waitBefore|write) })
}

// Prefetch reads a range into the page cache. Direct reads do not use the page cache.
func (f *file) Prefetch(offset, length int64) error {
	if f.direct {
		return nil
	}
	return f.Advise(offset, length, ringway.AdviceWillNeed)
}

// call makes a system call on the descriptor, which stays open until it returns.
func (f *file) call(op string, do func(fd int) error) error {
	conn, err := f.File.OSFile().SyscallConn()
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

// syncsRanges reports whether sync_file_range is known to work on this file system: ZFS accepts the
// call and does nothing. vfs.Default uses the same list.
func (f *file) syncsRanges() (known bool) {
	const ext = 0xef53
	_ = f.call("sync", func(fd int) error {
		var stat syscall.Statfs_t
		known = syscall.Fstatfs(fd, &stat) == nil && stat.Type == ext &&
			syscall.SyncFileRange(fd, 0, 0, 0) != syscall.ENOSYS
		return nil
	})
	return known
}

// dir is a directory, which can only be synced.
type dir struct{ *ringway.File }

func (d *dir) Preallocate(int64, int64) error          { return nil }
func (d *dir) Prefetch(int64, int64) error             { return nil }
func (d *dir) SyncData() error                         { return d.Sync() }
func (d *dir) SyncTo(int64) (fullSync bool, err error) { return false, nil }
