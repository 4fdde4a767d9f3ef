//go:build linux

// Making a ring, with less where the kernel does not grant all that is asked for.

package ring

import (
	"syscall"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

// Refusal is something that was asked for and not granted: the errno, what that means on this machine, and what an operator
// can do about it.
type Refusal = refusal.Refusal

// Options say what a ring is asked to be. The zero value makes a good ring.
//
// A flag that the kernel refuses is left out, the newest first, and the ring is made without it: [Ring.Refusals] has the
// reasons, [Ring.SetupFlags] what is left.
type Options struct {
	// Entries is the size of the submission queue: how many requests can be pushed before a submission. 0 means 64. The kernel
	// rounds it up to a power of two, at most 32768. Both queues are locked memory: about 64 bytes for each of these entries
	// and 16 for each entry for a completion.
	Entries uint32
	// CQEntries is the size of the completion queue; 0 means four times Entries. More requests may be in flight than
	// that: completions that do not fit wait in the kernel, which is slower. Kernel 5.5.
	CQEntries uint32
	// CoopTaskrun asks the kernel not to interrupt the thread that submitted in order to post completions. It posts them when
	// that thread enters the kernel for whatever reason: [Ring.Reap] sees to that. For rings whose thread enters the kernel
	// often. Kernel 5.19.
	CoopTaskrun bool
	// DeferTaskrun promises that one locked thread ([runtime.LockOSThread]) does everything with the ring, from New on. The
	// kernel then works on completions only when that thread waits or reaps (SINGLE_ISSUER and DEFER_TASKRUN), which groups
	// that work. Another thread's submission is EEXIST. Kernel 6.1.
	DeferTaskrun bool
	// SQPoll, if not 0, has a kernel thread take requests out of the submission queue, so that submissions need no system
	// call. After that many milliseconds without work the thread sleeps, and a submission wakes it. It keeps a processor busy.
	SQPoll uint32
	// IOPoll has the kernel poll the device for completions, instead of waiting for interrupts. It is for direct I/O on
	// devices that have polling queues; other operations are EINVAL or EOPNOTSUPP on such a ring. They complete only when the
	// ring is entered: call [Ring.SubmitAndWait].
	IOPoll bool
	// Attach shares the kernel threads (io-wq, and the one of SQPoll) of another ring that is open. Kernel 5.6.
	Attach *Ring
}

// wish is a set of setup flags that can be peeled.
type wish struct {
	entries, completions uint32
	flags                uint32
	idle                 uint32
	attach               int
}

// peeling is the order in which flags are given up on EINVAL: the newest or least needed first.
var peeling = []struct {
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

// peel gives up something still asked for; what that was, or nothing if the ring is not to be had.
func (w *wish) peel(errno syscall.Errno) (feature string) {
	switch errno {
	case syscall.ENOSYS, syscall.EMFILE, syscall.ENFILE:
		return ""
	case syscall.ENOMEM:
		// Memory that counts against RLIMIT_MEMLOCK: a smaller ring may still fit.
		if w.entries > 8 || w.completions > 32 {
			w.entries = max(w.entries/2, 2)
			w.completions = max(w.completions/2, w.entries)
			return "CQSIZE"
		}
	}
	if w.flags&setupAttachWQ != 0 {
		w.flags &^= setupAttachWQ
		return "ATTACH_WQ"
	}
	for _, p := range peeling {
		privileged := p.flags&(setupSQPoll|setupIOPoll) != 0
		if w.flags&p.flags != 0 && (errno == syscall.EINVAL || privileged) {
			w.flags &^= p.flags
			return p.name
		}
	}
	return ""
}

func (o Options) wish() wish {
	w := wish{entries: o.Entries, completions: o.CQEntries, attach: -1}
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
		// The kernel refuses the taskrun flags with it.
		w.flags |= setupSQPoll
		w.idle = o.SQPoll
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

// New makes a ring as near to the options as the kernel allows. The error is a *[Refusal], whose errno [errors.Is] finds: EPERM
// or ENOSYS where io_uring is not to be had, ENOMEM where not even a small ring fits under RLIMIT_MEMLOCK. The ring has to be
// closed: one that is only forgotten stays, since requests may be in flight.
func New(o Options) (*Ring, error) { return open(o.wish()) }

func open(w wish) (*Ring, error) {
	r := &Ring{fd: -1, closeWait: closeWait}
	for {
		p := params{flags: w.flags, cqEntries: w.completions, sqThreadIdle: w.idle}
		if w.flags&setupCQSize == 0 {
			p.cqEntries = 0
		}
		if w.flags&setupAttachWQ != 0 {
			p.wqFD = uint32(w.attach)
		}
		if w.flags&(setupCoopTaskrun|setupDeferTaskrun) == 0 {
			p.flags &^= setupTaskrunFlag
		}
		fd, _, errno := syscall.Syscall(sysSetup, uintptr(w.entries), uintptr(unsafe.Pointer(&p)), 0)
		if errno == 0 {
			r.fd, r.params = int(fd), p
			break
		}
		feature := w.peel(errno)
		if feature == "" {
			return nil, refusal.New(refusal.Uring, errno)
		}
		r.refusals = append(r.refusals, refusal.New(feature, errno))
	}
	if err := r.mmap(); err != nil {
		r.unmap()
		syscall.Close(r.fd)
		return nil, refusal.New(refusal.Uring, err.(syscall.Errno))
	}
	r.kernel = r.enterKernel
	rings.add(r)
	return r, nil
}

// mmap maps the queues.
func (r *Ring) mmap() error {
	p := &r.params
	sqSize := int(p.sqOff.array + p.sqEntries*4)
	if p.flags&setupNoSQArray != 0 {
		sqSize = int(p.sqOff.array)
	}
	cqSize := int(p.cqOff.cqes + p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	if p.features&featSingleMmap == 0 {
		// Kernel 5.4 and newer have both in one mapping; reads of 5.6 are the least that is of use here.
		return syscall.EINVAL
	}
	const prot, share = syscall.PROT_READ | syscall.PROT_WRITE, syscall.MAP_SHARED | syscall.MAP_POPULATE
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

// view lays the structures over the mappings.
func (r *Ring) view() {
	p := &r.params
	word := func(offset uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.rings[offset])) }
	r.sqHead, r.sqTail, r.sqFlags = word(p.sqOff.head), word(p.sqOff.tail), word(p.sqOff.flags)
	r.cqHead, r.cqTail, r.cqOverflow = word(p.cqOff.head), word(p.cqOff.tail), word(p.cqOff.overflow)
	r.sqMask, r.cqMask = p.sqEntries-1, p.cqEntries-1
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&r.entries[0])), p.sqEntries)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&r.rings[p.cqOff.cqes])), p.cqEntries)
	r.tail, r.head = *r.sqTail, *r.cqHead
	if p.flags&setupNoSQArray == 0 {
		// Entry n always stands in place n.
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

// Refusals are the set-up flags that were asked for and not granted, each with its reason.
func (r *Ring) Refusals() []*Refusal { return r.refusals }

// SetupFlags are the names of the set-up flags in force, as io_uring_setup(2) has them without the prefix.
func (r *Ring) SetupFlags() []string {
	var names []string
	for _, p := range append(peeling[:len(peeling):len(peeling)], struct {
		flags uint32
		name  string
	}{setupAttachWQ, "ATTACH_WQ"}) {
		if r.params.flags&p.flags != 0 {
			names = append(names, p.name)
		}
	}
	return names
}
