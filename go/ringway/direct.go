// Direct I/O: what devices require, and transfers through aligned buffers.

package ringway

import (
	"io"
	"syscall"
	"unsafe"
)

// directLimits is what a device requires of direct transfers.
type directLimits struct {
	memory, offset int // Alignment of the buffer; of the offset and the length.
	largest        int // Most bytes of one request of the device. Larger reads are split.
	// The file system is known to be one on which a direct read stops within a block only at the
	// end of the file.
	exact bool
}

// pageLimits suits every device.
var pageLimits = directLimits{memory: pageSize, offset: pageSize, largest: maxTransfer}

// facts is what is known of a file: which queues may make its transfers, and, if it is open for
// direct I/O, what its device requires. A file of which nothing is known has no limits: its direct
// transfers are the system calls that package os would make.
type facts struct {
	directLimits
	//lint:ignore U1000 Systems without rings do not use it.
	placement
	//lint:ignore U1000 Systems without rings do not use it.
	queue *blockQueue // Of the disk, or nil.
}

// lookUp returns the facts. The first call looks them up, which may wait for a server. So a method
// with a context calls it within detach.
func (f *File) lookUp() *facts {
	f.factsOnce.Do(f.setFacts)
	return &f.facts
}

func (f *File) setFacts() {
	f.facts = f.lookUpFacts()
	f.facts.largest = wholeBlocks(f.facts.largest, f.facts.offset)
}

// wholeBlocks returns the largest request in whole blocks, and at least one.
func wholeBlocks(largest, block int) int { return max(largest&^(block-1), block) }

// directLimits returns the limits of direct transfers.
func (f *File) directLimits() *directLimits {
	facts := f.lookUp()
	if f.needsPages.Load() {
		return &pageLimits
	}
	return &facts.directLimits
}

// addressOf returns the address of a buffer.
func addressOf(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }

// aligned reports whether a direct transfer is aligned.
func (l *directLimits) aligned(address uintptr, off int64, n int) bool {
	return int(address)&(l.memory-1) == 0 && int(off)&(l.offset-1) == 0 && n&(l.offset-1) == 0
}

// tellsEnd reports whether a direct read that stops after n bytes has met the end of the file.
func (l *directLimits) tellsEnd(n int) bool { return l.exact && n&(l.offset-1) != 0 }

// isAligned reports whether it is certain that a direct transfer is aligned.
func (f *File) isAligned(p []byte, off int64) bool {
	l, address := f.directLimits(), addressOf(p)
	return l.aligned(address, off, len(p)) &&
		(l.exact || pageLimits.aligned(address, off, len(p)))
}

// maxBounce is the most that one transfer moves through an aligned buffer because the caller's is
// not aligned.
const maxBounce = 1 << 20

// throughBuffer makes a step through an aligned buffer: of a write, with a copy of the data; of a
// read, with the enclosing blocks.
func (f *File) throughBuffer(w *work, plan plan) (n int, err error) {
	buffer, err := f.engine.borrow(plan.span.size)
	if err != nil {
		return 0, err
	}
	defer buffer.release()
	p, memory, skip := w.p[:plan.n], buffer.memory[:plan.span.size], plan.span.skip
	inner := *w
	inner.inBuffer, inner.p = true, memory
	if w.op == opWrite {
		copy(memory, p)
		n, _, err = f.step(&inner)
		return n, err
	}
	inner.off -= int64(skip)
	block := f.directLimits().offset
	got, want := 0, skip+len(p)
	for got < want {
		n, _, err := f.step(&inner)
		got += n
		inner.p, inner.off = memory[got:], inner.off+int64(n)
		// After a read that stopped within a block, some file systems refuse to read on.
		refused := err == syscall.EINVAL && got&(block-1) != 0
		if err == io.EOF || refused && f.endsAt(inner.off) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if got <= skip {
		return 0, nil
	}
	n = copy(p, memory[skip:got])
	if got < want {
		err = io.EOF
	}
	return n, err
}

// endsAt reports whether the file ends at an offset, or before.
func (f *File) endsAt(off int64) bool {
	info, err := f.file.Stat()
	return err == nil && info.Size() <= off
}
