//go:build linux

package pebblevfs_test

// Pebble's own tests on this file system. They are those of the Pebble that this module asks for, copied to a temporary folder.
// There vfs.Default is ours, and what vfs.NewMem makes is a directory on ours, since most of Pebble's tests are on that.
// What is skipped fails in the same way on a directory of Pebble's own vfs.Default: RINGWAY_LONG=1 asks it whether that is
// still so, and runs everything on every backend, in ten to thirty minutes, by the disk.

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/internal/suite"
	"github.com/ringway-io/ringway/go/ringway"
)

// own is a package of Pebble with tests that read or write files.
type own struct {
	path string
	// skip are tests that are not for a directory on a disk, each with the reason.
	skip suite.Skips
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
	{path: "./objstorage/objstorageprovider", skip: suite.Skips{
		"TestProvider/local_readahead": "expects a file without sync_file_range",
	}},
	{path: "./tool", skip: suite.Skips{"TestDB/db_properties": "expects a slash that MemFS leaves in a name"}},
	{path: "./replay", slow: []string{"*"}, skip: suite.Skips{"TestReplay": dumps, "TestReplayPaced": dumps}},
	{path: "./metamorphic", slow: []string{"*"}, skip: suite.Skips{"TestOptionsRoundtrip": "compares two of what NewMem makes"}},
	// Random operations on databases with all kinds of options, whose histories have to be equal.
	{path: "./internal/metamorphic", one: true, brief: []string{"-seed=1", "-fs=disk", "-ops=uniform:500-1000"}, long: []string{"-seed=2", "-fs=disk"}},
	{path: "./sstable", one: true, slow: []string{
		"TestBytesIterated", "TestReader", "TestCompactionIteratorSetupForCompaction", "TestWriterRoundTrip",
	}},
	{path: ".", one: true, slow: []string{
		"TestSnapshotRangeDeletionStress", "TestCorruptReadError", "TestSharedTableConcurrent", "TestFlushDelayStress",
		"TestPebblev1MigrationRace", "TestCheckpointCompaction", "TestCheckpointManyFiles", "TestIngestFlushQueuedMemTable",
		"TestDBConcurrentCompactClose", "TestIteratorRandomizedBlockIntervalFilter", "TestMetricsWALBytesWrittenMonotonicity",
	}, skip: suite.Skips{
		"TestIngestCleanup":    "has MemFS refuse to remove an open file",
		"TestCheckConsistency": "has MemFS not know that ./test is test",
	}},
}

func TestPebblesOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	m := suite.Copy(t, "github.com/cockroachdb/pebble",
		map[string]string{"github.com/ringway-io/ringway/go": "..", "github.com/ringway-io/ringway/go/pebblevfs": "."})
	m.Hook("testdata/suite/hook.go")
	// A MemFS that NewMem makes hands everything on.
	m.Add("vfs/disk.go", []byte("package vfs\n\nvar Disk func() FS\n"))
	m.Insert("vfs/mem_fs.go", "type MemFS struct {", "disk FS")
	m.Insert("vfs/mem_fs.go", "func NewMem() ", "if Disk != nil { return &MemFS{root: newRootMemNode(), disk: Disk()} }")
	for method, call := range map[string]string{
		"Create": "fullname", "Link": "oldname, newname", "Open": "fullname, opts...", "OpenReadWrite": "fullname, opts...",
		"OpenDir": "fullname", "Remove": "fullname", "RemoveAll": "fullname", "Rename": "oldname, newname",
		"ReuseForWrite": "oldname, newname", "MkdirAll": "dirname, perm", "Lock": "fullname", "List": "dirname", "Stat": "name",
	} {
		m.Insert("vfs/mem_fs.go", "func (y *MemFS) "+method+"(", fmt.Sprintf("if y.disk != nil { return y.disk.%s(%s) }", method, call))
	}
	for _, o := range owns {
		if suite.Long() && len(o.skip) > 0 {
			t.Run("os/"+o.path, func(t *testing.T) { o.skip.Control(t, o.run(t, m, "os", o.long...)) })
		}
		for _, backend := range backends {
			if !suite.Long() && (slices.Contains(o.slow, "*") || o.one && backend != ringway.Uring) {
				continue
			}
			t.Run(string(backend)+"/"+o.path, func(t *testing.T) { o.test(t, m, backend) })
		}
	}
}

func (o *own) run(t *testing.T, m *suite.Module, fs string, args ...string) suite.Result {
	t.Helper()
	env := []string{"RINGWAY_SUITE_FS=" + fs}
	if o.path != "./vfs" { // Whose tests of MemFS are about that.
		env = append(env, "RINGWAY_SUITE_DIR="+t.TempDir())
	}
	return m.Test(t, o.path, env, args...)
}

func (o *own) test(t *testing.T, m *suite.Module, backend ringway.Backend) {
	engine, err := ringway.New(ringway.Options{Backend: backend})
	if err != nil {
		skip.Test(t, err)
	}
	engine.Close()
	args := append(o.skip.Flag(o.slow...), o.brief...)
	if suite.Long() {
		args = append(o.skip.Flag(), o.long...)
	}
	begin := time.Now()
	r := o.run(t, m, string(backend), args...)
	files, reads, writes, syncs, operations := r.Counts[0], r.Counts[1], r.Counts[2], r.Counts[3], r.Counts[4]
	t.Logf("%d passed in %v; %d files, %d reads, %d writes, %d syncs; %d operations of the engine's", len(r.Passed),
		time.Since(begin).Round(time.Second), files, reads, writes, syncs, operations)
	for _, name := range r.Failed {
		t.Errorf("%s:\n%s", name, r.Output[name])
	}
	if files == 0 || reads == 0 || writes == 0 || syncs == 0 {
		t.Error("these tests do not go through the file system")
	}
	if (operations == 0) != (backend == ringway.Threads) {
		t.Error(operations, "operations went through the engine's queues")
	}
}
