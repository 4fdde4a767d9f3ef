//go:build linux

package suite

import (
	"os"
	"syscall"
	"unsafe"
)

// Dirty is how many pages of a file the page cache has that are not on the disk; false before kernel 6.5, and on file systems
// that do not tell. It is what shows that a sync was one: a process that is killed loses nothing either way.
func Dirty(name string) (pages uint64, told bool) {
	f, err := os.Open(name)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	const cachestat = 451 // On every architecture.
	var whole struct{ off, n uint64 }
	var stat struct{ cached, dirty, underWay, evicted, recently uint64 }
	_, _, errno := syscall.Syscall6(cachestat, f.Fd(), uintptr(unsafe.Pointer(&whole)), uintptr(unsafe.Pointer(&stat)), 0, 0, 0)
	return stat.dirty + stat.underWay, errno == 0
}
