// Package pebblevfs2 is a vfs.FS for Pebble 2 on ringway's files; package pebblevfs is the one for
// Pebble 1.
//
//	engine, err := ringway.Default()
//	if err != nil {
//		return err
//	}
//	db, err := pebble.Open(dir, &pebble.Options{FS: pebblevfs2.New(engine)})
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
package pebblevfs2

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringway-io/ringway/go/internal/pebblefs"
	"github.com/ringway-io/ringway/go/ringway"
)

// Option configures New.
type Option func(*files)

// DirectTables makes tables (files with the suffix .sst) be read with O_DIRECT. Their data is then
// cached in Pebble's block cache only, and not in the page cache as well. When to use it is
// described at the function of that name in package pebblevfs.
func DirectTables() Option { return func(s *files) { s.shared.Direct = true } }

// DiskSlow sets what is called when a write, a sync or an operation on a name takes longer than a
// time; 0 means the 5 seconds that Pebble waits. It is called again every two seconds while that
// lasts. Without this option, each report is written to the standard logger. To receive the reports
// as an event of Pebble, pass the method of its listener:
//
//	listener := pebble.MakeLoggingEventListener(nil)
//	fs := pebblevfs2.New(engine, pebblevfs2.DiskSlow(0, listener.DiskSlow))
//	options := &pebble.Options{FS: fs, EventListener: &listener}
func DiskSlow(after time.Duration, report func(vfs.DiskSlowInfo)) Option {
	return func(s *files) {
		s.slow = report
		if after > 0 {
			s.after = after
		}
	}
}

// WriteStats sets what counts the bytes that Pebble writes, by category.
func WriteStats(stats *vfs.DiskWriteStatsCollector) Option {
	return func(s *files) { s.stats = stats }
}

// New returns a file system on an engine, with the detection of stalled disks. Close the engine
// after the databases. Operations on names are those of vfs.Default.
func New(engine *ringway.Engine, options ...Option) vfs.FS {
	s := &files{FS: vfs.Default, shared: pebblefs.Files{Engine: engine},
		after: pebblefs.SlowAfter, slow: func(info vfs.DiskSlowInfo) { pebblefs.LogSlow(info) }}
	for _, option := range options {
		option(s)
	}
	checked, closer := vfs.WithDiskHealthChecks(s, s.after, s.stats, s.slow)
	m := &monitored{checked}
	// The checks have a goroutine, which must not outlive the file system.
	runtime.AddCleanup(m, func(c io.Closer) { go c.Close() }, closer)
	return m
}

// monitored is the file system with the checks.
type monitored struct{ vfs.FS }

type files struct {
	vfs.FS
	shared pebblefs.Files
	after  time.Duration
	slow   func(vfs.DiskSlowInfo)
	stats  *vfs.DiskWriteStatsCollector
}

// Unwrap returns the file system for operations on names, which sees the same files.
func (s *files) Unwrap() vfs.FS { return s.FS }

// file is a file with Pebble's Stat.
type file struct{ *pebblefs.File }

func (f *file) Stat() (vfs.FileInfo, error) { return stat(f.File.File) }

// dir is a directory with Pebble's Stat.
type dir struct{ *pebblefs.Dir }

func (d *dir) Stat() (vfs.FileInfo, error) { return stat(d.File) }

// fileInfo describes a file, with its device.
type fileInfo struct {
	os.FileInfo
	device vfs.DeviceID
}

func (i fileInfo) DeviceID() vfs.DeviceID { return i.device }

// stat describes a file. Only package vfs can make a DeviceID, and it looks at names alone: on
// Linux the name below /proc is that of the open file, whatever it is called now.
func stat(f *ringway.File) (vfs.FileInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	all := fileInfo{FileInfo: info}
	look := func(name string) {
		if named, err := vfs.Default.Stat(name); err == nil {
			all.device = named.DeviceID()
		}
	}
	conn, err := f.OSFile().SyscallConn()
	if err != nil || runtime.GOOS != "linux" {
		look(f.Name())
		return all, nil
	}
	// Control holds the descriptor open: closed meanwhile, its number may be another file's.
	_ = conn.Control(func(fd uintptr) { look(fmt.Sprintf("/proc/self/fd/%d", fd)) })
	return all, nil
}

// opened returns a file as Pebble's interface, with the options applied.
func opened(f *pebblefs.File, err error, options ...vfs.OpenOption) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	file := &file{f}
	for _, option := range options {
		option.Apply(file)
	}
	return file, nil
}

func (s *files) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.shared.Create(name)
	return opened(f, err)
}

func (s *files) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.shared.Open(name, slices.Contains(options, vfs.SequentialReadsOption))
	return opened(f, err, options...)
}

func (s *files) OpenReadWrite(name string, _ vfs.DiskWriteCategory,
	options ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.shared.OpenReadWrite(name)
	return opened(f, err, options...)
}

func (s *files) OpenDir(name string) (vfs.File, error) {
	d, err := s.shared.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &dir{d}, nil
}

// ReuseForWrite renames a file and opens it with its contents, to overwrite them.
func (s *files) ReuseForWrite(oldname, newname string,
	category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := s.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return s.OpenReadWrite(newname, category)
}
