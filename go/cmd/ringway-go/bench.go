//go:build linux

// `ringway-go bench`, from its options to its records.

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

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
	fmt.Fprintln(stderr, "preparing the file")
	t, err := openTarget(o)
	if err != nil {
		return err
	}
	defer t.file.Close()

	r := &report{Machine: describe(t, explanation), options: o}
	for _, w := range o.workloads {
		if why := t.unfit(w); why != "" {
			if !slices.Contains(r.Machine, why) {
				r.Machine = append(r.Machine, why)
			}
			continue
		}
		for _, name := range contestantsFor(w, o.full, o.only) {
			r.Rows = append(r.Rows, &row{Workload: w, Contestant: name})
		}
	}
	if len(r.Rows) == 0 {
		return errors.New("nothing to measure: no selected contestant supports a workload here")
	}
	fmt.Fprintf(stderr, "%s, each in a process of its own\n", plural(len(r.Rows)*o.repeat, "run"))
	if err := r.runAll(t, stderr); err != nil {
		return err
	}
	if err := r.writeRecords(stdout); err != nil {
		return err
	}
	if !slices.ContainsFunc(r.Rows, func(row *row) bool { return len(row.Runs) > 0 }) {
		return errors.New("every run failed")
	}
	return nil
}

// runAll runs the workloads one after the other, and in each round of a workload the contestants.
func (r *report) runAll(t *target, stderr io.Writer) error {
	o := r.options
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
			blocks = min(blocks, maxCached/block)
		}
		fmt.Fprintf(stderr, "%s: %s\n", w, strings.Join(names, ", "))
		for round := range o.repeat {
			for _, name := range inTurn(names, round) {
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
	return nil
}
