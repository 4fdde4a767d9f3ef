//go:build linux

// Command scan adds up the bytes of a file by many reads at once: as many goroutines as you like, and no thread for each.
//
//	go run ./examples/scan -readers 1000 FILE
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"sync"
	"sync/atomic"

	ringway "github.com/ringway-io/ringway/go"
)

func main() {
	readers := flag.Int("readers", 1000, "goroutines")
	block := flag.Int("block", 64<<10, "bytes of each read")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("which file?")
	}
	f, err := ringway.Open(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		log.Fatal(err)
	}
	var next, sum atomic.Int64
	var wg sync.WaitGroup
	for range *readers {
		wg.Go(func() {
			p := make([]byte, *block)
			for {
				off := next.Add(int64(len(p))) - int64(len(p))
				if off >= info.Size() {
					return
				}
				n, err := f.ReadAt(p, off)
				if err != nil && err != io.EOF {
					log.Fatal(err)
				}
				var part int64
				for _, b := range p[:n] {
					part += int64(b)
				}
				sum.Add(part)
			}
		})
	}
	wg.Wait()
	fmt.Println(sum.Load())
}
