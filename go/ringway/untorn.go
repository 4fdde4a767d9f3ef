// Untorn writes, which Linux also calls atomic: RWF_ATOMIC of pwritev2(2).

package ringway

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

//lint:ignore U1000 Systems without rings do not use it.
const rwfAtomic = 0x40

// ErrTorn is in the error of [File.WriteUntornAt] if the kernel has made a part of the write: the
// range begins with new bytes and ends with old ones. The writes of which kernels are known to do
// so are refused. Read the range back, and write it again.
var ErrTorn = errors.New("the kernel has made only a part of an untorn write")

// AtomicWriteUnit is the sizes of the untorn writes of a file, in bytes, as statx(2) reports them
// with STATX_WRITE_ATOMIC (kernel 6.11). A length is a power of two from Min to Max, and an offset
// a multiple of the length.
type AtomicWriteUnit struct {
	Min int // Min is the shortest untorn write.
	Max int // Max is the longest one.
	// MaxOpt is the longest one that the device makes itself (kernel 6.16). The file system makes
	// longer ones, which takes longer: it writes elsewhere and exchanges the blocks. It is 0 if no
	// such limit is reported; on XFS that may mean that the device makes none, and the file system
	// all.
	MaxOpt int
	// MaxSegments is the most buffers of one, 1 on every kernel so far.
	MaxSegments int
}

// fits reports whether an untorn write may have n bytes.
func (u AtomicWriteUnit) fits(n int) bool {
	return n > 0 && n&(n-1) == 0 && u.Min <= n && n <= u.Max
}

// AtomicWriteUnit returns the sizes of the untorn writes of f: see [File.WriteUntornAt]. The error
// is a [*Refusal], and [errors.ErrUnsupported] to errors.Is, if f has none. XFS has them on kernel
// 6.16 and newer, on any device; block devices from 6.11 on, and ext4 and XFS from 6.13 on, if the
// device has atomic writes. It does not depend on how f is open; the write does.
func (f *File) AtomicWriteUnit() (unit AtomicWriteUnit, err error) {
	err = f.use("statx", func() (err error) { unit, err = f.untornUnit(); return err })
	return unit, err
}

// untornUnit is AtomicWriteUnit of a file that is held open.
func (f *File) untornUnit() (AtomicWriteUnit, error) {
	unit, err := f.atomicWriteUnit()
	if err == nil && unit.Max == 0 {
		err = noUntornWrites()
	}
	return unit, err
}

// noUntornWrites explains that a file has none.
func noUntornWrites() *Refusal {
	if transferFlags {
		return unavailable(refusal.AtomicWrite, syscall.EOPNOTSUPP)
	}
	return &Refusal{Feature: refusal.AtomicWrite, Errno: syscall.EOPNOTSUPP,
		Meaning: "ringway has untorn writes only on Linux, on amd64, arm64, loong64 and riscv64"}
}

// WriteUntornAt writes p at an offset untorn, which Linux also calls atomic: after a crash or a
// power failure the range has all of p or nothing of it (RWF_ATOMIC). [File.AtomicWriteUnit]
// returns the lengths that f takes; the offset is a multiple of the length. The file is open for
// direct I/O ([Direct]), and not for appending. The buffer need not be aligned: then a copy is
// written.
//
// Either all of p is written or there is an error. It is never made as a plain write, in pieces or
// in part. A refusal is a [*Refusal] in the error, with errno, reason and fix, and nothing is
// written: EOPNOTSUPP, which is [errors.ErrUnsupported] to errors.Is, if f has no untorn writes or
// is not open for direct I/O, or if the file system refuses what it reports, as an overlay does;
// EINVAL for another length or offset; EFBIG beyond RLIMIT_FSIZE, where the kernel would write a
// part; EAGAIN, after a few tries, if pages of the range are cached and are dirtied all the time,
// through a mapping or by buffered writes. It is [ErrTorn] and EIO if the kernel has nevertheless
// written a part. Whether f appends is what it was when f was opened.
//
// On a block device nobody else may use its page cache: if a page of the range is cached and busy,
// the kernel makes a plain buffered write of it, and reports success.
//
// The write is as durable as a plain one: until a sync ([File.Datasync]), a crash may undo it as a
// whole. A read that runs at the same time may see a part of it. It is one range of an open file; a
// whole file, of any length, is replaced by writing to another name and renaming that.
func (f *File) WriteUntornAt(p []byte, off int64) error {
	switch {
	case f == nil:
		return os.ErrInvalid
	case off < 0:
		return f.fail("writeat", errNegative)
	}
	return f.use("write", func() error {
		if err := f.checkUntorn(len(p), off); err != nil {
			return err
		}
		return f.writeUntorn(p, off)
	})
}

// checkUntorn returns why a write cannot be untorn.
func (f *File) checkUntorn(n int, off int64) error {
	unit, err := f.untornUnit()
	if err != nil {
		return err
	}
	why := &Refusal{Feature: refusal.AtomicWrite, Errno: syscall.EINVAL}
	switch {
	case !f.direct:
		why.Errno = syscall.EOPNOTSUPP
		why.Meaning = "the file is not open for direct I/O, without which the kernel refuses " +
			"untorn writes"
		why.Fix = "open the file with ringway.Direct"
	case f.append:
		why.Meaning = "the file is open for appending, so the write would not be at its offset"
		why.Fix = "open the file without os.O_APPEND"
	case !unit.fits(n):
		why.Meaning = "the length is not a power of two, or not one that the file takes"
		why.Fix = fmt.Sprintf("write a power of two of bytes within its atomic write unit, here "+
			"%d to %d bytes", unit.Min, unit.Max)
	case off%int64(n) != 0:
		why.Meaning = "the offset is not a multiple of the length"
		why.Fix = "place each untorn write at a multiple of its length"
	case !f.blockDevice && uint64(off)+uint64(n) > fileSizeLimit():
		why.Errno = syscall.EFBIG
		why.Meaning = "the write would end beyond the limit on the size of files " +
			"(RLIMIT_FSIZE), where the kernel cuts it"
		why.Fix = "raise the limit (ulimit -f)"
	default:
		return nil
	}
	return why
}

// writeUntorn makes a write that passes the checks.
func (f *File) writeUntorn(p []byte, off int64) error {
	if addressOf(p)&uintptr(f.directLimits().memory-1) != 0 {
		buffer, err := f.engine.borrow(len(p))
		if err != nil {
			return err
		}
		defer buffer.release()
		p = buffer.memory[:copy(buffer.memory, p)]
	}
	n, err := f.untornWrite(p, off)
	var errno syscall.Errno
	switch {
	case err == nil && n < len(p):
		return fmt.Errorf("ringway: %d of %d bytes: %w: %w", n, len(p), ErrTorn, syscall.EIO)
	case !errors.As(err, &errno):
		return err
	}
	switch errno {
	case syscall.EOPNOTSUPP, syscall.EINVAL, syscall.ENOSYS, syscall.EAGAIN:
		return unavailable(refusal.AtomicWrite, errno)
	}
	return err
}
