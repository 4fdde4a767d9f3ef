//go:build linux

package main

// `ringway-go bench` from its options to its reports.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

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
	explained := engine.Explain()
	if err := engine.Close(); err != nil {
		return err
	}
	out, err := openOutputs(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.close()) }()

	show := newShow(stderr, o.quiet)
	t, err := openTarget(o, func(done, all int64) {
		show.line("writing a scratch file in %s: %d of %d MiB", o.scratch, done>>20, all>>20)
	})
	show.clear()
	if err != nil {
		return err
	}
	defer t.file.Close()

	r := &report{Command: append([]string{"ringway-go", "bench"}, args...), Machine: machineOf(t, explained), options: o}
	for _, w := range o.works {
		if why := t.cannot(w); why != "" {
			if !slices.Contains(r.Machine.Remarks, why) {
				r.Machine.Remarks = append(r.Machine.Remarks, why)
			}
			continue
		}
		for _, name := range field(w, o.full, o.only) {
			r.Cells = append(r.Cells, &cell{Work: w, Contestant: name})
		}
	}
	if len(r.Cells) == 0 {
		return fmt.Errorf("nothing is left to be measured: %s", append(r.Machine.Remarks, "none of the contestants does this work")[1])
	}
	before := processorsNow()
	if err := r.runAll(t, show); err != nil {
		return err
	}
	r.Machine.Others = processorsNow().othersSince(before)
	r.compare()
	if err := out.write(r, stdout); err != nil {
		return err
	}
	if !slices.ContainsFunc(r.Cells, func(c *cell) bool { return len(c.Runs) > 0 }) {
		return errors.New("none of this could be run here")
	}
	return nil
}

// cannot says why this target is of no use for a work.
func (t *target) cannot(w work) string {
	switch {
	case (w.Kind == ioDirect || w.Kind == ioNull) && !t.direct:
		return string(w.Kind) + ": left out, since this file cannot be read with direct I/O"
	case w.Kind == ioCommit && !t.scratch:
		return "commit: left out, since it writes, and FILE is only read"
	}
	return ""
}

// runAll makes all runs: one work after the other, and of each the rounds, in which the contestants take turns.
func (r *report) runAll(t *target, show *show) error {
	o := r.options
	total := len(r.Cells) * o.rounds
	show.begin(total, o.ramp+o.runtime)
	for _, w := range o.works {
		cells := map[string]*cell{}
		var names []string
		for _, c := range r.Cells {
			if c.Work == w {
				cells[c.Contestant] = c
				names = append(names, c.Contestant)
			}
		}
		for round := range o.rounds {
			for _, name := range turns(names, round) {
				c := cells[name]
				show.run("%s, %s", c.Work, name)
				if c.Refused != "" {
					continue // Refused once is refused again.
				}
				blocks := t.size / block
				if w.Kind == ioCached || w.Kind == ioBatch {
					blocks = max(min(blocks, o.cachedSize/block), 1)
				}
				done, refused, err := runChild(t.file, order{
					Work: w, Contestant: name, Runtime: o.runtime, Ramp: o.ramp,
					// Every run reads elsewhere; those of a round, the same.
					Seed: o.seed + uint64(round), Blocks: blocks, Numbered: t.scratch,
				})
				switch {
				case err != nil:
					show.clear()
					return err
				case refused != "":
					c.Refused = refused
				default:
					c.Runs = append(c.Runs, done)
				}
			}
		}
	}
	show.clear()
	return nil
}

// outputs are where the reports go. Files are opened before anything is measured: a mistyped path must not cost the results.
type outputs struct{ json, csv *output }

type output struct {
	file *os.File // nil: standard output.
}

func openOutputs(o options) (out outputs, err error) {
	open := func(path string) (*output, error) {
		switch path {
		case "":
			return nil, nil
		case "-":
			return &output{}, nil
		}
		// Emptied when there is something to put into it.
		file, err := os.OpenFile(filepath.Clean(path), os.O_WRONLY|os.O_CREATE, 0o666)
		return &output{file}, err
	}
	if out.json, err = open(o.json); err == nil {
		out.csv, err = open(o.csv)
	}
	return out, err
}

func (out outputs) write(r *report, stdout io.Writer) error {
	table := true
	put := func(to *output, write func(io.Writer) error) error {
		switch {
		case to == nil:
			return nil
		case to.file == nil:
			table = false
			return write(stdout)
		}
		if err := to.file.Truncate(0); err != nil && !errors.Is(err, os.ErrInvalid) {
			return err
		}
		return write(to.file)
	}
	if err := errors.Join(put(out.json, r.writeJSON), put(out.csv, r.writeCSV)); err != nil {
		return err
	}
	if !table {
		return nil
	}
	_, err := io.WriteString(stdout, r.table())
	return err
}

func (out outputs) close() error {
	var all error
	for _, to := range []*output{out.json, out.csv} {
		if to != nil && to.file != nil {
			all = errors.Join(all, to.file.Close())
		}
	}
	return all
}

// show tells how far it is: on a terminal in one line that changes, elsewhere in a line before the runs.
type show struct {
	to        io.Writer
	terminal  bool
	quiet     bool
	last      string
	now, runs int
	began     time.Time
}

func newShow(to io.Writer, quiet bool) *show {
	s := &show{to: to, quiet: quiet}
	if file, ok := to.(*os.File); ok {
		info, err := file.Stat()
		s.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

func (s *show) line(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); s.terminal && !s.quiet && text != s.last {
		fmt.Fprintf(s.to, "\r%s\x1b[K", clean(text))
		s.last = text
	}
}

func (s *show) begin(runs int, each time.Duration) {
	s.runs, s.began = runs, time.Now()
	if !s.terminal && !s.quiet {
		each += 100 * time.Millisecond // A process to start, and to end.
		fmt.Fprintf(s.to, "%s, each in a process of its own: at least %s\n", plural(runs, "run"), (time.Duration(runs) * each).Round(time.Second))
	}
}

func (s *show) run(format string, args ...any) {
	s.now++
	left := ""
	if s.now > 3 {
		each := time.Since(s.began) / time.Duration(s.now-1)
		left = fmt.Sprintf(", %s left", (each * time.Duration(s.runs-s.now+1)).Round(time.Second))
	}
	s.line("run %d of %d%s: %s", s.now, s.runs, left, fmt.Sprintf(format, args...))
}

func (s *show) clear() {
	if s.last != "" {
		fmt.Fprint(s.to, "\r\x1b[K")
		s.last = ""
	}
}
