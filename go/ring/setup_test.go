//go:build linux

// Setup with and without flags, refusals, and the probe.

package ring

import (
	"errors"
	"math"
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
	w = Options{SQPoll: 10 * time.Millisecond}.config()
	equal(t, w.dropFlag(syscall.EPERM), "SQPOLL")
	// Nothing helps against these, and ATTACH_WQ is the first to go otherwise.
	for errno, want := range map[syscall.Errno]string{syscall.ENOSYS: "", syscall.EMFILE: "",
		syscall.ENFILE: "", syscall.EINVAL: "ATTACH_WQ", syscall.EPERM: "ATTACH_WQ"} {
		w := Options{SQPoll: time.Second, Attach: &Ring{fd: 5}}.config()
		equal(t, w.dropFlag(errno), want)
		equal(t, w.flags&setupAttachWQ == 0, want != "")
	}
}

// Under a limit on locked memory both queues become smaller, down to a size that is of use.
func TestQueuesThatDoNotFitAreHalved(t *testing.T) {
	for _, c := range []struct{ entries, completions, wantEntries, wantCompletions uint32 }{
		{64, 256, 8, 32}, {64, 64, 8, 8}, {8, 32, 8, 32}, {8, 4096, 2, 32}, {1, 4096, 2, 32},
		{16, 33, 8, 16},
	} {
		w := Options{Entries: c.entries, CQEntries: c.completions}.config()
		for w.dropFlag(syscall.ENOMEM) != "" {
		}
		require(t, w.entries == c.wantEntries && w.completions == c.wantCompletions,
			"%+v: %d, %d", c, w.entries, w.completions)
	}
}

func TestConfig(t *testing.T) {
	const always = setupNoSQArray | setupSubmitAll | setupCQSize | setupClamp
	const most = math.MaxUint32
	for _, c := range []struct {
		o    Options
		want params
	}{
		{Options{}, params{flags: always, cqEntries: 256}},
		{Options{CQEntries: 10}, params{flags: always, cqEntries: 64}},
		{Options{CQEntries: 1000}, params{flags: always, cqEntries: 1000}},
		{Options{Entries: 1 << 31}, params{flags: always, cqEntries: 4 * maxEntries}},
		{Options{SQPoll: 1}, params{flags: always | setupSQPoll, cqEntries: 256, sqThreadIdle: 1}},
		{Options{SQPoll: 5 * time.Millisecond, CoopTaskrun: true, DeferTaskrun: true},
			params{flags: always | setupSQPoll, cqEntries: 256, sqThreadIdle: 5}},
		{Options{SQPoll: math.MaxInt64}, params{flags: always | setupSQPoll, cqEntries: 256,
			sqThreadIdle: most}},
		{Options{CoopTaskrun: true}, params{flags: always | setupCoopTaskrun | setupTaskrunFlag,
			cqEntries: 256}},
		{Options{CoopTaskrun: true, DeferTaskrun: true}, params{cqEntries: 256,
			flags: always | setupSingleIssuer | setupDeferTaskrun | setupTaskrunFlag}},
		{Options{IOPoll: true, Attach: &Ring{fd: 5}}, params{cqEntries: 256, wqFD: 5,
			flags: always | setupIOPoll | setupAttachWQ}},
	} {
		w := c.o.config()
		require(t, w.params() == c.want && w.entries <= maxEntries, "%+v: %+v, %d", c.o, w.params(),
			w.entries)
	}
	// Without DEFER_TASKRUN, TASKRUN_FLAG has no meaning.
	w := Options{DeferTaskrun: true}.config()
	equal(t, w.dropFlag(syscall.EINVAL), "NO_SQARRAY")
	equal(t, w.dropFlag(syscall.EINVAL), "DEFER_TASKRUN")
	equal(t, w.params().flags, setupSubmitAll|setupCQSize|setupClamp)
}

// Kernels before 5.4 map the queues one by one, which the package does not support.
func TestQueuesThatAreMappedOneByOne(t *testing.T) {
	r := &Ring{fd: -1, params: params{sqEntries: 1, cqEntries: 1}}
	equal(t, r.mmap(), error(syscall.EINVAL))
}

// ATTACH_WQ is not dropped for good because the kernel refuses another flag.
func TestAttachesAlthoughAnotherFlagIsRefused(t *testing.T) {
	w := Options{Attach: newRing(t, Options{})}.config()
	w.flags |= setupDeferTaskrun // Every kernel refuses it without SINGLE_ISSUER.
	r, err := open(w)
	if err != nil {
		skip(t, err)
	}
	defer closeRing(t, r)
	var refused []string
	for _, one := range r.Refusals() {
		refused = append(refused, one.Feature)
	}
	require(t, slices.Contains(r.SetupFlags(), "ATTACH_WQ") &&
		slices.Contains(refused, "DEFER_TASKRUN") && !slices.Contains(refused, "ATTACH_WQ"),
		"%v, refused: %v", r.SetupFlags(), refused)
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
