//go:build linux

package main

// What is pure: options, who competes in what, medians and ratios, and what the reports look like.

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
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

// fields of a line, in which "" is an empty one.
func fields(line string) []string {
	all := strings.Fields(line)
	for i := range all {
		all[i] = strings.Trim(all[i], `"`)
	}
	return all
}

func TestOptions(t *testing.T) {
	o := parse(t, "")
	if !slices.Equal(o.works, []work{{ioDirect, 1}, {ioDirect, 128}, {ioDirect, 1000}, {ioCached, 1}, {ioCached, 32}}) || o.rounds != 3 || o.scratch != "." {
		t.Errorf("%+v", o)
	}
	// The default is about a minute.
	if runs := 3 * len(o.works) * o.rounds; time.Duration(runs)*(o.runtime+o.ramp) > 70*time.Second {
		t.Errorf("%d runs of %v", runs, o.runtime)
	}
	o = parse(t, `-full -cached "" data -batch 16 -runtime 5s`)
	if !slices.Equal(o.works, []work{{ioDirect, 1}, {ioDirect, 128}, {ioDirect, 1000}, {ioDirect, 100_000}, {ioBatch, 16}, {ioCommit, 128}, {ioNull, 128}, {ioNull, 1000}}) || o.file != "data" || o.runtime != 5*time.Second {
		t.Errorf("%+v", o)
	}
	o = parse(t, "-direct 4,2 -size 64m -cached-size 4k -only os,seed -- -odd")
	if o.works[0].Depth != 4 || o.works[1].Depth != 2 || o.size != 64<<20 || o.cachedSize != 4096 || len(o.only) != 2 || o.file != "-odd" {
		t.Errorf("%+v", o)
	}
	for _, wrong := range []string{
		"-direct 0", "-direct x", "-direct 1,-1", "-direct 99999999", "-size 0", "-size 4x", "-size 9999999999g", "-size k", "-runtime 0",
		"-runtime 5", "-ramp -1s", "-repeat 0", "a b", "a -scratch b", "-json - -csv -", `-direct "" -cached ""`, "-only os,", "-full=x",
	} {
		if _, err := parseOptions(fields(wrong), io.Discard); err == nil {
			t.Errorf("%s: no error", wrong)
		} else if _, ok := err.(usageError); !ok {
			t.Errorf("%s: %v is no mistake of the user's", wrong, err)
		}
	}
	var help bytes.Buffer
	if _, err := parseOptions([]string{"-h"}, &help); err != flag.ErrHelp || !strings.Contains(help.String(), "-cached-size") {
		t.Errorf("%v, %s", err, &help)
	}
	for line := range strings.Lines(benchExamples) {
		if arguments, ok := strings.CutPrefix(line, "  ringway-go bench"); ok {
			parse(t, arguments)
		}
	}
}

func TestWhoCompetes(t *testing.T) {
	for _, c := range []struct {
		w    work
		full bool
		only string
		want string
		base string
	}{
		{work{ioDirect, 128}, false, "", "ringway os seed", "os"},
		{work{ioDirect, 100_000}, false, "", "ringway os-128 seed", "os-128"},
		{work{ioDirect, 128}, true, "", "ringway ringway-fixed os seed bare", "os"},
		{work{ioDirect, 1000}, true, "", "ringway ringway-fixed os os-128 seed bare", "os"},
		{work{ioCached, 100_000}, true, "", "ringway os seed null", "os"},
		{work{ioBatch, 64}, true, "", "ringway os", "os"},
		{work{ioNull, 128}, false, "", "null-queue floor null", "floor"},
		{work{ioCommit, 128}, false, "", "ringway os os-group", "os"},
		{work{ioCommit, 100_000}, true, "", "ringway os-group", ""},
		{work{ioCached, 1}, false, "null,ringway-fixed", "ringway-fixed null", ""},
		{work{ioDirect, 1000}, false, "os-128,ringway", "ringway os-128", ""},
		{work{ioDirect, 100_000}, false, "os", "", ""},
	} {
		var only []string
		if c.only != "" {
			only = strings.Split(c.only, ",")
		}
		names := field(c.w, c.full, only)
		if got := strings.Join(names, " "); got != c.want || base(c.w, names) != c.base {
			t.Errorf("%v, full %t, only %q: %q, against %q", c.w, c.full, c.only, got, base(c.w, names))
		}
	}
	names := []string{"a", "b", "c"}
	if !slices.Equal(turns(names, 0), names) || !slices.Equal(turns(names, 1), []string{"c", "b", "a"}) || !slices.Equal(turns(names, 2), names) {
		t.Error("every other round is reversed")
	}
}

// runOf has so many operations in a second, at so many microseconds each.
func runOf(ops int64, cpu float64) run {
	calls := ops / 10
	return run{
		Requests: ops, Real: time.Second, User: time.Duration(cpu*float64(ops)) * 300, System: time.Duration(cpu*float64(ops)) * 700,
		ContextSwitches: ops / 8, Calls: &calls, Threads: 8, P50: 1380 * time.Microsecond, P99: 8280 * time.Microsecond,
		P999: 15 * time.Millisecond, P9999: 15100 * time.Microsecond, Max: 151 * time.Millisecond,
	}
}

// sample is a full table, with figures as wide as they come.
func sample() *report {
	r := &report{Machine: machine{Kernel: "6.18", CPUs: 2, Go: "go1.26", Procs: 2, FileSystem: "ext4", Device: "vda", Size: 1 << 30, Explain: "backend uring\nand more", Remarks: []string{"target"}}}
	r.options = parse(&testing.T{}, "-full")
	for _, w := range r.options.works {
		for _, name := range field(w, true, nil) {
			c := &cell{Work: w, Contestant: name}
			for i := range int64(3) {
				c.Runs = append(c.Runs, runOf((65+i)*int64(1000+len(name)*300), 4.5*float64(len(name))))
			}
			r.Cells = append(r.Cells, c)
		}
	}
	r.compare()
	return r
}

func TestMediansAndRatios(t *testing.T) {
	mine := &cell{Contestant: "ringway", Work: work{ioDirect, 1}, Runs: []run{runOf(300, 2), runOf(100, 1), runOf(200, 4)}}
	others := &cell{Contestant: "os", Work: work{ioDirect, 1}, Runs: []run{runOf(100, 4), runOf(100, 4), runOf(400, 4)}}
	if got := mine.medianRun(); got.Requests != 200 {
		t.Error(got)
	}
	if got := mine.spread(); got != 0.5 {
		t.Error(got)
	}
	r := &report{Cells: []*cell{mine, others}}
	r.compare()
	// Round by round they are 3, 1 and a half; 200/100 would be 2.
	if mine.Against != "os" || mine.OpsRatio != 1 || math.Abs(mine.CPURatio-0.5) > 1e-6 || others.OpsRatio != 1 || others.CPURatio != 1 {
		t.Errorf("%+v %+v", mine, others)
	}
	if median([]float64{4, 1}) != 2.5 || median([]float64{9, 1, 2}) != 2 {
		t.Error("median")
	}
	// A base that did not run is none.
	mine.Against, others.Runs = "", nil
	r.compare()
	if mine.Against != "" {
		t.Error("compared with nothing")
	}
	mine.Runs[1].Threads = 30
	if mine.threads() != 30 {
		t.Error("threads are the most of any run")
	}
}

func TestTable(t *testing.T) {
	r := sample()
	lines := strings.Split(strings.TrimSpace(r.table()), "\n")
	rows, width := 0, 0
	for _, line := range lines {
		width = max(width, utf8.RuneCountInString(line))
		if strings.Contains(line, "±") {
			rows++
			if utf8.RuneCountInString(line) < 150 {
				t.Error("short:", line)
			}
		}
	}
	text := r.table()
	if rows != len(r.Cells) || width > 180 {
		t.Errorf("%d rows of %d, %d columns\n%s", rows, len(r.Cells), width, text)
	}
	for _, heading := range []string{
		"contestant", "I/O", "depth", "requests", "user", "system", "cpu", "µs/op", "ops/s", "spread", "MB/s", "p50", "p99", "p99.9", "p99.99",
		"max", "calls", "ctx sw", "allocs", "threads",
	} {
		if !strings.Contains(text, heading) {
			t.Errorf("there is no column %q\n%s", heading, text)
		}
	}
	if strings.Contains(strings.Join(r.grid(), "\n"), "workers") {
		t.Errorf("no row has workers\n%s", text)
	}
	if !strings.Contains(text, "×*") || !strings.Contains(text, "With a * by those of os-128") {
		t.Errorf("it is not said that the ratios at 100,000 are to os-128\n%s", text)
	}

	if strings.Contains(text, "Other programs") {
		t.Error("a quiet machine is one")
	}
	r.Machine.Others = 0.25
	if text = r.table(); !strings.Contains(text, "\nOther programs, and the kernel by itself, had 25 % of") {
		t.Error(text)
	}

	r.Cells[1].Runs, r.Cells[1].Refused = nil, "fixed buffers refused:\x1b[2J ENOMEM"
	r.Cells[0].Runs[0].Workers, r.Cells[0].Runs[1].Workers, r.Cells[0].Runs[2].Workers = 3, 3, 3
	text = strings.Join(r.grid(), "\n")
	if !strings.Contains(text, "did not run: fixed buffers refused:\uFFFD[2J ENOMEM") || !strings.Contains(text, "workers") {
		t.Error(text)
	}
	r.Cells = r.Cells[1:2]
	if text = r.table(); !strings.Contains(text, "did not run") {
		t.Error(text)
	}
}

func TestCSVAndJSON(t *testing.T) {
	r := sample()
	r.Cells[1].Runs, r.Cells[1].Refused = nil, `why, "so"`
	var out bytes.Buffer
	if err := r.writeCSV(&out); err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(&out).ReadAll() // It minds rows of another length.
	if err != nil || len(records) != 1+3*(len(r.Cells)-1)+1 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	at := func(row int, heading string) string { return records[row][slices.Index(csvHeadings, heading)] }
	if at(2, "run") != "2" || at(2, "is_median") != "true" || at(1, "is_median") != "false" || at(1, "ops_per_second") == "" || at(2, "latency_max_ns") != "151000000" || at(4, "refused") != `why, "so"` || at(4, "ops") != "" {
		t.Errorf("%q", records[:5])
	}
	out.Reset()
	if err := r.writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back.Cells) != len(r.Cells) || back.Cells[0].Runs[1].Max != 151*time.Millisecond || back.Cells[1].Refused == "" {
		t.Errorf("%v %+v", err, back)
	}
}

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		digits(0): "0", digits(0.0001): "<0.001", digits(0.99996): "1.00", digits(12.34): "12.3", digits(1234.5): "1,235", digits(math.NaN()): absent,
		short(9812.4): "9,812", short(412_345): "412 k", short(999_800): "1.00 M",
		duration(7): "7 ns", duration(81_234): "81.2 µs", duration(999_700): "1.00 ms", duration(5 * time.Second): "5.00 s",
		sizeText(4096): "4 KiB", sizeText(1536): "1.5 KiB", sizeText(1 << 30): "1 GiB", times(0.5): "0.50×", times(150): "150×",
		grouped(1_234_567): "1,234,567", grouped(123): "123", plural(1, "run"): "1 run", plural(1200, "run"): "1,200 runs", clean("a\x1bb"): "a\uFFFDb",
	} {
		if got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

func TestScratchFile(t *testing.T) {
	for _, c := range []struct {
		free     int64
		inMemory bool
		size     int64
	}{{1 << 40, false, 1 << 30}, {1 << 40, true, 256 << 20}, {1 << 30, false, 102 << 20}, {100 << 20, false, 0}, {0, false, 0}} {
		if got := scratchSize(c.free, c.inMemory); got != c.size {
			t.Errorf("%+v: %d", c, got)
		}
	}
	dir := t.TempDir()
	var told int64
	made, err := makeScratch(dir, 1<<20+3*block, func(done, all int64) { told = done })
	if err != nil {
		t.Fatal(err)
	}
	defer made.file.Close()
	nothingIn(t, dir)
	info, err := made.file.Stat()
	if err != nil || info.Size() != 1<<20+3*block || told != info.Size() {
		t.Error(info, told, err)
	}
	p := make([]byte, block)
	if _, err := made.file.ReadAt(p, 1<<20+block); err != nil || p[0] != 1 || p[1] != 1 || bytes.Equal(p[8:16], make([]byte, 8)) {
		t.Errorf("it is not really written: % x, %v", p[:16], err)
	}
	if why := (&target{}).cannot(work{ioDirect, 1}); why == "" {
		t.Error("no direct I/O, and nothing said")
	}
}

func TestMachine(t *testing.T) {
	if got := numbers(254<<8 | 3); got != "254:3" {
		t.Error(got)
	}
	const mounts = "21 1 0:5 / /proc rw - proc proc rw\n25 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
	if fileSystem(mounts, "254:0") != "ext4" || fileSystem(mounts, "254:1") != "" {
		t.Error("the file system of a device")
	}
	// As /sys/dev/block has it: a link to the folder of the partition, below that of the disk.
	root := t.TempDir()
	disk := filepath.Join(root, "devices", "vda")
	for name, content := range map[string]string{"queue/scheduler": "none [mq-deadline] bfq\n", "queue/nr_requests": "256\n", "vda1/partition": "1\n"} {
		name = filepath.Join(disk, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"254:0": disk, "254:1": filepath.Join(disk, "vda1")} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if got := deviceText(root, "254:0"); got != "vda, scheduler mq-deadline, nr_requests 256" {
		t.Error(got)
	}
	if got := deviceText(root, "254:1"); got != "vda1, scheduler mq-deadline, nr_requests 256" {
		t.Error(got)
	}
	if got := deviceText(root, "9:9"); got != "" {
		t.Error(got)
	}

	before := parseStat("cpu  100 0 100 500 300 0 0 0 7 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	after := parseStat("cpu  150 10 130 600 390 5 5 10 9 9\n")
	if before.all != 10*time.Second || before.busy != 2*time.Second || after.all != 13*time.Second {
		t.Errorf("%+v %+v", before, after)
	}
	after.ours = 500 * time.Millisecond
	if got := after.othersSince(before); math.Abs(got-0.2) > 1e-9 { // 1.1 s busy, of which 0.5 ours, of 3.
		t.Error(got)
	}
	if (processors{}).othersSince(processors{}) != 0 {
		t.Error("nothing is known")
	}
	if now := processorsNow(); now.all <= 0 || now.busy <= 0 || now.ours <= 0 {
		t.Errorf("%+v", now)
	}
}
