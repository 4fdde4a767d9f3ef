// Package parquet reads row groups of Parquet files in batches: one submission reads all column
// chunks of a row group into memory, and parquet-go then reads from there.
//
//	f, err := ringway.Open("rows.parquet")
//	if err != nil {
//		return err
//	}
//	ahead := parquet.NewAhead(f)
//	defer ahead.Release()
//	file, err := parquetgo.OpenFile(ahead, size)
//	if err != nil {
//		return err
//	}
//	if err := ahead.Fetch(file, 0); err != nil {
//		return err
//	}
//	rows := file.RowGroups()[0].Rows() // Reads from memory.
//
// The import name parquetgo is github.com/parquet-go/parquet-go. A [ringway.File] is an
// [io.ReaderAt] and can be passed to parquet-go directly; this package is for programs that know
// which row groups they will read.
package parquet

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"syscall"

	"github.com/parquet-go/parquet-go"

	"github.com/ringway-io/ringway/go/ringway"
)

// Source is the file to read: a [ringway.File].
type Source interface {
	io.ReaderAt
	ReadBatch(batch []ringway.Transfer) error
}

// Ahead is a file with some ranges in memory. It serves reads within these ranges from memory, and
// others from the file.
type Ahead struct {
	file  Source
	parts []part // Sorted and disjoint.
}

// part is a range of the file in memory.
type part struct {
	begin, end int64
	buffer     *ringway.Buffer
	got        int64 // Bytes read: the file may end before end.
}

const (
	// page is the alignment of direct I/O.
	page = 4096
	// piece is the largest transfer. A device splits larger ones; several smaller ones run in
	// parallel.
	piece = 256 << 10
	// gap is the largest hole that is read along rather than split around.
	gap = 64 << 10
	// largest is the most bytes of one range: an int counts them, and a piece more.
	largest = math.MaxInt - piece
)

// NewAhead returns an Ahead with nothing in memory.
func NewAhead(file Source) *Ahead { return &Ahead{file: file} }

// Fetch reads the chunks of the given leaf columns of a row group, or of all columns, in one batch.
// It replaces what it fetched before. The memory is the size of the chunks, at most that of the
// file. Chunks outside the file are an error, and so are nearly 2 GiB of adjacent ones on 32-bit
// systems. Where the system has no memory for it, the error is ENOMEM, or the program ends, as with
// [ringway.NewBuffer]. After an error nothing is in memory, and reads go to the file.
//
// Reads must not run concurrently with Fetch.
func (a *Ahead) Fetch(file *parquet.File, group int, columns ...int) error {
	a.Release()
	groups := file.Metadata().RowGroups
	if group < 0 || group >= len(groups) {
		return fmt.Errorf("row group %d of %d", group, len(groups))
	}
	wanted, err := ranges(file, group, columns)
	if err != nil {
		return err
	}
	var batch []ringway.Transfer
	for i := range wanted {
		p := &wanted[i]
		if p.buffer, err = newBuffer(int(p.end - p.begin)); err != nil {
			a.Release()
			return err
		}
		a.parts = wanted[:i+1]
		for at := 0; at < p.buffer.Len(); at += piece {
			batch = append(batch,
				ringway.Transfer{P: p.buffer.Bytes()[at:min(at+piece, p.buffer.Len())],
					Off: p.begin + int64(at)})
		}
	}
	if err := a.file.ReadBatch(batch); err != nil {
		a.Release()
		return err
	}
	for i := range a.parts {
		for p := &a.parts[i]; len(batch) > 0 && batch[0].Off < p.end; batch = batch[1:] {
			// What follows a short piece has no place: the file ended there when it was read.
			if batch[0].Off == p.begin+p.got {
				p.got += int64(batch[0].N)
			}
		}
	}
	return nil
}

// newBuffer is [ringway.NewBuffer], with an error where that panics for lack of memory.
func newBuffer(n int) (buffer *ringway.Buffer, err error) {
	defer func() {
		if failed := recover(); failed != nil {
			if err, _ = failed.(error); !errors.Is(err, syscall.ENOMEM) {
				panic(failed)
			}
		}
	}()
	return ringway.NewBuffer(n), nil
}

// ranges returns the ranges of the file that have the chunks.
func ranges(file *parquet.File, group int, columns []int) (joined []part, err error) {
	chunks := file.Metadata().RowGroups[group].Columns
	if len(columns) == 0 {
		columns = make([]int, len(chunks))
		for i := range columns {
			columns[i] = i
		}
	}
	var wanted []part
	for _, i := range columns {
		if i < 0 || i >= len(chunks) {
			return nil, fmt.Errorf("column %d of %d", i, len(chunks))
		}
		chunk := &chunks[i].MetaData
		begin := chunk.DataPageOffset
		if at := chunk.DictionaryPageOffset; at > 0 && at < begin {
			begin = at
		}
		// Do not trust the metadata: allocate only for ranges within the file.
		if size := file.Size(); begin < 0 || chunk.TotalCompressedSize < 0 || begin > size ||
			chunk.TotalCompressedSize > size-begin {
			return nil, fmt.Errorf("column %d of row group %d: %d bytes at %d, in a file of %d", i,
				group, chunk.TotalCompressedSize, begin, size)
		}
		end := begin + chunk.TotalCompressedSize
		if over := end & (page - 1); over != 0 && end <= math.MaxInt64-page {
			end += page - over
		}
		wanted = append(wanted, part{begin: begin &^ (page - 1), end: end})
	}
	slices.SortFunc(wanted, func(x, y part) int { return cmp.Compare(x.begin, y.begin) })
	for _, w := range wanted {
		if last := len(joined) - 1; last >= 0 && w.begin-joined[last].end <= gap {
			joined[last].end = max(joined[last].end, w.end)
		} else {
			joined = append(joined, w)
		}
	}
	for _, p := range joined {
		if p.end-p.begin > largest {
			return nil, fmt.Errorf("row group %d: %d bytes at %d do not fit into memory", group,
				p.end-p.begin, p.begin)
		}
	}
	return joined, nil
}

// Release frees the memory; reads then go to the file. Reads must not run concurrently with it.
func (a *Ahead) Release() {
	for i := range a.parts {
		a.parts[i].buffer.Release()
	}
	a.parts = a.parts[:0]
}

// ReadAt implements [io.ReaderAt].
func (a *Ahead) ReadAt(p []byte, off int64) (int, error) {
	at, found := slices.BinarySearchFunc(a.parts, off,
		func(part part, off int64) int { return cmp.Compare(part.begin, off) })
	if !found {
		at-- // The part that starts before off.
	}
	if at >= 0 {
		if part := &a.parts[at]; off-part.begin <= part.got-int64(len(p)) {
			return copy(p, part.buffer.Bytes()[off-part.begin:]), nil
		}
	}
	return a.file.ReadAt(p, off)
}
