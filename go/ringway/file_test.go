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
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/ringway-io/ringway/go/internal/race"
)

// sameRead compares the result of a read, and what was read, with that of package os.
func sameRead(t *testing.T, what string, read, reference func(p []byte) (int, error), n int) {
	t.Helper()
	p, want := make([]byte, n), make([]byte, n)
	got, err := read(p)
	wanted, wantErr := reference(want)
	expect(t, got == wanted && bytes.Equal(p[:got], want[:wanted]) &&
		fmt.Sprint(err) == fmt.Sprint(wantErr), "%s of %d bytes: %d, %v; package os: %d, %v", what,
		n, got, err, wanted, wantErr)
}

// At every offset a read has the result of package os: aligned or not, at the end of the file, and
// near the largest offset, where a range that ends beyond it is EINVAL.
func TestReaderAtContract(t *testing.T) {
	content := bytesOf(3*4096 + 777)
	name := fileWith(t, content)
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, name, os.O_RDONLY|direct)
		reference := get(os.Open(name))(t)
		defer reference.Close()
		all := []int64{0, 1, 511, 512, 4095, 4096, 4097, 12288, int64(len(content)) - 1,
			int64(len(content)), 1 << 20, 1 << 40, -1}
		for _, before := range []int64{0, 1, 100, 511, 512, 4095, 4096, 5000, 3 << 20,
			maxPooled + 100} {
			all = append(all, math.MaxInt64-before)
		}
		for _, off := range all {
			lengths := []int{0, 1, 10, 511, 512, 513, 4096, 5000, 12288, 20000}
			if off > 1<<40 {
				lengths = append(lengths, 2<<20, 4<<20, maxPooled+4096)
			}
			for _, n := range lengths {
				plain := func(p []byte) (int, error) { return reference.ReadAt(p, off) }
				sameRead(t, fmt.Sprint("ReadAt ", off),
					func(p []byte) (int, error) { return f.ReadAt(p, off) }, plain, n)
				if n > 0 { // With a context that can end, it need not be looked at for nothing.
					sameRead(t, fmt.Sprint("ReadAtContext ", off), func(p []byte) (int, error) {
						return f.ReadAtContext(t.Context(), p, off)
					}, plain, n)
				}
			}
		}
	})
}

// The same for reads at the current position, on a file system that has positions that large.
func TestReadNearTheLargestPosition(t *testing.T) {
	for _, direct := range []int{0, Direct} {
		e := newOrSkip(t, Options{})
		dir, err := os.MkdirTemp("/dev/shm", "ringway")
		if err != nil {
			t.Skip("skipped: there is no file system in memory: ", err)
		}
		defer os.RemoveAll(dir)
		plain := get(os.Create(dir + "/file"))(t)
		defer plain.Close()
		f, err := e.OpenFile(plain.Name(), os.O_RDWR|direct, 0)
		if direct != 0 && errors.Is(err, syscall.EINVAL) {
			t.Skip("skipped: no direct I/O in memory before Linux 6.6")
		}
		must(t, err)
		defer f.Close()
		for _, before := range []int64{1, 100, 5000} {
			for _, length := range []int{1, 100, 600, 9000} {
				must(t, errors.Join(errorOf(f.Seek(math.MaxInt64-before, io.SeekStart)),
					errorOf(plain.Seek(math.MaxInt64-before, io.SeekStart))))
				sameRead(t, fmt.Sprint("Read ", before), f.Read, plain.Read, length)
			}
		}
	}
}

func TestIotest(t *testing.T) {
	content := bytesOf(9000)
	name := fileWith(t, content)
	each(t, func(t *testing.T, e *Engine, direct int) {
		check(t, iotest.TestReader(open(t, e, name, os.O_RDONLY|direct), content))
		section := io.NewSectionReader(open(t, e, name, os.O_RDONLY|direct), 100, 8000)
		check(t, iotest.TestReader(section, content[100:8100]))
	})
}

// misaligned fails the test if an error is not a MisalignedError with these values.
func misaligned(t *testing.T, what string, err error, off int64, n int) {
	t.Helper()
	var e *MisalignedError
	expect(t, errors.As(err, &e) && errors.Is(err, syscall.EINVAL) && e.Offset == off &&
		e.Len == n && e.Align&(e.Align-1) == 0 && e.Align >= 2,
		"%s: %v, not a MisalignedError of %d bytes at %d", what, err, n, off)
}

// However a direct write is made, its error says what is not aligned, and nothing is written.
func TestMisalignedWrites(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		if direct == 0 {
			return
		}
		want := bytesOf(8192)
		name := fileWith(t, want)
		f := open(t, e, name, os.O_RDWR|direct)
		whole := alignedSlice(4096, pageSize)
		odd := whole[:100]
		ended, cancel := context.WithCancel(t.Context())
		defer cancel()
		misaligned(t, "WriteAt", errorOf(f.WriteAt(odd, 4096)), 4096, 100)
		misaligned(t, "WriteAtContext", errorOf(f.WriteAtContext(ended, whole, 10)), 10, 4096)
		must(t, errorOf(f.Seek(4096, io.SeekStart)))
		misaligned(t, "Write", errorOf(f.Write(odd)), 4096, 100)
		misaligned(t, "WriteString", errorOf(f.WriteString("odd")), 4096, 3)
		for _, end := range []Durability{NoSync, DataSync} {
			for what, batch := range map[string][]Transfer{
				"one":       {{P: odd, Off: 4096}},
				"adjacent":  {{P: odd, Off: 4096}, {P: whole[:4], Off: 4196}},
				"scattered": {{P: whole[:3], Off: 0}, {P: whole[:4096], Off: 10}},
			} {
				misaligned(t, "WriteBatch: "+what, f.WriteBatch(batch, end), batch[0].Off,
					len(batch[0].P))
				for i := range batch {
					misaligned(t, what, batch[i].Err, batch[i].Off, len(batch[i].P))
				}
			}
		}
		expect(t, bytes.Equal(content(t, f), want), "something was written")
	})
}

// The same of appends, which begin at the end of the file: the kernel knows where that is.
func TestMisalignedAppends(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		if direct == 0 {
			return
		}
		for _, size := range []int{4096, 5} {
			want := bytesOf(size)
			name := fileWith(t, want)
			f := open(t, e, name, os.O_WRONLY|os.O_APPEND|direct)
			all := map[string]func(p []byte) error{
				"Write": func(p []byte) error { return errorOf(f.Write(p)) },
				"ReadFrom": func(p []byte) error {
					return errorOf(f.ReadFrom(bytes.NewReader(p)))
				},
			}
			for what, split := range map[string]func(p []byte) []Transfer{
				"one":    func(p []byte) []Transfer { return []Transfer{{P: p}} },
				"halves": func(p []byte) []Transfer { return []Transfer{{P: p[:2]}, {P: p[2:]}} },
				"pages": func(p []byte) []Transfer {
					n := len(p) &^ 4095
					return []Transfer{{P: p[:n]}, {P: p[n:]}}
				},
			} {
				all["WriteBatch: "+what] = func(p []byte) error {
					batch := split(p)
					err := f.WriteBatch(batch, DataSync)
					for i := range batch {
						if len(batch[i].P) > 0 {
							misaligned(t, what, batch[i].Err, int64(size), len(p))
						}
					}
					return err
				}
			}
			lengths := []int{3, 100, 4097, 8191}
			probe := open(t, e, fileWith(t, want), os.O_WRONLY|os.O_APPEND|direct)
			_, err := probe.file.Write(alignedSlice(4096, pageSize))
			if errors.Is(err, syscall.EINVAL) { // Not all file systems refuse it.
				lengths = append(lengths, 4096, 8192)
			}
			for what, write := range all {
				for _, n := range lengths {
					misaligned(t, what, write(alignedSlice(n, pageSize)), int64(size), n)
				}
			}
			expect(t, bytes.Equal(content(t, f), want), "something was written")
		}
	})
}

// Transfers in many pieces, with a context that can end and with none.
func TestLargeTransfers(t *testing.T) {
	content := bytesOf(17 << 20)
	each(t, func(t *testing.T, e *Engine, direct int) {
		for _, ctx := range []context.Context{background, t.Context()} {
			f := openIn(t, e, nil, os.O_RDWR|direct)
			moves(t, len(content))(f.WriteAtContext(ctx, content, 8192))
			for _, off := range []int64{0, 3, 8 << 20} {
				p := make([]byte, len(content)+100)
				n, err := f.ReadAtContext(ctx, p, 8192+off)
				require(t, n == len(content)-int(off) && err == io.EOF &&
					bytes.Equal(p[:n], content[off:]), "%d, %v", n, err)
			}
			check(t, f.SyncContext(ctx))
		}
	})
}

// notWritable is the errno of a write to a file that is open for reading.
var notWritable = map[bool]syscall.Errno{false: syscall.EBADF,
	true: 5 /* ERROR_ACCESS_DENIED */}[runtime.GOOS == "windows"]

func TestErrorsAreThoseOfPackageOS(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		wantError(t, "open", errorOf(e.Open(filepath.Join(t.TempDir(), "none"))), fs.ErrNotExist)
		f := openIn(t, e, bytesOf(4096), os.O_RDONLY|direct)
		_, err := f.WriteAt(make([]byte, 4096), 0)
		var path *fs.PathError
		require(t, errors.As(err, &path) && path.Op == "write" && path.Path == f.Name() &&
			path.Err == error(notWritable), "%#v", err)
		wantError(t, "a write of nothing", errorOf(f.Write(nil)), notWritable)
		appending := open(t, e, f.Name(), os.O_WRONLY|os.O_APPEND)
		_, err = appending.WriteAt([]byte("x"), 0)
		expect(t, err != nil, "WriteAt works on a file that is open for appending")
		moves(t, 1)(appending.Write([]byte("x")))
		for _, end := range []Durability{NoSync, FullSync} {
			writes := []Transfer{{P: make([]byte, 4096)}, {P: make([]byte, 4096), Off: 4096}}
			wantError(t, "batch", f.WriteBatch(writes, end), notWritable)
			wantError(t, "transfer", writes[1].Err, notWritable)
		}
	})
}

// If a file is closed during reads, its descriptor may belong to another file at once. No read may
// return data of that file.
func TestCloseWhileReading(t *testing.T) {
	a, b := bytes.Repeat([]byte("a"), 8192), bytes.Repeat([]byte("b"), 8192)
	first, second := fileWith(t, a), fileWith(t, b)
	each(t, func(t *testing.T, e *Engine, direct int) {
		for range 50 {
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

// Batches with a context that can end and with none.
func TestBatches(t *testing.T) {
	content := bytesOf(300 * 4096)
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := openIn(t, e, content, os.O_RDWR|direct)
		contexts := []context.Context{background, t.Context()}
		for _, ctx := range contexts {
			batch := make([]Transfer, 300)
			for i := range batch {
				at, n := rand.IntN(len(content)), rand.IntN(9000)
				if i%2 == 0 {
					at, n = at&^4095, 4096
				}
				batch[i] = Transfer{P: make([]byte, n), Off: int64(at)}
			}
			batch[7].Off = int64(len(content)) + 5
			must(t, f.ReadBatchContext(ctx, batch))
			for i, b := range batch {
				want := content[min(int(b.Off), len(content)):]
				want = want[:min(len(want), len(b.P))]
				require(t, b.N == len(want) && (b.Err == io.EOF) == (len(want) < len(b.P)) &&
					bytes.Equal(b.P[:b.N], want), "%d: %d of %d at %d: %v", i, b.N, len(b.P),
					b.Off, b.Err)
			}
			// An error of one transfer is that of the batch, and the others are done.
			batch = []Transfer{{P: make([]byte, 10), Off: -1}, {P: make([]byte, 10)}}
			err := f.ReadBatchContext(ctx, batch)
			expect(t, err != nil && batch[0].Err != nil && batch[1].N == 10, "%v, %v", err, batch)
		}
		round := 0
		for _, end := range []Durability{NoSync, DataSync, FullSync} {
			for _, gap := range []int64{0, 4096} {
				writes := make([]Transfer, 20)
				memory := alignedSlice(20*8192, pageSize)
				for i := range writes {
					p := memory[i*8192+i%2:][:4096] // Not all of the memory is aligned.
					copy(p, bytesOf(4096 + i)[i:])
					writes[i] = Transfer{P: p, Off: 4096 + int64(i)*(4096+gap)}
				}
				must(t, f.WriteBatchContext(contexts[round%2], writes, end))
				round++
				for _, w := range writes {
					reads(t, f, w.Off, w.P)
					expect(t, w.N == 4096, "%d bytes were written", w.N)
				}
			}
		}
	})
}

// A batch that is refused before it starts leaves its error in every transfer, and no old result.
// (matrix_test.go has the other calls.)
func TestRefusedBatches(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := openIn(t, e, bytesOf(8192), os.O_RDWR|direct)
		closed := openIn(t, e, bytesOf(8192), os.O_RDWR|direct)
		must(t, closed.Close())
		ended, cancel := context.WithCancelCause(context.Background())
		reason := errors.New("not needed any more")
		cancel(reason)
		p := make([]byte, 4096)
		for _, refused := range []struct {
			what string
			run  func(batch []Transfer) error
			want error
		}{
			{"ReadBatchContext",
				func(b []Transfer) error { return f.ReadBatchContext(ended, b) }, reason},
			{"WriteBatchContext",
				func(b []Transfer) error { return f.WriteBatchContext(ended, b, NoSync) }, reason},
			{"ReadBatch", func(b []Transfer) error { return closed.ReadBatch(b) }, os.ErrClosed},
			{"WriteBatch",
				func(b []Transfer) error { return closed.WriteBatch(b, FullSync) }, os.ErrClosed},
			{"an unknown end",
				func(b []Transfer) error { return f.WriteBatch(b, Durability(9)) }, syscall.EINVAL},
		} {
			batch := []Transfer{{P: p, N: 7}, {P: p, N: 7}}
			wantError(t, refused.what, refused.run(batch), refused.want)
			for _, transfer := range batch {
				wantError(t, refused.what+", a transfer", transfer.Err, refused.want)
				expect(t, transfer.N == 0, "%v, %v", refused.what, transfer.N)
			}
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
					require(t, err == io.EOF && bytes.Equal(b.Bytes(), content[min(off, size):]),
						"%d bytes at %d: %v", n, off, err)
					got, most := cap(b.Bytes()), int(max(size-off, 0))+8192
					expect(t, got <= most, "%d bytes at %d: memory of %d", n, off, got)
					b.Release()
				}
			}
			for _, n := range []int{5000, 9 << 20} {
				b, err := f.ReadBuf(ctx, 50, n)
				require(t, err == nil && bytes.Equal(b.Bytes(), content[50:50+n]), "%v", err)
				b.Release()
			}
		}
	})
}

func TestNoAllocations(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := openIn(t, e, bytesOf(1<<16), os.O_RDWR|direct)
		p := NewBuffer(4096).Bytes()
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

func TestClosedEngine(t *testing.T) {
	for _, backend := range testBackends {
		e := newOrSkip(t, Options{Backend: backend, AlwaysRing: true})
		f := openIn(t, e, bytesOf(4096), os.O_RDONLY)
		log := openIn(t, e, nil, os.O_WRONLY|os.O_APPEND)
		must(t, e.Close())
		wantError(t, "ReadAt", errorOf(f.ReadAt(make([]byte, 10), 0)), ErrEngineClosed)
		wantError(t, "Close", e.Close(), os.ErrClosed)
		batch := []Transfer{{P: []byte("record")}}
		err := log.WriteBatch(batch, NoSync)
		wantError(t, "WriteBatch", err, ErrEngineClosed)
		wantError(t, "its transfer", batch[0].Err, err)
		check(t, log.Close())
	}
}

// A direct write of no bytes does nothing at any offset, as with package os.
func TestEmptyDirectWrites(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := openIn(t, e, []byte("content"), os.O_RDWR|direct)
		moves(t, 0)(f.WriteAt(nil, 1))
		moves(t, 0)(f.WriteAtContext(t.Context(), []byte{}, 1))
		must(t, errorOf(f.Seek(1, io.SeekStart)))
		moves(t, 0)(f.Write(nil))
		must(t, f.WriteBatch([]Transfer{{Off: 1}}, NoSync))
		expect(t, string(content(t, f)) == "content", "something was written")
	})
}

// The file has zeroes behind its data, and no hole: blocks that are only allocated are one, as far
// as the file system tells holes.
func TestPreallocateWritten(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		data := bytesOf(2 * pageSize)
		f := openIn(t, e, data, os.O_RDWR|direct)
		must(t, f.PreallocateWritten(int64(len(data)), zeroesAtOnce+pageSize))
		want := append(bytes.Clone(data), make([]byte, zeroesAtOnce+pageSize)...)
		require(t, bytes.Equal(content(t, f), want), "not the data with zeroes behind it")
		must(t, f.PreallocateWritten(int64(len(want)), pageSize))
		info, _ := f.Stat()
		require(t, info.Size() == int64(len(want))+pageSize, "%v", info.Size())
		const seekHole = 4
		name := get(os.Open(f.Name()))(t)
		defer name.Close()
		if hole, err := name.Seek(0, seekHole); err == nil && hole != int64(len(want))+pageSize {
			t.Error("a hole at", hole)
		}
	})
}

// What could overwrite data is refused, and changes nothing.
func TestPreallocateWrittenRefuses(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		data := bytesOf(2 * pageSize)
		f := openIn(t, e, data, os.O_RDWR|direct)
		for _, off := range []int64{0, pageSize, 2*pageSize - 1} {
			err := f.PreallocateWritten(off, pageSize)
			if direct == 0 || off%pageSize == 0 {
				wantError(t, "before the end", err, errOverwrites)
			} else if err == nil {
				t.Error("a range before the end is not refused")
			}
		}
		for _, c := range [][2]int64{{-1, 10}, {2 * pageSize, 0}, {2 * pageSize, -1},
			{2 * pageSize, math.MaxInt64}, {math.MaxInt64, 1}} {
			wantError(t, "an impossible range", f.PreallocateWritten(c[0], c[1]), syscall.EINVAL)
		}
		if direct != 0 {
			var misaligned *MisalignedError
			err := f.PreallocateWritten(2*pageSize, 100)
			expect(t, errors.As(err, &misaligned), "a part of a block: %v", err)
		}
		expect(t, bytes.Equal(content(t, f), data), "the file was changed")
	})
}

func TestPreallocateWrittenOfOtherFiles(t *testing.T) {
	e := newOrSkip(t, Options{})
	log := openIn(t, e, []byte("data"), os.O_WRONLY|os.O_APPEND)
	wantError(t, "O_APPEND", log.PreallocateWritten(4, 10), errAppendZeroes)
	_, writing := pipe(t, e)
	wantError(t, "a pipe", writing.PreallocateWritten(0, 10), errNotRegular)
}
