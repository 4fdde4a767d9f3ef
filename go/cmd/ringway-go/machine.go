//go:build linux

// The machine and the target, as the head of a report describes them.

package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// describe returns the lines.
func describe(t *target, explanation string) []string {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	lines := []string{
		fmt.Sprintf("Linux %s, %s, %s, GOMAXPROCS %d", strings.TrimSpace(string(release)),
			plural(runtime.NumCPU(), "processor"), runtime.Version(), runtime.GOMAXPROCS(0)),
		t.about,
	}
	indent := "ringway: "
	for line := range strings.SplitSeq(explanation, "\n") {
		lines = append(lines, indent+line)
		indent = "         "
	}
	return lines
}
