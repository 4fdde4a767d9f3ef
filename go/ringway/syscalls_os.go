//go:build !linux || !(amd64 || arm64 || loong64 || riscv64)

// The system calls of files on systems without rings, which are those of package os. What the
// system lacks fails with errors.ErrUnsupported. syscalls_linux.go has the counterparts for Linux.

package ringway

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
)

// identify finds out what kind of file this is.
func (f *File) identify() error {
	conn, err := f.file.SyscallConn()
	if err != nil {
		return err
	}
	if conn.Control(func(uintptr) {}) != nil {
		return os.ErrClosed // Control fails for no other reason. Stat does not say so on Windows.
	}
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	mode := info.Mode()
	f.storage = mode.IsRegular() || mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0
	f.dir = mode.IsDir()
	_, err = f.file.WriteAt(nil, 0)
	f.append = err != nil // Package os refuses WriteAt only for files that are open with O_APPEND.
	return nil
}

// blocking is a transfer by a plain system call. A read that returns 0 bytes is at the end of the
// file.
func (f *File) blocking(_ context.Context, op opcode, p []byte, off int64) (n int, err error) {
	switch {
	case op == opRead && off == atCurrent:
		n, err = f.file.Read(p)
	case op == opRead:
		n, err = f.file.ReadAt(p, off)
	case off == atCurrent:
		n, err = f.file.Write(p)
	default:
		n, err = f.file.WriteAt(p, off)
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// fsync is what package os does: on macOS F_FULLFSYNC, since fsync(2) leaves data in the cache of
// the disk there. Not every system has fdatasync(2).
func (f *File) fsync(opcode) error { return f.file.Sync() }

func (f *File) syncRange(off, n int64, what RangeSync) error { return errors.ErrUnsupported }

func (f *File) fallocate(off, n int64) error { return errors.ErrUnsupported }

func (f *File) fadvise(off, n int64, advice Advice) error { return errors.ErrUnsupported }

// Package os has no vectored writes: batches are written range by range, and appended with one
// write of a copy.

const vectoredWrites = false

type vector struct{}

func newVector([]byte) vector { return vector{} }

func (f *File) writeVectors(context.Context, []vector, int64) (int, error) {
	return 0, errors.ErrUnsupported
}

// Transfers have no flags.

const transferFlags = false

// No write is untorn.

func (f *File) atomicWriteUnit() (unit AtomicWriteUnit, err error) { return unit, nil }

func (f *File) untornWrite([]byte, int64) (int, error) { return 0, errors.ErrUnsupported }

func fileSizeLimit() uint64 { return math.MaxUint64 }

// The page cache cannot be probed.

const cachedReads = false

func readCached(int, []byte, int64, uint32) (n int, ok bool) { return 0, false }

// lookUpFacts requires of direct transfers what most disks do, so that a program that works here
// works on Linux too. Package os accepts any buffer.
func (f *File) lookUpFacts() facts {
	return facts{directLimits: directLimits{memory: 1, offset: pageSize, largest: maxTransfer}}
}

// Pooled memory is part of Go's heap.

func mapRegion(n int) ([]byte, error) { return alignedSlice(n, pageSize), nil }

func unmapRegion([]byte) {}
