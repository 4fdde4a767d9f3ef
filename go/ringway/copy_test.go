//go:build linux

// Copies from and to files, by the kernel alone where that is possible.

package ringway

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
)

// copySize is a multiple of the alignment of direct writes.
const copySize = 1<<20 + 4096

// A reader that fails leaves a length that no direct write can have. Its error is returned all the
// same: it tells why the copy is not complete.
func TestErrorOfAReaderOfWhichARestIsLeft(t *testing.T) {
	reason := errors.New("the connection is gone")
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := openIn(t, e, nil, os.O_RDWR|direct)
		n, err := f.ReadFrom(io.MultiReader(bytes.NewReader(make([]byte, copySize+100)),
			iotest.ErrReader(reason)))
		wantError(t, "ReadFrom", err, reason)
		var misaligned *MisalignedError
		want := int64(copySize + 100)
		if errors.As(err, &misaligned) {
			want -= int64(misaligned.Len)
		}
		expect(t, n == want && (direct != 0) == (misaligned != nil), "%d bytes: %v", n, err)
	})
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

// sockets returns both ends of a connection.
func sockets(t *testing.T, network string) (net.Conn, net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	listener := get(net.Listen(network, address))(t)
	defer listener.Close()
	a := get(net.Dial(network, listener.Addr().String()))(t)
	b := get(listener.Accept())(t)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// ends returns both ends of a pipe or a connection: to read, and to write.
func ends(t *testing.T, e *Engine, kind string) (io.Reader, io.WriteCloser) {
	t.Helper()
	if kind != "pipe" {
		return sockets(t, strings.TrimSuffix(kind, " socket"))
	}
	return pipe(t, e)
}

// copySource returns a reader of some content, which a file with that name has.
func copySource(t *testing.T, e *Engine, kind, name string, direct int, content []byte) io.Reader {
	t.Helper()
	file := func() *File { return open(t, e, name, os.O_RDONLY|direct) }
	switch kind {
	case "File":
		return file()
	case "limited File":
		return io.LimitReader(file(), copySize+5)
	case "section of a File":
		return io.NewSectionReader(file(), 0, copySize)
	case "os.File":
		f := get(os.Open(name))(t)
		t.Cleanup(func() { f.Close() })
		return f
	case "buffer":
		return bytes.NewBuffer(bytes.Clone(content))
	case "halves":
		return iotest.HalfReader(bytes.NewReader(content))
	case "odd":
		return &oddReader{p: content}
	}
	r, w := ends(t, e, kind)
	go func() {
		_, err := w.Write(content)
		check(t, errors.Join(err, w.Close()))
	}()
	return r
}

// copyTarget returns a writer, and a function that ends the writing and returns what was written.
func copyTarget(t *testing.T, e *Engine, kind string,
	direct int) (w io.Writer, got func() ([]byte, error)) {
	t.Helper()
	switch kind {
	case "File", "bufio over a File":
		f := openIn(t, e, nil, os.O_RDWR|direct)
		buffered := bufio.NewWriterSize(f, 64<<10)
		if kind != "File" {
			w = buffered
		} else {
			w = f
		}
		return w, func() ([]byte, error) {
			flushed := buffered.Flush()
			return content(t, f), flushed
		}
	case "os.File":
		f := get(os.Create(filepath.Join(t.TempDir(), "copy")))(t)
		return f, func() ([]byte, error) { check(t, f.Close()); return os.ReadFile(f.Name()) }
	case "buffer":
		b := new(bytes.Buffer)
		return b, func() ([]byte, error) { return b.Bytes(), nil }
	}
	r, end := ends(t, e, kind)
	var p []byte
	read := make(chan error, 1)
	go func() {
		var err error
		p, err = io.ReadAll(r)
		read <- err
	}()
	return end, func() ([]byte, error) {
		closed := end.Close()
		return p, errors.Join(closed, <-read)
	}
}

// io.Copy works from and to every kind of reader and writer.
func TestCopyMatrix(t *testing.T) {
	content := bytesOf(copySize)
	name := fileWith(t, content)
	others := []string{"os.File", "buffer", "pipe", "unix socket", "tcp socket"}
	each(t, func(t *testing.T, e *Engine, direct int) {
		for _, from := range append(others, "File", "limited File", "section of a File", "halves",
			"odd") {
			for _, to := range append(others, "File", "bufio over a File") {
				if !strings.Contains(from+to, " File") && from != "File" && to != "File" &&
					from != "pipe" && to != "pipe" {
					continue // Neither side is a File.
				}
				in := copySource(t, e, from, name, direct, content)
				out, got := copyTarget(t, e, to, direct)
				n, err := io.Copy(out, in)
				p, gotErr := got()
				expect(t, n == copySize && err == nil && gotErr == nil && bytes.Equal(p, content),
					"%s to %s: %d, %v, %v: %d bytes", from, to, n, err, gotErr, len(p))
			}
		}
	})
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Errors of the other side of a copy are returned as they are.
func TestCopyErrors(t *testing.T) {
	reason := errors.New("the other side")
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := openIn(t, e, bytesOf(8192), os.O_RDWR|direct)
		n, err := f.WriteTo(failing{reason})
		expect(t, n == 0 && err == reason, "%d, %v", n, err)
		for _, reason := range []error{reason, io.ErrUnexpectedEOF} {
			n, err := f.ReadFrom(io.MultiReader(bytes.NewReader(bytesOf(4096)),
				iotest.ErrReader(reason)))
			expect(t, n == 4096 && err == reason, "%d, %v", n, err)
		}
	})
}

// After copies of parts of a file, both current positions are where the copy ended.
func TestCopyParts(t *testing.T) {
	want := bytesOf(64 << 10)
	each(t, func(t *testing.T, e *Engine, direct int) {
		from := openIn(t, e, want, os.O_RDONLY|direct)
		to := openIn(t, e, nil, os.O_RDWR|direct)
		for _, n := range []int64{4096, 0, 8192} {
			moves(t, n)(io.CopyN(to, from, n))
		}
		limited := &io.LimitedReader{R: from, N: 1 << 20}
		moves(t, int64(52<<10))(io.Copy(to, limited))
		expect(t, limited.N == 1<<20-52<<10, "%d are left", limited.N)
		wantError(t, "at the end", errorOf(io.CopyN(to, from, 1)), io.EOF)
		expect(t, bytes.Equal(content(t, to), want), "wrong bytes")
	})
}

// A copy by the kernel ends when a file is closed, although another operation keeps the descriptor
// open.
func TestCloseEndsCopiesByTheKernel(t *testing.T) {
	const size = 16 * copyPiece
	e := newOrSkip(t, Options{})
	for what, copies := range map[string]func(f *File, far, near net.Conn) (int64, error){
		"WriteTo": func(f *File, far, near net.Conn) (int64, error) {
			go func() {
				_, err := io.CopyN(io.Discard, far, 1<<20)
				check(t, errors.Join(err, f.Close()))
				_, _ = io.Copy(io.Discard, far)
			}()
			return io.Copy(near, f)
		},
		"ReadFrom": func(f *File, far, near net.Conn) (int64, error) {
			go func() {
				zeroes := make([]byte, copyPiece) // More than the connection holds.
				_, err := far.Write(zeroes)
				check(t, errors.Join(err, f.Close()))
				for err = nil; err == nil; _, err = far.Write(zeroes) {
				}
			}()
			return f.ReadFrom(io.LimitReader(near, size))
		},
	} {
		f := openIn(t, e, nil, os.O_RDWR)
		must(t, f.Truncate(size))
		require(t, f.begin(), "it is closed")
		far, near := sockets(t, "tcp")
		returns(t, what, func() {
			n, err := copies(f, far, near)
			wantError(t, what, err, os.ErrClosed)
			expect(t, n != 0 && n <= size/2, "%s: %d bytes of %d", what, n, size)
		})
		must(t, errors.Join(near.Close(), far.Close()))
		f.end()
	}
}

// messages returns an end of a pair of descriptors, to whose other end messages are written.
func messages(t *testing.T, count, size int, pair func(fds *[2]int) error) *os.File {
	t.Helper()
	var fds [2]int
	must(t, pair(&fds))
	reading := os.NewFile(uintptr(fds[0]), "reading")
	writing := os.NewFile(uintptr(fds[1]), "writing")
	go func() {
		defer writing.Close()
		for range count {
			if _, err := writing.Write(make([]byte, size)); err != nil {
				return
			}
		}
	}()
	return reading
}

// copyMessages copies more messages than a piece of the kernel's copies has bytes.
func copyMessages(t *testing.T, size int, pair func(fds *[2]int) error,
	ways map[string]func(from, to *File) (int64, error)) {
	t.Helper()
	e := newOrSkip(t, Options{})
	// A multiple of 512 messages has whole pages, as direct I/O needs them.
	count := (copyPiece/size + 1024) &^ 511
	for what, copies := range ways {
		for _, direct := range []int{0, Direct} {
			from := get(e.NewFile(messages(t, count, size, pair)))(t)
			to := openIn(t, e, nil, os.O_RDWR|direct)
			n, err := copies(from, to)
			expect(t, err == nil && n == int64(count*size), "%s, direct %x: %v of %v, %v", what,
				direct, n, count*size, err)
			must(t, errors.Join(from.Close(), to.Close()))
		}
	}
}

var messageCopies = map[string]func(from, to *File) (int64, error){
	"ReadFrom":               func(from, to *File) (int64, error) { return to.ReadFrom(from) },
	"ReadFrom of an os.File": func(from, to *File) (int64, error) { return to.ReadFrom(from.file) },
	"ReadFrom with a limit": func(from, to *File) (int64, error) {
		return to.ReadFrom(io.LimitReader(from, math.MaxInt64))
	},
	"WriteTo": func(from, to *File) (int64, error) { return from.WriteTo(to) },
}

// A read that is shorter than a message of a socket loses the rest of it.
func TestMessagesAreCopiedWhole(t *testing.T) {
	ways := maps.Clone(messageCopies)
	ways["ReadFrom of a connection"] = func(from, to *File) (int64, error) {
		conn := get(net.FileConn(from.file))(t)
		defer conn.Close()
		return to.ReadFrom(conn)
	}
	copyMessages(t, 60_000, func(fds *[2]int) (err error) {
		*fds, err = syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
		return err
	}, ways)
}

// So does one of a pipe with O_DIRECT, which only the end that writes shows.
func TestPacketsAreCopiedWhole(t *testing.T) {
	ways := maps.Clone(messageCopies)
	ways["WriteTo an os.File"] = func(from, to *File) (int64, error) {
		if to.direct {
			return to.ReadFrom(from) // Package os does not align.
		}
		return from.WriteTo(to.file)
	}
	copyMessages(t, 1000, func(fds *[2]int) error {
		return syscall.Pipe2(fds[:], syscall.O_CLOEXEC|syscall.O_DIRECT)
	}, ways)
}

// A pipe that keeps messages (O_DIRECT) is no file with direct I/O: what is copied to it does not
// wait until a buffer is full.
func TestCopyToAPipeOfMessages(t *testing.T) {
	var fds [2]int
	must(t, syscall.Pipe2(fds[:], syscall.O_CLOEXEC|syscall.O_DIRECT))
	reading := os.NewFile(uintptr(fds[0]), "reading")
	defer reading.Close()
	writing, err := newOrSkip(t, Options{}).NewFile(os.NewFile(uintptr(fds[1]), "writing"))
	must(t, err)
	defer writing.Close()
	from, to := io.Pipe()
	copied := make(chan error, 1)
	go func() { copied <- errorOf(writing.ReadFrom(from)) }()
	returns(t, "a copy to a pipe", func() {
		for _, message := range []string{"one", "another"} {
			_, err := io.WriteString(to, message)
			check(t, err)
			p := make([]byte, 100)
			n, err := reading.Read(p)
			expect(t, err == nil && string(p[:n]) == message, "%q, %v", p[:n], err)
		}
	})
	must(t, to.Close())
	must(t, <-copied)
	_, err = writing.SyscallConn()
	check(t, err)
}

// readsFrom is a writer with a descriptor and a ReadFrom method.
type readsFrom struct {
	*os.File
	read func(r io.Reader) (int64, error)
}

func (w readsFrom) ReadFrom(r io.Reader) (int64, error) { return w.read(r) }

// Between two pieces of a copy from one File to another, either is found closed.
func TestCloseEndsCopiesOfFiles(t *testing.T) {
	e := newOrSkip(t, Options{})
	for i, op := range []string{"read", "write"} {
		from, to := openIn(t, e, nil, os.O_RDWR), openIn(t, e, nil, os.O_RDWR)
		must(t, from.Truncate(2*copyPiece))
		closes := readsFrom{read: func(r io.Reader) (int64, error) {
			n, err := to.file.ReadFrom(r)
			return n, errors.Join(err, []*File{from, to}[i].Close())
		}}
		limited := &io.LimitedReader{R: from.file, N: 3 * copyPiece}
		for _, f := range []*File{from, to} {
			f.begin()
			defer f.end()
		}
		n, err := copyPieces(closes, limited, from, to)
		wantError(t, op, err, os.ErrClosed)
		var failed *fs.PathError
		expect(t, n == copyPiece && limited.N == 2*copyPiece && errors.As(err, &failed) &&
			failed.Op == op, "%v, %v, %v", n, limited.N, err)
	}
}

// A file of several pieces is copied as a whole, to its end or to a limit, wherever pieces end.
func TestCopyOfSeveralPieces(t *testing.T) {
	e := newOrSkip(t, Options{})
	for _, size := range []int64{copyPiece, 2*copyPiece + 7} {
		from := openIn(t, e, nil, os.O_RDWR)
		must(t, errors.Join(from.Truncate(size), errorOf(from.WriteAt([]byte("last"), size-4))))
		want := sha256.Sum256(content(t, from))
		for _, limit := range []int64{size, size + 1, math.MaxInt64} {
			to := openIn(t, e, nil, os.O_RDWR)
			must(t, errorOf(from.Seek(0, io.SeekStart)))
			limited := &io.LimitedReader{R: from, N: limit}
			n, err := to.ReadFrom(limited)
			expect(t, n == size && err == nil && limited.N == limit-size, "%v, %v, %v, %v, %v",
				size, limit, n, err, limited.N)
			expect(t, sha256.Sum256(content(t, to)) == want, "the copy differs")
			to.Close()
		}
		w, got := copyTarget(t, e, "tcp socket", 0)
		must(t, errorOf(from.Seek(0, io.SeekStart)))
		n, err := from.WriteTo(w)
		p, gotErr := got()
		expect(t, n == size && err == nil && gotErr == nil && sha256.Sum256(p) == want,
			"%v, %v, %v, %v", size, n, err, gotErr)
	}
}

// took records the reader that its ReadFrom receives.
type took struct {
	bytes.Buffer
	source io.Reader
}

func (w *took) ReadFrom(r io.Reader) (int64, error) {
	w.source = r
	return w.Buffer.ReadFrom(r)
}

// A writer with a ReadFrom method receives a reader with the descriptor of the file, so that
// package net can use sendfile(2).
func TestWriteToGivesTheDescriptor(t *testing.T) {
	want := bytesOf(300_000)
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := openIn(t, e, want, os.O_RDONLY|direct)
		must(t, errorOf(f.Seek(7, io.SeekStart)))
		var w took
		n, err := io.Copy(&w, f)
		require(t, n == int64(len(want)-7) && err == nil && bytes.Equal(w.Bytes(), want[7:]),
			"%v, %v", n, err)
		conn, ok := w.source.(syscall.Conn)
		require(t, ok, "%T has no descriptor", w.source)
		// A user of a raw descriptor would not know the alignment of direct I/O.
		if _, err := conn.SyscallConn(); (err == nil) != (direct == 0) {
			t.Fatal(err)
		}
		_, again := w.source.(io.WriterTo)
		require(t, !again, "WriteTo would be called again")
		if at, err := f.Seek(0, io.SeekCurrent); at != int64(len(want)) || err != nil {
			t.Fatal("the position is", at, err)
		}
	})
}

// A web server sends a file with sendfile(2), whatever copies it. The file's Read is called at most
// for the head, from which the server guesses the content type.
func TestSendfileOverHTTP(t *testing.T) {
	if len(testBackends) == 1 {
		t.Skip("skipped: without rings, nothing counts what the program reads")
	}
	content := bytesOf(8 << 20)
	name := fileWith(t, content)
	// This engine counts each read by the program.
	e := newOrSkip(t, Options{Backend: BackendURing, AlwaysRing: true})
	for way, send := range map[string]func(http.ResponseWriter, *http.Request, *File) error{
		"copy": func(w http.ResponseWriter, _ *http.Request, f *File) error {
			return errorOf(io.Copy(w, f))
		},
		"limited": func(w http.ResponseWriter, _ *http.Request, f *File) error {
			return errorOf(io.CopyN(w, f, int64(len(content))))
		},
		"content": func(w http.ResponseWriter, r *http.Request, f *File) error {
			info, err := f.Stat()
			w.Header().Del("Content-Length")
			http.ServeContent(w, r, "file.bin", info.ModTime(), f)
			return err
		},
	} {
		failed := make(chan error, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			f, err := e.Open(name)
			if err == nil {
				w.Header().Set("Content-Length", fmt.Sprint(len(content)))
				err = errors.Join(send(w, r, f), f.Close())
			}
			failed <- err
		}))
		before := e.Stats().Pushed
		response := get(http.Get(server.URL))(t)
		got, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close(), <-failed); err != nil ||
			!bytes.Equal(got, content) {
			t.Fatal(way, len(got), err)
		}
		n := e.Stats().Pushed - before
		expect(t, n <= 2, "%s: the program read the file with %d operations", way, n)
		server.Close()
	}
}
