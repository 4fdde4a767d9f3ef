//go:build linux

// The conformance cases through package ring. A ring is the kernel's interface: it lacks what the
// queues of other bindings add, such as a limit on operations in flight, refusals before the
// kernel, and continued transfers within a chain.

package ringway

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/internal/kernel"
	"github.com/ringway-io/ringway/go/ring"
)

// ringBinding runs cases through a ring, and counts its operations.
type ringBinding struct {
	run               *caseRun
	ring              *ring.Ring
	pushed, delivered int
}

func (d *ringBinding) String() string { return "ring" }

// notByRing has cases that package ring cannot express, with the reason.
var notByRing = map[string]string{
	"a failure cancels the rest of a chain":                   kernelsLinks,
	"every kind of failure cancels the rest of a chain":       kernelsLinks,
	"continue_on_error continues a chain":                     kernelsLinks,
	"continue_on_error after a cancelled member":              kernelsLinks,
	"a chain longer than the submission queue":                oneSubmission,
	"a failure in a long chain":                               oneSubmission,
	"an exact read that is continued does not cancel a chain": shortEnds,
	"a chain and a submission queue of one entry":             oneSubmission,
	"a cancelled barrier holds nothing back":                  behindBarrier,
	"a barrier that fails and one that is cancelled":          behindBarrier,
	"cancelling an operation that waits for a barrier":        behindBarrier,
	"cancel everything":                                       behindBarrier,
	"cancel before submission":                                notPending,
	"direct transfers at the current position":                noPosition,
	"sockets have no offsets":                                 socketOffset,
}

// notByOldRing has cases that package ring cannot express on kernels older than a version.
var notByOldRing = map[string]struct {
	major, minor int
	why          string
}{
	"a bad descriptor cancels the rest of a chain": {5, 19, "a bad descriptor fails a whole chain"},
	"a barrier":        {6, 18, nextStarts},
	"a direct barrier": {6, 18, nextStarts},
	"a barrier that fails is still a barrier": {6, 18, nextStarts},
	"a barrier waits for earlier operations":  {6, 18, nextStarts},
}

const (
	nextStarts    = "what follows a barrier starts when that has started"
	kernelsLinks  = "chains of the kernel continue after some failures (see Request.Link)"
	shortEnds     = "a short transfer ends a chain of the kernel"
	notPending    = "a ring cancels only what the kernel has; Withdraw takes back the rest"
	noPosition    = "the kernel does not move the position after an asynchronous direct transfer"
	socketOffset  = "a write to a socket at an offset other than 0 is ESPIPE"
	oneSubmission = "a chain must be one submission"
	behindBarrier = "requests behind a barrier, also cancels, wait in the kernel"
)

// otherByRing has steps of cases whose result with io_uring is not that of the plain call.
var otherByRing = map[string]map[string]string{
	"transfers on a directory": {"read fd=f len=0": "0", "read fd=f len=0 offset=current": "0"},
	"write to a broken socket": {"write fd=a data=fill(0,8) offset=7": "-ESPIPE"},
}

func (d *ringBinding) other(c *conformanceCase) map[string]string { return otherByRing[c.name] }

func (d *ringBinding) cannot(c *conformanceCase) string {
	if why := notByRing[c.name]; why != "" {
		return why
	}
	if why := tooOld(c); why != "" {
		return why
	}
	if _, faults := c.option("faults"); faults {
		return "a ring does not inject faults"
	}
	_, limited := c.option("in_flight")
	if c.has("free_slots") || limited && c.has("refuse") {
		return "a ring has no limit on operations in flight"
	}
	for _, s := range c.steps {
		if s.words[0] == "end" && len(s.words) > 1 {
			return "a ring does not refuse a chain: the kernel refuses single requests"
		}
	}
	return ""
}

// tooOld returns why a ring of this kernel, but not of newer ones, cannot express a case, or "".
func tooOld(c *conformanceCase) (why string) {
	if old := notByOldRing[c.name]; !kernel.AtLeast(old.major, old.minor) {
		return fmt.Sprintf("before Linux %d.%d: %s", old.major, old.minor, old.why)
	}
	if c.has("cancel_all") && !kernel.AtLeast(6, 0) {
		return "before Linux 6.0: nothing cancels everything"
	}
	c.operations(func(_ string, w caseWords) {
		if lacks(w[0]) {
			why = "io_uring of this kernel has no " + w[0]
		}
	})
	return why
}

// later are operations that not every kernel with io_uring has.
var later = map[string]ring.Opcode{"rename": ring.OpRenameat, "unlink": ring.OpUnlinkat,
	"mkdir": ring.OpMkdirat, "symlink": ring.OpSymlinkat, "link": ring.OpLinkat,
	"ftruncate": ring.OpFtruncate}

// kernelProbe returns what the kernel has; nil without io_uring.
var kernelProbe = sync.OnceValue(func() *ring.Probe {
	r, err := ring.New(ring.Options{})
	if err != nil {
		return nil
	}
	defer r.Close()
	probe, _ := r.Probe()
	return probe
})

// lacks reports whether the kernel has io_uring, but without an operation.
func lacks(kind string) bool {
	opcode, isLater := later[kind]
	return isLater && kernelProbe() != nil && !kernelProbe().Supports(opcode)
}

func (d *ringBinding) omits(w caseWords) string {
	if w[0] == "sync_range" && w.number("len") > math.MaxUint32 {
		return "the length of a sync_file_range has 32 bits in the kernel's interface"
	}
	if w[0] == "fadvise" && w.number("len") > math.MaxUint32 && !kernel.AtLeast(6, 10) {
		return "the length of an fadvise has 32 bits in the interface of this kernel"
	}
	return ""
}

func (d *ringBinding) open(r *caseRun) (err error) {
	d.run = r
	number := func(name string) uint32 { return uint32(caseNumber(cmp.Or(r.options[name], "0"))) }
	d.ring, err = ring.New(ring.Options{Entries: number("entries"),
		CQEntries: number("completion_entries")})
	return err
}

func (d *ringBinding) adopt(fd int, _ string) (*descriptor, error) {
	return &descriptor{fd: fd}, nil
}

func (d *ringBinding) openPath(name string, flags int) (*descriptor, error) {
	fd, err := syscall.Open(name, flags|syscall.O_CLOEXEC, 0)
	return &descriptor{fd: fd}, err
}

func (d *ringBinding) close() error { return d.ring.Close() }

// prepare returns the request for an operation. buffers are what is left to transfer.
func (r *caseRun) prepare(op *operation, buffers [][]byte, done int) *ring.Request {
	q, w := new(ring.Request), op.words
	fd, off, n := func() int { return r.fd(w, "fd") }, w.offset(), int64(w.number("len"))
	if off != ring.CurrentPosition {
		off += int64(done)
	}
	dir, dir2, bits := r.fd(w, "dir"), r.fd(w, "dir2"), w.bits("flags")
	path := func(key string) string { return casePath(w.need(key)) }
	switch op.kind {
	case "nop":
		q.Nop()
	case "read":
		q.Read(fd(), buffers[0], off)
	case "write":
		q.Write(fd(), buffers[0], off)
	case "readv":
		q.Readv(fd(), buffers, off)
	case "writev":
		q.Writev(fd(), buffers, off)
	case "fsync":
		q.Fsync(fd())
	case "fdatasync":
		q.Fdatasync(fd())
	case "sync_range":
		q.SyncFileRange(fd(), off, uint32(n), uint32(bits))
	case "fallocate":
		q.Fallocate(fd(), uint32(w.bits("mode")), off, n)
	case "ftruncate":
		q.Ftruncate(fd(), n)
	case "fadvise":
		q.Fadvise(fd(), off, n, int(w.bits("advice")))
	case "close":
		q.Close(fd())
	case "open":
		q.Openat2(dir, path("path"), bits, w.bits("mode"), w.bits("resolve"))
	case "statx":
		mask := uint32(cmp.Or(w.bits("mask"), caseFlags["STATX_BASIC_STATS"]))
		q.Statx(dir, path("path"), int(bits), mask)
	case "rename":
		q.Renameat(dir, path("path"), dir2, path("path2"), uint32(bits))
	case "link":
		q.Linkat(dir, path("path"), dir2, path("path2"), uint32(bits))
	case "unlink":
		q.Unlinkat(dir, path("path"), uint32(bits))
	case "mkdir":
		q.Mkdirat(dir, path("path"), uint32(w.bits("mode")))
	case "symlink":
		q.Symlinkat(path("target"), dir, path("path"))
	case "poll":
		q.Poll(fd(), uint32(w.bits("events")))
	case "timeout":
		q.Timeout(duration(w.number("ns")))
	default:
		throw("unknown operation: %s", op.kind)
	}
	q.UserData = op
	return q
}

// duration converts 64-bit nanoseconds.
func duration(ns uint64) time.Duration { return time.Duration(min(ns, math.MaxInt64)) }

func (d *ringBinding) push(ops ...*operation) error {
	var all []*ring.Request
	for i, op := range ops {
		q := d.run.prepare(op, op.buffers, 0)
		if op.kind == "close" {
			delete(d.run.names, op.words.need("fd"))
		}
		if op.words.has("drain") {
			q.Drain()
		}
		// The kernel does not continue a short transfer within a chain.
		op.exact = op.exact && len(ops) == 1
		last := q
		op.request, op.left = q, 1
		all = append(all, q)
		if ns, ok := op.words.get("timeout"); ok {
			if op.words.has("continue_on_error") {
				q.Hardlink()
			} else {
				q.Link()
			}
			op.limit = new(ring.Request).LinkTimeout(duration(caseNumber(ns)))
			op.limit.UserData = op
			op.left = 2
			all = append(all, op.limit)
			last = op.limit
		}
		if i < len(ops)-1 {
			// A timeout completes with ETIME, which the kernel counts as a failure.
			if op.words.has("continue_on_error") || op.kind == "timeout" {
				last.Hardlink()
			} else {
				last.Link()
			}
		}
	}
	return d.send(all...)
}

// send pushes requests into one submission.
func (d *ringBinding) send(all ...*ring.Request) error {
	for d.ring.SpaceLeft() < len(all) {
		if err := d.submit(); err != nil {
			return err
		}
		if d.ring.SpaceLeft() < len(all) {
			if d.ring.Pending() == 0 {
				return fmt.Errorf("no free slots for a chain of %d", len(all))
			}
			if err := d.reap(0); err != nil {
				return err
			}
		}
	}
	for _, q := range all {
		if err := d.ring.Push(q); err != nil {
			return err
		}
		d.pushed++
	}
	return nil
}

func (d *ringBinding) submit() error {
	for d.ring.Pending() > 0 {
		n, err := d.ring.Submit()
		if err == ring.ErrReap || err == nil && n == 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *ringBinding) reap(least int) error {
	begin := d.run.completedCount
	for {
		wait := 0
		if d.run.completedCount-begin < least {
			wait = 1
		}
		if _, err := d.ring.SubmitAndWait(wait, caseTime/2); err != nil && err != ring.ErrReap {
			return err
		}
		var done [64]ring.Completion
		n := d.ring.Reap(done[:])
		for _, c := range done[:n] {
			d.delivered++
			if op, ok := c.Request.UserData.(*operation); ok {
				if err := d.completed(op, c); err != nil {
					return err
				}
			} else {
				*c.Request.UserData.(*int) = int(c.Result)
			}
		}
		if n < len(done) && d.run.completedCount-begin >= least {
			return nil
		}
	}
}

// completed handles a completion of an operation: its own, or that of its time limit.
func (d *ringBinding) completed(op *operation, c ring.Completion) error {
	op.left--
	if c.Request == op.limit {
		op.late = c.Err() == syscall.ETIME
	} else {
		op.result = int(c.Result)
	}
	if op.left > 0 {
		return nil
	}
	result := op.result
	switch {
	case op.late && (result == -int(syscall.ECANCELED) || result == -int(syscall.EINTR)):
		result = -int(syscall.ETIMEDOUT)
	case op.kind == "timeout" && result == -int(syscall.ETIME):
		result = 0 // The kernel reports as an error that the time has passed.
	case op.exact && result > 0:
		if op.got += result; op.got < sum(op.buffers) {
			return d.resume(op)
		}
		result = op.got
	case op.exact && result == 0:
		result = op.got
	}
	switch op.kind {
	case "open":
		if result >= 0 {
			if err := d.run.call(op.name, &descriptor{fd: result}); err != nil {
				return err
			}
		}
	case "statx":
		stat := op.request.Stat()
		op.stat = &stat
	}
	return d.run.finish(op, result)
}

// resume transfers the rest of a short transfer.
func (d *ringBinding) resume(op *operation) error {
	skip := op.got
	var rest [][]byte
	for _, b := range op.buffers {
		n := min(skip, len(b))
		skip -= n
		if n < len(b) {
			rest = append(rest, b[n:])
		}
	}
	op.request = d.run.prepare(op, rest, op.got)
	op.left = 1
	if op.limit == nil {
		return d.send(op.request)
	}
	op.left = 2
	op.limit = new(ring.Request).LinkTimeout(duration(op.words.number("timeout")))
	op.limit.UserData = op
	return d.send(op.request.Link(), op.limit)
}

func (d *ringBinding) ready(n int) error {
	for d.ring.Ready() < n {
		if err := d.submit(); err != nil {
			return err
		}
		time.Sleep(100 * time.Microsecond)
	}
	return nil
}

// control pushes a request that concerns others, and waits for its result.
func (d *ringBinding) control(q *ring.Request) (int, error) {
	result := math.MinInt
	q.UserData = &result
	if err := d.send(q); err != nil {
		return 0, err
	}
	for result == math.MinInt { // The run of the case ends a wait that is too long.
		if err := errors.Join(d.submit(), d.reap(0)); err != nil {
			return 0, err
		}
	}
	return result, nil
}

func (d *ringBinding) cancel(op *operation) (int, error) {
	result, err := d.control(new(ring.Request).Cancel(op.request))
	if result == -int(syscall.EALREADY) {
		result = 0 // The operation is in progress; its own result will show.
	}
	return result, err
}

func (d *ringBinding) cancelAll() (int, error) {
	found, err := d.control(new(ring.Request).CancelAll())
	if found < 0 {
		return 0, errors.Join(err, syscall.Errno(-found))
	}
	return found, err
}

func (d *ringBinding) checkCounts() error {
	if inFlight := d.ring.InFlight(); d.pushed != d.delivered+inFlight {
		return fmt.Errorf("%d pushed, %d delivered, %d in flight", d.pushed, d.delivered, inFlight)
	}
	if n := d.ring.Overflow(); n != 0 {
		return fmt.Errorf("%d completions were lost", n)
	}
	return nil
}
