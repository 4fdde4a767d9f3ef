//go:build linux

// Command grouplog is a log that many goroutines append to, and that makes their records durable together: while one batch
// is on its way to the disk the next one gathers. A batch is one submission, the sync linked behind the write.
//
//	go run ./examples/grouplog -writers 200 -records 50 FILE
package main

import (
	"flag"
	"fmt"
	"log"
	"sync"
	"time"

	ringway "github.com/ringway-io/ringway/go"
)

// journal appends records and tells their writers when they are durable.
type journal struct {
	file    *ringway.File
	records chan record
	commits int
}

type record struct {
	bytes   []byte
	durable chan<- error
}

// run commits until the channel of records is closed.
func (j *journal) run() {
	var end int64
	for first := range j.records {
		gathered := []record{first}
	gather:
		for len(gathered) < 1000 {
			select {
			case r, ok := <-j.records:
				if !ok {
					break gather
				}
				gathered = append(gathered, r)
			default:
				break gather
			}
		}
		batch := make([]ringway.Transfer, len(gathered))
		for i, r := range gathered {
			batch[i] = ringway.Transfer{P: r.bytes, Off: end}
			end += int64(len(r.bytes))
		}
		err := j.file.WriteBatch(batch, ringway.DataSync)
		j.commits++
		for _, r := range gathered {
			r.durable <- err
		}
	}
}

func main() {
	writers := flag.Int("writers", 200, "goroutines")
	records := flag.Int("records", 50, "of each")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("which file?")
	}
	f, err := ringway.Create(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	j := &journal{file: f, records: make(chan record)}
	done := make(chan struct{})
	go func() { j.run(); close(done) }()
	begin := time.Now()
	var wg sync.WaitGroup
	for w := range *writers {
		wg.Go(func() {
			durable := make(chan error, 1)
			for i := range *records {
				j.records <- record{fmt.Appendf(nil, "writer %d, record %d\n", w, i), durable}
				if err := <-durable; err != nil {
					log.Fatal(err)
				}
			}
		})
	}
	wg.Wait()
	close(j.records)
	<-done
	fmt.Printf("%d durable records in %d commits, %v\n", *writers**records, j.commits, time.Since(begin).Round(time.Millisecond))
}
