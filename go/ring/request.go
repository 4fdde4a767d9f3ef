//go:build linux

// A request: one operation, and all memory that it lets the kernel see.

package ring

import (
	"runtime"
	"syscall"
	"unsafe"
)

// Request is one operation together with everything it needs: buffers, paths, addresses. Prepare it with the method that
// is named after the operation, then give it to [Ring.Push]. The zero value is a NOP.
//
// The methods that prepare a request return it, so that modifiers can follow: q.Read(fd, p, 0).Link(). Each of them starts
// from scratch: nothing of an earlier use remains, except UserData.
//
// A request is in flight from Push to its last completion. To prepare or modify it then panics. Afterwards it can be
// prepared and pushed again; a request that is pushed twice without being prepared anew does the same thing twice. (One that
// is about another request, such as a cancel, forgets that one with its completion, and then finds none.)
type Request struct {
	// UserData is for the program's own use. The ring does not look at it.
	UserData any

	_        noCopy
	sqe      sqe
	buf      []byte   // What addr points to, where that is one buffer.
	side     *side    // Whatever else the kernel sees.
	other    *Request // The one that this is about, of a cancel and its kin.
	pinner   runtime.Pinner
	ring     *Ring  // On which it is in flight.
	userData uint64 // Its name in the kernel, while in flight.
	invalid  bool   // The kernel cannot be told what was asked for.
}

// noCopy has vet complain of copies: one in flight would be pinned once and let go of twice.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// side is what intricate operations own beside a buffer. The kernel knows addresses in it.
type side struct {
	vectors  []syscall.Iovec
	buffers  [][]byte
	old, new []byte // Paths, with a zero behind.
	span     timespec
	how      openHow
	statx    Statx
	addr     syscall.RawSockaddrAny
	addrLen  uint32
	msg      syscall.Msghdr
}

// prepare begins anew.
func (q *Request) prepare(op Opcode, fd int) *sqe {
	q.mustBeIdle()
	q.sqe = sqe{opcode: op, fd: int32(fd)}
	q.buf, q.other, q.invalid = nil, nil, false
	if s := q.side; s != nil {
		clear(s.vectors)
		clear(s.buffers)
		*s = side{vectors: s.vectors[:0], buffers: s.buffers[:0]}
	}
	return &q.sqe
}

func (q *Request) mustBeIdle() {
	if q.InFlight() {
		panic("ring: a request in flight cannot be changed")
	}
}

func (q *Request) aside() *side {
	if q.side == nil {
		q.side = new(side)
	}
	return q.side
}

// transfer has the request own one buffer.
func (q *Request) transfer(p []byte) {
	q.buf = p
	q.sqe.addr = address(p)
	q.sqe.len = length(len(p))
}

// address of the first byte. What it points to is kept by whoever calls this.
func address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }

// pin holds everything where it is for as long as the kernel knows its address.
func (q *Request) pin() {
	if len(q.buf) > 0 {
		q.pinner.Pin(unsafe.SliceData(q.buf))
	}
	if s := q.side; s != nil {
		q.pinner.Pin(s)
		if len(s.vectors) > 0 {
			q.pinner.Pin(unsafe.SliceData(s.vectors))
			for _, b := range s.buffers {
				if len(b) > 0 {
					q.pinner.Pin(unsafe.SliceData(b))
				}
			}
		}
		if len(s.old) > 0 {
			q.pinner.Pin(unsafe.SliceData(s.old))
		}
		if len(s.new) > 0 {
			q.pinner.Pin(unsafe.SliceData(s.new))
		}
	}
}

// release is the end of the flight.
func (q *Request) release() {
	q.pinner.Unpin()
	q.ring = nil
	if q.other != nil {
		// A cancel that is kept for later keeps nobody alive; pushed again as it is, it finds nobody.
		q.other, q.sqe.addr = nil, ^uint64(0)
	}
}

// Reset forgets what the request refers to, so that a pool of idle requests keeps no buffers alive. The tag stays. It panics
// for a request in flight.
func (q *Request) Reset() {
	q.mustBeIdle()
	if q.side != nil || q.other != nil {
		q.prepare(OpNop, -1)
	}
	q.buf = nil
}

// InFlight reports whether the request was pushed and has not had its last completion.
func (q *Request) InFlight() bool { return q.ring != nil }

// name is what the kernel knows the request by on this ring; a name that nobody has, if it is not in flight there.
func (q *Request) name(r *Ring) uint64 {
	if q.ring != r {
		return ^uint64(0)
	}
	return q.userData
}

// Opcode is the operation that the request was prepared for.
func (q *Request) Opcode() Opcode { return q.sqe.opcode }

func (q *Request) modify(flag uint8) *Request {
	q.mustBeIdle()
	q.sqe.flags |= flag
	return q
}

// FixedFile makes the request's descriptor an index into the table of registered files ([Ring.RegisterFiles]). For a splice
// that is the descriptor written to.
func (q *Request) FixedFile() *Request { return q.modify(sqeFixedFile) }

// Link makes a chain: the next request pushed begins when this one has succeeded. If this one fails, or transfers less than
// it was to, the next one and those linked behind it are not begun and complete with ECANCELED. A chain ends with the first
// request that has no Link, and has to lie in one submission: the queue needs [Ring.SpaceLeft] for all of it.
//
// What counts as a failure is the kernel's choice. Up to kernel 6.18 a chain goes on when fsync, sync_file_range, fallocate,
// ftruncate, madvise, statx or one of the operations that change names fails with an error other than EBADF; and it breaks
// when a timeout passes, which Hardlink puts up with.
func (q *Request) Link() *Request { return q.modify(sqeLink) }

// Hardlink is Link, with the difference that the next request begins however this one ends. A chain can have links of both
// kinds.
func (q *Request) Hardlink() *Request { return q.modify(sqeHardlink) }

// Drain makes the request a barrier: it begins when everything submitted before it has completed, and what is submitted
// after it begins when it has completed.
func (q *Request) Drain() *Request { return q.modify(sqeDrain) }

// Async skips the kernel's attempt to carry the request out while it is submitted, and gives it to a kernel thread. For
// requests that are known to block.
func (q *Request) Async() *Request { return q.modify(sqeAsync) }

// AnyIndex asks for whichever place is free, see [Request.Direct].
const AnyIndex = -1

// Direct puts the file that an Openat, Openat2, Accept, AcceptMultishot or Socket yields into the table of registered files at
// this index, and makes no descriptor of it. With [AnyIndex] the kernel chooses a free place, which is the result (kernel
// 5.19); otherwise the result is 0, and what was at the index before is closed. Close it with [Request.CloseDirect].
//
// Such a file has no close-on-exec flag: it is not inherited in any case. Kernel 5.15. For other operations Direct panics.
func (q *Request) Direct(index int) *Request {
	q.modify(0)
	switch q.sqe.opcode {
	case OpOpenat2:
		q.side.how.flags &^= syscall.O_CLOEXEC
	case OpAccept:
		q.sqe.opFlags &^= syscall.SOCK_CLOEXEC
	case OpSocket:
		q.sqe.off &^= syscall.SOCK_CLOEXEC
	default:
		panic("ring: this operation yields no file")
	}
	if index == AnyIndex {
		q.sqe.fileIndex = indexAlloc
	} else {
		q.sqe.fileIndex = q.place(index)
	}
	return q
}

// place is an index as the kernel counts in some fields: from 1.
func (q *Request) place(index int) uint32 {
	if index < 0 || int64(index) >= int64(indexAlloc)-1 {
		q.invalid = true
	}
	return uint32(index) + 1
}

// yieldsDescriptor tells whether the result is a descriptor of the program's.
func (q *Request) yieldsDescriptor() bool {
	switch q.sqe.opcode {
	case OpOpenat2, OpAccept, OpSocket:
		return q.sqe.fileIndex == 0
	}
	return q.sqe.opcode == OpFixedFDInstall
}

// Priority sets the I/O priority of a read or write, as ioprio_set(2) codes it: the class times 8192, plus the level.
// Without it the priority is that of the thread that submits.
func (q *Request) Priority(ioprio uint16) *Request {
	q.modify(0)
	q.sqe.ioprio = ioprio
	return q
}

// Nop does nothing and completes with 0.
func (q *Request) Nop() *Request {
	q.prepare(OpNop, -1)
	return q
}
