//go:build linux

// The reports: a table for people, in the shape of that of `ringway bench`, and JSON in raw units.

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// absent stands for a missing figure.
const absent = "–"

// column of the table. A band is a heading above neighboring columns.
type column struct {
	band, heading string
	text          func(*row, run) string
}

// settings is the number of columns at the start that identify a row.
const settings = 3

var columns = []column{
	{"", "contestant", func(row *row, _ run) string { return row.Contestant }},
	{"", "I/O", func(row *row, _ run) string { return string(row.Workload.IO) }},
	{"", "depth", func(row *row, _ run) string { return grouped(int64(row.Workload.Depth)) }},
	{"", "requests", func(_ *row, r run) string { return grouped(r.Requests) }},
	{"time", "user", func(_ *row, r run) string { return durationText(r.User) }},
	{"", "system", func(_ *row, r run) string { return durationText(r.System) }},
	{"", "cpu", func(_ *row, r run) string { return durationText(r.cpu()) }},
	{"cpu", "µs/op", func(_ *row, r run) string { return digits(r.cpuPerOp()) }},
	{"", "ops/s", func(_ *row, r run) string { return grouped(int64(r.ops() + 0.5)) }},
	{"", "spread", func(row *row, _ run) string {
		if len(row.Runs) < 2 {
			return ""
		}
		return fmt.Sprintf("±%.1f %%", row.spread()*100)
	}},
	{"", "MB/s", func(_ *row, r run) string { return digits(r.ops() * block / 1e6) }},
	{"latency", "p50", func(_ *row, r run) string { return durationText(r.P50) }},
	{"", "p99", func(_ *row, r run) string { return durationText(r.P99) }},
	{"", "p99.9", func(_ *row, r run) string { return durationText(r.P999) }},
	{"", "p99.99", func(_ *row, r run) string { return durationText(r.P9999) }},
	{"", "max", func(_ *row, r run) string { return durationText(r.Max) }},
	{"per op", "calls", func(_ *row, r run) string {
		if r.Calls == nil {
			return ""
		}
		return digits(r.perOp(float64(*r.Calls)))
	}},
	{"", "ctx sw",
		func(_ *row, r run) string { return digits(r.perOp(float64(r.ContextSwitches))) }},
	{"", "allocs", func(_ *row, r run) string { return digits(r.perOp(float64(r.Allocs))) }},
	{"", "workers", func(_ *row, r run) string {
		if r.Workers == 0 {
			return ""
		}
		return grouped(int64(r.Workers))
	}},
	{"", "threads", func(row *row, _ run) string { return grouped(int64(row.threads())) }},
	{"against", "", func(row *row, _ run) string { return row.Against }},
	{"", "ops/s", func(row *row, _ run) string { return ratioText(row, row.OpsRatio) }},
	{"", "cpu", func(row *row, _ run) string { return ratioText(row, row.CPURatio) }},
}

func ratioText(row *row, ratio float64) string {
	if row.Against == "" {
		return ""
	}
	return times(ratio)
}

// writeTable writes the report for people.
func (r *report) writeTable(to io.Writer) error {
	o := r.options
	var out strings.Builder
	line := func(text string) { out.WriteString(text + "\n") }
	for _, text := range r.Machine {
		line(printable(text))
	}
	line("")
	line(fmt.Sprintf("4 KiB blocks, %s per run; cached reads use at most the first %s",
		durationText(o.runtime), sizeText(maxCached)))
	if o.repeat > 1 {
		line(fmt.Sprintf("Each row is the median of %d runs; spread is half the distance from the "+
			"slowest to the fastest.", o.repeat))
	}
	line("CPU time is that of the process, kernel threads included.")
	line("'ringway-go bench -help' explains the columns.")
	line("")
	for text := range strings.Lines(r.grid()) {
		// (The padding of the first column.)
		line(strings.TrimPrefix(strings.TrimRight(text, " \n"), " "))
	}
	line("")
	for _, c := range contestants {
		for _, row := range r.Rows {
			if row.Contestant == c.name {
				line(fmt.Sprintf("%-10s  %s", c.name, c.about))
				break
			}
		}
	}
	if len(r.Summary) > 0 {
		line("\nSummary")
		for _, text := range r.Summary {
			line("  - " + text)
		}
	}
	_, err := io.WriteString(to, out.String())
	return err
}

// grid returns the rows. The first column is aligned left, the others right.
func (r *report) grid() string {
	first := len(columns[0].heading)
	for _, row := range r.Rows {
		first = max(first, len(row.Contestant))
	}
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 1, ' ', tabwriter.AlignRight)
	write := func(fields []string) {
		fmt.Fprintf(table, "%-*s\t%s\t\n", first, fields[0], strings.Join(fields[1:], "\t"))
	}
	var bands, headings []string
	for _, c := range columns {
		bands, headings = append(bands, c.band), append(headings, c.heading)
	}
	write(bands)
	write(headings)
	for i, row := range r.Rows {
		if i > 0 && r.Rows[i-1].Workload != row.Workload {
			write(make([]string, len(columns)))
		}
		var fields []string
		if len(row.Runs) == 0 {
			for _, c := range columns[:settings] {
				fields = append(fields, c.text(row, run{}))
			}
			fmt.Fprintf(table, "%-*s\t%s\t  failed: %s\n", first, fields[0],
				strings.Join(fields[1:], "\t"), printable(row.Error))
			continue
		}
		median := row.median()
		for _, c := range columns {
			fields = append(fields, cmp.Or(c.text(row, median), absent))
		}
		write(fields)
	}
	_ = table.Flush() // A strings.Builder does not fail.
	return out.String()
}

func (r *report) writeJSON(to io.Writer) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
