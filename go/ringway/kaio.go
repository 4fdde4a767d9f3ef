//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// Linux KAIO carries direct reads and writes, and fsync where the file system has it. It rests on io_setup(2), io_submit(2),
// io_getevents(2), io_destroy(2) and include/uapi/linux/aio_abi.h.

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

// iocb is struct iocb, and what is pinned while the kernel has it.
type iocb struct {
	raw struct {
		data         uint64
		key, rwFlags uint32 // On little-endian machines; we use neither.
		opcode       uint16
		prio         int16
		fd           uint32
		buf, nbytes  uint64
		offset       int64
		_            uint64
		flags, resfd uint32
	}
	pinner runtime.Pinner
	of     *request
}

// ioEvent is struct io_event.
type ioEvent struct {
	data, obj   uint64
	res, unused int64
}

// kaio carries requests by an AIO context.
type kaio struct {
	context  uintptr
	eventfd  int
	inFlight map[uint64]*iocb // By the number that the kernel has.
	number   uint64
	cap      int
	pushed   []*iocb
	spare    []*iocb
	refused  []*request
	errno    syscall.Errno
	events   [largest]ioEvent
}

func newKaio(requests int) (*kaio, error) {
	k := &kaio{inFlight: make(map[uint64]*iocb, requests), cap: requests}
	for {
		_, _, errno := syscall.Syscall(syscall.SYS_IO_SETUP, uintptr(k.cap), uintptr(unsafe.Pointer(&k.context)), 0)
		if errno == 0 {
			break
		}
		// The machine's contexts share fs.aio-max-nr: a smaller one may still fit.
		if errno != syscall.EAGAIN || k.cap <= 32 {
			return nil, refusal.New(refusal.KAIO, errno)
		}
		k.cap /= 2
	}
	fd, _, errno := syscall.Syscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if errno != 0 {
		_, _, _ = syscall.Syscall(syscall.SYS_IO_DESTROY, k.context, 0, 0)
		return nil, refusal.New(refusal.KAIO, errno)
	}
	k.eventfd = int(fd)
	return k, nil
}

func (k *kaio) room() int { return min(k.cap-len(k.inFlight), largest) }

func (k *kaio) push(r *request) {
	if r.linked() != nil || r.chained || r.kind == writev {
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
	c.of = r
	c.raw.opcode = [...]uint16{read: iocbRead, write: iocbWrite, fsync: iocbFsync, fdatasync: iocbFdsync}[r.kind]
	k.number++
	c.raw.data = k.number
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

func (k *kaio) refuse(r *request) {
	r.result = cannotCarry
	k.refused = append(k.refused, r)
}

// cancel: what the device has is not to be had back.
func (k *kaio) cancel(*request) {}

func (k *kaio) submit(light bool) bool {
	for len(k.pushed) > 0 {
		n, _, errno := syscall.Syscall(syscall.SYS_IO_SUBMIT, k.context, uintptr(len(k.pushed)),
			uintptr(unsafe.Pointer(unsafe.SliceData(k.pushed))))
		taken := int(n)
		switch errno {
		case 0:
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			if len(k.inFlight) > len(k.pushed) {
				return false
			}
			fallthrough
		default:
			// A refusal is of the one at the head, and says nothing of the others. A plain system call gives the errno that
			// every backend gives.
			k.errno = errno
			k.refuse(k.over(k.pushed[0]))
			taken = 1
		}
		k.pushed = dropFirst(k.pushed, taken)
	}
	return true
}

// dropFirst keeps the memory for the next group.
func dropFirst[T any](all []*T, n int) []*T {
	rest := copy(all, all[n:])
	clear(all[rest:])
	return all[:rest]
}

// over is the end of a flight: whose it was.
func (k *kaio) over(c *iocb) *request {
	delete(k.inFlight, c.raw.data)
	c.pinner.Unpin()
	r := c.of
	c.of = nil
	k.spare = append(k.spare, c)
	return r
}

func (k *kaio) reap(done []*request) []*request {
	done = append(done, k.refused...)
	clear(k.refused)
	k.refused = k.refused[:0]
	for len(k.inFlight) > 0 {
		var now syscall.Timespec
		n, _, errno := syscall.RawSyscall6(syscall.SYS_IO_GETEVENTS, k.context, 0, uintptr(len(k.events)),
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
			r := k.over(c)
			r.result = int32(e.res)
			if errno := errnoOf(r.result); errno == syscall.EINVAL || errno == syscall.EOPNOTSUPP {
				r.result = cannotCarry // It may be KAIO alone that cannot.
			}
			done = append(done, r)
		}
		if int(n) < len(k.events) {
			break
		}
	}
	return done
}

func (k *kaio) why() syscall.Errno { return k.errno }

// ready empties the eventfd: its count is no number of completions.
func (k *kaio) ready(fd uintptr) {
	var ticks [8]byte
	_, _ = syscall.Read(int(fd), ticks[:])
}

// close ends the context, which waits for what is in flight.
func (k *kaio) close() error {
	_, _, errno := syscall.Syscall(syscall.SYS_IO_DESTROY, k.context, 0, 0)
	for _, c := range k.inFlight {
		k.over(c)
	}
	_ = syscall.Close(k.eventfd)
	if errno != 0 {
		return errno
	}
	return nil
}
