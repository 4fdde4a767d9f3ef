//go:build linux

// Everything without I/O: options, contestants, the reports; and the scratch file.

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func parse(t *testing.T, line string) options {
	t.Helper()
	o, err := parseOptions(fields(line), io.Discard)
	require(t, err == nil, "%s: %v", line, err)
	return o
}

// fields splits a command line; "" stands for an empty argument.
func fields(line string) []string {
	all := strings.Fields(line)
	for i := range all {
		all[i] = strings.Trim(all[i], `"`)
	}
	return all
}

func TestOptions(t *testing.T) {
	o := parse(t, "")
	want := []workload{{ioDirect, 1}, {ioDirect, 128}, {ioDirect, 1000}, {ioCached, 1},
		{ioCached, 32}}
	expect(t, slices.Equal(o.workloads, want) && o.repeat == 3 && o.scratch == ".", "%+v", o)
	// The default takes less than a minute.
	runs := 2 * len(o.workloads) * o.repeat
	expect(t, time.Duration(runs)*(o.runtime+o.ramp) <= 50*time.Second, "%d runs of %v", runs,
		o.runtime)
	o = parse(t, `-full -cached "" data -batch 16 -runtime 5s`)
	want = []workload{
		{ioDirect, 1}, {ioDirect, 128}, {ioDirect, 1000}, {ioDirect, 100_000}, {ioBatch, 16},
		{ioCommit, 128},
		{ioNull, 128}, {ioNull, 1000},
	}
	expect(t, slices.Equal(o.workloads, want) && o.file == "data" && o.runtime == 5*time.Second,
		"%+v", o)
	o = parse(t, "-direct 4,2 -size 64m -only os,bare -fixed-buffers -- -odd")
	expect(t, o.workloads[0].Depth == 4 && o.workloads[1].Depth == 2 && o.size == 64<<20 &&
		len(o.only) == 2 && o.fixedBuffers && o.file == "-odd", "%+v", o)
	for _, wrong := range []string{
		"-direct 0", "-direct x", "-direct 1,-1", "-direct 99999999", "-size 0", "-size 4x",
		"-size 9999999999g",
		"-size k", "-runtime 0", "-runtime 5", "-ramp -1s", "-repeat 0", "a b", "a -scratch b",
		`-direct "" -cached ""`, "-only os,", "-full=x",
	} {
		if _, err := parseOptions(fields(wrong), io.Discard); err == nil {
			t.Errorf("%s: no error", wrong)
		} else if _, ok := err.(usageError); !ok {
			t.Errorf("%s: %v is not a usageError", wrong, err)
		}
	}
	var help bytes.Buffer
	_, err := parseOptions([]string{"-h"}, &help)
	expect(t, err == flag.ErrHelp && strings.Contains(help.String(), "-fixed-buffers"), "%v, %s",
		err, &help)
	for _, f := range figures {
		expect(t, strings.Contains(help.String(), f.name) || strings.HasPrefix(f.name, "p"),
			"the help does not explain the column %q", f.name)
	}
	for line := range strings.Lines(help.String()) {
		expect(t, utf8.RuneCountInString(line) <= 101, "a long line: %s", line)
	}
	for line := range strings.Lines(benchExamples) {
		if arguments, ok := strings.CutPrefix(line, "  ringway-go bench"); ok {
			parse(t, arguments)
		}
	}
}

func TestContestantsOfAWorkload(t *testing.T) {
	for _, c := range []struct {
		w    workload
		full bool
		only string
		want string
		base string
	}{
		{workload{ioDirect, 128}, false, "", "ringway os", "os"},
		{workload{ioDirect, 100_000}, false, "", "ringway os-128", "os-128"},
		{workload{ioDirect, 128}, true, "", "ringway os ringway-ctx bare", "os"},
		{workload{ioCached, 100_000}, true, "", "ringway os ringway-ctx", "os"},
		{workload{ioBatch, 64}, true, "", "ringway os", "os"},
		{workload{ioNull, 128}, false, "", "null-queue floor", "floor"},
		{workload{ioCommit, 128}, false, "", "ringway os-group", "os-group"},
		{workload{ioCached, 1}, false, "floor,ringway", "ringway", ""},
		{workload{ioDirect, 1000}, false, "os-128,ringway", "ringway os-128", "os-128"},
		{workload{ioDirect, 100_000}, false, "os", "", ""},
	} {
		var only []string
		if c.only != "" {
			only = strings.Split(c.only, ",")
		}
		names := contestantsFor(c.w, c.full, only)
		if got := strings.Join(names, " "); got != c.want || baseOf(names) != c.base {
			t.Errorf("%v, full %t, only %q: %q, against %q", c.w, c.full, c.only, got,
				baseOf(names))
		}
	}
	names := []string{"a", "b", "c"}
	expect(t, slices.Equal(inTurn(names, 0), names) &&
		slices.Equal(inTurn(names, 1), []string{"c", "b", "a"}) &&
		slices.Equal(inTurn(names, 2), names), "every other round is reversed")
}

// runOf makes a run of one second, with operations at a number of CPU microseconds each.
func runOf(ops int64, cpu float64) run {
	calls := ops / 10
	return run{
		Requests: ops, Real: time.Second, User: time.Duration(cpu*float64(ops)) * 300,
		System: time.Duration(cpu*float64(ops)) * 700, ContextSwitches: ops / 8, Calls: &calls,
		Threads: 8,
		P50:     1380 * time.Microsecond, P99: 8280 * time.Microsecond, P999: 15 * time.Millisecond,
		P9999: 15100 * time.Microsecond, Max: 151 * time.Millisecond,
	}
}

// sample has a row of each contestant of a full bench.
func sample(t *testing.T) *report {
	r := &report{Machine: []string{"Linux", "target"}}
	r.options = parse(t, "-full")
	for _, w := range r.options.workloads {
		for _, name := range contestantsFor(w, true, nil) {
			row := &row{Workload: w, Contestant: name}
			for i := range int64(3) {
				row.Runs = append(row.Runs, runOf((65+i)*int64(1000+len(name)*300),
					4.5*float64(len(name))))
			}
			r.Rows = append(r.Rows, row)
		}
	}
	return r
}

func TestRecords(t *testing.T) {
	r := sample(t)
	r.Rows[0].Runs[0].Calls = nil
	r.Rows[1].Runs, r.Rows[1].Error = r.Rows[1].Runs[:1], "why, \"so\":\x1b[2J ENOMEM"
	var out strings.Builder
	must(t, r.writeRecords(&out))
	type turn struct {
		Row, Contestant, Why string
		Round                int
		Figures              map[string]float64
	}
	var first, failed turn
	count := map[string]int{}
	for line := range strings.Lines(out.String()) {
		var record map[string]json.RawMessage
		err := json.Unmarshal([]byte(line), &record)
		require(t, err == nil && len(record) == 1, "%v, %v", line, err)
		for kind, raw := range record {
			var err error
			switch count[kind]++; {
			case kind == "turn" && count[kind] == 1:
				err = json.Unmarshal(raw, &first)
			case kind == "out":
				err = json.Unmarshal(raw, &failed)
			}
			must(t, err)
		}
	}
	expect(t, count["turn"] == 3*len(r.Rows)-2 && count["out"] == 1 && count["head"] == 3 &&
		count["columns"] == len(r.options.workloads) && count["about"] == len(contestants), "%v",
		count)
	expect(t, failed.Why == "failed: why, \"so\":\uFFFD[2J ENOMEM", "%q", failed.Why)
	_, known := first.Figures["calls/op"]
	expect(t, !known && first.Row == "direct 1" && first.Round == 1 &&
		len(first.Figures) == len(figures)-1 && first.Figures["max µs"] == 151e3, "%+v", first)
}

func TestFormats(t *testing.T) {
	for got, want := range map[string]string{
		sizeText(4096):      "4 KiB",
		sizeText(1536):      "1.5 KiB",
		sizeText(1 << 30):   "1 GiB",
		grouped(1_234_567):  "1,234,567",
		grouped(123):        "123",
		plural(1, "run"):    "1 run",
		plural(1200, "run"): "1,200 runs",
		printable("a\x1bb"): "a\uFFFDb",
	} {
		expect(t, got == want, "%q, not %q", got, want)
	}
}

func TestScratchFile(t *testing.T) {
	dir := t.TempDir()
	created := get(createScratch(dir, 1<<20+3*block))(t)
	defer created.file.Close()
	checkEmpty(t, dir)
	info, err := created.file.Stat()
	expect(t, err == nil && info.Size() == 1<<20+3*block, "%v, %v", info, err)
	p := make([]byte, block)
	_, err = created.file.ReadAt(p, 1<<20+block)
	expect(t, err == nil && p[0] == 1 && p[1] == 1 && !bytes.Equal(p[8:16], make([]byte, 8)),
		"the blocks are not written: % x, %v", p[:16], err)
	why := (&target{}).unfit(workload{ioDirect, 1})
	expect(t, why != "", "direct reads of a file without direct I/O")
}
