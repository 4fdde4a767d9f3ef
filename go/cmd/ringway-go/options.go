//go:build linux

// The options of `bench`, and what they select to be measured.

package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options of a bench.
type options struct {
	workloads    []workload
	only         []string // Empty: the contestants that suit the workload.
	full         bool
	fixedBuffers bool
	runtime      time.Duration
	ramp         time.Duration
	repeat       int
	size         int64 // Of the scratch file, or used of FILE. 0: the default.
	scratch      string
	file         string // Empty: a scratch file.
}

const benchUsage = `Usage: ringway-go bench [OPTION]... [FILE]

Measures 4 KiB random reads of one file by many goroutines, with ringway and with os.File. Each run
is a separate process; the contestants run in turn, every other round in reverse order. Without
FILE, the command uses a scratch file in the current directory and removes it, however the command
ends. FILE is never written to.

Output: the machine and a record of each run, as JSON lines. 'make go-bench' in ringway's repository
makes tables of them: medians, spreads, and ratios of runs in the same round. A row is a workload:
  direct          reads with O_DIRECT
  cached          reads of data in the page cache
  batch           cached reads by one goroutine, DEPTH blocks per call
  commit          4 KiB records appended to a log, each durable (fdatasync) before its goroutine
                  continues
  null            reads without a device
  depth           goroutines, each with one request at a time; of a batch, blocks per call
Its figures are:
  requests        blocks read or records written
  user s,         CPU time of the process, kernel threads included, and the same per operation
  system s,
  CPU s, CPU µs/op
  ops/s, MB/s     operations and megabytes per second
  p50 ... max µs  latency of a request (of a whole batch), all waiting included
  calls/op        system calls that submit or are a read, per operation
  ctx/op,         context switches and heap allocations per operation
  allocs/op
  GCs             garbage collections
  workers         io-wq threads of the kernel for this process
  threads         threads of the process, with those of the kernel
On a busy machine, trust CPU time per operation more than operations per second.

Contestants:
`

const benchExamples = `
Examples:
  ringway-go bench
      direct and cached reads, in less than a minute
  ringway-go bench -full
      everything, including 100,000 goroutines, batches and group commit, in about three minutes
  ringway-go bench -direct 128 -cached "" -repeat 9 /data/large
      one workload, nine runs each, on an existing file
`

// depthOption selects the depths of a kind of workload.
type depthOption struct {
	kind           ioKind
	standard, full []int // Without and with -full.
	usage          string
	given          []int
}

func depthOptions() []depthOption {
	return []depthOption{
		{kind: ioDirect, standard: []int{1, 128, 1000}, full: []int{1, 128, 1000, 100_000},
			usage: "`depths` of direct reads, a list; \"\" for none " +
				"(default 1,128,1000; -full adds 100000)"},
		{kind: ioCached, standard: []int{1, 32}, full: []int{1, 32, 1000},
			usage: "`depths` of cached reads (default 1,32; -full adds 1000)"},
		{kind: ioBatch, full: []int{64},
			usage: "`depths` of batches of cached reads (default none; -full: 64)"},
		{kind: ioCommit, full: []int{128},
			usage: "`depths` of group commit (default none; -full: 128)"},
		{kind: ioNull, full: []int{128, 1000},
			usage: "`depths` of reads without a device (default none; -full: 128,1000)"},
	}
}

// parseOptions parses the arguments of `bench`. Options may follow FILE.
func parseOptions(args []string, stdout io.Writer) (options, error) {
	o := options{
		runtime: time.Second, ramp: 200 * time.Millisecond, repeat: 3,
		scratch: ".",
	}
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	depths := depthOptions()
	for i := range depths {
		set.Func(string(depths[i].kind), depths[i].usage, func(text string) (err error) {
			depths[i].given, err = parseDepths(text)
			return err
		})
	}
	size := func(to *int64, name, usage string) {
		set.Func(name, usage, func(text string) (err error) {
			*to, err = parseSize(text)
			return err
		})
	}
	set.BoolVar(&o.full, "full", false,
		"measure everything: more depths, batch, commit, null, and the contestants bare and "+
			"ringway-ctx")
	set.BoolVar(&o.fixedBuffers, "fixed-buffers", false,
		"register ringway's buffers with its rings")
	set.Func("only", "`contestants` to measure, a list", func(text string) error {
		o.only = strings.Split(text, ",")
		for _, name := range o.only {
			if _, err := contestantNamed(name); err != nil {
				return err
			}
		}
		return nil
	})
	set.DurationVar(&o.runtime, "runtime", o.runtime, "measured `time` of each run")
	set.DurationVar(&o.ramp, "ramp", o.ramp,
		"`time` before it; with direct I/O at least until every goroutine has read once")
	set.IntVar(&o.repeat, "repeat", o.repeat, "`runs` of each row")
	size(&o.size, "size",
		"`bytes` of the scratch file (default 1g, at most a tenth of the free space), or of FILE")
	set.StringVar(&o.scratch, "scratch", o.scratch, "`directory` of the scratch file")

	for {
		if err := set.Parse(args); err == flag.ErrHelp {
			printHelp(set, stdout)
			return o, err
		} else if err != nil {
			return o, usageError{err}
		}
		if set.NArg() == 0 {
			break
		}
		if o.file != "" {
			return o, usageError{fmt.Errorf("more than one FILE: %q and %q", o.file, set.Arg(0))}
		}
		o.file, args = set.Arg(0), set.Args()[1:]
	}
	given := map[string]bool{}
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	o.choose(depths, given)
	return o, o.check(given["scratch"])
}

func printHelp(set *flag.FlagSet, stdout io.Writer) {
	fmt.Fprint(stdout, benchUsage)
	for _, c := range contestants {
		fmt.Fprintf(stdout, "  %-10s  %s\n", c.name, c.about)
	}
	fmt.Fprintln(stdout, "\nOptions (list items are separated by commas):")
	set.SetOutput(stdout)
	set.PrintDefaults()
	fmt.Fprint(stdout, benchExamples)
}

// choose sets the workloads.
func (o *options) choose(depths []depthOption, given map[string]bool) {
	for _, d := range depths {
		chosen := d.standard
		switch {
		case given[string(d.kind)]:
			chosen = d.given
		case o.full:
			chosen = d.full
		}
		for _, depth := range chosen {
			o.workloads = append(o.workloads, workload{d.kind, depth})
		}
	}
}

// check finds combinations of options that are wrong.
func (o *options) check(scratchGiven bool) error {
	wrong := ""
	switch {
	case len(o.workloads) == 0:
		wrong = "no workload is selected"
	case o.repeat < 1:
		wrong = "-repeat must be at least 1"
	case o.runtime <= 0:
		wrong = "-runtime must be positive"
	case o.ramp < 0:
		wrong = "-ramp must not be negative"
	case o.file != "" && scratchGiven:
		wrong = "-scratch cannot be combined with FILE"
	default:
		return nil
	}
	return usageError{fmt.Errorf("%s", wrong)}
}

const maxDepth = 10_000_000

func parseDepths(text string) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > maxDepth {
			return nil, fmt.Errorf("must be numbers from 1 to %d, separated by commas", maxDepth)
		}
		if !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all, nil
}

// parseSize parses 4096, 64k, 1g. Units are powers of 1024.
func parseSize(text string) (int64, error) {
	text = strings.ToLower(text)
	digits := strings.TrimRight(text, "kmgtib")
	unit := strings.TrimSuffix(strings.TrimSuffix(text[len(digits):], "b"), "i")
	shift, ok := map[string]int{"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[unit]
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 1 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("must be a size such as 4096, 64m or 1g")
	}
	return n << shift, nil
}
