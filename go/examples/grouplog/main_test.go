//go:build linux

// Tests the log: concurrent appends, killed processes, torn files and failed commits.

package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/ringway"
)

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

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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
			if err := run([]string{"-v", "-backend", string(e.Backend()), "-writers", "20",
				"-records", "10", name}, &out, &messages); err != nil {
				t.Fatal(err)
			}
		}
		printed := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		found := list(t, name)
		slices.Sort(printed)
		slices.Sort(found)
		if len(found) != 400 || !slices.Equal(printed, found) {
			t.Errorf("%d records in the log, %d printed", len(found), len(printed))
		}
		if !strings.Contains(messages.String(), "found 200 records; appended 200 in ") {
			t.Error(messages.String())
		}
	})
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"a", "b"}, {"-writers", "0", "a"}, {"-none"},
		{"-list", "/none/none"}, {"/none/none"}, {"-backend", "smoke", "a"}} {
		if err := run(args, io.Discard, io.Discard); err == nil {
			t.Error("no error for", args)
		}
	}
	var messages bytes.Buffer
	if err := run([]string{"-help"}, io.Discard, &messages); err == nil ||
		!strings.Contains(messages.String(), "usage: grouplog") {
		t.Error(err, messages.String())
	}
	if out, err := command("-none").CombinedOutput(); err == nil ||
		!bytes.Contains(out, []byte("usage: grouplog")) {
		t.Errorf("%s %v", out, err)
	}
}

// The process is killed while it writes, several times. Every printed record is in the log once,
// and the records of each writer are in order.
func TestKilledWriterLosesNoRecord(t *testing.T) {
	each(t, func(t *testing.T, e *ringway.Engine) {
		name := filepath.Join(t.TempDir(), "log")
		var printed []string
		for round := range 5 {
			cmd := command("-v", "-backend", string(e.Backend()), "-writers", "50", "-records",
				"1000000", name)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			lines := bufio.NewScanner(out)
			for n := 0; lines.Scan(); n++ {
				printed = append(printed, lines.Text())
				if n == 100+50*round {
					must(t, cmd.Process.Kill())
				}
			}
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != -1 {
				t.Fatal("the process was not killed: ", err)
			}
			found := map[string]bool{}
			next := map[string]int{}
			for _, record := range list(t, name) {
				var process, writer, i int
				if n, err := fmt.Sscanf(record, "process %d, writer %d, record %d", &process,
					&writer, &i); n != 3 {
					t.Fatal(record, err)
				}
				who := fmt.Sprint(process, " ", writer)
				if found[record] || i != next[who] {
					t.Fatal("duplicate or out of order: ", record)
				}
				found[record] = true
				next[who]++
			}
			for _, record := range printed {
				if !found[record] {
					t.Fatalf("round %d: %s was acknowledged", round, record)
				}
			}
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
				must(t, j.append([]byte("next")))
				must(t, j.close())
				if !slices.Equal(seen, []string{"first", "second"}) ||
					!slices.Equal(list(t, name), []string{"first", "second", "next"}) {
					t.Error(seen, list(t, name))
				}
				if got, err := os.ReadFile(name); err != nil ||
					!bytes.Equal(got, slices.Concat(whole, record("next"))) {
					t.Error("wrong bytes", err)
				}
			})
		})
	}
}

// After a failed commit, all appends fail.
func TestFailedCommitFailsAllAppends(t *testing.T) {
	each(t, func(t *testing.T, e *ringway.Engine) {
		full, err := e.OpenFile("/dev/full", os.O_RDWR, 0)
		must(t, err)
		j := &journal{file: full, entries: make(chan entry), ended: make(chan struct{})}
		go j.run(0)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if err := j.append([]byte("lost")); !errors.Is(err, syscall.ENOSPC) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := j.append(nil); err == nil {
			t.Error("append accepted an empty record")
		}
		if err := j.append(make([]byte, maxRecord+1)); err == nil {
			t.Error("append accepted a record that is too long")
		}
		must(t, j.close())
		if err := j.append([]byte("late")); err != errClosed {
			t.Error(err)
		}
		if err := j.close(); err != errClosed {
			t.Error(err)
		}
	})
}
