//go:build linux

package main

// The machine and the file that a report speaks of.

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// machine is plain data.
type machine struct {
	Kernel     string   `json:"kernel"`
	CPUs       int      `json:"processors"`
	Go         string   `json:"go"`
	Procs      int      `json:"gomaxprocs"`
	FileSystem string   `json:"file_system"`
	Device     string   `json:"device"`
	Size       int64    `json:"target_size"`
	Explain    string   `json:"ringway"`
	Remarks    []string `json:"remarks"`
	// Others is the share of the processors' time that went to other programs during the runs.
	Others float64 `json:"share_of_others"`
}

func machineOf(t *target, explain string) machine {
	m := machine{
		CPUs: runtime.NumCPU(), Go: runtime.Version(), Procs: runtime.GOMAXPROCS(0), Size: t.size, Explain: explain,
		Remarks: []string{t.what},
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	m.Kernel = strings.TrimSpace(string(release))
	var stat syscall.Stat_t
	if syscall.Fstat(int(t.file.Fd()), &stat) == nil {
		device := stat.Dev
		if stat.Mode&syscall.S_IFMT == syscall.S_IFBLK {
			device = stat.Rdev
		} else if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
			m.FileSystem = fileSystem(string(mounts), numbers(device))
		}
		m.Device = deviceText("/sys/dev/block", numbers(device))
	}
	return m
}

// numbers of a device are 254:0.
func numbers(device uint64) string {
	major := device>>8&0xfff | device>>32&^0xfff
	minor := device&0xff | device>>12&^0xff&0xffffffff
	return fmt.Sprintf("%d:%d", major, minor)
}

// fileSystem of a device in the lines of mountinfo; empty where it is not told.
func fileSystem(mounts, numbers string) string {
	lines := bufio.NewScanner(strings.NewReader(mounts))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		for i, field := range fields {
			if field == "-" && i+1 < len(fields) && fields[2] == numbers {
				return fields[i+1]
			}
		}
	}
	return ""
}

// deviceText is "vda, scheduler mq-deadline, nr_requests 256", of what is known. A partition has the queue of its disk.
func deviceText(folder, numbers string) string {
	path, err := filepath.EvalSymlinks(filepath.Join(folder, numbers))
	if err != nil {
		return ""
	}
	text := filepath.Base(path)
	queue := filepath.Join(path, "queue")
	if _, err := os.Stat(queue); err != nil {
		queue = filepath.Join(filepath.Dir(path), "queue")
	}
	if all, err := os.ReadFile(filepath.Join(queue, "scheduler")); err == nil {
		// The one in use stands in brackets.
		if _, chosen, ok := strings.Cut(string(all), "["); ok {
			chosen, _, _ = strings.Cut(chosen, "]")
			text += ", scheduler " + chosen
		}
	}
	if count, err := os.ReadFile(filepath.Join(queue, "nr_requests")); err == nil {
		text += ", nr_requests " + strings.TrimSpace(string(count))
	}
	return text
}

// processors is what they have done so far, all together.
type processors struct{ busy, all, ours time.Duration }

// processorsNow is zero where it cannot be told.
func processorsNow() processors {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return processors{}
	}
	p := parseStat(string(text))
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if syscall.Getrusage(who, &usage) != nil {
			return processors{}
		}
		p.ours += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return p
}

// parseStat adds the first line of /proc/stat up: user, nice, system, idle, iowait, irq, softirq and steal, in hundredths of a
// second. What follows is in the first two already.
func parseStat(text string) processors {
	const tick = time.Second / 100
	line, _, _ := strings.Cut(text, "\n")
	var p processors
	for i, field := range strings.Fields(line) {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if i == 0 || i > 8 || err != nil {
			continue
		}
		p.all += time.Duration(ticks) * tick
		if i != 4 && i != 5 {
			p.busy += time.Duration(ticks) * tick
		}
	}
	return p
}

// othersSince is the share of all time that went to others than this process and its children.
func (p processors) othersSince(before processors) float64 {
	all := p.all - before.all
	if all <= 0 {
		return 0
	}
	others := p.busy - before.busy - (p.ours - before.ours)
	return min(max(float64(others)/float64(all), 0), 1)
}

// lines are what stands above the table.
func (m machine) lines() []string {
	lines := []string{fmt.Sprintf("Linux %s, %s, %s, GOMAXPROCS %d", m.Kernel, plural(m.CPUs, "processor"), m.Go, m.Procs)}
	var parts []string
	if m.FileSystem != "" {
		parts = append(parts, m.FileSystem)
	}
	if m.Device != "" {
		parts = append(parts, "on "+m.Device)
	}
	lines = append(lines, strings.Join(append(parts, "target of "+sizeText(m.Size)), ", "))
	lines = append(lines, m.Remarks...)
	for i, line := range strings.Split(m.Explain, "\n") {
		lines = append(lines, []string{"ringway: ", "         "}[min(i, 1)]+line)
	}
	for i, line := range lines {
		lines[i] = clean(line)
	}
	return lines
}
