//go:build linux

// The conformance cases through the Go API. All bindings run the cases of conformance/ (its README
// has the grammar). A case runs through File on each backend, with and without AlwaysRing, if File
// can express it (conformance_file_test.go), and through package ring (conformance_ring_test.go).
// The log has those that neither can express, with the reasons. RINGWAY_CASE=part-of-a-name selects
// cases by name.

package ringway

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/refusal"
	"github.com/ringway-io/ringway/go/ring"
)

// noFD is a number that no descriptor has.
const noFD = 1_000_000

// caseTime is longer than any case takes, beside other work too.
const caseTime = 5 * time.Minute

// binding does the operations of a case.
type binding interface {
	// cannot returns why the binding cannot express a case, or "".
	cannot(c *conformanceCase) string
	// omits returns why the binding cannot do one operation of a case, or "". The case runs without
	// it.
	omits(words caseWords) string
	// other returns the steps of a case that have another result by the binding's contract.
	other(c *conformanceCase) map[string]string
	// open makes the engine or the ring, with the options of the case.
	open(r *caseRun) error
	// adopt makes a descriptor of the binding. It owns fd.
	adopt(fd int, name string) (*descriptor, error)
	// openPath opens a file with a blocking call.
	openPath(name string, flags int) (*descriptor, error)
	// push starts operations: one, or a chain.
	push(ops ...*operation) error
	submit() error
	// reap returns completed operations to the run, after waiting for as many as least.
	reap(least int) error
	// ready waits until n operations have completed, and returns none of them.
	ready(n int) error
	cancel(op *operation) (int, error)
	cancelAll() (int, error)
	// checkCounts returns an error if pushed = delivered + orphaned + in flight does not hold.
	checkCounts() error
	close() error
}

type descriptor struct {
	fd   int
	file *File // Only through File.
}

// operation is an operation of a case, pushed or not yet.
type operation struct {
	name, kind string
	words      caseWords
	line       int
	expected   string
	plain      int
	buffers    [][]byte
	stat       *ring.Statx
	exact      bool
	contract   bool // The contract of File differs, and the result follows it.

	result int
	order  int // The rank among completed operations; 0: not complete.

	// For package ring.
	request, limit *ring.Request
	left           int // Completions to come.
	got            int // Bytes of an exact transfer so far.
	late           bool
}

// caseRun is the run of a case.
type caseRun struct {
	binding        binding
	options        map[string]string
	made           bool
	names          map[string]*descriptor
	pushed         []*operation
	chain          []*operation
	inChain        bool
	completedCount int
	other          map[string]string
	others         map[string]bool // Those that occurred.
	omitted        map[string]int  // Operations that were left out, by reason.
	byRule         int             // Operations with another result by contract.
	line           int
}

// skipped is the error of a case that this machine cannot run.
type skipped struct{ why string }

func (s *skipped) Error() string { return s.why }

// Running a case.

// runCase runs a case in the current directory.
func runCase(c *conformanceCase, d binding) (r *caseRun, err error) {
	r = &caseRun{binding: d, options: map[string]string{}, names: map[string]*descriptor{},
		line:  c.line,
		other: d.other(c), others: map[string]bool{}, omitted: map[string]int{}}
	watch := time.AfterFunc(caseTime, func() { panic("this case hangs: " + c.name) })
	defer watch.Stop()
	defer func() {
		// In every case, restore the process and close everything.
		if r.made {
			err = errors.Join(err, d.close())
		}
		for _, name := range slices.Sorted(maps.Keys(r.names)) {
			r.names[name].close()
		}
		_ = limitFileSize(func(most uint64) uint64 { return most })
		if syscall.Getuid() == 0 && syscall.Geteuid() != 0 {
			err = errors.Join(err, syscall.Setresuid(-1, 0, -1))
		}
		if err != nil {
			err = fmt.Errorf("%s:%d: %w", c.file, r.line, err)
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			why, ok := p.(wrong)
			if !ok {
				panic(p)
			}
			err = errors.New(string(why))
		}
	}()
	for _, s := range c.steps {
		r.line = s.line
		if err := r.step(s.words); err != nil {
			return r, err
		}
		if r.made {
			if err := d.checkCounts(); err != nil {
				return r, err
			}
		}
	}
	r.line = c.line
	if err := r.rest(); err != nil {
		return r, err
	}
	for step := range r.other {
		if !r.others[step] {
			return r, fmt.Errorf("another result is listed for %q, which is not a step", step)
		}
	}
	return r, nil
}

func (d *descriptor) close() {
	if d.file != nil {
		_ = d.file.Close()
		return
	}
	_ = syscall.Close(d.fd)
}

func (r *caseRun) make() error {
	if r.made {
		return nil
	}
	if err := r.binding.open(r); err != nil {
		return err
	}
	r.made = true
	return nil
}

func (r *caseRun) call(name string, d *descriptor) error {
	if r.names[name] != nil {
		return fmt.Errorf("two descriptors have the name %s", name)
	}
	r.names[name] = d
	return nil
}

func (r *caseRun) named(name string) *descriptor {
	d := r.names[name]
	if d == nil {
		throw("no descriptor has the name %s", name)
	}
	return d
}

// fd returns the descriptor that fd=, dir= or dir2= names.
func (r *caseRun) fd(w caseWords, key string) int {
	switch name, _ := w.get(key); name {
	case "", "cwd":
		return ring.AtFDCWD
	case "bad":
		return noFD
	case "negative":
		return -1
	default:
		return r.named(name).fd
	}
}

func (r *caseRun) operation(name string) *operation {
	for _, op := range slices.Backward(r.pushed) {
		if op.name == name {
			return op
		}
	}
	throw("no operation has the name %s", name)
	return nil
}

func (r *caseRun) inFlight() (n int) {
	for _, op := range r.pushed {
		if op.order == 0 {
			n++
		}
	}
	return n
}

// finish is called by a binding for an operation that has completed.
func (r *caseRun) finish(op *operation, result int) error {
	if op.order != 0 {
		return fmt.Errorf("%s has completed twice", op.name)
	}
	r.completedCount++
	op.order, op.result = r.completedCount, result
	if op.contract {
		r.byRule++
	} else if !fits(op.expected, result, op.plain) {
		r.line = op.line
		return fmt.Errorf("%s is %s, not %s", op.name, say(result), op.expected)
	}
	if gives, ok := op.words.get("gives"); ok && result >= 0 {
		wanted := caseContent(gives)
		found := bytes.Join(op.buffers, nil)
		if err := same(found[:min(len(found), len(wanted))], wanted,
			"the buffer of "+op.name); err != nil {
			r.line = op.line
			return err
		}
	}
	return nil
}

func (r *caseRun) rest() error {
	for r.made && r.inFlight() > 0 {
		if err := r.binding.reap(1); err != nil {
			return err
		}
	}
	return nil
}

func want(wanted string, found int) error {
	if fits(wanted, found, 0) {
		return nil
	}
	return fmt.Errorf("it is %s, not %s", say(found), wanted)
}

func (r *caseRun) step(words caseWords) (err error) {
	wanted := ""
	if n := len(words); n > 2 && words[n-2] == "=>" {
		words, wanted = words[:n-2], words[n-1]
	}
	switch what := words.at(0); what {
	case "queue":
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			r.options[name] = value
		}
	case "as":
		if syscall.Geteuid() == 0 {
			return syscall.Setresuid(-1, 65534, -1)
		}
	case "limit":
		return limitFileSize(func(uint64) uint64 { return caseNumber(words.at(2)) })
	case "make":
		return makeThing(words)
	case "chmod":
		return syscall.Chmod(words.at(1), uint32(caseNumber(words.at(2))))
	case "open":
		if err := r.make(); err != nil {
			return err
		}
		flags := int(caseBits(words.at(3)))
		d, err := r.binding.openPath(casePath(words.at(2)), flags)
		if err != nil {
			if flags&syscall.O_DIRECT != 0 && errors.Is(err, syscall.EINVAL) {
				return &skipped{"this file system does not support direct I/O"}
			}
			return err
		}
		return r.call(words.at(1), d)
	case "pipe", "sockets":
		if err := r.make(); err != nil {
			return err
		}
		var fds [2]int
		if what == "pipe" {
			err = syscall.Pipe2(fds[:], syscall.O_CLOEXEC)
		} else {
			fds, err = syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC,
				0)
		}
		for i, fd := range fds {
			var d *descriptor
			if err == nil {
				d, err = r.binding.adopt(fd, words.at(1+i))
			}
			if err == nil {
				err = r.call(words.at(1+i), d)
			}
		}
		return err
	case "close":
		r.named(words.at(1)).close()
		delete(r.names, words.at(1))
	case "put":
		return writeAll(r.named(words.at(1)).fd, caseContent(words.at(2)))
	case "take":
		return r.take(r.named(words.at(1)).fd, caseContent(words.at(2)))
	case "emptied":
		for {
			if err := errors.Join(r.make(), r.binding.reap(0)); err != nil {
				return err
			}
			if !becomesReady(r.named(words.at(1)).fd, 1) {
				return nil
			}
		}
	case "seek":
		_, err := syscall.Seek(r.named(words.at(1)).fd, int64(caseNumber(words.at(2))), 0)
		return err
	case "do", "push", "refuse":
		return r.begin(what, words[1:], wanted)
	case "chain":
		r.inChain, r.chain = true, nil
		return r.make()
	case "end":
		chain := r.chain
		r.inChain, r.chain = false, nil
		return r.binding.push(chain...)
	case "submit":
		return errors.Join(r.make(), r.binding.submit())
	case "look":
		return errors.Join(r.make(), r.binding.reap(0))
	case "ready":
		return r.binding.ready(int(caseNumber(words.at(1))))
	case "wait":
		if words.at(1) == "all" {
			return r.rest()
		}
		for _, name := range words[1:] {
			for op := r.operation(name); op.order == 0; {
				if err := r.binding.reap(1); err != nil {
					return err
				}
			}
		}
	case "pending":
		if err := r.binding.reap(0); err != nil {
			return err
		}
		for _, name := range words[1:] {
			if op := r.operation(name); op.order != 0 {
				return fmt.Errorf("%s has completed with %s", name, say(op.result))
			}
		}
	case "cancel":
		answer, err := r.binding.cancel(r.operation(words.at(1)))
		return errors.Join(err, want(wanted, answer))
	case "cancel_all":
		// Package ring reports how many the kernel found: of a chain, the one in progress. That the
		// others end shows later.
		found, err := r.binding.cancelAll()
		if most := int(caseNumber(wanted)); err == nil && (found > most || found == 0 && most > 0) {
			err = fmt.Errorf("%d of %d were found", found, most)
		}
		return err
	case "order":
		last := 0
		for _, name := range words[1:] {
			order := r.operation(name).order
			if order <= last {
				return fmt.Errorf("%s completed too early, or not at all", name)
			}
			last = order
		}
	case "in_flight":
		return want(words.at(1), r.inFlight())
	case "bytes":
		found := bytes.Join(r.operation(words.at(1)).buffers, nil)[caseNumber(words.at(2)):]
		wanted := caseContent(words.at(3))
		return same(found[:min(len(found), len(wanted))], wanted, "the buffer")
	case "stat":
		return checkStat(r.operation(words.at(1)).stat, words.at(2), words.at(3))
	case "file":
		found, err := os.ReadFile(words.at(1))
		return errors.Join(err, same(found, caseContent(words.at(2)), words.at(1)))
	case "part":
		f, err := os.Open(words.at(1))
		if err != nil {
			return err
		}
		defer f.Close()
		wanted := caseContent(words.at(3))
		found := make([]byte, len(wanted))
		_, err = f.ReadAt(found, int64(caseNumber(words.at(2))))
		return errors.Join(err, same(found, wanted, words.at(1)))
	case "absent":
		if _, err := os.Lstat(words.at(1)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s exists: %v", words.at(1), err)
		}
	case "size", "mode", "nlink", "type", "target", "same":
		return checkPath(what, words.at(1), words.at(2))
	case "position":
		at, err := syscall.Seek(r.named(words.at(1)).fd, 0, 1)
		return errors.Join(err, want(words.at(2), int(at)))
	case "cloexec":
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(r.named(words.at(1)).fd),
			syscall.F_GETFD, 0)
		if errno != 0 || flags != syscall.FD_CLOEXEC {
			return errors.New("not close-on-exec")
		}
	default:
		return fmt.Errorf("unknown step: %s", what)
	}
	return nil
}

// begin pushes an operation, or adds it to a chain.
func (r *caseRun) begin(how string, words caseWords, wanted string) error {
	if err := r.make(); err != nil {
		return err
	}
	name, ok := strings.CutSuffix(words.at(0), ":")
	if ok {
		words = words[1:]
	}
	if why := r.binding.omits(words); why != "" {
		r.omitted[why]++
		return nil
	}
	op := &operation{name: name, kind: words.at(0), words: words, line: r.line, expected: wanted,
		exact: words.has("exact")}
	asked := strings.Join(slices.DeleteFunc(slices.Clone(words),
		func(w string) bool { return strings.HasPrefix(w, "gives=") }), " ")
	if answer, ok := r.other[asked]; ok {
		op.expected = answer
		r.others[asked] = true
		r.byRule++
	}
	if strings.Contains(op.expected, "plain") {
		op.plain = r.plainResult(op)
	}
	switch op.kind {
	case "read", "write", "readv", "writev":
		op.buffers = words.memory()
	}
	r.pushed = append(r.pushed, op)
	if r.inChain {
		r.chain = append(r.chain, op)
		return nil
	}
	if err := r.binding.push(op); err != nil {
		return err
	}
	for how != "push" && op.order == 0 {
		if err := r.binding.reap(1); err != nil {
			return err
		}
	}
	return nil
}

// plainResult returns the result of the blocking system call, on buffers of its own.
func (r *caseRun) plainResult(op *operation) int {
	w := op.words
	fd, off, length := r.fd(w, "fd"), w.offset(), int64(w.number("len"))
	var n int
	var err error
	switch op.kind {
	case "read":
		n, err = syscall.Pread(fd, w.memory()[0], off)
	case "write":
		n, err = syscall.Pwrite(fd, w.memory()[0], off)
	case "readv", "writev":
		number := uintptr(syscall.SYS_PREADV)
		if op.kind == "writev" {
			number = syscall.SYS_PWRITEV
		}
		buffers := w.memory()
		vectors := make([]syscall.Iovec, len(buffers))
		for i, b := range buffers {
			vectors[i].Base = unsafe.SliceData(b)
			vectors[i].SetLen(len(b))
		}
		// The offset has two halves; 64-bit machines use the first.
		got, _, errno := syscall.Syscall6(number, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(vectors))), uintptr(len(vectors)),
			uintptr(off), uintptr(off>>32), 0)
		if n = int(got); errno != 0 {
			err = errno
		}
	case "fallocate":
		err = syscall.Fallocate(fd, uint32(w.bits("mode")), off, length)
	case "ftruncate":
		err = syscall.Ftruncate(fd, length)
	default:
		throw("no plain call for %s", op.kind)
	}
	if err != nil {
		return -int(refusal.Errno(err))
	}
	return n
}

// Steps that do not use the binding.

func limitFileSize(to func(most uint64) uint64) error {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit)
	limit.Cur = to(limit.Max)
	return errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
}

func makeThing(w caseWords) error {
	path := casePath(w.at(2))
	switch w.at(1) {
	case "file":
		return os.WriteFile(path, caseContent(w.at(3)), 0o644)
	case "sparse":
		return errors.Join(os.WriteFile(path, nil, 0o644),
			os.Truncate(path, int64(caseNumber(w.at(3)))))
	case "dir":
		return os.Mkdir(path, 0o755)
	case "fifo":
		return syscall.Mkfifo(path, 0o644)
	case "symlink":
		return os.Symlink(w.at(3), path)
	}
	return fmt.Errorf("unknown kind of file to make: %s", w.at(1))
}

// becomesReady reports whether a descriptor is ready within a millisecond.
func becomesReady(fd int, events int16) bool {
	descriptor := struct {
		fd              int32
		events, revents int16
	}{int32(fd), events, 0}
	span := syscall.NsecToTimespec(int64(time.Millisecond))
	n, _, _ := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&descriptor)), 1,
		uintptr(unsafe.Pointer(&span)), 0, 0, 0)
	return n == 1
}

func writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := syscall.Write(fd, p)
		if err == syscall.EAGAIN || err == syscall.EINTR {
			becomesReady(fd, 4)
			continue
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// take reads and checks data from a descriptor, and reaps in the meantime.
func (r *caseRun) take(fd int, wanted []byte) error {
	found := make([]byte, 0, len(wanted))
	for len(found) < len(wanted) {
		if becomesReady(fd, 1) {
			n, err := syscall.Read(fd, found[len(found):cap(found)])
			if n == 0 && err == nil {
				return fmt.Errorf("only %d bytes arrive", len(found))
			}
			if err != nil && err != syscall.EAGAIN && err != syscall.EINTR {
				return err
			}
			found = found[:len(found)+max(n, 0)]
		}
		if err := r.binding.reap(0); err != nil {
			return err
		}
	}
	return same(found, wanted, "the data")
}

func typeOf(mode uint32) string {
	switch mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return "file"
	case syscall.S_IFDIR:
		return "dir"
	case syscall.S_IFLNK:
		return "symlink"
	}
	return "fifo"
}

// isFact reports whether a size, mode, number of links or type is the value.
func isFact(what, value string, size, links uint64, mode uint32) bool {
	switch what {
	case "size":
		return size == caseNumber(value)
	case "mode":
		return uint64(mode&0o7777) == caseNumber(value)
	case "nlink":
		return links == caseNumber(value)
	}
	return what == "type" && typeOf(mode) == value
}

func checkStat(found *ring.Statx, field, value string) error {
	if found == nil {
		return errors.New("no statx has completed")
	}
	right := isFact(field, value, found.Size, uint64(found.Links), uint32(found.Mode))
	if field == "same" {
		var plain syscall.Stat_t
		if err := syscall.Lstat(value, &plain); err != nil {
			return err
		}
		right = found.Inode == plain.Ino && int64(found.Size) == plain.Size &&
			int64(found.Blocks) == plain.Blocks &&
			uint32(found.Mode) == plain.Mode && found.UID == plain.Uid &&
			found.Modified.Sec == int64(plain.Mtim.Sec) &&
			int64(found.Modified.Nsec) == int64(plain.Mtim.Nsec)
	}
	if !right {
		return fmt.Errorf("%s is not %s: %+v", field, value, *found)
	}
	return nil
}

func checkPath(what, path, value string) error {
	var found, other syscall.Stat_t
	if err := syscall.Lstat(path, &found); err != nil {
		return err
	}
	right := isFact(what, value, uint64(found.Size), uint64(found.Nlink), found.Mode)
	switch what {
	case "target":
		target, err := os.Readlink(path)
		right = err == nil && target == value
	case "same":
		right = syscall.Lstat(value, &other) == nil && found.Ino == other.Ino
	}
	if !right {
		return fmt.Errorf("%s of %s is not %s: %+v", what, path, value, found)
	}
	return nil
}

// All cases.

// conformanceChild is the environment variable of the child process that runs the cases. They
// change its working directory, umask, user and limits.
const conformanceChild = "RINGWAY_CONFORMANCE_CHILD"

func TestConformance(t *testing.T) {
	if os.Getenv(conformanceChild) == "" {
		conformanceInChild(t)
		return
	}
	cases := loadCases(t)
	require(t, len(cases) >= 190, "only %v cases", len(cases))
	signal.Ignore(syscall.SIGXFSZ, syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGXFSZ, syscall.SIGPIPE)
	defer syscall.Umask(syscall.Umask(0o022))
	only := os.Getenv("RINGWAY_CASE")
	require(t, slices.ContainsFunc(cases, func(c *conformanceCase) bool {
		return strings.Contains(c.name, only)
	}), "no case is named %s", only)
	ran := map[string]int{}
	missing := false // A backend, or all of io_uring.
	bindings := []func() binding{func() binding { return &ringBinding{} }}
	for _, backend := range testBackends {
		bindings = append(bindings, func() binding { return &fileBinding{backend: backend} })
		if backend != BackendThreads {
			bindings = append(bindings,
				func() binding { return &fileBinding{backend: backend, always: true} })
		}
	}
	for _, make := range bindings {
		name := fmt.Sprint(make())
		t.Run(name, func(t *testing.T) {
			d := make()
			if err := errors.Join(d.open(&caseRun{}), d.close()); err != nil {
				if os.Getenv("CI") != "" && !errors.Is(err, syscall.EPERM) &&
					!errors.Is(err, syscall.ENOSYS) {
					t.Fatal(err)
				}
				missing = true
				t.Skip("skipped:", err)
			}
			count, byRule := 0, 0
			reasons, omitted := map[string]int{}, map[string]bool{}
			for _, c := range cases {
				if !strings.Contains(c.name, only) {
					continue
				}
				d := make()
				if why := d.cannot(c); why != "" {
					reasons[why]++
					continue
				}
				count++
				ran[c.name]++
				t.Run(c.name, func(t *testing.T) {
					dir := t.TempDir()
					must(t, os.Chmod(dir, 0o777))
					t.Chdir(dir)
					r, err := runCase(c, d)
					var skip *skipped
					if errors.As(err, &skip) && os.Getenv("CI") == "" {
						t.Skip("skipped:", skip.why)
					}
					must(t, err)
					byRule += r.byRule
					for why, n := range r.omitted {
						reasons[why] += n
						omitted[why] = true
					}
				})
			}
			t.Logf("%s: %d of %d cases; %d of their operations have another result by contract",
				name, count, len(cases), byRule)
			for _, why := range slices.Sorted(maps.Keys(reasons)) {
				t.Logf("%4d %s not expressed: %s", reasons[why],
					map[bool]string{false: "cases", true: "operations"}[omitted[why]], why)
			}
		})
	}
	for _, c := range cases {
		if ran[c.name] == 0 && strings.Contains(c.name, only) {
			t.Logf("nowhere: %s: %s; %s", c.name, new(ringBinding).cannot(c),
				(&fileBinding{backend: BackendURing, always: true}).cannot(c))
		}
	}
	t.Logf("%d of %d cases have run through the Go API", len(ran), len(cases))
	expect(t, len(ran) >= 150 || missing || only != "", "too few cases have run")
	listed := slices.Concat(slices.Collect(maps.Keys(notByFile)),
		slices.Collect(maps.Keys(notByRing)), slices.Collect(maps.Keys(otherByFile)),
		slices.Collect(maps.Keys(otherByRing)))
	for _, name := range listed {
		expect(t, slices.ContainsFunc(cases, func(c *conformanceCase) bool {
			return c.name == name
		}), "%q is listed, but is not a case", name)
	}
}

func conformanceInChild(t *testing.T) {
	run := "^TestConformance$"
	if asked := flag.Lookup("test.run").Value.String(); strings.Contains(asked, "/") {
		run = asked
	}
	command := exec.Command(os.Args[0], "-test.run="+run, "-test.v")
	command.Env = append(os.Environ(), conformanceChild+"=1")
	output, err := command.CombinedOutput()
	require(t, err == nil, "%v\n%s", err, output)
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, "_test.go:") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
