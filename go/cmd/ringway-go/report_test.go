//go:build linux

// Everything without I/O: options, contestants, medians, ratios, the reports; and the scratch file.

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func parse(t *testing.T, line string) options {
	t.Helper()
	o, err := parseOptions(fields(line), io.Discard)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
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
	if !slices.Equal(o.workloads, want) || o.repeat != 3 || o.scratch != "." {
		t.Errorf("%+v", o)
	}
	// The default takes less than a minute.
	runs := 2 * len(o.workloads) * o.repeat
	if time.Duration(runs)*(o.runtime+o.ramp) > 50*time.Second {
		t.Errorf("%d runs of %v", runs, o.runtime)
	}
	o = parse(t, `-full -cached "" data -batch 16 -runtime 5s`)
	want = []workload{
		{ioDirect, 1}, {ioDirect, 128}, {ioDirect, 1000}, {ioDirect, 100_000}, {ioBatch, 16},
		{ioCommit, 128},
		{ioNull, 128}, {ioNull, 1000},
	}
	if !slices.Equal(o.workloads, want) || o.file != "data" || o.runtime != 5*time.Second {
		t.Errorf("%+v", o)
	}
	o = parse(t, "-direct 4,2 -size 64m -only os,bare -fixed-buffers -- -odd")
	if o.workloads[0].Depth != 4 || o.workloads[1].Depth != 2 || o.size != 64<<20 ||
		len(o.only) != 2 || !o.fixedBuffers || o.file != "-odd" {
		t.Errorf("%+v", o)
	}
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
	if err != flag.ErrHelp || !strings.Contains(help.String(), "-fixed-buffers") {
		t.Errorf("%v, %s", err, &help)
	}
	for _, c := range columns {
		if !strings.Contains(help.String(), c.heading) && !strings.HasPrefix(c.heading, "p9") &&
			c.heading != "MB/s" {
			t.Errorf("the help does not explain the column %q", c.heading)
		}
	}
	for line := range strings.Lines(help.String()) {
		if utf8.RuneCountInString(line) > 101 {
			t.Errorf("a long line: %s", line)
		}
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
		{workload{ioDirect, 128}, true, "", "ringway os bare", "os"},
		{workload{ioCached, 100_000}, true, "", "ringway os", "os"},
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
	if !slices.Equal(inTurn(names, 0), names) ||
		!slices.Equal(inTurn(names, 1), []string{"c", "b", "a"}) ||
		!slices.Equal(inTurn(names, 2), names) {
		t.Error("every other round is reversed")
	}
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

// sample is a full table with wide figures.
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
	r.compare()
	return r
}

func TestMediansAndRatios(t *testing.T) {
	w := workload{ioDirect, 1}
	mine := &row{Contestant: "ringway", Workload: w, Runs: []run{runOf(300, 2), runOf(100, 1),
		runOf(200, 4)}}
	other := &row{Contestant: "os", Workload: w, Runs: []run{runOf(100, 4), runOf(100, 4),
		runOf(400, 4)}}
	if got := mine.median(); got.Requests != 200 {
		t.Error(got)
	}
	if got := mine.spread(); got != 0.5 {
		t.Error(got)
	}
	r := &report{Rows: []*row{mine, other}}
	r.compare()
	// The ratios of the rounds are 3, 1 and 0.5; that of the medians would be 2.
	if mine.Against != "os" || mine.OpsRatio != 1 || math.Abs(mine.CPURatio-0.5) > 1e-6 ||
		other.OpsRatio != 1 || other.CPURatio != 1 {
		t.Errorf("%+v %+v", mine, other)
	}
	if median([]float64{1, 4}) != 2.5 || median([]float64{1, 2, 9}) != 2 {
		t.Error("median")
	}
	mine.Against, other.Runs = "", nil
	r.compare()
	if mine.Against != "" {
		t.Error("compared with a contestant that has no runs")
	}
	mine.Runs[1].Threads = 30
	if mine.threads() != 30 {
		t.Error("threads must be the most of any run")
	}
}

func TestTiesAreReportedAsTies(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want bool
	}{
		{[]float64{100, 110, 120}, []float64{119, 125, 130}, true}, // The ranges overlap.
		{[]float64{100, 110, 120}, []float64{121, 131, 132}, false},
		{[]float64{100, 100, 100}, []float64{90, 99.9, 99.9}, true}, // Closer than half a range.
		{[]float64{100, 100}, []float64{101.9, 101.9}, true},        // Within 2 %.
		{[]float64{100, 100}, []float64{103, 103}, false},
		{[]float64{100}, []float64{108}, true}, // Single runs: within 10 %.
		{[]float64{100}, []float64{120}, false},
	} {
		if equal(c.a, c.b) != c.want || equal(c.b, c.a) != c.want {
			t.Errorf("%v, %v: equal %t", c.a, c.b, !c.want)
		}
	}
	w := workload{ioDirect, 128}
	mine := &row{Contestant: "ringway", Workload: w, Runs: []run{runOf(1000, 1), runOf(1000, 1)}}
	other := &row{Contestant: "os", Workload: w, Runs: []run{runOf(1001, 4), runOf(1001, 4)}}
	bare := &row{Contestant: "bare", Workload: w, Runs: []run{runOf(1001, 0.5), runOf(1001, 0.5)}}
	r := &report{Rows: []*row{mine, other, bare}}
	r.compare()
	want := []string{"direct 128: ringway has equal ops/s and 0.25× the CPU time per operation " +
		"of os; a bare ring needs 0.500 CPU µs per operation, ringway 1.00"}
	if !slices.Equal(r.Summary, want) {
		t.Errorf("%q", r.Summary)
	}
}

func TestTable(t *testing.T) {
	r := sample(t)
	table := func() string {
		var out strings.Builder
		if err := r.writeTable(&out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	text := table()
	rows, width := 0, 0
	for line := range strings.Lines(text) {
		width = max(width, utf8.RuneCountInString(line))
		if strings.Contains(line, "±") {
			rows++
			if utf8.RuneCountInString(line) < 150 {
				t.Error("short:", line)
			}
		}
	}
	if rows != len(r.Rows) || width > 185 {
		t.Errorf("%d rows of %d, %d columns\n%s", rows, len(r.Rows), width, text)
	}
	for _, c := range columns {
		if !strings.Contains(r.grid(), c.heading) {
			t.Errorf("there is no column %q\n%s", c.heading, text)
		}
	}
	if !strings.Contains(text, "direct 100,000: ringway has ") ||
		!strings.Contains(text, " of os-128") {
		t.Errorf("the summary does not name os-128\n%s", text)
	}

	r.Rows[1].Runs, r.Rows[1].Error = nil, "io_uring refused:\x1b[2J ENOMEM"
	if text = r.grid(); !strings.Contains(text, "failed: io_uring refused:\uFFFD[2J ENOMEM") {
		t.Error(text)
	}
	r.Rows = r.Rows[1:2]
	if text = table(); !strings.Contains(text, "failed: ") {
		t.Error(text)
	}
}

func TestJSON(t *testing.T) {
	r := sample(t)
	r.Rows[1].Runs, r.Rows[1].Error = nil, `why, "so"`
	var out bytes.Buffer
	if err := r.writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back.Rows) != len(r.Rows) ||
		back.Rows[0].Runs[1].Max != 151*time.Millisecond || back.Rows[1].Error != `why, "so"` ||
		!slices.Equal(back.Summary, r.Summary) {
		t.Errorf("%v %+v", err, back)
	}
}

func TestFormats(t *testing.T) {
	for got, want := range map[string]string{
		digits(0):                     "0",
		digits(0.0001):                "<0.001",
		digits(0.99996):               "1.00",
		digits(12.34):                 "12.3",
		digits(1234.5):                "1,235",
		digits(math.NaN()):            absent,
		durationText(7):               "7 ns",
		durationText(81_234):          "81.2 µs",
		durationText(999_700):         "1.00 ms",
		durationText(5 * time.Second): "5.00 s",
		sizeText(4096):                "4 KiB",
		sizeText(1536):                "1.5 KiB",
		sizeText(1 << 30):             "1 GiB",
		times(0.5):                    "0.50×",
		times(150):                    "150×",
		grouped(1_234_567):            "1,234,567",
		grouped(123):                  "123",
		plural(1, "run"):              "1 run",
		plural(1200, "run"):           "1,200 runs",
		printable("a\x1bb"):           "a\uFFFDb",
	} {
		if got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

func TestScratchFile(t *testing.T) {
	dir := t.TempDir()
	created, err := createScratch(dir, 1<<20+3*block)
	if err != nil {
		t.Fatal(err)
	}
	defer created.file.Close()
	checkEmpty(t, dir)
	info, err := created.file.Stat()
	if err != nil || info.Size() != 1<<20+3*block {
		t.Error(info, err)
	}
	p := make([]byte, block)
	_, err = created.file.ReadAt(p, 1<<20+block)
	if err != nil || p[0] != 1 || p[1] != 1 || bytes.Equal(p[8:16], make([]byte, 8)) {
		t.Errorf("the blocks are not written: % x, %v", p[:16], err)
	}
	if why := (&target{}).unfit(workload{ioDirect, 1}); why == "" {
		t.Error("direct reads of a file without direct I/O")
	}
}
