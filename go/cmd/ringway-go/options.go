//go:build linux

package main

// The options of `bench`: what they are called, what goes without saying, and what they leave to be measured.

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
	works      []work
	only       []string // Empty: those that suit the work.
	full       bool
	runtime    time.Duration
	ramp       time.Duration
	rounds     int
	size       int64 // Of the scratch file, or used of the file. 0: not given.
	cachedSize int64
	scratch    string
	seed       uint64
	json, csv  string // Where to; "-" is standard output.
	quiet      bool
	file       string // Empty: a scratch file.
}

const benchUsage = `Usage: ringway-go bench [OPTION]... [FILE]

4 KiB random reads of one file by many goroutines: ringway beside os.File. Each run is a process of its own; the
contestants take turns. Without FILE it makes a scratch file in the current folder, which is gone afterwards, however
the command ends. FILE is only read.

Options (lists have commas between their items):
`

const benchExamples = `
Examples:
  ringway-go bench
      In about a minute: direct and cached reads, ringway beside os.File and the older design
  ringway-go bench -full
      All of it, with 100,000 goroutines, batches and group commit, in five or six minutes
  ringway-go bench -direct 128 -cached "" -repeat 9 /data/large
      One question, asked nine times
`

// parseOptions understands the arguments of `bench`. Options may stand behind the FILE, too.
func parseOptions(args []string, stdout io.Writer) (options, error) {
	o := options{runtime: time.Second, ramp: 200 * time.Millisecond, rounds: 3, cachedSize: 256 << 20, scratch: ".", seed: 1}
	direct, cached, batch, commit, without := []int{1, 128, 1000}, []int{1, 32}, []int(nil), []int(nil), []int(nil)
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	list := func(to *[]int, name, usage string) {
		set.Func(name, usage, func(text string) (err error) {
			*to, err = parseDepths(text)
			return err
		})
	}
	bytes := func(to *int64, name, usage string) {
		set.Func(name, usage, func(text string) (err error) {
			*to, err = parseSize(text)
			return err
		})
	}
	set.BoolVar(&o.full, "full", false, "the whole table: more goroutines, more contestants, batches and group commit")
	list(&direct, "direct", "`goroutines` that read with direct I/O: a list, or \"\" for none (default 1,128,1000; full: and 100000)")
	list(&cached, "cached", "`goroutines` that read what is in the page cache: a list, or \"\" (default 1,32; full: and 1000)")
	list(&batch, "batch", "`reads` of a batch, cached: a list, or \"\" (default none; full: 64)")
	list(&commit, "commit", "`goroutines` that make records durable in a log: a list, or \"\" (default none; full: 128)")
	list(&without, "null", "`goroutines` that read without a device, which shows what the engine itself costs: a list, or \"\" (default none; full: 128,1000)")
	set.Func("only", "`contestants`, a list of "+strings.Join(contestantNames(), ", "), func(text string) (err error) {
		o.only, err = parseContestants(text)
		return err
	})
	set.DurationVar(&o.runtime, "runtime", o.runtime, "measured `time` of each run (full: 2s)")
	set.DurationVar(&o.ramp, "ramp", o.ramp, "`time` that each run goes unmeasured first, and, with direct I/O, until every goroutine has read")
	set.IntVar(&o.rounds, "repeat", o.rounds, "`runs` of each, in turn; the table shows the median run")
	bytes(&o.size, "size", "`bytes` of the scratch file, or used of FILE (default 1g, at most a tenth of the free space; all of FILE)")
	bytes(&o.cachedSize, "cached-size", "`bytes` at the beginning of the file that cached reads go to (default 256m)")
	set.StringVar(&o.scratch, "scratch", o.scratch, "`folder` of the scratch file")
	set.Uint64Var(&o.seed, "seed", o.seed, "`number` that the random offsets begin with")
	set.StringVar(&o.json, "json", "", "write all runs as JSON to this `file`; - for standard output, instead of the table")
	set.StringVar(&o.csv, "csv", "", "write all runs as CSV to this `file`; - for standard output, instead of the table")
	set.BoolVar(&o.quiet, "quiet", false, "show no progress")

	for {
		if err := set.Parse(args); err == flag.ErrHelp {
			fmt.Fprint(stdout, benchUsage)
			set.SetOutput(stdout)
			set.PrintDefaults()
			fmt.Fprint(stdout, benchExamples)
			return o, err
		} else if err != nil {
			return o, usageError{err}
		}
		if set.NArg() == 0 {
			break
		}
		if o.file != "" {
			return o, usageError{fmt.Errorf("one FILE, please: both %q and %q were given", o.file, set.Arg(0))}
		}
		o.file, args = set.Arg(0), set.Args()[1:]
	}
	given := map[string]bool{}
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if o.full {
		more := func(name string, to *[]int, value ...int) {
			if !given[name] {
				*to = value
			}
		}
		more("direct", &direct, 1, 128, 1000, 100_000)
		more("cached", &cached, 1, 32, 1000)
		more("batch", &batch, 64)
		more("commit", &commit, 128)
		more("null", &without, 128, 1000)
		if !given["runtime"] {
			o.runtime = 2 * time.Second
		}
	}
	for _, kind := range []struct {
		kind   ioKind
		depths []int
	}{{ioDirect, direct}, {ioCached, cached}, {ioBatch, batch}, {ioCommit, commit}, {ioNull, without}} {
		for _, depth := range kind.depths {
			o.works = append(o.works, work{kind.kind, depth})
		}
	}
	return o, o.check(given)
}

// check finds what is wrong with options as a whole.
func (o *options) check(given map[string]bool) error {
	wrong := ""
	switch {
	case len(o.works) == 0:
		wrong = "nothing is left to be measured"
	case o.rounds < 1:
		wrong = "-repeat: at least 1"
	case o.runtime <= 0:
		wrong = "-runtime: more than no time"
	case o.ramp < 0:
		wrong = "-ramp: no less than no time"
	case o.file != "" && given["scratch"]:
		wrong = "-scratch is for the scratch file, and there is none with a FILE"
	case o.json == "-" && o.csv == "-":
		wrong = "only one of -json and -csv can go to standard output"
	default:
		return nil
	}
	return usageError{fmt.Errorf("%s", wrong)}
}

// mostGoroutines is more than anybody has memory for.
const mostGoroutines = 10_000_000

func parseDepths(text string) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > mostGoroutines {
			return nil, fmt.Errorf("give numbers from 1 to %d, with commas between them", mostGoroutines)
		}
		all = append(all, n)
	}
	return all, nil
}

func parseContestants(text string) ([]string, error) {
	var all []string
	for part := range strings.SplitSeq(text, ",") {
		if !slices.Contains(contestantNames(), part) {
			return nil, fmt.Errorf("no contestant is called %q", part)
		}
		all = append(all, part)
	}
	return all, nil
}

// parseSize understands 4096, 64k, 1g.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(strings.ToLower(text), "kmgtib")
	shift, ok := map[string]int{"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "kib": 10, "mib": 20, "gib": 30, "tib": 40}[strings.ToLower(text[len(digits):])]
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 1 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("give a size such as 4096, 64m or 1g")
	}
	return n << shift, nil
}
