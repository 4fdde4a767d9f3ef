//go:build linux

package ring

import (
	"runtime"
	"syscall"
	"unsafe"
)

// Request is one operation with all that it owns. Prepare it with the method named after what it does, then [Ring.Push]
// it. Its zero value does nothing (NOP).
//
// Methods that prepare give the request back, for its modifiers: q.Read(fd, p, 0).Link(). To prepare or modify a request
// in flight panics. A request that has completed can be prepared anew and pushed again.
type Request struct {
	// Tag is the program's own.
	Tag any

	sqe      sqe
	buf      []byte // What addr points to, where that is one buffer.
	side     *side  // Whatever else the kernel sees.
	pinner   runtime.Pinner
	userData uint64 // Its name in the kernel, while in flight.
	inFlight bool
}

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
func (q *Request) prepare(op Op, fd int) *sqe {
	if q.inFlight {
		panic("ring: a request in flight cannot be changed")
	}
	q.sqe = sqe{opcode: op, fd: int32(fd)}
	q.buf = nil
	if s := q.side; s != nil {
		clear(s.vectors)
		clear(s.buffers)
		*s = side{vectors: s.vectors[:0], buffers: s.buffers[:0]}
	}
	return &q.sqe
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
	q.inFlight = false
}

// Drop lets go of what the request refers to, so that a pool of requests keeps no buffers alive. The tag stays.
func (q *Request) Drop() {
	if q.inFlight {
		panic("ring: a request in flight cannot be changed")
	}
	if q.side != nil {
		q.prepare(OpNop, -1)
	}
	q.buf = nil
}

// InFlight tells whether the request was pushed and has not had its last completion.
func (q *Request) InFlight() bool { return q.inFlight }

// name is what the kernel knows the request by; one that nobody has, if it is not in flight.
func (q *Request) name() uint64 {
	if !q.inFlight {
		return ^uint64(0)
	}
	return q.userData
}

// Op is what the request was prepared for.
func (q *Request) Op() Op { return q.sqe.opcode }

func (q *Request) modify(flag uint8) *Request {
	if q.inFlight {
		panic("ring: a request in flight cannot be changed")
	}
	q.sqe.flags |= flag
	return q
}

// FixedFile has the descriptor be an index into the registered files.
func (q *Request) FixedFile() *Request { return q.modify(sqeFixedFile) }

// Link has the next request pushed begin after this one is done, and be cancelled if this one fails or is short. Both
// have to be in one submission.
func (q *Request) Link() *Request { return q.modify(sqeLink) }

// Hardlink is a link that holds even if this request fails.
func (q *Request) Hardlink() *Request { return q.modify(sqeHardlink) }

// Drain has the request begin when all before it are done, and those after it wait.
func (q *Request) Drain() *Request { return q.modify(sqeDrain) }

// Async has a kernel thread do it, without a try at once.
func (q *Request) Async() *Request { return q.modify(sqeAsync) }

// Nop does nothing and completes.
func (q *Request) Nop() *Request {
	q.prepare(OpNop, -1)
	return q
}
