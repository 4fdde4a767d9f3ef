//go:build linux

// Databases on this file system and on vfs.Default: they return the same data, and each opens what
// the other wrote. And a disk that stalls.

package pebblevfs2_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringway-io/ringway/go/internal/pebblefs/stall"
	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/internal/tests"
	"github.com/ringway-io/ringway/go/pebblevfs2"
	"github.com/ringway-io/ringway/go/ringway"
)

var must, require, expect = tests.Must, tests.Require, tests.Expect

// get returns the value of a call, and fails the test on an error.
func get[T any](value T, err error) func(testing.TB) T { return tests.Get(value, err) }

// each runs a test on every backend, with buffered and direct table reads.
func each(t *testing.T, test func(t *testing.T, fs vfs.FS)) {
	for _, backend := range []ringway.Backend{ringway.BackendURing, ringway.BackendKAIO,
		ringway.BackendThreads} {
		for _, direct := range []bool{false, true} {
			t.Run(fmt.Sprint(backend, " direct ", direct), func(t *testing.T) {
				engine, err := ringway.New(ringway.Options{Backend: backend})
				if err != nil {
					skip.Test(t, err)
				}
				var options []pebblevfs2.Option
				if direct {
					options = append(options, pebblevfs2.DirectTables())
				}
				test(t, pebblevfs2.New(engine, options...))
				must(t, engine.Close())
			})
		}
	}
}

type silent struct{}

func (silent) Infof(string, ...any)           {}
func (silent) Errorf(string, ...any)          {}
func (silent) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

// open opens a database with small tables, so that it flushes and compacts often.
func open(t *testing.T, dir string, fs vfs.FS) *pebble.DB {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{FS: fs, MemTableSize: 64 << 10,
		L0CompactionThreshold: 2, BytesPerSync: 16 << 10, WALBytesPerSync: 16 << 10,
		FormatMajorVersion: pebble.FormatNewest, Logger: silent{}})
	must(t, err)
	return db
}

func value(i, round int) []byte { return bytes.Repeat([]byte(fmt.Sprint(i, "-", round, " ")), 20) }

const keys = 3000

func write(t *testing.T, db *pebble.DB, round int) {
	t.Helper()
	for i := round; i < keys; i += 3 {
		options := pebble.NoSync
		if i%100 == 0 {
			options = pebble.Sync
		}
		must(t, db.Set(fmt.Appendf(nil, "key%05d", i), value(i, round), options))
	}
}

func check(t *testing.T, db *pebble.DB, rounds int) {
	t.Helper()
	for i := range keys {
		got, closer, err := db.Get(fmt.Appendf(nil, "key%05d", i))
		if i%3 >= rounds {
			require(t, errors.Is(err, pebble.ErrNotFound), "%v, %v", i, err)
			continue
		}
		require(t, err == nil && bytes.Equal(got, value(i, i%3)), "%v, %v", i, err)
		closer.Close()
	}
}

func TestSameDataAsDefault(t *testing.T) {
	each(t, func(t *testing.T, fs vfs.FS) {
		dir := filepath.Join(t.TempDir(), "data")
		for round, under := range []vfs.FS{fs, vfs.Default, fs} {
			db := open(t, dir, under)
			check(t, db, round)
			write(t, db, round)
			must(t, db.Flush())
			check(t, db, round+1)
			must(t, errors.Join(db.CheckLevels(nil), db.Close()))
		}
	})
}

// What only Pebble 2 asks of a file: its device. And what a method of the shared part could lose on
// its way through the adapter.
func TestFilesMatchDefault(t *testing.T) {
	each(t, func(t *testing.T, under vfs.FS) {
		name := filepath.Join(t.TempDir(), "a.sst")
		f, err := under.Create(name, vfs.WriteCategoryUnspecified)
		must(t, err)
		_, err = f.Write(make([]byte, 10_000))
		err = errors.Join(err, f.Preallocate(0, 1<<20), f.SyncData(), f.Sync(), f.Close())
		must(t, err)
		want := get(vfs.Default.Stat(name))(t)
		for what, open := range map[string]func() (vfs.File, error){
			"Open": func() (vfs.File, error) { return under.Open(name, vfs.RandomReadsOption) },
			"OpenReadWrite": func() (vfs.File, error) {
				return under.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
			},
			"ReuseForWrite": func() (vfs.File, error) {
				return under.ReuseForWrite(name, name, vfs.WriteCategoryUnspecified)
			},
		} {
			f, err := open()
			require(t, err == nil, "%v, %v", what, err)
			info, err := f.Stat()
			if err != nil || info.Name() != want.Name() || info.Size() != want.Size() ||
				info.DeviceID() != want.DeviceID() {
				t.Error(what, info, err)
			}
			n, err := f.ReadAt(make([]byte, 100), 9950)
			expect(t, n == 50 && err != nil, "%v, %v, %v", what, n, err)
			if err := f.Close(); err != nil {
				t.Error(what, err)
			}
		}
		d := get(under.OpenDir(filepath.Dir(name)))(t)
		info, err := d.Stat()
		expect(t, err == nil && info.IsDir() && info.DeviceID() == want.DeviceID(), "%v, %v", info,
			err)
		must(t, errors.Join(d.Sync(), d.SyncData(), d.Close()))
		if _, err := under.Open(name + ".none"); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		expect(t, vfs.Root(under) == vfs.Default, "vfs.Root does not return vfs.Default")
	})
}

// Only a table that is not read in sequence is read past the page cache.
func TestDirectTables(t *testing.T) {
	engine := get(ringway.New(ringway.Options{}))(t)
	defer engine.Close()
	dir := t.TempDir()
	for _, name := range []string{"a.sst", "a.log"} {
		must(t, os.WriteFile(filepath.Join(dir, name), make([]byte, 100), 0o600))
	}
	if f, err := os.OpenFile(filepath.Join(dir, "a.sst"), syscall.O_DIRECT, 0); err != nil {
		skip.Test(t, "no direct I/O here: ", err)
	} else {
		must(t, f.Close())
	}
	for _, c := range []struct {
		name    string
		with    []pebblevfs2.Option
		options []vfs.OpenOption
		want    bool
	}{
		{"a.sst", []pebblevfs2.Option{pebblevfs2.DirectTables()}, nil, true},
		{"a.sst", []pebblevfs2.Option{pebblevfs2.DirectTables()},
			[]vfs.OpenOption{vfs.RandomReadsOption}, true},
		{"a.sst", []pebblevfs2.Option{pebblevfs2.DirectTables()},
			[]vfs.OpenOption{vfs.RandomReadsOption, vfs.SequentialReadsOption}, false},
		{"a.log", []pebblevfs2.Option{pebblevfs2.DirectTables()}, nil, false},
		{"a.sst", nil, nil, false},
	} {
		fs := pebblevfs2.New(engine, c.with...)
		f := get(fs.Open(filepath.Join(dir, c.name), c.options...))(t)
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_GETFL, 0)
		expect(t, errno == 0 && (flags&syscall.O_DIRECT != 0) == c.want, "%s, %d options: %o, %v",
			c.name, len(c.options), flags, errno)
		must(t, f.Close())
	}
}

// A write that the disk does not take is reported to the listener of the database, as with Pebble's
// default file system.
func TestStalledDiskIsReported(t *testing.T) {
	engine := get(ringway.New(ringway.Options{}))(t)
	reports := make(chan vfs.DiskSlowInfo, 100)
	listener := pebble.EventListener{DiskSlow: func(info vfs.DiskSlowInfo) { reports <- info }}
	stats := vfs.NewDiskWriteStatsCollector()
	fs := pebblevfs2.New(engine, pebblevfs2.WriteStats(stats),
		pebblevfs2.DiskSlow(100*time.Millisecond, listener.DiskSlow))
	name := filepath.Join(t.TempDir(), "file")
	must(t, syscall.Mkfifo(name+".old", 0o600))
	f := get(fs.ReuseForWrite(name+".old", name, "log"))(t)
	info := stall.Write(t, name, f, reports)
	expect(t, info.Path == name && info.OpType == vfs.OpTypeWrite &&
		info.Duration >= 100*time.Millisecond, "%v", info)
	written := stats.GetStats()
	expect(t, len(written) == 1 && written[0].Category == "log" && written[0].BytesWritten == 1<<20,
		"%v", written)
	must(t, engine.Close())
}
