//go:build linux

// Package parquet reads row groups of Parquet files with few submissions: all column chunks of a group are one batch, which
// then is read from memory.
//
//	f, err := ringway.Open("rows.parquet")
//	...
//	ahead := parquet.NewAhead(f)
//	file, err := parquetgo.OpenFile(ahead, size)
//	...
//	err = ahead.Fetch(file, 0) // What is now read of row group 0 is a copy.
//
// A [ringway.File] alone is an io.ReaderAt too, and needs none of this: it is for whoever knows what is to come.
package parquet

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/ringway-io/ringway/go/ringway"
)

// Source is what the file is read from: a [ringway.File].
type Source interface {
	io.ReaderAt
	ReadBatch(batch []ringway.Transfer) error
}

// Ahead is a file with parts of it in memory: reads that lie in one of them are copies, the others go to the file.
type Ahead struct {
	file  Source
	parts []part // In order, apart from each other.
}

// part of a file that is in memory.
type part struct {
	begin, end int64
	buffer     *ringway.Buffer
	got        int64 // How much of it there is: the file may end before.
}

const (
	// page is what direct I/O is aligned to, so that the batch goes as it is.
	page = 4096
	// piece is the most that one transfer moves: a device splits larger ones, and two of half the size go side by side.
	piece = 256 << 10
	// gap is the most that is read for nothing, rather than by a transfer of its own.
	gap = 64 << 10
)

// NewAhead has nothing in memory yet.
func NewAhead(file Source) *Ahead { return &Ahead{file: file} }

// Fetch reads the chunks of some leaf columns of a row group (of all, if none is named) in one batch, in the place of what
// was fetched before. It takes as much memory as those chunks are long, which is at most the file's size. Chunks that lie outside
// of the file are an error. Nobody may read from Ahead meanwhile. Where Fetch fails nothing is in memory, and reads go to the
// file.
func (a *Ahead) Fetch(file *parquet.File, group int, columns ...int) error {
	a.Release()
	groups := file.Metadata().RowGroups
	if group < 0 || group >= len(groups) {
		return fmt.Errorf("row group %d of %d", group, len(groups))
	}
	chunks := groups[group].Columns
	if len(columns) == 0 {
		for i := range chunks {
			columns = append(columns, i)
		}
	}
	var wanted []part
	for _, i := range columns {
		if i < 0 || i >= len(chunks) {
			return fmt.Errorf("column %d of %d", i, len(chunks))
		}
		chunk := &chunks[i].MetaData
		begin := chunk.DataPageOffset
		if at := chunk.DictionaryPageOffset; at > 0 && at < begin {
			begin = at
		}
		// What the file says of itself is not to be trusted: memory is taken for what can be there, and for nothing else.
		if size := file.Size(); begin < 0 || chunk.TotalCompressedSize < 0 || begin > size ||
			chunk.TotalCompressedSize > size-begin {
			return fmt.Errorf("column %d of row group %d: %d bytes at %d, in a file of %d", i, group, chunk.TotalCompressedSize,
				begin, size)
		}
		end := begin + chunk.TotalCompressedSize
		wanted = append(wanted, part{begin: begin &^ (page - 1), end: (end + page - 1) &^ (page - 1)})
	}
	slices.SortFunc(wanted, func(x, y part) int { return cmp.Compare(x.begin, y.begin) })
	for _, w := range wanted {
		if last := len(a.parts) - 1; last >= 0 && w.begin-a.parts[last].end <= gap {
			a.parts[last].end = max(a.parts[last].end, w.end)
		} else {
			a.parts = append(a.parts, w)
		}
	}
	var batch []ringway.Transfer
	for i := range a.parts {
		p := &a.parts[i]
		p.buffer = ringway.NewBuffer(int(p.end - p.begin))
		for at := 0; at < p.buffer.Len(); at += piece {
			batch = append(batch, ringway.Transfer{P: p.buffer.Bytes()[at:min(at+piece, p.buffer.Len())], Off: p.begin + int64(at)})
		}
	}
	if err := a.file.ReadBatch(batch); err != nil {
		a.Release()
		return err
	}
	for i := range a.parts {
		for p := &a.parts[i]; len(batch) > 0 && batch[0].Off < p.end; batch = batch[1:] {
			p.got += int64(batch[0].N)
		}
	}
	return nil
}

// Release gives back the memory of what was fetched; reads go to the file then. Nobody may read meanwhile.
func (a *Ahead) Release() {
	for i := range a.parts {
		a.parts[i].buffer.Release()
	}
	a.parts = a.parts[:0]
}

// ReadAt is that of [io.ReaderAt].
func (a *Ahead) ReadAt(p []byte, off int64) (int, error) {
	at, found := slices.BinarySearchFunc(a.parts, off, func(part part, off int64) int { return cmp.Compare(part.begin, off) })
	if !found {
		at-- // The one that begins before.
	}
	if at >= 0 {
		if part := &a.parts[at]; off-part.begin <= part.got-int64(len(p)) {
			return copy(p, part.buffer.Bytes()[off-part.begin:]), nil
		}
	}
	return a.file.ReadAt(p, off)
}
