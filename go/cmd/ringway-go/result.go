//go:build linux

package main

// What came out: runs, the cells that they belong to, medians and ratios. Plain data; the reports are made from it.

import (
	"cmp"
	"slices"
	"time"
)

// run is one run: its measured part.
type run struct {
	Requests        int64         `json:"requests"` // Blocks read, or records made durable.
	Real            time.Duration `json:"real_ns"`
	User            time.Duration `json:"user_ns"`
	System          time.Duration `json:"system_ns"`
	ContextSwitches int64         `json:"context_switches"`
	Calls           *int64        `json:"system_calls"` // Null: unknown.
	Allocs          uint64        `json:"allocations"`
	Collections     uint64        `json:"garbage_collections"`
	Threads         int           `json:"threads"` // The most at once, of the kernel for it too.
	Workers         int           `json:"io_wq_workers"`
	// Of a request, from the moment it is asked for: a batch is one.
	P50   time.Duration `json:"latency_p50_ns"`
	P99   time.Duration `json:"latency_p99_ns"`
	P999  time.Duration `json:"latency_p99.9_ns"`
	P9999 time.Duration `json:"latency_p99.99_ns"`
	Max   time.Duration `json:"latency_max_ns"`

	trips *trips
}

func (r run) ops() float64 { return float64(r.Requests) / max(r.Real.Seconds(), 1e-9) }

func (r run) cpu() time.Duration { return r.User + r.System }

// cpuOp is microseconds an operation.
func (r run) cpuOp() float64 { return r.perOp(float64(r.cpu().Nanoseconds()) / 1e3) }

func (r run) perOp(of float64) float64 { return of / float64(max(r.Requests, 1)) }

// cell is a contestant at one work.
type cell struct {
	Work       work   `json:"work"`
	Contestant string `json:"contestant"`
	Runs       []run  `json:"runs"`
	// Refused is why it has no more runs.
	Refused string `json:"refused,omitempty"`
	// Against is whom the ratios compare with: medians of the ratios of runs that followed each other. 0: none.
	Against  string  `json:"against,omitempty"`
	OpsRatio float64 `json:"ops_ratio,omitempty"`
	CPURatio float64 `json:"cpu_ratio,omitempty"`
}

// medianRun is the run whose operations a second are the median.
func (c *cell) medianRun() run {
	order := slices.SortedFunc(slices.Values(c.Runs), func(a, b run) int { return cmp.Compare(a.ops(), b.ops()) })
	return order[(len(order)-1)/2]
}

// spread is half the way from the slowest to the fastest, as a share of the median.
func (c *cell) spread() float64 {
	low, high := c.Runs[0].ops(), c.Runs[0].ops()
	for _, r := range c.Runs {
		low, high = min(low, r.ops()), max(high, r.ops())
	}
	return (high - low) / 2 / c.medianRun().ops()
}

// threads is the most of any run: it is a bound that is of interest, not what is usual.
func (c *cell) threads() int {
	most := 0
	for _, r := range c.Runs {
		most = max(most, r.Threads)
	}
	return most
}

// compare fills in the ratios to a base: round by round, and of those the medians.
func (c *cell) compare(base *cell) {
	var ops, cpu []float64
	for i := range min(len(c.Runs), len(base.Runs)) {
		mine, others := c.Runs[i], base.Runs[i]
		if others.Requests > 0 && mine.Requests > 0 && others.cpuOp() > 0 {
			ops = append(ops, mine.ops()/others.ops())
			cpu = append(cpu, mine.cpuOp()/others.cpuOp())
		}
	}
	if len(ops) > 0 {
		c.Against, c.OpsRatio, c.CPURatio = base.Contestant, median(ops), median(cpu)
	}
}

// median of some: between the two in the middle if there are two.
func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}

// report is everything.
type report struct {
	Command []string `json:"command"`
	Machine machine  `json:"machine"`
	Cells   []*cell  `json:"cells"`
	options options
}

// compare fills in all ratios.
func (r *report) compare() {
	for _, c := range r.Cells {
		var names []string
		for _, other := range r.Cells {
			if other.Work == c.Work && len(other.Runs) > 0 {
				names = append(names, other.Contestant)
			}
		}
		with := base(c.Work, names)
		for _, other := range r.Cells {
			if other.Work == c.Work && other.Contestant == with {
				c.compare(other)
			}
		}
	}
}
