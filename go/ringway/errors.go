// The errors of the package.

package ringway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

// Refusal is the error of a backend, or of a feature of one, that is not available: the errno,
// its meaning on this machine, and the fix. It is in the error of [New], of direct opens and of
// untorn writes, and in [Engine.Refusals]; [errors.As] finds it.
type Refusal struct {
	// Feature is what was requested: io_uring, Linux AIO, direct I/O, RWF_ATOMIC.
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
	errLength      = errors.New("negative length")
	errAppendWrite = errors.New("ringway: WriteAt on a file that is open with O_APPEND; use Write")
)

// endedError wraps the cause of a context that has ended. A cause that is io.EOF would otherwise
// read as the end of a file, and one that is an errno as an answer of the kernel.
type endedError struct{ cause error }

// causeOf returns why a context has ended.
func causeOf(ctx context.Context) error { return &endedError{context.Cause(ctx)} }

// Error returns the text of the cause.
func (e *endedError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *endedError) Unwrap() error { return e.cause }

// Timeout reports whether the cause is a timeout, such as context.DeadlineExceeded. A *fs.PathError
// and os.IsTimeout ask.
func (e *endedError) Timeout() bool {
	var timeout interface{ Timeout() bool }
	return errors.As(e.cause, &timeout) && timeout.Timeout()
}

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
	if _, ended := err.(*endedError); !ended && errors.As(err, &path) {
		return err
	}
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}
