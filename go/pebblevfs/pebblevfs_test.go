//go:build linux

// Compares databases on this file system with databases on vfs.Default: they return the same data,
// and each opens what the other wrote. And processes that are killed while they write.

package pebblevfs_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble"
	"github.com/cockroachdb/pebble/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/sstable"
	"github.com/cockroachdb/pebble/vfs"

	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/internal/suite"
	"github.com/ringway-io/ringway/go/pebblevfs"
	"github.com/ringway-io/ringway/go/ringway"
)

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
			if left := descriptors(t); left != before {
				t.Errorf("%d descriptors before, %d after", before, left)
			}
			must(t, engine.Close())
		})
	}
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(open)
}

// open opens a database with small buffers and tables, so that it flushes, compacts and reads
// often.
func open(dir string, fs vfs.FS) (*pebble.DB, error) { return openWith(dir, fs, false) }

// openStill opens a database without compactions, for CheckLevels, which must not run during one.
func openStill(dir string, fs vfs.FS) (*pebble.DB, error) { return openWith(dir, fs, true) }

func openWith(dir string, fs vfs.FS, still bool) (*pebble.DB, error) {
	cache := pebble.NewCache(64 << 10)
	defer cache.Unref()
	return pebble.Open(dir, &pebble.Options{
		FS: fs, Cache: cache, MemTableSize: 64 << 10, L0CompactionThreshold: 2,
		LBaseMaxBytes: 256 << 10,
		Levels:        []pebble.LevelOptions{{TargetFileSize: 32 << 10}}, BytesPerSync: 16 << 10,
		WALBytesPerSync:    16 << 10,
		FormatMajorVersion: pebble.FormatNewest, Logger: silent{},
		DisableAutomaticCompactions: still,
	})
}

type silent struct{}

func (silent) Infof(string, ...any)           {}
func (silent) Errorf(string, ...any)          {}
func (silent) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

func key(i uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte("key"),
		i*0x9e3779b97f4a7c15)
}

func value(i uint64) []byte {
	b := make([]byte, 200)
	r := rand.New(rand.NewPCG(i, 9))
	for j := range b {
		b[j] = byte(r.Uint32())
	}
	return b
}

// change applies random operations, the same for each seed.
func change(db *pebble.DB, seed uint64, count int) error {
	r := rand.New(rand.NewPCG(seed, 7))
	for done := 0; done < count; {
		batch := db.NewBatch()
		for range 1 + r.IntN(200) {
			i := r.Uint64N(20_000)
			var err error
			switch at := r.IntN(100); {
			case at < 80:
				err = batch.Set(key(i), value(i+seed), nil)
			case at < 90:
				err = batch.Delete(key(i), nil)
			case at < 99:
				err = batch.Merge(key(i), []byte("and more"), nil)
			default:
				k := key(i)
				err = batch.DeleteRange(k, append(k[:5:5], k[5]+1), nil)
			}
			if err != nil {
				return err
			}
			done++
		}
		if err := batch.Commit(&pebble.WriteOptions{Sync: r.IntN(8) == 0}); err != nil {
			return err
		}
	}
	return nil
}

const ingested = 3000

func ingestedKey(i int) []byte { return fmt.Appendf(nil, "key%05d", i) }

// ingest writes a table outside of a database, on the same file system, and takes it in. Another
// database gets the same keys.
func ingest(t *testing.T, db *pebble.DB, under vfs.FS, other *pebble.DB) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "outside.sst")
	f, err := under.Create(name)
	must(t, err)
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f),
		sstable.WriterOptions{TableFormat: db.FormatMajorVersion().MaxTableFormat()})
	for i := range ingested {
		must(t, errors.Join(w.Set(ingestedKey(i), value(uint64(i))),
			other.Set(ingestedKey(i), value(uint64(i)), pebble.NoSync)))
	}
	must(t, errors.Join(w.Close(), db.Ingest([]string{name})))
}

// content summarizes a database or snapshot, read forwards, backwards, and at random keys.
func content(r pebble.Reader) (string, error) {
	iterator, err := r.NewIter(nil)
	if err != nil {
		return "", err
	}
	sum := fnv.New64a()
	forwards, backwards := 0, 0
	for iterator.First(); iterator.Valid(); iterator.Next() {
		sum.Write(iterator.Key())
		sum.Write(iterator.Value())
		forwards++
	}
	for iterator.Last(); iterator.Valid(); iterator.Prev() {
		sum.Write(iterator.Key())
		backwards++
	}
	for i := range uint64(100) {
		if iterator.SeekGE(key(i * 77)); iterator.Valid() {
			sum.Write(iterator.Value())
		}
		if iterator.SeekLT(key(i * 99)); iterator.Valid() {
			sum.Write(iterator.Key())
		}
	}
	return fmt.Sprintf("%d keys, %d backwards, %x", forwards, backwards,
		sum.Sum(nil)), errors.Join(iterator.Error(), iterator.Close())
}

// A database has what one in memory has after the same operations. This file system and vfs.Default
// open it in turn, with its log.
func TestSameDataAsDefault(t *testing.T) {
	each(t, func(t *testing.T, fs vfs.FS) {
		dir := filepath.Join(t.TempDir(), "data")
		reference, err := open("reference", vfs.NewMem())
		must(t, err)
		defer reference.Close()
		same := func(what string, r pebble.Reader, want string) string {
			t.Helper()
			got, err := content(r)
			must(t, err)
			if want == "" {
				want, err = content(reference)
				must(t, err)
			}
			if got != want {
				t.Fatalf("%s: %s, not %s", what, got, want)
			}
			return want
		}
		others, seed := []vfs.FS{vfs.Default, fs, vfs.Default}, uint64(0)
		for round, under := range []vfs.FS{fs, vfs.Default, fs} {
			db, err := open(dir, under)
			must(t, err)
			same("opened", db, "")
			both := func() {
				seed++
				must(t, errors.Join(change(db, seed, 3000), change(reference, seed, 3000)))
			}
			both()
			snapshot := db.NewSnapshot()
			before := same("from the memtable and tables", db, "")
			both()
			must(t, errors.Join(db.Flush(), db.Compact([]byte("a"), []byte("z"), true)))
			same("compacted", db, "")
			same("snapshot", snapshot, before)
			must(t, snapshot.Close())
			ingest(t, db, under, reference)
			same("ingested", db, "")

			// A checkpoint, opened on the other file system.
			point := filepath.Join(t.TempDir(), "point")
			must(t, db.Checkpoint(point, pebble.WithFlushedWAL()))
			copied, err := openStill(point, others[round])
			must(t, err)
			same("checkpoint", copied, "")
			must(t, errors.Join(copied.CheckLevels(nil), copied.Close()))

			// A hundred readers while tables are created and removed.
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					for range 50 {
						i := rand.IntN(ingested)
						got, closer, err := db.Get(ingestedKey(i))
						if err != nil || !bytes.Equal(got, value(uint64(i))) {
							t.Error("key", i, err)
							return
						}
						closer.Close()
					}
				})
			}
			must(t, db.Compact([]byte("a"), []byte("z"), true))
			wg.Wait()
			both()
			must(t, db.Close())
			db, err = openStill(dir, under)
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
			if got[i] != want[i] {
				t.Errorf("%s\nvfs.Default: %s", got[i], want[i])
			}
		}
		if vfs.Root(checked) != vfs.Default {
			t.Error("vfs.Root does not return vfs.Default")
		}
	})
}

func methods(t *testing.T, under vfs.FS) (all []string) {
	dir := t.TempDir()
	at := func(name string) string { return under.PathJoin(dir, name) }
	note := func(what string, results ...any) {
		for i, a := range results {
			if err, ok := a.(error); ok {
				text := err.Error()
				results[i] = fmt.Sprint(errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrExist),
					errors.Is(err, fs.ErrClosed),
					"", strings.TrimSpace(text[strings.LastIndex(text, ":")+1:]))
			}
		}
		all = append(all, what+": "+fmt.Sprintln(results...))
	}
	use := func(what string, f vfs.File, err error) {
		if note(what, err); err != nil {
			return
		}
		p := make([]byte, 10)
		n, err := f.Write(bytes.Repeat([]byte("x"), 8192))
		note(what+" write", n, err)
		n, err = f.WriteAt(bytes.Repeat([]byte("abcd"), 1024), 4096)
		note(what+" write at", n, err)
		n, err = f.ReadAt(p, 1)
		note(what+" read at", n, p, err)
		n, err = f.ReadAt(p, 8190)
		note(what+" read at the end", n, p[:n], err)
		n, err = f.ReadAt(p, -1)
		note(what+" read before", n, err)
		n, err = f.Read(p)
		note(what+" read", n, p[:n], err)
		note(what+" preallocate", f.Preallocate(8192, 1<<20))
		info, err := f.Stat()
		note(what+" stat", info.Name(), info.Size(), info.Mode(), info.IsDir(), err)
		full, err := f.SyncTo(4096)
		note(what+" sync to", full, err)
		// (Prefetch of vfs.Default returns errno 0, which is not nil.)
		note(what+" syncs", f.Sync(), f.SyncData(),
			fmt.Sprint(f.Prefetch(0, 4096)) == fmt.Sprint(nil) || under == vfs.Default)
		var stat, wanted fs.FileInfo
		if stat, err = os.Stat(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err == nil {
			wanted, err = f.Stat()
		}
		note(what+" fd", err, os.SameFile(stat, wanted))
		note(what+" close", f.Close())
		note(what+" close again", f.Close() != nil)
		_, err = f.Read(p)
		note(what+" read when closed", errors.Is(err, fs.ErrClosed))
		note(what+" sync when closed", f.Sync() != nil, f.Fd() == vfs.InvalidFd)
	}
	var f vfs.File
	var err error
	f, err = under.Open(at("none"))
	note("open none", f == nil, err)
	_, err = under.Create(at("none/below"))
	note("create below none", err)
	_, err = under.OpenReadWrite(at("none/below"))
	note("open below none", err)
	_, err = under.OpenDir(at("none"))
	note("open dir none", err)
	_, err = under.ReuseForWrite(at("none"), at("other"))
	note("reuse none", err)
	_, err = under.Stat(at("none"))
	note("stat none", err)
	_, err = under.List(at("none"))
	note("list none", err)
	note("remove none", under.Remove(at("none")), under.RemoveAll(at("none")))
	note("names", under.PathBase("/a/b/"), under.PathDir("/a/b"), under.PathJoin("a", "", "b"))

	f, err = under.Create(at("a.sst"))
	use("create", f, err)
	note("link", under.Link(at("a.sst"), at("link")), under.Link(at("a.sst"), at("link")))
	f, err = under.Create(at("a.sst")) // The link keeps the old contents.
	use("create again", f, err)
	f, err = under.Open(at("link"), vfs.RandomReadsOption, vfs.SequentialReadsOption)
	use("open", f, err)
	f, err = under.Open(at("a.sst"), vfs.RandomReadsOption)
	use("open table", f, err)
	f, err = under.Open(at("a.sst"), vfs.SequentialReadsOption)
	use("open table in sequence", f, err)
	f, err = under.OpenReadWrite(at("a.sst"))
	use("open for both", f, err)
	f, err = under.OpenReadWrite(at("new"))
	use("open for both, new", f, err)
	f, err = under.ReuseForWrite(at("a.sst"), at("reused"))
	use("reuse", f, err)
	note("mkdir", under.MkdirAll(at("x/y/z"), 0o700), under.MkdirAll(at("x/y/z"), 0o700),
		under.MkdirAll(at("new/x"), 0o700))
	_, err = under.Create(at("x"))
	note("create in the place of a directory", err)

	f, err = under.OpenDir(dir)
	if note("open dir", err); err == nil {
		full, err := f.SyncTo(10)
		note("dir", full, err, f.Sync(), f.SyncData(), f.Preallocate(0, 100), f.Prefetch(0, 100))
		_, err = f.Write([]byte("x"))
		note("write to dir", err != nil)
		info, err := f.Stat()
		note("stat dir", info.IsDir(), err, f.Close(), f.Close() != nil, f.Sync() != nil)
	}
	f, err = under.Open("/")
	if note("open /", err); err == nil {
		info, err := f.Stat()
		n, readErr := f.ReadAt(make([]byte, 1), 0)
		note("/", info.Name(), err, n, readErr, f.Close())
	}
	lock, err := under.Lock(at("lock"))
	note("lock", err)
	_, again := under.Lock(at("lock"))
	note("lock again", again, lock.Close())
	lock, err = under.Lock(at("lock"))
	note("lock, unlocked", err, lock.Close())
	_, err = under.Lock(at("none/lock"))
	note("lock below none", err)
	names, err := under.List(dir)
	note("list", len(names), err)
	note("copy", vfs.Copy(under, at("reused"), at("copy")),
		vfs.LinkOrCopy(under, at("reused"), at("linked")))
	for _, name := range []string{"reused", "copy", "linked", "link"} {
		p, err := os.ReadFile(at(name))
		sum := fnv.New64a()
		sum.Write(p)
		note("content of "+name, len(p), sum.Sum64(), err)
	}
	usage, err := under.GetDiskUsage(dir)
	note("usage", usage.TotalBytes > 0, err)
	note("remove", under.Rename(at("copy"), at("moved")), under.Remove(at("moved")),
		under.Remove(at("x")), under.RemoveAll(at("x")))
	return all
}

// After a sync, the page cache has no dirty pages of the file.
func TestSyncLeavesNoDirtyPages(t *testing.T) {
	each(t, func(t *testing.T, under vfs.FS) {
		for what, sync := range map[string]func(f vfs.File) error{
			"Sync":     vfs.File.Sync,
			"SyncData": vfs.File.SyncData,
			"syncing file": func(f vfs.File) error {
				return vfs.NewSyncingFile(f,
					vfs.SyncingFileOptions{}).Sync()
			},
		} {
			name := filepath.Join(t.TempDir(), "file")
			f, err := under.Create(name)
			must(t, err)
			if _, err := f.Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
			before, known := suite.Dirty(name)
			if !known {
				skip.Test(t, "this kernel or file system does not report dirty pages")
			}
			if before == 0 {
				t.Errorf("%s: no page was dirty before it", what)
			}
			if err := sync(f); err != nil {
				t.Fatal(what, err)
			}
			if after, _ := suite.Dirty(name); after != 0 {
				t.Errorf("%s: %d pages were dirty, %d are", what, before, after)
			}
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
	db, err := open(dir, pebblevfs.New(engine, pebblevfs.DirectTables()))
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
					return
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
	self, err := os.Executable()
	must(t, err)
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
				cmd := exec.Command(self)
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
					if err != nil {
						t.Fatal(lines.Text())
					}
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
				db, err := openStill(dir, under)
				must(t, err)
				for i := range acknowledged {
					got, closer, err := db.Get(key(i))
					if err != nil || !bytes.Equal(got, value(i)) {
						t.Fatalf("round %d: key %d was acknowledged: %v", round, i, err)
					}
					closer.Close()
				}
				written := map[string]uint64{}
				for r := range round + 1 {
					for i := range uint64(5000) {
						written[string(key(r*each+i))] = r*each + i
					}
				}
				iterator, err := db.NewIter(nil)
				must(t, err)
				found := 0
				for iterator.First(); iterator.Valid(); iterator.Next() {
					if i, ok := written[string(iterator.Key())]; !ok ||
						!bytes.Equal(iterator.Value(), value(i)) {
						t.Fatalf("round %d: %x was never written", round, iterator.Key())
					}
					found++
				}
				must(t, errors.Join(iterator.Error(), iterator.Close(),
					db.CheckLevels(nil)))
				// Each of the 16 goroutines may have written one key without printing it.
				if found < len(acknowledged) || found > len(acknowledged)+16*int(round+1) {
					t.Fatalf("%d keys found, %d acknowledged", found, len(acknowledged))
				}
				tables := int64(0)
				for _, level := range db.Metrics().Levels {
					tables += level.NumFiles
				}
				if round == rounds-1 && tables < 3 {
					t.Error("too few tables were written:", tables)
				}
				must(t, db.Close())
			}
			if len(acknowledged) < 500*rounds {
				t.Fatal("too few keys were written:", len(acknowledged))
			}
			t.Logf("all %d acknowledged keys found", len(acknowledged))
		})
	}
}
