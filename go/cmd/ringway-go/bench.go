//go:build linux

package main

// `ringway-go bench`, from its options to its reports.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/ringway-io/ringway/go/ringway"
)

func bench(args []string, stdout, stderr io.Writer) (err error) {
	o, err := parseOptions(args, stdout)
	if err != nil {
		return err
	}
	engine, err := ringway.New(ringway.Options{})
	if err != nil {
		return err
	}
	explanation := engine.Explain()
	if err := engine.Close(); err != nil {
		return err
	}
	var out *os.File
	if o.json != "" && o.json != "-" {
		// Opened before anything is measured, so that a mistyped path costs no results; truncated
		// only when there is something to write.
		if out, err = os.OpenFile(o.json, os.O_WRONLY|os.O_CREATE, 0o666); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out.Close()) }()
	}
	show := newProgress(stderr)
	t, err := openTarget(o, func(done, all int64) {
		show.line("writing a scratch file in %s: %d of %d MiB", o.scratch, done>>20, all>>20)
	})
	show.clear()
	if err != nil {
		return err
	}
	defer t.file.Close()

	r := &report{
		Command: append([]string{"ringway-go", "bench"}, args...),
		Machine: machineOf(t, explanation), options: o,
	}
	for _, w := range o.workloads {
		if why := t.unfit(w); why != "" {
			if !slices.Contains(r.Machine.Remarks, why) {
				r.Machine.Remarks = append(r.Machine.Remarks, why)
			}
			continue
		}
		for _, name := range contestantsFor(w, o.full, o.only) {
			r.Rows = append(r.Rows, &row{Workload: w, Contestant: name})
		}
	}
	if len(r.Rows) == 0 {
		remarks := append(r.Machine.Remarks, "no selected contestant supports the workload")
		return fmt.Errorf("nothing to measure: %s", remarks[1])
	}
	fmt.Fprintf(stderr, "%s, each in a process of its own\n", plural(len(r.Rows)*o.repeat, "run"))
	if err := r.runAll(t, show); err != nil {
		return err
	}
	r.compare()
	if err := r.write(o.json, out, stdout); err != nil {
		return err
	}
	if !slices.ContainsFunc(r.Rows, func(row *row) bool { return len(row.Runs) > 0 }) {
		return errors.New("every run failed")
	}
	return nil
}

// runAll runs the workloads one after the other, and in each round of a workload the contestants.
func (r *report) runAll(t *target, show progress) error {
	o := r.options
	total, started := len(r.Rows)*o.repeat, 0
	for _, w := range o.workloads {
		rows := map[string]*row{}
		var names []string
		for _, row := range r.Rows {
			if row.Workload == w {
				rows[row.Contestant] = row
				names = append(names, row.Contestant)
			}
		}
		blocks := t.size / block
		if w.IO == ioCached || w.IO == ioBatch {
			blocks = max(min(blocks, o.cachedSize/block), 1)
		}
		for round := range o.repeat {
			for _, name := range inTurn(names, round) {
				started++
				show.line("run %d of %d: %s, %s", started, total, w, name)
				row := rows[name]
				if row.Error != "" {
					continue // It would fail again.
				}
				run, failure, err := runChild(t.file, order{
					Workload: w, Contestant: name, Runtime: o.runtime, Ramp: o.ramp,
					FixedBuffers: o.fixedBuffers,
					// The runs of one round read the same offsets.
					Seed: uint64(round), Blocks: blocks, Numbered: t.scratch,
				})
				if err != nil {
					show.clear()
					return err
				}
				if failure != "" {
					row.Error = failure
				} else {
					row.Runs = append(row.Runs, run)
				}
			}
		}
	}
	show.clear()
	return nil
}

// write writes the JSON report where -json asks for it, and the table unless standard output is
// taken.
func (r *report) write(path string, file *os.File, stdout io.Writer) error {
	if path == "-" {
		return r.writeJSON(stdout)
	}
	if file != nil {
		// A pipe has no length.
		if err := file.Truncate(0); err != nil && !errors.Is(err, syscall.EINVAL) {
			return err
		}
		if err := r.writeJSON(file); err != nil {
			return err
		}
	}
	return r.writeTable(stdout)
}

// progress shows on a terminal what is under way, in one line.
type progress struct{ terminal *os.File }

func newProgress(to io.Writer) progress {
	if file, ok := to.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return progress{file}
		}
	}
	return progress{}
}

func (p progress) line(format string, args ...any) {
	if p.terminal != nil {
		fmt.Fprintf(p.terminal, "\r%s\x1b[K", printable(fmt.Sprintf(format, args...)))
	}
}

func (p progress) clear() { p.line("") }
