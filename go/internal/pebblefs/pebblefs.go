// Package pebblefs is what the file systems for the versions of Pebble have in common: how files
// are opened, and the methods of files. It does not know Pebble, whose versions have interfaces of
// their own.
package pebblefs

import (
	"errors"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/ringway-io/ringway/go/ringway"
)

// SlowAfter is how long a write, a sync or an operation on a name takes before Pebble reports that
// the disk is slow. It is Pebble's own default.
const SlowAfter = 5 * time.Second

// LogSlow is the report of a slow disk if the program has none.
func LogSlow(info any) { log.Printf("pebblevfs: disk slowness detected: %v", info) }

// Files opens files. Its methods have the flags, effects and kinds of errors of Pebble's
// vfs.Default.
type Files struct {
	Engine *ringway.Engine
	Direct bool // Read tables with O_DIRECT.
}

func (s *Files) open(name string, flag int) (*File, error) {
	f, err := s.Engine.OpenFile(name, flag, 0o666)
	if err != nil {
		return nil, err
	}
	return &File{File: f, direct: flag&ringway.Direct != 0}, nil
}

// Create creates a file. It removes an existing file rather than truncating it, since that may have
// other links and readers.
func (s *Files) Create(name string) (*File, error) {
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

// Open opens a file for reading, in sequence or not.
func (s *Files) Open(name string, isSequential bool) (*File, error) {
	if s.Direct && filepath.Ext(name) == ".sst" && !isSequential {
		if f, err := s.open(name, os.O_RDONLY|ringway.Direct); err == nil {
			return f, nil
		} // The buffered open returns every error that is not about direct I/O.
	}
	return s.open(name, os.O_RDONLY)
}

// OpenReadWrite opens a file for reading and writing, and creates it if necessary.
func (s *Files) OpenReadWrite(name string) (*File, error) {
	return s.open(name, os.O_RDWR|os.O_CREATE)
}

// OpenDir opens a directory, to sync it.
func (s *Files) OpenDir(name string) (*Dir, error) {
	f, err := s.Engine.Open(name)
	if err != nil {
		return nil, err
	}
	return &Dir{f}, nil
}

// File adds the methods of Pebble's vfs.File that ringway.File does not have.
type File struct {
	*ringway.File
	direct bool
	//lint:ignore U1000 It is empty on systems without sync_file_range.
	rangeSync
}

// SyncData is fdatasync.
func (f *File) SyncData() error { return f.Datasync() }

// Prefetch reads a range into the page cache. Direct reads do not use the page cache. A length of 0
// is nothing, as for readahead(2): to posix_fadvise(2) it is the rest of the file.
func (f *File) Prefetch(offset, length int64) error {
	if f.direct || length == 0 {
		return nil
	}
	err := f.Advise(offset, length, ringway.AdviceWillNeed)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil // It is a hint.
	}
	return err
}

// Dir is a directory, which can only be synced.
type Dir struct{ *ringway.File }

// Sync makes names durable. Windows has no such operation, and vfs.Default does nothing there.
func (d *Dir) Sync() error {
	if runtime.GOOS == "windows" {
		return nil
	}
	return d.File.Sync()
}

// Preallocate does nothing.
func (d *Dir) Preallocate(int64, int64) error { return nil }

// Prefetch does nothing.
func (d *Dir) Prefetch(int64, int64) error { return nil }

// SyncData is Sync.
func (d *Dir) SyncData() error { return d.Sync() }

// SyncTo does nothing.
func (d *Dir) SyncTo(int64) (fullSync bool, err error) { return false, nil }
