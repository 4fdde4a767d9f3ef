//go:build linux

package main

// The report for people: the machine, a row for each contestant at each work, and how to read them. The columns are those of
// `ringway bench`, with threads, allocations and the ratios behind them.

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// column of the table. A figure that no row has is left out.
type column struct {
	band, heading string // A band stands above neighbours.
	text          func(*cell, run) string
}

var settings = []column{
	{"", "contestant", func(c *cell, _ run) string { return c.Contestant }},
	{"", "I/O", func(c *cell, _ run) string { return string(c.Work.Kind) }},
	{"", "depth", func(c *cell, _ run) string { return grouped(int64(c.Work.Depth)) }},
}

var figures = []column{
	{"", "requests", func(_ *cell, r run) string { return short(float64(r.Requests)) }},
	{"time", "user", func(_ *cell, r run) string { return duration(r.User) }},
	{"time", "system", func(_ *cell, r run) string { return duration(r.System) }},
	{"time", "cpu", func(_ *cell, r run) string { return duration(r.cpu()) }},
	{"cpu", "µs/op", func(_ *cell, r run) string { return digits(r.cpuOp()) }},
	{"", "ops/s", func(_ *cell, r run) string { return grouped(int64(r.ops() + 0.5)) }},
	{"", "spread", func(c *cell, _ run) string {
		if len(c.Runs) < 2 {
			return ""
		}
		return fmt.Sprintf("±%.1f %%", c.spread()*100)
	}},
	{"", "MB/s", func(_ *cell, r run) string { return digits(r.ops() * block / 1e6) }},
	{"latency", "p50", func(_ *cell, r run) string { return duration(r.P50) }},
	{"latency", "p99", func(_ *cell, r run) string { return duration(r.P99) }},
	{"latency", "p99.9", func(_ *cell, r run) string { return duration(r.P999) }},
	{"latency", "p99.99", func(_ *cell, r run) string { return duration(r.P9999) }},
	{"latency", "max", func(_ *cell, r run) string { return duration(r.Max) }},
	{"per op", "calls", func(_ *cell, r run) string {
		if r.Calls == nil {
			return ""
		}
		return digits(r.perOp(float64(*r.Calls)))
	}},
	{"per op", "ctx sw", func(_ *cell, r run) string { return digits(r.perOp(float64(r.ContextSwitches))) }},
	{"per op", "allocs", func(_ *cell, r run) string { return digits(r.perOp(float64(r.Allocs))) }},
	{"helpers", "workers", func(_ *cell, r run) string {
		if r.Workers == 0 {
			return ""
		}
		return grouped(int64(r.Workers))
	}},
	{"", "threads", func(c *cell, _ run) string { return grouped(int64(c.threads())) }},
	{"against os", "ops/s", func(c *cell, _ run) string { return ratioText(c, c.OpsRatio) }},
	{"against os", "cpu", func(c *cell, _ run) string { return ratioText(c, c.CPURatio) }},
}

// ratioText marks what is not compared with os itself.
func ratioText(c *cell, ratio float64) string {
	switch c.Against {
	case "":
		return ""
	case "os", "floor":
		return times(ratio)
	default:
		return times(ratio) + "*"
	}
}

// noticed is the share of others that is worth a warning: what the kernel does for a disk by itself is less.
const noticed = 0.1

// table is the report.
func (r *report) table() string {
	var out strings.Builder
	line := func(text string) { out.WriteString(strings.TrimRight(text, " ") + "\n") }
	for _, text := range r.Machine.lines() {
		line(text)
	}
	line("")
	o := r.options
	what := fmt.Sprintf("4 KiB random reads, %s a run", duration(o.runtime))
	if r.has(ioCommit) {
		what += "; commit: 4 KiB records of a log"
	}
	line(what)
	if o.rounds > 1 {
		line(fmt.Sprintf("Each row is the median of %d runs; spread is half the way from the slowest to the fastest, in percent of ops/s.", o.rounds))
	}
	line("CPU time is user and system time of the whole process, kernel helpers included. Each run is a process of its own; the")
	line("contestants take turns, every other round in reverse order.")
	line("")
	for _, text := range r.grid() {
		line(text)
	}
	line("")
	if others := r.Machine.Others; others > noticed {
		for _, text := range wrap("", fmt.Sprintf("Other programs, and the kernel by itself, had %.0f %% of the processors' time meanwhile. Who has more threads gets more of what is left: trust the CPU time an operation, and operations a second only on a quiet machine.", others*100)) {
			line(text)
		}
		line("")
	}
	for _, text := range r.legend() {
		line(text)
	}
	return out.String()
}

func (r *report) has(kind ioKind) bool {
	for _, c := range r.Cells {
		if c.Work.Kind == kind {
			return true
		}
	}
	return false
}

// grid is the table proper.
func (r *report) grid() []string {
	type row struct {
		fields []string
		tail   string // Of a row without figures.
		first  bool   // Of its work.
	}
	rows := make([]row, len(r.Cells))
	for i, c := range r.Cells {
		rows[i].first = i > 0 && r.Cells[i-1].Work != c.Work
		for _, column := range settings {
			rows[i].fields = append(rows[i].fields, column.text(c, run{}))
		}
		if len(c.Runs) == 0 {
			rows[i].tail = "did not run: " + clean(c.Refused)
		}
	}
	shown := settings[:len(settings):len(settings)]
	for _, column := range figures {
		texts, some := make([]string, len(rows)), false
		for i, c := range r.Cells {
			if len(c.Runs) > 0 {
				texts[i] = column.text(c, c.medianRun())
			}
			some = some || texts[i] != ""
		}
		if !some {
			continue
		}
		shown = append(shown, column)
		for i, text := range texts {
			if text == "" {
				text = absent
			}
			rows[i].fields = append(rows[i].fields, text)
		}
	}

	widths := make([]int, len(shown))
	for at, column := range shown {
		widths[at] = utf8.RuneCountInString(column.heading)
		for _, row := range rows {
			if row.tail == "" || at < len(settings) {
				widths[at] = max(widths[at], utf8.RuneCountInString(row.fields[at]))
			}
		}
	}
	bands := bandsOf(shown, widths)
	join := func(fields []string) string {
		var text strings.Builder
		for at, field := range fields {
			space := strings.Repeat(" ", widths[at]-utf8.RuneCountInString(field))
			switch {
			case at == 0:
				text.WriteString(field + space) // Names begin at the left, figures end at the right.
			default:
				text.WriteString(" " + space + field)
			}
		}
		return text.String()
	}
	var headings []string
	for _, column := range shown {
		headings = append(headings, column.heading)
	}
	lines := []string{bands, join(headings)}
	for _, row := range rows {
		if row.first {
			lines = append(lines, "")
		}
		if row.tail != "" {
			lines = append(lines, join(row.fields[:len(settings)])+"  "+row.tail)
			continue
		}
		lines = append(lines, join(row.fields))
	}
	return lines
}

// bandsOf is the line above the headings. What is alone under a longer band is made as wide.
func bandsOf(shown []column, widths []int) string {
	var out strings.Builder
	for at := 0; at < len(shown); {
		band, many := shown[at].band, 1
		for at+many < len(shown) && shown[at+many].band == band {
			many++
		}
		wide := many - 1
		for _, width := range widths[at : at+many] {
			wide += width
		}
		if more := utf8.RuneCountInString(band) - wide; more > 0 {
			widths[at] += more
			wide += more
		}
		text := band
		if rule := wide - utf8.RuneCountInString(band) - 1; band != "" && rule > 0 {
			text += " " + strings.Repeat("─", rule)
		}
		out.WriteString(text + strings.Repeat(" ", wide-utf8.RuneCountInString(text)+1))
		at += many
	}
	return out.String()
}

// legend says who the contestants are and how to read what is not plain.
func (r *report) legend() []string {
	lines := []string{"Contestants"}
	for _, c := range contestants {
		for _, cell := range r.Cells {
			if cell.Contestant == c.name {
				lines = append(lines, fmt.Sprintf("  %-*s  %s", len("ringway-fixed"), c.name, c.what))
				break
			}
		}
	}
	lines = append(lines, "", "How to read this")
	say := func(text string) { lines = append(lines, wrap("  - ", text)...) }
	say("depth: goroutines, each with one request at a time. Latency is that of a request, from the moment its goroutine asks for it, waiting of every kind included.")
	if r.has(ioDirect) {
		say("direct: past the page cache (O_DIRECT).")
	}
	if r.has(ioCached) || r.has(ioBatch) {
		say("cached: reads of the first " + sizeText(min(r.options.cachedSize, r.Machine.Size)) + ", which is in the page cache.")
	}
	if r.has(ioBatch) {
		say("batch: one goroutine that asks for so many cached blocks at a time, as depth says: ringway by ReadBatch, the others one by one. An op is a block; the latency is the batch's.")
	}
	if r.has(ioCommit) {
		say("commit: each goroutine writes a record and waits until it is durable (fdatasync). ringway and os-group gather the records of all goroutines that wait: ringway by WriteBatch with DataSync, os-group by one write and one fdatasync. os does both for each record.")
	}
	if r.has(ioNull) {
		say("null: no device is read, so operations a second say nothing of one. The ratios are to floor.")
	}
	say("calls: system calls that carry reads. Of ringway they are the rounds of its engine, and a plain call for each read that went past the rings; of seed, each io_uring_enter. allocs: objects on Go's heap. threads: the most at once in any run, with the kernel's for this process; workers: its io-wq threads.")
	if ratios := r.ratioLegend(); ratios != "" {
		say(ratios)
	}
	return lines
}

func (r *report) ratioLegend() string {
	text := ""
	for _, c := range r.Cells {
		switch c.Against {
		case "":
		case "floor":
		case "os":
			text = max(text, "against os: operations a second and CPU time an operation, divided by those of os: the medians of the ratios of runs in the same round.")
		default:
			return fmt.Sprintf("against os: operations a second and CPU time an operation, divided by those of os: the medians of the ratios of runs in the same round. With a * by those of %s, where os cannot run: each of its blocked reads has a thread, and Go ends a program that has 10,000.", c.Against)
		}
	}
	return text
}

// wrap breaks a text into lines of at most 120 columns: the first with a beginning, the others indented as far.
func wrap(begin, text string) []string {
	const wide = 120
	var lines []string
	line, space := begin, ""
	for word := range strings.FieldsSeq(text) {
		if utf8.RuneCountInString(line+space+word) > wide {
			lines, line, space = append(lines, line), strings.Repeat(" ", len(begin)), ""
		}
		line += space + word
		space = " "
	}
	return append(lines, line)
}
