//go:build linux

package main

// The report for programs: JSON with everything, CSV with a row for each run, in raw units that the headings name.

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"time"
)

func (r *report) writeJSON(to io.Writer) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// csvHeadings are always these, in this order; new ones are added at the end.
var csvHeadings = []string{
	"contestant", "io", "depth", "run", "runs", "is_median", "real_seconds", "user_seconds", "system_seconds",
	"context_switches", "system_calls", "allocations", "garbage_collections", "threads", "io_wq_workers", "ops",
	"ops_per_second", "bytes_per_second", "cpu_us_per_op", "latency_p50_ns", "latency_p99_ns", "latency_p99.9_ns",
	"latency_p99.99_ns", "latency_max_ns", "against", "ops_ratio", "cpu_ratio", "refused",
}

// writeCSV gives a cell that did not run one row, which says why. The ratios are the cell's.
func (r *report) writeCSV(to io.Writer) error {
	out := csv.NewWriter(to)
	rows := [][]string{csvHeadings}
	for _, c := range r.Cells {
		begin := []string{c.Contestant, string(c.Work.Kind), strconv.Itoa(c.Work.Depth)}
		if len(c.Runs) == 0 {
			row := append(begin, make([]string, len(csvHeadings)-len(begin)-1)...)
			rows = append(rows, append(row, c.Refused))
			continue
		}
		median := c.medianRun()
		marked := false
		for i, one := range c.Runs {
			isMedian := !marked && one == median
			marked = marked || isMedian
			row := append(append([]string(nil), begin...), strconv.Itoa(i+1), strconv.Itoa(len(c.Runs)), strconv.FormatBool(isMedian))
			row = append(row, one.csv()...)
			if c.Against == "" {
				row = append(row, "", "", "")
			} else {
				row = append(row, c.Against, number64(c.OpsRatio), number64(c.CPURatio))
			}
			rows = append(rows, append(row, c.Refused))
		}
	}
	if err := out.WriteAll(rows); err != nil {
		return err
	}
	return out.Error()
}

func (r run) csv() []string {
	whole := func(n int64) string { return strconv.FormatInt(n, 10) }
	seconds := func(d time.Duration) string { return number64(d.Seconds()) }
	calls := ""
	if r.Calls != nil {
		calls = whole(*r.Calls)
	}
	return []string{
		seconds(r.Real), seconds(r.User), seconds(r.System), whole(r.ContextSwitches), calls, whole(int64(r.Allocs)),
		whole(int64(r.Collections)), strconv.Itoa(r.Threads), strconv.Itoa(r.Workers), whole(r.Requests), number64(r.ops()),
		number64(r.ops() * block), number64(r.cpuOp()), whole(int64(r.P50)), whole(int64(r.P99)), whole(int64(r.P999)),
		whole(int64(r.P9999)), whole(int64(r.Max)),
	}
}

func number64(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }
