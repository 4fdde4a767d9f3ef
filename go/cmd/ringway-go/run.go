//go:build linux

package main

// One run, in a process of its own, so that its processor time is all of it and nobody's threads are left over: the parent
// starts this command again, and gets the figures as JSON.

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

// runCommand is the command's name for itself; nobody else needs it.
const runCommand = "run-one"

// inherited is the file in the child, as the parent has opened it: what was looked at is what is used.
const inherited = "/proc/self/fd/3"

// order is what a child is told.
type order struct {
	Work       work          `json:"work"`
	Contestant string        `json:"contestant"`
	Runtime    time.Duration `json:"runtime"`
	Ramp       time.Duration `json:"ramp"`
	Seed       uint64        `json:"seed"`
	Blocks     int64         `json:"blocks"`   // Of the file, from its beginning.
	Numbered   bool          `json:"numbered"` // Each block begins with its number.
}

// answer is what it says: figures, or why there are none.
type answer struct {
	Run   run    `json:"run"`
	Error string `json:"error"`
}

// patience is how much longer than its order a child may take: the rest of a ramp, and goroutines by the hundred thousand.
const patience = longestRamp + time.Minute

// runChild makes one run. refused is why the contestant cannot do this work here; an error, why nothing can be measured.
func runChild(file *os.File, o order) (result run, refused string, err error) {
	self, err := os.Executable()
	if err != nil {
		return run{}, "", err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return run{}, "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.Ramp+o.Runtime+patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	child := exec.CommandContext(ctx, self, runCommand, string(text))
	child.ExtraFiles = []*os.File{file}
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	child.Stdout, child.Stderr = &stdout, &stderr
	if err := child.Run(); err != nil {
		if ctx.Err() != nil {
			return run{}, "it did not come to an end", nil
		}
		// (A program that Go ends tells why in its first line.)
		first, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return run{}, strings.TrimSuffix(fmt.Sprintf("%v: %s", err, first), ": "), nil
	}
	var said answer
	if err := json.Unmarshal(stdout.Bytes(), &said); err != nil {
		return run{}, "", fmt.Errorf("a run's answer: %w", err)
	}
	return said.Run, said.Error, nil
}

// runHere is the child.
func runHere(args []string, stdout io.Writer) error {
	var o order
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &o) != nil {
		return usageError{errors.New(runCommand + " is for the command itself")}
	}
	var said answer
	var err error
	if said.Run, err = o.run(inherited); err != nil {
		said = answer{Error: err.Error()}
	}
	return json.NewEncoder(stdout).Encode(said)
}

func (o order) run(file string) (run, error) {
	c, err := contestantNamed(o.Contestant)
	if err != nil {
		return run{}, err
	}
	flag := map[ioKind]int{ioDirect: os.O_RDONLY | syscall.O_DIRECT, ioNull: os.O_RDONLY | syscall.O_DIRECT, ioCommit: os.O_RDWR}[o.Work.Kind]
	if o.Work.Kind == ioCached || o.Work.Kind == ioBatch {
		if err := warm(file, o.Blocks*block); err != nil {
			return run{}, err
		}
	}
	s, err := c.open(setup{file, flag, o.Work.goroutines(), o.Work.perRequest()})
	if err != nil {
		return run{}, err
	}
	prepare := o.prepareReads(s)
	if o.Work.Kind == ioCommit {
		if prepare, err = prepareCommit(s, c.name == "os-group", o.Blocks); err != nil {
			return run{}, err
		}
	}
	goroutines := o.Work.goroutines()
	if c.name == "bare" {
		goroutines = 1
	}
	r, err := measure(c, s, goroutines, o.Work.blocksThreads(), o.Ramp, o.Runtime, prepare)
	if err != nil {
		return run{}, err
	}
	r.Requests *= int64(o.Work.perRequest())
	if r.trips != nil && o.Work.Kind != ioCommit {
		calls := r.trips.calls + max(r.Requests-r.trips.carried, 0)
		r.Calls = &calls
	}
	return r, nil
}

// warm has the page cache hold what cached reads go to.
func warm(file string, size int64) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(io.Discard, io.NewSectionReader(f, 0, size))
	return err
}

// prepareReads gives each goroutine its own offsets and memory.
func (o order) prepareReads(s subject) func(int) (func(bool) error, error) {
	batched, ok := s.(interface {
		ReadBatch([]ringway.Transfer) error
	})
	return func(goroutine int) (func(bool) error, error) {
		random := new(rand.PCG)
		random.Seed(o.Seed, uint64(goroutine))
		offset := func() int64 {
			at, _ := bits.Mul64(random.Uint64(), uint64(o.Blocks))
			return int64(at) * block
		}
		check := func(p []byte, off int64) error {
			if got := binary.LittleEndian.Uint64(p); o.Numbered && o.Contestant != "null" && o.Work.Kind != ioNull && got != uint64(off/block) {
				return fmt.Errorf("the read at %d got what belongs to %d: wrong bytes", off, got*block)
			}
			return nil
		}
		if b, ok := s.(*bare); ok {
			return b.prepare(o.Work.Depth, offset, check)
		}
		count := o.Work.perRequest()
		memory, err := s.buffer(count * block)
		if err != nil {
			return nil, err
		}
		for at := 0; at < len(memory); at += block {
			memory[at] = 0 // The page is there when it is measured.
		}
		if count == 1 {
			return func(ramp bool) error {
				off := offset()
				n, err := s.ReadAt(memory, off)
				if err = whole(n, err, memory); err == nil && ramp {
					err = check(memory, off)
				}
				return err
			}, nil
		}
		batch := make([]ringway.Transfer, count)
		return func(ramp bool) error {
			for i := range batch {
				batch[i].P, batch[i].Off = memory[i*block:(i+1)*block], offset()
			}
			if ok {
				if err := batched.ReadBatch(batch); err != nil {
					return err
				}
			} else {
				for i := range batch {
					batch[i].N, batch[i].Err = s.ReadAt(batch[i].P, batch[i].Off)
				}
			}
			for i := range batch {
				t := &batch[i]
				err := whole(t.N, t.Err, t.P)
				if err == nil && ramp {
					err = check(t.P, t.Off)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}, nil
	}
}
