//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Which queues may make a file's transfers. io_uring and Linux AIO are asynchronous only on file
// systems that say so; elsewhere they block, or answer differently from the system call: limited to
// a size that a server has guessed, for example. So the queues get the files of file systems that
// are known to work. All other transfers are the system calls that package os makes.

package ringway

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"
)

// fileSystemTable is a copy of the table of the Rust core, which explains its columns.
//
//go:embed file_systems.txt
var fileSystemTable string

// fileSystem is a line of the table, without the columns that this package does not use.
type fileSystem struct {
	magic     int64
	ring      string // "all", "reported", or "-".
	kaio      string // "direct", "nocow", "reported", or "-".
	alignment string // "known", "grows", or "-".
}

// bdevMagic is that of block devices. The file system of their names is another one.
const bdevMagic = 0x62646576

// fileSystems has the table by magic number.
var fileSystems = sync.OnceValue(func() map[int64]fileSystem {
	all := make(map[int64]fileSystem)
	for line := range strings.Lines(fileSystemTable) {
		system, ok := parseFileSystem(line)
		if _, known := all[system.magic]; ok && !known {
			all[system.magic] = system
		}
	}
	return all
})

// parseFileSystem parses a line of the table. ok is false for comments.
func parseFileSystem(line string) (system fileSystem, ok bool) {
	columns := strings.Fields(line)
	if len(columns) != 7 || strings.HasPrefix(line, "#") {
		return system, false
	}
	magic, err := strconv.ParseUint(columns[1], 0, 32)
	return fileSystem{int64(magic), columns[3], columns[4], columns[6]}, err == nil
}

// placement tells which queues may make the transfers of a file.
type placement struct{ ring, kaio bool }

// allows reports whether the queues of a backend may make the transfers.
func (p placement) allows(backend Backend) bool {
	switch backend {
	case BackendURing:
		return p.ring
	case BackendKAIO:
		return p.kaio
	}
	return backend == backendNull
}

// place returns the placement of a file. reported: the kernel reports an alignment for its direct
// transfers. nocow is called if it matters whether the file has no copy-on-write.
func (s fileSystem) place(direct, reported bool, nocow func() bool) placement {
	return placement{
		ring: s.ring == "all" || s.ring == "reported" && direct && reported,
		kaio: direct && (s.kaio == "direct" || s.kaio == "reported" && reported ||
			s.kaio == "nocow" && nocow()),
	}
}

// lookUpFacts asks the kernel. It may wait for a server.
func (f *File) lookUpFacts() (facts facts) {
	facts.memory, facts.offset = 1, 1
	facts.largest = maxTransfer
	reported := false
	if f.direct {
		if memory, offset := directAlignment(f.fd); memory > 0 && offset > 0 {
			facts.memory, facts.offset, reported = memory, offset, true
		}
		if takesWholePages(f.fd) {
			facts.memory = max(facts.memory, pageSize)
			f.needsPages.Store(!reported)
		}
	}
	stat := f.statFileSystem()
	system, known := fileSystems()[int64(uint32(stat.Type))]
	if !known {
		return facts
	}
	facts.placement = system.place(f.direct, reported, func() bool { return isNocow(f.fd) })
	if facts.allows(f.engine.backend) {
		facts.queue = blockQueueOf(f.fd)
		f.lookUpWaits() // And the list of extents.
	}
	if facts.ring && f.direct && system.alignment != "-" {
		facts.exact = true
		if !reported { // This suits all devices of kernels that do not report it.
			facts.memory, facts.offset = pageSize, pageSize
		}
		facts.largest = largestRequest(f.fd)
	}
	return facts
}

// statFileSystem describes the file's file system. The type is 0 if it is unknown.
func (f *File) statFileSystem() (stat syscall.Statfs_t) {
	if f.blockDevice {
		stat.Type = bdevMagic
		return stat
	}
	err := retryEINTR(func() error { return syscall.Fstatfs(f.fd, &stat) })
	if err != nil {
		return syscall.Statfs_t{}
	}
	return stat
}

// isNocow reports whether a file of btrfs has no copy-on-write, so that it is never compressed.
func isNocow(fd int) bool {
	const getFlags, nocow = 0x80086601, 0x00800000
	var flags int64
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), getFlags,
		uintptr(unsafe.Pointer(&flags)))
	return errno == 0 && flags&nocow != 0
}
