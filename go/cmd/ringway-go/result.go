//go:build linux

// Results: runs, rows, medians and ratios. The reports are made from them.

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// run is the measured part of one run.
type run struct {
	Requests        int64         `json:"requests"` // Blocks read, or records written.
	Real            time.Duration `json:"real_ns"`
	User            time.Duration `json:"user_ns"`
	System          time.Duration `json:"system_ns"`
	ContextSwitches int64         `json:"context_switches"`
	Calls           *int64        `json:"system_calls"` // null: unknown.
	Allocs          uint64        `json:"allocations"`
	Collections     uint64        `json:"garbage_collections"`
	Threads         int           `json:"threads"` // The most at once, with those of the kernel.
	Workers         int           `json:"io_wq_workers"`
	// Latency of a request; a batch is one request.
	P50   time.Duration `json:"latency_p50_ns"`
	P99   time.Duration `json:"latency_p99_ns"`
	P999  time.Duration `json:"latency_p99.9_ns"`
	P9999 time.Duration `json:"latency_p99.99_ns"`
	Max   time.Duration `json:"latency_max_ns"`
}

func (r run) ops() float64 { return float64(r.Requests) / max(r.Real.Seconds(), 1e-9) }

func (r run) cpu() time.Duration { return r.User + r.System }

// cpuPerOp is in microseconds.
func (r run) cpuPerOp() float64 { return r.perOp(float64(r.cpu().Nanoseconds()) / 1e3) }

func (r run) perOp(total float64) float64 { return total / float64(max(r.Requests, 1)) }

// row is a contestant in a workload.
type row struct {
	Workload   workload `json:"workload"`
	Contestant string   `json:"contestant"`
	Runs       []run    `json:"runs"`
	Error      string   `json:"error,omitempty"` // Why it has no more runs.
	// Against is the contestant that the ratios refer to, if any. They are medians of the ratios of
	// runs in the same round.
	Against  string  `json:"against,omitempty"`
	OpsRatio float64 `json:"ops_ratio,omitempty"`
	CPURatio float64 `json:"cpu_ratio,omitempty"`
}

// median returns the run with the median of operations per second.
func (r *row) median() run {
	order := slices.SortedFunc(slices.Values(r.Runs),
		func(a, b run) int { return cmp.Compare(a.ops(), b.ops()) })
	return order[(len(order)-1)/2]
}

// threads returns the largest number of all runs.
func (r *row) threads() int {
	most := 0
	for _, run := range r.Runs {
		most = max(most, run.Threads)
	}
	return most
}

// values of all runs, in ascending order.
func (r *row) values(of func(run) float64) []float64 {
	var all []float64
	for _, run := range r.Runs {
		all = append(all, of(run))
	}
	slices.Sort(all)
	return all
}

// spread is half the distance from the slowest run to the fastest, relative to the median.
func (r *row) spread() float64 {
	ops := r.values(run.ops)
	return halfRange(ops) / r.median().ops()
}

func halfRange(sorted []float64) float64 { return (sorted[len(sorted)-1] - sorted[0]) / 2 }

// equal reports whether runs do not show a difference. The rule is that of `ringway bench`. Both
// are in ascending order.
func equal(a, b []float64) bool {
	within := 0.02
	if len(a) < 2 || len(b) < 2 {
		within = 0.10
	}
	ma, mb := median(a), median(b)
	difference := math.Abs(ma - mb)
	return a[0] <= b[len(b)-1] && b[0] <= a[len(a)-1] ||
		difference <= max(halfRange(a), halfRange(b)) || difference <= within*max(ma, mb)
}

// median returns the median of values in ascending order.
func median(sorted []float64) float64 {
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// compareTo sets the ratios to a base.
func (r *row) compareTo(base *row) {
	var ops, cpu []float64
	for i := range min(len(r.Runs), len(base.Runs)) {
		mine, other := r.Runs[i], base.Runs[i]
		if mine.Requests > 0 && other.Requests > 0 && other.cpuPerOp() > 0 {
			ops = append(ops, mine.ops()/other.ops())
			cpu = append(cpu, mine.cpuPerOp()/other.cpuPerOp())
		}
	}
	if len(ops) > 0 {
		slices.Sort(ops)
		slices.Sort(cpu)
		r.Against, r.OpsRatio, r.CPURatio = base.Contestant, median(ops), median(cpu)
	}
}

// report is everything that a bench measured.
type report struct {
	Command []string `json:"command"`
	Machine []string `json:"machine"`
	Rows    []*row   `json:"rows"`
	Summary []string `json:"summary"`
	options options
}

// compare sets all ratios, and the summary.
func (r *report) compare() {
	for _, mine := range r.Rows {
		ran := map[string]*row{}
		var names []string
		for _, other := range r.Rows {
			if other.Workload == mine.Workload && len(other.Runs) > 0 {
				ran[other.Contestant] = other
				names = append(names, other.Contestant)
			}
		}
		base := ran[baseOf(names)]
		if base == nil {
			continue
		}
		mine.compareTo(base)
		if mine.Against == "" || mine == base || mine.Contestant == "bare" {
			continue
		}
		text := mine.summary(base)
		if bare := ran["bare"]; bare != nil {
			text += fmt.Sprintf("; a bare ring needs %s CPU µs per operation, ringway %s",
				digits(bare.median().cpuPerOp()), digits(mine.median().cpuPerOp()))
		}
		r.Summary = append(r.Summary, text)
	}
}

// summary puts the comparison with a base into words.
func (r *row) summary(base *row) string {
	part := func(of func(run) float64, ratio float64, what string) string {
		if equal(r.values(of), base.values(of)) {
			return "equal " + what
		}
		return times(ratio) + " the " + what
	}
	text := part(run.cpuPerOp, r.CPURatio, "CPU time per operation")
	if r.Workload.IO != ioNull { // Without a device, operations per second mean little.
		text = part(run.ops, r.OpsRatio, "ops/s") + " and " + text
	}
	return fmt.Sprintf("%s: %s has %s of %s", r.Workload, r.Contestant, text, base.Contestant)
}
