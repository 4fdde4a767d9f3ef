// Reads of cached data: when to try the page cache before an operation is submitted.

package ringway

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
)

// maxCachedRead is the most that one system call copies out of the page cache.
const maxCachedRead = 1 << 20

// cachePredictor predicts whether the page cache holds what the next read of a file asks for. Its
// counters are updated without a lock and may lose updates, which a prediction tolerates.
type cachePredictor struct {
	misses, skip atomic.Uint32
	hits         atomic.Uint32 // In a row, up to certainHits.
}

const (
	// maxMisses in a row is where probes stop getting rarer: one read in 256 probes.
	maxMisses = 12
	// certainHits in a row make the next hit as good as certain.
	certainHits = 4096
	// probeInterval: of reads that are certain hits, one in so many probes and the others are
	// plain calls. Data that has left the cache is noticed after about as many reads, each of
	// which may have blocked a thread.
	probeInterval = 16
)

// cacheUse is how a read uses the page cache.
type cacheUse uint8

const (
	probe     cacheUse = iota // Read from the page cache only (RWF_NOWAIT).
	pread                     // Use the plain call, a tenth cheaper; it blocks on a miss.
	skipCache                 // Do not try the page cache.
)

// next decides how the next read uses the page cache.
func (c *cachePredictor) next() cacheUse {
	if c.hits.Load() >= certainHits {
		if rand.Uint32()%probeInterval != 0 {
			return pread
		}
		return probe
	}
	skip := c.skip.Load()
	if skip == 0 {
		return probe
	}
	c.skip.Store(skip - 1)
	return skipCache
}

// hit records a hit. It writes only what changes, because all readers share the cache line.
func (c *cachePredictor) hit() {
	if c.misses.Load() != 0 {
		c.misses.Store(0)
	}
	if c.hits.Load() < certainHits {
		c.hits.Add(1)
	}
}

// miss records a miss: the more in a row, the more reads go without a probe.
func (c *cachePredictor) miss() {
	c.hits.Store(0)
	misses := min(c.misses.Load()+1, maxMisses)
	c.misses.Store(misses)
	c.skip.Store(1 << misses >> 4)
}

// nextCacheUse decides how the next step of a read uses the page cache.
func (f *File) nextCacheUse() cacheUse {
	if f.direct || !f.storage || f.engine.options.AlwaysRing || !cachedReads {
		return skipCache
	}
	return f.cache.next()
}

// tryCached reads what the page cache holds of the beginning of p, before a step of a read is made.
// With a context that can end, it reads nothing if the try may wait: the step, in a goroutine of
// its own, then reads from the page cache. Without, it blocks only if the cache has always held the
// file's data so far.
func (f *File) tryCached(ctx context.Context, p []byte, off int64) int {
	use := f.nextCacheUse()
	if use != skipCache && ctx.Done() != nil {
		if f.tryMayWait() {
			return 0
		}
		use = probe
	}
	n, _ := f.readCache(use, p[:min(len(p), maxCachedRead)], off)
	return n
}

// prepareTries finds out what tryCached has to know of the file. It may wait for a server.
func (f *File) prepareTries() {
	if f.storage && !f.direct {
		f.lookUpWaits()
	}
}

// readCache uses the page cache as decided. ok is false if p has to be read in another way.
func (f *File) readCache(use cacheUse, p []byte, off int64) (n int, ok bool) {
	switch use {
	case skipCache:
		return 0, false
	case pread:
		n, err := f.blocking(background, opRead, p, off)
		return n, err == nil // An error is found again, and handled, by the step that follows.
	}
	if n, ok = readCached(f.fd, p, off, f.rwFlags()); ok {
		f.cache.hit()
		if n > 0 { // The kernel knew where the data is, to have it.
			f.noteDone(opRead)
		}
	} else {
		f.cache.miss()
	}
	return n, ok
}
