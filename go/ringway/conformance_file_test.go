//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// The conformance cases through File. Its contracts are those of os.File, and where they say something else than the system
// call of the same name, they are what is checked:
//
//   - the end of a file is io.EOF, with the bytes before it: the result is how many those are;
//   - ReadAt and WriteAt go on until all is done, or an error: what a system call would have answered is the part before the
//     error, if there is one (with the word exact it is the error);
//   - of a transfer of no bytes, what package os answers on the same descriptor is right;
//   - an error is a *fs.PathError with the file's name, around the errno.
//
// Each operation that is pushed has a goroutine. What no method of File does (names, statx) is done beside it on a ring of the
// test's own, so that the cases with both can be run; a case with nothing for File is not counted as one of its.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/ring"
)

// fileDoor is an engine.
type fileDoor struct {
	backend Backend
	always  bool

	run    *caseRun
	engine *Engine
	beside *ringDoor
	done   chan *operation
	flying int
}

func (d *fileDoor) String() string {
	if d.always {
		return string(d.backend) + " always"
	}
	return string(d.backend)
}

// notByFile are cases that File cannot express, and why, where a look at the words does not tell.
var notByFile = map[string]string{
	"append":                  appends,
	"long append direct":      appends,
	"open for appending":      appends,
	"sockets have no offsets": "ReadAt and WriteAt of a socket are ESPIPE, as of an os.File",
}

const appends = "WriteAt of a file that is open for appending is refused, as by an os.File"

// otherByFile are steps of cases to which File has another answer by design.
var otherByFile = map[string]map[string]string{
	// os.OpenFile is open(2), which does not look at unknown flags.
	"open errors": {"open path=a flags=0x40000000": "fd"},
	// A batch has no limit.
	"too many buffers":        {"readv fd=f lens=1025x1": "1025", "writev fd=f lens=1025x1 data=pattern(0,1025)": "1025"},
	"too many direct buffers": {"readv fd=f lens=1025x4096": "4096"},
	// ReadAt and WriteAt of a pipe or a socket are ESPIPE, as of an os.File.
	"pipes have no offsets": {
		"write fd=w data=text(12345678) offset=5": "-ESPIPE", "read fd=r len=8 offset=0": "-ESPIPE",
		"write fd=w data=text(12345678) offset=max-8": "-ESPIPE", "read fd=r len=8 offset=7": "-ESPIPE",
		"writev fd=w lens=4,4 data=text(12345678) offset=9": "-ESPIPE", "readv fd=r lens=4,4 offset=3": "-ESPIPE",
	},
	"write to a broken socket": {"write fd=a data=fill(0,8) offset=7": "-ESPIPE"},
	// A direct read needs no alignment: what encloses it is read.
	"unaligned direct reads": {
		"read fd=f len=4096 offset=1": "4096", "read fd=f len=4095": "4095", "read fd=f len=100": "100",
		"read fd=f len=4096 skew=1": "4096", "read fd=f len=7 offset=11 skew=3": "7", "read fd=f len=12289 offset=512": "12289",
		"readv fd=f lens=4096,100": "4196", "readv fd=f lens=4096 offset=1": "4096", "read fd=f len=4096 offset=40001": "0",
	},
	"unaligned exact direct reads": {
		"read fd=f len=4096 offset=1 exact": "4096", "read fd=f len=4096 skew=1 exact": "4096",
	},
	// Nor does the buffer of a direct write. Of a batch what is aligned is written.
	"unaligned direct writes": {
		"write fd=f data=pattern(0,4096) skew=1": "4096", "writev fd=f lens=4096,100 data=pattern(0,4196)": "4096",
		"write fd=f data=pattern(1,4096) offset=1": "-EINVAL", "write fd=f data=pattern(0,4095)": "-EINVAL",
		"write fd=f data=pattern(0,100)": "-EINVAL",
	},
}

func (d *fileDoor) other(c *conformanceCase) map[string]string { return otherByFile[c.name] }

func (d *fileDoor) cannot(c *conformanceCase) (why string) {
	if why := notByFile[c.name]; why != "" {
		return why
	}
	if _, faults := c.option("faults"); faults && (d.backend == BackendThreads || !d.always) {
		return "faults are injected between an engine and its rings or KAIO contexts"
	}
	for _, s := range c.steps {
		switch s.words[0] {
		case "chain":
			return "File has no chains"
		case "cancel", "cancel_all", "ready":
			return "a context cancels, and not of every file"
		case "free_slots", "refuse":
			return "File waits for room, and refuses nothing"
		}
	}
	ours := 0
	c.operations(func(_ string, w caseWords) {
		offset, _ := w.get("offset")
		fd, _ := w.get("fd")
		switch w[0] {
		case "nop", "poll", "timeout", "sync_range":
			why = "File has no " + w[0]
		case "statx", "rename", "link", "unlink", "mkdir", "symlink":
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
			ours++
		}
		_, limit := w.get("timeout")
		switch {
		case fd == "bad" || fd == "negative":
			why = "a File has a descriptor"
		case w.has("drain") || limit:
			why = "File has no barriers and no limits by operation"
		case w.has("continue_on_error"):
			why = "File has no chains"
		}
	})
	if why == "" && ours == 0 {
		return "nothing in it is an operation of File"
	}
	return why
}

func (d *fileDoor) omits(caseWords) string { return "" }

func (d *fileDoor) open(r *caseRun) error {
	d.run, d.done = r, make(chan *operation, 4096)
	o := Options{Backend: d.backend, AlwaysRing: d.always}
	if n := r.options["in_flight"]; n != "" {
		o.InFlight = int(caseNumber(n))
	}
	if n := r.options["threads"]; n != "" {
		o.Threads = int(caseNumber(n))
	}
	if plan := r.options["faults"]; plan != "" {
		o.Rings = 1
		var err error
		d.engine, _, err = faultyEngine(o, frequentFaults, uint64(len(plan)))
		return err
	}
	var err error
	d.engine, err = New(o)
	return err
}

func (d *fileDoor) close() error {
	var err error
	if d.beside != nil {
		err = d.beside.close()
	}
	err = errors.Join(err, d.engine.Close())
	if s := d.engine.Stats(); s.InFlight != 0 || s.Waiting != 0 {
		err = errors.Join(err, fmt.Errorf("something is left: %+v", s))
	}
	return err
}

func (d *fileDoor) adopt(fd int, name string) (*descriptor, error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return nil, err
	}
	if kind := stat.Mode & syscall.S_IFMT; kind == syscall.S_IFIFO || kind == syscall.S_IFSOCK {
		// Then package os waits in its poller.
		if err := syscall.SetNonblock(fd, true); err != nil {
			return nil, err
		}
	}
	f, err := d.engine.NewFile(os.NewFile(uintptr(fd), name))
	return &descriptor{fd, f}, err
}

func (d *fileDoor) openPath(name string, flags int) (*descriptor, error) {
	f, err := d.engine.OpenFile(name, flags, 0)
	if err != nil {
		return nil, err
	}
	return &descriptor{descriptorOf(f), f}, nil
}

// descriptorOf without the effects of Fd.
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

// outcome is what a system call would have answered. n is what a transfer says that it has done.
func outcome(f *File, op *operation, n int, err error) int {
	switch {
	case err == nil, err == io.EOF, err == io.ErrUnexpectedEOF:
		return n
	case n > 0 && !op.exact:
		return n
	}
	var path *fs.PathError
	var errno syscall.Errno
	if !errors.As(err, &path) || path.Path != f.Name() || !errors.As(err, &errno) {
		throw("an error of another kind: %#v", err)
	}
	return -int(errno)
}

func (d *fileDoor) push(ops ...*operation) error {
	op := ops[0]
	w := op.words
	switch op.kind {
	case "statx", "rename", "link", "unlink", "mkdir", "symlink":
		return d.doBeside(op)
	case "open":
		return d.openIt(op)
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
		op.result = d.carry(f, op)
	}()
	return nil
}

// carry does an operation by the method that does it.
func (d *fileDoor) carry(f *File, op *operation) int {
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
		result := outcome(f, op, got, err)
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
		result := outcome(f, op, got, err)
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
		throw("no operation: %s", op.kind)
	}
	return outcome(f, op, 0, err)
}

// ofPackageOS is what an os.File answers to a transfer of no bytes.
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
	return outcome(f, op, n, err)
}

// openIt opens by OpenFile, or beside it and hands the descriptor over.
func (d *fileDoor) openIt(op *operation) error {
	w := op.words
	dir, _ := w.get("dir")
	if dir != "" && dir != "cwd" || w.bits("resolve") != 0 {
		return d.doBeside(op)
	}
	name := casePath(w.need("path"))
	f, err := d.engine.OpenFile(name, int(w.bits("flags")), fs.FileMode(w.bits("mode")))
	if err != nil {
		var path *fs.PathError
		var errno syscall.Errno
		if !errors.As(err, &path) || path.Path != name || !errors.As(err, &errno) {
			return fmt.Errorf("an error of another kind: %#v", err)
		}
		return d.run.hand(op, -int(errno))
	}
	descriptor := &descriptor{descriptorOf(f), f}
	if err := d.run.call(op.name, descriptor); err != nil {
		return err
	}
	return d.run.hand(op, descriptor.fd)
}

// doBeside does on a ring of the test's own what File has no method for.
func (d *fileDoor) doBeside(op *operation) error {
	if d.beside == nil {
		d.beside = new(ringDoor)
		if err := d.beside.open(&caseRun{}); err != nil {
			return &skipped{err.Error()}
		}
		d.beside.run = d.run
	}
	if err := d.beside.push(op); err != nil {
		return err
	}
	for op.order == 0 {
		if err := d.beside.reap(1); err != nil {
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

func (d *fileDoor) submit() error { return nil }

func (d *fileDoor) reap(least int) error {
	for d.flying > 0 {
		var op *operation
		if least > 0 {
			op = <-d.done
		} else {
			// What is begun gets a moment: a goroutine may just not have run yet.
			select {
			case op = <-d.done:
			case <-time.After(time.Millisecond):
				return nil
			}
		}
		least--
		d.flying--
		if err := d.run.hand(op, op.result); err != nil {
			return err
		}
	}
	return nil
}

func (d *fileDoor) ready(int) error                { throw("File has no ready"); return nil }
func (d *fileDoor) cancel(*operation) (int, error) { throw("File has no cancel"); return 0, nil }
func (d *fileDoor) cancelAll() (int, error)        { throw("File has no cancel"); return 0, nil }
func (d *fileDoor) books() error {
	if n := d.run.inFlight(); n != d.flying {
		return fmt.Errorf("%d were pushed and not handed out, %d have goroutines", n, d.flying)
	}
	if s := d.engine.Stats(); s.Pushed != s.Delivered+uint64(s.InFlight+s.Waiting) {
		return fmt.Errorf("the books: %+v", s)
	}
	return nil
}
