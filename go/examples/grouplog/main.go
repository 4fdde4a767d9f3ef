//go:build linux

// Command grouplog is a log with group commit. Many goroutines append records; while one group is
// being committed, the next one gathers. A group is one vectored write and one sync. If the process
// is killed, every acknowledged record is in the log when it is opened again.
//
//	go run ./examples/grouplog -writers 200 -records 50 FILE
//	go run ./examples/grouplog -list FILE
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/ringway-io/ringway/go/ringway"
)

func main() {
	switch err := run(os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "grouplog:", err)
		os.Exit(1)
	}
}

func run(args []string, out, messages io.Writer) error {
	flags := flag.NewFlagSet("grouplog", flag.ContinueOnError)
	flags.SetOutput(messages)
	flags.Usage = func() {
		fmt.Fprint(messages,
			"usage: grouplog [flags] file\n\nAppends records to a log concurrently. "+
				"Each is durable before its writer appends the next.\n\n")
		flags.PrintDefaults()
	}
	writers := flags.Int("writers", 200, "concurrent goroutines")
	records := flags.Int("records", 50, "records per writer")
	list := flags.Bool("list", false, "print the records of the log, and append none")
	verbose := flags.Bool("v", false, "print each record when it is durable")
	backend := flags.String("backend", "",
		"uring, kaio or threads; empty chooses the best available one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *writers < 1 || *records < 0 {
		flags.Usage()
		return errors.New("expected one file and at least one writer")
	}
	engine, err := ringway.New(ringway.Options{Backend: ringway.Backend(*backend)})
	if err != nil {
		return err
	}
	defer engine.Close()
	if *list {
		// Not open, which creates and truncates the file.
		f, err := engine.Open(flags.Arg(0))
		if err != nil {
			return err
		}
		_, err = replayAll(f, func(record []byte) { fmt.Fprintf(out, "%s\n", record) })
		return errors.Join(err, f.Close())
	}

	found := 0
	j, err := open(engine, flags.Arg(0), func([]byte) { found++ })
	if err != nil {
		return err
	}
	begin, id := time.Now(), os.Getpid()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for w := range *writers {
		wg.Go(func() {
			for i := range *records {
				record := fmt.Appendf(nil, "process %d, writer %d, record %d", id, w, i)
				err := j.append(record)
				mu.Lock()
				if err == nil && *verbose {
					_, err = fmt.Fprintf(out, "%s\n", record)
				}
				failed = errors.Join(failed, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(failed, j.close()); err != nil {
		return err
	}
	fmt.Fprintf(messages, "found %d records; appended %d in %d commits, %v\n", found,
		*writers**records, j.commits, time.Since(begin).Round(time.Millisecond))
	return nil
}
