//go:build linux

// Results, and the records of all runs, of which `make go-bench` makes medians, ratios and tables
// (crates/ringway-measure/src/records.rs).

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// run is the measured part of one run.
type run struct {
	Requests        int64 // Blocks read, or records written.
	Real            time.Duration
	User            time.Duration
	System          time.Duration
	ContextSwitches int64
	Calls           *int64 // nil: unknown.
	Allocs          uint64
	Collections     uint64
	Threads         int // The most at once, with those of the kernel.
	Workers         int
	// Latency of a request; a batch is one request.
	P50, P99, P999, P9999, Max time.Duration
}

func (r run) ops() float64 { return float64(r.Requests) / max(r.Real.Seconds(), 1e-9) }

func (r run) cpu() time.Duration { return r.User + r.System }

func (r run) perOp(total float64) float64 { return total / float64(max(r.Requests, 1)) }

// figure is a column of the table. NaN stands for an unknown one.
type figure struct {
	name string
	of   func(run) float64
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

const (
	opsFigure = "ops/s"
	cpuFigure = "CPU µs/op"
)

var figures = []figure{
	{"requests", func(r run) float64 { return float64(r.Requests) }},
	{"user s", func(r run) float64 { return r.User.Seconds() }},
	{"system s", func(r run) float64 { return r.System.Seconds() }},
	{"CPU s", func(r run) float64 { return r.cpu().Seconds() }},
	{cpuFigure, func(r run) float64 { return r.perOp(micros(r.cpu())) }},
	{opsFigure, run.ops},
	{"MB/s", func(r run) float64 { return r.ops() * block / 1e6 }},
	{"p50 µs", func(r run) float64 { return micros(r.P50) }},
	{"p99 µs", func(r run) float64 { return micros(r.P99) }},
	{"p99.9 µs", func(r run) float64 { return micros(r.P999) }},
	{"p99.99 µs", func(r run) float64 { return micros(r.P9999) }},
	{"max µs", func(r run) float64 { return micros(r.Max) }},
	{"calls/op", func(r run) float64 {
		if r.Calls == nil {
			return math.NaN()
		}
		return r.perOp(float64(*r.Calls))
	}},
	{"ctx/op", func(r run) float64 { return r.perOp(float64(r.ContextSwitches)) }},
	{"allocs/op", func(r run) float64 { return r.perOp(float64(r.Allocs)) }},
	{"GCs", func(r run) float64 { return float64(r.Collections) }},
	{"workers", func(r run) float64 { return float64(r.Workers) }},
	{"threads", func(r run) float64 { return float64(r.Threads) }},
}

// row is a contestant in a workload.
type row struct {
	Workload   workload
	Contestant string
	Runs       []run
	Error      string // Why it has no more runs.
}

// report is everything that a bench measured.
type report struct {
	Machine []string
	Rows    []*row
	options options
}

// writeRecords writes all runs, one record in each line.
func (r *report) writeRecords(to io.Writer) error {
	encoder := json.NewEncoder(to)
	var failure error
	write := func(kind string, record any) {
		failure = cmp.Or(failure, encoder.Encode(map[string]any{kind: record}))
	}
	for _, text := range r.Machine {
		write("head", printable(text))
	}
	write("head", fmt.Sprintf("4 KiB blocks, %v per run; cached reads use at most the first %s",
		r.options.runtime, sizeText(maxCached)))
	for _, c := range contestants {
		if slices.ContainsFunc(r.Rows, func(row *row) bool { return row.Contestant == c.name }) {
			write("about", []string{c.name, c.about})
		}
	}
	for i, row := range r.Rows {
		title := row.Workload.String()
		if i == 0 || r.Rows[i-1].Workload != row.Workload {
			write("columns", r.columns(row.Workload))
		}
		for round, run := range row.Runs {
			values := map[string]float64{}
			for _, f := range figures {
				if value := f.of(run); !math.IsNaN(value) {
					values[f.name] = value
				}
			}
			write("turn", map[string]any{"row": title, "contestant": row.Contestant,
				"round": round + 1, "figures": values})
		}
		if row.Error != "" {
			write("out", map[string]any{"row": title, "contestant": row.Contestant,
				"why": "failed: " + printable(row.Error)})
		}
	}
	return failure
}

// columns are those of a workload's table, with ratios to its base.
func (r *report) columns(w workload) []map[string]any {
	var names []string
	for _, row := range r.Rows {
		if row.Workload == w && len(row.Runs) > 0 {
			names = append(names, row.Contestant)
		}
	}
	base := baseOf(names)
	var all []map[string]any
	for _, f := range figures {
		column := map[string]any{"figure": f.name}
		if f.name == opsFigure || f.name == cpuFigure {
			column["range"] = true
			if base != "" {
				column["ratios"] = map[string]string{f.name + " vs " + base: base}
			}
		}
		all = append(all, column)
	}
	return all
}
