//go:build linux

// The pages of a file in the page cache, of which dirty ones show whether a sync happened.

package suite

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// SeePages skips a test unless [Dirty] and [Cached] count the pages of files in a directory. Linux
// does not before 6.5. The pages of an overlay are those of a file below it, and tmpfs has no dirty
// ones: cachestat(2) answers 0.
func SeePages(t testing.TB, dir string) {
	t.Helper()
	name := filepath.Join(dir, "pages")
	if err := os.WriteFile(name, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	stat, err := pagesOf(name)
	if err != nil {
		skip.Test(t, "the kernel does not count the pages of this file system: ", err)
	}
	if stat.cached == 0 || stat.dirty+stat.writeback == 0 {
		// As expected of an overlay and of tmpfs.
		t.Skip("skipped: the kernel does not count the pages of this file system: ", stat)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
}

// Dirty returns how many pages of a file in the page cache are not on the disk. It shows whether a
// sync happened: a killed process loses no data either way.
func Dirty(t testing.TB, name string) uint64 {
	t.Helper()
	stat := mustPagesOf(t, name)
	return stat.dirty + stat.writeback
}

// Cached returns how many pages of a file are in the page cache, also those that are being read.
func Cached(t testing.TB, name string) uint64 {
	t.Helper()
	return mustPagesOf(t, name).cached
}

func mustPagesOf(t testing.TB, name string) cachestat {
	t.Helper()
	stat, err := pagesOf(name)
	if err != nil {
		t.Fatal(err)
	}
	return stat
}

// cachestat is struct cachestat.
type cachestat struct{ cached, dirty, writeback, evicted, recentlyEvicted uint64 }

func pagesOf(name string) (stat cachestat, err error) {
	f, err := os.Open(name)
	if err != nil {
		return stat, err
	}
	defer f.Close()
	const sysCachestat = 451 // The same on every architecture.
	var whole struct{ off, n uint64 }
	_, _, errno := syscall.Syscall6(sysCachestat, f.Fd(), uintptr(unsafe.Pointer(&whole)),
		uintptr(unsafe.Pointer(&stat)), 0, 0, 0)
	if errno != 0 {
		return stat, os.NewSyscallError("cachestat", errno)
	}
	return stat, nil
}
