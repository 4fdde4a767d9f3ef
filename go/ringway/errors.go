package ringway

// The errors of the package.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

// Refusal is the error of a backend, or of a feature of one, that is not available: the errno,
// its meaning on this machine, and the fix.
type Refusal = refusal.Refusal

// ErrEngineClosed is the error of operations after [Engine.Close]. It is [os.ErrClosed] to
// errors.Is.
var ErrEngineClosed = fmt.Errorf("ringway: the engine is closed: %w", os.ErrClosed)

// ErrAbandoned is the error of operations that the kernel still has five seconds after
// [Engine.Close]. The kernel may read or write the memory of such an operation at any time, so the
// program must never use that memory again. A [Buffer] may be released; its memory is not reused.
// ErrAbandoned is [ErrEngineClosed] to errors.Is.
var ErrAbandoned = fmt.Errorf("%w, and the kernel still uses the memory of the operation",
	ErrEngineClosed)

var (
	errNegative    = errors.New("negative offset")
	errAppendWrite = errors.New("ringway: WriteAt on a file that is open with O_APPEND; use Write")
)

// MisalignedError is the error of a direct write whose offset or length is not a multiple of the
// block size that the device requires. ringway does not read and rewrite the surrounding blocks,
// because another write may be changing them. It is [syscall.EINVAL] to errors.Is.
type MisalignedError struct {
	Offset int64 // Offset is where the write begins.
	Len    int   // Len is the number of bytes to write.
	Align  int   // Align is what both have to be a multiple of.
}

// Error describes the write and the required alignment.
func (e *MisalignedError) Error() string {
	return fmt.Sprintf("direct write of %d bytes at offset %d: both must be multiples of %d",
		e.Len, e.Offset, e.Align)
}

// Unwrap returns syscall.EINVAL.
func (e *MisalignedError) Unwrap() error { return syscall.EINVAL }

// fail wraps an error in a *fs.PathError, as package os does. io.EOF is returned as it is.
func (f *File) fail(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return err
	}
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}
