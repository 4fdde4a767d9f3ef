//go:build linux

// Tests the log: concurrent appends, killed processes, torn files and failed commits.

package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/internal/tests"
	"github.com/ringway-io/ringway/go/ringway"
)

var must, expect = tests.Must, tests.Expect

// get returns the value of a call, and fails the test on an error.
func get[T any](value T, err error) func(testing.TB) T { return tests.Get(value, err) }

// TestMain is the command itself in child processes.
func TestMain(m *testing.M) {
	if os.Getenv("RINGWAY_TEST_COMMAND") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func command(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "RINGWAY_TEST_COMMAND=1")
	return cmd
}

var backends = []ringway.Backend{ringway.BackendURing, ringway.BackendKAIO, ringway.BackendThreads}

func each(t *testing.T, test func(t *testing.T, e *ringway.Engine)) {
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			e, err := ringway.New(ringway.Options{Backend: backend})
			if err != nil {
				skip.Test(t, err)
			}
			defer e.Close()
			test(t, e)
		})
	}
}

func list(t *testing.T, name string) []string {
	t.Helper()
	var out, messages bytes.Buffer
	if err := run([]string{"-list", name}, &out, &messages); err != nil {
		t.Fatal(err, messages.String())
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func TestCommand(t *testing.T) {
	each(t, func(t *testing.T, e *ringway.Engine) {
		name := filepath.Join(t.TempDir(), "log")
		var out, messages bytes.Buffer
		for range 2 {
			must(t, run([]string{"-v", "-backend", string(e.Backend()), "-writers", "20",
				"-records", "10", name}, &out, &messages))
		}
		printed := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		found := list(t, name)
		slices.Sort(printed)
		slices.Sort(found)
		expect(t, len(found) == 400 && slices.Equal(printed, found),
			"%d records in the log, %d printed", len(found), len(printed))
		if !strings.Contains(messages.String(), "found 200 records; appended 200 in ") {
			t.Error(messages.String())
		}
	})
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"a", "b"}, {"-writers", "0", "a"}, {"-none"},
		{"-list", "/none/none"}, {"/none/none"}, {"-backend", "smoke", "a"}} {
		expect(t, run(args, io.Discard, io.Discard) != nil, "no error for %v", args)
	}
	var messages bytes.Buffer
	err := run([]string{"-help"}, io.Discard, &messages)
	expect(t, err != nil && strings.Contains(messages.String(), "usage: grouplog"), "%v: %s", err,
		&messages)
	out, err := command("-none").CombinedOutput()
	expect(t, err != nil && bytes.Contains(out, []byte("usage: grouplog")), "%v: %s", err, out)
}

// The process is killed while it writes. Every printed record is in the log.
func TestKilledWriterLosesNoRecord(t *testing.T) {
	each(t, func(t *testing.T, e *ringway.Engine) {
		name := filepath.Join(t.TempDir(), "log")
		cmd := command("-v", "-backend", string(e.Backend()), "-writers", "50", "-records",
			"1000000", name)
		cmd.Stderr = os.Stderr
		out := get(cmd.StdoutPipe())(t)
		must(t, cmd.Start())
		var printed []string
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if printed = append(printed, lines.Text()); len(printed) == 200 {
				must(t, cmd.Process.Kill())
			}
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != -1 {
			t.Fatal("the process was not killed: ", err)
		}
		found := list(t, name)
		for _, record := range printed {
			expect(t, slices.Contains(found, record), "%s was acknowledged", record)
		}
	})
}

// open truncates the log after the last valid record, and appends there.
func TestTornLogIsTruncated(t *testing.T) {
	record := func(s string) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(s)))
		return append(binary.LittleEndian.AppendUint32(b, crc32.Checksum([]byte(s), table)), s...)
	}
	whole := slices.Concat(record("first"), record("second"))
	wrong := record("third")
	wrong[len(wrong)-1]++
	for what, tail := range map[string][]byte{
		"nothing":                   {},
		"zeros":                     make([]byte, 5000),
		"a part of a header":        {5, 0},
		"a part of a record":        record("third")[:10],
		"a wrong checksum":          wrong,
		"an absurd length":          {255, 255, 255, 255, 1, 2, 3, 4, 5},
		"a record after a torn one": slices.Concat(wrong, record("fourth")),
	} {
		t.Run(what, func(t *testing.T) {
			each(t, func(t *testing.T, e *ringway.Engine) {
				name := filepath.Join(t.TempDir(), "log")
				must(t, os.WriteFile(name, slices.Concat(whole, tail), 0o600))
				var seen []string
				j, err := open(e, name, func(record []byte) { seen = append(seen, string(record)) })
				must(t, err)
				must(t, errors.Join(j.append([]byte("next")), j.close()))
				got := get(os.ReadFile(name))(t)
				expect(t, slices.Equal(seen, []string{"first", "second"}) &&
					bytes.Equal(got, slices.Concat(whole, record("next"))), "%q, %q", seen, got)
			})
		})
	}
}

// After a failed commit, all appends fail.
func TestFailedCommitFailsAllAppends(t *testing.T) {
	each(t, func(t *testing.T, e *ringway.Engine) {
		full := get(e.OpenFile("/dev/full", os.O_RDWR, 0))(t)
		j := &journal{file: full, entries: make(chan entry), ended: make(chan struct{})}
		go j.run(0)
		tests.Together(100, func(int) {
			err := j.append([]byte("lost"))
			expect(t, errors.Is(err, syscall.ENOSPC), "%v", err)
		})
		for _, n := range []int{0, maxRecord + 1} {
			expect(t, j.append(make([]byte, n)) != nil, "append accepted a record of %d", n)
		}
		must(t, j.close())
		late, again := j.append([]byte("late")), j.close()
		expect(t, late == errClosed && again == errClosed, "%v, %v", late, again)
	})
}
