//go:build linux

package main

// The file that is read: one of the user's, which is opened for reading and no more, or a scratch file that never has a name.
// So nothing is left behind, whatever ends the command; runs open it anew, with the flags they need, through /proc/self/fd.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
)

// target is an open file.
type target struct {
	file    *os.File
	size    int64 // Used, from its beginning.
	scratch bool  // Made here: each block begins with its number, and it may be written to.
	direct  bool  // It can be read with direct I/O.
	what    string
}

const (
	// usualScratch is large enough that a device's own cache is not all there is to it, and written in a few seconds.
	usualScratch = 1 << 30
	// usualInMemory is less, since on tmpfs it takes memory from everybody.
	usualInMemory = 256 << 20
	// leastScratch: less says nothing about a device.
	leastScratch = 16 << 20

	magicTmpfs, magicRamfs = 0x01021994, 0x858458f6
)

// scratchSize is the usual size, but at most a tenth of the free space; 0: that is too little.
func scratchSize(free int64, inMemory bool) int64 {
	usual := int64(usualScratch)
	if inMemory {
		usual = usualInMemory
	}
	size := min(usual, free/10>>20<<20)
	if size < leastScratch {
		return 0
	}
	return size
}

func openTarget(o options, progress func(done, all int64)) (*target, error) {
	if o.file != "" {
		return openFile(o.file, o.size)
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(o.scratch, &stat); err != nil {
		return nil, &os.PathError{Op: "statfs", Path: o.scratch, Err: err}
	}
	free := int64(stat.Bavail) * stat.Bsize
	size := o.size / block * block
	if o.size == 0 {
		if size = scratchSize(free, stat.Type == magicTmpfs || stat.Type == magicRamfs); size == 0 {
			return nil, fmt.Errorf("%s has %s free: too little for a scratch file, which takes at most a tenth of it; choose another folder with -scratch, or a size with -size", o.scratch, sizeText(free>>20<<20))
		}
	}
	if size == 0 || size > free {
		return nil, fmt.Errorf("a scratch file of %s in %s: at least 4 KiB, and %s are free; nothing was written", sizeText(o.size), o.scratch, sizeText(free>>20<<20))
	}
	return makeScratch(o.scratch, size, progress)
}

func openFile(name string, size int64) (*target, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	t := &target{file: file, what: "target: " + name + ", which is only read"}
	if t.size, err = file.Seek(0, io.SeekEnd); err == nil {
		var info os.FileInfo
		if info, err = file.Stat(); err == nil && !info.Mode().IsRegular() && info.Mode()&os.ModeType != os.ModeDevice {
			err = errors.New("neither a file nor a block device")
		}
	}
	switch {
	case err != nil:
	case t.size < block:
		err = fmt.Errorf("it has %d bytes, less than one read of %d", t.size, block)
	case size > t.size:
		err = fmt.Errorf("it has %s, less than -size", sizeText(t.size))
	case size > 0:
		t.size = max(size, block)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	t.direct = canDirect(file)
	return t, nil
}

// canDirect tries a read, since some file systems grant the flag alone.
func canDirect(file *os.File) bool {
	direct, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_RDONLY|syscall.O_DIRECT, 0)
	if err != nil {
		return false
	}
	defer direct.Close()
	var m memory
	p, err := m.buffer(block)
	if err != nil {
		return false
	}
	_, err = direct.ReadAt(p, 0)
	return err == nil
}

// makeScratch writes every byte: what has holes is not read from the device.
func makeScratch(dir string, size int64, progress func(done, all int64)) (*target, error) {
	file, err := nameless(dir)
	if err != nil {
		return nil, fmt.Errorf("a scratch file: %w; choose another folder with -scratch", err)
	}
	if err := fill(file, size, progress); err != nil {
		file.Close()
		return nil, fmt.Errorf("writing a scratch file in %s: %w", dir, err)
	}
	whole, err := filepath.Abs(dir)
	if err != nil {
		whole = dir
	}
	return &target{
		file: file, size: size, scratch: true, direct: canDirect(file),
		what: fmt.Sprintf("target: a scratch file of %s in %s, removed afterwards", sizeText(size), whole),
	}, nil
}

// nameless is a file that no folder knows of.
func nameless(dir string) (*os.File, error) {
	const tmpfile = 0x400000 | syscall.O_DIRECTORY // O_TMPFILE
	file, err := os.OpenFile(dir, os.O_RDWR|tmpfile, 0o600)
	if err == nil || !errors.Is(err, syscall.EOPNOTSUPP) && !errors.Is(err, syscall.EISDIR) && !errors.Is(err, syscall.EINVAL) {
		return file, err
	}
	// Not every file system has that.
	if file, err = os.CreateTemp(dir, "ringway-go-"); err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}

func fill(file *os.File, size int64, progress func(done, all int64)) error {
	piece := make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{})
	for at := int64(0); at < size; {
		piece := piece[:min(int64(len(piece)), size-at)]
		_, _ = random.Read(piece) // (It has no errors.)
		for in := 0; in < len(piece); in += block {
			binary.LittleEndian.PutUint64(piece[in:], uint64(at+int64(in))/block)
		}
		n, err := file.WriteAt(piece, at)
		if err != nil {
			return err
		}
		at += int64(n)
		progress(at, size)
	}
	if err := file.Sync(); err != nil {
		return err
	}
	// Direct reads begin without a cache that they would have to look into. It is advice, and may be refused.
	const dontNeed = 4
	_, _, _ = syscall.Syscall6(syscall.SYS_FADVISE64, file.Fd(), 0, 0, dontNeed, 0, 0)
	return nil
}
