//go:build linux

// Package ringwayhook puts Pebble's own tests on the file system that RINGWAY_SUITE_FS names: "os" for Pebble's vfs.Default, or one of
// ringway's backends. suite_test.go places this in a copy of Pebble. The file system is vfs.Default then, and what vfs.NewMem makes
// is a new directory on it.
//
// Whatever passes through is counted, in memory that is shared with suite_test.go.
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

// counts has the layout that suite_test.go reads.
type counts struct{ files, reads, writes, syncs, operations atomic.Uint64 }

var (
	seen   = shared()
	engine *ringway.Engine
)

func init() {
	under := &counted{FS: vfs.Default}
	if name := os.Getenv("RINGWAY_SUITE_FS"); name != "os" {
		// AlwaysRing: so that the ring has the buffered reads too. KAIO has direct ones alone.
		var err error
		if engine, err = ringway.New(ringway.Options{Backend: ringway.Backend(name), AlwaysRing: true}); err != nil {
			panic(err)
		}
		var options []pebblevfs.Option
		if name == string(ringway.KAIO) {
			options = append(options, pebblevfs.DirectTables())
		}
		under.FS = pebblevfs.New(engine, options...)
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
	memory, err := syscall.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(counts{})), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*counts)(unsafe.Pointer(unsafe.SliceData(memory)))
}

// counted counts. (There is no Unwrap: to tests that ask for the root, this is it.)
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

// told is what the engine has done, as the shared memory knows it.
var told atomic.Uint64

func (f *file) Close() error {
	if engine != nil {
		now := engine.Stats().Delivered
		if before := told.Swap(now); now > before {
			seen.operations.Add(now - before)
		}
	}
	return f.File.Close()
}

// rooted is a directory as if it were everything. Relative names are below it too.
type rooted struct {
	vfs.FS
	dir string
}

func (r *rooted) at(name string) string { return filepath.Join(r.dir, name) }

// named has errors tell the name that was asked for, with the words that MemFS has, which tests compare.
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
