//go:build linux

package pebblevfs_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble"

	ringway "github.com/ringway-io/ringway/go"
	"github.com/ringway-io/ringway/go/pebblevfs"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("RINGWAY_TEST_FILL"); dir != "" {
		fmt.Println(fill(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func open(dir string, backend ringway.Backend) (*pebble.DB, func() error, error) {
	engine, err := ringway.New(ringway.Options{Backend: backend})
	if err != nil {
		return nil, nil, err
	}
	db, err := pebble.Open(dir, &pebble.Options{
		FS: pebblevfs.New(engine), MemTableSize: 1 << 20, Cache: pebble.NewCache(1 << 20), Logger: silent{},
		L0CompactionThreshold: 2,
	})
	if err != nil {
		return nil, nil, err
	}
	return db, func() error {
		if err := db.Close(); err != nil {
			return err
		}
		return engine.Close()
	}, nil
}

type silent struct{}

func (silent) Infof(string, ...any)           {}
func (silent) Errorf(string, ...any)          {}
func (silent) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

func key(i uint64) []byte { return binary.BigEndian.AppendUint64([]byte("key"), i*0x9e3779b97f4a7c15) }

func value(i uint64) []byte {
	b := make([]byte, 200)
	r := rand.New(rand.NewPCG(i, 9))
	for j := range b {
		b[j] = byte(r.Uint32())
	}
	return b
}

// Filled, compacted, iterated, read by many, closed and opened again.
func TestPebble(t *testing.T) {
	for _, backend := range []ringway.Backend{ringway.Uring, ringway.KAIO, ringway.Threads} {
		t.Run(string(backend), func(t *testing.T) {
			dir := t.TempDir()
			db, end, err := open(dir, backend)
			if err != nil {
				t.Fatal(err)
			}
			const count = 30_000
			for i := uint64(0); i < count; i += 100 {
				batch := db.NewBatch()
				for j := i; j < i+100; j++ {
					if err := batch.Set(key(j), value(j), nil); err != nil {
						t.Fatal(err)
					}
				}
				if err := batch.Commit(pebble.NoSync); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
			if err := db.Compact([]byte("a"), []byte("z"), true); err != nil {
				t.Fatal(err)
			}
			check(t, db, count)
			if err := end(); err != nil {
				t.Fatal(err)
			}
			if db, end, err = open(dir, backend); err != nil {
				t.Fatal(err)
			}
			check(t, db, count)
			if err := end(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func check(t *testing.T, db *pebble.DB, count uint64) {
	t.Helper()
	iterator, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := uint64(0)
	for iterator.First(); iterator.Valid(); iterator.Next() {
		seen++
	}
	if err := iterator.Close(); err != nil || seen != count {
		t.Fatalf("%d keys of %d: %v", seen, count, err)
	}
	var wg sync.WaitGroup
	for g := range 100 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 1))
			for range 50 {
				i := random.Uint64N(count)
				got, closer, err := db.Get(key(i))
				if err != nil || !bytes.Equal(got, value(i)) {
					t.Error("key", i, err)
					return
				}
				closer.Close()
			}
		})
	}
	wg.Wait()
	if err := db.CheckLevels(nil); err != nil {
		t.Fatal(err)
	}
}

// fill writes for ever, and tells of each key after its commit was acknowledged.
func fill(dir string) error {
	db, _, err := open(dir, "")
	if err != nil {
		return err
	}
	var next atomic.Uint64
	next.Store(1)
	start, _ := strconv.ParseUint(os.Getenv("RINGWAY_TEST_START"), 10, 64)
	errs := make(chan error)
	var out sync.Mutex
	for range 16 {
		go func() {
			for {
				i := start + next.Add(1)
				if err := db.Set(key(i), value(i), pebble.Sync); err != nil {
					errs <- err
					return
				}
				out.Lock()
				_, _ = os.Stdout.WriteString(strconv.FormatUint(i, 10) + "\n")
				out.Unlock()
			}
		}()
	}
	return <-errs
}

// A process that is killed in the middle of writing: opened again, every key that was acknowledged is there.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := map[uint64]bool{}
	for round := range 5 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "RINGWAY_TEST_FILL="+dir, fmt.Sprintf("RINGWAY_TEST_START=%d", round*1_000_000))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			i, err := strconv.ParseUint(strings.TrimSpace(lines.Text()), 10, 64)
			if err != nil {
				t.Fatal(lines.Text())
			}
			acknowledged[i] = true
			if n == 1000 {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		db, end, err := open(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		for i := range acknowledged {
			got, closer, err := db.Get(key(i))
			if err != nil || !bytes.Equal(got, value(i)) {
				t.Fatalf("round %d: key %d was acknowledged: %v", round, i, err)
			}
			closer.Close()
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	if len(acknowledged) < 5000 {
		t.Fatal("hardly a key was written:", len(acknowledged))
	}
	t.Log(len(acknowledged), "keys were acknowledged, and are there")
}
