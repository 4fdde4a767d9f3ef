//go:build linux

// The log: its format, recovery and group commit.

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/ringway-io/ringway/go/ringway"
)

// header is the size of the header of a record: its length and the checksum of its bytes, both
// 32-bit little-endian.
const header = 8

// maxRecord is the most bytes of a record. A larger length in a file is invalid.
const maxRecord = 1 << 20

var table = crc32.MakeTable(crc32.Castagnoli)

// journal is a log that many goroutines append to. It writes and syncs records in groups: while one
// group is being committed, the next one gathers.
type journal struct {
	file    *ringway.File
	entries chan entry
	ended   chan struct{}

	mu     sync.RWMutex // append holds it for reading, close for writing.
	closed bool

	commits int // Number of groups; valid after close.
}

type entry struct {
	record  []byte
	durable chan<- error
}

// open opens a log, calls replay with each record in order, and truncates an incomplete group at
// the end.
func open(engine *ringway.Engine, name string, replay func(record []byte)) (*journal, error) {
	f, err := engine.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	end, err := replayAll(f, replay)
	if err == nil {
		// After the end there may be a part of a group that was never acknowledged.
		err = f.Truncate(end)
	}
	if err == nil {
		err = f.Sync() // Makes the length durable.
	}
	if err == nil {
		err = syncDir(engine, name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	j := &journal{file: f, entries: make(chan entry), ended: make(chan struct{})}
	go j.run(end)
	return j, nil
}

// replayAll reads a log up to its end, the first invalid record.
func replayAll(f *ringway.File, replay func(record []byte)) (end int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	in := io.NewSectionReader(f, 0, info.Size())
	var head [header]byte
	for {
		record, err := next(in, head[:])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
			errors.Is(err, errInvalid) {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		replay(record)
		end += header + int64(len(record))
	}
}

var errInvalid = errors.New("invalid record")

func next(in io.Reader, head []byte) ([]byte, error) {
	if _, err := io.ReadFull(in, head); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head)
	if n == 0 || n > maxRecord { // File systems leave zeros where nothing was written.
		return nil, errInvalid
	}
	record := make([]byte, n)
	if _, err := io.ReadFull(in, record); err != nil {
		return nil, err
	}
	if crc32.Checksum(record, table) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errInvalid
	}
	return record, nil
}

// syncDir makes the name of a new file durable.
func syncDir(engine *ringway.Engine, name string) error {
	dir, err := engine.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// run commits groups until the channel of entries is closed. After a failed commit it fails all
// entries.
func (j *journal) run(end int64) {
	defer close(j.ended)
	var failed error
	var group []entry
	var batch []ringway.Transfer
	for first := range j.entries {
		group = append(group[:0], first)
	gather:
		for len(group) < 1000 {
			select {
			case e, ok := <-j.entries:
				if !ok {
					break gather
				}
				group = append(group, e)
			default:
				break gather
			}
		}
		if failed == nil {
			batch = batch[:0]
			for _, e := range group {
				batch = append(batch, ringway.Transfer{P: e.record, Off: end})
				end += int64(len(e.record))
			}
			failed = j.file.WriteBatch(batch, ringway.DataSync)
			j.commits++
		}
		// After a failure the contents of the disk are unknown, even after another sync.
		for _, e := range group {
			e.durable <- failed
		}
	}
}

var errClosed = errors.New("log is closed")

// append returns when the record is durable. Goroutines call it concurrently.
func (j *journal) append(record []byte) error {
	if len(record) == 0 || len(record) > maxRecord {
		return fmt.Errorf("append: a record has 1 to %d bytes, got %d", maxRecord, len(record))
	}
	framed := binary.LittleEndian.AppendUint32(make([]byte, 0, header+len(record)),
		uint32(len(record)))
	framed = binary.LittleEndian.AppendUint32(framed, crc32.Checksum(record, table))
	framed = append(framed, record...)
	durable := make(chan error, 1)
	j.mu.RLock()
	if j.closed {
		j.mu.RUnlock()
		return errClosed
	}
	j.entries <- entry{framed, durable}
	j.mu.RUnlock()
	return <-durable
}

// close waits for appends in progress, and closes the file.
func (j *journal) close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return errClosed
	}
	j.closed = true
	j.mu.Unlock()
	close(j.entries)
	<-j.ended
	return j.file.Close()
}
