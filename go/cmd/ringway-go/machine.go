//go:build linux

package main

// The machine and the target, as the head of a report describes them.

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

type machine struct {
	Kernel     string   `json:"kernel"`
	CPUs       int      `json:"processors"`
	Go         string   `json:"go"`
	GOMAXPROCS int      `json:"gomaxprocs"`
	Size       int64    `json:"target_size"`
	Ringway    string   `json:"ringway"`
	Remarks    []string `json:"remarks"`
}

func machineOf(t *target, explanation string) machine {
	m := machine{
		CPUs: runtime.NumCPU(), Go: runtime.Version(), GOMAXPROCS: runtime.GOMAXPROCS(0),
		Size:    t.size,
		Ringway: explanation, Remarks: []string{t.about},
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	m.Kernel = strings.TrimSpace(string(release))
	return m
}

// lines returns the head of the report.
func (m machine) lines() []string {
	lines := []string{fmt.Sprintf("Linux %s, %s, %s, GOMAXPROCS %d",
		m.Kernel, plural(m.CPUs, "processor"), m.Go, m.GOMAXPROCS)}
	lines = append(lines, m.Remarks...)
	indent := "ringway: "
	for line := range strings.SplitSeq(m.Ringway, "\n") {
		lines = append(lines, indent+line)
		indent = "         "
	}
	for i, line := range lines {
		lines[i] = printable(line)
	}
	return lines
}
