//go:build linux

// Polls, timeouts, cancels and messages, each tested by its effect.

package ring

import (
	"syscall"
	"testing"
	"time"
)

// One request, a completion per event.
func TestPollMultishot(t *testing.T) {
	r := newRing(t, Options{})
	reading, writing := pipe(t)
	const pollIn = 1
	_, _ = syscall.Write(writing, []byte("x"))
	multi := new(Request).PollMultishot(reading, pollIn)
	c := run(t, r, multi)[0]
	require(t, c.More() && c.Result == pollIn, "%+v", c)
	_, _ = syscall.Write(writing, []byte("y"))
	c = collect(t, r, multi)[0]
	require(t, c.More(), "%+v", c)
	gives(t, r, new(Request).PollRemove(multi), 0)
	finish(t, r, multi)
}

func TestTimeoutRemove(t *testing.T) {
	r := newRing(t, Options{})
	long := new(Request).Timeout(time.Hour)
	push(t, r, long)
	gives(t, r, new(Request).TimeoutRemove(long), 0)
	finish(t, r, long)
}

func TestTimeoutMultishot(t *testing.T) {
	r := newRing(t, Options{})
	tick := new(Request).TimeoutMultishot(5*time.Millisecond, 3)
	ticks := 0
	push(t, r, tick)
	for tick.InFlight() {
		c := collect(t, r, tick)[0]
		if c.Err() == syscall.EINVAL {
			skip(t, "this kernel is older than 6.4")
		}
		ticks++
	}
	equal(t, ticks, 3)
}

func TestTimeoutAt(t *testing.T) {
	r := newRing(t, Options{})
	at := time.Now().Add(30 * time.Millisecond)
	if err := failure(t, r, new(Request).TimeoutAt(at)); err == syscall.EINVAL {
		skip(t, "this kernel is older than 5.15")
	} else {
		equal(t, err, error(syscall.ETIME))
	}
	require(t, !time.Now().Before(at), "too early")
	// A time in the past expires at once.
	fails(t, r, new(Request).TimeoutAt(time.Unix(1, 0)), syscall.ETIME)
}

func TestPollAndTimeoutUpdates(t *testing.T) {
	r := newRing(t, Options{})
	reading, writing := pipe(t)
	// A poll for an event that never occurs, until the update.
	const pollIn, pollPri = 1, 2
	poll := new(Request).Poll(reading, pollPri)
	long := new(Request).Timeout(time.Hour)
	push(t, r, poll, long)
	_, _ = syscall.Write(writing, []byte("x"))
	_, err := r.SubmitAndWait(1, 20*time.Millisecond)
	require(t, err == ErrTimeout, "%v", err)
	update := new(Request).PollUpdate(poll, pollIn)
	push(t, r, update)
	ends := collect(t, r, update, poll)
	if ends[0].Err() == syscall.EINVAL {
		skip(t, "this kernel is older than 5.13")
	}
	equal(t, ends[0].Result, 0)
	equal(t, ends[1].Result, pollIn)
	fails(t, r, new(Request).PollUpdate(poll, pollIn), syscall.ENOENT)

	update = new(Request).TimeoutUpdate(long, time.Millisecond)
	push(t, r, update)
	ends = collect(t, r, update, long)
	equal(t, ends[0].Result, 0)
	equal(t, ends[1].Err(), error(syscall.ETIME))
	fails(t, r, new(Request).TimeoutUpdate(long, time.Second), syscall.ENOENT)

	_, _ = syscall.Read(reading, make([]byte, 1))
	read := readByte(reading).Link()
	limit := new(Request).LinkTimeout(time.Hour)
	push(t, r, read, limit)
	submit(t, r)
	gives(t, r, new(Request).TimeoutUpdate(limit, time.Millisecond), 0)
	ends = collect(t, r, limit, read)
	equal(t, ends[0].Err(), error(syscall.ETIME))
}

func TestCancels(t *testing.T) {
	r := newRing(t, Options{})
	reading, _ := pipe(t)
	b := readByte(reading)
	push(t, r, b)
	submit(t, r)
	byFile := new(Request).CancelFile(reading)
	push(t, r, byFile)
	if c, canceled := cancelOf(t, r, byFile, b); canceled {
		equal(t, c.Result, 1)
	} else {
		equal(t, c.Err(), error(syscall.EINVAL))
		skip(t, "this kernel is older than 5.19")
	}

	c, d, all := readByte(reading), readByte(reading), new(Request).CancelAll()
	push(t, r, c, d, all)
	ends := collect(t, r, all, c, d)
	equal(t, ends[0].Result, 2)
}

// cancelOf waits for a cancel, and for its target unless the kernel refuses the cancel. It reports
// whether the target is canceled.
func cancelOf(t *testing.T, r *Ring, cancel, target *Request) (end Completion, canceled bool) {
	t.Helper()
	for !canceled {
		must(t, errorOf(r.SubmitAndWait(1, testTimeout)))
		var done [2]Completion
		for _, c := range done[:r.Reap(done[:])] {
			if c.Request == cancel {
				if end = c; c.Err() != nil {
					return end, false
				}
			} else {
				equal(t, c.Request, target)
				equal(t, c.Err(), error(syscall.ECANCELED))
			}
		}
		canceled = !cancel.InFlight() && !target.InFlight()
	}
	return end, true
}

// Requests of different rings may have the same user_data.
func TestCancelFindsRequestsOfItsRingOnly(t *testing.T) {
	r, other := newRing(t, Options{}), newRing(t, Options{})
	reading, writing := pipe(t)
	a, b := readByte(reading), readByte(reading)
	for q, r := range map[*Request]*Ring{a: r, b: other} {
		push(t, r, q)
		submit(t, r)
	}
	equal(t, a.userData, b.userData)
	fails(t, r, new(Request).Cancel(b), syscall.ENOENT)
	// A cancel refers to the target as it is when the cancel is pushed.
	early := new(Request)
	cancel := new(Request).Cancel(early)
	push(t, r, early.Read(reading, make([]byte, 1), CurrentPosition), cancel)
	ends := collect(t, r, early, cancel)
	equal(t, ends[0].Err(), error(syscall.ECANCELED))
	equal(t, ends[1].Err(), nil)
	// After its completion, it does not keep the target reachable.
	equal(t, cancel.other, nil)
	fails(t, r, cancel, syscall.ENOENT)
	_, _ = syscall.Write(writing, []byte("xy"))
	equal(t, collect(t, r, a)[0].Result, 1)
	equal(t, collect(t, other, b)[0].Result, 1)
}

// A message wakes a thread that waits on the other ring.
func TestMsgRing(t *testing.T) {
	r := newRing(t, Options{})
	needOps(t, r, OpMsgRing)
	other := newRing(t, Options{})
	woken := make(chan error)
	go func() { woken <- errorOf(other.SubmitAndWait(1, testTimeout)) }()
	gives(t, r, new(Request).MsgRing(other, 7), 0)
	must(t, <-woken)
	var done [2]Completion
	n, c := other.Reap(done[:]), &done[0]
	require(t, n == 1 && c.Request == nil && c.Result == 7, "%d, %+v", n, done)
	equal(t, other.InFlight(), 0)
	equal(t, r.Push(new(Request).MsgRing(other, -1)), error(syscall.EINVAL))
	// A ring can send messages to itself.
	ends := 0
	q := new(Request).MsgRing(r, 9)
	push(t, r, q)
	for ends < 2 {
		must(t, errorOf(r.SubmitAndWait(1, testTimeout)))
		for _, c := range done[:r.Reap(done[:])] {
			ends++
			equal(t, c.Result, map[bool]int32{true: 0, false: 9}[c.Request == q])
		}
	}
	// A closed ring cannot receive.
	must(t, other.Close())
	err := failure(t, r, new(Request).MsgRing(other, 7))
	require(t, err != nil, "a closed ring received a message")
}
