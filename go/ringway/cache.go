package ringway

// How to ask for what may be in the page cache.

import (
	"math/rand/v2"
	"sync/atomic"
)

// guess is what is known of a file's reads: whether the page cache has what they ask for. Goroutines may count at once and
// miss one another: it is a guess in any case.
type guess struct {
	misses, skip atomic.Uint32
	hits         atomic.Uint32 // In a row, up to enough.
}

const (
	// mostMisses in a row after which a look does not become rarer: one read in 256.
	mostMisses = 12
	// enough hits in a row, and it is as good as certain that the next read is one.
	enough = 4096
	// glance: then one read in so many looks, and the others go without. What has left the cache meanwhile is noticed after
	// about so many reads, each of which may have blocked its thread.
	glance = 16
)

// way is how to read.
type way uint8

const (
	look  way = iota // Ask the page cache alone.
	plain            // By the plain call, which costs a tenth less and blocks if the page cache has it not.
	away             // Do not ask the page cache.
)

func (g *guess) way() way {
	if g.hits.Load() >= enough {
		if rand.Uint32()%glance != 0 {
			return plain
		}
		return look
	}
	skip := g.skip.Load()
	if skip == 0 {
		return look
	}
	g.skip.Store(skip - 1)
	return away
}

func (g *guess) hit() {
	// Written only when they change, for the cache line is everybody's.
	if g.misses.Load() != 0 {
		g.misses.Store(0)
	}
	if g.hits.Load() < enough {
		g.hits.Add(1)
	}
}

func (g *guess) miss() {
	g.hits.Store(0)
	misses := min(g.misses.Load()+1, mostMisses)
	g.misses.Store(misses)
	g.skip.Store(1 << misses >> 4)
}
