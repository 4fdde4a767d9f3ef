package ringway

// What the package has on every system.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

// Refusal is a backend, or a part of one, that was not granted: the errno, its meaning on this machine, and the mend.
type Refusal = refusal.Refusal

// Backend is how operations reach the kernel.
type Backend string

// The backends, in the order in which they are tried.
const (
	Uring   Backend = "uring"
	KAIO    Backend = "kaio"
	Threads Backend = "threads"
)

// Variable names the environment variable that forces a backend for every engine that does not say itself.
const Variable = "RINGWAY_BACKEND"

// Options of an engine. The zero value is a good engine.
type Options struct {
	// Backend forces one; one that is refused is then an error.
	Backend Backend
	// Rings is how many goroutines share; 0 means one for every four Ps, at most four. Fewer make larger groups, and larger
	// groups cost less.
	Rings int
	// InFlight is the most transfers that the kernel has at once, over all rings; the others wait in order. What is beyond the
	// device's queue (usually 256) costs many times as much. 0 means 192.
	InFlight int
	// Threads is the most blocking system calls at once, of what no ring or KAIO context carries, such as buffered writes; 0
	// means 64. A quarter as many syncs may be under way beside them. Where none of them ends for 100 ms, since a file system hangs,
	// more are let in, up to 1024: calls that hang do not keep the others from their turn.
	Threads int
	// IOWQWorkers caps the kernel threads of each ring that do what cannot be done without blocking, such as an fsync; 0 leaves
	// the kernel's own limit.
	IOWQWorkers int
	// FixedBuffers is how many bytes of memory are registered with each ring, so that the kernel need not look their pages up
	// for each operation; [Engine.NewBuffer] lends them. They count against RLIMIT_MEMLOCK, once for each ring. At most 1 GiB;
	// 0 means none. Where they are refused the engine has none, and [Engine.Refusals] tells why.
	FixedBuffers int
	// AlwaysRing takes everything that a ring or a KAIO context carries there: without a look into the page cache first, and
	// without plain calls for transfers that are few. For tests and measurements.
	AlwaysRing bool

	// Of tests and benchmarks.
	wrap      faults
	closeWait time.Duration
	null      bool // The backend is nullBackend.
}

// ErrEngineClosed is what operations answer after [Engine.Close].
var ErrEngineClosed = fmt.Errorf("ringway: the engine is closed: %w", os.ErrClosed)

// ErrAbandoned is what operations answer that the kernel still has some seconds after [Engine.Close]. It is ErrEngineClosed to
// errors.Is. The kernel may still read or write the memory of such an operation at any time: leave that alone for good. (A
// [Buffer] may be released; its memory is not lent again.)
var ErrAbandoned = fmt.Errorf("%w, and the kernel has not let go of the operation's memory", ErrEngineClosed)

// Default is the engine of the package's functions, made when it is first asked for. The error is the one of [New], each
// time: RINGWAY_BACKEND names a backend that does not exist or is refused. Do not close it.
func Default() (*Engine, error) { return theDefault() }

var theDefault = sync.OnceValues(func() (*Engine, error) { return New(Options{}) })

// Explain tells which backend the default engine has, and what was refused, with reason and mend.
func Explain() string {
	e, err := Default()
	if err != nil {
		return err.Error()
	}
	return e.Explain()
}

// maxTransfer is what one operation moves at most, as in package os: larger ones are an error to some file systems.
const maxTransfer = 1 << 30

// ladder of backends to try: all of them, or the one that is forced.
func (o *Options) ladder() ([]Backend, error) {
	switch o.Backend = cmp.Or(o.Backend, Backend(os.Getenv(Variable))); o.Backend {
	case "":
		return []Backend{Uring, KAIO, Threads}, nil
	case Uring, KAIO, Threads:
		return []Backend{o.Backend}, nil
	}
	return nil, refusal.NoBackend(Variable, string(o.Backend))
}

var errNegative = errors.New("negative offset")

// explain is what engines say of themselves.
func explain(backend Backend, detail string, refusals []*Refusal) string {
	text := "backend " + string(backend) + detail
	for _, refused := range refusals {
		text += "\n" + refused.Error()
	}
	return text
}

// Stats are counts since the engine was made.
type Stats struct {
	// Pushed are operations that were given to a ring or a KAIO context; plain system calls are not counted. Delivered are
	// those of them whose goroutines have the answer. At any moment Pushed = Delivered + InFlight + Waiting.
	Pushed, Delivered uint64
	// InFlight is what the kernel has now; Waiting what waits for room or for a group.
	InFlight, Waiting int
	// Submissions are rounds that gave the kernel a group of operations, or picked completions up.
	Submissions uint64
	// Retries of operations that the kernel had not done (EINTR, EAGAIN, the end of a thread).
	Retries uint64
}

var (
	_ io.ReaderAt     = (*File)(nil)
	_ io.WriterAt     = (*File)(nil)
	_ io.ReadWriter   = (*File)(nil)
	_ io.Seeker       = (*File)(nil)
	_ io.Closer       = (*File)(nil)
	_ io.ReaderFrom   = (*File)(nil)
	_ io.WriterTo     = (*File)(nil)
	_ io.StringWriter = (*File)(nil)
	_ syscall.Conn    = (*File)(nil)
	_ fs.ReadDirFile  = (*File)(nil)
)

// Open opens a file for reading, on the default engine.
func Open(name string) (*File, error) { return OpenFile(name, os.O_RDONLY, 0) }

// Create makes or truncates a file, on the default engine.
func Create(name string) (*File, error) {
	return OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// OpenFile is [os.OpenFile], on the default engine. [syscall.O_DIRECT] among the flags asks for direct I/O.
func OpenFile(name string, flag int, perm fs.FileMode) (*File, error) {
	e, err := Default()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return e.OpenFile(name, flag, perm)
}

// Open opens a file for reading.
func (e *Engine) Open(name string) (*File, error) { return e.OpenFile(name, os.O_RDONLY, 0) }

// Create makes or truncates a file.
func (e *Engine) Create(name string) (*File, error) {
	return e.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// OpenFile is [os.OpenFile]. [syscall.O_DIRECT] among the flags asks for direct I/O.
func (e *Engine) OpenFile(name string, flag int, perm fs.FileMode) (*File, error) {
	file, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	f, err := e.NewFile(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

// CreateTemp is [os.CreateTemp], on the default engine.
func CreateTemp(dir, pattern string) (*File, error) {
	e, err := Default()
	if err != nil {
		return nil, &fs.PathError{Op: "createtemp", Path: pattern, Err: err}
	}
	return e.CreateTemp(dir, pattern)
}

// CreateTemp is [os.CreateTemp].
func (e *Engine) CreateTemp(dir, pattern string) (*File, error) {
	file, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	f, err := e.NewFile(file)
	if err != nil {
		// Nobody would learn its name.
		return nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return f, nil
}

// ReadFile is [os.ReadFile], on the default engine.
func ReadFile(name string) ([]byte, error) {
	e, err := Default()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return e.ReadFile(name)
}

// ReadFile is [os.ReadFile].
func (e *Engine) ReadFile(name string) ([]byte, error) {
	f, err := e.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.readWhole()
}

// WriteFile is [os.WriteFile], on the default engine.
func WriteFile(name string, data []byte, perm fs.FileMode) error {
	e, err := Default()
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return e.WriteFile(name, data, perm)
}

// WriteFile is [os.WriteFile]: it makes or truncates the file, and what is written is neither atomic nor synced.
func (e *Engine) WriteFile(name string, data []byte, perm fs.FileMode) error {
	f, err := e.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return cmp.Or(err, f.Close())
}

// fail wraps an error as package os does. The end of a file is none.
func (f *File) fail(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return err
	}
	return &fs.PathError{Op: op, Path: f.Name(), Err: err}
}

// Advice is what a program will do with a range of a file: posix_fadvise(2).
type Advice int

// The kinds of advice.
const (
	Normal     Advice = 0
	Random     Advice = 1
	Sequential Advice = 2
	WillNeed   Advice = 3
	DontNeed   Advice = 4
	NoReuse    Advice = 5
)

// Transfer is one of a batch.
type Transfer struct {
	P   []byte
	Off int64
	// N and Err are the answer, with the contracts of ReadAt and WriteAt.
	N   int
	Err error
}

// Durability is what a batch of writes ends with.
type Durability int

// The degrees of it.
const (
	NoSync   Durability = iota // Nothing.
	DataSync                   // As Datasync.
	FullSync                   // As Sync.
)

// first error of a batch.
func first(batch []Transfer) error {
	for i := range batch {
		if err := batch[i].Err; err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

// Misaligned is the error of a direct write that the device does not take as it is: ringway does not read what surrounds it,
// since another write may be under way there. It is [syscall.EINVAL] to errors.Is.
type Misaligned struct {
	Offset int64
	Len    int
	Align  int // What both have to be a multiple of.
}

func (m *Misaligned) Error() string {
	return fmt.Sprintf("a direct write of %d bytes at %d: both have to be multiples of %d", m.Len, m.Offset, m.Align)
}

// Unwrap is EINVAL.
func (m *Misaligned) Unwrap() error { return syscall.EINVAL }
