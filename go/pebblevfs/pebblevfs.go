//go:build linux

// Package pebblevfs is a vfs.FS for Pebble whose files are ringway's: tables are read, and the log and tables are synced,
// without a thread for each.
//
//	db, err := pebble.Open(dir, &pebble.Options{FS: pebblevfs.New(ringway.Default())})
package pebblevfs

import (
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/vfs"

	ringway "github.com/ringway-io/ringway/go"
)

// New is a file system over an engine. Everything about names is vfs.Default's.
func New(engine *ringway.Engine) vfs.FS { return &files{vfs.Default, engine} }

type files struct {
	vfs.FS
	engine *ringway.Engine
}

// Unwrap is the file system that does what is about names.
func (s *files) Unwrap() vfs.FS { return s.FS }

func (s *files) open(name string, flag int, options ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.engine.OpenFile(name, flag, 0o666)
	if err != nil {
		return nil, err
	}
	file := &file{f}
	for _, option := range options {
		option.Apply(file)
	}
	return file, nil
}

// Create makes a file anew: one of that name is removed, not truncated, since somebody may still read it.
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

func (s *files) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	return s.open(name, os.O_RDONLY, options...)
}

func (s *files) OpenReadWrite(name string, options ...vfs.OpenOption) (vfs.File, error) {
	return s.open(name, os.O_RDWR|os.O_CREATE, options...)
}

func (s *files) ReuseForWrite(oldname, newname string) (vfs.File, error) {
	if err := s.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return s.open(newname, os.O_RDWR|os.O_CREATE)
}

// file has what vfs.File wants beyond a ringway.File.
type file struct {
	*ringway.File
}

// Preallocate allocates blocks without a change of the size: Pebble reads a log to its end.
func (f *file) Preallocate(offset, length int64) error {
	const keepSize = 1
	return syscall.Fallocate(int(f.Fd()), keepSize, offset, length)
}

func (f *file) SyncData() error { return f.Datasync() }

// SyncTo queues what is dirty for writing, and waits for what was queued before.
func (f *file) SyncTo(length int64) (fullSync bool, err error) {
	const waitBefore, write = 1, 2
	err = syscall.SyncFileRange(int(f.Fd()), 0, length, waitBefore|write)
	if err == syscall.ENOSYS {
		return true, f.Datasync()
	}
	return false, err
}

func (f *file) Prefetch(offset, length int64) error {
	return f.Advise(offset, length, ringway.WillNeed)
}
