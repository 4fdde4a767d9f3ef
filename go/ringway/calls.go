//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// The system calls that package syscall does not have, and those that are made without an engine.

import (
	"syscall"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/race"
)

const (
	// atOnce is the most that is copied out of the page cache in one system call.
	atOnce = 1 << 20

	rwfNowait = 8
	atCursor  = -1
)

// readCached reads what is in the page cache, as far as it is there; EAGAIN if nothing of it is.
func readCached(fd int, p []byte, off int64) (int, syscall.Errno) {
	p = p[:min(len(p), atOnce)]
	vector := syscall.Iovec{Base: unsafe.SliceData(p)}
	vector.SetLen(len(p))
	// The scheduler is told of the call, brief as it is: where the machine is busy and the thread loses its processor meanwhile,
	// another goes on with the other goroutines. Without that, such reads get half of what os.File gets on a machine with other
	// work. (The offset comes in two halves, of which 64-bit machines use the first alone.)
	n, _, errno := syscall.Syscall6(sysPreadv2, uintptr(fd), uintptr(unsafe.Pointer(&vector)), 1, uintptr(off), 0, rwfNowait)
	if errno != 0 {
		return 0, errno
	}
	written(p[:n])
	return int(n), 0
}

// blocking is a transfer by a plain system call.
func blocking(kind kind, fd int, p []byte, off int64) (n int, err error) {
	for {
		switch {
		case kind == read && off == atCursor:
			n, err = syscall.Read(fd, p)
		case kind == read:
			n, err = syscall.Pread(fd, p, off)
		case off == atCursor:
			n, err = syscall.Write(fd, p)
		default:
			n, err = syscall.Pwrite(fd, p, off)
		}
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// writeVectors is pwritev(2), or writev(2) at the file's own position.
func writeVectors(fd int, v []syscall.Iovec, off int64) (int, error) {
	call := uintptr(syscall.SYS_PWRITEV)
	if off == atCursor {
		call = syscall.SYS_WRITEV // Which does not look at the offset.
	}
	for {
		n, _, errno := syscall.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(v))), uintptr(len(v)), uintptr(off), 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}

// mapRegion is fresh memory, in whole pages.
func mapRegion(n int) ([]byte, error) {
	if race.Enabled {
		// The race detector knows Go's heap alone.
		return alignedSlice(n, pageSize), nil
	}
	return syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
}

func unmapRegion(region []byte) {
	if !race.Enabled {
		_ = syscall.Munmap(region)
	}
}

// statx is what the kernel tells of a file for direct I/O; zeroes where it does not.
func directAlignment(fd int) (memory, offset int) {
	var stat struct {
		mask, _ uint32
		_       [144]byte
		memory  uint32
		offset  uint32
		_       [96]byte
	}
	const emptyPath, directAlign = 0x1000, 0x2000
	var empty [1]byte
	_, _, errno := syscall.Syscall6(sysStatx, uintptr(fd), uintptr(unsafe.Pointer(&empty)), emptyPath, directAlign,
		uintptr(unsafe.Pointer(&stat)), 0)
	if errno != 0 || stat.mask&directAlign == 0 {
		return 0, 0
	}
	return int(stat.memory), int(stat.offset)
}
