//go:build linux

// The conformance cases through File. Where the contracts of os.File differ from those of the
// system call of the same name, they are what is checked:
//
//   - The end of a file is io.EOF. The result is the number of bytes before it.
//   - ReadAt and WriteAt continue until everything is done, or an error. The result of a system
//     call would be the part before the error, if there is one (with the word exact it is the
//     error).
//   - For a transfer of no bytes, the result of package os on the same descriptor is right.
//   - An error is a *fs.PathError with the name of the file and the errno.
//
// Each operation that is pushed has a goroutine. Operations for which File has no method (names,
// statx) run on a ring of the test, so that cases with both kinds can run. A case without an
// operation of File does not run here.

package ringway

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/ring"
)

// fileBinding runs cases through File. It is an engine.
type fileBinding struct {
	backend Backend
	always  bool

	run    *caseRun
	engine *Engine
	helper *ringBinding
	done   chan *operation
	flying int
}

func (d *fileBinding) String() string {
	if d.always {
		return string(d.backend) + " always"
	}
	return string(d.backend)
}

// notByFile has cases that File cannot express, with the reason, if that does not follow from their
// words.
var notByFile = map[string]string{
	"append":                  appends,
	"long append direct":      appends,
	"open for appending":      appends,
	"sockets have no offsets": "ReadAt and WriteAt of a socket fail with ESPIPE, as with os.File",
}

const appends = "WriteAt of a file that is open for appending fails, as with os.File"

// otherByFile has steps of cases that have another result with File by design.
var otherByFile = map[string]map[string]string{
	// os.OpenFile is open(2), which ignores unknown flags.
	"open with an unknown flag": {"open path=a flags=0x40000000": "fd"},
	// The length of a batch has no limit.
	"too many buffers": {"readv fd=f lens=1025x1": "1025",
		"writev fd=f lens=1025x1 data=pattern(0,1025)": "1025"},
	"too many direct buffers": {"readv fd=f lens=1025x4096": "4096"},
	// ReadAt and WriteAt of a pipe or a socket fail with ESPIPE, as with os.File.
	"pipes have no offsets": {
		"write fd=w data=text(12345678) offset=5": "-ESPIPE", "read fd=r len=8 offset=0": "-ESPIPE",
		"write fd=w data=text(12345678) offset=max-8":         "-ESPIPE",
		"read fd=r len=8 offset=7":                            "-ESPIPE",
		"writev fd=w lens=4,4 data=text(12345678) offset=9":   "-ESPIPE",
		"readv fd=r lens=4,4 offset=3":                        "-ESPIPE",
		"writev fd=w lens=8 data=text(12345678) offset=max-8": "-ESPIPE",
		"readv fd=r lens=8 offset=max-8":                      "-ESPIPE",
		"write fd=w data=text(12345678) offset=0":             "-ESPIPE",
		"read fd=r len=8 offset=5":                            "-ESPIPE",
	},
	"write to a broken socket": {"write fd=a data=fill(0,8) offset=7": "-ESPIPE"},
	// A direct read need not be aligned: the enclosing blocks are read.
	"unaligned direct reads": {
		"read fd=f len=4096 offset=1": "4096", "read fd=f len=4095": "4095",
		"read fd=f len=100":         "100",
		"read fd=f len=4096 skew=1": "4096", "read fd=f len=7 offset=11 skew=3": "7",
		"read fd=f len=12289 offset=512": "12289",
		"readv fd=f lens=4096,100":       "4196", "readv fd=f lens=4096 offset=1": "4096",
		"read fd=f len=4096 offset=40001": "0",
	},
	"unaligned exact direct reads": {
		"read fd=f len=4096 offset=1 exact": "4096", "read fd=f len=4096 skew=1 exact": "4096",
	},
	// The buffer of a direct write need not be aligned. Of a batch, the aligned transfers are
	// written.
	"unaligned direct writes": {
		"write fd=f data=pattern(0,4096) skew=1":         "4096",
		"writev fd=f lens=4096,100 data=pattern(0,4196)": "4096",
		"write fd=f data=pattern(1,4096) offset=1":       "-EINVAL",
		"write fd=f data=pattern(0,4095)":                "-EINVAL",
		"write fd=f data=pattern(0,100)":                 "-EINVAL",
	},
}

func (d *fileBinding) other(c *conformanceCase) map[string]string { return otherByFile[c.name] }

func (d *fileBinding) cannot(c *conformanceCase) (why string) {
	if why := notByFile[c.name]; why != "" {
		return why
	}
	if _, faults := c.option("faults"); faults && (d.backend == BackendThreads || !d.always) {
		return "faults are injected between an engine and its rings or Linux AIO contexts"
	}
	for _, s := range c.steps {
		switch s.words[0] {
		case "chain":
			return "File has no chains"
		case "cancel", "cancel_all", "ready":
			return "contexts cancel, and not for every file"
		case "free_slots", "refuse":
			return "File waits for capacity and refuses nothing"
		}
	}
	ours := 0
	c.operations(func(_ string, w caseWords) {
		offset, _ := w.get("offset")
		fd, _ := w.get("fd")
		switch w[0] {
		case "nop", "poll", "timeout", "sync_range":
			why = "File has no " + w[0]
		case "readv", "writev":
			if offset == "current" {
				why = "File has no vectored transfers at its own position"
			}
			ours++
		case "fallocate":
			if w.bits("mode") != 0 {
				why = "Preallocate has no modes"
			}
			ours++
		default:
			if !isHelpers(w[0]) {
				ours++
			}
		}
		_, limit := w.get("timeout")
		switch {
		case (w[0] == "fallocate" || w[0] == "fadvise") && len(testBackends) == 1:
			why = "without rings, File has no " + w[0]
		case fd == "bad" || fd == "negative":
			why = "a File always has a descriptor"
		case w.has("drain") || limit:
			why = "File has no barriers and no time limit for an operation"
		case w.has("continue_on_error"):
			why = "File has no chains"
		}
	})
	if why == "" && ours == 0 {
		return "no operation of it is one of File"
	}
	return why
}

func (d *fileBinding) omits(w caseWords) string {
	if lacks(w[0]) && isHelpers(w[0]) {
		return "not of File, and io_uring of this kernel has no " + w[0]
	}
	return ""
}

// isHelpers reports whether File has no method for an operation, which a ring of the test does.
func isHelpers(kind string) bool {
	return slices.Contains([]string{"statx", "rename", "link", "unlink", "mkdir", "symlink"}, kind)
}

func (d *fileBinding) open(r *caseRun) (err error) {
	d.run, d.done = r, make(chan *operation, 4096)
	o := Options{Backend: d.backend, AlwaysRing: d.always}
	o.InFlight = int(caseNumber(cmp.Or(r.options["in_flight"], "0")))
	o.Threads = int(caseNumber(cmp.Or(r.options["threads"], "0")))
	if plan := r.options["faults"]; plan != "" {
		o.Rings = 1
		d.engine, err = engineWithFaults(o, uint64(len(plan)))
		return err
	}
	d.engine, err = New(o)
	return err
}

func (d *fileBinding) close() error {
	var err error
	if d.helper != nil {
		err = d.helper.close()
	}
	err = errors.Join(err, d.engine.Close())
	if s := d.engine.Stats(); s.InFlight != 0 || s.Waiting != 0 {
		err = errors.Join(err, fmt.Errorf("operations are left: %+v", s))
	}
	return err
}

func (d *fileBinding) adopt(fd int, name string) (*descriptor, error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return nil, err
	}
	if kind := stat.Mode & syscall.S_IFMT; kind == syscall.S_IFIFO || kind == syscall.S_IFSOCK {
		// Package os uses its poller for non-blocking descriptors.
		if err := syscall.SetNonblock(fd, true); err != nil {
			return nil, err
		}
	}
	f, err := d.engine.NewFile(os.NewFile(uintptr(fd), name))
	return &descriptor{fd, f}, err
}

func (d *fileBinding) openPath(name string, flags int) (*descriptor, error) {
	f, err := d.engine.OpenFile(name, flags, 0)
	if err != nil {
		return nil, err
	}
	return &descriptor{descriptorOf(f), f}, nil
}

// descriptorOf returns the descriptor without the side effects of Fd.
func descriptorOf(f *File) (n int) {
	conn, err := f.OSFile().SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) { n = int(fd) })
	}
	if err != nil {
		throw("no descriptor: %v", err)
	}
	return n
}

// syscallResult returns what a system call would have returned. n is the number of bytes that a
// transfer reports.
func syscallResult(f *File, op *operation, n int, err error) int {
	switch {
	case err == nil, err == io.EOF, err == io.ErrUnexpectedEOF:
		return n
	case n > 0 && !op.exact:
		return n
	}
	return negativeErrno(f.Name(), err)
}

// negativeErrno returns the errno of an error that names the file.
func negativeErrno(name string, err error) int {
	var path *fs.PathError
	var errno syscall.Errno
	if !errors.As(err, &path) || path.Path != name || !errors.As(err, &errno) {
		throw("unexpected kind of error: %#v", err)
	}
	return -int(errno)
}

func (d *fileBinding) push(ops ...*operation) error {
	op := ops[0]
	w := op.words
	switch {
	case isHelpers(op.kind):
		return d.useHelper(op)
	case op.kind == "open":
		return d.openFile(op)
	}
	f := d.run.named(w.need("fd")).file
	if op.kind == "close" {
		delete(d.run.names, w.need("fd"))
	}
	d.flying++
	go func() {
		defer func() {
			if p := recover(); p != nil {
				op.result = -1 << 20
				op.name += fmt.Sprint(": ", p)
			}
			d.done <- op
		}()
		op.result = d.call(f, op)
	}()
	return nil
}

// call does an operation with the method of File for it.
func (d *fileBinding) call(f *File, op *operation) int {
	w := op.words
	off, n := w.offset(), int64(w.number("len"))
	cursor := off == ring.CurrentPosition
	total := sum(op.buffers)
	var err error
	switch op.kind {
	case "read", "write":
		p, got := op.buffers[0], 0
		switch {
		case op.kind == "read" && !cursor:
			got, err = f.ReadAt(p, off)
		case op.kind == "read" && op.exact:
			got, err = io.ReadFull(f, p)
		case op.kind == "read":
			got, err = f.Read(p)
		case !cursor:
			got, err = f.WriteAt(p, off)
		default:
			got, err = f.Write(p)
		}
		result := syscallResult(f, op, got, err)
		if total == 0 && !fits(op.expected, result, op.plain) {
			op.contract = result == ofPackageOS(f, op)
		}
		return result
	case "readv", "writev":
		batch := make([]Transfer, len(op.buffers))
		at := off
		for i, b := range op.buffers {
			batch[i] = Transfer{P: b, Off: at}
			at += int64(len(b))
		}
		if op.kind == "readv" {
			err = f.ReadBatch(batch)
		} else {
			err = f.WriteBatch(batch, NoSync)
		}
		got := 0
		for i := range batch {
			got += batch[i].N
			if batch[i].N < len(batch[i].P) {
				break
			}
		}
		result := syscallResult(f, op, got, err)
		op.contract = total == 0 && result == 0
		return result
	case "fsync":
		err = f.Sync()
	case "fdatasync":
		err = f.Datasync()
	case "fallocate":
		err = f.Preallocate(off, n)
	case "ftruncate":
		err = f.Truncate(n)
	case "fadvise":
		err = f.Advise(off, n, Advice(w.bits("advice")))
	case "close":
		err = f.Close()
	default:
		throw("unknown operation: %s", op.kind)
	}
	return syscallResult(f, op, 0, err)
}

// ofPackageOS returns the result of os.File for a transfer of no bytes.
func ofPackageOS(f *File, op *operation) int {
	var n int
	var err error
	switch off := op.words.offset(); {
	case op.kind == "read" && off == ring.CurrentPosition:
		n, err = f.OSFile().Read(op.buffers[0])
	case op.kind == "read":
		n, err = f.OSFile().ReadAt(op.buffers[0], off)
	case off == ring.CurrentPosition:
		n, err = f.OSFile().Write(op.buffers[0])
	default:
		n, err = f.OSFile().WriteAt(op.buffers[0], off)
	}
	return syscallResult(f, op, n, err)
}

// openFile opens with OpenFile, or with the helper ring, whose descriptor File then owns.
func (d *fileBinding) openFile(op *operation) error {
	w := op.words
	dir, _ := w.get("dir")
	if dir != "" && dir != "cwd" || w.bits("resolve") != 0 {
		return d.useHelper(op)
	}
	name := casePath(w.need("path"))
	f, err := d.engine.OpenFile(name, int(w.bits("flags")), fs.FileMode(w.bits("mode")))
	if err != nil {
		return d.run.finish(op, negativeErrno(name, err))
	}
	descriptor := &descriptor{descriptorOf(f), f}
	if err := d.run.call(op.name, descriptor); err != nil {
		return err
	}
	return d.run.finish(op, descriptor.fd)
}

// useHelper does an operation that File has no method for, on a ring of the test.
func (d *fileBinding) useHelper(op *operation) error {
	if d.helper == nil {
		helper := new(ringBinding)
		if err := helper.open(&caseRun{}); err != nil {
			return &skipped{err.Error()}
		}
		helper.run = d.run
		d.helper = helper
	}
	if err := d.helper.push(op); err != nil {
		return err
	}
	for op.order == 0 {
		if err := d.helper.reap(1); err != nil {
			return err
		}
	}
	if op.kind == "open" && op.result >= 0 {
		adopted, err := d.adopt(op.result, op.name)
		d.run.names[op.name] = adopted
		return err
	}
	return nil
}

func (d *fileBinding) submit() error { return nil }

func (d *fileBinding) reap(least int) error {
	for d.flying > 0 {
		var op *operation
		if least > 0 {
			op = <-d.done
		} else {
			// Wait a moment: the goroutine of an operation may not have run yet.
			select {
			case op = <-d.done:
			case <-time.After(time.Millisecond):
				return nil
			}
		}
		least--
		d.flying--
		if err := d.run.finish(op, op.result); err != nil {
			return err
		}
	}
	return nil
}

func (d *fileBinding) ready(int) error                { throw("File has no ready"); return nil }
func (d *fileBinding) cancel(*operation) (int, error) { throw("File has no cancel"); return 0, nil }
func (d *fileBinding) cancelAll() (int, error)        { throw("File has no cancel"); return 0, nil }
func (d *fileBinding) checkCounts() error {
	if n := d.run.inFlight(); n != d.flying {
		return fmt.Errorf("%d operations are pushed and not complete, %d have goroutines", n,
			d.flying)
	}
	if s := d.engine.Stats(); s.Pushed != s.Delivered+uint64(s.InFlight+s.Waiting) {
		return fmt.Errorf("the counts do not add up: %+v", s)
	}
	return nil
}
