// Direct I/O: alignment, and reads that are not aligned.

package ringway

import (
	"context"
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
	waits waits
	//lint:ignore U1000 Systems without rings do not use it.
	queue *blockQueue // Of the disk, or nil.
}

// lookUp returns the facts. The first call looks them up, which may wait for a server. So a method
// with a context calls it within detach.
func (f *File) lookUp() *facts {
	f.factsOnce.Do(func() {
		f.facts = f.lookUpFacts()
		f.facts.largest &^= f.facts.offset - 1
	})
	return &f.facts
}

// directLimits returns the limits of direct transfers.
func (f *File) directLimits() directLimits {
	facts := f.lookUp()
	if f.needsPages.Load() {
		return pageLimits
	}
	return facts.directLimits
}

// mustAlign reports whether a direct transfer that the limits allow failed because it was not
// aligned. The file's limits then are pages, and the transfer can be repeated.
func (f *File) mustAlign(err error, l directLimits, p []byte, off int64) bool {
	if err != syscall.EINVAL || l.offset > 1 || pageLimits.aligned(p, off) {
		return false
	}
	f.needsPages.Store(true)
	return true
}

// aligned reports whether a direct transfer is aligned.
func (l directLimits) aligned(p []byte, off int64) bool {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(p))))&(l.memory-1) == 0 &&
		int(off)&(l.offset-1) == 0 && len(p)&(l.offset-1) == 0
}

// isAligned reports whether it is certain that a direct transfer is aligned.
func (f *File) isAligned(p []byte, off int64) bool {
	l := f.directLimits()
	return l.aligned(p, off) && (l.exact || pageLimits.aligned(p, off))
}

// fits reports whether a direct transfer is aligned and one request of the device.
func (f *File) fits(p []byte, off int64) bool {
	return f.isAligned(p, off) && len(p) <= f.directLimits().largest
}

// maxBounce is the most that one transfer moves through an aligned buffer because the caller's is
// not aligned.
const maxBounce = 1 << 20

// readDirect reads once. It returns io.EOF if it knows that the file ends there.
func (f *File) readDirect(ctx context.Context, p []byte, off int64) (int, error) {
	l := f.directLimits()
	if l.aligned(p, off) {
		n, err := f.readAligned(ctx, l, p, off)
		if !f.mustAlign(err, l, p, off) {
			return n, err
		}
		l = f.directLimits()
	}
	p = p[:min(len(p), maxBounce)]
	start := off &^ int64(l.offset-1)
	skip := int(off - start)
	size := (skip + len(p) + l.offset - 1) &^ (l.offset - 1)
	if start > maxOffset-int64(size) {
		if size -= l.offset; size == 0 {
			return f.readLastBlock(ctx, p, off)
		}
	}
	buffer := f.engine.borrow(size)
	defer buffer.release()
	got, want := 0, min(size, skip+len(p))
	for got < want {
		n, err := f.readAligned(ctx, l, buffer.memory[got:size], start+int64(got))
		got += n
		// After a read that stopped within a block, some file systems refuse to read on.
		refused := err == syscall.EINVAL && got&(l.offset-1) != 0
		if err == io.EOF || err == nil && n == 0 || refused && f.endsAt(start+int64(got)) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if got <= skip {
		return 0, nil
	}
	n := copy(p, buffer.memory[skip:got])
	if got < want {
		return n, io.EOF
	}
	return n, nil
}

// readLastBlock reads in the last block before 2^63, which no aligned transfer can reach.
func (f *File) readLastBlock(ctx context.Context, p []byte, off int64) (int, error) {
	if info, err := f.file.Stat(); err != nil || info.Size() <= off {
		return 0, err
	}
	return f.transfer(ctx, opRead, p, off) // The kernel has the error.
}

// endsAt reports whether the file ends at an offset, or before.
func (f *File) endsAt(off int64) bool {
	info, err := f.file.Stat()
	return err == nil && info.Size() <= off
}

// readAligned reads an aligned range once, split into the device's requests if it is larger.
func (f *File) readAligned(ctx context.Context, l directLimits, p []byte, off int64) (int, error) {
	n, err := 0, error(nil)
	if len(p) <= l.largest || !f.engine.supports(f, opRead, off) {
		n, err = f.transfer(ctx, opRead, p, off)
	} else {
		n, err = f.readSplit(ctx, l, p, off)
	}
	if err == nil && l.exact && n < len(p) && n&(l.offset-1) != 0 {
		return n, io.EOF
	}
	return n, err
}
