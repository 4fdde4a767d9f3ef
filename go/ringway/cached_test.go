//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The prediction of page cache hits.

package ringway

import (
	"os"
	"testing"

	"github.com/ringway-io/ringway/go/internal/skip"
)

func TestCachePredictor(t *testing.T) {
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
	require(t, ways(3)[probe] == 3, "a few misses stop the probes")
	if n := ways(10_000)[probe]; n < 4 || n > 60 {
		t.Fatal("wrong number of probes after many misses:", n)
	}
	c.hit()
	c.skip.Store(0)
	require(t, ways(3)[probe] == 3, "a hit does not bring the probes back")

	for range certainHits {
		require(t, c.next() != pread, "certain too early")
		c.skip.Store(0)
		c.hit()
	}
	var count [3]int
	for range 100 * probeInterval {
		count[c.next()]++
	}
	require(t, count[skipCache] <= 0 && count[probe] >= 50 && count[probe] <= 200,
		"about one read in %d should probe: %v", probeInterval, count)
	c.miss()
	require(t, c.next() == probe, "a miss does not end certainty")
}

// Reads of data that has left the page cache return the right bytes, and end the prediction that it
// is cached.
func TestEvictedPages(t *testing.T) {
	content := make([]byte, 4<<20)
	for i := range content {
		content[i] = byte(i >> 12)
	}
	f := openIn(t, newOrSkip(t, Options{}), content, os.O_RDWR)
	must(t, f.Sync())
	p := make([]byte, 4096)
	all := func(rounds int) {
		for i := range rounds {
			page := i * 7 % 1024
			n, err := f.ReadAt(p, int64(page)<<12)
			require(t, n == len(p) && err == nil && p[0] == byte(page) && p[4095] == byte(page),
				"%v, %v, %v", page, n, err)
		}
	}
	all(2 * certainHits)
	if f.cache.hits.Load() < certainHits {
		skip.Test(t, "this file system does not report what is cached")
	}
	evict(t, f, 0)
	all(200)
	require(t, f.cache.hits.Load() < certainHits, "the prediction is still certain")
}
