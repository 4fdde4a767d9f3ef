//go:build linux

// A request: one operation, its modifiers, and all memory that the kernel accesses for it.

package ring

import (
	"runtime"
	"syscall"
	"unsafe"
)

// Request is one operation with its buffers, paths and addresses. Prepare it with the method named
// after the operation, then pass it to [Ring.Push]. The zero value is a NOP.
//
// The preparing methods return the request, so that modifiers can follow: q.Read(fd, p, 0).Link().
// They reset everything from an earlier use except UserData.
//
// A request is in flight from Push until its last completion. Preparing or modifying it then
// panics. After that it can be prepared and pushed again; pushed again without being prepared, it
// does the same thing twice. (A request that refers to another one, such as a cancel, drops that
// reference when it completes; pushed again, it completes with ENOENT.)
type Request struct {
	// UserData is for the program. The ring does not use it.
	UserData any

	_        noCopy
	sqe      sqe
	buf      []byte   // The buffer that addr points to, if it is a single one.
	extra    *extra   // Other memory that the kernel accesses.
	other    *Request // The target of a cancel or update.
	pinner   runtime.Pinner
	ring     *Ring  // The ring that it is in flight on.
	userData uint64 // Its user_data in the kernel, while in flight.
	invalid  bool   // It cannot be expressed to the kernel.
}

// noCopy makes vet report copies: the memory of a copied request would be unpinned twice.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// extra is the memory that some operations need in addition to a buffer. The kernel has pointers
// into it.
type extra struct {
	vectors  []syscall.Iovec
	buffers  [][]byte
	old, new []byte // Paths, zero-terminated.
	span     timespec
	how      openHow
	statx    Statx
	addr     syscall.RawSockaddrAny
	addrLen  uint32
	msg      syscall.Msghdr
}

// prepare resets the request for an operation.
func (q *Request) prepare(op Opcode, fd int) *sqe {
	q.mustBeIdle()
	q.sqe = sqe{opcode: op, fd: int32(fd)}
	q.buf, q.other, q.invalid = nil, nil, false
	if s := q.extra; s != nil {
		clear(s.vectors)
		clear(s.buffers)
		*s = extra{vectors: s.vectors[:0], buffers: s.buffers[:0]}
	}
	return &q.sqe
}

func (q *Request) mustBeIdle() {
	if q.InFlight() {
		panic("ring: a request in flight cannot be changed")
	}
}

func (q *Request) extras() *extra {
	if q.extra == nil {
		q.extra = new(extra)
	}
	return q.extra
}

// transfer sets a single buffer.
func (q *Request) transfer(p []byte) {
	q.buf = p
	q.sqe.addr = address(p)
	q.sqe.len = length(len(p))
}

// address returns the address of the first byte. The caller keeps the bytes reachable.
func address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }

// pin pins all memory whose address the kernel has.
func (q *Request) pin() {
	if len(q.buf) > 0 {
		q.pinner.Pin(unsafe.SliceData(q.buf))
	}
	if s := q.extra; s != nil {
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

// release unpins it when the request is no longer in flight.
func (q *Request) release() {
	q.pinner.Unpin()
	q.ring = nil
	if q.other != nil {
		// Do not keep the target reachable. Pushed again, the request finds no target.
		q.other, q.sqe.addr = nil, ^uint64(0)
	}
}

// Reset makes an idle request a NOP, so that a pool of requests keeps no buffers reachable.
// UserData stays. Reset panics if the request is in flight.
func (q *Request) Reset() {
	// Nothing of the operation may stay: pushed again, it would have the kernel access memory that
	// is no longer pinned.
	q.prepare(OpNop, -1)
}

// InFlight reports whether the request was pushed and its last completion was not reaped.
func (q *Request) InFlight() bool { return q.ring != nil }

// name returns the user_data of the request on this ring, or one that no request has if it is not
// in flight there.
func (q *Request) name(r *Ring) uint64 {
	if q.ring != r {
		return ^uint64(0)
	}
	return q.userData
}

// Opcode returns the operation that the request was prepared for.
func (q *Request) Opcode() Opcode { return q.sqe.opcode }

func (q *Request) modify(flag uint8) *Request {
	q.mustBeIdle()
	q.sqe.flags |= flag
	return q
}

// FixedFile makes the descriptor of the request an index into the table of registered files
// ([Ring.RegisterFiles]). Of a splice, that is the descriptor written to.
func (q *Request) FixedFile() *Request { return q.modify(sqeFixedFile) }

// Link starts a chain (IOSQE_IO_LINK): the next pushed request starts when this one has succeeded.
// If this one fails or transfers less than requested, the rest of the chain completes with
// ECANCELED. A chain ends with the first request without Link. It must be submitted at once: check
// that [Ring.SpaceLeft] suffices. A kernel that is short of memory may still take its beginning
// alone, see [Ring.Submit]. The rest is then a chain of its own, and waits for nothing. So it is if
// several rings share the thread of [Options.SQPoll], which takes 8 requests of one at a time.
//
// The kernel decides what counts as a failure. Up to Linux 6.18, a chain continues when fsync,
// sync_file_range, fallocate, ftruncate, madvise, statx or an operation on names fails with an
// error other than EBADF; and an expired timeout breaks it, unless it is a Hardlink.
func (q *Request) Link() *Request { return q.modify(sqeLink) }

// Hardlink is like Link, but the next request starts whether this one succeeds or fails
// (IOSQE_IO_HARDLINK). A chain can mix both.
func (q *Request) Hardlink() *Request { return q.modify(sqeHardlink) }

// Drain makes the request a barrier (IOSQE_IO_DRAIN): it starts when all requests submitted before
// it have completed, and requests submitted after it start when it has completed. Some kernels
// (seen on 5.10, 6.1 and 6.12, not on 6.18 and 7.2) do not wait for its completion: there, requests
// submitted after it start as soon as it has started. To hold them back, make the first of them a
// barrier, too. Before Linux 6.0 [Ring.Close] cannot cancel requests in flight while a barrier
// waits. On some kernels (seen on 6.12, not on 6.18) a barrier may never start if multishot
// requests fill the completion queue: use no multishot requests on a ring with barriers.
func (q *Request) Drain() *Request { return q.modify(sqeDrain) }

// Async makes the kernel pass the request to an io-wq worker without trying it during the
// submission (IOSQE_ASYNC). It suits requests that are known to block.
func (q *Request) Async() *Request { return q.modify(sqeAsync) }

// AnyIndex lets the kernel choose a free entry, see [Request.Direct].
const AnyIndex = -1

// Direct installs the file of an Openat, Openat2, Accept, AcceptMultishot or Socket into the table
// of registered files at this index, instead of returning a descriptor. With [AnyIndex] the kernel
// chooses a free entry, and the result is its index (Linux 5.19). Otherwise the result is 0, and
// the file that was at the index is closed. [Request.CloseDirect] removes it.
//
// Such a file has no close-on-exec flag, since child processes never inherit it. Linux 5.15. Direct
// panics for other operations.
func (q *Request) Direct(index int) *Request {
	q.modify(0)
	switch q.sqe.opcode {
	case OpOpenat2:
		q.extra.how.flags &^= syscall.O_CLOEXEC
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
		q.sqe.fileIndex = q.fileIndex(index)
	}
	return q
}

// fileIndex encodes an index as some fields expect it: counted from 1.
func (q *Request) fileIndex(index int) uint32 {
	if index < 0 || int64(index) >= int64(indexAlloc)-1 {
		q.invalid = true
	}
	return uint32(index) + 1
}

// returnsDescriptor reports whether the result is a descriptor that the program owns.
func (q *Request) returnsDescriptor() bool {
	switch q.sqe.opcode {
	case OpOpenat2, OpAccept, OpSocket:
		return q.sqe.fileIndex == 0
	}
	return q.sqe.opcode == OpFixedFDInstall
}

// Priority sets the I/O priority of a read or write, encoded as in ioprio_set(2): the class times
// 8192, plus the level. The default is the priority of the submitting thread.
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
