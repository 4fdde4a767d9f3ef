//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

import (
	"path/filepath"
	"testing"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// The prediction of page cache hits.

func TestGuess(t *testing.T) {
	var c cachePredictor
	ways := func(n int) (count [3]int) {
		for range n {
			w := c.next()
			count[w]++
			if w == probe {
				c.miss()
			}
		}
		return count
	}
	if ways(3)[probe] != 3 {
		t.Fatal("a few misses say nothing")
	}
	if n := ways(10_000)[probe]; n < 4 || n > 60 {
		t.Fatal("many do:", n)
	}
	c.hit()
	c.skip.Store(0)
	if ways(3)[probe] != 3 {
		t.Fatal("a hit makes up for them")
	}

	for range certainHits {
		if c.next() == pread {
			t.Fatal("too early to be certain")
		}
		c.skip.Store(0)
		c.hit()
	}
	var count [3]int
	for range 100 * probeInterval {
		count[c.next()]++
	}
	if count[skipCache] > 0 || count[probe] < 50 || count[probe] > 200 {
		t.Fatalf("one read in %d looks: %v", probeInterval, count)
	}
	c.miss()
	if c.next() != probe {
		t.Fatal("a miss ends certainty")
	}
}

// What is believed to be in the page cache and is not, is read all the same, and then no longer believed.
func TestEvicted(t *testing.T) {
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	f, err := e.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content := make([]byte, 4<<20)
	for i := range content {
		content[i] = byte(i >> 12)
	}
	if n, err := f.WriteAt(content, 0); n != len(content) || err != nil {
		t.Fatal(n, err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 4096)
	all := func(rounds int) {
		for i := range rounds {
			page := i * 7 % 1024
			if n, err := f.ReadAt(p, int64(page)<<12); n != len(p) || err != nil || p[0] != byte(page) || p[4095] != byte(page) {
				t.Fatal(page, n, err)
			}
		}
	}
	all(2 * certainHits)
	if f.cache.hits.Load() < certainHits {
		skip.Test(t, "this file system does not tell what is cached")
	}
	for _, advice := range []Advice{AdviceRandom, AdviceDontNeed} { // Random: no reading ahead.
		if err := f.Advise(0, 0, advice); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := readCached(f.fd, p, 2<<20); ok {
		skip.Test(t, "this file system has nothing but its page cache")
	}
	all(200)
	if f.cache.hits.Load() >= certainHits {
		t.Fatal("still certain")
	}
}
