//go:build linux

// An example for the documentation: a Parquet file, read row group by row group.

package parquet_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	parquetgo "github.com/parquet-go/parquet-go"

	"github.com/ringway-io/ringway/go/parquet"
	"github.com/ringway-io/ringway/go/ringway"
)

// Each row group is read in one batch, and its rows are then decoded from memory.
func ExampleAhead() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	type city struct {
		Name  string
		River string
	}
	name := filepath.Join(dir, "cities.parquet")
	cities := []city{{"Vienna", "Danube"}, {"Cologne", "Rhine"}}
	if err := parquetgo.WriteFile(name, cities); err != nil {
		log.Fatal(err)
	}

	f, err := ringway.Open(name)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		log.Fatal(err)
	}
	ahead := parquet.NewAhead(f)
	defer ahead.Release()
	file, err := parquetgo.OpenFile(ahead, info.Size())
	if err != nil {
		log.Fatal(err)
	}
	for i, group := range file.RowGroups() {
		if err := ahead.Fetch(file, i); err != nil {
			log.Fatal(err)
		}
		reader := parquetgo.NewGenericRowGroupReader[city](group)
		rows := make([]city, group.NumRows())
		n, _ := reader.Read(rows) // io.EOF with the last rows.
		for _, row := range rows[:n] {
			fmt.Println(row.Name, "on the", row.River)
		}
		reader.Close()
	}
	// Output:
	// Vienna on the Danube
	// Cologne on the Rhine
}
