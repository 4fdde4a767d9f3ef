//go:build linux

// What the benchmark measures: workloads, and the contestants of each.

package main

import (
	"fmt"
	"slices"
)

// ioKind is what the goroutines of a workload do, as the table names it.
type ioKind string

const (
	ioDirect ioKind = "direct" // Random reads that bypass the page cache.
	ioCached ioKind = "cached" // Random reads of data in the page cache.
	ioBatch  ioKind = "batch"  // The same by one goroutine that reads many blocks per call.
	ioCommit ioKind = "commit" // Appends to a log, each durable before the next.
	ioNull   ioKind = "null"   // Reads without a device, to measure the engine's own cost.
)

// workload is one group of rows of the table.
type workload struct {
	IO ioKind `json:"io"`
	// Depth is the number of goroutines, or of a batch's reads.
	Depth int `json:"depth"`
}

func (w workload) String() string { return fmt.Sprintf("%s %s", w.IO, grouped(int64(w.Depth))) }

func (w workload) goroutines() int {
	if w.IO == ioBatch {
		return 1
	}
	return w.Depth
}

func (w workload) blocksPerRequest() int {
	if w.IO == ioBatch {
		return w.Depth
	}
	return 1
}

const (
	// maxBlocked is how many goroutines may block in os.File at once: each occupies a thread, and
	// Go aborts a program with 10,000 threads.
	maxBlocked = 8000
	// maxCached is how many bytes at the start of the file cached reads use.
	maxCached = 256 << 20
	// boundedReads is how many reads os-128 has in flight.
	boundedReads = 128
)

// contestantsFor returns the names of the contestants of a workload, in the order of the table.
// A contestant of -full alone also runs when the user names it in only.
func contestantsFor(w workload, full bool, only []string) []string {
	var names []string
	for _, c := range contestants {
		fits := slices.Contains(c.kinds, w.IO) &&
			!(c.name == "os" && w.IO == ioDirect && w.Depth > maxBlocked)
		wanted := slices.Contains(only, c.name)
		if len(only) == 0 {
			switch c.name {
			case "bare", "ringway-ctx":
				wanted = full
			case "os-128":
				wanted = w.Depth > maxBlocked
			default:
				wanted = true
			}
		}
		if fits && wanted {
			names = append(names, c.name)
		}
	}
	return names
}

// baseOf returns the contestant that the ratios of a workload refer to, the first of these that
// takes part, or "" if none does.
func baseOf(names []string) string {
	for _, name := range []string{"os", "os-128", "os-group", "floor"} {
		if slices.Contains(names, name) {
			return name
		}
	}
	return ""
}

// inTurn returns the order of a round. Every other round is reversed (A B, B A), so that no
// contestant always runs first.
func inTurn(names []string, round int) []string {
	order := slices.Clone(names)
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}
