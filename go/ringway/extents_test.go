//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The list of a file's extents, which is in memory after the first transfer.

package ringway

import (
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// After the first transfer of a file on ext4, its whole list of extents is in memory.
func TestFirstTransferReadsExtents(t *testing.T) {
	// EXT4_IOC_CLEAR_ES_CACHE and EXT4_IOC_GET_ES_CACHE: the kernel forgets what it knows of the
	// extents, and counts what it knows.
	const forget, known = 0x6628, 0xc020662a
	const extents = 1200 // In three blocks of the list, and a half.
	for _, backend := range queueBackends {
		e := newOrSkip(t, Options{Backend: backend})
		f := openIn(t, e, nil, os.O_RDWR|Direct)
		writer := get(os.OpenFile(f.Name(), os.O_WRONLY, 0))(t)
		defer func() { _ = writer.Close() }()
		for i := range int64(extents) {
			must(t, errorOf(writer.WriteAt(make([]byte, pageSize), 2*i*pageSize)))
		}
		must(t, writer.Sync())
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, writer.Fd(), forget, 0); errno != 0 {
			t.Skip("skipped: no ext4 of Linux 5.4: ", errno)
		}
		moves(t, pageSize)(f.ReadAt(make([]byte, pageSize), 0))
		m := fiemap{length: 1<<64 - 1} // Without room for extents, they are counted.
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, writer.Fd(), known,
			uintptr(unsafe.Pointer(&m))); errno != 0 || m.mapped < extents {
			t.Error(backend, ": ", m.mapped, " extents known, ", errno)
		}
	}
}
