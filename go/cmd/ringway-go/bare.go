//go:build linux

package main

// The least of a ring, for the contestants that need one. It is not built on package ring, since that one's costs and fixes
// would be in the figures.
//
// unsafe is for the memory that the kernel shares, and for the address of a buffer, which is outside Go's heap.

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

type bareRing struct {
	fd                             int
	rings, entries                 []byte // The mappings, kept.
	sqHead, sqTail, cqHead, cqTail *uint32
	sqes                           []bareSQE
	cqes                           []bareCQE
	sqMask, cqMask, tail, consumed uint32
	entered                        uint64 // System calls that submitted.
}

// bareSQE is struct io_uring_sqe.
type bareSQE struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off, addr     uint64
	len, opFlags  uint32
	userData      uint64
	_             [24]byte
}

// bareCQE is struct io_uring_cqe.
type bareCQE struct {
	userData uint64
	result   int32
	flags    uint32
}

const (
	sysSetup = 425 // io_uring_setup
	sysEnter = 426 // io_uring_enter

	setupCQSize   = 1 << 3     // IORING_SETUP_CQSIZE
	setupAttachWQ = 1 << 5     // IORING_SETUP_ATTACH_WQ
	offsetSQEs    = 0x10000000 // IORING_OFF_SQES
	opRead        = 22         // IORING_OP_READ
	getEvents     = 1          // IORING_ENTER_GETEVENTS
)

// newBareRing has the kernel workers of another ring, or of its own if workersOf is negative.
func newBareRing(entries, completions uint32, workersOf int) (*bareRing, error) {
	var p [30]uint32 // struct io_uring_params
	p[1], p[2] = completions, setupCQSize
	if workersOf >= 0 {
		p[2] |= setupAttachWQ
		p[6] = uint32(workersOf)
	}
	fd, _, errno := syscall.Syscall(sysSetup, uintptr(entries), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, errno
	}
	sq, cq := p[10:20], p[20:30]
	r := &bareRing{fd: int(fd), sqMask: p[0] - 1, cqMask: p[1] - 1}
	var err error
	size := max(sq[6]+p[0]*4, cq[5]+p[1]*16) // Both rings are one mapping since kernel 5.4.
	const prot = syscall.PROT_READ | syscall.PROT_WRITE
	if r.rings, err = syscall.Mmap(r.fd, 0, int(size), prot, syscall.MAP_SHARED); err != nil {
		return nil, err
	}
	if r.entries, err = syscall.Mmap(r.fd, offsetSQEs, int(p[0])*64, prot, syscall.MAP_SHARED); err != nil {
		return nil, err
	}
	word := func(at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.rings[at])) }
	r.sqHead, r.sqTail, r.cqHead, r.cqTail = word(sq[0]), word(sq[1]), word(cq[0]), word(cq[1])
	r.sqes = unsafe.Slice((*bareSQE)(unsafe.Pointer(&r.entries[0])), p[0])
	r.cqes = unsafe.Slice((*bareCQE)(unsafe.Pointer(&r.rings[cq[5]])), p[1])
	for i, array := uint32(0), unsafe.Slice(word(sq[6]), p[0]); i < p[0]; i++ {
		array[i] = i
	}
	return r, nil
}

// push puts a read into the submission queue, which has room. Whoever calls has the lock, and keeps p.
func (r *bareRing) push(fd int, p []byte, off int64, userData uint64) {
	r.sqes[r.tail&r.sqMask] = bareSQE{opcode: opRead, fd: int32(fd), off: uint64(off), len: uint32(len(p)),
		addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))), userData: userData}
	r.tail++
	atomic.StoreUint32(r.sqTail, r.tail)
}

// read submits one read by itself.
func (r *bareRing) read(fd int, p []byte, off int64, userData uint64) error {
	r.push(fd, p, off, userData)
	for {
		_, _, errno := syscall.RawSyscall6(sysEnter, uintptr(r.fd), 1, 0, 0, 0, 0)
		r.entered++
		if errno == 0 {
			return nil
		}
		if errno != syscall.EINTR && errno != syscall.EAGAIN && errno != syscall.EBUSY {
			return errno
		}
	}
}

// next is the oldest completion that was not taken yet.
func (r *bareRing) next() (bareCQE, bool) {
	if r.consumed == atomic.LoadUint32(r.cqTail) {
		return bareCQE{}, false
	}
	c := r.cqes[r.consumed&r.cqMask]
	r.consumed++
	atomic.StoreUint32(r.cqHead, r.consumed)
	return c, true
}

// wait submits what was pushed, and blocks the thread in the kernel until something completes. An error is another reason to look.
func (r *bareRing) wait(pushed int) {
	_, _, _ = syscall.Syscall6(sysEnter, uintptr(r.fd), uintptr(pushed), 1, getEvents, 0, 0)
}

// bare is one goroutine that keeps many reads in flight on a ring of its own: what the kernel itself costs.
type bare struct {
	osFile
	fd           int
	ring         *bareRing
	waits, reads atomic.Int64
}

// bareRoom is the most reads in flight: as many as ringway has.
const bareRoom = 192

func openBare(s setup) (subject, error) {
	f, err := os.OpenFile(s.file, s.flag, 0)
	if err != nil {
		return nil, err
	}
	ring, err := newBareRing(256, 512, -1)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("io_uring_setup: %w", err), f.Close())
	}
	return &bare{osFile: osFile{File: f}, fd: int(f.Fd()), ring: ring}, nil
}

func (b *bare) trips() (trips, bool) { return trips{b.waits.Load(), b.reads.Load()}, true }

// prepare has so many reads in flight: each step takes a completion and pushes the next read. All that are pushed are submitted
// when there is no completion left.
func (b *bare) prepare(depth int, offset func() int64, check func(p []byte, off int64) error) (func(ramp bool) error, error) {
	depth = min(depth, bareRoom)
	memory, err := b.buffer(depth * block)
	if err != nil {
		return nil, err
	}
	offsets := make([]int64, depth)
	push := func(i int) {
		offsets[i] = offset()
		b.ring.push(b.fd, memory[i*block:(i+1)*block], offsets[i], uint64(i))
	}
	for i := range depth {
		push(i)
	}
	pushed := depth
	return func(ramp bool) error {
		c, ok := b.ring.next()
		for ; !ok; c, ok = b.ring.next() {
			b.ring.wait(pushed)
			b.waits.Add(1)
			pushed = int(b.ring.tail - atomic.LoadUint32(b.ring.sqHead))
		}
		b.reads.Add(1)
		i := int(c.userData)
		p := memory[i*block : (i+1)*block]
		if c.result < 0 {
			return syscall.Errno(-c.result)
		}
		err := whole(int(c.result), nil, p)
		if err == nil && ramp {
			err = check(p, offsets[i])
		}
		push(i)
		pushed++
		return err
	}, nil
}
