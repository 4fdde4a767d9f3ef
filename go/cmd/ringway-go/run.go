//go:build linux

// A run, in a process of its own: its CPU time is then that of the process, and no threads are left
// from an earlier run. The parent starts this command again and reads the result as JSON.

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/ringway"
)

// runCommand is the internal command of a run.
const runCommand = "run-one"

// inheritedFile is the target in the child. The child opens it again, with the flags it needs.
const inheritedFile = "/proc/self/fd/3"

// order is what the parent requests from a child.
type order struct {
	Workload     workload
	Contestant   string
	Runtime      time.Duration
	Ramp         time.Duration
	FixedBuffers bool
	Seed         uint64
	Blocks       int64 // Used of the file, from its start.
	Numbered     bool  // Each block starts with its number.
}

// reply is the child's result, or why there is none.
type reply struct {
	Run   run
	Error string
}

// childGrace is how much longer than its order a child may take: the rest of a ramp, and starting
// 100,000 goroutines.
const childGrace = maxRamp + time.Minute

// runChild makes one run. failure is why this contestant cannot do this workload here; err is why
// nothing can be measured.
func runChild(file *os.File, o order) (result run, failure string, err error) {
	self, err := os.Executable()
	if err != nil {
		return run{}, "", err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return run{}, "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.Ramp+o.Runtime+childGrace)
	defer cancel()
	var stdout, stderr bytes.Buffer
	child := exec.CommandContext(ctx, self, runCommand, string(text))
	child.ExtraFiles = []*os.File{file}
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	child.Stdout, child.Stderr = &stdout, &stderr
	if err := child.Run(); err != nil {
		if ctx.Err() != nil {
			return run{}, "the run did not end", nil
		}
		// The first line of a Go program's fatal error is its reason.
		first, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return run{}, strings.TrimSuffix(fmt.Sprintf("%v: %s", err, first), ": "), nil
	}
	var got reply
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		return run{}, "", fmt.Errorf("read the result of a run: %w", err)
	}
	return got.Run, got.Error, nil
}

// childMain is the child.
func childMain(args []string, stdout io.Writer) error {
	var o order
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &o) != nil {
		return usageError{errors.New(runCommand + " is for internal use")}
	}
	var out reply
	var err error
	if out.Run, err = o.run(inheritedFile); err != nil {
		out = reply{Error: err.Error()}
	}
	return json.NewEncoder(stdout).Encode(out)
}

func (o order) run(file string) (run, error) {
	c, err := contestantNamed(o.Contestant)
	if err != nil {
		return run{}, err
	}
	w := o.Workload
	flag := os.O_RDONLY
	switch w.IO {
	case ioDirect, ioNull:
		flag |= syscall.O_DIRECT
	case ioCached, ioBatch:
		if err := fillCache(file, o.Blocks*block); err != nil {
			return run{}, err
		}
	case ioCommit:
		flag = os.O_RDWR
	}
	s, err := c.open(setup{file, flag, w.goroutines(), w.blocksPerRequest(), o.FixedBuffers})
	if err != nil {
		return run{}, err
	}
	prepare := o.prepareReads(s)
	if w.IO == ioCommit {
		if prepare, err = prepareCommit(s, o.Blocks); err != nil {
			return run{}, err
		}
	}
	goroutines := w.goroutines()
	if _, ok := s.(*bareRing); ok {
		goroutines = 1
	}
	// Goroutines that do not block use up their time slices: thousands would take seconds to start.
	blocking := w.IO == ioDirect || w.IO == ioCommit
	r, submitted, err := measure(s, goroutines, blocking, o.Ramp, o.Runtime, prepare)
	if err != nil {
		return run{}, err
	}
	r.Requests *= int64(w.blocksPerRequest())
	if w.IO != ioCommit && c.name != "floor" {
		calls := submitted.calls + max(r.Requests-submitted.requests, 0)
		r.Calls = &calls
	}
	return r, nil
}

// fillCache reads the start of a file into the page cache.
func fillCache(file string, size int64) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(io.Discard, io.NewSectionReader(f, 0, size))
	return err
}

// step makes one request. ramp is true as long as nothing is measured.
type step func(ramp bool) error

// checkFunc checks the outcome of a read: its length, and during the ramp its bytes.
type checkFunc func(n int, err error, p []byte, off int64, ramp bool) error

func (o order) check(n int, err error, p []byte, off int64, ramp bool) error {
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case n < len(p):
		return fmt.Errorf("read at offset %d: got %d of %d bytes", off, n, len(p))
	case !ramp || !o.Numbered || o.Workload.IO == ioNull:
		return nil
	}
	if got := binary.LittleEndian.Uint64(p); got != uint64(off/block) {
		return fmt.Errorf("read at offset %d: got the bytes of offset %d", off, got*block)
	}
	return nil
}

// prepareReads gives each goroutine its own buffer and sequence of random offsets.
func (o order) prepareReads(s subject) func(int) (step, error) {
	return func(goroutine int) (step, error) {
		random := rand.NewPCG(o.Seed, uint64(goroutine))
		next := func() int64 {
			n, _ := bits.Mul64(random.Uint64(), uint64(o.Blocks))
			return int64(n) * block
		}
		if b, ok := s.(*bareRing); ok {
			return b.prepare(o.Workload.Depth, next, o.check)
		}
		count := o.Workload.blocksPerRequest()
		p, err := s.buffer(count * block)
		if err != nil {
			return nil, err
		}
		for at := 0; at < len(p); at += block {
			p[at] = 0 // Fault the page in before it is measured.
		}
		if count == 1 {
			return func(ramp bool) error {
				off := next()
				n, err := s.ReadAt(p, off)
				return o.check(n, err, p, off, ramp)
			}, nil
		}
		batch := make([]ringway.Transfer, count)
		return func(ramp bool) error {
			for i := range batch {
				batch[i].P, batch[i].Off = p[i*block:(i+1)*block], next()
			}
			if f, ok := s.(*ringwayFile); ok {
				if err := f.ReadBatch(batch); err != nil {
					return err
				}
			} else {
				for i := range batch {
					batch[i].N, batch[i].Err = s.ReadAt(batch[i].P, batch[i].Off)
				}
			}
			for i := range batch {
				if err := o.check(batch[i].N, batch[i].Err, batch[i].P, batch[i].Off,
					ramp); err != nil {
					return err
				}
			}
			return nil
		}, nil
	}
}
