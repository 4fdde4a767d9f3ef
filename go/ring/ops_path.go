//go:build linux

// Operations on paths. A directory is a descriptor, or [AtFDCWD].

package ring

import (
	"strings"
	"syscall"
	"unsafe"
)

// AtFDCWD as a directory means the current directory of the submitting thread.
const AtFDCWD = -100

// path returns a zero-terminated path. Push rejects a path with a zero byte, since the kernel would
// use the part before it.
func (q *Request) path(name string) []byte {
	if strings.IndexByte(name, 0) >= 0 {
		q.invalid = true
	}
	return append(append(make([]byte, 0, len(name)+1), name...), 0)
}

// Openat is openat(2), with O_CLOEXEC added. The mode counts only if a file is created. The result
// is a descriptor, which the program must close even if it has canceled the request: a cancel may
// come too late.
//
// The operation is openat2(2), which returns EINVAL for unknown flags.
func (q *Request) Openat(dir int, name string, flags int, mode uint32) *Request {
	if flags&(syscall.O_CREAT|tmpfile) == 0 {
		mode = 0 // openat ignores it, openat2 rejects it.
	}
	return q.Openat2(dir, name, uint64(flags), uint64(mode), 0)
}

// tmpfile is O_TMPFILE without O_DIRECTORY.
const tmpfile = 0o20000000

// Openat2 is openat2(2), with O_CLOEXEC added. resolve restricts how the path may be resolved, for
// instance to paths beneath the directory (RESOLVE_BENEATH, 0x8). The result is a descriptor, as
// with [Request.Openat].
func (q *Request) Openat2(dir int, name string, flags, mode, resolve uint64) *Request {
	e := q.prepare(OpOpenat2, dir)
	s := q.extras()
	s.old = q.path(name)
	s.how = openHow{flags: flags | syscall.O_CLOEXEC, mode: mode, resolve: resolve}
	e.addr = address(s.old)
	e.off = uint64(uintptr(unsafe.Pointer(&s.how)))
	e.len = uint32(unsafe.Sizeof(s.how))
	return q
}

// Statx is struct statx, see statx(2). Mask says which fields are valid.
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
	// DirectMemAlign and DirectOffsetAlign are the alignment, in bytes, that direct I/O requires of
	// addresses and offsets; 0 if the file system does not report it, or before Linux 6.1. Request
	// them with the mask STATX_DIOALIGN (0x2000).
	DirectMemAlign, DirectOffsetAlign uint32
	_                                 [12]uint64
}

// StatxTime is a time since 1970-01-01 UTC, in seconds and nanoseconds.
type StatxTime struct {
	Sec  int64
	Nsec uint32
	_    int32
}

// Statx is statx(2). The mask selects the fields; 0x7ff selects those of stat(2). [Request.Stat]
// returns the result after the completion.
func (q *Request) Statx(dir int, name string, flags int, mask uint32) *Request {
	e := q.prepare(OpStatx, dir)
	s := q.extras()
	s.old = q.path(name)
	e.addr = address(s.old)
	e.off = uint64(uintptr(unsafe.Pointer(&s.statx)))
	e.len, e.opFlags = mask, uint32(flags)
	return q
}

// Stat returns the result of a completed Statx, and zero otherwise.
func (q *Request) Stat() Statx {
	if q.InFlight() || q.extra == nil {
		return Statx{}
	}
	return q.extra.statx
}

// Renameat is renameat2(2). Linux 5.11.
func (q *Request) Renameat(oldDir int, old string, newDir int, new string, flags uint32) *Request {
	return q.twoPaths(OpRenameat, oldDir, old, newDir, new, flags)
}

// Linkat is linkat(2): new becomes another name of old. Linux 5.15.
func (q *Request) Linkat(oldDir int, old string, newDir int, new string, flags uint32) *Request {
	return q.twoPaths(OpLinkat, oldDir, old, newDir, new, flags)
}

func (q *Request) twoPaths(op Opcode, oldDir int, old string, newDir int, new string,
	flags uint32) *Request {
	e := q.prepare(op, oldDir)
	s := q.extras()
	s.old, s.new = q.path(old), q.path(new)
	e.addr, e.off = address(s.old), address(s.new)
	e.len, e.opFlags = uint32(newDir), flags
	return q
}

// Symlinkat is symlinkat(2): name becomes a symbolic link to target. Linux 5.15.
func (q *Request) Symlinkat(target string, dir int, name string) *Request {
	return q.twoPaths(OpSymlinkat, dir, target, 0, name, 0)
}

// Unlinkat is unlinkat(2), or rmdir(2) with the flag AT_REMOVEDIR (0x200). Linux 5.11.
func (q *Request) Unlinkat(dir int, name string, flags uint32) *Request {
	e := q.prepare(OpUnlinkat, dir)
	s := q.extras()
	s.old = q.path(name)
	e.addr, e.opFlags = address(s.old), flags
	return q
}

// Mkdirat is mkdirat(2); the umask applies to the mode. Linux 5.15.
func (q *Request) Mkdirat(dir int, name string, mode uint32) *Request {
	e := q.prepare(OpMkdirat, dir)
	s := q.extras()
	s.old = q.path(name)
	e.addr, e.len = address(s.old), mode
	return q
}
