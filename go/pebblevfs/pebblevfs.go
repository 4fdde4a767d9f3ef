// Package pebblevfs is a vfs.FS for Pebble 1 on ringway's files; package pebblevfs2 is the one for
// Pebble 2.
//
//	engine, err := ringway.Default()
//	if err != nil {
//		return err
//	}
//	db, err := pebble.Open(dir, &pebble.Options{FS: pebblevfs.New(engine)})
//
// Table reads that miss the page cache share submissions and block no thread. With [DirectTables],
// that holds for all table reads. Cached reads, writes and syncs are plain system calls, as with
// vfs.Default. [ringway.Options].Threads limits how many of them block at once.
//
// Each method has the flags, effects and kinds of errors of vfs.Default. A database written with
// one can be opened with the other.
//
// Pebble detects a stalled disk only on its default file system. New therefore does it itself, as
// Options.WithFSDefaults does, which must not be called as well: [DiskSlow]. As on Pebble's default
// file system, a second Close of a file panics.
package pebblevfs

import (
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/vfs"

	"github.com/ringway-io/ringway/go/internal/pebblefs"
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
func DirectTables() Option { return func(s *files) { s.shared.Direct = true } }

// DiskSlow sets what is called when a write, a sync or an operation on a name takes longer than a
// time; 0 means the 5 seconds that Pebble waits. It is called again every two seconds while that
// lasts. Without this option, each report is written to the standard logger. To receive the reports
// as an event of Pebble, pass the method of its listener:
//
//	listener := pebble.MakeLoggingEventListener(nil)
//	fs := pebblevfs.New(engine, pebblevfs.DiskSlow(0, listener.DiskSlow))
//	options := &pebble.Options{FS: fs, EventListener: &listener}
func DiskSlow(after time.Duration, report func(vfs.DiskSlowInfo)) Option {
	return func(s *files) {
		s.slow = report
		if after > 0 {
			s.after = after
		}
	}
}

// New returns a file system on an engine, with the detection of stalled disks. Close the engine
// after the databases. Operations on names are those of vfs.Default.
func New(engine *ringway.Engine, options ...Option) vfs.FS {
	s := &files{FS: vfs.Default, shared: pebblefs.Files{Engine: engine},
		after: pebblefs.SlowAfter, slow: func(info vfs.DiskSlowInfo) { pebblefs.LogSlow(info) }}
	for _, option := range options {
		option(s)
	}
	checked, closer := vfs.WithDiskHealthChecks(s, s.after, s.slow)
	m := &monitored{checked, s}
	// The checks have a goroutine, which must not outlive the file system.
	runtime.AddCleanup(m, func(c io.Closer) { go c.Close() }, closer)
	return m
}

// monitored is the file system with the checks.
type monitored struct {
	vfs.FS
	under *files
}

// Unwrap returns the file system without the checks; vfs.Root uses it.
func (m *monitored) Unwrap() vfs.FS { return m.under }

type files struct {
	vfs.FS
	shared pebblefs.Files
	after  time.Duration
	slow   func(vfs.DiskSlowInfo)
}

// Unwrap returns the file system for operations on names, which sees the same files.
func (s *files) Unwrap() vfs.FS { return s.FS }

// opened returns a file as Pebble's interface, with the options applied.
func opened(f *pebblefs.File, err error, options ...vfs.OpenOption) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	for _, option := range options {
		option.Apply(f)
	}
	return f, nil
}

func (s *files) Create(name string) (vfs.File, error) {
	f, err := s.shared.Create(name)
	return opened(f, err)
}

func (s *files) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.shared.Open(name, slices.Contains(options, vfs.SequentialReadsOption))
	return opened(f, err, options...)
}

func (s *files) OpenReadWrite(name string, options ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.shared.OpenReadWrite(name)
	return opened(f, err, options...)
}

func (s *files) OpenDir(name string) (vfs.File, error) {
	d, err := s.shared.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// ReuseForWrite renames a file and opens it with its contents, to overwrite them.
func (s *files) ReuseForWrite(oldname, newname string) (vfs.File, error) {
	if err := s.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return s.OpenReadWrite(newname)
}
