//go:build linux

package main

// The whole command on small files, for short times: the shape of what it says, and what it leaves behind.

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain: runs are this program started again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == runCommand || os.Args[1] == "bench") {
		os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
	}
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil { // Or each run ends a second late.
		panic(err)
	}
	os.Exit(m.Run())
}

// tiny options of every bench here.
var tiny = []string{"-runtime", "30ms", "-ramp", "10ms", "-repeat", "2", "-size", "1m"}

func run0(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := command(args, &out, &errs); code != 0 {
		t.Fatalf("%v: exit code %d\n%s", args, code, &errs)
	}
	return out.String(), errs.String()
}

func nothingIn(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestBenchOnAScratchFile(t *testing.T) {
	dir := t.TempDir()
	files := t.TempDir()
	args := append([]string{"bench", "-scratch", dir, "-full", "-direct", "1,3,130", "-cached", "2", "-batch", "5", "-commit", "3", "-null", "9",
		"-csv", filepath.Join(files, "csv"), "-json", filepath.Join(files, "json")}, tiny...)
	out, errs := run0(t, args...)
	nothingIn(t, dir)
	if !strings.Contains(errs, "runs, each in a process of its own") {
		t.Errorf("progress: %q", errs)
	}
	works := map[work][]string{
		{ioDirect, 1}: {"ringway", "ringway-fixed", "os", "seed", "bare"}, {ioDirect, 3}: {"ringway", "ringway-fixed", "os", "seed", "bare"},
		{ioDirect, 130}: {"ringway", "ringway-fixed", "os", "os-128", "seed", "bare"}, {ioCached, 2}: {"ringway", "os", "seed", "null"},
		{ioBatch, 5}: {"ringway", "os"}, {ioCommit, 3}: {"ringway", "os", "os-group"}, {ioNull, 9}: {"null-queue", "floor", "null"},
	}
	if strings.Contains(out, "direct: left out") {
		delete(works, work{ioDirect, 1})
		delete(works, work{ioDirect, 3})
		delete(works, work{ioDirect, 130})
		delete(works, work{ioNull, 9})
	}
	rows := 0
	for w, names := range works {
		for _, name := range names {
			rows++
			found := slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
				fields := strings.Fields(line)
				return len(fields) > 3 && fields[0] == name && fields[1] == string(w.Kind) && fields[2] == fmt.Sprint(w.Depth)
			})
			if !found {
				t.Errorf("no row for %s at %v", name, w)
			}
		}
	}
	// A ring may be refused here, but os never is.
	for line := range strings.SplitSeq(out, "\n") {
		if strings.HasPrefix(line, "os") && strings.Contains(line, "did not run") {
			t.Error(line)
		}
	}
	for _, said := range []string{"Linux ", "target of 1 MiB", "removed afterwards", "ringway: backend", "median of 2 runs", "against os", "Contestants", "How to read this"} {
		if !strings.Contains(out, said) {
			t.Errorf("it does not say %q", said)
		}
	}
	if t.Failed() {
		t.Log("\n" + out)
	}

	file, err := os.Open(filepath.Join(files, "csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	records, err := csv.NewReader(file).ReadAll()
	if err != nil || !slices.Equal(records[0], csvHeadings) || len(records) < 1+rows || len(records) > 1+2*rows {
		t.Errorf("csv: %d records of %d rows, %v", len(records), rows, err)
	}
	text, err := os.ReadFile(filepath.Join(files, "json"))
	var all report
	if err != nil || json.Unmarshal(text, &all) != nil || len(all.Cells) != rows || all.Machine.Size != 1<<20 {
		t.Errorf("json: %d cells of %d, %v", len(all.Cells), rows, err)
	}
	for _, c := range all.Cells {
		for _, r := range c.Runs {
			if r.Requests <= 0 || r.Real < 30*time.Millisecond || r.P50 <= 0 || r.P50 > r.Max || r.Threads < 1 || c.Contestant != "null" && r.cpu() <= 0 {
				t.Errorf("%v, %s: %+v", c.Work, c.Contestant, r)
			}
		}
	}
}

func TestBenchOnAFileOnlyReadsIt(t *testing.T) {
	name := filepath.Join(t.TempDir(), "mine")
	content := bytes.Repeat([]byte("mine"), 8192)
	if err := os.WriteFile(name, content, 0o400); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := run0(t, "bench", name, "-direct", "2", "-cached", "2", "-commit", "2", "-only", "ringway,os", "-runtime", "20ms", "-ramp", "1ms", "-quiet", "-repeat", "1")
	after, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(now, content) || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the file was changed: %v", err)
	}
	if !strings.Contains(out, "commit: left out") || !strings.Contains(out, "which is only read") || strings.Contains(out, "spread") {
		t.Errorf("it does not say what it left out, or a spread of one run:\n%s", out)
	}
}

func TestBenchForPrograms(t *testing.T) {
	args := append([]string{"bench", "-scratch", t.TempDir(), "-direct", "", "-cached", "1", "-only", "os,null", "-csv", "-"}, tiny...)
	out, _ := run0(t, args...)
	records, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(records) != 1+4 {
		t.Errorf("%d records, %v\n%s", len(records), err, out)
	}
}

func TestMistakesAreToldWithAnExitCode(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		told string
		args []string
	}{
		{2, "Usage", nil},
		{2, `"brench"`, []string{"brench"}},
		{2, "-x", []string{"bench", "-x"}},
		{2, "no contestant", []string{"bench", "-only", "nobody"}},
		{2, "for the command itself", []string{runCommand, "{"}},
		{2, "takes no arguments", []string{"explain", "it"}},
		{1, "no such file", []string{"bench", filepath.Join(dir, "missing")}},
		{1, "neither a file", []string{"bench", dir}},
		{1, "less than one read", []string{"bench", empty}},
		{1, "no such file", []string{"bench", "-scratch", filepath.Join(dir, "missing")}},
		{1, "nothing was written", []string{"bench", "-scratch", dir, "-size", "4000t"}},
		{1, "no such file", []string{"bench", "-csv", filepath.Join(dir, "missing", "csv")}},
		{1, "nothing is left", []string{"bench", "-scratch", dir, "-size", "1m", "-direct", "9000", "-cached", "", "-only", "os"}},
	} {
		var out, errs bytes.Buffer
		if code := command(c.args, &out, &errs); code != c.code || !strings.Contains(errs.String(), c.told) || out.Len() > 0 {
			t.Errorf("%q: exit code %d, %q and on standard output %q", c.args, code, &errs, &out)
		}
	}
	for _, args := range [][]string{{"help"}, {"bench", "-h"}, {"explain"}} {
		if out, errs := run0(t, args...); out == "" || errs != "" {
			t.Errorf("%q: %q, %q", args, out, errs)
		}
	}
}

// An interrupt ends it, the run under way too, and nothing is left behind.
func TestInterrupted(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	child := exec.Command(self, "bench", "-scratch", dir, "-size", "1m", "-direct", "", "-cached", "1", "-only", "os", "-runtime", "1h")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // The run must not be reached by way of the group.
	errs, err := child.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Process.Kill()
	if line, err := bufio.NewReader(errs).ReadString('\n'); !strings.Contains(line, "runs") {
		t.Fatal(line, err)
	}
	run := ""
	until(t, "a run is under way", func() bool {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", child.Process.Pid))
		for _, list := range lists {
			text, _ := os.ReadFile(list)
			run = strings.TrimSpace(run + string(text))
		}
		return run != ""
	})
	if err := child.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, errs)
	_ = child.Wait()
	if status := child.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v", child.ProcessState)
	}
	until(t, "the run has ended", func() bool {
		status, err := os.ReadFile("/proc/" + run + "/stat")
		return err != nil || strings.Contains(string(status), ") Z ")
	})
	nothingIn(t, dir)
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never came to this: " + what)
		}
	}
}
