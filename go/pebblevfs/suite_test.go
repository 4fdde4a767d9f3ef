//go:build linux

package pebblevfs_test

// Pebble's own tests on this file system. They are those of the Pebble that this module asks for, copied to a temporary folder.
// There vfs.Default is ours, and what vfs.NewMem makes is a directory on ours, since most of Pebble's tests are on that.
// What is skipped fails in the same way on a directory of Pebble's own vfs.Default: RINGWAY_LONG=1 asks it whether that is
// still so, and runs everything on every backend, in some fifteen minutes.

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ringway "github.com/ringway-io/ringway/go"
)

// own is a package of Pebble with tests that read or write files.
type own struct {
	path string
	// skip are tests that are not for a directory on a disk, each with the reason.
	skip map[string]string
	// slow are tests that run with RINGWAY_LONG alone; all, if there is just an asterisk.
	slow []string
	// brief are arguments that it has without RINGWAY_LONG, long those with it.
	brief, long []string
	// one: without RINGWAY_LONG on io_uring alone.
	one bool
}

const dumps = "compares a dump of MemFS"

var owns = []own{
	{path: "./vfs"},
	{path: "./objstorage/objstorageprovider", skip: map[string]string{
		"TestProvider/local_readahead": "expects a file without sync_file_range",
	}},
	{path: "./tool", skip: map[string]string{"TestDB/db_properties": "expects a slash that MemFS leaves in a name"}},
	{path: "./replay", slow: []string{"*"}, skip: map[string]string{"TestReplay": dumps, "TestReplayPaced": dumps}},
	{path: "./metamorphic", slow: []string{"*"}, skip: map[string]string{"TestOptionsRoundtrip": "compares two of what NewMem makes"}},
	// Random operations on databases with all kinds of options, whose histories have to be equal.
	{path: "./internal/metamorphic", one: true, brief: []string{"-seed=1", "-fs=disk", "-ops=uniform:500-1000"}, long: []string{"-seed=2", "-fs=disk"}},
	{path: "./sstable", one: true, slow: []string{
		"TestBytesIterated", "TestReader", "TestCompactionIteratorSetupForCompaction", "TestWriterRoundTrip",
	}},
	{path: ".", one: true, slow: []string{
		"TestSnapshotRangeDeletionStress", "TestCorruptReadError", "TestSharedTableConcurrent", "TestFlushDelayStress",
		"TestPebblev1MigrationRace", "TestCheckpointCompaction",
	}, skip: map[string]string{
		"TestIngestCleanup":    "has MemFS refuse to remove an open file",
		"TestCheckConsistency": "has MemFS not know that ./test is test",
	}},
}

// pebbleCopy is Pebble with its tests on the file system that the environment names.
func pebbleCopy(t *testing.T) string {
	t.Helper()
	self, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	from := strings.TrimSpace(run(t, self, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cockroachdb/pebble"))
	dir := filepath.Join(t.TempDir(), "pebble")
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	// The module cache is read-only, and so is what was copied from it.
	run(t, dir, "chmod", "-R", "u+w", ".")
	memIsDisk(t, filepath.Join(dir, "vfs", "mem_fs.go"))
	rooted, err := os.ReadFile("testdata/suite/rooted.go")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "internal", "rooted", "rooted.go"), rooted)
	run(t, dir, "go", "mod", "edit", "-go=1.26", "-require=github.com/ringway-io/ringway/go/pebblevfs@v0.0.0",
		"-replace=github.com/ringway-io/ringway/go/pebblevfs="+self, "-replace=github.com/ringway-io/ringway/go="+filepath.Dir(self))
	return dir
}

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, errs.Bytes())
	}
	return string(out)
}

// memIsDisk has NewMem make a MemFS that hands everything on to what vfs.Disk makes.
func memIsDisk(t *testing.T, name string) {
	t.Helper()
	source, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	handed := []string{"Create", "Link", "Open", "OpenReadWrite", "OpenDir", "Remove", "RemoveAll", "Rename", "ReuseForWrite", "MkdirAll",
		"Lock", "List", "Stat", "GetDiskUsage"}
	type insertion struct {
		at   int
		text string
	}
	insertions := []insertion{{len(source), "\n// Disk makes what NewMem is.\nvar Disk func() FS\n"}}
	done := 0
	for _, declaration := range parsed.Decls {
		switch d := declaration.(type) {
		case *ast.GenDecl:
			if s, ok := d.Specs[0].(*ast.TypeSpec); ok && s.Name.Name == "MemFS" {
				fields := s.Type.(*ast.StructType).Fields
				insertions = append(insertions, insertion{files.Position(fields.Opening).Offset + 1, " disk FS;"})
			}
		case *ast.FuncDecl:
			begin := files.Position(d.Body.Lbrace).Offset + 1
			if d.Recv == nil {
				if d.Name.Name == "NewMem" {
					insertions = append(insertions, insertion{begin, " if Disk != nil { return &MemFS{root: newRootMemNode(), disk: Disk()} };"})
				}
				continue
			}
			receiver := d.Recv.List[0]
			if !slices.Contains(handed, d.Name.Name) || string(source[receiver.Type.Pos()-1:receiver.Type.End()-1]) != "*MemFS" {
				continue
			}
			var args []string
			for i, field := range d.Type.Params.List {
				if len(field.Names) == 0 {
					field.Names = []*ast.Ident{ast.NewIdent("unnamed")}
					insertions = append(insertions, insertion{files.Position(field.Type.Pos()).Offset, "unnamed "})
				}
				for _, name := range field.Names {
					args = append(args, name.Name)
				}
				if _, variadic := field.Type.(*ast.Ellipsis); variadic {
					args[i] += "..."
				}
			}
			if len(receiver.Names) == 0 {
				receiver.Names = []*ast.Ident{ast.NewIdent("y")}
				insertions = append(insertions, insertion{files.Position(receiver.Type.Pos()).Offset, "y "})
			}
			y := receiver.Names[0].Name
			insertions = append(insertions, insertion{begin, fmt.Sprintf(" if %s.disk != nil { return %[1]s.disk.%s(%s) };", y,
				d.Name.Name, strings.Join(args, ", "))})
			done++
		}
	}
	if done != len(handed) {
		t.Fatalf("%d of %d methods of MemFS were found", done, len(handed))
	}
	slices.SortFunc(insertions, func(a, b insertion) int { return b.at - a.at })
	for _, i := range insertions {
		source = slices.Insert(source, i.at, []byte(i.text)...)
	}
	write(t, name, source)
}

// result of some tests, which are named "Test/subtest"; "" is the package as a whole.
type result struct {
	passed, failed []string
	output         map[string]string
	// What went through the file system, and how many operations the engine has carried.
	files, reads, writes, syncs, operations uint64
}

// runOwn runs tests of a package in a copy of Pebble on a file system.
func runOwn(t *testing.T, dir, fs, path string, args ...string) result {
	t.Helper()
	info := strings.Fields(run(t, dir, "go", "list", "-mod=mod", "-f", "{{.Dir}} {{.Name}}", path))
	write(t, filepath.Join(info[0], "rooted_test.go"),
		[]byte("package "+info[1]+"_test\n\nimport _ \"github.com/cockroachdb/pebble/internal/rooted\"\n"))
	counted, scratch := filepath.Join(t.TempDir(), "counts"), t.TempDir()
	write(t, counted, make([]byte, 4096))
	// -trimpath: so that what was built in another temporary folder is used again.
	all := append([]string{"test", "-json", "-count=1", "-vet=off", "-mod=mod", "-trimpath", path}, args...)
	cmd := exec.Command("go", all...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "RINGWAY_SUITE_FS="+fs, "RINGWAY_SUITE_COUNTS="+counted)
	if path != "./vfs" { // Whose tests of MemFS are about that.
		cmd.Env = append(cmd.Env, "RINGWAY_SUITE_DIR="+scratch)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := result{output: map[string]string{}}
	lines := bufio.NewReader(out)
	for {
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
			r.output[event.Test] += event.Output
		case "pass":
			r.passed = append(r.passed, event.Test)
		case "fail":
			r.failed = append(r.failed, event.Test)
		}
	}
	if err := cmd.Wait(); err != nil && len(r.failed) == 0 {
		t.Fatalf("go %v: %v\n%s%s", all, err, errs.Bytes(), r.output[""])
	}
	memory, err := os.ReadFile(counted)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []*uint64{&r.files, &r.reads, &r.writes, &r.syncs, &r.operations} {
		*n = binary.NativeEndian.Uint64(memory[i*8:])
	}
	return r
}

func TestPebblesOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	long := os.Getenv("RINGWAY_LONG") != ""
	dir := pebbleCopy(t)
	for _, o := range owns {
		if long && len(o.skip) > 0 {
			t.Run("os/"+o.path, func(t *testing.T) { o.control(t, dir) })
		}
		for _, backend := range backends {
			if !long && (slices.Contains(o.slow, "*") || o.one && backend != ringway.Uring) {
				continue
			}
			t.Run(string(backend)+"/"+o.path, func(t *testing.T) { o.test(t, dir, backend, long) })
		}
	}
}

// control tells whether what is skipped still fails on Pebble's vfs.Default, and nothing else does.
func (o *own) control(t *testing.T, dir string) {
	r := runOwn(t, dir, "os", o.path, o.long...)
	for _, name := range r.failed {
		if !o.excused(name) {
			t.Errorf("%s fails on vfs.Default too, and is not told of:\n%s", name, r.output[name])
		}
	}
	for name, why := range o.skip {
		if !slices.Contains(r.failed, name) {
			t.Errorf("%s passes; it is skipped since it %s", name, why)
		}
	}
}

func (o *own) test(t *testing.T, dir string, backend ringway.Backend, long bool) {
	granted(t, backend)
	args, left := o.brief, slices.Clone(o.slow)
	if long {
		args, left = o.long, nil
	}
	for name := range o.skip {
		left = append(left, name)
	}
	for i, name := range left { // As -skip wants it: a pattern for each level.
		left[i] = "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
	}
	if len(left) > 0 {
		args = append([]string{"-skip=" + strings.Join(left, "|")}, args...)
	}
	begin := time.Now()
	r := runOwn(t, dir, string(backend), o.path, args...)
	t.Logf("%d passed in %v; %d files, %d reads, %d writes, %d syncs; %d operations of the engine's", len(r.passed),
		time.Since(begin).Round(time.Second), r.files, r.reads, r.writes, r.syncs, r.operations)
	for _, name := range r.failed {
		t.Errorf("%s:\n%s", name, r.output[name])
	}
	if r.files == 0 || r.reads == 0 || r.writes == 0 || r.syncs == 0 {
		t.Error("these tests do not go through the file system")
	}
	if (r.operations == 0) != (backend == ringway.Threads) {
		t.Error(r.operations, "operations went through the engine's queues")
	}
}

// excused tells whether a failure is that of a test that is skipped, or of what it belongs to.
func (o *own) excused(name string) bool {
	for skipped := range o.skip {
		if name == "" || name == skipped || strings.HasPrefix(name, skipped+"/") || strings.HasPrefix(skipped, name+"/") {
			return true
		}
	}
	return false
}

// granted skips a test of a backend that this machine refuses.
func granted(t *testing.T, backend ringway.Backend) {
	t.Helper()
	engine, err := ringway.New(ringway.Options{Backend: backend})
	if err != nil {
		skip(t, err)
	}
	engine.Close()
}
