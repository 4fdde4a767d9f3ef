//go:build linux

// Package stall is a disk that does not take what is written, for the tests of the file systems for
// Pebble.
package stall

import (
	"io"
	"os"
	"testing"
	"time"
)

// Write writes to a file, which is a pipe that nobody reads, until the file system reports that.
// Then it reads the pipe, waits for the write and closes the file. It returns the first report.
func Write[Info any](t *testing.T, name string, f io.WriteCloser, reports <-chan Info) Info {
	t.Helper()
	written := make(chan error, 1)
	content := make([]byte, 1<<20) // More than a pipe holds.
	go func() {
		_, err := f.Write(content)
		written <- err
	}()
	var info Info
	select {
	case info = <-reports:
	case <-time.After(time.Minute):
		t.Fatal("a stalled write is not reported")
	}
	pipe, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if _, err := io.CopyN(io.Discard, pipe, int64(len(content))); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	return info
}
