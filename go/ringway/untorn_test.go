//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Untorn writes: whole on XFS of a loop device, which needs nothing of the device, and refused with
// a reason elsewhere. They are never made as plain writes.

package ringway

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ringway-io/ringway/go/internal/kernel"
	"github.com/ringway-io/ringway/go/internal/refusal"
)

// xfsDir returns a directory on XFS, which has untorn writes on any device.
func xfsDir(t *testing.T) string {
	t.Helper()
	if !kernel.AtLeast(6, 16) {
		t.Skip("skipped: a kernel before 6.16 has no untorn writes on XFS")
	}
	device := loopDevice(t, filepath.Join(t.TempDir(), "image"), 512<<20)
	run(t, "mkfs.xfs", "-q", "-m", "reflink=1", device)
	return mount(t, device, "xfs", "")
}

// wantRefusal fails the test unless the error is a refusal of RWF_ATOMIC with this errno.
func wantRefusal(t *testing.T, what string, err error, errno syscall.Errno, text string) {
	t.Helper()
	var why *Refusal
	expect(t, errors.As(err, &why) && why.Errno == errno && why.Feature == "RWF_ATOMIC" &&
		why.Meaning != "" && why.Fix != "" && strings.Contains(err.Error(), text), "%s: %v", what,
		err)
	expect(t, errors.Is(err, errors.ErrUnsupported) == (errno == syscall.EOPNOTSUPP),
		"%s: ErrUnsupported: %v", what, err)
}

func TestUntornWritesAreWhole(t *testing.T) {
	dir := xfsDir(t)
	for _, backend := range testBackends {
		for _, o := range []Options{
			{Backend: backend, AlwaysRing: true},
			{Backend: backend},
			{Backend: backend, AlwaysRing: true, FixedBuffers: 8 << 20},
		} {
			if o.FixedBuffers > 0 && backend != BackendURing {
				continue
			}
			e := newOrSkip(t, o)
			name := filepath.Join(dir, string(backend))
			f := open(t, e, name, os.O_RDWR|os.O_CREATE|os.O_TRUNC|Direct)
			unit := get(f.AtomicWriteUnit())(t)
			require(t, unit.Min == pageSize && unit.Max > unit.Min && unit.MaxSegments == 1, "%+v",
				unit)
			for n := unit.Min; n <= unit.Max; n *= 2 {
				buffer := e.NewBuffer(n) // Registered with the ring, if there is room.
				copy(buffer.Bytes(), bytesOf(n))
				unaligned := append(make([]byte, 1, n+1), bytesOf(n)...)[1:]
				for at, p := range [][]byte{buffer.Bytes(), unaligned} {
					off := int64(at+1) * int64(n)
					must(t, f.WriteUntornAt(p, off))
					reads(t, f, off, bytesOf(n))
				}
				must(t, f.Datasync())
				buffer.Release()
			}
			testUntornRefusals(t, e, f, unit)
		}
	}
}

// testUntornRefusals writes what the file does not take, although it has untorn writes.
func testUntornRefusals(t *testing.T, e *Engine, f *File, unit AtomicWriteUnit) {
	before := content(t, f)
	for _, n := range []int{0, 1, pageSize / 2, 3 * pageSize, unit.Max + pageSize, 2 * unit.Max} {
		wantRefusal(t, "a length", f.WriteUntornAt(make([]byte, n), 0), syscall.EINVAL,
			"power of two")
	}
	p := alignedSlice(2*pageSize, pageSize)
	for _, off := range []int64{512, pageSize} {
		wantRefusal(t, "an offset", f.WriteUntornAt(p, off), syscall.EINVAL, "multiple")
	}
	wantError(t, "a negative offset", f.WriteUntornAt(p, -1), errNegative)
	buffered := open(t, e, f.Name(), os.O_RDWR)
	same, err := buffered.AtomicWriteUnit()
	expect(t, err == nil && same == unit, "%v, %v", same, err)
	wantRefusal(t, "a buffered file", buffered.WriteUntornAt(p, 0), syscall.EOPNOTSUPP, "direct")
	appending := open(t, e, f.Name(), os.O_WRONLY|os.O_APPEND|Direct)
	wantRefusal(t, "an append", appending.WriteUntornAt(p, 0), syscall.EINVAL, "appending")
	// A limit beyond all files of the tests.
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 42, Max: limit.Max}))
	wantRefusal(t, "a large file", f.WriteUntornAt(p, 1<<42), syscall.EFBIG, "RLIMIT_FSIZE")
	// A block device has no such limit.
	f.blockDevice = true
	must(t, f.checkUntorn(len(p), 1<<42))
	f.blockDevice = false
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	// Without the checks the kernel refuses it, on every backend.
	wantRefusal(t, "unchecked", f.writeUntorn(alignedSlice(3*pageSize, pageSize), 0),
		syscall.EINVAL, "")
	expect(t, bytes.Equal(content(t, f), before), "something was written")
}

// On a disk without atomic writes, and in memory: nothing is written.
func TestUntornWritesAreRefused(t *testing.T) {
	want := bytesOf(4 * pageSize)
	each(t, func(t *testing.T, e *Engine, direct int) {
		memory := get(os.MkdirTemp("/dev/shm", "ringway"))(t)
		defer os.RemoveAll(memory)
		for _, dir := range []string{t.TempDir(), memory} {
			name := filepath.Join(dir, "file")
			must(t, os.WriteFile(name, want, 0o600))
			flag := os.O_RDWR
			if dir != memory || kernel.AtLeast(6, 6) {
				flag |= direct
			}
			f := open(t, e, name, flag)
			unit, err := f.AtomicWriteUnit()
			if err == nil {
				t.Log("the disk has untorn writes: ", unit)
				continue
			}
			wantRefusal(t, "the unit", err, syscall.EOPNOTSUPP, "statx")
			p := alignedSlice(pageSize, pageSize)
			wantRefusal(t, "a write", f.WriteUntornAt(p, 0), syscall.EOPNOTSUPP, "write")
			// And by the kernel, on every backend.
			wantRefusal(t, "unchecked", f.writeUntorn(p, 0), syscall.EOPNOTSUPP, "")
			found := content(t, f)
			expect(t, bytes.Equal(found, want), "something was written")
			must(t, errorOf(f.WriteAt(p, 0)))
		}
	})
	var none *File
	wantError(t, "no file", none.WriteUntornAt(nil, 0), os.ErrInvalid)
	wantError(t, "no file", errorOf(none.AtomicWriteUnit()), os.ErrInvalid)
}

// answerUntorn gives all untorn writes of a queue this result, and counts them.
func answerUntorn(s *scripted, result int32) (count *int) {
	count = new(int)
	s.onResult(func(r *request) bool {
		if r.flags&rwfAtomic != 0 {
			r.result = result
			*count++
		}
		return false
	})
	return count
}

// A kernel that makes a part of an untorn write is told on; nothing continues the write.
func TestPartOfAnUntornWriteIsAnError(t *testing.T) {
	for _, backend := range queueBackends {
		e, s := scriptedEngine(t, Options{Backend: backend, AlwaysRing: true})
		f := openIn(t, e, make([]byte, 4*pageSize), os.O_RDWR|Direct)
		results := answerUntorn(s, pageSize)
		err := f.writeUntorn(alignedSlice(2*pageSize, pageSize), 0)
		wantError(t, string(backend), err, syscall.EIO)
		wantError(t, string(backend), err, ErrTorn)
		expect(t, *results == 1 && strings.Contains(err.Error(), "4096 of 8192 bytes"), "%v, %v",
			*results, err)
	}
}

// While pages of the range are being dirtied through a mapping, the kernel answers EAGAIN. A queue
// and a plain call repeat the write a few times; what remains is a refusal.
func TestUntornWriteOfBusyPages(t *testing.T) {
	for _, c := range []struct {
		busy, calls int
		err         error
	}{{0, 1, nil}, {maxRetries, maxRetries + 1, nil}, {100, maxRetries + 1, syscall.EAGAIN}} {
		calls := 0
		n, err := whileBusy(func() (int, error) {
			if calls++; calls <= c.busy {
				return 0, syscall.EAGAIN
			}
			return pageSize, nil
		})
		expect(t, calls == c.calls && err == c.err && (err == nil) == (n == pageSize),
			"%d times busy: %d calls, %d, %v", c.busy, calls, n, err)
	}
	calls := 0
	_, err := whileBusy(func() (int, error) { calls++; return 0, syscall.EIO })
	expect(t, calls == 1 && err == syscall.EIO, "%v, %v", calls, err)
	wantRefusal(t, "busy", unavailable(refusal.AtomicWrite, syscall.EAGAIN), syscall.EAGAIN,
		"mapping")
	dir := xfsDir(t)
	for _, backend := range queueBackends {
		e, s := scriptedEngine(t, Options{Backend: backend, AlwaysRing: true})
		f := open(t, e, filepath.Join(dir, string(backend)), os.O_RDWR|os.O_CREATE|Direct)
		results := answerUntorn(s, -int32(syscall.EAGAIN))
		p := alignedSlice(2*pageSize, pageSize)
		copy(p, bytesOf(len(p)))
		must(t, f.writeUntorn(p, 0)) // By a plain call in the end.
		expect(t, *results == maxRetries+1 && bytes.Equal(content(t, f), p), "%v, %v", backend,
			*results)
	}
}
