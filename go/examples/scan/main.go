//go:build linux

// Command scan sums the bytes of files with many concurrent reads. Each goroutine waits for its own
// read, and none blocks a thread.
//
//	go run ./examples/scan -readers 1000 -direct FILE...
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringway-io/ringway/go/ringway"
)

func main() {
	switch err := run(os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "scan:", err)
		os.Exit(1)
	}
}

func run(args []string, out, messages io.Writer) error {
	flags := flag.NewFlagSet("scan", flag.ContinueOnError)
	flags.SetOutput(messages)
	flags.Usage = func() {
		fmt.Fprint(messages,
			"usage: scan [flags] file...\n\nPrints the sum of the bytes of each file.\n\n")
		flags.PrintDefaults()
	}
	readers := flags.Int("readers", 1000, "concurrent goroutines")
	block := flags.Int("block", 64<<10, "bytes per read")
	direct := flags.Bool("direct", false, "use direct I/O")
	backend := flags.String("backend", "",
		"uring, kaio or threads; empty chooses the best available one")
	verbose := flags.Bool("v", false, "print the backend and the speed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 || *readers < 1 || *block < 1 {
		flags.Usage()
		return errors.New("expected at least one file, one reader and one byte")
	}
	engine, err := ringway.New(ringway.Options{Backend: ringway.Backend(*backend)})
	if err != nil {
		return err
	}
	defer engine.Close()
	if *verbose {
		fmt.Fprintln(messages, engine.Explain())
	}
	mode := os.O_RDONLY
	if *direct {
		mode |= ringway.Direct
	}
	for _, name := range flags.Args() {
		begin := time.Now()
		f, err := engine.OpenFile(name, mode, 0)
		if err != nil {
			return err
		}
		sum, size, err := scan(f, *readers, *block)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		fmt.Fprintf(out, "%d  %s\n", sum, name)
		if *verbose {
			fmt.Fprintf(messages, "%d bytes at %.0f MB/s\n", size,
				float64(size)/1e6/time.Since(begin).Seconds())
		}
	}
	return nil
}

// scan returns the sum of the bytes of a file. When a reader fails, the others stop.
func scan(f *ringway.File, readers, block int) (sum uint64, size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, 0, fmt.Errorf("%s is not a regular file", f.Name())
	}
	size = info.Size()
	var next atomic.Int64
	var total atomic.Uint64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range min(int64(readers), size/int64(block)+1) {
		wg.Go(func() {
			buffer := ringway.NewBuffer(block) // Aligned for direct I/O.
			defer buffer.Release()
			p := buffer.Bytes()
			part := uint64(0)
			for failed.Load() == nil {
				off := next.Add(int64(block)) - int64(block)
				if off >= size {
					break
				}
				n, err := f.ReadAt(p, off)
				if err != nil && err != io.EOF { // The last block may be short.
					failed.CompareAndSwap(nil, &err)
				}
				for _, b := range p[:n] {
					part += uint64(b)
				}
			}
			total.Add(part)
		})
	}
	wg.Wait()
	if failed := failed.Load(); failed != nil {
		return 0, 0, *failed
	}
	return total.Load(), size, nil
}
