//go:build linux

// Operations on paths. A directory is a descriptor, or [AtFDCWD].

package ring

import (
	"strings"
	"syscall"
	"unsafe"
)

// AtFDCWD as a directory means the current directory of the thread that submits.
const AtFDCWD = -100

// path is what the kernel reads: with a zero behind. With a zero inside it would be another path, and Push refuses it.
func (q *Request) path(name string) []byte {
	if strings.IndexByte(name, 0) >= 0 {
		q.invalid = true
	}
	return append(append(make([]byte, 0, len(name)+1), name...), 0)
}

// Openat is openat(2) with O_CLOEXEC added; the mode counts only where a file is made. The result is a descriptor. It has to
// be closed even if the program lost interest in the meantime: a request that was cancelled too late yields one, too.
//
// The kernel is asked by way of openat2(2), which refuses unknown flags with EINVAL.
func (q *Request) Openat(dir int, name string, flags int, mode uint32) *Request {
	if flags&(syscall.O_CREAT|tmpfile) == 0 {
		mode = 0 // Which openat ignores, and openat2 refuses.
	}
	return q.Openat2(dir, name, uint64(flags), uint64(mode), 0)
}

// tmpfile is the bit of O_TMPFILE that says so; the others are O_DIRECTORY.
const tmpfile = 0o20000000

// Openat2 is openat2(2), with O_CLOEXEC added: resolve restricts how the path may be resolved, for instance to what lies
// beneath the directory (RESOLVE_BENEATH, 0x8). The result is a descriptor, as of [Request.Openat].
func (q *Request) Openat2(dir int, name string, flags, mode, resolve uint64) *Request {
	e := q.prepare(OpOpenat2, dir)
	s := q.aside()
	s.old = q.path(name)
	s.how = openHow{flags: flags | syscall.O_CLOEXEC, mode: mode, resolve: resolve}
	e.addr = address(s.old)
	e.off = uint64(uintptr(unsafe.Pointer(&s.how)))
	e.len = uint32(unsafe.Sizeof(s.how))
	return q
}

// Statx is struct statx, which statx(2) describes: all that is known of a file. Which fields are valid is in Mask.
type Statx struct {
	Mask, BlockSize                     uint32
	Attributes                          uint64
	Links, UID, GID                     uint32
	Mode                                uint16
	_                                   uint16
	Inode, Size, Blocks, AttributesMask uint64
	Accessed, Born, Changed, Modified   StatxTime
	RdevMajor, RdevMinor                uint32
	DevMajor, DevMinor                  uint32
	MountID                             uint64
	// DirectMemAlign and DirectOffsetAlign are the alignment, in bytes, that direct I/O needs of addresses and of offsets;
	// 0 where the file system or a kernel before 6.1 does not say. Ask for them with the mask STATX_DIOALIGN (0x2000).
	DirectMemAlign, DirectOffsetAlign uint32
	_                                 [12]uint64
}

// StatxTime is a time: seconds since the beginning of 1970, and nanoseconds.
type StatxTime struct {
	Sec  int64
	Nsec uint32
	_    int32
}

// Statx is statx(2); the mask says what to find out, 0x7ff is all that stat(2) knows. After the completion [Request.Stat] has
// the answer.
func (q *Request) Statx(dir int, name string, flags int, mask uint32) *Request {
	e := q.prepare(OpStatx, dir)
	s := q.aside()
	s.old = q.path(name)
	e.addr = address(s.old)
	e.off = uint64(uintptr(unsafe.Pointer(&s.statx)))
	e.len, e.opFlags = mask, uint32(flags)
	return q
}

// Stat is what a Statx found, once it has completed; before, and for other operations, all of it is 0.
func (q *Request) Stat() Statx {
	if q.InFlight() || q.side == nil {
		return Statx{}
	}
	return q.side.statx
}

// Renameat is renameat2(2). Kernel 5.11.
func (q *Request) Renameat(oldDir int, old string, newDir int, new string, flags uint32) *Request {
	return q.twoPaths(OpRenameat, oldDir, old, newDir, new, flags)
}

// Linkat is linkat(2): new becomes another name of old. Kernel 5.15.
func (q *Request) Linkat(oldDir int, old string, newDir int, new string, flags uint32) *Request {
	return q.twoPaths(OpLinkat, oldDir, old, newDir, new, flags)
}

func (q *Request) twoPaths(op Opcode, oldDir int, old string, newDir int, new string, flags uint32) *Request {
	e := q.prepare(op, oldDir)
	s := q.aside()
	s.old, s.new = q.path(old), q.path(new)
	e.addr, e.off = address(s.old), address(s.new)
	e.len, e.opFlags = uint32(newDir), flags
	return q
}

// Symlinkat is symlinkat(2): name becomes a symbolic link to target. Kernel 5.15.
func (q *Request) Symlinkat(target string, dir int, name string) *Request {
	return q.twoPaths(OpSymlinkat, dir, target, 0, name, 0)
}

// Unlinkat is unlinkat(2); with the flag AT_REMOVEDIR (0x200) it is rmdir(2). Kernel 5.11.
func (q *Request) Unlinkat(dir int, name string, flags uint32) *Request {
	e := q.prepare(OpUnlinkat, dir)
	s := q.aside()
	s.old = q.path(name)
	e.addr, e.opFlags = address(s.old), flags
	return q
}

// Mkdirat is mkdirat(2); the umask is taken off the mode. Kernel 5.15.
func (q *Request) Mkdirat(dir int, name string, mode uint32) *Request {
	e := q.prepare(OpMkdirat, dir)
	s := q.aside()
	s.old = q.path(name)
	e.addr, e.len = address(s.old), mode
	return q
}
