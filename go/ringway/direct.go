package ringway

// Direct I/O: alignment, and reads that are not aligned.

import (
	"context"
	"io"
	"unsafe"
)

// directLimits is what a device requires of direct transfers.
type directLimits struct {
	memory, offset int // Alignment of the buffer; of the offset and the length.
	largest        int // Most bytes of one request of the device. Larger reads are split.
}

// directLimits returns the limits of the file's device, which are looked up once.
func (f *File) directLimits() directLimits {
	f.device.Do(func() {
		f.limits = deviceLimits(f.fd)
		if f.limits.memory == 0 || f.limits.offset == 0 {
			// Unknown: this suits all devices of such kernels.
			f.limits.memory, f.limits.offset = pageSize, pageSize
		}
		f.limits.largest &^= f.limits.offset - 1
	})
	return f.limits
}

// aligned reports whether a direct transfer is aligned.
func (l directLimits) aligned(p []byte, off int64) bool {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(p))))&(l.memory-1) == 0 &&
		int(off)&(l.offset-1) == 0 && len(p)&(l.offset-1) == 0
}

// fits reports whether a direct transfer is aligned and one request of the device.
func (f *File) fits(p []byte, off int64) bool {
	l := f.directLimits()
	return l.aligned(p, off) && len(p) <= l.largest
}

// maxBounce is the most that one transfer moves through an aligned buffer because the caller's is
// not aligned.
const maxBounce = 1 << 20

// readDirect reads once. It returns io.EOF if it knows that the file ends there.
func (f *File) readDirect(ctx context.Context, p []byte, off int64) (int, error) {
	l := f.directLimits()
	if l.aligned(p, off) {
		return f.readAligned(ctx, l, p, off)
	}
	p = p[:min(len(p), maxBounce)]
	start := off &^ int64(l.offset-1)
	skip := int(off - start)
	size := (skip + len(p) + l.offset - 1) &^ (l.offset - 1)
	buffer := f.engine.borrow(size)
	defer buffer.release()
	got := 0
	for got < skip+len(p) {
		n, err := f.readAligned(ctx, l, buffer.memory[got:size], start+int64(got))
		got += n
		if err == io.EOF || err == nil && n == 0 {
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
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readAligned reads an aligned range once, split into the device's requests if it is larger.
func (f *File) readAligned(ctx context.Context, l directLimits, p []byte, off int64) (int, error) {
	n, err := 0, error(nil)
	if len(p) <= l.largest || !f.engine.supports(f, opRead, off) {
		n, err = f.transfer(ctx, opRead, p, off)
	} else {
		n, err = f.readSplit(ctx, l, p, off)
	}
	if err == nil && n < len(p) && n&(l.offset-1) != 0 {
		return n, io.EOF // A direct read stops within a block only at the end of the file.
	}
	return n, err
}
