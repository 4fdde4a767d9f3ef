//go:build linux

// Compares the sums with those of a plain loop, and tests the command line.

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/internal/tests"
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

// The sum does not depend on the backend, the number of readers or the size of the reads.
func TestSumsAreThoseOfAPlainLoop(t *testing.T) {
	dir := t.TempDir()
	var names []string
	want := ""
	for _, size := range []int{0, 1, 4095, 4096, 4097, 1_000_001} {
		content := make([]byte, size)
		sum := uint64(0)
		for i := range content {
			content[i] = byte(rand.Uint32())
			sum += uint64(content[i])
		}
		name := filepath.Join(dir, fmt.Sprint(size))
		tests.Must(t, os.WriteFile(name, content, 0o600))
		names = append(names, name)
		want += fmt.Sprintf("%d  %s\n", sum, name)
	}
	for _, backend := range []ringway.Backend{ringway.BackendURing, ringway.BackendKAIO,
		ringway.BackendThreads} {
		t.Run(string(backend), func(t *testing.T) {
			engine, err := ringway.New(ringway.Options{Backend: backend})
			if err != nil {
				skip.Test(t, err)
			}
			engine.Close()
			for _, flags := range [][]string{
				{}, {"-direct"}, {"-readers=1"}, {"-block=100000", "-v"},
				{"-block=1000", "-direct"}, {"-readers=7", "-block=333"},
			} {
				var out, messages bytes.Buffer
				args := append(append([]string{"-backend", string(backend)}, flags...), names...)
				err := run(args, &out, &messages)
				tests.Expect(t, err == nil && out.String() == want, "%v: %s %v; want:\n%s", args,
					&out, err, want)
				explained := strings.Contains(messages.String(), "backend "+string(backend))
				tests.Expect(t, explained == slices.Contains(flags, "-v"), "%v: %s", args,
					&messages)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	for _, args := range [][]string{{}, {"/none"}, {t.TempDir()}, {"-readers=0", "x"},
		{"-block=0", "x"}, {"-backend=smoke", "x"}, {"-what"}} {
		tests.Expect(t, run(args, io.Discard, io.Discard) != nil, "no error for %v", args)
	}
	cmd := exec.Command(tests.Get(os.Executable())(t), "/none")
	cmd.Env = append(os.Environ(), "RINGWAY_TEST_COMMAND=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	tests.Expect(t, errors.As(err, &exit) && exit.ExitCode() == 1 &&
		strings.Contains(string(out), "scan: open /none: no such file"), "%s %v", out, err)
}
