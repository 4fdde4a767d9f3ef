//go:build linux

// The pages of a file in the page cache, of which dirty ones show whether a sync happened.

package suite

import (
	"os"
	"syscall"
	"unsafe"
)

// Dirty returns how many pages of a file in the page cache are not on the disk. ok is false before
// Linux 6.5, and on file systems that do not report it. It shows whether a sync happened: a killed
// process loses no data either way.
func Dirty(name string) (pages uint64, ok bool) {
	stat, ok := pagesOf(name)
	return stat.dirty + stat.writeback, ok
}

// Cached returns how many pages of a file are in the page cache, also those that are being read. ok
// is as that of [Dirty].
func Cached(name string) (pages uint64, ok bool) {
	stat, ok := pagesOf(name)
	return stat.cached, ok
}

// cachestat is struct cachestat.
type cachestat struct{ cached, dirty, writeback, evicted, recentlyEvicted uint64 }

func pagesOf(name string) (stat cachestat, ok bool) {
	f, err := os.Open(name)
	if err != nil {
		return stat, false
	}
	defer f.Close()
	const sysCachestat = 451 // The same on every architecture.
	var whole struct{ off, n uint64 }
	_, _, errno := syscall.Syscall6(sysCachestat, f.Fd(), uintptr(unsafe.Pointer(&whole)),
		uintptr(unsafe.Pointer(&stat)), 0, 0, 0)
	return stat, errno == 0
}
