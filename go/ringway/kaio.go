//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The Linux AIO backend: direct reads and writes, and fsync if the file system supports it. It
// follows io_setup(2), io_submit(2), io_getevents(2), io_destroy(2), and the kernel's
// include/uapi/linux/aio_abi.h.

package ringway

import (
	"runtime"
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

// kaio is a queue over an AIO context.
type kaio struct {
	context  uintptr
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
	return k, nil
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
		var now syscall.Timespec
		n, _, errno := syscall.Syscall6(syscall.SYS_IO_GETEVENTS, k.context, 0,
			uintptr(len(k.events)),
			uintptr(unsafe.Pointer(&k.events[0])), uintptr(unsafe.Pointer(&now)), 0)
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 {
			break
		}
		for _, e := range k.events[:n] {
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
		if int(n) < len(k.events) {
			break
		}
	}
	return done
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
