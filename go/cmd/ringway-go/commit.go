//go:build linux

package main

// The work `commit`: records of 4 KiB at the end of a log that is written round and round, each durable (fdatasync) before its
// goroutine goes on. The log is overwritten where it is, so that no space has to be found for it.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/ringway-io/ringway/go/ringway"
)

const (
	// logBlocks is how long the log is, at most.
	logBlocks = 16 << 10
	// mostGathered is how many records one commit takes.
	mostGathered = 1000
)

// prepareCommit gives each goroutine its way to make a record durable.
func prepareCommit(s subject, grouped bool, blocks int64) (func(int) (func(bool) error, error), error) {
	blocks = min(blocks, logBlocks)
	var one func(p []byte, durable chan error) error
	switch f := s.(type) {
	case *ringwayFile:
		j := startJournal(blocks, func(batch []ringway.Transfer) error { return f.WriteBatch(batch, ringway.DataSync) })
		one = j.append
	case *osFile:
		fd := int(f.Fd())
		if !grouped {
			var next atomic.Int64
			one = func(p []byte, _ chan error) error {
				at := (next.Add(1) - 1) % blocks
				number(p, at)
				if _, err := f.WriteAt(p, at*block); err != nil {
					return err
				}
				return datasync(fd)
			}
			break
		}
		// One write for all of them: to copy 4 KiB costs less than a system call and what it does.
		all, err := f.buffer(mostGathered * block)
		if err != nil {
			return nil, err
		}
		one = startJournal(blocks, func(batch []ringway.Transfer) error {
			n := 0
			for _, t := range batch {
				n += copy(all[n:], t.P)
			}
			if _, err := f.WriteAt(all[:n], batch[0].Off); err != nil {
				return err
			}
			return datasync(fd)
		}).append
	default:
		return nil, errors.New("it has no log")
	}
	return func(int) (func(bool) error, error) {
		p, err := s.buffer(block)
		if err != nil {
			return nil, err
		}
		durable := make(chan error, 1)
		return func(bool) error { return one(p, durable) }, nil
	}, nil
}

// number marks a block as the one at this place, as the scratch file has it.
func number(p []byte, at int64) { binary.LittleEndian.PutUint64(p, uint64(at)) }

func datasync(fd int) error {
	for {
		if err := syscall.Fdatasync(fd); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// journal gathers the records of many goroutines for one commit: while one is on its way to the disk, the next one gathers.
type journal struct {
	records chan record
	blocks  int64
	commit  func([]ringway.Transfer) error
}

type record struct {
	p       []byte
	durable chan error
}

// startJournal has a goroutine that lives as long as the process.
func startJournal(blocks int64, commit func([]ringway.Transfer) error) *journal {
	j := &journal{make(chan record, mostGathered), blocks, commit}
	go j.run()
	return j
}

// append returns when the record is durable.
func (j *journal) append(p []byte, durable chan error) error {
	j.records <- record{p, durable}
	return <-durable
}

func (j *journal) run() {
	var gathered []record
	var batch []ringway.Transfer
	var end int64
	for first := range j.records {
		runtime.Gosched() // Those that were just told have their next records ready then.
		gathered = append(gathered[:0], first)
		for most := min(mostGathered, j.blocks); int64(len(gathered)) < most; {
			select {
			case r := <-j.records:
				gathered = append(gathered, r)
				continue
			default:
			}
			break
		}
		if end+int64(len(gathered)) > j.blocks {
			end = 0 // A commit is one range.
		}
		batch = batch[:0]
		for _, r := range gathered {
			number(r.p, end)
			batch = append(batch, ringway.Transfer{P: r.p, Off: end * block})
			end++
		}
		err := j.commit(batch)
		if err != nil {
			err = fmt.Errorf("a commit of %s: %w", plural(len(batch), "record"), err)
		}
		for _, r := range gathered {
			r.durable <- err
		}
	}
}
