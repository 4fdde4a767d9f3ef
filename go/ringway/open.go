// Opening files, and the functions that read or write a whole file.

package ringway

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
)

// maxTransfer is the most that one operation transfers, as in package os: some file systems
// reject larger ones.
const maxTransfer = 1 << 30

// maxOffset is the largest offset. The kernel refuses a transfer that would end beyond it.
const maxOffset = math.MaxInt64

// Open opens a file for reading, as [os.Open] does, on the default engine.
func Open(name string) (*File, error) { return OpenFile(name, os.O_RDONLY, 0) }

// Create makes or truncates a file, as [os.Create] does, on the default engine.
func Create(name string) (*File, error) {
	return OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// OpenFile opens a file as [os.OpenFile] does, on the default engine. [Direct] among the flags
// asks for direct I/O. If the file or its file system has none, the error is a [*Refusal], and
// [syscall.EINVAL] to errors.Is.
func OpenFile(name string, flag int, perm fs.FileMode) (*File, error) {
	e, err := Default()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return e.OpenFile(name, flag, perm)
}

// Open opens a file for reading, as [os.Open] does.
func (e *Engine) Open(name string) (*File, error) { return e.OpenFile(name, os.O_RDONLY, 0) }

// Create makes or truncates a file, as [os.Create] does.
func (e *Engine) Create(name string) (*File, error) {
	return e.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// OpenFile opens a file as [os.OpenFile] does. [Direct] among the flags asks for direct I/O. If the
// file or its file system has none, the error is a [*Refusal], and [syscall.EINVAL] to errors.Is.
func (e *Engine) OpenFile(name string, flag int, perm fs.FileMode) (*File, error) {
	file, err := openFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	f, err := e.NewFile(file)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	f.direct = f.direct || flag&Direct != 0 && f.storage
	return f, nil
}

// CreateTemp makes a temporary file as [os.CreateTemp] does, on the default engine.
func CreateTemp(dir, pattern string) (*File, error) {
	e, err := Default()
	if err != nil {
		return nil, &fs.PathError{Op: "createtemp", Path: pattern, Err: err}
	}
	return e.CreateTemp(dir, pattern)
}

// CreateTemp makes a temporary file as [os.CreateTemp] does.
func (e *Engine) CreateTemp(dir, pattern string) (*File, error) {
	file, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	f, err := e.NewFile(file)
	if err != nil {
		// The caller does not learn the name, so it cannot remove the file.
		return nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return f, nil
}

// ReadFile reads a whole file as [os.ReadFile] does, on the default engine.
func ReadFile(name string) ([]byte, error) {
	e, err := Default()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return e.ReadFile(name)
}

// ReadFile reads a whole file as [os.ReadFile] does.
func (e *Engine) ReadFile(name string) ([]byte, error) {
	f, err := e.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.readWhole()
}

// WriteFile writes a whole file as [os.WriteFile] does, on the default engine.
func WriteFile(name string, data []byte, perm fs.FileMode) error {
	e, err := Default()
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return e.WriteFile(name, data, perm)
}

// WriteFile writes a whole file as [os.WriteFile] does: it makes or truncates the file, and the
// write is neither atomic nor synced.
func (e *Engine) WriteFile(name string, data []byte, perm fs.FileMode) error {
	f, err := e.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return cmp.Or(err, f.Close())
}

// readWhole reads to the end of the file. The size is only a hint: files below /proc report 0.
func (f *File) readWhole() ([]byte, error) {
	const least = 512
	size := least
	if info, err := f.Stat(); err == nil {
		size = int(min(max(info.Size()+1, least), maxTransfer))
	}
	content := make([]byte, 0, size)
	for {
		n, err := f.Read(content[len(content):cap(content)])
		content = content[:len(content)+n]
		if err == io.EOF {
			return content, nil
		}
		if err != nil {
			return content, err
		}
		if len(content) == cap(content) {
			content = append(content, 0)[:len(content)]
		}
	}
}
