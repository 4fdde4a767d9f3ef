//go:build linux

// Setup: a new ring, and fewer features where the kernel refuses some.

package ring

import (
	"math"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

// Refusal is a feature that the kernel refused: the errno, what it means on this machine, and how
// to fix it.
type Refusal struct {
	// Feature is what was requested: io_uring, SQPOLL, fixed buffers.
	Feature string
	// Errno is the error that the kernel returned.
	Errno syscall.Errno
	// Meaning is what the errno means for this feature on this machine.
	Meaning string
	// Fix is what an operator can do about it; empty if nothing helps.
	Fix string
}

// Error returns everything in one line.
func (r *Refusal) Error() string { return (*refusal.Refusal)(r).Error() }

// Unwrap returns the errno, for errors.Is.
func (r *Refusal) Unwrap() error { return r.Errno }

// explain explains errno as the result of a request for feature.
func explain(feature string, errno syscall.Errno) *Refusal {
	return (*Refusal)(refusal.New(feature, errno))
}

// Options configure a ring. The zero value is useful.
//
// If the kernel refuses a setup flag, [New] drops flags, the newest first, until the kernel accepts
// the rest. [Ring.Refusals] explains the dropped flags; [Ring.SetupFlags] lists those in force.
type Options struct {
	// Entries is the size of the submission queue: how many requests can be pushed before a
	// submission. 0 means 64. The kernel rounds it up to a power of two, at most 32768. Both queues
	// are locked memory: about 64 bytes per entry, and 16 per completion.
	Entries uint32
	// CQEntries is the size of the completion queue, at least Entries; 0 means four times Entries.
	// More requests can be in flight; completions that do not fit wait in the kernel, which is
	// slower, and bounded by [ErrReap]. Linux 5.5.
	CQEntries uint32
	// CoopTaskrun asks the kernel not to interrupt the submitting thread to post completions
	// (COOP_TASKRUN). It posts them when that thread enters the kernel, which [Ring.Reap] does if
	// necessary. It suits threads that enter the kernel often. Linux 5.19.
	CoopTaskrun bool
	// DeferTaskrun makes the kernel work on completions only while the thread waits or reaps
	// (SINGLE_ISSUER and DEFER_TASKRUN), which batches that work. The program promises that one
	// locked thread ([runtime.LockOSThread]) uses the ring, from New on. A submission by another
	// thread fails with EEXIST. Linux 6.1.
	DeferTaskrun bool
	// SQPoll, if not 0, starts a kernel thread that takes requests from the submission queue
	// (SQPOLL), so that a submission needs no system call. After this time without requests, at a
	// resolution of milliseconds, the thread sleeps, and the next submission wakes it. It uses a
	// whole processor while it is awake. CoopTaskrun and DeferTaskrun have no effect with it. A
	// negative time is EINVAL.
	SQPoll time.Duration
	// IOPoll makes the kernel poll the device for completions instead of waiting for interrupts
	// (IOPOLL). It requires direct I/O on a device with polling queues; other operations fail with
	// EINVAL or EOPNOTSUPP. Requests complete only while the thread is in [Ring.SubmitAndWait].
	IOPoll bool
	// Attach shares the kernel threads of another open ring: its io-wq workers, and its SQPoll
	// thread (ATTACH_WQ). Linux 5.6.
	Attach *Ring
}

// config holds the arguments of io_uring_setup.
type config struct {
	entries, completions uint32
	flags                uint32
	idle                 uint32
	attach               int
}

// dropOrder is the order in which flags are dropped on EINVAL: the newest or least necessary first.
var dropOrder = []struct {
	flags uint32
	name  string
}{
	{setupNoSQArray, "NO_SQARRAY"},
	{setupSingleIssuer | setupDeferTaskrun, "DEFER_TASKRUN"},
	{setupCoopTaskrun | setupTaskrunFlag, "COOP_TASKRUN"},
	{setupSubmitAll, "SUBMIT_ALL"},
	{setupSQPoll, "SQPOLL"},
	{setupIOPoll, "IOPOLL"},
	{setupCQSize, "CQSIZE"},
	{setupClamp, "CLAMP"},
}

// dropFlag drops a flag, or reduces the sizes. It returns the name of the feature, or "" if nothing
// is left to try.
func (w *config) dropFlag(errno syscall.Errno) (feature string) {
	switch errno {
	case syscall.ENOSYS, syscall.EMFILE, syscall.ENFILE:
		return ""
	case syscall.ENOMEM:
		// The memory counts against RLIMIT_MEMLOCK: a smaller ring may fit.
		if w.entries > 8 || w.completions > 32 {
			w.entries = max(w.entries/2, 2)
			w.completions /= 2
			return "CQSIZE"
		}
	}
	if w.flags&setupAttachWQ != 0 {
		w.flags &^= setupAttachWQ
		return "ATTACH_WQ"
	}
	for _, p := range dropOrder {
		privileged := p.flags&(setupSQPoll|setupIOPoll) != 0
		if w.flags&p.flags != 0 && (errno == syscall.EINVAL || privileged) {
			w.flags &^= p.flags
			return p.name
		}
	}
	return ""
}

func (o Options) config() config {
	w := config{entries: o.Entries, completions: o.CQEntries}
	if w.entries == 0 {
		w.entries = 64
	}
	w.entries = min(w.entries, maxEntries)
	if w.completions == 0 {
		w.completions = 4 * w.entries
	}
	w.completions = max(w.completions, w.entries)
	w.flags = setupNoSQArray | setupSubmitAll | setupCQSize | setupClamp
	switch {
	case o.SQPoll > 0:
		// The kernel does not accept the taskrun flags with SQPOLL.
		w.flags |= setupSQPoll
		w.idle = uint32(min(max(o.SQPoll.Milliseconds(), 1), math.MaxUint32))
	case o.DeferTaskrun:
		w.flags |= setupSingleIssuer | setupDeferTaskrun | setupTaskrunFlag
	case o.CoopTaskrun:
		w.flags |= setupCoopTaskrun | setupTaskrunFlag
	}
	if o.IOPoll {
		w.flags |= setupIOPoll
	}
	if o.Attach != nil {
		w.flags |= setupAttachWQ
		w.attach = o.Attach.Fd()
	}
	return w
}

// New creates a ring as close to the options as the kernel allows. The error is a *[Refusal].
// [errors.Is] matches its errno: EPERM or ENOSYS if io_uring is not available, ENOMEM if not even a
// small ring fits under RLIMIT_MEMLOCK. A ring must be closed: an unreachable one is not collected,
// since requests may be in flight.
func New(o Options) (*Ring, error) {
	if o.SQPoll < 0 {
		return nil, &Refusal{Feature: "SQPOLL", Errno: syscall.EINVAL,
			Meaning: "the time after which the kernel thread sleeps is negative"}
	}
	return open(o.config())
}

// params returns the arguments. The kernel ignores those that belong to flags which are not set,
// and refuses TASKRUN_FLAG alone.
func (w *config) params() params {
	p := params{flags: w.flags, cqEntries: w.completions, sqThreadIdle: w.idle,
		wqFD: uint32(w.attach)}
	if w.flags&(setupCoopTaskrun|setupDeferTaskrun) == 0 {
		p.flags &^= setupTaskrunFlag
	}
	return p
}

// setup makes a ring with these flags, without its mappings.
func (w *config) setup() (fd int, p params, errno syscall.Errno) {
	p = w.params()
	ring, _, errno := syscall.Syscall(sysSetup, uintptr(w.entries), uintptr(unsafe.Pointer(&p)), 0)
	return int(ring), p, errno
}

func open(w config) (*Ring, error) {
	r := &Ring{fd: -1, closeWait: closeWait}
	wanted := w.flags
	for {
		fd, p, errno := w.setupWaiting()
		if errno == 0 {
			r.fd, r.params = fd, p
			break
		}
		feature := w.dropFlag(errno)
		if feature == "" {
			return nil, explain(refusal.Uring, errno)
		}
		r.refusals = append(r.refusals, explain(feature, errno))
	}
	// If other flags were refused too, they may be the reason why the first attempt failed.
	if wanted&^w.flags&setupAttachWQ != 0 {
		w.flags |= setupAttachWQ
		if fd, p, errno := w.setup(); errno == 0 {
			_ = syscall.Close(r.fd)
			r.fd, r.params = fd, p
			r.refusals = slices.DeleteFunc(r.refusals, func(one *Refusal) bool {
				return one.Feature == "ATTACH_WQ"
			})
		}
	}
	if err := r.mmap(); err != nil {
		r.unmap()
		syscall.Close(r.fd)
		return nil, explain(refusal.Uring, err.(syscall.Errno))
	}
	r.kernel = r.enterKernel
	rings.add(r)
	return r, nil
}

// mmap maps the queues.
func (r *Ring) mmap() error {
	p := &r.params
	sqSize := int(p.sqOff.array + p.sqEntries*4)
	cqSize := int(p.cqOff.cqes + p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	if p.features&featSingleMmap == 0 {
		// Linux 5.4 and later map both queues at once. The package requires 5.6.
		return syscall.EINVAL
	}
	const prot = syscall.PROT_READ | syscall.PROT_WRITE
	const share = syscall.MAP_SHARED | syscall.MAP_POPULATE
	var err error
	if r.rings, err = syscall.Mmap(r.fd, offSQRing, max(sqSize, cqSize), prot, share); err != nil {
		return err
	}
	entries := int(p.sqEntries) * int(unsafe.Sizeof(sqe{}))
	if r.entries, err = syscall.Mmap(r.fd, offSQEs, entries, prot, share); err != nil {
		return err
	}
	r.view()
	return nil
}

// view sets the pointers into the mappings.
func (r *Ring) view() {
	p := &r.params
	word := func(offset uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.rings[offset])) }
	r.sqHead, r.sqTail, r.sqFlags = word(p.sqOff.head), word(p.sqOff.tail), word(p.sqOff.flags)
	r.cqHead, r.cqTail = word(p.cqOff.head), word(p.cqOff.tail)
	r.cqOverflow = word(p.cqOff.overflow)
	r.sqMask, r.cqMask = p.sqEntries-1, p.cqEntries-1
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&r.entries[0])), p.sqEntries)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&r.rings[p.cqOff.cqes])), p.cqEntries)
	r.tail, r.head = *r.sqTail, *r.cqHead
	if p.flags&setupNoSQArray == 0 {
		// The array maps each index to the entry of the same number.
		array := unsafe.Slice(word(p.sqOff.array), p.sqEntries)
		for i := range array {
			array[i] = uint32(i)
		}
	}
}

func (r *Ring) unmap() {
	for _, mapping := range []*[]byte{&r.rings, &r.entries} {
		if *mapping != nil {
			_ = syscall.Munmap(*mapping)
			*mapping = nil
		}
	}
}

// Refusals returns the setup flags that the kernel refused, each with the reason.
func (r *Ring) Refusals() []*Refusal { return r.refusals }

// SetupFlags returns the names of the setup flags in force, as in io_uring_setup(2) without the
// prefix.
func (r *Ring) SetupFlags() []string {
	var names []string
	for _, p := range append(dropOrder[:len(dropOrder):len(dropOrder)], struct {
		flags uint32
		name  string
	}{setupAttachWQ, "ATTACH_WQ"}) {
		if r.params.flags&p.flags != 0 {
			names = append(names, p.name)
		}
	}
	return names
}
