//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Read at the current position: as much as os.File.Read returns, wherever the data comes from.

package ringway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// readOptions are engines that read in different ways.
func readOptions() (all []Options) {
	for _, backend := range testBackends {
		for _, always := range []bool{false, true} {
			all = append(all, Options{Backend: backend, AlwaysRing: always})
		}
	}
	return all
}

// evict drops a file from the page cache, except for its first bytes.
func evict(t *testing.T, f *File, cached int) {
	t.Helper()
	must(t, f.Sync())
	info := get(f.Stat())(t)
	plain := get(f.engine.Open(f.Name()))(t)
	defer plain.Close()
	page, beyond := make([]byte, pageSize), int64(cached)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		for _, advice := range []Advice{AdviceRandom, AdviceDontNeed} { // Random: no read-ahead.
			must(t, plain.Advise(0, 0, advice))
		}
		for at := 0; at < cached; at += pageSize {
			_, err := plain.file.ReadAt(page, int64(at))
			require(t, err == nil || err == io.EOF, "%v", err)
		}
		if beyond >= info.Size() {
			return
		}
		if _, more := readCached(plain.fd, page, beyond, 0); !more {
			return
		}
		if time.Now().After(end) {
			skip.Test(t, "this file system keeps everything in the page cache")
		}
	}
}

// A part of the file is cached, or all of it, or nothing: Read fills the buffer.
func TestReadFillsTheBufferWhateverIsCached(t *testing.T) {
	content := make([]byte, 5<<19+100)
	for i := range content {
		content[i] = byte(i >> 10)
	}
	for _, o := range readOptions() {
		for _, direct := range []int{0, Direct} {
			e := newOrSkip(t, o)
			for _, cached := range []int{0, 128 << 10, len(content)} {
				if direct != 0 && cached != 0 {
					continue
				}
				f := openIn(t, e, content, os.O_RDWR|direct)
				for _, size := range []int{256 << 10, 2<<20 + 1} {
					evict(t, f, cached)
					must(t, errorOf(f.Seek(0, io.SeekStart)))
					for at := 0; at < len(content); at += size {
						p := make([]byte, size)
						n, err := f.Read(p)
						want := content[at:min(at+size, len(content))]
						require(t, err == nil && bytes.Equal(p[:n], want),
							"%+v, direct %v, %d cached: read of %d at %d: %d, %v", o, direct != 0,
							cached, size, at, n, err)
					}
					n, err := f.Read(make([]byte, size))
					expect(t, n == 0 && err == io.EOF, "at the end: %v, %v", n, err)
				}
				f.Close()
			}
		}
	}
}

// A queue may answer a part of a read. The caller of Read does not see that either.
func TestReadIsNotShortIfTheQueueIs(t *testing.T) {
	for _, direct := range []int{0, Direct} {
		e, faults, err := faultyEngine(Options{Backend: BackendURing}, faultRates{short: 2}, 7)
		cleanUp(t, e, err)
		content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		f := openIn(t, e, content, os.O_RDWR|direct)
		for at := 0; at < len(content); {
			p := make([]byte, 64<<10)
			n, err := f.Read(p)
			require(t, n == len(p) && err == nil && bytes.Equal(p, content[at:at+n]),
				"%v, %v, %v, %v", direct != 0, at, n, err)
			at += n
		}
		expect(t, faults.short.Load() != 0, "no read was short")
	}
}

// A file whose system call returns a page at a time is read as with package os: one that has no
// more data for now must not be asked again.
func TestReadIsShortWhereTheSystemCallIs(t *testing.T) {
	for _, o := range readOptions() {
		e := newOrSkip(t, o)
		const name = "/proc/kallsyms"
		f, err := e.Open(name)
		if err != nil {
			skip.Test(t, err)
		}
		plain := get(os.Open(name))(t)
		short := false
		for i := range 10 {
			p, q := make([]byte, 1<<16), make([]byte, 1<<16)
			n, err := f.Read(p)
			want, wantErr := plain.Read(q)
			expect(t, n == want && err == wantErr, "%s: read %d: %d, %v; package os: %d, %v",
				e.backend, i, n, err, want, wantErr)
			short = short || want < len(q)
		}
		if !short {
			skip.Test(t, "this kernel fills the buffer from "+name)
		}
		plain.Close()
	}
}

// Copies from a file meet no short read either.
func TestCopiesWhateverIsCached(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	for _, o := range readOptions() {
		e := newOrSkip(t, o)
		for _, cached := range []int{0, 64 << 10, len(want)} {
			f := openIn(t, e, want, os.O_RDWR)
			evict(t, f, cached)
			sizes := map[string]int{}
			var got bytes.Buffer
			w := writerFunc(func(p []byte) (int, error) {
				sizes[fmt.Sprint(len(p))]++
				return got.Write(p)
			})
			n, err := f.WriteTo(w)
			expect(t, n == int64(len(want)) && err == nil && bytes.Equal(got.Bytes(), want),
				"%v, %v", n, err)
			expect(t, len(sizes) == 1, "%s, %d cached: pieces of several sizes: %v", e.backend,
				cached, sizes)
			must(t, errorOf(f.Seek(0, io.SeekStart)))
			evict(t, f, cached)
			to := openIn(t, e, nil, os.O_RDWR)
			if n, err := to.ReadFrom(f); n != int64(len(want)) || err != nil ||
				!bytes.Equal(content(t, to), want) {
				t.Error("the copy differs:", n, err)
			}
		}
	}
}

type writerFunc func(p []byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// A read takes memory for the pages that the file has there, and for one more at most: the file may
// grow. It takes no more than was asked for.
func TestReadableLength(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendThreads})
	f := openIn(t, e, nil, os.O_RDWR)
	for _, c := range []struct {
		size, off int64
		n, want   int
	}{
		{0, 0, 1 << 30, 4096},
		{0, 0, 100, 100},
		{100, 0, 1 << 30, 4096},
		{100, 50, 60, 60},
		{4095, 0, 1 << 30, 4096},
		{4096, 0, 1 << 30, 8192},
		{5000, 0, 1 << 30, 8192},
		{5000, 0, 5000, 5000},
		{5000, 0, 4999, 4999},
		{5000, 0, 5001, 5001},
		{5000, 4999, 1 << 30, 4096},
		{5000, 5000, 1 << 30, 4096},
		{5000, 1 << 40, 1 << 30, 4096},
		{1 << 30, 0, 9 << 20, 9 << 20},
	} {
		must(t, f.Truncate(c.size))
		got, err := f.readableLength(c.off, c.n)
		expect(t, got == c.want && err == nil, "%+v: %d, %v", c, got, err)
	}
	reading, _ := pipe(t, e)
	got, err := reading.readableLength(0, 1<<30)
	expect(t, got == 1<<30 && err == nil, "a pipe, which has no length: %d, %v", got, err)
}

// No file is too long for its length to be rounded up.
func TestReadBufOfTheLongestFile(t *testing.T) {
	e := newOrSkip(t, Options{})
	file := get(createInMemory())(t)
	f := get(e.NewFile(file))(t)
	defer f.Close()
	if err := f.Truncate(math.MaxInt64); err != nil {
		skip.Test(t, err)
	}
	const n = largestBlock + 5
	for _, off := range []int64{0, math.MaxInt64 - n} {
		for _, ctx := range []context.Context{background, t.Context()} {
			buffer := get(f.ReadBuf(ctx, off, n))(t)
			expect(t, buffer.Len() == n, "%d bytes at %d", buffer.Len(), off)
			buffer.Release()
		}
	}
	for off, left := range map[int64]int{math.MaxInt64: 0, math.MaxInt64 - 5000: 5000} {
		for _, n := range []int{left, left + 1, left + 3*pageSize, math.MaxInt} {
			length, err := f.readableLength(off, n)
			expect(t, err == nil && length >= left && length <= min(n, left+pageSize),
				"%d bytes at %d: memory for %d, %v", n, off, length, err)
		}
	}
}

// A direct read that stops within a block has met the end of the file, which needs no second one.
func TestDirectReadOfTheEndIsOneOperation(t *testing.T) {
	for _, backend := range queueBackends {
		e, pushed := engineThatCounts(t, backend)
		f := openIn(t, e, make([]byte, 5000), os.O_RDWR|Direct)
		if facts := f.lookUp(); !facts.exact || !facts.allows(backend) {
			skip.Test(t, "this file system is not known")
		}
		before := pushed()
		n, err := f.ReadAt(alignedSlice(2*pageSize, pageSize), 0)
		expect(t, n == 5000 && err == io.EOF && pushed()-before == 1, "%v, %v, %v, %v", backend, n,
			err, pushed()-before)
	}
}
