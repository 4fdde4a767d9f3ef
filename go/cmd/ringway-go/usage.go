//go:build linux

// What a run costs the process: CPU time, context switches, allocations and threads. The io-wq
// workers of the kernel (iou-wrk-*) are threads of the process, so getrusage counts their time.

package main

import (
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"syscall"
	"time"
)

// usage of the process since it started.
type usage struct {
	user, system    time.Duration
	contextSwitches int64
	allocs          uint64
	collections     uint64
	submissions     submissions
}

// newSamples returns what usageNow reads into, so that it does not allocate.
func newSamples() []metrics.Sample {
	return []metrics.Sample{
		{Name: "/gc/heap/allocs:objects"},
		{Name: "/gc/heap/tiny/allocs:objects"},
		{Name: "/gc/cycles/total:gc-cycles"},
	}
}

func usageNow(samples []metrics.Sample) (usage, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return usage{}, os.NewSyscallError("getrusage", err)
	}
	metrics.Read(samples)
	return usage{
		user: time.Duration(u.Utime.Nano()), system: time.Duration(u.Stime.Nano()),
		contextSwitches: int64(u.Nvcsw) + int64(u.Nivcsw),
		allocs:          samples[0].Value.Uint64() + samples[1].Value.Uint64(),
		collections:     samples[2].Value.Uint64(),
	}, nil
}

// countThreads returns the number of threads of the process, and how many of them are io-wq
// workers. Go does not end idle threads, and the kernel keeps idle workers for seconds: at the end
// of a run these are the largest numbers of the run.
func countThreads() (threads, workers int, err error) {
	const dir = "/proc/self/task"
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		name, err := os.ReadFile(filepath.Join(dir, entry.Name(), "comm"))
		if err == nil && strings.HasPrefix(string(name), "iou-wrk-") {
			workers++
		}
	}
	return len(entries), workers, err
}
