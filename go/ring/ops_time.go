//go:build linux

// Polls, timeouts, cancels, and messages to other rings.

package ring

import (
	"math"
	"time"
	"unsafe"
)

// Poll is poll(2) of one descriptor. It completes once, with the events that have occurred: those
// requested (POLLIN is 1, POLLOUT is 4), POLLERR or POLLHUP.
func (q *Request) Poll(fd int, events uint32) *Request {
	q.prepare(OpPollAdd, fd).opFlags = pollMask(events)
	return q
}

// PollMultishot completes whenever one of the events occurs, until it is canceled. The completion
// without [FlagMore] is the last. Linux 5.13.
func (q *Request) PollMultishot(fd int, events uint32) *Request {
	e := q.prepare(OpPollAdd, fd)
	e.opFlags, e.len = pollMask(events), pollAddMulti
	return q
}

// PollUpdate changes the events of another poll in flight. The result is 0, ENOENT if that poll is
// not in flight, or EALREADY if it is completing. Linux 5.13.
func (q *Request) PollUpdate(poll *Request, events uint32) *Request {
	e := q.prepare(OpPollRemove, -1)
	e.len, e.opFlags = pollUpdateEvents, pollMask(events)
	q.other = poll
	return q
}

// PollRemove ends another poll, which completes with ECANCELED. The result is as for
// [Request.Cancel].
func (q *Request) PollRemove(poll *Request) *Request {
	q.prepare(OpPollRemove, -1)
	q.other = poll
	return q
}

// Timeout completes after d. The result of an expired timeout is ETIME.
func (q *Request) Timeout(d time.Duration) *Request {
	q.span(OpTimeout, d)
	return q
}

// TimeoutAt completes with ETIME at a time of the wall clock, and follows changes of the clock.
// Linux 5.15.
func (q *Request) TimeoutAt(t time.Time) *Request {
	q.span(OpTimeout, 0)
	q.extra.span = timespec{t.Unix(), int64(t.Nanosecond())}
	q.sqe.opFlags = timeoutAbs | timeoutRealtime
	return q
}

// TimeoutMultishot completes with ETIME every d, count times or, if count is 0, until it is
// removed. Linux 6.4.
func (q *Request) TimeoutMultishot(d time.Duration, count int) *Request {
	q.span(OpTimeout, d)
	q.sqe.off, q.sqe.opFlags = uint64(count), timeoutMultishot
	q.invalid = count < 0
	return q
}

// TimeoutUpdate makes another timeout in flight expire d from now. The result is 0, or ENOENT if
// that timeout is not in flight. Linux 5.11; for a LinkTimeout, 5.15.
func (q *Request) TimeoutUpdate(timeout *Request, d time.Duration) *Request {
	q.span(OpTimeoutRemove, d)
	q.sqe.len = 0
	q.sqe.off, q.sqe.opFlags = q.sqe.addr, timeoutUpdate
	q.other = timeout
	if timeout.Opcode() == OpLinkTimeout {
		q.sqe.opFlags |= linkUpdate
	}
	return q
}

// TimeoutRemove ends another timeout, which completes with ECANCELED. The result is as for
// [Request.Cancel].
func (q *Request) TimeoutRemove(timeout *Request) *Request {
	q.prepare(OpTimeoutRemove, -1)
	q.other = timeout
	return q
}

// LinkTimeout limits the time of the previous request, which must have [Request.Link]; push this
// one right after it. When the time expires, the kernel cancels the request, which usually
// completes with ECANCELED or EINTR, and the LinkTimeout completes with ETIME. If the request
// completes in time, the LinkTimeout completes with ECANCELED.
func (q *Request) LinkTimeout(d time.Duration) *Request {
	q.span(OpLinkTimeout, d)
	return q
}

func (q *Request) span(op Opcode, d time.Duration) {
	e := q.prepare(op, -1)
	s := q.extras()
	d = max(d, 0)
	s.span = timespec{int64(d / time.Second), int64(d % time.Second)}
	e.addr = uint64(uintptr(unsafe.Pointer(&s.span)))
	e.len = 1
}

// Cancel cancels another request. That request must be in flight on the same ring when the cancel
// is pushed. The result is 0, ENOENT if there is no such request, or EALREADY if the request is
// being executed and may or may not stop. The other request always completes, usually with
// ECANCELED; a result that it already has stays.
//
// Before Linux 5.18 the result is ENOENT, too, at the moment when a worker thread of the kernel
// takes the request, and then it is not cancelled: if it does not complete, cancel it again.
//
// A cancel pushed after a barrier ([Request.Drain]) waits behind it.
func (q *Request) Cancel(other *Request) *Request {
	q.prepare(OpAsyncCancel, -1)
	q.other = other
	return q
}

// CancelFile cancels all requests on a descriptor. The result is how many it found. Linux 5.19.
func (q *Request) CancelFile(fd int) *Request {
	q.prepare(OpAsyncCancel, fd).opFlags = cancelFD | cancelAll
	return q
}

// CancelAll cancels all requests of the ring. The result is how many it found; a chain counts as
// one, the request being executed, and ends with it. It does not find requests that wait behind a
// barrier ([Request.Drain]). Linux 5.19.
func (q *Request) CancelAll() *Request {
	q.prepare(OpAsyncCancel, -1).opFlags = cancelAny
	return q
}

// msgRingIndex is the slot index in the user_data of messages, which belong to no request.
const msgRingIndex = math.MaxUint32

// MsgRing posts a completion to another ring, with a nil Request and the value as its Result, and
// wakes a thread that waits there. A negative value fails with EINVAL. The result is 0, or
// EOVERFLOW if the completion queue of the other ring is full. The other ring must stay open until
// this request completes. Linux 5.18.
func (q *Request) MsgRing(to *Ring, value int32) *Request {
	e := q.prepare(OpMsgRing, to.Fd())
	e.addr, e.off, e.len = messageData, msgRingIndex, uint32(value)
	q.invalid = value < 0
	return q
}
