//go:build linux

package parquet_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/parquet-go/parquet-go"

	ringway "github.com/ringway-io/ringway/go"
	ringwayparquet "github.com/ringway-io/ringway/go/parquet"
)

type row struct {
	ID    int64   `parquet:"id"`
	Name  string  `parquet:"name,dict"`
	Text  string  `parquet:"text,snappy"`
	Score float64 `parquet:"score"`
}

func write(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rows.parquet")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := parquet.NewGenericWriter[row](f)
	for group := range 4 {
		rows := make([]row, 5000)
		for i := range rows {
			id := int64(group*5000 + i)
			rows[i] = row{id, fmt.Sprint("name ", id%17), fmt.Sprintf("text %d of some length", id*id), float64(id) / 3}
		}
		if _, err := w.Write(rows); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil { // The end of a row group.
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

func rowsOf(t *testing.T, group parquet.RowGroup) []row {
	t.Helper()
	r := parquet.NewGenericRowGroupReader[row](group)
	defer r.Close()
	rows := make([]row, group.NumRows())
	for n := 0; n < len(rows); {
		m, err := r.Read(rows[n:])
		n += m
		if err != nil && (err != io.EOF || n < len(rows)) {
			t.Fatal(n, err)
		}
	}
	return rows
}

// The same rows as by package os: read as they come, and by row groups fetched in batches.
func TestSameRows(t *testing.T) {
	name := write(t)
	reference, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer reference.Close()
	info, err := reference.Stat()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := parquet.OpenFile(reference, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	for _, backend := range []ringway.Backend{ringway.Uring, ringway.KAIO, ringway.Threads} {
		t.Run(string(backend), func(t *testing.T) {
			engine, err := ringway.New(ringway.Options{Backend: backend, AlwaysRing: true})
			if err != nil {
				t.Skip("skipped:", err)
			}
			defer engine.Close()
			f, err := engine.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			counted := &counting{ReaderAt: f}
			direct, err := parquet.OpenFile(counted, info.Size())
			if err != nil {
				t.Fatal(err)
			}
			ahead := ringwayparquet.NewAhead(f)
			fetched, err := parquet.OpenFile(ahead, info.Size())
			if err != nil {
				t.Fatal(err)
			}
			for i, group := range plain.RowGroups() {
				want := rowsOf(t, group)
				if !reflect.DeepEqual(rowsOf(t, direct.RowGroups()[i]), want) {
					t.Fatal("other rows, group", i)
				}
				if err := ahead.Fetch(fetched, i); err != nil {
					t.Fatal(err)
				}
				before := engine.Stats().Delivered
				if !reflect.DeepEqual(rowsOf(t, fetched.RowGroups()[i]), want) {
					t.Fatal("other rows when fetched, group", i)
				}
				if backend == ringway.Uring && engine.Stats().Delivered != before {
					t.Fatal("what was fetched is read again")
				}
			}
			if counted.reads == 0 {
				t.Fatal("nothing was read through the file")
			}
		})
	}
}

type counting struct {
	io.ReaderAt
	reads int
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	return c.ReaderAt.ReadAt(p, off)
}
