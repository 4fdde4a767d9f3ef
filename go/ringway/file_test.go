// The contracts of File, on every backend.

package ringway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/iotest"
	"time"

	"github.com/ringway-io/ringway/go/internal/race"
	"github.com/ringway-io/ringway/go/internal/skip"
)

func engine(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := New(o)
	if err != nil {
		var refused *Refusal
		if errors.As(err, &refused) {
			skip.Test(t, err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
		if s := e.Stats(); s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("operations are left: %+v", s)
		}
	})
	return e
}

// each runs a test on every backend: buffered, direct, and with reads of the page cache.
func each(t *testing.T, test func(t *testing.T, e *Engine, direct int)) {
	for _, backend := range testBackends {
		for name, direct := range map[string]int{"buffered": 0, "direct": Direct} {
			t.Run(string(backend)+"/"+name, func(t *testing.T) {
				// AlwaysRing, so that the rings do the buffered reads too.
				test(t, engine(t, Options{Backend: backend, AlwaysRing: true,
					Rings: 1 + direct/Direct}), direct)
			})
		}
		t.Run(string(backend)+"/cached", func(t *testing.T) {
			test(t, engine(t, Options{Backend: backend}), 0)
		})
	}
}

// bytesOf returns random bytes, the same for each length.
func bytesOf(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func fileWith(t testing.TB, content []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(name, content, 0o600))
	return name
}

func open(t testing.TB, e *Engine, name string, flag int) *File {
	t.Helper()
	f, err := e.OpenFile(name, flag, 0o600)
	if err != nil {
		if flag&Direct != 0 && errors.Is(err, syscall.EINVAL) {
			skip.Test(t, "this file system has no direct I/O")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestReaderAtContract(t *testing.T) {
	content := bytesOf(3*4096 + 777)
	name := fileWith(t, content)
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, name, os.O_RDONLY|direct)
		reference, err := os.Open(name)
		must(t, err)
		defer reference.Close()
		for _, off := range []int64{0, 1, 511, 512, 4095, 4096, 4097, 12288,
			int64(len(content)) - 1, int64(len(content)), 1 << 20, 1 << 40, -1} {
			for _, n := range []int{0, 1, 511, 512, 513, 4096, 5000, 12288, 20000} {
				p, want := make([]byte, n), make([]byte, n)
				got, err := f.ReadAt(p, off)
				wanted, wantErr := reference.ReadAt(want, off)
				if got != wanted || !bytes.Equal(p[:got], want[:wanted]) ||
					fmt.Sprint(err) != fmt.Sprint(wantErr) {
					t.Fatalf("ReadAt of %d at %d: %d, %v; package os: %d, %v", n, off, got, err,
						wanted, wantErr)
				}
			}
		}
	})
}

func TestIotest(t *testing.T) {
	content := bytesOf(9000)
	name := fileWith(t, content)
	each(t, func(t *testing.T, e *Engine, direct int) {
		must(t, iotest.TestReader(open(t, e, name, os.O_RDONLY|direct), content))
		section := io.NewSectionReader(open(t, e, name, os.O_RDONLY|direct), 100, 8000)
		must(t, iotest.TestReader(section, content[100:8100]))
	})
}

func TestFstest(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"a": "first", "b/c": "second",
		"b/d/e": strings.Repeat("x", 100_000), "empty": ""} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	for _, backend := range testBackends {
		t.Run(string(backend), func(t *testing.T) {
			e := engine(t, Options{Backend: backend})
			must(t, fstest.TestFS(e.DirFS(dir), "a", "b/c", "b/d/e", "empty"))
			sub, err := fs.Sub(e.DirFS(dir), "b")
			must(t, err)
			must(t, fstest.TestFS(sub, "c", "d/e"))
			_, err = e.DirFS(dir).ReadFile("none")
			var path *fs.PathError
			if !errors.As(err, &path) || path.Path != "none" || !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		})
	}
}

func TestWrites(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		name := filepath.Join(t.TempDir(), "file")
		f := open(t, e, name, os.O_RDWR|os.O_CREATE|direct)
		content := bytesOf(4 * 4096)
		// The buffer of a write need not be aligned, direct or not.
		unaligned := append([]byte{0}, content...)[1:]
		if n, err := f.WriteAt(unaligned[4096:], 4096); n != 3*4096 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := f.Write(unaligned[:4096]); n != 4096 || err != nil {
			t.Fatal(n, err)
		}
		must(t, f.Sync())
		must(t, f.Datasync())
		if at, err := f.Seek(0, io.SeekCurrent); at != 4096 || err != nil {
			t.Fatal(at, err)
		}
		got, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(got, content) {
			t.Fatal("wrong bytes", err)
		}
		rest, err := io.ReadAll(f)
		if err != nil || !bytes.Equal(rest, content[4096:]) {
			t.Fatal("wrong bytes", len(rest), err)
		}
		n, err := f.WriteAt(unaligned[:100], 10)
		if direct == 0 {
			if n != 100 || err != nil {
				t.Fatal(n, err)
			}
		} else {
			var misaligned *MisalignedError
			if n != 0 || !errors.As(err, &misaligned) || !errors.Is(err, syscall.EINVAL) {
				t.Fatal(n, err)
			}
		}
		must(t, f.Truncate(4096))
		if info, err := f.Stat(); err != nil || info.Size() != 4096 {
			t.Fatal(info, err)
		}
	})
}

func TestLargeTransfers(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		name := filepath.Join(t.TempDir(), "file")
		f := open(t, e, name, os.O_RDWR|os.O_CREATE|direct)
		content := bytesOf(17 << 20)
		if n, err := f.WriteAt(content, 8192); n != len(content) || err != nil {
			t.Fatal(n, err)
		}
		for _, off := range []int64{0, 3} {
			p := make([]byte, len(content)+100)
			n, err := f.ReadAt(p, 8192+off)
			if n != len(content)-int(off) || err != io.EOF || !bytes.Equal(p[:n], content[off:]) {
				t.Fatal(n, err)
			}
		}
	})
}

// notWritable is the errno of a write to a file that is open for reading.
func notWritable() syscall.Errno {
	if runtime.GOOS == "windows" {
		return 5 // ERROR_ACCESS_DENIED.
	}
	return syscall.EBADF
}

func TestErrorsAreThoseOfPackageOS(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		if _, err := e.Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		name := fileWith(t, bytesOf(4096))
		f := open(t, e, name, os.O_RDONLY|direct)
		_, err := f.WriteAt(make([]byte, 4096), 0)
		var path *fs.PathError
		if !errors.As(err, &path) || path.Op != "write" || path.Path != name ||
			path.Err != error(notWritable()) {
			t.Fatalf("%#v", err)
		}
		dir, err := e.Open(t.TempDir())
		must(t, err)
		defer dir.Close()
		if _, err := dir.ReadAt(make([]byte, 1), 0); !errors.Is(err, syscall.EISDIR) {
			t.Fatal(err)
		}
		appending := open(t, e, name, os.O_WRONLY|os.O_APPEND)
		if _, err := appending.WriteAt([]byte("x"), 0); err == nil {
			t.Fatal("WriteAt works on a file that is open for appending")
		}
		if n, err := appending.Write([]byte("x")); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	})
}

func TestClosed(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, fileWith(t, bytesOf(4096)), os.O_RDWR|direct)
		must(t, f.Close())
		_, read := f.Read(make([]byte, 1))
		_, readAt := f.ReadAt(make([]byte, 1), 0)
		_, write := f.Write([]byte("x"))
		_, stat := f.Stat()
		_, buf := f.ReadBuf(context.Background(), 0, 1)
		batch := f.ReadBatch([]Transfer{{P: make([]byte, 1)}})
		for i, err := range []error{read, readAt, write, stat, buf, batch, f.Sync(), f.Close()} {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}

// If a file is closed during reads, its descriptor may belong to another file at once. No read may
// return data of that file.
func TestCloseWhileReading(t *testing.T) {
	a, b := bytes.Repeat([]byte("a"), 8192), bytes.Repeat([]byte("b"), 8192)
	first, second := fileWith(t, a), fileWith(t, b)
	each(t, func(t *testing.T, e *Engine, direct int) {
		for range 100 {
			f := open(t, e, first, os.O_RDONLY|direct)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					p := make([]byte, 8192)
					for {
						n, err := f.ReadAt(p, 0)
						if errors.Is(err, os.ErrClosed) {
							return
						}
						if n != 8192 || err != nil || !bytes.Equal(p, a) {
							t.Error("data of another file, or an error:", n, err)
							return
						}
					}
				})
			}
			runtime.Gosched()
			check(t, f.Close())
			g := open(t, e, second, os.O_RDONLY|direct)
			wg.Wait()
			g.Close()
		}
	})
}

func TestPipe(t *testing.T) {
	for _, backend := range testBackends {
		e := engine(t, Options{Backend: backend})
		r, w, err := os.Pipe()
		must(t, err)
		reading, err := e.NewFile(r)
		must(t, err)
		writing, err := e.NewFile(w)
		must(t, err)
		if _, err := writing.WriteString("hello"); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 10)
		if n, err := reading.Read(p); string(p[:n]) != "hello" || err != nil {
			t.Fatal(n, err)
		}
		done := make(chan error)
		go func() {
			_, err := reading.Read(p)
			done <- err
		}()
		time.Sleep(10 * time.Millisecond)
		must(t, reading.Close())
		if err := <-done; !errors.Is(err, os.ErrClosed) {
			t.Fatal("close does not wake a reader:", err)
		}
		writing.Close()
	}
}

func TestBatches(t *testing.T) {
	content := bytesOf(300 * 4096)
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, fileWith(t, content), os.O_RDWR|direct)
		batch := make([]Transfer, 300)
		for i := range batch {
			at := rand.IntN(len(content))
			n := rand.IntN(9000)
			if i%2 == 0 {
				at, n = at&^4095, 4096
			}
			batch[i] = Transfer{P: make([]byte, n), Off: int64(at)}
		}
		batch[7].Off = int64(len(content)) + 5
		must(t, f.ReadBatch(batch))
		for i, b := range batch {
			want := 0
			if b.Off < int64(len(content)) {
				want = copy(make([]byte, len(b.P)), content[b.Off:])
			}
			if b.N != want || (b.Err == io.EOF) != (want < len(b.P)) ||
				!bytes.Equal(b.P[:want], content[min(int(b.Off), len(content)):][:want]) {
				t.Fatalf("%d: %d of %d at %d: %v", i, b.N, len(b.P), b.Off, b.Err)
			}
		}
		for _, end := range []Durability{NoSync, DataSync,
			FullSync} {
			for _, gap := range []int64{0, 4096} {
				var writes []Transfer
				at := int64(4096)
				memory := NewBuffer(20 * 4096)
				for i := range 20 {
					p := memory.Bytes()[i*4096:][:4096]
					copy(p, bytesOf(4096 + i)[i:])
					writes = append(writes, Transfer{P: p, Off: at})
					at += 4096 + gap
				}
				must(t, f.WriteBatch(writes, end))
				for _, w := range writes {
					p := make([]byte, 4096)
					if n, err := f.ReadAt(p, w.Off); n != 4096 || err != nil ||
						!bytes.Equal(p, w.P) || w.N != 4096 {
						t.Fatal(n, err)
					}
				}
				memory.Release()
			}
		}
	})
}

func TestBatchErrors(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		name := fileWith(t, bytesOf(8192))
		f := open(t, e, name, os.O_RDONLY|direct)
		for _, end := range []Durability{NoSync, FullSync} {
			writes := []Transfer{{P: make([]byte, 4096)},
				{P: make([]byte, 4096), Off: 4096}}
			err := f.WriteBatch(writes, end)
			if !errors.Is(err, notWritable()) || !errors.Is(writes[1].Err, notWritable()) {
				t.Fatal(err, writes[1].Err)
			}
		}
		batch := []Transfer{{P: make([]byte, 10), Off: -1}, {P: make([]byte, 10)}}
		if err := f.ReadBatch(batch); err == nil || batch[0].Err == nil || batch[1].N != 10 {
			t.Fatal(err, batch)
		}
	})
}

// A batch that is refused before it starts leaves its error in every transfer, and no old result.
func TestRefusedBatches(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, fileWith(t, bytesOf(8192)), os.O_RDWR|direct)
		ended, cancel := context.WithCancelCause(context.Background())
		reason := errors.New("not needed any more")
		cancel(reason)
		closed := open(t, e, fileWith(t, bytesOf(8192)), os.O_RDWR|direct)
		must(t, closed.Close())
		for i, refused := range []struct {
			run  func(batch []Transfer) error
			want error
		}{
			{func(b []Transfer) error { return f.ReadBatchContext(ended, b) }, reason},
			{func(b []Transfer) error {
				return f.WriteBatchContext(ended, b, NoSync)
			}, reason},
			{func(b []Transfer) error { return closed.ReadBatch(b) }, os.ErrClosed},
			{func(b []Transfer) error {
				return closed.WriteBatch(b, FullSync)
			}, os.ErrClosed},
			{func(b []Transfer) error {
				return f.WriteBatch(b, Durability(9))
			}, syscall.EINVAL},
		} {
			p := make([]byte, 4096)
			batch := []Transfer{{P: p, N: 7}, {P: p, N: 7}}
			if err := refused.run(batch); !errors.Is(err, refused.want) {
				t.Errorf("%d: %v", i, err)
			}
			for _, transfer := range batch {
				if !errors.Is(transfer.Err, refused.want) || transfer.N != 0 {
					t.Errorf("%d: %d, %v", i, transfer.N, transfer.Err)
				}
			}
		}
	})
}

func TestContexts(t *testing.T) {
	content := bytesOf(1 << 20)
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, fileWith(t, content), os.O_RDWR|direct)
		gone, cancel := context.WithCancelCause(context.Background())
		reason := errors.New("not needed any more")
		cancel(reason)
		p := make([]byte, 4096)
		for i, err := range []error{
			errorOf(f.ReadAtContext(gone, p, 0)), errorOf(f.WriteAtContext(gone, p,
				0)), f.SyncContext(gone),
			errorOf(f.ReadBuf(gone, 0, 10)), f.ReadBatchContext(gone, []Transfer{{P: p}}),
		} {
			if !errors.Is(err, reason) {
				t.Errorf("%d: %v", i, err)
			}
		}
		b, err := f.ReadBuf(t.Context(), 100, 5000)
		if err != nil || !bytes.Equal(b.Bytes(), content[100:5100]) {
			t.Fatal(err)
		}
		b.Release()
		b, err = f.ReadBuf(t.Context(), int64(len(content))-10, 5000)
		if err != io.EOF || !bytes.Equal(b.Bytes(), content[len(content)-10:]) {
			t.Fatal(err)
		}
	})
}

// A length that comes from the content of a file, such as a footer, costs no memory that the file
// cannot fill.
func TestReadBufBeyondTheFile(t *testing.T) {
	content := bytesOf(9<<20 + 100)
	name := fileWith(t, content)
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, name, os.O_RDONLY|direct)
		for _, ctx := range []context.Context{context.Background(), t.Context()} {
			size := int64(len(content))
			for _, off := range []int64{0, 100, size - 1, size, size + 1, 1 << 40} {
				for _, n := range []int{10 << 20, math.MaxInt / 2, math.MaxInt} {
					b, err := f.ReadBuf(ctx, off, n)
					if err != io.EOF || !bytes.Equal(b.Bytes(), content[min(off, size):]) {
						t.Fatalf("%d bytes at %d: %v", n, off, err)
					}
					if got, most := cap(b.Bytes()), int(max(size-off, 0))+8192; got > most {
						t.Errorf("%d bytes at %d: memory of %d", n, off, got)
					}
					b.Release()
				}
			}
			b, err := f.ReadBuf(ctx, 50, 9<<20)
			if err != nil || !bytes.Equal(b.Bytes(), content[50:50+9<<20]) {
				t.Fatal(err)
			}
			b.Release()
		}
	})
}

func TestCopies(t *testing.T) {
	content := bytesOf(1<<20 + 100)
	name := fileWith(t, content)
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, name, os.O_RDONLY|direct)
		var b bytes.Buffer
		if n, err := io.Copy(&b, f); n != int64(len(content)) || err != nil ||
			!bytes.Equal(b.Bytes(), content) {
			t.Fatal(n, err)
		}
		if _, err := f.Seek(100, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		to := open(t, e, filepath.Join(t.TempDir(), "copy"), os.O_RDWR|os.O_CREATE)
		if n, err := io.Copy(to, f); n != int64(len(content))-100 || err != nil {
			t.Fatal(n, err)
		}
		if got, err := os.ReadFile(to.Name()); err != nil || !bytes.Equal(got, content[100:]) {
			t.Fatal("wrong bytes", err)
		}
		if n, err := to.ReadFrom(strings.NewReader("tail")); n != 4 || err != nil {
			t.Fatal(n, err)
		}
	})
}

func TestNoAllocations(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, fileWith(t, bytesOf(1<<16)), os.O_RDWR|direct)
		buffer := NewBuffer(4096)
		p := buffer.Bytes()
		// Other reads at the same time, so that more than a few run.
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				p := NewBuffer(4096).Bytes()
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = f.ReadAt(p, 8192)
					}
				}
			})
		}
		reads := testing.AllocsPerRun(500, func() { _, _ = f.ReadAt(p, 4096) })
		writes := testing.AllocsPerRun(500, func() { _, _ = f.WriteAt(p, 4096) })
		close(stop)
		wg.Wait()
		if !race.Enabled && (reads != 0 || writes != 0) {
			t.Fatalf("%v allocations for a read, %v for a write", reads, writes)
		}
	})
}

func TestPreallocateAndAdvise(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, fileWith(t, bytesOf(4096)), os.O_RDWR|direct)
		if err := f.Preallocate(0, 1<<20); errors.Is(err, errors.ErrUnsupported) {
			if len(testBackends) > 1 {
				skip.Test(t, "this file system has no fallocate")
			}
			return // queues_none_test.go has the rest.
		} else if err != nil {
			t.Fatal(err)
		}
		if info, _ := f.Stat(); info.Size() != 1<<20 {
			t.Fatal(info.Size())
		}
		must(t, f.Advise(0, 0, AdviceWillNeed))
		if err := f.Advise(0, 0, 99); !errors.Is(err, syscall.EINVAL) {
			t.Fatal(err)
		}
	})
}

func TestExplain(t *testing.T) {
	for _, backend := range testBackends {
		e := engine(t, Options{Backend: backend})
		if text := e.Explain(); !strings.HasPrefix(text, "backend "+string(backend)) ||
			e.Backend() != backend {
			t.Fatal(text)
		}
	}
	if _, err := New(Options{Backend: "smoke signals"}); err == nil ||
		!strings.Contains(err.Error(), "smoke signals") {
		t.Fatal(err)
	}
	t.Setenv(BackendEnv, "threads")
	if e := engine(t, Options{}); e.Backend() != BackendThreads {
		t.Fatal(e.Explain())
	}
	e := engine(t, Options{Backend: testBackends[0]})
	if e.Backend() != testBackends[0] {
		t.Fatal("the option does not override the environment")
	}
}

func TestClosedEngine(t *testing.T) {
	for _, backend := range testBackends {
		e := engine(t, Options{Backend: backend, AlwaysRing: true})
		f := open(t, e, fileWith(t, bytesOf(4096)), os.O_RDONLY)
		must(t, e.Close())
		if _, err := f.ReadAt(make([]byte, 10), 0); !errors.Is(err, ErrEngineClosed) {
			t.Fatal(err)
		}
		if err := e.Close(); !errors.Is(err, os.ErrClosed) {
			t.Fatal(err)
		}
		log := open(t, e, fileWith(t, nil), os.O_WRONLY|os.O_APPEND)
		batch := []Transfer{{P: []byte("record")}}
		if err := log.WriteBatch(batch, NoSync); !errors.Is(err, ErrEngineClosed) ||
			!errors.Is(batch[0].Err, err) {
			t.Error(err, batch[0].Err)
		}
		check(t, log.Close())
	}
}

// A write of no bytes checks whether the file is open for writing.
func TestWriteNothing(t *testing.T) {
	name := fileWith(t, []byte("content"))
	each(t, func(t *testing.T, e *Engine, direct int) {
		f, err := e.OpenFile(name, os.O_RDONLY|direct, 0)
		must(t, err)
		defer f.Close()
		if n, err := f.Write(nil); n != 0 || !errors.Is(err, notWritable()) {
			t.Fatal(n, err)
		}
	})
}
