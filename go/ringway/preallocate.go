// Blocks for data that a file will get: reserved, or written with zeroes.

package ringway

import (
	"errors"
	"fmt"
	"math"
	"syscall"
)

// zeroesAtOnce is the length of a write of zeroes.
const zeroesAtOnce = 1 << 20

// Why PreallocateWritten refuses a file or a range.
var (
	errOverwrites = fmt.Errorf("the range begins before the end of the file, where data could be "+
		"lost: begin at the end: %w", syscall.EINVAL)
	errAppendZeroes = fmt.Errorf("open the file without O_APPEND, which ignores offsets: %w",
		syscall.EINVAL)
)

// Preallocate allocates disk blocks for a range, as fallocate(2) does. It does not change the
// content; the file grows if it ends before the range does. A file system without this operation
// fails with EOPNOTSUPP, a system without it with [errors.ErrUnsupported], which EOPNOTSUPP is too.
//
// The blocks are not written. The first write to each still changes metadata, which a sync then has
// to write, too: see [File.PreallocateWritten].
func (f *File) Preallocate(off, n int64) error {
	return f.change("preallocate", func() error { return f.reserve(off, n) })
}

// PreallocateWritten extends the file by a range of zeroes that are written to the device, and
// returns when they are durable. It is for a log or a journal of a fixed length: on ext4 and XFS
// (Linux 6.18) a durable write to blocks that were written before takes one flush of the device,
// and one to blocks that are only allocated, as by [File.Preallocate], takes two. btrfs gains
// little, or nothing with copy-on-write.
//
// The range must begin at or behind the end of a regular file that is not open with O_APPEND;
// otherwise the error tells why it is refused, and nothing is written. Nobody else may write to the
// range before this returns: zeroes may replace what they have written. After an error the file may
// have any length up to the end of the range, with zeroes. The file system reserves the range
// first, if it can. A direct file needs whole blocks, otherwise the error is a [*MisalignedError].
func (f *File) PreallocateWritten(off, n int64) error {
	return f.change("preallocate", func() error {
		if err := f.checkZeroes(off, n); err != nil {
			return err
		}
		if err := f.reserve(off, n); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		zeroes := make([]byte, min(n, zeroesAtOnce))
		for n > 0 {
			written, err := f.writeAt(background, zeroes[:min(n, zeroesAtOnce)], off)
			if err != nil {
				return err
			}
			off, n = off+int64(written), n-int64(written)
		}
		return f.sync(background, opFdatasync)
	})
}

// checkZeroes tells why zeroes cannot be written to a range.
func (f *File) checkZeroes(off, n int64) error {
	info, err := f.file.Stat()
	switch {
	case err != nil:
		return err
	case off < 0 || n <= 0 || off > math.MaxInt64-n:
		return syscall.EINVAL
	case !info.Mode().IsRegular(): // A block device says that its length is 0.
		return errNotRegular
	case f.append:
		return errAppendZeroes
	case off < info.Size():
		return errOverwrites
	}
	if f.direct {
		if l := &f.lookUp().directLimits; (off|n)&int64(l.offset-1) != 0 {
			return &MisalignedError{off, int(min(n, math.MaxInt32)), l.offset}
		}
	}
	return nil
}

// reserve allocates blocks.
func (f *File) reserve(off, n int64) error {
	if err := f.engine.calls.begin(background); err != nil {
		return err
	}
	defer f.engine.calls.end()
	return f.fallocate(off, n)
}
