//go:build linux

// How the standard library uses the types: as an fs.FS, an io.ReaderAt, a Reader or a Seeker.
// Results are compared with those of package os. file_test.go tests the contracts themselves.

package ringway

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/iotest"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/internal/suite"
)

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
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %.300v; package os: %.300v", what, got, want)
	}
}

func text(err error) string { return fmt.Sprintf("%T %v", err, err) }

func described(info fs.FileInfo) string {
	if info == nil {
		return ""
	}
	return fmt.Sprint(info.Name(), info.Size(), info.Mode(), info.ModTime(), info.IsDir())
}

// digest summarizes what is read.
func digest(r io.Reader) (string, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, struct{ io.Reader }{r})
	return fmt.Sprintf("%d bytes, %x", n, sum.Sum(nil)), err
}

// ofFS are the calls of a file system with a name.
var ofFS = map[string]func(f fs.FS, name string) (string, error){
	"Stat": func(f fs.FS, name string) (string, error) {
		info, err := fs.Stat(f, name)
		return described(info), err
	},
	"Lstat": func(f fs.FS, name string) (string, error) {
		info, err := fs.Lstat(f, name)
		return described(info), err
	},
	"ReadLink": fs.ReadLink,
	"ReadFile": func(f fs.FS, name string) (string, error) {
		p, err := fs.ReadFile(f, name)
		return string(p), err
	},
	"ReadDir": func(f fs.FS, name string) (string, error) {
		all, err := fs.ReadDir(f, name)
		return fmt.Sprint(all), err
	},
	"Open": func(f fs.FS, name string) (string, error) {
		file, err := f.Open(name)
		if err != nil {
			return "", err
		}
		defer file.Close()
		info, err := file.Stat()
		return described(info), err
	},
	"Glob": func(f fs.FS, name string) (string, error) {
		all, err := fs.Glob(f, name)
		return fmt.Sprint(all), err
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
			sub, err := fs.Sub(fsys, "a")
			must(t, err)
			check(t, fstest.TestFS(sub, "large", "link", "b/c"))
			// An archive is the same byte for byte.
			archive := func(f fs.FS) string {
				var b bytes.Buffer
				w := tar.NewWriter(&b)
				must(t, errors.Join(w.AddFS(f), w.Close()))
				return b.String()
			}
			if archive(fsys) != archive(reference) {
				t.Error("the archive differs")
			}
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

// seekable is what a File and an os.File have in common for readers of the standard library.
type seekable interface {
	io.ReadSeeker
	io.ReaderAt
}

// packed returns a file for each format.
func packed(t *testing.T) map[string][]byte {
	t.Helper()
	picture := image.NewGray(image.Rect(0, 0, 301, 203))
	for i := range picture.Pix {
		picture.Pix[i] = byte(i * i >> 3)
	}
	plain := bytes.Repeat([]byte("a line\nand another one\n"), 9000)
	var p, g, z, a bytes.Buffer
	must(t, png.Encode(&p, picture))
	w := gzip.NewWriter(&g)
	must(t, errors.Join(errorOf(w.Write(plain)), w.Close()))
	archive, parts := tar.NewWriter(&a), zip.NewWriter(&z)
	must(t, errors.Join(archive.AddFS(os.DirFS(tree(t))), archive.Close()))
	for i := range 12 {
		part, err := parts.CreateHeader(&zip.FileHeader{Name: fmt.Sprint("part ", i),
			Method: uint16(i % 2 * int(zip.Deflate))})
		must(t, err)
		must(t, errorOf(part.Write(plain[:i*9000])))
	}
	must(t, parts.Close())
	program, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	return map[string][]byte{"png": p.Bytes(), "gzip": g.Bytes(), "tar": a.Bytes(),
		"zip": z.Bytes(), "elf": program, "plain": plain}
}

// Readers of the standard library get from a File what they get from an os.File.
func TestStandardReaders(t *testing.T) {
	uses := map[string]func(f seekable, size int64) (string, error){
		"png": func(f seekable, _ int64) (string, error) {
			picture, err := png.Decode(f)
			if err != nil {
				return "", err
			}
			return digest(bytes.NewReader(picture.(*image.Gray).Pix))
		},
		"gzip": func(f seekable, _ int64) (string, error) {
			r, err := gzip.NewReader(f)
			if err != nil {
				return "", err
			}
			return digest(r)
		},
		"tar": func(f seekable, _ int64) (all string, err error) {
			for r := tar.NewReader(f); ; {
				h, err := r.Next()
				if err != nil {
					return all, err
				}
				sum, err := digest(r)
				all += fmt.Sprint(h.Name, h.Typeflag, h.Linkname, h.Mode, sum, err)
			}
		},
		"zip": func(f seekable, size int64) (all string, err error) {
			r, err := zip.NewReader(f, size)
			if err != nil {
				return "", err
			}
			for _, part := range r.File {
				p, err := fs.ReadFile(r, part.Name)
				all += fmt.Sprint(part.Name, len(p), sha256.Sum256(p), err)
			}
			return all, nil
		},
		"elf": func(f seekable, _ int64) (all string, err error) {
			program, err := elf.NewFile(f)
			if err != nil {
				return "", err
			}
			for _, section := range program.Sections {
				if section.Type != elf.SHT_NOBITS {
					p, err := section.Data()
					all += fmt.Sprint(section.Name, sha256.Sum256(p), err)
				}
			}
			return all, nil
		},
		"plain lines": func(f seekable, _ int64) (all string, err error) {
			r := bufio.NewScanner(f)
			for r.Scan() {
				all += r.Text()[:2]
			}
			return all, r.Err()
		},
	}
	for what, of := range map[string]func(f seekable) io.Reader{
		"bufio": func(f seekable) io.Reader { return bufio.NewReaderSize(f, 16) },
		"one by one": func(f seekable) io.Reader {
			return iotest.OneByteReader(io.LimitReader(f, 999))
		},
		"half":         func(f seekable) io.Reader { return iotest.HalfReader(f) },
		"data and end": func(f seekable) io.Reader { return iotest.DataErrReader(f) },
		"section":      func(f seekable) io.Reader { return io.NewSectionReader(f, 5, 1<<20) },
		"tee":          func(f seekable) io.Reader { return io.TeeReader(f, io.Discard) },
		"multi": func(f seekable) io.Reader {
			return io.MultiReader(io.LimitReader(f, 4097), f)
		},
	} {
		uses["plain "+what] = func(f seekable, _ int64) (string, error) { return digest(of(f)) }
	}
	names, sizes := map[string]string{}, map[string]int64{}
	for kind, p := range packed(t) {
		names[kind], sizes[kind] = fileWith(t, p), int64(len(p))
	}
	each(t, func(t *testing.T, e *Engine, direct int) {
		for what, use := range uses {
			kind, _, _ := strings.Cut(what, " ")
			plain, err := os.Open(names[kind])
			must(t, err)
			got, err := use(open(t, e, names[kind], os.O_RDONLY|direct), sizes[kind])
			want, wantErr := use(plain, sizes[kind])
			sameAsOS(t, what, got+text(err), want+text(wantErr))
			if len(want) < 20 {
				t.Errorf("%s: only %q was read", what, want)
			}
			plain.Close()
		}
	})
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
			entries, err := f.ReadDir(n)
			all += fmt.Sprintln(entries, err)
		}
		at, err := f.Seek(0, io.SeekStart)
		all += fmt.Sprintln(at, err)
		for range 12 {
			names, err := f.Readdirnames(n)
			all += fmt.Sprintln(names, err)
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
			reference, err := os.Open(dir)
			must(t, err)
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
			if err != nil || !bytes.Contains(maps, []byte("[stack]")) ||
				!bytes.HasSuffix(maps, []byte("\n")) {
				t.Errorf("%s: maps: %q, %v", backend, maps, err)
			}
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

// Directories can be synced, also by a ring, and closed at the same time. For files that cannot be
// synced the error is that of package os.
func TestSyncOfDirectoriesAndPipes(t *testing.T) {
	for _, backend := range testBackends {
		t.Run(string(backend), func(t *testing.T) {
			e := newOrSkip(t, Options{Backend: backend, AlwaysRing: true})
			name := t.TempDir()
			before := e.Stats().Delivered
			dir := open(t, e, name, os.O_RDONLY)
			check(t, errors.Join(dir.Sync(), dir.Datasync()))
			if backend == BackendURing && e.Stats().Delivered != before+2 {
				t.Error("the ring did not do the syncs")
			}
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
			r, w, err := os.Pipe()
			must(t, err)
			defer r.Close()
			want := text(w.Sync())
			pipe, err := e.NewFile(w)
			must(t, err)
			sameAsOS(t, "sync of a pipe", text(pipe.Sync()), want)
			var noPipe error = syscall.ESPIPE
			if len(testBackends) == 1 {
				noPipe = errors.ErrUnsupported
			}
			wantError(t, "Preallocate", pipe.Preallocate(0, 10), noPipe)
			wantError(t, "Advise", pipe.Advise(0, 0, AdviceWillNeed), noPipe)
			check(t, pipe.Close())
			wantError(t, "Sync", pipe.Sync(), os.ErrClosed)
		})
	}
}

// After a sync, no page of the file in the page cache is dirty.
func TestSyncWritesBack(t *testing.T) {
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
			dirty, known := suite.Dirty(f.Name())
			if !known {
				skip.Test(t, "this kernel or file system does not report dirty pages")
			}
			if dirty != 0 {
				t.Errorf("%s: %d pages are dirty", what, dirty)
			}
		}
	})
}

// opener is an http.FileSystem without an fs.FS: a File is also an http.File.
type opener struct {
	engine *Engine
	dir    string
}

func (o opener) Open(name string) (http.File, error) {
	return o.engine.Open(filepath.Join(o.dir, name))
}

// serve returns the response of a handler. The boundary between several ranges is random, so it is
// replaced.
func serve(h http.Handler, method, path string, header http.Header) string {
	r := httptest.NewRequest(method, path, nil)
	r.Header = header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	whole := fmt.Sprint(w.Code, w.Result().Header, w.Body)
	_, params, _ := mime.ParseMediaType(w.Header().Get("Content-Type"))
	if params["boundary"] != "" {
		whole = strings.ReplaceAll(whole, params["boundary"], "boundary")
	}
	return whole
}

// A File and an FS serve whole files, ranges, conditional requests and errors as package os does.
func TestHTTPServing(t *testing.T) {
	dir := tree(t)
	large := filepath.Join(dir, "a", "large")
	one := func(file io.ReadSeeker) http.Handler {
		changed := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "large.bin", changed, file)
		})
	}
	each(t, func(t *testing.T, e *Engine, direct int) {
		reference, err := os.Open(large)
		must(t, err)
		defer reference.Close()
		listed := http.FileServer(http.Dir(dir))
		for i, c := range []struct{ ours, theirs http.Handler }{
			{one(open(t, e, large, os.O_RDONLY|direct)), one(reference)},
			{http.FileServer(http.FS(e.DirFS(dir))), listed},
			{http.FileServer(opener{e, dir}), listed},
		} {
			for _, header := range []http.Header{
				{}, {"Range": {"bytes=0-0"}}, {"Range": {"bytes=4095-30000"}},
				{"Range": {"bytes=-17"}}, {"Range": {"bytes=40000-"}},
				{"Range": {"bytes=400000-"}}, {"Range": {"bytes=5-1"}},
				{"Range": {"bytes=1-3,4096-9000,39999-"}},
				{"If-Modified-Since": {"Fri, 03 Jan 2020 00:00:00 GMT"}},
				{"If-Modified-Since": {"Fri, 03 Jan 2200 00:00:00 GMT"}},
				{"If-Unmodified-Since": {"Wed, 01 Jan 2020 00:00:00 GMT"}},
			} {
				for _, request := range []string{"GET /a/large", "HEAD /a/large", "GET /"} {
					method, path, _ := strings.Cut(request, " ")
					sameAsOS(t, fmt.Sprint(i, request, header),
						serve(c.ours, method, path, header), serve(c.theirs, method, path, header))
				}
			}
		}
	})
}
