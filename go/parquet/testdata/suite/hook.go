//go:build linux

// Package ringwayhook makes parquet-go read every Parquet file through ringway: it copies the
// contents to an unnamed file, which the library reads. suite_test.go adds it to a copy of
// parquet-go and sets RINGWAY_SUITE_READ to the way of reading: "os", or a backend and "direct" or
// "buffered".
package ringwayhook

import (
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/parquet-go/parquet-go"

	"github.com/ringway-io/ringway/go/ringway"
)

// counts has the layout that suite_test.go expects.
type counts struct{ files, reads, operations atomic.Uint64 }

func init() {
	seen := shared()
	backend, way, _ := strings.Cut(os.Getenv("RINGWAY_SUITE_READ"), " ")
	var engine *ringway.Engine
	if backend != "os" {
		var err error
		if engine, err = ringway.New(ringway.Options{Backend: ringway.Backend(backend), AlwaysRing: true}); err != nil {
			panic(err)
		}
	}
	flags := os.O_RDONLY
	if way == "direct" {
		flags |= ringway.Direct
	}
	var delivered atomic.Uint64
	parquet.Through = func(r io.ReaderAt, size int64) io.ReaderAt {
		if _, already := r.(*counted); already {
			return r
		}
		named, err := os.CreateTemp("", "")
		if err != nil {
			panic(err)
		}
		defer named.Close()
		defer os.Remove(named.Name())
		if _, err := io.Copy(named, io.NewSectionReader(r, 0, size)); err != nil {
			return r // A test of read errors.
		}
		seen.files.Add(1)
		file, err := os.OpenFile(named.Name(), flags, 0) // Closed when it is unreachable.
		if err != nil {
			panic(err)
		}
		if engine == nil {
			return &counted{file, seen}
		}
		ours, err := engine.NewFile(file)
		if err != nil {
			panic(err)
		}
		now := engine.Stats().Delivered
		if before := delivered.Swap(now); now > before {
			seen.operations.Add(now - before)
		}
		return &counted{ours, seen}
	}
}

type counted struct {
	io.ReaderAt
	seen *counts
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.seen.reads.Add(1)
	return c.ReaderAt.ReadAt(p, off)
}

func shared() *counts {
	f, err := os.OpenFile(os.Getenv("RINGWAY_SUITE_COUNTS"), os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	memory, err := syscall.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(counts{})),
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*counts)(unsafe.Pointer(unsafe.SliceData(memory)))
}
