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
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"

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
	rangeSync
}

// SyncData is fdatasync.
func (f *file) SyncData() error { return f.Datasync() }

// Prefetch reads a range into the page cache. Direct reads do not use the page cache.
func (f *file) Prefetch(offset, length int64) error {
	if f.direct {
		return nil
	}
	err := f.Advise(offset, length, ringway.AdviceWillNeed)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil // It is a hint.
	}
	return err
}

// dir is a directory, which can only be synced.
type dir struct{ *ringway.File }

// Sync makes names durable. Windows has no such operation, and vfs.Default does nothing there.
func (d *dir) Sync() error {
	if runtime.GOOS == "windows" {
		return nil
	}
	return d.File.Sync()
}

func (d *dir) Preallocate(int64, int64) error          { return nil }
func (d *dir) Prefetch(int64, int64) error             { return nil }
func (d *dir) SyncData() error                         { return d.Sync() }
func (d *dir) SyncTo(int64) (fullSync bool, err error) { return false, nil }
