//go:build linux

package main

// What is measured: a kind of I/O at a depth, and who competes in it.

import (
	"fmt"
	"slices"
)

// ioKind is what goroutines do, as the table calls it.
type ioKind string

const (
	ioDirect ioKind = "direct" // Random reads past the page cache.
	ioCached ioKind = "cached" // Random reads of what is in the page cache.
	ioBatch  ioKind = "batch"  // The same by one goroutine that asks for many at a time.
	ioCommit ioKind = "commit" // Records of a log, each durable before the next.
	ioNull   ioKind = "null"   // Reads without a device: what is left is the engine's own cost.
)

// work is one group of rows of the table.
type work struct {
	Kind ioKind `json:"io"`
	// Depth is goroutines; of a batch, reads.
	Depth int `json:"depth"`
}

func (w work) String() string { return fmt.Sprintf("%s %s", w.Kind, grouped(int64(w.Depth))) }

func (w work) goroutines() int {
	if w.Kind == ioBatch {
		return 1
	}
	return w.Depth
}

// perRequest is how many blocks one request has.
func (w work) perRequest() int {
	if w.Kind == ioBatch {
		return w.Depth
	}
	return 1
}

// osMost is how many goroutines may be blocked in os.File: each has a thread, and Go ends a program with 10,000.
const osMost = 8000

// bounded is how many reads os-128 does at once.
const bounded = 128

// field is who competes: the first is ringway, and the base of the ratios is among them if it can be.
func field(w work, full bool, only []string) []string {
	var names []string
	for _, c := range contestants {
		suits := slices.Contains(c.kinds, w.Kind) && !(c.name == "os" && w.blocksThreads() && w.Depth > osMost)
		wanted := slices.Contains(only, c.name)
		if len(only) == 0 {
			switch c.name {
			case "ringway-fixed", "bare":
				wanted = full && w.Kind == ioDirect
			case "null":
				wanted = full && w.Kind == ioCached || w.Kind == ioNull
			case "os-128":
				wanted = w.Kind == ioDirect && (full && w.Depth > bounded || w.Depth > osMost)
			default:
				wanted = true
			}
		}
		if suits && wanted {
			names = append(names, c.name)
		}
	}
	return names
}

// blocksThreads tells whether os.File keeps a thread for each goroutine.
func (w work) blocksThreads() bool { return w.Kind == ioDirect || w.Kind == ioCommit }

// base is the contestant that the others are compared with: os, or os-128 where os cannot run, and without a device the
// floor. Empty: none of them competes.
func base(w work, names []string) string {
	if w.Kind == ioNull && slices.Contains(names, "floor") {
		return "floor"
	}
	for _, name := range []string{"os", "os-128"} {
		if slices.Contains(names, name) && (name == "os" || w.blocksThreads() && w.Depth > osMost) {
			return name
		}
	}
	return ""
}

// turns is the order of a round: every other one is reversed (A B, B A), so that nobody always comes first.
func turns(names []string, round int) []string {
	order := slices.Clone(names)
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}
