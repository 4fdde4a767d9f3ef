//go:build linux

// Package ringwayhook makes Pebble's tests use the file system that RINGWAY_SUITE_FS names: "os"
// for Pebble's vfs.Default, or a backend of ringway. suite_test.go adds it to a copy of Pebble.
// vfs.Default is that file system then, and vfs.NewMem returns a new directory on it.
//
// It counts operations in memory shared with suite_test.go.
package ringwayhook

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/cockroachdb/pebble/vfs"

	"github.com/ringway-io/ringway/go/pebblevfs"
	"github.com/ringway-io/ringway/go/ringway"
)

// counts has the layout that suite_test.go expects.
type counts struct{ files, reads, writes, syncs, operations atomic.Uint64 }

var (
	seen   = shared()
	engine *ringway.Engine
)

func init() {
	under := &counted{FS: vfs.Default}
	if name := os.Getenv("RINGWAY_SUITE_FS"); name != "os" {
		// AlwaysRing sends buffered reads to the ring, too. Linux AIO supports direct reads only.
		var err error
		if engine, err = ringway.New(ringway.Options{Backend: ringway.Backend(name), AlwaysRing: true}); err != nil {
			panic(err)
		}
		var options []pebblevfs.Option
		if name == string(ringway.BackendKAIO) {
			options = append(options, pebblevfs.DirectTables())
		}
		// Without the checks for stalled disks, which vfs.Default does not have either.
		checked := pebblevfs.New(engine, options...)
		under.FS = checked.(interface{ Unwrap() vfs.FS }).Unwrap()
	}
	vfs.Default = under
	below := os.Getenv("RINGWAY_SUITE_DIR")
	if below == "" {
		return
	}
	vfs.Disk = func() vfs.FS {
		dir, err := os.MkdirTemp(below, "")
		if err != nil {
			panic(err)
		}
		return &rooted{FS: under, dir: dir}
	}
}

func shared() *counts {
	f, err := os.OpenFile(os.Getenv("RINGWAY_SUITE_COUNTS"), os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	memory, err := syscall.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(counts{})),
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*counts)(unsafe.Pointer(unsafe.SliceData(memory)))
}

// counted counts calls. It has no Unwrap: tests that ask for the root get this file system.
type counted struct{ vfs.FS }

func count(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	seen.files.Add(1)
	return &file{f}, nil
}

func (c *counted) Create(name string) (vfs.File, error) { return count(c.FS.Create(name)) }
func (c *counted) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	return count(c.FS.Open(name, o...))
}
func (c *counted) OpenReadWrite(name string, o ...vfs.OpenOption) (vfs.File, error) {
	return count(c.FS.OpenReadWrite(name, o...))
}
func (c *counted) OpenDir(name string) (vfs.File, error) { return count(c.FS.OpenDir(name)) }
func (c *counted) ReuseForWrite(from, to string) (vfs.File, error) {
	return count(c.FS.ReuseForWrite(from, to))
}

type file struct{ vfs.File }

func (f *file) Read(p []byte) (int, error) { seen.reads.Add(1); return f.File.Read(p) }
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	seen.reads.Add(1)
	return f.File.ReadAt(p, off)
}
func (f *file) Write(p []byte) (int, error) { seen.writes.Add(1); return f.File.Write(p) }
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	seen.writes.Add(1)
	return f.File.WriteAt(p, off)
}
func (f *file) Sync() error                       { seen.syncs.Add(1); return f.File.Sync() }
func (f *file) SyncData() error                   { seen.syncs.Add(1); return f.File.SyncData() }
func (f *file) SyncTo(length int64) (bool, error) { seen.syncs.Add(1); return f.File.SyncTo(length) }

// delivered is the part of the engine's count that is in the shared memory.
var delivered atomic.Uint64

func (f *file) Close() error {
	if engine != nil {
		now := engine.Stats().Delivered
		if before := delivered.Swap(now); now > before {
			seen.operations.Add(now - before)
		}
	}
	return f.File.Close()
}

// rooted is a directory as a file system of its own. Relative names are relative to it.
type rooted struct {
	vfs.FS
	dir string
}

func (r *rooted) at(name string) string { return filepath.Join(r.dir, name) }

// named sets the requested name in errors, with the texts of MemFS, which tests compare.
func named(err error, name string) error {
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		path.Path = name
		for _, plain := range []error{fs.ErrNotExist, fs.ErrExist} {
			if errors.Is(path.Err, plain) {
				path.Err = plain
			}
		}
	}
	return err
}

func (r *rooted) Create(name string) (vfs.File, error) {
	f, err := r.FS.Create(r.at(name))
	return f, named(err, name)
}

func (r *rooted) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := r.FS.Open(r.at(name), o...)
	return f, named(err, name)
}

func (r *rooted) OpenReadWrite(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := r.FS.OpenReadWrite(r.at(name), o...)
	return f, named(err, name)
}

func (r *rooted) OpenDir(name string) (vfs.File, error) {
	f, err := r.FS.OpenDir(r.at(name))
	return f, named(err, name)
}

func (r *rooted) ReuseForWrite(from, to string) (vfs.File, error) {
	f, err := r.FS.ReuseForWrite(r.at(from), r.at(to))
	return f, named(err, to)
}

func (r *rooted) Lock(name string) (io.Closer, error) {
	lock, err := r.FS.Lock(r.at(name))
	return lock, named(err, name)
}

func (r *rooted) List(name string) ([]string, error) {
	names, err := r.FS.List(r.at(name))
	return names, named(err, name)
}

func (r *rooted) Stat(name string) (os.FileInfo, error) {
	info, err := r.FS.Stat(r.at(name))
	return info, named(err, name)
}

func (r *rooted) GetDiskUsage(name string) (vfs.DiskUsage, error) {
	usage, err := r.FS.GetDiskUsage(r.at(name))
	return usage, named(err, name)
}

func (r *rooted) Link(from, to string) error   { return r.FS.Link(r.at(from), r.at(to)) }
func (r *rooted) Rename(from, to string) error { return r.FS.Rename(r.at(from), r.at(to)) }
func (r *rooted) Remove(name string) error     { return named(r.FS.Remove(r.at(name)), name) }
func (r *rooted) RemoveAll(name string) error  { return named(r.FS.RemoveAll(r.at(name)), name) }
func (r *rooted) MkdirAll(name string, mode os.FileMode) error {
	return named(r.FS.MkdirAll(r.at(name), mode), name)
}
