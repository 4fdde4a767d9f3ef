//go:build linux

// Compares databases on this file system with databases on vfs.Default: they return the same data,
// and each opens what the other wrote. And processes that are killed while they write, and a disk
// that stalls.

package pebblevfs_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble"
	"github.com/cockroachdb/pebble/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/sstable"
	"github.com/cockroachdb/pebble/vfs"

	"github.com/ringway-io/ringway/go/internal/pebblefs/stall"
	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/internal/suite"
	"github.com/ringway-io/ringway/go/internal/tests"
	"github.com/ringway-io/ringway/go/pebblevfs"
	"github.com/ringway-io/ringway/go/ringway"
)

var must, require, expect = tests.Must, tests.Require, tests.Expect

// get returns the value of a call, and fails the test on an error.
func get[T any](value T, err error) func(testing.TB) T { return tests.Get(value, err) }

func TestMain(m *testing.M) {
	if dir := os.Getenv("RINGWAY_TEST_FILL"); dir != "" {
		fmt.Fprintln(os.Stderr, fill(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

var backends = []ringway.Backend{ringway.BackendURing, ringway.BackendKAIO, ringway.BackendThreads}

// each runs a test on every backend, with buffered and direct table reads. It omits buffered reads
// on Linux AIO and direct reads on threads, which are plain system calls.
func each(t *testing.T, test func(t *testing.T, fs vfs.FS)) {
	for _, c := range []struct {
		backend ringway.Backend
		name    string
		options []pebblevfs.Option
	}{
		{ringway.BackendURing, "buffered", nil},
		{ringway.BackendURing, "direct", []pebblevfs.Option{pebblevfs.DirectTables()}},
		{ringway.BackendKAIO, "direct", []pebblevfs.Option{pebblevfs.DirectTables()}},
		{ringway.BackendThreads, "buffered", nil},
	} {
		t.Run(string(c.backend)+"/"+c.name, func(t *testing.T) {
			engine, err := ringway.New(ringway.Options{Backend: c.backend})
			if err != nil {
				skip.Test(t, err)
			}
			before := descriptors(t)
			test(t, pebblevfs.New(engine, c.options...))
			left := descriptors(t)
			expect(t, left == before, "%d descriptors before, %d after", before, left)
			must(t, engine.Close())
		})
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	return len(get(os.ReadDir("/proc/self/fd"))(t))
}

// open opens a database with small buffers and tables, so that it flushes, compacts and reads
// often; or without compactions, for CheckLevels, which must not run during one.
func open(dir string, fs vfs.FS, compacts bool) (*pebble.DB, error) {
	cache := pebble.NewCache(64 << 10)
	defer cache.Unref()
	return pebble.Open(dir, &pebble.Options{
		FS: fs, Cache: cache, MemTableSize: 64 << 10, L0CompactionThreshold: 2,
		LBaseMaxBytes: 256 << 10, BytesPerSync: 16 << 10, WALBytesPerSync: 16 << 10,
		Levels:             []pebble.LevelOptions{{TargetFileSize: 32 << 10}},
		FormatMajorVersion: pebble.FormatNewest, Logger: silent{},
		DisableAutomaticCompactions: !compacts,
	})
}

type silent struct{}

func (silent) Infof(string, ...any)           {}
func (silent) Errorf(string, ...any)          {}
func (silent) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

func key(i uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte("key"), i*0x9e3779b97f4a7c15)
}

func value(i uint64) []byte {
	b := make([]byte, 200)
	r := rand.New(rand.NewPCG(i, 9))
	for j := range b {
		b[j] = byte(r.Uint32())
	}
	return b
}

// change applies random operations, the same for each seed, to a database and to a map.
func change(t *testing.T, db *pebble.DB, want map[string]string, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	for range 100 {
		batch := db.NewBatch()
		for range r.IntN(100) {
			k, v := key(r.Uint64N(5000)), value(r.Uint64())
			if r.IntN(5) == 0 {
				must(t, batch.Delete(k, nil))
				delete(want, string(k))
			} else {
				must(t, batch.Set(k, v, nil))
				want[string(k)] = string(v)
			}
		}
		must(t, batch.Commit(&pebble.WriteOptions{Sync: r.IntN(8) == 0}))
	}
}

// ingest writes a table outside of a database, on the same file system, and takes it in.
func ingest(t *testing.T, db *pebble.DB, under vfs.FS, want map[string]string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "outside.sst")
	f, err := under.Create(name)
	must(t, err)
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f),
		sstable.WriterOptions{TableFormat: db.FormatMajorVersion().MaxTableFormat()})
	for i := range uint64(3000) {
		k, v := fmt.Appendf(nil, "ingested %05d", i), value(i)
		must(t, w.Set(k, v))
		want[string(k)] = string(v)
	}
	must(t, errors.Join(w.Close(), db.Ingest([]string{name})))
}

// content returns what a database has.
func content(t *testing.T, r pebble.Reader) map[string]string {
	t.Helper()
	iterator, err := r.NewIter(nil)
	must(t, err)
	all := map[string]string{}
	for iterator.First(); iterator.Valid(); iterator.Next() {
		all[string(iterator.Key())] = string(iterator.Value())
	}
	must(t, errors.Join(iterator.Error(), iterator.Close()))
	return all
}

// A database has what a map has after the same operations. This file system and vfs.Default open it
// in turn, with its log. (Pebble's metamorphic tests, in suite_test.go, make all kinds of
// operations.)
func TestSameDataAsDefault(t *testing.T) {
	each(t, func(t *testing.T, fs vfs.FS) {
		dir := filepath.Join(t.TempDir(), "data")
		want := map[string]string{}
		same := func(what string, r pebble.Reader) {
			t.Helper()
			if got := content(t, r); !maps.Equal(got, want) {
				t.Fatalf("%s: %d keys, or other values; not %d", what, len(got), len(want))
			}
		}
		others := []vfs.FS{vfs.Default, fs, vfs.Default}
		for round, under := range []vfs.FS{fs, vfs.Default, fs} {
			db, err := open(dir, under, true)
			must(t, err)
			same("opened", db)
			change(t, db, want, uint64(round))
			same("from the memtable and tables", db)
			must(t, errors.Join(db.Flush(), db.Compact([]byte("a"), []byte("z"), true)))
			ingest(t, db, under, want)
			same("compacted and ingested", db)

			// A checkpoint, opened on the other file system.
			point := filepath.Join(t.TempDir(), "point")
			must(t, db.Checkpoint(point, pebble.WithFlushedWAL()))
			copied, err := open(point, others[round], false)
			must(t, err)
			same("checkpoint", copied)
			must(t, errors.Join(copied.CheckLevels(nil), copied.Close()))

			// A hundred readers while tables are created and removed.
			compacted := make(chan error, 1)
			go func() { compacted <- db.Compact([]byte("a"), []byte("z"), true) }()
			tests.Together(100, func(int) {
				for k, v := range want {
					got, closer, err := db.Get([]byte(k))
					if err != nil || string(got) != v {
						t.Errorf("key %q: %v", k, err)
						return
					}
					closer.Close()
					if rand.IntN(50) == 0 { // Each reader has other keys.
						return
					}
				}
			})
			must(t, <-compacted)
			change(t, db, want, uint64(round)+10)
			must(t, db.Close())
			db, err = open(dir, under, false)
			must(t, err)
			must(t, errors.Join(db.CheckLevels(nil), db.Close()))
		}
	})
}

// Every method has the effects and errors of vfs.Default. Pebble's checks for stalled disks are
// left out: with them, a second close of a file panics, also on vfs.Default.
func TestMethodsMatchDefault(t *testing.T) {
	each(t, func(t *testing.T, checked vfs.FS) {
		under := checked.(interface{ Unwrap() vfs.FS }).Unwrap()
		got, want := methods(t, under), methods(t, vfs.Default)
		for i := range want {
			expect(t, got[i] == want[i], "%s\nvfs.Default: %s", got[i], want[i])
		}
		expect(t, vfs.Root(checked) == vfs.Default, "vfs.Root does not return vfs.Default")
	})
}

// methods calls every method, and returns what each call returned.
func methods(t *testing.T, under vfs.FS) (all []string) {
	dir := t.TempDir()
	at := func(name string) string { return under.PathJoin(dir, name) }
	note := func(what string) func(results ...any) {
		return func(results ...any) {
			for i, a := range results {
				switch a := a.(type) {
				case error:
					text := a.Error()
					results[i] = fmt.Sprint(errors.Is(a, fs.ErrNotExist), errors.Is(a, fs.ErrExist),
						errors.Is(a, fs.ErrClosed),
						"", strings.TrimSpace(text[strings.LastIndex(text, ":")+1:]))
				case fs.FileInfo:
					results[i] = fmt.Sprint(a.Name(), a.Size(), a.Mode(), a.IsDir())
				case vfs.File, io.Closer:
					results[i] = "a file"
				}
			}
			all = append(all, what+": "+fmt.Sprintln(results...))
		}
	}
	use := func(what string) func(f vfs.File, err error) {
		return func(f vfs.File, err error) {
			if note(what)(err); err != nil {
				return
			}
			note(what + " write")(f.Write(bytes.Repeat([]byte("x"), 8192)))
			note(what + " write at")(f.WriteAt(bytes.Repeat([]byte("abcd"), 1024), 4096))
			p := make([]byte, 10)
			for _, off := range []int64{1, 8190, -1} {
				n, err := f.ReadAt(p, off)
				note(fmt.Sprint(what, " read at ", off))(n, p[:n], err)
			}
			n, err := f.Read(p)
			note(what+" read")(n, p[:n], err)
			note(what + " preallocate")(f.Preallocate(8192, 1<<20))
			note(what + " stat")(f.Stat())
			note(what + " sync to")(f.SyncTo(4096))
			// (Prefetch of vfs.Default returns errno 0, which is not nil.)
			note(what+" syncs")(f.Sync(), f.SyncData(),
				fmt.Sprint(f.Prefetch(0, 4096)) == fmt.Sprint(nil) || under == vfs.Default)
			stat := get(os.Stat(fmt.Sprintf("/proc/self/fd/%d", f.Fd())))(t)
			note(what + " fd")(os.SameFile(stat, get(f.Stat())(t)))
			note(what+" close")(f.Close(), f.Close() != nil, f.Fd() == vfs.InvalidFd)
		}
	}
	// The results of calls with two.
	second := func(_ any, err error) error { return err }
	note("none")(second(under.Open(at("none"))), second(under.Create(at("none/below"))),
		second(under.OpenReadWrite(at("none/below"))), second(under.OpenDir(at("none"))),
		second(under.ReuseForWrite(at("none"), at("other"))), second(under.Stat(at("none"))),
		second(under.List(at("none"))), second(under.Lock(at("none/lock"))),
		under.Remove(at("none")), under.RemoveAll(at("none")))
	note("names")(under.PathBase("/a/b/"), under.PathDir("/a/b"), under.PathJoin("a", "", "b"))

	use("create")(under.Create(at("a.sst")))
	note("link")(under.Link(at("a.sst"), at("link")), under.Link(at("a.sst"), at("link")))
	use("create again")(under.Create(at("a.sst"))) // The link keeps the old contents.
	use("open")(under.Open(at("link"), vfs.RandomReadsOption, vfs.SequentialReadsOption))
	use("open table")(under.Open(at("a.sst"), vfs.RandomReadsOption))
	use("open table in sequence")(under.Open(at("a.sst"), vfs.SequentialReadsOption))
	use("open for both")(under.OpenReadWrite(at("a.sst")))
	use("open for both, new")(under.OpenReadWrite(at("new")))
	use("reuse")(under.ReuseForWrite(at("a.sst"), at("reused")))
	note("mkdir")(under.MkdirAll(at("x/y/z"), 0o700), under.MkdirAll(at("x/y/z"), 0o700),
		under.MkdirAll(at("new/x"), 0o700))
	note("create in the place of a directory")(second(under.Create(at("x"))))
	d := get(under.OpenDir(dir))(t)
	note("dir sync to")(d.SyncTo(10))
	note("dir")(d.Sync(), d.SyncData(), d.Preallocate(0, 100), d.Prefetch(0, 100),
		second(d.Write([]byte("x"))) != nil, get(d.Stat())(t).IsDir(), d.Close(),
		d.Close() != nil, d.Sync() != nil)
	root := get(under.Open("/"))(t)
	note("/")(get(root.Stat())(t).Name(), second(root.ReadAt(make([]byte, 1), 0)), root.Close())
	lock := get(under.Lock(at("lock")))(t)
	note("lock again")(second(under.Lock(at("lock"))), lock.Close())
	note("lock, unlocked")(get(under.Lock(at("lock")))(t).Close())
	note("list")(len(get(under.List(dir))(t)))
	note("copy")(vfs.Copy(under, at("reused"), at("copy")),
		vfs.LinkOrCopy(under, at("reused"), at("linked")))
	for _, name := range []string{"reused", "copy", "linked", "link"} {
		note("content of " + name)(sha256.Sum256(get(os.ReadFile(at(name)))(t)))
	}
	note("usage")(get(under.GetDiskUsage(dir))(t).TotalBytes > 0)
	note("remove")(under.Rename(at("copy"), at("moved")), under.Remove(at("moved")),
		under.Remove(at("x")), under.RemoveAll(at("x")))
	return all
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
		with    []pebblevfs.Option
		options []vfs.OpenOption
		want    bool
	}{
		{"a.sst", []pebblevfs.Option{pebblevfs.DirectTables()}, nil, true},
		{"a.sst", []pebblevfs.Option{pebblevfs.DirectTables()},
			[]vfs.OpenOption{vfs.RandomReadsOption}, true},
		{"a.sst", []pebblevfs.Option{pebblevfs.DirectTables()},
			[]vfs.OpenOption{vfs.RandomReadsOption, vfs.SequentialReadsOption}, false},
		{"a.log", []pebblevfs.Option{pebblevfs.DirectTables()}, nil, false},
		{"a.sst", nil, nil, false},
	} {
		fs := pebblevfs.New(engine, c.with...)
		f := get(fs.Open(filepath.Join(dir, c.name), c.options...))(t)
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_GETFL, 0)
		expect(t, errno == 0 && (flags&syscall.O_DIRECT != 0) == c.want, "%s, %d options: %o, %v",
			c.name, len(c.options), flags, errno)
		must(t, f.Close())
	}
}

// After Close every method says that the file is closed.
func TestClosedFiles(t *testing.T) {
	each(t, func(t *testing.T, under vfs.FS) {
		name := filepath.Join(t.TempDir(), "a.sst")
		created, err := under.Create(name)
		must(t, err)
		opened, err := under.Open(name)
		must(t, err)
		for _, f := range []vfs.File{created, opened} {
			must(t, f.Close())
			_, read := f.ReadAt(make([]byte, 1), 0)
			_, written := f.Write(make([]byte, 1))
			_, stat := f.Stat()
			_, synced := f.SyncTo(1)
			for i, err := range []error{read, written, stat, synced, f.Sync(), f.SyncData(),
				f.Preallocate(0, 1)} {
				var path *fs.PathError
				expect(t, errors.Is(err, fs.ErrClosed) && errors.As(err, &path) &&
					path.Path == name, "%v, %v", i, err)
			}
		}
	})
}

// written creates a file with a MiB in the page cache, or skips the test where its pages cannot be
// seen.
func written(t *testing.T, under vfs.FS) (f vfs.File, name string) {
	dir := t.TempDir()
	suite.SeePages(t, dir)
	name = filepath.Join(dir, "file")
	f, err := under.Create(name)
	must(t, err)
	_, err = f.Write(make([]byte, 1<<20))
	must(t, err)
	return f, name
}

// No bytes are not the rest of the file.
func TestPrefetchOfNothing(t *testing.T) {
	each(t, func(t *testing.T, under vfs.FS) {
		f, name := written(t, under)
		must(t, f.Sync())
		defer f.Close()
		const dontNeed = 4
		_, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0)
		if before := suite.Cached(t, name); errno != 0 || before != 0 {
			skip.Test(t, "the page cache cannot be emptied here: ", before, errno)
		}
		must(t, f.Prefetch(4096, 0))
		after := suite.Cached(t, name)
		expect(t, after == 0, "%d pages were read", after)
		must(t, f.Prefetch(4096, 8192))
		expect(t, suite.Cached(t, name) != 0, "no page was read")
	})
}

// After a sync, the page cache has no dirty pages of the file.
func TestSyncLeavesNoDirtyPages(t *testing.T) {
	each(t, func(t *testing.T, under vfs.FS) {
		for what, sync := range map[string]func(f vfs.File) error{
			"Sync":     vfs.File.Sync,
			"SyncData": vfs.File.SyncData,
			"syncing file": func(f vfs.File) error {
				return vfs.NewSyncingFile(f, vfs.SyncingFileOptions{}).Sync()
			},
		} {
			f, name := written(t, under)
			before := suite.Dirty(t, name)
			expect(t, before != 0, "%s: no page was dirty before it", what)
			err := sync(f)
			require(t, err == nil, "%v, %v", what, err)
			after := suite.Dirty(t, name)
			expect(t, after == 0, "%s: %d pages were dirty, %d are", what, before, after)
			must(t, f.Close())
		}
	})
}

// fill writes until it is killed, and prints each key after its commit.
func fill(dir string) error {
	engine, err := ringway.New(ringway.Options{})
	if err != nil {
		return err
	}
	db, err := open(dir, pebblevfs.New(engine, pebblevfs.DirectTables()), true)
	if err != nil {
		return err
	}
	start, err := strconv.ParseUint(os.Getenv("RINGWAY_TEST_START"), 10, 64)
	if err != nil {
		return err
	}
	var next atomic.Uint64
	errs := make(chan error)
	for range 16 {
		go func() {
			for {
				i := start + next.Add(1)
				err := db.Set(key(i), value(i), pebble.Sync)
				if err == nil {
					// One system call per line: lines are printed whole.
					_, err = os.Stdout.WriteString(strconv.FormatUint(i, 10) + "\n")
				}
				if err != nil {
					errs <- err
				}
			}
		}()
	}
	return <-errs
}

// A process is killed while it writes, flushes and compacts. Opened again, the database has every
// acknowledged key, and none that was never written. The kernel keeps the page cache of a killed
// process, so this tests the order of writes and recovery from torn files. Durability is for
// TestSyncLeavesNoDirtyPages.
func TestKilledWriterLosesNoKey(t *testing.T) {
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			engine, err := ringway.New(ringway.Options{Backend: backend})
			if err != nil {
				skip.Test(t, err)
			}
			defer engine.Close()
			dir := t.TempDir()
			acknowledged := map[uint64]bool{}
			const rounds, each = 4, 1_000_000
			for round := range uint64(rounds) {
				cmd := exec.Command(get(os.Executable())(t))
				cmd.Env = append(os.Environ(), "RINGWAY_TEST_FILL="+dir,
					fmt.Sprint("RINGWAY_TEST_START=", round*each),
					ringway.BackendEnv+"="+string(backend))
				cmd.Stderr = os.Stderr
				out, err := cmd.StdoutPipe()
				must(t, err)
				must(t, cmd.Start())
				lines, limit := bufio.NewScanner(out), 500+rand.IntN(2000)
				for n := 0; lines.Scan(); n++ { // To the end: keys printed before the kill count.
					i, err := strconv.ParseUint(lines.Text(), 10, 64)
					require(t, err == nil, "%v", lines.Text())
					acknowledged[i] = true
					if n == limit {
						must(t, cmd.Process.Kill())
					}
				}
				if err := cmd.Wait(); cmd.ProcessState.ExitCode() != -1 {
					t.Fatal("the process was not killed: ", err)
				}

				// Every other time, vfs.Default recovers the database.
				under := []vfs.FS{pebblevfs.New(engine, pebblevfs.DirectTables()),
					vfs.Default}[round%2]
				db, err := open(dir, under, false)
				must(t, err)
				found, written := content(t, db), map[string]string{}
				must(t, db.CheckLevels(nil))
				for i := range acknowledged {
					require(t, found[string(key(i))] == string(value(i)),
						"round %d: key %d was acknowledged", round, i)
				}
				for r := range round + 1 {
					for i := range uint64(5000) {
						written[string(key(r*each+i))] = string(value(r*each + i))
					}
				}
				for k, v := range found {
					require(t, written[k] == v, "round %d: %x was never written", round, k)
				}
				// Each of the 16 goroutines may have written one key without printing it.
				require(t, len(found) <= len(acknowledged)+16*int(round+1),
					"%d keys found, %d acknowledged", len(found), len(acknowledged))
				if round == rounds-1 {
					tables := db.Metrics().Total().NumFiles
					expect(t, tables >= 3, "too few tables were written: %d", tables)
				}
				must(t, db.Close())
			}
			require(t, len(acknowledged) >= 500*rounds, "too few keys were written: %v",
				len(acknowledged))
			t.Logf("all %d acknowledged keys found", len(acknowledged))
		})
	}
}

// A write that the disk does not take is reported to the listener of the database, as with Pebble's
// default file system.
func TestStalledDiskIsReported(t *testing.T) {
	engine, err := ringway.New(ringway.Options{})
	must(t, err)
	reports := make(chan vfs.DiskSlowInfo, 100)
	listener := pebble.EventListener{DiskSlow: func(info vfs.DiskSlowInfo) { reports <- info }}
	fs := pebblevfs.New(engine, pebblevfs.DiskSlow(100*time.Millisecond, listener.DiskSlow))
	name := filepath.Join(t.TempDir(), "file")
	must(t, syscall.Mkfifo(name+".old", 0o600))
	f, err := fs.ReuseForWrite(name+".old", name)
	must(t, err)
	info := stall.Write(t, name, f, reports)
	expect(t, info.Path == name && info.OpType == vfs.OpTypeWrite &&
		info.Duration >= 100*time.Millisecond, "%v", info)
	must(t, engine.Close())
}
