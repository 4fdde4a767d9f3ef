//go:build linux

// Runs the tests of the Pebble version that this module requires, in a copy of it whose vfs.Default
// is pebblevfs. Most of them use vfs.NewMem, which returns a directory on pebblevfs there. A
// skipped test fails also on a directory of Pebble's own vfs.Default. RINGWAY_LONG=1 checks that,
// and runs everything on every backend in 10 to 30 minutes.

package pebblevfs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/internal/suite"
	"github.com/ringway-io/ringway/go/ringway"
)

// suitePackage is a package of Pebble whose tests use files.
type suitePackage struct {
	path string
	// skip are tests that do not work on a directory, each with the reason.
	skip suite.Skips
	// slow means with RINGWAY_LONG only.
	slow bool
	// brief and long are arguments without and with RINGWAY_LONG.
	brief, long []string
	// one means on io_uring only, without RINGWAY_LONG.
	one bool
}

const dumps = "compares a dump of MemFS"

var suitePackages = []suitePackage{
	{path: "./vfs"},
	{path: "./objstorage/objstorageprovider", skip: suite.Skips{
		"TestProvider/local_readahead": "expects a file without sync_file_range",
	}},
	{path: "./tool", slow: true,
		skip: suite.Skips{"TestDB/db_properties": "expects a slash in a name, as of MemFS"}},
	{path: "./replay", slow: true, skip: suite.Skips{"TestReplay": dumps,
		"TestReplayPaced": dumps}},
	{path: "./metamorphic", slow: true,
		skip: suite.Skips{"TestOptionsRoundtrip": "compares two file systems of NewMem"}},
	// Random operations on databases with various options, whose histories must be equal.
	{path: "./internal/metamorphic", one: true, brief: []string{"-seed=1", "-fs=disk",
		"-ops=uniform:500-1000"}, long: []string{"-seed=2", "-fs=disk"}},
	{path: "./sstable", slow: true},
	{path: ".", slow: true, skip: suite.Skips{
		"TestIngestCleanup":    "expects that an open file cannot be removed",
		"TestCheckConsistency": "expects that ./test is not test",
	}},
}

func TestPebbleSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	m := suite.Copy(t, "github.com/cockroachdb/pebble",
		map[string]string{"github.com/ringway-io/ringway/go": "..",
			"github.com/ringway-io/ringway/go/pebblevfs": "."})
	m.Hook("testdata/suite/hook.go")
	// A MemFS of NewMem forwards all calls.
	m.Add("vfs/disk.go", []byte("package vfs\n\nvar Disk func() FS\n"))
	m.Insert("vfs/mem_fs.go", "type MemFS struct {", "disk FS")
	m.Insert("vfs/mem_fs.go", "func NewMem() ",
		"if Disk != nil { return &MemFS{root: newRootMemNode(), disk: Disk()} }")
	for method, call := range map[string]string{
		"Create":        "fullname",
		"Link":          "oldname, newname",
		"Open":          "fullname, opts...",
		"OpenReadWrite": "fullname, opts...",
		"OpenDir":       "fullname",
		"Remove":        "fullname",
		"RemoveAll":     "fullname",
		"Rename":        "oldname, newname",
		"ReuseForWrite": "oldname, newname",
		"MkdirAll":      "dirname, perm",
		"Lock":          "fullname",
		"List":          "dirname",
		"Stat":          "name",
	} {
		m.Insert("vfs/mem_fs.go", "func (y *MemFS) "+method+"(",
			fmt.Sprintf("if y.disk != nil { return y.disk.%s(%s) }", method, call))
	}
	for _, p := range suitePackages {
		if suite.Long() && len(p.skip) > 0 {
			t.Run("os/"+p.path,
				func(t *testing.T) { p.skip.Control(t, p.run(t, m, "os", p.long...)) })
		}
		for _, backend := range backends {
			if !suite.Long() &&
				(p.slow || p.one && backend != ringway.BackendURing) {
				continue
			}
			t.Run(string(backend)+"/"+p.path, func(t *testing.T) { p.test(t, m, backend) })
		}
	}
}

func (p *suitePackage) run(t *testing.T, m *suite.Module, fs string, args ...string) suite.Result {
	t.Helper()
	env := []string{"RINGWAY_SUITE_FS=" + fs}
	if p.path != "./vfs" { // It tests MemFS itself.
		env = append(env, "RINGWAY_SUITE_DIR="+t.TempDir())
	}
	return m.Test(t, p.path, env, args...)
}

func (p *suitePackage) test(t *testing.T, m *suite.Module, backend ringway.Backend) {
	engine, err := ringway.New(ringway.Options{Backend: backend})
	if err != nil {
		skip.Test(t, err)
	}
	engine.Close()
	args := append(p.skip.Flag(), p.brief...)
	if suite.Long() {
		args = append(p.skip.Flag(), p.long...)
	}
	begin := time.Now()
	r := p.run(t, m, string(backend), args...)
	files, reads, writes, syncs := r.Counts[0], r.Counts[1], r.Counts[2], r.Counts[3]
	operations := r.Counts[4]
	t.Logf("%d passed in %v; %d files, %d reads, %d writes, %d syncs; %d operations of the engine",
		len(r.Passed), time.Since(begin).Round(time.Second), files, reads, writes, syncs,
		operations)
	for _, name := range r.Failed {
		t.Errorf("%s:\n%s", name, r.Output[name])
	}
	expect(t, files != 0 && reads != 0 && writes != 0 && syncs != 0,
		"the tests did not use the file system")
	// Linux AIO gets direct transfers only, and the syncs of direct files. Those of ./vfs are
	// buffered.
	none := backend == ringway.BackendThreads ||
		backend == ringway.BackendKAIO && p.path == "./vfs"
	expect(t, (operations == 0) == none, "%d operations in the queues of the engine", operations)
}
