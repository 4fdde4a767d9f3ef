//go:build linux

// How the standard library uses the types: as an fs.FS and an http.File. Results are compared with
// those of package os. file_test.go tests the contracts themselves.

package ringway

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/ringway-io/ringway/go/internal/suite"
)

// http.FileServer serves files of an http.FileSystem, which opens this.
var _ http.File = (*File)(nil)

// tree makes a directory with difficult entries: links, empty directories, names that need
// escaping, a read-only file.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, errors.Join(os.MkdirAll(at("a/b/c"), 0o700), os.Mkdir(at("empty"), 0o700),
		os.WriteFile(at("a/large"), bytesOf(40_001), 0o400),
		os.WriteFile(at("a/b/nothing"), nil, 0o600),
		os.Symlink("large", at("a/link")), os.Symlink("b/c", at("a/to a directory"))))
	for _, name := range []string{"hello world", "ünï", "dotted..name"} {
		must(t, os.WriteFile(at(name), []byte("this is "+name), 0o600))
	}
	return dir
}

// sameAsOS compares a result with that of package os.
func sameAsOS(t *testing.T, what string, got, want any) {
	t.Helper()
	expect(t, reflect.DeepEqual(got, want), "%s: %.300v; package os: %.300v", what, got, want)
}

func text(err error) string { return fmt.Sprintf("%T %v", err, err) }

func described(info fs.FileInfo) string {
	if info == nil {
		return ""
	}
	return fmt.Sprint(info.Name(), info.Size(), info.Mode(), info.ModTime(), info.IsDir())
}

// shown makes a call whose result is text.
func shown[T any](call func(f fs.FS, name string) (T, error),
	show func(T) string) func(f fs.FS, name string) (string, error) {
	return func(f fs.FS, name string) (string, error) {
		result, err := call(f, name)
		return show(result), err
	}
}

// ofFS are the calls of a file system with a name.
var ofFS = map[string]func(f fs.FS, name string) (string, error){
	"Stat":     shown(fs.Stat, described),
	"Lstat":    shown(fs.Lstat, described),
	"ReadLink": fs.ReadLink,
	"ReadFile": shown(fs.ReadFile, func(p []byte) string { return string(p) }),
	"ReadDir":  shown(fs.ReadDir, func(all []fs.DirEntry) string { return fmt.Sprint(all) }),
	"Glob":     shown(fs.Glob, func(all []string) string { return fmt.Sprint(all) }),
	"Open": func(f fs.FS, name string) (string, error) {
		file, err := f.Open(name)
		if err != nil {
			return "", err
		}
		defer file.Close()
		info, err := file.Stat()
		return described(info), err
	},
}

func TestFSMatchesDirFS(t *testing.T) {
	dir := tree(t)
	reference := os.DirFS(dir)
	for _, backend := range testBackends {
		t.Run(string(backend), func(t *testing.T) {
			fsys := newOrSkip(t, Options{Backend: backend, AlwaysRing: true}).DirFS(dir)
			check(t, fstest.TestFS(fsys, "a/b/c", "a/large", "a/link", "hello world", "ünï",
				"empty"))
			sub := get(fs.Sub(fsys, "a"))(t)
			check(t, fstest.TestFS(sub, "large", "link", "b/c"))
			// An archive is the same byte for byte.
			archive := func(f fs.FS) string {
				var b bytes.Buffer
				w := tar.NewWriter(&b)
				must(t, errors.Join(w.AddFS(f), w.Close()))
				return b.String()
			}
			expect(t, archive(fsys) == archive(reference), "the archive differs")
			// fstest does not accept a dangling link.
			dangling := filepath.Join(dir, "a", "b", "dangling")
			must(t, os.Symlink("nowhere", dangling))
			defer os.Remove(dangling)
			for _, name := range []string{
				"a/large", "a/link", "a/b/nothing", "a/b/dangling", "a", "none", "", "/a", "../a",
				"a/../a", "a/", "a//b", ".", "a\x00b", "dotted..name", "a/link/below",
				"*", "a/*/*", "a/l*", "[", "h*o w*",
			} {
				for what, call := range ofFS {
					got, err := call(fsys, name)
					want, wantErr := call(reference, name)
					// The error of package os for ReadLink has the full path.
					sameAsOS(t, what+" "+name, got+text(err),
						want+strings.Replace(text(wantErr), dir+"/", "", 1))
				}
			}
		})
	}
}

// Directories are read in parts and to the end, as with package os.
func TestDirectories(t *testing.T) {
	dir := tree(t)
	type readable interface {
		io.Seeker
		ReadDir(int) ([]fs.DirEntry, error)
		Readdir(int) ([]fs.FileInfo, error)
		Readdirnames(int) ([]string, error)
	}
	reads := func(f readable, n int) (all string) {
		for range 12 {
			all += fmt.Sprintln(f.ReadDir(n))
		}
		all += fmt.Sprintln(f.Seek(0, io.SeekStart))
		for range 12 {
			all += fmt.Sprintln(f.Readdirnames(n))
		}
		_, _ = f.Seek(0, io.SeekStart)
		infos, err := f.Readdir(n)
		for _, info := range infos {
			all += described(info)
		}
		return all + fmt.Sprintln(err)
	}
	for _, backend := range testBackends {
		e := newOrSkip(t, Options{Backend: backend})
		for _, n := range []int{-1, 0, 1, 2, 100} {
			f := open(t, e, dir, os.O_RDONLY)
			reference := get(os.Open(dir))(t)
			sameAsOS(t, "parts of a directory", reads(f, n), reads(reference, n))
			check(t, errors.Join(f.Close(), reference.Close()))
			wantError(t, "ReadDir", errorOf(f.ReadDir(n)), os.ErrClosed)
			wantError(t, "Readdir", errorOf(f.Readdir(n)), os.ErrClosed)
			wantError(t, "Readdirnames", errorOf(f.Readdirnames(n)), os.ErrClosed)
		}
	}
}

// Files that the kernel generates report a size of 0, and some can be read only once.
func TestProcFiles(t *testing.T) {
	for _, backend := range testBackends {
		for _, always := range []bool{false, true} {
			e := newOrSkip(t, Options{Backend: backend, AlwaysRing: always})
			for _, name := range []string{"/proc/self/cmdline", "/proc/filesystems",
				"/proc/version", "/proc/self/limits",
				"/sys/kernel/mm/transparent_hugepage/enabled"} {
				want, err := os.ReadFile(name)
				if err != nil {
					continue // Not every machine has all of them.
				}
				got, err := io.ReadAll(open(t, e, name, os.O_RDONLY))
				sameAsOS(t, name, string(got)+text(err), string(want)+text(nil))
				got, err = e.DirFS(filepath.Dir(name)).ReadFile(filepath.Base(name))
				sameAsOS(t, "ReadFile of "+name, string(got)+text(err), string(want)+text(nil))
			}
			// This file is longer than a page and changes, but must be complete.
			maps, err := io.ReadAll(open(t, e, "/proc/self/maps", os.O_RDONLY))
			expect(t, err == nil && bytes.Contains(maps, []byte("[stack]")) &&
				bytes.HasSuffix(maps, []byte("\n")), "%s: maps: %q, %v", backend, maps, err)
			p := []byte{1, 2, 3}
			n, err := open(t, e, "/dev/zero", os.O_RDONLY).Read(p)
			sameAsOS(t, "/dev/zero", fmt.Sprint(n, p, err), "3 [0 0 0] <nil>")
			null := open(t, e, "/dev/null", os.O_RDWR)
			n, err = null.Write(p)
			sameAsOS(t, "/dev/null", fmt.Sprint(n, err), "3 <nil>")
			n, err = null.Read(p)
			sameAsOS(t, "/dev/null", fmt.Sprint(n, err), "0 EOF")
		}
	}
}

// Directories can be synced, also by a ring, and closed at the same time.
func TestSyncOfDirectories(t *testing.T) {
	for _, backend := range testBackends {
		t.Run(string(backend), func(t *testing.T) {
			e := newOrSkip(t, Options{Backend: backend, AlwaysRing: true})
			name := t.TempDir()
			before := e.Stats().Delivered
			dir := open(t, e, name, os.O_RDONLY)
			check(t, errors.Join(dir.Sync(), dir.Datasync()))
			expect(t, backend != BackendURing || e.Stats().Delivered == before+2,
				"the ring did not do the syncs")
			for range 50 {
				dir := open(t, e, name, os.O_RDONLY)
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						err := error(nil)
						for err == nil {
							err = dir.Sync()
						}
						wantError(t, "Sync", err, os.ErrClosed)
					})
				}
				runtime.Gosched()
				check(t, dir.Close())
				wg.Wait()
			}
		})
	}
}

// After a sync, no page of the file in the page cache is dirty.
func TestSyncWritesBack(t *testing.T) {
	suite.SeePages(t, t.TempDir())
	each(t, func(t *testing.T, e *Engine, direct int) {
		written := []Transfer{{P: bytesOf(1 << 19)}, {P: bytesOf(1 << 19), Off: 1 << 19}}
		apart := []Transfer{written[0], {P: written[1].P, Off: 1 << 20}}
		plain := func(f *File) { must(t, f.WriteBatch(written, NoSync)) }
		for what, do := range map[string]func(f *File) error{
			"Sync":            func(f *File) error { plain(f); return f.Sync() },
			"SyncContext":     func(f *File) error { plain(f); return f.SyncContext(t.Context()) },
			"Datasync":        func(f *File) error { plain(f); return f.Datasync() },
			"batch":           func(f *File) error { return f.WriteBatch(written, FullSync) },
			"batch, data":     func(f *File) error { return f.WriteBatch(written, DataSync) },
			"batch of ranges": func(f *File) error { return f.WriteBatch(apart, DataSync) },
		} {
			f := openIn(t, e, nil, os.O_RDWR|direct)
			must(t, do(f))
			dirty := suite.Dirty(t, f.Name())
			expect(t, dirty == 0, "%s: %d pages are dirty", what, dirty)
		}
	})
}
