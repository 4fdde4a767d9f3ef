//go:build linux

// The workload `commit`: goroutines append 4 KiB records to a log, and each waits until its record
// is durable. A single writer gathers the records of all waiting goroutines into one commit. The
// log wraps around and overwrites allocated blocks, so that the file system allocates nothing.

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"github.com/ringway-io/ringway/go/ringway"
)

const (
	maxLogBlocks    = 16 << 10
	maxCommitBlocks = 1000
)

// prepareCommit returns what each goroutine does, for the two contestants that have a log. Both
// gather records in the same way; only the commit differs.
func prepareCommit(s subject, blocks int64) (func(goroutine int) (step, error), error) {
	var commit func([]ringway.Transfer) error
	switch f := s.(type) {
	case *ringwayFile:
		commit = func(batch []ringway.Transfer) error {
			return f.WriteBatch(batch, ringway.DataSync)
		}
	case *osFile:
		// One write for all records: copying 4 KiB costs less than a system call.
		space, err := f.buffer(maxCommitBlocks * block)
		if err != nil {
			return nil, err
		}
		commit = func(batch []ringway.Transfer) error {
			n := 0
			for _, t := range batch {
				n += copy(space[n:], t.P)
			}
			if _, err := f.WriteAt(space[:n], batch[0].Off); err != nil {
				return err
			}
			return fdatasync(int(f.Fd()))
		}
	default:
		return nil, errors.New("this contestant has no log")
	}
	log := &commitLog{make(chan record, maxCommitBlocks), min(blocks, maxLogBlocks), commit}
	go log.run() // Until the process ends.
	return func(int) (step, error) {
		p, err := s.buffer(block)
		if err != nil {
			return nil, err
		}
		durable := make(chan error, 1)
		return func(bool) error {
			log.records <- record{p, durable}
			return <-durable
		}, nil
	}, nil
}

func fdatasync(fd int) error {
	for {
		if err := syscall.Fdatasync(fd); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// commitLog gathers records while the previous commit is under way.
type commitLog struct {
	records chan record
	blocks  int64
	commit  func([]ringway.Transfer) error
}

type record struct {
	p       []byte
	durable chan<- error
}

func (l *commitLog) run() {
	var gathered []record
	var batch []ringway.Transfer
	var end int64
	for first := range l.records {
		runtime.Gosched() // Goroutines whose record is durable can append their next one.
		gathered = append(gathered[:0], first)
		for int64(len(gathered)) < min(maxCommitBlocks, l.blocks) {
			select {
			case r := <-l.records:
				gathered = append(gathered, r)
				continue
			default:
			}
			break
		}
		if end+int64(len(gathered)) > l.blocks {
			end = 0 // A commit is one contiguous range.
		}
		batch = batch[:0]
		for _, r := range gathered {
			binary.LittleEndian.PutUint64(r.p, uint64(end)) // The scratch file numbers its blocks.
			batch = append(batch, ringway.Transfer{P: r.p, Off: end * block})
			end++
		}
		err := l.commit(batch)
		if err != nil {
			err = fmt.Errorf("commit of %s: %w", plural(len(batch), "record"), err)
		}
		for _, r := range gathered {
			r.durable <- err
		}
	}
}
