//go:build linux

// Setup with and without flags, refusals, and the probe.

package ring

import (
	"errors"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestOptions(t *testing.T) {
	f := tempFile(t, "0123456789")
	base := newRing(t, Options{})
	for name, o := range map[string]Options{
		"coop": {CoopTaskrun: true}, "small": {Entries: 1}, "large": {Entries: 256, CQEntries: 256},
		"sqpoll": {SQPoll: 5 * time.Millisecond}, "attached": {Attach: base},
		"single thread": {DeferTaskrun: true},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			r := newRing(t, o)
			t.Log(r.SetupFlags(), r.Refusals())
			// Every kernel with io_uring attaches, whatever other flags it refuses.
			attached := slices.Contains(r.SetupFlags(), "ATTACH_WQ")
			equal(t, attached, o.Attach != nil)
			equal(t, attached && slices.ContainsFunc(r.Refusals(), func(one *Refusal) bool {
				return one.Feature == "ATTACH_WQ"
			}), false)
			for range 100 {
				p := make([]byte, 3)
				gives(t, r, new(Request).Read(int(f.Fd()), p, 4), 3)
				equal(t, string(p), "456")
			}
			must(t, r.Close())
		})
	}
}

func TestRingWithoutSetupFlags(t *testing.T) {
	r := ringWithoutFlags(t, func(w *config) { w.entries = 4 })
	require(t, len(r.SetupFlags()) == 0, "%v", r.SetupFlags())
	f := tempFile(t, "0123456789")
	for i := range 50 { // Several times around the queue.
		p, q := make([]byte, 3), make([]byte, 2)
		ends := run(t, r, new(Request).Read(int(f.Fd()), p, 4),
			new(Request).Read(int(f.Fd()), q, int64(i%8)))
		equal(t, ends[0].Result, 3)
		equal(t, ends[1].Result, 2)
		equal(t, string(p), "456")
		equal(t, string(q), "0123456789"[i%8:i%8+2])
	}
}

func TestRefusedFlagsAreDroppedInOrder(t *testing.T) {
	w := Options{CoopTaskrun: true}.config()
	var names []string
	for {
		name := w.dropFlag(syscall.EINVAL)
		if name == "" {
			break
		}
		names = append(names, name)
	}
	if want := []string{"NO_SQARRAY", "COOP_TASKRUN", "SUBMIT_ALL", "CQSIZE",
		"CLAMP"}; !slices.Equal(names, want) {
		t.Fatal(names)
	}
	equal(t, w.flags, 0)
	for _, errno := range []syscall.Errno{syscall.ENOSYS, syscall.EPERM, syscall.EMFILE} {
		w := Options{}.config()
		equal(t, w.dropFlag(errno), "")
	}
	w = Options{}.config()
	for w.dropFlag(syscall.ENOMEM) != "" {
	}
	equal(t, w.entries, 8)
	w = Options{SQPoll: 10 * time.Millisecond}.config()
	equal(t, w.dropFlag(syscall.EPERM), "SQPOLL")
}

func TestNewReturnsARefusal(t *testing.T) {
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 3
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	_, err := New(Options{})
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	if errors.Is(err, syscall.ENOMEM) {
		skip(t, err)
	}
	var refusal *Refusal
	require(t, errors.As(err, &refusal) && errors.Is(err, syscall.EMFILE), "%v", err)
}

func TestRingIsCloseOnExec(t *testing.T) { wantCloexec(t, newRing(t, Options{}).Fd()) }

func TestProbeAndIOWQMaxWorkers(t *testing.T) {
	r := newRing(t, Options{})
	probe := get(r.Probe())(t)
	require(t, probe.Supports(OpRead) && !probe.Supports(255), "the probe is wrong")
	if _, _, err := r.IOWQMaxWorkers(3, 5); err != nil {
		skip(t, err)
	}
	files, rest, err := r.IOWQMaxWorkers(0, 0)
	require(t, err == nil && files == 3 && rest == 5, "%v, %v, %v", files, rest, err)
}

func TestNegativeSQPollIsRefused(t *testing.T) {
	_, err := New(Options{SQPoll: -time.Second})
	var refused *Refusal
	require(t, errors.As(err, &refused) && refused.Feature == "SQPOLL" &&
		refused.Errno == syscall.EINVAL, "%v", err)
}
