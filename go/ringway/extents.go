//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The list of a file's extents, which is in blocks of the file system. ext4 reads each of them when
// a transfer first needs it, in the thread that submits the transfer, also with RWF_NOWAIT. So the
// kernel is made to read all of them before the first transfer.

package ringway

import (
	"syscall"
	"time"
	"unsafe"
)

// ext4Magic is the type of ext2, ext3 and ext4.
const ext4Magic = 0xef53

// extentsPerBlock is how many are in one block of ext4's list.
const extentsPerBlock = 340

// extentsPerCall is how many are asked for at a time. A call reads a block for each if the blocks
// are nearly empty, and the time is checked between calls only.
const extentsPerCall = 32

// readExtentsFor bounds the reading, since transfers wait for it. What is left is not read.
const readExtentsFor = time.Second

// fiemap is struct fiemap of linux/fiemap.h, with room for some extents.
type fiemap struct {
	start, length                  uint64
	flags, mapped, count, reserved uint32
	extents                        [extentsPerCall]struct {
		logical, physical, length uint64
		_                         [2]uint64
		flags                     uint32
		_                         [3]uint32
	}
}

// hasManyBlocks reports whether a file may have more extents than the first transfer finds anyway.
func hasManyBlocks(fd int) bool {
	const perExtent = 8 // A block of ext4 has at most 8 of 512 bytes, mostly.
	var stat syscall.Stat_t
	return syscall.Fstat(fd, &stat) == nil && stat.Blocks > extentsPerBlock*perExtent
}

// readExtents has the kernel read the list. It waits for the device.
func readExtents(fd int) {
	const ioctl, last = 0xc020660b, 1 // FS_IOC_FIEMAP, FIEMAP_EXTENT_LAST
	m := &fiemap{length: 1<<64 - 1, count: extentsPerCall}
	for end := time.Now().Add(readExtentsFor); time.Now().Before(end); {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), ioctl,
			uintptr(unsafe.Pointer(m)))
		n := min(m.mapped, extentsPerCall)
		if errno != 0 || n == 0 {
			return
		}
		e := &m.extents[n-1]
		next := e.logical + e.length
		if e.flags&last != 0 || next <= m.start {
			return
		}
		m.start, m.length = next, 1<<64-1-next
	}
}
