//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The Linux AIO backend: direct reads and writes, and fsync if the file system supports it. It
// follows io_setup(2), io_submit(2), io_getevents(2), io_destroy(2), and the kernel's
// include/uapi/linux/aio_abi.h.

package ringway

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

const (
	iocbRead   = 0
	iocbWrite  = 1
	iocbFsync  = 2
	iocbFdsync = 3

	iocbResfd = 1
)

// iocb is struct iocb, and the pins of the memory that the kernel uses.
type iocb struct {
	raw struct {
		data         uint64
		key, rwFlags uint32 // In the order of little-endian machines. The key is 0.
		opcode       uint16
		prio         int16
		fd           uint32
		buf, nbytes  uint64
		offset       int64
		_            uint64
		flags, resfd uint32
	}
	pinner  runtime.Pinner
	request *request
}

// ioEvent is struct io_event.
type ioEvent struct {
	data, obj   uint64
	res, unused int64
}

// kaioRing is struct aio_ring, the header of the completions, which are mapped into the program.
// The events follow it.
type kaioRing struct {
	_            uint32
	nr           uint32        // The number of events that fit.
	head         atomic.Uint32 // The next event to reap: the program, or io_getevents, advances it.
	tail         atomic.Uint32 // Where the kernel writes next.
	magic        uint32
	_            uint32
	incompatible uint32
	headerLength uint32
}

// kaio is a queue over an AIO context.
type kaio struct {
	context  uintptr
	ring     *kaioRing // Of the context, outside Go's heap, if the program can read it.
	eventfd  int
	inFlight map[uint64]*iocb // By the number that the kernel returns.
	number   uint64           // The last one given.
	limit    int              // The size of the context.
	pushed   []*iocb
	spare    []*iocb
	refused  []*request
	errno    syscall.Errno
	short    shortage
	events   [largestGroup]ioEvent
}

func newKAIO(requests int) (*kaio, error) {
	k := &kaio{inFlight: make(map[uint64]*iocb, requests), limit: requests}
	for {
		_, _, errno := syscall.Syscall(syscall.SYS_IO_SETUP, uintptr(k.limit),
			uintptr(unsafe.Pointer(&k.context)), 0)
		if errno == 0 {
			break
		}
		// All contexts of the machine share fs.aio-max-nr: a smaller one may still fit.
		if errno != syscall.EAGAIN || k.limit <= 32 {
			return nil, unavailable(refusal.KAIO, errno)
		}
		k.limit /= 2
	}
	fd, _, errno := syscall.Syscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK,
		0)
	if errno != 0 {
		_, _, _ = syscall.Syscall(syscall.SYS_IO_DESTROY, k.context, 0, 0)
		return nil, unavailable(refusal.KAIO, errno)
	}
	k.eventfd = int(fd)
	if isKAIORing(k.context) {
		k.ring = *(**kaioRing)(unsafe.Pointer(&k.context))
	}
	return k, nil
}

// isKAIORing reports whether a context is the address of a ring of the known format. In a sandbox
// it may be no address at all. So the kernel copies the header through a pipe: for a bad address
// that fails, where a load would crash.
func isKAIORing(context uintptr) bool {
	var header kaioRing
	var ends [2]int
	if syscall.Pipe2(ends[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK) != nil {
		return false
	}
	defer syscall.Close(ends[0])
	defer syscall.Close(ends[1])
	n, _, _ := syscall.Syscall(syscall.SYS_WRITE, uintptr(ends[1]), context,
		unsafe.Sizeof(header))
	if n != unsafe.Sizeof(header) {
		return false
	}
	n, _, _ = syscall.Syscall(syscall.SYS_READ, uintptr(ends[0]), uintptr(unsafe.Pointer(&header)),
		unsafe.Sizeof(header))
	const magic = 0xa10a10a1
	return n == unsafe.Sizeof(header) && header.magic == magic && header.incompatible == 0 &&
		header.nr > 0 && uintptr(header.headerLength) == unsafe.Sizeof(header)
}

func (k *kaio) capacity() int { return min(k.limit-len(k.inFlight), largestGroup) }

func (k *kaio) push(r *request) {
	if r.linked() != nil || r.chain != unchained || r.opcode == opWritev || r.mayWait {
		k.refuse(r)
		if r.linked() != nil {
			k.refuse(r.linked())
		}
		return
	}
	var c *iocb
	if n := len(k.spare); n > 0 {
		c, k.spare = k.spare[n-1], k.spare[:n-1]
	} else {
		c = new(iocb)
	}
	c.request = r
	c.raw.opcode = [...]uint16{
		opRead: iocbRead, opWrite: iocbWrite, opFsync: iocbFsync, opFdatasync: iocbFdsync,
	}[r.opcode]
	k.number++
	c.raw.data = k.number
	c.raw.rwFlags = uint32(r.flags)
	c.raw.fd = uint32(r.fd)
	c.raw.buf, c.raw.nbytes, c.raw.offset = 0, 0, 0
	if len(r.p) > 0 {
		c.pinner.Pin(unsafe.SliceData(r.p))
		c.raw.buf = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r.p))))
		c.raw.nbytes = uint64(len(r.p))
		c.raw.offset = r.off
	}
	c.pinner.Pin(c)
	c.raw.flags, c.raw.resfd = iocbResfd, uint32(k.eventfd)
	k.inFlight[k.number] = c
	k.pushed = append(k.pushed, c)
}

// refuse completes a request that the context does not accept.
func (k *kaio) refuse(r *request) {
	r.result = unsupported
	k.refused = append(k.refused, r)
}

// cancel does nothing: the kernel cannot cancel a transfer of a disk.
func (k *kaio) cancel(*request) {}

func (k *kaio) submit() bool {
	for len(k.pushed) > 0 {
		n, _, errno := syscall.Syscall(syscall.SYS_IO_SUBMIT, k.context, uintptr(len(k.pushed)),
			uintptr(unsafe.Pointer(unsafe.SliceData(k.pushed))))
		taken := int(n)
		switch errno {
		case 0:
			k.short.end()
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			if len(k.inFlight) > len(k.pushed) && !k.short.isLong() {
				return false
			}
			fallthrough
		default:
			// The kernel refuses the first request, which says nothing about the others. A plain
			// system call has the errno that every backend has.
			k.errno = errno
			k.refuse(k.finish(k.pushed[0]))
			taken = 1
		}
		k.pushed = dropFirst(k.pushed, taken)
	}
	return true
}

// dropFirst removes the first n elements and keeps the memory for the next group.
func dropFirst[T any](all []*T, n int) []*T {
	rest := copy(all, all[n:])
	clear(all[rest:])
	return all[:rest]
}

// finish takes a request back from the context.
func (k *kaio) finish(c *iocb) *request {
	delete(k.inFlight, c.raw.data)
	c.pinner.Unpin()
	r := c.request
	c.request = nil
	k.spare = append(k.spare, c)
	return r
}

func (k *kaio) reap(done []*request) []*request {
	done = append(done, k.refused...)
	clear(k.refused)
	k.refused = k.refused[:0]
	for len(k.inFlight) > 0 {
		events := k.completions()
		for _, e := range events {
			c := k.inFlight[e.data]
			if c == nil {
				continue
			}
			r := k.finish(c)
			r.result = int32(e.res)
			if errno := errnoOf(r.result); errno == syscall.EINVAL || errno == syscall.EOPNOTSUPP {
				r.result = unsupported // The plain call may support it.
			}
			done = append(done, r)
		}
		if len(events) < len(k.events) {
			break
		}
	}
	return done
}

// completions takes events from the context, at most as many as k.events holds.
//
// It makes no system call if the ring is known. So what is in flight completes under a filter, too,
// that the program has installed since and that refuses io_getevents.
func (k *kaio) completions() []ioEvent {
	if k.ring != nil {
		header := unsafe.Sizeof(*k.ring)
		events := unsafe.Slice((*ioEvent)(unsafe.Add(unsafe.Pointer(k.ring), header)), k.ring.nr)
		head, tail := k.ring.head.Load()%k.ring.nr, k.ring.tail.Load()%k.ring.nr
		n := 0
		for ; head != tail && n < len(k.events); n++ {
			k.events[n] = events[head]
			head = (head + 1) % k.ring.nr
		}
		k.ring.head.Store(head) // The events were copied before the kernel uses their places.
		return k.events[:n]
	}
	for {
		var now syscall.Timespec
		n, _, errno := syscall.Syscall6(syscall.SYS_IO_GETEVENTS, k.context, 0,
			uintptr(len(k.events)),
			uintptr(unsafe.Pointer(&k.events[0])), uintptr(unsafe.Pointer(&now)), 0)
		switch errno {
		case 0:
			return k.events[:n]
		case syscall.EINTR:
		default:
			return nil
		}
	}
}

func (k *kaio) refusedWith() syscall.Errno { return k.errno }

// readable resets the eventfd. Its value is not the number of completions.
func (k *kaio) readable(fd uintptr) {
	var ticks [8]byte
	_, _ = syscall.Read(int(fd), ticks[:])
}

// close destroys the context, which waits for what is in flight.
func (k *kaio) close() error {
	_, _, errno := syscall.Syscall(syscall.SYS_IO_DESTROY, k.context, 0, 0)
	for _, c := range k.inFlight {
		k.finish(c)
	}
	_ = syscall.Close(k.eventfd)
	if errno != 0 {
		return errno
	}
	return nil
}
