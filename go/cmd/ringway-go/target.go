//go:build linux

// The file that is read: an existing one, opened read-only, or a scratch file without a name, which
// disappears with the process. Runs open it again through /proc/self/fd, with the flags they need.

package main

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
	size    int64 // Used, from its start.
	scratch bool  // Created here: each block starts with its number, and runs may write to it.
	direct  bool  // Direct I/O works.
	about   string
}

// defaultScratch exceeds the cache of most devices and takes seconds to write. The scratch file
// takes at most a tenth of the free space.
const defaultScratch = 1 << 30

func openTarget(o options) (*target, error) {
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
		size = min(defaultScratch, free/10>>20<<20)
	}
	if size == 0 || size > free {
		return nil, fmt.Errorf("create a scratch file in %s: %s free is not enough "+
			"(nothing was written); choose another directory with -scratch, or a size of at least "+
			"4 KiB with -size", o.scratch, sizeText(free>>20<<20))
	}
	return createScratch(o.scratch, size)
}

func openFile(name string, size int64) (*target, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	t := &target{file: file, about: "target: " + name + ", read only"}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() && info.Mode()&os.ModeType != os.ModeDevice {
		err = errors.New("neither a regular file nor a block device")
	}
	if err == nil {
		t.size, err = file.Seek(0, io.SeekEnd)
	}
	switch {
	case err != nil:
	case t.size < block:
		err = fmt.Errorf("has %d bytes, less than a read of %d", t.size, block)
	case size > t.size:
		err = fmt.Errorf("has %s, less than -size", sizeText(t.size))
	case size > 0:
		t.size = max(size, block)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), file.Close())
	}
	t.direct = supportsDirect(file)
	return t, nil
}

// supportsDirect makes a direct read: some file systems accept the flag and refuse the read.
func supportsDirect(file *os.File) bool {
	direct, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()),
		os.O_RDONLY|syscall.O_DIRECT, 0)
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

// unfit returns why the target cannot serve a workload, or "".
func (t *target) unfit(w workload) string {
	switch {
	case (w.IO == ioDirect || w.IO == ioNull) && !t.direct:
		return string(w.IO) + ": omitted, since this file does not support direct I/O"
	case w.IO == ioCommit && !t.scratch:
		return "commit: omitted, since it writes, and FILE is read only"
	}
	return ""
}

// createScratch writes every byte: holes are not read from the device.
func createScratch(dir string, size int64) (*target, error) {
	file, err := createUnnamed(dir)
	if err != nil {
		return nil, fmt.Errorf("create a scratch file: %w; choose another directory with -scratch",
			err)
	}
	if err := fill(file, size); err != nil {
		err = fmt.Errorf("write a scratch file in %s: %w", dir, err)
		return nil, errors.Join(err, file.Close())
	}
	if whole, err := filepath.Abs(dir); err == nil {
		dir = whole
	}
	return &target{
		file: file, size: size, scratch: true, direct: supportsDirect(file),
		about: fmt.Sprintf("target: a scratch file of %s in %s, removed afterwards", sizeText(size),
			dir),
	}, nil
}

// createUnnamed creates a file without a name.
func createUnnamed(dir string) (*os.File, error) {
	const tmpfile = 0x400000 | syscall.O_DIRECTORY // O_TMPFILE
	file, err := os.OpenFile(dir, os.O_RDWR|tmpfile, 0o600)
	if !errors.Is(err, syscall.EOPNOTSUPP) && !errors.Is(err, syscall.EISDIR) &&
		!errors.Is(err, syscall.EINVAL) {
		return file, err
	}
	// The file system does not support O_TMPFILE.
	if file, err = os.CreateTemp(dir, "ringway-go-"); err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}

func fill(file *os.File, size int64) error {
	p := make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{})
	for at := int64(0); at < size; {
		p := p[:min(int64(len(p)), size-at)]
		_, _ = random.Read(p) // It never fails.
		for i := 0; i < len(p); i += block {
			binary.LittleEndian.PutUint64(p[i:], uint64(at+int64(i))/block)
		}
		n, err := file.WriteAt(p, at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	if err := file.Sync(); err != nil {
		return err
	}
	// Direct reads of cached pages cost more. This is advice: an error is of no consequence.
	const dontNeed = 4
	_, _, _ = syscall.Syscall6(syscall.SYS_FADVISE64, file.Fd(), 0, 0, dontNeed, 0, 0)
	return nil
}
