//go:build linux

// An example for the documentation: a database whose tables bypass the page cache.

package pebblevfs_test

import (
	"fmt"
	"log"
	"os"

	"github.com/cockroachdb/pebble"

	"github.com/ringway-io/ringway/go/pebblevfs"
	"github.com/ringway-io/ringway/go/ringway"
)

// A database whose tables bypass the page cache.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	engine, err := ringway.New(ringway.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close() // After the database.

	db, err := pebble.Open(dir, &pebble.Options{
		FS: pebblevfs.New(engine, pebblevfs.DirectTables()),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Set([]byte("key"), []byte("value"), pebble.Sync); err != nil {
		log.Fatal(err)
	}
	value, closer, err := db.Get([]byte("key"))
	if err != nil {
		log.Fatal(err)
	}
	defer closer.Close()
	fmt.Printf("%s\n", value)
	// Output: value
}
