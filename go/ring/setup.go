//go:build linux

package ring

import (
	"syscall"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

// Refusal is something that was asked for and not granted: the errno, its meaning on this machine, and the mend.
type Refusal = refusal.Refusal

// Options say what a ring is asked to be. The zero value is a good ring.
//
// Flags that the kernel refuses are given up one by one, the newest first, and [Ring.Refusals] has the reasons.
type Options struct {
	// Entries of the submission queue; 0 means 64. They are locked memory: about 200 bytes each, with completions.
	Entries uint32
	// CompletionEntries of the completion queue; 0 means four times Entries.
	CompletionEntries uint32
	// CoopTaskrun asks that completions do not interrupt the thread that submitted. They are posted when that thread
	// next enters the kernel, for whatever reason.
	CoopTaskrun bool
	// SingleThread promises that one locked thread (runtime.LockOSThread) does everything from New on. The kernel then
	// leaves completions to that thread's waits (SINGLE_ISSUER and DEFER_TASKRUN, kernel 6.1).
	SingleThread bool
	// SQPoll has a kernel thread poll the submission queue, which sleeps after this many idle milliseconds; 0 is none.
	SQPoll uint32
	// IOPoll polls the device for completions of direct I/O. Everything else is EINVAL or EOPNOTSUPP on such a ring.
	IOPoll bool
	// Attach shares the kernel threads of another ring.
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
	w := wish{entries: o.Entries, completions: o.CompletionEntries, attach: -1}
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
	case o.SingleThread:
		w.flags |= setupSingleIssuer | setupDeferTaskrun | setupTaskrunFlag
	case o.CoopTaskrun:
		w.flags |= setupCoopTaskrun | setupTaskrunFlag
	}
	if o.IOPoll {
		w.flags |= setupIOPoll
	}
	if o.Attach != nil {
		w.flags |= setupAttachWQ
		w.attach = o.Attach.fd
	}
	return w
}

// New makes a ring as near to the options as the kernel allows. The error is a *[Refusal].
func New(o Options) (*Ring, error) {
	w := o.wish()
	r := &Ring{closeWait: closeWait}
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

// Refusals are the flags that were asked for and not granted.
func (r *Ring) Refusals() []*Refusal { return r.refusals }

// Granted names the setup flags in force.
func (r *Ring) Granted() []string {
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
