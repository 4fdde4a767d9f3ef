//go:build linux

// The whole command, on small files and for short times: its output and exit status, and what it
// leaves behind.

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/tests"
)

var must, require, expect = tests.Must, tests.Require, tests.Expect

// get returns the value of a call, and fails the test on an error.
func get[T any](value T, err error) func(testing.TB) T { return tests.Get(value, err) }

// TestMain is the command itself in the processes that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == runCommand || os.Args[1] == "bench") {
		os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
	}
	// Otherwise the race detector makes each run end a second late.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// tiny is the size of every bench here.
var tiny = []string{"-runtime", "30ms", "-ramp", "10ms", "-repeat", "2", "-size", "1m"}

func runCommandLine(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status := command(args, &out, &errs)
	require(t, status == 0, "%v: exit status %d\n%s", args, status, &errs)
	return out.String(), errs.String()
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	expect(t, err == nil && len(entries) == 0, "left behind: %v, %v", entries, err)
}

func TestBenchOnAScratchFile(t *testing.T) {
	dir := t.TempDir()
	args := append([]string{"bench", "-scratch", dir, "-full", "-direct", "1,3", "-cached", "2",
		"-batch", "5", "-commit", "3", "-null", "9"}, tiny...)
	out, errs := runCommandLine(t, args...)
	checkEmpty(t, dir)
	expect(t, strings.Contains(errs, "cached 2: ringway, os, ringway-ctx\n"), "standard error: %q",
		errs)
	want := map[workload][]string{
		{ioDirect, 1}: {"ringway", "os", "ringway-ctx", "bare"},
		{ioDirect, 3}: {"ringway", "os", "ringway-ctx", "bare"},
		{ioCached, 2}: {"ringway", "os", "ringway-ctx"}, {ioBatch, 5}: {"ringway", "os"},
		{ioCommit, 3}: {"ringway", "os-group"}, {ioNull, 9}: {"null-queue", "floor"},
	}
	if strings.Contains(out, "direct: omitted") {
		maps.DeleteFunc(want, func(w workload, _ []string) bool {
			return w.IO == ioDirect || w.IO == ioNull
		})
	}
	for _, text := range []string{"Linux ", "1 MiB", "removed afterwards", "ringway: backend"} {
		expect(t, strings.Contains(out, text), "the output lacks %q", text)
	}
	type one struct {
		Row, Contestant string
		Figures         map[string]float64
	}
	turns := map[[2]string]int{}
	for line := range strings.Lines(out) {
		var record struct{ Turn, Out *one }
		err := json.Unmarshal([]byte(line), &record)
		require(t, err == nil, "%v, %v", line, err)
		if refused := record.Out; refused != nil {
			turns[[2]string{refused.Row, refused.Contestant}] = 2
			// A ring may be refused here, os.File is not.
			expect(t, !strings.HasPrefix(refused.Contestant, "os"), "%v", line)
		}
		if record.Turn == nil {
			continue
		}
		turns[[2]string{record.Turn.Row, record.Turn.Contestant}]++
		f := record.Turn.Figures
		expect(t, f["requests"] > 0 && f["p50 µs"] > 0 && f["p50 µs"] <= f["max µs"] &&
			f["threads"] >= 1 && f["CPU s"] > 0, "%v", line)
	}
	wanted := map[[2]string]int{}
	for w, names := range want {
		for _, name := range names {
			wanted[[2]string{w.String(), name}] = 2
		}
	}
	expect(t, maps.Equal(turns, wanted), "turns: %v, not %v\n%s", turns, wanted, out)
}

func TestBenchDoesNotChangeAnExistingFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "existing")
	content := bytes.Repeat([]byte("data"), 8192)
	must(t, os.WriteFile(name, content, 0o400))
	before := get(os.Stat(name))(t)
	out, _ := runCommandLine(t, "bench", name, "-direct", "2", "-cached", "2", "-commit", "2",
		"-only", "ringway,os", "-runtime", "20ms", "-ramp", "1ms", "-repeat", "1")
	after := get(os.Stat(name))(t)
	now, err := os.ReadFile(name)
	expect(t, err == nil && bytes.Equal(now, content) && after.ModTime().Equal(before.ModTime()),
		"the file was changed: %v", err)
	expect(t, strings.Contains(out, "commit: omitted") && strings.Contains(out, "read only"),
		"the output lacks what was omitted:\n%s", out)
}

func TestMistakesAreReported(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	must(t, os.WriteFile(empty, nil, 0o600))
	missing := filepath.Join(dir, "missing")
	for _, c := range []struct {
		status  int
		message string
		args    []string
	}{
		{2, "Usage", nil},
		{2, `"brench"`, []string{"brench"}},
		{2, "-x", []string{"bench", "-x"}},
		{2, "unknown contestant", []string{"bench", "-only", "nobody"}},
		{2, "internal use", []string{runCommand, "{"}},
		{2, "takes no arguments", []string{"explain", "it"}},
		{1, "no such file", []string{"bench", missing}},
		{1, "neither a regular file", []string{"bench", dir}},
		{1, "less than a read", []string{"bench", empty}},
		{1, "no such file", []string{"bench", "-scratch", missing}},
		{1, "nothing was written", []string{"bench", "-scratch", dir, "-size", "4000t"}},
		{1, "nothing to measure", []string{"bench", "-scratch", dir, "-size", "1m", "-direct",
			"9000", "-cached", "", "-only", "os"}},
	} {
		var out, errs bytes.Buffer
		status := command(c.args, &out, &errs)
		expect(t, status == c.status && strings.Contains(errs.String(), c.message) &&
			out.Len() == 0, "%q: exit status %d, standard error %q, standard output %q", c.args,
			status, &errs, &out)
	}
	for _, args := range [][]string{{"help"}, {"bench", "-h"}, {"explain"}} {
		out, errs := runCommandLine(t, args...)
		expect(t, out != "" && errs == "", "%q: %q, %q", args, out, errs)
	}
}

// The current run ends with the command, and nothing is left behind.
func TestInterrupt(t *testing.T) {
	self := get(os.Executable())(t)
	dir := t.TempDir()
	child := exec.Command(self, "bench", "-scratch", dir, "-size", "1m", "-direct", "", "-cached",
		"1", "-only", "os", "-runtime", "1h")
	// The run must not get the signal of the group.
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The child would inherit that the signal is ignored, as it is in the background of a shell
	// script. What this process catches has the default action in the child.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	errs := get(child.StderrPipe())(t)
	must(t, child.Start())
	defer child.Process.Kill()
	line, err := bufio.NewReader(errs).ReadString('\n')
	require(t, strings.Contains(line, "preparing"), "%v, %v", line, err)
	run := ""
	waitFor(t, "a run to start", func() bool {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", child.Process.Pid))
		for _, list := range lists {
			text, _ := os.ReadFile(list)
			run = strings.TrimSpace(run + string(text))
		}
		return run != ""
	})
	must(t, child.Process.Signal(os.Interrupt))
	_, _ = io.Copy(io.Discard, errs)
	_ = child.Wait()
	status := child.ProcessState.Sys().(syscall.WaitStatus)
	expect(t, status.Signaled() && status.Signal() == syscall.SIGINT, "the command ended with %v",
		child.ProcessState)
	waitFor(t, "the run to end", func() bool {
		status, err := os.ReadFile("/proc/" + run + "/stat")
		return err != nil || strings.Contains(string(status), ") Z ")
	})
	checkEmpty(t, dir)
}

func waitFor(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ready(); time.Sleep(5 * time.Millisecond) {
		require(t, !time.Now().After(deadline), "timeout waiting for %v", what)
	}
}
