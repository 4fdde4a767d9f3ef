//go:build linux

// Operations on paths. A directory is a descriptor, or [AtCwd].

package ring

import (
	"strings"
	"syscall"
	"unsafe"
)

// AtCwd stands for the current directory.
const AtCwd = -100

// path is what the kernel reads: with a zero behind. One with a zero inside it would be another path, and is none.
func path(name string) []byte {
	if strings.IndexByte(name, 0) >= 0 {
		name = ""
	}
	return append(append(make([]byte, 0, len(name)+1), name...), 0)
}

// Openat is openat2(2) with the flags and mode of openat(2); O_CLOEXEC is added. The result is a descriptor, which the
// program has to close even if it does not want it any more.
func (q *Request) Openat(dir int, name string, flags int, mode uint32) *Request {
	e := q.prepare(OpOpenat2, dir)
	s := q.aside()
	s.old = path(name)
	s.how = openHow{flags: uint64(flags) | syscall.O_CLOEXEC}
	if flags&(syscall.O_CREAT|0o20000000) != 0 { // Otherwise a mode is EINVAL. The second is O_TMPFILE.
		s.how.mode = uint64(mode)
	}
	e.addr = address(s.old)
	e.off = uint64(uintptr(unsafe.Pointer(&s.how)))
	e.len = uint32(unsafe.Sizeof(s.how))
	return q
}

// Statx is struct statx: what is known of a file.
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
	// DirectMemAlign and DirectOffsetAlign are what direct I/O asks of addresses and offsets; 0 where the kernel (before
	// 6.1) or the file system does not tell.
	DirectMemAlign, DirectOffsetAlign uint32
	_                                 [12]uint64
}

// StatxTime is a time since 1970.
type StatxTime struct {
	Sec  int64
	Nsec uint32
	_    int32
}

// Statx is statx(2). [Request.Stat] has the answer.
func (q *Request) Statx(dir int, name string, flags int, mask uint32) *Request {
	e := q.prepare(OpStatx, dir)
	s := q.aside()
	s.old = path(name)
	e.addr = address(s.old)
	e.off = uint64(uintptr(unsafe.Pointer(&s.statx)))
	e.len, e.opFlags = mask, uint32(flags)
	return q
}

// Stat is what a completed Statx found.
func (q *Request) Stat() Statx {
	if q.inFlight || q.side == nil {
		return Statx{}
	}
	return q.side.statx
}

// Renameat is renameat2(2). Kernel 5.11.
func (q *Request) Renameat(oldDir int, old string, newDir int, new string, flags uint32) *Request {
	return q.twoPaths(OpRenameat, oldDir, old, newDir, new, flags)
}

// Linkat is linkat(2). Kernel 5.15.
func (q *Request) Linkat(oldDir int, old string, newDir int, new string, flags uint32) *Request {
	return q.twoPaths(OpLinkat, oldDir, old, newDir, new, flags)
}

func (q *Request) twoPaths(op Op, oldDir int, old string, newDir int, new string, flags uint32) *Request {
	e := q.prepare(op, oldDir)
	s := q.aside()
	s.old, s.new = path(old), path(new)
	e.addr, e.off = address(s.old), address(s.new)
	e.len, e.opFlags = uint32(newDir), flags
	return q
}

// Symlinkat is symlinkat(2): name becomes a link to target. Kernel 5.15.
func (q *Request) Symlinkat(target string, dir int, name string) *Request {
	return q.twoPaths(OpSymlinkat, dir, target, 0, name, 0)
}

// Unlinkat is unlinkat(2). Kernel 5.11.
func (q *Request) Unlinkat(dir int, name string, flags uint32) *Request {
	e := q.prepare(OpUnlinkat, dir)
	s := q.aside()
	s.old = path(name)
	e.addr, e.opFlags = address(s.old), flags
	return q
}

// Mkdirat is mkdirat(2). Kernel 5.15.
func (q *Request) Mkdirat(dir int, name string, mode uint32) *Request {
	e := q.prepare(OpMkdirat, dir)
	s := q.aside()
	s.old = path(name)
	e.addr, e.len = address(s.old), mode
	return q
}
