//go:build linux

package main

// What a run cost the process: processor time, context switches and threads, those of the kernel that work for it included.
// The io-wq workers (iou-wrk-*) are threads of this process, so getrusage has their time, while they live and after.

import (
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"syscall"
	"time"
)

// moment is the process's figures so far.
type moment struct {
	user, system    time.Duration
	contextSwitches int64
	allocs          uint64
	collections     uint64
	trips           trips
}

// allocated are objects, with the tiny ones that share a block, and collections.
var allocated = []string{"/gc/heap/allocs:objects", "/gc/heap/tiny/allocs:objects", "/gc/cycles/total:gc-cycles"}

// now needs room for three samples, so that it allocates nothing itself.
func now(samples []metrics.Sample) (moment, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return moment{}, os.NewSyscallError("getrusage", err)
	}
	metrics.Read(samples)
	return moment{
		user: time.Duration(usage.Utime.Nano()), system: time.Duration(usage.Stime.Nano()),
		contextSwitches: int64(usage.Nvcsw) + int64(usage.Nivcsw),
		allocs:          samples[0].Value.Uint64() + samples[1].Value.Uint64(),
		collections:     samples[2].Value.Uint64(),
	}, nil
}

func samples() []metrics.Sample {
	all := make([]metrics.Sample, len(allocated))
	for i, name := range allocated {
		all[i].Name = name
	}
	return all
}

// tasks has a folder for each thread.
const tasks = "/proc/self/task"

// workers are the io-wq threads now.
func workers() int {
	entries, err := os.ReadDir(tasks)
	if err != nil {
		return 0
	}
	count := 0
	for _, entry := range entries {
		if name, err := os.ReadFile(filepath.Join(tasks, entry.Name(), "comm")); err == nil && strings.HasPrefix(string(name), "iou-wrk-") {
			count++
		}
	}
	return count
}

// watch keeps the most threads and workers seen until it is told to stop.
type watch struct {
	threads, workers int
	err              error
	stop, done       chan struct{}
}

// startWatch looks fifty times a second at the count of threads: the links to their folder, but for its name and its own. It
// looks at their names, to count helpers where there may be some, only when there are more or fewer than before: that costs
// time and objects, which would be in the figures.
func startWatch(helped bool) (*watch, error) {
	folder, err := os.Open(tasks)
	if err != nil {
		return nil, err
	}
	w := &watch{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer folder.Close()
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		var stat syscall.Stat_t
		for last := 0; ; {
			if w.err = syscall.Fstat(int(folder.Fd()), &stat); w.err != nil {
				return
			}
			now := int(stat.Nlink) - 2
			w.threads = max(w.threads, now)
			if helped && now != last {
				w.workers = max(w.workers, workers())
			}
			last = now
			select {
			case <-ticker.C:
			case <-w.stop:
				return
			}
		}
	}()
	return w, nil
}

// end is called once.
func (w *watch) end() error {
	close(w.stop)
	<-w.done
	return w.err
}
