//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The system calls of files that do not go through a queue. syscalls_os.go has the counterparts for
// other systems.

package ringway

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/race"

	"github.com/ringway-io/ringway/go/internal/kernel"
	"github.com/ringway-io/ringway/go/internal/refusal"
)

// openFile is os.OpenFile, with Direct among the flags.
func openFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	file, err := os.OpenFile(name, flag, perm)
	if path, is := err.(*fs.PathError); is && flag&Direct != 0 && path.Err == syscall.EINVAL {
		path.Err = unavailable(refusal.DirectIO, syscall.EINVAL)
	}
	return file, err
}

// identify finds out what kind of file this is.
func (f *File) identify() error {
	conn, err := f.file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if conn.Control(func(fd uintptr) { inner = f.identifyDescriptor(int(fd)) }) != nil {
		return os.ErrClosed // Control fails for no other reason.
	}
	return inner
}

func (f *File) identifyDescriptor(fd int) error {
	mode, err := fileMode(fd)
	if err != nil {
		return err
	}
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
	if errno != 0 {
		return errno
	}
	format := mode & syscall.S_IFMT
	f.storage = format == syscall.S_IFREG || format == syscall.S_IFBLK
	f.blockDevice = format == syscall.S_IFBLK
	f.dir = format == syscall.S_IFDIR
	f.direct = f.storage && flags&syscall.O_DIRECT != 0 // A pipe with the flag keeps messages.
	f.append = flags&syscall.O_APPEND != 0
	f.fd = fd
	return nil
}

// fileMode returns the type of an open file, as S_IFMT. The server of the file is not asked, as in
// open(2), so that nothing fails here that package os can open.
func fileMode(fd int) (uint32, error) {
	if stat, ok := statxOf(fd, statxType); ok {
		return uint32(stat.mode), nil
	}
	var stat syscall.Stat_t
	err := retryEINTR(func() error { return syscall.Fstat(fd, &stat) })
	return stat.Mode, err
}

// withDescriptor calls do with the descriptor, within use. Closing a pipe ends the operations that
// wait in it, so package os has to hold its descriptor open.
func (f *File) withDescriptor(do func(fd int) error) error {
	if f.storage || f.dir {
		return do(f.fd)
	}
	conn, err := f.file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if conn.Control(func(fd uintptr) { inner = do(int(fd)) }) != nil {
		return os.ErrClosed // Control fails for no other reason.
	}
	return inner
}

// retryEINTR repeats a system call that a signal interrupts.
func retryEINTR(call func() error) error {
	for {
		if err := call(); err != syscall.EINTR {
			return err
		}
	}
}

func (f *File) fsync(op opcode) error {
	if op == opFsync {
		return f.callSync(syscall.Fsync)
	}
	return f.callSync(syscall.Fdatasync)
}

func (f *File) syncRange(off, n int64, what RangeSync) error {
	return f.callSync(func(fd int) error { return syscall.SyncFileRange(fd, off, n, int(what)) })
}

// callSync makes a sync. It is repeated after EINTR only on a file system whose transfers go to the
// queues. Any other (FUSE) may report lost data so, and a second sync would succeed: there no
// signal may interrupt it.
func (f *File) callSync(call func(fd int) error) error {
	return f.withDescriptor(func(fd int) error {
		if f.lookUp().ring {
			return retryEINTR(func() error { return call(fd) })
		}
		return withoutSignals(func() error { return call(fd) })
	})
}

// withoutSignals makes a call that no signal interrupts.
func withoutSignals(call func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, before := ^uint64(0), uint64(0)
	setSignalMask(&all, &before)
	defer setSignalMask(&before, nil)
	return call()
}

// setSignalMask sets the signals that this thread blocks, and returns those that it has blocked
// before. It cannot fail (sigprocmask(2)).
func setSignalMask(mask, before *uint64) {
	const setMask = 2
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(mask)),
		uintptr(unsafe.Pointer(before)), unsafe.Sizeof(*mask), 0, 0)
}

func (f *File) fallocate(off, n int64) error {
	return f.withDescriptor(func(fd int) error {
		return retryEINTR(func() error { return syscall.Fallocate(fd, 0, off, n) })
	})
}

func (f *File) fadvise(off, n int64, advice Advice) error {
	return f.withDescriptor(func(fd int) error {
		_, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, uintptr(fd), uintptr(off),
			uintptr(n),
			uintptr(advice), 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
}

const rwfNowait = 8

// readCached reads what the page cache holds of the beginning of p. ok is false if that is nothing.
// A try that finds data missing may have the kernel read ahead, for which the flags matter.
func readCached(fd int, p []byte, off int64, flags uint32) (n int, ok bool) {
	vector := newVector(p)
	// Go's scheduler knows of this call, brief as it is: on a busy machine the thread may lose its
	// processor in it, and another thread then runs the other goroutines. Without that, such reads
	// get half of what os.File gets. (The offset has two halves; 64-bit machines use the first.)
	got, _, errno := syscall.Syscall6(sysPreadv2, uintptr(fd), uintptr(unsafe.Pointer(&vector)), 1,
		uintptr(off), 0, uintptr(rwfNowait|flags))
	if errno != 0 {
		return 0, false
	}
	kernelWrote(p[:got])
	return int(got), true
}

// cachedReads reports whether RWF_NOWAIT works: before kernel 5.11 it may return 0 where the file
// does not end.
var cachedReads = kernel.AtLeast(5, 11)

// blocking is a transfer by a plain system call. A read that returns 0 bytes is at the end of the
// file. A signal ends it only if the context has ended: a server (FUSE) may answer EINTR for ever.
func (f *File) blocking(ctx context.Context, op opcode, p []byte, off int64) (n int, err error) {
	if !f.dropsPages() {
		return f.plain(ctx, op, p, off)
	}
	return f.withFlags(func(flags uint32) (int, error) {
		if flags == 0 || len(p) == 0 {
			return f.plain(ctx, op, p, off)
		}
		call := uintptr(sysPreadv2)
		if op != opRead {
			call = sysPwritev2
			kernelReads(p) // As the calls of package syscall tell the race detector.
		}
		vector := newVector(p)
		n, err := transferVectors(ctx, call, f.fd,
			(*[1]syscall.Iovec)(unsafe.Pointer(&vector))[:], off, flags)
		if op == opRead && n > 0 {
			kernelWrote(p[:n])
		}
		return n, err
	})
}

// plain is a transfer by a plain system call without flags.
func (f *File) plain(ctx context.Context, op opcode, p []byte, off int64) (n int, err error) {
	for {
		switch {
		case op == opRead && off == atCurrent:
			n, err = syscall.Read(f.fd, p)
		case op == opRead:
			n, err = syscall.Pread(f.fd, p, off)
		case off == atCurrent:
			n, err = syscall.Write(f.fd, p)
		default:
			n, err = syscall.Pwrite(f.fd, p, off)
		}
		if err != syscall.EINTR {
			return max(n, 0), err
		}
		if ctx.Err() != nil {
			return 0, causeOf(ctx)
		}
	}
}

// vectoredWrites: writeVectors exists.
const vectoredWrites = true

type vector = syscall.Iovec

func newVector(p []byte) vector {
	v := vector{Base: unsafe.SliceData(p)}
	v.SetLen(len(p))
	return v
}

// writeVectors is pwritev(2), or writev(2) at the current position, with the file's flags.
func (f *File) writeVectors(ctx context.Context, v []vector, off int64) (int, error) {
	return f.withFlags(func(flags uint32) (int, error) {
		call := uintptr(syscall.SYS_PWRITEV)
		switch {
		case flags != 0:
			call = sysPwritev2
		case off == atCurrent:
			call = syscall.SYS_WRITEV // It ignores the offset.
		}
		return transferVectors(ctx, call, f.fd, v, off, flags)
	})
}

// transferFlags: transfers can have RWF flags.
const transferFlags = true

// transferVectors makes one vectored transfer. preadv2(2) and pwritev2(2) take -1 for the current
// position. (The offset has two halves; 64-bit machines use the first.)
func transferVectors(ctx context.Context, call uintptr, fd int, v []vector, off int64,
	flags uint32) (int, error) {
	if off == atCurrent {
		off = -1
	}
	for {
		n, _, errno := syscall.Syscall6(call, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(v))), uintptr(len(v)), uintptr(off), 0,
			uintptr(flags))
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
			if ctx.Err() != nil {
				return 0, causeOf(ctx)
			}
		default:
			return 0, errno
		}
	}
}

// statx is what struct statx has of a file's type and of direct I/O.
type statx struct {
	mask, _           uint32
	_                 [20]byte
	mode              uint16
	_                 [122]byte
	memory, offset    uint32 // The alignment of direct I/O.
	_                 uint64
	untornMin         uint32
	untornMax         uint32
	untornMaxSegments uint32
	_                 uint32
	untornMaxOpt      uint32
	_                 [68]byte
}

// Parts of struct statx.
const (
	statxType        = 0x1
	statxDirectAlign = 0x2000
	statxWriteAtomic = 0x10000
)

// statxOf asks the kernel for a part of struct statx; it asks no server. ok is false if the kernel
// does not report it.
func statxOf(fd int, part uint32) (stat statx, ok bool) {
	const emptyPath, dontSync = 0x1000, 0x4000
	var empty [1]byte
	_, _, errno := syscall.Syscall6(sysStatx, uintptr(fd), uintptr(unsafe.Pointer(&empty)),
		emptyPath|dontSync, uintptr(part), uintptr(unsafe.Pointer(&stat)), 0)
	return stat, errno == 0 && stat.mask&part != 0
}

// directAlignment returns the alignment of direct I/O. It is 0 if the kernel does not report it.
func directAlignment(fd int) (memory, offset int) {
	stat, ok := statxOf(fd, statxDirectAlign)
	if !ok {
		return 0, 0
	}
	return int(stat.memory), int(stat.offset)
}

// atomicWriteUnit returns the sizes of untorn writes. They are 0 if there are none.
func (f *File) atomicWriteUnit() (unit AtomicWriteUnit, err error) {
	err = f.withDescriptor(func(fd int) error {
		if stat, ok := statxOf(fd, statxWriteAtomic); ok {
			unit = AtomicWriteUnit{int(stat.untornMin), int(stat.untornMax), int(stat.untornMaxOpt),
				int(stat.untornMaxSegments)}
		}
		return nil
	})
	return unit, err
}

// fileSizeLimit returns RLIMIT_FSIZE, at which the kernel cuts a write.
func fileSizeLimit() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit) != nil {
		return math.MaxUint64
	}
	return limit.Cur
}

// largestRequest returns the size of the device's largest request, or a common one if it is
// unknown.
func largestRequest(fd int) int {
	const common = 512 << 10
	major, minor, ok := blockDevice(fd)
	if !ok {
		return common
	}
	for _, below := range []string{"queue", "../queue"} { // A partition has that of its disk.
		name := fmt.Sprintf("/sys/dev/block/%d:%d/%s/max_sectors_kb", major, minor, below)
		if kib := readNumber(name); kib >= 4 {
			return kib << 10
		}
	}
	return common
}

// mapRegion returns new memory, in whole pages.
func mapRegion(n int) ([]byte, error) {
	if race.Enabled {
		return alignedSlice(n, pageSize), nil // The race detector only knows Go's heap.
	}
	return syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
}

func unmapRegion(region []byte) {
	if !race.Enabled {
		_ = syscall.Munmap(region)
	}
}
