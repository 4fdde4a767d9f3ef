//go:build linux

// Pending, ending what waits, and word to another ring.

package ring

import (
	"math"
	"time"
	"unsafe"
)

// Poll is poll(2) of one descriptor: it completes once, with those of the events that have happened (POLLIN is 1, POLLOUT is
// 4), or with POLLERR or POLLHUP, which need not be asked for.
func (q *Request) Poll(fd int, events uint32) *Request {
	q.prepare(OpPollAdd, fd).opFlags = pollMask(events)
	return q
}

// PollMultishot completes each time that one of the events happens, until it is cancelled. A completion without [FlagMore] is the
// last. Kernel 5.13.
func (q *Request) PollMultishot(fd int, events uint32) *Request {
	e := q.prepare(OpPollAdd, fd)
	e.opFlags, e.len = pollMask(events), pollAddMulti
	return q
}

// PollUpdate changes the events that another poll in flight waits for. Its result is 0, ENOENT if that poll is not in flight,
// or EALREADY if it is completing just now. Kernel 5.13.
func (q *Request) PollUpdate(poll *Request, events uint32) *Request {
	e := q.prepare(OpPollRemove, -1)
	e.len, e.opFlags = pollUpdateEvents, pollMask(events)
	q.other = poll
	return q
}

// PollRemove ends another poll, which completes with ECANCELED. Its own result is as that of [Request.Cancel].
func (q *Request) PollRemove(poll *Request) *Request {
	q.prepare(OpPollRemove, -1)
	q.other = poll
	return q
}

// Timeout completes after d. The result is ETIME, which is how the kernel says that all went well.
func (q *Request) Timeout(d time.Duration) *Request {
	q.span(OpTimeout, d)
	return q
}

// TimeoutAt completes at a time of the wall clock, also when that is set anew in between. The result is ETIME. Kernel 5.15.
func (q *Request) TimeoutAt(t time.Time) *Request {
	q.span(OpTimeout, 0)
	q.side.span = timespec{t.Unix(), int64(t.Nanosecond())}
	q.sqe.opFlags = timeoutAbs | timeoutRealtime
	return q
}

// TimeoutMultishot completes every d with ETIME, count times or, if count is 0, until it is removed. Kernel 6.4.
func (q *Request) TimeoutMultishot(d time.Duration, count int) *Request {
	q.span(OpTimeout, d)
	q.sqe.off, q.sqe.opFlags = uint64(max(count, 0)), timeoutMultishot
	return q
}

// TimeoutUpdate lets another timeout in flight end d from now. Its result is 0, or ENOENT if that one is not in flight.
// Kernel 5.11; for a LinkTimeout 5.15.
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

// TimeoutRemove ends another timeout, which completes with ECANCELED. Its own result is as that of [Request.Cancel].
func (q *Request) TimeoutRemove(timeout *Request) *Request {
	q.prepare(OpTimeoutRemove, -1)
	q.other = timeout
	return q
}

// LinkTimeout is a time limit for one request. That request needs [Request.Link], and this one is pushed right behind it.
// When the time is up, the request is cancelled (its result is mostly ECANCELED, or EINTR), and the result of the limit is
// ETIME. If the request completes before, the result of the limit is ECANCELED.
func (q *Request) LinkTimeout(d time.Duration) *Request {
	q.span(OpLinkTimeout, d)
	return q
}

func (q *Request) span(op Opcode, d time.Duration) {
	e := q.prepare(op, -1)
	s := q.aside()
	d = max(d, 0)
	s.span = timespec{int64(d / time.Second), int64(d % time.Second)}
	e.addr = uint64(uintptr(unsafe.Pointer(&s.span)))
	e.len = 1
}

// Cancel asks the kernel to end another request, which has to be in flight on the same ring when this one is pushed. Its own
// result is 0, ENOENT if there is no such request (any more), or EALREADY if it is under way and may or may not be stopped.
// The other request completes in any case, mostly with ECANCELED; one that got its result before keeps it.
//
// A cancel that is pushed behind a barrier ([Request.Drain]) waits there, too.
func (q *Request) Cancel(other *Request) *Request {
	q.prepare(OpAsyncCancel, -1)
	q.other = other
	return q
}

// CancelFile asks the kernel to end all requests of a descriptor. Its result is how many it found. Kernel 5.19.
func (q *Request) CancelFile(fd int) *Request {
	q.prepare(OpAsyncCancel, fd).opFlags = cancelFD | cancelAll
	return q
}

// CancelAll asks the kernel to end all requests of the ring. Its result is how many it found; of a chain that is the one
// under way, with which the others end. What waits for a barrier ([Request.Drain]) is not found. Kernel 5.19.
func (q *Request) CancelAll() *Request {
	q.prepare(OpAsyncCancel, -1).opFlags = cancelAny
	return q
}

// message is the place of completions that are no request's: they came from another ring.
const message = math.MaxUint32

// MsgRing has another ring's owner find a completion that no request of its own stands behind: its Request is nil, its Result
// is value. It wakes one who waits there. value must not be negative (EINVAL). Its own result is 0, or EOVERFLOW if that ring
// has no room. The other ring must stay open meanwhile. Kernel 5.18.
func (q *Request) MsgRing(to *Ring, value int32) *Request {
	e := q.prepare(OpMsgRing, to.Fd())
	e.addr, e.off, e.len = messageData, message, uint32(value)
	q.invalid = value < 0
	return q
}
