//go:build linux

// Package parquet reads row groups of Parquet files with few submissions: all column chunks of a group are one batch. It
// works with any reader that takes an io.ReaderAt; its tests use parquet-go.
package parquet

import (
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"

	ringway "github.com/ringway-io/ringway/go"
)

// Ahead is a file with parts of it in memory: reads that lie in one of them are copies, the others go to the file.
type Ahead struct {
	file  *ringway.File
	parts []ringway.Transfer // In order, apart from each other.
}

// NewAhead has nothing in memory yet.
func NewAhead(file *ringway.File) *Ahead { return &Ahead{file: file} }

// Fetch reads the chunks of some columns (all, if none is named) of a row group, in one batch, in the place of what was
// fetched before. Not while others read.
func (a *Ahead) Fetch(file *parquet.File, group int, columns ...int) error {
	a.parts = a.parts[:0]
	chunks := file.Metadata().RowGroups[group].Columns
	for i := range chunks {
		if len(columns) > 0 && !slices.Contains(columns, i) {
			continue
		}
		chunk := &chunks[i].MetaData
		begin := chunk.DataPageOffset
		if at := chunk.DictionaryPageOffset; at > 0 && at < begin {
			begin = at
		}
		a.parts = append(a.parts, ringway.Transfer{P: make([]byte, chunk.TotalCompressedSize), Off: begin})
	}
	slices.SortFunc(a.parts, func(x, y ringway.Transfer) int { return int(min(max(x.Off-y.Off, -1), 1)) })
	return a.file.ReadBatch(a.parts)
}

// ReadAt is io.ReaderAt.
func (a *Ahead) ReadAt(p []byte, off int64) (int, error) {
	at, found := slices.BinarySearchFunc(a.parts, off, func(part ringway.Transfer, off int64) int {
		return int(min(max(part.Off-off, -1), 1))
	})
	if !found {
		at-- // The one that begins before.
	}
	if at >= 0 {
		if part := &a.parts[at]; off+int64(len(p)) <= part.Off+int64(part.N) {
			return copy(p, part.P[off-part.Off:]), nil
		}
	}
	return a.file.ReadAt(p, off)
}

var _ io.ReaderAt = (*Ahead)(nil)
