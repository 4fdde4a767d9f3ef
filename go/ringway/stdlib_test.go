//go:build linux

// How the standard library uses the types: as an fs.FS, an io.ReaderAt, a Reader or a Writer.
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
	"image/color"
	"image/png"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net"
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
	"text/template"
	"time"

	"github.com/ringway-io/ringway/go/internal/suite"
)

// tree makes a directory with difficult entries: links, empty directories, names that need
// escaping, a read-only file.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"empty", "a/b/c"} {
		must(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	for _, name := range []string{"page.tmpl", "hello world", "ünï", "dotted..name"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{{.}} is in "+name),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "a", "large"), bytesOf(40_001), 0o400),
		os.WriteFile(filepath.Join(dir, "a", "b", "nothing"), nil, 0o600),
		os.Symlink("large", filepath.Join(dir, "a", "link")),
		os.Symlink("b/c", filepath.Join(dir, "a", "to a directory")),
	} {
		must(t, err)
	}
	return dir
}

func TestFSMatchesDirFS(t *testing.T) {
	dir := tree(t)
	reference := os.DirFS(dir)
	for _, backend := range testBackends {
		t.Run(string(backend), func(t *testing.T) {
			e := engine(t, Options{Backend: backend, AlwaysRing: true})
			fsys := e.DirFS(dir)
			check(t, fstest.TestFS(fsys, "a/b/c", "a/large", "a/link", "hello world", "ünï",
				"empty"))
			for name, expected := range map[string][]string{"a": {"large", "link", "b/c"},
				"a/b": {"nothing", "c"}, "empty": nil} {
				sub, err := fs.Sub(fsys, name)
				must(t, err)
				if err := fstest.TestFS(sub, expected...); err != nil {
					t.Error(name, err)
				}
			}
			// fstest does not accept a dangling link.
			dangling := filepath.Join(dir, "a", "b", "dangling")
			must(t, os.Symlink("nowhere", dangling))
			defer os.Remove(dangling)
			sameAsOS(t, "walk", walk(fsys), walk(reference))
			for _, pattern := range []string{"*", "*/*", "a/*/*", "a/l*", "[", "none*", "h*o w*"} {
				got, err := fs.Glob(fsys, pattern)
				want, wantErr := fs.Glob(reference, pattern)
				sameAsOS(t, pattern, []any{got, err}, []any{want, wantErr})
			}
			for _, name := range []string{
				"a/large", "a/link", "a/b/nothing", "a/b/dangling", "a", "none", "", "/a", "../a",
				"a/../a", "a/", "a//b", ".",
				"a\x00b", "dotted..name", "a/link/below",
			} {
				got, err := fs.ReadFile(fsys, name)
				want, wantErr := fs.ReadFile(reference, name)
				sameAsOS(t, "ReadFile "+name, []any{string(got), text(err)},
					[]any{string(want), text(wantErr)})
				for what, call := range map[string]func(fs.FS) (any, error){
					"Stat": func(f fs.FS) (any, error) {
						info, err := fs.Stat(f, name)
						return described(info), err
					},
					"Lstat": func(f fs.FS) (any, error) {
						info, err := fs.Lstat(f, name)
						return described(info), err
					},
					"ReadLink": func(f fs.FS) (any, error) { return fs.ReadLink(f, name) },
					"ReadDir": func(f fs.FS) (any, error) {
						all, err := fs.ReadDir(f, name)
						return fmt.Sprint(all), err
					},
					"Open": func(f fs.FS) (any, error) {
						file, err := f.Open(name)
						if err != nil {
							return nil, err
						}
						defer file.Close()
						info, err := file.Stat()
						return described(info), err
					},
				} {
					got, err := call(fsys)
					want, wantErr := call(reference)
					// The error of package os for ReadLink has the full path.
					sameAsOS(t, what+" "+name, []any{got, text(err)},
						[]any{want, strings.Replace(text(wantErr), dir+"/", "", 1)})
				}
			}
		})
	}
}

// sameAsOS compares a result with that of package os.
func sameAsOS(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %.300v; package os: %.300v", what, got, want)
	}
}

func text(err error) string { return fmt.Sprintf("%T %v", err, err) }

func described(info fs.FileInfo) any {
	if info == nil {
		return nil
	}
	return fmt.Sprint(info.Name(), info.Size(), info.Mode(), info.ModTime(), info.IsDir())
}

func walk(fsys fs.FS) (seen []string) {
	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		info, infoErr := d.Info()
		seen = append(seen, fmt.Sprint(path, d, err, described(info), infoErr))
		return nil
	})
	return append(seen, fmt.Sprint(err))
}

// An archive of a tree is the same byte for byte, and a File with an archive can be unpacked.
func TestArchives(t *testing.T) {
	dir := tree(t)
	var want bytes.Buffer
	w := tar.NewWriter(&want)
	must(t, errors.Join(w.AddFS(os.DirFS(dir)), w.Close()))
	large := bytesOf(200_000)
	var many bytes.Buffer
	z := zip.NewWriter(&many)
	for i := range 12 {
		part, err := z.CreateHeader(&zip.FileHeader{Name: fmt.Sprint("part ", i),
			Method: uint16(i % 2 * int(zip.Deflate))})
		if err == nil {
			_, err = part.Write(large[i*1000:][:i*900])
		}
		must(t, err)
	}
	must(t, z.Close())
	archive, zips := fileWith(t, want.Bytes()), fileWith(t, many.Bytes())
	each(t, func(t *testing.T, e *Engine, direct int) {
		var got bytes.Buffer
		w := tar.NewWriter(&got)
		must(t, errors.Join(w.AddFS(e.DirFS(dir)), w.Close()))
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Error("the archive differs")
		}
		sameAsOS(t, "tar from a file", tarred(t, open(t, e, archive, os.O_RDONLY|direct)),
			tarred(t, bytes.NewReader(want.Bytes())))

		f := open(t, e, zips, os.O_RDONLY|direct)
		r, err := zip.NewReader(f, int64(many.Len()))
		must(t, err)
		check(t, fstest.TestFS(r, "part 0", "part 11"))
		var wg sync.WaitGroup
		for i, part := range r.File {
			wg.Go(func() {
				p, err := fs.ReadFile(r, part.Name)
				if err != nil || !bytes.Equal(p, large[i*1000:][:i*900]) {
					t.Error("wrong bytes:", part.Name, len(p), err)
				}
			})
		}
		wg.Wait()
	})
}

// tarred lists a tar archive.
func tarred(t *testing.T, r io.Reader) (all []string) {
	t.Helper()
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return all
		}
		must(t, err)
		sum := sha256.New()
		if _, err := io.Copy(sum, archive); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %c %s %o %d %x", h.Name, h.Typeflag, h.Linkname, h.Mode,
			h.Size, sum.Sum(nil)))
	}
}

func TestStandardReaders(t *testing.T) {
	picture := image.NewGray(image.Rect(0, 0, 301, 203))
	for i := range picture.Pix {
		picture.Pix[i] = byte(i * i >> 3)
	}
	picture.Set(300, 202, color.White)
	var encoded, packed bytes.Buffer
	must(t, png.Encode(&encoded, picture))
	content := bytesOf(400_001)
	for i := range content {
		content[i] &= 15
	}
	g := gzip.NewWriter(&packed)
	if _, err := g.Write(content); err != nil {
		t.Fatal(err)
	}
	must(t, g.Close())
	pngFile, gzipFile, plain := fileWith(t, encoded.Bytes()), fileWith(t,
		packed.Bytes()), fileWith(t, content)
	lines := fileWith(t, []byte(strings.Repeat("a line\nand another one\n", 9000)))
	self, err := os.Executable()
	must(t, err)
	binary, err := elf.Open(self)
	must(t, err)
	defer binary.Close()

	each(t, func(t *testing.T, e *Engine, direct int) {
		got, err := png.Decode(open(t, e, pngFile, os.O_RDONLY|direct))
		if err != nil || !reflect.DeepEqual(got, image.Image(picture)) {
			t.Error("the picture differs", err)
		}

		unpacked, err := gzip.NewReader(open(t, e, gzipFile, os.O_RDONLY|direct))
		must(t, err)
		if p, err := io.ReadAll(unpacked); err != nil || !bytes.Equal(p, content) {
			t.Error("gzip: wrong bytes", len(p), err)
		}

		scanner, count := bufio.NewScanner(open(t, e, lines, os.O_RDONLY|direct)), 0
		for scanner.Scan() {
			if want := []string{"a line", "and another one"}[count%2]; scanner.Text() != want {
				t.Fatal(count, scanner.Text())
			}
			count++
		}
		if count != 18_000 || scanner.Err() != nil {
			t.Error(count, "lines", scanner.Err())
		}

		f := open(t, e, plain, os.O_RDONLY|direct)
		for name, r := range map[string]io.Reader{
			"bufio of 1":   bufio.NewReaderSize(f, 16),
			"one by one":   iotest.OneByteReader(io.LimitReader(f, 9000)),
			"half":         iotest.HalfReader(f),
			"data and end": iotest.DataErrReader(f),
			"section":      io.NewSectionReader(f, 0, int64(len(content))),
			"tee":          io.TeeReader(f, io.Discard),
			"multi":        io.MultiReader(io.LimitReader(f, 4097), f),
		} {
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			p, err := io.ReadAll(r)
			if want := content[:len(p)]; err != nil || !bytes.Equal(p, want) ||
				len(p) != len(content) && name != "one by one" {
				t.Error(name, "wrong bytes", len(p), err)
			}
		}

		own := open(t, e, self, os.O_RDONLY|direct)
		parsed, err := elf.NewFile(own)
		must(t, err)
		gotSymbols, err := parsed.Symbols()
		wantSymbols, wantErr := binary.Symbols()
		sameAsOS(t, "symbols", []any{gotSymbols, err}, []any{wantSymbols, wantErr})
		for i, section := range parsed.Sections {
			if section.Type == elf.SHT_NOBITS {
				continue
			}
			got, err := section.Data()
			want, wantErr := binary.Sections[i].Data()
			if !bytes.Equal(got, want) || err != nil || wantErr != nil {
				t.Error("section", section.Name, err, wantErr)
			}
		}
	})
}

// Directories are read in parts and to the end, as with package os.
func TestDirectories(t *testing.T) {
	dir := tree(t)
	for _, backend := range testBackends {
		e := engine(t, Options{Backend: backend})
		for _, n := range []int{-1, 0, 1, 2, 100} {
			f := open(t, e, dir, os.O_RDONLY)
			reference, err := os.Open(dir)
			must(t, err)
			for range 12 {
				entries, err := f.ReadDir(n)
				wanted, wantErr := reference.ReadDir(n)
				sameAsOS(t, "ReadDir", fmt.Sprint(entries, err), fmt.Sprint(wanted, wantErr))
			}
			_, err = f.Seek(0, io.SeekStart)
			_, wantErr := reference.Seek(0, io.SeekStart)
			sameAsOS(t, "Seek", err, wantErr)
			for range 12 {
				names, err := f.Readdirnames(n)
				wanted, wantErr := reference.Readdirnames(n)
				sameAsOS(t, "Readdirnames", fmt.Sprint(names, err), fmt.Sprint(wanted, wantErr))
			}
			_, _ = f.Seek(0, io.SeekStart)
			_, _ = reference.Seek(0, io.SeekStart)
			infos, err := f.Readdir(n)
			infosWanted, wantErr := reference.Readdir(n)
			sameAsOS(t, "Readdir", len(infos), len(infosWanted))
			sameAsOS(t, "Readdir", err, wantErr)
			for i, info := range infos {
				sameAsOS(t, "Readdir", described(info), described(infosWanted[i]))
			}
			check(t, errors.Join(f.Close(), reference.Close()))
			for what, err := range map[string]error{"ReadDir": errorOf(f.ReadDir(n)),
				"Readdir": errorOf(f.Readdir(n)), "Readdirnames": errorOf(f.Readdirnames(n))} {
				if !errors.Is(err, os.ErrClosed) {
					t.Error(what, err)
				}
			}
		}
	}
}

func TestTemplates(t *testing.T) {
	dir := tree(t)
	for _, backend := range testBackends {
		e := engine(t, Options{Backend: backend, AlwaysRing: true})
		parsed, err := template.ParseFS(e.DirFS(dir), "*.tmpl", "h*")
		must(t, err)
		var b strings.Builder
		if err := parsed.ExecuteTemplate(&b, "hello world", 7); err != nil ||
			b.String() != "7 is in hello world" {
			t.Error(b.String(), err)
		}
		if _, err := template.ParseFS(e.DirFS(dir), "none*"); err == nil {
			t.Error("a pattern without a match is accepted")
		}
	}
}

// Files that the kernel generates report a size of 0, and some can be read only once.
func TestProcFiles(t *testing.T) {
	for _, backend := range testBackends {
		for _, always := range []bool{false, true} {
			e := engine(t, Options{Backend: backend, AlwaysRing: always})
			for _, name := range []string{"/proc/self/cmdline", "/proc/filesystems",
				"/proc/version", "/proc/self/limits",
				"/sys/kernel/mm/transparent_hugepage/enabled"} {
				want, err := os.ReadFile(name)
				if err != nil {
					continue // Not every machine has all of them.
				}
				got, err := io.ReadAll(open(t, e, name, os.O_RDONLY))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: %s %q, %v", backend, name, got, err)
				}
				got, err = e.DirFS(filepath.Dir(name)).ReadFile(filepath.Base(name))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: ReadFile of %s: %q, %v", backend, name, got, err)
				}
			}
			// This file is longer than a page and changes, but must be complete.
			maps, err := io.ReadAll(open(t, e, "/proc/self/maps", os.O_RDONLY))
			if err != nil || !bytes.Contains(maps, []byte("[stack]")) ||
				!bytes.HasSuffix(maps, []byte("\n")) {
				t.Errorf("%s: maps: %q, %v", backend, maps, err)
			}
			zero := open(t, e, "/dev/zero", os.O_RDONLY)
			p := []byte{1, 2, 3}
			if n, err := zero.Read(p); n != 3 || err != nil || !bytes.Equal(p, make([]byte, 3)) {
				t.Errorf("%s: %d %v %v", backend, n, p, err)
			}
			null := open(t, e, "/dev/null", os.O_RDWR)
			if n, err := null.Write(p); n != 3 || err != nil {
				t.Errorf("%s: %d %v", backend, n, err)
			}
			if n, err := null.Read(p); n != 0 || err != io.EOF {
				t.Errorf("%s: %d %v", backend, n, err)
			}
		}
	}
}

// oddReader returns odd numbers of bytes.
type oddReader struct{ p []byte }

func (r *oddReader) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), 4097)], r.p)
	if r.p = r.p[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// io.Copy works from and to every kind of reader and writer.
func TestCopyMatrix(t *testing.T) {
	const size = 1<<20 + 4096 // A multiple of the alignment of direct writes.
	content := bytesOf(size)
	name := fileWith(t, content)
	// target is a destination. Its got function ends the writing and returns what was written.
	type target struct {
		io.Writer
		got func() ([]byte, error)
	}
	feed := func(t *testing.T, w io.WriteCloser) {
		go func() {
			_, err := w.Write(content)
			check(t, errors.Join(err, w.Close()))
		}()
	}
	drain := func(t *testing.T, w io.WriteCloser, to io.Writer, r io.Reader) target {
		var p []byte
		read := make(chan error, 1)
		go func() {
			var err error
			p, err = io.ReadAll(r)
			read <- err
		}()
		return target{to, func() ([]byte, error) {
			closed := w.Close()
			return p, errors.Join(closed, <-read)
		}}
	}
	socketFrom := func(network string) func(*testing.T) io.Reader {
		return func(t *testing.T) io.Reader {
			a, b := sockets(t, network)
			feed(t, b)
			return a
		}
	}
	socketTo := func(network string) func(*testing.T) target {
		return func(t *testing.T) target {
			a, b := sockets(t, network)
			return drain(t, a, a, b)
		}
	}
	each(t, func(t *testing.T, e *Engine, direct int) {
		pipe := func(t *testing.T) (*File, *File) {
			var ends [2]*File
			a, b, err := os.Pipe()
			must(t, err)
			for i, f := range []*os.File{a, b} {
				if ends[i], err = e.NewFile(f); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { ends[i].Close() })
			}
			return ends[0], ends[1]
		}
		fresh := func(t *testing.T) *File {
			return open(t, e, filepath.Join(t.TempDir(), "copy"), os.O_RDWR|os.O_CREATE|direct)
		}
		sources := map[string]func(t *testing.T) io.Reader{
			"File": func(t *testing.T) io.Reader {
				return open(t, e, name,
					os.O_RDONLY|direct)
			},
			"limited File": func(t *testing.T) io.Reader {
				return io.LimitReader(open(t, e, name,
					os.O_RDONLY|direct), size+5)
			},
			"section of a File": func(t *testing.T) io.Reader {
				return io.NewSectionReader(open(t, e, name, os.O_RDONLY|direct), 0, size)
			},
			"os.File": func(t *testing.T) io.Reader {
				f, err := os.Open(name)
				must(t, err)
				t.Cleanup(func() { f.Close() })
				return f
			},
			"buffer": func(*testing.T) io.Reader { return bytes.NewBuffer(bytes.Clone(content)) },
			"halves": func(*testing.T) io.Reader {
				return iotest.HalfReader(bytes.NewReader(content))
			},
			"odd": func(*testing.T) io.Reader { return &oddReader{p: content} },
			"pipe": func(t *testing.T) io.Reader {
				r, w := pipe(t)
				feed(t, w)
				return r
			},
			"unix socket": socketFrom("unix"),
			"tcp socket":  socketFrom("tcp"),
		}
		targets := map[string]func(t *testing.T) target{
			"File": func(t *testing.T) target {
				f := fresh(t)
				return target{f, func() ([]byte, error) { return os.ReadFile(f.Name()) }}
			},
			"os.File": func(t *testing.T) target {
				f, err := os.Create(filepath.Join(t.TempDir(), "copy"))
				must(t, err)
				return target{f, func() ([]byte, error) {
					closed := f.Close()
					p, err := os.ReadFile(f.Name())
					return p, errors.Join(closed, err)
				}}
			},
			"buffer": func(*testing.T) target {
				var b bytes.Buffer
				return target{&b, func() ([]byte, error) { return b.Bytes(), nil }}
			},
			"bufio over a File": func(t *testing.T) target {
				f := fresh(t)
				w := bufio.NewWriterSize(f, 64<<10)
				return target{w, func() ([]byte, error) {
					flushed := w.Flush()
					p, err := os.ReadFile(f.Name())
					return p, errors.Join(flushed, err)
				}}
			},
			"pipe": func(t *testing.T) target {
				r, w := pipe(t)
				return drain(t, w, w, r)
			},
			"unix socket": socketTo("unix"),
			"tcp socket":  socketTo("tcp"),
		}
		for from, source := range sources {
			for to, target := range targets {
				if !strings.Contains(from+to, "File") && from != "pipe" && to != "pipe" {
					continue // Neither side is of package ringway.
				}
				t.Run(from+" to "+to, func(t *testing.T) {
					in, out := source(t), target(t)
					n, err := io.Copy(out.Writer, in)
					got, gotErr := out.got()
					if n != size || err != nil || gotErr != nil || !bytes.Equal(got, content) {
						t.Error(n, err, gotErr, len(got), "bytes")
					}
				})
			}
		}
	})
}

// Errors of the other side of a copy are returned as they are.
func TestCopyErrors(t *testing.T) {
	reason := errors.New("the other side")
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, fileWith(t, bytesOf(8192)), os.O_RDWR|direct)
		if n, err := f.WriteTo(failing{reason}); n != 0 || err != reason {
			t.Error(n, err)
		}
		for _, reason := range []error{reason, io.ErrUnexpectedEOF} {
			if n, err := f.ReadFrom(io.MultiReader(bytes.NewReader(bytesOf(4096)),
				iotest.ErrReader(reason))); n != 4096 || err != reason {
				t.Error(n, err)
			}
		}
		if direct != 0 {
			var misaligned *MisalignedError
			if _, err := f.ReadFrom(strings.NewReader("odd")); !errors.As(err, &misaligned) {
				t.Error(err)
			}
		}
	})
}

// After copies of parts of a file, both current positions are where the copy ended.
func TestCopyParts(t *testing.T) {
	content := bytesOf(64 << 10)
	each(t, func(t *testing.T, e *Engine, direct int) {
		from := open(t, e, fileWith(t, content), os.O_RDONLY|direct)
		to := open(t, e, filepath.Join(t.TempDir(), "copy"), os.O_RDWR|os.O_CREATE|direct)
		for _, n := range []int64{4096, 0, 8192} {
			if done, err := io.CopyN(to, from, n); done != n || err != nil {
				t.Fatal(done, err)
			}
		}
		limited := &io.LimitedReader{R: from, N: 1 << 20}
		if n, err := io.Copy(to, limited); n != 52<<10 || err != nil || limited.N != 1<<20-52<<10 {
			t.Error(n, err, limited.N)
		}
		if n, err := io.CopyN(to, from, 1); n != 0 || err != io.EOF {
			t.Error(n, err)
		}
		if got, err := os.ReadFile(to.Name()); err != nil || !bytes.Equal(got, content) {
			t.Error("wrong bytes", len(got), err)
		}
	})
}

// Directories can be synced, also by a ring, and closed at the same time. For files that cannot be
// synced the error is that of package os.
func TestSyncOfDirectoriesAndPipes(t *testing.T) {
	for _, backend := range testBackends {
		t.Run(string(backend), func(t *testing.T) {
			e := engine(t, Options{Backend: backend, AlwaysRing: true})
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
						for {
							if err := dir.Sync(); errors.Is(err, os.ErrClosed) {
								return
							} else if err != nil {
								t.Error(err)
								return
							}
						}
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
			if err := pipe.Preallocate(0, 10); !errors.Is(err, noPipe) {
				t.Error(err)
			}
			if err := pipe.Advise(0, 0, AdviceWillNeed); !errors.Is(err, noPipe) {
				t.Error(err)
			}
			check(t, pipe.Close())
			if err := pipe.Sync(); !errors.Is(err, os.ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// After a sync, no page of the file in the page cache is dirty.
func TestSyncWritesBack(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		written := []Transfer{{P: bytesOf(1 << 19)}, {P: bytesOf(1 << 19), Off: 1 << 19}}
		apart := []Transfer{written[0], {P: written[1].P, Off: 1 << 20}}
		plain := func(f *File) error { return f.WriteBatch(written, NoSync) }
		for what, do := range map[string]func(f *File) error{
			"Sync": func(f *File) error {
				return errors.Join(plain(f),
					f.Sync())
			},
			"SyncContext": func(f *File) error {
				return errors.Join(plain(f),
					f.SyncContext(t.Context()))
			},
			"Datasync": func(f *File) error {
				return errors.Join(plain(f),
					f.Datasync())
			},
			"batch": func(f *File) error {
				return f.WriteBatch(written,
					FullSync)
			},
			"batch, data": func(f *File) error {
				return f.WriteBatch(written,
					DataSync)
			},
			"batch of ranges": func(f *File) error {
				return f.WriteBatch(apart,
					DataSync)
			},
		} {
			name := filepath.Join(t.TempDir(), "file")
			f := open(t, e, name, os.O_RDWR|os.O_CREATE|direct)
			if err := do(f); err != nil {
				t.Fatal(what, err)
			}
			if dirty, known := suite.Dirty(name); !known {
				t.Log("this kernel does not report dirty pages")
			} else if dirty != 0 {
				t.Errorf("%s: %d pages are dirty", what, dirty)
			}
		}
	})
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// sockets returns both ends of a connection.
func sockets(t *testing.T, network string) (net.Conn, net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	listener, err := net.Listen(network, address)
	must(t, err)
	defer listener.Close()
	a, err := net.Dial(network, listener.Addr().String())
	must(t, err)
	b, err := listener.Accept()
	must(t, err)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// A File and an FS serve whole files, ranges, conditional requests and errors as package os does.
func TestHTTPServing(t *testing.T) {
	dir := tree(t)
	large := filepath.Join(dir, "a", "large")
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, large, os.O_RDONLY|direct)
		reference, err := os.Open(large)
		must(t, err)
		defer reference.Close()
		changed := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
		one := func(file io.ReadSeeker) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter,
				r *http.Request) {
				http.ServeContent(w, r, "large.bin", changed, file)
			})
		}
		listed := http.FileServer(http.Dir(dir))
		ours := []http.Handler{one(f), http.FileServer(http.FS(e.DirFS(dir))),
			http.FileServer(opener{e, dir})}
		theirs := []http.Handler{one(reference), listed, listed}
		sameAsOS(t, "listing", serve(ours[1], "GET", "/", nil), serve(listed, "GET", "/", nil))
		sameAsOS(t, "listing", serve(ours[2], "GET", "/", nil), serve(listed, "GET", "/", nil))
		for i, path := range []string{"/", "/a/large", "/a/large"} {
			for _, header := range []http.Header{
				{}, {"Range": {"bytes=0-0"}}, {"Range": {"bytes=4095-30000"}},
				{"Range": {"bytes=-17"}}, {"Range": {"bytes=40000-"}},
				{"Range": {"bytes=400000-"}}, {"Range": {"bytes=5-1"}},
				{"If-Modified-Since": {"Fri, 03 Jan 2020 00:00:00 GMT"}},
				{"If-Modified-Since": {"Fri, 03 Jan 2200 00:00:00 GMT"}},
				{"If-Unmodified-Since": {"Wed, 01 Jan 2020 00:00:00 GMT"}},
			} {
				for _, method := range []string{"GET", "HEAD"} {
					got := serve(ours[i], method, path, header)
					want := serve(theirs[i], method, path, header)
					sameAsOS(t, fmt.Sprint(method, path, header), got, want)
				}
			}
			// The boundary between several ranges is random, so their parts are compared.
			several := http.Header{"Range": {"bytes=1-3,4096-9000,39999-"}}
			got := parts(t, serve(ours[i], "GET", path, several))
			want := parts(t, serve(theirs[i], "GET", path, several))
			if sameAsOS(t, "parts", got, want); len(got) != 3 {
				t.Error(len(got), "parts")
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

type served struct {
	code   int
	header http.Header
	body   string
}

func serve(h http.Handler, method, path string, header http.Header) served {
	r := httptest.NewRequest(method, path, nil)
	r.Header = header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return served{w.Code, w.Result().Header, w.Body.String()}
}

func parts(t *testing.T, s served) (all []string) {
	t.Helper()
	_, params, err := mime.ParseMediaType(s.header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err, s.code)
	}
	for r := multipart.NewReader(strings.NewReader(s.body), params["boundary"]); ; {
		part, err := r.NextPart()
		if err == io.EOF {
			return all
		}
		must(t, err)
		p, err := io.ReadAll(part)
		must(t, err)
		all = append(all, fmt.Sprint(part.Header, string(p)))
	}
}
