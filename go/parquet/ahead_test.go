//go:build linux

// Compares reads through Ahead with reads through package os, and tests Fetch with hostile
// metadata.

package parquet_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/ringway-io/ringway/go/internal/race"
	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/internal/tests"
	ringwayparquet "github.com/ringway-io/ringway/go/parquet"
	"github.com/ringway-io/ringway/go/ringway"
)

var must, require, expect = tests.Must, tests.Require, tests.Expect

// get returns the value of a call, and fails the test on an error.
func get[T any](value T, err error) func(testing.TB) T { return tests.Get(value, err) }

var backends = []ringway.Backend{ringway.BackendURing, ringway.BackendKAIO, ringway.BackendThreads}

// row has columns of every shape of chunk: with a small, a large or no dictionary, of long values,
// with fewer values than rows, or with more.
type row struct {
	ID    int64    `parquet:"id,delta"`
	Name  string   `parquet:"name,dict"`
	Code  string   `parquet:"code,dict"` // A large dictionary.
	Long  []byte   `parquet:"long,zstd"`
	Maybe *string  `parquet:"maybe,optional,gzip"`
	Tags  []string `parquet:"tags,list,dict"`
}

// rows writes a file of several row groups, each with several pages per column.
func rows(t testing.TB, w io.Writer) {
	t.Helper()
	writer := parquet.NewGenericWriter[row](w, parquet.PageBufferSize(2000),
		parquet.WriteBufferSize(0), parquet.DataPageVersion(2))
	r := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		group := make([]row, 700)
		for i := range group {
			group[i] = row{ID: r.Int64(), Name: fmt.Sprint("name ", r.IntN(17)),
				Code: strings.Repeat(fmt.Sprint(i), 30),
				Long: bytes.Repeat([]byte{byte(i)}, r.IntN(900))}
			if i%4 == 0 {
				group[i].Maybe = &group[i].Name
			}
			for range r.IntN(4) {
				group[i].Tags = append(group[i].Tags, fmt.Sprint("tag ", r.IntN(5)))
			}
		}
		_, err := writer.Write(group)
		must(t, errors.Join(err, writer.Flush())) // The end of a row group.
	}
	must(t, writer.Close())
}

// wide writes a file with many small columns.
func wide(t testing.TB, w io.Writer) {
	t.Helper()
	group := parquet.Group{}
	for i := range 300 {
		group[fmt.Sprintf("column %03d", i)] = parquet.Int(64)
	}
	writer := parquet.NewWriter(w, parquet.NewSchema("wide", group))
	for i := range 60 {
		one := make(parquet.Row, 300)
		for c := range one {
			one[c] = parquet.Int64Value(int64(i*c)).Level(0, 0, c)
		}
		_, err := writer.WriteRows([]parquet.Row{one})
		must(t, err)
		if i%20 == 19 {
			must(t, writer.Flush())
		}
	}
	must(t, writer.Close())
}

// files returns the two files above, and the files of other writers in the library's testdata.
func files(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	for name, write := range map[string]func(testing.TB, io.Writer){"rows": rows, "wide": wide} {
		var b bytes.Buffer
		write(t, &b)
		must(t, os.WriteFile(filepath.Join(dir, name+".parquet"), b.Bytes(), 0o600))
	}
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/parquet-go/parquet-go").Output()
	must(t, err)
	var all []string
	for _, pattern := range []string{filepath.Join(dir, "*.parquet"),
		filepath.Join(strings.TrimSpace(string(module)), "testdata", "*.parquet")} {
		found := get(filepath.Glob(pattern))(t)
		for _, name := range found {
			// Larger files take too long.
			if info, err := os.Stat(name); err == nil && info.Size() < 700_000 {
				all = append(all, name)
			}
		}
	}
	require(t, len(all) >= 10 && filepath.Dir(all[0]) == dir && filepath.Dir(all[1]) == dir,
		"files are missing: %v", all)
	return all
}

// add adds a value to a hash.
func add(sum hash.Hash, v parquet.Value) {
	var b [64]byte
	sum.Write(append(v.AppendBytes(b[:0]), byte(v.Kind()), byte(v.RepetitionLevel()),
		byte(v.DefinitionLevel()), byte(v.Column())))
}

// content summarizes the rows of a row group.
func content(group parquet.RowGroup) (string, error) {
	sum, count := fnv.New64a(), 0
	all := group.Rows()
	buffer := make([]parquet.Row, 100)
	for {
		n, err := all.ReadRows(buffer)
		for _, one := range buffer[:n] {
			for _, v := range one {
				add(sum, v)
			}
			count++
		}
		if err == io.EOF {
			return fmt.Sprintf("%d rows, %x", count, sum.Sum(nil)), all.Close()
		} else if err != nil {
			return "", errors.Join(err, all.Close())
		}
	}
}

// contentOf summarizes the values of a column chunk.
func contentOf(chunk parquet.ColumnChunk) (string, error) {
	sum, count := fnv.New64a(), 0
	pages := chunk.Pages()
	defer pages.Close()
	for {
		page, err := pages.ReadPage()
		if err == io.EOF {
			return fmt.Sprintf("%d values, %x", count, sum.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
		values := make([]parquet.Value, page.NumValues())
		n, err := page.Values().ReadValues(values)
		if err != nil && err != io.EOF {
			return "", err
		}
		for _, v := range values[:n] {
			add(sum, v)
		}
		count += n
		parquet.Release(page)
	}
}

// counting counts reads other than batches.
type counting struct {
	*ringway.File
	reads atomic.Int64
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.reads.Add(1)
	return c.File.ReadAt(p, off)
}

// Reads return the same as with package os: without Fetch, of fetched row groups, and of fetched
// columns.
func TestSameRows(t *testing.T) {
	all := files(t)
	for _, backend := range backends {
		for way, flag := range map[string]int{"buffered": 0, "direct": syscall.O_DIRECT} {
			t.Run(string(backend)+"/"+way, func(t *testing.T) {
				engine, err := ringway.New(ringway.Options{Backend: backend, AlwaysRing: true})
				if err != nil {
					skip.Test(t, err)
				}
				defer engine.Close()
				groups := 0
				for _, name := range all {
					groups += sameRows(t, engine, name, flag)
				}
				expect(t, groups >= len(all)*3/4, "too few row groups were compared: %v", groups)
			})
		}
	}
}

// sameRows compares what is read of a file, and returns the number of its row groups.
func sameRows(t *testing.T, engine *ringway.Engine, name string, flag int) int {
	t.Helper()
	reference := get(os.Open(name))(t)
	defer reference.Close()
	info := get(reference.Stat())(t)
	plain, plainErr := parquet.OpenFile(reference, info.Size())
	f := get(engine.OpenFile(name, os.O_RDONLY|flag, 0))(t)
	defer f.Close()
	counted := &counting{File: f}
	file, err := parquet.OpenFile(counted, info.Size())
	require(t, fmt.Sprint(err) == fmt.Sprint(plainErr), "%v, %v, %v", name, err, plainErr)
	if err != nil {
		return 0
	}
	ahead := ringwayparquet.NewAhead(counted)
	defer ahead.Release()
	fetched := get(parquet.OpenFile(ahead, info.Size()))(t)
	for i, group := range plain.RowGroups() {
		same := func(what, got string, err error, want string, wantErr error) {
			t.Helper()
			if got != want || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Errorf("%s, group %d, %s: %s, %v; package os: %s, %v", name, i, what, got, err,
					want, wantErr)
			}
		}
		want, wantErr := content(group)
		sameGroup := func(what string, of *parquet.File) {
			t.Helper()
			got, err := content(of.RowGroups()[i])
			same(what, got, err, want, wantErr)
		}
		chunks := group.ColumnChunks()
		sameColumn := func(c int) {
			t.Helper()
			got, err := contentOf(fetched.RowGroups()[i].ColumnChunks()[c])
			want, wantErr := contentOf(chunks[c])
			same(fmt.Sprint("column ", c), got, err, want, wantErr)
		}
		// fetch fetches columns, which compare then reads without the file.
		fetch := func(compare func(), columns ...int) {
			t.Helper()
			must(t, ahead.Fetch(fetched, i, columns...))
			before := counted.reads.Load()
			compare()
			more := counted.reads.Load() - before
			expect(t, more == 0, "%s: %d reads of the fetched columns %d", name, more, columns)
		}
		sameGroup("not fetched", file)
		fetch(func() { sameGroup("fetched", fetched) })
		// Some columns in descending order, each read by a goroutine.
		var some []int
		for c := len(chunks) - 1; c >= 0; c -= 1 + len(chunks)/4 {
			some = append(some, c)
		}
		fetch(func() {
			var wg sync.WaitGroup
			for _, c := range some {
				wg.Go(func() { sameColumn(c) })
			}
			wg.Wait()
		}, some...)
		// A single column, with its dictionary.
		for c := range chunks[:min(len(chunks), 20)] {
			fetch(func() { sameColumn(c) }, c)
		}
		sameGroup("half-fetched", fetched) // Other columns come from the file.
		if t.Failed() {
			break
		}
	}
	return len(plain.RowGroups())
}

// failing returns an error for each batch.
type failing struct {
	*ringway.File
	reason error
}

func (f *failing) ReadBatch([]ringway.Transfer) error { return f.reason }

// rowsFile opens a file with rows, and returns its content.
func rowsFile(t testing.TB) (*ringway.File, []byte) {
	t.Helper()
	var b bytes.Buffer
	rows(t, &b)
	name := filepath.Join(t.TempDir(), "rows")
	must(t, os.WriteFile(name, b.Bytes(), 0o600))
	f := get(ringway.Open(name))(t)
	t.Cleanup(func() { f.Close() })
	return f, b.Bytes()
}

func TestFetchErrors(t *testing.T) {
	f, content := rowsFile(t)
	reason := errors.New("batch failed")
	ahead := ringwayparquet.NewAhead(&failing{f, reason})
	file := get(parquet.OpenFile(ahead, int64(len(content))))(t)
	err := ahead.Fetch(file, 0)
	expect(t, err == reason, "%v", err)
	for _, bad := range [][]int{{-1}, {5}, {0, -1}, {0, 1000}} {
		err := ahead.Fetch(file, bad[0], bad[1:]...)
		expect(t, err != nil && err != reason, "%v, %v", bad, err)
	}
	if _, err := contentOf(file.RowGroups()[0].ColumnChunks()[0]); err != nil {
		t.Error("reads fail after a failed Fetch:", err)
	}
}

// measured counts the bytes that batches request.
type measured struct {
	*ringway.File
	bytes int64
}

func (m *measured) ReadBatch(batch []ringway.Transfer) error {
	for i := range batch {
		m.bytes += int64(len(batch[i].P))
	}
	return m.File.ReadBatch(batch)
}

// longest is the longest file there can be: the beginning and the end are those of another one. It
// refuses reads that would end beyond the largest offset, as the kernel does.
type longest struct{ content []byte }

func (l *longest) ReadAt(p []byte, off int64) (int, error) {
	if off > math.MaxInt64-int64(len(p)) {
		return 0, syscall.EINVAL
	}
	at := min(off, int64(len(l.content)))
	if end := math.MaxInt64 - int64(len(l.content)); off >= end {
		at = off - end
	}
	n := copy(p, l.content[at:])
	clear(p[n:])
	return len(p), nil
}

func (l *longest) ReadBatch(batch []ringway.Transfer) error {
	for i := range batch {
		t := &batch[i]
		if t.N, t.Err = l.ReadAt(t.P, t.Off); t.Err != nil {
			return t.Err
		}
	}
	return nil
}

// longestFile returns such a file, the metadata of its first chunk, and the content at its ends.
func longestFile(t *testing.T) (*ringwayparquet.Ahead, *parquet.File, *format.ColumnMetaData,
	[]byte) {
	var b bytes.Buffer
	rows(t, &b)
	ahead := ringwayparquet.NewAhead(&longest{b.Bytes()})
	t.Cleanup(ahead.Release)
	file := get(parquet.OpenFile(ahead, math.MaxInt64))(t)
	return ahead, file, &file.Metadata().RowGroups[0].Columns[0].MetaData, b.Bytes()
}

// A chunk in the last page before 2^63 is read: no end is rounded up to beyond it.
func TestFetchAtTheLargestOffset(t *testing.T) {
	ahead, file, chunk, content := longestFile(t)
	for _, end := range []int64{0, 1, 4094, 4095, 4096, 4097, 10_000} {
		chunk.DataPageOffset, chunk.DictionaryPageOffset = math.MaxInt64-end-1000, 0
		chunk.TotalCompressedSize = 1000
		must(t, ahead.Fetch(file, 0, 0))
		p := make([]byte, 1000)
		n, err := ahead.ReadAt(p, chunk.DataPageOffset)
		want := content[int64(len(content))-end-1000:][:1000]
		expect(t, n == len(p) && err == nil && bytes.Equal(p, want),
			"%d bytes before the end: %d, %v", end, n, err)
	}
}

// shrinking is a file that seems to end within a batch: it was truncated and has grown again.
type shrinking struct {
	*ringway.File
	short int // The index of the piece that ends there.
}

func (s *shrinking) ReadBatch(batch []ringway.Transfer) error {
	err := s.File.ReadBatch(batch)
	t := &batch[s.short]
	t.N, t.Err = min(t.N, 1000), io.EOF
	for i := range t.P[t.N:] {
		t.P[t.N+i] = 0xaa
	}
	return err
}

// Only what was read counts: not as many bytes from the beginning of the range.
func TestFetchOfAFileThatShrinks(t *testing.T) {
	var b bytes.Buffer
	type long struct{ Bytes []byte }
	content, random := make([]byte, 700_000), rand.NewChaCha8([32]byte{})
	_, _ = random.Read(content)
	writer := parquet.NewGenericWriter[long](&b)
	_, err := writer.Write([]long{{content}}) // Three pieces.
	must(t, err)
	must(t, writer.Close())
	name := filepath.Join(t.TempDir(), "long")
	must(t, os.WriteFile(name, b.Bytes(), 0o600))
	f := get(ringway.Open(name))(t)
	defer f.Close()
	for short := range 3 {
		ahead := ringwayparquet.NewAhead(&shrinking{f, short})
		file := get(parquet.OpenFile(ahead, int64(b.Len())))(t)
		must(t, ahead.Fetch(file, 0))
		p := make([]byte, 500)
		for off := 0; off+len(p) <= b.Len(); off += 490 {
			n, err := ahead.ReadAt(p, int64(off))
			require(t, n == len(p) && err == nil && bytes.Equal(p, b.Bytes()[off:][:len(p)]),
				"piece %d is short: %d bytes at %d, %v", short, n, off, err)
		}
		ahead.Release()
	}
}

// Without memory Fetch fails, and keeps none. Reads go to the file.
func TestFetchWithoutMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("skipped: with the race detector, pooled memory is of Go's heap")
	}
	f, content := rowsFile(t)
	ahead := ringwayparquet.NewAhead(f)
	file := get(parquet.OpenFile(ahead, int64(len(content))))(t)
	must(t, ahead.Fetch(file, 0, 0)) // What Fetch needs apart from the buffers is there.
	ahead.Release()
	small := ringway.NewBuffer(1)
	limitMemory(t, 24<<20) // Less than what the pool takes at once, and enough for a new thread.
	var all []*ringway.Buffer
	defer func() {
		for _, buffer := range all {
			buffer.Release()
		}
	}()
	for size := 8 << 20; size >= 4096; size /= 2 {
		for one := buffer(size); one != nil; one = buffer(size) {
			all = append(all, one)
		}
	}
	// There is memory for the first of two ranges that are far apart.
	chunks := file.Metadata().RowGroups[0].Columns
	for i, at := range []int64{0, int64(len(content)) - 10} {
		chunk := &chunks[i].MetaData
		chunk.DataPageOffset, chunk.DictionaryPageOffset, chunk.TotalCompressedSize = at, 0, 10
	}
	small.Release()
	err := ahead.Fetch(file, 0, 0, 1)
	expect(t, errors.Is(err, syscall.ENOMEM), "%v", err)
	small = buffer(1)
	require(t, small != nil, "Fetch keeps memory")
	all = append(all, small)
	p := make([]byte, 100)
	n, err := ahead.ReadAt(p, 4)
	expect(t, n == len(p) && err == nil && bytes.Equal(p, content[4:][:100]), "%v, %v", n, err)
}

// buffer returns a buffer of the pool, or nil if there is no memory for it.
func buffer(n int) (buffer *ringway.Buffer) {
	defer func() { _ = recover() }()
	return ringway.NewBuffer(n)
}

// limitMemory limits the address space to so much more than is used now, until the test ends.
func limitMemory(t *testing.T, more uint64) {
	t.Helper()
	var before syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_AS, &before))
	var pages uint64
	_, err := fmt.Sscan(string(get(os.ReadFile("/proc/self/statm"))(t)), &pages)
	must(t, err)
	limit := before
	limit.Cur = pages*uint64(os.Getpagesize()) + more
	must(t, syscall.Setrlimit(syscall.RLIMIT_AS, &limit))
	t.Cleanup(func() { must(t, syscall.Setrlimit(syscall.RLIMIT_AS, &before)) })
}

// The columns are the caller's memory.
func TestFetchKeepsTheColumns(t *testing.T) {
	f, content := rowsFile(t)
	ahead := ringwayparquet.NewAhead(f)
	defer ahead.Release()
	file := get(parquet.OpenFile(ahead, int64(len(content))))(t)
	columns := []int{3, 1}
	must(t, ahead.Fetch(file, 0, columns[:0]...))
	expect(t, columns[0] == 3 && columns[1] == 1, "%v", columns)
}

// On 32-bit systems, a range whose length is no int is an error.
func TestFetchOfMoreThanFits(t *testing.T) {
	ahead, file, chunk, _ := longestFile(t)
	const piece = 256 << 10
	sizes := []int64{math.MaxInt - 4096, math.MaxInt - 8191, math.MaxInt - 3*4096,
		math.MaxInt - piece + 1}
	if math.MaxInt == math.MaxInt32 {
		sizes = append(sizes, math.MaxInt32+1, math.MaxUint32+8193)
	}
	for _, size := range sizes {
		chunk.DataPageOffset, chunk.DictionaryPageOffset, chunk.TotalCompressedSize = 4096, 0, size
		err := ahead.Fetch(file, 0, 0)
		expect(t, err != nil, "%v", size)
		p := make([]byte, 10)
		n, err := ahead.ReadAt(p, 4096)
		expect(t, n == len(p) && err == nil, "%v, %v", n, err)
	}
}

// With any metadata, Fetch requests no more memory than the size of the file, and chunks outside
// the file are an error.
func FuzzHostileMetadata(f *testing.F) {
	source, content := rowsFile(f)
	length := int64(len(content))
	for _, number := range []int64{0, 1, -1, 4096, length, length + 1, math.MaxInt64, math.MinInt64,
		math.MaxInt64 - 4095, 1 << 40} {
		for _, other := range []int64{0, 4, -1, length, 1 << 40, math.MaxInt64} {
			f.Add(number, other, number, other)
		}
	}
	f.Fuzz(func(t *testing.T, data, dictionary, size, off int64) {
		m := &measured{File: source}
		ahead := ringwayparquet.NewAhead(m)
		defer ahead.Release()
		file, err := parquet.OpenFile(ahead, length)
		must(t, err)
		chunk := &file.Metadata().RowGroups[0].Columns[3].MetaData
		chunk.DataPageOffset, chunk.DictionaryPageOffset = data, dictionary
		chunk.TotalCompressedSize = size
		err = ahead.Fetch(file, 0)
		require(t, m.bytes <= length+8192, "%d bytes were requested of %d", m.bytes, length)
		begin := data
		if dictionary > 0 && dictionary < begin {
			begin = dictionary
		}
		if inside := begin >= 0 && size >= 0 && begin <= length &&
			size <= length-begin; inside != (err == nil) {
			t.Fatalf("%d bytes at %d of %d: %v", size, begin, length, err)
		}
		p, want := make([]byte, 100), make([]byte, 100)
		n, err := ahead.ReadAt(p, off)
		wantN, wantErr := bytes.NewReader(content).ReadAt(want, off)
		require(t, n == wantN && (err == nil) == (wantErr == nil) && bytes.Equal(p[:n], want[:n]),
			"reading at %d: %d, %v, not %d, %v", off, n, err, wantN, wantErr)
	})
}
