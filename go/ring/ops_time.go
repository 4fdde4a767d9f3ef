//go:build linux

// Waiting, and ending what waits.

package ring

import (
	"time"
	"unsafe"
)

// Poll is poll(2) of one descriptor: it completes once, with the events that are there.
func (q *Request) Poll(fd int, events uint32) *Request {
	q.prepare(OpPollAdd, fd).opFlags = pollMask(events)
	return q
}

// PollMulti completes each time that one of the events is there, until it is cancelled. Kernel 5.13.
func (q *Request) PollMulti(fd int, events uint32) *Request {
	e := q.prepare(OpPollAdd, fd)
	e.opFlags, e.len = pollMask(events), pollAddMulti
	return q
}

// PollRemove ends the poll of another request.
func (q *Request) PollRemove(poll *Request) *Request {
	q.prepare(OpPollRemove, -1)
	q.sqe.addr = poll.name()
	return q
}

// Timeout completes after d, with ETIME.
func (q *Request) Timeout(d time.Duration) *Request {
	q.span(OpTimeout, d)
	return q
}

// TimeoutMulti completes every d, count times; 0 is for ever. Kernel 6.4.
func (q *Request) TimeoutMulti(d time.Duration, count int) *Request {
	q.span(OpTimeout, d)
	q.sqe.off, q.sqe.opFlags = uint64(count), timeoutMultishot
	return q
}

// TimeoutRemove ends the timeout of another request, which completes with ECANCELED.
func (q *Request) TimeoutRemove(timeout *Request) *Request {
	q.prepare(OpTimeoutRemove, -1)
	q.sqe.addr = timeout.name()
	return q
}

// LinkTimeout is a time limit for the request pushed just before it, which has to have [Request.Link].
func (q *Request) LinkTimeout(d time.Duration) *Request {
	q.span(OpLinkTimeout, d)
	return q
}

func (q *Request) span(op Op, d time.Duration) {
	e := q.prepare(op, -1)
	s := q.aside()
	d = max(d, 0)
	s.span = timespec{int64(d / time.Second), int64(d % time.Second)}
	e.addr = uint64(uintptr(unsafe.Pointer(&s.span)))
	e.len = 1
}

// Cancel asks the kernel to end another request. Its own result is 0, ENOENT if there is no such request any more, or
// EALREADY if that one is too far to be stopped. The other one always completes, mostly with ECANCELED.
func (q *Request) Cancel(other *Request) *Request {
	q.prepare(OpAsyncCancel, -1)
	q.sqe.addr = other.name()
	return q
}

// CancelFile asks the kernel to end all requests of a descriptor; its result is how many. Kernel 5.19.
func (q *Request) CancelFile(fd int) *Request {
	q.prepare(OpAsyncCancel, fd).opFlags = cancelFD | cancelAll
	return q
}

// CancelAll asks the kernel to end all requests of the ring; its result is how many. Kernel 5.19.
func (q *Request) CancelAll() *Request {
	q.prepare(OpAsyncCancel, -1).opFlags = cancelAny
	return q
}
