//go:build linux

// The dirty pages of a file, which show whether a sync happened.

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
	f, err := os.Open(name)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	const cachestat = 451 // The same on every architecture.
	var whole struct{ off, n uint64 }
	var stat struct{ cached, dirty, writeback, evicted, recentlyEvicted uint64 }
	_, _, errno := syscall.Syscall6(cachestat, f.Fd(), uintptr(unsafe.Pointer(&whole)),
		uintptr(unsafe.Pointer(&stat)), 0, 0, 0)
	return stat.dirty + stat.writeback, errno == 0
}
