// Package suite runs the tests of another module on ringway, without a copy of them in this tree.
// It copies the module to a temporary directory, changes it so that its tests use ringway, and runs
// `go test` there.
package suite

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Module is a copy of a module.
type Module struct {
	t    *testing.T
	Dir  string
	path string
	hook string // The package that all tests import.
}

// Copy copies a module in the version that the module of the calling test requires. required are
// modules of this tree that the copy requires, with their directories.
func Copy(t *testing.T, path string, required map[string]string) *Module {
	t.Helper()
	m := &Module{t: t, Dir: filepath.Join(t.TempDir(), "module"), path: path}
	from := strings.TrimSpace(m.run(".", "go", "list", "-m", "-f", "{{.Dir}}", path))
	if err := os.CopyFS(m.Dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	m.run(".", "chmod", "-R", "u+w", m.Dir) // Copies from the module cache are read-only.
	edit := []string{"mod", "edit", "-go=1.26"}
	for name, dir := range required {
		dir, err := filepath.Abs(dir)
		if err != nil {
			t.Fatal(err)
		}
		edit = append(edit, "-require="+name+"@v0.0.0", "-replace="+name+"="+dir)
	}
	m.run(m.Dir, "go", edit...)
	return m
}

// Hook adds a package with one file, which all tests import. Its init function prepares the tests.
func (m *Module) Hook(file string) {
	m.t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		m.t.Fatal(err)
	}
	m.hook = m.path + "/internal/ringwayhook"
	m.Add("internal/ringwayhook/hook.go", source)
}

// Insert adds text after the only line of a file that starts with a prefix.
func (m *Module) Insert(file, prefix, text string) {
	m.t.Helper()
	source, err := os.ReadFile(filepath.Join(m.Dir, file))
	if err != nil {
		m.t.Fatal(err)
	}
	lines, found := strings.SplitAfter(string(source), "\n"), -1
	for i, line := range lines {
		if strings.HasPrefix(line, prefix) {
			if found >= 0 {
				m.t.Fatalf("%s: several lines start with %q", file, prefix)
			}
			found = i
		}
	}
	if found < 0 {
		m.t.Fatalf("%s: no line starts with %q", file, prefix)
	}
	m.Add(file, []byte(strings.Join(slices.Insert(lines, found+1, text+"\n"), "")))
}

// Add adds or replaces a file.
func (m *Module) Add(file string, content []byte) {
	m.t.Helper()
	file = filepath.Join(m.Dir, file)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *Module) run(dir, name string, args ...string) string {
	m.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		m.t.Fatalf("%s %v: %v\n%s", name, args, err, errs.Bytes())
	}
	return string(out)
}

// Counts is the environment variable that names a file for the hook. The hook maps it into memory
// and counts in it, in [Counters] 64-bit numbers.
const Counts = "RINGWAY_SUITE_COUNTS"

// Counters is the number of counters.
const Counters = 8

// Result is the outcome of tests. They are named Test/subtest; "" is the package.
type Result struct {
	Passed, Failed []string
	Output         map[string]string
	Counts         [Counters]uint64
}

// Test runs the tests of a package in the copy, with additional environment variables.
func (m *Module) Test(t *testing.T, path string, env []string, args ...string) Result {
	t.Helper()
	info := strings.Fields(m.run(m.Dir, "go", "list", "-mod=mod", "-f", "{{.Dir}} {{.Name}}", path))
	below, err := filepath.Rel(m.Dir, info[0])
	if err != nil {
		t.Fatal(err)
	}
	m.Add(filepath.Join(below, "ringway_hook_test.go"),
		fmt.Appendf(nil, "package %s_test\n\nimport _ %q\n", info[1], m.hook))
	counted := filepath.Join(t.TempDir(), "counts")
	if err := os.WriteFile(counted, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	// -trimpath makes build results reusable in other temporary directories. -vet=off: not our
	// code.
	all := append([]string{"test", "-json", "-count=1", "-vet=off", "-mod=mod", "-trimpath", path},
		args...)
	cmd := exec.Command("go", all...)
	cmd.Dir = m.Dir
	cmd.Env = append(append(os.Environ(), Counts+"="+counted), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := Result{Output: map[string]string{}}
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			break
		}
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			event.Action, event.Output = "output", string(line)
		}
		switch event.Action {
		case "output", "build-output":
			r.Output[event.Test] += event.Output
		case "pass":
			r.Passed = append(r.Passed, event.Test)
		case "fail":
			r.Failed = append(r.Failed, event.Test)
		}
	}
	if err := cmd.Wait(); err != nil && len(r.Failed) == 0 {
		t.Fatalf("go %v: %v\n%s%s", all, err, errs.Bytes(), r.Output[""])
	}
	memory, err := os.ReadFile(counted)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Counts {
		r.Counts[i] = binary.NativeEndian.Uint64(memory[i*8:])
	}
	return r
}

// Skips are tests to skip, each with the reason.
type Skips map[string]string

// Flag returns the -skip flag of go test for them and for more tests; nil if there are none.
func (s Skips) Flag(more ...string) []string {
	var patterns []string
	for name := range s {
		more = append(more, name)
	}
	for _, name := range more { // A pattern per level.
		patterns = append(patterns, "^"+strings.ReplaceAll(name, "/", "$/^")+"$")
	}
	if patterns == nil {
		return nil
	}
	return []string{"-skip=" + strings.Join(patterns, "|")}
}

// Control checks the result of all tests without ringway: the skipped ones must fail there, too,
// and no others.
func (s Skips) Control(t *testing.T, r Result) {
	t.Helper()
	for _, name := range r.Failed {
		known := false
		for skipped := range s {
			known = known || name == "" || name == skipped ||
				strings.HasPrefix(name, skipped+"/") || strings.HasPrefix(skipped, name+"/")
		}
		if !known {
			t.Errorf("%s fails without ringway, and is not skipped:\n%s", name, r.Output[name])
		}
	}
	for name, why := range s {
		if !slices.Contains(r.Failed, name) {
			t.Errorf("%s passes without ringway, but is skipped because it %s", name, why)
		}
	}
}

// Long reports whether RINGWAY_LONG is set: run everything.
func Long() bool { return os.Getenv("RINGWAY_LONG") != "" }
